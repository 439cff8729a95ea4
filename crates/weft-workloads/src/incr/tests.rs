//! Tests of the workload as a whole: the keys that clients choose, that every protocol counts every increment, and
//! that verification finds damage.

use std::thread;
use std::time::{Duration, Instant};

use crate::trials::{PROTOCOLS, with_protocol};
use weft::Error;
use weft::htm::Choice as Htm;
use weft::protocol::{Dbx, Protocol};

use super::{
    Change, Counter, HOT_KEYS_MAX, Incr, Increment, Parameters, Popularity, key_of,
    percent_of_ranks,
};
use crate::stashing::RequestClient;
use crate::workload::{LoadOptions, Workload};

fn hot(percent: f64) -> Parameters {
    Parameters { records: 1_000, popularity: Popularity::Hot { percent, change: None } }
}

/// Returns a change schedule in which the hot key has changed `hot` times until now.
fn changed(hot: u64) -> Change {
    let every = Duration::from_secs(1_000);
    let since = Instant::now().checked_sub(every * hot as u32 + Duration::from_secs(1));
    Change { since: since.expect("the clock is older"), every }
}

/// Returns a loaded database, with the HTM backend that the environment names.
fn load<P: Protocol>(parameters: &Parameters, seed: u64, threads: usize) -> Incr<P> {
    let htm = Htm::from_environment().expect("WEFT_HTM names a backend").unwrap_or(Htm::Auto);
    let options = LoadOptions { seed, threads, htm: Some(htm), ..LoadOptions::default() };
    Incr::load(parameters, &options).expect("loads")
}

/// Returns the conditions that do not hold, in words.
fn broken<P: Protocol>(incr: &Incr<P>) -> Vec<String> {
    let conditions = incr.verify(&|_, _| {}).expect("verification reads every row");
    assert_eq!(conditions.len(), 3);
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect()
}

fn assert_consistent<P: Protocol>(incr: &Incr<P>, context: &str) {
    assert_eq!(broken(incr), [""; 0], "{context}");
}

/// Returns how many of `count` transactions are for each of the keys.
fn draws(
    client: &mut impl RequestClient<Request = Increment>,
    count: u32,
    keys: &[u128],
) -> Vec<u32> {
    let mut drawn = vec![0; keys.len()];
    for _ in 0..count {
        let Increment { key, .. } = client.draw();
        drawn[keys.iter().position(|&other| other == key).expect("a key of the table")] += 1;
    }
    drawn
}

/// INCR1: the hot key has the requested share, and all other keys are equally popular.
#[test]
fn hot_key_gets_exactly_its_share() {
    const SEED: u64 = 3;
    // Fewer than a client draws in advance, so that no draw is used twice.
    const DRAWS: u32 = 60_000;
    const RECORDS: u64 = 20;
    let keys: Vec<u128> = (0..RECORDS).map(key_of).collect();
    for percent in [0.0, 0.5, 10.0, 50.0, 99.0, 100.0] {
        let parameters = Parameters { records: RECORDS, ..hot(percent) };
        let incr: Incr<Dbx> = load(&parameters, SEED, 1);
        let drawn = draws(&mut incr.client(SEED, 0, 1), DRAWS, &keys);
        let hot = incr.source.popular[0] as usize;
        let near = |count: u32, expected: f64| {
            (f64::from(count) - expected).abs() <= 4.0 * expected.sqrt() + 1e-9
        };
        let expected = percent / 100.0 * f64::from(DRAWS);
        assert!(near(drawn[hot], expected), "seed {SEED}, {percent} %: {drawn:?}");
        let expected = (f64::from(DRAWS) - expected) / (RECORDS - 1) as f64;
        for (record, &count) in drawn.iter().enumerate() {
            let is_near = record == hot || near(count, expected);
            assert!(is_near, "seed {SEED}, {percent} %, record {record}: {drawn:?}");
        }
    }
}

