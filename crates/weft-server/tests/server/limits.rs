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
fn commands_that_arrive_together_keep_their_order() {
    let server =
        TestServer::with(Options { password: Some("secret".into()), ..Options::default() });
    let request = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let arguments: String =
            words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{arguments}", words.len())
    };
    // Strangers may not send so many arguments. The password comes just before.
    let many = format!("DEL{}", " k".repeat(20));
    let mut bytes = request("AUTH secret") + &request(&many);
    let mut expected = "+OK\r\n:0\r\n".to_owned();
    for number in 0..40 {
        bytes += &request(&format!("HSET h f{} {number}", number % 3));
        bytes += &request("GET none");
        bytes += "PING\r\n";
        bytes += &request("NO SUCH");
        expected += if number < 3 { ":1\r\n" } else { ":0\r\n" };
        expected += "$-1\r\n+PONG\r\n";
        expected += "-ERR unknown command 'NO', with args beginning with: 'SUCH' \r\n";
    }
    bytes += &request("HGET h f0");
    expected += "$2\r\n39\r\n";
    // What comes before a mistake is answered.
    bytes += "*1\r\n$x\r\n";
    expected += "-ERR Protocol error: invalid bulk length\r\n";
    bytes += &request("SET late 1");
    assert_eq!(exchange(&server, bytes.as_bytes()), expected);
}

