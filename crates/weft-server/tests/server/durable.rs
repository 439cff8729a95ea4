//! The program with a directory: what was acknowledged survives a kill.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use redis::Commands;

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
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
struct Program(Child);

impl Program {
    fn start(directory: &Path) -> Self {
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

fn connect(directory: &Path) -> redis::Connection {
    let address = format!("redis+unix://{}", directory.join("socket").display());
    redis::Client::open(address).unwrap().get_connection().unwrap()
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let directory = Directory::new("kill");
    let path = &directory.0;
    let mut acknowledged = [0_i64; 2];
    for _ in 0..3 {
        let mut program = Program::start(path);
        let mut connection = connect(path);
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let count: i64 = connection.get(format!("counter:{number}")).unwrap_or(0);
            // A transaction that was not acknowledged may have happened.
            assert!(count == *acknowledged || count == acknowledged + 1, "{count} {acknowledged}");
            let members: i64 = connection.scard(format!("set:{number}")).unwrap();
            let items: Vec<i64> = connection.lrange(format!("list:{number}"), 0, -1).unwrap();
            assert_eq!((members, items.len() as i64), (count, count), "it happened in part");
            assert_eq!(items, (1..=count).collect::<Vec<_>>());
        }
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let path = path.clone();
                thread::spawn(move || {
                    let mut connection = connect(&path);
                    let mut last = connection.get(format!("counter:{number}")).unwrap_or(0);
                    loop {
                        let next: i64 = last + 1;
                        let done: redis::RedisResult<(i64, i64, i64)> = redis::pipe()
                            .atomic()
                            .incr(format!("counter:{number}"), 1)
                            .sadd(format!("set:{number}"), next)
                            .rpush(format!("list:{number}"), next)
                            .query(&mut connection);
                        match done {
                            Ok(replies) => assert_eq!(replies, (next, 1, next)),
                            Err(_) => return last,
                        }
                        last = next;
                    }
                })
            })
            .collect();
        let mut observer = connect(path);
        let begun: i64 = observer.get("counter:0").unwrap_or(0);
        while observer.get::<_, i64>("counter:0").unwrap_or(0) < begun + 20 {}
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
    let mut connection = connect(path);
    let () = connection.set("k", "v").unwrap();
    let id = program.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
    assert!(!path.join("socket").exists());
    let _program = Program::start(path);
    assert_eq!(connect(path).get::<_, String>("k").unwrap(), "v");
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
