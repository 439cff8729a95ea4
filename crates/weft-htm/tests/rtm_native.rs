//! Regions on a processor with RTM. (On other processors these tests print that they are skipped;
//! `rtm_emulated.rs` has the tests for those.)
//!
//! Nothing can be injected here. The tests provoke aborts by what aborts a region according to the processor's
//! manual. Besides, any region may abort because an interrupt arrives. So the tests check exactly what a region
//! left, and of the counts only what no interrupt can change.
#![cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]

mod support;

use std::hint::black_box;
use std::thread;

use weft_htm::word::{Ordering, Word, spin_loop};
use weft_htm::{ElidedLock, Regions, RetryPolicy};

use support::{
    add, assert_consistent, forbidden_bodies, native, nest_a_region_that_aborts, never_locked,
    wait_for_a_locked_word,
};

/// Allows so many aborts of each cause that only a region that cannot commit gives up.
const PATIENT: RetryPolicy = RetryPolicy { conflict: 10_000, capacity: 50, system_event: 50 };

/// Protects the plain path: each region's stores are there once, its result is whole, and XTEST tells inside
/// from outside.
#[test]
fn regions_commit() {
    const RUNS: u64 = 10_000;
    native(PATIENT, |htm| {
        let regions = Regions::new(htm);
        let word = Word::new(0);
        for run in 1..=RUNS {
            let result = regions.run(
                |_| {
                    word.store(word.load(Ordering::Acquire) + 1, Ordering::Release);
                    (regions.is_inside(), [word.load(Ordering::Acquire); 20])
                },
                never_locked,
            );
            assert_eq!(result, Some((true, [run; 20])));
            assert!(!regions.is_inside());
        }
        assert_eq!(word.load(Ordering::Acquire), RUNS);
        let counted = regions.statistics();
        assert_eq!(counted.committed, RUNS);
        assert_consistent(counted, RUNS);
    });
}

/// Protects the wait: a region that finds a word locked is undone, says why, and is tried again when the lock
/// is free, not before.
#[test]
fn a_locked_word_is_waited_for() {
    native(PATIENT, |htm| {
        let regions = Regions::new(htm);
        wait_for_a_locked_word(&regions);
        assert_eq!(regions.statistics().aborted_explicit, 1);
        assert_consistent(regions.statistics(), 1);
    });
}

/// Protects liveness: a lock that is never released, and one that is taken again before every retry, both lead
/// to the software twin.
#[test]
fn a_lock_that_stays_ends_in_the_twin() {
    native(RetryPolicy { conflict: 100, ..PATIENT }, |htm| {
        let regions = Regions::new(htm);
        assert_eq!(regions.run(|region| region.abort_locked(), || true), None::<()>);
        assert_eq!(regions.statistics().aborted_explicit, 1);
        assert_eq!(regions.run(|region| region.abort_locked(), || false), None::<()>);
        assert_eq!(regions.statistics().aborted_explicit, 101);
        assert_consistent(regions.statistics(), 2);
    });
}

/// Protects the report of regions that are too large, and their rollback. The region writes more lines of one
/// set of the first-level cache than any processor has ways.
#[test]
fn too_many_written_lines_overflow() {
    const PAGE_WORDS: usize = 4096 / size_of::<Word>();
    const LINES: usize = 64;
    native(PATIENT, |htm| {
        let regions = Regions::new(htm);
        let words: Vec<Word> = (0..LINES * PAGE_WORDS).map(|_| Word::new(7)).collect();
        // Without this, the compiler could drop the stores: no code reads the words.
        let words = black_box(&words);
        let run = |lines: usize| {
            regions.run(
                |_| {
                    for line in 0..lines {
                        words[line * PAGE_WORDS + PAGE_WORDS / 2].store(1, Ordering::Relaxed);
                    }
                },
                never_locked,
            )
        };
        assert_eq!(run(LINES), None);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 7));
        let counted = regions.statistics();
        assert_eq!(counted.aborted_capacity, u64::from(PATIENT.capacity), "{counted:?}");
        assert_eq!(run(4), Some(()));
        assert_consistent(regions.statistics(), 2);
    });
}

/// Protects what the documentation forbids: each such body leads to the twin, leaves no effect, and does not
/// end the process.
#[test]
fn forbidden_bodies_end_in_the_twin() {
    for (name, body) in forbidden_bodies() {
        native(RetryPolicy { system_event: 2, ..PATIENT }, |htm| {
            let regions = Regions::new(htm);
            let word = Word::new(0);
            let result = regions.run(
                |_| {
                    word.store(1, Ordering::Relaxed);
                    body();
                },
                never_locked,
            );
            assert_eq!(result, None, "{name}");
            assert_eq!(word.load(Ordering::Relaxed), 0, "{name}");
            assert!(!thread::panicking());
            assert_eq!(regions.statistics().aborted_system_event, 2, "{name}");
            assert_consistent(regions.statistics(), 1);
        });
    }
}

