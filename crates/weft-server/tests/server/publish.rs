//! Publish/subscribe, with several clients.

use weft_server::Options;

use crate::client::{Client, TestServer};

/// Returns the next reply or message as one line.
fn next(client: &mut Client) -> String {
    client.read().expect("the connection is open").shown()
}

#[test]
fn messages_arrive_in_both_versions_of_the_protocol() {
    let server = TestServer::new();
    for (version, list) in [("2", '*'), ("3", '>')] {
        let (mut one, mut publisher) = (server.client(), server.client());
        one.line(&format!("HELLO {version}"));
        one.send(b"SUBSCRIBE a b\r\nPSUBSCRIBE [ab]*\r\nSSUBSCRIBE a\r\n");
        assert_eq!(next(&mut one), format!("{list}[\"subscribe\", \"a\", :1]"));
        assert_eq!(next(&mut one), format!("{list}[\"subscribe\", \"b\", :2]"));
        assert_eq!(next(&mut one), format!("{list}[\"psubscribe\", \"[ab]*\", :3]"));
        assert_eq!(next(&mut one), format!("{list}[\"ssubscribe\", \"a\", :1]"));
        assert_eq!(publisher.say("PUBLISH a x"), ":2");
        assert_eq!(publisher.say("PUBLISH absent x"), ":1");
        assert_eq!(publisher.say("PUBLISH c x"), ":0");
        assert_eq!(publisher.say("SPUBLISH a y"), ":1");
        let mut arrived: Vec<_> = (0..4).map(|_| next(&mut one)).collect();
        arrived.sort();
        let mut expected = [
            format!("{list}[\"message\", \"a\", \"x\"]"),
            format!("{list}[\"pmessage\", \"[ab]*\", \"a\", \"x\"]"),
            format!("{list}[\"pmessage\", \"[ab]*\", \"absent\", \"x\"]"),
            format!("{list}[\"smessage\", \"a\", \"y\"]"),
        ];
        expected.sort();
        assert_eq!(arrived, expected);
        assert_eq!(publisher.line("PUBSUB CHANNELS").sorted().shown(), "*[\"a\", \"b\"]");
        assert_eq!(publisher.say("PUBSUB CHANNELS a*"), "*[\"a\"]");
        assert_eq!(publisher.say("PUBSUB NUMSUB a c"), "*[\"a\", :1, \"c\", :0]");
        publisher.line(&format!("HELLO {version}"));
        // A list, also in RESP3.
        assert_eq!(publisher.say("PUBSUB NUMSUB a c"), "*[\"a\", :1, \"c\", :0]");
        assert_eq!(publisher.say("PUBSUB SHARDNUMSUB a c"), "*[\"a\", :1, \"c\", :0]");
        assert_eq!(publisher.say("PUBSUB NUMPAT"), ":1");
        assert_eq!(publisher.say("PUBSUB SHARDCHANNELS"), "*[\"a\"]");
        if version == "2" {
            assert_eq!(one.say("PING"), "*[\"pong\", \"\"]");
            let refused = one.say("GET k");
            assert!(refused.starts_with("-ERR Can't execute 'get': only (P|S)SUBSCRIBE"));
        } else {
            assert_eq!(one.say("PING"), "+PONG");
            assert_eq!(one.say("SET k v"), "+OK");
            // A message to oneself comes after the reply.
            assert_eq!(one.say("PUBLISH b own"), ":2");
            next(&mut one);
            next(&mut one);
        }
        one.send(b"UNSUBSCRIBE\r\n");
        let (first, second) = (next(&mut one), next(&mut one));
        assert!(first.ends_with(":2]") && second.ends_with(":1]"), "{first} {second}");
        one.send(b"PUNSUBSCRIBE [ab]*\r\nSUNSUBSCRIBE\r\nUNSUBSCRIBE\r\nGET absent\r\n");
        assert_eq!(next(&mut one), format!("{list}[\"punsubscribe\", \"[ab]*\", :0]"));
        assert_eq!(next(&mut one), format!("{list}[\"sunsubscribe\", \"a\", :0]"));
        let null = if version == "2" { "null" } else { "_" };
        assert_eq!(next(&mut one), format!("{list}[\"unsubscribe\", {null}, :0]"));
        assert_eq!(next(&mut one), null);
        assert_eq!(publisher.say("PUBSUB CHANNELS"), "*[]");
    }
}

