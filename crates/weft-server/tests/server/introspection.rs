//! What the server says about itself: `INFO`, `MEMORY`, the parts of commands that Redis has and Weft does not, and help.

use std::time::Duration;

use weft_server::Options;

use crate::client::{Client, TestServer, Value};
use crate::durable::Directory;
use crate::missing::skip;
use crate::replies::Redis;

/// Returns the text of a reply.
fn text_of(client: &mut Client, line: &str) -> String {
    match client.line(line) {
        Value::Text(text) => String::from_utf8(text).unwrap(),
        other => panic!("{line}: {}", other.shown()),
    }
}

/// Returns a row of `INFO`.
fn row(client: &mut Client, name: &str) -> Option<String> {
    let info = text_of(client, "INFO");
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::to_owned)
}

/// Returns the titles of the sections in a reply to `INFO`.
fn titles(client: &mut Client, line: &str) -> Vec<String> {
    let info = text_of(client, line);
    info.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

#[test]
fn help_is_there_where_the_documentation_has_it() {
    let server = TestServer::new();
    let mut client = server.client();
    for line in ["PUBSUB HELP", "memory help", "DEBUG HELP", "COMMAND HELP", "CLIENT HELP"] {
        let help = client.say(line);
        let name = line.split(' ').next().unwrap().to_uppercase();
        assert!(help.starts_with(&format!("*[+{name} ")), "{line}: {help}");
    }
    // Every command whose syntax has HELP answers it.
    let names = client.line("COMMAND LIST");
    let Value::List(_, names) = names else { panic!("{}", names.shown()) };
    for name in names {
        let Value::Text(name) = name else { panic!("{}", name.shown()) };
        let name = String::from_utf8(name).unwrap();
        if client.say(&format!("COMMAND DOCS {name}")).contains("\"HELP\"") {
            let help = client.say(&format!("{name} HELP"));
            assert!(help.starts_with("*[+"), "{name}: {help}");
        }
    }
}

#[test]
fn parts_that_are_not_there_say_what_to_do() {
    let server = TestServer::new();
    let mut client = server.client();
    for (line, name, advice) in [
        ("CLIENT TRACKING ON", "CLIENT TRACKING", "keyspace events"),
        ("client caching yes", "CLIENT CACHING", "keyspace events"),
        ("CLIENT PAUSE 100", "CLIENT PAUSE", "FAILOVER"),
        ("CLIENT UNPAUSE", "CLIENT UNPAUSE", "FAILOVER"),
        ("COMMAND GETKEYSANDFLAGS GET a", "COMMAND GETKEYSANDFLAGS", "COMMAND GETKEYS"),
        ("MEMORY MALLOC-STATS", "MEMORY MALLOC-STATS", "/metrics"),
        ("DEBUG OBJECT a", "DEBUG OBJECT", "OBJECT ENCODING"),
        ("DEBUG RELOAD", "DEBUG RELOAD", "start it again"),
        ("DEBUG SET-ACTIVE-EXPIRE 0", "DEBUG SET-ACTIVE-EXPIRE", "Redis's own tests"),
        ("LATENCY GRAPH command", "LATENCY GRAPH", "LATENCY HISTORY"),
        ("LATENCY HISTOGRAM", "LATENCY HISTOGRAM", "SLOWLOG GET"),
        ("SCRIPT DEBUG YES", "SCRIPT DEBUG", "no debugger"),
    ] {
        let error = client.say(line);
        let expected = format!("-ERR {name} is not supported: ");
        assert!(error.starts_with(&expected) && error.contains(advice), "{line}: {error}");
    }
    let error = client.say("CLIENT NOSUCH");
    assert!(error.contains("unknown subcommand") && error.ends_with("Try CLIENT HELP."), "{error}");
}

#[test]
fn every_part_of_a_command_of_redis_is_there_or_explained() {
    let folder = Directory::new("parts");
    let Some(redis) = Redis::start_in(&folder.0) else {
        skip("redis-server", "redis-server");
        return;
    };
    let server = TestServer::new();
    let mut client = server.client();
    let names = Client::new(redis.1).line("COMMAND LIST");
    let Value::List(_, names) = names else { panic!("{}", names.shown()) };
    let names = names.iter().map(|name| name.shown().trim_matches('"').replace('|', " "));
    for name in names.filter(|name| name.contains(' ')) {
        let (command, part) = name.split_once(' ').unwrap();
        let docs = client.say(&format!("COMMAND DOCS {command}"));
        if docs.contains(&format!("\"{}\"", part.to_uppercase())) {
            continue;
        }
        let error = client.say(&name);
        assert!(error.contains("is not supported: "), "{name}: {error}");
    }
}

#[test]
fn memory_is_counted() {
    let server = TestServer::new();
    let mut client = server.client();
    assert_eq!(client.say("MEMORY PURGE"), "+OK");
    assert!(text_of(&mut client, "MEMORY DOCTOR").contains("has no limit"));
    client.line("SET a 1");
    client.line("SELECT 3");
    client.line("SET b 1");
    client.line("HELLO 3");
    let Value::List('%', values) = client.line("MEMORY STATS") else { panic!("not a map") };
    let shown: Vec<_> = values.iter().map(Value::shown).collect();
    let number = |name: &str| {
        let at = shown.iter().position(|shown| *shown == format!("\"{name}\"")).unwrap();
        shown[at + 1].strip_prefix(':').unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(number("keys.count"), 2);
    assert!(number("dataset.bytes") > 0 && number("clients.normal") >= 0);
    assert_eq!(number("keys.bytes-per-key"), number("dataset.bytes") / 2);

    let mut options = Options::default();
    options.store.memory_limit = Some(64 << 20);
    let server = TestServer::with(options);
    let advice = text_of(&mut server.client(), "MEMORY DOCTOR");
    assert!(advice.contains(" of 67108864 bytes"), "{advice}");
}

#[test]
fn client_tracking_is_off() {
    let server = TestServer::new();
    let mut client = server.client();
    assert_eq!(client.say("CLIENT GETREDIR"), ":-1");
    let expected = "[\"flags\", *[\"off\"], \"redirect\", :-1, \"prefixes\", *[]]";
    assert_eq!(client.say("CLIENT TRACKINGINFO"), format!("*{expected}"));
    client.line("HELLO 3");
    let expected = format!("%{}", expected.replace("*[\"off\"]", "~[\"off\"]"));
    assert_eq!(client.say("CLIENT TRACKINGINFO"), expected);
}

#[test]
fn listed_commands_are_filtered() {
    let server = TestServer::new();
    let mut client = server.client();
    for (filter, expected) in [
        ("FILTERBY PATTERN ZPOP*", "*[\"zpopmax\", \"zpopmin\"]"),
        ("filterby pattern nosuch*", "*[]"),
        (
            "FILTERBY ACLCAT TRANSACTION",
            "*[\"discard\", \"exec\", \"multi\", \"unwatch\", \"watch\"]",
        ),
        ("FILTERBY ACLCAT nosuch", "*[]"),
        ("FILTERBY MODULE search", "*[]"),
        ("FILTERBY GROUP string", "-ERR syntax error"),
        ("FILTERBY PATTERN", "-ERR syntax error"),
        ("PATTERN z*", "-ERR syntax error"),
    ] {
        let found = client.line(&format!("COMMAND LIST {filter}")).sorted().shown();
        assert_eq!(found, expected, "{filter}");
    }
}

#[test]
fn info_has_the_sections_of_redis() {
    let server = TestServer::new();
    let mut client = server.client();
    let all = [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ];
    for line in ["INFO", "INFO all", "INFO DEFAULT", "INFO everything", "INFO cpu default"] {
        assert_eq!(titles(&mut client, line), all, "{line}");
    }
    for (line, expected) in [
        ("INFO cpu", &["CPU"][..]),
        ("INFO MODULES", &["Modules"]),
        ("INFO keyspace errorstats", &["Errorstats", "Keyspace"]),
        ("INFO nosuch", &[]),
        ("INFO commandstats", &[]),
    ] {
        assert_eq!(titles(&mut client, line), expected, "{line}");
    }
}

#[test]
fn info_counts_errors_by_their_code() {
    let server = TestServer::new();
    let mut client = server.client();
    client.line("LPUSH list 1");
    for line in [
        "INCR list",
        "GET list",
        "NOSUCH",
        "EVAL \"return redis.error_reply('MY_CODE text')\" 0",
        "EVALSHA 0000000000000000000000000000000000000000 0",
    ] {
        assert!(client.say(line).starts_with('-'), "{line}");
    }
    let errors = text_of(&mut client, "INFO errorstats");
    let expected = ["ERR:count=1", "MY_CODE:count=1", "NOSCRIPT:count=1", "WRONGTYPE:count=2"];
    let expected = expected.map(|count| format!("errorstat_{count}\r\n")).concat();
    assert_eq!(errors, format!("# Errorstats\r\n{expected}"));
    assert_eq!(row(&mut client, "total_error_replies").as_deref(), Some("5"));
    client.line("CONFIG RESETSTAT");
    assert_eq!(text_of(&mut client, "INFO errorstats"), "# Errorstats\r\n");
}

#[test]
fn info_shows_how_many_commands_run_in_a_second() {
    let server = TestServer::new();
    let mut client = server.client();
    let rate = |client: &mut Client| {
        let [commands, input] = ["instantaneous_ops_per_sec", "instantaneous_input_kbps"]
            .map(|name| row(client, name).unwrap().parse::<f64>().unwrap());
        (commands, input)
    };
    // Each look is two commands. The counters are looked at every 50 milliseconds.
    while {
        let (commands, input) = rate(&mut client);
        commands < 1.0 || input == 0.0
    } {}
    // A client that says little lowers the rate again.
    while rate(&mut client).0 >= 10.0 {
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn info_has_the_memory_and_time_of_the_process() {
    let server = TestServer::new();
    let mut client = server.client();
    for name in ["used_cpu_sys", "used_cpu_user"] {
        let seconds = row(&mut client, name).unwrap();
        assert!(seconds.parse::<f64>().unwrap() >= 0.0, "{seconds}");
        assert_eq!(seconds.split('.').nth(1).map(str::len), Some(6), "{seconds}");
    }
    let resident: u64 = row(&mut client, "used_memory_rss").unwrap().parse().unwrap();
    assert!(resident > 1 << 20);
    assert!(row(&mut client, "used_memory_human").unwrap().ends_with(['B', 'K', 'M', 'G']));
    assert_eq!(row(&mut client, "maxmemory_human").as_deref(), Some("0B"));
}
