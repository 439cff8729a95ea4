//! Versions: a row, and what snapshots need to know of it.
//!
//! ```text
//!   -16              -8               0
//!  +----------------+----------------+-----+
//!  | number         | previous       | row |
//!  +----------------+----------------+-----+
//! ```
//!
//! - *number*: the snapshot number at which the version's transaction came (DBX §5.4 calls it the
//!   local snapshot number). Until that transaction has committed, and for a moment longer, the
//!   version is [`UNNUMBERED`], which is greater than any snapshot's.
//! - *previous*: the row of the version that this one replaced, as long as some snapshot may need
//!   it; null otherwise. It is set before the version is published.
//!
//! A deleted row stays its record's newest one until the record leaves its index. Which snapshots
//! it is deleted for depends on the number of the deletion. While snapshots are open that number
//! needs a place: a [`Deletion`], put between the version and its predecessor.
//!
//! ```text
//!   newest                              (deleted at 9)
//!     |     +---+---+-----+      +---+---+     +---+---+-----+
//!     +---->| 7 | *---row |      | 9 | *------>| 4 | - | row |
//!           +---+-|-+-----+      +---+---+     +---+---+-----+
//!                 +----- | 1 ---->
//! ```
//!
//! While none is open it suffices to say that the row was deleted, since all snapshots to come are
//! later: its number becomes [`NEVER`].
//!
//! # Who changes a chain
//!
//! Every version that was replaced has one *owner*: the transaction that replaced it, until it is
//! either unlinked from the chain, or put on a list of the [snapshots](crate::snapshot), which then
//! owns it. Only the owner unlinks it, in one of two ways:
//!
//! - If nothing hangs below it, one compare-and-swap of `previous` in the version that the owner
//!   itself has put above it, from the replaced row to null ([`VersionHeader::cut`]). That version
//!   may be about to be unlinked itself. Then its `previous` is [frozen](VersionHeader::freeze), and
//!   the compare-and-swap fails.
//! - Else under the record's *chain lock* ([`ChainLocks`]): freeze its `previous`, find whoever
//!   leads to it from the newest version on, and let that lead to what hung below it.
//!
//! So `previous` of a version that is neither frozen nor locked never leads to something that was
//! unlinked, and a reader who is pinned and meets a frozen one begins anew at the newest version.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer, spin_loop, yield_now};

/// What lies before every row.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct VersionHeader {
    number: Word,
    previous: WordPointer<u8>,
}

/// The number of a version whose transaction has not committed, or only just.
pub const UNNUMBERED: u64 = u64::MAX;

/// The number of a row that was deleted when no snapshot was open: no snapshot sees it, nor what it
/// has replaced.
pub const NEVER: u64 = u64::MAX - 1;

/// A value of `previous`: the version was unlinked.
const FROZEN: usize = 2;

/// A bit of `previous`: a [`Deletion`] comes before the predecessor.
const DELETION: usize = 1;

/// When a row was deleted. It takes the place of `previous`, and leads on to the predecessor.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Deletion {
    /// The snapshot number at which the row's deletion came.
    pub number: u64,
    /// As `previous` of a version.
    previous: WordPointer<u8>,
}

impl Deletion {
    /// The layout of its block.
    pub const LAYOUT: Layout = Layout::new::<Deletion>();
}

/// What a version's `previous` leads to.
#[derive(Clone, Copy, Debug)]
enum Previous {
    /// The predecessor, if there is one.
    Version(*mut u8),
    /// The version's deletion, and behind it the predecessor.
    Deletion(NonNull<Deletion>),
    /// The version is not in the chain any more.
    Frozen,
}

/// What a record holds for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This row.
    Row(NonNull<u8>),
    /// Nothing.
    Absent,
    /// The chain has changed meanwhile: begin anew at the newest version.
    Changed,
}

impl VersionHeader {
    /// What it adds to a row.
    pub const BYTES: usize = size_of::<VersionHeader>();

