//! Commands that wait for elements of lists and sorted sets.

use std::sync::Mutex;

use weft_server::Options;

use crate::client::{Client, TestServer};

/// Waits until so many clients wait.
pub fn until_blocked(observer: &mut Client, count: usize) {
    let line = format!("blocked_clients:{count}\\r");
    while !observer.say("INFO clients").contains(&line) {}
}

/// Returns the next reply as one line.
pub fn next(client: &mut Client) -> String {
    client.read().expect("the connection is open").shown()
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let server = TestServer::new();
    let mut pusher = server.client();
    let mut waiters: Vec<Client> = Vec::new();
    for number in 0..4 {
        let mut waiter = server.client();
        waiter.send(b"BLPOP other k 0\r\n");
        until_blocked(&mut pusher, number + 1);
        waiters.push(waiter);
    }
    assert_eq!(pusher.say("RPUSH k a b"), ":2");
    assert_eq!(next(&mut waiters[0]), "*[\"k\", \"a\"]");
    assert_eq!(next(&mut waiters[1]), "*[\"k\", \"b\"]");
    until_blocked(&mut pusher, 2);
    // One who has been served is the last in line.
    waiters[0].send(b"BRPOP k 0\r\n");
    until_blocked(&mut pusher, 3);
    assert_eq!(pusher.say("RPUSH k c d e"), ":3");
    assert_eq!(next(&mut waiters[2]), "*[\"k\", \"c\"]");
    assert_eq!(next(&mut waiters[3]), "*[\"k\", \"d\"]");
    assert_eq!(next(&mut waiters[0]), "*[\"k\", \"e\"]");
    until_blocked(&mut pusher, 0);
    assert_eq!(pusher.say("EXISTS k"), ":0");
}

#[test]
fn every_way_in_which_a_key_appears_wakes_its_waiters() {
    let server = TestServer::new();
    let (mut waiter, mut other) = (server.client(), server.client());
    let zset = "*[\"k\", \"a\", \"1\"]";
    let list = "*[\"k\", \"a\"]";
    for (wait, commands, reply) in [
        ("BLPOP k 0", &["LPUSH k a"][..], list),
        ("BLPOP k 0", &["RPUSH l a", "RENAME l k"], list),
        ("BRPOP k 0", &["RPUSH l a", "COPY l k", "DEL l"], list),
        ("BRPOP k 0", &["RPUSH l a", "LMOVE l k LEFT LEFT"], list),
        ("BRPOP k 0", &["MULTI", "RPUSH k a", "SET l x", "EXEC", "DEL l"], list),
        ("BLPOP k 0", &["SET k text", "DEL k", "RPUSH k a"], list),
        ("BLPOP k 0", &["MULTI", "RPUSH k x", "LPOP k", "EXEC", "LPUSH k a"], list),
        ("BLPOP k 0", &["SELECT 1", "RPUSH k a", "MOVE k 0", "SELECT 0"], list),
        ("BLMPOP 0 2 j k LEFT", &["ZADD k 1 a", "DEL k", "LPUSH k a"], "*[\"k\", *[\"a\"]]"),
        ("BLMOVE k l LEFT RIGHT 0", &["LPUSH k a", "DEL l"], "\"a\""),
        ("BRPOPLPUSH k l 0", &["LPUSH k a", "DEL l"], "\"a\""),
        ("BZPOPMIN k 0", &["ZADD k 1 a"], zset),
        ("BZPOPMAX k 0", &["ZINCRBY k 1 a"], zset),
        ("BZPOPMIN k 0", &["RPUSH k x", "DEL k", "ZADD k 1 a"], zset),
        ("BZPOPMIN k 0", &["ZADD z 1 a", "ZUNIONSTORE k 1 z", "DEL z"], zset),
        ("BZPOPMIN k 0", &["ZADD z 1 a", "ZRANGESTORE k z 0 -1", "DEL z"], zset),
        ("BZMPOP 0 1 k MAX", &["ZADD k 1 a"], "*[\"k\", *[*[\"a\", \"1\"]]]"),
    ] {
        waiter.send(format!("{wait}\r\n").as_bytes());
        until_blocked(&mut other, 1);
        for command in commands {
            let reply = other.say(command);
            assert!(!reply.starts_with('-'), "{command}: {reply}");
        }
        assert_eq!(next(&mut waiter), reply, "{wait} after {commands:?}");
        until_blocked(&mut other, 0);
        other.line("DEL l");
        assert_eq!(other.say("DBSIZE"), ":0", "{wait} after {commands:?}");
    }
}

