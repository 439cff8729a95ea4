//! Helpers that run the command.

use std::process::{Command, Output, Stdio};

/// Returns the command, with `WEFT_HTM` removed from its environment.
pub fn weft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env_remove("WEFT_HTM").stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    weft().args(arguments).output().expect("the binary starts")
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// Runs the command, asserts that it succeeds and prints no message, and returns its output.
#[track_caller]
pub fn written(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout).to_owned()
}

/// Runs a benchmark with each list of arguments, asserts that it rejects them, and looks for the words in its
/// message.
pub fn refused(workload: &str, cases: &[(&[&str], &[&str])]) {
    for (arguments, expected) in cases {
        let output = run(&[&["bench", workload], *arguments].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}: nothing is run or announced");
        for word in *expected {
            assert!(message.contains(word), "{arguments:?}: {word:?} is missing in: {message}");
        }
        assert!(!message.contains("panicked"), "{arguments:?}: {message}");
    }
}
