//! The real machine code of RTM regions, executed by the emulator of `weft-rtm-emulator`, so that these tests
//! need no processor with RTM. (A processor with RTM traps nothing. There the tests print that they are
//! skipped; `rtm_native.rs` has the tests for it.)
#![cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]

mod support;

use std::cell::Cell;
use std::hint::black_box;

use weft_htm::word::{Ordering, Word};
use weft_htm::{Regions, RetryPolicy, Statistics};
use weft_rtm_emulator::{Emulation, Moment, Processor, status};

use support::{forbidden_bodies, nest_a_region_that_aborts, never_locked, wait_for_a_locked_word};

/// The operand of the XABORT by which a region says that it found a word locked.
const LOCKED: u8 = 0xff;

/// DBX's policy (§6.1): the thresholds of all causes differ.
const PAPER: RetryPolicy = RetryPolicy { conflict: 100, capacity: 10, system_event: 2 };

/// Runs `test` with the regions of a thread that has an emulated `processor`, if this machine allows it.
fn emulated(processor: Processor, policy: RetryPolicy, test: impl FnOnce(&Emulation, &Regions)) {
    support::hardware::emulated(processor, policy, |emulation, htm| {
        test(emulation, &Regions::new(htm))
    });
}

/// Protects the plain path: the stores are visible, the result is whole, XTEST tells inside from outside, and
/// one commit is counted.
#[test]
fn a_region_commits() {
    emulated(Processor::default(), RetryPolicy::default(), |emulation, regions| {
        let word = Word::new(41);
        let result = regions.run(
            |_| {
                word.store(word.load(Ordering::Acquire) + 1, Ordering::Release);
                (regions.is_inside(), [word.load(Ordering::Acquire); 20])
            },
            never_locked,
        );
        assert_eq!(result, Some((true, [42; 20])));
        assert!(!regions.is_inside());
        assert_eq!(word.load(Ordering::Acquire), 42);
        assert_eq!(
            regions.statistics(),
            Statistics { started: 1, committed: 1, ..Statistics::default() }
        );
        assert_eq!(emulation.counts().committed, 1);
    });
}

/// Protects the rollback wherever an abort strikes: before each of the first instructions, and then in growing
/// steps up to the last. Nothing of the region remains in shared words, on the stack or in registers.
#[test]
fn an_abort_at_any_instruction_leaves_nothing() {
    abort_at_any_instruction(Processor::default());
}

/// The same on a system that gives the emulator no page for copies of instructions.
#[test]
fn an_abort_at_any_instruction_in_place_leaves_nothing() {
    abort_at_any_instruction(Processor { out_of_line: false, ..Processor::default() });
}

fn abort_at_any_instruction(processor: Processor) {
    let once = RetryPolicy { conflict: 1, capacity: 1, system_event: 1 };
    emulated(processor, once, |emulation, regions| {
        let words: [Word; 24] = Default::default();
        let cell = Cell::new(5_u64);
        let mut rolled_back = 0;
        let mut instruction = 0_u32;
        loop {
            emulation.plan(Moment::Before(instruction), status::CONFLICT, 1);
            let kept = black_box(instruction);
            let real = black_box(f64::from(instruction) + 0.5);
            let result = regions.run(
                |_| {
                    cell.set(cell.get() + 1);
                    for (k, word) in words.iter().enumerate() {
                        word.store(word.load(Ordering::Relaxed) + k as u64, Ordering::Relaxed);
                    }
                    let squares: [f64; 8] = std::array::from_fn(|k| real * k as f64);
                    black_box(squares).iter().sum::<f64>()
                },
                never_locked,
            );
            assert_eq!(kept, instruction);
            assert_eq!(real, f64::from(instruction) + 0.5);
            if let Some(sum) = result {
                assert_eq!(sum, real * 28.0);
                break;
            }
            rolled_back += 1;
            instruction += 1 + instruction / 128;
            assert_eq!(cell.get(), 5, "aborted before instruction {instruction}");
            for word in &words {
                assert_eq!(word.load(Ordering::Relaxed), 0, "before instruction {instruction}");
            }
        }
        assert!(rolled_back > 24, "only {rolled_back} aborts");
        assert_eq!(cell.get(), 6);
        for (k, word) in words.iter().enumerate() {
            assert_eq!(word.load(Ordering::Relaxed), k as u64);
        }
        assert_eq!(regions.statistics().aborted_conflict, rolled_back);
        assert_eq!(regions.statistics().fallbacks, rolled_back);
    });
}

