//! Small programs under every kind of schedule: the outcomes that the schedules must find, and those that they
//! must not.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use weft_sim::sync::{AtomicU64, Mutex, Ordering, spin_loop, yield_now};
use weft_sim::{Case, Failure, Options, Profile, Program, Schedule, explore, run};

const RELAXED: Ordering = Ordering::Relaxed;

fn options(seed: u64) -> Options {
    Options::new(Profile::named("haswell-4c8t").unwrap(), seed)
}

/// Two cores that each add one to a counter by a load and a store, so that one increment may be lost.
fn lost_update() -> Case<'static> {
    let counter = Rc::new(AtomicU64::new(0));
    let increment = |counter: &Rc<AtomicU64>| -> Program<'static> {
        let counter = Rc::clone(counter);
        Box::new(move || counter.store(counter.load(RELAXED) + 1, RELAXED))
    };
    Case {
        programs: vec![increment(&counter), increment(&counter)],
        check: Box::new(move || match counter.load(RELAXED) {
            2 => Ok(()),
            value => Err(format!("the counter is {value}")),
        }),
    }
}

/// Protects the depth-first walk. Two cores each store to one word and load the other's. The walk finds the
/// three outcomes of sequential consistency, and no fourth one.
#[test]
fn store_buffering_has_three_outcomes() {
    let outcomes = Rc::new(RefCell::new(BTreeSet::new()));
    let exploration = explore(&options(1), 2, 1000, || {
        let words = Rc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let seen = Rc::new(RefCell::new([9, 9]));
        let program = |me: usize| -> Program<'static> {
            let (words, seen) = (Rc::clone(&words), Rc::clone(&seen));
            Box::new(move || {
                words[me].store(1, RELAXED);
                seen.borrow_mut()[me] = words[1 - me].load(RELAXED);
            })
        };
        let outcomes = Rc::clone(&outcomes);
        Case {
            programs: vec![program(0), program(1)],
            check: Box::new(move || {
                outcomes.borrow_mut().insert(*seen.borrow());
                Ok(())
            }),
        }
    });
    assert!(exploration.is_complete && exploration.failure.is_none());
    assert_eq!(*outcomes.borrow(), BTreeSet::from([[0, 1], [1, 0], [1, 1]]));
}

/// Protects each kind of schedule: all find the lost update, and the trace of the failing run, read back from
/// its text, loses it again.
#[test]
fn every_schedule_finds_a_lost_update() {
    let exploration = explore(&options(1), 1, 1000, lost_update);
    let found = exploration.failure.expect("one preemption is enough");
    assert!(matches!(found, Failure::Wrong { .. }), "{found}");
    let replay = |failure: &Failure| {
        let trace = failure.trace().to_string().parse().unwrap();
        lost_update().run(&options(9).schedule(Schedule::Replay(trace)))
    };
    assert!(matches!(replay(&found), Err(Failure::Wrong { .. })));
    // Without a preemption the update cannot be lost.
    let exploration = explore(&options(1), 0, 1000, lost_update);
    assert!(exploration.is_complete && exploration.failure.is_none());
    for schedule in
        [Schedule::Random { switch_one_in: 2 }, Schedule::Priorities { depth: 2, points: 4 }]
    {
        let runs =
            (0..200).map(|seed| lost_update().run(&options(seed).schedule(schedule.clone())));
        let failures: Vec<Failure> = runs.filter_map(Result::err).collect();
        assert!((10..190).contains(&failures.len()), "{schedule:?}: {}", failures.len());
        for failure in &failures {
            assert!(matches!(replay(failure), Err(Failure::Wrong { .. })), "{failure}");
        }
    }
}

/// Protects the walk from false failures: an atomic exchange never loses an update.
#[test]
fn an_exchange_loses_nothing() {
    let exploration = explore(&options(1), 3, 10_000, || {
        let counter = Rc::new(AtomicU64::new(0));
        let increments = |counter: &Rc<AtomicU64>| -> Program<'static> {
            let counter = Rc::clone(counter);
            Box::new(move || (0..2).for_each(|_| _ = counter.fetch_add(1, RELAXED)))
        };
        Case {
            programs: (0..3).map(|_| increments(&counter)).collect(),
            check: Box::new(move || match counter.load(RELAXED) {
                6 => Ok(()),
                value => Err(format!("the counter is {value}")),
            }),
        }
    });
    assert!(exploration.is_complete && exploration.failure.is_none());
    assert!(exploration.runs > 100);
}

