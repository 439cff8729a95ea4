//! Records: an index maps keys to them, and protocols protect them.
//!
//! ```text
//!   record (one block of the arena)                   version (a block of its own)
//!  +--------+------------------+-------------------+     +--------+----------+-----+
//!  | newest | header           | first version,    |     | number | previous | row |
//!  |    |   | (the protocol's) | inline            |     +--------+----------+-----+
//!  +----|---+------------------+-------------------+     ^        |          ^
//!  0    |                                                16-byte aligned     |
//!       +---------------------------------- to the row ----------------------+
//! ```
//!
//! A row is reached through `newest` and never changes once it is published: a write installs a new version
//! by swapping the pointer. So a commit touches headers only, which keeps a hardware region small (DBX §5.1).
//! And a reader that holds a row can go on reading it until its transaction ends, even if other transactions
//! commit new versions in between. In front of every row lies what snapshots need to know of its version: see
//! [`version`].
//!
//! The first version of a record lies inline behind its header, so reading it costs no second cache miss. An
//! update puts the next version into a block of its own. When no thread reads the inline version any more, a
//! worker copies the row back, and the block is free again. So a row that is not updated at the moment lies
//! inline, and takes no memory elsewhere. A row that is updated all the time is copied at most once for each
//! grace period ([decision 42](../../../../../docs/decisions/0042-rows-move-back.md)).
//!
//! Rows that own heap memory are never inline. They have blocks of their own from the start, because the
//! worker that replaces such a row drops what the row owns later. By then another worker may have deleted the
//! record and freed its block.
//!
//! The header is the protocol's own type: a TID word ([`tid`]) for the optimistic ones, nothing for `none`.
//! `newest` comes first under every protocol. So tables and snapshots, which read rows and never look at a
//! header, do not depend on the protocol. Where they have to deal with headers, they do it through a
//! [`RecordKind`].

pub mod arena;
pub mod tid;
pub mod version;

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::prefetch::{LINE_BYTES, prefetch_lines};
use weft_htm::word::{Ordering, WordPointer};

use self::version::VersionHeader;

/// A record with protocol header `H`. The inline version, if there is one, follows it.
#[repr(C, align(16))]
pub struct StoredRecord<H> {
    /// The newest committed row, perhaps with a protocol's flags; null before the first commit.
    pub newest: NewestWord,
    /// What the protocol keeps with the record.
    pub header: H,
}

/// Returns a record's word for its newest row, whatever the type of the record's header.
///
/// # Safety
/// `record` is a record of the database, and is not freed as long as the result is used.
#[inline(always)]
pub unsafe fn newest_word<'a>(record: NonNull<u8>) -> &'a NewestWord {
    // SAFETY: by the contract; the word comes first in every record.
    unsafe { record.cast::<NewestWord>().as_ref() }
}

/// Returns a record's newest row, or `None` if it has never had one.
///
/// # Safety
/// `record` is a record of the database, and is not freed during the call.
#[inline(always)]
pub unsafe fn newest(record: NonNull<u8>) -> Option<NonNull<u8>> {
    // SAFETY: by the contract. Acquire: pairs with the release by which the row was installed.
    unsafe { newest_word(record) }.load(Ordering::Acquire).row()
}

/// Returns the record at an address that an index returned.
#[inline(always)]
pub fn record_at(address: u64) -> NonNull<u8> {
    let record = std::ptr::with_exposed_provenance_mut(address as usize);
    NonNull::new(record).expect("an index holds no zeros")
}

/// What code that does not know the protocol needs to know of its records: their size, and what to do with
/// their headers.
#[derive(Debug)]
pub struct RecordKind {
    /// The layout of a record without an inline version.
    pub layout: Layout,
    /// Turns an uninitialised block that only the caller can reach into a placeholder.
    initialise: unsafe fn(NonNull<u8>, u64),
    /// See [`RecordHeader::mark_loaded`].
    mark_loaded: unsafe fn(NonNull<u8>),
    settle_deleted: SettleDeleted,
    /// See [`Protocol::UNLINKS_AT_ONCE`](crate::protocol::Protocol::UNLINKS_AT_ONCE).
    pub unlinks_at_once: bool,
    hold_row: Option<HoldRow>,
}

