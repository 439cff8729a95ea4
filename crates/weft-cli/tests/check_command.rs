//! `weft check` as a process: verdicts, exit codes, and messages.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const HEADER: &str = "{\"format\":\"weft-history\",\"version\":1}\n";
const READER: &str = "{\"id\":1,\"invoke\":5,\"complete\":9,\"status\":\"committed\",\"ops\":[[\"read\",\"t\",5,0]]}\n";
const WRITER: &str = "{\"id\":2,\"invoke\":1,\"complete\":2,\"status\":\"committed\",\"ops\":[[\"write\",\"t\",5,1]]}\n";

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
        .arg("check")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that rejects its arguments does not read its input, so the write may fail.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// Writes a file for one test; each test uses a name of its own.
fn file(name: &str, content: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).expect("the test directory can be written");
    path
}

#[test]
fn a_serializable_history_exits_with_0() {
    let output = run(&["-"], &format!("{HEADER}{READER}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = "serializable (strict): 1 transaction (1 committed, 0 aborted, 0 of unknown \
                    outcome), 1 operation\n0 edges:";
    assert!(text(&output.stdout).starts_with(expected), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn an_anomaly_exits_with_1_and_is_explained() {
    let stale = file("stale.jsonl", &format!("{HEADER}{READER}{WRITER}"));
    let stale = stale.to_str().expect("the path is UTF-8");
    let output = run(&[stale], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    for expected in [
        "NOT serializable (strict): 2 transactions",
        "anomaly 1 of 1: stale read (real-time)",
        "1. T1 read the initial version of t/5, which T2 overwrote with version 1",
        "2. T2 was complete (at 2 ns) before T1 was invoked (at 5 ns)",
    ] {
        assert!(told.contains(expected), "{told}");
    }
    assert!(text(&output.stderr).contains("not strictly serializable"), "{output:?}");
    let output = run(&[stale, "--level", "serializable"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn several_files_are_told_apart() {
    let good = file("good.jsonl", &format!("{HEADER}{READER}"));
    let bad = file("bad.edn", "{:type :ok, :process 0, :value [[:r 1 [7]] [:append 1 1]]}");
    let (good, bad) = (good.to_str().expect("UTF-8"), bad.to_str().expect("UTF-8"));
    let output = run(&[good, bad], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    assert!(told.contains("good.jsonl:\nserializable"), "{told}");
    assert!(told.contains("bad.edn:\nNOT serializable") && told.contains("garbage read"), "{told}");
}

#[test]
fn json_is_for_machines() {
    let output = run(&["-", "--json"], &format!("{HEADER}{READER}{WRITER}"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(json[0]["ok"], false);
    assert_eq!(json[0]["file"], "standard input");
    assert_eq!(json[0]["format"], "weft");
    assert_eq!(json[0]["level"], "strict");
    assert_eq!(json[0]["anomaly_count"], 1);
    let anomaly = &json[0]["anomalies"][0];
    assert_eq!((&anomaly["kind"], &anomaly["class"]), (&"stale read".into(), &"real-time".into()));
    assert_eq!(anomaly["steps"][0]["edge"], "rw");
    assert_eq!(anomaly["transactions"], serde_json::json!([1, 2]));
}

#[test]
fn the_witness_can_be_drawn() {
    let dot = file("witness.dot", "");
    let path = dot.to_str().expect("the path is UTF-8");
    let output = run(&["-", "--dot", path], &format!("{HEADER}{READER}{WRITER}"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let drawn = std::fs::read_to_string(&dot).expect("it was written");
    assert!(drawn.starts_with("digraph") && drawn.contains("a0_1 -> a0_2"), "{drawn}");
}

/// `/dev/zero` is one line that never ends.
#[cfg(target_os = "linux")]
#[test]
fn line_without_end_exits_with_2() {
    let output = run(&["/dev/zero"], "");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = text(&output.stderr);
    for expected in ["/dev/zero: line 1: ", "268435456 bytes", "the limit"] {
        assert!(told.contains(expected), "{told}");
    }
}

#[cfg(unix)]
#[test]
fn history_may_come_through_a_fifo() {
    let fifo = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("history.fifo");
    // Remove the FIFO that an earlier run may have left.
    let _ = std::fs::remove_file(&fifo);
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts").success());
    let path = fifo.clone();
    let writer = std::thread::spawn(move || std::fs::write(path, format!("{HEADER}{READER}")));
    let output = run(&[fifo.to_str().expect("the path is UTF-8")], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    writer.join().expect("it does not panic").expect("the reader takes everything");
}

#[test]
fn bad_input_exits_with_2_and_names_file_and_line() {
    let directory = env!("CARGO_MANIFEST_DIR");
    let cases: &[(&[&str], &str, &str)] = &[
        (&[], "", "<FILE>"),
        (&["/nowhere/at/all"], "", "/nowhere/at/all"),
        (&[directory], "", directory),
        (&["-"], "", "standard input: line 1: the file is empty"),
        (
            &["-"],
            "{\"format\":\"weft-history\",\"version\":1}\n{\"id\":1}",
            "line 2: missing field",
        ),
        (&["-", "--format", "list-append"], "{:type :ok", "line 1: the file ends before '}'"),
        (&["-", "--format", "csv"], "", "rw-register"),
        (&["-", "--level", "snapshot"], "", "serializable"),
        (&["-", "-", "--dot", "x.dot"], "", "--dot takes one FILE"),
        (&["-", "--dot", "/nowhere/at/all.dot"], HEADER, "/nowhere/at/all.dot"),
    ];
    for (arguments, input, expected) in cases {
        let output = run(arguments, input);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let message = text(&output.stderr);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn the_help_has_an_example_that_is_true() {
    let output = run(&["--help"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let help = text(&output.stdout);
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with('{'));
    let history: String = lines.map(|line| format!("{line}\n")).collect();
    let told = run(&["-"], &history);
    assert_eq!(told.status.code(), Some(1), "{history}{told:?}");
    let shown = help.lines().filter(|line| line.contains("so T") || line.contains(". T"));
    let shown: Vec<&str> = shown.map(str::trim).collect();
    assert_eq!(shown.len(), 4, "{help}");
    for line in shown {
        assert!(text(&told.stdout).contains(line), "{line}");
    }
}
