//! What clients have asked for and were told, and whether that is possible.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_checker::{Options, check, format};

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Read(u64),
    Append(u64, u64),
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has committed, in this generation and epoch, and its reads have found these lists.
    Committed { generation: u64, epoch: u64, lists: Vec<(u64, Vec<u64>)> },
    /// It certainly had no effect.
    Refused(String),
    /// It may have committed.
    Unknown(String),
}

/// An append that was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    key: u64,
    value: u64,
    token: (u64, u64),
}

#[derive(Debug, Default)]
struct Events {
    /// Jepsen's events: transactions that append to lists and read them.
    lines: Vec<String>,
    acknowledged: Vec<Acknowledged>,
    /// Which node has acknowledged in a generation.
    primaries: HashMap<u64, HashSet<String>>,
    /// How often clients were told what.
    told: BTreeMap<String, u64>,
    /// What snapshots at standbys have shown.
    shown: Vec<(u64, Vec<u64>)>,
    /// The latest generation in which a commit was acknowledged, and when that was first.
    generation: u64,
    since: Option<Instant>,
}

/// Collects what clients see.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    events: Mutex<Events>,
}

/// What a check has found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub transactions: u64,
    pub unknown: u64,
    pub epochs: usize,
    pub violations: Vec<String>,
    pub told: BTreeMap<String, u64>,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { start: Instant::now(), events: Mutex::default() }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, kind: &str, process: u32, value: &str) -> String {
        let time = self.start.elapsed().as_nanos();
        format!("{{:type :{kind}, :f :txn, :process {process}, :time {time}, :value [{value}]}}")
    }

    /// A client begins a transaction.
    pub fn begins(&self, process: u32, steps: &[Step]) {
        let line = self.event("invoke", process, &intended(steps));
        self.events().lines.push(line);
    }

    /// A client was told how its transaction has ended. `node` is the process of the node.
    pub fn ended(&self, process: u32, node: &str, steps: &[Step], outcome: &Outcome) {
        let (kind, value, told) = match outcome {
            Outcome::Committed { lists, .. } => {
                ("ok", happened(steps, lists), "committed".to_owned())
            }
            Outcome::Refused(why) => ("fail", intended(steps), format!("refused: {why}")),
            Outcome::Unknown(why) => ("info", intended(steps), format!("unknown: {why}")),
        };
        let line = self.event(kind, process, &value);
        let mut events = self.events();
        events.lines.push(line);
        *events.told.entry(told).or_default() += 1;
        let &Outcome::Committed { generation, epoch, .. } = outcome else { return };
        events.primaries.entry(generation).or_default().insert(node.to_owned());
        for step in steps {
            if let &Step::Append(key, value) = step {
                let token = (generation, epoch);
                events.acknowledged.push(Acknowledged { key, value, token });
            }
        }
        if generation > events.generation {
            (events.generation, events.since) = (generation, Some(Instant::now()));
        }
    }

    /// A snapshot at a standby has shown lists.
    pub fn shown(&self, lists: Vec<(u64, Vec<u64>)>) {
        self.events().shown.extend(lists);
    }

    /// Returns the latest generation in which a commit was acknowledged, and how long that was after `begin`.
    pub fn generation(&self, begin: Instant) -> (u64, Duration) {
        let events = self.events();
        let since =
            events.since.map_or(Duration::ZERO, |since| since.saturating_duration_since(begin));
        (events.generation, since)
    }

    /// Checks everything, given what all lists have in the end. Leaves the history in `file` if something is wrong.
    pub fn verify(&self, lists: &HashMap<u64, Vec<u64>>, file: &Path) -> Verdict {
        let events = self.events();
        let mut violations = Vec::new();
        let tokens: HashSet<_> = events.acknowledged.iter().map(|it| it.token).collect();
        let mut lost = HashSet::new();
        for &Acknowledged { key, value, token } in &events.acknowledged {
            let times =
                lists.get(&key).map_or(0, |list| list.iter().filter(|&&it| it == value).count());
            if times != 1 {
                lost.insert(token);
                violations.push(format!(
                    "value {value}, acknowledged in {token:?}, is there {times} times"
                ));
            }
        }
        for (generation, nodes) in &events.primaries {
            if nodes.len() > 1 {
                violations.push(format!("generation {generation} was acknowledged by {nodes:?}"));
            }
        }
        for (key, shown) in &events.shown {
            let all = lists.get(key).map_or(&[][..], |list| list);
            if !all.starts_with(shown) {
                violations
                    .push(format!("a standby has shown {shown:?} in list {key}, which is {all:?}"));
            }
        }
        let text = events.lines.join("\n");
        let history = format::read(text.as_bytes(), Some(format::Format::ListAppend), &mut |_| {});
        let report = check(&history.expect("a history").history, &Options::default());
        if !report.is_ok() {
            violations.push(report.to_string());
        }
        if !violations.is_empty() {
            let count = violations.len();
            violations.truncate(20);
            violations.push(format!("{count} violations"));
            std::fs::write(file, text).expect("the history is written");
            violations.push(format!("{} acknowledged epochs were lost", lost.len()));
            violations.push(format!("the history is in {}", file.display()));
        }
        Verdict {
            transactions: report.transactions,
            unknown: report.unknown,
            epochs: tokens.len(),
            violations,
            told: events.told.clone(),
        }
    }
}

