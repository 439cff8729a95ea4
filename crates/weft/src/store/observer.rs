//! Observers: what another crate is told of transactions, to report where they conflict and what they cost.
//!
//! A worker of an observed database has an [`Observed`], which alone its thread uses. In it the worker counts its
//! transactions by label, so it calls the observer only for a new label, a conflict, a failure, a wait, and a transaction
//! that the observer wants to time. Without an observer each hook is a test of one word.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_htm::word::Word;

use super::table::TableRef;
use super::worker::{Counters, LoggedWrite, WorkerMemory};
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

    /// Returns the address and the length of the text, by which a label is found again. A place in the source has its own
    /// address, and no text has its length.
    #[inline(always)]
    pub fn address(&self) -> (usize, usize) {
        match *self {
            Label::Given(text) | Label::Procedure(text) => (text.as_ptr().addr(), text.len()),
            Label::Source(place) => (std::ptr::from_ref(place).addr(), usize::MAX),
        }
    }
}

/// What a worker counts of the transactions with a label that have committed. The worker alone writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LabelCounts {
    pub committed: Word,
    pub rows_read: Word,
    pub rows_written: Word,
    pub logged_bytes: Word,
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
    /// Returns the counts of a label, to which the worker adds what commits. The worker keeps them, and asks for most labels
    /// only once.
    fn counts(&self, label: Label) -> Arc<LabelCounts>;

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

    /// Notes that the transaction has committed. Called if it is timed, has waited, or is logged. Of a timed transaction the
    /// observer sets how many of the next ones are [not timed](Observed::untimed).
    fn committed(&self, observed: &Observed, memory: &WorkerMemory);

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

/// How many labels a worker finds again without its observer.
const LABELS_FOUND: usize = 64;

/// How many positions are searched for a label, from its own one on.
const LABEL_DISTANCE_MAX: usize = 8;

/// A label that a worker has used, by its address.
struct UsedLabel {
    address: (usize, usize),
    counts: Arc<LabelCounts>,
}

/// The transaction under way on a worker, as an observer sees it. What each transaction needs is in one cache line.
#[repr(C, align(64))]
pub struct Observed {
    /// The counts of the label, which `labels` or `unlisted` keeps, and the label's address.
    counts: Cell<NonNull<LabelCounts>>,
    address: Cell<(usize, usize)>,
    /// How many transactions commit before the next one that is timed. The transaction under way is timed if it is 0.
    pub untimed: Cell<u64>,
    /// How many rows and index entries the transaction has read, and how many it writes.
    accessed: Cell<(usize, usize)>,
    /// How often the transaction was aborted.
    pub attempt: Cell<u32>,
    /// Whether the transaction has waited for others.
    has_waited: Cell<bool>,
    pub observer: Box<dyn WorkerObserver>,
    label: Cell<Label>,
    /// The counts of the last label for which there was no room.
    unlisted: Cell<Arc<LabelCounts>>,
    /// Labels, each at a position that follows from its address. None is ever removed.
    labels: [OnceCell<UsedLabel>; LABELS_FOUND],
}

const _: () = assert!(std::mem::offset_of!(Observed, observer) <= 64);

// SAFETY: the counts may be used on any thread, and `Observed` keeps them. All other fields are `Send`.
unsafe impl Send for Observed {}

impl Observed {
    pub fn new(observer: Box<dyn WorkerObserver>) -> Observed {
        let unlisted = Arc::<LabelCounts>::default();
        Observed {
            counts: Cell::new(NonNull::from(&*unlisted)),
            address: Cell::new((0, 0)),
            untimed: Cell::new(0),
            accessed: Cell::new((0, 0)),
            attempt: Cell::new(0),
            has_waited: Cell::new(false),
            observer,
            label: Cell::new(Label::Given("")),
            unlisted: Cell::new(unlisted),
            labels: [const { OnceCell::new() }; LABELS_FOUND],
        }
    }

    /// Returns the transaction's label.
    pub fn label(&self) -> Label {
        self.label.get()
    }

    /// Returns whether the transaction is timed.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.untimed.get() == 0
    }

    /// Notes that an attempt begins, whose number is set.
    #[inline(always)]
    pub fn begin(&self, label: &Label) {
        if self.address.get() != label.address() {
            self.find_label(label);
        }
        if self.attempt.get() > 0 || self.is_timed() {
            self.observer.begun(self);
        }
    }

    /// Makes a label the transaction's.
    #[inline(never)]
    fn find_label(&self, label: &Label) {
        let address = label.address();
        // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
        let own = ((address.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        match self.labels[own % LABELS_FOUND].get() {
            Some(used) if used.address == address => self.counts.set(NonNull::from(&*used.counts)),
            _ => self.search_label(label, own),
        }
        self.label.set(*label);
        self.address.set(address);
    }

    /// Finds the counts of a label that is not at its own position, or asks the observer for them.
    #[cold]
    #[inline(never)]
    fn search_label(&self, label: &Label, own: usize) {
        let new = || UsedLabel { address: label.address(), counts: self.observer.counts(*label) };
        for position in own..own + LABEL_DISTANCE_MAX {
            let used = self.labels[position % LABELS_FOUND].get_or_init(new);
            if used.address == label.address() {
                self.counts.set(NonNull::from(&*used.counts));
                return;
            }
        }
        let used = new();
        self.counts.set(NonNull::from(&*used.counts));
        self.unlisted.set(used.counts);
    }

    /// Notes how many rows and index entries the transaction, which is about to commit, has read and writes.
    #[inline(always)]
    pub fn set_accessed(&self, accessed: (usize, usize)) {
        self.accessed.set(accessed);
    }

    /// Counts the transaction, which has committed.
    #[inline(always)]
    fn count(&self) -> &LabelCounts {
        // SAFETY: `labels` or `unlisted` keeps the counts. What is in `labels` stays there. `unlisted` changes only when
        // `counts` has changed before.
        let counts = unsafe { self.counts.get().as_ref() };
        let (reads, writes) = self.accessed.get();
        Counters::count(&counts.committed);
        Counters::add(&counts.rows_read, reads as u64);
        Counters::add(&counts.rows_written, writes as u64);
        counts
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

    /// Counts the transaction under way, which has committed, and tells the observer if it wants to know.
    #[cold]
    #[inline(never)]
    pub fn observe_committed(&self, observed: &Observed) {
        if self.is_reconciling() {
            return;
        }
        let counts = observed.count();
        let untimed = observed.untimed.get();
        if untimed == 0 || observed.has_waited.get() || self.is_logging() {
            self.tell_committed(observed, counts);
        } else {
            observed.untimed.set(untimed - 1);
        }
    }

    /// Tells the observer that the transaction under way has committed.
    #[cold]
    #[inline(never)]
    fn tell_committed(&self, observed: &Observed, counts: &LabelCounts) {
        Counters::add(&counts.logged_bytes, self.staged_bytes().unwrap_or(0));
        observed.has_waited.set(false);
        let untimed = observed.untimed.get();
        observed.observer.committed(observed, self);
        if untimed > 0 {
            observed.untimed.set(untimed - 1);
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
        observed.has_waited.set(true);
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
