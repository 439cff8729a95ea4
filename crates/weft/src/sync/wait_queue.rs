//! The queue of threads that wait for a worker, because all workers are busy.
//!
//! The thread that has waited longest gets the next worker. As long as a thread waits, no other thread claims a
//! worker past it: a thread that finds the queue in use joins it at the end, and a thread that gives up a worker
//! hands the worker to the first in the queue.
//!
//! ```text
//!   thread that waits                      thread that gives up a worker
//!     join the end; length += 1              the worker's word := FREE
//!     look for a free worker                 if length > 0: claim the worker again, if no other
//!     sleep, and look again                     thread was faster, and hand it to the first
//! ```
//!
//! There is no fence between the two steps on the right, since every transaction executes them. So the thread that
//! gives up a worker may miss a thread that joins an empty queue at this moment, and that thread may miss the free
//! worker. Therefore the first in the queue does not only wait to be woken: it looks for a free worker itself, once
//! in a millisecond.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use weft_htm::blocking::park_timeout;
use weft_htm::word::{Mutex, Ordering, Word};

/// How long the first in the queue sleeps between two looks for a free worker.
const FIRST_SLEEPS: Duration = Duration::from_millis(1);

/// How long the others sleep between two looks at their deadline, and at whether the database is still open.
const OTHERS_SLEEP: Duration = Duration::from_millis(500);

/// Threads that wait for a worker. One per database.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WaitQueue {
    /// The number of threads in the queue.
    length: Word,
    /// How often a thread has joined the queue.
    joined: Word,
    threads: Mutex<VecDeque<Arc<Waiter>>>,
}

/// A thread in the queue.
#[derive(Debug)]
struct Waiter {
    /// The slot of the worker that the thread was given, or [`NO_SLOT`].
    given: Word,
    thread: Thread,
}

const NO_SLOT: u64 = u64::MAX;

impl Waiter {
    fn given(&self) -> Option<usize> {
        // Acquire: pairs with the release in `serve`. The thread that gives the worker has claimed it, and passes on
        // what its claim has acquired.
        match self.given.load(Ordering::Acquire) {
            NO_SLOT => None,
            slot => Some(slot as usize),
        }
    }
}