/// The steps of a transaction that has not answered.
fn intended(steps: &[Step]) -> String {
    let steps = steps.iter().map(|step| match step {
        Step::Read(key) => format!("[:r {key} nil]"),
        Step::Append(key, value) => format!("[:append {key} {value}]"),
    });
    steps.collect::<Vec<_>>().join(" ")
}

/// The steps of a transaction that has committed.
fn happened(steps: &[Step], lists: &[(u64, Vec<u64>)]) -> String {
    let mut lists = lists.iter();
    let steps = steps.iter().map(|step| match step {
        Step::Read(_) => {
            let (key, values) = lists.next().expect("a list for each read");
            let values: Vec<_> = values.iter().map(u64::to_string).collect();
            format!("[:r {key} [{}]]", values.join(" "))
        }
        Step::Append(key, value) => format!("[:append {key} {value}]"),
    });
    steps.collect::<Vec<_>>().join(" ")
}

/// Returns a transaction as the request of a node.
pub fn request(steps: &[Step]) -> String {
    let steps = steps.iter().map(|step| match step {
        Step::Read(key) => format!(" r:{key}"),
        Step::Append(key, value) => format!(" a:{key}:{value}"),
    });
    format!("run{}", steps.collect::<String>())
}

/// Reads the answer of a node.
pub fn outcome(answer: &str) -> Outcome {
    let (kind, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    match kind {
        "ok" => {
            let mut words = rest.split(' ').filter(|word| !word.is_empty());
            let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
            let (generation, epoch) = (number(), number());
            let lists = words.map(list).collect();
            Outcome::Committed { generation, epoch, lists }
        }
        "not-primary" => Outcome::Refused("not the primary".to_owned()),
        "unknown" => Outcome::Unknown("outcome unknown".to_owned()),
        // The engine may have failed after the commit.
        _ => Outcome::Unknown(rest.to_owned()),
    }
}

fn list(word: &str) -> (u64, Vec<u64>) {
    let (key, values) = word.split_once('=').expect("a list");
    let values = values.split(',').filter(|value| !value.is_empty());
    let values = values.map(|value| value.parse().expect("a number")).collect();
    (key.parse().expect("a number"), values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed(
        recorder: &Recorder,
        process: u32,
        node: &str,
        token: (u64, u64),
        step: Step,
        list: &[u64],
    ) {
        let lists = match step {
            Step::Read(key) => vec![(key, list.to_vec())],
            Step::Append(..) => Vec::new(),
        };
        let outcome = Outcome::Committed { generation: token.0, epoch: token.1, lists };
        recorder.begins(process, &[step]);
        recorder.ended(process, node, &[step], &outcome);
    }

    fn violations(recorder: &Recorder, list: &[u64]) -> String {
        let file = std::env::temp_dir().join(format!("weft-history-{}", std::process::id()));
        let verdict = recorder.verify(&HashMap::from([(1, list.to_vec())]), &file);
        let _ = std::fs::remove_file(file);
        verdict.violations.join("\n")
    }

    #[test]
    fn what_is_possible_passes() {
        let recorder = Recorder::new();
        committed(&recorder, 0, "a", (1, 1), Step::Append(1, 5), &[]);
        committed(&recorder, 1, "a", (1, 2), Step::Read(1), &[5]);
        recorder.shown(vec![(1, vec![])]);
        assert_eq!(violations(&recorder, &[5]), "");
    }

    #[test]
    fn every_kind_of_violation_is_found() {
        let recorder = Recorder::new();
        committed(&recorder, 0, "a", (1, 1), Step::Append(1, 5), &[]);
        assert!(violations(&recorder, &[]).contains("is there 0 times"));
        assert!(violations(&recorder, &[5, 5]).contains("is there 2 times"));
        // A stale read.
        committed(&recorder, 1, "a", (1, 2), Step::Read(1), &[]);
        assert!(violations(&recorder, &[5]).contains("NOT serializable"));

        let recorder = Recorder::new();
        committed(&recorder, 0, "a", (1, 1), Step::Append(1, 5), &[]);
        committed(&recorder, 1, "b", (1, 2), Step::Append(1, 6), &[]);
        assert!(violations(&recorder, &[5, 6]).contains("generation 1 was acknowledged by"));
        recorder.shown(vec![(1, vec![6])]);
        assert!(violations(&recorder, &[5, 6]).contains("a standby has shown"));
    }
}
