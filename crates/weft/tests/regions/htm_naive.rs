//! Tests of `htm-naive` with regions in hardware, or under the emulator where the machine has no RTM. Whole
//! transactions run between XBEGIN and XEND as real machine code, with their index operations, allocations, and
//! the closures' own code. Transactions that cannot commit as a region run under the lock.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use weft::htm::{Htm, Statistics};
use weft::{Database, Error, Failure, Record, Table};
use weft_protocols::HtmNaive;
use weft_rtm_emulator::Processor;

use weft_tests::hardware::{hardware, on_processor, on_thread};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "accounts", storage = "hash")]
struct Account {
    #[record(key)]
    number: u32,
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "postings", key(account, sequence))]
#[record(index(name = by_amount, columns(cents)))]
struct Posting {
    account: u32,
    sequence: u32,
    cents: i64,
    /// Heap memory, so that transactions call the allocator.
    text: String,
}

const ACCOUNTS: u32 = 4;
const OPENING_CENTS: i64 = 1_000;

struct Bank {
    database: Database<HtmNaive>,
    accounts: Table<Account>,
    postings: Table<Posting>,
}

impl Bank {
    fn open(htm: Htm) -> Result<Self, Error> {
        let database = Database::builder()
            .protocol::<HtmNaive>()
            .table::<Account>()
            .table::<Posting>()
            .custom_htm(htm)
            .open()?;
        let bank = Bank { accounts: database.table()?, postings: database.table()?, database };
        bank.database.transact(|tx| {
            (0..ACCOUNTS).try_for_each(|number| {
                tx.insert(&bank.accounts, Account { number, cents: OPENING_CENTS })
            })
        })?;
        Ok(bank)
    }

    /// Moves money, and adds a posting for each of the two accounts. `between` runs in the middle of each half.
    fn transfer(
        &self,
        (from, to): (u32, u32),
        cents: i64,
        sequence: u32,
        between: impl Fn(),
    ) -> Result<(), Error> {
        self.database.transact(|tx| {
            for (account, cents) in [(from, -cents), (to, cents)] {
                tx.update(&self.accounts, &account, |row| row.cents += cents)?;
                between();
                let text = format!("transfer {sequence} of {account}");
                tx.insert(&self.postings, Posting { account, sequence, cents, text })?;
            }
            Ok(())
        })
    }

    /// Checks that balances equal the sum of the postings, and that both indexes have all postings.
    fn audit(&self) -> Result<(), Error> {
        self.database.transact(|tx| {
            let mut total = 0;
            for number in 0..ACCOUNTS {
                let account = tx.get(&self.accounts, &number)?.expect("accounts stay");
                let mut posted = 0;
                for posting in tx.prefix(&self.postings, &number) {
                    posted += posting?.cents;
                }
                assert_eq!(account.cents, OPENING_CENTS + posted, "account {number}");
                total += account.cents;
            }
            assert_eq!(total, i64::from(ACCOUNTS) * OPENING_CENTS);
            let rows = tx.range(&self.postings, ..).count();
            assert_eq!(tx.range_by(&self.postings, Posting::BY_AMOUNT, ..).count(), rows);
            Ok(())
        })
    }

    fn htm(&self) -> Statistics {
        self.database.metrics().htm
    }

    /// Checks that every transaction so far was either one committed region or one fallback to the lock. The
    /// regions of index operations belong to the transaction's region, and are not counted.
    fn assert_one_region_each(&self) {
        let (metrics, htm) = (self.database.metrics(), self.htm());
        assert_eq!(metrics.aborted_total(), 0, "a transaction aborted");
        let ended = metrics.committed + metrics.rolled_back;
        assert_eq!(htm.committed + htm.fallbacks, ended, "{htm:?}");
    }
}

/// Begin, every kind of operation and the commit run in one region.
#[test]
fn whole_transactions_commit_as_regions() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _thread = on_thread(0, 1);
    let bank = Bank::open(htm)?;
    for step in 0..16 {
        bank.transfer((step % ACCOUNTS, (step + 1) % ACCOUNTS), i64::from(step), step, || ())?;
    }
    bank.audit()?;
    let deleted = bank.database.transact(|tx| {
        let first = tx.range(&bank.postings, ..).next().transpose()?.expect("there are postings");
        let (account, sequence, cents) = (first.account, first.sequence, first.cents);
        tx.update(&bank.accounts, &account, |row| row.cents -= cents)?;
        tx.update(&bank.accounts, &((account + 1) % ACCOUNTS), |row| row.cents += cents)?;
        let (account_after, text) = ((account + 1) % ACCOUNTS, String::new());
        let posting = Posting { account: account_after, sequence: 1_000, cents, text };
        tx.upsert(&bank.postings, posting)?;
        tx.delete(&bank.postings, &(account, sequence))
    })?;
    assert!(deleted);
    bank.audit()?;
    bank.assert_one_region_each();
    let htm = bank.htm();
    assert!(htm.committed > 8, "few transactions fitted into a region: {htm:?}");
    Ok(())
}

/// A roll-back uses the undo log and commits the region, because aborting the region would run the closure again.
/// The closure runs once, and its effects outside of the database remain.
#[test]
fn rollback_commits_its_region() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _thread = on_thread(0, 2);
    let bank = Bank::open(htm)?;
    bank.transfer((0, 1), 5, 0, || ())?;
    let (regions, calls) = (bank.htm().committed, Cell::new(0));
    for round in 1..=8 {
        let ended = bank.database.transact(|tx| {
            calls.set(calls.get() + 1);
            tx.update(&bank.accounts, &0, |row| row.cents = 0)?;
            tx.delete(&bank.accounts, &1)?;
            let text = "gone".to_owned();
            tx.insert(&bank.postings, Posting { account: 0, sequence: 7, cents: 1, text })?;
            tx.delete(&bank.postings, &(0, 0))?;
            Err::<(), Error>(Failure::Closed.into())
        });
        assert!(matches!(ended, Err(Error::Failure(Failure::Closed))));
        assert_eq!(calls.get(), round);
    }
    assert_eq!(bank.database.metrics().rolled_back, 8);
    assert!(bank.htm().committed > regions + 2, "{:?}", bank.htm());
    bank.assert_one_region_each();
    bank.audit()
}

