//! Split records, and the slices that workers gather operations in.
//!
//! Per split record there is one block of slices for each worker, on cache lines of its own:
//!
//! ```text
//!   block of worker 0      phase  gathered  refused | slice of the first operation | of the second …
//!   block of worker 1      …
//! ```
//!
//! A worker makes its slices when it first needs them in a phase, from the row, which nobody changes
//! until the phase has ended. So what it costs to split a record depends on who uses it, and not on how
//! many workers there are. What a slice holds does not grow with the operations (Doppel, §4).
//!
//! With its slices a worker makes a copy of the row, to which all slices are added in the end. So when
//! the phase changes, which everybody waits for, no code of the user's runs.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use smallvec::SmallVec;
use weft::operation::ColumnOperation;
use weft::store::record::version::VersionHeader;
use weft::store::table::TableRef;
use weft::store::worker::{WorkerMemory, contain};

/// The most records that are split at a time.
pub const SPLITS_MAX: usize = 64;

/// Blocks begin on lines that no other block reaches, nor the processor's prefetcher from there.
const LINES_BYTES: usize = 128;

/// A split record.
pub struct SplitRecord {
    /// The record's block.
    pub record: NonNull<u8>,
    pub table: TableRef,
    /// What can be done with it, and where in a block the slices lie.
    operations: SmallVec<[(ColumnOperation, usize); 4]>,
    slices: Slices,
}

/// The blocks of all workers.
struct Slices {
    base: NonNull<u8>,
    /// Bytes from one block to the next.
    stride: usize,
    cores: usize,
}

/// What a worker's block begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockHeader {
    /// The number of the phase that the slices were made in; another if there are none.
    phase: u64,
    /// A copy of the row, if there are slices.
    copy: Option<NonNull<u8>>,
    /// Operations gathered.
    pub gathered: u64,
    /// Accesses refused that were no operations, or such as cannot be gathered.
    pub refused: u64,
    /// When the worker was last refused an access, in the clock's nanoseconds, if it was: it has waited since
    /// then.
    pub refused_at: u64,
    /// How long workers have waited, in nanoseconds: see [`SplitRecord::counts`].
    pub waited: u64,
    /// Operations refused that could be gathered, if they were selected: the one that was, of most
    /// (or of a few less), and how many more it was than others.
    pub refused_operation: Option<(ColumnOperation, u64)>,
}

impl SplitRecord {
    /// A record, split for these operations among so many workers. Each is on another column.
    pub fn new(
        record: NonNull<u8>,
        table: TableRef,
        operations: impl IntoIterator<Item = ColumnOperation>,
        cores: usize,
    ) -> SplitRecord {
        let mut layout = Layout::new::<BlockHeader>();
        let mut placed = SmallVec::new();
        for operation in operations {
            let (extended, offset) =
                layout.extend(operation.slice_layout()).expect("a few slices are small");
            layout = extended;
            placed.push((operation, offset));
        }
        let stride = layout.size().next_multiple_of(LINES_BYTES);
        let split =
            SplitRecord { record, table, operations: placed, slices: Slices::new(stride, cores) };
        for slot in 0..cores {
            // SAFETY: a block is large enough, and nobody else has it yet.
            unsafe { split.block(slot).cast().write(BlockHeader::default()) };
        }
        split
    }

    /// The operations that it is split for.
    pub fn operations(&self) -> impl Iterator<Item = ColumnOperation> {
        self.operations.iter().map(|(operation, _)| *operation)
    }

    /// Among how many workers it is split.
    pub fn cores(&self) -> usize {
        self.slices.cores
    }

    /// A worker's block.
    ///
    /// # Safety
    /// The caller is the worker in the slot, which is in a transaction, or changes the phase. The
    /// reference ends before the worker touches its block again.
    #[allow(clippy::mut_from_ref, reason = "each worker's is its own")]
    pub unsafe fn header(&self, slot: usize) -> &mut BlockHeader {
        // SAFETY: blocks begin with headers; the caller's own.
        unsafe { self.block(slot).cast::<BlockHeader>().as_mut() }
    }

