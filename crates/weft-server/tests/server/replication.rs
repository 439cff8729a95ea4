//! Several servers of one replicated database, on a log in memory.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use weft::Database;
use weft::durability::{Backend, SimulatedDisk};
use weft::htm::word::{Ordering, Word};
use weft_inspect::InspectBuilder;
use weft_replication::{
    NodeBuilder, Options as NodeOptions, ReplicatedLog, SimulatedConnection, SimulatedLog,
};
use weft_server::{Options, Reloader, ReplicationOptions, Server};

use crate::client::{Client, TestServer, Value};
use crate::durable::Directory;
use crate::histories::{Recorder, Way, stress};
use crate::settings::{fetch, free_port, try_fetch};

/// Longer than anything takes. No test waits for this long unless it fails.
const LONG: Duration = Duration::from_secs(60);

/// The servers, each with its connection to the log.
struct Cluster {
    connections: Vec<Arc<SimulatedConnection>>,
    servers: Vec<TestServer>,
}

/// Options for servers that become the primary only when they are told.
fn by_call() -> NodeOptions {
    NodeOptions {
        lease: Duration::from_millis(60),
        heartbeat: Duration::from_millis(10),
        silence: None,
        deadline: LONG,
        poll: Duration::from_millis(1),
        ..NodeOptions::default()
    }
}

impl Cluster {
    /// Starts so many servers. The first one is the primary.
    fn new(servers: usize) -> Self {
        Self::with(servers, &by_call())
    }

    fn with(servers: usize, options: &NodeOptions) -> Self {
        let log = SimulatedLog::new(1);
        let connections: Vec<_> = (0..servers).map(|_| log.connect()).collect();
        let started = connections.iter().enumerate().map(|(number, connection)| {
            let node = NodeBuilder::new(Database::builder)
                .address(&format!("server{number}.example:{number}"))
                .options(options.clone());
            let server = Server::builder().replicated(node, Arc::clone(connection) as _);
            TestServer::of(server.open().unwrap())
        });
        let servers = started.collect();
        let cluster = Cluster { connections, servers };
        cluster.promote(0);
        cluster
    }

    fn client(&self, server: usize) -> Client {
        self.servers[server].client()
    }

    fn promote(&self, server: usize) {
        // The connection of a server that begins again as a standby ends.
        self.wait_for(server, "WEFT.PROMOTE", "+OK");
    }

    /// Says a line on a new connection. `None` if it ends.
    fn try_say(&self, server: usize, line: &str) -> Option<String> {
        let mut client = self.client(server);
        client.send(format!("{line}\r\n").as_bytes());
        client.read().map(|reply| reply.shown())
    }

