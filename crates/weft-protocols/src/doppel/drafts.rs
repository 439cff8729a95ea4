//! Operations that are applied at the commit (§5.2, Figure 3): the paper's write set `SW`.
//!
//! A transaction changes drafts of its worker's slices. At the commit, after its validation, the drafts take the place of
//! the slices. If the transaction does not commit, its operations are undone in the drafts; then only what a draft has
//! drawn from a [reserve](weft::operation::Reserve) goes to the slice.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The drafts of one worker.
#[derive(Default)]
pub struct Drafts {
    /// The first `used` are in use.
    drafts: Vec<Draft>,
    used: usize,
}

/// A copy of a slice.
struct Draft {
    slice: NonNull<u8>,
    bytes: usize,
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: drafts move between threads only with their worker, and none is in use then. They own nothing but memory.
unsafe impl Send for Drafts {}

impl Drafts {
    /// Returns the transaction's draft of a slice, which is made when it is first needed. It stays at its address until
    /// [`Drafts::finish`].
    ///
    /// # Safety
    /// `slice` is a slice of this worker with this layout, which does not move until [`Drafts::finish`].
    pub unsafe fn of(&mut self, slice: NonNull<u8>, layout: Layout) -> NonNull<u8> {
        if let Some(draft) = self.drafts[..self.used].iter().find(|draft| draft.slice == slice) {
            return draft.memory;
        }
        let fits = |draft: &Draft| {
            draft.layout.size() >= layout.size() && draft.layout.align() >= layout.align()
        };
        match self.drafts[self.used..].iter().position(fits) {
            Some(position) => self.drafts.swap(self.used, self.used + position),
            None => {
                self.drafts.push(Draft::new(layout));
                let last = self.drafts.len() - 1;
                self.drafts.swap(self.used, last);
            }
        }
        let draft = &mut self.drafts[self.used];
        self.used += 1;
        (draft.slice, draft.bytes) = (slice, layout.size());
        // SAFETY: by the contract, and the draft's memory is at least as large. Slices own nothing.
        unsafe { draft.memory.copy_from_nonoverlapping(slice, layout.size()) };
        draft.memory
    }

    /// Puts the drafts in the places of their slices.
    ///
    /// # Safety
    /// The slices for which the drafts were made are still there, and are this worker's.
    #[inline]
    pub unsafe fn finish(&mut self) {
        for draft in self.drafts[..self.used].iter() {
            // SAFETY: by the contract, and by that of `of`.
            unsafe { draft.slice.copy_from_nonoverlapping(draft.memory, draft.bytes) };
        }
        self.used = 0;
    }
}

impl Draft {
    fn new(layout: Layout) -> Draft {
        // Slices of a few bytes more can use it later.
        let bytes = layout.size().next_multiple_of(64).max(64);
        let layout = Layout::from_size_align(bytes, layout.align()).expect("slices are small");
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc(layout) };
        let memory = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        Draft { slice: memory, bytes: 0, memory, layout }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn slices_change_when_the_drafts_are_finished() {
        let (mut first, mut second) = (1_u64, [2_u128; 9]);
        let (one, two) = (NonNull::from(&mut first).cast(), NonNull::from(&mut second).cast());
        let mut drafts = Drafts::default();
        for round in 1..=3 {
            // SAFETY: the slices outlive the drafts' use.
            unsafe {
                let draft = drafts.of(one, Layout::new::<u64>()).cast::<u64>();
                let large = drafts.of(two, Layout::new::<[u128; 9]>()).cast::<[u128; 9]>();
                assert_eq!(drafts.of(one, Layout::new::<u64>()).cast(), draft, "there is one");
                *draft.as_ptr() += 10;
                (*large.as_ptr())[8] += 1;
                assert_eq!(*one.cast::<u64>().as_ptr(), 10 * (round - 1) + 1, "not changed yet");
                drafts.finish();
                assert_eq!(*one.cast::<u64>().as_ptr(), 10 * round + 1);
                assert_eq!((*two.cast::<[u128; 9]>().as_ptr())[8], 2 + u128::from(round));
            }
        }
        assert_eq!(drafts.drafts.len(), 2, "memory is used again");
    }
}
