//! Growth: arrays of buckets, and how a table moves from one to the next while in use.
//!
//! # When a table grows
//!
//! What makes a full table slow is overflow buckets, so they are what is counted: each array
//! keeps the number of its home buckets that have any, and when they are more than one in
//! [`BUCKETS_PER_OVERFLOW`] the table grows. An insertion touches that shared count only
//! when it adds the first overflow bucket to a home bucket, which is rare and costs an allocation
//! anyway: so there is no hot counter, and none per worker to be summed up. Keys that are made to
//! collide lengthen one chain and do not count more than once, so they cannot make a table grow
//! without end. Tables do not shrink.
//!
//! # How it grows
//!
//! The home bucket of a hash is given by its highest bits. In an array of twice the size one bit
//! more counts, so that the bucket `b` is split into `2b` and `2b + 1`, its *children*:
//!
//! ```text
//!  old array   | 0 MIGRATED | 1 MIGRATED | 2          | 3          |  <- HashTable::current
//!               /     \      /     \
//!  next array  | 0   | 1   | 2   | 3   |  not yet initialised      |  <- old.next
//! ```
//!
//! - The insertion that meets the limit claims the growth (one wins), allocates the next array
//!   and links it. The memory is not initialised: no step of a growth takes longer for a larger
//!   table.
//! - From then on each insertion and removal first moves a few buckets ([`BUCKETS_PER_STEP`]),
//!   which it claims from a shared cursor. A bucket is moved under its lock: its children are
//!   initialised and filled, overflow buckets are retired, and its version becomes
//!   [`MIGRATED`] for ever.
//! - Every operation starts at the current array. Whoever finds a bucket migrated goes on to the
//!   next array, where the child is initialised, as nobody gets there but past that mark.
//! - Who moves the last bucket makes the next array the current one and retires the old one.
//!
//! Readers are never stopped: a bucket that is not being moved at this very moment is read where
//! it is. As a migrated bucket's version has changed, a transaction that noted it for a key it
//! missed takes that for a conflict, retries, and notes the child. The word itself stays readable
//! while it is pinned, as arrays are retired and not freed.
//!
//! The array after the next may be claimed and linked before the next becomes current; it is only
//! filled after that, since only the current array's buckets are claimed.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer};

use super::super::{IndexKey, IndexWorker};
use super::HashTable;
use super::bucket::{Backoff, Bucket, CHANGE, LOCKED, MIGRATED};

/// A table grows when more than one home bucket in so many has overflow buckets. With `u64` keys
/// that comes at 1.9 entries per bucket, where a look-up touches 1.10 lines on average; just after
/// it has grown, 1.02. A quarter (2.5 entries, 1.18 lines) was tried: it leaves a million keys in
/// half as large an array, but look-ups among them took 60 ns and not 45.
const BUCKETS_PER_OVERFLOW: u64 = 8;

/// How many buckets an insertion or removal moves while the table grows.
#[cfg(not(any(loom, shuttle)))]
pub(super) const BUCKETS_PER_STEP: u64 = 16;
#[cfg(any(loom, shuttle))]
pub(super) const BUCKETS_PER_STEP: u64 = 1;

/// The size of the smallest array.
const BUCKETS_MIN: u64 = 2;

/// A power of two of buckets.
#[repr(C, align(64))]
pub(super) struct Array<K: IndexKey> {
    buckets: NonNull<Bucket<K>>,
    /// 64 − log₂ of the number of buckets.
    shift: u32,
    /// The array of twice the size, once growth has begun.
    next: WordPointer<Array<K>>,
    growth: Growth,
}

/// The words of an array that are written while it is in use, on a line of their own.
#[repr(align(64))]
#[derive(Default)]
struct Growth {
    /// How many home buckets have overflow buckets, as a signed number.
    overflowing: Word,
    /// 1 when a thread has taken it upon itself to allocate the next array.
    is_claimed: Word,
    /// The next bucket to be moved.
    cursor: Word,
    /// How many buckets have been moved.
    migrated: Word,
}

