//! Tests of limits: a database that has reached its memory limit, transactions and snapshots that are too old, and a
//! full disk. What is refused gets a typed failure, everything else goes on, and nothing needs a restart.

mod ages;
mod disk;
mod memory;

use weft::{Error, Failure, Record};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "texts")]
struct Text {
    #[record(key)]
    id: u64,
    #[record(index)]
    group: u32,
    text: String,
}

impl Text {
    fn new(id: u64, bytes: usize) -> Text {
        Text { id, group: (id % 7) as u32, text: "x".repeat(bytes) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "plains", storage = "hash")]
struct Plain {
    #[record(key)]
    id: u64,
    value: u64,
    contents: [u64; 100],
}

impl Plain {
    fn new(id: u64) -> Plain {
        Plain { id, value: 0, contents: [id; 100] }
    }
}

/// Returns the failure behind an error.
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Failure(failure)) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

/// Calls `attempt` until it returns a value.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..20_000 {
        if let Some(value) = attempt() {
            return value;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("this does not happen: {what}");
}

/// Runs an ignored test of this program in a process of its own, and returns what it has printed.
fn in_a_process(mut command: std::process::Command, test: &str, case: &str) -> String {
    let output = command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("WEFT_LIMITS_CASE", case)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {}\n{printed}\n{errors}", output.status);
    printed
}
