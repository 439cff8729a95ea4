//! Transactions of several clients.

use crate::client::TestServer;

#[test]
fn a_watched_key_that_another_client_changes_stops_exec() {
    let server = TestServer::new();
    let (mut one, mut other) = (server.client(), server.client());
    let changes = [
        ("SET k 1", "string"),
        ("INCR k", "counter"),
        ("APPEND k x", "string"),
        ("EXPIRE k 100", "string"),
        ("DEL k", "string"),
        ("RENAME k l", "string"),
        ("RENAME string k", "list"),
        ("FLUSHALL", "string"),
        ("HSET k g v", "hash"),
        ("HDEL k f", "hash"),
        ("RPUSH k x", "list"),
        ("LPOP k", "list"),
        ("SADD k x", "set"),
        ("SPOP k", "set"),
        ("ZADD k 2 m", "zset"),
        ("ZREM k m", "zset"),
        ("COPY string k REPLACE", "hash"),
        ("SET k 1", "absent"),
    ];
    let make = [
        "SET string a",
        "SET counter 1",
        "HSET hash f v",
        "RPUSH list a b",
        "SADD set a b",
        "ZADD zset 1 m",
    ];
    for (change, from) in changes {
        one.line("FLUSHALL");
        make.iter().for_each(|line| drop(one.line(line)));
        one.line(&format!("COPY {from} k"));
        assert_eq!(one.say("WATCH k"), "+OK");
        one.line("GET unrelated");
        other.line("SET unrelated 1");
        assert!(!other.say(change).starts_with('-'), "{change}");
        one.line("MULTI");
        one.line("SET result done");
        assert_eq!(one.say("EXEC"), "null", "after {change} of a {from}");
        assert_eq!(one.say("GET result"), "null");
        // A key that was not touched does not stop anything.
        one.line("WATCH quiet");
        other.line("SET loud 1");
        one.line("MULTI");
        assert_eq!(one.say("EXEC"), "*[]");
    }
}

#[test]
fn an_error_rolls_back_if_the_client_asks_for_it() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("SET word abc");
    assert_eq!(client.say("CLIENT WEFT.ROLLBACK ON"), "+OK");
    for line in ["MULTI", "SET kept 1", "SELECT 1", "INCR word", "SELECT 0", "INCR word"] {
        client.line(line);
    }
    let refused = client.say("EXEC");
    assert!(
        refused.starts_with("-EXECABORT Transaction rolled back because command 5 (incr)"),
        "{refused}"
    );
    assert_eq!(client.say("GET kept"), "null");
    assert_eq!(client.say("GET word"), "\"abc\"");
    assert_eq!(client.say("CLIENT WEFT.ROLLBACK OFF"), "+OK");
    for line in ["MULTI", "SET kept 1", "INCR word"] {
        client.line(line);
    }
    assert!(client.say("EXEC").starts_with("*[+OK, -ERR"));
    assert_eq!(client.say("GET kept"), "\"1\"");
}

#[test]
fn transactions_of_many_clients_are_serializable() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("MSET left 1000 right 0");
    server.with_clients(4, |number, mut client| {
        for _ in 0..50 {
            client.send(
                b"MULTI\r\nDECR left\r\nINCR right\r\nMGET left right\r\nHINCRBY hash f 1\r\n\
                  RPUSH list x\r\nSADD set a b\r\nEXEC\r\n",
            );
            let replies: Vec<_> = (0..8).map(|_| client.read().unwrap().shown()).collect();
            let both = replies[7].split("*[\"").nth(1).unwrap().split(']').next().unwrap();
            let sum: i64 = both
                .split(", ")
                .map(|number| number.trim_matches('"').parse::<i64>().unwrap())
                .sum();
            assert_eq!(sum, 1000, "{replies:?}");
            assert!(!client.say(&format!("SADD members {number}")).starts_with('-'));
            client.line(&format!("SREM members {number}"));
        }
    });
    assert_eq!(client.say("MGET left right"), "*[\"800\", \"200\"]");
    assert_eq!(client.say("HGET hash f"), "\"200\"");
    assert_eq!(client.say("LLEN list"), ":200");
    assert_eq!(client.say("SCARD set"), ":2");
    assert_eq!(client.say("EXISTS members"), ":0");
    assert_eq!(client.say("DBSIZE"), ":5");
}

