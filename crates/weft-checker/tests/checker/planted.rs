//! Anomalies planted into histories of a serial simulator.
//!
//! Transactions run one after the other, so that the history is strictly serializable. Then one thing is
//! changed that no serial order explains. The checker must find no anomaly before the change, and one after it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weft_checker::{
    AnomalyKind, History, HistoryBuilder, Key, Level, Observed, Options, Status, check,
};

const KEYS: u64 = 8;

#[derive(Clone, Debug)]
enum Operation {
    Read(u64, Option<u64>),
    Write(u64, u64),
    Delete(u64, u64),
    Scan(u64, u64, Vec<(u64, u64)>),
}

#[derive(Clone, Debug)]
struct Transaction {
    operations: Vec<Operation>,
    status: Status,
}

/// Runs a plan serially. It has the kind and the key of each operation, and whether the transaction aborts.
fn simulate(plan: &[(Vec<(u8, u64)>, bool)]) -> Vec<Transaction> {
    let mut state: BTreeMap<u64, u64> = (0..KEYS).step_by(2).map(|key| (key, 0)).collect();
    // A scan of all rows comes first, so that the initial rows are known. Another comes last, so that every
    // last version has a reader.
    let all = |state: &BTreeMap<u64, u64>| {
        let rows = state.iter().map(|(&key, &version)| (key, version)).collect();
        let operations = vec![Operation::Scan(0, KEYS, rows)];
        Transaction { operations, status: Status::Committed }
    };
    let mut transactions = vec![all(&state)];
    for (number, (steps, aborts)) in (2..).zip(plan) {
        let mut own = state.clone();
        let mut operations = Vec::new();
        for (position, &(kind, key)) in (0..).zip(steps) {
            let version = (number << 16) | position;
            operations.push(match kind {
                0..4 => Operation::Read(key, own.get(&key).copied()),
                4..7 => {
                    own.insert(key, version);
                    Operation::Write(key, version)
                }
                7 => {
                    own.remove(&key);
                    Operation::Delete(key, version)
                }
                _ => {
                    let rows = own.range(key..key + 3).map(|(&key, &version)| (key, version));
                    Operation::Scan(key, key + 3, rows.collect())
                }
            });
        }
        if !aborts {
            state = own;
        }
        let status = if *aborts { Status::Aborted } else { Status::Committed };
        transactions.push(Transaction { operations, status });
    }
    transactions.push(all(&state));
    transactions
}

fn history(transactions: &[Transaction]) -> History {
    let mut builder = HistoryBuilder::new();
    let table = builder.table("t");
    for (number, transaction) in (1..).zip(transactions) {
        let mut one = builder.transaction(number, 0, number * 10);
        for operation in &transaction.operations {
            match operation {
                Operation::Read(key, Some(version)) => {
                    one.read(table, *key, Observed::Version(*version));
                }
                Operation::Read(key, None) => {
                    one.read(table, *key, Observed::Absent);
                }
                Operation::Write(key, version) => {
                    one.write(table, *key, *version);
                }
                Operation::Delete(key, version) => {
                    one.delete(table, *key, *version);
                }
                Operation::Scan(from, to, rows) => {
                    let range = Key::from(*from)..Key::from(*to);
                    one.scan(table, range, rows.iter().copied());
                }
            }
        }
        one.end(transaction.status, Some(number * 10 + 5));
    }
    builder.build()
}

fn plans() -> impl Strategy<Value = Vec<(Vec<(u8, u64)>, bool)>> {
    let steps = prop::collection::vec((0..10_u8, 0..KEYS), 1..8);
    prop::collection::vec((steps, prop::bool::weighted(0.1)), 5..40)
}

/// Returns the committed reads of a row: transaction, position, key, and the version that was read.
fn reads(transactions: &[Transaction]) -> Vec<(usize, usize, u64, u64)> {
    let mut found = Vec::new();
    for (index, transaction) in transactions.iter().enumerate() {
        if transaction.status == Status::Committed {
            for (position, operation) in transaction.operations.iter().enumerate() {
                if let Operation::Read(key, Some(version)) = operation {
                    found.push((index, position, *key, *version));
                }
            }
        }
    }
    found
}

fn is_found(transactions: &[Transaction]) -> bool {
    !check(&history(transactions), &Options::default()).is_ok()
}

