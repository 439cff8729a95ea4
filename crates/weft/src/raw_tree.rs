//! A B+-tree of rows without transactions: the baseline that transactions are measured against.
//!
//! DBX §7.3.2 asks what the smallest transactions cost over "the raw B+-tree of the memory store". This is
//! that tree. It uses directly what every protocol uses: the same index, records, arenas, grace periods and
//! hardware regions. Each operation is atomic on its own:
//!
//! - [`RawWorker::get`] pins the worker, looks the key up, and shows the newest row;
//! - [`RawWorker::update`] also copies the row into a new block of the arena, changes the copy, and swaps the
//!   record's pointer. If the pointer no longer leads to the row that was copied, it tries again. The old
//!   version is retired and freed after the same grace periods;
//! - [`RawWorker::insert`] and [`RawWorker::scan`] are the index's own.
//!
//! So a changed row is never torn and no update is lost, on any number of threads. What the tree leaves out
//! is what a transaction costs more:
//! - finding the thread's worker, catching panics, beginning and ending;
//! - version words, the read set and the write set, validation, locks;
//! - rollback and retries;
//! - the checks for foreign tables, deadlines, changed keys and nested writes;
//! - remembering the last row, and counting.
//!
//! A scan is not atomic as a whole, so the tree does not protect against phantoms.
//!
//! It is not part of the engine's interface.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use weft_htm::prefetch::prefetch_lines;
use weft_htm::word::Ordering;
use weft_htm::{Choice, Htm, RetryPolicy};

use crate::database::WORKERS_MAX_DEFAULT;
use crate::database::metrics::Metrics;
use crate::error::Failure;
use crate::index::bplus_tree::{BPlusTree, Direction, LeafHint, Page};
use crate::index::{IndexWorker, Insertion, Lookup};
use crate::store::record::arena::BLOCK_BYTES_MAX;
use crate::store::record::{Newest, RecordPointer, StoredRecord, layout_with};
use crate::store::worker::{SharedState, WorkerMemory};

/// A record of the tree: no header, since there is no protocol.
type Record = RecordPointer<()>;

/// How many rows ahead a scan prefetches records, as the engine's scans do.
const ROWS_AHEAD: usize = 6;

/// A B+-tree of rows of type `R`, by keys of eight bytes. It is a handle: clones refer to the same tree.
pub struct RawTree<R> {
    inner: Arc<Inner<R>>,
}

struct Inner<R> {
    /// The memory in whose chunks all blocks of the tree lie, its records and their rows. They are freed with
    /// it: a node fits a chunk, and the rows own nothing.
    shared: Arc<SharedState>,
    tree: BPlusTree<u64>,
    rows: PhantomData<fn() -> R>,
}

impl<R> Clone for RawTree<R> {
    fn clone(&self) -> Self {
        RawTree { inner: Arc::clone(&self.inner) }
    }
}

impl<R> std::fmt::Debug for RawTree<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RawTree").finish_non_exhaustive()
    }
}

impl<R: Copy + Send + Sync + 'static> RawTree<R> {
    /// Opens an empty tree.
    ///
    /// # Errors
    /// [`Failure::Htm`] if `htm` asks for hardware that the machine does not have.
    pub fn open(htm: Choice, reserve_bytes: usize) -> Result<Self, Failure> {
        // As for the engine's tables: the row must fit inline, and its blocks must lie in chunks.
        const { assert!(align_of::<R>() <= 16 && size_of::<R>() <= BLOCK_BYTES_MAX - 16) };
        let htm = Htm::open(htm, RetryPolicy::default())?;
        let shared = Arc::new(SharedState::new(htm, WORKERS_MAX_DEFAULT));
        shared.memory.reserve(reserve_bytes);
        let slot = shared.take_slot().expect("no thread uses the tree yet");
        let memory = WorkerMemory::new(Arc::clone(&shared), slot);
        let tree = BPlusTree::new(&memory);
        memory.leave();
        shared.give_slot(slot);
        Ok(RawTree { inner: Arc::new(Inner { shared, tree, rows: PhantomData }) })
    }

    /// Returns what one thread needs to use the tree.
    ///
    /// # Errors
    /// [`Failure::TooManyWorkers`] if all slots are in use.
    pub fn worker(&self) -> Result<RawWorker<R>, Failure> {
        let shared = &self.inner.shared;
        let slot = shared
            .take_slot()
            .ok_or(Failure::TooManyWorkers { workers_max: WORKERS_MAX_DEFAULT })?;
        let memory = WorkerMemory::new(Arc::clone(shared), slot);
        shared.set_reader(slot, memory.regions().reader());
        Ok(RawWorker { inner: Arc::clone(&self.inner), memory, slot, page: Page::new() })
    }

    /// Returns metrics of memory and of hardware regions. There are no transactions to count.
    pub fn metrics(&self) -> Metrics {
        Metrics::gather(&self.inner.shared)
    }
}