    /// Waits until a server replies so.
    fn wait_for(&self, server: usize, line: &str, reply: &str) {
        let mut said = None;
        for _ in 0..30_000 {
            said = self.try_say(server, line);
            if said.as_deref() == Some(reply) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("{line}: {said:?} instead of {reply}");
    }

    /// Waits until a client of a standby, which may just have begun again, reads this.
    fn wait_to_read(&self, server: usize, line: &str, reply: &str) {
        wait_until(&format!("{line}: {reply}"), || {
            let mut client = self.client(server);
            client.send(format!("READONLY\r\n{line}\r\n").as_bytes());
            let said = [client.read(), client.read()];
            said[1].as_ref().is_some_and(|said| said.shown() == reply)
        });
    }

    /// Returns a client that reads what a standby has, when the standby serves.
    fn reader(&self, server: usize) -> Client {
        self.wait_for(server, "ECHO there", "\"there\"");
        let mut client = self.client(server);
        assert_eq!(client.say("READONLY"), "+OK");
        wait_until("the standby", || !client.say("EXISTS key").starts_with("-LOADING"));
        client
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("{what} does not happen");
}

/// Waits until a client gets a reply.
fn wait_to_hear(client: &mut Client, line: &str, reply: &str) {
    let mut said = String::new();
    let mut is_there = || {
        said = client.say(line);
        said == reply
    };
    wait_until(&format!("{line}: {reply}"), &mut is_there);
}

/// Returns a number of `INFO replication`.
fn info(client: &mut Client, name: &str) -> String {
    let Value::Text(text) = client.line("INFO replication") else { panic!("it is a text") };
    let text = String::from_utf8(text).unwrap();
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    row.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
}

#[test]
fn standby_serves_reads_and_refuses_writes() {
    let cluster = Cluster::new(2);
    let mut primary = cluster.client(0);
    for (line, reply) in [
        ("SET key value", "+OK"),
        ("RPUSH list one two", ":2"),
        ("HSET hash field 7", ":1"),
        ("ZADD scores 3 member", ":1"),
        ("XADD stream 1-1 field value", "\"1-1\""),
        ("WAIT 1 0", ":2"),
        ("ROLE", "*[\"master\", :1, *[]]"),
    ] {
        let said = primary.say(line);
        assert!(
            said == reply || line == "ROLE" && said.starts_with("*[\"master\""),
            "{line}: {said}"
        );
    }
    let mut reader = cluster.reader(1);
    wait_to_hear(&mut reader, "XLEN stream", ":1");
    for (line, reply) in [
        ("GET key", "\"value\""),
        ("LRANGE list 0 -1", "*[\"one\", \"two\"]"),
        ("HGETALL hash", "*[\"field\", \"7\"]"),
        ("ZRANGE scores 0 -1", "*[\"member\"]"),
        ("DBSIZE", ":5"),
        ("XRANGE stream - +", "*[*[\"1-1\", *[\"field\", \"value\"]]]"),
        ("EVAL \"return redis.call('GET', KEYS[1])\" 1 key", "\"value\""),
    ] {
        assert_eq!(reader.say(line), reply, "{line}");
    }
    let refused = "-READONLY You can't write against a read only replica. The primary is at server0.example:0";
    for line in [
        "SET key other",
        "DEL key",
        "EXPIRE key 10",
        "FLUSHALL",
        "PUBLISH channel text",
        "SUBSCRIBE channel",
        "WATCH key",
        "BLPOP nothing 0",
        "XREAD BLOCK 0 STREAMS stream 1-1",
        "FUNCTION FLUSH",
    ] {
        assert_eq!(reader.say(line), refused, "{line}");
    }
    let said = reader.say("EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 key");
    assert!(said.starts_with("-READONLY "), "{said}");
    assert!(reader.say("WAIT 1 0").starts_with("-ERR WAIT cannot be used with replica"));
    assert_eq!(reader.say("MULTI"), "+OK");
    assert_eq!(reader.say("GET key"), "+QUEUED");
    assert_eq!(reader.say("EXEC"), "*[\"value\"]");
    assert_eq!(reader.say("MULTI"), "+OK");
    assert_eq!(reader.say("INCR n"), refused);
    assert!(reader.say("EXEC").starts_with("-EXECABORT"));
    assert_eq!(reader.say("ROLE").split(", ").nth(1), Some("\"server0.example\""));
    assert_eq!(primary.say("GET key"), "\"value\"");
}

#[test]
fn clients_of_a_standby_learn_where_the_primary_is() {
    let cluster = Cluster::new(2);
    assert_eq!(cluster.client(0).say("SET key value"), "+OK");
    drop(cluster.reader(1));
    let mut client = cluster.client(1);
    let refused = client.say("GET key");
    assert!(
        refused.starts_with("-READONLY This server is a standby of the primary at server0"),
        "{refused}"
    );
    assert_eq!(client.say("CLIENT CAPA redirect"), "+OK");
    assert_eq!(client.say("GET key"), "-REDIRECT server0.example:0");
    assert_eq!(client.say("READONLY"), "+OK");
    assert_eq!(client.say("SET key other"), "-REDIRECT server0.example:0");
    wait_to_hear(&mut client, "GET key", "\"value\"");
    assert_eq!(client.say("READWRITE"), "+OK");
    assert_eq!(client.say("GET key"), "-REDIRECT server0.example:0");
    // The setting is for all clients.
    let mut other = cluster.client(1);
    assert_eq!(other.say("CONFIG SET replica-serve-reads yes"), "+OK");
    assert_eq!(other.say("GET key"), "\"value\"");
    for server in [0, 1] {
        let mut client = cluster.client(server);
        let found = client.say("SENTINEL GET-MASTER-ADDR-BY-NAME anything");
        assert_eq!(found, "*[\"server0.example\", \"0\"]");
        assert!(client.say("SENTINEL MASTERS").contains("\"flags\", \"master\""));
    }
    assert_eq!(info(&mut cluster.client(0), "role"), "master");
    let mut standby = cluster.client(1);
    assert_eq!(info(&mut standby, "role"), "slave");
    assert_eq!(info(&mut standby, "master_host"), "server0.example");
    assert_eq!(info(&mut standby, "weft_generation"), "1");
    assert!(standby.say("HELLO 2").contains("\"role\", \"replica\""));
    cluster.promote(1);
    wait_until("the news", || {
        let found = cluster.try_say(0, "SENTINEL GET-MASTER-ADDR-BY-NAME anything");
        found.is_some_and(|found| found == "*[\"server1.example\", \"1\"]")
    });
}

#[test]
fn old_primary_follows_the_new_one() {
    let cluster = Cluster::new(3);
    let mut primary = cluster.client(0);
    assert_eq!(primary.say("SADD set a b c"), ":3");
    assert_eq!(primary.say("SET n 1"), "+OK");
    for (round, server) in [1, 2, 0, 1].into_iter().enumerate() {
        cluster.promote(server);
        let mut primary = cluster.client(server);
        // Collections that different primaries have made have different elements.
        assert_eq!(primary.say(&format!("SADD set:{round} a")), ":1");
        assert_eq!(primary.say("INCR n"), format!(":{}", round + 2));
        assert_eq!(primary.say("SCARD set"), ":3");
        for other in (0..3).filter(|other| *other != server) {
            cluster.wait_to_read(other, "GET n", &format!("\"{}\"", round + 2));
        }
    }
    let mut primary = cluster.client(1);
    assert_eq!(primary.say("SUNION set:0 set:1 set:2 set:3"), "*[\"a\"]");
    assert_eq!(primary.say("DBSIZE"), ":6");
}

/// Every kind of client that waits for something at the primary.
#[test]
fn clients_that_wait_are_told_when_the_primary_steps_down() {
    let cluster = Cluster::new(2);
    let mut blocked = cluster.client(0);
    blocked.send(b"BLPOP nothing 0\r\n");
    let mut reading = cluster.client(0);
    reading.send(b"XREAD BLOCK 0 STREAMS stream $\r\n");
    let mut in_transaction = cluster.client(0);
    assert_eq!(in_transaction.say("MULTI"), "+OK");
    assert_eq!(in_transaction.say("SET key value"), "+QUEUED");
    let mut watching = cluster.client(0);
    assert_eq!(watching.say("WATCH key"), "+OK");
    let mut subscribed = cluster.client(0);
    assert!(subscribed.say("SUBSCRIBE channel").contains("subscribe"));
    let mut sleeping = cluster.client(0);
    sleeping.send(b"DEBUG SLEEP 1000\r\n");
    let mut idle = cluster.client(0);
    assert_eq!(idle.say("PING"), "+PONG");
    let mut observer = cluster.client(0);
    wait_until("blocking", || {
        let Value::Text(text) = observer.line("INFO clients") else { panic!("it is a text") };
        String::from_utf8(text).unwrap().contains("blocked_clients:2")
    });
    cluster.promote(1);
    // The old primary notices it by its next heartbeat.
    let unblocked = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    for client in [&mut blocked, &mut reading, &mut sleeping] {
        assert_eq!(client.read().map(|reply| reply.shown()).as_deref(), Some(unblocked));
        assert_eq!(client.read(), None);
    }
    for client in [&mut in_transaction, &mut watching] {
        let told = client.read().expect("it is told").shown();
        assert!(told.starts_with("-EXECABORT "), "{told}");
        assert_eq!(client.read(), None);
    }
    for client in [&mut subscribed, &mut idle, &mut observer] {
        assert_eq!(client.read(), None);
    }
    // They find the new primary, and a standby where the old one was.
    assert_eq!(cluster.client(1).say("SET key value"), "+OK");
    cluster.wait_to_read(0, "GET key", "\"value\"");
}

/// A primary that was replaced and does not know it says nothing that may be wrong.
#[test]
fn replies_of_a_replaced_primary_are_not_sent() {
    let cluster = Cluster::new(2);
    let mut old = cluster.client(0);
    assert_eq!(old.say("SET key old"), "+OK");
    cluster.connections[0].cut_off(true);
    cluster.promote(1);
    assert_eq!(cluster.client(1).say("SET key new"), "+OK");
    assert_eq!(cluster.client(1).say("RPUSH list element"), ":1");
    let mut clients: Vec<Client> = (0..5).map(|_| cluster.client(0)).collect();
    // A read, an error that follows from what was read, and a write; one of them in a transaction, one in a pipeline.
    clients[0].send(b"GET key\r\n");
    clients[1].send(b"RENAME list other\r\n");
    clients[2].send(b"SET key older\r\n");
    clients[3].send(b"MULTI\r\nGET key\r\nEXEC\r\n");
    clients[4].send(b"INCR n\r\nGET key\r\n");
    thread::sleep(Duration::from_millis(20));
    cluster.connections[0].cut_off(false);
    for (number, client) in clients.iter_mut().enumerate() {
        let told: Vec<String> =
            std::iter::from_fn(|| client.read().map(|reply| reply.shown())).collect();
        let is_told = |told: &String| {
            told.starts_with("-ERR the outcome is unknown") || told.starts_with("-READONLY")
        };
        assert!(!told.is_empty() && told.iter().all(is_told), "{number}: {told:?}");
    }
    let mut primary = cluster.client(1);
    assert_eq!(primary.say("GET key"), "\"new\"");
    assert_eq!(primary.say("EXISTS n other"), ":0");
    cluster.wait_to_read(0, "GET key", "\"new\"");
}

#[test]
fn keys_expire_across_promotions() {
    let cluster = Cluster::new(2);
    let mut primary = cluster.client(0);
    assert_eq!(primary.say("SET soon value PX 400"), "+OK");
    assert_eq!(primary.say("SET late value EX 1000"), "+OK");
    assert_eq!(primary.say("HSET collection field value"), ":1");
    assert_eq!(primary.say("PEXPIRE collection 400"), ":1");
    let mut reader = cluster.reader(1);
    wait_to_hear(&mut reader, "EXISTS late collection", ":2");
    cluster.promote(1);
    let mut primary = cluster.client(1);
    // The background of the new primary removes them.
    wait_to_hear(&mut primary, "DBSIZE", ":1");
    assert_eq!(primary.say("EXISTS soon collection"), ":0");
    let left: i64 = primary.say("TTL late")[1..].parse().unwrap();
    assert!((900..=1000).contains(&left), "{left}");
    // And so the old primary has it, without a background of its own.
    cluster.wait_to_read(0, "DBSIZE", ":1");
    cluster.wait_to_read(0, "EXISTS soon collection", ":0");
}

#[test]
fn standby_takes_over_when_the_primary_is_gone() {
    let options = NodeOptions { silence: Some(Duration::from_millis(300)), ..by_call() };
    let mut cluster = Cluster::with(2, &options);
    // On a machine with much to do the other one may have taken over already.
    let mut primary = 0;
    wait_until("a primary", || {
        primary = 1 - primary;
        cluster.try_say(primary, "SET key value").is_some_and(|said| said == "+OK")
    });
    drop(cluster.servers.remove(primary));
    cluster.wait_for(0, "SET other value", "+OK");
    cluster.wait_for(0, "GET key", "\"value\"");
}

/// Clients append to lists and read them at any server, while the primary changes all the time, and is cut off before.
#[test]
fn histories_over_promotions_are_strictly_serializable() {
    const SERVERS: usize = 3;
    let cluster = Cluster::new(SERVERS);
    let recorder = Recorder::new();
    let is_over = Word::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while is_over.load(Ordering::SeqCst) == 0 {
                    let client = cluster.client(fastrand::usize(..SERVERS));
                    recorder.record(client, &[Way::Multi, Way::Script], 20);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        for round in 0..8 * stress() as usize {
            thread::sleep(Duration::from_millis(fastrand::u64(20..100)));
            let before = round % SERVERS;
            // Half of the primaries do not notice for a while that they were replaced.
            cluster.connections[before].cut_off(round % 2 == 0);
            cluster.promote((round + 1) % SERVERS);
            thread::sleep(Duration::from_millis(fastrand::u64(..30)));
            cluster.connections[before].cut_off(false);
        }
        is_over.store(1, Ordering::SeqCst);
    });
    let report = recorder.check();
    assert!(report.is_ok(), "{report}");
}

/// What load balancers and dashboards see.
#[test]
fn health_and_metrics_tell_what_a_server_is() {
    let cluster = Cluster::new(2);
    drop(cluster.reader(1));
    let status = |server: usize, path: &str| cluster.servers[server].page(path).0;
    wait_until("health", || status(1, "/health/standby") == 200);
    assert_eq!(cluster.servers[0].page("/health"), (200, "primary\n".to_owned()));
    assert_eq!(cluster.servers[1].page("/health"), (200, "standby\n".to_owned()));
    assert_eq!([status(0, "/health/primary"), status(1, "/health/primary")], [200, 503]);
    assert_eq!([status(0, "/health/standby"), status(1, "/health/standby")], [503, 200]);
    let metric = |server: usize, name: &str| {
        let (_, text) = cluster.servers[server].page("/metrics");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&format!("weft_server_{name} ")));
        value.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
    };
    assert_eq!([metric(0, "replication_primary"), metric(1, "replication_primary")], ["1", "0"]);
    assert_eq!(metric(1, "replication_generation"), "1");
    wait_until("being there", || metric(1, "replication_lag_records") == "0");
    cluster.promote(1);
    wait_until("stepping down", || status(0, "/health/standby") == 200);
    assert_eq!(cluster.servers[1].page("/health/primary").0, 200);
    assert_eq!(metric(0, "replication_steps_down_total"), "1");
    assert_eq!(metric(0, "replication_generation"), "2");
}

