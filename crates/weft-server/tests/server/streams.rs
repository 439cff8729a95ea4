//! Streams, with several clients.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::blocking::{next, until_blocked};
use crate::client::TestServer;

#[test]
fn all_who_wait_for_entries_get_them() {
    let server = TestServer::new();
    let (mut one, mut two, mut other) = (server.client(), server.client(), server.client());
    other.line("XADD s 1-1 a 1");
    two.line("HELLO 3");
    one.send(b"XREAD BLOCK 0 STREAMS t s 0 $\r\n");
    two.send(b"XREAD COUNT 1 BLOCK 0 STREAMS s 1-1\r\n");
    until_blocked(&mut other, 2);
    for line in ["MULTI", "XADD s 1-2 b 2", "XADD s 1-3 c 3", "EXEC"] {
        other.line(line);
    }
    assert_eq!(
        next(&mut one),
        "*[*[\"s\", *[*[\"1-2\", *[\"b\", \"2\"]], *[\"1-3\", *[\"c\", \"3\"]]]]]"
    );
    assert_eq!(next(&mut two), "%[\"s\", *[*[\"1-2\", *[\"b\", \"2\"]]]]");
    one.send(b"XREAD BLOCK 0 STREAMS t $\r\n");
    until_blocked(&mut other, 1);
    other.line("XADD u 7-7 x y");
    other.line("RENAME u t");
    assert_eq!(next(&mut one), "*[*[\"t\", *[*[\"7-7\", *[\"x\", \"y\"]]]]]");
}

#[test]
fn consumers_of_a_group_are_served_in_the_order_in_which_they_came() {
    let server = TestServer::new();
    let mut other = server.client();
    other.line("XGROUP CREATE s g 0 MKSTREAM");
    other.line("XGROUP CREATE s h 0");
    let mut consumers = Vec::new();
    for (number, group) in ["g", "g", "h", "g"].iter().enumerate() {
        let mut consumer = server.client();
        let line = format!("XREADGROUP GROUP {group} c{number} COUNT 1 BLOCK 0 STREAMS s >\r\n");
        consumer.send(line.as_bytes());
        until_blocked(&mut other, number + 1);
        consumers.push(consumer);
    }
    other.line("XADD s 1-1 a 1");
    let one = "*[*[\"s\", *[*[\"1-1\", *[\"a\", \"1\"]]]]]";
    assert_eq!(next(&mut consumers[0]), one);
    assert_eq!(next(&mut consumers[2]), one);
    until_blocked(&mut other, 2);
    for line in ["MULTI", "XADD s 1-2 a 2", "XADD s 1-3 a 3", "EXEC"] {
        other.line(line);
    }
    assert_eq!(next(&mut consumers[1]), "*[*[\"s\", *[*[\"1-2\", *[\"a\", \"2\"]]]]]");
    assert_eq!(next(&mut consumers[3]), "*[*[\"s\", *[*[\"1-3\", *[\"a\", \"3\"]]]]]");
    assert_eq!(other.say("XPENDING s g - + 10 c3"), other.say("XPENDING s g 1-3 + 10"));
}

#[test]
fn consumers_that_wait_are_told_when_their_group_is_gone() {
    let server = TestServer::new();
    let (mut consumer, mut other) = (server.client(), server.client());
    let gone = "-NOGROUP No such key 's' or consumer group 'g'";
    for (line, expected) in [
        ("XGROUP DESTROY s g", gone),
        ("DEL s", gone),
        ("RENAME s t", gone),
        ("FLUSHALL", gone),
        ("FLUSHDB", gone),
        ("SET s x", "-WRONGTYPE"),
        ("BITOP NOT s text", "-WRONGTYPE"),
    ] {
        other.line("SET text x");
        other.line("XGROUP CREATE s g 0 MKSTREAM");
        consumer.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >\r\n");
        until_blocked(&mut other, 1);
        other.line(line);
        let reply = next(&mut consumer);
        assert!(reply.starts_with(expected), "{line}: {reply}");
        other.line("DEL s");
    }
}

