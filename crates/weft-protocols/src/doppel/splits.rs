//! Split records, and the slices in which workers gather operations.
//!
//! For each split record every worker has a block of slices, on cache lines of its own:
//!
//! ```text
//!   block of worker 0      phase  gathered  refused | slice of the first operation | of the second …
//!   block of worker 1      …
//! ```
//!
//! A worker makes its slices from the row, when it first needs them in a phase. The row does not change until
//! the phase has ended. So the cost of splitting a record depends on the number of workers that use it, not on
//! the number that exist. A slice does not grow with the number of operations (Doppel, §4).
//!
//! Together with its slices a worker makes a copy of the row, to which all slices are added in the end. So no
//! user code runs while the phase changes and all workers wait.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use smallvec::SmallVec;
use weft::operation::{ColumnOperation, Reserve};
use weft::store::record::version::VersionHeader;
use weft::store::table::TableRef;
use weft::store::worker::{WorkerMemory, contain};

use crate::turn::TurnLock;

/// The most records that can be split at a time.
pub const SPLITS_MAX: usize = 64;

/// Blocks begin on lines that no other block shares, and that the processor's prefetcher does not fetch with
/// another block.
const LINES_BYTES: usize = 128;

/// A split record.
pub struct SplitRecord {
    /// Where workers merge their own slices: a row with what they have merged so far.
    pending: TurnLock<Option<PendingRow>>,
    /// The record's block.
    pub record: NonNull<u8>,
    pub table: TableRef,
    operations: SmallVec<[SplitOperation; 4]>,
    slices: Slices,
}

/// A row that is not installed yet.
struct PendingRow(NonNull<u8>);

// SAFETY: the row belongs to the value alone, and the engine's rows may move between threads.
unsafe impl Send for PendingRow {}

/// An operation that can be gathered.
struct SplitOperation {
    operation: ColumnOperation,
    /// The offset of its slice in a block.
    offset: usize,
    /// Out of which all workers enlarge their slices.
    reserve: Box<Reserve>,
}

/// The memory of the blocks of all workers.
struct Slices {
    base: NonNull<u8>,
    /// The bytes from one block to the next.
    stride: usize,
    cores: usize,
}

/// The header of a worker's block.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockHeader {
    /// The number of the phase in which the slices were made, or another number if there are no slices.
    phase: u64,
    /// The number of the phase in which the worker has merged its own slices. It gets no others in this phase, because
    /// each worker has its part of what is possible only once.
    merged_in: u64,
    /// A copy of the row, if there are slices.
    copy: Option<NonNull<u8>>,
    /// Operations that were gathered.
    pub gathered: u64,
    /// Accesses that were refused because they were not operations, or could not be gathered.
    pub refused: u64,
    /// When the worker was last refused an access, in the clock's nanoseconds; 0 if it never was. The worker
    /// has waited since then.
    pub refused_at: u64,
    /// How long workers have waited, in nanoseconds: see [`SplitRecord::counts`].
    pub waited: u64,
    /// The operation that was refused most often (or a few times less than the most) although it could be
    /// gathered, if it had been selected; and a lower bound of how much more often than other operations it was
    /// refused.
    pub refused_operation: Option<(ColumnOperation, u64)>,
}

impl SplitRecord {
    /// Splits a record for these operations, each on another column, among `cores` workers.
    ///
    /// # Safety
    /// `row` is the record's row, of the table of the operations, and is not freed during the call.
    pub unsafe fn new(
        record: NonNull<u8>,
        table: TableRef,
        row: NonNull<u8>,
        operations: impl IntoIterator<Item = ColumnOperation>,
        cores: usize,
    ) -> SplitRecord {
        let mut layout = Layout::new::<BlockHeader>();
        let mut placed = SmallVec::new();
        for operation in operations {
            let (extended, offset) =
                layout.extend(operation.slice_layout()).expect("a few slices are small");
            layout = extended;
            // SAFETY: by the contract.
            let reserve = Box::new(unsafe { operation.reserve(row) });
            placed.push(SplitOperation { operation, offset, reserve });
        }
        let stride = layout.size().next_multiple_of(LINES_BYTES);
        let split = SplitRecord {
            pending: TurnLock::default(),
            record,
            table,
            operations: placed,
            slices: Slices::new(stride, cores),
        };
        for slot in 0..cores {
            // SAFETY: the block is large enough, and no other thread has it yet.
            unsafe { split.block(slot).cast().write(BlockHeader::default()) };
        }
        split
    }

