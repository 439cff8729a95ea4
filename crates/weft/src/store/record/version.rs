//! Versions: rows, with what snapshots need to know of them.
//!
//! ```text
//!   -16              -8               0
//!  +----------------+----------------+-----+
//!  | number         | previous       | row |
//!  +----------------+----------------+-----+
//! ```
//!
//! - *number*: the snapshot number of the transaction that wrote the version (DBX §5.4 calls it the local
//!   snapshot number). Before it has it, the version is [`UNNUMBERED`], a value greater than the number of any
//!   snapshot. It gets the number just before it is installed, or a moment after (see
//!   [`WorkerMemory::prepare`](crate::store::worker::WorkerMemory::prepare)).
//! - *previous*: the row of the version that this one replaced, as long as some snapshot may need it; null
//!   otherwise. It is set before the version is published.
//!
//! A deleted row remains its record's newest row until the record leaves its index. Which snapshots still see
//! it depends on the number of the deletion. While snapshots are open, that number is stored in a
//! [`Deletion`], which is put between the version and its predecessor.
//!
//! ```text
//!   newest                              (deleted at 9)
//!     |     +---+---+-----+      +---+---+     +---+---+-----+
//!     +---->| 7 | *---row |      | 9 | *------>| 4 | - | row |
//!           +---+-|-+-----+      +---+---+     +---+---+-----+
//!                 +----- | 1 ---->
//! ```
//!
//! While no snapshot is open, it is enough to record that the row was deleted, since all later snapshots come
//! after the deletion: the row's number becomes [`NEVER`].
//!
//! # The owner of a version
//!
//! Every replaced version has one *owner*. At first this is the transaction that replaced it. That
//! transaction either unlinks the version from the chain, or puts it on a list of the
//! [snapshots](crate::snapshot), which then owns it. Only the owner unlinks the version, in one of two ways:
//!
//! - If nothing hangs below the version: by one compare-and-swap of `previous` in the version directly above,
//!   which the owner itself has installed. It replaces the row's address by null ([`VersionHeader::cut`]). If
//!   the version above is itself being unlinked, its `previous` is already [frozen](VersionHeader::freeze),
//!   and the compare-and-swap fails.
//! - Otherwise under the record's *chain lock* ([`ChainLocks`]): the owner freezes the version's `previous`,
//!   searches from the newest version for the one whose `previous` leads to it, and makes that one lead to
//!   what hung below.
//!
//! So if a version is neither frozen nor locked, its `previous` never leads to something that was unlinked. A
//! pinned reader that meets a frozen version starts again at the newest one.
//!
//! # The inline slot of a record
//!
//! A record's first version lies inline, and the next one has a block of its own. After a grace period no
//! thread reads the inline version any more, and its memory is a free slot. The worker then moves the row
//! back (see [`WorkerMemory::move_inline`](crate::store::worker::WorkerMemory::move_inline)). Until then,
//! `previous` of the inline version has one of these values, which all look frozen to a reader:
//!
//! ```text
//!                   superseded                          moved back
//!     in the chain ------------> awaited (one garbage ------------> in the chain
//!                                   |  ^  entry)
//!               cannot be moved now |  | an obstacle has gone
//!                                   v  |
//!                                 vacant
//! ```
//!
//! The garbage entry of an awaited slot leads to the record. If the record is freed before the entry is taken
//! off its list, the slot becomes *abandoned*, and the worker that takes the entry off frees the block.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer, spin_loop, yield_now};

use super::newest;

/// The header in front of every row.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct VersionHeader {
    number: Word,
    previous: WordPointer<u8>,
}

/// The number of a version whose transaction has not committed yet, or has committed only a moment ago.
pub const UNNUMBERED: u64 = u64::MAX;

/// The number of a row that was deleted while no snapshot was open. No snapshot sees the row, nor any version
/// that it replaced.
pub const NEVER: u64 = u64::MAX - 1;

/// The value of `previous` in a version that was unlinked. In an inline slot further bits may be set.
const FROZEN: usize = 2;

/// The value of `previous` in an inline slot that holds no version.
const VACANT: usize = FROZEN | 4;

/// The value of `previous` in an inline slot for which there is an entry in a worker's garbage.
const AWAITED: usize = FROZEN | 8;

/// The value of `previous` in an inline slot whose record was to be freed while the slot was awaited.
const ABANDONED: usize = FROZEN | 4 | 8;

/// The bit of `previous` that says that a [`Deletion`] comes before the predecessor.
const DELETION: usize = 1;

