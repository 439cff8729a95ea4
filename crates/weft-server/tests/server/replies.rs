//! The replies of Redis 7.0.15 to scripts of commands: `tests/replies`.
//!
//! A line of a script is a command, and the line below it, after two spaces, is Redis's reply. If the reply has no order,
//! the command has a `~` in front. With the environment variable `WEFT_SERVER_RECORD` the replies are written again, by the
//! `redis-server` of the machine.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weft_server::Options;

use crate::client::{Client, TestServer};

/// Where Weft differs from Redis on purpose: the command, and Weft's reply.
const DIFFERENCES: &[(&str, &str)] = &[
    // Redis misses places on the other side of the edge of the map.
    ("GEOSEARCH world FROMLONLAT 180 10 BYRADIUS 100 km ASC", "*[\"west\", \"east\"]"),
    // The longest string is a setting of Weft's.
    ("SETBIT b 4294967296 1", "-ERR bit offset is not an integer or out of range"),
];

fn scripts() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/replies");
    let mut scripts: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    scripts
}

/// Runs the commands of a script, and returns it with their replies.
fn run(address: SocketAddr, script: &str) -> String {
    let mut client = Client::new(address);
    client.line("FLUSHALL");
    let mut recorded = String::new();
    for line in script.lines().filter(|line| !line.starts_with(' ')) {
        let reply = match line.strip_prefix('~') {
            Some(unordered) => client.line(unordered).sorted(),
            None => client.line(line),
        };
        writeln!(recorded, "{line}\n  {}", reply.shown()).unwrap();
    }
    recorded
}

/// A Redis of the machine.
pub struct Redis(Child, pub SocketAddr);

impl Redis {
    /// Starts it, with its files in this folder. `None` if the machine does not have it.
    pub fn start_in(folder: &Path) -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = ["--save", "", "--port", &port.to_string()];
        let child = Command::new("redis-server")
            .args(arguments)
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        while std::net::TcpStream::connect(address).is_err() {
            std::thread::yield_now();
        }
        Some(Redis(child, address))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether two replies to `TTL` differ only by the time that a busy machine has needed.
fn is_later(command: &str, expected: &str, reply: &str) -> bool {
    let seconds = |reply: &str| reply.strip_prefix(':')?.parse::<u64>().ok();
    let (Some(expected), Some(reply)) = (seconds(expected), seconds(reply)) else { return false };
    command.starts_with("TTL ") && (expected.saturating_sub(9)..=expected).contains(&reply)
}

#[test]
fn replies_are_those_of_redis() {
    if std::env::var_os("WEFT_SERVER_RECORD").is_some() {
        let redis = Redis::start_in(&std::env::temp_dir())
            .expect("install redis-server to record its replies");
        for path in scripts() {
            let script = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, run(redis.1, &script)).unwrap();
        }
    }
    // A script with thousands of commands takes long on a busy machine.
    let script_time = Duration::from_secs(50);
    let server = TestServer::with(Options { script_time, ..Options::default() });
    let mut differences = String::new();
    for path in scripts() {
        let script = std::fs::read_to_string(&path).unwrap();
        let replies = run(server.address, &script);
        let pairs = |text: &str| {
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
        };
        for ((command, expected), (_, reply)) in pairs(&script).iter().zip(pairs(&replies)) {
            let known = DIFFERENCES.iter().find(|(known, _)| known == command);
            let expected = known.map_or(expected.trim(), |(_, reply)| reply);
            if reply.trim() != expected && !is_later(command, expected, reply.trim()) {
                let name = path.file_stem().unwrap().to_string_lossy();
                writeln!(
                    differences,
                    "{name}: {command}\n  Redis {expected}\n  Weft  {}",
                    reply.trim()
                )
                .unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "{differences}");
}
