//! Connections that are no tasks of their own: they end, wait, move and fail like others, whatever the pieces in which their bytes
//! arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft::durability::SimulatedDisk;
use weft::htm::word::{Ordering, Word};
use weft::{Database, DurabilityOptions};
use weft_server::{Options, Server, StoreOptions};

use crate::client::TestServer;
use crate::durable::Directory;

/// A request, and its reply.
fn exchange(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let text = "x".repeat(match random.u8(..8) {
        0 => random.usize(..100_000),
        _ => random.usize(..50),
    });
    if random.bool() {
        let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{text}\r\n", text.len());
        return (request.into_bytes(), b"+OK\r\n".to_vec());
    }
    let request = format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len());
    (request.into_bytes(), format!("${}\r\n{text}\r\n", text.len()).into_bytes())
}

#[test]
fn all_that_has_arrived_is_answered_although_the_client_sends_no_more() {
    send_all_and_end(&TestServer::new(), 100);
}

#[test]
fn all_that_has_arrived_is_answered_when_it_is_on_the_disk() {
    let directory = Directory::new("poller");
    let synced = Some((directory.0.clone(), DurabilityOptions::new()));
    let store = StoreOptions { directory: synced, memory_limit: None };
    let options = Options { store, ..Options::default() };
    send_all_and_end(&TestServer::with(options), 50);
}

/// Sends requests in pieces of any length, and no more after them. Compares the replies, until the connection ends.
fn send_all_and_end(server: &TestServer, rounds: usize) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..rounds {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // So the connection is no task any more.
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        let exchanges = (0..random.usize(1..40)).map(|_| exchange(&mut random));
        let (requests, replies): (Vec<_>, Vec<_>) = exchanges.unzip();
        let (requests, replies) = (requests.concat(), replies.concat());
        let mut sender = stream.try_clone().unwrap();
        let mut pieces = random.fork();
        let sends = std::thread::spawn(move || {
            let mut rest = &requests[..];
            while !rest.is_empty() {
                let length = match pieces.u8(..4) {
                    0 => pieces.usize(1..8),
                    1 => 16 << 10,
                    _ => pieces.usize(1..40_000),
                };
                let (piece, next) = rest.split_at(length.min(rest.len()));
                sender.write_all(piece).unwrap();
                rest = next;
            }
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        sends.join().unwrap();
        assert!(received == replies, "{} bytes in place of {}", received.len(), replies.len());
    }
}

#[test]
fn other_connections_are_served_and_ended_while_some_never_pause() {
    let server = TestServer::with(Options { threads: 1, ..Options::default() });
    let ends = Word::new(0);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (server, ends) = (&server, &ends);
            scope.spawn(move || {
                let mut client = server.client();
                client.line("CLIENT SETNAME flood");
                let requests = format!("INCR counter{number}\r\n").repeat(100);
                // Two at a time, so that the next one has always arrived.
                client.send(requests.as_bytes());
                while ends.load(Ordering::Relaxed) == 0 {
                    client.send(requests.as_bytes());
                    for _ in 0..100 {
                        assert!(client.read().is_some(), "the server has closed a connection");
                    }
                }
            });
        }
        let guard = Ends(&ends);
        for _ in 0..6 {
            let (mut one, mut two) = (server.client(), server.client());
            for _ in 0..20 {
                assert_eq!(one.say("PING"), "+PONG");
                assert_eq!(two.say("PING"), "+PONG");
            }
            let id = two.say("CLIENT ID");
            assert_eq!(one.say(&format!("CLIENT KILL ID {}", &id[1..])), ":1");
            assert!(two.read().is_none());
        }
        drop(guard);
    });
}

