//! The worker as its thread uses it: its state under any protocol, with a buffer for each index.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;

use arrayvec::ArrayVec;

use super::WorkerMemory;
use crate::index::LongKey;
use crate::index::bplus_tree::{LeafHint, Page};
use crate::row::encoding::KeyForm;
use crate::row::generated::TakenNumbers;

/// What a worker remembers of one index, most of it within one transaction.
pub struct IndexBuffer {
    /// The transaction for which the buffer is valid.
    serial: u64,
    /// How often that transaction had been repaired when the buffer was last used.
    pub round: u32,
    /// The workset cache (HTCC §4.1), under protocols that repair.
    pub workset: Workset,
    /// The record used last, and its row: the paper's one-node buffer (DBX §6.2). With it an update of a row
    /// that was just read needs no second look-up.
    pub last: Option<(u64, NonNull<u8>)>,
    /// Addresses of records that were prefetched, in the order in which their look-ups are expected.
    pub announced: Vec<u64>,
    /// The position in `announced` of the next expected record.
    pub expected: usize,
    hints: LeafHints,
    /// The numbers of generated keys that the worker has taken and not used yet. They outlive the transaction.
    pub numbers: TakenNumbers,
}

/// The records that a transaction had found in a table before it was repaired.
#[derive(Default)]
pub struct Workset {
    /// The addresses of the records read, and of the records to be written, each in the order of access.
    records: [Vec<u64>; 2],
    /// The position of the next expected record in each list.
    next: [usize; 2],
    /// How many records in a row were not found among the expected ones.
    misses: u32,
}

/// A record that may be looked for next. (Some records that were found before are not looked for again.)
#[derive(Clone, Copy, Debug)]
pub struct ExpectedRecord {
    pub address: u64,
    /// The list that it is on.
    list: usize,
    /// Its distance from the next expected position in that list.
    ahead: usize,
}

/// How many records of each list are candidates at a time.
const WINDOW: usize = 4;

impl Workset {
    /// Adds a record.
    pub fn push(&mut self, address: u64, is_written: bool) {
        self.records[usize::from(is_written)].push(address);
    }

    /// Returns the records that may be looked for next: those read, then those written.
    pub fn expected(&self) -> ArrayVec<ExpectedRecord, { 2 * WINDOW }> {
        let mut expected = ArrayVec::new();
        for list in 0..2 {
            let ahead = self.records[list][self.next[list]..].iter().take(WINDOW).enumerate();
            expected.extend(ahead.map(|(ahead, &address)| ExpectedRecord { address, list, ahead }));
        }
        expected
    }

    /// Notes which of the [expected](Workset::expected) records was looked for, or that none of them was.
    pub fn note(&mut self, found: Option<&ExpectedRecord>) {
        /// After so many misses in a row the keys have probably changed: searching on would cost more than it
        /// saves.
        const MISSES_MAX: u32 = 2;
        match found {
            Some(&ExpectedRecord { list, ahead, .. }) => {
                // Records that were passed over are not expected any more.
                self.next[list] = (self.next[list] + ahead + 1).min(self.records[list].len());
                self.misses = 0;
            }
            None => {
                self.misses += 1;
                if self.misses == MISSES_MAX {
                    self.clear();
                }
            }
        }
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        self.records.iter_mut().for_each(Vec::clear);
        self.next = [0; 2];
        self.misses = 0;
    }
}

/// A leaf hint for each form of keys. An index uses the hint of its form.
#[derive(Default)]
pub struct LeafHints {
    words1: LeafHint<u64>,
    words2: LeafHint<u128>,
    long: LeafHint<LongKey>,
}

/// A form of keys for which the worker keeps leaf hints and scan pages.
pub trait StoredForm: KeyForm {
    /// Returns the leaf hint for this form.
    fn hint(hints: &mut LeafHints) -> &mut LeafHint<Self>;
    /// Returns the spare scan pages for this form.
    fn pages(pages: &mut SparePages) -> &mut Vec<Page<Self>>;
}

/// Scan pages that no scan is using.
#[derive(Default)]
pub struct SparePages {
    words1: Vec<Page<u64>>,
    words2: Vec<Page<u128>>,
    long: Vec<Page<LongKey>>,
}

macro_rules! stored_form {
    ($key:ty, $field:ident) => {
        impl StoredForm for $key {
            #[inline(always)]
            fn hint(hints: &mut LeafHints) -> &mut LeafHint<Self> {
                &mut hints.$field
            }
            #[inline(always)]
            fn pages(pages: &mut SparePages) -> &mut Vec<Page<Self>> {
                &mut pages.$field
            }
        }
    };
}

stored_form!(u64, words1);
stored_form!(u128, words2);
stored_form!(LongKey, long);

impl IndexBuffer {
    fn new() -> Self {
        IndexBuffer {
            serial: 0,
            round: 0,
            workset: Workset::default(),
            last: None,
            announced: Vec::new(),
            expected: 0,
            hints: LeafHints::default(),
            numbers: TakenNumbers::none(),
        }
    }

    /// Forgets everything about the last transaction, and makes the buffer valid for the transaction `serial`.
    #[inline(always)]
    fn start(&mut self, serial: u64) {
        self.serial = serial;
        self.rewind(0);
        self.hints.words1.reset();
        self.hints.words2.reset();
        self.hints.long.reset();
    }

    /// Goes back to the beginning of the transaction, which runs again.
    #[inline(always)]
    pub fn rewind(&mut self, round: u32) {
        self.round = round;
        self.workset.clear();
        self.last = None;
        self.announced.clear();
        self.expected = 0;
    }