/// Fault: a standby that could not reach the log kept the lag that it had measured last, so it was shown as up to date.
#[test]
fn lag_grows_while_the_log_does_not_answer() {
    let cluster = Cluster::new(2);
    drop(cluster.reader(1));
    let lag = || info(&mut cluster.client(1), "weft_lag_seconds").parse::<f64>().unwrap();
    wait_until("being there", || lag() == 0.0);
    cluster.connections[1].cut_off(true);
    wait_until("the lag", || lag() > 1.0);
    cluster.connections[1].cut_off(false);
    wait_until("being there again", || lag() == 0.0);
}

/// A server of one node whose database is inspected, and what tells whether it is still in memory.
struct Watched {
    first: Weak<Server>,
    reloader: Reloader,
    cluster: Cluster,
}

/// Starts a primary with these options next to another server.
fn watched_primary(options: Options) -> Watched {
    let log = SimulatedLog::new(6);
    let (one, two) = (log.connect(), log.connect());
    let node = NodeBuilder::new(|| Database::builder().inspect()).options(by_call());
    let server = Server::builder().options(options).replicated(node, Arc::clone(&one) as _);
    let server = server.open().unwrap();
    let (first, reloader) = (Arc::downgrade(&server), server.reloader());
    let servers = vec![TestServer::of(server), {
        let node = NodeBuilder::new(Database::builder).options(by_call());
        TestServer::of(Server::builder().replicated(node, two).open().unwrap())
    }];
    Watched { first, reloader, cluster: cluster_of(servers) }
}

