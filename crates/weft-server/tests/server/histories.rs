//! Histories of several connections, by `MULTI` and by scripts, which the checker finds strictly serializable.
//!
//! Each transaction appends unique numbers to lists, and reads lists. The checker reads the histories in Jepsen's
//! list-append format. With `WEFT_STRESS` they are that many times as long.

use std::fmt::Write;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft_checker::{Options, Report, check, format};

use crate::client::{Client, TestServer, Value};
use crate::durable::{Directory, Program, connect, integers};

/// How a client runs a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Multi,
    Script,
    /// A mistake: one command after the other.
    Apart,
}

const LISTS: u64 = 3;

/// Runs steps, which are `(command, list, element)` with element 0 for reads. `None` if the connection is gone.
const SCRIPT: &str = "
    local replies = {}
    for i = 1, #ARGV do
        local element = ARGV[i]
        if element == '0' then
            replies[i] = redis.call('LRANGE', KEYS[i], 0, -1)
        else
            replies[i] = redis.call('RPUSH', KEYS[i], element)
        end
    end
    return replies";

/// A step of a transaction: a list, and what is appended to it; `None` reads it.
type Step = (u64, Option<u64>);

fn command((list, element): &Step) -> String {
    match element {
        Some(element) => format!("RPUSH list:{list} {element}"),
        None => format!("LRANGE list:{list} 0 -1"),
    }
}

fn run(client: &mut Client, way: Way, steps: &[Step]) -> Option<Vec<Value>> {
    match way {
        Way::Script => {
            let count = steps.len().to_string();
            let keys = steps.iter().map(|(list, _)| format!("list:{list}"));
            let arguments = steps.iter().map(|(_, element)| element.unwrap_or(0).to_string());
            let parts: Vec<String> = keys.chain(arguments).collect();
            let mut bytes = format!("*{}\r\n", 3 + parts.len());
            for part in ["EVAL", SCRIPT, &count].into_iter().chain(parts.iter().map(|part| &**part))
            {
                write!(bytes, "${}\r\n{part}\r\n", part.len()).unwrap();
            }
            client.send(bytes.as_bytes());
            elements(client.read()?)
        }
        Way::Multi => {
            let commands: Vec<String> = steps.iter().map(command).collect();
            client.send(format!("MULTI\r\n{}\r\nEXEC\r\n", commands.join("\r\n")).as_bytes());
            for _ in 0..=commands.len() {
                client.read()?;
            }
            elements(client.read()?)
        }
        Way::Apart => {
            let replies = steps.iter().map(|step| {
                client.send(format!("{}\r\n", command(step)).as_bytes());
                client.read()
            });
            replies.collect()
        }
    }
}

/// Returns the replies to the commands. `None` if the server is not the primary, or no longer.
fn elements(reply: Value) -> Option<Vec<Value>> {
    match reply {
        Value::List(_, values) => Some(values),
        Value::Line(line)
            if ["-READONLY", "-EXECABORT", "-LOADING", "-ERR the outcome is unknown"]
                .iter()
                .any(|text| line.starts_with(text)) =>
        {
            None
        }
        reply => panic!("{}", reply.shown()),
    }
}

/// The events of all clients.
pub struct Recorder {
    begun: Instant,
    events: Mutex<String>,
    processes: Word,
    elements: Word,
}

impl Recorder {
    pub fn new() -> Self {
        Recorder {
            begun: Instant::now(),
            events: Mutex::default(),
            processes: Word::new(0),
            elements: Word::new(1),
        }
    }

    fn note(&self, kind: &str, process: u64, steps: &[Step], replies: Option<&[Value]>) {
        let mut events = self.events.lock().unwrap();
        let time = self.begun.elapsed().as_nanos();
        let shown: Vec<String> = steps
            .iter()
            .enumerate()
            .map(|(number, (list, element))| match (element, replies) {
                (Some(element), _) => format!("[\"append\",{list},{element}]"),
                (None, None) => format!("[\"r\",{list},null]"),
                (None, Some(replies)) => format!("[\"r\",{list},{:?}]", integers(&replies[number])),
            })
            .collect();
        writeln!(
            events,
            "{{\"type\":\"{kind}\",\"f\":\"txn\",\"process\":{process},\"time\":{time},\"value\":[{}]}}",
            shown.join(",")
        )
        .unwrap();
    }

    /// Runs transactions until there were so many, or the connection is gone.
    pub fn record(&self, mut client: Client, ways: &[Way], count: u64) {
        let process = self.processes.fetch_add(1, Ordering::Relaxed);
        let mut random = fastrand::Rng::new();
        for _ in 0..count {
            let steps: Vec<Step> = (0..random.usize(1..=4))
                .map(|_| {
                    let element =
                        random.bool().then(|| self.elements.fetch_add(1, Ordering::Relaxed));
                    (random.u64(..LISTS), element)
                })
                .collect();
            let way = ways[random.usize(..ways.len())];
            self.note("invoke", process, &steps, None);
            let Some(replies) = run(&mut client, way, &steps) else {
                self.note("info", process, &steps, None);
                return;
            };
            self.note("ok", process, &steps, Some(&replies));
        }
    }

    pub fn check(self) -> Report {
        let events = self.events.into_inner().unwrap();
        let read = format::read(events.as_bytes(), None, &mut |_| ()).unwrap();
        check(&read.history, &Options::default())
    }
}

/// Returns how many times as much as a usual test is wanted.
pub fn stress() -> u64 {
    let stress = std::env::var("WEFT_STRESS");
    stress.map_or(1, |stress| stress.parse().expect("WEFT_STRESS is a number"))
}

/// Records clients of a server in memory.
fn report(ways: &[Way], count: u64) -> Report {
    let server = TestServer::new();
    let recorder = Recorder::new();
    server.with_clients(4, |_, client| recorder.record(client, ways, count));
    recorder.check()
}

#[test]
fn histories_by_multi_and_by_scripts_are_strictly_serializable() {
    let report = report(&[Way::Multi, Way::Script], 150 * stress());
    assert!(report.is_ok(), "{report}");
}

#[test]
fn commands_apart_from_each_other_are_found() {
    for _ in 0..50 {
        if !report(&[Way::Multi, Way::Script, Way::Apart], 100).is_ok() {
            return;
        }
    }
    panic!("50 histories of transactions that were none passed the checker");
}

#[test]
fn histories_over_kills_are_strictly_serializable() {
    let directory = Directory::new("histories");
    let path = &directory.0;
    let recorder = Recorder::new();
    for _ in 0..3 * stress() {
        let mut program = Program::start_in(path);
        thread::scope(|scope| {
            for _ in 0..3 {
                let recorder = &recorder;
                scope.spawn(move || {
                    recorder.record(connect(path), &[Way::Multi, Way::Script], u64::MAX);
                });
            }
            thread::sleep(Duration::from_millis(fastrand::u64(50..250)));
            program.child.kill().unwrap();
        });
    }
    let report = recorder.check();
    assert!(report.is_ok(), "{report}");
}
