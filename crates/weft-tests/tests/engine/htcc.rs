//! Tests of HTCC: which transactions are repaired and how, which are restarted, and which records become hot.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

use weft::{Database, Error, Metrics, Record, Table, Transaction, TransactionOptions};
use weft_protocols::{BuilderExt, HotRecords, Htcc, HtccOptions};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    number: u32,
    cents: i64,
    /// The account that receives a payment in some tests.
    heir: u32,
}

const ACCOUNTS: u32 = 10;

fn open(options: HtccOptions) -> (Database<Htcc>, Table<Account>) {
    let database =
        Database::builder().protocol::<Htcc>().table::<Account>().htcc(options).open().unwrap();
    let accounts = database.table::<Account>().unwrap();
    let inserted: Result<(), Error> = database.transact(|tx| {
        (0..ACCOUNTS)
            .try_for_each(|number| tx.insert(&accounts, Account { number, cents: 100, heir: 1 }))
    });
    inserted.unwrap();
    (database, accounts)
}

/// Returns options under which no record is hot before it has many conflicts.
fn cold() -> HtccOptions {
    HtccOptions::new().hot(HotRecords::None)
}

/// Changes an account in another thread, which makes the reads of every open transaction stale.
fn change_elsewhere(
    database: &Database<Htcc>,
    accounts: &Table<Account>,
    number: u32,
    change: impl Fn(&mut Account) + Send + Sync,
) {
    thread::scope(|scope| {
        let changing = scope
            .spawn(|| database.transact(|tx| tx.update(accounts, &number, &change).map(|_| ())));
        let changed: Result<(), Error> = changing.join().unwrap();
        changed.unwrap();
    });
}

fn get(tx: &Transaction<'_, Htcc>, accounts: &Table<Account>, number: u32) -> Account {
    *tx.get(accounts, &number).unwrap().unwrap()
}

/// Returns the repairs, the fast and slow operations, and the restarts since `before`.
fn since(database: &Database<Htcc>, before: &Metrics) -> (u64, u64, u64, u64) {
    let after = database.metrics();
    let (repairs, earlier) = (after.repairs, before.repairs);
    let aborted = after.aborted_total() - before.aborted_total();
    (
        repairs.repairs - earlier.repairs,
        repairs.fast - earlier.fast,
        repairs.slow - earlier.slow,
        aborted,
    )
}

#[test]
fn stale_reads_are_repaired_without_index_look_ups() {
    let (database, accounts) = open(cold());
    let before = database.metrics();
    let runs = Cell::new(0);
    let total: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let mut total = 0;
        for number in 0..5 {
            total += tx.get(&accounts, &number)?.unwrap().cents;
        }
        if runs.get() == 1 {
            change_elsewhere(&database, &accounts, 3, |account| account.cents = 7);
        }
        tx.update(&accounts, &9, |account| account.cents = total)?;
        Ok(total)
    });
    assert_eq!((total.unwrap(), runs.get()), (407, 2));
    assert_eq!(since(&database, &before), (1, 6, 0, 0), "repairs, fast, slow, restarts");
    let left: Result<i64, Error> = database.transact(|tx| Ok(get(tx, &accounts, 9).cents));
    assert_eq!(left.unwrap(), 407);
}

#[test]
fn changed_key_is_looked_up_again() {
    let (database, accounts) = open(cold());
    let before = database.metrics();
    let runs = Cell::new(0);
    let paid: Result<u32, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let heir = tx.get(&accounts, &0)?.unwrap().heir;
        tx.update(&accounts, &heir, |account| account.cents += 1)?;
        tx.update(&accounts, &5, |account| account.cents -= 1)?;
        if runs.get() == 1 {
            change_elsewhere(&database, &accounts, 0, |account| account.heir = 2);
        }
        Ok(heir)
    });
    assert_eq!((paid.unwrap(), runs.get()), (2, 2));
    assert_eq!(since(&database, &before), (1, 2, 1, 0), "repairs, fast, slow, restarts");
    let cents: Result<Vec<i64>, Error> =
        database.transact(|tx| Ok([1, 2, 5].map(|number| get(tx, &accounts, number).cents).into()));
    assert_eq!(cents.unwrap(), [100, 101, 99], "the update of the first heir is undone");
}

