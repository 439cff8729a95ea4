//! Hardware regions of programs: what is rolled back, how a program leaves a region, and which thread wins a
//! conflict.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use weft_sim::local::Local;
use weft_sim::region::{abort, attempt, begin, catch_undone, commit, is_inside, is_undone};
use weft_sim::status::{CAPACITY, CONFLICT, RETRY, explicit};
use weft_sim::sync::{AtomicPtr, AtomicU64, Ordering, fence, operate, spin_loop};
use weft_sim::{Case, Failure, Options, PrivateMemory, Profile, Program, Schedule, explore, run};

const RELAXED: Ordering = Ordering::Relaxed;

fn options(seed: u64) -> Options {
    Options::new(Profile::named("haswell-4c8t").unwrap(), seed)
}

/// Runs one program, which must end.
fn alone(program: impl FnOnce()) {
    run(&options(1), vec![Box::new(program)]).unwrap();
}

/// Protects a region that commits: it returns its value, and its stores are visible.
#[test]
fn a_region_commits() {
    let word = AtomicU64::new(1);
    alone(|| {
        let result = attempt(|| {
            assert!(is_inside());
            word.store(word.load(RELAXED) + 1, RELAXED);
            word.load(RELAXED)
        });
        assert_eq!(result, Ok(2));
        assert!(!is_inside());
    });
    assert_eq!(word.load(RELAXED), 2);
}

/// Protects the rollback of every kind of access to words, in any order, and the unwinding: what the body owns
/// is dropped, and what the drops do to shared words has no effect.
#[test]
fn an_abort_puts_every_word_back() {
    struct Unlock<'a>(&'a AtomicU64);
    impl Drop for Unlock<'_> {
        fn drop(&mut self) {
            assert!(is_undone());
            assert_eq!(self.0.load(RELAXED), 0, "the lock was never taken");
            self.0.store(7, RELAXED);
            assert_eq!(self.0.swap(8, RELAXED), 0);
            assert_eq!(self.0.compare_exchange(0, 9, RELAXED, RELAXED), Ok(0));
            fence(Ordering::SeqCst);
            spin_loop();
            assert_eq!(attempt(|| self.0.load(RELAXED)), Ok(0));
        }
    }
    let lock = AtomicU64::new(0);
    let words: [AtomicU64; 20] = std::array::from_fn(|k| AtomicU64::new(k as u64));
    let (mut one, mut other) = (1, 2);
    let pointer = AtomicPtr::new(&raw mut one);
    alone(|| {
        let status = attempt(|| {
            lock.store(1, RELAXED);
            let _unlock = Unlock(&lock);
            for round in 0..3 {
                for word in &words {
                    word.store(round, RELAXED);
                    word.fetch_add(5, RELAXED);
                    word.swap(77, RELAXED);
                    word.compare_exchange(77, 78, RELAXED, RELAXED).unwrap();
                    word.compare_exchange(77, 79, RELAXED, RELAXED).unwrap_err();
                    word.fetch_or(1, RELAXED);
                    word.fetch_and(!2, RELAXED);
                }
            }
            pointer.store(&raw mut other, RELAXED);
            pointer
                .compare_exchange(&raw mut other, std::ptr::null_mut(), RELAXED, RELAXED)
                .unwrap();
            abort(0x2a)
        });
        assert_eq!(status, Err::<(), _>(explicit(0x2a)));
        assert!(!is_undone() && !is_inside());
    });
    assert_eq!(lock.load(RELAXED), 0);
    assert!(words.iter().enumerate().all(|(k, word)| word.load(RELAXED) == k as u64));
    assert_eq!(pointer.load(RELAXED), &raw mut one);
}

/// Protects the stack: words in frames that a region has left are not restored, because something else may lie
/// there by then. Words in older frames are.
#[test]
fn the_stack_is_put_back_as_far_as_it_lasts() {
    #[inline(never)]
    fn write_below(value: u64) -> u64 {
        let words: [AtomicU64; 64] = std::array::from_fn(|_| AtomicU64::new(0));
        std::hint::black_box(&words).iter().for_each(|word| word.store(value, RELAXED));
        words[7].load(RELAXED)
    }
    #[inline(never)]
    fn abort_below(value: u64) -> u64 {
        let mut kept = [value; 200];
        std::hint::black_box(&mut kept);
        abort(kept[100] as u8)
    }
    alone(|| {
        let older = AtomicU64::new(1);
        for round in 0..100 {
            let status = attempt(|| {
                older.store(2, RELAXED);
                write_below(round) + abort_below(round)
            });
            assert_eq!(status, Err(explicit(round as u8)));
            assert_eq!(older.load(RELAXED), 1);
        }
    });
}