/// Runs a callback while no transaction can replace a record's row. See
/// [`Protocol::HOLD_ROW`](crate::protocol::Protocol::HOLD_ROW).
pub type HoldRow = unsafe fn(NonNull<u8>, &mut dyn FnMut()) -> HoldOutcome;

/// Whether a record's row was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It was, and the callback has run.
    Held,
    /// A transaction holds it: try again later.
    Busy,
    /// The record has no visible row.
    Absent,
}

/// Decides what to do with a deleted record: whether it may leave the index, by a callback that unlinks it.
/// See [`Protocol::settle_deleted`](crate::protocol::Protocol::settle_deleted).
pub type SettleDeleted =
    unsafe fn(NonNull<u8>, &dyn Fn(u64) -> bool, &mut dyn FnMut() -> bool) -> DeletedOutcome;

impl RecordKind {
    /// Describes records with header `H`. Once they are deleted, `settle_deleted` decides what to do with
    /// them, after a grace period unless it `unlinks_at_once`. `hold_row` is given if the engine may move rows.
    pub const fn new<H: RecordHeader>(
        settle_deleted: SettleDeleted,
        unlinks_at_once: bool,
        hold_row: Option<HoldRow>,
    ) -> RecordKind {
        RecordKind {
            layout: Layout::new::<StoredRecord<H>>(),
            initialise: initialise::<H>,
            mark_loaded: mark_loaded::<H>,
            settle_deleted,
            unlinks_at_once,
            hold_row,
        }
    }

    /// Returns whether the engine moves rows of these records.
    #[inline(always)]
    pub fn moves_rows(&self) -> bool {
        self.hold_row.is_some()
    }

    /// Runs `action` while no transaction can replace the record's row, if the record has one and no
    /// transaction holds it.
    ///
    /// # Safety
    /// `record` is of this kind, and is not freed during the call. The kind [moves](RecordKind::moves_rows)
    /// rows.
    pub unsafe fn hold_row(&self, record: NonNull<u8>, action: &mut dyn FnMut()) -> HoldOutcome {
        let hold_row = self.hold_row.expect("rows of this kind are moved");
        // SAFETY: passed on to the caller.
        unsafe { hold_row(record, action) }
    }

    /// Returns the offset of the inline row in a record.
    pub fn row_offset(&self) -> usize {
        self.layout.size() + VersionHeader::BYTES
    }

    /// Returns the layout of a record with an inline row of layout `row`.
    pub fn layout_with(&self, row: Layout) -> Layout {
        layout_with(self.layout, row)
    }

    /// Turns a block into a placeholder whose versions [begin after](RecordHeader::begin_after) this one.
    ///
    /// # Safety
    /// Only the caller can reach the block, and it is large and aligned enough for a record of this kind.
    pub unsafe fn initialise(&self, block: NonNull<u8>, version: u64) {
        // SAFETY: passed on to the caller.
        unsafe { (self.initialise)(block, version) };
    }

    /// Marks a record's row as loaded, that is, as present before all transactions.
    ///
    /// # Safety
    /// `record` is of this kind, and no other thread has found it yet.
    pub unsafe fn mark_loaded(&self, record: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.mark_loaded)(record) };
    }

    /// Decides what to do with a deleted record: see [`SettleDeleted`].
    ///
    /// # Safety
    /// `record` is of this kind, and is not freed during the call.
    pub unsafe fn settle_deleted(
        &self,
        record: NonNull<u8>,
        may_go: &dyn Fn(u64) -> bool,
        unlink: &mut dyn FnMut() -> bool,
    ) -> DeletedOutcome {
        // SAFETY: passed on to the caller.
        unsafe { (self.settle_deleted)(record, may_go, unlink) }
    }
}

unsafe fn initialise<H: RecordHeader>(block: NonNull<u8>, version: u64) {
    // SAFETY: called through a `RecordKind`, whose contract this is.
    unsafe { StoredRecord::<H>::initialise(block).get() }.header.begin_after(version);
}

unsafe fn mark_loaded<H: RecordHeader>(record: NonNull<u8>) {
    // SAFETY: called through the `RecordKind` of records with this header.
    unsafe { record.cast::<StoredRecord<H>>().as_ref() }.header.mark_loaded();
}