    /// Returns the operations for which the record is split.
    pub fn operations(&self) -> impl Iterator<Item = ColumnOperation> {
        self.operations.iter().map(|split| split.operation)
    }

    #[inline(always)]
    fn find(&self, operation: &ColumnOperation) -> Option<&SplitOperation> {
        self.operations.iter().find(|split| split.operation.is_same(operation))
    }

    /// Returns the reserve of an operation for which the record is split.
    pub fn reserve(&self, operation: &ColumnOperation) -> Option<&Reserve> {
        self.find(operation).map(|split| &*split.reserve)
    }

    /// Returns the number of workers among which the record is split.
    pub fn cores(&self) -> usize {
        self.slices.cores
    }

    /// Returns the header of a worker's block.
    ///
    /// # Safety
    /// The caller is the worker in the slot, and is in a transaction, or the caller changes the phase. The
    /// reference ends before the worker touches its block again.
    #[allow(clippy::mut_from_ref, reason = "each worker's is its own")]
    pub unsafe fn header(&self, slot: usize) -> &mut BlockHeader {
        // SAFETY: a block begins with a header, and by the contract this one is the caller's own.
        unsafe { self.block(slot).cast::<BlockHeader>().as_mut() }
    }

    fn block(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.slices.cores);
        // SAFETY: there are that many blocks.
        unsafe { self.slices.base.add(slot * self.slices.stride) }
    }

    /// Returns a worker's slice for an operation, in the phase of this number. Returns `None` if the record is
    /// not split for the operation, or not for this worker, because it came later, or has merged its slices. `row` returns the record's
    /// row.
    ///
    /// # Safety
    /// As for [`SplitRecord::header`]; `row` returns the record's row, which does not change in this phase.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn slice(
        &self,
        operation: &ColumnOperation,
        slot: usize,
        phase: u64,
        memory: &WorkerMemory,
        row: impl FnOnce() -> NonNull<u8>,
    ) -> Option<NonNull<u8>> {
        let offset = self.find(operation)?.offset;
        if slot >= self.slices.cores {
            return None;
        }
        // SAFETY: passed on to the caller.
        let header = unsafe { self.header(slot) };
        // The first use in this phase.
        if header.phase != phase {
            if header.merged_in == phase {
                return None;
            }
            // SAFETY: passed on to the caller.
            unsafe { self.make(slot, row(), memory) };
            header.phase = phase;
        }
        header.gathered += 1;
        // SAFETY: this is the operation's offset in the block.
        Some(unsafe { self.block(slot).add(offset) })
    }

    /// Makes a worker's slices, and its copy of the row. This runs the user's code.
    ///
    /// # Safety
    /// As for [`SplitRecord::slice`].
    #[cold]
    unsafe fn make(&self, slot: usize, row: NonNull<u8>, memory: &WorkerMemory) {
        let block = self.block(slot);
        memory.in_user_code(|| {
            for SplitOperation { operation, offset, .. } in &self.operations {
                // SAFETY: each operation has its place in the block. Slices own nothing, so what an earlier
                // phase left there need not be dropped.
                unsafe { operation.initialise(row, self.slices.cores as u32, block.add(*offset)) };
            }
            // SAFETY: by the contract.
            let copy = unsafe { copy_row(self.table, row, memory) };
            // SAFETY: as above. If the user's code has panicked, this line is not reached, and there is neither
            // a copy nor a slice.
            unsafe { self.header(slot) }.copy = Some(copy);
        });
    }

    /// Merges a worker's slices of the phase of this number into the pending row, and forgets them: the loop's body in
    /// the paper's Figure 4.
    ///
    /// # Safety
    /// The caller is the worker in the slot, and is announced while the phase changes, or changes it itself.
    pub unsafe fn merge_own(&self, slot: usize, phase: u64, memory: &WorkerMemory) {
        if slot >= self.slices.cores {
            return;
        }
        // SAFETY: passed on to the caller.
        let header = unsafe { self.header(slot) };
        if header.phase != phase {
            return;
        }
        // lock(record)
        let mut pending = self.pending.take();
        let own = header.copy.take();
        let row = match (pending.as_ref().map(|PendingRow(row)| *row), own) {
            (Some(row), Some(own)) => {
                // SAFETY: `make` has made the copy, and it was taken from its block.
                unsafe { memory.drop_row(own, self.table, false) };
                row
            }
            (Some(row), None) => row,
            (None, Some(own)) => pending.insert(PendingRow(own)).0,
            // A transaction has taken the copy, and has failed to install it: the slices are merged at the end.
            (None, None) => return,
        };
        // merge-apply(operation, slice, record)
        for SplitOperation { operation, offset, .. } in &self.operations {
            // SAFETY: the slice is the caller's, which holds the lock of the pending row.
            unsafe { operation.merge(self.block(slot).add(*offset), row) };
        }
        header.phase = NO_PHASE;
        header.merged_in = phase;
    }

    /// Takes the pending row, or else the copy of the row from one of the workers that have made slices. All slices are
    /// then added to it. The copies of the other workers are dropped. Also returns whether it is the pending row, so
    /// that what workers have merged themselves is in it.
    ///
    /// # Safety
    /// The caller changes the phase, or has taken the record to merge it.
    pub unsafe fn take_copy(&self, memory: &WorkerMemory) -> (Option<NonNull<u8>>, bool) {
        let mut taken = self.pending.take().take().map(|PendingRow(row)| row);
        let is_pending = taken.is_some();
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            if let Some(copy) = unsafe { self.header(slot) }.copy.take() {
                match taken {
                    None => taken = Some(copy),
                    // SAFETY: `make` has made the copy, and it was taken from its block.
                    Some(_) => unsafe { memory.drop_row(copy, self.table, false) },
                }
            }
        }
        (taken, is_pending)
    }

    /// Whether any worker has gathered anything in the phase of this number.
    ///
    /// # Safety
    /// The caller changes the phase, or has taken the record to merge it.
    pub unsafe fn is_touched(&self, phase: u64) -> bool {
        (0..self.slices.cores).any(|slot| {
            // SAFETY: passed on to the caller.
            let header = unsafe { self.header(slot) };
            header.phase == phase || header.merged_in == phase
        })
    }

    /// Adds what all workers have gathered in the phase of this number to `row`: the paper's `merge-apply`
    /// (Figure 4). `again` says whether that includes what workers have merged into a pending row, which was lost.
    ///
    /// # Safety
    /// The caller changes the phase, or has taken the record to merge it. It alone has `row`, which is a copy of the
    /// record's row.
    pub unsafe fn merge(&self, phase: u64, row: NonNull<u8>, again: bool) {
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            unsafe {
                let BlockHeader { phase: made_in, merged_in, .. } = *self.header(slot);
                if made_in != phase && !(again && merged_in == phase) {
                    continue;
                }
                for SplitOperation { operation, offset, .. } in &self.operations {
                    operation.merge(self.block(slot).add(*offset), row);
                }
            }
        }
        for split in &self.operations {
            // SAFETY: passed on to the caller.
            unsafe { split.operation.finish(row) };
        }
    }

    /// Makes the slices of the phase of this number invalid, after they were merged: S := ∅ in the paper's
    /// Figure 4.
    ///
    /// # Safety
    /// The caller changes the phase, or has taken the record to merge it.
    pub unsafe fn forget(&self, phase: u64) {
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            let header = unsafe { self.header(slot) };
            if header.phase == phase {
                header.phase = NO_PHASE;
            }
            if header.merged_in == phase {
                header.merged_in = NO_PHASE;
            }
        }
    }

    /// Returns the counts of the phase that ends `now`, added up over all workers.
    ///
    /// # Safety
    /// The caller changes the phase.
    pub unsafe fn counts(&self, now: u64) -> BlockHeader {
        let mut total = BlockHeader::default();
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            let header = unsafe { *self.header(slot) };
            total.gathered += header.gathered;
            total.refused += header.refused;
            if header.refused_at > 0 {
                total.waited += now.saturating_sub(header.refused_at);
            }
            if let Some((operation, count)) = header.refused_operation {
                total.note_refused(operation, count);
            }
        }
        total
    }
}

