//! What a whole transaction in a region has done to a worker's blocks, on the simulated machine.
//!
//! A processor that rolls a region back restores all of memory, the worker's lists of free blocks among
//! it. The simulated machine restores shared words and nothing else. So a transaction that may be undone
//! as a whole (`htm-naive`'s) has its allocations noted, to be given back, and what it frees is freed when
//! it can no longer be undone. A retry then gets the blocks that the attempt before it had, as it would
//! on a processor.

use std::mem;
use std::ptr::NonNull;

use weft_htm::Regions;

use crate::store::record::arena::Class;

/// Blocks, with the classes that they belong to.
type Blocks = Vec<(NonNull<u8>, Class)>;

/// The blocks of the transaction under way, if such transactions are noted.
#[derive(Debug, Default)]
pub struct Undoable {
    /// Whether the worker's transactions are noted: from the first that may be undone as a whole on, or, of a
    /// transaction in pieces, as long as such a piece lasts.
    is_noted: bool,
    allocated: Blocks,
    freed: Blocks,
}

// SAFETY: nobody but the worker uses the blocks, on whatever thread.
unsafe impl Send for Undoable {}

impl Undoable {
    /// Begins a transaction. What the one before has freed can be freed now.
    #[must_use]
    pub fn begin(&mut self) -> Blocks {
        self.is_noted = true;
        self.allocated.clear();
        mem::take(&mut self.freed)
    }

    /// What comes now is not undone as a whole. What was freed is freed when the next that may be begins.
    pub fn end(&mut self) {
        self.is_noted = false;
    }

    /// The transaction was undone: nothing has been freed, and what was allocated is to be given back.
    #[must_use]
    pub fn undo(&mut self) -> Blocks {
        self.freed.clear();
        mem::take(&mut self.allocated)
    }

    /// Notes a block that was allocated.
    pub fn note_allocated(&mut self, block: NonNull<u8>, class: Class) {
        if self.is_noted {
            self.allocated.push((block, class));
        }
    }

    /// Whether the block must not be freed now: it was freed within a region, or by what unwinds out of
    /// one. If that region is not of a transaction that is noted, the block is never used again.
    pub fn note_freed(&mut self, block: NonNull<u8>, class: Class, regions: &Regions) -> bool {
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