/// Protects the causes of aborts that a program can provoke alone.
#[test]
fn each_cause_has_its_status() {
    let words: Vec<AtomicU64> = (0..16 * 512).map(|_| AtomicU64::new(0)).collect();
    alone(|| {
        let too_large = attempt(|| words.iter().step_by(8).for_each(|word| word.store(1, RELAXED)));
        assert_eq!(too_large, Err(CAPACITY));
        assert_eq!(attempt(spin_loop), Err(0));
        assert_eq!(attempt(|| weft_sim::compute(100_000_000)), Err(0), "a timer goes off");
        assert_eq!(attempt(|| 5), Ok(5), "and a region after that commits");
        // A body that panics is rolled back. The panic is left to the software twin.
        words[0].store(3, RELAXED);
        let panicked = attempt(|| {
            words[0].store(4, RELAXED);
            panic!("within a region");
        });
        assert_eq!(panicked, Err::<(), _>(0));
        assert_eq!(words[0].load(RELAXED), 3);
        assert!(!is_inside());
    });
}

/// Protects nesting: an abort inside ends the outermost region, and only that region reports it.
#[test]
fn an_abort_ends_the_outermost_region() {
    let word = AtomicU64::new(0);
    alone(|| {
        let passed = Cell::new(0);
        let status = attempt(|| {
            word.store(1, RELAXED);
            let inner: Result<(), u32> = attempt(|| {
                word.store(2, RELAXED);
                passed.set(1);
                abort(1)
            });
            passed.set(2);
            inner
        });
        assert!(matches!(status, Err(status) if status >> 24 == 1));
        assert_eq!(passed.get(), 1);
        assert_eq!(word.load(RELAXED), 0);
    });
}

/// Protects a region that outlives the function that began it. An abort unwinds to a function that encloses its
/// beginning and its end, and the next `begin` returns the status.
#[test]
fn a_region_may_outlive_its_beginning() {
    let word = AtomicU64::new(0);
    alone(|| {
        let statuses = RefCell::new(Vec::new());
        let mut rounds = 0;
        let result = loop {
            rounds += 1;
            let done = catch_undone(|| {
                while let Err(status) = begin() {
                    statuses.borrow_mut().push(status);
                }
                word.store(word.load(RELAXED) + 1, RELAXED);
                if rounds < 3 {
                    abort(rounds);
                }
                commit();
                word.load(RELAXED)
            });
            if let Some(done) = done {
                break done;
            }
            assert_eq!(word.load(RELAXED), 0);
        };
        assert_eq!((rounds, result), (3, 1));
        assert_eq!(*statuses.borrow(), [explicit(1), explicit(2)]);
        // Other panics pass through.
        assert!(catch_unwind(AssertUnwindSafe(|| catch_undone(|| panic!("other")))).is_err());
    });
}

/// A region that moves money between two words, and an observer in a region or outside.
fn transfer(observer_in_region: bool) -> Case<'static> {
    let words = Rc::new([AtomicU64::new(100), AtomicU64::new(100)]);
    let transfer: Program<'static> = {
        let words = Rc::clone(&words);
        Box::new(move || {
            loop {
                let moved = attempt(|| {
                    words[0].store(words[0].load(RELAXED) - 30, RELAXED);
                    words[1].store(words[1].load(RELAXED) + 30, RELAXED);
                });
                match moved {
                    Ok(()) => break,
                    Err(status) => assert_eq!(status, CONFLICT | RETRY),
                }
            }
        })
    };
    let observed = Rc::clone(&words);
    let observer: Program<'static> = Box::new(move || {
        let look = || (observed[0].load(RELAXED), observed[1].load(RELAXED));
        let (one, other) = match observer_in_region {
            true => loop {
                if let Ok(seen) = attempt(look) {
                    break seen;
                }
            },
            false => {
                // Each load alone sees a value from before or after the region, never from within.
                let (one, other) = look();
                assert!([70, 100].contains(&one) && [100, 130].contains(&other), "{one}, {other}");
                return;
            }
        };
        assert_eq!(one + other, 200);
    });
    Case {
        programs: vec![transfer, observer],
        check: Box::new(move || {
            let end = [words[0].load(RELAXED), words[1].load(RELAXED)];
            if end == [70, 130] { Ok(()) } else { Err(format!("{end:?}")) }
        }),
    }
}

/// Protects isolation, in all schedules: regions are atomic to each other, and no access outside of regions
/// sees what a region has written before it commits.
#[test]
fn region_is_invisible_until_it_commits() {
    for observer_in_region in [true, false] {
        let exploration = explore(&options(1), 3, 20_000, || transfer(observer_in_region));
        assert!(exploration.failure.is_none(), "{}", exploration.failure.unwrap());
        assert!(exploration.is_complete, "{} runs", exploration.runs);
    }
}

