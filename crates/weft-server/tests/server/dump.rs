//! Values go to a Redis of the machine and come back, by `DUMP` and `RESTORE`, in all forms that Redis has for them.

use crate::client::{Client, TestServer, Value};
use crate::import::VALUES;
use crate::missing::skip;
use crate::replies::Redis;

/// More values, some of which Redis keeps in other forms.
const MORE: &[&str] = &[
    "SET empty \"\"",
    "SET minus -70000",
    "SADD integers 1 2 3 -70000 5000000000",
    "RPUSH numbers 0 127 128 -1 -4096 -4097 32768 8388608 2147483648 9223372036854775807 -9223372036854775808",
    "HSET pair name value number 12",
    "XADD open * a 1",
    "XADD mixed 1-1 a 1 b 2",
    "XADD mixed 1-2 a 3 b 4",
    "XADD mixed 2-0 other 5",
    "XGROUP CREATE empty-stream g $ MKSTREAM",
];

/// Settings with which Redis keeps collections in the forms for large ones, and the default.
const LARGE: &[(&str, &str, &str)] = &[
    ("hash-max-listpack-entries", "0", "128"),
    ("zset-max-listpack-entries", "0", "128"),
    ("set-max-intset-entries", "0", "512"),
    ("list-max-listpack-size", "2", "-2"),
    ("list-compress-depth", "1", "0"),
    ("stream-node-max-entries", "2", "100"),
];

fn fill(client: &mut Client) {
    assert_eq!(client.say("FLUSHALL"), "+OK");
    for line in VALUES.iter().chain(MORE) {
        assert!(!client.say(line).starts_with('-'), "{line}");
    }
    for number in 0..300 {
        client.line(&format!("RPUSH long element{number}"));
        client.line(&format!("HSET wide field{number} {number}"));
        client.line(&format!("ZADD scores {number}.25 member{number}"));
        client.line(&format!("XADD large {number}-1 number {number} text abc"));
    }
    client.call(&[b"SET", b"repeated", &b"weft".repeat(5000)]);
    client.call(&[b"RPUSH", b"giant", &[b'x'; 20_000], b"small"]);
}

/// Returns all that a server says of a key.
fn describe(client: &mut Client, key: &str) -> String {
    let questions: &[&str] = match client.say(&format!("TYPE {key}")).as_str() {
        "+string" => &["GET"],
        "+hash" => &["HGETALL"],
        "+set" => &["SMEMBERS"],
        "+list" => &["LRANGE 0 -1"],
        "+zset" => &["ZRANGE 0 -1 WITHSCORES"],
        "+stream" => &["XRANGE - +", "XPENDING readers", "XINFO GROUPS", "XINFO STREAM"],
        other => panic!("{key}: {other}"),
    };
    let mut described = String::new();
    for question in questions {
        let mut words = question.splitn(if question.starts_with("XINFO") { 3 } else { 2 }, ' ');
        let line = match words.next() {
            Some("XINFO") => format!("{question} {key}"),
            name => format!("{} {key} {}", name.unwrap(), words.next().unwrap_or("")),
        };
        let reply = client.line(&line);
        let reply = match reply {
            Value::List('*', mut pairs) if *question == "HGETALL" => {
                let mut fields: Vec<_> =
                    pairs.chunks(2).map(|pair| (pair[0].shown(), pair[1].shown())).collect();
                fields.sort();
                pairs.clear();
                format!("{fields:?}")
            }
            // Weft has no radix tree, of which the pairs at the beginning tell.
            Value::List('*', values) if *question == "XINFO STREAM" => {
                Value::List('*', [&values[..2], &values[6..]].concat()).shown()
            }
            reply if *question == "SMEMBERS" => reply.sorted().shown(),
            reply => reply.shown(),
        };
        described += &format!("{question}: {reply}\n");
    }
    described
}

fn keys(client: &mut Client) -> Vec<String> {
    let Value::List('*', keys) = client.line("KEYS *") else { panic!("a list") };
    let text = |key: Value| match key {
        Value::Text(key) => String::from_utf8(key).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut keys: Vec<String> = keys.into_iter().map(text).collect();
    keys.sort();
    keys
}

/// Copies a key from one server to another.
fn copy(from: &mut Client, to: &mut Client, key: &str) {
    let Value::Text(payload) = from.call(&[b"DUMP", key.as_bytes()]) else { panic!("{key}") };
    let restored = to.call(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]);
    assert_eq!(restored.shown(), "+OK", "{key}: {}", payload.escape_ascii());
}

