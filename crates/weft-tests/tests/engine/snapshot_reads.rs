//! Tests of transactions that only read, have lost, and are run again in a snapshot. In the middle of each attempt another
//! transaction commits.

use std::cell::Cell;
use std::thread::scope;

use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, Record, Table, Timestamp, Transaction};
use weft_protocols::{Adaptive, Silo};

/// So many accounts are read that a snapshot pays.
const ACCOUNTS: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(expires = until)]
struct Account {
    #[record(key)]
    id: u32,
    balance: i64,
    #[record(index)]
    branch: u32,
    until: Timestamp,
}

impl Account {
    fn new(id: u32) -> Self {
        Account { id, balance: 100, branch: id % 3, until: Timestamp::MAX }
    }
}

struct Bank<P: Protocol> {
    database: Database<P>,
    accounts: Table<Account>,
}

impl<P: Protocol> Bank<P> {
    fn open() -> Self {
        let builder = Database::builder().protocol::<P>().table::<Account>();
        let database = builder.open().expect("the database opens");
        let accounts = database.table::<Account>().expect("the table is registered");
        let bank = Bank { database, accounts };
        bank.commit(|tx, accounts| {
            (0..ACCOUNTS).try_for_each(|id| tx.insert(accounts, Account::new(id)))
        });
        bank
    }