#[test]
fn any_arguments_of_commands_that_wait_get_a_reply() {
    const NAMES: &str = "BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP PUBLISH SPUBLISH PUBSUB XADD XLEN \
                         XRANGE XREVRANGE XREAD XREADGROUP XDEL XTRIM XGROUP XACK XPENDING XCLAIM XAUTOCLAIM XINFO XSETID \
                         CLIENT COPY RENAME DEL OBJECT MEMORY";
    const WORDS: &str = "a b c g h 0 1 2 -1 0.01 99999999999999999999 18446744073709551615 -9223372036854775808 1-1 1-2 \
                         5-18446744073709551615 1-* * $ > + - ( (1-1 [a ~ = LEFT RIGHT MIN MAX COUNT MAXLEN MINID LIMIT \
                         NOMKSTREAM STREAMS GROUP NOACK BLOCK CREATE SETID DESTROY CREATECONSUMER DELCONSUMER MKSTREAM \
                         ENTRIESREAD STREAM GROUPS CONSUMERS FULL FORCE JUSTID IDLE TIME RETRYCOUNT LASTID CHANNELS NUMSUB \
                         UNBLOCK USAGE ENCODING";
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = TestServer::new();
    let mut client = server.client();
    let [names, words] = [NAMES, WORDS].map(|text| text.split_whitespace().collect::<Vec<_>>());
    for _ in 0..1500 {
        let mut line = names[random.usize(..names.len())].to_owned();
        for _ in 0..random.usize(..10) {
            line += " ";
            line += words[random.usize(..words.len())];
        }
        // Within a transaction no command waits.
        client.send(format!("MULTI\r\n{line}\r\nEXEC\r\n").as_bytes());
        for _ in 0..3 {
            assert!(client.read().is_some(), "no reply to {line}");
        }
    }
    // Half of a request, and half of a connection.
    for bytes in [
        &b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n"[..],
        b"*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n",
        b"XREAD BLOCK 0 STREAMS k $\r\n*1\r\n",
        b"SUBSCRIBE a\r\n*2\r\n",
    ] {
        let reply = exchange(&server, bytes);
        assert!(reply.is_empty() || reply.contains("subscribe"), "{reply}");
    }
    while !client.say("INFO clients").contains("blocked_clients:0") {}
    assert_eq!(client.say("PUBSUB CHANNELS"), "*[]");
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
fn a_result_of_exec_that_is_too_long_is_not_sent_in_part() {
    let server = TestServer::with(Options { output_bytes: 1000, ..Options::default() });
    let mut client = server.client();
    client.call(&[b"SET", b"big", &[b'x'; 600]]);
    client.line("SET word x");
    // The command that fails drops its own reply only.
    let lines = b"MULTI\r\nGET big\r\nGET big\r\nINCR word\r\nEXEC\r\nPING\r\n";
    let reply = exchange(&server, lines);
    assert!(!reply.contains('*') && !reply.contains("PONG"), "{reply}");
    // An error that undoes all commands is the whole reply.
    client.line("CLIENT WEFT.ROLLBACK ON");
    for line in ["MULTI", "GET big", "GET big", "INCR word"] {
        assert!(client.say(line).starts_with('+'), "{line}");
    }
    assert!(client.say("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.say("STRLEN big"), ":600");
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
    // A connection may be served by a thread that has not counted keys yet, for which there is no room.
    server.with_clients(8, |number, mut client| {
        let _ = client.call(&[b"SET", b"another", &value]);
        assert_eq!(client.say(&format!("DEL k{}", 5 + number)), ":1");
    });
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
    let mut subscriber = server.client();
    subscriber.line("SUBSCRIBE a");
    while clients_info(&mut one, "connected_clients") > 2 {}
    assert!(!one.say("CLIENT LIST TYPE normal").contains("cmd=subscribe"));
    let own = one.say("CLIENT ID");
    let own = own.trim_start_matches(':');
    let list = one.say(&format!("CLIENT LIST ID {own}"));
    let address = |name: &str| list.split(name).nth(1).unwrap().split(' ').next().unwrap();
    let (address, server_address) = (address(" addr="), address(" laddr="));
    // The client itself is spared, unless it says otherwise.
    for (filters, reply) in [
        (format!("ID {own}"), ":0"),
        (format!("ID {own} SKIPME yes"), ":0"),
        (format!("ADDR {address} LADDR {server_address}"), ":0"),
        ("USER default TYPE normal".to_owned(), ":0"),
        ("TYPE replica".to_owned(), ":0"),
        (format!("ID {own} TYPE pubsub SKIPME no"), ":0"),
        ("USER nosuch".to_owned(), "-ERR No such user 'nosuch'"),
        ("TYPE nosuch".to_owned(), "-ERR Unknown client type 'nosuch'"),
        ("ID 0".to_owned(), "-ERR client-id should be greater than 0"),
        ("ID x".to_owned(), "-ERR client-id should be greater than 0"),
        ("SKIPME maybe".to_owned(), "-ERR syntax error"),
        (format!("ID {own} SKIPME"), "-ERR syntax error"),
        ("NOSUCH 1".to_owned(), "-ERR syntax error"),
        ("1:1".to_owned(), "-ERR No such client"),
        (format!("USER default TYPE PubSub LADDR {server_address}"), ":1"),
    ] {
        assert_eq!(one.say(&format!("CLIENT KILL {filters}")), reply, "{filters}");
    }
    assert!(subscriber.read().is_none());
    for kill in ["ID {} SKIPME no", "ADDR {} SKIPME no", "{}"] {
        let mut client = server.client();
        let id = client.say("CLIENT ID");
        let line = client.say(&format!("CLIENT LIST ID {}", id.trim_start_matches(':')));
        let address = line.split(" addr=").nth(1).unwrap().split(' ').next().unwrap();
        let named = if kill.starts_with("ID") { id.trim_start_matches(':') } else { address };
        let reply = client.say(&format!("CLIENT KILL {}", kill.replace("{}", named)));
        assert!([":1", "+OK"].contains(&&*reply), "{kill}: {reply}");
        assert!(client.read().is_none());
    }
    one.line("CONFIG SET slowlog-log-slower-than 0");
    one.line("SET k v");
    assert!(one.say("SLOWLOG GET 1").contains("*[\"SET\", \"k\", \"v\"]"));
    let memory = one.say("MEMORY USAGE k");
    assert!(memory.starts_with(':') && memory.len() > 2, "{memory}");
    assert_eq!(
        one.say("SAVE"),
        "-ERR there is nothing to save, since the data is in memory: start the server with --directory"
    );
    let count = one.say("COMMAND COUNT");
    let docs = one.line("COMMAND DOCS");
    let crate::client::Value::List(_, entries) = docs else { unreachable!() };
    assert_eq!(count, format!(":{}", entries.len() / 2));
}

/// Returns a number of `INFO clients`.
fn clients_info(client: &mut crate::client::Client, name: &str) -> u64 {
    let info = client.line("INFO clients");
    let crate::client::Value::Text(text) = info else { panic!("{}", info.shown()) };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap().parse().unwrap()
}

#[test]
fn slow_readers_share_a_bounded_memory_and_others_are_served() {
    let readers =
        std::env::var("WEFT_SERVER_READERS").map_or(100, |readers| readers.parse().unwrap());
    let limit = 64 << 20;
    let server = TestServer::with(Options { clients_bytes: limit, ..Options::default() });
    let mut bystander = server.client();
    // More than the system keeps for a connection.
    bystander.call(&[b"SET", b"k", &vec![b'x'; 8 << 20]]);
    let slow: Vec<_> = (0..readers)
        .map(|number| {
            let mut slow = server.client();
            slow.send(b"GET k\r\n");
            assert_eq!(bystander.say(&format!("SET n {number}")), "+OK");
            slow
        })
        .collect();
    // Those beyond the limit are closed.
    let most = limit / (8 << 20) + 1;
    while clients_info(&mut bystander, "connected_clients") > most {
        assert!(clients_info(&mut bystander, "weft_clients_bytes") < 2 * limit);
    }
    drop(slow);
    while clients_info(&mut bystander, "connected_clients") > 1 {}
    assert_eq!(bystander.say("STRLEN k"), ":8388608");
}

#[test]
fn announced_bulks_and_queues_need_no_memory_and_count() {
    let limit = 8 << 20;
    let options = Options { clients_bytes: limit, request_bytes: 512 << 20, ..Options::default() };
    let server = TestServer::with(options);
    let mut bystander = server.client();
    let announcing: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.client();
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nabc");
            client
        })
        .collect();
    while clients_info(&mut bystander, "connected_clients") < 51 {}
    assert!(clients_info(&mut bystander, "weft_clients_bytes") < limit);
    // What follows counts: the client that sends it is closed, and no other.
    let mut sender = server.client();
    sender.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n");
    for _ in 0..limit >> 20 {
        sender.send(&[b'x'; 1 << 20]);
    }
    assert!(sender.read().is_none());
    // So does a queue.
    let mut queuing = server.client();
    queuing.line("MULTI");
    let value = vec![b'x'; 1 << 20];
    let mut queued = 0;
    loop {
        queuing.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).as_bytes());
        queuing.send(&value);
        queuing.send(b"\r\n");
        match queuing.read() {
            Some(reply) => assert_eq!(reply.shown(), "+QUEUED"),
            None => break,
        }
        queued += 1;
    }
    assert!(queued >= 3, "{queued}");
    assert_eq!(clients_info(&mut bystander, "connected_clients"), 51);
    drop(announcing);
    assert_eq!(bystander.say("EXISTS k"), ":0");
    while clients_info(&mut bystander, "connected_clients") > 1 {}
    // All that was counted is given back.
    assert!(clients_info(&mut bystander, "weft_clients_bytes") < 1 << 20);
}