#[test]
fn subscriptions_end_with_the_connection_and_with_reset() {
    let server = TestServer::new();
    let (mut one, mut two, mut publisher) = (server.client(), server.client(), server.client());
    one.line("SUBSCRIBE a");
    two.line("PSUBSCRIBE a");
    assert_eq!(two.say("RESET"), "+RESET");
    assert_eq!(two.say("GET absent"), "null");
    assert_eq!(publisher.say("PUBLISH a x"), ":1");
    drop(one);
    while publisher.say("PUBLISH a x") != ":0" {}
}

#[test]
fn a_transaction_publishes_once_after_its_commit() {
    let server = TestServer::new();
    let (mut one, mut other) = (server.client(), server.client());
    one.line("SUBSCRIBE a");
    for line in ["MULTI", "PUBLISH a discarded", "DISCARD", "MULTI", "PUBLISH a undone"] {
        other.line(line);
    }
    other.line("SET k text");
    other.line("LPUSH k x");
    other.line("DISCARD");
    for line in ["CLIENT WEFT.ROLLBACK ON", "SET k text", "MULTI", "PUBLISH a undone", "LPUSH k x"]
    {
        other.line(line);
    }
    assert!(other.say("EXEC").starts_with("-EXECABORT"));
    other.line("WATCH k");
    server.client().line("SET k changed");
    for line in ["MULTI", "PUBLISH a undone"] {
        other.line(line);
    }
    assert_eq!(other.say("EXEC"), "null");
    for line in ["MULTI", "SUBSCRIBE b", "PUBLISH a one", "SET k v", "PUBLISH a two"] {
        let reply = other.say(line);
        assert_eq!(reply.starts_with('-'), line.starts_with("SUBSCRIBE"), "{reply}");
    }
    assert_eq!(other.say("EXEC"), "*[:1, +OK, :1]");
    assert_eq!(next(&mut one), "*[\"message\", \"a\", \"one\"]");
    assert_eq!(next(&mut one), "*[\"message\", \"a\", \"two\"]");
    assert_eq!(other.say("PUBLISH a three"), ":1");
    assert_eq!(next(&mut one), "*[\"message\", \"a\", \"three\"]");
}

#[test]
fn messages_arrive_in_the_order_of_commits() {
    let server = TestServer::new();
    let mut subscriber = server.client();
    subscriber.line("SUBSCRIBE a");
    server.with_clients(3, |number, mut client| {
        for round in 0..100 {
            let lines = format!(
                "MULTI\r\nRPUSH log {number}:{round}\r\nPUBLISH a {number}:{round}\r\nEXEC\r\n"
            );
            client.send(lines.as_bytes());
            (0..4).for_each(|_| drop(client.read().unwrap()));
        }
    });
    let log = server.client().say("LRANGE log 0 -1");
    let messages: Vec<_> = (0..300)
        .map(|_| next(&mut subscriber).replace("*[\"message\", \"a\", ", "").replace(']', ""))
        .collect();
    assert_eq!(log, format!("*[{}]", messages.join(", ")));
}

#[test]
fn subscribers_that_read_nothing_are_dropped() {
    let server = TestServer::with(Options { mailbox_bytes: 1 << 20, ..Options::default() });
    let (mut slow, mut publisher) = (server.client(), server.client());
    slow.line("SUBSCRIBE a");
    let payload = vec![b'x'; 100_000];
    while publisher.call(&[b"PUBLISH", b"a", &payload]).shown() != ":0" {}
    let stats = publisher.say("INFO stats");
    assert!(stats.contains("client_output_buffer_limit_disconnections:1"), "{stats}");
    while slow.read().is_some() {}
}
