//! Values of the user's types that wait to be dropped: rows, and other values with a `Drop`.
//!
//! Such a `Drop` may panic, block, or come back to the database. So the engine never runs one while it
//! has a transaction to end, garbage to collect, or a phase to change. It puts the value on a list of the
//! worker's, and the worker drops what is on the list when its transaction is over: it is neither pinned
//! nor in a transaction then, and the engine holds nothing of the worker's.
//!
//! ```text
//!   commit, abort, garbage collection      push  ->  | row | row | value |
//!   the transaction has ended              pop and drop, one by one, each under a guard of its own
//! ```
//!
//! A `Drop` that panics is counted ([`Metrics::drops_panicked`]), and does no more harm than that. One that
//! blocks holds up its own thread, and what is behind it on the list. One that runs a transaction leaves
//! the list to the call that is at work on it.
//!
//! [`Metrics::drops_panicked`]: crate::Metrics::drops_panicked

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::{Counters, WorkerMemory};
use crate::store::table::TableRef;

/// A value of a user's type that is no longer needed.
pub enum Discarded {
    /// A row, in a block of its own.
    Row(NonNull<u8>, TableRef),
    /// Something else.
    Value(Box<dyn Send>),
}

// SAFETY: rows are Send, and only the list leads to them. (Tables are the database's.)
unsafe impl Send for Discarded {}

/// A worker's list of what is to be dropped.
#[derive(Default)]
pub struct DiscardedList {
    waiting: RefCell<VecDeque<Discarded>>,
    /// Whether somebody is at work on the list: a `Drop` that runs a transaction comes here again.
    is_at_work: Cell<bool>,
    /// How many wish that nothing is dropped now.
    holds: Cell<u32>,
    /// Whether values are dropped as they come: where no transaction can be under way.
    is_immediate: Cell<bool>,
    /// How many values were waiting when the transaction under way began, which the simulated machine may
    /// undo.
    #[cfg(weft_sim)]
    marked: Cell<usize>,
}

impl WorkerMemory {
    /// Drops a value of the user's when the transaction under way is over.
    pub fn discard(&self, value: Discarded) {
        if self.discarded.is_immediate.get() {
            self.drop_discarded(value);
        } else {
            self.discarded.waiting.borrow_mut().push_back(value);
        }
    }

    /// Has values dropped as they come from now on. For memories of those who load a table, or drop the
    /// database: no transaction is under way then.
    pub fn drop_immediately(&self) {
        self.discarded.is_immediate.set(true);
    }

    /// Drops what was discarded, unless somebody [holds](WorkerMemory::hold_discarded) it. This runs the
    /// user's code, which may come back to the database; so the worker is neither pinned nor active.
    #[inline(always)]
    pub fn run_discarded(&self) {
        if !self.discarded.waiting.borrow().is_empty() {
            self.run_all_discarded();
        }
    }

    #[cold]
    #[inline(never)]
    fn run_all_discarded(&self) {
        let list = &self.discarded;
        // A thread that is unwinding has enough to do; the next transaction sees to it.
        if list.holds.get() > 0 || std::thread::panicking() || list.is_at_work.replace(true) {
            return;
        }
        loop {
            // In a statement of its own, so that the list is not borrowed while the value is dropped.
            let next = list.waiting.borrow_mut().pop_front();
            match next {
                Some(value) => self.drop_discarded(value),
                None => break,
            }
        }
        list.is_at_work.set(false);
    }

    /// Nothing is dropped while the result lives.
    pub fn hold_discarded(&self) -> HeldDiscarded<'_> {
        self.discarded.holds.set(self.discarded.holds.get() + 1);
        HeldDiscarded(self)
    }

    /// Takes what was discarded, when the database is being dropped.
    pub fn take_discarded(&self) -> VecDeque<Discarded> {
        self.discarded.waiting.take()
    }

    /// Drops a value, whatever its `Drop` does.
    pub fn drop_discarded(&self, value: Discarded) {
        let dropped = match value {
            Discarded::Row(row, table) => {
                let dropped = contain(|| {
                    if let Some(drop_row) = table.core().drop_row {
                        // SAFETY: the caller of `discard` had the row to itself, and it is taken from
                        // the list once.
                        unsafe { drop_row(row) };
                    }
                });
                // SAFETY: as above. Rows that own something have blocks of their own.
                unsafe { self.free_row(row, table, false) };
                dropped
            }
            Discarded::Value(value) => contain(|| drop(value)),
        };
        if !dropped {
            Counters::count(&self.counters().drops_panicked);
        }
    }

    /// Remembers what is waiting, to which [`WorkerMemory::undo`] goes back.
    #[cfg(weft_sim)]
    pub(super) fn mark_discarded(&self) {
        self.discarded.marked.set(self.discarded.waiting.borrow().len());
    }

    /// Forgets what was discarded since the mark: the transaction that did so has not been, and the blocks
    /// of its rows are given back. What the rows own is leaked.
    #[cfg(weft_sim)]
    pub(super) fn forget_discarded(&self) {
        let mut waiting = self.discarded.waiting.borrow_mut();
        let marked = self.discarded.marked.get().min(waiting.len());
        waiting.drain(marked..).for_each(std::mem::forget);
    }
}

/// See [`WorkerMemory::hold_discarded`].
#[must_use]
pub struct HeldDiscarded<'w>(&'w WorkerMemory);

impl Drop for HeldDiscarded<'_> {
    fn drop(&mut self) {
        let holds = &self.0.discarded.holds;
        holds.set(holds.get() - 1);
    }
}

/// Runs code of the user's; false if it has panicked. (The panic's message was printed by then.)
pub fn contain(user_code: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(user_code)) {
        Ok(()) => true,
        Err(payload) => {
            // The user's as well, and its `Drop` might panic, too.
            std::mem::forget(payload);
            false
        }
    }
}