/// The deletion of a row. The version's `previous` leads to it, and it leads on to the predecessor.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Deletion {
    /// The snapshot number of the transaction that deleted the row.
    pub number: u64,
    /// As `previous` of a version.
    previous: WordPointer<u8>,
}

impl Deletion {
    /// The layout of its block.
    pub const LAYOUT: Layout = Layout::new::<Deletion>();
}

/// Where a version's `previous` leads.
#[derive(Clone, Copy, Debug)]
enum Previous {
    /// The predecessor, if there is one.
    Version(*mut u8),
    /// The version's deletion, and behind it the predecessor.
    Deletion(NonNull<Deletion>),
    /// Nowhere: the version is no longer in the chain.
    Frozen,
}

/// What a snapshot sees of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotView {
    /// The snapshot sees this row.
    Row(NonNull<u8>),
    /// The snapshot sees no row.
    Absent,
    /// The chain has changed during the search: start again at the newest version.
    Changed,
}

impl VersionHeader {
    /// The number of bytes that the header adds to a row.
    pub const BYTES: usize = size_of::<VersionHeader>();

    /// Returns the layout of a version with a row of layout `row`. An empty row takes one byte, so that no
    /// other row has its address.
    pub fn layout_with(row: Layout) -> Layout {
        let row = Layout::from_size_align(row.size().max(1), row.align()).expect("one byte more");
        let (layout, offset) =
            Layout::new::<VersionHeader>().extend(row).expect("rows are far below isize::MAX");
        debug_assert_eq!(offset, Self::BYTES, "rows are aligned to 16 bytes at most");
        layout
    }