/// A thread under a lock and a region, both of which increment a counter. The region must read the lock.
fn elision(subscribes: bool) -> Case<'static> {
    let words = Rc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let in_region: Program<'static> = {
        let words = Rc::clone(&words);
        Box::new(move || {
            loop {
                let done = attempt(|| {
                    if subscribes && words[0].load(RELAXED) != 0 {
                        abort(0xff);
                    }
                    words[1].store(words[1].load(RELAXED) + 1, RELAXED);
                });
                if done.is_ok() {
                    break;
                }
                spin_loop();
            }
        })
    };
    let locking = Rc::clone(&words);
    let under_lock: Program<'static> = Box::new(move || {
        while locking[0].compare_exchange(0, 1, RELAXED, RELAXED).is_err() {
            spin_loop();
        }
        locking[1].store(locking[1].load(RELAXED) + 1, RELAXED);
        locking[0].store(0, RELAXED);
    });
    Case {
        programs: vec![in_region, under_lock],
        check: Box::new(move || match words[1].load(RELAXED) {
            2 => Ok(()),
            value => Err(format!("the counter is {value}")),
        }),
    }
}

/// Protects the purpose of the simulation: a region that does not subscribe to the lock is found, and one that
/// does passes.
#[test]
fn a_missing_subscription_is_found() {
    let exploration = explore(&options(1), 2, 10_000, || elision(true));
    assert!(exploration.is_complete && exploration.failure.is_none());
    let exploration = explore(&options(1), 2, 10_000, || elision(false));
    assert!(matches!(exploration.failure, Some(Failure::Wrong { .. })));
    let at_random = |seed: u64| {
        elision(false).run(&options(seed).schedule(Schedule::Random { switch_one_in: 3 })).is_err()
    };
    assert!((0..200).any(at_random));
}

/// Protects core-local values: each core has its own, dropped with its program, and the thread outside has
/// another.
#[test]
fn locals_are_a_cores_own() {
    struct Mine(Cell<u64>);
    impl Drop for Mine {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0.get(), RELAXED);
        }
    }
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    static MINE: Local<Mine> = Local::new(|| Mine(Cell::new(0)));
    MINE.with(|mine| mine.0.set(1000));
    let word = AtomicU64::new(0);
    let program = |core: u64| {
        let word = &word;
        move || {
            for _ in 0..10 {
                word.fetch_add(1, RELAXED);
                MINE.with(|mine| mine.0.set(mine.0.get() + core));
            }
            assert_eq!(MINE.with(|mine| mine.0.get()), 10 * core);
            assert_eq!(weft_sim::core(), Some(core as usize));
        }
    };
    let programs = (0..4).map(|core| Box::new(program(core)) as Program<'_>).collect();
    run(&options(1), programs).unwrap();
    assert_eq!(DROPPED.load(RELAXED), 10 * (1 + 2 + 3));
    assert_eq!(MINE.with(|mine| mine.0.get()), 1000);
}

/// Protects the stand-in for stacks and heaps. It takes room in the first level, so a region with fifty
/// operations cannot write as much as without it. It does not count as accesses.
#[test]
fn private_memory_takes_room_in_regions() {
    let words: Vec<Line> = (0..400).map(|_| Line(AtomicU64::new(0))).collect();
    let fill = |private_memory| {
        let options = Options { private_memory, ..options(1) };
        let outcome = Cell::new(None);
        let program = || {
            // Touch each page for the first time.
            words.iter().for_each(|Line(word)| _ = word.load(RELAXED));
            let before = weft_sim::counts().unwrap();
            let result = attempt(|| {
                for (position, Line(word)) in words.iter().enumerate() {
                    if position % 8 == 0 {
                        operate();
                    }
                    word.store(1, RELAXED);
                }
            });
            let counts = weft_sim::counts().unwrap() - before;
            outcome.set(Some((result, counts.accesses)));
        };
        run(&options, vec![Box::new(program)]).unwrap();
        outcome.get().unwrap()
    };
    assert_eq!(fill(PrivateMemory::NONE), (Ok(()), 400));
    let (result, accesses) = fill(PrivateMemory { lines: 128, lines_per_operation: 16 });
    assert!(matches!(result, Err(status) if status & CAPACITY != 0), "{result:?}");
    assert!(accesses < 400, "the region ended before its last access");
}

/// A word on a line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// Protects pages that the program declares absent: regions abort until the page is touched outside of them.
#[test]
fn an_absent_page_aborts_regions_until_it_is_touched_outside() {
    #[repr(align(4096))]
    struct Page([AtomicU64; 512]);
    let page = Page(std::array::from_fn(|_| AtomicU64::new(0)));
    alone(|| {
        let address = (&raw const page).addr() as u64;
        weft_sim::declare_absent(address..address + size_of::<Page>() as u64);
        let store = || page.0[100].store(1, RELAXED);
        assert_eq!((attempt(store), attempt(store)), (Err(0), Err(0)));
        store();
        assert_eq!(attempt(store), Ok(()));
    });
    assert_eq!(page.0[100].load(RELAXED), 1);
}
