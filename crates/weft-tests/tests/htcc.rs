//! HTCC: what is repaired and how, when it is restarted after all, and what becomes hot.

use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

use weft::{Database, Error, Metrics, Record, Table, Transaction, TransactionOptions};
use weft_protocols::{BuilderExt, HotRecords, Htcc, HtccOptions};

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    number: u32,
    cents: i64,
    /// The account where it all goes.
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

/// Nothing is hot before there are many conflicts.
fn cold() -> HtccOptions {
    HtccOptions::new().hot(HotRecords::None)
}

/// Changes an account in another thread, so that whoever has read it must do so again.
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
    tx.get(accounts, &number).unwrap().unwrap().clone()
}

/// What has been counted since `before`.
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
fn what_is_stale_is_repaired_without_asking_the_index() {
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
fn a_key_that_has_changed_is_looked_up_again() {
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
    assert_eq!(cents.unwrap(), [100, 101, 99], "what it first did to the other is gone");
}

#[test]
fn operations_that_a_branch_drops_leave_nothing() {
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
        // Nobody is locked out: 1 and 2 are written by others at once.
        for number in [1, 2] {
            change_elsewhere(&database, &accounts, number, |account| account.cents += 1);
        }
        assert_eq!(database.metrics().aborted_total(), 0, "{hot:?}");
    }
}

#[test]
fn errors_that_follow_from_stale_reads_are_repaired_too() {
    let (database, accounts) = open(cold());
    let runs = Cell::new(0);
    let cents: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &0)?.unwrap().cents;
        if runs.get() == 1 {
            change_elsewhere(&database, &accounts, 0, |account| account.cents = 1);
            panic!("there should not be {cents}");
        }
        Ok(cents)
    });
    assert_eq!((cents.unwrap(), runs.get()), (1, 2));
}

#[test]
fn a_transaction_that_is_stale_again_and_again_is_restarted() {
    let (database, accounts) = open(cold());
    let before = database.metrics();
    let runs = Cell::new(0);
    let options = TransactionOptions::new().retries_max(1);
    let ((change, changes), (changed, has_changed)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        // One thread for all changes: one that leaves closes its batch of garbage.
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
    assert_eq!((repairs, restarts), (10, 1), "eight, one restart, two");
}

/// Whoever leaves closes a batch of garbage, which is freed when this transaction lets go of what it may find.
#[test]
fn a_transaction_that_others_wait_for_is_restarted() {
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
    // With early reclamation a few rows are a batch of garbage, so that a row that changes often is not recognised by it.
    assert_eq!((repairs, restarts), (1, 0));
}

#[test]
fn without_repair_it_is_restarted_at_once() {
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
fn records_that_are_contended_become_hot_and_nothing_is_lost() {
    const THREADS: i64 = 4;
    const TURNS: i64 = 500;
    let all = [HotRecords::None, HotRecords::Automatic, HotRecords::All];
    for (hot, repairs) in all.into_iter().flat_map(|hot| [(hot.clone(), true), (hot, false)]) {
        let (database, accounts) =
            open(HtccOptions::new().hot(hot.clone()).hot_at(4).repairs(repairs));
        let work = |thread: i64| {
            for turn in 0..TURNS {
                // In opposite orders: those who lock could wait for each other for ever.
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

/// Records leave their index while others have found them: those look the key up again.
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
fn what_is_not_validated_is_not_serializable() {
    let (database, accounts) = open(cold().validates(false));
    let runs = Cell::new(0);
    let total: Result<i64, Error> = database.transact(|tx| {
        runs.set(runs.get() + 1);
        let cents = tx.get(&accounts, &3)?.unwrap().cents;
        change_elsewhere(&database, &accounts, 3, |account| account.cents = 7);
        tx.update(&accounts, &9, |account| account.cents = cents)?;
        Ok(cents)
    });
    assert_eq!((total.unwrap(), runs.get()), (100, 1), "it has written what is not so any more");
    // But no write is lost.
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