/// Figure 10: one key after the other is hot, each only during its own time.
#[test]
fn another_key_becomes_hot_over_time() {
    const SEED: u64 = 4;
    const RECORDS: u64 = 40;
    let keys: Vec<u128> = (0..RECORDS).map(key_of).collect();
    let mut hot_ones = Vec::new();
    for changes in [0, 1, 2, 20] {
        let change = Some(changed(changes));
        let popularity = Popularity::Hot { percent: 50.0, change };
        let incr: Incr<Dbx> = load(&Parameters { records: RECORDS, popularity }, SEED, 1);
        let drawn = draws(&mut incr.client(SEED, 0, 1), 10_000, &keys);
        let hot: Vec<usize> = (0..drawn.len()).filter(|&record| drawn[record] > 4_500).collect();
        assert_eq!(hot.len(), 1, "seed {SEED}, change {changes}: {drawn:?}");
        hot_ones.push(hot[0]);
        // With so few keys, half of them are hot at some time. They are not drawn at other times.
        let cold = drawn.iter().filter(|&&count| count > 0).count() - 1;
        assert_eq!(cold, 20, "seed {SEED}, change {changes}: {drawn:?}");
    }
    assert_eq!(hot_ones[0], hot_ones[3], "after twenty changes the first key is hot again");
    hot_ones.pop();
    hot_ones.sort_unstable();
    hot_ones.dedup();
    assert_eq!(hot_ones.len(), 3, "{hot_ones:?}");
}

/// A client that is already running also sees the change.
#[test]
fn running_clients_see_the_hot_key_change() {
    const SEED: u64 = 5;
    let change = Change { since: Instant::now(), every: Duration::from_nanos(1) };
    let popularity = Popularity::Hot { percent: 100.0, change: Some(change) };
    let incr: Incr<Dbx> = load(&Parameters { records: 100, popularity }, SEED, 1);
    let mut client = incr.client(SEED, 0, 1);
    let mut seen: Vec<u128> = (0..10_000).map(|_| client.draw().key).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 1, "the key changes every nanosecond, and the client saw one key");
    assert!(seen.len() <= 40, "the client read the clock too often: {} keys", seen.len());
}

#[test]
fn hot_keys_take_turns() {
    let since = Instant::now();
    let change = Change { since, every: Duration::from_millis(5_000) };
    for (milliseconds, count) in [(0, 0), (4_999, 0), (5_000, 1), (14_999, 2), (15_000, 3)] {
        assert_eq!(change.count(since + Duration::from_millis(milliseconds)), count);
    }
    let earlier = since.checked_sub(Duration::from_secs(1)).expect("the clock is older");
    assert_eq!(change.count(earlier), 0);
    // The number of keys that take turns is half of the keys, but at most a thousand or so.
    for (records, turns) in [(2, 1), (5, 2), (1_000_000, HOT_KEYS_MAX)] {
        let popularity = Popularity::Hot { percent: 1.0, change: Some(change) };
        let source = super::RequestSource::new(&Parameters { records, popularity }, 1);
        assert_eq!(source.popular.len() as u64, turns, "{records} records");
    }
}

/// The paper's Table 1: the most popular of a million keys gets 7 % of the increments at alpha 1, and 61 % at 2.
#[test]
fn popularity_falls_off_as_in_the_paper() {
    for (alpha, expected) in [(0.0, [0.0001, 0.0001]), (1.0, [6.95, 0.695]), (2.0, [60.8, 0.608])] {
        let percent = percent_of_ranks(1_000_000, alpha, 1, &[1, 10]);
        for (percent, expected) in percent.into_iter().zip(expected) {
            // In four million draws, 0.0005 % is twenty draws.
            assert!((percent - expected).abs() < 0.05 * expected + 0.0005, "{alpha}: {percent}");
        }
    }
}

#[test]
fn keys_are_sixteen_bytes_and_differ() {
    let mut keys: Vec<u128> = (0..100_000).map(key_of).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100_000);
    assert!(keys.iter().filter(|&&key| key >> 64 != 0).count() > 99_000);
}

const THREADS: usize = 4;

fn transactions_per_thread() -> u64 {
    1_500 * weft_tests::stress() as u64
}