    fn commit(&self, body: impl Fn(&Transaction<'_, P>, &Table<Account>) -> Result<(), Error>) {
        self.database.transact(|tx| body(tx, &self.accounts)).expect("the transaction commits");
    }

    /// Runs `own`. In the middle of each attempt, which it says by its last argument, the last account moves a unit to the first one,
    /// one account closes, and another one opens. Returns what `own` has returned, and how often it was run.
    fn run<R>(
        &self,
        own: impl Fn(&Transaction<'_, P>, &Table<Account>, &dyn Fn()) -> Result<R, Error>,
    ) -> (R, u32) {
        let runs = Cell::new(0);
        let result = self.database.transact(|tx| {
            runs.set(runs.get() + 1);
            own(tx, &self.accounts, &|| {
                // An ordinary attempt would lose each time. The third one is let through.
                let run = runs.get();
                if run > 2 {
                    return;
                }
                scope(|scope| {
                    scope.spawn(move || {
                        self.commit(|tx, accounts| {
                            tx.update(accounts, &(ACCOUNTS - 1), |last| last.balance -= 1)?;
                            tx.update(accounts, &0, |first| first.balance += 1)?;
                            tx.delete(accounts, &(run * 2))?;
                            tx.insert(accounts, Account::new(ACCOUNTS + run))
                        });
                    });
                });
            })
        });
        (result.expect("the transaction commits"), runs.get())
    }
}

/// What a reader sees: the first and the last account's balances, and sums and keys by three ways.
type Seen = (i64, i64, [Vec<u32>; 3], usize);

/// Reads one half of the accounts before others commit, and the other half after that.
fn read<P: Protocol>(
    tx: &Transaction<'_, P>,
    accounts: &Table<Account>,
    others_commit: &dyn Fn(),
) -> Result<Seen, Error> {
    let mut by_range = Vec::new();
    for row in tx.range(accounts, ..ACCOUNTS / 2) {
        by_range.push(row?.id);
    }
    let first = tx.get(accounts, &0)?.expect("it is there").balance;
    others_commit();
    for row in tx.range(accounts, ACCOUNTS / 2..) {
        by_range.push(row?.id);
    }
    let mut by_key = Vec::new();
    for id in (0..ACCOUNTS + 10).chain([1000]) {
        by_key.extend(tx.get(accounts, &id)?.map(|row| row.id));
    }
    let mut by_branch = Vec::new();
    for branch in 0..3 {
        for row in tx.prefix_by(accounts, Account::BRANCH, &branch) {
            by_branch.push(row?.id);
        }
    }
    by_branch.sort_unstable();
    let last = tx.get(accounts, &(ACCOUNTS - 1))?.expect("it is there").balance;
    Ok((first, last, [by_range, by_key, by_branch], tx.len(accounts)?))
}

fn reader_wins_at_the_second_attempt<P: Protocol>() {
    let bank = Bank::<P>::open();
    let ((first, last, keys, length), runs) = bank.run(read);
    assert_eq!(runs, 2);
    // It sees what was committed in its first attempt, and nothing of what was in the second.
    assert_eq!((first, last), (101, 99));
    let expected: Vec<u32> = (0..ACCOUNTS).filter(|id| *id != 2).chain([ACCOUNTS + 1]).collect();
    for seen in keys {
        assert_eq!(seen, expected);
    }
    assert_eq!(length, expected.len());
    // Nothing is kept for it.
    assert_eq!(bank.database.metrics().snapshots.open, 0);
}

#[test]
fn reader_that_has_lost_wins_in_a_snapshot_under_dbx() {
    reader_wins_at_the_second_attempt::<Dbx>();
}

#[test]
fn reader_that_has_lost_wins_in_a_snapshot_under_adaptive() {
    reader_wins_at_the_second_attempt::<Adaptive>();
}

/// What has committed before the attempt's first operation is seen: another thread may have told the closure of it.
#[test]
fn closure_that_looks_outside_of_the_database_first_misses_nothing() {
    let bank = Bank::<Dbx>::open();
    let told = Word::new(0);
    let ((), runs) = bank.run(|tx, accounts, others_commit| {
        if told.load(Ordering::SeqCst) == 0 {
            let first = read(tx, accounts, others_commit)?.0;
            told.store(first as u64 + 1, Ordering::SeqCst);
            return Ok(());
        }
        others_commit();
        let seen = tx.get(accounts, &0)?.expect("it is there").balance;
        assert_eq!(seen, told.load(Ordering::SeqCst) as i64 + 1);
        Ok(())
    });
    assert_eq!(runs, 2);
}

/// Protocols from papers do as the papers say.
#[test]
fn reader_loses_again_under_silo() {
    let (_, runs) = Bank::<Silo>::open().run(read);
    assert_eq!(runs, 3);
}

#[test]
fn reader_that_writes_in_a_snapshot_is_run_again() {
    let bank = Bank::<Dbx>::open();
    let ((), runs) = bank.run(|tx, accounts, others_commit| {
        let (first, ..) = read(tx, accounts, others_commit)?;
        // It writes only when it has seen what another transaction has committed.
        if first > 100 {
            let written = tx.update(accounts, &0, |account| account.balance += 1000);
            written.map(drop)?;
        }
        Ok(())
    });
    assert_eq!(runs, 3);
    let balance = bank
        .database
        .transact(|tx| Ok::<_, Error>(tx.get(&bank.accounts, &0)?.map(|row| row.balance)));
    assert_eq!(balance.unwrap(), Some(1102));
}

/// The second attempt begins with an insertion, which looks at no row, and relies on what it reads after that.
#[test]
fn attempt_that_begins_with_a_write_reads_no_snapshot() {
    let bank = Bank::<Dbx>::open();
    let attempts = Cell::new(0);
    let (seen, runs) = bank.run(|tx, accounts, others_commit| {
        attempts.set(attempts.get() + 1);
        if attempts.get() > 1 {
            tx.insert(accounts, Account::new(1000))?;
        }
        read(tx, accounts, others_commit)
    });
    // What the last attempt has read is what it has committed with.
    let now = bank.database.transact(|tx| read(tx, &bank.accounts, &|| ())).unwrap();
    assert_eq!((seen, runs), (now, 3));
}

/// A write that changes nothing in the end is one, too: the transaction may have written to a slice.
#[test]
fn transactions_that_write_or_ask_for_the_time_read_no_snapshot() {
    for case in 0..3 {
        let bank = Bank::<Dbx>::open();
        let (_, runs) = bank.run(|tx, accounts, others_commit| {
            match case {
                0 => drop(tx.update(accounts, &50, |account| account.balance += 1)?),
                1 => drop(tx.delete(accounts, &9999)?),
                _ => drop(tx.now()),
            }
            read(tx, accounts, others_commit)
        });
        assert_eq!(runs, 3, "case {case}");
    }
}

#[test]
fn rows_that_expire_are_read_without_a_snapshot() {
    let bank = Bank::<Dbx>::open();
    bank.commit(|tx, accounts| {
        let later = Timestamp::from_millis(tx.now().as_millis() + 1_000_000);
        tx.update(accounts, &10, |account| account.until = later).map(drop)
    });
    let (_, runs) = bank.run(read);
    assert_eq!(runs, 3);
}

#[test]
fn panic_in_a_snapshot_attempt_closes_the_snapshot() {
    let bank = Bank::<Dbx>::open();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        bank.run(|tx, accounts, others_commit| {
            let (first, ..) = read(tx, accounts, others_commit)?;
            assert_eq!(first, 100, "planned");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(bank.database.metrics().snapshots.open, 0);
    bank.commit(|tx, accounts| read(tx, accounts, &|| ()).map(drop));
}