/// A phase number at which nothing is ever split: the first phase is a joined one.
const NO_PHASE: u64 = 0;

impl BlockHeader {
    /// Counts `count` refusals of an operation, by a majority vote that keeps one candidate.
    pub fn note_refused(&mut self, operation: ColumnOperation, count: u64) {
        self.refused_operation = Some(match self.refused_operation {
            Some((candidate, votes)) if candidate.is_same(&operation) => (candidate, votes + count),
            Some((candidate, votes)) if votes >= count => (candidate, votes - count),
            _ => (operation, count),
        });
    }
}

/// Copies a row into a new block. This runs the user's code.
///
/// # Safety
/// `row` is a row of the table, and not freed during the call.
pub unsafe fn copy_row(table: TableRef, row: NonNull<u8>, memory: &WorkerMemory) -> NonNull<u8> {
    /// Gives the block back if the user's code panics.
    struct CopyBlock<'w>(NonNull<u8>, TableRef, &'w WorkerMemory);
    impl Drop for CopyBlock<'_> {
        fn drop(&mut self) {
            // SAFETY: allocated below, and there is no row in it.
            unsafe { self.2.free_block(VersionHeader::block(self.0), self.1.core().row_class) };
        }
    }
    let place = CopyBlock(memory.allocate_row(table), table, memory);
    // SAFETY: by the contract; the place is new.
    unsafe {
        table.core().clone_row(row, place.0);
        memory.count_row_heap(table, place.0);
    }
    let copy = place.0;
    std::mem::forget(place);
    copy
}

