//! The queue lock of Mellor-Crummey and Scott (*Algorithms for Scalable Synchronization on
//! Shared-Memory Multiprocessors*, ACM TOCS 1991).
//!
//! The lock is a pointer to the last node in a queue. Each node belongs to one thread, lies on the thread's
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
//! A thread takes the lock by putting its node at the tail. If it finds another node there, it links that one
//! to its own, and spins on a word of its own node. Its predecessor sets that word to 0 when it leaves. So a
//! release touches the line of one other thread, however many wait, and threads get the lock in the order of
//! their arrival.

use std::ptr::{self, NonNull};

use super::{Lock, Mode, OnDrop, Wait};
use crate::word::{Ordering, Word, WordPointer};

/// A queue of threads, the first of which holds the lock.
#[derive(Debug)]
pub struct Mcs {
    tail: WordPointer<QueueNode>,
}

impl Default for Mcs {
    fn default() -> Self {
        Mcs { tail: WordPointer::new(ptr::null_mut()) }
    }
}

/// A thread's node in the queue.
#[derive(Debug)]
#[repr(align(64))]
struct QueueNode {
    next: WordPointer<QueueNode>,
    waits: Word,
}

impl QueueNode {
    fn new() -> QueueNode {
        QueueNode { next: WordPointer::new(ptr::null_mut()), waits: Word::new(1) }
    }

    /// Returns the node's address as the queue's pointers hold it. Other threads change a node only through
    /// its words.
    fn address(&self) -> *mut QueueNode {
        ptr::from_ref(self).cast_mut()
    }
}

impl Mcs {
    /// Runs a section of this thread, whose node is the queue's first, and leaves the queue.
    #[inline]
    fn finish<R>(&self, node: &QueueNode, section: impl FnOnce() -> R) -> R {
        let _leave = OnDrop(|| self.leave(node));
        section()
    }

    /// Hands the lock to the next in the queue.
    #[inline]
    fn leave(&self, node: &QueueNode) {
        // Acquire, here and below: pairs with the release in `hold`, so that this thread sees the next node as
        // its thread made it.
        let mut next = node.next.load(Ordering::Acquire);
        if next.is_null() {
            // No successor yet: try to empty the queue. Release: pairs with the acquire of the exchange by
            // which the next thread finds the queue empty, and with that of the regions that begin then.
            let left = self.tail.compare_exchange(
                node.address(),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if left.is_ok() {
                return;
            }
            // Another thread has put its node at the tail, and is about to link it to this one.
            let mut wait = Wait::default();
            while next.is_null() {
                wait.turn();
                next = node.next.load(Ordering::Acquire);
            }
        }
        // SAFETY: the node belongs to a thread that waits in `hold`, and does so until the store below.
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
        let node = QueueNode::new();
        // Acquire: pairs with the release in `leave` of the thread that emptied the queue. Release: pairs with
        // the acquire of the next thread's exchange, which then sees the node as it was made.
        let before = self.tail.swap(node.address(), Ordering::AcqRel);
        if let Some(before) = NonNull::new(before) {
            // SAFETY: this is the node of the thread before. It still exists: that thread leaves the queue
            // only after it has found this thread's node in its own `next`, and the store below puts it there.
            let before = unsafe { before.as_ref() };
            // Release: pairs with the acquires in `leave`.
            before.next.store(node.address(), Ordering::Release);
            let mut wait = Wait::default();
            // Acquire: pairs with the release in `leave`.
            while node.waits.load(Ordering::Acquire) != 0 {
                wait.turn();
            }
        }
        self.finish(&node, section)
    }

    #[inline]
    fn try_hold<R>(&self, _mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        let node = QueueNode::new();
        // Orderings as for the exchange in `hold`.
        let taken = self.tail.compare_exchange(
            ptr::null_mut(),
            node.address(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        taken.is_ok().then(|| self.finish(&node, section))
    }
}
