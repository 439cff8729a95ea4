//! Three brokers of Kafka, each with a controller, as processes of their own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rskafka::client::ClientBuilder;

use crate::proxy::{Network, Party};

pub const BROKERS: usize = 3;
pub const NODES: usize = 3;

/// The options of a broker's virtual machine. It starts often, and shares few cores with the others.
const JAVA: [&str; 3] = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// A cluster. Brokers have the numbers from 1.
pub struct Cluster {
    jars: PathBuf,
    pub directory: PathBuf,
    pub network: Network,
    brokers: HashMap<usize, Child>,
    /// The ports of the brokers' listeners that have no proxy.
    admin: HashMap<usize, u16>,
    /// The addresses that each node uses, by its number.
    pub addresses: Vec<Vec<String>>,
}

/// What a broker knows of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicState {
    pub leader: Option<usize>,
    pub in_sync: Vec<usize>,
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

impl Cluster {
    /// Starts the brokers, if the environment has their programs: `.ci/kafka` fetches them.
    pub fn start(name: &str) -> Option<Cluster> {
        let Ok(jars) = std::env::var("WEFT_KAFKA_JARS") else {
            eprintln!("skipped: WEFT_KAFKA_JARS is not set");
            return None;
        };
        let parent = std::env::var("WEFT_KAFKA_DIRECTORY");
        let parent = parent.map_or_else(|_| std::env::temp_dir(), PathBuf::from);
        let directory = parent.join(format!("weft-cluster-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("it is made");
        let mut cluster = Cluster {
            jars: jars.into(),
            directory,
            network: Network::new(),
            brokers: HashMap::new(),
            admin: HashMap::new(),
            addresses: vec![Vec::new(); NODES],
        };
        cluster.configure();
        for broker in 1..=BROKERS {
            cluster.start_broker(broker);
        }
        cluster.wait_ready();
        Some(cluster)
    }

    fn java(&self) -> Command {
        let mut java = Command::new("java");
        java.args(JAVA).arg("-cp").arg(self.jars.join("*")).stdin(Stdio::null());
        java
    }

    /// Runs one of Kafka's tools, and returns what it prints.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let output = self.java().arg(class).args(arguments).output().expect("java is there");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{class} {arguments:?}: {text}");
        text
    }

    fn configure(&mut self) {
        let controllers: Vec<(u16, u16)> = (1..=BROKERS)
            .map(|broker| {
                let port = free_port();
                (port, self.network.proxy(None, broker, port))
            })
            .collect();
        let voters: Vec<_> = (1..)
            .zip(&controllers)
            .map(|(broker, (_, proxy))| format!("{broker}@127.0.0.1:{proxy}"))
            .collect();
        for broker in 1..=BROKERS {
            let (mut listeners, mut advertised) = (Vec::new(), Vec::new());
            let mut add = |name: &str, port: u16, proxy: u16| {
                listeners.push(format!("{name}://127.0.0.1:{port}"));
                advertised.push(format!("{name}://127.0.0.1:{proxy}"));
            };
            let (admin, between) = (free_port(), free_port());
            add("ADMIN", admin, admin);
            add("BROKERS", between, self.network.proxy(None, broker, between));
            let (controller, proxy) = controllers[broker - 1];
            add("CONTROLLER", controller, proxy);
            for node in 0..NODES {
                let port = free_port();
                let proxy = self.network.proxy(Some(Party::Node(node)), broker, port);
                add(&format!("NODE{node}"), port, proxy);
                self.addresses[node].push(format!("127.0.0.1:{proxy}"));
            }
            self.admin.insert(broker, admin);
            let plain = |name: &String| format!("{}:PLAINTEXT", name.split(':').next().unwrap());
            let protocols: Vec<_> = listeners.iter().map(plain).collect();
            let properties = format!(
                "process.roles=broker,controller\nnode.id={broker}\ncontroller.quorum.voters={}\n\
                 listeners={}\nadvertised.listeners={}\nlistener.security.protocol.map={}\n\
                 inter.broker.listener.name=BROKERS\ncontroller.listener.names=CONTROLLER\n\
                 log.dirs={}\nmin.insync.replicas=2\ndefault.replication.factor=3\n\
                 log.retention.ms=-1\nlog.retention.bytes=-1\nauto.create.topics.enable=false\n\
                 log.retention.check.interval.ms=1000\nlog.segment.delete.delay.ms=1000\n\
                 num.network.threads=2\nnum.io.threads=4\n",
                voters.join(","),
                listeners.join(","),
                advertised.join(","),
                protocols.join(","),
                self.directory.join(format!("data-{broker}")).display(),
            );
            fs::write(self.properties(broker), &properties).expect("it is written");
            // The same without the broker.
            let alone = properties
                .replace("process.roles=broker,controller", "process.roles=controller")
                .replace(&listeners.join(","), &format!("CONTROLLER://127.0.0.1:{controller}"))
                .replace(&advertised.join(","), &format!("CONTROLLER://127.0.0.1:{proxy}"))
                .replace("inter.broker.listener.name=BROKERS\n", "");
            fs::write(self.controller_properties(broker), alone).expect("it is written");
        }
        let cluster = "d2VmdC1jbHVzdGVyLXRlcw";
        for broker in 1..=BROKERS {
            let properties = self.properties(broker).display().to_string();
            let format = ["format", "--cluster-id", cluster, "--config", &properties];
            self.tool("kafka.tools.StorageTool", &format);
        }
    }

    fn properties(&self, broker: usize) -> PathBuf {
        self.directory.join(format!("broker-{broker}.properties"))
    }

    fn controller_properties(&self, broker: usize) -> PathBuf {
        self.directory.join(format!("controller-{broker}.properties"))
    }

    pub fn start_broker(&mut self, broker: usize) {
        self.start_server(broker, &self.properties(broker));
    }

    /// Starts a broker's controller alone.
    pub fn start_controller(&mut self, broker: usize) {
        self.start_server(broker, &self.controller_properties(broker));
    }

    fn start_server(&mut self, broker: usize, properties: &Path) {
        let log = self.directory.join(format!("broker-{broker}.log"));
        let log = File::options().create(true).append(true).open(log).expect("it is opened");
        let mut java = self.java();
        java.arg("kafka.Kafka").arg(properties);
        java.stdout(log.try_clone().expect("it is open")).stderr(log);
        let child = java.spawn().expect("java is there");
        self.brokers.insert(broker, child);
    }

    /// Sends SIGKILL to a broker.
    pub fn kill_broker(&mut self, broker: usize) {
        let mut child = self.brokers.remove(&broker).expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }

    /// Sends a signal, such as `STOP`, to a broker.
    pub fn signal_broker(&self, broker: usize, signal: &str) {
        send_signal(&self.brokers[&broker], signal);
    }

    fn state_at(&self, broker: usize, topic: &str) -> io::Result<TopicState> {
        let address = (Ipv4Addr::LOCALHOST, self.admin[&broker]);
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        topic_state(&mut stream, topic)
    }

    /// Returns what one of the running brokers knows of a topic.
    pub fn state(&self, topic: &str) -> Option<TopicState> {
        self.brokers.keys().find_map(|&broker| self.state_at(broker, topic).ok())
    }

    /// Waits until every broker answers.
    pub fn wait_ready(&self) {
        self.wait("the brokers", |cluster| {
            (1..=BROKERS).all(|broker| cluster.state_at(broker, "none").is_ok())
        });
    }

    /// Waits until all replicas of a topic are in sync, as every broker sees it.
    pub fn wait_in_sync(&self, topic: &str) {
        self.wait("the replicas", |cluster| {
            (1..=BROKERS).all(|broker| {
                let state = cluster.state_at(broker, topic).unwrap_or_default();
                state.leader.is_some() && state.in_sync.len() == BROKERS
            })
        });
    }

    fn wait(&self, what: &str, condition: impl Fn(&Cluster) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            let logs = self.directory.display();
            assert!(begin.elapsed() < Duration::from_secs(180), "{what} are not there: {logs}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the addresses of the running brokers, without proxies.
    pub fn admin_addresses(&self) -> Vec<String> {
        self.brokers.keys().map(|broker| format!("127.0.0.1:{}", self.admin[broker])).collect()
    }

    pub fn create_topic(&self, topic: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let client = ClientBuilder::new(self.admin_addresses()).build().await.expect("it is");
            let controller = client.controller_client().expect("there is a controller");
            controller.create_topic(topic, 1, BROKERS as i16, 10_000).await.expect("it is made");
        });
        self.wait_in_sync(topic);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for broker in self.brokers.values_mut() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
        if !std::thread::panicking() {
            remove(&self.directory);
        }
    }
}

fn remove(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

/// Sends a signal to a process.
pub fn send_signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.expect("`kill` is there").success());
}