/// Protects against lost and torn updates: two threads change the same words in regions, and a third reads them
/// in regions.
#[test]
fn regions_that_collide_lose_nothing() {
    const RUNS: u64 = 100_000;
    native(PATIENT, |htm| {
        let words: [Word; 24] = Default::default(); // // they span several lines
        let changes = || {
            let regions = Regions::new(htm);
            for _ in 0..RUNS {
                let done = regions.run(
                    |_| {
                        for (k, word) in (1..).zip(&words) {
                            word.store(word.load(Ordering::Relaxed) + k, Ordering::Relaxed);
                        }
                    },
                    never_locked,
                );
                assert_eq!(done, Some(()));
            }
            assert_consistent(regions.statistics(), RUNS);
        };
        let reads = || {
            let regions = Regions::new(htm);
            for _ in 0..RUNS {
                let read = || words.each_ref().map(|word| word.load(Ordering::Relaxed));
                let read = regions.run(|_| read(), never_locked).expect("the policy is patient");
                assert!((1..).zip(read).all(|(k, value)| value == k * read[0]), "{read:?}");
            }
        };
        thread::scope(|scope| {
            scope.spawn(changes);
            scope.spawn(changes);
            scope.spawn(reads);
        });
        for (k, word) in (1..).zip(&words) {
            assert_eq!(word.load(Ordering::Relaxed), k * 2 * RUNS);
        }
    });
}

/// Protects strong isolation, on which twins and readers outside of regions rely, and the report of conflicts.
/// An ordinary store of another thread aborts a region that has read the word. So the region of this test,
/// which waits for another value, can only end by an abort.
#[test]
fn an_ordinary_store_aborts_the_region_that_has_read_the_word() {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        return; // the other thread would run only after an interrupt
    }
    native(RetryPolicy { conflict: 1, system_event: 10_000, ..PATIENT }, |htm| {
        let (word, stop) = (Word::new(0), Word::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    word.fetch_add(1, Ordering::Relaxed);
                    (0..100).for_each(|_| spin_loop());
                }
            });
            let regions = Regions::new(htm);
            let waited = regions.run(
                |_| {
                    let first = word.load(Ordering::Relaxed);
                    while word.load(Ordering::Relaxed) == first {}
                },
                never_locked,
            );
            stop.store(1, Ordering::Relaxed);
            assert_eq!(waited, None);
            assert_eq!(regions.statistics().aborted_conflict, 1, "{:?}", regions.statistics());
        });
    });
}

/// Protects nested regions: they commit with the outermost one, and an abort inside undoes and retries the
/// outermost one as a whole.
#[test]
fn inner_regions_belong_to_the_outermost() {
    native(PATIENT, |htm| {
        let regions = Regions::new(htm);
        nest_a_region_that_aborts(&regions);
        let counted = regions.statistics();
        assert_eq!((counted.aborted_explicit, counted.fallbacks), (1, 0));
    });
}

/// Protects the region that outlives its function: when it aborts, the frame of `enter` is gone and
/// overwritten. Some aborts come when another thread's stores hit a word that the section has read, so
/// anywhere. Others come, for certain, at a system call deep in the section.
#[test]
fn an_abort_takes_the_thread_back_into_enter() {
    const SECTIONS: u64 = 20_000;
    let policy = RetryPolicy { conflict: 100, capacity: 2, system_event: 2 };
    native(policy, |htm| {
        let lock = ElidedLock::default();
        let (word, noise, stop) = (Word::new(0), Word::new(0), Word::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    noise.fetch_add(1, Ordering::Relaxed);
                    (0..100).for_each(|_| spin_loop());
                }
            });
            let regions = Regions::new(htm);
            for section in 0..SECTIONS {
                let kept = black_box((section, section as f64 + 0.5));
                lock.enter(&regions);
                let noise_before = noise.load(Ordering::Relaxed);
                let was_inside = regions.is_inside();
                let sum = add(&word, 5);
                if section % 100 == 0 && was_inside {
                    thread::yield_now();
                    unreachable!("a system call ends the region");
                }
                let noise_after = noise.load(Ordering::Relaxed);
                lock.leave(&regions);
                assert_eq!(sum, 1 + 2 + 3 + 4 + 5);
                assert_eq!(kept, (section, section as f64 + 0.5));
                assert_eq!(word.load(Ordering::Acquire), section + 1, "done once");
                assert!(!was_inside || noise_before == noise_after, "not atomic");
            }
            stop.store(1, Ordering::Relaxed);
            let counted = regions.statistics();
            assert_consistent(counted, SECTIONS);
            assert!(counted.fallbacks >= SECTIONS / 100, "{counted:?}");
            assert!(counted.committed > SECTIONS / 2, "{counted:?}");
        });
    });
}