#[test]
fn optimistic_counters_lose_no_increment() {
    let server = TestServer::new();
    server.with_clients(3, |_, mut client| {
        let mut done = 0;
        while done < 30 {
            client.line("WATCH counter");
            let old = client.say("GET counter");
            let old: i64 = old.trim_matches('"').parse().unwrap_or(0);
            client.line("MULTI");
            client.line(&format!("SET counter {}", old + 1));
            done += i32::from(client.say("EXEC") != "null");
        }
    });
    assert_eq!(server.client().say("GET counter"), "\"90\"");
}

#[test]
fn additions_whose_replies_are_not_wanted_are_all_made() {
    let server = TestServer::new();
    server.with_clients(3, |_, mut client| {
        client.send(b"CLIENT REPLY OFF\r\n");
        for _ in 0..100 {
            client.send(b"INCR counter\r\n");
        }
        client.send(b"CLIENT REPLY ON\r\n");
        assert_eq!(client.read().unwrap().shown(), "+OK");
    });
    assert_eq!(server.client().say("GET counter"), "\"300\"");
}

#[test]
fn additions_without_their_sums_are_all_made() {
    let server = TestServer::new();
    let mut setup = server.client();
    assert_eq!(setup.say("SET expiring 0 EX 1000"), "+OK");
    server.with_clients(3, |_, mut client| {
        for _ in 0..50 {
            client.send(b"WEFT.INCRBY counter 2\r\nWEFT.HINCRBY hash field -1\r\n");
            client.send(b"MULTI\r\nWEFT.INCRBY counter 1\r\nWEFT.INCRBY expiring 1\r\nEXEC\r\n");
            client.send(b"EVAL \"return redis.call('weft.incrby', KEYS[1], 1)\" 1 counter\r\n");
            let replies: Vec<_> = (0..7).map(|_| client.read().unwrap().shown()).collect();
            let queued = "+QUEUED";
            assert_eq!(replies, ["+OK", "+OK", "+OK", queued, queued, "*[+OK, +OK]", "+OK"]);
        }
    });
    for (line, expected) in [
        ("GET counter", "\"600\""),
        ("HGET hash field", "\"-150\""),
        ("GET expiring", "\"150\""),
        ("TTL counter", ":-1"),
        ("WEFT.INCRBY counter x", "-ERR value is not an integer or out of range"),
        ("SET text abc", "+OK"),
        ("WEFT.INCRBY text 1", "-ERR value is not an integer or out of range"),
        (
            "WEFT.INCRBY hash 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "WEFT.HINCRBY text f 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("WEFT.INCRBY counter 9223372036854775807", "-ERR increment or decrement would overflow"),
        (
            "WEFT.HINCRBY hash field -9223372036854775807",
            "-ERR increment or decrement would overflow",
        ),
        ("GET counter", "\"600\""),
    ] {
        assert_eq!(setup.say(line), expected, "{line}");
    }
    assert!(setup.say("TTL expiring").trim_start_matches(':').parse::<i64>().unwrap() > 900);
}

#[test]
fn keys_expire_for_readers_and_are_removed() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("SET short 1 PX 1");
    client.line("HSET hash f v");
    client.line("PEXPIRE hash 1");
    client.line("SET long 1 EX 1000");
    while client.say("EXISTS short hash") != ":0" {}
    assert_eq!(client.say("HGETALL hash"), "*[]");
    assert_eq!(client.say("RPUSH hash now-a-list"), ":1");
    while client.say("DBSIZE") != ":2" {}
    assert_eq!(client.say("TYPE hash"), "+list");
    assert_eq!(client.say("TTL long"), ":1000");
    // One, or both if they were removed before the list was made.
    while client.say("INFO stats").contains("expired_keys:0") {}
}

#[test]
fn scans_return_every_key_that_stays() {
    let server = TestServer::new();
    let mut client = server.client();
    for key in 0..300 {
        client.line(&format!("SET stays:{key} 1"));
        client.line(&format!("SADD set {key}"));
    }
    for scan in ["SCAN", "SSCAN set"] {
        let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
        loop {
            let page = client.say(&format!("{scan} {cursor} COUNT 7"));
            client.line(&format!("SET comes:{cursor} 1"));
            let (next, names) = page.trim_start_matches("*[").split_once(", ").unwrap();
            let names = names.trim_start_matches("*[").trim_end_matches(']').split(", ");
            found.extend(names.filter(|name| !name.contains("comes")).map(str::to_owned));
            cursor = next.trim_matches('"').to_owned();
            if cursor == "0" {
                break;
            }
        }
        found.remove("\"set\"");
        assert_eq!(found.len(), 300, "{scan}");
    }
}