/// Drops the copies that are left when the database is dropped in a split phase.
impl Drop for SplitRecord {
    fn drop(&mut self) {
        // No lock is held while the row's own code runs.
        let pending = self.pending.take().take();
        if let (Some(PendingRow(row)), Some(drop_row)) = (pending, self.table.core().drop_row) {
            // SAFETY: the row is private. Its block is freed with the database's memory.
            contain(|| unsafe { drop_row(row) });
        }
        for slot in 0..self.slices.cores {
            // SAFETY: no other thread uses the record any more.
            let copy = unsafe { self.header(slot) }.copy.take();
            if let (Some(copy), Some(drop_row)) = (copy, self.table.core().drop_row) {
                // SAFETY: the copy is private. Its block is freed with the database's memory.
                contain(|| unsafe { drop_row(copy) });
            }
        }
    }
}

impl Slices {
    fn new(stride: usize, cores: usize) -> Slices {
        let layout = Slices::layout(stride, cores);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Slices { base, stride, cores }
    }

    fn layout(stride: usize, cores: usize) -> Layout {
        Layout::from_size_align(stride * cores.max(1), LINES_BYTES).expect("slices are small")
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout. Slices own nothing.
        unsafe { dealloc(self.base.as_ptr(), Slices::layout(self.stride, self.cores)) };
    }
}

/// All split records, found by their addresses.
#[derive(Default)]
pub struct Splits {
    records: Vec<SplitRecord>,
    /// An open hash table. An entry is a position in `records` plus one, or 0 if the entry is empty.
    positions: Vec<u8>,
}

const _: () = assert!(SPLITS_MAX < u8::MAX as usize);

impl Splits {
    /// Builds the table. No two of the records are the same.
    pub fn new(records: Vec<SplitRecord>) -> Splits {
        assert!(records.len() <= SPLITS_MAX);
        if records.is_empty() {
            return Splits::default();
        }
        let mut positions = vec![0; (records.len() * 4).next_power_of_two()];
        for (number, split) in (1..).zip(&records) {
            let mut place = place(split.record, positions.len());
            while positions[place] != 0 {
                place = (place + 1) % positions.len();
            }
            positions[place] = number;
        }
        Splits { records, positions }
    }

    /// Returns the split record in a block, if the record is split.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn find(&self, record: NonNull<u8>) -> Option<&SplitRecord> {
        if self.positions.is_empty() {
            return None;
        }
        let mut place = place(record, self.positions.len());
        loop {
            let split = &self.records[usize::from(self.positions[place]).checked_sub(1)?];
            if split.record == record {
                return Some(split);
            }
            place = (place + 1) % self.positions.len();
        }
    }

    /// Returns all split records.
    pub fn records(&self) -> &[SplitRecord] {
        &self.records
    }

    /// Returns all split records, and drops the hash table.
    pub fn into_records(self) -> Vec<SplitRecord> {
        self.records
    }
}

/// Returns where the search for a record begins, in a table whose length is a power of two.
#[inline(always)]
fn place(record: NonNull<u8>, length: usize) -> usize {
    // Blocks are at least 16 bytes apart. The upper bits of the product depend on all bits of the address.
    let hash = (record.addr().get() as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 32) as usize & (length - 1)
}