/// Fault: the function that serves kept the first server until the process ended. So after a step-down the memory had the rows
/// of two databases. The page of `--inspect-port` showed the one that was closed.
#[test]
fn server_that_steps_down_frees_its_first_database() {
    let port = free_port();
    let mut options = Options::default();
    options.listen.inspect_port = port;
    let watched = watched_primary(options);
    assert_eq!(watched.cluster.client(0).say("SET key value"), "+OK");
    assert!(fetch(port, "/report").contains("200 OK"));
    watched.cluster.promote(1);
    wait_until("the end of the first server", || watched.first.strong_count() == 0);
    watched.cluster.wait_to_read(0, "GET key", "\"value\"");
    wait_until("the page of the next database", || {
        try_fetch(port, "/report").is_ok_and(|page| page.contains("200 OK"))
    });
}

/// Fault: SIGHUP reached only the first server of the process, which no longer had the clients after a step-down.
#[test]
fn users_are_read_again_after_a_step_down() {
    let directory = Directory::new("reloader");
    let file = directory.0.join("users");
    let line = "user default on nopass ~* &* +@all\nuser watcher on nopass +ping";
    std::fs::write(&file, format!("{line} +monitor\n")).unwrap();
    let watched = watched_primary(Options { users_file: Some(file.clone()), ..Options::default() });
    watched.cluster.promote(1);
    wait_until("the end of the first server", || watched.first.strong_count() == 0);
    let mut monitor = watched.cluster.client(0);
    assert_eq!(monitor.say("AUTH watcher any"), "+OK");
    assert_eq!(monitor.say("MONITOR"), "+OK");
    std::fs::write(&file, format!("{line}\n")).unwrap();
    watched.reloader.reload();
    while monitor.read().is_some() {}
}

