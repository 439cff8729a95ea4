//! Growth: arrays of buckets, and how a table moves from one to the next while in use.
//!
//! # When a table grows
//!
//! Overflow buckets are what makes a full table slow, so the table counts them. Each array keeps the number
//! of its home buckets that have overflow buckets. When they are more than one in [`BUCKETS_PER_OVERFLOW`],
//! the table grows. An insertion touches that shared count only when it adds the first overflow bucket to a
//! home bucket. That is rare, and costs an allocation anyway. So there is no hot counter, and no counter per
//! worker that would have to be summed up. Keys that are made to collide lengthen one chain, which counts
//! only once, so they cannot make a table grow without end. Tables do not shrink.
//!
//! # How it grows
//!
//! The highest bits of a hash select its home bucket. In an array of twice the size one more bit counts. So
//! the bucket `b` is split into `2b` and `2b + 1`, its *children*:
//!
//! ```text
//!  old array   | 0 MIGRATED | 1 MIGRATED | 2          | 3          |  <- HashTable::current
//!               /     \      /     \
//!  next array  | 0   | 1   | 2   | 3   |  not yet initialised      |  <- old.next
//! ```
//!
//! - An insertion that exceeds the limit claims the growth (one insertion wins), allocates the next array,
//!   and links it. The memory is not initialised, so no step of a growth takes longer for a larger table.
//! - From then on each insertion and removal first moves a few buckets ([`BUCKETS_PER_STEP`]), which it
//!   claims from a shared cursor. A bucket is moved under its lock: its children are initialised and filled,
//!   its overflow buckets are retired, and its version becomes [`MIGRATED`] for ever.
//! - Every operation starts at the current array. An operation that finds a bucket migrated goes on to the
//!   next array. There the child is initialised, because every operation that gets there has seen that mark.
//! - The thread that moves the last bucket makes the next array the current one, and retires the old one.
//!
//! Readers are never stopped: they read a bucket where it is, unless it is being moved at that very moment.
//! The version of a migrated bucket has changed. So a transaction that noted it for a key that it missed
//! treats that as a conflict, retries, and notes the child. The version word stays readable while the
//! transaction is pinned, as arrays are retired and not freed at once.
//!
//! The array after the next may be claimed and linked before the next one becomes current. It is filled only
//! after that, since only the buckets of the current array are claimed.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer};

use super::super::{IndexKey, IndexWorker};
use super::HashTable;
use super::bucket::{Backoff, Bucket, CHANGE, LOCKED, MIGRATED};

/// A table grows when more than one home bucket in so many has overflow buckets. With `u64` keys that happens
/// at 1.9 entries per bucket, where a look-up touches 1.10 lines on average; just after the growth it touches
/// 1.02. A quarter (2.5 entries, 1.18 lines) was tried. It keeps a million keys in an array of half the size,
/// but look-ups among them took 60 ns instead of 45.
const BUCKETS_PER_OVERFLOW: u64 = 8;

/// How many buckets an insertion or removal moves while the table grows.
#[cfg(not(any(loom, shuttle)))]
pub(super) const BUCKETS_PER_STEP: u64 = 16;
#[cfg(any(loom, shuttle))]
pub(super) const BUCKETS_PER_STEP: u64 = 1;

/// The number of buckets of the smallest array.
const BUCKETS_MIN: u64 = 2;

/// An array of buckets; their number is a power of two.
#[repr(C, align(64))]
pub(super) struct Array<K: IndexKey> {
    buckets: NonNull<Bucket<K>>,
    /// 64 − log₂ of the number of buckets.
    shift: u32,
    /// The array of twice the size, once growth has begun.
    next: WordPointer<Array<K>>,
    growth: Growth,
}

/// The words of an array that change while it is in use, on a cache line of their own.
#[repr(align(64))]
#[derive(Default)]
struct Growth {
    /// How many home buckets have overflow buckets, as a signed number.
    overflowing: Word,
    /// 1 when a thread has claimed the allocation of the next array.
    is_claimed: Word,
    /// The index of the next bucket to move.
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
        // SAFETY: `allocate` returned fresh memory of this layout, and nothing else has its address yet.
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

