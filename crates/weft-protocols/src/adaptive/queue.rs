//! The queue of a contention point: workers enter it in their order, and one at a time has its turn.
//!
//! The queue only advises. If a turn lasts too long, perhaps because its worker has lost its core, or its transaction was
//! leaked, the next worker passes over it. So every wait is bounded.

use weft_htm::word::{Ordering, Word};

/// A queue, in one word: the ticket that has its turn, and the ticket of the worker that enters next.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Queue(Word);

/// A worker's place in a queue.
pub type Ticket = u32;

const SERVING_ONE: u64 = 1 << 32;

fn serving(word: u64) -> Ticket {
    (word >> 32) as u32
}

fn next(word: u64) -> Ticket {
    word as u32
}

impl Queue {
    /// Enters the queue. Returns `None` if there are more than `ahead_max` workers in it.
    pub fn enter(&self, ahead_max: u32) -> Option<Ticket> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if next(word).wrapping_sub(serving(word)) > ahead_max {
                return None;
            }
            let entered = (u64::from(serving(word)) << 32) | u64::from(next(word).wrapping_add(1));
            // Acquire: pairs with the release in `leave`, if the turn is the caller's at once.
            match self.0.compare_exchange(word, entered, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(next(word)),
                Err(found) => word = found,
            }
        }
    }

    /// Returns the ticket that has its turn.
    pub fn serving(&self) -> Ticket {
        // Acquire: pairs with the release in `leave`.
        serving(self.0.load(Ordering::Acquire))
    }

    /// Ends the turn of a ticket, if it still has its turn.
    pub fn leave(&self, ticket: Ticket) {
        let mut word = self.0.load(Ordering::Relaxed);
        while serving(word) == ticket {
            let stepped = word.wrapping_add(SERVING_ONE);
            // Release: pairs with the acquires of the worker whose turn comes.
            match self.0.compare_exchange(word, stepped, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_of_tickets() {
        let queue = Queue::default();
        let [first, second] = [0, 1].map(|_| queue.enter(9).unwrap());
        assert_eq!(queue.serving(), first);
        assert_eq!(queue.enter(1), None, "two are ahead");
        queue.leave(first);
        assert_eq!(queue.serving(), second);
        queue.leave(first);
        assert_eq!(queue.serving(), second, "a turn ends once");
        queue.leave(second);
        let third = queue.enter(0).unwrap();
        assert_eq!(queue.serving(), third);
    }

    #[test]
    fn worker_that_was_passed_over_ends_no_other_turn() {
        let queue = Queue::default();
        let [slow, second, third] = [0, 1, 2].map(|_| queue.enter(9).unwrap());
        queue.leave(slow); // by the second worker
        queue.leave(second);
        queue.leave(slow);
        assert_eq!(queue.serving(), third);
    }

    #[test]
    fn tickets_wrap_around() {
        let queue = Queue::default();
        queue.0.store(u64::MAX, Ordering::Relaxed);
        let [first, second] = [0, 1].map(|_| queue.enter(9).unwrap());
        assert_eq!((first, second), (u32::MAX, 0));
        queue.leave(first);
        assert_eq!(queue.serving(), second);
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// One worker has its turn at a time, if none is passed over, and each gets a turn. Loom's cell reports any two
    /// accesses that are not ordered.
    #[test]
    fn loom_queue_gives_turns_one_at_a_time() {
        loom::model(|| {
            let shared = Arc::new((Queue::default(), UnsafeCell::new(0_u32)));
            let take_turn = |shared: &(Queue, UnsafeCell<u32>)| {
                let (queue, cell) = shared;
                let ticket = queue.enter(9).expect("there is room");
                while queue.serving() != ticket {
                    thread::yield_now();
                }
                // SAFETY: the worker has its turn; the test checks that it is alone.
                cell.with_mut(|value| unsafe { *value += 1 });
                queue.leave(ticket);
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || take_turn(&shared))
            };
            take_turn(&shared);
            other.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(shared.1.with(|value| unsafe { *value }), 2);
            assert!(shared.0.enter(0).is_some(), "the queue is empty");
        });
    }
}
