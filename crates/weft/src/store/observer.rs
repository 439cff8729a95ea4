//! Observers: what another crate is told of transactions, to report where they conflict and what they cost.
//!
//! A worker of an observed database has an [`Observed`], which alone its thread uses. A transaction that commits at its
//! first attempt costs one call, and a few more if the observer wants to time it. Without an observer each hook is a test
//! of one word.

use std::any::Any;
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::TableRef;
use super::worker::{LoggedWrite, WorkerMemory};
use crate::error::{ConflictReason, Failure};

/// What a transaction is called.
#[derive(Clone, Copy, Debug)]
pub enum Label {
    /// As its options say.
    Given(&'static str),
    /// By the name of the procedure that it executes.
    Procedure(&'static str),
    /// By the place in the source from which it was run.
    Source(&'static Location<'static>),
}

impl Label {
    /// Returns the caller's place in the source.
    #[inline(always)]
    #[track_caller]
    pub fn here() -> Label {
        Label::Source(Location::caller())
    }
}

/// Why a transaction has ended without a commit and without a conflict.
#[derive(Clone, Copy, Debug)]
pub enum Ending<'a> {
    /// Its closure has returned an error.
    Error,
    /// Its closure has panicked.
    Panic,
    /// Its handle was dropped, or it was rolled back.
    Dropped,
    /// The engine has refused it.
    Refused(&'a Failure),
}

/// A conflict of the transaction under way.
#[derive(Clone, Copy, Debug)]
pub struct ObservedConflict {
    pub reason: ConflictReason,
    pub table: TableRef,
    /// The block of the record, if the conflict is about one. It is not freed during the call.
    pub record: Option<NonNull<u8>>,
    /// Whether the transaction goes on without another attempt, because it was repaired.
    pub is_repaired: bool,
}

/// Observes a database.
pub trait Observer: Any + Send + Sync {
    /// Returns what observes the worker in a slot. One thread at a time uses a slot.
    fn worker(self: Arc<Self>, slot: usize) -> Box<dyn WorkerObserver>;

    /// Notes how long the calling thread has waited until its last commit was durable.
    fn waited_for_log(&self, time: Duration);
}

/// Observes the transactions of a worker, on its thread.
pub trait WorkerObserver: Send {
    /// Notes that an attempt begins. Called if the transaction is timed, or was aborted before.
    fn begun(&self, observed: &Observed);

    /// Notes that the closure has returned, and that the commit begins. Called if the transaction is timed, perhaps
    /// several times. `list_writes` lists what the transaction has written. The rows are not freed during the call.
    fn committing(
        &self,
        observed: &Observed,
        list_writes: &mut dyn FnMut(&mut Vec<LoggedWrite>),
        memory: &WorkerMemory,
    );

    /// Notes that the transaction has committed, and how many bytes it has logged, if there is a log. Returns whether the
    /// next transaction is to be timed.
    fn committed(
        &self,
        observed: &Observed,
        logged_bytes: Option<u64>,
        memory: &WorkerMemory,
    ) -> bool;

    /// Notes a conflict. The transaction holds no lock, and its worker is pinned.
    fn conflicted(&self, observed: &Observed, conflict: ObservedConflict, memory: &WorkerMemory);

    /// Notes that the transaction under way was rolled back without a conflict.
    fn rolled_back(&self);

    /// Counts a transaction that has failed without a conflict, or was refused.
    fn failed(&self, label: Label, ending: Ending<'_>);

    /// Notes that the transaction under way has waited for others at a record. It may hold locks, so this must not run the
    /// user's code.
    fn waited(&self, table: TableRef, record: NonNull<u8>, time: Duration);
}

/// The transaction under way on a worker, as an observer sees it.
pub struct Observed {
    pub observer: Box<dyn WorkerObserver>,
    pub label: Cell<Label>,
    /// How often the transaction was aborted.
    pub attempt: Cell<u32>,
    pub is_timed: Cell<bool>,
    /// How many rows and index entries it has read, and how many it writes.
    pub accessed: Cell<(usize, usize)>,
}

impl Observed {
    pub fn new(observer: Box<dyn WorkerObserver>) -> Observed {
        Observed {
            observer,
            label: Cell::new(Label::Given("")),
            attempt: Cell::new(0),
            is_timed: Cell::new(true),
            accessed: Cell::new((0, 0)),
        }
    }

    /// Notes that an attempt begins.
    pub fn begin(&self, label: Label, attempt: u32) {
        self.label.set(label);
        self.attempt.set(attempt);
        if attempt > 0 || self.is_timed.get() {
            self.observer.begun(self);
        }
    }
}

impl WorkerMemory {
    /// Lets the database's observer, if it has one, observe the worker's transactions.
    pub fn observe(&mut self) {
        let observer = self.shared().observer.clone();
        let observer = observer.map(|observer| observer.worker(self.core() as usize));
        self.observed = observer.map(|observer| Box::new(Observed::new(observer)));
    }

    /// Returns the transaction under way as an observer sees it, if the database has an observer.
    #[inline(always)]
    pub fn observed(&self) -> Option<&Observed> {
        self.observed.as_deref()
    }

    /// Tells the observer that the transaction under way has committed.
    #[cold]
    #[inline(never)]
    pub fn observe_committed(&self, observed: &Observed) {
        if !self.is_reconciling() {
            let is_timed = observed.observer.committed(observed, self.staged_bytes(), self);
            observed.is_timed.set(is_timed);
        }
    }

    /// Waits for other transactions at a record, and tells the observer, if the database has one.
    pub fn observe_wait<R>(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        wait: impl FnOnce() -> R,
    ) -> R {
        let Some(observed) = self.observed() else { return wait() };
        let since = Instant::now();
        let waited = wait();
        observed.observer.waited(table, record, since.elapsed());
        waited
    }

    /// Notes a conflict of the transaction under way, if the database has an observer. The transaction must hold no lock.
    /// This runs the user's code.
    #[cold]
    pub fn observe_conflict(
        &self,
        (reason, table, record): (ConflictReason, TableRef, Option<NonNull<u8>>),
        is_repaired: bool,
    ) {
        if let Some(observed) = self.observed()
            && !self.is_reconciling()
        {
            let conflict = ObservedConflict { reason, table, record, is_repaired };
            observed.observer.conflicted(observed, conflict, self);
        }
    }
}
