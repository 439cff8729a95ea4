//! Read-write-register histories: transactions write unique values, and read one at a time.
//!
//! Registers do not tell in which order they were written. This is certain about the order:
//!
//! - Nil, the initial value, comes first.
//! - A transaction that read a value and then wrote the register wrote right after that value. So from nil on
//!   there is a chain without gaps, as far as it goes, and all other values come after it.
//! - In real time: if a transaction that saw or wrote a value was complete before the writer of another value
//!   was invoked, the first value comes before the other. Pairs that follow from values in between are left
//!   out.
//!
//! The order is partial. The checker finds what contradicts every order that it allows.

use rustc_hash::{FxHashMap, FxHashSet};

use super::FormatError;
use super::excerpt::excerpt;
use super::jepsen::{JepsenTransaction, Step, Values};
use super::values::Value;
use crate::history::{
    History, HistoryBuilder, INITIAL, OperationKind, OrderedPair, Status, Vocabulary,
};

/// A value that was written.
#[derive(Clone, Copy)]
struct Written {
    value: u64,
    line: u64,
    invoke_ns: u64,
    /// The earliest completion of a transaction that had seen or written it.
    seen_ns: u64,
    is_last: bool,
    may_count: bool,
}

/// The facts about one register.
#[derive(Default)]
struct Register {
    written: Vec<Written>,
    by_value: FxHashMap<u64, usize>,
    /// Pairs of a value and the value that was written right after it, by a transaction that had read the
    /// first.
    pairs: Vec<(u64, u64)>,
}

/// Returns the history of these transactions.
pub(super) fn history(transactions: &[JepsenTransaction]) -> Result<History, FormatError> {
    let mut builder = HistoryBuilder::new();
    let table = builder.table("");
    let mut values = Values::new();
    let mut registers: FxHashMap<u32, Register> = FxHashMap::default();
    for transaction in transactions {
        collect(transaction, &mut |key| builder.key(table, key).0, &mut values, &mut registers)?;
    }
    for transaction in transactions {
        for step in transaction.certain_steps() {
            match step {
                Step::Write(key, value) => {
                    let key = builder.key(table, key);
                    builder.push(OperationKind::Write, key.0, values.number(value));
                }
                Step::Read(key, value) => {
                    let key = builder.key(table, key);
                    let version = version(value, &mut values);
                    builder.push(OperationKind::Read, key.0, version);
                    if let (Some(register), Some(complete_ns)) =
                        (registers.get_mut(&key.0), transaction.complete_ns)
                    {
                        register.seen(version, complete_ns);
                    }
                }
                Step::Append(..) => {}
            }
        }
        let JepsenTransaction { id, process, status, invoke_ns, complete_ns, .. } = *transaction;
        builder.push_transaction(id, process, status, invoke_ns, complete_ns);
    }
    let mut order = Vec::new();
    for (&key, register) in &mut registers {
        register.order(key, &mut order);
    }
    let mut history = builder.build();
    history.order = Some(order);
    history.vocabulary = Vocabulary::Registers;
    history.values = values.texts;
    history.timed_by_position = transactions.iter().any(|one| one.is_timed_by_position);
    Ok(history)
}

fn version(value: &Value, values: &mut Values) -> u64 {
    if *value == Value::Nil { INITIAL } else { values.number(value) }
}

/// Collects what a transaction wrote, and what it had read before.
fn collect(
    transaction: &JepsenTransaction,
    key_number: &mut impl FnMut(&crate::key::Key) -> u32,
    values: &mut Values,
    registers: &mut FxHashMap<u32, Register>,
) -> Result<(), FormatError> {
    let line = transaction.line;
    // `read`: the first value read, if it was read before the first write. `last`: the last value written.
    let mut read: FxHashMap<u32, u64> = FxHashMap::default();
    let mut last: FxHashMap<u32, u64> = FxHashMap::default();
    for step in transaction.certain_steps() {
        match step {
            Step::Append(..) => {
                let message = "an rw-register history has no :append steps";
                return Err(FormatError::syntax(line, message));
            }
            Step::Read(key, value) => {
                let key = key_number(key);
                if !last.contains_key(&key) {
                    read.entry(key).or_insert(version(value, values));
                }
            }
            Step::Write(key, value) => {
                let (name, text) = (key, value);
                let key = key_number(key);
                let value = values.number(value);
                let register = registers.entry(key).or_default();
                let place = register.written.len();
                if let Some(&earlier) = register.by_value.get(&value) {
                    let message = format!(
                        "{} is written to register {} twice, also in line {}: values must be unique",
                        excerpt(text),
                        excerpt(name),
                        register.written[earlier].line
                    );
                    return Err(FormatError::syntax(line, message));
                }
                register.by_value.insert(value, place);
                register.written.push(Written {
                    value,
                    line,
                    invoke_ns: transaction.invoke_ns,
                    seen_ns: u64::MAX,
                    is_last: true,
                    may_count: transaction.status != Status::Aborted,
                });
                if let Some(before) = last.insert(key, value) {
                    let before = register.by_value[&before];
                    register.written[before].is_last = false;
                }
            }
        }
    }
    if transaction.status == Status::Committed {
        for (key, value) in last {
            let register = registers.entry(key).or_default();
            if let Some(complete_ns) = transaction.complete_ns {
                register.seen(value, complete_ns);
            }
            if let Some(&before) = read.get(&key) {
                register.pairs.push((before, value));
            }
        }
    }
    Ok(())
}

impl Register {
    /// Notes that a transaction that was complete at this time had seen or written the value.
    fn seen(&mut self, value: u64, complete_ns: u64) {
        if let Some(&place) = self.by_value.get(&value) {
            let written = &mut self.written[place];
            written.seen_ns = written.seen_ns.min(complete_ns);
        }
    }

    /// Adds what is known of the register's order.
    fn order(&mut self, key: u32, order: &mut Vec<OrderedPair>) {
        self.pairs.sort_unstable();
        for &(before, after) in &self.pairs {
            order.push(OrderedPair { key, before, after, by_real_time: false });
        }
        let end = self.end_of_chain();
        let has_predecessor: FxHashSet<u64> = self.pairs.iter().map(|&(_, after)| after).collect();
        self.written.retain(|written| written.may_count && written.is_last);
        for written in &self.written {
            if !has_predecessor.contains(&written.value) {
                let (before, after) = (end, written.value);
                order.push(OrderedPair { key, before, after, by_real_time: false });
            }
        }
        self.order_by_time(key, order);
    }

    /// Returns the last value of the chain from nil.
    fn end_of_chain(&self) -> u64 {
        let next: FxHashMap<u64, u64> = self.pairs.iter().copied().collect();
        let mut end = INITIAL;
        let mut seen = FxHashSet::default();
        while let Some(&after) = next.get(&end)
            && seen.insert(after)
        {
            end = after;
        }
        end
    }

    fn order_by_time(&mut self, key: u32, order: &mut Vec<OrderedPair>) {
        self.written.sort_unstable_by_key(|written| (written.invoke_ns, written.value));
        for written in &self.written {
            let later = self.written.partition_point(|other| other.invoke_ns <= written.seen_ns);
            // A writer invoked after this time is already ordered through a value in between.
            let mut implied_ns = u64::MAX;
            for after in &self.written[later..] {
                if after.invoke_ns > implied_ns {
                    break;
                }
                if after.value != written.value {
                    implied_ns = implied_ns.min(after.seen_ns);
                    let (before, after) = (written.value, after.value);
                    order.push(OrderedPair { key, before, after, by_real_time: true });
                }
            }
        }
    }
}