/// One thread's access to a [`RawTree`]. Its methods take `&mut self`, so a closure that is shown a row
/// cannot call another method, which would unpin the worker and allow the row to be freed.
pub struct RawWorker<R> {
    inner: Arc<Inner<R>>,
    memory: WorkerMemory,
    slot: usize,
    page: Page<u64>,
}

impl<R> std::fmt::Debug for RawWorker<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RawWorker").field("slot", &self.slot).finish_non_exhaustive()
    }
}

// SAFETY: a worker that runs no operation is not tied to a thread: it holds addresses of the tree's memory
// and its own hardware regions, and it is inside none of these.
unsafe impl<R> Send for RawWorker<R> {}

/// Keeps the worker pinned. It unpins when it is dropped, because closures may panic.
struct PinGuard<'w>(&'w WorkerMemory);

impl<'w> PinGuard<'w> {
    #[inline(always)]
    fn new(memory: &'w WorkerMemory) -> Self {
        memory.pin();
        PinGuard(memory)
    }
}

impl Drop for PinGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.unpin();
    }
}

impl<R> RawWorker<R> {
    const ROW: Layout = Layout::new::<R>();

    /// Returns the row that a record's pointer led to.
    ///
    /// # Safety
    /// The pointer was loaded by a worker that was already pinned, and that stays pinned for `'a`.
    #[inline(always)]
    unsafe fn row<'a>(newest: *mut u8) -> &'a R {
        // SAFETY: the worker is pinned, so the row is not freed, and no thread changes a row once the pointer
        // leads to it. Every record has a row before it is in the tree.
        unsafe { &*newest.cast::<R>() }
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<Record> {
        match self.inner.tree.get(&key, &mut LeafHint::new()) {
            // SAFETY: the tree's own address of a record of this type.
            Lookup::Found(address) => Some(unsafe { Record::from_address(address) }),
            Lookup::Absent(_) => None,
        }
    }
}

impl<R: Copy> RawWorker<R> {
    /// Calls `read` with the row under `key`. Returns `None` if there is no such row.
    #[inline]
    pub fn get<T>(&mut self, key: u64, read: impl FnOnce(&R) -> T) -> Option<T> {
        let _pinned = PinGuard::new(&self.memory);
        let record = self.find(key)?;
        // SAFETY: the worker is pinned until the end of this function. Acquire: pairs with the release in
        // `update`, so the row's contents are visible.
        Some(read(unsafe { Self::row(record.get().newest.load(Ordering::Acquire).address()) }))
    }

    /// Copies the row under `key`, lets `change` change the copy, and installs it in the row's place. Returns
    /// false if there is no such row. `change` runs again if another thread has changed the row in the
    /// meantime.
    #[inline]
    pub fn update(&mut self, key: u64, change: impl Fn(&mut R)) -> bool {
        let _pinned = PinGuard::new(&self.memory);
        let Some(record) = self.find(key) else { return false };
        // SAFETY: the worker is pinned until the end of this function.
        let stored = unsafe { record.get() };
        let block = self.memory.allocate(Self::ROW);
        // Acquire, here and on failure of the exchange: see `get`.
        let mut newest = stored.newest.load(Ordering::Acquire);
        loop {
            // SAFETY: the worker is pinned; the block is new, this worker's own, and has a row's layout.
            unsafe {
                block.cast::<R>().write(*Self::row(newest.address()));
                change(block.cast::<R>().as_mut());
            }
            // Release: pairs with the acquires, so a thread that sees the pointer also sees the row. An old
            // pointer cannot come back (ABA) while this worker is pinned, because its block is not freed.
            let swapped = stored.newest.compare_exchange(
                newest,
                Newest::of(block),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => break,
                Err(other) => newest = other,
            }
        }
        if let Some(replaced) = newest.row().filter(|row| *row != record.inline_row()) {
            // SAFETY: this worker or another one got the block from `allocate`; the exchange has made it
            // unreachable, and only one thread can have done so.
            unsafe { self.memory.retire(replaced, Self::ROW) };
        }
        true
    }

