//! Commands that arrive together and share a transaction: replies, errors, hot keys, and long replies.

use weft_server::Options;

use crate::client::{Client, TestServer};

/// Sends lines together, and returns their replies.
fn say_together(client: &mut Client, lines: &[String]) -> Vec<String> {
    client.send(
        lines.iter().map(|line| format!("{}\r\n", array(line))).collect::<String>().as_bytes(),
    );
    lines.iter().map(|_| client.read().unwrap().shown()).collect()
}

/// Returns words as an array, without the last line end.
fn array(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let texts = words.iter().map(|word| format!("\r\n${}\r\n{word}", word.len()));
    format!("*{}{}", words.len(), texts.collect::<String>())
}

/// Commands that are run as one if they come in a row: a key and a value follow each of them.
const REPEATED: [&str; 7] = ["LPUSH", "RPUSH", "LPOP", "RPOP", "HSET", "SADD", "ZADD"];

fn repeated(command: usize, key: u8, value: i32) -> String {
    let name = REPEATED[command];
    match name {
        "LPOP" | "RPOP" => format!("{name} k{key}"),
        "HSET" => format!("HSET k{key} f{} {value}", value % 4),
        // No score: an error.
        "ZADD" if value == 8 => format!("ZADD k{key} nx m"),
        "ZADD" => format!("ZADD k{key} {value} m{}", value % 4),
        _ => format!("{name} k{key} {value}"),
    }
}

#[test]
fn commands_reply_together_as_one_by_one() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let servers = [TestServer::new(), TestServer::new()];
    let [mut together, mut alone] = servers.each_ref().map(TestServer::client);
    for _ in 0..300 {
        let line = |random: &mut fastrand::Rng| {
            let (key, value) = (random.u8(..6), random.i32(-3..50));
            match random.u8(..24) {
                0 => format!("SET k{key} {value}"),
                1 => format!("SET k{key} text{value}"),
                2 => format!("GET k{key}"),
                3 => format!("INCR k{key}"),
                4 => format!("INCRBY k{key} 9223372036854775807"),
                5 => format!("DEL k{key}"),
                6 => format!("LPUSH k{key} {value}"),
                7 => format!("RPUSH k{key} {value} {value}"),
                8 => format!("RPOP k{key}"),
                9 => format!("LPOP k{key}"),
                10 => format!("LRANGE k{key} 0 -1"),
                11 => format!("HSET k{key} f{value} {value}"),
                12 => format!("HGET k{key} f{value}"),
                13 => format!("ZADD k{key} {value} m{}", value % 5),
                14 => format!("ZRANGE k{key} 0 -1 WITHSCORES"),
                15 => format!("SADD k{key} {value}"),
                16 => format!("SCARD k{key}"),
                17 => "MULTI".to_owned(),
                18 => "EXEC".to_owned(),
                19 => "DISCARD".to_owned(),
                20 => format!("SELECT {}", key % 2),
                21 => format!("EXISTS k{key}"),
                22 => "NOSUCHCOMMAND".to_owned(),
                _ => format!("GETSET k{key} {value}"),
            }
        };
        let lines: Vec<String> = (0..random.usize(1..40))
            .flat_map(|_| match random.u8(..12) {
                // A whole transaction.
                0 => {
                    let inner: Vec<_> = (0..random.usize(..8)).map(|_| line(&mut random)).collect();
                    [vec!["MULTI".to_owned()], inner, vec!["EXEC".to_owned()]].concat()
                }
                // The same command in a row, which is run as one.
                1 | 2 => {
                    let (command, key) = (random.usize(..REPEATED.len()), random.u8(..6));
                    let values = (0..random.usize(..20)).map(|_| random.i32(-3..9));
                    values.map(|value| repeated(command, key, value)).collect()
                }
                _ => vec![line(&mut random)],
            })
            .collect();
        let replies = say_together(&mut together, &lines);
        let expected: Vec<String> = lines
            .iter()
            .map(|line| say_together(&mut alone, std::slice::from_ref(line)).remove(0))
            .collect();
        assert_eq!(replies, expected, "{lines:?}");
    }
}

#[test]
fn clients_that_add_together_to_one_key_lose_nothing() {
    let server = TestServer::new();
    server.with_clients(4, |_, mut client| {
        let (lines, mut last) = (vec!["INCR hot".to_owned(); 16], 0);
        for _ in 0..100 {
            for reply in say_together(&mut client, &lines) {
                let sum: u64 = reply.strip_prefix(':').unwrap().parse().unwrap();
                assert!(sum > last);
                last = sum;
            }
        }
    });
    assert_eq!(server.client().say("GET hot"), "\"6400\"");
}