    /// The layout of a version with a row of layout `row`. The row takes at least a byte, so that
    /// its address is nobody else's.
    pub fn layout_with(row: Layout) -> Layout {
        let row = Layout::from_size_align(row.size().max(1), row.align()).expect("one byte more");
        let (layout, offset) =
            Layout::new::<VersionHeader>().extend(row).expect("rows are far below isize::MAX");
        debug_assert_eq!(offset, Self::BYTES, "rows are aligned to 16 bytes at most");
        layout
    }

    /// The row of a version that lies in `block`, with a header that nobody can see yet.
    ///
    /// # Safety
    /// The block is the caller's alone, and holds at least a header.
    #[inline(always)]
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

    /// The block that a row of its own block lies in.
    #[inline(always)]
    pub fn block(row: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: every row lies behind a header, in the same block.
        unsafe { row.sub(Self::BYTES) }
    }

    /// The header before a row.
    ///
    /// # Safety
    /// `row` is a row of a record, whose block is not freed for `'a`.
    #[inline(always)]
    pub unsafe fn of<'a>(row: NonNull<u8>) -> &'a VersionHeader {
        // SAFETY: every row lies behind a header, which was initialised before the row was.
        unsafe { Self::block(row).cast().as_ref() }
    }

    /// The snapshot number, [`UNNUMBERED`] or [`NEVER`].
    ///
    /// Acquire: pairs with [`VersionHeader::set_number`].
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Sets the number of a version whose transaction has committed.
    ///
    /// Release: whoever sees the number sees all that its transaction has installed before. (A
    /// snapshot that may see the number waits for the end of the commit in any case.)
    #[inline(always)]
    pub fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    /// Sets the predecessor of a version that nobody else can see yet.
    #[inline(always)]
    pub fn set_previous(&self, previous: *mut u8) {
        // Relaxed: the row is published after this.
        self.previous.store(previous, Ordering::Relaxed);
    }

    /// The row's predecessor, while nobody else can change it.
    #[inline(always)]
    pub fn private_previous(&self) -> *mut u8 {
        self.previous.load(Ordering::Relaxed)
    }

    /// Whether nothing hangs below the version: no predecessor, no deletion. It stays so.
    #[inline(always)]
    pub fn is_last(&self) -> bool {
        // Acquire: whoever cut the predecessor off was done with it.
        self.previous.load(Ordering::Acquire).is_null()
    }

    /// Unlinks the predecessor, `row`, below which nothing hangs. False if this version was
    /// unlinked meanwhile, and another one leads to `row`.
    #[inline(always)]
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

    #[inline(always)]
    fn previous(&self) -> Previous {
        // Acquire: pairs with the publication of the predecessor, and of the deletion.
        let word = self.previous.load(Ordering::Acquire);
        match word.addr() {
            FROZEN => Previous::Frozen,
            address if address & DELETION != 0 => {
                let deletion = word.map_addr(|address| address & !DELETION).cast();
                // SAFETY: the address of a deletion, with a bit that is no part of it.
                Previous::Deletion(unsafe { NonNull::new_unchecked(deletion) })
            }
            _ => Previous::Version(word),
        }
    }

    /// When the row was deleted, if that is written down.
    pub fn deletion(&self) -> Option<NonNull<Deletion>> {
        match self.previous() {
            Previous::Deletion(deletion) => Some(deletion),
            Previous::Version(_) | Previous::Frozen => None,
        }
    }

    /// Whether the row was deleted.
    pub fn is_deleted(&self) -> bool {
        self.number() == NEVER || matches!(self.previous(), Previous::Deletion(_))
    }

