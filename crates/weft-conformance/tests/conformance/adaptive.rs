//! The flaws that are made on purpose in the protocol that adapts must be found, and without them nothing is.

use weft::{Database, Error, Record, column_of};
use weft_conformance::invariants::{self, Bank, Queue};
use weft_conformance::random::{self, Size};
use weft_conformance::subject::Subject;
use weft_conformance::threads::Mode;
use weft_conformance::values;
use weft_protocols::{Adaptive, AdaptiveFlaw, AdaptiveOptions, BuilderExt};

/// After this many seeds without a finding a flaw counts as missed.
const SEEDS: u64 = 2000;

/// Returns the first seed with which random runs find the flaw.
fn found_by(flaw: AdaptiveFlaw) -> Option<u64> {
    let subject = Subject::flawed_adaptive(flaw);
    let size = Size { threads: 4, transactions: 6, steps_max: 6, readers: 0 };
    let is_found = |&seed: &u64| {
        let mode = Mode::Interleaved(seed);
        random::check(&subject, mode, size).is_err()
            || values::check(&subject, mode, 3, 6).is_err()
            || invariants::check(&Bank, &subject, mode, 3, 8, 0).is_err()
            || invariants::check(&Queue, &subject, mode, 3, 8, 0).is_err()
    };
    (0..SEEDS).find(is_found)
}

#[test]
fn turn_in_place_of_validation_is_found() {
    let seed = found_by(AdaptiveFlaw::TurnsTrusted).expect("it shows");
    println!("found by seed {seed}");
}

#[test]
fn claim_in_place_of_validation_is_found() {
    let seed = found_by(AdaptiveFlaw::ClaimsTrusted).expect("it shows");
    println!("found by seed {seed}");
}

#[derive(Clone, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    count: i64,
}

/// Begins a transaction while there are no phases, and adds to the counter in others until a split phase has begun, or
/// until it is clear that none begins beside that transaction. Returns what the counter lacks in the end.
fn lost_beside_an_unannounced_transaction(flaw: Option<AdaptiveFlaw>) -> i64 {
    const ADDITIONS_MAX: i64 = 400;
    let mut options = AdaptiveOptions::new().forced_by_seed(None);
    options.flaw = flaw;
    let builder = Database::builder().protocol::<Adaptive>().table::<Counter>().adaptive(options);
    let database = builder.open().expect("the database opens");
    let counters = database.table::<Counter>().expect("the table was added");
    let inserted: Result<(), Error> =
        database.transact(|tx| tx.insert(&counters, Counter { id: 1, count: 0 }));
    inserted.expect("the table is empty");
    let unannounced = database.begin().expect("a worker is free");
    let is_split = || database.metrics().phases.expect("there are phases").is_split;
    let add = || {
        for additions in 1..=ADDITIONS_MAX {
            let added: Result<(), Error> =
                database.transact(|tx| tx.add(&counters, &1, column_of!(Counter.count), 1));
            added.expect("the sum fits");
            if is_split() {
                return additions;
            }
        }
        ADDITIONS_MAX
    };
    let added = std::thread::scope(|scope| scope.spawn(add).join().expect("no panic"));
    unannounced.update(&counters, &1, |row| row.count += 1000).expect("the row exists");
    unannounced.commit().expect("no transaction has changed the row since");
    let count: Result<i64, Error> =
        database.transact(|tx| Ok(tx.get(&counters, &1)?.expect("the row exists").count));
    added + 1000 - count.expect("there is no failure")
}

#[test]
fn phase_waits_for_unannounced_transactions() {
    assert_eq!(lost_beside_an_unannounced_transaction(None), 0);
    let flaw = Some(AdaptiveFlaw::UnannouncedPassed);
    assert_eq!(lost_beside_an_unannounced_transaction(flaw), 1000);
}

/// The tests of the seed of forced decisions. On the simulated machine and under sanitizers, addresses decide, too.
#[cfg(not(any(weft_sim, weft_sanitize)))]
mod seeded {
    use std::collections::HashSet;
    use std::time::Duration;

    use weft::htm::Choice;
    use weft_conformance::threads::for_each_seed;
    use weft_htm::interleave::{self, Options, Strategy};
    use weft_protocols::PhaseOptions;

    use super::*;

    const COUNTERS: u32 = 4;
    const THREADS: u64 = 3;
    const TRANSACTIONS: u32 = 12;

    /// How often a run is made until two are the same. Epochs tick by the clock, and seldom change a run.
    const RUNS_MAX: usize = 8;

    /// Changes counters at random, interleaved by `seed`, while `forced_by` decides what the protocol does. Returns the
    /// fingerprint of all switches between threads, which come after numbers of accesses to shared words.
    fn fingerprint(seed: u64, forced_by: u64) -> u64 {
        let options = AdaptiveOptions::new().forced_by_seed(Some(forced_by));
        let mut phases = PhaseOptions::new();
        // No phase ends by the clock.
        phases.length = Duration::from_secs(3600);
        let builder = Database::builder().protocol::<Adaptive>().table::<Counter>();
        let builder = builder.htm(Choice::Software).adaptive(options).phases(phases);
        let database = builder.open().expect("the database opens");
        let counters = database.table::<Counter>().expect("the table was added");
        let filled: Result<(), Error> = database.transact(|tx| {
            (0..COUNTERS).try_for_each(|id| tx.insert(&counters, Counter { id, count: 0 }))
        });
        filled.expect("the table is empty");
        let body = |thread: u64| {
            let (database, counters) = (&database, &counters);
            move || {
                let mut random = fastrand::Rng::with_seed(seed ^ thread << 48);
                for _ in 0..TRANSACTIONS {
                    let (one, other) = (random.u32(..COUNTERS), random.u32(..COUNTERS));
                    let is_operation = random.bool();
                    let changed: Result<(), Error> = database.transact(|tx| {
                        if is_operation {
                            return tx.add(counters, &one, column_of!(Counter.count), 1);
                        }
                        tx.update(counters, &one, |row| row.count -= 1)?;
                        tx.update(counters, &other, |row| row.count += 1)?;
                        Ok(())
                    });
                    changed.expect("there is no failure");
                }
            }
        };
        let bodies = (0..THREADS).map(body).collect();
        let strategy = Strategy::Random { one_in: 16 };
        interleave::run(seed, &Options { strategy, ..Options::default() }, bodies).fingerprint
    }

    #[test]
    fn seed_repeats_forced_decisions() {
        for_each_seed(5, |seed| {
            let mut before = HashSet::new();
            let is_repeated = (0..RUNS_MAX).any(|_| !before.insert(fingerprint(seed, seed)));
            assert!(is_repeated, "{RUNS_MAX} runs of seed {seed} all differ");
        });
    }

    /// Without this, the test above would not show that anything was forced.
    #[test]
    fn other_seed_forces_other_decisions() {
        let differs = |&seed: &u64| fingerprint(seed, seed) != fingerprint(seed, seed + 1);
        let differing = (0..5).filter(differs).count();
        assert!(differing >= 4, "only {differing} of 5 runs changed with the decisions");
    }
}
