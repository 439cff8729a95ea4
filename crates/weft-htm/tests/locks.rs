//! Elision of the locks of [`weft_htm::lock`]. The tests run with the machine code of regions executed by the
//! emulator of `weft-rtm-emulator`, where every abort is planned, and on a processor with RTM, where aborts are
//! provoked.
#![cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]

mod support;

use std::cell::Cell;
use std::thread;

use weft_htm::lock::{Elidable, Lock, Mcs, Mode, OccRwLock, SrwLock, Tatas};
use weft_htm::word::{Ordering, Word, spin_loop, yield_now};
use weft_htm::{Htm, Regions, RetryPolicy, Statistics};
use weft_rtm_emulator::{Moment, Processor, status};

use support::hardware::{emulated, hardware, on_thread};
use support::{add, assert_consistent, native};

/// Elidable locks have a retry policy of their own. This one, for other regions, must not matter.
const OTHERS: RetryPolicy = RetryPolicy { conflict: 50, capacity: 50, system_event: 50 };

/// Calls a test for each lock.
macro_rules! for_each_lock {
    ($test:ident) => {
        $test::<Tatas>();
        $test::<Mcs>();
        $test::<OccRwLock>();
        $test::<SrwLock>();
    };
}

/// Protects the policy: the number of attempts depends on the statuses of the aborts, and then the lock is
/// taken.
fn statuses_decide<L: Lock>() {
    let conflict = status::CONFLICT | status::RETRY;
    let cases = [
        // A status, how many regions end with it, how many attempts are expected, and whether one commits.
        (conflict, 1, 2, true),
        (conflict, 9, 2, false),
        (status::CAPACITY | status::RETRY, 1, 2, true),
        (status::CAPACITY | status::RETRY, 9, 2, false),
        (status::CAPACITY, 1, 1, false),
        (0, 1, 1, false),
        (status::explicit(0x2a), 1, 1, false), // // an XABORT that is not Weft's
    ];
    for (cause, aborts, attempts, commits) in cases {
        for mode in [Mode::Shared, Mode::Exclusive] {
            emulated(Processor::default(), OTHERS, |emulation, htm| {
                let (lock, word, regions) =
                    (Elidable::<L>::new(true), Word::new(0), Regions::new(htm));
                emulation.plan(Moment::AtEnd, cause, aborts);
                let inside = lock.section(mode, &regions, || {
                    add(&word, 3);
                    (regions.is_inside(), lock.lock().excludes(Mode::Exclusive))
                });
                let context = format!("{}, status {cause:#x}, {aborts} times", L::NAME);
                assert_eq!(
                    inside,
                    (commits, !commits),
                    "{context}: in a region, or under the lock"
                );
                assert_eq!(word.load(Ordering::Acquire), 1, "{context}: done once");
                assert!(!lock.lock().excludes(Mode::Exclusive), "{context}: free");
                let counted = regions.statistics();
                assert_consistent(counted, 1);
                assert_eq!(counted.started, attempts, "{context}");
                assert_eq!(counted.fallbacks, u64::from(!commits), "{context}");
                // Drop the aborts that are left of the plan, before the next region.
                emulation.plan(Moment::AtEnd, cause, 0);
            });
        }
    }
}

#[test]
fn the_status_of_an_abort_decides() {
    for_each_lock!(statuses_decide);
}

/// Protects the attempt that does not wait: one region, then one try to take the lock.
fn attempt_once<L: Lock>() {
    emulated(Processor::default(), OTHERS, |emulation, htm| {
        let (lock, regions) = (Elidable::<L>::new(true), Regions::new(htm));
        let attempt = || lock.attempt(Mode::Exclusive, &regions, || regions.is_inside());
        assert_eq!(attempt(), Some(true));
        emulation.plan(Moment::AtEnd, status::CONFLICT | status::RETRY, 1);
        assert_eq!(attempt(), Some(false), "the lock is taken at once");
        assert_eq!(lock.lock().hold(Mode::Exclusive, attempt), None);
        let counted = regions.statistics();
        let expected = Statistics {
            started: 3,
            committed: 1,
            aborted_conflict: 1,
            aborted_explicit: 1,
            fallbacks: 2,
            ..Statistics::default()
        };
        assert_eq!(counted, expected);
    });
}

#[test]
fn an_attempt_is_one() {
    for_each_lock!(attempt_once);
}

/// Protects the subscription and the wait. A section whose lock another thread holds does not begin before that
/// thread releases it. Then it runs in a region, if nothing else aborts it.
fn held_lock_is_waited_for<L: Lock>() {
    let Some((htm, _)) = hardware(OTHERS) else { return };
    let lock = Elidable::<L>::new(true);
    // 0: no thread is inside. 1: the holder is. 2: the other thread has begun to try.
    let (stage, words) = (Word::new(0), [Word::new(0), Word::new(0)]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _emulation = on_thread(0, 2);
            lock.lock().hold(Mode::Exclusive, || {
                words[0].store(1, Ordering::Release);
                stage.store(1, Ordering::Release);
                while stage.load(Ordering::Acquire) != 2 {
                    yield_now();
                }
                // Wait until the other thread has surely found the lock held.
                (0..50).for_each(|_| yield_now());
                words[1].store(1, Ordering::Release);
            });
        });
        let _emulation = on_thread(0, 3);
        let regions = Regions::new(&htm);
        while stage.load(Ordering::Acquire) != 1 {
            yield_now();
        }
        stage.store(2, Ordering::Release);
        for mode in [Mode::Shared, Mode::Exclusive] {
            let seen = lock.section(mode, &regions, || {
                words.each_ref().map(|word| word.load(Ordering::Acquire))
            });
            assert_eq!(seen, [1, 1], "{}: half of a section is seen", L::NAME);
        }
        assert_consistent(regions.statistics(), 2);
    });
}

