//! The order of clients at keys for which an `EXEC` has done nothing. What the clients see is the same without it.

use crate::blocking::next;
use crate::client::{Client, TestServer};

/// Lets an `EXEC` do nothing, since a watched key has changed.
fn heat(server: &TestServer, key: &str) {
    let (mut one, mut other) = (server.client(), server.client());
    one.line(&format!("WATCH {key}"));
    other.line(&format!("INCRBY {key} 0"));
    one.line("MULTI");
    assert_eq!(one.say("EXEC"), "null");
}

/// Adds to two keys, as often as it takes until no other client was faster.
fn add(client: &mut Client, watch: &[String], key: &str, by: i64) {
    loop {
        watch.iter().for_each(|line| assert_eq!(client.say(line), "+OK"));
        let old: i64 = client.say(&format!("GET {key}")).trim_matches('"').parse().unwrap();
        client.line("MULTI");
        client.line(&format!("SET {key} {}", old + by));
        if client.say("EXEC") != "null" {
            return;
        }
    }
}

#[test]
fn clients_in_line_lose_no_change_in_whatever_order_they_watch() {
    let server = TestServer::new();
    for key in ["a", "b"] {
        heat(&server, key);
    }
    let ways =
        [&["WATCH a", "WATCH b"][..], &["WATCH b", "WATCH a"], &["WATCH a b"], &["WATCH b a"]];
    server.with_clients(4, |number, mut client| {
        let watch: Vec<String> = ways[number].iter().map(|line| (*line).to_owned()).collect();
        for turn in 0..25 {
            add(&mut client, &watch, ["a", "b"][(number + turn) % 2], 1);
        }
    });
    let values = server.client().say("MGET a b");
    assert_eq!(values, "*[\"50\", \"50\"]");
}

#[test]
fn a_client_that_says_nothing_after_watch_holds_no_one_up() {
    let server = TestServer::new();
    heat(&server, "k");
    let (mut silent, mut next_one) = (server.client(), server.client());
    assert_eq!(silent.say("WATCH k"), "+OK");
    // This one leaves while it waits.
    server.client().send(b"WATCH k\r\n");
    next_one.send(b"CLIENT REPLY SKIP\r\nWATCH k\r\nPING\r\n");
    assert_eq!(next(&mut next_one), "+PONG");
    add(&mut next_one, &["WATCH k".to_owned()], "k", 1);
    silent.line("MULTI");
    silent.line("SET k 7");
    assert_eq!(silent.say("EXEC"), "null");
    assert_eq!(silent.say("GET k"), "\"1\"");
}

#[test]
fn every_end_of_a_turn_lets_the_next_client_go() {
    let server = TestServer::new();
    for end in ["UNWATCH", "MULTI\r\nDISCARD", "MULTI\r\nEXEC", "RESET", "QUIT"] {
        heat(&server, "k");
        let (mut first, mut second) = (server.client(), server.client());
        assert_eq!(first.say("WATCH k"), "+OK");
        second.send(b"WATCH k\r\nGET k\r\n");
        first.send(format!("{end}\r\n").as_bytes());
        assert_eq!(next(&mut second), "+OK", "after {end}");
        assert_eq!(next(&mut second), "\"0\"");
    }
}
