//! The queue lock of Mellor-Crummey and Scott (*Algorithms for Scalable Synchronization on
//! Shared-Memory Multiprocessors*, ACM TOCS 1991).
//!
//! The lock is a pointer to the last place in a queue. Each place belongs to one thread, lies on the thread's
//! stack while its section runs, and points to the next:
//!
//! ```text
//!   tail ──────────────────────────────┐
//!   holder          waiting            v waiting
//!  +---------+     +---------+     +---------+
//!  | next ───┼────>| next ───┼────>| next: 0 |       tail = 0: free
//!  | waits 0 |     | waits 1 |     | waits 1 |
//!  +---------+     +---------+     +---------+
//! ```
//!
//! A thread takes the lock by putting its place at the tail. If it finds another place there, it links that one
//! to its own, and spins on a word of its own place. Its predecessor sets that word to 0 when it leaves. So a
//! release touches the line of one other thread, however many wait, and threads get the lock in the order of
//! their arrival.

use std::ptr::{self, NonNull};

use super::{AtEnd, Lock, Mode, Wait};
use crate::word::{Ordering, Word, WordPointer};

/// A queue of threads, the first of which holds the lock.
#[derive(Debug)]
pub struct Mcs {
    tail: WordPointer<Place>,
}

impl Default for Mcs {
    fn default() -> Self {
        Mcs { tail: WordPointer::new(ptr::null_mut()) }
    }
}

/// A thread's place in the queue.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    next: WordPointer<Place>,
    waits: Word,
}

impl Place {
    fn new() -> Place {
        Place { next: WordPointer::new(ptr::null_mut()), waits: Word::new(1) }
    }

    /// Returns the place's address as the queue's pointers hold it. Other threads change a place only through
    /// its words.
    fn address(&self) -> *mut Place {
        ptr::from_ref(self).cast_mut()
    }
}

impl Mcs {
    /// Runs a section of this thread, whose place is the queue's first, and leaves the queue.
    #[inline]
    fn finish<R>(&self, place: &Place, section: impl FnOnce() -> R) -> R {
        let _leave = AtEnd(|| self.leave(place));
        section()
    }

    /// Hands the lock to the next in the queue.
    #[inline]
    fn leave(&self, place: &Place) {
        // Acquire, here and below: pairs with the release in `hold`, so that this thread sees the next place as
        // its thread made it.
        let mut next = place.next.load(Ordering::Acquire);
        if next.is_null() {
            // No successor yet: try to empty the queue. Release: pairs with the acquire of the exchange by
            // which the next thread finds the queue empty, and with that of the regions that begin then.
            let left = self.tail.compare_exchange(
                place.address(),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if left.is_ok() {
                return;
            }
            // Another thread has put its place at the tail, and is about to link it to this one.
            let mut wait = Wait::default();
            while next.is_null() {
                wait.turn();
                next = place.next.load(Ordering::Acquire);
            }
        }
        // SAFETY: the place belongs to a thread that waits in `hold`, and does so until the store below.
        let next = unsafe { &*next };
        // Release: pairs with the acquire of that wait.
        next.waits.store(0, Ordering::Release);
    }
}

impl Lock for Mcs {
    const NAME: &'static str = "mcs";
    const SHARES: bool = false;

    #[inline]
    fn excludes(&self, _mode: Mode) -> bool {
        // Acquire: pairs with the release in `leave`.
        !self.tail.load(Ordering::Acquire).is_null()
    }

    #[inline]
    fn hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> R {
        let place = Place::new();
        // Acquire: pairs with the release in `leave` of the thread that emptied the queue. Release: pairs with
        // the acquire of the next thread's exchange, which then sees the place as it was made.
        let before = self.tail.swap(place.address(), Ordering::AcqRel);
        if let Some(before) = NonNull::new(before) {
            // SAFETY: this is the place of the thread before. It still exists: that thread leaves the queue
            // only after it has found this thread's place in its own `next`, and the store below puts it there.
            let before = unsafe { before.as_ref() };
            // Release: pairs with the acquires in `leave`.
            before.next.store(place.address(), Ordering::Release);
            let mut wait = Wait::default();
            // Acquire: pairs with the release in `leave`.
            while place.waits.load(Ordering::Acquire) != 0 {
                wait.turn();
            }
        }
        self.finish(&place, section)
    }

    #[inline]
    fn try_hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        let place = Place::new();
        // Orderings as for the exchange in `hold`.
        let taken = self.tail.compare_exchange(
            ptr::null_mut(),
            place.address(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        taken.is_ok().then(|| self.finish(&place, section))
    }
}