#[test]
fn long_replies_are_sent_before_more_commands_run() {
    let options = Options { output_bytes: 1 << 20, ..Options::default() };
    let server = TestServer::with(options);
    let mut client = server.client();
    // Each reply fits the limit, and all of them together do not.
    client.call(&[b"SET", b"long", &vec![b'x'; 200_000]]);
    let replies = say_together(&mut client, &vec!["GET long".to_owned(); 16]);
    assert!(replies.iter().all(|reply| reply.len() == 200_002));
}

#[test]
fn the_slow_log_has_each_command_if_it_is_for_short_times() {
    let server = TestServer::new();
    let mut client = server.client();
    client.say("CONFIG SET slow-log-micros 0");
    say_together(&mut client, &(0..8).map(|key| format!("INCR k{key}")).collect::<Vec<_>>());
    client.say("CONFIG SET slow-log-micros -1");
    let log = client.say("SLOWLOG GET 100");
    assert!((0..8).all(|key| log.contains(&format!("\"k{key}\""))), "{log}");
}

/// Each command that has changed something is an event, also if several are run as one.
#[test]
fn commands_that_are_run_as_one_are_an_event_each() {
    let servers = [TestServer::new(), TestServer::new()];
    let [mut together, mut alone] = servers.each_ref().map(|server| {
        let (mut client, mut subscriber) = (server.client(), server.client());
        client.say("CONFIG SET notify-keyspace-events KEA");
        subscriber.say("PSUBSCRIBE __keyevent@0__:*");
        (client, subscriber)
    });
    for command in 0..REPEATED.len() {
        // Each list has fewer elements than are removed.
        let first = if command == 2 || command == 3 { "RPUSH k0 1 2 3" } else { "DEL other" };
        let values = [1, 2, 1, 5, 5, 3, 2];
        let lines = values.map(|value| repeated(command, 0, value)).to_vec();
        let lines = [vec![first.to_owned()], lines, vec!["SET end 1".to_owned()]].concat();
        let mut replies = say_together(&mut together.0, &lines);
        for (line, reply) in lines.iter().zip(replies.drain(..)) {
            assert_eq!(say_together(&mut alone.0, std::slice::from_ref(line)), [reply], "{line}");
        }
        loop {
            let [event, expected] = [&mut together.1, &mut alone.1]
                .map(|subscriber| subscriber.read().unwrap().shown());
            assert_eq!(event, expected, "{lines:?}");
            if event.contains(":set\"") {
                break;
            }
        }
        for (client, subscriber) in [&mut together, &mut alone] {
            client.say("DEL k0");
            client.say("SET end 2");
            while !subscriber.read().unwrap().shown().contains(":set\"") {}
        }
    }
}

#[test]
fn a_transaction_that_arrives_at_once_has_no_more_rights() {
    let server = TestServer::new();
    let (mut operator, mut client) = (server.client(), server.client());
    operator.say("ACL SETUSER shop on >secret ~mine:* +@all -incr -multi");
    client.say("AUTH shop secret");
    let transaction = |command: &str| ["MULTI", command, "EXEC"].map(str::to_owned);
    let replies = say_together(&mut client, &transaction("SET mine:a 1"));
    assert!(replies[0].starts_with("-NOPERM") && replies[2].starts_with("-ERR"), "{replies:?}");
    operator.say("ACL SETUSER shop +multi");
    let replies = say_together(&mut client, &transaction("SET mine:a 2"));
    assert_eq!(replies, ["+OK", "+QUEUED", "*[+OK]"]);
    for refused in ["SET other 1", "INCR mine:a"] {
        let replies = say_together(&mut client, &transaction(refused));
        assert!(replies[1].starts_with("-NOPERM"), "{replies:?}");
        assert!(replies[2].starts_with("-EXECABORT"), "{replies:?}");
    }
    assert_eq!(operator.say("MGET mine:a other"), "*[\"2\", null]");
}

#[test]
fn a_transaction_that_arrives_at_once_does_nothing_after_a_watched_key_has_changed() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    let transaction = ["MULTI", "SET k mine", "EXEC"].map(str::to_owned);
    client.say("WATCH k");
    other.say("SET k theirs");
    assert_eq!(say_together(&mut client, &transaction)[2], "null");
    assert_eq!(client.say("GET k"), "\"theirs\"");
    client.say("WATCH k");
    assert_eq!(say_together(&mut client, &transaction)[2], "*[+OK]");
}

#[test]
fn a_long_queue_that_arrives_at_once_is_refused() {
    let options = Options { request_bytes: 1000, ..Options::default() };
    let server = TestServer::with(options);
    let mut client = server.client();
    let set = format!("SET k {}", "x".repeat(400));
    let lines = ["MULTI".to_owned(), set.clone(), set.clone(), set, "EXEC".to_owned()];
    let replies = say_together(&mut client, &lines);
    assert!(replies[3].contains("too long") && replies[4].starts_with("-EXECABORT"), "{replies:?}");
    assert_eq!(client.say("EXISTS k"), ":0");
}