/// Asks a broker for a topic with the request Metadata (key 3) in version 1.
fn topic_state(stream: &mut TcpStream, topic: &str) -> io::Result<TopicState> {
    let mut body = vec![0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1];
    body.extend_from_slice(&(topic.len() as u16).to_be_bytes());
    body.extend_from_slice(topic.as_bytes());
    stream.write_all(&(body.len() as u32).to_be_bytes())?;
    stream.write_all(&body)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer)?;
    let mut answer = Answer(&answer);
    answer.take(4);
    for _ in 0..answer.number() {
        answer.take(4);
        answer.string();
        answer.take(4);
        answer.string();
    }
    // The controller; one topic, its error, its name, whether it is internal; its partitions.
    answer.take(4 + 4 + 2);
    answer.string();
    answer.take(1);
    let mut state = TopicState::default();
    for _ in 0..answer.number() {
        answer.take(2 + 4);
        state.leader = usize::try_from(answer.number()).ok();
        for _ in 0..answer.number() {
            answer.take(4);
        }
        state.in_sync = (0..answer.number()).map(|_| answer.number() as usize).collect();
    }
    Ok(state)
}

struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn string(&mut self) {
        let length = i16::from_be_bytes(self.take(2).try_into().expect("two bytes"));
        self.take(length.max(0) as usize);
    }
}
