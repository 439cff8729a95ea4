//! Running the command.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The command, which does what it does whatever the environment says of HTM.
pub fn weft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-lab"));
    command.env_remove("WEFT_HTM").stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    weft().args(arguments).output().expect("the binary starts")
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Checks that of so many draws about such a share came out like this: within the tolerance, or, if there are
/// few, within five standard deviations. (Of the draws that are under way when a round ends, one a thread, none is
/// counted.)
#[track_caller]
pub fn check_share(drawn: f64, of: f64, share: f64, tolerance: f64) {
    let deviation = (of * share * (1.0 - share)).sqrt();
    let far = (drawn - of * share).abs();
    assert!(far <= (tolerance * of).max(5.0 * deviation) + 4.0, "{drawn} of {of}, not {share}");
}

/// Runs the command, which must succeed in silence, and returns what it prints.
#[track_caller]
pub fn written(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout).to_owned()
}

/// A path in a directory of this test's own.
pub fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-directory"));
    // A run before this one may have left it.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the test directory can be made");
    directory.join(name)
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
