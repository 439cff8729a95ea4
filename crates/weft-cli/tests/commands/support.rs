//! Running the command.

use std::process::{Command, Output, Stdio};

/// The command, which does what it does whatever the environment says of HTM.
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

/// Runs the command, which must succeed in silence, and returns what it prints.
#[track_caller]
pub fn written(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout).to_owned()
}

/// Runs a benchmark with each of the arguments, and looks for the words in what it refuses them
/// with.
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