#[test]
fn settings_of_replication_are_understood() {
    let mut options = Options::default();
    for (name, value) in [
        ("replicate", "kafka://one:9092,two:9092/topic"),
        ("replicate-address", "one.example:6379"),
        ("replicate-silence", "0"),
        ("replicate-lease", "200"),
        ("replica-serve-reads", "yes"),
        ("replicate-authorities", "/etc/kafka/authorities.pem"),
        ("replicate-user", "weft"),
        ("replicate-mechanism", "SCRAM-SHA-256"),
        ("replicate-identity", "cluster/topic"),
    ] {
        weft_server::find_setting(name).unwrap().set(&mut options, value).unwrap();
    }
    let ReplicationOptions { address, serves_reads, node, kafka, .. } = options.replication.clone();
    assert_eq!(
        (&*kafka.user, kafka.mechanism, &*kafka.identity),
        ("weft", "scram-sha-256", "cluster/topic")
    );
    let mechanism = weft_server::find_setting("replicate-mechanism").unwrap();
    assert!(mechanism.set(&mut options, "kerberos").unwrap_err().contains("scram-sha-512"));
    options.replication.kafka.password = "secret".to_owned();
    assert!(!format!("{options:?}").contains("secret"));
    assert_eq!((&*address, serves_reads, node.silence), ("one.example:6379", true, None));
    assert_eq!(node.lease, Duration::from_millis(200));
    let refused = |options: Options| Server::open(options).unwrap_err().to_string();
    options.replication.log = "elsewhere".to_owned();
    assert!(refused(options.clone()).contains("write kafka://BROKER:PORT"));
    options.replication.log = String::new();
    options.replication.backups = "/nonexistent/backups".to_owned();
    let expected =
        if cfg!(feature = "backups") { "/nonexistent/backups" } else { "--features backups" };
    let said = refused(options);
    assert!(said.contains(expected), "{said}");
}

