//! `cargo lab chop` as a process.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{run, written};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/chopping");
    root.join(name).to_str().expect("a plain path").to_owned()
}

/// The paper's Figures 10 and 11, with every conflict and every reason.
#[test]
fn tpcc_chopping_matches_the_golden_files() {
    let text = written(&["chop", "tpcc", "--default"]);
    assert_eq!(text, include_str!("golden/chop_tpcc_default.txt"), "{text}");
    let text = written(&["chop", "tpcc", "--all-optimizations"]);
    assert_eq!(text, include_str!("golden/chop_tpcc_all.txt"), "{text}");
    assert_eq!(text, written(&["chop", "tpcc"]));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn each_optimization_has_a_switch() {
    let conventional = written(&["chop", "tpcc", "--none", "--with", "commutativity,reordering"]);
    assert_eq!(conventional, written(&["chop", "tpcc", "--default"]));
    let without = written(&["chop", "tpcc", "--without", "deferral"]);
    assert!(
        !without.contains("  deferred  ") && without.contains("payment.customer_2"),
        "{without}"
    );
    let six = "columns,commutativity,reordering,snapshots,deferral,tokens";
    let by_name = written(&["chop", "tpcc", "--none", "--with", six]);
    assert_eq!(by_name, written(&["chop", "tpcc", "--without", "static-tables"]));
}

#[test]
fn json_has_what_a_protocol_needs() {
    let json = written(&["chop", "tpcc", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    let procedures = json["procedures"].as_array().expect("an array");
    let delivery = procedures.iter().find(|it| it["name"] == "delivery").expect("it is there");
    assert_eq!(
        delivery["pieces"],
        json!([
            {"kind": "conflicting", "steps": [0, 1]},
            {"kind": "exclusive", "steps": [2]},
            {"kind": "exclusive", "steps": [3, 4]},
            {"kind": "deferred", "steps": [5]},
        ])
    );
    assert_eq!(delivery["is_as_written"], true);
    assert_eq!(json["static_tables"], json!(["item"]));
    let conflicts = json["conflicts"].as_array().expect("an array");
    let deferred = conflicts.iter().filter(|it| it["standing"] == "deferred");
    let publishers: Vec<&Value> = deferred.map(|it| &it["publisher"]).collect();
    assert_eq!(publishers, [&json!([3, 5]); 2], "{conflicts:?}");
}

#[test]
fn pictures_are_drawn_into_files() {
    let (svg, dot) = (file("chop.svg"), file("chop.dot"));
    let (svg_name, dot_name) = (svg.to_str().expect("plain"), dot.to_str().expect("plain"));
    let silent = written(&["chop", "tpcc", "--svg", svg_name, "--dot", dot_name]);
    assert_eq!(silent, "");
    let svg = std::fs::read_to_string(&svg).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(
        svg.contains("delivery (2)") && svg.contains("on snapshots: order_status, stock_level")
    );
    let dot = std::fs::read_to_string(&dot).expect("it was written");
    assert!(dot.starts_with("graph ") && dot.ends_with("}\n"), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count(), "{dot}");
    // Four, six and four pieces in each of two instances of three procedures.
    assert_eq!(
        dot.matches("    \"").count() - dot.matches(" -- ").count() + red(&dot),
        28,
        "{dot}"
    );
    // `--text` adds the text to the pictures.
    assert_eq!(written(&["chop", "tpcc", "--text", "--svg", svg_name]), written(&["chop", "tpcc"]));
}

/// The number of C-edges in a graph.
fn red(dot: &str) -> usize {
    dot.matches("color=red").count()
}

/// A file written by `--outlines` can be read, and is the same workload.
#[test]
fn a_workload_may_be_a_file() {
    for workload in
        ["bank", "flash-sale", "incr", "like", "queue", "rubis", "shift", "tatp", "tpcc"]
    {
        let outlines = written(&["chop", workload, "--outlines"]);
        let path = file(&format!("{workload}.txt"));
        std::fs::write(&path, &outlines).expect("it can be written");
        let name = path.to_str().expect("plain");
        assert_eq!(written(&["chop", name]), written(&["chop", workload]));
        assert_eq!(written(&["chop", name, "--outlines"]), outlines);
    }
    let outlines = written(&["chop", "tpcc", "--outlines"]);
    let stored = std::fs::read_to_string(example("tpcc.txt")).expect("it is there");
    assert_eq!(outlines, stored, "docs/examples/chopping/tpcc.txt is what --outlines writes");
}

#[test]
fn the_examples_are_chopped_as_their_page_says() {
    let points = written(&["chop", &example("points.txt")]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/chopping.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    for line in points.lines().take(12) {
        assert!(page.contains(line), "{line:?} of {points}");
    }
    let source = std::fs::read_to_string(example("points.txt")).expect("it is there");
    assert!(page.contains(&source), "the example is on the page");
    let bank = written(&["chop", &example("bank.txt")]);
    assert!(bank.contains("transfer: ") && bank.contains("static       rate"), "{bank}");
}

#[test]
fn help_has_a_correct_example() {
    let help = written(&["chop", "--help"]);
    for words in ["SC-cycle", "procedure transfer", "--outlines", "commutative", "docs/chopping.md"]
    {
        assert!(help.contains(words), "{words}: {help}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    // The help's example works and gives the result shown.
    let start = help.find("  procedure transfer").expect("it is there");
    let end = help.find("  $ cargo lab chop bank.txt").expect("it is there");
    let path = file("help.txt");
    std::fs::write(&path, &help[start..end]).expect("it can be written");
    let text = written(&["chop", path.to_str().expect("plain"), "--default"]);
    let shown = &help[end..];
    for line in text.lines().filter(|line| line.contains("piece") || line.contains("  1  ")) {
        let is_left_out = line.contains("audit") || line.contains("account");
        assert!(is_left_out || shown.contains(line.trim()), "{line:?} of {text}");
    }
}

#[test]
fn refused_admission_names_the_cycle() {
    let admitted = written(&["chop", "tpcc", "--admit", "stock_level"]);
    assert!(admitted.starts_with("5 procedures"), "{admitted}");
    let refused = run(&["chop", "tpcc", "--admit", "delivery"]);
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&refused.stderr);
    for words in
        ["'delivery' cannot be added", "'new_order' runs in other pieces", "cycle: ", "-C["]
    {
        assert!(errors.contains(words), "{words}: {errors}");
    }
}

/// Runs `cargo lab chop` with a file, asserts that it exits with code 2, and returns its message.
#[track_caller]
fn refused(name: &str, content: &str) -> String {
    let path = file(name);
    std::fs::write(&path, content).expect("it can be written");
    let output = run(&["chop", path.to_str().expect("plain")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let start: String = errors.chars().take(300).collect();
    assert_eq!(output.status.code(), Some(2), "{start}");
    assert!(output.stdout.is_empty(), "{start}");
    assert!(errors.len() < 1000, "{} bytes: {start}", errors.len());
    assert!(errors.contains(name), "{start}");
    errors
}

#[test]
fn file_without_procedures_is_refused() {
    for content in ["", "\n \n", "# a comment\n  # another\n", "token a for b\n"] {
        let errors = refused("no-procedures.txt", content);
        assert!(errors.contains("there is no procedure in it"), "{content:?}: {errors}");
    }
}

#[test]
fn hostile_file_is_refused_briefly() {
    let bytes_max = 1 << 20;
    let errors = refused("brackets.txt", &"(".repeat(bytes_max));
    assert!(errors.contains("line 1, column 1: '(' stands where"), "{errors}");
    let errors = refused("word.txt", &"x".repeat(bytes_max));
    assert!(errors.contains("line 1, column 1: 'xxx"), "{errors}");
    let steps: String = (0..1001).map(|step| format!("s{step}: read t\n")).collect();
    let errors = refused("steps.txt", &format!("procedure p\n{steps}end\n"));
    assert!(errors.contains("it has 1001 steps, and the limit is 1000"), "{errors}");
    let errors = refused("too-long.txt", &"(".repeat(bytes_max + 1));
    assert!(errors.contains("longer than 1048576 bytes"), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn file_without_end_is_refused() {
    let output = run(&["chop", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("longer than 1048576 bytes"), "{errors}");
    let output = run(&["bench", "compare", "/dev/zero", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("'/dev/zero': it is longer than 67108864 bytes"), "{errors}");
}

#[test]
fn errors_name_their_place() {
    let path = file("wrong.txt");
    std::fs::write(&path, "procedure p\n  reed t\nend\n").expect("it can be written");
    let wrong = path.to_str().expect("plain");
    for (arguments, expected) in [
        (&["chop", "nothing"][..], &["'nothing'", "tpcc", "cannot be read as a file"][..]),
        (&["chop", wrong], &["wrong.txt: line 2, column 3: 'reed' stands where"]),
        (&["chop", "tpcc", "--admit", "audit"], &["'audit'", "new_order, payment"]),
        (&["chop", "tpcc", "--default", "--none"], &["--none"]),
        (&["chop", "tpcc", "--with", "magic"], &["magic", "static-tables"]),
        (&["chop", "tpcc", "--with", "tokens", "--without", "tokens"], &["'tokens' is named by"]),
        (&["chop", "tpcc", "--svg", "/nowhere/at/all"], &["/nowhere/at/all"]),
        (&["chop", "tpcc", "--json", "--text"], &["--text"]),
    ] {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(expected.iter().all(|word| errors.contains(word)), "{arguments:?}: {errors}");
    }
}