#[test]
fn readers_wait_on_while_the_key_has_another_type() {
    let server = TestServer::new();
    let (mut reader, mut other) = (server.client(), server.client());
    other.line("XADD s 1-1 a 1");
    reader.send(b"XREAD BLOCK 0 STREAMS s $\r\n");
    until_blocked(&mut other, 1);
    for line in ["SET s x", "DEL s", "RPUSH s x", "DEL s"] {
        other.line(line);
    }
    until_blocked(&mut other, 1);
    other.line("XADD s 2-1 b 2");
    assert_eq!(next(&mut reader), "*[*[\"s\", *[*[\"2-1\", *[\"b\", \"2\"]]]]]");
}

#[test]
fn a_reader_that_follows_misses_no_entry() {
    const ENTRIES: usize = 150;
    let server = TestServer::new();
    server.with_clients(3, |number, mut client| {
        if number > 0 {
            for entry in 0..ENTRIES {
                client.line(&format!("XADD s * entry {number}:{entry}"));
            }
            return;
        }
        let (mut last, mut entries, mut greatest) = ("0".to_owned(), Vec::new(), (0, 0));
        while entries.len() < 2 * ENTRIES {
            let reply = client.say(&format!("XREAD BLOCK 0 STREAMS s {last}"));
            let words = reply.split('"').skip(1).step_by(2).skip(1).map(str::to_owned);
            for entry in words.collect::<Vec<_>>().chunks(3) {
                let (millis, number) = entry[0].split_once('-').unwrap();
                let id: (u64, u64) = (millis.parse().unwrap(), number.parse().unwrap());
                assert!(id > greatest, "{id:?} after {greatest:?}");
                greatest = id;
                last.clone_from(&entry[0]);
                entries.push(entry[2].clone());
            }
        }
        for number in 1..3 {
            let own = format!("{number}:");
            let expected: Vec<_> = (0..ENTRIES).map(|entry| format!("{own}{entry}")).collect();
            entries.sort_by_key(|entry| entry[2..].parse::<usize>().unwrap());
            let own: Vec<_> = entries.iter().filter(|entry| entry.starts_with(&own)).collect();
            assert_eq!(own, expected.iter().collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_group_delivers_each_entry_to_one_consumer() {
    const ENTRIES: usize = 200;
    let server = TestServer::new();
    server.client().line("XGROUP CREATE s g 0 MKSTREAM");
    let taken = Mutex::new(BTreeSet::new());
    server.with_clients(4, |number, mut client| {
        if number == 0 {
            for entry in 0..ENTRIES {
                client.line(&format!("XADD s MAXLEN ~ 100000 * entry {entry}"));
            }
            return;
        }
        loop {
            let line = format!("XREADGROUP GROUP g c{number} COUNT 3 BLOCK 100 STREAMS s >");
            let reply = client.say(&line);
            let words: Vec<_> = reply.split('"').skip(1).step_by(2).skip(1).collect();
            for entry in words.chunks(3) {
                assert!(taken.lock().unwrap().insert(entry[2].parse::<usize>().unwrap()));
                assert_eq!(client.say(&format!("XACK s g {}", entry[0])), ":1");
            }
            if taken.lock().unwrap().len() == ENTRIES {
                return;
            }
        }
    });
    assert_eq!(taken.into_inner().unwrap(), (0..ENTRIES).collect());
    let mut client = server.client();
    assert_eq!(client.say("XPENDING s g"), "*[:0, null, null, null]");
    assert_eq!(client.say("XLEN s"), format!(":{ENTRIES}"));
    let groups = client.say("XINFO GROUPS s");
    assert!(groups.contains("\"entries-read\", :200, \"lag\", :0"), "{groups}");
}

#[test]
fn a_stream_that_is_deleted_leaves_nothing() {
    let server = TestServer::new();
    let mut client = server.client();
    for entry in 0..300 {
        client.line(&format!("XADD s 1-{} a 1", entry + 1));
    }
    client.line("XGROUP CREATE s g 0");
    client.line("XREADGROUP GROUP g c STREAMS s >");
    let before = client.say("INFO memory");
    assert!(before.contains("used_memory"));
    client.line("DEL s");
    assert_eq!(client.say("XGROUP CREATE s g $ MKSTREAM"), "+OK");
    assert_eq!(client.say("XLEN s"), ":0");
    assert_eq!(client.say("XPENDING s g"), "*[:0, null, null, null]");
    assert_eq!(client.say("XADD s 1-1 a 1"), "\"1-1\"");
}