    /// Returns the announced record that is expected next.
    #[inline(always)]
    pub fn next_announced(&self) -> Option<u64> {
        self.announced.get(self.expected).copied()
    }

    #[inline(always)]
    pub fn hint<K: StoredForm>(&mut self) -> &mut LeafHint<K> {
        K::hint(&mut self.hints)
    }
}

/// The place of what a worker remembers of an index in the present transaction, for an operation that uses it several
/// times: see `Worker::buffer_place`.
#[derive(Clone, Copy)]
pub struct BufferPlace<'w> {
    place: NonNull<IndexBuffer>,
    worker: PhantomData<&'w WorkerState>,
}

impl<'w> BufferPlace<'w> {
    /// Returns the buffer. Every use ends before code of the user's types runs, and before the next use.
    #[inline(always)]
    pub fn get(self) -> &'w mut IndexBuffer {
        // SAFETY: the buffer lives as long as the worker. As in `Worker::executor`: index operations do not come back
        // to the worker's buffers.
        unsafe { &mut *self.place.as_ptr() }
    }
}

/// A worker's state under any protocol.
pub struct WorkerState {
    pub memory: WorkerMemory,
    /// Whether the worker is in a transaction.
    pub active: Cell<bool>,
    /// The number of the worker's present transaction.
    serial: Cell<u64>,
    /// How often the present transaction was repaired.
    round: Cell<u32>,
    /// The label that a transaction had last, and its [number](crate::store::ages::Ages::number_of).
    label: Cell<(&'static str, u64)>,
    buffers: UnsafeCell<Vec<IndexBuffer>>,
    spare_pages: RefCell<SparePages>,
    pub random: RefCell<fastrand::Rng>,
    /// Records the worker's transactions, if a history is recorded.
    #[cfg(feature = "history")]
    pub(crate) recorder: Option<RefCell<crate::history::Recorder>>,
}

impl WorkerState {
    pub fn new(memory: WorkerMemory, slot: usize, indexes: usize) -> Self {
        #[cfg(feature = "history")]
        let recording = memory.shared().recording.as_ref();
        WorkerState {
            active: Cell::new(false),
            serial: Cell::new(0),
            round: Cell::new(0),
            label: Cell::new(("", 0)),
            buffers: UnsafeCell::new((0..indexes).map(|_| IndexBuffer::new()).collect()),
            spare_pages: RefCell::default(),
            // Used for backoff only; results do not depend on it.
            random: RefCell::new(fastrand::Rng::with_seed(slot as u64)),
            #[cfg(feature = "history")]
            recorder: recording.map(|recording| RefCell::new(recording.recorder())),
            memory,
        }
    }

    /// See [`Worker::buffer_place`].
    #[inline(always)]
    pub fn buffer_place(&self, index: usize) -> BufferPlace<'_> {
        // SAFETY: as in `Worker::executor`; the list is never changed. The address comes from the list itself, so
        // that no use of a buffer makes it invalid.
        let place = unsafe {
            let buffers = &mut *self.buffers.get();
            assert!(index < buffers.len(), "an index of another database");
            NonNull::new_unchecked(buffers.as_mut_ptr().add(index))
        };
        let place = BufferPlace { place, worker: PhantomData };
        let buffer = place.get();
        if buffer.serial != self.serial.get() {
            buffer.start(self.serial.get());
        }
        place
    }

    /// Begins the next transaction: counts it, and resets the round.
    #[inline(always)]
    pub fn next_serial(&self) {
        let serial = self.serial.get() + 1;
        self.serial.set(serial);
        self.round.set(0);
        self.memory.note_running(serial);
    }

    /// Gives the present transaction a label.
    pub fn set_label(&self, label: &'static str) {
        if !std::ptr::eq(self.label.get().0, label) {
            self.label.set((label, self.memory.shared().ages.number_of(label)));
        }
        self.memory.note_running(self.label.get().1 | self.serial.get());
    }

    /// Returns how often the transaction was repaired.
    #[inline(always)]
    pub fn round(&self) -> u32 {
        self.round.get()
    }

    /// Goes back to the beginning of the transaction, which runs again after a repair.
    pub fn next_round(&self) {
        self.round.set(self.round.get() + 1);
    }

    pub fn take_page<K: StoredForm>(&self) -> Page<K> {
        K::pages(&mut self.spare_pages.borrow_mut()).pop().unwrap_or_default()
    }

    pub fn give_page<K: StoredForm>(&self, page: Page<K>) {
        K::pages(&mut self.spare_pages.borrow_mut()).push(page);
    }
}

/// A pinned worker, as in a transaction. It is unpinned when this is dropped.
pub struct PinnedWorker<'w>(&'w WorkerState);

impl<'w> PinnedWorker<'w> {
    #[inline(always)]
    pub fn new(worker: &'w WorkerState) -> Self {
        worker.memory.pin();
        PinnedWorker::already_pinned(worker)
    }

    /// As [`PinnedWorker::new`], for a worker whose claim has pinned it.
    #[inline(always)]
    pub fn already_pinned(worker: &'w WorkerState) -> Self {
        worker.active.set(true);
        PinnedWorker(worker)
    }

    #[inline(always)]
    pub fn worker(&self) -> &'w WorkerState {
        self.0
    }
}

impl Drop for PinnedWorker<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.memory.unpin();
        self.0.active.set(false);
        self.0.memory.run_discarded();
    }
}
