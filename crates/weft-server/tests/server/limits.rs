//! Clients that ask for too much, or send what is not a request. Others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use weft_server::{Options, StoreOptions};

use crate::client::TestServer;

/// Sends bytes, and returns all that the server sends until it closes the connection.
fn exchange(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn bytes_that_are_no_request_end_the_connection() {
    let server = TestServer::new();
    let mut bystander = server.client();
    for bytes in [
        &b"*1\r\n:5\r\n"[..],
        b"*99999999999\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$99999999999\r\n",
        b"GET \"open\r\n",
        &[b'x'; 70_000],
    ] {
        let reply = exchange(&server, bytes);
        assert!(reply.starts_with("-ERR Protocol error"), "{reply}");
        assert_eq!(bystander.say("PING"), "+PONG");
    }
    // Announced and never sent: nothing is allocated for it, and the end of the connection ends the matter.
    assert_eq!(exchange(&server, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nabc"), "");
    let mut seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    for _ in 0..200 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut random = fastrand::Rng::with_seed(seed);
        let alphabet = b"*$+-:\r\n0123456789 getsexpmulti\"'\\\0\xff";
        let bytes: Vec<u8> = (0..100).map(|_| alphabet[random.usize(..alphabet.len())]).collect();
        exchange(&server, &bytes);
    }
    assert_eq!(bystander.say("PING"), "+PONG");
}

#[test]
fn too_many_connections_are_refused() {
    let server = TestServer::with(Options { clients_max: 2, ..Options::default() });
    let (mut one, mut two) = (server.client(), server.client());
    assert_eq!((one.say("PING"), two.say("PING")), ("+PONG".to_owned(), "+PONG".to_owned()));
    assert_eq!(exchange(&server, b"PING\r\n"), "-ERR max number of clients reached\r\n");
    assert_eq!(two.say("QUIT"), "+OK");
    assert!(two.read().is_none());
    while !exchange(&server, b"PING\r\n").starts_with("+PONG") {}
}

#[test]
fn a_reply_that_is_too_long_ends_the_connection() {
    let server = TestServer::with(Options { output_bytes: 100_000, ..Options::default() });
    let mut client = server.client();
    client.call(&[b"SET", b"k", &[b'x'; 60_000]]);
    client.send(b"MGET k k\r\n");
    assert!(client.read().is_none());
    assert_eq!(server.client().say("STRLEN k"), ":60000");
}

#[test]
fn silent_connections_are_closed() {
    let server = TestServer::with(Options { idle_seconds: 1, ..Options::default() });
    let mut client = server.client();
    assert_eq!(client.say("PING"), "+PONG");
    assert!(client.read().is_none());
}

#[test]
fn clients_that_read_nothing_are_closed() {
    let output_timeout = Duration::from_millis(100);
    let server = TestServer::with(Options { output_timeout, ..Options::default() });
    let mut client = server.client();
    client.call(&[b"SET", b"k", &vec![b'x'; 8 << 20]]);
    let mut slow = server.client();
    slow.send(b"GET k\r\nGET k\r\nGET k\r\n");
    while client.say("INFO clients").contains("connected_clients:2") {}
}

#[test]
fn a_password_is_needed_if_there_is_one() {
    let server =
        TestServer::with(Options { password: Some("secret".into()), ..Options::default() });
    let mut client = server.client();
    let refused = "-NOAUTH Authentication required.";
    for line in ["GET k", "PING", "MULTI", "COMMAND", "NOSUCH"] {
        assert_eq!(client.say(line), refused, "{line}");
    }
    for line in ["AUTH secre", "AUTH secrets", "AUTH other secret", "AUTH \"\""] {
        assert!(client.say(line).starts_with("-WRONGPASS"), "{line}");
    }
    assert!(client.say("HELLO 3").starts_with("-NOAUTH"));
    assert_eq!(client.say("AUTH secret"), "+OK");
    assert_eq!(client.say("GET k"), "null");
    assert_eq!(client.say("RESET"), "+RESET");
    assert_eq!(client.say("GET k"), refused);
    assert!(client.say("HELLO 3 AUTH default secret").starts_with("%["));
    assert_eq!(client.say("GET k"), "_");
    let stranger = exchange(&server, b"*2\r\n$20000\r\n");
    assert!(stranger.contains("unauthenticated bulk length"), "{stranger}");
}

#[test]
fn memory_has_a_limit() {
    let store = StoreOptions { memory_limit: Some(48 << 20), ..StoreOptions::default() };
    let server = TestServer::with(Options { store, ..Options::default() });
    let mut client = server.client();
    let value = vec![b'x'; 1 << 20];
    let mut key = 0;
    let refused = loop {
        let reply = client.call(&[b"SET", format!("k{key}").as_bytes(), &value]).shown();
        if reply != "+OK" {
            break reply;
        }
        key += 1;
    };
    assert!(refused.starts_with("-OOM command not allowed"), "{refused}");
    assert_eq!(client.say("STRLEN k0"), ":1048576");
    assert_eq!(client.say("DEL k0 k1 k2 k3 k4"), ":5");
}

#[test]
fn replies_of_the_third_version_have_their_types() {
    let server = TestServer::new();
    let mut client = server.client();
    let hello = client.say("HELLO 3 SETNAME me");
    assert!(hello.starts_with("%[\"server\", \"redis\"") && hello.contains(":3"), "{hello}");
    assert_eq!(client.say("CLIENT GETNAME"), "\"me\"");
    client.line("HSET h f v");
    client.line("ZADD z 1.5 m");
    client.line("SADD s a");
    for (line, reply) in [
        ("HGETALL h", "%[\"f\", \"v\"]"),
        ("ZRANGE z 0 -1 WITHSCORES", "*[*[\"m\", ,1.5]]"),
        ("ZSCORE z m", ",1.5"),
        ("SMEMBERS s", "~[\"a\"]"),
        ("GET absent", "_"),
        ("LPOP absent 1", "_"),
        ("HRANDFIELD h 1 WITHVALUES", "*[*[\"f\", \"v\"]]"),
        ("CONFIG GET save", "%[\"save\", \"\"]"),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
    assert!(client.say("INFO server").contains("txt:# Server"));
}

#[test]
fn clients_see_and_end_each_other() {
    let server = TestServer::new();
    let (mut one, mut two) = (server.client(), server.client());
    two.line("CLIENT SETNAME two");
    let id = two.say("CLIENT ID");
    assert!(one.say("CLIENT LIST").contains("name=two"));
    assert_eq!(one.say(&format!("CLIENT KILL ID {}", id.trim_start_matches(':'))), ":1");
    assert!(two.read().is_none());
    one.line("CONFIG SET slowlog-log-slower-than 0");
    one.line("SET k v");
    assert!(one.say("SLOWLOG GET 1").contains("*[\"SET\", \"k\", \"v\"]"));
    let memory = one.say("MEMORY USAGE k");
    assert!(memory.starts_with(':') && memory.len() > 2, "{memory}");
    assert_eq!(
        one.say("SAVE"),
        "-ERR SAVE is not supported: a server with a directory always saves"
    );
    let count = one.say("COMMAND COUNT");
    let docs = one.line("COMMAND DOCS");
    let crate::client::Value::List(_, entries) = docs else { unreachable!() };
    assert_eq!(count, format!(":{}", entries.len() / 2));
}