/// A system call aborts the region at each try, so the transaction runs under the lock in the end. Everything that
/// the closure did in the aborted regions is undone.
#[test]
fn unsupported_work_runs_once_under_the_lock() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _thread = on_thread(0, 3);
    let bank = Bank::open(htm)?;
    let (before, calls) = (bank.htm(), Cell::new(0));
    bank.transfer((0, 1), 5, 0, || {
        calls.set(calls.get() + 1);
        thread::yield_now();
    })?;
    let after = bank.htm();
    assert_eq!(calls.get(), 2, "one call for each account");
    assert_eq!(after.committed, before.committed);
    assert_eq!(after.fallbacks, before.fallbacks + 1);
    assert!(after.aborted_system_event > before.aborted_system_event);
    bank.audit()?;
    bank.assert_one_region_each();
    Ok(())
}

/// A large transaction falls back to the lock, which is the papers' point about this protocol. Here it writes more
/// lines than the first-level cache holds (at most 48 KiB on processors with RTM).
#[test]
fn a_transaction_that_overflows_the_cache_takes_the_lock() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _thread = on_processor(Processor { instructions: u32::MAX, ..Processor::default() }, 4);
    let bank = Bank::open(htm)?;
    let before = bank.htm();
    bank.database.transact(|tx| {
        (0..1_500).try_for_each(|number| {
            tx.upsert(&bank.accounts, Account { number, cents: OPENING_CENTS }).map(drop)
        })
    })?;
    let after = bank.htm();
    assert_eq!(after.committed, before.committed);
    assert_eq!(after.fallbacks, before.fallbacks + 1);
    bank.database.transact(|tx| {
        (ACCOUNTS..1_500).try_for_each(|number| tx.delete(&bank.accounts, &number).map(drop))
    })?;
    bank.audit()
}

/// A panic unwinds through the region and reaches the caller, and the database is unchanged.
#[test]
fn panic_unwinds_through_a_region_and_leaves_no_trace() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _thread = on_thread(0, 5);
    let bank = Bank::open(htm)?;
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            bank.transfer((0, 1), 5, 0, || std::panic::resume_unwind(Box::new("in the middle")))
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"in the middle"));
    }
    bank.audit()?;
    bank.transfer((0, 1), 5, 0, || ())?;
    bank.audit()?;
    bank.assert_one_region_each();
    Ok(())
}

/// Regions of two databases nest, and the transactions end in the order in which they began. So the outermost pair
/// of XBEGIN and XEND belongs to two databases.
#[test]
fn transactions_on_two_databases_may_overlap() -> Result<(), Error> {
    let (Some(htm), Some(other_htm)) = (hardware(100), hardware(100)) else { return Ok(()) };
    let _thread = on_thread(0, 6);
    let (bank, other) = (Bank::open(htm)?, Bank::open(other_htm)?);
    for cents in 1..=5 {
        let tx = bank.database.begin()?;
        tx.update(&bank.accounts, &0, |row| row.cents += cents)?;
        let other_tx = other.database.begin()?;
        other_tx.update(&other.accounts, &0, |row| row.cents -= cents)?;
        tx.commit()?;
        other_tx.update(&other.accounts, &1, |row| row.cents += cents)?;
        other_tx.commit()?;
    }
    let cents = |bank: &Bank, number: u32| {
        let read = bank.database.transact(|tx| {
            Ok::<_, Error>(tx.get(&bank.accounts, &number)?.expect("accounts stay").cents)
        });
        read.expect("reads")
    };
    assert_eq!(cents(&bank, 0), OPENING_CENTS + 15);
    assert_eq!((cents(&other, 0), cents(&other, 1)), (OPENING_CENTS - 15, OPENING_CENTS + 15));
    bank.assert_one_region_each();
    other.assert_one_region_each();
    Ok(())
}

/// Transactions are atomic between threads, in regions and beside others that hold the lock and yield half-way.
#[test]
fn regions_and_the_lock_keep_the_balance() -> Result<(), Error> {
    let Some(htm) = hardware(2) else { return Ok(()) };
    const THREADS: u32 = 3;
    const TRANSFERS: u32 = 8;
    const CONFLICTS_PER_MILLION: u32 = 100;
    let bank = thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let _thread = on_thread(0, 7);
            Bank::open(htm)
        });
        loading.join().expect("loading does not panic")
    })?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let bank = &bank;
                scope.spawn(move || {
                    let _thread = on_thread(CONFLICTS_PER_MILLION, u64::from(thread) + 11);
                    for step in 0..TRANSFERS {
                        let sequence = thread * TRANSFERS + step;
                        let from = (thread + step) % ACCOUNTS;
                        let accounts = (from, (from + 1) % ACCOUNTS);
                        bank.transfer(accounts, 1 + i64::from(step), sequence, || {
                            if step % 4 == 0 {
                                thread::yield_now();
                            }
                        })?;
                        if step == 4 {
                            bank.audit()?;
                        }
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("threads do not panic"))
    })?;
    let htm = bank.htm();
    assert!(htm.committed > 0 && htm.fallbacks > 0, "regions or the lock were not used: {htm:?}");
    bank.assert_one_region_each();
    let _thread = on_thread(0, 99);
    bank.audit()
}
