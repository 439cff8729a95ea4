//! Strangers who send nonsense, or nothing, or do not read: memory is bounded, and the database does not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use weft_inspect::{ServeOptions, serve};

use crate::serve::{exchange, get};
use crate::{open, view};

const CONNECTIONS: usize = 1000;

/// How much the resident memory may grow. The server keeps at most 128 connections with some buffers of 16 KiB each, and
/// this program keeps the other ends.
const GROWTH_MAX_BYTES: usize = 64 << 20;

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Allows this process as many open files as the system does.
fn allow_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

#[test]
fn bad_requests_get_an_error_and_a_good_one_follows() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let address = server.address();
    let long = "x".repeat(100_000);
    let cases = [
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), "400"),
        ("\0\0\0\0\r\n\r\n".to_owned(), "400"),
        (format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "4"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000)), "431"),
        ("POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".to_owned(), "405"),
        ("GET /report HTTP/1.1\r\nHost: \u{e9}\r\nConnection: close\r\n\r\n".to_owned(), "403"),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_owned(), "404"),
        ("GET /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".to_owned(), ""),
    ];
    for (request, expected) in cases {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let begin = &request[..request.len().min(60)];
        // The server may close while the client still sends: then the answer can be lost.
        assert!(
            answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {expected}")),
            "{begin:?}: {answer:?}"
        );
        assert!(get(address, "/report", "").0.starts_with("HTTP/1.1 200"), "after {begin:?}");
    }
}

#[test]
fn random_bytes_do_not_stop_the_server() {
    let (database, _) = open();
    let server = serve(&database, "127.0.0.1:0").unwrap();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let mut bytes = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
        for _ in 0..random.usize(1..20) {
            let position = random.usize(..bytes.len());
            bytes[position] = random.u8(..);
        }
        let _ = stream.write_all(&bytes);
    }
    let (head, _) = get(server.address(), "/report", "");
    assert!(head.starts_with("HTTP/1.1 200"), "seed {seed}: {head}");
}

/// A quarter of the connections sends nothing, one sends nonsense, one half a request, and one follows the events and
/// reads none.
#[test]
fn a_thousand_strangers_do_not_disturb_the_database() {
    allow_files();
    let (database, pages) = open();
    let options = ServeOptions::new().interval(Duration::from_millis(2));
    let server = options.serve(&database, "127.0.0.1:0").unwrap();
    let address = server.address();
    let before = resident_bytes();

    let (stop, stopped) = mpsc::channel::<()>();
    let clients = std::thread::spawn({
        let (database, pages) = (database.clone(), pages.clone());
        move || {
            let mut count = 0_u64;
            while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                view(&database, &pages, (count % 100) as u32);
                count += 1;
            }
            count
        }
    });
    let mut strangers = Vec::new();
    for number in 0..CONNECTIONS {
        // The system may refuse some of them.
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        let sent = match number % 4 {
            0 => "",
            1 => "\u{1}\u{2}nonsense ",
            2 => "GET /events HTTP/1.1\r\nHost: local",
            _ => "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        // The server closes those that are too many.
        let _ = stream.write_all(sent.as_bytes());
        strangers.push(stream);
    }
    assert!(strangers.len() > CONNECTIONS / 2);
    // Time for the events to fill all buffers on the way.
    std::thread::sleep(Duration::from_secs(1));
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_MAX_BYTES, "grown by {growth} bytes");

    drop(strangers);
    // The server notices that they are gone.
    let answer = loop {
        let answer = exchange(
            address,
            "GET /report HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        );
        if !answer.is_empty() {
            break answer;
        }
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(stop);
    let count = clients.join().unwrap();
    assert_eq!(database.metrics().committed, count);
}