#[test]
fn operations_of_an_abandoned_branch_leave_no_trace() {
    for hot in [HotRecords::None, HotRecords::All] {
        let (database, accounts) = open(HtccOptions::new().hot(hot.clone()));
        let runs = Cell::new(0);
        let done: Result<(), Error> = database.transact(|tx| {
            runs.set(runs.get() + 1);
            if tx.get(&accounts, &0)?.unwrap().cents == 100 {
                tx.update(&accounts, &1, |account| account.cents = 0)?;
                tx.insert(&accounts, Account { number: 77, cents: 0, heir: 0 })?;
                tx.delete(&accounts, &2)?;
            }
            if runs.get() == 1 {
                change_elsewhere(&database, &accounts, 0, |account| account.cents = 50);
            }
            tx.update(&accounts, &3, |account| account.cents = 33).map(|_| ())
        });
        done.unwrap();
        assert_eq!(runs.get(), 2, "{hot:?}");
        let left: Result<_, Error> = database.transact(|tx| {
            let cents = [1, 2, 3].map(|number| get(tx, &accounts, number).cents);
            Ok((cents, tx.get(&accounts, &77)?.is_none()))
        });
        assert_eq!(left.unwrap(), ([100, 100, 33], true), "{hot:?}");
        // The dropped operations leave no locks: other threads can write 1 and 2 at once.
        for number in [1, 2] {
            change_elsewhere(&database, &accounts, number, |account| account.cents += 1);
        }
        assert_eq!(database.metrics().aborted_total(), 0, "{hot:?}");
    }
}

#[test]
fn panic_after_a_stale_read_is_repaired() {
    let (database, accounts) = open(cold());
    let runs = Cell::new(0);
    let cents: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &0)?.unwrap().cents;
        if runs.get() == 1 {
            change_elsewhere(&database, &accounts, 0, |account| account.cents = 1);
            panic!("a stale read showed {cents}");
        }
        Ok(cents)
    });
    assert_eq!((cents.unwrap(), runs.get()), (1, 2));
}

#[test]
fn repeatedly_stale_transaction_is_restarted() {
    let (database, accounts) = open(cold());
    let before = database.metrics();
    let runs = Cell::new(0);
    let options = TransactionOptions::new().retries_max(1);
    let ((change, changes), (changed, has_changed)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        // One thread makes all changes. A thread that ends would close its batch of garbage, as in the next test.
        let (database, accounts) = (&database, &accounts);
        scope.spawn(move || {
            for () in changes {
                let more = |account: &mut Account| account.cents += 1;
                let done: Result<(), Error> =
                    database.transact(|tx| tx.update(accounts, &0, more).map(|_| ()));
                changed.send(done).unwrap();
            }
        });
        let cents: Result<i64, Error> = database.transact_with(&options, |tx| {
            runs.set(runs.get() + 1);
            let cents = tx.get(accounts, &0)?.unwrap().cents;
            if runs.get() < 12 {
                change.send(()).unwrap();
                has_changed.recv().unwrap().unwrap();
            }
            tx.update(accounts, &1, |account| account.cents = cents)?;
            Ok(cents)
        });
        drop(change);
        assert_eq!((cents.unwrap(), runs.get()), (111, 12));
    });
    let (repairs, _, _, restarts) = since(&database, &before);
    assert_eq!((repairs, restarts), (10, 1), "eight repairs, a restart, two more repairs");
}

/// Each thread that ends closes a batch of garbage. This transaction keeps those batches from being freed, so this
/// transaction is restarted instead of repaired.
#[test]
fn transaction_that_delays_garbage_is_restarted() {
    let (database, accounts) = open(cold());
    let before = database.metrics();
    let runs = Cell::new(0);
    let cents: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &0)?.unwrap().cents;
        if runs.get() == 1 {
            for _ in 0..8 {
                change_elsewhere(&database, &accounts, 0, |account| account.cents += 1);
            }
        }
        tx.update(&accounts, &1, |account| account.cents = cents)?;
        Ok(cents)
    });
    assert_eq!((cents.unwrap(), runs.get()), (108, 2));
    let (repairs, _, _, restarts) = since(&database, &before);
    // In a build with hasty reclamation every few rows fill a batch, so full batches cause no restart there.
    let expected = if weft::store::RECLAIMS_EARLY { (1, 0) } else { (0, 1) };
    assert_eq!((repairs, restarts), expected);
}

