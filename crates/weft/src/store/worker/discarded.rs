//! Discarded values of the user's types, rows or others, which wait to be dropped.
//!
//! The `Drop` of such a value may panic, block, or call the database. So the engine never runs it while it
//! has a transaction to end, garbage to collect, or a phase to change. It puts the value on a list of the
//! worker's. The worker drops the values on the list when its transaction has ended. Then it is neither
//! pinned nor in a transaction, and the engine holds nothing of the worker's.
//!
//! ```text
//!   commit, abort, garbage collection      push  ->  | row | row | value |
//!   the transaction has ended              pop and drop, one by one, each under a guard of its own
//! ```
//!
//! A `Drop` that panics is counted ([`Metrics::drops_panicked`]), and has no other effect. One that blocks
//! holds up its own thread, and with it the rest of the list. One that runs a transaction does not process
//! the list again: it leaves that to the call that is already processing it.
//!
//! [`Metrics::drops_panicked`]: crate::Metrics::drops_panicked

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::{Counters, WorkerMemory};
use crate::store::table::TableRef;

/// A value of a user's type that is no longer needed.
pub enum DiscardedValue {
    /// A row, in a block of its own.
    Row(NonNull<u8>, TableRef),
    /// Any other value.
    Value(Box<dyn Send>),
}

// SAFETY: rows are Send, and only the list leads to them. (Tables belong to the database.)
unsafe impl Send for DiscardedValue {}

/// A worker's list of values to drop.
#[derive(Default)]
pub struct DiscardedList {
    waiting: RefCell<VecDeque<DiscardedValue>>,
    /// Whether a call is processing the list. A `Drop` that runs a transaction would process it again.
    is_at_work: Cell<bool>,
    /// The number of live [`DiscardHold`]: while it is not 0, nothing is dropped.
    holds: Cell<u32>,
    /// Whether values are dropped at once. For workers that run no transactions.
    is_immediate: Cell<bool>,
    /// How many values were waiting when the transaction under way began. The simulated machine may undo that
    /// transaction.
    #[cfg(weft_sim)]
    marked: Cell<usize>,
}

impl WorkerMemory {
    /// Drops a value of a user's type when the transaction under way has ended.
    pub fn discard(&self, value: DiscardedValue) {
        if self.discarded.is_immediate.get() {
            self.drop_discarded(value);
        } else {
            self.discarded.waiting.borrow_mut().push_back(value);
        }
    }

    /// Makes [`WorkerMemory::discard`] drop values at once from now on. For the memory with which a table is
    /// loaded or the database dropped: no transaction is under way then.
    pub fn drop_immediately(&self) {
        self.discarded.is_immediate.set(true);
    }

    /// Drops what was discarded, unless it is [held](WorkerMemory::hold_discarded). This runs the user's
    /// code, which may call the database; so the worker must be neither pinned nor active.
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
        // A thread that is unwinding drops nothing here; its next transaction does.
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

    /// Until the result is dropped, keeps discarded values from being dropped.
    pub fn hold_discarded(&self) -> DiscardHold<'_> {
        self.discarded.holds.set(self.discarded.holds.get() + 1);
        DiscardHold(self)
    }

    /// Takes what was discarded. Called when the database is dropped.
    pub fn take_discarded(&self) -> VecDeque<DiscardedValue> {
        self.discarded.waiting.take()
    }

    /// Drops a value, and catches a panic of its `Drop`.
    pub fn drop_discarded(&self, value: DiscardedValue) {
        let dropped = match value {
            DiscardedValue::Row(row, table) => {
                let dropped = contain(|| {
                    if let Some(drop_row) = table.core().drop_row {
                        // SAFETY: the caller of `discard` had exclusive access to the row, and the row is
                        // taken from the list only once.
                        unsafe { drop_row(row) };
                    }
                });
                // SAFETY: as above. Rows that own something have blocks of their own.
                unsafe {
                    self.count_heap(table, row, 0);
                    self.free_row(row, table, false);
                }
                dropped
            }
            DiscardedValue::Value(value) => contain(|| drop(value)),
        };
        if !dropped {
            Counters::count(&self.counters().drops_panicked);
        }
    }

    /// Marks the end of the list: [`WorkerMemory::undo`] goes back to it.
    #[cfg(weft_sim)]
    pub(super) fn mark_discarded(&self) {
        self.discarded.marked.set(self.discarded.waiting.borrow().len());
    }

    /// Forgets what was discarded since the mark: the transaction that did so was undone, and the blocks of
    /// its rows are given back. What the rows own is leaked.
    #[cfg(weft_sim)]
    pub(super) fn forget_discarded(&self) {
        let mut waiting = self.discarded.waiting.borrow_mut();
        let marked = self.discarded.marked.get().min(waiting.len());
        waiting.drain(marked..).for_each(std::mem::forget);
    }
}

/// See [`WorkerMemory::hold_discarded`].
#[must_use]
pub struct DiscardHold<'w>(&'w WorkerMemory);

impl Drop for DiscardHold<'_> {
    fn drop(&mut self) {
        let holds = &self.0.discarded.holds;
        holds.set(holds.get() - 1);
    }
}

/// Runs code of the user's. Returns false if it panicked. (By then the panic's message was printed.)
pub fn contain(user_code: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(user_code)) {
        Ok(()) => true,
        Err(payload) => {
            // The payload is the user's as well, and its `Drop` might panic, too.
            std::mem::forget(payload);
            false
        }
    }
}