/// Starts a server whose node has a directory on this disk.
fn start_on(disk: &SimulatedDisk, connection: &Arc<SimulatedConnection>) -> TestServer {
    let disk: Arc<dyn Backend> = Arc::new(disk.clone());
    let node = NodeBuilder::new(Database::builder).options(by_call()).directory_on(disk, "/node");
    TestServer::of(Server::builder().replicated(node, Arc::clone(connection) as _).open().unwrap())
}

/// A cluster of servers that were started already. The first one becomes the primary.
fn cluster_of(servers: Vec<TestServer>) -> Cluster {
    let cluster = Cluster { connections: Vec::new(), servers };
    cluster.promote(0);
    cluster
}

#[test]
fn killed_server_goes_on_from_its_directory() {
    let log = SimulatedLog::new(1);
    let disk = SimulatedDisk::new(1);
    let connection = log.connect();
    let cluster = cluster_of(vec![start_on(&disk, &connection)]);
    let mut primary = cluster.client(0);
    assert_eq!(info(&mut primary, "weft_directory"), "/node");
    let begun = log.connect().range().unwrap().1;
    for (line, reply) in [
        ("SET n 1", "+OK"),
        ("SAVE", "+OK"),
        ("INCR n", ":2"),
        ("SAVE", "+OK"),
        ("RPUSH list one two", ":2"),
        ("WAITAOF 1 0 0", "*[:1, :2]"),
        ("INCR n", ":3"),
    ] {
        assert_eq!(primary.say(line), reply, "{line}");
    }
    // It dies: what its disk has at this moment is what it has. The log no longer has the first records.
    connection.cut_off(true);
    let crashed = disk.crash(fastrand::u64(..));
    log.connect().truncate_before(begun).unwrap();
    let again = cluster_of(vec![start_on(&crashed, &log.connect())]);
    let mut client = again.client(0);
    for (line, reply) in [
        ("GET n", "\"3\""),
        ("LRANGE list 0 -1", "*[\"one\", \"two\"]"),
        ("INCR n", ":4"),
        ("BGSAVE", "+Background saving started"),
    ] {
        assert_eq!(client.say(line), reply, "{line}");
    }
    connection.cut_off(false);
}