#[test]
fn without_repair_a_stale_transaction_is_restarted() {
    let (database, accounts) = open(cold().repairs(false));
    let before = database.metrics();
    let runs = Cell::new(0);
    let done: Result<(), Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &0)?.unwrap().cents;
        if runs.get() == 1 {
            change_elsewhere(&database, &accounts, 0, |account| account.cents += 1);
        }
        tx.update(&accounts, &1, |account| account.cents = cents).map(|_| ())
    });
    done.unwrap();
    assert_eq!(since(&database, &before), (0, 0, 0, 1));
}

#[test]
fn contended_records_become_hot_and_lose_no_update() {
    const THREADS: i64 = 4;
    const TURNS: i64 = 500;
    let all = [HotRecords::None, HotRecords::Automatic, HotRecords::All];
    for (hot, repairs) in all.into_iter().flat_map(|hot| [(hot.clone(), true), (hot, false)]) {
        let (database, accounts) =
            open(HtccOptions::new().hot(hot.clone()).hot_at(4).repairs(repairs));
        let work = |thread: i64| {
            for turn in 0..TURNS {
                // The accounts are locked in opposite orders, so without care the threads would deadlock.
                let (from, to) = if (thread + turn) % 2 == 0 { (0, 1) } else { (1, 0) };
                let moved: Result<(), Error> = database.transact(|tx| {
                    tx.update(&accounts, &from, |account| account.cents -= 1)?;
                    tx.get(&accounts, &(2 + turn as u32 % 5))?;
                    thread::yield_now();
                    tx.update(&accounts, &to, |account| account.cents += 1)?;
                    tx.update(&accounts, &8, |account| account.cents += 1).map(|_| ())
                });
                moved.unwrap();
            }
        };
        thread::scope(|scope| {
            let work = &work;
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let cents: Result<_, Error> =
            database.transact(|tx| Ok([0, 1, 8].map(|number| get(tx, &accounts, number).cents)));
        let [from, to, both] = cents.unwrap();
        assert_eq!((from + to, both), (200, 100 + THREADS * TURNS), "{hot:?}, {repairs}");
        assert_eq!(database.metrics().repairs.repairs > 0, repairs, "{hot:?}, {repairs}");
    }
}

/// Other transactions find records before these leave their index, and must look the keys up again.
#[test]
fn keys_that_come_and_go_are_looked_up_again() {
    const TURNS: u32 = 3000;
    for repairs in [true, false] {
        let (database, accounts) = open(HtccOptions::new().hot_at(4).repairs(repairs));
        let work = |thread: u32| {
            let mut random = fastrand::Rng::with_seed(u64::from(thread));
            for turn in 0..TURNS {
                let number = ACCOUNTS + random.u32(..3);
                let done: Result<(), Error> = database.transact(|tx| {
                    tx.get(&accounts, &(turn % ACCOUNTS))?;
                    if tx.get(&accounts, &number)?.is_some() {
                        tx.delete(&accounts, &number)?;
                    } else {
                        tx.insert(&accounts, Account { number, cents: 1, heir: 0 })?;
                    }
                    let next = ACCOUNTS + (number + 1) % 3;
                    tx.update(&accounts, &next, |account| account.cents += 1).map(|_| ())
                });
                done.unwrap();
            }
        };
        thread::scope(|scope| {
            let work = &work;
            (0..4).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let left: Result<u32, Error> = database.transact(|tx| {
            let rows = tx.range(&accounts, ..ACCOUNTS).map(|row| row.map(|_| 1));
            rows.sum::<Result<u32, Error>>()
        });
        assert_eq!(left.unwrap(), ACCOUNTS, "{repairs}");
    }
}

#[test]
fn without_validation_stale_reads_commit() {
    let (database, accounts) = open(cold().validates(false));
    let runs = Cell::new(0);
    let total: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &3)?.unwrap().cents;
        change_elsewhere(&database, &accounts, 3, |account| account.cents = 7);
        tx.update(&accounts, &9, |account| account.cents = cents)?;
        Ok(cents)
    });
    assert_eq!((total.unwrap(), runs.get()), (100, 1), "it committed a stale read");
    // Even without validation no update is lost.
    let raised: Result<(), Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        tx.update(&accounts, &3, |account| account.cents += 1)?;
        if runs.get() == 2 {
            change_elsewhere(&database, &accounts, 3, |account| account.cents += 10);
        }
        Ok(())
    });
    raised.unwrap();
    let left: Result<i64, Error> = database.transact(|tx| Ok(get(tx, &accounts, 3).cents));
    assert_eq!((left.unwrap(), runs.get()), (18, 3));
}