    /// Allocates an array of empty buckets, with room for about `expected` entries.
    pub(super) fn with_capacity(expected: usize, worker: &impl IndexWorker) -> NonNull<Array<K>> {
        // At this fill (1.8 entries per bucket of 3, 1.2 per bucket of 2), and with random hashes, one bucket
        // in nine has overflow buckets: just below the limit.
        let bucket_count = (expected as u64)
            .saturating_mul(5)
            .div_ceil(3 * Bucket::<K>::ENTRIES as u64)
            .max(BUCKETS_MIN)
            .checked_next_power_of_two()
            .expect("a capacity that fits the address space");
        let array = Self::allocate(bucket_count, worker);
        for index in 0..bucket_count as usize {
            // SAFETY: the array has `bucket_count` buckets, and nothing else has its address yet.
            unsafe { array.as_ref().buckets.add(index).write(Bucket::new()) };
        }
        array
    }

    /// Returns the layout of `bucket_count` buckets.
    fn layout(bucket_count: u64) -> Layout {
        usize::try_from(bucket_count)
            .ok()
            .and_then(|count| Layout::array::<Bucket<K>>(count).ok())
            .expect("an array that fits the address space")
    }

    /// Returns the number of buckets.
    pub(super) fn bucket_count(&self) -> u64 {
        1 << (u64::BITS - self.shift)
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Returns the address of the home bucket of `hash`.
    #[inline(always)]
    pub(super) fn home_pointer(&self, hash: u64) -> *const Bucket<K> {
        // SAFETY: the index of a hash is less than `bucket_count`.
        unsafe { self.buckets.add(self.index(hash)) }.as_ptr()
    }

    /// Returns a bucket by its index.
    ///
    /// # Safety
    /// There are more than `index` buckets, and this one is initialised; the caller is pinned.
    unsafe fn bucket(&self, index: usize) -> &Bucket<K> {
        // SAFETY: by the contract.
        unsafe { self.buckets.add(index).as_ref() }
    }

    /// Returns the home bucket of `hash`.
    ///
    /// # Safety
    /// The array is the table's current one, or the parent of the bucket was found migrated (by an acquire
    /// load); the caller is pinned.
    #[inline(always)]
    pub(super) unsafe fn home(&self, hash: u64) -> &Bucket<K> {
        // SAFETY: all buckets of a current array are initialised, and so are those whose parent is migrated.
        // The array is reachable, or was reachable when the caller was pinned.
        unsafe { &*self.home_pointer(hash) }
    }

    /// Returns the next array, if growth has begun.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Array<K>> {
        // Acquire pairs with the release store in `grow`: the array's own words are initialised.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or leads to an array that was initialised before it was linked. It can
        // only be retired after this one, which the pinned caller can still reach.
        unsafe { next.as_ref() }
    }

