//! The sentences of reports: what a transaction did, and why it must precede another.

use std::ops::Bound;

use crate::history::{History, INITIAL, Vocabulary};
use crate::key;
use crate::report::{AnomalyKind, EdgeKind};
use crate::resolve::{Fault, Reason, Seen};
use crate::versions::{NONE, Versions};

/// Describes the parts of a history in words.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) history: &'a History,
    pub(crate) versions: &'a Versions,
}

impl Words<'_> {
    pub(crate) fn transaction(&self, transaction: u32) -> String {
        format!("T{}", self.history.transactions[transaction as usize].id)
    }

    fn key(&self, key: u32) -> String {
        let name = self.history.keys.key(key);
        match (self.history.vocabulary, self.table(key)) {
            (Vocabulary::Appends, _) => format!("list {name}"),
            (Vocabulary::Registers, _) => format!("register {name}"),
            (Vocabulary::Versions, table) => format!("{table}/{name}"),
        }
    }

    fn table(&self, key: u32) -> &str {
        &self.history.tables[self.history.keys.table(key) as usize]
    }

    fn version(&self, version: u64) -> String {
        match (self.history.vocabulary, version) {
            (Vocabulary::Versions, INITIAL) => "the initial version".to_owned(),
            (Vocabulary::Versions, _) => format!("version {version}"),
            (Vocabulary::Appends, INITIAL) => "the empty list".to_owned(),
            (Vocabulary::Appends, _) => format!("the list up to {}", self.value(version)),
            (Vocabulary::Registers, INITIAL) => "nil".to_owned(),
            (Vocabulary::Registers, _) => self.value(version).to_owned(),
        }
    }

    /// Returns the value that an imported version stands for.
    fn value(&self, version: u64) -> &str {
        let index = usize::try_from(version).ok();
        index.and_then(|index| self.history.values.get(index)).map_or("?", String::as_str)
    }

    /// Returns text such as "version 3 of t/5", "list 5 up to 3", "nil from register 5".
    fn state(&self, key: u32, version: u64) -> String {
        let key = self.key(key);
        match (self.history.vocabulary, version) {
            (Vocabulary::Versions, _) => format!("{} of {key}", self.version(version)),
            (Vocabulary::Appends, INITIAL) => format!("{key} as empty"),
            (Vocabulary::Appends, _) => format!("{key} up to {}", self.value(version)),
            (Vocabulary::Registers, _) => format!("{} from {key}", self.version(version)),
        }
    }

    /// Returns text such as "wrote version 3 of t/5", "deleted t/5 (version 4)".
    fn made(&self, key: u32, slot: u32) -> String {
        let state = self.versions.slot(slot);
        let (key, version) = (self.key(key), state.version);
        match self.history.vocabulary {
            Vocabulary::Versions if state.is_tombstone() => {
                format!("deleted {key} (version {version})")
            }
            Vocabulary::Versions => format!("wrote version {version} of {key}"),
            Vocabulary::Appends => format!("appended {} to {key}", self.value(version)),
            Vocabulary::Registers => format!("wrote {} to {key}", self.value(version)),
        }
    }

    /// Returns text such as "overwrote with version 4", "deleted (version 4)".
    fn overwrote(&self, slot: u32) -> String {
        let state = self.versions.slot(slot);
        match self.history.vocabulary {
            Vocabulary::Versions if state.is_tombstone() => {
                format!("deleted (version {})", state.version)
            }
            Vocabulary::Versions => format!("overwrote with version {}", state.version),
            Vocabulary::Appends => format!("extended with {}", self.value(state.version)),
            Vocabulary::Registers => format!("overwrote with {}", self.value(state.version)),
        }
    }

    /// Returns text such as "'s scan of t [1, 5)", or an empty text if there was no scan.
    fn by_scan(&self, scan: u32) -> String {
        if scan == NONE { String::new() } else { format!("'s scan of {}", self.scan(scan)) }
    }

    fn scan(&self, scan: u32) -> String {
        let record = &self.history.scans[scan as usize];
        let end = |bytes: &[u8]| key::decode_bare(bytes).to_string();
        let from = match &record.from {
            Bound::Unbounded => "(…".to_owned(),
            Bound::Included(bytes) => format!("[{}", end(bytes)),
            Bound::Excluded(bytes) => format!("({}", end(bytes)),
        };
        let to = match &record.to {
            Bound::Unbounded => "…)".to_owned(),
            Bound::Included(bytes) => format!("{}]", end(bytes)),
            Bound::Excluded(bytes) => format!("{})", end(bytes)),
        };
        format!("{} {from}, {to}", self.history.tables[record.table as usize])
    }

    /// Returns why `from` must precede `to`.
    pub(crate) fn why(
        &self,
        from: u32,
        to: u32,
        kind: EdgeKind,
        strict: bool,
        reason: Option<&Reason>,
    ) -> String {
        let (first, second) = (self.transaction(from), self.transaction(to));
        let Some(&Reason { key, from_slot, to_slot, scan }) = reason else {
            let complete_ns = self.history.transactions[from as usize].complete_ns;
            let invoke_ns = self.history.transactions[to as usize].invoke_ns;
            let at = |time: u64| match self.history.timed_by_position {
                true => format!("event {time}"),
                false => format!("at {time} ns"),
            };
            return format!(
                "{first} was complete ({}) before {second} was invoked ({})",
                at(complete_ns),
                at(invoke_ns)
            );
        };
        let name = self.key(key);
        let mut why = match kind {
            EdgeKind::WriteWrite => {
                let overwrote = self.overwrote(to_slot);
                format!("{first} {}, which {second} {overwrote}", self.made(key, from_slot))
            }
            EdgeKind::WriteRead => {
                let by_scan = self.by_scan(scan);
                let saw = match self.versions.slot(from_slot).is_tombstone() {
                    true if scan == NONE => format!("and {second} found it absent"),
                    true => format!("and {second}{by_scan} found it absent"),
                    false if scan == NONE => format!("which {second} read"),
                    false => format!("which {second}{by_scan} returned"),
                };
                format!("{first} {}, {saw}", self.made(key, from_slot))
            }
            _ if from_slot == NONE => {
                let version = self.versions.slot(to_slot).version;
                let by_scan = self.by_scan(scan);
                format!(
                    "{first}{by_scan} found {name} absent, which {second} then inserted as \
                         version {version}"
                )
            }
            _ => {
                let verb = if scan == NONE { "read" } else { "returned" };
                let state = self.state(key, self.versions.slot(from_slot).version);
                let (by_scan, overwrote) = (self.by_scan(scan), self.overwrote(to_slot));
                format!("{first}{by_scan} {verb} {state}, which {second} {overwrote}")
            }
        };
        if strict {
            why += " (as the times leave no other order)";
        }
        why
    }

    /// Returns the transactions of a fault, and what is wrong.
    pub(crate) fn fault(&self, fault: &Fault) -> (Vec<u32>, String) {
        let Fault { kind, transaction, key, seen, expected, scan } = *fault;
        let (reader, name) = (self.transaction(transaction), self.key(key));
        let by_scan = self.by_scan(scan);
        let saw = match seen {
            Seen::Absent => format!("{reader}{by_scan} found {name} absent"),
            Seen::Version(version) if scan == NONE => {
                format!("{reader} read {}", self.state(key, version))
            }
            Seen::Version(version) => {
                format!("{reader}{by_scan} returned {}", self.state(key, version))
            }
        };
        let before = |what: Option<Seen>, verb: &str| match what {
            Some(Seen::Version(version)) => format!("it had {verb} {}", self.version(version)),
            _ if verb == "written" => "it had deleted the row itself".to_owned(),
            _ => "it had found no row".to_owned(),
        };
        let writer = match seen {
            Seen::Version(version) => self.versions.find(key, version),
            Seen::Absent => None,
        };
        let writer = writer.map(|slot| self.versions.slot(slot).writer).filter(|&w| w != NONE);
        let mut transactions = vec![transaction];
        transactions.extend(writer.filter(|&writer| writer != transaction));
        let by = writer.map_or("no transaction".to_owned(), |writer| self.transaction(writer));
        let text = match kind {
            AnomalyKind::OwnWriteNotSeen => {
                format!("{saw}, but before that {}.", before(expected, "written"))
            }
            AnomalyKind::NonRepeatableRead => {
                format!("{saw}, but before that {}.", before(expected, "read"))
            }
            AnomalyKind::GarbageRead if writer == Some(transaction) => {
                format!("{saw}, which it wrote itself, but only later.")
            }
            AnomalyKind::GarbageRead => format!("{saw}, which no transaction wrote."),
            AnomalyKind::AbortedRead => format!("{saw}, which {by} wrote, and {by} aborted."),
            AnomalyKind::IntermediateRead => {
                format!("{saw}, which {by} wrote and replaced itself before it committed.")
            }
            _ => match expected {
                Some(Seen::Version(version)) => format!(
                    "{saw} and then wrote {}, before which the row was never absent.",
                    self.version(version)
                ),
                _ => format!(
                    "{saw}, but the row was there from the beginning, and no committed \
                              transaction left it deleted."
                ),
            },
        };
        (transactions, text)
    }

    /// Returns the transactions of two writes that made the same version, and what is wrong.
    pub(crate) fn duplicate(&self, slot: u32) -> (Vec<u32>, String) {
        let slots = [slot, slot + 1].map(|slot| self.versions.slot(slot));
        let key = self.key_of_slot(slot);
        let writers = slots.map(|slot| slot.writer);
        let text = format!(
            "{} and {} both wrote {} of {}.",
            self.transaction(writers[0]),
            self.transaction(writers[1]),
            self.version(slots[0].version),
            self.key(key)
        );
        (writers.to_vec(), text)
    }

    fn key_of_slot(&self, slot: u32) -> u32 {
        let mut keys = 0..self.history.keys.len() as u32;
        keys.find(|&key| self.versions.of_key(key).contains(&slot)).expect("every slot has a key")
    }
}