/// Returns the layout of a record of layout `record` with an inline row of layout `row`.
pub fn layout_with(record: Layout, row: Layout) -> Layout {
    let version = VersionHeader::layout_with(row);
    let (layout, offset) = record.extend(version).expect("rows are far below isize::MAX");
    debug_assert_eq!(offset, record.size(), "versions are aligned to 16 bytes");
    layout
}

/// What a protocol keeps with every record. The default value is the header of a placeholder.
pub trait RecordHeader: Default + Send + Sync + 'static {
    /// Makes this the header of a record whose row was present before all transactions. No other thread can
    /// reach the record yet.
    #[doc(hidden)]
    fn mark_loaded(&self);

    /// Makes the versions of a placeholder begin after this one: see
    /// [`WorkerMemory::begin_versions`](crate::store::worker::WorkerMemory::begin_versions). No other thread can reach
    /// the record yet.
    #[doc(hidden)]
    #[inline(always)]
    fn begin_after(&self, version: u64) {
        let _ = version;
    }
}

/// For protocols without a header: a record consists of its row only.
impl RecordHeader for () {
    fn mark_loaded(&self) {}
}

/// The outcome for a deleted record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedOutcome {
    /// It has been unlinked from the index.
    Unlinked,
    /// It stays: it has a row again, or the index does not hold it under its key.
    Kept,
    /// It may not be unlinked yet, for example because a transaction holds it: try again later.
    Busy,
}

/// A record's word for its newest row, which threads share.
#[repr(transparent)]
#[derive(Debug)]
pub struct NewestWord(WordPointer<u8>);

/// The value of a [`NewestWord`]: the address of a row, and a protocol's flags. No row's address uses the
/// four lowest bits, since blocks and inline rows are aligned to 16 bytes.
///
/// It is not a pointer, so code cannot follow it while flags are set. [`Newest::row`] returns the row.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest(*mut u8);

/// The bits for flags, which no row's address uses.
const FLAGS: usize = 0xf;

const _: () = assert!(align_of::<StoredRecord<()>>() > FLAGS);

impl Newest {
    /// No row, and no flags.
    pub const NONE: Newest = Newest(std::ptr::null_mut());

    /// Returns the value for a row, without flags.
    #[inline(always)]
    pub fn of(row: NonNull<u8>) -> Newest {
        debug_assert_eq!(row.addr().get() & FLAGS, 0, "rows are aligned to 16 bytes");
        Newest(row.as_ptr())
    }

    /// Returns the value for a row's address, or for null, without flags.
    #[inline(always)]
    pub fn at(row: *mut u8) -> Newest {
        debug_assert_eq!(row.addr() & FLAGS, 0, "rows are aligned to 16 bytes");
        Newest(row)
    }

    /// Returns the row, whatever the flags.
    #[inline(always)]
    pub fn row(self) -> Option<NonNull<u8>> {
        NonNull::new(self.address())
    }

    /// Returns the row's address, whatever the flags; null if there is no row.
    #[inline(always)]
    pub fn address(self) -> *mut u8 {
        self.0.map_addr(|address| address & !FLAGS)
    }

    /// Returns whether at least one of these flags is set.
    #[inline(always)]
    pub fn has(self, flags: usize) -> bool {
        debug_assert_eq!(flags & !FLAGS, 0);
        self.0.addr() & flags != 0
    }

    /// Returns the value with these flags set as well.
    #[inline(always)]
    pub fn with(self, flags: usize) -> Newest {
        debug_assert_eq!(flags & !FLAGS, 0);
        Newest(self.0.map_addr(|address| address | flags))
    }

    /// Returns the value with these flags cleared.
    #[inline(always)]
    pub fn without(self, flags: usize) -> Newest {
        debug_assert_eq!(flags & !FLAGS, 0);
        Newest(self.0.map_addr(|address| address & !flags))
    }
}

impl Default for NewestWord {
    fn default() -> Self {
        NewestWord::new()
    }
}

impl NewestWord {
    /// Creates a word that holds no row and no flags.
    pub fn new() -> NewestWord {
        NewestWord(WordPointer::new(std::ptr::null_mut()))
    }

