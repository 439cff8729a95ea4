//! Helpers that run the command.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the command, with `WEFT_HTM` removed from its environment.
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

/// Asserts that about `share` of `of` draws had this result, which happened `drawn` times: within the tolerance or,
/// for few draws, within five standard deviations. (Each thread may have one draw in progress when a round ends; it
/// is not counted.)
#[track_caller]
pub fn check_share(drawn: f64, of: f64, share: f64, tolerance: f64) {
    let deviation = (of * share * (1.0 - share)).sqrt();
    let far = (drawn - of * share).abs();
    assert!(far <= (tolerance * of).max(5.0 * deviation) + 4.0, "{drawn} of {of}, not {share}");
}

/// Runs the command, asserts that it succeeds and prints no message, and returns its output.
#[track_caller]
pub fn written(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout).to_owned()
}

/// Returns a path in an empty directory for one test; each test uses a name of its own.
pub fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-directory"));
    // Remove the directory that an earlier run may have left.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the test directory can be made");
    directory.join(name)
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