impl WaitQueue {
    /// Returns whether no thread waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // Relaxed: see the module.
        self.length.load(Ordering::Relaxed) == 0
    }

    /// Returns how often a thread has had to wait.
    pub fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// Joins the queue, and waits until the calling thread gets a worker. Returns the worker's slot. `claim` claims
    /// any free worker. `keep_waiting` returns the longest time to sleep, if it is limited, or ends the wait with an
    /// error.
    #[cold]
    pub fn wait<E>(
        &self,
        claim: &mut dyn FnMut() -> Option<usize>,
        keep_waiting: &mut dyn FnMut() -> Result<Option<Duration>, E>,
    ) -> Result<usize, E> {
        let given = Word::new(NO_SLOT);
        let waiter = Arc::new(Waiter { given, thread: thread::current() });
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push_back(Arc::clone(&waiter));
        // SeqCst: the exchange is ordered before the look for a free worker, and so the window in which both sides
        // miss each other is short. See the module.
        self.length.fetch_add(1, Ordering::SeqCst);
        self.joined.fetch_add(1, Ordering::Relaxed);
        drop(threads);
        loop {
            self.serve(claim);
            if let Some(slot) = waiter.given() {
                return Ok(slot);
            }
            match keep_waiting() {
                Ok(limit) => {
                    let sleep = if self.is_first(&waiter) { FIRST_SLEEPS } else { OTHERS_SLEEP };
                    park_timeout(limit.map_or(sleep, |limit| limit.min(sleep)));
                }
                Err(error) => match self.leave(&waiter) {
                    true => return Err(error),
                    // The thread was given a worker at the last moment.
                    false => continue,
                },
            }
        }
    }

    /// Gives the workers that `claim` claims to the threads that have waited longest.
    #[cold]
    pub fn serve(&self, claim: &mut dyn FnMut() -> Option<usize>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while !threads.is_empty()
            && let Some(slot) = claim()
            && let Some(first) = threads.pop_front()
        {
            self.length.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
            // Release: pairs with the acquire in `Waiter::given`.
            first.given.store(slot as u64, Ordering::Release);
            first.thread.unpark();
        }
    }

    /// Wakes all threads, so that they look again whether to keep waiting.
    pub fn wake_all(&self) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().for_each(|waiter| waiter.thread.unpark());
    }

    fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.front().is_some_and(|first| Arc::ptr_eq(first, waiter))
    }

    /// Takes a thread out of the queue. Returns false if it is not in the queue any more.
    fn leave(&self, waiter: &Arc<Waiter>) -> bool {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let position = threads.iter().position(|other| Arc::ptr_eq(other, waiter));
        if let Some(position) = position {
            threads.remove(position);
            self.length.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
        }
        position.is_some()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_in_the_queue_gets_the_next_worker() {
        let queue = WaitQueue::default();
        let order = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (queue, order) = (&queue, &order);
                scope.spawn(move || {
                    let slot = queue.wait(&mut || None, &mut || Ok::<_, ()>(None)).unwrap();
                    order.lock().unwrap().push((number, slot));
                });
                while queue.threads.lock().unwrap().len() <= number {
                    thread::yield_now();
                }
            }
            for slot in 10..13 {
                let mut free = Some(slot);
                queue.serve(&mut || free.take());
                while order.lock().unwrap().len() <= slot - 10 {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(*order.lock().unwrap(), [(0, 10), (1, 11), (2, 12)]);
        assert!(queue.is_empty());
        assert_eq!(queue.joined(), 3);
    }

    #[test]
    fn a_thread_that_gives_up_leaves_the_queue() {
        let queue = WaitQueue::default();
        let mut looks = 0;
        let waited = queue.wait(&mut || None, &mut || {
            looks += 1;
            if looks == 3 { Err("enough") } else { Ok(Some(Duration::ZERO)) }
        });
        assert_eq!(waited, Err("enough"));
        assert!(queue.is_empty());
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;
    use crate::sync::reclaim::GracePeriods;

    struct Kernel {
        grace: GracePeriods,
        queue: WaitQueue,
        worker: UnsafeCell<u32>,
    }

    impl Kernel {
        /// Runs a transaction on the only worker, as a thread of the database does. Looks twice for the worker, and
        /// returns whether it got it.
        fn transact(&self) -> bool {
            let is_claimed = self.queue.is_empty() && self.grace.claim_pinned(0);
            if !is_claimed {
                let mut looks = 0;
                let mut keep_waiting = || {
                    looks += 1;
                    if looks == 2 { Err(()) } else { Ok(None) }
                };
                let mut claim = || self.grace.claim(0).then_some(0);
                if self.queue.wait(&mut claim, &mut keep_waiting).is_err() {
                    return false;
                }
                self.grace.pin(0);
            }
            // SAFETY: this thread has the worker; that this is enough is what the test checks.
            self.worker.with_mut(|worker| unsafe { *worker += 1 });
            self.grace.unpin(0);
            self.grace.release(0);
            if !self.queue.is_empty() {
                self.queue.serve(&mut || self.grace.claim(0).then_some(0));
            }
            true
        }
    }

    /// No two threads have the only worker at the same time. A thread that stops waiting at the moment at which it is
    /// given the worker uses it, so that the worker is free in the end.
    fn threads_take_turns(threads: usize) {
        let kernel = Arc::new(Kernel {
            grace: GracePeriods::new(1),
            queue: WaitQueue::default(),
            worker: UnsafeCell::new(0),
        });
        kernel.grace.enlist(0);
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let kernel = Arc::clone(&kernel);
                loom::thread::spawn(move || kernel.transact())
            })
            .collect();
        let mut ran = u32::from(kernel.transact());
        for other in others {
            ran += u32::from(other.join().unwrap());
        }
        // SAFETY: the other threads have ended.
        assert_eq!(kernel.worker.with(|worker| unsafe { *worker }), ran);
        assert!(kernel.queue.is_empty() && kernel.grace.claim(0), "the worker is lost");
    }

    #[test]
    fn loom_two_threads_take_turns_with_one_worker() {
        loom::model(|| threads_take_turns(2));
    }

    #[test]
    fn loom_three_threads_take_turns_with_one_worker() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(|| threads_take_turns(3));
    }
}