/// Fault: a server with a directory stayed the primary while the log did not answer, long after its node had given up.
#[test]
fn server_with_a_directory_is_not_the_primary_while_the_log_is_away() {
    let log = SimulatedLog::new(1);
    let connection = log.connect();
    let disk: Arc<dyn Backend> = Arc::new(SimulatedDisk::new(1));
    let options = NodeOptions { deadline: Duration::from_millis(100), ..by_call() };
    let node = NodeBuilder::new(Database::builder).options(options).directory_on(disk, "/node");
    let server = Server::builder().replicated(node, Arc::clone(&connection) as _).open().unwrap();
    let cluster = cluster_of(vec![TestServer::of(server)]);
    assert_eq!(cluster.client(0).say("SET key 1"), "+OK");
    connection.cut_off(true);
    cluster.wait_for(0, "PING", "-READONLY You can't write against a read only replica.");
    connection.cut_off(false);
    cluster.promote(0);
    cluster.wait_for(0, "GET key", "\"1\"");
}

/// The log loses records. A server without a directory says that they are missing, until the one that has them starts.
#[test]
fn missing_records_and_their_repair_are_shown() {
    let LogWithGap { log, connection, crashed, cluster: _cluster } = log_with_a_gap();
    let without = TestServer::of(
        Server::builder()
            .replicated(NodeBuilder::new(Database::builder).options(by_call()), log.connect())
            .open()
            .unwrap(),
    );
    let mut client = without.client();
    wait_until("missing", || !info(&mut client, "weft_missing").is_empty());
    let (status, page) = without.page("/health");
    assert!(status == 503 && page.contains("records are missing"), "{status}: {page}");
    assert!(without.page("/metrics").1.contains("replication_records_missing 1"));
    let refused = client.say("WEFT.PROMOTE 100");
    assert!(refused.contains("start the node that was the primary"), "{refused}");
    let with = start_on(&crashed, &log.connect());
    wait_until("the repair", || without.page("/health") == (200, "standby\n".to_owned()));
    let mut repairer = with.client();
    assert!(info(&mut repairer, "weft_last_report").contains("were appended again"));
    assert!(with.page("/metrics").1.contains("replication_reports_total 1"));
    assert_eq!(info(&mut client, "weft_missing"), "");
    assert_eq!(client.say("READONLY"), "+OK");
    assert_eq!(client.say("GET n"), "\"5\"");
    connection.cut_off(false);
}

/// The server that has the missing records never comes back.
#[test]
fn missing_records_are_given_up_if_an_operator_says_so() {
    let LogWithGap { log, connection, cluster: _cluster, .. } = log_with_a_gap();
    let node = NodeBuilder::new(Database::builder).options(by_call());
    let server = TestServer::of(Server::builder().replicated(node, log.connect()).open().unwrap());
    let mut client = server.client();
    wait_until("missing", || !info(&mut client, "weft_missing").is_empty());
    assert!(client.say("WEFT.PROMOTE 100").starts_with("-ERR"));
    assert_eq!(client.say("WEFT.PROMOTE 1 2"), "-ERR syntax error");
    assert_eq!(client.say("WEFT.PROMOTE 60000 WITHOUT-MISSING"), "+OK");
    // The newest increment was replicated without those before it, and is gone, too.
    assert_eq!(client.say("INCR n"), ":1");
    connection.cut_off(false);
}

/// A log without the records of four increments, and with that of the fifth.
struct LogWithGap {
    log: SimulatedLog,
    /// The connection that the primary had, which is cut off.
    connection: Arc<SimulatedConnection>,
    /// The disk of the primary.
    crashed: SimulatedDisk,
    /// The primary. It cannot end before it is connected again.
    cluster: Cluster,
}

