//! Undoing what a whole transaction in a region has done to a worker's blocks, on the simulated machine.
//!
//! When a processor rolls a region back, it restores all of memory, also the worker's lists of free blocks.
//! The simulated machine restores shared words and nothing else. So if a transaction may be undone as a whole
//! (under `htm-naive`), the blocks that it allocates are noted, to be given back. The blocks that it frees
//! are freed only when it can no longer be undone. A retry then gets the blocks that the attempt before it
//! had, as it would on a processor.

use std::mem;
use std::ptr::NonNull;

use weft_htm::Regions;

use crate::store::record::arena::SizeClass;

/// Blocks, with the classes that they belong to.
type Blocks = Vec<(NonNull<u8>, SizeClass)>;

/// The blocks of the transaction under way, if its blocks are noted.
#[derive(Debug, Default)]
pub struct UndoableBlocks {
    /// Whether the worker's blocks are noted. That begins with the first transaction that may be undone as a
    /// whole. For a transaction in pieces, it lasts only as long as a piece that may be undone.
    is_noted: bool,
    allocated: Blocks,
    freed: Blocks,
}

// SAFETY: only the worker uses the blocks, on whatever thread.
unsafe impl Send for UndoableBlocks {}

impl UndoableBlocks {
    /// Begins a transaction. Returns the blocks that the previous one freed: they can be freed now.
    #[must_use]
    pub fn begin(&mut self) -> Blocks {
        self.is_noted = true;
        self.allocated.clear();
        mem::take(&mut self.freed)
    }

    /// Ends the noting: what follows is not undone as a whole. Blocks that were freed so far are freed when
    /// the next transaction begins that may be undone.
    pub fn end(&mut self) {
        self.is_noted = false;
    }

    /// Undoes the transaction: nothing that it freed is freed. Returns the blocks that it allocated, to be
    /// given back.
    #[must_use]
    pub fn undo(&mut self) -> Blocks {
        self.freed.clear();
        mem::take(&mut self.allocated)
    }

    /// Notes a block that was allocated.
    pub fn note_allocated(&mut self, block: NonNull<u8>, class: SizeClass) {
        if self.is_noted {
            self.allocated.push((block, class));
        }
    }

    /// Returns whether the block must not be freed now, because it was freed inside a region, or by unwinding
    /// out of one. If that region belongs to a transaction that is not noted, the block is never used again.
    pub fn note_freed(&mut self, block: NonNull<u8>, class: SizeClass, regions: &Regions) -> bool {
        if regions.is_undone() {
            return true;
        }
        let is_inside = regions.is_inside();
        if is_inside && self.is_noted {
            self.freed.push((block, class));
        }
        is_inside
    }
}
