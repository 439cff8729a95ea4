//! Tests of DBX and timestamp ordering with their regions in hardware. The regions run on the machine's own RTM
//! or, where it has none, as real RTM machine code under the emulator of `weft-rtm-emulator`. The emulator injects
//! conflicts, so that some commits and index operations fall back to their software twins, beside others in
//! regions.

mod valgrind;

use std::sync::Barrier;
use std::thread;

use weft::htm::Htm;
use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, Record, Table};
use weft_protocols::TimestampOrdering;

use weft_tests::hardware::{hardware, is_native, on_thread};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "accounts", storage = "hash")]
struct Account {
    #[record(key)]
    number: u32,
    cents: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "postings", key(account, sequence))]
#[record(index(name = by_amount, columns(cents)))]
struct Posting {
    account: u32,
    sequence: u32,
    cents: i64,
}

const ACCOUNTS: u32 = 4;
const OPENING_CENTS: i64 = 1_000;

struct Bank<P: Protocol> {
    database: Database<P>,
    accounts: Table<Account>,
    postings: Table<Posting>,
}

fn open<P: Protocol>(htm: Htm) -> Result<Bank<P>, Error> {
    let database = Database::builder()
        .protocol::<P>()
        .table::<Account>()
        .table::<Posting>()
        .custom_htm(htm)
        .open()?;
    let (accounts, postings) = (database.table()?, database.table()?);
    database.transact(|tx| {
        (0..ACCOUNTS)
            .try_for_each(|number| tx.insert(&accounts, Account { number, cents: OPENING_CENTS }))
    })?;
    Ok(Bank { database, accounts, postings })
}

impl<P: Protocol> Bank<P> {
    /// Moves money, and adds a posting for each of the two accounts.
    fn transfer(&self, from: u32, to: u32, cents: i64, sequence: u32) -> Result<(), Error> {
        self.database.transact(|tx| {
            for (account, cents) in [(from, -cents), (to, cents)] {
                tx.update(&self.accounts, &account, |row| row.cents += cents)?;
                tx.upsert(&self.postings, Posting { account, sequence, cents })?;
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
}

#[test]
fn one_thread_runs_every_kind_of_region() -> Result<(), Error> {
    run_every_kind_of_region::<Dbx>()?;
    run_every_kind_of_region::<TimestampOrdering>()
}

fn run_every_kind_of_region<P: Protocol>() -> Result<(), Error> {
    let Some(htm) = hardware(100) else { return Ok(()) };
    let _emulation = on_thread(0, 1);
    let bank = open::<P>(htm)?;
    for step in 0..30 {
        bank.transfer(step % ACCOUNTS, (step + 1) % ACCOUNTS, i64::from(step), step)?;
    }
    bank.audit()?;
    let deleted = bank.database.transact(|tx| {
        let first = tx.range(&bank.postings, ..).next().transpose()?.expect("there are postings");
        let (account, sequence, cents) = (first.account, first.sequence, first.cents);
        tx.update(&bank.accounts, &account, |row| row.cents -= cents)?;
        tx.update(&bank.accounts, &((account + 1) % ACCOUNTS), |row| row.cents += cents)?;
        tx.upsert(
            &bank.postings,
            Posting { account: (account + 1) % ACCOUNTS, sequence: 1_000, cents },
        )?;
        tx.delete(&bank.postings, &(account, sequence))
    })?;
    assert!(deleted);
    bank.audit()?;
    let htm = bank.database.metrics().htm;
    assert!(htm.committed > 150, "index changes and commits should run as regions: {htm:?}");
    assert_eq!(bank.database.metrics().aborted_total(), 0, "a conflict with one thread");
    Ok(())
}

#[test]
fn regions_and_twins_of_several_threads_keep_the_balance() -> Result<(), Error> {
    run_regions_and_twins::<Dbx>()?;
    run_regions_and_twins::<TimestampOrdering>()
}

fn run_regions_and_twins<P: Protocol>() -> Result<(), Error> {
    let Some(htm) = hardware(1) else { return Ok(()) };
    let bank = thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let _emulation = on_thread(0, 7);
            open::<P>(htm)
        });
        loading.join().expect("loading does not panic")
    })?;
    let htm = || bank.database.metrics().htm;
    let both_ways_were_taken = || htm().committed > 0 && htm().fallbacks > 0;
    // The emulator injects enough conflicts in one round. On a processor, conflicts occur only if threads collide.
    let rounds_max = if is_native() { 200 } else { 1 };
    for round in 0..rounds_max {
        run_transfers(&bank, round)?;
        if both_ways_were_taken() {
            break;
        }
    }
    assert!(both_ways_were_taken(), "{:?}", htm());
    let _emulation = on_thread(0, 99);
    bank.audit()
}

/// Transfers money between the same accounts on several threads.
fn run_transfers<P: Protocol>(bank: &Bank<P>, round: u32) -> Result<(), Error> {
    const THREADS: u32 = 3;
    const TRANSFERS: u32 = 25;
    const CONFLICTS_PER_MILLION: u32 = 3_000;
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let _emulation = on_thread(CONFLICTS_PER_MILLION, u64::from(thread) + 11);
                    for step in 0..TRANSFERS {
                        let sequence = (round * THREADS + thread) * TRANSFERS + step;
                        let from = (thread + step) % ACCOUNTS;
                        bank.transfer(from, (from + 1) % ACCOUNTS, 1 + i64::from(step), sequence)?;
                        if step % 8 == 0 {
                            bank.audit()?;
                        }
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("threads do not panic"))
    })
}
