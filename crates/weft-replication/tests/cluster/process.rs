//! A node as a process of its own: this program again, with a variable in its environment.
//!
//! It answers requests, a line each, on a port of this machine:
//!
//! | request | answer |
//! | --- | --- |
//! | `run r:KEY a:KEY:VALUE …` | `ok GENERATION EPOCH KEY=VALUE,VALUE …` with what each `r` has read; `not-primary`, `unknown` |
//! | `reports` | `ok` and what the node reports |
//! | `show KEY …` | `ok GENERATION EPOCH KEY=…` of a snapshot at this node |
//! | `promote` | `ok`, or an error |
//! | `status` | `ok ROLE GENERATION`, and why it has stopped |
//! | `trouble` | `ok`, and why the last call of the log has failed |

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use weft::protocol::Dbx;
use weft::{Database, Record};
use weft_replication::kafka::{KafkaLog, KafkaOptions};
use weft_replication::{Node, NodeBuilder, Options, ReplicationError};

use crate::brokers::send_signal;

const SETTINGS: &str = "WEFT_CLUSTER_NODE";

/// How long a node may take for a promotion.
pub const PROMOTION: Duration = Duration::from_secs(60);

/// A list, to which transactions append.
#[derive(Clone, Debug, Record)]
struct List {
    #[record(key)]
    key: u64,
    /// The values, with commas between them.
    values: String,
}

/// How a node is started.
#[derive(Clone, Debug)]
pub struct Settings {
    pub port: u16,
    pub topic: String,
    pub brokers: Vec<String>,
    /// How long a standby waits for a silent primary, in milliseconds; 0 if it does not take over automatically.
    pub silence_ms: u64,
}

/// A running node.
pub struct NodeProcess {
    child: Child,
}

impl NodeProcess {
    /// Starts a node. `log` gets what it says. `environment` has more variables for it.
    pub fn start(settings: &Settings, log: &Path, environment: &[(String, String)]) -> NodeProcess {
        let Settings { port, topic, brokers, silence_ms } = settings;
        let log = File::options().create(true).append(true).open(log).expect("it is opened");
        let this = std::env::current_exe().expect("this program");
        let mut command = Command::new(this);
        command.args(["process::runs_a_node", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(SETTINGS, format!("{port} {topic} {silence_ms} {}", brokers.join(" ")));
        command.envs(environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        NodeProcess { child: command.spawn().expect("it starts") }
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
    }

    pub fn signal(&self, signal: &str) {
        send_signal(&self.child, signal);
    }

    /// Panics if the process has ended on its own.
    pub fn check(&mut self) {
        let ended = self.child.try_wait().expect("it can be asked");
        assert!(ended.is_none(), "a node has ended: {ended:?}");
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection with a node.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

/// How long a client waits for an answer. A node that is stopped answers when it goes on.
const PATIENCE: Duration = Duration::from_secs(60);

impl Connection {
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Sends a request, and returns the answer.
    pub fn ask(&mut self, request: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        match self.stream.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(answer.trim_end().to_owned()),
        }
    }
}

/// Asks a node once.
pub fn ask(port: u16, request: &str) -> io::Result<String> {
    Connection::open(port)?.ask(request)
}

/// Asks a node once, and waits for some seconds at most. It may be stopped.
pub fn ask_within(port: u16, request: &str, seconds: u64) -> io::Result<String> {
    let mut connection = Connection::open(port)?;
    connection.stream.get_ref().set_read_timeout(Some(Duration::from_secs(seconds)))?;
    connection.ask(request)
}

/// This is the node, if the environment says so.
#[test]
fn runs_a_node() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let mut words = settings.split(' ');
    let mut word = || words.next().expect("it has all words").to_owned();
    let (port, topic, silence_ms) = (word(), word(), word());
    let silence_ms: u64 = silence_ms.parse().expect("a number");
    let brokers: Vec<&str> = words.collect();
    let kafka =
        KafkaOptions { timeout: Duration::from_secs(4), ..KafkaOptions::new(&brokers, &topic) };
    // Kafka may not answer at once.
    let log = loop {
        match KafkaLog::open(&kafka) {
            Ok(log) => break Arc::new(log),
            Err(error) => eprintln!("opening the topic: {error}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let options = Options {
        silence: (silence_ms > 0).then_some(Duration::from_millis(silence_ms)),
        ..Options::default()
    };
    let builder = NodeBuilder::new(|| Database::builder().workers_max(64)).table::<List>();
    let node = Arc::new(builder.options(options).start(log).expect("the node starts"));
    let port: u16 = port.parse().expect("a number");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
    for stream in listener.incoming() {
        let node = Arc::clone(&node);
        std::thread::spawn(move || serve(&node, stream.expect("a connection")));
    }
}

fn serve(node: &Node<Dbx>, stream: TcpStream) {
    let mut output = stream.try_clone().expect("it is open");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match answer(node, &line) {
            Ok(answer) => format!("ok {answer}\n"),
            Err(ReplicationError::NotPrimary) => "not-primary\n".to_owned(),
            Err(ReplicationError::OutcomeUnknown) => "unknown\n".to_owned(),
            Err(error) => format!("failed {error}\n"),
        };
        if output.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(node: &Node<Dbx>, line: &str) -> Result<String, ReplicationError> {
    let (request, rest) = line.split_once(' ').unwrap_or((line, ""));
    let steps = rest.split(' ').filter(|step| !step.is_empty());
    match request {
        "run" => run(node, &steps.collect::<Vec<_>>()),
        "show" => show(node, steps.map(|key| key.parse().expect("a number"))),
        "promote" => node.promote(PROMOTION).map(|_| String::new()),
        "status" => {
            let why = node.fault().map_or_else(String::new, |fault| fault.to_string());
            Ok(format!("{:?} {} {why}", node.role(), node.token().generation))
        }
        "reports" => Ok(format!("{:?}", node.reports())),
        "trouble" => Ok(node.trouble().map_or_else(String::new, |trouble| trouble.to_string())),
        _ => panic!("unknown request {line}"),
    }
}

fn run(node: &Node<Dbx>, steps: &[&str]) -> Result<String, ReplicationError> {
    let primary = node.primary()?;
    let lists = primary.database().table::<List>()?;
    let (read, token) = primary.transact(|tx| {
        let mut read = Vec::new();
        for step in steps {
            let mut words = step.split(':');
            let (kind, key) = (words.next(), words.next().expect("a key"));
            let key: u64 = key.parse().expect("a number");
            let values = tx.get(&lists, &key)?.map(|list| list.values.clone());
            let mut values = values.unwrap_or_default();
            if kind == Some("r") {
                read.push(format!("{key}={values}"));
                continue;
            }
            if !values.is_empty() {
                values.push(',');
            }
            values.push_str(words.next().expect("a value"));
            tx.upsert(&lists, List { key, values })?;
        }
        Ok::<_, ReplicationError>(read)
    })?;
    Ok(format!("{} {} {}", token.generation, token.epoch, read.join(" ")))
}

fn show(node: &Node<Dbx>, keys: impl Iterator<Item = u64>) -> Result<String, ReplicationError> {
    let view = node.snapshot()?;
    let lists = view.table::<List>()?;
    let token = view.token();
    let mut read = Vec::new();
    for key in keys {
        let list = view.snapshot().get(&lists, &key)?;
        let values = list.map_or_else(String::new, |list| list.values.clone());
        read.push(format!("{key}={values}"));
    }
    Ok(format!("{} {} {}", token.generation, token.epoch, read.join(" ")))
}
