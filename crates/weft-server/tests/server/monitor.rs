//! Clients that see every command which the server runs.

use std::io::Read;
use std::net::TcpStream;

use weft_server::Options;

use crate::client::{Client, TestServer, Value};
use crate::missing::skip;
use crate::replies::Redis;

/// Commands that a monitor sees, or does not see.
const COMMANDS: &[&str] = &[
    "SET key \"a\\x00\\\"b\\\\\\r\\n\\xff\"",
    "get key",
    "GET",
    "NOSUCH a",
    "AUTH someone secret",
    "HELLO 2 AUTH someone secret",
    "CONFIG GET maxmemory",
    "LPUSH key x",
    "MULTI",
    "SET key 1",
    "INCR key",
    "EXEC",
    "MULTI",
    "SET key 2",
    "DISCARD",
    "EVAL \"redis.call('incr', KEYS[1]) return redis.call('get', KEYS[1])\" 1 key",
    "SELECT 3",
    "BLPOP absent 0.01",
    "SELECT 0",
    "PING end",
];

/// Returns the lines that a monitor has seen until the last command, without what differs: the time and the address.
fn watch(server: &mut Client, monitor: &mut Client) -> Vec<String> {
    assert_eq!(monitor.say("MONITOR"), "+OK");
    for line in COMMANDS {
        server.line(line);
    }
    let mut lines = Vec::new();
    loop {
        let Some(Value::Line(line)) = monitor.read() else { panic!("the monitor is closed") };
        let (_, rest) = line.split_once(" [").unwrap();
        let (from, arguments) = rest.split_once("] ").unwrap();
        let (space, address) = from.split_once(' ').unwrap();
        let from = if address.contains(':') { "client" } else { address };
        // In Redis the line already has the database that is selected.
        let space = if arguments.starts_with("\"SELECT\"") { "-" } else { space };
        lines.push(format!("{space} {from} {arguments}"));
        if arguments.contains("\"end\"") {
            return lines;
        }
    }
}

#[test]
fn a_monitor_sees_what_it_sees_in_redis() {
    let server = TestServer::new();
    let ours = watch(&mut server.client(), &mut server.client());
    assert!(ours.iter().all(|line| !line.contains("secret")), "{ours:?}");
    assert!(ours.contains(&"0 lua \"incr\" \"key\"".to_owned()), "{ours:?}");
    let Some(redis) = Redis::start_in(&std::env::temp_dir()) else {
        skip("redis-server", "redis-server");
        return;
    };
    let theirs = watch(&mut Client::new(redis.1), &mut Client::new(redis.1));
    assert_eq!(ours, theirs);
}

#[test]
fn pipelines_are_seen_and_a_monitor_can_end() {
    let server = TestServer::new();
    let (mut client, mut monitor) = (server.client(), server.client());
    let seen = |monitor: &mut Client| {
        let line = monitor.read().unwrap().shown();
        line.split_once("] ").unwrap().1.to_owned()
    };
    monitor.line("MONITOR");
    let pipeline: String =
        (0..20).map(|number| format!("*2\r\n$4\r\nINCR\r\n$2\r\n{number:02}\r\n")).collect();
    client.send(pipeline.as_bytes());
    for number in 0..20 {
        assert_eq!(client.read().unwrap().shown(), ":1");
        assert_eq!(seen(&mut monitor), format!("\"INCR\" \"{number:02}\""));
    }
    // It can subscribe, and gets both.
    monitor.send(b"SUBSCRIBE channel\r\n");
    while !monitor.read().unwrap().shown().starts_with("*[") {}
    client.line("PUBLISH channel text");
    let both: Vec<_> = (0..3).map(|_| monitor.read().unwrap().shown()).collect();
    for word in ["\"SUBSCRIBE\"", "\"PUBLISH\"", "\"message\""] {
        assert!(both.iter().any(|line| line.contains(word)), "{both:?}");
    }
    monitor.send(b"RESET\r\n");
    while monitor.read().unwrap().shown() != "+RESET" {}
    client.line("PING");
    assert_eq!(monitor.say("ECHO x"), "\"x\"");
}

#[test]
fn a_monitor_that_reads_nothing_is_closed_and_others_are_served() {
    let server = TestServer::with(Options { mailbox_bytes: 64 << 10, ..Options::default() });
    let mut monitor = TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(&mut monitor, b"MONITOR\r\n").unwrap();
    let mut client = server.client();
    while !client.say("CLIENT LIST").contains("cmd=monitor") {}
    let value = vec![b'x'; 4096];
    // Until the buffers of the system and the mailbox are full.
    while client.say("INFO stats").contains("buffer_limit_disconnections:0") {
        assert_eq!(client.call(&[b"SET", b"k", &value]).shown(), "+OK");
    }
    // What the system has kept, and then the end.
    let _ = monitor.read_to_end(&mut Vec::new());
    while client.say("CLIENT LIST").contains("cmd=monitor") {}
}

#[test]
fn a_user_who_may_not_monitor_any_more_sees_nothing_more() {
    let server = TestServer::new();
    let (mut client, mut monitor) = (server.client(), server.client());
    client.line("ACL SETUSER watcher on nopass +monitor +ping");
    assert_eq!(monitor.say("AUTH watcher x"), "+OK");
    assert_eq!(monitor.say("MONITOR"), "+OK");
    client.line("PING");
    assert!(monitor.read().unwrap().shown().contains("\"PING\""));
    client.line("ACL SETUSER watcher -monitor");
    while monitor.read().is_some() {}
    client.line("ACL SETUSER other on nopass +ping");
    let mut other = server.client();
    other.line("AUTH other x");
    assert!(other.say("MONITOR").starts_with("-NOPERM"));
}