/// The thread falls asleep after a request, and what comes from other threads at that moment wakes it. Nothing else does.
#[test]
fn a_thread_that_falls_asleep_hears_of_new_connections() {
    let server = TestServer::with(Options { threads: 1, ..Options::default() });
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pause = |microseconds| {
        let (start, pause) = (Instant::now(), Duration::from_micros(random.u64(..microseconds)));
        while start.elapsed() < pause {
            std::hint::spin_loop();
        }
    };
    let mut silent = server.client();
    for _ in 0..500 {
        let (connected, is_connected) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| connected.send(server.client()).unwrap());
            pause(200);
            assert_eq!(silent.say("PING"), "+PONG");
        });
        assert_eq!(is_connected.recv().unwrap().say("PING"), "+PONG");
    }
}

#[test]
fn a_thread_that_sleeps_hears_that_the_server_stops() {
    let stop_timeout = Duration::from_secs(3600);
    let options = Options { threads: 1, stop_timeout, ..Options::default() };
    let stopped = Server::open(options).unwrap();
    let server = TestServer::of(Arc::clone(&stopped));
    let mut silent = server.client();
    for _ in 0..3 {
        assert_eq!(silent.say("PING"), "+PONG");
    }
    // The thread has nothing else to do.
    std::thread::sleep(Duration::from_millis(20));
    stopped.stop();
    assert!(silent.read().is_none());
}

/// Has the floods end, also if the test fails.
struct Ends<'a>(&'a Word);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

#[test]
fn a_limit_of_silence_holds_for_connections_that_are_silent_already() {
    let server = TestServer::new();
    let (mut silent, mut other) = (server.client(), server.client());
    for _ in 0..3 {
        assert_eq!(silent.say("PING"), "+PONG");
        assert_eq!(other.say("PING"), "+PONG");
    }
    assert_eq!(other.say("CONFIG SET timeout 1"), "+OK");
    assert!(silent.read().is_none());
}

#[test]
fn clients_change_between_commands_that_wait_and_commands_that_do_not() {
    let server = TestServer::new();
    server.with_clients(8, |number, mut client| {
        let mut pusher = server.client();
        for round in 0..50 {
            let (list, value) = (format!("list{number}"), format!("value{round}"));
            client.send(format!("PING\r\nBLPOP {list} 60\r\nECHO after\r\n").as_bytes());
            assert_eq!(client.read().unwrap().shown(), "+PONG");
            assert_eq!(pusher.say(&format!("RPUSH {list} {value}")), ":1");
            let popped = format!("*[\"{list}\", \"{value}\"]");
            assert_eq!(client.read().unwrap().shown(), popped);
            assert_eq!(client.read().unwrap().shown(), "\"after\"");
            assert_eq!(client.say("SUBSCRIBE channel"), "*[\"subscribe\", \"channel\", :1]");
            assert_eq!(client.say("UNSUBSCRIBE channel"), "*[\"unsubscribe\", \"channel\", :0]");
            assert_eq!(client.say("DEBUG SLEEP 0.001"), "+OK");
        }
    });
}

#[test]
fn replies_that_wait_for_a_log_that_fails_are_errors() {
    let disk = SimulatedDisk::new(1);
    let builder = weft_server::with_tables(Database::builder()).directory("/db");
    let builder = builder.backend(Arc::new(disk.clone()), false);
    let server = Server::builder().options(Options::default()).database(builder.open().unwrap());
    let server = TestServer::of(server.open().unwrap());
    let failed = Word::new(0);
    server.with_clients(8, |number, mut client| {
        for round in 0.. {
            if number == 0 && round == 20 {
                disk.fail_sync(disk.syncs() + 1);
            }
            client.send(format!("SET key{number} {round}\r\n").as_bytes());
            match client.read().map(|reply| reply.shown()) {
                Some(reply) if reply == "+OK" => {}
                reply => {
                    let reply = reply.expect("the client hears what has happened");
                    assert!(reply.starts_with("-MISCONF"), "{reply}");
                    break;
                }
            }
        }
        failed.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(failed.load(Ordering::Relaxed), 8);
    assert!(server.client().say("SET key value").starts_with("-MISCONF"));
    server.stop_with_failed_log();
}
