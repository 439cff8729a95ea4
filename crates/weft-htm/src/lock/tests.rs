//! The same tests for every lock, on real threads and, built with `--cfg loom`, in every interleaving. (With
//! regions: `tests/locks.rs`.)

/// The models for loom: `RUSTFLAGS="--cfg loom" cargo test -p weft-htm --lib --release loom`. Each lock
/// protects a loom cell. Loom reports two threads that access the cell at a time, and a thread that does not
/// see what its predecessor did. It also reports a thread that waits in vain: the model then does not end.
#[cfg(loom)]
mod loom {
    use ::loom::cell::UnsafeCell;
    use ::loom::sync::Arc;
    use ::loom::thread;

    use crate::lock::{Lock, Mcs, Mode, OccRwLock, SrwLock, Tatas};

    /// A lock and the value that it protects.
    #[derive(Default)]
    struct Protected<L> {
        lock: L,
        value: UnsafeCell<u64>,
    }

    // SAFETY: the value is accessed only under the lock. If not, loom reports it.
    unsafe impl<L: Lock> Send for Protected<L> {}
    // SAFETY: as above.
    unsafe impl<L: Lock> Sync for Protected<L> {}

    impl<L: Lock> Protected<L> {
        fn increment(&self) {
            // SAFETY: loom reports two threads that are here at a time.
            self.value.with_mut(|value| unsafe { *value += 1 });
        }

        fn read(&self) -> u64 {
            // SAFETY: as above.
            self.value.with(|value| unsafe { *value })
        }

        fn write(&self) {
            self.lock.hold(Mode::Exclusive, || self.increment());
        }

        fn look(&self) -> u64 {
            self.lock.hold(Mode::Shared, || self.read())
        }
    }

    /// Checks all interleavings with at most `preemptions` preemptions.
    fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
        let mut model = ::loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 20_000;
        model.check(body);
    }

    fn spawn<L: Lock>(
        protected: &Arc<Protected<L>>,
        body: impl FnOnce(&Protected<L>) + 'static,
    ) -> thread::JoinHandle<()> {
        let protected = Arc::clone(protected);
        thread::spawn(move || body(&protected))
    }

    /// Two writers that each write twice: the queue empties and fills again.
    fn writers_come_again<L: Lock>() {
        model(3, || {
            let protected = Arc::new(Protected::<L>::default());
            let twice = |protected: &Protected<L>| (0..2).for_each(|_| protected.write());
            let other = spawn(&protected, twice);
            twice(&protected);
            other.join().unwrap();
            assert_eq!(protected.look(), 4);
            assert!(!protected.lock.excludes(Mode::Exclusive));
        });
    }

    /// Three writers: one waits behind another that waits.
    fn writers_queue<L: Lock>() {
        model(2, || {
            let protected = Arc::new(Protected::<L>::default());
            let others = [(); 2].map(|()| spawn(&protected, Protected::write));
            protected.write();
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(protected.look(), 3);
            assert!(!protected.lock.excludes(Mode::Exclusive));
        });
    }

    /// A writer between two readers. One of them reads twice, and must not see the write undone.
    fn readers_and_a_writer<L: Lock>() {
        model(2, || {
            let protected = Arc::new(Protected::<L>::default());
            let reader = spawn(&protected, |protected| {
                let first = protected.look();
                assert!(first <= protected.look());
            });
            let writer = spawn(&protected, Protected::write);
            assert!(protected.look() <= 1);
            reader.join().unwrap();
            writer.join().unwrap();
            assert_eq!(protected.look(), 1);
            assert!(!protected.lock.excludes(Mode::Exclusive));
        });
    }

    /// Two writers and a reader: a writer that waits for readers keeps the other writer out.
    fn writers_and_a_reader<L: Lock>() {
        model(2, || {
            let protected = Arc::new(Protected::<L>::default());
            let reader = spawn(&protected, |protected| assert!(protected.look() <= 2));
            let writer = spawn(&protected, Protected::write);
            protected.write();
            reader.join().unwrap();
            writer.join().unwrap();
            assert_eq!(protected.look(), 2);
        });
    }

    /// A thread that does not wait, beside one that does: it either gets the lock alone or is refused.
    fn attempts_are_turned_away<L: Lock>() {
        model(3, || {
            let protected = Arc::new(Protected::<L>::default());
            let other = spawn(&protected, Protected::write);
            let lock = &protected.lock;
            let written = lock.try_hold(Mode::Exclusive, || protected.increment()).is_some();
            lock.try_hold(Mode::Shared, || protected.read());
            other.join().unwrap();
            assert_eq!(protected.look(), 1 + u64::from(written));
            assert!(!lock.excludes(Mode::Exclusive));
        });
    }

    macro_rules! models {
        ($($module:ident: $lock:ty;)+) => {
            $(mod $module {
                use super::*;

                #[test]
                fn writers_come_again() {
                    super::writers_come_again::<$lock>();
                }

                #[test]
                fn writers_queue() {
                    super::writers_queue::<$lock>();
                }

                #[test]
                fn readers_and_a_writer() {
                    super::readers_and_a_writer::<$lock>();
                }

                #[test]
                fn writers_and_a_reader() {
                    super::writers_and_a_reader::<$lock>();
                }

                #[test]
                fn attempts_are_turned_away() {
                    super::attempts_are_turned_away::<$lock>();
                }
            })+
        };
    }

    models! {
        tatas: Tatas;
        mcs: Mcs;
        occ_rwlock: OccRwLock;
        srwlock: SrwLock;
    }
}

