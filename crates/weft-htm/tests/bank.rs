//! A bank whose transfers run as RTM regions, with a software twin that locks the two accounts, on several
//! threads at a time. No money may appear or vanish, whether the region or the twin does a transfer.
//!
//! The processor executes the regions, or on a processor without RTM the emulator of `weft-rtm-emulator`. The
//! emulator injects conflicts, so that many transfers fall back. On a processor with RTM some transfers fall
//! back because of a system call. The second test leaves out the one rule that lets regions and twins run side
//! by side, and expects a loss of money. It shows that the first test can fail.
#![cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]

mod support;

use std::thread;

use weft_htm::word::{Ordering, Word, yield_now};
use weft_htm::{Regions, RetryPolicy, Statistics};

use support::hardware::{hardware, on_thread};

const ACCOUNTS: usize = 4;
const DEPOSIT: u64 = 1_000_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 400;

const FREE: u64 = 0;
const HELD: u64 = 1;

#[derive(Default)]
#[repr(align(64))]
struct Account {
    lock: Word,
    balance: Word,
}

impl Account {
    fn is_held(&self) -> bool {
        self.lock.load(Ordering::Acquire) != FREE
    }

    fn change(&self, by: u64) {
        let balance = self.balance.load(Ordering::Acquire);
        self.balance.store(balance.wrapping_add(by), Ordering::Release);
    }
}

struct Bank {
    accounts: [Account; ACCOUNTS],
    /// Whether regions test the locks of the accounts that they touch.
    subscribes: bool,
}

impl Bank {
    fn new(subscribes: bool) -> Bank {
        let accounts: [Account; ACCOUNTS] = Default::default();
        accounts.iter().for_each(|account| account.change(DEPOSIT));
        Bank { accounts, subscribes }
    }

    fn total(&self) -> u64 {
        self.accounts
            .iter()
            .fold(0, |total, account| total.wrapping_add(account.balance.load(Ordering::Acquire)))
    }

    /// Moves one coin between two accounts, the first of which has the lower number.
    /// `between` runs in the middle of a region.
    fn transfer(&self, regions: &Regions, [low, high]: [usize; 2], between: impl Fn()) {
        let (low, high) = (&self.accounts[low], &self.accounts[high]);
        let in_hardware = regions.run(
            |region| {
                if self.subscribes && (low.is_held() || high.is_held()) {
                    region.abort_locked();
                }
                low.change(1);
                between();
                high.change(1_u64.wrapping_neg());
            },
            || low.is_held() || high.is_held(),
        );
        if in_hardware.is_none() {
            self.transfer_in_software(low, high);
        }
    }

    /// The twin of `transfer`. It yields the processor between reading and writing, at the worst moment.
    fn transfer_in_software(&self, low: &Account, high: &Account) {
        for account in [low, high] {
            while account
                .lock
                .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                yield_now();
            }
        }
        let balances = [low, high].map(|account| account.balance.load(Ordering::Acquire));
        yield_now();
        low.balance.store(balances[0].wrapping_add(1), Ordering::Release);
        high.balance.store(balances[1].wrapping_sub(1), Ordering::Release);
        for account in [low, high] {
            account.lock.store(FREE, Ordering::Release);
        }
    }
}

/// Lets all threads transfer. Returns the statistics of their regions, and whether the processor executed them.
/// Returns `None` if there is neither hardware nor an emulator.
fn run_threads(bank: &Bank, seed: u64) -> Option<(Statistics, bool)> {
    let policy = RetryPolicy { conflict: 2, ..RetryPolicy::default() };
    let (htm, is_native) = hardware(policy)?;
    let total = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let htm = &htm;
                scope.spawn(move || {
                    let _emulation = on_thread(20_000, seed + thread);
                    transfers_of_one_thread(bank, &Regions::new(htm), seed + thread, is_native)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    Some((total, is_native))
}

fn transfers_of_one_thread(
    bank: &Bank,
    regions: &Regions,
    seed: u64,
    is_native: bool,
) -> Statistics {
    let mut random = seed | 1;
    for step in 0..TRANSFERS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let low = (random >> 33) as usize % (ACCOUNTS - 1);
        let high = low + 1 + (random >> 45) as usize % (ACCOUNTS - 1 - low);
        bank.transfer(regions, [low, high], || {
            if is_native && step % 4 == 0 {
                thread::yield_now();
            }
        });
    }
    regions.statistics()
}

/// Protects the rule for twins: regions and locking twins share the accounts, many transfers are done by each,
/// and the total is exact.
#[test]
fn regions_and_twins_keep_the_total() {
    let seed = seed();
    let bank = Bank::new(true);
    let Some((counted, is_native)) = run_threads(&bank, seed) else { return };
    assert_eq!(bank.total(), ACCOUNTS as u64 * DEPOSIT, "seed {seed}");
    assert_eq!(counted.committed + counted.fallbacks, THREADS * TRANSFERS, "seed {seed}");
    assert!(counted.committed > 0 && counted.fallbacks > 0, "seed {seed}: {counted:?}");
    assert!(counted.aborted_conflict > 0 || is_native, "seed {seed}: {counted:?}");
    assert!(bank.accounts.iter().all(|account| !account.is_held()), "seed {seed}");
}

/// Protects the test above: regions that do not test the locks lose money, and the test notices it.
#[test]
fn regions_that_ignore_the_locks_are_caught() {
    let seed = seed();
    for round in 0..50 {
        let bank = Bank::new(false);
        if run_threads(&bank, seed + round * THREADS).is_none() {
            return;
        }
        if bank.total() != ACCOUNTS as u64 * DEPOSIT {
            return;
        }
    }
    panic!("no money was lost in 50 rounds, seed {seed}: this test sees nothing");
}

/// Returns a seed from the clock, or the one in `WEFT_SEED` to repeat a run.
fn seed() -> u64 {
    match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |now| u64::from(now.subsec_nanos())),
    }
}