impl<K: IndexKey> Array<K> {
    /// Allocates an array. Its buckets are not initialised.
    fn allocate(bucket_count: u64, worker: &impl IndexWorker) -> NonNull<Array<K>> {
        assert!(bucket_count.is_power_of_two() && bucket_count >= BUCKETS_MIN);
        let array = worker.allocate(Layout::new::<Array<K>>()).cast::<Array<K>>();
        let buckets = worker.allocate(Self::layout(bucket_count)).cast();
        // SAFETY: `allocate` gave memory of this layout, which is nobody else's yet.
        unsafe {
            array.write(Array {
                buckets,
                shift: u64::BITS - bucket_count.trailing_zeros(),
                next: WordPointer::new(ptr::null_mut()),
                growth: Growth::default(),
            });
        }
        array
    }

    /// Allocates an array of empty buckets, for about `expected` entries.
    pub(super) fn with_capacity(expected: usize, worker: &impl IndexWorker) -> NonNull<Array<K>> {
        // At this fill (1.8 entries per bucket of 3, 1.2 per bucket of 2), one bucket in nine
        // has overflow buckets if hashes are random: just below the limit.
        let bucket_count = (expected as u64)
            .saturating_mul(5)
            .div_ceil(3 * Bucket::<K>::ENTRIES as u64)
            .max(BUCKETS_MIN)
            .checked_next_power_of_two()
            .expect("a capacity that fits the address space");
        let array = Self::allocate(bucket_count, worker);
        for index in 0..bucket_count as usize {
            // SAFETY: the array has `bucket_count` buckets, and is nobody else's yet.
            unsafe { array.as_ref().buckets.add(index).write(Bucket::new()) };
        }
        array
    }

    /// The memory of `bucket_count` buckets.
    fn layout(bucket_count: u64) -> Layout {
        usize::try_from(bucket_count)
            .ok()
            .and_then(|count| Layout::array::<Bucket<K>>(count).ok())
            .expect("an array that fits the address space")
    }

    /// How many buckets the array has.
    pub(super) fn bucket_count(&self) -> u64 {
        1 << (u64::BITS - self.shift)
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Where the home bucket of `hash` is.
    #[inline(always)]
    pub(super) fn home_pointer(&self, hash: u64) -> *const Bucket<K> {
        // SAFETY: a hash has no more than `bucket_count` different indexes.
        unsafe { self.buckets.add(self.index(hash)) }.as_ptr()
    }

    /// A bucket by its index.
    ///
    /// # Safety
    /// There are more than `index` buckets and this one is initialised; the caller is pinned.
    unsafe fn bucket(&self, index: usize) -> &Bucket<K> {
        // SAFETY: as the caller promises.
        unsafe { self.buckets.add(index).as_ref() }
    }

    /// The home bucket of `hash`.
    ///
    /// # Safety
    /// The array is the table's current one, or its parent bucket was found migrated (by an
    /// acquire load); the caller is pinned.
    #[inline(always)]
    pub(super) unsafe fn home(&self, hash: u64) -> &Bucket<K> {
        // SAFETY: all buckets of a current array are initialised, and those whose parent is
        // migrated are. The array is reachable or was when the caller was pinned.
        unsafe { &*self.home_pointer(hash) }
    }

    /// The next array, if growth has begun.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Array<K>> {
        // Acquire pairs with the release store in `grow`: the array's own words are initialised.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: the pointer is null or an array that was initialised before it was linked. It
        // can only be retired after this one, which the pinned caller can still reach.
        unsafe { next.as_ref() }
    }

    /// Counts a home bucket that got its first overflow bucket, and starts growing if they are
    /// too many. Not called with a lock held.
    #[cold]
    pub(super) fn add_overflowing(&self, worker: &impl IndexWorker) {
        // Relaxed: a statistic. A stale count delays growth or starts it a little early.
        let before = self.growth.overflowing.fetch_add(1, Ordering::Relaxed);
        let limit = self.bucket_count() / BUCKETS_PER_OVERFLOW;
        if before.wrapping_add(1).cast_signed() > limit.cast_signed() {
            self.grow(worker);
        }
    }

    /// Counts a home bucket that lost its last overflow bucket.
    #[cold]
    pub(super) fn remove_overflowing(&self) {
        // Relaxed as above. The removal may be counted before the insertion that it undoes, so
        // that the count is below zero for a moment.
        self.growth.overflowing.fetch_add(u64::MAX, Ordering::Relaxed);
    }