    fn block(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.slices.cores);
        // SAFETY: there are that many blocks.
        unsafe { self.slices.base.add(slot * self.slices.stride) }
    }

    /// A worker's slice for an operation, in the phase of this number; `None` if the record is not
    /// split for the operation, or not for this worker, who came later. `row` is the record's row.
    ///
    /// # Safety
    /// As for [`SplitRecord::header`]; `row` is the record's, and nobody changes it in this phase.
    #[inline(always)]
    pub unsafe fn slice(
        &self,
        operation: &ColumnOperation,
        slot: usize,
        phase: u64,
        memory: &WorkerMemory,
        row: impl FnOnce() -> NonNull<u8>,
    ) -> Option<NonNull<u8>> {
        let is_same = |selected: &&(ColumnOperation, usize)| selected.0.is_same(operation);
        let &(_, offset) = self.operations.iter().find(is_same)?;
        if slot >= self.slices.cores {
            return None;
        }
        // SAFETY: passed on to the caller.
        let header = unsafe { self.header(slot) };
        if header.phase != phase {
            // SAFETY: likewise.
            unsafe { self.make(slot, row(), memory) };
            header.phase = phase;
        }
        header.gathered += 1;
        // SAFETY: the operation's place in the block.
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
            for (operation, offset) in &self.operations {
                // SAFETY: each has its place in the block; slices own nothing, so what was there before,
                // of an earlier phase, needs not be dropped.
                unsafe { operation.initialise(row, self.slices.cores as u32, block.add(*offset)) };
            }
            // SAFETY: by the contract.
            let copy = unsafe { copy_row(self.table, row, memory) };
            // SAFETY: as above. If the user's code has panicked, this line is not reached, and there are
            // neither a copy nor slices.
            unsafe { self.header(slot) }.copy = Some(copy);
        });
    }

    /// Takes a copy of the row from those who have gathered anything, for all slices to be added to it.
    /// The other copies are dropped.
    ///
    /// # Safety
    /// The caller changes the phase.
    pub unsafe fn take_copy(&self, memory: &WorkerMemory) -> Option<NonNull<u8>> {
        let mut taken = None;
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            if let Some(copy) = unsafe { self.header(slot) }.copy.take()
                && let Some(other) = taken.replace(copy)
            {
                // SAFETY: the copy was made by `make`, and was taken.
                unsafe { memory.drop_row(other, self.table, false) };
            }
        }
        taken
    }

    /// Whether anybody has gathered anything in the phase of this number.
    ///
    /// # Safety
    /// The caller changes the phase.
    pub unsafe fn is_touched(&self, phase: u64) -> bool {
        // SAFETY: passed on to the caller.
        (0..self.slices.cores).any(|slot| unsafe { self.header(slot).phase == phase })
    }

    /// Adds what all workers have gathered in the phase of this number to `row`.
    ///
    /// # Safety
    /// The caller changes the phase, and is the only one who has `row`, a copy of the record's.
    pub unsafe fn merge(&self, phase: u64, row: NonNull<u8>) {
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            unsafe {
                if self.header(slot).phase != phase {
                    continue;
                }
                for (operation, offset) in &self.operations {
                    operation.merge(self.block(slot).add(*offset), row);
                }
            }
        }
    }

    /// Makes the slices of the phase of this number invalid: they have been merged.
    ///
    /// # Safety
    /// The caller changes the phase.
    pub unsafe fn forget(&self, phase: u64) {
        for slot in 0..self.slices.cores {
            // SAFETY: passed on to the caller.
            let header = unsafe { self.header(slot) };
            if header.phase == phase {
                header.phase = NO_PHASE;
            }
        }
    }

    /// What was counted in the phase that ends `now`.
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

/// The number of no phase in which anything is split.
const NO_PHASE: u64 = 0;

impl BlockHeader {
    /// Notes that an operation was refused, so many times: the candidate of a majority vote.
    pub fn note_refused(&mut self, operation: ColumnOperation, count: u64) {
        self.refused_operation = Some(match self.refused_operation {
            Some((candidate, votes)) if candidate.is_same(&operation) => (candidate, votes + count),
            Some((candidate, votes)) if votes >= count => (candidate, votes - count),
            _ => (operation, count),
        });
    }
}

/// A copy of a row, in a block of its own. This runs the user's code.
///
/// # Safety
/// `row` is a row of the table, and not freed during the call.
pub unsafe fn copy_row(table: TableRef, row: NonNull<u8>, memory: &WorkerMemory) -> NonNull<u8> {
    /// Gives the block back if the user's code panics.
    struct Place<'w>(NonNull<u8>, TableRef, &'w WorkerMemory);
    impl Drop for Place<'_> {
        fn drop(&mut self) {
            // SAFETY: allocated below, and no row is in it.
            unsafe { self.2.free_block(VersionHeader::block(self.0), self.1.core().row_class) };
        }
    }
    let place = Place(memory.allocate_row(table), table, memory);
    // SAFETY: by the contract; a new place.
    unsafe { table.core().clone_row(row, place.0) };
    let copy = place.0;
    std::mem::forget(place);
    copy
}

/// When the database is dropped in a split phase.
impl Drop for SplitRecord {
    fn drop(&mut self) {
        for slot in 0..self.slices.cores {
            // SAFETY: no other thread has the record any more.
            let copy = unsafe { self.header(slot) }.copy.take();
            if let (Some(copy), Some(drop_row)) = (copy, self.table.core().drop_row) {
                // SAFETY: the copy is private. Its block goes with the database's memory.
                contain(|| unsafe { drop_row(copy) });
            }
        }
    }
}

impl Slices {
    fn new(stride: usize, cores: usize) -> Slices {
        let layout = Slices::layout(stride, cores);
        // SAFETY: the layout has a size.
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

/// All split records, to be found by their addresses.
#[derive(Default)]
pub struct Splits {
    records: Vec<SplitRecord>,
    /// An open hash table of positions, one more each; 0 where there is none.
    positions: Vec<u8>,
}

const _: () = assert!(SPLITS_MAX < u8::MAX as usize);

impl Splits {
    /// These records, of which no two are the same.
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

    /// The record in a block, if it is split.
    #[inline(always)]
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

    /// All of them.
    pub fn records(&self) -> &[SplitRecord] {
        &self.records
    }

    /// Takes them apart.
    pub fn into_records(self) -> Vec<SplitRecord> {
        self.records
    }
}

/// Where the search for a record begins, in a table of a power of two.
#[inline(always)]
fn place(record: NonNull<u8>, length: usize) -> usize {
    // Blocks are at least 16 bytes apart. The upper bits of a product depend on all of a factor's.
    let hash = (record.addr().get() as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> 32) as usize & (length - 1)
}