#[cfg(not(loom))]
mod threads {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    use crate::lock::{Elidable, Lock, Mcs, Mode, OccRwLock, SrwLock, Tatas};
    use crate::word::{Ordering, Word, yield_now};
    use crate::{Htm, Regions, Statistics};

    /// Protects mutual exclusion and the end of every wait. There are more threads than cores, and each wants
    /// the lock again immediately. No increment is lost, and no reader sees half of one.
    fn writers_are_alone<L: Lock>() {
        const THREADS: u64 = 6;
        const ROUNDS: u64 = 800;
        let (lock, words) = (L::default(), [Word::new(0), Word::new(0)]);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lock, words) = (&lock, &words);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if round % 4 == thread % 4 {
                            lock.hold(Mode::Shared, || {
                                let seen = words.each_ref().map(|w| w.load(Ordering::Relaxed));
                                assert_eq!(seen[0], seen[1], "half of a section is seen");
                            });
                            continue;
                        }
                        lock.hold(Mode::Exclusive, || {
                            let value = words[0].load(Ordering::Relaxed);
                            words[0].store(value + 1, Ordering::Relaxed);
                            if round % 64 == 0 {
                                yield_now();
                            }
                            words[1].store(value + 1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        let expected = THREADS * ROUNDS * 3 / 4;
        assert_eq!(words.map(|word| word.load(Ordering::Relaxed)), [expected; 2]);
        assert!(!lock.excludes(Mode::Exclusive), "{lock:?} is free");
    }

    /// Protects what shared mode allows and what it does not. Two readers are inside together if the lock says
    /// that readers share it; a writer is always alone.
    fn readers_share<L: Lock>() {
        let lock = L::default();
        assert_eq!(lock.try_hold(Mode::Exclusive, || 7), Some(7));
        lock.hold(Mode::Shared, || {
            assert_eq!(lock.excludes(Mode::Shared), !L::SHARES);
            assert!(lock.excludes(Mode::Exclusive));
            let beside = lock.try_hold(Mode::Shared, || lock.try_hold(Mode::Exclusive, || 7));
            assert_eq!(beside, L::SHARES.then_some(None));
            assert_eq!(lock.try_hold(Mode::Exclusive, || 7), None);
        });
        lock.hold(Mode::Exclusive, || {
            assert!(lock.excludes(Mode::Shared) && lock.excludes(Mode::Exclusive));
            assert_eq!(lock.try_hold(Mode::Shared, || 7), None);
            assert_eq!(lock.try_hold(Mode::Exclusive, || 7), None);
        });
        assert!(!lock.excludes(Mode::Exclusive) && !lock.excludes(Mode::Shared));
    }

    /// Protects the lock when a section panics: it is released.
    fn a_panic_releases<L: Lock>() {
        let lock = L::default();
        for mode in [Mode::Shared, Mode::Exclusive] {
            let section = AssertUnwindSafe(|| lock.hold(mode, || panic!("in a section")));
            catch_unwind(section).unwrap_err();
            let section = AssertUnwindSafe(|| lock.try_hold(mode, || panic!("in a section")));
            catch_unwind(section).unwrap_err();
            assert!(!lock.excludes(Mode::Exclusive), "{mode:?}: {lock:?}");
        }
    }

    /// Protects the path without hardware: each section runs under the lock, once, and nothing is counted.
    fn software_takes_the_lock<L: Lock>() {
        let regions = Regions::new(&Htm::software());
        for is_elided in [false, true] {
            let lock = Elidable::<L>::new(is_elided);
            let mut runs = 0;
            let mut section = || {
                runs += 1;
                lock.lock().excludes(Mode::Exclusive)
            };
            assert!(lock.section(Mode::Exclusive, &regions, &mut section));
            assert!(lock.section(Mode::Shared, &regions, &mut section));
            assert_eq!(lock.attempt(Mode::Exclusive, &regions, &mut section), Some(true));
            assert_eq!(runs, 3);
            let attempt = || lock.attempt(Mode::Shared, &regions, || ());
            assert_eq!(lock.section(Mode::Exclusive, &regions, attempt), None);
        }
        assert_eq!(regions.statistics(), Statistics::default());
    }

    macro_rules! tests {
        ($($module:ident: $lock:ty;)+) => {
            $(mod $module {
                use super::*;

                #[test]
                fn writers_are_alone() {
                    super::writers_are_alone::<$lock>();
                }

                #[test]
                fn readers_share() {
                    super::readers_share::<$lock>();
                }

                #[test]
                fn a_panic_releases() {
                    super::a_panic_releases::<$lock>();
                }

                #[test]
                fn software_takes_the_lock() {
                    super::software_takes_the_lock::<$lock>();
                }
            })+
        };
    }

    tests! {
        tatas: Tatas;
        mcs: Mcs;
        occ_rwlock: OccRwLock;
        srwlock: SrwLock;
    }

    /// Protects what `srwlock` tells about its holders.
    #[test]
    fn srwlock_names_its_holders() {
        let lock = SrwLock::default();
        let told = || (lock.mode(), lock.readers());
        assert_eq!(told(), (None, 0));
        lock.hold(Mode::Shared, || {
            assert_eq!(told(), (Some(Mode::Shared), 1));
            lock.hold(Mode::Shared, || assert_eq!(told(), (Some(Mode::Shared), 2)));
        });
        lock.hold(Mode::Exclusive, || assert_eq!(told(), (Some(Mode::Exclusive), 0)));
        assert_eq!(told(), (None, 0));
    }

    /// Protects a writer of `srwlock` from readers that keep coming: they queue behind it.
    #[test]
    fn a_writer_that_waits_keeps_readers_out() {
        let (lock, order) = (SrwLock::default(), crate::word::Mutex::new(Vec::new()));
        thread::scope(|scope| {
            lock.hold(Mode::Shared, || {
                scope.spawn(|| lock.hold(Mode::Exclusive, || order.lock().unwrap().push("writer")));
                while lock.mode() != Some(Mode::Exclusive) {
                    yield_now();
                }
                assert_eq!(lock.try_hold(Mode::Shared, || ()), None);
                scope.spawn(|| lock.hold(Mode::Shared, || order.lock().unwrap().push("reader")));
                (0..100).for_each(|_| yield_now());
                assert!(order.lock().unwrap().is_empty());
            });
        });
        assert_eq!(*order.lock().unwrap(), ["writer", "reader"]);
    }
}