fn log_with_a_gap() -> LogWithGap {
    let log = SimulatedLog::new(2);
    let disk = SimulatedDisk::new(2);
    let connection = log.connect();
    let cluster = cluster_of(vec![start_on(&disk, &connection)]);
    let begun = log.connect().range().unwrap().1;
    let mut primary = cluster.client(0);
    for n in 1..=5 {
        assert_eq!(primary.say("INCR n"), format!(":{n}"));
    }
    connection.cut_off(true);
    let crashed = disk.crash(fastrand::u64(..));
    // The newest commit is in the log again, and those before it are not. The shortest records are heartbeats.
    let log_end = log.connect();
    let records = log_end.read(0, Duration::ZERO).unwrap();
    let of_heartbeat = records.iter().map(|record| record.bytes.len()).min().unwrap();
    let newest = records.iter().rfind(|record| record.bytes.len() > of_heartbeat).unwrap();
    assert!(newest.offset > begun);
    log.lose_tail((log_end.range().unwrap().1 - begun) as usize);
    log_end.append(&newest.bytes).unwrap();
    LogWithGap { log, connection, crashed, cluster }
}

#[test]
fn directory_of_a_replicated_server_is_its_nodes() {
    let node = || NodeBuilder::new(Database::builder).options(by_call());
    let refused = |options: Options| {
        let log = SimulatedLog::new(3);
        let server = Server::builder().options(options).replicated(node(), log.connect());
        server.open().unwrap_err().to_string()
    };
    let mut options = Options::default();
    weft_server::find_setting("directory").unwrap().set(&mut options, "data").unwrap();
    assert!(refused(options).contains("NodeBuilder::directory"));
    assert!(refused(Options { waits: false, ..Options::default() }).contains("at-once"));
    let cluster = Cluster::new(1);
    let mut primary = cluster.client(0);
    for line in ["SAVE", "BGSAVE", "WAITAOF 1 0 0"] {
        let said = primary.say(line);
        assert!(said.starts_with("-ERR") && said.contains("in memory"), "{line}: {said}");
    }
    // A server without replication does not take a copy of a log for its data.
    let directory = Directory::new("of-a-node");
    let log = SimulatedLog::new(4);
    let started = node().directory(&directory.0).start(log.connect()).unwrap();
    started.shut_down();
    let mut options = Options::default();
    let path = directory.0.to_str().unwrap();
    weft_server::find_setting("directory").unwrap().set(&mut options, path).unwrap();
    Server::open(options).unwrap_err();
}

#[test]
fn server_without_a_place_for_backups_says_so() {
    let cluster = Cluster::new(1);
    let mut primary = cluster.client(0);
    for line in ["WEFT.BACKUP", "WEFT.TRUNCATE"] {
        let said = primary.say(line);
        assert!(said.contains("start it with --replicate-backups"), "{line}: {said}");
    }
    let alone = TestServer::new();
    let said = alone.client().say("WEFT.BACKUP");
    assert!(said.contains("start it with --replicate"), "{said}");
}

/// A server begins with the newest backup, since the log no longer has its first records.
#[cfg(feature = "backups")]
#[test]
fn server_begins_with_a_backup() {
    let place = Directory::new("backups");
    std::fs::create_dir_all(&place.0).unwrap();
    let log = SimulatedLog::new(5);
    let start = || {
        let node = NodeBuilder::new(Database::builder).options(by_call());
        let mut options = Options::default();
        options.replication.backups = place.0.to_str().unwrap().to_owned();
        let server = Server::builder().options(options).replicated(node, log.connect());
        TestServer::of(server.open().unwrap())
    };
    let first = cluster_of(vec![start()]);
    let mut client = first.client(0);
    assert_eq!(client.say("SET n 1"), "+OK");
    assert!(client.say("WEFT.BACKUP").contains("generation 1"));
    assert_eq!(client.say("WEFT.TRUNCATE"), "null");
    assert_eq!(client.say("INCR n"), ":2");
    assert!(client.say("WEFT.BACKUP").contains("generation 1"));
    let offset = client.say("WEFT.TRUNCATE");
    assert!(offset.starts_with(':') && offset != ":0", "{offset}");
    assert_eq!(log.connect().range().unwrap().0, offset[1..].parse::<u64>().unwrap());
    assert_eq!(client.say("INCR n"), ":3");
    let second = cluster_of(vec![start()]);
    assert_eq!(second.client(0).say("INCR n"), ":4");
}
