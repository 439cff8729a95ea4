//! Seeded interleavings, tested on the smallest programs that go wrong by them.
#![cfg(all(feature = "interleave", not(any(loom, shuttle))))]

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;

use weft_htm::interleave::{
    self, Body, Mutex, Options, Run, SEED_VARIABLE, SpinCounter, Strategy, for_each_seed, run,
};
use weft_htm::word::{Ordering, Word, WordPointer, spin_loop, yield_now};

const STRATEGIES: [Strategy; 7] = [
    Strategy::FromSeed,
    Strategy::Random { one_in: 1 },
    Strategy::Random { one_in: 2 },
    Strategy::Random { one_in: 32 },
    Strategy::Priorities { changes: 0 },
    Strategy::Priorities { changes: 1 },
    Strategy::Priorities { changes: 4 },
];

fn with(strategy: Strategy, points_expected: u64) -> Options {
    Options { strategy, points_expected, ..Options::default() }
}

/// A lock that threads wait for by spinning.
#[derive(Default)]
struct SpinLock(Word);

impl SpinLock {
    fn lock(&self) {
        while self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.0.load(Ordering::Relaxed) != 0 {
                spin_loop();
            }
        }
    }

    fn unlock(&self) {
        self.0.store(0, Ordering::Release);
    }
}

fn increment(counter: &Word) {
    counter.store(counter.load(Ordering::Acquire) + 1, Ordering::Release);
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<String>() {
        Some(message) => message,
        None => panic.downcast_ref::<&str>().expect("a panic with a message"),
    }
}

fn panic_of<R>(body: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    catch_unwind(AssertUnwindSafe(body)).err().expect("a panic")
}