/// Fault: the names of subscriptions did not count, so clients could need any amount of memory.
#[test]
fn subscriptions_count_among_the_memory_of_clients() {
    let limit = 8 << 20;
    let server = TestServer::with(Options { clients_bytes: limit, ..Options::default() });
    let (mut bystander, mut subscriber) = (server.client(), server.client());
    let name = |number: usize| format!("{number}{}", "x".repeat(200_000));
    let subscribe = |subscriber: &mut crate::client::Client, number: usize| {
        let name = name(number);
        subscriber
            .send(format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{name}\r\n", name.len()).as_bytes());
        subscriber.read().is_some()
    };
    let mut subscribed = 0;
    while subscribe(&mut subscriber, subscribed) {
        subscribed += 1;
        assert!(subscribed < 100, "the names do not count");
    }
    assert!(subscribed >= 10, "{subscribed}");
    while clients_info(&mut bystander, "connected_clients") > 1 {}
    // The memory of a subscription that ends is given back.
    let mut changing = server.client();
    for number in 0..100 {
        assert!(subscribe(&mut changing, number));
        assert!(changing.call(&[b"UNSUBSCRIBE", name(number).as_bytes()]).shown().ends_with(":0]"));
    }
    assert!(clients_info(&mut bystander, "weft_clients_bytes") < limit);
}

/// Fault: a command that waits has copies of its arguments and keys, which did not count.
#[test]
fn commands_that_wait_count_among_the_memory_of_clients() {
    const KEY_BYTES: u64 = 4 << 20;
    let server = TestServer::new();
    let (mut bystander, mut waiter) = (server.client(), server.client());
    let key = vec![b'x'; KEY_BYTES as usize];
    waiter.send(format!("*3\r\n$5\r\nBLPOP\r\n${KEY_BYTES}\r\n").as_bytes());
    waiter.send(&key);
    waiter.send(b"\r\n$1\r\n0\r\n");
    while clients_info(&mut bystander, "blocked_clients") == 0 {}
    // The input, the arguments, and the key.
    while clients_info(&mut bystander, "weft_clients_bytes") < 3 * KEY_BYTES {}
    assert_eq!(bystander.call(&[b"RPUSH", &key, b"element"]).shown(), ":1");
    assert!(waiter.read().is_some());
    assert_eq!(waiter.say("PING"), "+PONG");
    while clients_info(&mut bystander, "weft_clients_bytes") > 1 << 20 {}
}

#[test]
fn clients_that_are_gone_without_a_word_are_asked() {
    let keep_alive = Duration::from_secs(1);
    let server = TestServer::with(Options { keep_alive, ..Options::default() });
    // The system closes connections whose other end does not answer. That the server asks for it can be seen in what the
    // system says about its sockets.
    let stream = TcpStream::connect(server.address).unwrap();
    let port = stream.local_addr().unwrap().port();
    let mut bystander = server.client();
    while clients_info(&mut bystander, "connected_clients") < 2 {}
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().find(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words
            .next()
            .is_some_and(|local| local.ends_with(&format!(":{:04X}", server.address.port())))
            && words.next().is_some_and(|peer| peer.ends_with(&format!(":{port:04X}")))
    });
    // The kind of the timer: 02 is for silent connections.
    let timer = line.unwrap().split_ascii_whitespace().nth(5).unwrap();
    assert!(timer.starts_with("02:"), "{timer}");
    drop(stream);
}