/// A spin lock and the counter that it protects.
#[derive(Default)]
struct Guarded {
    lock: AtomicU64,
    counter: AtomicU64,
}

impl Guarded {
    fn increment(&self, wait: fn()) {
        while self.lock.compare_exchange(0, 1, RELAXED, RELAXED).is_err() {
            wait();
        }
        self.counter.store(self.counter.load(RELAXED) + 1, RELAXED);
        self.lock.store(0, RELAXED);
    }
}

/// Protects waiting: loops that spin, or yield their time slice, end under every kind of schedule, and no run
/// fails in them.
#[test]
fn spinning_threads_let_others_through() {
    for wait in [spin_loop as fn(), yield_now] {
        let case = || {
            let guarded = Rc::new(Guarded::default());
            let program = |guarded: &Rc<Guarded>| -> Program<'static> {
                let guarded = Rc::clone(guarded);
                Box::new(move || (0..2).for_each(|_| guarded.increment(wait)))
            };
            Case {
                programs: (0..3).map(|_| program(&guarded)).collect(),
                check: Box::new(move || match guarded.counter.load(RELAXED) {
                    6 => Ok(()),
                    value => Err(format!("the counter is {value}")),
                }),
            }
        };
        let exploration = explore(&options(1), 2, 20_000, case);
        assert!(exploration.failure.is_none(), "{:?}", exploration.failure);
        assert!(exploration.is_complete, "{} runs", exploration.runs);
        for seed in 0..50 {
            for schedule in [
                Schedule::Time,
                Schedule::Random { switch_one_in: 3 },
                Schedule::Priorities { depth: 3, points: 40 },
            ] {
                case().run(&options(seed).schedule(schedule)).unwrap();
            }
        }
    }
}

/// Two programs that take two locks: in different orders if `crossed`, otherwise in the same order.
fn two_locks(crossed: bool) -> Case<'static> {
    let locks = Rc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let program = |order: [usize; 2]| -> Program<'static> {
        let locks = Rc::clone(&locks);
        Box::new(move || {
            for position in order {
                while locks[position].compare_exchange(0, 1, RELAXED, RELAXED).is_err() {
                    spin_loop();
                }
            }
            order.iter().for_each(|&position| locks[position].store(0, RELAXED));
        })
    };
    let second = if crossed { [1, 0] } else { [0, 1] };
    Case { programs: vec![program([0, 1]), program(second)], check: Box::new(|| Ok(())) }
}

/// Protects the detection of deadlocks: a deadlock is found, with a trace that leads there again, and no other
/// run is reported as one.
#[test]
fn a_deadlock_is_found_and_none_is_invented() {
    let options = Options { waits_max: 1000, ..options(1) };
    let exploration = explore(&options, 1, 1000, || two_locks(true));
    let failure = exploration.failure.expect("crossed locks");
    assert!(
        matches!(&failure, Failure::Deadlock { waiting, .. } if *waiting == [0, 1]),
        "{failure}"
    );
    let replayed =
        two_locks(true).run(&options.clone().schedule(Schedule::Replay(failure.trace().clone())));
    assert!(matches!(replayed, Err(Failure::Deadlock { .. })));
    let exploration = explore(&options, 2, 1000, || two_locks(false));
    assert!(exploration.is_complete && exploration.failure.is_none());
}

/// Protects against runs that never end although words change: the bound on points holds.
#[test]
fn a_livelock_ends_at_the_bound() {
    let options = Options { points_max: 10_000, ..options(1) };
    for schedule in [Schedule::Time, Schedule::Random { switch_one_in: 2 }] {
        let word = AtomicU64::new(0);
        let program = || loop {
            word.fetch_add(1, RELAXED);
        };
        let programs: Vec<Program<'_>> = vec![Box::new(program), Box::new(program)];
        let ended = run(&options.clone().schedule(schedule), programs);
        assert!(matches!(ended, Err(Failure::Endless { .. })), "{ended:?}");
    }
}