/// Runs three threads that use every kind of access and of wait. What they see depends on the interleaving.
fn everything(seed: u64, options: &Options) -> Run<Vec<u64>> {
    let (word, lock, mutex) = (Word::new(0), SpinLock::default(), Mutex::new(0));
    let mut targets = [0_u8; 3];
    let pointer = WordPointer::new(&raw mut targets[0]);
    let targets = Word::new((&raw mut targets).addr() as u64);
    let body = |thread: u64| {
        let mut seen = Vec::new();
        for round in 0..20 {
            seen.push(word.fetch_add(thread, Ordering::AcqRel));
            seen.push(word.swap(round, Ordering::AcqRel));
            word.fetch_or(thread, Ordering::AcqRel);
            seen.push(word.fetch_and(!1, Ordering::AcqRel));
            lock.lock();
            increment(&word);
            lock.unlock();
            let mut guard = mutex.lock().unwrap();
            *guard += thread;
            seen.push(*guard);
            let before = pointer.load(Ordering::Acquire);
            let _ = pointer.compare_exchange(
                before,
                before.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            seen.push(before.addr() as u64 - targets.load(Ordering::Relaxed));
            drop(guard);
            interleave::point();
            yield_now();
        }
        seen
    };
    run(
        seed,
        options,
        vec![Box::new(|| body(1)) as Body<'_, _>, Box::new(|| body(2)), Box::new(|| body(4))],
    )
}

/// Protects the promise of the seed: the same seed makes the same decisions at the same places, and every
/// thread sees the same values. Another seed makes other decisions.
#[test]
fn a_seed_repeats_the_run() {
    for strategy in STRATEGIES {
        let options = Options { trace: true, ..with(strategy, 500) };
        let mut fingerprints = Vec::new();
        for seed in 0..30 {
            let (one, other) = (everything(seed, &options), everything(seed, &options));
            assert_eq!(one.trace, other.trace, "{strategy}, seed {seed}");
            assert_eq!(one.results, other.results, "{strategy}, seed {seed}");
            assert_eq!(one.points, other.points);
            assert_eq!((one.fingerprint, one.switches), (other.fingerprint, other.switches));
            assert_eq!(one.strategy, other.strategy);
            assert_eq!(one.trace.len() as u64, one.switches);
            fingerprints.push(one.fingerprint);
        }
        fingerprints.sort_unstable();
        fingerprints.dedup();
        // Each round waits, and without changes of priority the threads then only take turns.
        let least = if strategy == (Strategy::Priorities { changes: 0 }) { 4 } else { 8 };
        assert!(fingerprints.len() >= least, "{strategy}: only {fingerprints:?}");
    }
}

/// Protects the trace: it says which thread ran after which, and at which places they switched.
#[test]
fn the_trace_tells_who_ran() {
    let options = Options { trace: true, ..with(Strategy::Random { one_in: 2 }, 0) };
    let ran = everything(7, &options);
    let mut turn = None;
    let mut point = 0;
    for switch in &ran.trace {
        assert_eq!(switch.from, turn);
        assert_ne!(switch.from, Some(switch.to));
        assert!(switch.point >= point && switch.point <= ran.points);
        if let Some(place) = switch.place {
            assert!(place.file().ends_with("interleave.rs"), "{place}");
        }
        (turn, point) = (Some(switch.to), switch.point);
    }
}

/// Protects the purpose: every strategy that switches finds a lost update within few seeds, and none is
/// reported where no update can be lost.
#[test]
fn a_lost_update_is_found() {
    const INCREMENTS: u64 = 5;
    for strategy in STRATEGIES {
        let mut losses = 0;
        for seed in 0..100 {
            let (racy, sound) = (Word::new(0), Word::new(0));
            let body = || {
                for _ in 0..INCREMENTS {
                    increment(&racy);
                    sound.fetch_add(1, Ordering::AcqRel);
                }
            };
            run(seed, &with(strategy, 30), vec![body; 2]);
            let racy = racy.load(Ordering::Acquire);
            assert!((1..=2 * INCREMENTS).contains(&racy));
            losses += u32::from(racy < 2 * INCREMENTS);
            assert_eq!(sound.load(Ordering::Acquire), 2 * INCREMENTS);
        }
        match strategy {
            Strategy::Priorities { changes: 0 } => assert_eq!(losses, 0),
            _ => assert!(losses >= 10, "{strategy}: {losses} of 100 seeds lose an update"),
        }
    }
}

/// Protects the supply of seeds: as many as asked for, all different, or the one that is to be repeated.
#[test]
fn seeds_are_fresh_or_the_given_one() {
    let mut seeds = HashSet::new();
    for_each_seed(7, |seed| assert!(seeds.insert(seed)));
    match std::env::var(SEED_VARIABLE) {
        Ok(given) => assert_eq!(seeds, HashSet::from([given.parse().unwrap()])),
        Err(_) => {
            assert_eq!(seeds.len(), 7);
            for_each_seed(7, |seed| assert!(!seeds.contains(&seed)));
        }
    }
}

/// Protects the theorem of Burckhardt et al.: a bug of depth d among n threads and k points is hit with a
/// probability of at least 1 / (n · k^(d−1)). Here d = 2: an assertion fails if it runs between two stores.
/// Exactly one of the k possible priority changes hits it, if the other thread has the higher priority. So the
/// bound is tight, and the number of hits is known from both sides.
#[test]
fn priorities_keep_the_promise_of_their_theorem() {
    const BEFORE: u64 = 6;
    const AFTER: u64 = 5;
    const POINTS: u64 = BEFORE + 2 + AFTER + 1;
    const SEEDS: u64 = 6000;
    let mut hits = 0;
    for seed in 0..SEEDS {
        let (other, broken) = (Word::new(0), Word::new(0));
        let breaks = || {
            (0..BEFORE).for_each(|_| other.store(1, Ordering::Release));
            broken.store(1, Ordering::Release);
            broken.store(0, Ordering::Release);
            (0..AFTER).for_each(|_| other.store(2, Ordering::Release));
            0
        };
        let looks = || broken.load(Ordering::Acquire);
        let bodies: Vec<Body<'_, u64>> = vec![Box::new(breaks), Box::new(looks)];
        let run = run(seed, &with(Strategy::Priorities { changes: 1 }, POINTS), bodies);
        assert_eq!(run.points, POINTS);
        hits += run.results[1];
    }
    // A binomial distribution of mean 214 and standard deviation 14.4.
    let mean = SEEDS / (2 * POINTS);
    assert!(hits.abs_diff(mean) < 75, "{hits} hits, {mean} expected");
}

/// Protects the meaning of priorities that never change: the threads run one after the other.
#[test]
fn priorities_without_changes_are_serial() {
    let mut firsts = [0; 3];
    for seed in 0..60 {
        let order = Mutex::new(Vec::new());
        let body = |thread: usize| {
            for _ in 0..50 {
                order.lock().unwrap().push(thread);
            }
        };
        let bodies: [Body<'_, ()>; 3] =
            [Box::new(|| body(0)), Box::new(|| body(1)), Box::new(|| body(2))];
        let run = run(seed, &with(Strategy::Priorities { changes: 0 }, 0), bodies.into());
        assert_eq!(run.switches, 3);
        let order = order.into_inner().unwrap();
        assert!(order.chunks(50).all(|chunk| chunk.iter().all(|&thread| thread == chunk[0])));
        firsts[order[0]] += 1;
    }
    assert!(firsts.iter().all(|&times| times > 5), "{firsts:?}");
}

/// Protects the locks: both kinds exclude, and a waiting thread never holds up the thread that it waits for,
/// whatever the priorities.
#[test]
fn locks_exclude_and_waits_end() {
    for strategy in STRATEGIES {
        for seed in 0..40 {
            let (spin, mutex) = (SpinLock::default(), Mutex::new(()));
            let (by_spin, by_mutex) = (Word::new(0), Word::new(0));
            let body = || {
                for _ in 0..10 {
                    spin.lock();
                    increment(&by_spin);
                    spin.unlock();
                    let guard = mutex.lock().unwrap();
                    increment(&by_mutex);
                    drop(guard);
                }
            };
            run(seed, &with(strategy, 300), vec![body; 4]);
            assert_eq!(by_spin.load(Ordering::Acquire), 40, "{strategy}, seed {seed}");
            assert_eq!(by_mutex.load(Ordering::Acquire), 40, "{strategy}, seed {seed}");
        }
    }
}

/// Protects the exploration across a mutex: threads do contend for it.
#[test]
fn threads_wait_at_a_mutex() {
    let contended = (0..20).any(|seed| {
        let (mutex, word) = (Mutex::new(()), Word::new(0));
        let body = || {
            let _guard = mutex.lock().unwrap();
            (0..10).for_each(|_| increment(&word));
        };
        let options = Options { trace: true, ..with(Strategy::Random { one_in: 2 }, 0) };
        let run = run(seed, &options, vec![body; 2]);
        // A thread that waits at the mutex passes the baton at the same place again and again.
        run.trace.windows(3).any(|switches| {
            let [one, _, next] = switches else { unreachable!() };
            one.from == next.from && one.from.is_some() && one.place == next.place
        })
    });
    assert!(contended);
}

/// Adds one when it is dropped.
struct Left<'a>(&'a Word);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Two threads take two locks in different orders, and each waits for the other before its second lock.
fn deadlock(seed: u64, strategy: Strategy, left: &Word) {
    let (first, second) = (SpinLock::default(), Mutex::new(()));
    let holding = Word::new(0);
    let meet = |wait: fn()| {
        holding.fetch_add(1, Ordering::AcqRel);
        while holding.load(Ordering::Acquire) < 2 {
            wait();
        }
    };
    let bodies: Vec<Body<'_, ()>> = vec![
        Box::new(|| {
            let _left = Left(left);
            let _guard = second.lock().unwrap();
            meet(spin_loop);
            first.lock();
        }),
        Box::new(|| {
            let _left = Left(left);
            first.lock();
            meet(yield_now);
            drop(second.lock());
        }),
        Box::new(|| increment(&Word::new(0))),
    ];
    run(seed, &Options { waits_max: 1000, ..with(strategy, 10) }, bodies);
}

/// Protects the tests from hanging: threads that wait for each other end in a panic that says the seed and
/// where each thread waits, and their destructors run.
#[test]
fn a_deadlock_is_reported() {
    // In parallel, because each deadlock takes a second to be called one.
    thread::scope(|scope| {
        for strategy in STRATEGIES {
            scope.spawn(move || {
                let left = Word::new(0);
                let panic = panic_of(|| deadlock(5, strategy, &left));
                let message = message(&*panic);
                assert!(message.starts_with("deadlock: "), "{message}");
                assert!(message.contains("WEFT_SEED=5 ("), "{message}");
                for waits in ["thread 0 waits at ", "thread 1 waits at ", "interleave.rs:"] {
                    assert!(message.contains(waits), "{message}");
                }
                assert!(message.contains("thread 2 has ended"), "{message}");
                assert_eq!(left.load(Ordering::Acquire), 2);
            });
        }
    });
}

/// Protects against threads that make progress but never end: the run is reported.
#[test]
fn a_run_without_end_is_reported() {
    for strategy in STRATEGIES {
        let word = Word::new(0);
        let options = Options { points_max: 20_000, ..with(strategy, 100) };
        let body = || {
            loop {
                word.fetch_add(1, Ordering::AcqRel);
                spin_loop();
            }
        };
        let panic = panic_of(|| run(9, &options, vec![body; 2]));
        let message = message(&*panic);
        assert!(message.starts_with("no end after so many points; WEFT_SEED=9 ("), "{message}");
        assert!(message.contains("20000 points"), "{message}");
    }
}

/// Protects the panics of bodies: the run panics with the first of them, after the other bodies have ended.
#[test]
fn a_panic_comes_out() {
    for strategy in STRATEGIES {
        let word = Word::new(0);
        let body = |panics: bool| {
            for _ in 0..20 {
                word.fetch_add(1, Ordering::AcqRel);
            }
            assert!(!panics, "on purpose");
        };
        let bodies: Vec<Body<'_, ()>> =
            vec![Box::new(|| body(false)), Box::new(|| body(true)), Box::new(|| body(false))];
        let panic = panic_of(|| run(1, &with(strategy, 60), bodies));
        assert_eq!(message(&*panic), "on purpose");
        assert_eq!(word.load(Ordering::Acquire), 60);
    }
}

/// Protects against hanging when a panic leaves a lock held that the others wait for.
#[test]
fn a_panic_with_a_lock_held_releases_the_others() {
    let lock = SpinLock::default();
    let body = || {
        lock.lock();
        panic!("with the lock held");
    };
    let options = Options { waits_max: 1000, ..Options::default() };
    let panic = panic_of(|| run(3, &options, vec![body; 3]));
    assert_eq!(message(&*panic), "with the lock held");
}

/// Protects poisoning, the mutex's way to report a panic to other threads.
#[test]
fn a_mutex_is_poisoned_by_a_panic() {
    let mutex = Mutex::new(0);
    let body = || {
        let _guard = mutex.lock().expect("not poisoned");
        panic!("in the lock");
    };
    let panic = panic_of(|| run(3, &Options::default(), vec![body; 2]));
    assert_eq!(message(&*panic), "in the lock");
    assert!(mutex.lock().is_err(), "in no run either");
    assert!(mutex.into_inner().is_err());
}

thread_local! {
    static FAREWELL: RefCell<Option<Farewell>> = const { RefCell::new(None) };
}

/// Increments a counter, with a race, when its thread ends.
struct Farewell(std::sync::Arc<Word>);

impl Drop for Farewell {
    fn drop(&mut self) {
        assert!(interleave::is_running());
        increment(&self.0);
    }
}

/// Protects the ends of threads: destructors of thread-locals are part of the run. They are interleaved and
/// repeated like everything else, and have ended when the run ends.
#[test]
fn destructors_of_thread_locals_are_interleaved() {
    let count = |seed| {
        let word = std::sync::Arc::new(Word::new(0));
        let body = || FAREWELL.set(Some(Farewell(word.clone())));
        let run = run(seed, &with(Strategy::Random { one_in: 2 }, 0), vec![body; 2]);
        assert_eq!(run.points, 4);
        (word.load(Ordering::Acquire), run.fingerprint)
    };
    let counts: Vec<_> = (0..50).map(count).collect();
    assert!(counts.iter().any(|(count, _)| *count == 1), "no race: {counts:?}");
    assert!(counts.iter().any(|(count, _)| *count == 2), "nothing but races: {counts:?}");
    assert_eq!(counts, (0..50).map(count).collect::<Vec<_>>());
}

/// Protects threads outside of any run: they go on at their own pace, and a run may wait for them.
#[test]
fn other_threads_are_left_alone() {
    assert!(!interleave::is_running());
    let (asked, answered) = (Word::new(0), Word::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while asked.load(Ordering::Acquire) == 0 {
                yield_now();
            }
            assert!(!interleave::is_running());
            answered.store(42, Ordering::Release);
        });
        let waits = || {
            assert!(interleave::is_running());
            asked.store(1, Ordering::Release);
            while answered.load(Ordering::Acquire) == 0 {
                spin_loop();
            }
            answered.load(Ordering::Acquire)
        };
        assert_eq!(run(0, &Options::default(), vec![waits; 2]).results, [42, 42]);
    });
}

