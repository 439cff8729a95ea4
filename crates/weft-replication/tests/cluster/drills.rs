//! Drills: what is lost, and what an operator sees. Each prints the messages of the nodes, which the guide's runbook has.

use std::thread;
use std::time::{Duration, Instant};

use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::record::Record;
use weft_replication::kafka::{KafkaLog, KafkaOptions};
use weft_replication::{LogError, ReplicatedLog};

use crate::brokers::{BROKERS, Cluster, NODES, free_port};
use crate::process::{NodeProcess, Settings, ask, ask_within};

/// How long anything in a drill may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The nodes of a drill. Their clients are the drill itself.
struct Nodes<'a> {
    cluster: &'a Cluster,
    topic: String,
    nodes: Vec<(NodeProcess, u16)>,
}

impl<'a> Nodes<'a> {
    /// Starts nodes on a new topic, which do not take over automatically.
    fn start(cluster: &'a Cluster, count: usize) -> Nodes<'a> {
        let topic = format!("drill-{:016x}", fastrand::u64(..));
        cluster.create_topic(&topic);
        let mut nodes = Nodes { cluster, topic, nodes: Vec::new() };
        (0..count).for_each(|_| nodes.add(&[]));
        nodes
    }

    /// Starts one more node, and waits until it answers.
    fn add(&mut self, environment: &[(String, String)]) {
        let number = self.nodes.len();
        let settings = Settings {
            port: free_port(),
            topic: self.topic.clone(),
            brokers: self.cluster.addresses[number % NODES].clone(),
            silence_ms: 0,
        };
        let log = self.cluster.directory.join(format!("drill-{number}.log"));
        self.nodes.push((NodeProcess::start(&settings, &log, environment), settings.port));
        self.wait(number, "status", |answer| answer.starts_with("ok"));
    }

    fn ask(&self, node: usize, request: &str) -> String {
        ask(self.nodes[node].1, request).expect("the node answers")
    }

    /// Asks a node again and again until its answer is right, and returns that.
    fn wait(&self, node: usize, request: &str, condition: impl Fn(&str) -> bool) -> String {
        let (begin, mut last) = (Instant::now(), String::new());
        while begin.elapsed() < LIMIT {
            if let Ok(answer) = ask_within(self.nodes[node].1, request, 40) {
                if condition(&answer) {
                    return answer;
                }
                last = answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("node {node} does not answer `{request}` as it should: {last}");
    }

    /// Appends a value to list 1.
    fn append(&self, node: usize, value: u64) -> String {
        self.ask(node, &format!("run a:1:{value}"))
    }

    /// Waits until a node has stopped, prints why, and returns that.
    fn wait_stopped(&self, node: usize, drill: &str) -> String {
        let status = self.wait(node, "status", |answer| answer.starts_with("ok Stopped"));
        println!("{drill}: a node stops: {status}");
        status
    }

    /// Waits until a node at least shows this list 1.
    fn wait_shown(&self, node: usize, values: &str) {
        self.wait(node, "show 1", |answer| answer.ends_with(&format!("1={values}")));
    }

    /// Writes records that are not Weft's.
    fn produce(&self, values: Vec<Vec<u8>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let client = ClientBuilder::new(self.cluster.admin_addresses()).build().await;
            let client = client.expect("the brokers answer");
            let error = UnknownTopicHandling::Error;
            let partition =
                client.partition_client(&self.topic, 0, error).await.expect("it is there");
            let record = |value: Vec<u8>| Record {
                key: None,
                value: Some(value),
                headers: Default::default(),
                timestamp: chrono::Utc::now(),
            };
            let records = values.into_iter().map(record).collect();
            partition.produce(records, Compression::NoCompression).await.expect("it is appended");
        });
    }

    fn configure(&self, setting: &str) {
        let broker = &self.cluster.admin_addresses()[0];
        self.cluster.tool(
            "kafka.admin.ConfigCommand",
            &[
                "--bootstrap-server",
                broker,
                "--alter",
                "--topic",
                &self.topic,
                "--add-config",
                setting,
            ],
        );
    }

    fn options(&self) -> KafkaOptions {
        let addresses = self.cluster.admin_addresses();
        let addresses: Vec<&str> = addresses.iter().map(|address| &**address).collect();
        KafkaOptions::new(&addresses, &self.topic)
    }
}

fn delete_topic(nodes: &Nodes<'_>) {
    let broker = &nodes.cluster.admin_addresses()[0];
    let arguments = ["--bootstrap-server", broker, "--delete", "--topic", &nodes.topic];
    nodes.cluster.tool("org.apache.kafka.tools.TopicCommand", &arguments);
}

/// Somebody deletes the topic and makes it again, while a primary and a standby run.
fn topic_made_again(cluster: &mut Cluster) {
    let nodes = Nodes::start(cluster, 2);
    assert!(nodes.ask(0, "promote").starts_with("ok"));
    assert!(nodes.append(0, 1).starts_with("ok"));
    nodes.wait_shown(1, "1");
    let log = KafkaLog::open(&nodes.options()).expect("the topic is there");
    let identity = log.identity().expect("it has one");
    delete_topic(&nodes);
    cluster.create_topic(&nodes.topic);
    for node in 0..2 {
        let status = nodes.wait_stopped(node, "topic made again");
        assert!(
            status.contains("made it again") || status.contains("has lost its end"),
            "{status}"
        );
    }
    assert!(!nodes.append(0, 2).starts_with("ok"));
    // A log that is not used notices, too, and so does one that is opened with the identity.
    let begin = Instant::now();
    while log.identity().is_ok() {
        assert!(begin.elapsed() < LIMIT, "the other topic is not noticed");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(matches!(log.append(b"no record"), Err(LogError::Misconfigured(_))));
    let options = KafkaOptions { identity: Some(identity), ..nodes.options() };
    let refused = KafkaLog::open(&options).expect_err("it is another topic");
    println!("topic made again: opening it with the identity of before: {refused}");
    assert!(refused.to_string().contains("made it again"), "{refused}");
}

/// Somebody sets a retention, and the beginning of the log goes.
fn retention_by_mistake(cluster: &mut Cluster) {
    let mut nodes = Nodes::start(cluster, 2);
    assert!(nodes.ask(0, "promote").starts_with("ok"));
    assert!(nodes.append(0, 1).starts_with("ok"));
    let log = KafkaLog::open(&nodes.options()).expect("the topic is there");
    log.check().expect("the settings are right");
    nodes.configure("retention.ms=1000,segment.ms=1000");
    let begin = Instant::now();
    let why = loop {
        match log.check() {
            Err(LogError::Misconfigured(why)) => break why,
            _ => assert!(begin.elapsed() < LIMIT, "the retention is not noticed"),
        }
        thread::sleep(Duration::from_millis(100));
    };
    println!("retention: the check says: {why}");
    assert!(why.contains("`retention.ms=1000`"), "{why}");
    // The beginning of the log goes.
    while log.range().expect("it answers").0 == 0 {
        assert!(begin.elapsed() < LIMIT, "no record was removed");
        assert!(nodes.append(0, 2).starts_with("ok"));
        thread::sleep(Duration::from_millis(200));
    }
    // The running nodes have everything, and go on.
    assert!(nodes.append(0, 3).starts_with("ok"));
    nodes.wait(1, "show 1", |answer| answer.ends_with(",3"));
    // A new node does not open the topic. When the setting is right again, it still lacks the beginning.
    nodes.configure("retention.ms=-1");
    let fits = |log: &KafkaLog| log.check().is_ok();
    while !fits(&log) {
        assert!(begin.elapsed() < LIMIT, "the setting is not repaired");
        thread::sleep(Duration::from_millis(100));
    }
    nodes.add(&[]);
    let status = nodes.wait_stopped(2, "retention");
    assert!(status.contains("it has to begin with a backup"), "{status}");
    // Other nodes can still take over.
    assert!(nodes.ask(1, "promote").starts_with("ok"));
    assert!(nodes.append(1, 4).starts_with("ok"));
}

/// All brokers are killed at once, and started again.
fn all_brokers_killed(cluster: &mut Cluster) {
    let nodes = Nodes::start(cluster, 2);
    assert!(nodes.ask(0, "promote").starts_with("ok"));
    assert!(nodes.append(0, 1).starts_with("ok"));
    nodes.wait_shown(1, "1");
    let (topic, processes) = (nodes.topic, nodes.nodes);
    (1..=BROKERS).for_each(|broker| cluster.kill_broker(broker));
    let nodes = Nodes { cluster, topic, nodes: processes };
    // The standby still shows what it has. The primary does not acknowledge.
    nodes.wait_shown(1, "1");
    let trouble = nodes.wait(0, "trouble", |answer| answer.len() > 4);
    println!("all brokers killed: the primary's trouble: {trouble}");
    let told = ask_within(nodes.nodes[0].1, "run a:1:2", 2);
    assert!(!told.is_ok_and(|told| told.starts_with("ok")));
    let (topic, processes) = (nodes.topic, nodes.nodes);
    (1..=BROKERS).for_each(|broker| cluster.start_broker(broker));
    cluster.wait_ready();
    cluster.wait_in_sync(&topic);
    let nodes = Nodes { cluster, topic, nodes: processes };
    // It goes on, with everything acknowledged. The transaction in between may have committed.
    let begin = Instant::now();
    nodes.wait(0, "promote", |answer| answer.starts_with("ok"));
    let read = nodes.wait(0, "run r:1", |answer| answer.starts_with("ok"));
    println!("all brokers killed: serving again {:.1?} after they were", begin.elapsed());
    assert!(read.ends_with("1=1") || read.ends_with("1=1,2"), "{read}");
    nodes.wait(1, "trouble", |answer| answer.trim_end() == "ok");
}

/// Something else writes to the topic.
fn poison_records(cluster: &mut Cluster) {
    for (what, expected) in [("garbage", "is too short"), ("a wrong checksum", "checksum")] {
        let mut nodes = Nodes::start(cluster, 2);
        assert!(nodes.ask(0, "promote").starts_with("ok"));
        assert!(nodes.append(0, 1).starts_with("ok"));
        let record = match what {
            "garbage" => b"hello".to_vec(),
            _ => {
                let log = KafkaLog::open(&nodes.options()).expect("the topic is there");
                let read = log.read(0, Duration::from_secs(1)).expect("it answers");
                let mut record = read[0].bytes.to_vec();
                *record.last_mut().expect("it is long") ^= 1;
                record
            }
        };
        nodes.produce(vec![record]);
        for node in 0..2 {
            let status = nodes.wait_stopped(node, what);
            assert!(status.contains(expected), "{status}");
        }
        assert!(!nodes.append(0, 2).starts_with("ok"));
        // A node that starts again stops at the same place.
        nodes.add(&[]);
        assert!(nodes.wait_stopped(2, what).contains(expected));
    }
}

/// The clocks of a node jump. Only its calendar does: nodes use monotonic clocks.
fn clock_jumps(cluster: &mut Cluster) {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    if !std::path::Path::new(library).exists() {
        println!("clock jump: skipped, since libfaketime is not installed");
        return;
    }
    let file = cluster.directory.join("time");
    std::fs::write(&file, "+0").expect("it is written");
    let variables = [
        ("LD_PRELOAD", library.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let mut nodes = Nodes::start(cluster, 1);
    nodes.add(&variables);
    assert!(nodes.ask(1, "promote").starts_with("ok"));
    assert!(nodes.append(1, 1).starts_with("ok"));
    let mut list = "1".to_owned();
    for (value, offset) in (2..).zip(["-3600", "+86400", "+0"]) {
        std::fs::write(&file, offset).expect("it is written");
        // The operating system's clock and the node's differ now.
        thread::sleep(Duration::from_millis(1500));
        let told = nodes.append(1, value);
        assert!(told.starts_with("ok"), "{offset}: {told}, {}", nodes.ask(1, "trouble"));
        list.push_str(&format!(",{value}"));
        nodes.wait_shown(0, &list);
    }
    assert!(nodes.ask(0, "promote").starts_with("ok"));
    assert!(nodes.append(0, 9).starts_with("ok"));
    nodes.wait_shown(1, &format!("{list},9"));
    println!("clock jump: nothing happens");
}

/// A broker without the last records becomes the leader: the others are gone, and somebody allows it.
fn unclean_election(cluster: &mut Cluster) {
    let nodes = Nodes::start(cluster, 2);
    assert!(nodes.ask(0, "promote").starts_with("ok"));
    assert!(nodes.append(0, 1).starts_with("ok"));
    let leader = cluster.state(&nodes.topic).and_then(|it| it.leader).expect("a broker leads");
    let behind = leader % BROKERS + 1;
    let third = behind % BROKERS + 1;
    let (topic, processes) = (nodes.topic, nodes.nodes);
    cluster.kill_broker(behind);
    let nodes = Nodes { cluster, topic, nodes: processes };
    // The broker is no longer among the replicas in sync, and misses these.
    nodes.wait(0, "run a:1:2", |answer| answer.starts_with("ok"));
    assert!(nodes.append(0, 3).starts_with("ok"));
    nodes.wait(1, "show 1", |answer| answer.ends_with(",3"));
    nodes.configure("unclean.leader.election.enable=true");
    let (topic, processes) = (nodes.topic, nodes.nodes);
    cluster.kill_broker(leader);
    cluster.kill_broker(third);
    // Two controllers are a majority, and one replica is there.
    cluster.start_broker(behind);
    cluster.start_controller(third);
    let (begin, is_leader) = (Instant::now(), Some(behind));
    while cluster.state(&topic).and_then(|state| state.leader) != is_leader {
        assert!(begin.elapsed() < LIMIT, "broker {behind} does not lead");
        thread::sleep(Duration::from_millis(100));
    }
    // With one replica, nothing can be read. The second one follows the first.
    cluster.kill_broker(third);
    cluster.start_broker(third);
    let nodes = Nodes { cluster, topic, nodes: processes };
    // The standby has read the records that are gone, and appends them again. The primary has them, too, unless it has given
    // up before.
    nodes.wait(1, "promote", |answer| answer.starts_with("ok"));
    println!("unclean election: the standby: {}", nodes.ask(1, "reports"));
    println!("unclean election: the old primary: {}", nodes.ask(0, "status"));
    nodes.wait(1, "run a:1:4", |answer| answer.starts_with("ok"));
    nodes.wait_shown(1, "1,2,3,4");
}

#[test]
fn drills_lose_nothing_silently() {
    let Some(mut cluster) = Cluster::start("drills") else { return };
    let only = std::env::var("WEFT_KAFKA_DRILL").ok();
    let runs = |name: &str| only.as_ref().is_none_or(|only| only == name);
    type Drill = (&'static str, fn(&mut Cluster));
    let drills: [Drill; 6] = [
        ("topic", topic_made_again),
        ("retention", retention_by_mistake),
        ("poison", poison_records),
        ("clock", clock_jumps),
        ("brokers", all_brokers_killed),
        // It leaves two brokers dead.
        ("election", unclean_election),
    ];
    for (name, drill) in drills {
        if runs(name) {
            let begin = Instant::now();
            drill(&mut cluster);
            println!("drill `{name}`: {:.1?}", begin.elapsed());
        }
    }
}

/// A broker that accepts connections, and never answers.
#[test]
fn silent_brokers_do_not_hold_the_caller_for_ever() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound").to_string();
    let timeout = Duration::from_millis(300);
    let options = KafkaOptions { timeout, ..KafkaOptions::new(&[&address, &address], "topic") };
    let begin = Instant::now();
    let refused = KafkaLog::open(&options).expect_err("no broker answers");
    assert!(refused.to_string().contains("does not answer in time"), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}
