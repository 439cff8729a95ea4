//! Shared code of the tests of regions.
#![allow(dead_code, reason = "no test needs all of it")]

#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod hardware;

use std::cell::Cell;
use std::hint::black_box;
use std::thread;

use weft_htm::word::{Ordering, Word, spin_loop};
use weft_htm::{Backend, Choice, Htm, Regions, RetryPolicy, Statistics};

/// Runs `test` with the processor's own regions, if it has RTM.
pub fn native(policy: RetryPolicy, test: impl FnOnce(&Htm)) {
    match Htm::open(Choice::Rtm, policy) {
        Ok(htm) => {
            assert_eq!(htm.backend(), Backend::Rtm);
            test(&htm);
        }
        Err(why) => eprintln!("skipped: {why}"),
    }
}

/// The lock test of a region that finds no word locked. It must not be called.
pub fn never_locked() -> bool {
    panic!("asked for a lock that no region met")
}

/// Asserts that every run either committed or gave up, and that every region started ended in one way.
pub fn assert_consistent(counted: Statistics, runs: u64) {
    assert_eq!(counted.committed + counted.fallbacks, runs, "{counted:?}");
    let aborted = counted.aborted_conflict
        + counted.aborted_capacity
        + counted.aborted_system_event
        + counted.aborted_explicit;
    assert_eq!(counted.started, counted.committed + aborted, "{counted:?}");
}

/// Adds 1 to `word` in a call `depth` frames down, so that frames come and go within the section.
#[inline(never)]
pub fn add(word: &Word, depth: u64) -> u64 {
    let below = black_box([depth; 16]);
    if depth > 0 {
        add(word, depth - 1) + below[15]
    } else {
        word.store(word.load(Ordering::Acquire) + 1, Ordering::Release);
        below[0]
    }
}

/// Runs a region that finds a word locked. It is undone, the lock is tested outside until it is free, and only
/// then is the region tried again.
pub fn wait_for_a_locked_word(regions: &Regions) {
    let (lock, word, asked) = (Word::new(1), Word::new(7), Cell::new(0));
    let result = regions.run(
        |region| {
            word.store(99, Ordering::Release);
            if lock.load(Ordering::Acquire) != 0 {
                region.abort_locked();
            }
        },
        || {
            assert!(!regions.is_inside());
            assert_eq!(word.load(Ordering::Acquire), 7);
            asked.set(asked.get() + 1);
            if asked.get() == 5 {
                lock.store(0, Ordering::Release);
            }
            lock.load(Ordering::Acquire) != 0
        },
    );
    assert_eq!(result, Some(()));
    assert_eq!(word.load(Ordering::Acquire), 99);
    assert_eq!(asked.get(), 5);
}

/// Runs a region within a region. The inner one aborts at first, and the outer one is undone and retried with
/// it.
pub fn nest_a_region_that_aborts(regions: &Regions) {
    let (lock, outer, inner) = (Word::new(1), Word::new(0), Word::new(0));
    let result = regions.run(
        |_| {
            outer.store(outer.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let nested = regions.run(
                |region| {
                    inner.store(inner.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    if lock.load(Ordering::Relaxed) != 0 {
                        region.abort_locked();
                    }
                },
                never_locked,
            );
            (nested, regions.is_inside())
        },
        || {
            lock.store(0, Ordering::Relaxed);
            false
        },
    );
    assert_eq!(result, Some((Some(()), true)));
    assert_eq!(outer.load(Ordering::Relaxed), 1);
    assert_eq!(inner.load(Ordering::Relaxed), 1);
}

/// Returns bodies that do what the documentation forbids in regions, by name.
pub fn forbidden_bodies() -> [(&'static str, fn()); 5] {
    let page_fault = || {
        let nowhere = std::ptr::with_exposed_provenance_mut::<u8>(black_box(0));
        // SAFETY: there is no argument: the fault of this store to an unmapped page is what the test provokes.
        // It runs only inside a region, which suppresses it.
        unsafe { nowhere.write_volatile(1) }
    };
    [
        ("page fault", page_fault),
        ("system call", || thread::yield_now()),
        ("pause", || spin_loop()),
        ("panic", || panic!("inside a region")),
        ("endless", || while black_box(true) {}),
    ]
}
