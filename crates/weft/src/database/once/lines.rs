//! Lines of transactions that have the same key: the first runs, and the others wait for it.
//!
//! ```text
//!   line of a key:   [ first ] [ second ] [ third ]
//!                       |
//!       committed ------+------ failed, or gave up
//!           |                       |
//!   the line is open: all run,   the second is now the first
//!   and find its result
//! ```
//!
//! Lines only save work, and give each transaction its turn. That a transaction happens once is ensured by its commit:
//! two transactions that both insert the result of a key conflict.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use weft_htm::blocking::Thread;
use weft_htm::word::{Mutex, Ordering, Word};

use super::StoredKey;

/// The lines of a database. A key has a line while a transaction with this key runs. The line has those that wait.
pub(super) type Lines = Mutex<HashMap<StoredKey, VecDeque<Arc<Ticket>>>>;

/// A transaction in a line.
pub(super) struct Ticket {
    /// One of the three states below. It changes under the lock of the lines.
    state: Word,
    waker: Waker,
}

/// The transaction waits.
const WAITS: u64 = 0;
/// The transaction may run, and is the only one of its line.
const RUNS: u64 = 1;
/// The transaction may run, and its line does not exist any more.
const FREE: u64 = 2;

impl Ticket {
    fn let_run(&self, state: u64) {
        // Release: pairs with the acquire in `Place::may_run`. What the predecessor has done is visible to the thread
        // that runs next.
        self.state.store(state, Ordering::Release);
    }
}

/// A place in the line of a key. It is given up when it is dropped.
pub struct Place {
    lines: Arc<Lines>,
    pub(super) key: StoredKey,
    ticket: Arc<Ticket>,
}

impl Place {
    /// Joins the line of a key at its end. The waker is woken when the transaction may run, unless it may at once.
    pub(super) fn join(lines: &Arc<Lines>, key: StoredKey, waker: Waker) -> Place {
        let mut locked = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = match locked.entry(key.clone()) {
            Entry::Occupied(mut line) => {
                let ticket = Arc::new(Ticket { state: Word::new(WAITS), waker });
                line.get_mut().push_back(Arc::clone(&ticket));
                ticket
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::new());
                Arc::new(Ticket { state: Word::new(RUNS), waker })
            }
        };
        drop(locked);
        Place { lines: Arc::clone(lines), key, ticket }
    }

    /// Returns whether the transaction may run.
    pub fn may_run(&self) -> bool {
        // Acquire: pairs with the release in `Ticket::let_run`.
        self.ticket.state.load(Ordering::Acquire) != WAITS
    }

    /// Opens the line, because the transaction has committed.
    pub(super) fn open(&self) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed, here and in `drop`: the state changes only under the lock.
        if self.ticket.state.load(Ordering::Relaxed) != RUNS {
            return;
        }
        let line = lines.remove(&self.key).unwrap_or_default();
        self.ticket.let_run(FREE);
        line.iter().for_each(|next| next.let_run(FREE));
        drop(lines);
        line.iter().for_each(|next| next.waker.wake_by_ref());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Relaxed: nothing follows from it. The state is the last one.
        if self.ticket.state.load(Ordering::Relaxed) == FREE {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.ticket.state.load(Ordering::Relaxed);
        if state == FREE {
            return;
        }
        let line = lines.get_mut(&self.key).expect("a line exists until it is open or empty");
        if state == WAITS {
            line.retain(|other| !Arc::ptr_eq(other, &self.ticket));
            return;
        }
        let next = line.pop_front();
        match &next {
            Some(next) => next.let_run(RUNS),
            None => drop(lines.remove(&self.key)),
        }
        drop(lines);
        if let Some(next) = next {
            next.waker.wake_by_ref();
        }
    }
}

/// Wakes a thread that waits for its turn.
pub(super) struct Unpark(pub Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn join(lines: &Arc<Lines>, key: &str) -> Place {
        Place::join(lines, (0, key.to_owned()), Waker::noop().clone())
    }

    fn may_run(places: &[Place]) -> Vec<bool> {
        places.iter().map(Place::may_run).collect()
    }

    #[test]
    fn the_next_in_line_runs_when_the_first_fails() {
        let lines = Arc::default();
        let mut places: Vec<_> = (0..4).map(|_| join(&lines, "a")).collect();
        let other = join(&lines, "b");
        assert_eq!(may_run(&places), [true, false, false, false]);
        assert!(other.may_run(), "keys do not wait for each other");
        drop(places.remove(1));
        drop(places.remove(0));
        assert_eq!(may_run(&places), [true, false]);
        drop((places, other));
        assert!(lines.lock().unwrap().is_empty());
    }

    #[test]
    fn all_run_when_the_first_commits() {
        let lines = Arc::default();
        let places: Vec<_> = (0..3).map(|_| join(&lines, "a")).collect();
        places[0].open();
        assert_eq!(may_run(&places), [true; 3]);
        // A later transaction has a line of its own, which the earlier ones leave alone.
        let later = [join(&lines, "a"), join(&lines, "a")];
        places[1].open();
        drop(places);
        assert_eq!(may_run(&later), [true, false]);
        drop(later);
        assert!(lines.lock().unwrap().is_empty());
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc as LoomArc;

    use super::*;

    struct Kernel {
        lines: Arc<Lines>,
        /// How many transactions were run before one has committed.
        ran: UnsafeCell<u32>,
    }

    // SAFETY: `ran` is used by one thread at a time; that the lines ensure this is what the test checks.
    unsafe impl Sync for Kernel {}
    // SAFETY: as above.
    unsafe impl Send for Kernel {}

    impl Kernel {
        /// Waits for its turn, or gives up after two looks. The first that runs fails, and the second commits.
        fn transact(&self) {
            let place = Place::join(&self.lines, (0, String::new()), Waker::noop().clone());
            let mut looks = 0;
            while !place.may_run() {
                looks += 1;
                if looks == 2 {
                    return;
                }
                loom::thread::yield_now();
            }
            if place.ticket.state.load(Ordering::Relaxed) == FREE {
                // SAFETY: no transaction of an open line writes.
                assert_eq!(self.ran.with(|ran| unsafe { *ran }), 2);
                return;
            }
            // SAFETY: this is the only one of its line.
            let ran = self.ran.with_mut(|ran| unsafe {
                *ran += 1;
                *ran
            });
            if ran == 2 {
                place.open();
            }
        }
    }

    fn transactions_take_turns(threads: usize) {
        let kernel = LoomArc::new(Kernel { lines: Arc::default(), ran: UnsafeCell::new(0) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let kernel = LoomArc::clone(&kernel);
                loom::thread::spawn(move || kernel.transact())
            })
            .collect();
        kernel.transact();
        for other in others {
            other.join().unwrap();
        }
        assert!(kernel.lines.lock().unwrap().is_empty(), "a line was left");
    }

    #[test]
    fn loom_two_transactions_with_a_key_take_turns() {
        loom::model(|| transactions_take_turns(2));
    }

    #[test]
    fn loom_three_transactions_with_a_key_take_turns() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(|| transactions_take_turns(3));
    }
}
