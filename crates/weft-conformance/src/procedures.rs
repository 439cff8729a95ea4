//! Procedures beside each other, beside other transactions, and beside snapshots.
//!
//! Some protocols commit procedures in pieces, or repair them operation by operation. To the judges, a
//! procedure is a transaction with the steps that it [reports](Call).
//!
//! If only inserts commute, the checker judges by what was recorded, and small runs are also tried in every
//! serial order. If procedures [add](OperationSet::Sums) to totals, a protocol may order the additions of two
//! procedures differently from the rest of what they do. That is correct, but the checker does not know that
//! sums commute, and reports a cycle. Then all serial orders judge alone.

use fastrand::Rng;
use weft::htm::word::{Ordering, Word};

use crate::contents::fill;
use crate::oracle::{Log, is_serializable};
use crate::step::{HASHED, State, Step, StepResult, state_of};
use crate::subject::{Call, Cut, JOURNAL, Moment, ProcedureStore, SHARED_ENTRIES, Stop, Subject};
use crate::threads::{Mode, chaos, expect_end};
use crate::verdict::{Finding, judge};

const ACCOUNTS: u64 = 3;
const TOTALS: u64 = 2;

/// The keys of the journal that all threads share.
const SHARED: std::ops::Range<u64> = SHARED_ENTRIES..SHARED_ENTRIES + 4;

/// How many keys of the journal each thread has.
const ENTRIES: u64 = 1 << 20;

/// Which operations the procedures make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSet {
    /// Reads, writes and inserts.
    Rows,
    /// Also procedures that read, scan and delete what others insert.
    Entries,
    /// Reads, writes, inserts, and commutative operations. At most nine transactions.
    Sums,
    /// The same, and procedures that read the sums, so that additions to them are deferred. Then a procedure may come
    /// before another one that had ended when it began. But any other transaction comes after all that had
    /// ended. At most nine transactions.
    Deferral,
}

/// A thread's next transaction.
enum Program {
    Call(Call),
    /// A transaction of these steps, which the chopping analysis does not know.
    Steps(Vec<Step>),
    /// A snapshot that reads these.
    Looks(Vec<Step>),
}

/// Draws the transactions of the threads.
struct ProgramSource {
    with: OperationSet,
    threads: u64,
    transactions: u64,
}

impl ProgramSource {
    fn account(random: &mut Rng) -> u64 {
        random.u64(..ACCOUNTS)
    }

    fn total(random: &mut Rng) -> u64 {
        HASHED + random.u64(..TOTALS)
    }

    /// Returns the first of the two keys that a thread has for its `number`-th transaction.
    fn entry_of(thread: u64, number: u64) -> u64 {
        JOURNAL + thread * ENTRIES + 2 * number
    }

    /// Returns a key that some thread uses at some time, perhaps just now.
    fn any_entry(&self, random: &mut Rng, number: u64) -> u64 {
        let last = self.transactions.min(number + 2);
        let number = random.u64(last.saturating_sub(4)..last);
        Self::entry_of(random.u64(..self.threads), number) + random.u64(..2)
    }

    fn look(&self, random: &mut Rng, number: u64) -> Step {
        if self.with == OperationSet::Entries && random.bool() {
            return match random.bool() {
                true => Step::Read(random.u64(SHARED)),
                false => Step::Scan(SHARED.start, SHARED.end),
            };
        }
        match random.u8(..6) {
            0..=1 => Step::Read(Self::account(random)),
            2..=3 => Step::Read(self.any_entry(random, number)),
            4 => Step::Read(Self::total(random)),
            _ => Step::Scan(0, ACCOUNTS),
        }
    }

    fn call(&self, random: &mut Rng, thread: u64, number: u64) -> Call {
        let (account, entry) = (Self::account(random), Self::entry_of(thread, number));
        let amount = random.i64(1..1000);
        if self.with == OperationSet::Entries && random.u8(..4) > 0 {
            let entry = random.u64(SHARED);
            return match random.u8(..6) {
                0..=2 => Call::Enter { account, entry },
                3 => Call::Strike { account, amount, entry },
                4 => Call::Tally { account, begin: SHARED.start, end: SHARED.end },
                _ => Call::Tally { account, begin: entry, end: SHARED.end },
            };
        }
        let kinds = match self.with {
            OperationSet::Rows | OperationSet::Entries => 4,
            OperationSet::Sums => 8,
            OperationSet::Deferral => 10,
        };
        match random.u8(..kinds) {
            0..=1 => {
                let to = (account + random.u64(1..ACCOUNTS)) % ACCOUNTS;
                Call::Transfer { from: account, to, amount, entry }
            }
            2 => Call::Mark { account, entry },
            3 => {
                let entry = self.any_entry(random, number);
                Call::Compare { account, entry, total: Self::total(random) }
            }
            4..=5 => Call::Pay { account, amount, total: Self::total(random), entry },
            6 => Call::Earn { account, amount, total: Self::total(random), entry },
            7 => Call::Collect { totals: [HASHED, HASHED + 1], amount },
            _ => Call::Settle { totals: [HASHED, HASHED + 1], entry },
        }
    }

    fn program(&self, random: &mut Rng, thread: u64, number: u64) -> Program {
        match random.u8(..8) {
            0 => Program::Looks((0..3).map(|_| self.look(random, number)).collect()),
            1..=2 => {
                let steps = (0..random.usize(2..4)).map(|_| match random.u8(..8) {
                    0 => Step::Write(Self::account(random), random.i64(..1 << 40)),
                    1 => Step::Add(Self::total(random), random.i64(1..1000)),
                    _ => self.look(random, number),
                });
                Program::Steps(steps.collect())
            }
            _ => Program::Call(self.call(random, thread, number)),
        }
    }
}

