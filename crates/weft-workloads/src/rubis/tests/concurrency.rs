//! Every protocol, on a database so small that the clients' transactions conflict often.

use std::thread;

use crate::trials::with_protocol;
use weft::protocol::Protocol;

use super::{TINY, assert_consistent, load, runnable_protocols};
use crate::rubis::{Mix, Parameters, Rubis, TransactionType};
use crate::workload::Workload;

const THREADS: usize = 4;

fn transactions_per_thread() -> u32 {
    2_000 * weft_tests::stress() as u32
}

/// Runs clients on as many threads as the protocol allows, and checks the invariants. Returns how often each type
/// succeeded, and how often it did not.
fn run<P: Protocol>(parameters: &Parameters, seed: u64) -> [[u32; 2]; 17] {
    let threads = THREADS.min(P::WORKERS_MAX);
    let rubis: Rubis<P> = load(parameters, seed, threads);
    let mut ended = [[0; 2]; 17];
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let rubis = &rubis;
                scope.spawn(move || {
                    let mut client = rubis.client(seed, thread, threads);
                    let mut ended = [[0; 2]; 17];
                    for number in 0..transactions_per_thread() {
                        let outcome = rubis.execute(&mut client).expect("it runs to its end");
                        ended[outcome.transaction][usize::from(outcome.rolled_back)] += 1;
                        if number % 8 == 0 {
                            // Yield so often that other threads run in between, even if there are few cores.
                            thread::yield_now();
                        }
                    }
                    ended
                })
            })
            .collect();
        for client in clients {
            let counts: [[u32; 2]; 17] = client.join().expect("no client panics");
            for (sums, counts) in ended.iter_mut().zip(counts) {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
    });
    assert_consistent(&rubis, &format!("{}, {parameters:?}, seed {seed}", P::NAME));
    ended
}

/// As [`run`], under every protocol. Every transaction succeeds, except purchases of items that are sold out.
fn run_all(parameters: &Parameters, seed: u64) {
    for name in runnable_protocols() {
        let ended =
            with_protocol!(name, |P| run::<P>(parameters, seed)).expect("a name of the list");
        for (transaction, [succeeded, failed]) in TransactionType::ALL.into_iter().zip(ended) {
            assert!(succeeded > 0, "{name}, {parameters:?}, seed {seed}: {transaction:?}");
            let may_fail = transaction == TransactionType::StoreBuyNow && parameters.lot == 1;
            assert!(
                failed == 0 || may_fail,
                "{name}, seed {seed}: {transaction:?}: {failed} failed"
            );
        }
    }
}

#[test]
fn the_bidding_mix_keeps_every_condition() {
    run_all(&TINY, 61);
}

/// Half of all transactions are bids, and half of these bids are on one item.
#[test]
fn the_contended_mix_keeps_every_condition() {
    run_all(&Parameters { mix: Mix::Contended { alpha: Mix::ALPHA }, lot: 100, ..TINY }, 62);
}

#[test]
fn bids_that_read_and_write_keep_every_condition() {
    let mix = Mix::Contended { alpha: Mix::ALPHA };
    run_all(&Parameters { mix, operations: false, ..TINY }, 63);
}