/// Protects several tests in one process: runs do not affect each other.
#[test]
fn runs_side_by_side_do_not_mix() {
    let alone: Vec<u64> =
        (0..20).map(|seed| everything(seed, &Options::default()).fingerprint).collect();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for (seed, &fingerprint) in alone.iter().enumerate() {
                    let run = everything(seed as u64, &Options::default());
                    assert_eq!(run.fingerprint, fingerprint);
                }
            });
        }
    });
}

/// Protects the edge cases: no thread, and one thread, which may wait as much as it likes.
#[test]
fn none_and_one() {
    let none: Vec<fn()> = Vec::new();
    assert_eq!(run(1, &Options::default(), none).points, 0);
    let one = || {
        (0..100_000).for_each(|_| spin_loop());
        interleave::point();
        7
    };
    let run = run(1, &Options::default(), vec![one]);
    assert_eq!((run.results, run.points, run.switches), (vec![7], 1, 1));
}

/// Protects the speed of long pauses: if a thread accesses nothing between spins, not every spin is a switch.
#[test]
fn blind_pauses_are_few_switches() {
    let body = || (0..4096).for_each(|_| spin_loop());
    let run = run(1, &Options::default(), vec![body; 2]);
    assert!((20..60).contains(&run.switches), "{}", run.switches);
}