    /// The row that hangs below the version, or below its deletion. The version is linked.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    pub unsafe fn predecessor(&self) -> Option<NonNull<u8>> {
        // SAFETY: passed on to the caller.
        NonNull::new(unsafe { self.link() }.load(Ordering::Acquire))
    }

    /// Notes that the row was deleted at `number`, in a block for a [`Deletion`]. The chain is
    /// locked.
    ///
    /// # Safety
    /// The block is the caller's alone, and has the layout of a deletion.
    pub unsafe fn mark_deleted(&self, number: u64, block: NonNull<u8>) {
        let deletion = block.cast::<Deletion>();
        // Nobody else changes a predecessor while the chain is locked, but for a compare-and-swap
        // of the version's own transaction, which cuts it off.
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

    /// Declares the version unlinked, and returns what hung below it. The chain is locked.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    unsafe fn freeze(&self) -> *mut u8 {
        let frozen = ptr::without_provenance_mut(FROZEN);
        let mut previous = self.previous.load(Ordering::Acquire);
        while let Err(found) = self.previous.compare_exchange(
            previous,
            frozen,
            // The compare-and-swap of `cut` fails from here on, or else was before.
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            previous = found;
        }
        if previous.addr() & DELETION == 0 {
            return previous;
        }
        let deletion = previous.map_addr(|address| address & !DELETION).cast::<Deletion>();
        // SAFETY: the version's deletion, which nobody frees before its owner does.
        unsafe { (*deletion).previous.load(Ordering::Acquire) }
    }

    /// Where the predecessor's address is kept: in the version or in its deletion.
    ///
    /// # Safety
    /// As for [`VersionHeader::of`].
    unsafe fn link(&self) -> &WordPointer<u8> {
        match self.previous() {
            // SAFETY: deletions live as long as their versions.
            Previous::Deletion(deletion) => unsafe { &deletion.as_ref().previous },
            Previous::Version(_) | Previous::Frozen => &self.previous,
        }
    }
}

/// What a snapshot sees of a record whose newest row is `newest`.
///
/// # Safety
/// The worker is pinned since before it loaded `newest`.
#[inline(always)]
pub unsafe fn seen_at(newest: Option<NonNull<u8>>, snapshot: u64) -> Seen {
    let mut row = newest;
    while let Some(current) = row {
        // SAFETY: pinned, and reached from the newest version: see the module.
        let header = unsafe { VersionHeader::of(current) };
        let number = header.number();
        if number == NEVER {
            // Deleted when no snapshot was open: before this one was.
            return Seen::Absent;
        }
        let is_old_enough = number <= snapshot;
        let previous = match header.previous() {
            Previous::Frozen => return Seen::Changed,
            Previous::Deletion(deletion) => {
                // SAFETY: as above.
                let deletion = unsafe { deletion.as_ref() };
                if is_old_enough && deletion.number <= snapshot {
                    return Seen::Absent;
                }
                deletion.previous.load(Ordering::Acquire)
            }
            Previous::Version(previous) => previous,
        };
        if is_old_enough {
            return Seen::Row(current);
        }
        row = NonNull::new(previous);
    }
    Seen::Absent
}

/// Unlinks `row` from the chain that begins at `newest`; its `previous` stays frozen. The chain is
/// locked.
///
/// # Safety
/// The caller owns the version, is pinned since before it came to own it, and `newest` is of the
/// record that it belongs to.
pub unsafe fn unlink(newest: Option<NonNull<u8>>, row: NonNull<u8>) {
    debug_assert_ne!(newest, Some(row), "only what was replaced is unlinked");
    // SAFETY: pinned, in this function throughout: what is reached from the newest version is not
    // freed.
    unsafe {
        let below = VersionHeader::of(row).freeze();
        let mut above = newest;
        while let Some(current) = above {
            let link = VersionHeader::of(current).link();
            let previous = link.load(Ordering::Acquire);
            if previous == row.as_ptr() {
                // Release: pairs with the acquire in `previous`. A plain store, because nobody else
                // changes this link: to cut off `row` is its owner's affair, who is the caller, and
                // all else takes the lock.
                link.store(below, Ordering::Release);
                return;
            }
            above = NonNull::new(previous);
        }
    }
    debug_assert!(false, "a version that is owned is linked");
}

/// Locks of the chains of versions, each for many records.
#[derive(Debug)]
pub struct ChainLocks(Box<[Word]>);

/// How many locks there are.
const CHAIN_LOCKS: usize = if cfg!(loom) { 1 } else { 1024 };

impl Default for ChainLocks {
    fn default() -> Self {
        ChainLocks((0..CHAIN_LOCKS).map(|_| Word::new(0)).collect())
    }
}

impl ChainLocks {
    /// Locks the chain of the record in `block`, for as long as the result lives.
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

/// A chain, locked.
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
