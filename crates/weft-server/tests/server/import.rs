//! Data comes from a Redis of the machine, and leaves in a backup while the server serves.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use weft::durability::FileSystem;
use weft::htm::word::{Ordering, Word};
use weft_exchange::{DumpReader, restore_dump};
use weft_server::{Options, Server};

use crate::client::{Client, TestServer};
use crate::durable::{Directory, Program, integer, integers};
use crate::missing::skip;
use crate::replies::Redis;

pub const VALUES: &[&str] = &[
    "SET text \"a\\x00\\xff\"",
    "SET number 42",
    "SET temporary x PX 1000000",
    "HSET hash a 1 b \"\\r\\n\"",
    "RPUSH list c a b a",
    "SADD set x 7 z",
    "ZADD zset 1.5 a -inf b 3 c",
    "XADD stream 5-1 a b",
    "XADD stream 5-2 c d e f",
    "XADD stream 6-0 g \"\\x00\"",
    "XADD stream 7-0 h i",
    "XGROUP CREATE stream readers 0",
    "XREADGROUP GROUP readers one COUNT 2 STREAMS stream >",
    "XREADGROUP GROUP readers two COUNT 1 STREAMS stream >",
    "XACK stream readers 5-2",
    "XCLAIM stream readers one 0 6-0 TIME 1000000 RETRYCOUNT 7 JUSTID",
    "XGROUP CREATECONSUMER stream readers idle",
    "XGROUP CREATE stream others $",
    "XDEL stream 7-0",
    "XADD emptied 3-3 a b",
    "XDEL emptied 3-3",
];

/// Questions about streams.
const QUESTIONS_OF_STREAMS: &[&str] = &[
    "XRANGE stream - +",
    "XPENDING stream readers",
    "XINFO GROUPS stream",
    "XLEN emptied",
    "XREADGROUP GROUP readers one STREAMS stream 0",
    "XADD emptied 3-3 a b",
];

const QUESTIONS: &[&str] = &[
    "GET text",
    "GET number",
    "HGET hash a",
    "HGET hash b",
    "HLEN hash",
    "LRANGE list 0 -1",
    "SISMEMBER set 7",
    "SCARD set",
    "ZRANGE zset 0 -1 WITHSCORES",
    "LLEN long",
    "HGET wide f1999",
    "TTL number",
];