#[test]
fn values_go_to_redis_and_come_back() {
    let Some(redis) = Redis::start_in(&std::env::temp_dir()) else {
        skip("redis-server", "redis-server");
        return;
    };
    let server = TestServer::new();
    let (mut theirs, mut ours) = (Client::new(redis.1), server.client());
    for is_large in [false, true] {
        for (name, large, small) in LARGE {
            let value = if is_large { large } else { small };
            assert_eq!(theirs.say(&format!("CONFIG SET {name} {value}")), "+OK");
        }
        fill(&mut theirs);
        let expected: Vec<_> =
            keys(&mut theirs).into_iter().map(|key| (describe(&mut theirs, &key), key)).collect();
        assert!(expected.len() > 20);
        for (described, key) in &expected {
            copy(&mut theirs, &mut ours, key);
            assert_eq!(describe(&mut ours, key), *described, "{key}");
        }
        // And back, also from one Weft to another key of it.
        assert_eq!(theirs.say("FLUSHALL"), "+OK");
        for (described, key) in &expected {
            copy(&mut ours, &mut theirs, key);
            assert_eq!(describe(&mut theirs, key), *described, "{key}");
            let mut again = server.client();
            copy(&mut ours, &mut again, key);
            assert_eq!(describe(&mut ours, key), *described, "{key}");
        }
    }
}

#[test]
fn restored_streams_go_on_as_they_were() {
    let server = TestServer::new();
    let mut client = server.client();
    for line in VALUES {
        client.line(line);
    }
    copy_as(&mut client, "stream", "copy");
    for (line, expected) in [
        (
            "XADD copy 6-0 a b",
            "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
        ),
        ("XADD copy 9-0 a b", "\"9-0\""),
        (
            "XREADGROUP GROUP readers two STREAMS copy >",
            "*[*[\"copy\", *[*[\"9-0\", *[\"a\", \"b\"]]]]]",
        ),
        (
            "XPENDING copy readers",
            "*[:3, \"5-1\", \"9-0\", *[*[\"one\", \"2\"], *[\"two\", \"1\"]]]",
        ),
        ("XACK copy readers 5-1", ":1"),
        ("XPENDING stream readers", "*[:2, \"5-1\", \"6-0\", *[*[\"one\", \"2\"]]]"),
        ("XDEL copy 5-1 5-2 6-0 9-0", ":4"),
        ("XLEN copy", ":0"),
        ("DEL copy", ":1"),
        ("XLEN stream", ":3"),
    ] {
        assert_eq!(client.say(line), expected, "{line}");
    }
}

fn copy_as(client: &mut Client, from: &str, to: &str) {
    let Value::Text(payload) = client.call(&[b"DUMP", from.as_bytes()]) else { panic!("{from}") };
    assert_eq!(client.call(&[b"RESTORE", to.as_bytes(), b"0", &payload]).shown(), "+OK");
}

#[test]
fn a_restored_key_wakes_and_expires_and_is_an_event() {
    let server = TestServer::new();
    let (mut client, mut waiter, mut subscriber) =
        (server.client(), server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events KEAn");
    subscriber.line("SUBSCRIBE __keyspace@0__:l");
    client.line("RPUSH source a b");
    client.line("SET watched 1");
    waiter.send(b"BLPOP l 0\r\n");
    while !client.say("CLIENT LIST").contains("cmd=blpop") {}
    let Value::Text(payload) = client.line("DUMP source") else { panic!("a string") };
    assert_eq!(client.call(&[b"RESTORE", b"l", b"100000", &payload]).shown(), "+OK");
    assert_eq!(waiter.read().unwrap().shown(), "*[\"l\", \"a\"]");
    assert!(client.say("PTTL l").trim_start_matches(':').parse::<i64>().unwrap() > 90_000);
    for event in ["new", "restore", "lpop"] {
        let message = subscriber.read().unwrap().shown();
        assert!(message.ends_with(&format!("\"{event}\"]")), "{message}");
    }
    // A key that is restored counts as changed.
    let mut watcher = server.client();
    watcher.line("WATCH watched");
    client.call(&[b"RESTORE", b"watched", b"0", &payload, b"REPLACE"]);
    watcher.line("MULTI");
    watcher.line("PING");
    assert_eq!(watcher.line("EXEC"), Value::Null);
}