#[test]
fn a_lock_that_is_held_is_waited_for() {
    for_each_lock!(held_lock_is_waited_for);
}

/// Protects mutual exclusion of sections in regions and sections under the lock, readers among them. Some
/// threads force the lock by a system call half-way.
fn nothing_is_lost<L: Lock>() {
    let Some((htm, _)) = hardware(OTHERS) else { return };
    const THREADS: u64 = 3;
    const SECTIONS: u64 = 60;
    let (lock, words) = (Elidable::<L>::new(true), [Word::new(0), Word::new(0)]);
    let total: Statistics = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (htm, lock, words) = (&htm, &lock, &words);
                scope.spawn(move || {
                    let _emulation = on_thread(1_000, thread + 2);
                    let regions = Regions::new(htm);
                    for section in 0..SECTIONS {
                        lock.section(Mode::Exclusive, &regions, || {
                            let before = words.each_ref().map(|w| w.load(Ordering::Acquire));
                            assert_eq!(before[0], before[1], "half of a section is seen");
                            add(&words[0], 1);
                            if section % 8 == thread {
                                yield_now();
                            }
                            add(&words[1], 1);
                        });
                        lock.section(Mode::Shared, &regions, || {
                            let seen = words.each_ref().map(|w| w.load(Ordering::Acquire));
                            if section % 16 == thread {
                                yield_now();
                            }
                            assert_eq!(seen[0], seen[1], "half of a section is seen");
                            let again = words.each_ref().map(|w| w.load(Ordering::Acquire));
                            assert_eq!(seen, again, "a writer beside a reader");
                        });
                    }
                    regions.statistics()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    assert_eq!(words.map(|word| word.load(Ordering::Acquire)), [THREADS * SECTIONS; 2]);
    assert_eq!(total.committed + total.fallbacks, 2 * THREADS * SECTIONS, "{}", L::NAME);
    assert!(total.committed > 0 && total.fallbacks > 0, "{}: {total:?}", L::NAME);
    assert!(!lock.lock().excludes(Mode::Exclusive), "{}: free", L::NAME);
}

#[test]
fn regions_and_locks_lose_no_increment() {
    for_each_lock!(nothing_is_lost);
}

/// Protects the subscription after the region's first look. The section loops, in its region, for ever. Only
/// the store of another thread that takes the lock can end it, by hitting the lock's word.
fn taking_the_lock_aborts<L: Lock>(htm: &Htm) {
    let (lock, stop) = (Elidable::<L>::new(true), Word::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                lock.lock().hold(Mode::Exclusive, || ());
                (0..1_000).for_each(|_| spin_loop());
            }
        });
        let regions = Regions::new(htm);
        let sections = Cell::new(0_u64);
        while regions.statistics().aborted_conflict < 3 {
            lock.section(Mode::Exclusive, &regions, || while regions.is_inside() {});
            sections.set(sections.get() + 1);
        }
        stop.store(1, Ordering::Relaxed);
        let counted = regions.statistics();
        assert_consistent(counted, sections.get());
        assert_eq!(counted.committed, 0, "{}: {counted:?}", L::NAME);
    });
}

#[test]
fn a_lock_that_is_taken_aborts_the_regions_that_have_read_it() {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        return; // // the other thread would run only after an interrupt
    }
    native(OTHERS, |htm| {
        taking_the_lock_aborts::<Tatas>(htm);
        taking_the_lock_aborts::<Mcs>(htm);
        taking_the_lock_aborts::<OccRwLock>(htm);
        taking_the_lock_aborts::<SrwLock>(htm);
    });
}

/// Protects nested sections: in a region the inner one is part of the outer one, and what the two write appears
/// once.
#[test]
fn inner_sections_belong_to_the_outermost() {
    native(OTHERS, |htm| {
        let regions = Regions::new(htm);
        let (outer, inner) = (Elidable::<SrwLock>::new(true), Elidable::<Mcs>::new(true));
        let (words, mut elided) = ([Word::new(0), Word::new(0)], 0);
        for _ in 0..1_000 {
            let was_inside = outer.section(Mode::Shared, &regions, || {
                add(&words[0], 1);
                inner.section(Mode::Exclusive, &regions, || {
                    add(&words[1], 1);
                    regions.is_inside()
                })
            });
            elided += u64::from(was_inside);
        }
        assert_eq!(words.map(|word| word.load(Ordering::Acquire)), [1_000, 1_000]);
        assert!(elided > 500, "{elided} of 1,000: {:?}", regions.statistics());
        assert!(!outer.lock().excludes(Mode::Exclusive) && !inner.lock().excludes(Mode::Exclusive));
    });
}