#[test]
fn a_move_that_waits_wakes_the_next() {
    let server = TestServer::new();
    let (mut one, mut two, mut other) = (server.client(), server.client(), server.client());
    two.send(b"BLPOP b 0\r\n");
    one.send(b"BLMOVE a b LEFT LEFT 0\r\n");
    until_blocked(&mut other, 2);
    other.line("RPUSH a x");
    assert_eq!(next(&mut one), "\"x\"");
    assert_eq!(next(&mut two), "*[\"b\", \"x\"]");
    one.send(b"BLMOVE a text LEFT LEFT 0\r\n");
    until_blocked(&mut other, 1);
    other.line("SET text x");
    other.line("RPUSH a x");
    assert!(next(&mut one).starts_with("-WRONGTYPE"));
    assert_eq!(other.say("LLEN a"), ":1");
}

#[test]
fn waiting_ends_with_its_time_by_command_and_with_the_connection() {
    let server = TestServer::new();
    let (mut waiter, mut other) = (server.client(), server.client());
    let id = waiter.say("CLIENT ID").replace(':', "");
    assert_eq!(waiter.say("BLPOP k 0.01"), "null");
    assert_eq!(other.say(&format!("CLIENT UNBLOCK {id}")), ":0");
    for (how, reply) in [
        ("", "null"),
        (" TIMEOUT", "null"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        waiter.send(b"BLPOP k 0\r\nPING\r\n");
        until_blocked(&mut other, 1);
        assert_eq!(other.say(&format!("CLIENT UNBLOCK {id}{how}")), ":1");
        assert_eq!(next(&mut waiter), reply);
        // What was sent behind it runs after it.
        assert_eq!(next(&mut waiter), "+PONG");
    }
    let mut second = server.client();
    waiter.send(b"BLPOP k 0\r\nSET never x\r\n");
    until_blocked(&mut other, 1);
    second.send(b"BLPOP k 0\r\n");
    until_blocked(&mut other, 2);
    drop(waiter);
    until_blocked(&mut other, 1);
    other.line("RPUSH k a b");
    assert_eq!(next(&mut second), "*[\"k\", \"a\"]");
    assert_eq!(other.say("LRANGE k 0 -1"), "*[\"b\"]");
    assert_eq!(other.say("EXISTS never"), ":0");
}

#[test]
fn a_client_that_waits_gets_messages_and_sends_more() {
    let server = TestServer::new();
    let (mut waiter, mut other) = (server.client(), server.client());
    waiter.line("HELLO 3");
    waiter.line("SUBSCRIBE a");
    waiter.send(b"BLPOP k 0\r\n");
    until_blocked(&mut other, 1);
    assert_eq!(other.say("PUBLISH a x"), ":1");
    assert_eq!(next(&mut waiter), ">[\"message\", \"a\", \"x\"]");
    // More than is read while the client waits.
    for _ in 0..2000 {
        waiter.send(b"*2\r\n$4\r\nPING\r\n$20\r\n01234567890123456789\r\n");
    }
    until_blocked(&mut other, 1);
    other.line("RPUSH k v");
    assert_eq!(next(&mut waiter), "*[\"k\", \"v\"]");
    (0..2000).for_each(|_| assert_eq!(next(&mut waiter), "\"01234567890123456789\""));
}

/// Fault: a client that waited and did not take its output stayed the first of its line, and could not look at the key. All
/// behind it waited until the output had timed out.
#[test]
fn a_waiter_that_does_not_take_its_output_holds_up_no_other() {
    const MESSAGES: usize = 64;
    let server = TestServer::with(Options { mailbox_bytes: 256 << 20, ..Options::default() });
    let (mut slow, mut next_in_line, mut other) =
        (server.client(), server.client(), server.client());
    slow.line("HELLO 3");
    slow.line("SUBSCRIBE channel");
    slow.send(b"BLPOP k 0\r\n");
    until_blocked(&mut other, 1);
    // More than the system keeps for a connection.
    let text = vec![b'x'; 1 << 20];
    for _ in 0..MESSAGES {
        assert_eq!(other.call(&[b"PUBLISH", b"channel", &text]).shown(), ":1");
    }
    next_in_line.send(b"BLPOP k 0\r\n");
    while other.say("CLIENT LIST").matches("cmd=blpop").count() < 2 {}
    assert_eq!(other.say("RPUSH k first"), ":1");
    assert_eq!(next(&mut next_in_line), "*[\"k\", \"first\"]");
    // An element that comes while the client is in no line is found when it has taken its output.
    assert_eq!(other.say("RPUSH k second"), ":1");
    let element = "*[\"k\", \"second\"]";
    let replies: Vec<String> = (0..=MESSAGES).map(|_| next(&mut slow)).collect();
    assert_eq!(replies.iter().filter(|reply| *reply == element).count(), 1);
    let message = ">[\"message\", \"channel\", \"xxx";
    assert!(replies.iter().all(|reply| reply == element || reply.starts_with(message)));
    // The next ones are served in their order.
    slow.send(b"BLPOP k 0\r\n");
    until_blocked(&mut other, 1);
    assert_eq!(other.say("RPUSH k third"), ":1");
    assert_eq!(next(&mut slow), "*[\"k\", \"third\"]");
    until_blocked(&mut other, 0);
}

#[test]
fn waiters_that_want_no_reply_still_take_their_element() {
    let server = TestServer::new();
    let (mut waiter, mut other) = (server.client(), server.client());
    waiter.send(b"CLIENT REPLY SKIP\r\nBLPOP k 0\r\nPING\r\n");
    until_blocked(&mut other, 1);
    other.line("RPUSH k v");
    assert_eq!(next(&mut waiter), "+PONG");
    assert_eq!(other.say("EXISTS k"), ":0");
}

#[test]
fn no_wake_up_is_lost_and_no_element_is_taken_twice() {
    const ELEMENTS: usize = 200;
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let server = TestServer::new();
    let taken = Mutex::new(Vec::new());
    // Each element is pushed when one of three clients has asked for it: a lost wake-up stops everything.
    server.with_clients(5, |number, mut client| {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        if number < 2 {
            for element in 0..ELEMENTS {
                let element = element * 2 + number;
                let key = ["a", "b"][random.usize(..2)];
                match random.u8(..4) {
                    0 => client.line(&format!("LPUSH {key} {element}")),
                    1 => client.line(&format!("RPUSH {key} {element}")),
                    2 => {
                        client.send(b"MULTI\r\n");
                        client.send(format!("RPUSH c {element}\r\n").as_bytes());
                        client.send(format!("RPOPLPUSH c {key}\r\nEXEC\r\n").as_bytes());
                        (0..3).for_each(|_| drop(client.read()));
                        client.read().unwrap()
                    }
                    _ => {
                        let own = format!("own:{number}");
                        client.line(&format!("RPUSH {own} {element}"));
                        client.line(&format!("LMOVE {own} {key} LEFT LEFT"))
                    }
                };
            }
            return;
        }
        loop {
            let reply = match random.u8(..4) {
                0 => client.say("BLPOP a b stop 0"),
                1 => client.say("BRPOP b a stop 0.001"),
                2 => client.say("BLMPOP 0 3 stop b a LEFT"),
                _ => client.say("LPOP a"),
            };
            if reply.contains("stop") {
                return;
            }
            let element = reply.replace(['*', '[', ']', '"'], "");
            let element = element.split(", ").last().unwrap().to_owned();
            if element != "null" {
                let mut taken = taken.lock().unwrap();
                taken.push(element.parse::<usize>().unwrap());
                if taken.len() == 2 * ELEMENTS {
                    client.line("RPUSH stop 1 2 3");
                }
            }
        }
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    assert_eq!(taken, (0..2 * ELEMENTS).collect::<Vec<_>>());
}