/// Protects mutexes: a core that waits for one lets the holder run, and a deadlock of two is found.
#[test]
fn mutexes_exclude_in_virtual_time() {
    for seed in 0..50 {
        let (total, entered) = (Mutex::new(0), AtomicU64::new(0));
        let program = || {
            for _ in 0..10 {
                let mut total = total.lock().unwrap();
                assert_eq!(entered.fetch_add(1, RELAXED), 0);
                *total += 1;
                assert_eq!(entered.fetch_add(u64::MAX, RELAXED), 1);
            }
        };
        let programs: Vec<Program<'_>> = (0..4).map(|_| Box::new(program) as Program<'_>).collect();
        let schedule =
            if seed % 2 == 0 { Schedule::Time } else { Schedule::Random { switch_one_in: 2 } };
        run(&options(seed).schedule(schedule), programs).unwrap();
        assert_eq!(*total.lock().unwrap(), 40);
    }
    let options = Options { waits_max: 1000, ..options(1) };
    let found = explore(&options, 1, 1000, || {
        let mutexes = Rc::new([Mutex::new(()), Mutex::new(())]);
        let program = |first: usize| -> Program<'static> {
            let mutexes = Rc::clone(&mutexes);
            Box::new(move || {
                let _first = mutexes[first].lock();
                let _second = mutexes[1 - first].lock();
            })
        };
        Case { programs: vec![program(0), program(1)], check: Box::new(|| Ok(())) }
    });
    assert!(matches!(found.failure, Some(Failure::Deadlock { .. })), "{found:?}");
}

/// Protects the report of a panic: its core, its message, and the switches that led to it.
#[test]
fn a_panic_is_reported_with_its_trace() {
    let case = || {
        let word = Rc::new(AtomicU64::new(0));
        let (writer, reader) = (Rc::clone(&word), word);
        Case {
            programs: vec![
                Box::new(move || {
                    writer.store(1, RELAXED);
                    writer.store(2, RELAXED);
                }),
                Box::new(move || assert_ne!(reader.load(RELAXED), 1, "half-way")),
            ],
            check: Box::new(|| Ok(())),
        }
    };
    let failure = explore(&options(7), 1, 100, case).failure.expect("it can be read half-way");
    match &failure {
        Failure::Panicked { core, message, seed, trace } => {
            assert_eq!((*core, *seed, trace.cores), (1, 7, 2));
            assert!(message.contains("half-way"), "{message}");
        }
        other => panic!("{other}"),
    }
    let again = case().run(&options(7).schedule(Schedule::Replay(failure.trace().clone())));
    assert!(matches!(again, Err(Failure::Panicked { core: 1, .. })));
}

/// Protects virtual time: an access takes effect when its core's clock says so, however long other cores
/// compute in between.
#[test]
fn accesses_take_effect_in_the_order_of_clocks() {
    let word = AtomicU64::new(0);
    let seen = RefCell::new(Vec::new());
    let programs: Vec<Program<'_>> = vec![
        Box::new(|| {
            for value in 1..=5 {
                weft_sim::compute(10_000);
                word.store(value, RELAXED);
            }
        }),
        Box::new(|| {
            weft_sim::compute(5_000);
            for _ in 0..5 {
                weft_sim::compute(10_000);
                seen.borrow_mut().push(word.load(RELAXED));
            }
        }),
    ];
    let report = run(&options(1), programs).unwrap();
    assert_eq!(*seen.borrow(), [1, 2, 3, 4, 5]);
    assert!((55_000..60_000).contains(&report.cycles), "{}", report.cycles);
    assert_eq!(report.counts.iter().map(|counts| counts.accesses).sum::<u64>(), 10);
}

/// Protects the promise that a seed determines the run: the same seed gives the same report wherever the words
/// lie, and another seed gives another one.
#[test]
fn the_same_seed_is_the_same_run() {
    // So large that they begin at the same offset in a page, while their pages lie anywhere.
    let memories: [Vec<AtomicU64>; 2] =
        [(); 2].map(|()| (0..1 << 20).map(AtomicU64::new).collect());
    let report = |seed: u64, schedule: &Schedule, memory: usize| {
        let words = &memories[memory];
        let program = |core: u64| {
            move || {
                let mut random = fastrand::Rng::with_seed(core);
                for _ in 0..2_000 {
                    let hot = random.u8(..) < 50;
                    let word = &words[random.usize(..if hot { 100 } else { words.len() })];
                    word.fetch_add(1, RELAXED);
                }
            }
        };
        let programs = (0..8).map(|core| Box::new(program(core)) as Program<'_>).collect();
        run(&options(seed).schedule(schedule.clone()), programs).unwrap()
    };
    for schedule in [
        Schedule::Time,
        Schedule::Random { switch_one_in: 5 },
        Schedule::Priorities { depth: 4, points: 16_000 },
    ] {
        let first = report(1, &schedule, 0);
        assert_eq!(first, report(1, &schedule, 1), "{schedule:?}");
        assert_ne!(first, report(2, &schedule, 0), "{schedule:?}");
    }
}
