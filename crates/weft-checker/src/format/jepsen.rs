//! Jepsen's events, in EDN or as JSON lines.
//!
//! A process invokes a transaction, and later the same process reports how it ended: `ok`, `fail` (it certainly
//! had no effect), or `info` (the outcome is not known). An `ok` reports what happened. For the others, only
//! the intended writes are known.
//!
//! An `ok` without an invocation is treated as a transaction whose times are not known.

use std::io::BufRead;

use rustc_hash::FxHashMap;

use super::edn::Reader;
use super::excerpt::excerpt;
use super::values::Value;
use super::{Format, FormatError, Lines, PROGRESS_INTERVAL};
use crate::history::Status;
use crate::key::Key;

/// One step of a transaction; Jepsen calls it a micro-operation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Append(Key, Value),
    Write(Key, Value),
    /// What was read; nil if it is not known, or if the register or list was empty.
    Read(Key, Value),
}

/// A transaction.
#[derive(Clone, Debug)]
pub(super) struct JepsenTransaction {
    /// The number of the event that began it, from 1.
    pub(super) id: u64,
    /// The line that lists its steps.
    pub(super) line: u64,
    pub(super) process: u32,
    pub(super) status: Status,
    pub(super) invoke_ns: u64,
    pub(super) complete_ns: Option<u64>,
    pub(super) steps: Vec<Step>,
    /// Whether the file has no times, so that times are positions in the file.
    pub(super) is_timed_by_position: bool,
}

impl JepsenTransaction {
    /// Returns the transaction's steps, without reads if it is not known to have committed.
    pub(super) fn certain_steps(&self) -> impl Iterator<Item = &Step> {
        let committed = self.status == Status::Committed;
        self.steps.iter().filter(move |step| committed || !matches!(step, Step::Read(..)))
    }
}