    /// Allocates and links the next array, unless another thread does.
    fn grow(&self, worker: &impl IndexWorker) {
        // Relaxed: only atomicity counts. What the winner publishes goes by `next`.
        if self.growth.is_claimed.swap(1, Ordering::Relaxed) == 0 {
            let next = Self::allocate(self.bucket_count() * 2, worker);
            // Release pairs with the acquire load in `next`.
            self.next.store(next.as_ptr(), Ordering::Release);
        }
    }

    /// Claims buckets to be moved, as a range of indexes.
    fn claim(&self) -> Option<std::ops::Range<usize>> {
        let count = self.bucket_count();
        // Relaxed: the cursor only hands out numbers. It is read first so that it cannot run
        // around, however many threads come late.
        if self.growth.cursor.load(Ordering::Relaxed) >= count {
            return None;
        }
        let start = self.growth.cursor.fetch_add(BUCKETS_PER_STEP, Ordering::Relaxed);
        let end = (start + BUCKETS_PER_STEP).min(count);
        (start < end).then_some(start as usize..end as usize)
    }

    /// Moves the bucket at `index` to its children in `next`. Only for who claimed it.
    ///
    /// # Safety
    /// This array is or was the current one and `next` is the next; the caller is pinned, has
    /// claimed the index and comes here once.
    unsafe fn migrate(&self, index: usize, next: &Array<K>, worker: &impl IndexWorker) {
        // SAFETY: a claimed index is below the number of buckets, and those of a current array
        // are initialised.
        let bucket = unsafe { self.bucket(index) };
        let version = bucket.lock();
        for child in [2 * index, 2 * index + 1] {
            // SAFETY: `next` has twice as many buckets. Nobody reaches these two before the
            // parent, which is locked, is marked as migrated.
            unsafe { next.buckets.add(child).write(Bucket::new()) };
        }
        let mut overflowing = 0;
        let mut source = Some(bucket);
        while let Some(bucket) = source {
            for (slot, address) in bucket.occupied() {
                let key = K::load(slot, || true).expect("a locked bucket's key");
                // SAFETY: the child is initialised by now; nobody else can reach it.
                let child = unsafe { next.home(key.hash()) };
                overflowing += u64::from(child.append(slot, address, worker));
            }
            source = bucket.next();
        }
        bucket.unlock((version + CHANGE) | MIGRATED);
        // SAFETY: the chain hangs on a migrated bucket, beyond which nobody goes any more.
        unsafe { retire_overflow(bucket, worker) };
        if overflowing > 0 {
            next.growth.overflowing.fetch_add(overflowing, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with each home bucket that holds what belongs to the bucket at `index`: the
    /// bucket itself, or its children if it is found migrated. `visit` returns `false` if it
    /// found the bucket migrated.
    ///
    /// # Safety
    /// There are more than `index` buckets and this one is initialised; the caller is pinned.
    unsafe fn visit_from(&self, index: usize, visit: &mut impl FnMut(&Bucket<K>) -> bool) {
        // SAFETY: as the caller promises.
        if visit(unsafe { self.bucket(index) }) {
            return;
        }
        let next = self.next().expect("a migrated bucket has children");
        for child in [2 * index, 2 * index + 1] {
            // SAFETY: the children of a migrated bucket are initialised.
            unsafe { next.visit_from(child, visit) };
        }
    }

    /// Retires the array.
    ///
    /// # Safety
    /// No thread that starts from now on can reach the array.
    unsafe fn retire(array: NonNull<Array<K>>, worker: &impl IndexWorker) {
        // SAFETY: `allocate` allocated both with these layouts; the rest is the caller's promise,
        // which also makes `array` readable before the first of the two lines.
        unsafe {
            let (buckets, count) = (array.as_ref().buckets, array.as_ref().bucket_count());
            worker.retire(buckets.cast(), Self::layout(count));
            worker.retire(array.cast(), Layout::new::<Array<K>>());
        }
    }
}

impl<K: IndexKey> Bucket<K> {
    /// Waits for the lock of a bucket that is not migrated, and returns the version it had.
    fn lock(&self) -> u64 {
        let mut backoff = Backoff::default();
        loop {
            let version = self.version().load(Ordering::Relaxed);
            debug_assert_eq!(version & MIGRATED, 0, "a bucket is moved once");
            if version & LOCKED == 0 && self.try_lock(version) {
                return version;
            }
            backoff.wait();
        }
    }
}

/// Retires one overflow bucket.
///
/// # Safety
/// No thread that starts from now on can reach it.
pub(super) unsafe fn retire_bucket<K: IndexKey>(
    bucket: NonNull<Bucket<K>>,
    worker: &impl IndexWorker,
) {
    // SAFETY: overflow buckets are allocated with this layout; the rest is the caller's promise.
    unsafe { worker.retire(bucket.cast(), Layout::new::<Bucket<K>>()) };
}

/// Retires the overflow buckets of a home bucket.
///
/// # Safety
/// No thread that starts from now on can reach them.
unsafe fn retire_overflow<K: IndexKey>(home: &Bucket<K>, worker: &impl IndexWorker) {
    let mut next = home.next();
    while let Some(bucket) = next {
        next = bucket.next();
        // SAFETY: as the caller promises; it is not read any more.
        unsafe { retire_bucket(NonNull::from(bucket), worker) };
    }
}

impl<K: IndexKey> HashTable<K> {
    /// Does a bounded share of the work if the table is growing.
    #[inline(always)]
    pub(super) fn help_to_grow(&self, worker: &impl IndexWorker) {
        let array = self.array();
        if let Some(next) = array.next() {
            self.migrate_step(array, next, worker);
        }
    }

    #[cold]
    fn migrate_step(&self, array: &Array<K>, next: &Array<K>, worker: &impl IndexWorker) {
        let Some(range) = array.claim() else { return };
        let moved = range.len() as u64;
        for index in range {
            // SAFETY: `array` was loaded as the current one by this pinned caller, and the index
            // was just claimed.
            unsafe { array.migrate(index, next, worker) };
        }
        // Acquire and release: the last to come here has seen every bucket of `next` initialised,
        // and passes that on below.
        let migrated = array.growth.migrated.fetch_add(moved, Ordering::AcqRel) + moved;
        if migrated == array.bucket_count() {
            // Release pairs with the acquire load in `HashTable::array`. Nobody else stores
            // here: `array` is current until its last bucket is moved, and one thread moves it.
            self.current.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
            // SAFETY: who starts from now on finds `next`, and nothing leads back.
            unsafe { Array::retire(NonNull::from(array), worker) };
        }
    }

    /// Calls `visit` with every home bucket in use; see [`Array::visit_from`].
    pub(super) fn visit_homes(&self, mut visit: impl FnMut(&Bucket<K>) -> bool) {
        let array = self.array();
        for index in 0..array.bucket_count() as usize {
            // SAFETY: all buckets of the current array are initialised; callers of this private
            // function are pinned.
            unsafe { array.visit_from(index, &mut visit) };
        }
    }

    /// Frees all memory of the table, for [`HashTable::clear`].
    pub(super) fn free_all(&mut self, worker: &impl IndexWorker) {
        self.visit_homes(|home| {
            if home.version().load(Ordering::Acquire) & MIGRATED != 0 {
                return false;
            }
            let mut next = Some(home);
            while let Some(bucket) = next {
                bucket.occupied().for_each(|(slot, _)| K::free(slot, worker));
                next = bucket.next();
            }
            let mut next = home.next();
            while let Some(bucket) = next {
                next = bucket.next();
                // SAFETY: overflow buckets are allocated with this layout. By `&mut` and by the
                // caller's promise no other thread uses the table or looks at a version any more.
                unsafe { worker.free(NonNull::from(bucket).cast(), Layout::new::<Bucket<K>>()) };
            }
            true
        });
        let mut array = self.current.load(Ordering::Acquire);
        self.current.store(ptr::null_mut(), Ordering::Release);
        while let Some(freed) = NonNull::new(array) {
            // SAFETY: `allocate` allocated both with these layouts, and they are read before they
            // are freed; nobody else uses them, as above.
            unsafe {
                let (buckets, count) = (freed.as_ref().buckets, freed.as_ref().bucket_count());
                array = freed.as_ref().next.load(Ordering::Acquire);
                worker.free(buckets.cast(), Array::<K>::layout(count));
                worker.free(freed.cast(), Layout::new::<Array<K>>());
            }
        }
    }
}