    /// Inserts a row. Returns false, and changes nothing, if there is already a row under `key`.
    #[inline]
    pub fn insert(&mut self, key: u64, row: R) -> bool {
        let _pinned = PinGuard::new(&self.memory);
        let layout = layout_with(Layout::new::<StoredRecord<()>>(), Self::ROW);
        let block = self.memory.allocate(layout);
        // SAFETY: a new block with the layout of a record and its inline row.
        let record = unsafe {
            let record = StoredRecord::<()>::initialise(block);
            record.inline_row().cast::<R>().write(row);
            record.get().newest.store(Newest::of(record.inline_row()), Ordering::Relaxed);
            record
        };
        // The insertion unlocks its leaf with release, which publishes the record.
        match self.inner.tree.get_or_insert(
            &key,
            record.address(),
            &mut LeafHint::new(),
            &self.memory,
        ) {
            Insertion::Inserted { .. } => true,
            Insertion::Found(_) => {
                // SAFETY: allocated above with this layout, and not published.
                unsafe { self.memory.free(block, layout) };
                false
            }
        }
    }

    /// Calls `visit` with the rows from the key `from` on, in the order of their keys, `rows_max` at most.
    #[inline]
    pub fn scan(&mut self, from: u64, rows_max: usize, mut visit: impl FnMut(&R)) {
        let _pinned = PinGuard::new(&self.memory);
        let bytes = layout_with(Layout::new::<StoredRecord<()>>(), Self::ROW).size();
        let prefetch = |address: Option<&u64>| {
            if let Some(&address) = address {
                prefetch_lines(std::ptr::without_provenance(address as usize), bytes.min(128));
            }
        };
        let (mut hint, mut from, mut left) = (LeafHint::new(), Bound::Included(from), rows_max);
        while left > 0 {
            let (to, direction) = (Bound::Unbounded, Direction::Forward);
            let page = &mut self.page;
            self.inner.tree.read_page(from.as_ref(), to, direction, page, &mut hint, &self.memory);
            let addresses = page.addresses();
            let addresses = &addresses[..addresses.len().min(left)];
            (0..ROWS_AHEAD).for_each(|position| prefetch(addresses.get(position)));
            for (position, &address) in addresses.iter().enumerate() {
                prefetch(addresses.get(position + ROWS_AHEAD));
                // SAFETY: the tree's own address of a record of this type; the worker is pinned until the end
                // of this function. Acquire: see `get`.
                visit(unsafe {
                    let record = Record::from_address(address).get();
                    Self::row(record.newest.load(Ordering::Acquire).address())
                });
            }
            left -= addresses.len();
            match page.take_next() {
                Some(next) => from = next,
                None => return,
            }
        }
    }
}

impl<R> Drop for RawWorker<R> {
    fn drop(&mut self) {
        self.memory.leave();
        self.inner.shared.give_slot(self.slot);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    type Row = [u64; 3];

    fn tree() -> RawTree<Row> {
        RawTree::open(Choice::Software, 0).expect("software is everywhere")
    }

    #[test]
    fn rows_are_inserted_found_changed_and_scanned() {
        let tree = tree();
        let mut worker = tree.worker().expect("one worker");
        for key in (0..1000).rev() {
            assert!(worker.insert(key * 2, [key, 0, 7]));
        }
        assert!(!worker.insert(500, [0; 3]), "the key is present");
        assert_eq!(worker.get(500, |row| *row), Some([250, 0, 7]));
        assert_eq!(worker.get(501, |row| *row), None);
        for round in 0..100_000 {
            assert!(worker.update(round % 1000 * 2, |row| row[1] += 1));
        }
        assert!(!worker.update(501, |row| row[1] += 1));
        let mut seen = Vec::new();
        worker.scan(501, 300, |row| seen.push(*row));
        let expected: Vec<Row> = (251..551).map(|key| [key, 100, 7]).collect();
        assert_eq!(seen, expected);
        let mut tail = 0;
        worker.scan(1990, usize::MAX, |_| tail += 1);
        assert_eq!(tail, 5);
    }

    /// Four threads update ten rows: no update is lost, and no reader sees a row half changed.
    #[test]
    fn updates_are_neither_lost_nor_torn() {
        const UPDATES: u64 = 50_000;
        let tree = tree();
        let mut worker = tree.worker().expect("one worker");
        (0..10).for_each(|key| assert!(worker.insert(key, [0; 3])));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut worker = tree.worker().expect("four workers");
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..UPDATES {
                        worker.update(random.u64(..10), |row| {
                            assert!(row[0] == row[1] && row[1] == row[2], "{row:?}");
                            row.iter_mut().for_each(|column| *column += 1);
                        });
                        worker.get(random.u64(..10), |row| assert_eq!(row[0], row[2]));
                    }
                });
            }
        });
        let mut sum = 0;
        worker.scan(0, usize::MAX, |row| sum += row[0]);
        assert_eq!(sum, 4 * UPDATES);
        assert_eq!(tree.metrics().workers, 1, "the others have given their slots back");
    }
}