/// The parts of an event that matter here.
struct Event {
    line: u64,
    position: u64,
    time_ns: Option<u64>,
    process: u32,
    kind: EventKind,
    steps: Option<Vec<Step>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum EventKind {
    Invoke,
    Ok,
    Fail,
    Info,
}

/// Reads all transactions, in the order of their invocations.
pub(super) fn read_lines<R: BufRead>(
    lines: &mut Lines<R>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<JepsenTransaction>, FormatError> {
    let mut reader = Reader::new(lines);
    let mut events = Vec::new();
    let mut position = 0;
    while let Some(value) = reader.next_value()? {
        position += 1;
        let line = reader.line();
        if line.is_multiple_of(PROGRESS_INTERVAL) {
            progress(line);
        }
        events.extend(event(&value, line, position)?);
    }
    if events.is_empty() {
        return Err(FormatError::syntax(reader.line(), "there are no transactions in the file"));
    }
    pair(events)
}

/// Returns the event in a map, or `None` if it does not belong to a transaction.
fn event(value: &Value, line: u64, position: u64) -> Result<Option<Event>, FormatError> {
    let error = |message: &str| Err(FormatError::syntax(line, message));
    if !matches!(value, Value::Map(_)) {
        return error(
            "expected an event, like {:type :ok, :f :txn, :process 0, :value [[:append 1 2]]}, or \
             weft's header {\"format\":\"weft-history\",\"version\":1} in the first line",
        );
    }
    let kind = match value.get("type").and_then(Value::as_name) {
        Some("invoke") => EventKind::Invoke,
        Some("ok") => EventKind::Ok,
        Some("fail") => EventKind::Fail,
        Some("info") => EventKind::Info,
        _ => return error("an event has a :type, one of :invoke, :ok, :fail and :info"),
    };
    // A process that is not a number is a nemesis or the like.
    let process = match value.get("process") {
        Some(Value::Integer(process)) => match u32::try_from(*process) {
            Ok(process) => process,
            Err(_) => return error("a :process is a whole number from 0 to 4294967295"),
        },
        Some(_) => return Ok(None),
        None => return error("an event has a :process"),
    };
    if value.get("f").is_some_and(|f| f.as_name() != Some("txn")) {
        return Ok(None);
    }
    let time_ns = match value.get("time") {
        Some(Value::Integer(time)) => match u64::try_from(*time) {
            Ok(time_ns) => Some(time_ns),
            Err(_) => return error("a :time is a whole number of nanoseconds, not negative"),
        },
        _ => None,
    };
    let steps = match value.get("value") {
        None | Some(Value::Nil) => None,
        Some(Value::List(steps)) => {
            Some(steps.iter().map(|value| step(value, line)).collect::<Result<_, _>>()?)
        }
        Some(_) => return error("the :value of a transaction is a vector of steps"),
    };
    Ok(Some(Event { line, position, time_ns, process, kind, steps }))
}

fn step(value: &Value, line: u64) -> Result<Step, FormatError> {
    let error = |what: &str| {
        let message = format!("{} is not a step: {what}", excerpt(value));
        Err(FormatError::syntax(line, message))
    };
    let shape = "expected [:append key element], [:w key value] or [:r key what-was-read]";
    let Value::List(parts) = value else { return error(shape) };
    let [name, key, argument] = parts.as_slice() else { return error(shape) };
    let Some(key) = key.to_key() else {
        return error("a key is a whole number, a text or keyword, or a vector of these");
    };
    let argument = argument.clone();
    match name.as_name() {
        Some("append") if argument != Value::Nil => Ok(Step::Append(key, argument)),
        Some("w") if argument != Value::Nil => Ok(Step::Write(key, argument)),
        Some("append" | "w") => error("nil cannot be written"),
        Some("r") => Ok(Step::Read(key, argument)),
        _ => error(shape),
    }
}

/// Matches invocations with completions.
fn pair(events: Vec<Event>) -> Result<Vec<JepsenTransaction>, FormatError> {
    let is_timed_by_position = events.iter().any(|event| event.time_ns.is_none());
    let time_of = |event: &Event| match event.time_ns {
        Some(time_ns) if !is_timed_by_position => time_ns,
        _ => event.position,
    };
    let mut transactions: Vec<JepsenTransaction> = Vec::new();
    let mut open: FxHashMap<u32, (usize, u64)> = FxHashMap::default();
    for event in events {
        let time_ns = time_of(&event);
        if event.kind == EventKind::Invoke {
            let earlier = open.insert(event.process, (transactions.len(), event.line));
            if let Some((_, line)) = earlier {
                let process = event.process;
                let message = format!(
                    "process {process} invokes a transaction, but that of line {line} has not ended"
                );
                return Err(FormatError::syntax(event.line, message));
            }
        }
        let place = match (event.kind, open.get(&event.process)) {
            (EventKind::Invoke, _) | (EventKind::Ok, None) => None,
            (_, Some(&(place, _))) => Some(place),
            // A completion without an invocation: nothing is known about its transaction.
            (_, None) => continue,
        };
        let Some(place) = place else {
            let is_known = event.kind == EventKind::Ok;
            transactions.push(JepsenTransaction {
                id: event.position,
                line: event.line,
                process: event.process,
                status: if is_known { Status::Committed } else { Status::Unknown },
                invoke_ns: if is_known { 0 } else { time_ns },
                complete_ns: None,
                steps: event.steps.unwrap_or_default(),
                is_timed_by_position,
            });
            continue;
        };
        open.remove(&event.process);
        let transaction = &mut transactions[place];
        match event.kind {
            EventKind::Ok => {
                if time_ns < transaction.invoke_ns {
                    let message = "the transaction is complete before it is invoked";
                    return Err(FormatError::syntax(event.line, message));
                }
                transaction.status = Status::Committed;
                transaction.complete_ns = Some(time_ns);
                transaction.line = event.line;
                transaction.steps = event.steps.unwrap_or_default();
            }
            EventKind::Fail => transaction.status = Status::Aborted,
            _ => {}
        }
    }
    Ok(transactions)
}

/// Detects the format from the first step that writes.
pub(super) fn detect(transactions: &[JepsenTransaction]) -> Result<Format, FormatError> {
    let mut steps = transactions.iter().flat_map(|transaction| &transaction.steps);
    let found = steps.find_map(|step| match step {
        Step::Append(..) => Some(Format::ListAppend),
        Step::Write(..) => Some(Format::RwRegister),
        Step::Read(_, Value::List(_)) => Some(Format::ListAppend),
        Step::Read(..) => None,
    });
    found.ok_or_else(|| {
        let message = "cannot tell list-append from rw-register: no transaction writes";
        FormatError::syntax(1, message)
    })
}

/// Numbers for the values of a history, from 1. 0 is the number of the empty value.
pub(super) struct Values {
    numbers: FxHashMap<String, u64>,
    pub(super) texts: Vec<String>,
}

impl Values {
    pub(super) fn new() -> Values {
        Values { numbers: FxHashMap::default(), texts: vec!["nil".to_owned()] }
    }

    pub(super) fn number(&mut self, value: &Value) -> u64 {
        let text = value.to_string();
        if let Some(&number) = self.numbers.get(&text) {
            return number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.clone());
        self.numbers.insert(text, number);
        number
    }
}