#[test]
fn a_client_that_sleeps_delays_no_other() {
    let server = TestServer::new();
    let (mut sleeper, mut other) = (server.client(), server.client());
    sleeper.send(b"DEBUG SLEEP 3600\r\nSET k v\r\n");
    assert_eq!(other.say("GET k"), "null");
    let mut short = server.client();
    assert_eq!(short.say("DEBUG SLEEP 0.001"), "+OK");
    assert!(short.say("DEBUG SLEEP x").starts_with("-ERR"));
    assert!(short.say("DEBUG JMAP").starts_with("-ERR unknown subcommand"));
}

#[test]
fn latency_shows_the_seconds_with_commands_that_took_long() {
    let server = TestServer::new();
    let mut client = server.client();
    let slow: &[&[u8]] =
        &[b"EVAL", b"local n = 0 for i = 1, 5000000 do n = n + i end return n", b"0"];
    let at = |reply: &str| reply.matches("command").count();
    client.call(slow);
    assert_eq!(client.say("LATENCY LATEST"), "*[]");
    assert!(client.say("LATENCY DOCTOR").contains("latency-monitor-threshold"));
    client.say("CONFIG SET latency-monitor-threshold 1");
    client.call(slow);
    let latest = client.say("LATENCY LATEST");
    assert!(at(&latest) == 1 && latest.starts_with("*[*[\"command\", :"), "{latest}");
    assert!(client.say("LATENCY HISTORY command").starts_with("*[*[:"));
    assert_eq!(client.say("LATENCY HISTORY fork"), "*[]");
    assert!(client.say("LATENCY DOCTOR").contains("SLOWLOG"));
    assert_eq!(client.say("LATENCY RESET fork"), ":0");
    assert_eq!(client.say("LATENCY RESET"), ":1");
    assert_eq!(client.say("LATENCY HISTORY command"), "*[]");
    assert!(
        client.say("LATENCY HISTOGRAM get").starts_with("-ERR LATENCY HISTOGRAM is not supported")
    );
}