    /// Initialises the header of a version in `block`, and returns the address for its row.
    ///
    /// # Safety
    /// Only the caller can reach the block, and it holds at least a header.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn initialise(block: NonNull<u8>) -> NonNull<u8> {
        let header = VersionHeader {
            number: Word::new(UNNUMBERED),
            previous: WordPointer::new(ptr::null_mut()),
        };
        // SAFETY: by the contract.
        unsafe {
            block.cast::<VersionHeader>().write(header);
            block.add(Self::BYTES)
        }
    }

    /// Returns the block in which a row lies, if the row has a block of its own.
    #[inline(always)]
    pub fn block(row: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: every row lies behind a header, in the same block.
        unsafe { row.sub(Self::BYTES) }
    }

    /// Returns the header in front of a row.
    ///
    /// # Safety
    /// `row` is a row of a record, and its block is not freed for `'a`.
    #[inline(always)]
    pub unsafe fn of<'a>(row: NonNull<u8>) -> &'a VersionHeader {
        // SAFETY: in front of every row lies a header, which was initialised before the row.
        unsafe { Self::block(row).cast().as_ref() }
    }

    /// Returns the snapshot number, [`UNNUMBERED`] or [`NEVER`].
    ///
    /// Acquire: pairs with [`VersionHeader::set_number`].
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Sets the number of a version whose transaction has committed.
    ///
    /// Release: a thread that sees the number also sees everything that the transaction has installed before.
    /// (A snapshot that may see the number waits for the end of the commit in any case.)
    #[inline(always)]
    pub fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    /// Sets the predecessor of a version that no other thread can see yet.
    #[inline(always)]
    pub fn set_previous(&self, previous: *mut u8) {
        // Relaxed: the row is published after this.
        self.previous.store(previous, Ordering::Relaxed);
    }

    /// Returns the row's predecessor. No other thread can change it at this time.
    #[inline(always)]
    pub fn private_previous(&self) -> *mut u8 {
        self.previous.load(Ordering::Relaxed)
    }

    /// Returns whether nothing hangs below the version: no predecessor, no deletion. Once true, this stays
    /// true.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        // Acquire: the thread that cut off the predecessor had finished with it.
        self.previous.load(Ordering::Acquire).is_null()
    }

    /// Unlinks the predecessor, `row`, below which nothing hangs. Returns false if this version was unlinked
    /// in the meantime, so that another version leads to `row`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn cut(&self, row: NonNull<u8>) -> bool {
        // Release: pairs with `is_last`.
        let cut = self.previous.compare_exchange(
            row.as_ptr(),
            ptr::null_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        cut.is_ok()
    }

    /// Makes the inline slot whose version this was awaited.
    #[inline(always)]
    pub fn await_slot(&self) {
        // Relaxed: the caller owns the version. The worker that takes the garbage entry off its list, and the one
        // that frees the record, do so after a grace period.
        self.previous.store(ptr::without_provenance_mut(AWAITED), Ordering::Relaxed);
    }

    /// Makes a vacant slot awaited. Returns false if it is not vacant.
    pub fn await_vacant_slot(&self) -> bool {
        self.change_slot(VACANT, AWAITED)
    }

    /// Makes an awaited slot vacant. Returns false if it was abandoned: then the caller frees the record.
    #[must_use]
    pub fn vacate_slot(&self) -> bool {
        self.change_slot(AWAITED, VACANT)
    }

    /// Abandons an awaited slot, because its record is to be freed. Returns false if the slot was not awaited.
    #[must_use]
    pub fn abandon_slot(&self) -> bool {
        self.change_slot(AWAITED, ABANDONED)
    }

    fn change_slot(&self, from: usize, to: usize) -> bool {
        let (from, to) = (ptr::without_provenance_mut(from), ptr::without_provenance_mut(to));
        // AcqRel: one of the two that give the slot up frees the record, after all that the other has done.
        self.previous.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn previous(&self) -> Previous {
        // Acquire: pairs with the publication of the predecessor, and of the deletion.
        let word = self.previous.load(Ordering::Acquire);
        match word.addr() {
            address if address & FROZEN != 0 => Previous::Frozen,
            address if address & DELETION != 0 => {
                let deletion = word.map_addr(|address| address & !DELETION).cast();
                // SAFETY: the address of a deletion, with the flag bit cleared.
                Previous::Deletion(unsafe { NonNull::new_unchecked(deletion) })
            }
            _ => Previous::Version(word),
        }
    }

    /// Returns the row's deletion, if it was recorded in a block.
    pub fn deletion(&self) -> Option<NonNull<Deletion>> {
        match self.previous() {
            Previous::Deletion(deletion) => Some(deletion),
            Previous::Version(_) | Previous::Frozen => None,
        }
    }

    /// Returns whether the row was deleted.
    pub fn is_deleted(&self) -> bool {
        self.number() == NEVER || matches!(self.previous(), Previous::Deletion(_))
    }

    /// Returns the row that hangs below the version, or below its deletion. The version must be linked.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    pub unsafe fn predecessor(&self) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        NonNull::new(unsafe { self.link() }.load(Ordering::Acquire))
    }

    /// Records that the row was deleted at `number`, in a block for a [`Deletion`]. The caller has locked the
    /// chain.
    ///
    /// # Safety
    /// Only the caller can reach the block, and it has the layout of a deletion.
    pub unsafe fn mark_deleted(&self, number: u64, block: NonNull<u8>) {
        let deletion = block.cast::<Deletion>();
        // While the chain is locked, only the version's own transaction can change `previous`: the
        // compare-and-swap in `cut` takes no lock.
        let mut previous = self.previous.load(Ordering::Acquire);
        loop {
            debug_assert!(previous.addr() & (DELETION | FROZEN) == 0, "deleted once, and linked");
            // SAFETY: by the contract.
            unsafe { deletion.write(Deletion { number, previous: WordPointer::new(previous) }) };
            let marked = deletion.as_ptr().cast::<u8>().map_addr(|address| address | DELETION);
            // Release: pairs with `previous`.
            match self.previous.compare_exchange(
                previous,
                marked,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(found) => previous = found,
            }
        }
    }

    /// Marks the version as unlinked, and returns what hung below it. The caller has locked the chain.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    unsafe fn freeze(&self) -> *mut u8 {
        let frozen = ptr::without_provenance_mut(FROZEN);
        let mut previous = self.previous.load(Ordering::Acquire);
        while let Err(found) = self.previous.compare_exchange(
            previous,
            frozen,
            // After this exchange a compare-and-swap in `cut` fails; one that succeeded came before it.
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            previous = found;
        }
        if previous.addr() & DELETION == 0 {
            return previous;
        }
        // The predecessor hangs below the deletion, which itself stays with the version.
        let deletion = previous.map_addr(|address| address & !DELETION).cast::<Deletion>();
        // SAFETY: the version's deletion, which is not freed before the version's owner frees it.
        unsafe { (*deletion).previous.load(Ordering::Acquire) }
    }

    /// Returns the word that holds the predecessor's address: the version's or its deletion's.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    unsafe fn link(&self) -> &WordPointer<u8> {
        match self.previous() {
            // SAFETY: a deletion lives as long as its version.
            Previous::Deletion(deletion) => unsafe { &deletion.as_ref().previous },
            Previous::Version(_) | Previous::Frozen => &self.previous,
        }
    }
}