/// Runs clients on as many threads as the protocol allows, and checks the invariants.
fn run<P: Protocol>(parameters: &Parameters, seed: u64) {
    let threads = THREADS.min(P::WORKERS_MAX);
    let incr: Incr<P> = load(parameters, seed, threads);
    thread::scope(|scope| {
        for thread in 0..threads {
            let incr = &incr;
            scope.spawn(move || {
                let mut client = incr.client(seed, thread, threads);
                for number in 0..transactions_per_thread() {
                    let outcome = incr.execute(&mut client).expect("it runs to its end");
                    assert!(!outcome.rolled_back);
                    if number % 8 == 0 {
                        // Yield so often that other threads run in between, even if there are few cores.
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let context = format!("{}, {parameters:?}, seed {seed}", P::NAME);
    assert_consistent(&incr, &context);
    let (increments, _) = incr.source.ledgers.changes();
    assert_eq!(increments, threads as u64 * transactions_per_thread(), "{context}");
}

/// This includes the protocols in which only single accesses are atomic.
#[test]
fn every_protocol_counts_every_increment() {
    assert!(PROTOCOLS.iter().any(|protocol| protocol.single_key));
    let change = Some(Change { since: Instant::now(), every: Duration::from_millis(1) });
    let moving = Popularity::Hot { percent: 80.0, change };
    let zipf = Popularity::Zipf { alpha: 1.4 };
    let mut settings = vec![hot(100.0), hot(50.0)];
    settings.extend([moving, zipf].map(|popularity| Parameters { records: 1_000, popularity }));
    for protocol in PROTOCOLS {
        for (seed, parameters) in settings.iter().enumerate() {
            with_protocol!(protocol.name, |P| run::<P>(parameters, seed as u64))
                .expect("a name of the list");
        }
    }
}

#[test]
fn the_load_is_the_same_on_any_number_of_threads() {
    for threads in [1, 3] {
        let parameters = Parameters { records: 25_000, ..hot(10.0) };
        let incr: Incr<Dbx> = load(&parameters, 6, threads);
        assert_consistent(&incr, &format!("{threads} threads"));
    }
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    const SEED: u64 = 7;
    let add = |incr: &Incr<Dbx>, key: u128, number: i64| {
        incr.database.transact(|tx| -> Result<(), Error> {
            let row = tx.update(&incr.counters, &key, |row: &mut Counter| row.value += number)?;
            row.expect("a counter");
            Ok(())
        })
    };
    let incr: Incr<Dbx> = load(&hot(50.0), SEED, 1);
    let mut client = incr.client(SEED, 0, 1);
    for _ in 0..1_000 {
        incr.execute(&mut client).expect("it runs to its end");
    }
    assert_consistent(&incr, "before");
    let hot = key_of(incr.source.popular[0]);
    // A counter that no transaction has incremented.
    let untouched = (1..1_000).map(key_of).find(|key| {
        let value = incr.database.transact(|tx| -> Result<i64, Error> {
            Ok(tx.get(&incr.counters, key)?.expect("a counter").value)
        });
        value.expect("it reads") == 0
    });
    let other = untouched.expect("there are more counters than transactions for them");

    add(&incr, hot, 1).expect("it is done");
    let found = broken(&incr);
    assert!(found.len() == 2 && found[0].contains("1001 and 1000"), "{found:?}");
    assert!(found[1].contains("popular"), "{found:?}");

    // Now the sum is right, but another counter has the increment.
    add(&incr, hot, -2).expect("it is done");
    add(&incr, other, 1).expect("it is done");
    let found = broken(&incr);
    assert!(found.len() == 1 && found[0].contains("popular"), "{found:?}");

    add(&incr, hot, 1).expect("it is done");
    add(&incr, other, -1).expect("it is done");
    assert_consistent(&incr, "repaired");

    let deleted = incr.database.transact(|tx| tx.delete(&incr.counters, &other));
    assert!(deleted.expect("it is done"));
    let found = broken(&incr);
    assert!(found.len() == 1 && found[0].contains("None"), "{found:?}");
}

#[test]
#[should_panic(expected = "1 records")]
fn hot_key_needs_a_second_key() {
    load::<Dbx>(&Parameters { records: 1, ..hot(50.0) }, 1, 1);
}
