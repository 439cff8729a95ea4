//! Transactions that took long, with their attempts.
//!
//! An observer in front of the ordinary one times every transaction. A transaction that took long goes to a list of bounded
//! length, and a thread of [`trace_events`](crate::trace_events) tells `tracing` about it. So no subscriber runs in a
//! transaction.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft::ConflictReason;
use weft::store::observer::{
    Ending, Label, LabelCounts, Observed, ObservedConflict, Observer, WorkerObserver,
};
use weft::store::table::TableRef;
use weft::store::worker::{LoggedWrite, WorkerMemory};

use crate::observer::hold;

/// The most slow transactions that wait to be told.
const WAITING_MAX: usize = 256;

/// The most attempts of a transaction that are told.
const ATTEMPTS_MAX: usize = 32;

/// A transaction that took long.
#[derive(Debug)]
pub struct SlowTransaction {
    pub label: String,
    pub time: Duration,
    /// How often it was aborted.
    pub aborted: u64,
    /// The first of the aborted attempts.
    pub attempts: Vec<AbortedAttempt>,
    pub has_committed: bool,
}

/// An attempt that was aborted, or repaired.
#[derive(Clone, Copy, Debug)]
pub struct AbortedAttempt {
    pub reason: ConflictReason,
    pub table: &'static str,
    /// When, since the transaction has begun.
    pub after: Duration,
    pub is_repaired: bool,
}

/// The list of slow transactions, and how many were left out because it was full.
#[derive(Debug, Default)]
pub struct Waiting {
    pub transactions: Vec<SlowTransaction>,
    pub left_out: u64,
}

/// Observes a database in front of another observer.
pub struct SlowHub {
    pub inner: Arc<dyn Observer>,
    after: Duration,
    waiting: Mutex<Waiting>,
}

impl SlowHub {
    /// Notes transactions that take at least this long.
    pub fn new(inner: Arc<dyn Observer>, after: Duration) -> Self {
        SlowHub { inner, after, waiting: Mutex::default() }
    }

    /// Returns the hub of a database that has one.
    pub fn of(observer: &Arc<dyn Observer>) -> Option<&SlowHub> {
        let observer: &dyn Any = &**observer;
        observer.downcast_ref()
    }

    /// Takes the slow transactions that were not told yet.
    pub fn take(&self) -> Waiting {
        std::mem::take(&mut *hold(&self.waiting))
    }
}

impl Observer for SlowHub {
    fn worker(self: Arc<Self>, slot: usize) -> Box<dyn WorkerObserver> {
        let inner = Arc::clone(&self.inner).worker(slot);
        Box::new(SlowWatch {
            hub: self,
            inner,
            untimed: Cell::new(0),
            began: Cell::new(None),
            aborted: Cell::new(0),
            attempts: RefCell::default(),
        })
    }

    fn waited_for_log(&self, time: Duration) {
        self.inner.waited_for_log(time);
    }
}

/// Observes a worker.
struct SlowWatch {
    hub: Arc<SlowHub>,
    inner: Box<dyn WorkerObserver>,
    /// How many transactions commit before the next one that the inner observer wants to time.
    untimed: Cell<u64>,
    began: Cell<Option<Instant>>,
    aborted: Cell<u64>,
    attempts: RefCell<Vec<AbortedAttempt>>,
}

impl SlowWatch {
    /// Calls the inner observer, for which only the transactions that it wants are timed.
    fn pass_on(&self, observed: &Observed, call: impl FnOnce(&dyn WorkerObserver)) {
        observed.untimed.set(self.untimed.get());
        call(&*self.inner);
        self.untimed.set(observed.untimed.take());
    }

    fn end(&self, label: Label, has_committed: bool) {
        let time = self.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        let aborted = self.aborted.take();
        if time >= self.hub.after {
            let attempts = self.attempts.borrow().clone();
            let label = match label {
                Label::Given(text) | Label::Procedure(text) => text.to_owned(),
                Label::Source(place) => place.to_string(),
            };
            let slow = SlowTransaction { label, time, aborted, attempts, has_committed };
            let mut waiting = hold(&self.hub.waiting);
            match waiting.transactions.len() < WAITING_MAX {
                true => waiting.transactions.push(slow),
                false => waiting.left_out += 1,
            }
        }
        self.attempts.borrow_mut().clear();
    }
}

impl WorkerObserver for SlowWatch {
    fn counts(&self, label: Label) -> Arc<LabelCounts> {
        self.inner.counts(label)
    }

    fn begun(&self, observed: &Observed) {
        if observed.attempt.get() == 0 {
            self.began.set(Some(Instant::now()));
            self.aborted.set(0);
            self.attempts.borrow_mut().clear();
        }
        if observed.attempt.get() > 0 || self.untimed.get() == 0 {
            self.pass_on(observed, |inner| inner.begun(observed));
        }
    }

    fn committing(
        &self,
        observed: &Observed,
        list_writes: &mut dyn FnMut(&mut Vec<LoggedWrite>),
        memory: &WorkerMemory,
    ) {
        if self.untimed.get() == 0 {
            self.pass_on(observed, |inner| inner.committing(observed, list_writes, memory));
        }
    }

    fn committed(&self, observed: &Observed, memory: &WorkerMemory) {
        let untimed = self.untimed.get();
        self.pass_on(observed, |inner| inner.committed(observed, memory));
        if untimed > 0 {
            self.untimed.set(untimed - 1);
        }
        self.end(observed.label(), true);
    }

    fn conflicted(&self, observed: &Observed, conflict: ObservedConflict, memory: &WorkerMemory) {
        self.aborted.set(self.aborted.get() + 1);
        if let Some(began) = self.began.get() {
            let mut attempts = self.attempts.borrow_mut();
            if attempts.len() < ATTEMPTS_MAX {
                attempts.push(AbortedAttempt {
                    reason: conflict.reason,
                    table: conflict.table.core().name,
                    after: began.elapsed(),
                    is_repaired: conflict.is_repaired,
                });
            }
        }
        self.pass_on(observed, |inner| inner.conflicted(observed, conflict, memory));
    }

    fn rolled_back(&self) {
        self.inner.rolled_back();
    }

    fn failed(&self, label: Label, ending: Ending<'_>) {
        self.inner.failed(label, ending);
        self.end(label, false);
    }

    fn waited(&self, table: TableRef, record: NonNull<u8>, time: Duration) {
        self.inner.waited(table, record, time);
    }
}
