//! The program with a directory: what was acknowledged survives a kill.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::client::{Client, Value};

/// A directory that is removed at the end.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let unique = format!("weft-server-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program, on a Unix socket in the directory.
pub struct Program(pub Child);

impl Program {
    pub fn start(directory: &Path) -> Self {
        let socket = directory.join("socket");
        let child = Command::new(env!("CARGO_BIN_EXE_weft-server"))
            .args(["--port", "0", "--threads", "2"])
            .arg("--directory")
            .arg(directory.join("data"))
            .arg("--socket")
            .arg(&socket)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            thread::yield_now();
        }
        Program(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn connect(directory: &Path) -> Client {
    Client::local(&directory.join("socket"))
}

/// Returns the integer of a reply, or 0 if there is no such key.
pub fn integer(reply: &Value) -> i64 {
    match reply {
        Value::Null => 0,
        Value::Line(line) => line.trim_start_matches(':').parse().unwrap(),
        Value::Text(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        Value::List(..) => panic!("{}", reply.shown()),
    }
}

pub fn integers(reply: &Value) -> Vec<i64> {
    let Value::List(_, values) = reply else { panic!("{}", reply.shown()) };
    values.iter().map(integer).collect()
}

/// Counts, and adds the number to a set and to a list, in one transaction after the other. Returns the last number that
/// was acknowledged when the server is gone.
fn write(mut client: Client, number: usize) -> i64 {
    let mut last = integer(&client.line(&format!("GET counter:{number}")));
    loop {
        let next = last + 1;
        let commands = [
            "MULTI".to_owned(),
            format!("INCR counter:{number}"),
            format!("SADD set:{number} {next}"),
            format!("RPUSH list:{number} {next}"),
            "EXEC".to_owned(),
        ];
        client.send(format!("{}\r\n", commands.join("\r\n")).as_bytes());
        let replies: Option<Vec<Value>> = (0..commands.len()).map(|_| client.read()).collect();
        let Some(replies) = replies else { return last };
        assert_eq!(integers(&replies[4]), [next, 1, next]);
        last = next;
    }
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let directory = Directory::new("kill");
    let path = &directory.0;
    let mut acknowledged = [0_i64; 2];
    for _ in 0..3 {
        let mut program = Program::start(path);
        let mut client = connect(path);
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let count = integer(&client.line(&format!("GET counter:{number}")));
            // A transaction that was not acknowledged may have happened.
            assert!(count == *acknowledged || count == acknowledged + 1, "{count} {acknowledged}");
            let members = integer(&client.line(&format!("SCARD set:{number}")));
            let items = integers(&client.line(&format!("LRANGE list:{number} 0 -1")));
            assert_eq!(members, count, "it happened in part");
            assert_eq!(items, (1..=count).collect::<Vec<_>>());
        }
        let begun = integer(&client.line("GET counter:0"));
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let client = connect(path);
                thread::spawn(move || write(client, number))
            })
            .collect();
        while integer(&client.line("GET counter:0")) < begun + 20 {}
        program.0.kill().unwrap();
        for (acknowledged, writer) in acknowledged.iter_mut().zip(writers) {
            *acknowledged = writer.join().unwrap();
        }
    }
}

#[test]
fn a_signal_ends_the_program_in_order() {
    let directory = Directory::new("signal");
    let path = &directory.0;
    let mut program = Program::start(path);
    assert_eq!(connect(path).say("SET k v"), "+OK");
    let id = program.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
    assert!(!path.join("socket").exists());
    let _program = Program::start(path);
    assert_eq!(connect(path).say("GET k"), "\"v\"");
}

#[test]
fn wrong_arguments_say_what_to_do() {
    for (arguments, expected) in [
        (&["--port", "0"][..], "give a --port, or a --socket"),
        (&["--password-file", "/nonexistent/file"], "/nonexistent/file"),
        (&["--acknowledge", "never"], "durable, at-once"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weft-server")).args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(expected), "{message}");
    }
}