    /// Loads the value.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> Newest {
        Newest(self.0.load(order))
    }

    /// Stores a value.
    #[inline(always)]
    pub fn store(&self, newest: Newest, order: Ordering) {
        self.0.store(newest.0, order);
    }

    /// Replaces `current` by `new`.
    ///
    /// # Errors
    /// The value found, if it was not `current`.
    #[inline(always)]
    pub fn compare_exchange(
        &self,
        current: Newest,
        new: Newest,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Newest, Newest> {
        self.0.compare_exchange(current.0, new.0, success, failure).map(Newest).map_err(Newest)
    }
}

/// Returns the offset of the inline row in a record with header `H`.
pub const fn row_offset<H>() -> usize {
    size_of::<StoredRecord<H>>() + VersionHeader::BYTES
}

impl<H: Default> StoredRecord<H> {
    /// Turns an uninitialised block into a placeholder. If the table holds rows inline, the inline version
    /// must still be [initialised](RecordPointer::initialise_inline).
    ///
    /// # Safety
    /// Only the caller can reach the block, and it is large and aligned enough for the record's layout.
    #[inline(always)]
    pub unsafe fn initialise(block: NonNull<u8>) -> RecordPointer<H> {
        let record = block.cast::<StoredRecord<H>>();
        let empty = StoredRecord { newest: NewestWord::new(), header: H::default() };
        // SAFETY: by the contract.
        unsafe { record.write(empty) };
        RecordPointer(record)
    }
}

/// The address of a record. Indexes and access sets hold copies of it. The record stays readable as long as
/// the worker that got the address stays pinned.
pub struct RecordPointer<H>(NonNull<StoredRecord<H>>);

impl<H> Clone for RecordPointer<H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for RecordPointer<H> {}

impl<H> PartialEq for RecordPointer<H> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<H> RecordPointer<H> {
    /// Returns the record at an address that an index returned.
    ///
    /// # Safety
    /// `address` is that of an initialised record with header `H`, in the database of the worker, which is
    /// pinned.
    #[inline(always)]
    pub unsafe fn from_address(address: u64) -> Self {
        // SAFETY: index addresses are never zero, and by the contract this one is a record's.
        // Addresses are exposed as integers because index nodes hold words.
        RecordPointer(unsafe {
            NonNull::new_unchecked(std::ptr::with_exposed_provenance_mut(address as usize))
        })
    }

    /// Returns the address to store in an index.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    /// Returns the record.
    ///
    /// # Safety
    /// The worker has been pinned since before it obtained the pointer, and stays pinned for `'a`.
    #[inline(always)]
    pub unsafe fn get<'a>(self) -> &'a StoredRecord<H> {
        // SAFETY: the worker is pinned, so the block is not freed. Records are initialised before they are
        // published, and consist of shared words only.
        unsafe { self.0.as_ref() }
    }

    /// Returns the block that the record lies in.
    pub fn block(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// Prefetches the record's first cache line, which holds the header.
    #[inline(always)]
    pub fn prefetch_header(self) {
        prefetch_lines(self.0.as_ptr().cast(), LINE_BYTES);
    }

    /// Prefetches the newest row, which is `bytes` long. If the header is not in the cache, this waits for
    /// it.
    ///
    /// # Safety
    /// As for [`RecordPointer::get`].
    #[inline(always)]
    pub unsafe fn prefetch_row(self, bytes: usize) {
        // Relaxed: nothing is read through the pointer.
        // SAFETY: passed on to the caller.
        let newest = unsafe { self.get() }.newest.load(Ordering::Relaxed);
        prefetch_lines(newest.address(), bytes);
    }

    /// Writes the header of the inline version, and returns the address for its row.
    ///
    /// # Safety
    /// No other thread has the record's address, and the record's block includes an inline version.
    #[inline(always)]
    pub unsafe fn initialise_inline(self) -> NonNull<u8> {
        // SAFETY: by the contract.
        unsafe { VersionHeader::initialise(VersionHeader::block(self.inline_row())) }
    }

    /// Returns the address of the record's inline row, if the table holds rows inline.
    #[inline(always)]
    pub fn inline_row(self) -> NonNull<u8> {
        // Wrapping: if the table does not hold rows inline, the block may end before this address.
        let row = self.0.as_ptr().cast::<u8>().wrapping_add(row_offset::<H>());
        // SAFETY: blocks do not lie at the end of the address space.
        unsafe { NonNull::new_unchecked(row) }
    }
}
