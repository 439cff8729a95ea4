//! Every protocol, on a table so small that the clients' transactions conflict often.

use std::thread;

use crate::trials::with_protocol;
use weft::Error;
use weft::htm::word::{Ordering, Word};

use super::{
    HashRow, Kind, Mix, Parameters, Protocol, RawYcsb, Row, TreeRow, Ycsb, assert_invariants,
    broken, for_each_protocol, load, mix, options,
};
use crate::workload::Workload;

const THREADS: usize = 4;

fn transactions_per_thread() -> u32 {
    1_000 * weft_tests::stress() as u32
}

/// Runs clients on as many threads as the protocol allows, and `beside` on this thread. Then it checks the
/// invariants. `beside` can ask whether the clients are still running.
fn run<P: Protocol, R: Row>(
    parameters: &Parameters,
    seed: u64,
    beside: impl FnOnce(&Ycsb<P, R>, &dyn Fn() -> bool),
) {
    let threads = THREADS.min(P::WORKERS_MAX);
    let ycsb: Ycsb<P, R> = load(parameters, threads);
    let (ycsb, running) = (&ycsb, &Word::new(threads as u64));
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut client = ycsb.client(seed, thread, threads);
                for number in 0..transactions_per_thread() {
                    ycsb.execute(&mut client).expect("it runs to its end");
                    if number % 8 == 0 {
                        // Yield so often that other threads run in between, even if there are few cores.
                        thread::yield_now();
                    }
                }
                // Relaxed: it only tells the thread that runs `beside` when to stop.
                running.fetch_add(u64::MAX, Ordering::Relaxed);
            });
        }
        if P::WORKERS_MAX > threads {
            beside(ycsb, &|| running.load(Ordering::Relaxed) > 0);
        }
    });
    assert_invariants(ycsb, &format!("{}, {parameters:?}, seed {seed}", P::NAME));
}

/// The tests' parameters: few rows, one of which gets a third of all accesses.
fn contended(mix: Mix) -> Parameters {
    Parameters { records: 50, mix, theta: 1.2, scan_rows: 60, ..Parameters::default() }
}

#[test]
fn single_operations_keep_the_invariants() {
    for_each_protocol(|protocol| {
        with_protocol!(protocol.name, |P| {
            run::<P, TreeRow>(&contended(mix([20, 80, 0, 0])), 21, |_, _| {});
            run::<P, HashRow>(&contended(Mix::DBX), 22, |_, _| {});
        });
    });
}

#[test]
fn transactions_of_several_operations_keep_the_invariants() {
    for_each_protocol(|protocol| {
        if protocol.single_key {
            return;
        }
        let tree = Parameters { operations: 4, ..contended(mix([20, 40, 20, 20])) };
        let hash = Parameters { operations: 4, ..contended(mix([20, 60, 20, 0])) };
        with_protocol!(protocol.name, |P| {
            run::<P, TreeRow>(&tree, 23, |_, _| {});
            run::<P, HashRow>(&hash, 24, |_, _| {});
        });
    });
}

/// Calls `look` repeatedly until the clients are done. `look` reads in a transaction of its own while the clients
/// run, and its result must be even.
fn stays_even<P: Protocol, R: Row>(
    parameters: &Parameters,
    seed: u64,
    look: impl Fn(&Ycsb<P, R>) -> u64,
) {
    run::<P, R>(parameters, seed, |ycsb, running| {
        let mut looks = 0_u32;
        while running() || looks < 10 {
            let found = look(ycsb);
            assert!(found.is_multiple_of(2), "{}, seed {seed}: {found} is odd", P::NAME);
            looks += 1;
        }
    });
}

/// Every transaction modifies twice. So the sum of the counters is even for a reader that sees all of each
/// transaction or nothing of it.
#[test]
fn readers_see_whole_transactions() {
    for_each_protocol(|protocol| {
        if protocol.single_key {
            return;
        }
        let mix = Mix::only(Kind::ReadModifyWrite);
        let parameters = Parameters { records: 8, operations: 2, ..contended(mix) };
        with_protocol!(protocol.name, |P| {
            stays_even::<P, HashRow>(&parameters, 25, |ycsb| {
                let sum = ycsb.database.transact(|tx| -> Result<u64, Error> {
                    let mut sum = 0;
                    for key in 0..parameters.records {
                        sum += tx.get(&ycsb.table, &key)?.expect("a loaded row").counter();
                    }
                    Ok(sum)
                });
                sum.expect("it runs to its end")
            });
        });
    });
}

/// Every transaction inserts twice. So the number of rows in a range is even for a reader that sees no phantoms.
#[test]
fn scans_see_no_phantoms() {
    for_each_protocol(|protocol| {
        if protocol.single_key {
            return;
        }
        let mix = Mix::only(Kind::Insert);
        let parameters = Parameters { records: 8, operations: 2, ..contended(mix) };
        with_protocol!(protocol.name, |P| {
            // The first rows of each client: the range grows, and is read in a short time.
            stays_even::<P, TreeRow>(&parameters, 26, |ycsb| {
                let rows = ycsb.database.transact(|tx| -> Result<u64, Error> {
                    let mut rows = 0;
                    for (first, _) in ycsb.ledgers.inserted() {
                        for row in tx.range(&ycsb.table, first..first + 200) {
                            rows += u64::from(row?.is_whole());
                        }
                    }
                    Ok(rows)
                });
                rows.expect("it runs to its end")
            });
        });
    });
}

#[test]
fn the_raw_tree_keeps_the_invariants() {
    let parameters = Parameters { operations: 2, ..contended(mix([20, 50, 20, 10])) };
    let raw = RawYcsb::<TreeRow>::load(&parameters, &options(THREADS)).expect("loads");
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let raw = &raw;
            scope.spawn(move || {
                let mut client = raw.client(27, thread);
                for _ in 0..transactions_per_thread() {
                    raw.execute(&mut client);
                }
            });
        }
    });
    assert_eq!(broken(&raw.verify(&|_, _| {}).expect("it reads every row")), [""; 0]);
}
