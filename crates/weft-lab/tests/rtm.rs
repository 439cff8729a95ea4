//! `cargo lab bench rtm` as a process: it measures on a processor with RTM; elsewhere it names the simulator.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weft::htm::{Choice, Htm, RetryPolicy};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-lab"));
    command.env_remove("WEFT_HTM").stdin(Stdio::null()).args(["bench", "rtm"]).args(arguments);
    command.output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

#[test]
fn arguments_that_make_no_sense_exit_with_2_and_say_what_does() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--kind", "write"], &["'write'", "writes", "random-reads"]),
        (&["--kind", "writes", "--sizes", "31k"], &["'31k'", "writes", "31K"]),
        (&["--kind", "reads", "--sizes", "17M"], &["'17M'", "16M"]),
        (&["--kind", "reads-first", "--sizes", "3M"], &["3M+28K"]),
        (&["--kind", "duration", "--sizes", "4"], &["30us"]),
        (&["--sizes", "4M"], &["'4M'", "one-set"]),
        (&["--threads", "0"], &["--threads", "4x2"]),
        (&["--threads", "1024"], &["1024 threads", "cores"]),
        (&["--threads", "1x64"], &["1 cores with 64 threads each"]),
        (&["--tries", "0"], &["--tries", "from 1"]),
        (&["--seed", "-1"], &["--seed"]),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        for word in *expected {
            assert!(message.contains(word), "{arguments:?}: {word:?} is missing in: {message}");
        }
    }
}

#[test]
fn help_teaches() {
    let help = run(&["--help"]);
    let help = text(&help.stdout);
    for word in
        ["What is measured", "31 KB", "448 bytes", "3 MB", "cargo simulate rtm", "Exit code"]
    {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
}

/// Protects that simulated or missing results are never presented as measurements.
#[test]
fn it_measures_where_there_is_rtm_and_names_the_simulation_where_there_is_none() {
    let output = run(&["--tries", "3", "--threads", "1", "--json", "-"]);
    let message = text(&output.stderr);
    if let Err(unavailable) = Htm::open(Choice::Rtm, RetryPolicy::default()) {
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(text(&output.stdout), "");
        for word in [&unavailable.to_string(), "cargo simulate rtm"] {
            assert!(message.contains(word), "{word:?} is missing in: {message}");
        }
        return;
    }
    assert_eq!((output.status.code(), message), (Some(0), ""));
    let json: Value = serde_json::from_slice(&output.stdout).expect("nothing but JSON");
    for result in json.as_array().expect("an array") {
        assert_eq!(result["simulated"], false, "{result}");
        assert_eq!((&result["tries"], &result["threads"]), (&3.into(), &"1".into()), "{result}");
        let count = |name: &str| result[name].as_u64().expect(name);
        let ends = ["committed", "aborted_capacity", "aborted_conflict", "aborted_system_event"];
        assert_eq!(ends.map(count).iter().sum::<u64>(), 3, "{result}");
    }
    let output = run(&["--kind", "price,writes", "--sizes", "alone", "--threads", "1"]);
    assert_eq!(output.status.code(), Some(2), "no size of writes: {}", text(&output.stdout));
    let output = run(&["--kind", "price", "--tries", "10", "--threads", "1"]);
    let table = text(&output.stdout);
    for word in ["| price | alone  | 1       |", "seed 1", "system event"] {
        assert!(table.contains(word), "{word:?} is missing in:\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}