    /// Counts a home bucket that got its first overflow bucket. If there are too many of these, starts to
    /// grow. Must not be called with a lock held.
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
        // Relaxed as above. The removal may be counted before the insertion that it undoes, so the count may
        // be negative for a moment.
        self.growth.overflowing.fetch_add(u64::MAX, Ordering::Relaxed);
    }

    /// Allocates and links the next array, unless another thread has claimed that.
    fn grow(&self, worker: &impl IndexWorker) {
        // Without room the table goes on with longer chains.
        if !worker.may_allocate(Array::<K>::layout(2 * self.bucket_count()).size()) {
            return;
        }
        // Relaxed: only atomicity matters. What the winner publishes is ordered by `next`.
        if self.growth.is_claimed.swap(1, Ordering::Relaxed) == 0 {
            let next = Self::allocate(self.bucket_count() * 2, worker);
            // Release pairs with the acquire load in `next`.
            self.next.store(next.as_ptr(), Ordering::Release);
        }
    }

    /// Claims buckets to move, as a range of indexes.
    fn claim(&self) -> Option<std::ops::Range<usize>> {
        let count = self.bucket_count();
        // Relaxed: the cursor only hands out numbers. It is read first so that it cannot overflow, however
        // many threads come late.
        if self.growth.cursor.load(Ordering::Relaxed) >= count {
            return None;
        }
        let start = self.growth.cursor.fetch_add(BUCKETS_PER_STEP, Ordering::Relaxed);
        let end = (start + BUCKETS_PER_STEP).min(count);
        (start < end).then_some(start as usize..end as usize)
    }

    /// Moves the bucket at `index` to its children in `next`.
    ///
    /// # Safety
    /// This array is or was the current one, and `next` is its next; the caller is pinned, has claimed the
    /// index, and calls this once for it.
    unsafe fn migrate(&self, index: usize, next: &Array<K>, worker: &impl IndexWorker) {
        // SAFETY: a claimed index is less than the number of buckets, and the buckets of a current array are
        // initialised.
        let bucket = unsafe { self.bucket(index) };
        let version = bucket.lock();
        for child in [2 * index, 2 * index + 1] {
            // SAFETY: `next` has twice as many buckets. No other thread reaches these two before their
            // parent, which is locked, is marked as migrated.
            unsafe { next.buckets.add(child).write(Bucket::new()) };
        }
        // Distribute the chain's entries over the two children.
        let mut overflowing = 0;
        let mut source = Some(bucket);
        while let Some(bucket) = source {
            for (slot, address) in bucket.occupied() {
                let key = K::load(slot, || true).expect("a locked bucket's key");
                // SAFETY: the child is initialised by now, and no other thread can reach it.
                let child = unsafe { next.home(key.hash()) };
                overflowing += u64::from(child.append(slot, address, worker));
            }
            source = bucket.next();
        }
        bucket.unlock((version + CHANGE) | MIGRATED);
        // SAFETY: the chain belongs to a migrated bucket, and no operation goes on from such a bucket to its
        // chain.
        unsafe { retire_overflow(bucket, worker) };
        if overflowing > 0 {
            next.growth.overflowing.fetch_add(overflowing, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with each home bucket that now has the keys of the bucket at `index`: that bucket itself
    /// or, if it is migrated, its children. `visit` returns `false` if it found the bucket migrated.
    ///
    /// # Safety
    /// There are more than `index` buckets, and this one is initialised; the caller is pinned.
    unsafe fn visit_from(&self, index: usize, visit: &mut dyn FnMut(&Bucket<K>) -> bool) {
        // SAFETY: by the contract.
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
        // SAFETY: `allocate` allocated both with these layouts. The rest is the caller's promise, by which
        // `array` is also readable before the first of the two calls.
        unsafe {
            let (buckets, count) = (array.as_ref().buckets, array.as_ref().bucket_count());
            worker.retire(buckets.cast(), Self::layout(count));
            worker.retire(array.cast(), Layout::new::<Array<K>>());
        }
    }
}

impl<K: IndexKey> Bucket<K> {
    /// Waits for the lock of a bucket that is not migrated, takes it, and returns the version before.
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
/// No thread that starts from now on can reach the bucket.
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
        // SAFETY: by the contract; the bucket is not read any more.
        unsafe { retire_bucket(NonNull::from(bucket), worker) };
    }
}

impl<K: IndexKey> HashTable<K> {
    /// Does a bounded share of the growth if the table is growing.
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
            // SAFETY: this pinned caller loaded `array` as the current one, and has just claimed the index.
            unsafe { array.migrate(index, next, worker) };
        }
        // Acquire and release: the thread whose addition completes the count sees every bucket of `next`
        // initialised, and passes that on by the store below.
        let migrated = array.growth.migrated.fetch_add(moved, Ordering::AcqRel) + moved;
        if migrated == array.bucket_count() {
            // Release pairs with the acquire load in `HashTable::array`. No other thread stores here: `array`
            // is current until its last bucket is moved, and only one thread completes the count.
            self.current.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
            // SAFETY: an operation that starts from now on finds `next`, and nothing leads back.
            unsafe { Array::retire(NonNull::from(array), worker) };
        }
    }

    /// Calls `visit` with every home bucket in use; see [`Array::visit_from`].
    pub(super) fn visit_homes(&self, mut visit: impl FnMut(&Bucket<K>) -> bool) {
        let array = self.array();
        for index in 0..array.bucket_count() as usize {
            // SAFETY: all buckets of the current array are initialised, and callers of this private function
            // are pinned.
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
                // SAFETY: overflow buckets are allocated with this layout. By `&mut` and the caller's
                // promise, no other thread uses the table or reads a version any more.
                unsafe { worker.free(NonNull::from(bucket).cast(), Layout::new::<Bucket<K>>()) };
            }
            true
        });
        let mut array = self.current.load(Ordering::Acquire);
        self.current.store(ptr::null_mut(), Ordering::Release);
        while let Some(freed) = NonNull::new(array) {
            // SAFETY: `allocate` allocated both with these layouts, and they are read before they are freed.
            // As above, nothing else uses them.
            unsafe {
                let (buckets, count) = (freed.as_ref().buckets, freed.as_ref().bucket_count());
                array = freed.as_ref().next.load(Ordering::Acquire);
                worker.free(buckets.cast(), Array::<K>::layout(count));
                worker.free(freed.cast(), Layout::new::<Array<K>>());
            }
        }
    }
}