/// Returns what a snapshot sees of a record whose newest row is `newest` (DBX §5.4).
///
/// # Safety
/// The worker has been pinned since before it loaded `newest`.
#[cfg_attr(not(debug_assertions), inline(always))]
pub unsafe fn seen_at(newest: Option<NonNull<u8>>, snapshot: u64) -> SnapshotView {
    let mut row = newest;
    while let Some(current) = row {
        // SAFETY: the worker is pinned, and the row was reached from the newest version: see the module.
        let header = unsafe { VersionHeader::of(current) };
        let number = header.number();
        if number == NEVER {
            // The row was deleted while no snapshot was open, hence before this one was opened.
            return SnapshotView::Absent;
        }
        let is_old_enough = number <= snapshot;
        let previous = match header.previous() {
            Previous::Frozen => return SnapshotView::Changed,
            Previous::Deletion(deletion) => {
                // SAFETY: as above.
                let deletion = unsafe { deletion.as_ref() };
                if is_old_enough && deletion.number <= snapshot {
                    return SnapshotView::Absent;
                }
                deletion.previous.load(Ordering::Acquire)
            }
            Previous::Version(previous) => previous,
        };
        if is_old_enough {
            return SnapshotView::Row(current);
        }
        // This version is too new for the snapshot: try the one that it replaced.
        row = NonNull::new(previous);
    }
    SnapshotView::Absent
}

/// Returns the row of a record that a snapshot sees, if it sees one.
///
/// # Safety
/// The worker is pinned, and has been since before it found the record.
#[cfg_attr(not(debug_assertions), inline(always))]
pub unsafe fn row_seen_at(record: NonNull<u8>, snapshot: u64) -> Option<NonNull<u8>> {
    loop {
        // SAFETY: by the contract.
        match unsafe { seen_at(newest(record), snapshot) } {
            SnapshotView::Row(row) => return Some(row),
            SnapshotView::Absent => return None,
            // Another thread is unlinking a version that this snapshot does not need.
            SnapshotView::Changed => yield_now(),
        }
    }
}

/// Unlinks `row` from the chain that begins at `newest`. Its `previous` stays frozen. The caller has locked
/// the chain.
///
/// # Safety
/// The caller owns the version, and has been pinned since before it came to own it. `newest` is the newest
/// row of the record to which the version belongs.
pub unsafe fn unlink(newest: Option<NonNull<u8>>, row: NonNull<u8>) {
    debug_assert_ne!(newest, Some(row), "only what was replaced is unlinked");
    // SAFETY: the worker is pinned throughout this function, so what is reached from the newest version is
    // not freed.
    unsafe {
        let below = VersionHeader::of(row).freeze();
        // Find the version whose link leads to `row`, and make that link skip `row`.
        let mut above = newest;
        while let Some(current) = above {
            let link = VersionHeader::of(current).link();
            let previous = link.load(Ordering::Acquire);
            if previous == row.as_ptr() {
                // Release: pairs with the acquire in `previous`. A plain store is enough, because no other
                // thread changes this link. Only the owner of `row`, which is the caller, may cut it off; all
                // other changes take the lock.
                link.store(below, Ordering::Release);
                return;
            }
            above = NonNull::new(previous);
        }
    }
    debug_assert!(false, "a version that is owned is linked");
}

/// Locks for the chains of versions. Many records share one lock.
#[derive(Debug)]
pub struct ChainLocks(Box<[Word]>);

/// The number of locks.
const CHAIN_LOCKS: usize = if cfg!(loom) { 1 } else { 1024 };

impl Default for ChainLocks {
    fn default() -> Self {
        ChainLocks((0..CHAIN_LOCKS).map(|_| Word::new(0)).collect())
    }
}

impl ChainLocks {
    /// Locks the chain of the record in `block` until the result is dropped.
    pub fn lock(&self, block: NonNull<u8>) -> ChainGuard<'_> {
        // Fibonacci hashing; blocks are at least 16 bytes apart.
        let hash = (block.as_ptr() as usize as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let word = &self.0[(hash >> 32) as usize % self.0.len()];
        let mut spins = 0u32;
        // Acquire: pairs with the release in `drop`.
        while word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
        ChainGuard(word)
    }
}

/// Keeps a chain locked until it is dropped.
#[derive(Debug)]
pub struct ChainGuard<'a>(&'a Word);

impl Drop for ChainGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `lock`.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
