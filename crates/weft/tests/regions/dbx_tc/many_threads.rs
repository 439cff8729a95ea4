//! Payments on many threads.

use std::thread::{self, scope};
use std::time::Duration;

use weft::htm::Choice;
use weft::{Database, Error};
use weft_htm::word::{Ordering, Word};
use weft_procedures::Execute;
use weft_protocols::BuilderExt;

use super::{ACCOUNTS, BEGINNING, Bank, Refused, open_by, options};
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
use weft_tests::hardware;
use weft_tests::{Seed, chaos, stress};

/// Runs payments on many threads, beside other transactions and snapshots that check the sums. Each thread calls
/// `begin` first.
pub(super) fn lose_no_cent<B>(bank: &Bank, payments: u64, begin: impl Fn(u64) -> B + Sync) {
    const THREADS: u64 = 4;
    let (seed, begin) = (Seed::draw(), &begin);
    let is_over = &Word::new(0);
    scope(|scope| {
        let paying: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut random = seed.random(thread as usize);
                scope.spawn(move || {
                    let _begun = begin(random.u64(..));
                    let mut paid = 0;
                    for number in 0..payments {
                        let (id, cents) = (random.u32(..ACCOUNTS), random.i64(-60..=60));
                        let yielding = std::cell::RefCell::new(random.fork());
                        let meanwhile = |_| chaos(&mut yielding.borrow_mut());
                        let number = thread * payments + number;
                        let mut pay = bank.paying(id, cents, number, &meanwhile);
                        match bank.database.execute(&mut pay) {
                            Ok(balance) => {
                                assert!(balance >= 0);
                                paid += 1;
                            }
                            Err(Refused::Overdrawn) => assert!(cents < 0),
                            Err(Refused::Engine(error)) => panic!("{error}"),
                        }
                    }
                    paid
                })
            })
            .collect();
        let check = |accounts: i64, branches: i64| {
            assert_eq!(accounts - i64::from(ACCOUNTS) * BEGINNING, branches);
        };
        let mut random = seed.random(THREADS as usize);
        let summing = scope.spawn(move || {
            let _begun = begin(random.u64(..));
            while is_over.load(Ordering::Relaxed) == 0 {
                let sums: Result<_, Error> = bank.database.transact(|tx| {
                    let accounts = tx.range(&bank.accounts, ..).map(|row| Ok(row?.cents));
                    let accounts = accounts.sum::<Result<i64, Error>>()?;
                    let branches = tx.range(&bank.branches, ..).map(|row| Ok(row?.cents));
                    Ok((accounts, branches.sum::<Result<i64, Error>>()?))
                });
                let (accounts, branches) = sums.expect("is summed up");
                check(accounts, branches);
                let sums: Result<_, Error> = bank.database.snapshot(|snapshot| {
                    let accounts = snapshot.range(&bank.accounts, ..).map(|row| Ok(row?.cents));
                    let accounts = accounts.sum::<Result<i64, Error>>()?;
                    let branches = snapshot.range(&bank.branches, ..).map(|row| Ok(row?.cents));
                    Ok((accounts, branches.sum::<Result<i64, Error>>()?))
                });
                let (accounts, branches) = sums.expect("is summed up");
                check(accounts, branches);
                thread::sleep(Duration::from_micros(300));
            }
        });
        let paid: usize = paying.into_iter().map(|thread| thread.join().expect("pays")).sum();
        is_over.store(1, Ordering::Relaxed);
        summing.join().expect("sums up");
        let slips = bank.database.transact(|tx| {
            Ok::<_, Error>(tx.range(&bank.slips, ..).collect::<Result<Vec<_>, _>>()?.len())
        });
        assert_eq!(slips.expect("is counted"), paid);
    });
}

#[test]
fn many_threads_lose_no_cent() {
    for by_columns in [true, false] {
        // A run may be so short that no thread meets another one.
        let have_met = (0..100).any(|_| {
            let software =
                Database::builder().protocol::<weft_protocols::DbxTc>().htm(Choice::Software);
            let bank = open_by(software.dbx_tc(options().by_columns(by_columns)));
            lose_no_cent(&bank, 300 * stress() as u64, |_| ());
            let metrics = bank.database.metrics();
            assert!(by_columns || metrics.carried_over == 0, "{metrics:?}");
            if by_columns { metrics.carried_over > 0 } else { metrics.pieces_redone > 0 }
        });
        assert!(have_met, "no piece failed");
    }
}

/// Runs the same in hardware regions, native or emulated, with injected conflicts, beside software twins.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#[test]
fn many_threads_lose_no_cent_in_hardware_regions() {
    let Some(htm) = hardware::hardware(2) else { return };
    let _here = hardware::on_thread(0, 0);
    let bank = open_by(
        Database::builder().protocol::<weft_protocols::DbxTc>().dbx_tc(options()).custom_htm(htm),
    );
    lose_no_cent(&bank, 25 * stress() as u64, |seed| hardware::on_thread(10_000, seed));
    assert!(bank.database.metrics().htm.committed > 0, "no region committed");
}
