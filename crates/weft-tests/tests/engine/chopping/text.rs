//! Tests of outlines as text: the parser refuses hostile files quickly, with short messages.

use std::sync::mpsc;
use std::time::Duration;

use weft_procedures::chopping::{Outlines, TextError};

/// The time that the parser may take for about a megabyte, in an unoptimized build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parses a text on another thread, so that an endless parser fails the test.
fn read(what: &str, text: String) -> Result<Outlines, TextError> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(text.parse()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what}: the parser is too slow"))
}

fn refused(what: &str, text: String) -> TextError {
    match read(what, text) {
        Ok(_) => panic!("{what} was accepted"),
        Err(error) => error,
    }
}

fn lines(number: usize, line: impl Fn(usize) -> String) -> String {
    (0..number).map(|position| line(position) + "\n").collect()
}

#[test]
fn long_line_is_read_in_linear_time() {
    let error = refused("brackets", "(".repeat(1 << 20));
    assert_eq!((error.line, error.column), (1, 1), "{error}");
    let error =
        refused("brackets at the end", format!("procedure p\n  read t {}", "(".repeat(1 << 20)));
    assert_eq!((error.line, error.column), (2, 11), "{error}");
    let error = refused("an umlaut at the end", format!("procedure p {} ?", "é ".repeat(1 << 19)));
    assert_eq!((error.line, error.column), (1, 1_048_590), "{error}");
    let columns = "c, ".repeat(1 << 18);
    let outlines = read("columns", format!("procedure p\n  read t ({columns} d)\nend\n"));
    assert_eq!(outlines.map(|outlines| outlines.procedures.len()), Ok(1));
}

#[test]
fn many_lines_are_read_in_linear_time() {
    let cases = [
        ("procedures", lines(20_000, |it| format!("procedure p{it}\nread t\nend"))),
        ("steps", format!("procedure p\n{}end\n", lines(40_000, |it| format!("s{it}: read t")))),
        (
            "dependencies",
            format!(
                "procedure p\ns: read t\n{}end\n",
                lines(20_000, |it| match it {
                    0 => "s0: read t; if s".to_owned(),
                    _ => format!("s{it}: read t; if s{}; key from s", it - 1),
                })
            ),
        ),
        (
            "loops",
            format!(
                "procedure p\ns: read t\n{}end\n",
                lines(20_000, |it| format!("loop over s\ns{it}: read t; if s\nend"))
            ),
        ),
        ("tokens", lines(20_000, |it| format!("token t{it} for a{it}, b{it}"))),
    ];
    for (what, text) in cases {
        if let Err(error) = read(what, text) {
            panic!("{what}: {error}");
        }
    }
    let labels: Vec<String> = (0..10_000).map(|it| format!("s{it}")).collect();
    let steps = lines(10_000, |it| format!("s{it}: read t"));
    let inner = lines(10_000, |it| format!("i{it}: read t"));
    let over = format!("procedure p\n{steps}loop over {}\n{inner}end\nend\n", labels.join(", "));
    assert!(read("loop over many", over).is_ok());
}

#[test]
fn loops_are_nested_to_a_limit() {
    let nested = |depth| {
        format!("procedure p\n{}read t\n{}end\n", "loop\n".repeat(depth), "end\n".repeat(depth))
    };
    assert!(read("64 loops", nested(64)).is_ok());
    for depth in [65, 100_000] {
        let error = refused("nested loops", nested(depth));
        assert_eq!((error.line, error.column), (66, 1), "{error}");
        assert!(error.what.contains("64"), "{error}");
    }
}

#[test]
fn messages_quote_little_of_a_huge_name() {
    let huge = "x".repeat(1 << 20);
    let cases = [
        (huge.clone(), "stands where 'procedure' or 'token' should be"),
        (format!("procedure {huge}"), "'end' is missing"),
        (format!("procedure {huge}\nprocedure q"), "'end' is missing before this"),
        (format!("procedure p {huge}"), "stands where the line's end should be"),
        (format!("procedure p\n{huge} t\nend"), "stands where a step"),
        (format!("procedure p\nread {huge}\nread {huge}\nend"), "give one of them another label"),
        (format!("procedure {huge}\nread t; if {huge}\nend"), "is called"),
        (format!("procedure p\nread t; if {huge}\n{huge}: read t\nend"), "which runs later"),
        (format!("procedure {huge}\nend\nprocedure {huge}\nend"), "two procedures are called"),
        (
            format!("token a for {huge}\ntoken b for {huge}"),
            "are guarded by tokens of more than one table",
        ),
    ];
    for (text, expected) in cases {
        let error = refused(expected, text).to_string();
        let start: String = error.chars().take(200).collect();
        assert!(error.contains(expected), "{start} does not say {expected:?}");
        assert!(error.len() <= 500, "{} bytes: {start}", error.len());
    }
}

#[test]
fn late_dependency_is_refused_at_its_step() {
    let late = "procedure p\n  read a; if b\n  read b\nend\n";
    assert_eq!(
        refused("late", late.to_owned()).to_string(),
        "line 2, column 3: it depends on 'b', which runs later"
    );
    let later_loop = "procedure p\n  loop over b\n    read a\n  end\n  read b\nend\n";
    assert_eq!(
        refused("later loop", later_loop.to_owned()).to_string(),
        "line 3, column 5: it depends on 'b', which runs later"
    );
    // A step may depend on a later step of an earlier iteration, if a loop contains both.
    let earlier = "procedure p\n  loop\n    read a; if b\n    loop over c\n      read b\n    end\n    read c\n  end\nend\n";
    assert!(read("earlier iteration", earlier.to_owned()).is_ok());
}
