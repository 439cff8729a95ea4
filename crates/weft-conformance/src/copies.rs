//! A row that counts, another row that is a copy of it and lags behind, and snapshots of both.
//!
//! A single snapshot here proves nothing, because what it shows is always a possible state. But a copy that was
//! made after a snapshot was opened copies what the snapshot saw, or more. So two snapshots, one after the
//! other, can show that a copy which the first did not see was made of less than the first saw. Then the first
//! has seen a later transaction without an earlier one.
//!
//! The counting transaction writes what the copying one has read, and neither writes what the other writes. So
//! no lock orders the two. Only the numbers that they draw tell a snapshot which came first.

use fastrand::Rng;

use crate::contents::fill;
use crate::step::{HASHED, Step};
use crate::subject::{Moment, Steps, Stop, Store, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::Finding;

const CHECK: &str = "copies";

/// The row that counts.
const COUNTER: u64 = HASHED;
/// Its copy.
const COPY: u64 = 10;

fn value(steps: &dyn Steps, key: u64) -> Result<i64, Stop> {
    let rows = steps.take(Step::Read(key))?.rows();
    rows.first().map(|row| row.value).ok_or_else(|| Stop::Broken(format!("row {key} is gone")))
}

/// Increments the counter, or copies it.
fn write(store: &dyn Store, random: &mut Rng, counts: bool) -> Result<(), Finding> {
    let end = store.transact(&mut |tx| {
        let count = value(tx, COUNTER)?;
        chaos(random);
        tx.take(if counts { Step::Write(COUNTER, count + 1) } else { Step::Write(COPY, count) })?;
        Ok(())
    });
    expect_end(CHECK, end)
}

/// What one snapshot showed.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    count: i64,
    copy: i64,
}

fn look(store: &dyn Store, random: &mut Rng) -> Result<Look, Stop> {
    let snapshot = store.open_snapshot(Moment::Now);
    let count = value(&*snapshot, COUNTER)?;
    chaos(random);
    Ok(Look { count, copy: value(&*snapshot, COPY)? })
}

fn look_on(store: &dyn Store, random: &mut Rng, times: usize) -> Result<(), Stop> {
    let mut before = Look::default();
    for _ in 0..times {
        let now = look(store, random)?;
        let is_newer = now.count >= before.count && now.copy >= before.copy;
        let is_copy = now.copy <= now.count;
        // A copy that the first snapshot did not see must be of the count that it saw, or more.
        let was_seen = now.copy == before.copy || now.copy >= before.count;
        if !(is_newer && is_copy && was_seen) {
            return Err(Stop::Broken(format!("a snapshot shows {before:?}, the next {now:?}")));
        }
        before = now;
    }
    Ok(())
}

/// Counts and copies on `writers` threads, or as many as the protocol supports, and takes snapshots on
/// `readers` more.
///
/// # Errors
/// The finding, if there is one.
pub fn check(
    subject: &Subject,
    mode: Mode,
    writers: usize,
    readers: usize,
    transactions: usize,
) -> Result<(), Finding> {
    let store = subject.open(mode.seed());
    fill(&*store, &[(COUNTER, 0), (COPY, 0)]);
    let writers = subject.threads(writers);
    mode.on_threads(CHECK, writers + readers, transactions, |thread, random| {
        if thread >= writers {
            return expect_end(CHECK, look_on(&*store, random, transactions));
        }
        (0..transactions).try_for_each(|turn| {
            // A writer that is alone does both in turn.
            let counts = (if writers == 1 { turn } else { thread }).is_multiple_of(2);
            write(&*store, random, counts)
        })
    })
    .map(drop)
}