/// Protects the wait: a region that finds a word locked is undone, the lock is tested outside until it is free,
/// and only then is the region tried again.
#[test]
fn a_locked_word_is_waited_for() {
    emulated(Processor::default(), RetryPolicy::default(), |emulation, regions| {
        wait_for_a_locked_word(regions);
        assert_eq!(emulation.counts().last_status, status::explicit(LOCKED));
        assert_eq!(
            regions.statistics(),
            Statistics { started: 2, committed: 1, aborted_explicit: 1, ..Statistics::default() }
        );
    });
}

/// Protects liveness. A lock that is never released, and one that is taken again before every retry, both lead
/// to the software twin, after the documented bounds.
#[test]
fn a_lock_that_stays_ends_in_the_twin() {
    emulated(Processor::default(), PAPER, |_, regions| {
        let never_released = regions.run(|region| region.abort_locked(), || true);
        assert_eq!(never_released, None::<()>);
        assert_eq!(
            regions.statistics(),
            Statistics { started: 1, aborted_explicit: 1, fallbacks: 1, ..Statistics::default() }
        );
    });
    emulated(Processor::default(), PAPER, |_, regions| {
        let taken_again = regions.run(|region| region.abort_locked(), || false);
        assert_eq!(taken_again, None::<()>);
        assert_eq!(
            regions.statistics(),
            Statistics {
                started: 100,
                aborted_explicit: 100,
                fallbacks: 1,
                ..Statistics::default()
            }
        );
    });
}

/// Protects the thresholds: after one abort less than the threshold of its cause the run commits, and after
/// exactly that many it gives up.
#[test]
fn each_cause_has_its_threshold() {
    for (cause, threshold) in [
        (status::CONFLICT | status::RETRY, 100),
        (status::CAPACITY, 10),
        (0, 2),
        (status::DEBUG, 2),
        (status::explicit(0x2a), 2), // // an XABORT that is not Weft's
    ] {
        for (aborts, commits) in [(threshold - 1, true), (threshold, false)] {
            emulated(Processor::default(), PAPER, |emulation, regions| {
                let word = Word::new(0);
                emulation.plan(Moment::AtEnd, cause, aborts);
                let result = regions.run(
                    |_| word.store(word.load(Ordering::Acquire) + 1, Ordering::Release),
                    never_locked,
                );
                assert_eq!(result.is_some(), commits, "{aborts} times status {cause:#x}");
                assert_eq!(word.load(Ordering::Acquire), u64::from(commits));
                assert_eq!(emulation.counts().begun, u64::from(threshold));
                let counted = regions.statistics();
                assert_eq!(counted.started, u64::from(threshold));
                assert_eq!(counted.fallbacks, u64::from(!commits));
                let of_cause = match threshold {
                    100 => counted.aborted_conflict,
                    10 => counted.aborted_capacity,
                    _ => counted.aborted_system_event,
                };
                assert_eq!(of_cause, u64::from(aborts), "status {cause:#x}");
            });
        }
    }
}

/// Protects the counting across causes: conflicts and locked words share a threshold, capacity has its own.
#[test]
fn thresholds_are_counted_apart() {
    emulated(Processor::default(), PAPER, |emulation, regions| {
        emulation.plan(Moment::Before(0), status::CONFLICT, 60);
        let result = regions.run(|region| region.abort_locked(), || false);
        assert_eq!(result, None::<()>);
        let counted = regions.statistics();
        assert_eq!((counted.aborted_conflict, counted.aborted_explicit), (60, 40));
    });
    emulated(Processor::default(), PAPER, |emulation, regions| {
        let lines = SameSet::new();
        emulation.plan(Moment::Before(0), status::CONFLICT, 99);
        assert_eq!(regions.run(|_| lines.write(9), never_locked), None);
        let counted = regions.statistics();
        assert_eq!((counted.aborted_conflict, counted.aborted_capacity), (99, 10));
    });
}