proptest! {
    #[test]
    fn a_serial_history_is_strictly_serializable(plan in plans()) {
        let report = check(&history(&simulate(&plan)), &Options::default());
        prop_assert!(report.is_ok(), "{report}");
    }

    #[test]
    fn a_read_of_any_other_version_is_found(plan in plans(), pick: prop::sample::Index,
                                            other: prop::sample::Index) {
        let mut transactions = simulate(&plan);
        let reads = reads(&transactions);
        prop_assume!(!reads.is_empty());
        let (index, position, key, version) = reads[pick.index(reads.len())];
        let mut versions: Vec<u64> = vec![(1 << 40) + 1];
        for transaction in &transactions {
            versions.extend(transaction.operations.iter().filter_map(|operation| match operation {
                Operation::Write(at, version) | Operation::Delete(at, version) if *at == key => {
                    Some(*version)
                }
                _ => None,
            }));
        }
        versions.retain(|&one| one != version);
        let wrong = versions[other.index(versions.len())];
        transactions[index].operations[position] = Operation::Read(key, Some(wrong));
        prop_assert!(is_found(&transactions), "T{} read {wrong} for {version}", index + 1);
    }

    #[test]
    fn a_row_that_a_scan_leaves_out_is_found(plan in plans(), pick: prop::sample::Index) {
        let mut transactions = simulate(&plan);
        // Use the scan of the last transaction: nothing is deleted or inserted after it.
        let Some(Operation::Scan(_, _, rows)) =
            transactions.last_mut().and_then(|last| last.operations.last_mut())
        else {
            unreachable!("the simulator ends with a scan");
        };
        prop_assume!(!rows.is_empty());
        let left_out = rows.remove(pick.index(rows.len()));
        prop_assert!(is_found(&transactions), "{left_out:?} was left out");
    }

    #[test]
    fn a_commit_that_turns_into_an_abort_is_found(plan in plans(), pick: prop::sample::Index) {
        let mut transactions = simulate(&plan);
        let seen: Vec<u64> = match transactions.last().and_then(|last| last.operations.last()) {
            Some(Operation::Scan(_, _, rows)) => rows.iter().map(|&(_, version)| version).collect(),
            _ => unreachable!("the simulator ends with a scan"),
        };
        let seen: Vec<u64> = seen.into_iter().filter(|&version| version != 0).collect();
        prop_assume!(!seen.is_empty());
        let writer = (seen[pick.index(seen.len())] >> 16) as usize - 1;
        transactions[writer].status = Status::Aborted;
        let report = check(&history(&transactions), &Options::default());
        prop_assert!(report.has(AnomalyKind::AbortedRead), "T{} aborted:\n{report}", writer + 1);
    }

    #[test]
    fn write_skew_beside_a_serial_history_is_found(plan in plans()) {
        let mut transactions = simulate(&plan);
        let Some(Operation::Scan(_, _, rows)) =
            transactions.last().and_then(|last| last.operations.last()).cloned()
        else {
            unreachable!("the simulator ends with a scan");
        };
        prop_assume!(rows.len() >= 2);
        let ((one, one_version), (other, other_version)) = (rows[0], rows[1]);
        for (key, version) in [(one, 1 << 50), (other, (1 << 50) + 1)] {
            let operations = vec![
                Operation::Read(one, Some(one_version)),
                Operation::Read(other, Some(other_version)),
                Operation::Write(key, version),
            ];
            transactions.push(Transaction { operations, status: Status::Committed });
        }
        let options = Options { level: Level::Serializable, ..Options::default() };
        let report = check(&history(&transactions), &options);
        prop_assert!(report.has(AnomalyKind::WriteSkew), "{report}");
    }

    #[test]
    fn a_late_stale_reader_is_found_only_by_the_strict_level(plan in plans()) {
        let mut transactions = simulate(&plan);
        // The two transactions write nothing else, so that only the times order them.
        let write = vec![Operation::Write(KEYS + 1, 1 << 50)];
        let read = vec![Operation::Read(KEYS + 1, None)];
        for operations in [write, read] {
            transactions.push(Transaction { operations, status: Status::Committed });
        }
        let history = history(&transactions);
        let strict = check(&history, &Options::default());
        prop_assert!(strict.has(AnomalyKind::StaleRead), "{strict}");
        let options = Options { level: Level::Serializable, ..Options::default() };
        prop_assert!(check(&history, &options).is_ok());
    }
}
