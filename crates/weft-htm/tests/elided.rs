//! [`ElidedLock`] with real machine code of regions, executed by the emulator of `weft-rtm-emulator`. The tests
//! cover sections that reach over function calls, and the mutual exclusion of sections in regions and sections
//! under the lock. The last of them also runs on a processor with RTM. (`rtm_native.rs` has the other tests on
//! one.)
#![cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]

mod support;

use std::hint::black_box;
use std::thread;

use weft_htm::word::{Ordering, Word, yield_now};
use weft_htm::{ElidedLock, Regions, RetryPolicy, Statistics};
use weft_rtm_emulator::{Moment, Processor, status};

use support::add;
use support::hardware::{emulated, hardware, on_thread};

const POLICY: RetryPolicy = RetryPolicy { conflict: 3, capacity: 1, system_event: 2 };

/// Protects the main property. When the abort comes, at whatever instruction, the frame of `enter` is gone and
/// overwritten. Nothing of the section remains, and it is done again.
#[test]
fn an_abort_takes_the_thread_back_into_enter() {
    emulated(Processor::default(), POLICY, |emulation, htm| {
        let (lock, word) = (ElidedLock::default(), Word::new(0));
        let regions = Regions::new(htm);
        let (mut sections, mut instruction, mut aborted) = (0, 0, 0);
        loop {
            emulation.plan(Moment::Before(instruction), status::CONFLICT, 1);
            let kept = black_box((sections, instruction, f64::from(instruction) + 0.5));
            lock.enter(&regions);
            let sum = add(&word, 5);
            lock.leave(&regions);
            sections += 1;
            assert_eq!(sum, 1 + 2 + 3 + 4 + 5);
            assert_eq!(kept, (sections - 1, instruction, f64::from(instruction) + 0.5));
            assert_eq!(word.load(Ordering::Acquire), sections, "done once, before {instruction}");
            let aborts = regions.statistics().aborted_conflict;
            if aborts == aborted {
                // The region has fewer instructions than that.
                break;
            }
            aborted = aborts;
            instruction += 1 + instruction / 64;
        }
        assert!(aborted > 40, "only {aborted} aborts");
        assert_eq!(regions.statistics().committed, sections);
        assert_eq!(regions.statistics().fallbacks, 0);
    });
}

/// Protects the retry policy and the fallback. It also protects regions within a section: they are part of the
/// section's region, or, under the lock, left to their twin.
#[test]
fn a_section_that_keeps_aborting_takes_the_lock() {
    emulated(Processor::default(), POLICY, |emulation, htm| {
        let (lock, word) = (ElidedLock::default(), Word::new(0));
        let regions = Regions::new(htm);
        let section = || {
            lock.enter(&regions);
            let inner = regions.run(
                |_| {
                    add(&word, 0);
                    regions.is_inside()
                },
                || panic!("nothing is locked"),
            );
            if inner.is_none() {
                assert!(!regions.is_inside());
                add(&word, 0);
            }
            lock.leave(&regions);
            inner
        };
        assert_eq!(section(), Some(true));
        let one = Statistics { started: 1, committed: 1, ..Statistics::default() };
        assert_eq!(regions.statistics(), one, "the inner region is not counted");
        emulation.plan(Moment::AtEnd, status::CONFLICT, POLICY.conflict);
        assert_eq!(section(), None);
        let given_up = Statistics { started: 4, aborted_conflict: 3, fallbacks: 1, ..one };
        assert_eq!(regions.statistics(), given_up);
        assert_eq!(section(), Some(true), "and then regions again");
        assert_eq!(word.load(Ordering::Acquire), 3);
        // Outside of any section the same regions run as usual.
        assert_eq!(regions.run(|_| regions.is_inside(), || false), Some(true));
        assert_eq!(regions.statistics().committed, 3);
    });
}

/// Protects mutual exclusion of sections in regions and sections under the lock. Some threads force the lock by
/// a system call half-way.
#[test]
fn regions_and_the_lock_lose_no_increment() {
    let Some((htm, _)) = hardware(POLICY) else { return };
    const THREADS: u64 = 3;
    const SECTIONS: u64 = 60;
    let (lock, words) = (ElidedLock::default(), [Word::new(0), Word::new(0)]);
    let total: Statistics = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (htm, lock, words) = (&htm, &lock, &words);
                scope.spawn(move || {
                    let _emulation = on_thread(1_000, thread + 2);
                    let regions = Regions::new(htm);
                    for section in 0..SECTIONS {
                        lock.enter(&regions);
                        let before = words.each_ref().map(|word| word.load(Ordering::Acquire));
                        assert_eq!(before[0], before[1], "half of a section is seen");
                        add(&words[0], 1);
                        if section % 8 == thread {
                            yield_now();
                        }
                        add(&words[1], 1);
                        lock.leave(&regions);
                    }
                    regions.statistics()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    assert_eq!(words[0].load(Ordering::Acquire), THREADS * SECTIONS);
    assert_eq!(total.committed + total.fallbacks, THREADS * SECTIONS);
    assert!(total.committed > 0 && total.fallbacks > 0, "{total:?}");
}