/// Runs one program to its end.
fn run(
    store: &dyn ProcedureStore,
    with: OperationSet,
    program: &Program,
    clock: &Word,
    random: &mut Rng,
) -> Result<Log, Finding> {
    let tick = || clock.fetch_add(1, Ordering::SeqCst) as usize;
    let mut log = Log { began: tick(), ..Log::default() };
    let end = match program {
        Program::Call(call) => {
            if with == OperationSet::Deferral {
                log.began = 0;
            }
            store.execute(*call).map(|told| log.steps = told)
        }
        Program::Steps(steps) => store.transact(&mut |tx| {
            log.steps.clear();
            for &step in steps {
                log.steps.push((step, tx.take(step)?));
                chaos(random);
            }
            Ok(())
        }),
        Program::Looks(looks) => {
            let of = Moment::any(random);
            let snapshot = store.open_snapshot(of);
            log.began = of.began(log.began);
            log.ended = tick();
            log.steps.push((Step::Snapshot, StepResult::Happened(true)));
            let looked = looks.iter().try_for_each(|&step| {
                log.steps.push((step, snapshot.take(step)?));
                chaos(random);
                Ok::<(), Stop>(())
            });
            snapshot.commit().expect("a snapshot never conflicts");
            looked
        }
    };
    log.committed = end.is_ok();
    expect_end(CHECK, end)?;
    if !log.is_snapshot() {
        log.ended = tick();
    }
    Ok(log)
}

fn initial() -> Vec<(u64, i64)> {
    (0..ACCOUNTS).chain(HASHED..HASHED + TOTALS).map(|key| (key, 1000 + key as i64)).collect()
}

const CHECK: &str = "procedures";

/// Runs random procedures, transactions and snapshots, and judges the results.
///
/// # Errors
/// The finding, if there is one.
///
/// # Panics
/// With [sums](OperationSet::Sums), deferred or not, if there are too many transactions.
pub fn check(
    subject: &Subject,
    mode: Mode,
    threads: usize,
    transactions: usize,
    with: OperationSet,
) -> Result<(), Finding> {
    check_cut(subject, mode, threads, transactions, with, Cut::of_seed(mode.seed()))
}

/// Like [`check`], with procedures cut in one way.
///
/// # Errors
/// As for [`check`].
///
/// # Panics
/// As for [`check`].
pub fn check_cut(
    subject: &Subject,
    mode: Mode,
    threads: usize,
    transactions: usize,
    with: OperationSet,
    cut: Cut,
) -> Result<(), Finding> {
    let threads = subject.threads(threads);
    let is_small = threads * transactions <= SMALL;
    assert!(
        is_small || matches!(with, OperationSet::Rows | OperationSet::Entries),
        "too many transactions to try all serial orders"
    );
    let records = matches!(with, OperationSet::Rows | OperationSet::Entries);
    let store = subject.open_procedures(mode.seed(), with, records, cut);
    fill(&*store, &initial());
    // The initial rows have version 0, so their insertion is not recorded.
    if records {
        drop(store.take_history());
    }
    let clock = Word::new(1);
    let drawing =
        ProgramSource { with, threads: threads as u64, transactions: transactions as u64 };
    let mut ran = mode.on_threads(CHECK, threads, transactions, |thread, random| {
        let numbers = 0..transactions as u64;
        numbers
            .map(|number| {
                let program = drawing.program(random, thread as u64, number);
                run(&*store, with, &program, &clock, random)
            })
            .collect::<Result<Vec<_>, _>>()
    })?;
    let left = is_small.then(|| rows(&*store, threads as u64, transactions as u64));
    let verdict = match with {
        OperationSet::Rows | OperationSet::Entries => judge(CHECK, &store.take_history()),
        OperationSet::Sums | OperationSet::Deferral => Ok(()),
    };
    let logs: Vec<Log> = std::mem::take(&mut ran.results).into_iter().flatten().collect();
    if let Some(left) = left
        && verdict.is_ok()
        && !is_serializable(&state_of(&initial()), &logs, &left)
    {
        let what = "no serial order explains it";
        return Err(ran.found(Finding::new(CHECK, what, format!("{logs:#?}, left {left:#?}"))));
    }
    verdict.map_err(|finding| ran.found(finding))
}

/// Runs with at most this many transactions are tried in every serial order.
const SMALL: usize = 9;

/// Returns all rows of accounts and totals, and those that the threads have put into the journal.
fn rows(store: &dyn ProcedureStore, threads: u64, transactions: u64) -> State {
    let mut found = State::new();
    let read = store.transact(&mut |tx| {
        let totals = HASHED..HASHED + TOTALS;
        let numbers = (0..threads).flat_map(|thread| (0..transactions).map(move |n| (thread, n)));
        let entries = numbers.map(|(thread, number)| ProgramSource::entry_of(thread, number));
        let keys = totals.chain(entries.flat_map(|entry| [entry, entry + 1]));
        let mut rows = tx.take(Step::Scan(0, ACCOUNTS))?.rows();
        rows.extend(tx.take(Step::Scan(SHARED.start, SHARED.end))?.rows());
        for key in keys {
            rows.extend(tx.take(Step::Read(key))?.rows());
        }
        found = rows.into_iter().map(|row| (row.key, row)).collect();
        Ok(())
    });
    read.expect("no other transaction is running");
    found
}