/// Protects the driver of step-wise schedules: it can tell a step that waits from one that answers, as often as
/// it asks.
#[test]
fn a_spin_counter_tells_who_waits() {
    let lock = Word::new(2);
    let spins = SpinCounter::new();
    let (answers, answer) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            spins.count(|| {
                for passed in [1, 0] {
                    while lock.load(Ordering::Acquire) > passed {
                        if passed == 0 { yield_now() } else { spin_loop() }
                    }
                    answers.send(passed).unwrap();
                }
            });
            // These are counted by no counter.
            (0..100).for_each(|_| spin_loop());
        });
        for passed in [1, 0] {
            for _ in 0..3 {
                assert!(spins.until_waiting(500, || answer.try_recv().is_ok()));
            }
            lock.store(passed, Ordering::Release);
            let mut heard = None;
            // However long it takes, the thread answers in the end, and does not count as waiting.
            while spins.until_waiting(u64::MAX, || {
                heard = answer.try_recv().ok();
                heard.is_some()
            }) {}
            assert_eq!(heard, Some(passed));
        }
    });
    assert!(spins.get() >= 3000);
    let counted = spins.get();
    spin_loop();
    assert_eq!(spins.get(), counted);
}

/// Protects nested counters: the inner one replaces the outer one, which is restored afterwards, also after a
/// panic.
#[test]
fn spin_counters_nest() {
    let (outer, inner) = (SpinCounter::new(), SpinCounter::new());
    outer.count(|| {
        spin_loop();
        let panic = panic_of(|| {
            inner.clone().count(|| {
                yield_now();
                panic!("inside");
            })
        });
        assert_eq!(message(&*panic), "inside");
        spin_loop();
    });
    assert_eq!((outer.get(), inner.get()), (2, 1));
}