/// Words that all fall into one set of the first-level cache.
struct SameSet(Vec<Word>);

impl SameSet {
    const WORDS_APART: usize = 4096 / size_of::<Word>();

    fn new() -> SameSet {
        SameSet((0..32 * Self::WORDS_APART).map(|_| Word::new(0)).collect())
    }

    fn write(&self, lines: usize) {
        // Without this, the compiler could drop the stores: no code reads the words.
        let words = black_box(&self.0);
        for line in 0..lines {
            // Halfway through a page: the stack, to which the region also writes, is seldom there.
            words[line * Self::WORDS_APART + Self::WORDS_APART / 2].store(1, Ordering::Relaxed);
        }
    }
}

/// Protects the report of regions that are too large: they are distinguished from conflicts, and retried less
/// often.
#[test]
fn too_many_written_lines_of_one_set_overflow() {
    emulated(Processor::default(), RetryPolicy::default(), |emulation, regions| {
        let lines = SameSet::new();
        assert_eq!(regions.run(|_| lines.write(6), never_locked), Some(()));
        assert_eq!(regions.run(|_| lines.write(9), never_locked), None);
        assert_eq!(emulation.counts().last_status, status::CAPACITY);
        assert_eq!(
            regions.statistics(),
            Statistics {
                started: 11,
                committed: 1,
                aborted_capacity: 10,
                fallbacks: 1,
                ..Statistics::default()
            }
        );
    });
}

/// Protects what the documentation forbids: each such body leads to the twin after two tries, leaves no effect,
/// and does not end the process.
#[test]
fn forbidden_bodies_end_in_the_twin() {
    let impatient = Processor { instructions: 10_000, ..Processor::default() };
    for (name, body) in forbidden_bodies() {
        emulated(impatient, RetryPolicy::default(), |emulation, regions| {
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
            assert!(!std::thread::panicking());
            assert_eq!(emulation.counts().last_status, 0, "{name}");
            assert_eq!(
                regions.statistics(),
                Statistics {
                    started: 2,
                    aborted_system_event: 2,
                    fallbacks: 1,
                    ..Statistics::default()
                },
                "{name}"
            );
        });
    }
}

/// Protects nested regions: they commit with the outermost one, and an abort inside undoes and retries the
/// outermost one as a whole.
#[test]
fn inner_regions_belong_to_the_outermost() {
    emulated(Processor::default(), RetryPolicy::default(), |emulation, regions| {
        nest_a_region_that_aborts(regions);
        let expected = status::explicit(LOCKED) | status::NESTED;
        assert_eq!(emulation.counts().last_status, expected);
        assert_eq!(emulation.counts().committed, 1);
        let counted = regions.statistics();
        assert_eq!((counted.aborted_explicit, counted.fallbacks), (1, 0));
    });
}

/// Protects the metrics: another thread sees what a worker counted, also after the worker's end.
#[test]
fn other_threads_read_the_statistics() {
    emulated(Processor::default(), RetryPolicy::default(), |emulation, regions| {
        let reader = regions.reader();
        emulation.plan(Moment::AtEnd, status::CAPACITY, 3);
        let word = Word::new(0);
        assert!(regions.run(|_| word.store(1, Ordering::Relaxed), never_locked).is_some());
        let expected =
            Statistics { started: 4, committed: 1, aborted_capacity: 3, ..Statistics::default() };
        let there = reader.clone();
        let seen = std::thread::spawn(move || there.statistics()).join().unwrap();
        assert_eq!(seen, expected);
        assert_eq!(reader.statistics(), regions.statistics());
    });
}
