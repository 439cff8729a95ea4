//! Keyspace notifications: which events commands cause, and their order.
//!
//! `tests/events.txt` has commands, and below each the events that Redis 7.0.15 publishes. With the environment variable
//! `WEFT_SERVER_RECORD` it is written again, by the `redis-server` of the machine.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::client::{Client, TestServer, Value};
use crate::replies::Redis;

/// Returns the parts of the next message.
fn message(client: &mut Client) -> Vec<String> {
    let Some(Value::List(_, parts)) = client.read() else { panic!("the connection is open") };
    parts.iter().map(|part| part.shown().replace('"', "")).collect()
}

/// Runs the commands of a script, and returns it with their events.
fn run(address: SocketAddr, script: &str) -> String {
    let (mut client, mut subscriber) = (Client::new(address), Client::new(address));
    client.line("FLUSHALL");
    assert_eq!(client.say("CONFIG SET notify-keyspace-events AKE"), "+OK");
    subscriber.send(b"PSUBSCRIBE __key*\r\nSUBSCRIBE end\r\n");
    (0..2).for_each(|_| drop(message(&mut subscriber)));
    let mut recorded = String::new();
    for line in script.lines().filter(|line| !line.starts_with(' ')) {
        let reply = client.say(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        client.line("PUBLISH end x");
        writeln!(recorded, "{line}").unwrap();
        loop {
            let parts = message(&mut subscriber);
            if parts[1] == "end" {
                break;
            }
            writeln!(recorded, "  {} {}", parts[2], parts[3]).unwrap();
        }
    }
    recorded
}

#[test]
fn events_are_those_of_redis() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/events.txt");
    let script = std::fs::read_to_string(path).unwrap();
    if std::env::var_os("WEFT_SERVER_RECORD").is_some() {
        let redis = Redis::start_in(&std::env::temp_dir())
            .expect("install redis-server to record its events");
        std::fs::write(path, run(redis.1, &script)).unwrap();
    }
    let recorded = std::fs::read_to_string(path).unwrap();
    let events = run(TestServer::new().address, &recorded);
    let differences = recorded.lines().zip(events.lines()).find(|(redis, weft)| redis != weft);
    assert_eq!(differences, None, "Redis and Weft");
    assert_eq!(events.len(), recorded.len());
}

#[test]
fn each_key_expires_once() {
    let server = TestServer::new();
    let (mut client, mut subscriber) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events Exn");
    assert_eq!(
        client.say("CONFIG GET notify-keyspace-events"),
        "*[\"notify-keyspace-events\", \"xnE\"]"
    );
    subscriber.line("PSUBSCRIBE __keyevent@0__:*");
    client.line("SET removed 1 PX 1");
    let both = [message(&mut subscriber), message(&mut subscriber)].map(|parts| parts[2].clone());
    assert_eq!(both, ["__keyevent@0__:new", "__keyevent@0__:expired"]);
    // A command that replaces an expired key says so, unless the background has removed the key.
    for (old, new) in [("SET k 1", "SET k 2"), ("RPUSH k 1", "HSET k f v"), ("SET k 1", "SADD k v")]
    {
        client.line("DEL k");
        client.line(old);
        client.line("PEXPIRE k 1");
        while client.say("EXISTS k") != ":0" {}
        client.line(new);
        client.line("DEL k");
        let events = [(); 3].map(|()| message(&mut subscriber)[2].clone());
        let (new, expired) = ("__keyevent@0__:new", "__keyevent@0__:expired");
        assert_eq!(events, [new, expired, new], "{old}, then {new}");
    }
    client.line("CONFIG SET notify-keyspace-events \"\"");
    client.line("SET last x");
    client.line("PUBLISH __keyevent@0__:end x");
    assert_eq!(message(&mut subscriber)[2], "__keyevent@0__:end");
    assert!(
        client.say("CONFIG SET notify-keyspace-events Km").starts_with("-ERR CONFIG SET failed")
    );
}

#[test]
fn events_of_a_key_come_in_the_order_of_commits() {
    let server = TestServer::new();
    let (mut client, mut subscriber) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events K$l");
    subscriber.line("SUBSCRIBE __keyspace@0__:k");
    server.with_clients(3, |number, mut client| {
        // Each transaction notes its event in a list.
        let (command, event) =
            [("INCRBY k 1", "incrby"), ("SETRANGE k 0 1", "setrange"), ("SET k 0", "set")][number];
        for _ in 0..60 {
            client.send(format!("MULTI\r\nRPUSH log {event}\r\n{command}\r\nEXEC\r\n").as_bytes());
            (0..4).for_each(|_| drop(client.read()));
        }
    });
    let log = client.say("LRANGE log 0 -1").replace('"', "");
    let events: Vec<_> = (0..180).map(|_| message(&mut subscriber)[2].clone()).collect();
    assert_eq!(log, format!("*[{}]", events.join(", ")));
}
