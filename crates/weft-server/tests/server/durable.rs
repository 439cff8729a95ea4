//! The program with a directory: what was acknowledged survives a kill.

use std::os::unix::fs::PermissionsExt;
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
pub struct Program {
    pub child: Child,
    socket: PathBuf,
}

impl Program {
    pub fn start_in(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
        Self::start_with(command.stderr(Stdio::null()), directory, &[])
    }

    pub fn start_with(command: &mut Command, directory: &Path, arguments: &[&str]) -> Self {
        let socket = directory.join("socket");
        let child = command
            .args(["--port", "0", "--threads", "2"])
            .arg("--directory")
            .arg(directory.join("data"))
            .arg("--socket")
            .arg(&socket)
            .args(arguments)
            .spawn()
            .unwrap();
        let mut program = Program { child, socket };
        while std::os::unix::net::UnixStream::connect(&program.socket).is_err() {
            let ended = program.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server has not started: {ended:?}");
            thread::yield_now();
        }
        program
    }

    pub fn client(&self) -> Client {
        Client::local(&self.socket)
    }

    pub fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
    }

    /// Ends the program in order.
    pub fn terminate(&mut self) {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// Counts on from `last`, and adds the number to a set and to a list, in one transaction after the other. Returns the last
/// number that was acknowledged when the server is gone.
fn write(mut client: Client, number: usize, mut last: i64) -> i64 {
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
    let kills = std::env::var("WEFT_SERVER_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..kills {
        let mut program = Program::start_in(path);
        let mut client = connect(path);
        for (number, acknowledged) in acknowledged.iter_mut().enumerate() {
            let count = integer(&client.line(&format!("GET counter:{number}")));
            // A transaction that was not acknowledged may have happened.
            assert!(count == *acknowledged || count == *acknowledged + 1, "{count} {acknowledged}");
            *acknowledged = count;
            let members = integer(&client.line(&format!("SCARD set:{number}")));
            let items = integers(&client.line(&format!("LRANGE list:{number} 0 -1")));
            assert_eq!(members, count, "it happened in part");
            assert_eq!(items, (1..=count).collect::<Vec<_>>());
        }
        let writers: Vec<_> = acknowledged
            .iter()
            .enumerate()
            .map(|(number, &last)| {
                let client = connect(path);
                thread::spawn(move || write(client, number, last))
            })
            .collect();
        let enough = acknowledged[0] + random.i64(1..40);
        while integer(&client.line("GET counter:0")) < enough {}
        program.child.kill().unwrap();
        for (acknowledged, writer) in acknowledged.iter_mut().zip(writers) {
            *acknowledged = writer.join().unwrap();
        }
    }
}

#[test]
fn an_element_that_a_waiter_got_is_gone_after_a_kill_and_no_other() {
    let directory = Directory::new("blocked");
    let path = &directory.0;
    let (mut pushed, mut taken) = (0, 0);
    for _ in 0..2 {
        let mut program = Program::start_in(path);
        let mut client = connect(path);
        let left = integers(&client.line("LRANGE jobs 0 -1"));
        // What was not acknowledged may have happened.
        let last = left.last().map_or(pushed.max(taken), |last| *last);
        let first = left.first().map_or(last + 1, |first| *first);
        assert!(first == taken + 1 || first == taken + 2, "{first} after {taken}");
        assert!(last == pushed || last == pushed + 1, "{last} after {pushed}");
        assert_eq!(left, (first..=last).collect::<Vec<_>>());
        let begun = last;
        let pusher = thread::spawn({
            let mut client = connect(path);
            move || {
                let mut last = begun;
                loop {
                    client.send(format!("RPUSH jobs {}\r\n", last + 1).as_bytes());
                    match client.read() {
                        Some(_) => last += 1,
                        None => return last,
                    }
                }
            }
        });
        let taker = thread::spawn({
            let mut client = connect(path);
            move || {
                let mut last = first - 1;
                loop {
                    client.send(b"BLPOP jobs 0\r\n");
                    let Some(Value::List(_, values)) = client.read() else { return last };
                    assert_eq!(integer(&values[1]), last + 1);
                    last += 1;
                }
            }
        });
        while integer(&client.line("INCR rounds")) % 40 != 0 {}
        program.child.kill().unwrap();
        (pushed, taken) = (pusher.join().unwrap(), taker.join().unwrap());
    }
}

#[test]
fn a_client_can_wait_for_the_disk() {
    let directory = Directory::new("waitaof");
    let path = &directory.0;
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
    let mut program = Program::start_with(&mut command, path, &["--acknowledge", "at-once"]);
    let mut client = connect(path);
    client.line("SET k v");
    assert_eq!(client.say("WAIT 1 100"), ":0");
    assert_eq!(client.say("WAITAOF 1 0 1000"), "*[:1, :0]");
    program.child.kill().unwrap();
    drop(program);
    let _program = Program::start_in(path);
    assert_eq!(connect(path).say("GET k"), "\"v\"");
    let refused = crate::client::TestServer::new().client().say("WAITAOF 1 0 0");
    assert!(refused.starts_with("-ERR WAITAOF cannot be used"), "{refused}");
}

#[test]
fn only_the_user_of_the_server_can_connect_to_its_unix_socket() {
    let directory = Directory::new("mode");
    let _program = Program::start_in(&directory.0);
    // A server that answers has set the mode: a moment before, the socket was there without it.
    assert_eq!(connect(&directory.0).say("PING"), "+PONG");
    let mode = directory.0.join("socket").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_signal_ends_the_program_in_order() {
    let directory = Directory::new("signal");
    let path = &directory.0;
    let mut program = Program::start_in(path);
    assert_eq!(connect(path).say("SET k v"), "+OK");
    program.terminate();
    assert!(!path.join("socket").exists());
    let _program = Program::start_in(path);
    assert_eq!(connect(path).say("GET k"), "\"v\"");
}

#[test]
fn wrong_arguments_say_what_to_do() {
    for (arguments, expected) in [
        (&["--port", "0"][..], "give a --port, a --tls-port, or a --socket"),
        (&["--password-file", "/nonexistent/file"], "/nonexistent/file"),
        (&["--acknowledge", "never"], "durable, at-once"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weft-server")).args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(expected), "{message}");
    }
}