/// Imports into a new directory, and returns what the program has written.
fn import(source: &str, directory: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weft-server"))
        .args(["import", source, "--directory"])
        .arg(directory.join("data"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_redis_is_copied_while_it_runs_and_from_its_file() {
    let folder = Directory::new("import-source");
    let Some(redis) = Redis::start_in(&folder.0) else {
        skip("redis-server", "redis-server");
        return;
    };
    let mut source = Client::new(redis.1);
    for line in VALUES {
        assert!(!source.say(line).starts_with('-'), "{line}");
    }
    for number in 0..2000 {
        source.line(&format!("RPUSH long {number}"));
        source.line(&format!("HSET wide f{number} {number}"));
    }
    let code = b"#!lua name=one\nredis.register_function('f', function() return 'one' end)";
    assert_eq!(source.call(&[b"FUNCTION", b"LOAD", code]).shown(), "\"one\"");
    source.line("SELECT 3");
    source.line("SET third 3");
    assert_eq!(source.say("SAVE"), "+OK");
    let address = format!("redis://{}", redis.1);
    let file = folder.0.join("dump.rdb").display().to_string();
    for (name, source_name) in [("running", &address), ("file", &file)] {
        let directory = Directory::new(name);
        let said = import(source_name, &directory.0);
        let expected = "\"keys\":12,\"level\":\"info\",\"message\":\"imported\",\"skipped\":0";
        assert!(said.contains(expected), "{name}: {said}");
        // Again: every key is replaced by an equal one.
        import(source_name, &directory.0);
        let program = Program::start_in(&directory.0);
        let mut client = program.client();
        source.line("SELECT 0");
        for line in QUESTIONS {
            assert_eq!(client.say(line), source.say(line), "{name}: {line}");
        }
        let left: i64 = client.say("PTTL temporary")[1..].parse().unwrap();
        assert!((1..=1_000_000).contains(&left), "{left}");
        assert_eq!(client.say("DBSIZE"), ":11");
        for line in QUESTIONS_OF_STREAMS {
            assert_eq!(client.say(line), source.say(line), "{name}: {line}");
        }
        // How often an entry was delivered before the question about it. The source has been asked, too.
        let pending = client.say("XPENDING stream readers 6-0 6-0 1");
        assert!(pending.ends_with(":8]]"), "{pending}");
        assert_eq!(client.say("FCALL f 0"), "\"one\"");
        client.line("SELECT 3");
        assert_eq!(client.say("GET third"), "\"3\"");
    }
    let one = Directory::new("one");
    let said = import(&format!("{address}/3"), &one.0);
    assert!(said.contains("\"keys\":1,"), "{said}");
}

#[test]
fn a_source_that_cannot_be_read_is_named() {
    let directory = Directory::new("import-wrong");
    let data = directory.0.join("data").display().to_string();
    let text = directory.0.join("text").display().to_string();
    std::fs::write(&text, "no dump").unwrap();
    for (arguments, expected) in [
        (vec!["import", "/nonexistent.rdb", "-d", &data], "/nonexistent.rdb: No such file"),
        (vec!["import", &text, "-d", &data], "this is no RDB file"),
        (vec!["import", "redis://127.0.0.1:1", "-d", &data], "the server to copy from"),
        (vec!["import", &text], "name the --directory"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
        let output = command.args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected), "{message}");
    }
}

#[test]
fn checkpoints_are_written_by_command() {
    let directory = Directory::new("save");
    let program = Program::start_in(&directory.0);
    let mut client = program.client();
    assert_eq!(client.say("SET k v"), "+OK");
    let before: i64 = client.say("LASTSAVE")[1..].parse().unwrap();
    assert_eq!(client.say("SAVE"), "+OK");
    assert_eq!(client.say("BGSAVE"), "+Background saving started");
    let after: i64 = client.say("LASTSAVE")[1..].parse().unwrap();
    assert!(before > 0 && after >= before);
    let memory = crate::client::TestServer::new();
    let mut client = memory.client();
    assert!(client.say("SAVE").starts_with("-ERR"));
    assert!(client.say("BGSAVE").starts_with("-ERR"));
}

/// Returns an RDB file of Redis 7.4 with a hash. Its fields expire, the first one after the other, or not.
fn file_with_fields(path: &Path, first: u64, fields: &[(&str, u8)]) {
    let mut bytes = b"REDIS0012\xfe\0\x18\x01h".to_vec();
    bytes.extend(first.to_le_bytes());
    bytes.push(fields.len() as u8);
    for (name, after) in fields {
        bytes.extend([*after, name.len() as u8]);
        bytes.extend(name.as_bytes());
        bytes.extend(b"\x01v");
    }
    // The end, without a checksum.
    bytes.extend([0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn fields_that_expire_are_not_kept_for_ever_unless_that_is_asked_for() {
    let directory = Directory::new("import-fields");
    let file = directory.0.join("dump.rdb");
    let import = |option: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft-server"));
        command.arg("import").arg(&file).arg("--directory").arg(directory.0.join("data"));
        let output = command.args(option).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let future = 1 << 50;
    file_with_fields(&file, future, &[("a", 1), ("b", 0), ("c", 7)]);
    let (is_ok, said) = import(None);
    let expected = "2 fields of the hash 'h' expire";
    assert!(!is_ok && said.contains(expected) && said.contains("--keep-fields"), "{said}");
    let (is_ok, said) = import(Some("--keep-fields"));
    assert!(is_ok && said.contains("\"fields\":2"), "{said}");
    let hash = || Program::start_in(&directory.0).client().line("HKEYS h").sorted().shown();
    assert_eq!(hash(), "*[\"a\", \"b\", \"c\"]");
    // Fields that have expired are gone, as in Redis.
    file_with_fields(&file, 1000, &[("a", 1), ("b", 0)]);
    let (is_ok, said) = import(None);
    assert!(is_ok, "{said}");
    assert_eq!(hash(), "*[\"b\"]");
}

/// Counts on from 1 until `ends`, and keeps the number in a counter, in a set and in a list, in one transaction after the other.
/// `acknowledged` is the last number that the server has acknowledged.
fn count(mut client: Client, number: usize, acknowledged: &Word, ends: &Word) {
    for next in 1.. {
        client.send(
            format!(
                "MULTI\r\nINCR counter:{number}\r\nSADD set:{number} {next}\r\nRPUSH list:{number} {next}\r\nEXEC\r\n"
            )
            .as_bytes(),
        );
        let replies: Vec<_> = (0..5).map(|_| client.read().unwrap()).collect();
        assert_eq!(integers(&replies[4]), [next, 1, next]);
        acknowledged.store(next as u64, Ordering::Relaxed);
        if ends.load(Ordering::Relaxed) != 0 {
            return;
        }
    }
}

#[test]
fn backup_of_a_serving_server_has_all_acknowledged_writes() {
    let folder = Directory::new("backup");
    let mut options = Options::default();
    let directory = folder.0.join("origin").display().to_string();
    weft_server::find_setting("directory").unwrap().set(&mut options, &directory).unwrap();
    let opened = Server::open(options).unwrap();
    let server = TestServer::of(Arc::clone(&opened));
    for line in VALUES {
        assert!(!server.client().say(line).starts_with('-'), "{line}");
    }
    let questions = [QUESTIONS, &["XRANGE stream - +", "XPENDING stream readers"]].concat();
    let mut client = server.client();
    let replies: Vec<_> = questions.iter().map(|line| client.say(line)).collect();
    let (acknowledged, ends) = ([Word::new(0), Word::new(0)], Word::new(0));
    let mut dump = Vec::new();
    let before = std::thread::scope(|scope| {
        for (number, acknowledged) in acknowledged.iter().enumerate() {
            let (client, ends) = (server.client(), &ends);
            scope.spawn(move || count(client, number, acknowledged, ends));
        }
        let last = || acknowledged.each_ref().map(|number| number.load(Ordering::Relaxed));
        while last().contains(&0) {}
        let before = last();
        // What `weft dump` does, without its copy of the rows in memory.
        weft_exchange::dump(&opened.database, "dump".as_ref(), &mut dump, |_| ()).unwrap();
        ends.store(1, Ordering::Relaxed);
        before
    });
    drop((server, opened));
    let reader = DumpReader::new("dump".as_ref(), &dump[..]).unwrap();
    restore_dump(reader, &FileSystem, &folder.0.join("data")).unwrap();
    let program = Program::start_in(&folder.0);
    let mut client = program.client();
    for (number, (before, after)) in before.iter().zip(&acknowledged).enumerate() {
        let restored = integer(&client.line(&format!("GET counter:{number}")));
        let numbers = *before as i64..=after.load(Ordering::Relaxed) as i64;
        assert!(numbers.contains(&restored), "{restored} is not in {numbers:?}");
        // Each transaction is in the backup as a whole, or not at all.
        assert_eq!(integer(&client.line(&format!("SCARD set:{number}"))), restored);
        let items = integers(&client.line(&format!("LRANGE list:{number} 0 -1")));
        assert_eq!(items, (1..=restored).collect::<Vec<_>>());
    }
    for (line, reply) in questions.into_iter().zip(replies) {
        assert_eq!(client.say(line), reply, "{line}");
    }
    // The restored server also takes writes.
    assert_eq!(client.say("RPUSH list d"), ":5");
}
