//! Every protocol, on a database so small that the clients' transactions conflict often.

use std::thread;

use crate::trials::with_protocol;
use weft::protocol::Protocol;

use super::{assert_consistent, load, runnable_protocols};
use crate::snapshots::Snapshots;
use crate::tatp::{Mix, Parameters, Tatp, TransactionType};
use crate::workload::Workload;

const THREADS: usize = 4;
const TRANSACTIONS_PER_THREAD: u32 = 1_500;

/// Runs clients on as many threads as the protocol allows, and checks the invariants. Returns how often each type
/// succeeded.
fn run<P: Protocol>(parameters: &Parameters, seed: u64) -> [u32; 7] {
    let threads = THREADS.min(P::WORKERS_MAX);
    let tatp: Tatp<P> = load(parameters, seed, threads);
    let mut succeeded = [0; 7];
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let tatp = &tatp;
                scope.spawn(move || {
                    let mut client = tatp.client(seed, thread, threads);
                    let mut succeeded = [0; 7];
                    for number in 0..TRANSACTIONS_PER_THREAD {
                        let outcome = tatp.execute(&mut client).expect("it runs to its end");
                        succeeded[outcome.transaction] += u32::from(!outcome.rolled_back);
                        if number % 8 == 0 {
                            // Yield so often that other threads run in between, even if there are few cores.
                            thread::yield_now();
                        }
                    }
                    succeeded
                })
            })
            .collect();
        for client in clients {
            let ended = client.join().expect("no client panics");
            succeeded.iter_mut().zip(ended).for_each(|(sum, count)| *sum += count);
        }
    });
    assert_consistent(&tatp, &format!("{}, {parameters:?}, seed {seed}", P::NAME));
    succeeded
}

/// Returns parameters in which most transactions write, on a few subscribers.
fn contended(mix: &str) -> Parameters {
    let mix = mix.parse().expect("a mix");
    Parameters { subscribers: 5, mix, ..Parameters::default() }
}

#[test]
fn the_standard_mix_keeps_every_condition() {
    for name in runnable_protocols() {
        let parameters = Parameters { subscribers: 50, ..Parameters::default() };
        let succeeded =
            with_protocol!(name, |P| run::<P>(&parameters, 51)).expect("a name of the list");
        assert!(succeeded.iter().all(|&count| count > 0), "{name}: {succeeded:?}");
    }
}

/// Insertions and deletions of the same few rows. If one is lost, the counts differ.
#[test]
fn insertions_against_deletions_keep_every_condition() {
    for name in runnable_protocols() {
        let parameters = contended("0,1,0,0,0,4,4");
        let succeeded =
            with_protocol!(name, |P| run::<P>(&parameters, 52)).expect("a name of the list");
        assert!(succeeded[5] > 100 && succeeded[6] > 100, "{name}: {succeeded:?}");
    }
}

/// Queries on snapshots, while other transactions change the rows that they read.
#[test]
fn snapshots_beside_changes_keep_every_condition() {
    for name in runnable_protocols() {
        let parameters = Parameters { snapshots: Snapshots::Recent, ..contended("2,2,2,1,1,1,1") };
        let succeeded =
            with_protocol!(name, |P| run::<P>(&parameters, 53)).expect("a name of the list");
        assert!(succeeded[..3].iter().all(|&count| count > 0), "{name}: {succeeded:?}");
    }
}

#[test]
fn each_transaction_alone_keeps_every_condition() {
    for name in runnable_protocols() {
        for transaction in TransactionType::ALL {
            let parameters = Parameters {
                subscribers: 20,
                mix: Mix::only(transaction),
                ..Parameters::default()
            };
            let succeeded =
                with_protocol!(name, |P| run::<P>(&parameters, 54)).expect("a name of the list");
            assert!(succeeded[transaction as usize] > 0, "{name}, {transaction:?}: {succeeded:?}");
        }
    }
}
