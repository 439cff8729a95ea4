//! Buckets: each is one cache line of entries under one version word. Also the steps on a bucket's chain.
//!
//! A key has one *home* bucket. Entries that do not fit there go into overflow buckets that are chained to
//! it. The version word of the home bucket covers the whole chain; the version words of overflow buckets are
//! not used.
//!
//! ```text
//!  home bucket, 64 bytes                          overflow bucket
//! +---------+----------+-------+-------+-------+  +---------+----------+-------+--
//! | version | overflow | entry | entry | entry |  | (none)  | overflow | entry |
//! +---------+-----|----+-------+-------+-------+  +---------+----------+-------+--
//!                 '------------------------------>
//!  entry = key slot, address (0: the entry is empty)
//! ```
//!
//! A bucket has as many entries as the line holds: 3 for `u64` keys, 2 for keys whose slot takes two words.
//!
//! A chain is *dense*: its entries fill the home bucket first and then one overflow bucket after the other,
//! without holes. So a search ends at the first empty entry, an insertion happens there, and a removal moves
//! the chain's last entry into the hole. An overflow bucket that loses its last entry is unlinked. Its
//! `overflow` pointer does not change, so a reader that is still in it finds the end of the chain.
//!
//! # Reading while others write
//!
//! Nothing that can be reached is freed while a caller is pinned. So a search may walk a chain that is being
//! changed. It may see entries of different moments, but always words that are keys and addresses, and
//! pointers to buckets. The home bucket's version decides whether what it saw was true at one moment. It is
//! loaded before (acquire) and again after, behind a fence.

use std::cmp;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer, fence, spin_loop, yield_now};

use super::super::{IndexKey, IndexWorker};

/// How often a thread looks at a held lock before it yields its time slice.
const SPINS_MAX: u32 = 64;

// The version word of a home bucket:
//
//  63                                2        1        0
// +-----------------------------------+----------+--------+
// | count of changes                  | migrated | locked |
// +-----------------------------------+----------+--------+

/// Version bit: a writer is changing the chain.
pub(super) const LOCKED: u64 = 1;
/// Version bit: the entries have moved to the next array, and the bucket is never used again.
pub(super) const MIGRATED: u64 = 2;
/// What one insertion, removal or migration adds to the version.
pub(super) const CHANGE: u64 = 4;

/// A key and the address under it.
#[repr(C)]
struct BucketEntry<K: IndexKey> {
    key: K::KeySlot,
    address: Word,
}

impl<K: IndexKey> BucketEntry<K> {
    #[inline(always)]
    fn empty() -> Self {
        BucketEntry { key: K::KeySlot::default(), address: Word::new(0) }
    }
}

/// One cache line of entries.
#[repr(C, align(64))]
pub(super) struct Bucket<K: IndexKey> {
    version: Word,
    overflow: WordPointer<Bucket<K>>,
    space: space::Space<K>,
}

/// The entries of a bucket: the rest of the cache line, divided into as many entries as fit.
#[cfg(not(any(loom, shuttle)))]
mod space {
    use std::marker::PhantomData;
    use std::mem::{align_of, size_of};

    use weft_htm::word::Word;

    use super::{Bucket, BucketEntry, IndexKey};

    /// The size and the alignment of a bucket.
    const LINE_BYTES: usize = 64;

    const WORDS: usize = LINE_BYTES / size_of::<Word>() - 2;

    #[repr(transparent)]
    pub(super) struct Space<K: IndexKey>([Word; WORDS], PhantomData<K::KeySlot>);

    impl<K: IndexKey> Space<K> {
        pub(super) const ENTRIES: usize = {
            let entries = WORDS * size_of::<Word>() / size_of::<BucketEntry<K>>();
            assert!(entries > 0, "a key slot does not fit a bucket");
            assert!(align_of::<BucketEntry<K>>() <= align_of::<Word>());
            assert!(size_of::<Bucket<K>>() == LINE_BYTES);
            entries
        };

        #[inline(always)]
        pub(super) fn new() -> Self {
            let mut space = Space([const { Word::new(0) }; WORDS], PhantomData);
            let entries = space.0.as_mut_ptr().cast::<BucketEntry<K>>();
            for index in 0..Self::ENTRIES {
                // SAFETY: `ENTRIES` entries fit the words by its definition, which also checks the alignment;
                // only this function has `space`.
                unsafe { entries.add(index).write(BucketEntry::empty()) };
            }
            space
        }

        #[inline(always)]
        pub(super) fn entries(&self) -> &[BucketEntry<K>] {
            // SAFETY: `new` wrote `ENTRIES` entries here, and this type gives access to nothing else. The
            // words say that this memory may change behind a shared reference, and an entry also consists of
            // shared words only.
            unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), Self::ENTRIES) }
        }
    }
}

/// Under a model checker words have another size. One entry per bucket makes chains as early as possible.
#[cfg(any(loom, shuttle))]
mod space {
    use super::{BucketEntry, IndexKey};

    pub(super) struct Space<K: IndexKey>([BucketEntry<K>; 1]);

    impl<K: IndexKey> Space<K> {
        pub(super) const ENTRIES: usize = 1;

        pub(super) fn new() -> Self {
            Space([BucketEntry::empty()])
        }

        pub(super) fn entries(&self) -> &[BucketEntry<K>] {
            &self.0
        }
    }
}

/// A position in a chain: the entry at `index` of `bucket`. If `index` is one past the bucket's entries, the
/// chain is full, and `bucket` is its last bucket.
#[derive(Clone, Copy)]
pub(super) struct ChainPosition<'a, K: IndexKey> {
    bucket: &'a Bucket<K>,
    index: usize,
}

/// The result of a search in a chain.
pub(super) enum Search<'a, K: IndexKey> {
    /// The key is here, and this address is stored under it.
    Found(ChainPosition<'a, K>, u64),
    /// The key is not in the chain; it would be inserted here.
    Absent(ChainPosition<'a, K>),
}

/// What is left to do for a removal when the lock has been released.
pub(super) struct Removal<K: IndexKey> {
    /// The removed key, for [`IndexKey::retire`].
    pub(super) key: K::KeySlot,
    /// The overflow bucket that lost its last entry and was unlinked.
    pub(super) emptied: Option<NonNull<Bucket<K>>>,
    /// Whether the home bucket has lost its last overflow bucket.
    pub(super) is_within_home: bool,
}

impl<K: IndexKey> Bucket<K> {
    /// The number of entries in a bucket.
    pub(super) const ENTRIES: usize = space::Space::<K>::ENTRIES;

    /// Creates an empty bucket.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Bucket {
            version: Word::new(0),
            overflow: WordPointer::new(ptr::null_mut()),
            space: space::Space::new(),
        }
    }

    /// Returns the version word, by which a transaction notes the bucket.
    #[inline(always)]
    pub(super) fn version(&self) -> &Word {
        &self.version
    }

    #[inline(always)]
    fn entries(&self) -> &[BucketEntry<K>] {
        self.space.entries()
    }

    /// Returns the next bucket of the chain. The caller must be pinned; it may then follow the result even
    /// while the chain is changing.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Bucket<K>> {
        // Acquire pairs with the release store in `ChainPosition::insert`: a thread that sees the pointer sees the
        // bucket initialised.
        let next = self.overflow.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or leads to a bucket that was initialised before it was linked. After
        // it is unlinked it is retired, not freed; the caller is pinned.
        unsafe { next.as_ref() }
    }

    /// Returns the slots of keys, and the addresses, in this bucket, without the rest of the chain.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (&K::KeySlot, u64)> {
        let occupied = self.entries().iter().map(|entry| {
            let address = entry.address.load(Ordering::Relaxed);
            (&entry.key, address)
        });
        occupied.take_while(|&(_, address)| address != 0)
    }

    /// Looks for `key` in the chain of this home bucket. Returns `None` if `is_current` says that the chain
    /// has changed. Any other result is valid only if the version is still the same.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn search(
        &self,
        key: &K,
        is_current: impl Fn() -> bool + Copy,
    ) -> Option<Search<'_, K>> {
        let mut bucket = self;
        loop {
            for (index, entry) in bucket.entries().iter().enumerate() {
                // Relaxed, as every access to an entry: its partner is the version word.
                let address = entry.address.load(Ordering::Relaxed);
                if address == 0 {
                    return Some(Search::Absent(ChainPosition { bucket, index }));
                }
                if key.compare(&entry.key, is_current)? == cmp::Ordering::Equal {
                    return Some(Search::Found(ChainPosition { bucket, index }, address));
                }
            }
            match bucket.next() {
                Some(next) => bucket = next,
                None => {
                    return Some(Search::Absent(ChainPosition { bucket, index: Self::ENTRIES }));
                }
            }
        }
    }

    /// Returns whether the version is still `version`. If so, everything that was read since that version was
    /// loaded was true at one moment.
    #[inline(always)]
    pub(super) fn is_current(&self, version: u64) -> bool {
        // Partner: the release fence in `try_lock`. If one of the loads before this fence saw a store of a
        // lock holder, then the load below sees that holder's lock bit or something later, which differs from
        // `version`.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Locks the chain if its version is still `version`, which must be neither locked nor migrated.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn try_lock(&self, version: u64) -> bool {
        debug_assert_eq!(version & (LOCKED | MIGRATED), 0);
        // Acquire pairs with the release store of the previous holder, in `set_version`. The exchange fails
        // on any other version, so what was read under `version` needs no second check.
        let exchange = self.version.compare_exchange(
            version,
            version | LOCKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        // Partner: the acquire fence in `is_current`. The lock bit is visible before any of the
        // stores that follow.
        fence(Ordering::Release);
        exchange.is_ok()
    }

    /// Releases the lock, and sets the version to `version`.
    #[inline(always)]
    pub(super) fn unlock(&self, version: u64) {
        debug_assert_eq!(version & LOCKED, 0);
        debug_assert_ne!(self.version.load(Ordering::Relaxed) & LOCKED, 0);
        self.set_version(version);
    }

    /// Stores the version. This is the last store of a change, by a lock holder or in a region.
    #[inline(always)]
    pub(super) fn set_version(&self, version: u64) {
        // Release pairs with the acquire loads of the version by readers and by the next holder. A thread
        // that sees this version sees the entries. It also sees the record behind an address, which the
        // inserting thread had initialised before.
        self.version.store(version, Ordering::Release);
    }

    /// Takes the entry at `place` out of the chain of this home bucket. The caller holds the lock, or runs in
    /// a region.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn remove(&self, place: ChainPosition<'_, K>) -> Removal<K> {
        // Find the last entry of the chain. It fills the hole, so that the chain stays dense.
        let (mut tail, mut before_tail) = (self, None);
        while let Some(next) = tail.next() {
            (tail, before_tail) = (next, Some(tail));
        }
        let last_index = tail.occupied().count() - 1;
        let (last, hole) = (&tail.entries()[last_index], place.entry());
        let mut removal =
            Removal { key: K::KeySlot::default(), emptied: None, is_within_home: false };
        K::move_slot(&hole.key, &removal.key);
        if !ptr::eq(last, hole) {
            K::move_slot(&last.key, &hole.key);
            hole.address.store(last.address.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        last.address.store(0, Ordering::Relaxed);
        // Unlink an overflow bucket that has lost its last entry.
        if last_index == 0
            && let Some(before_tail) = before_tail
        {
            before_tail.overflow.store(ptr::null_mut(), Ordering::Relaxed);
            removal.emptied = Some(NonNull::from(tail));
            removal.is_within_home = ptr::eq(before_tail, self);
        }
        removal
    }

    /// Appends an entry to the chain of this home bucket. The chain does not hold the key yet, and only the
    /// caller can reach it. Returns whether the home bucket got its first overflow bucket.
    pub(super) fn append(&self, key: &K::KeySlot, address: u64, worker: &impl IndexWorker) -> bool {
        let mut bucket = self;
        while let Some(next) = bucket.next() {
            bucket = next;
        }
        let index = bucket.occupied().count();
        ChainPosition { bucket, index }.insert(key, address, worker) && ptr::eq(bucket, self)
    }
}

impl<'a, K: IndexKey> ChainPosition<'a, K> {
    /// Returns whether there is an entry here, which is empty.
    #[inline(always)]
    pub(super) fn is_entry(&self) -> bool {
        self.index < Bucket::<K>::ENTRIES
    }

    /// Returns whether the place is in the bucket `home`, or at its end.
    #[inline(always)]
    pub(super) fn is_in(&self, home: &Bucket<K>) -> bool {
        ptr::eq(self.bucket, home)
    }

    #[inline(always)]
    fn entry(&self) -> &'a BucketEntry<K> {
        &self.bucket.entries()[self.index]
    }

    /// Writes the empty entry here. The caller must then forget `key`, which was moved. The caller holds the
    /// lock, or runs in a region.
    #[inline(always)]
    pub(super) fn fill(&self, key: &K::KeySlot, address: u64) {
        let entry = self.entry();
        K::move_slot(key, &entry.key);
        entry.address.store(address, Ordering::Relaxed);
    }

    /// Writes the empty entry here. If the bucket is full, adds an overflow bucket with the entry, and returns
    /// true. The caller holds the lock.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn insert(&self, key: &K::KeySlot, address: u64, worker: &impl IndexWorker) -> bool {
        if self.is_entry() {
            self.fill(key, address);
            return false;
        }
        let overflow = worker.allocate(std::alloc::Layout::new::<Bucket<K>>()).cast::<Bucket<K>>();
        // SAFETY: `allocate` returned fresh memory of this layout, and nothing else has its address yet.
        let bucket = unsafe {
            overflow.write(Bucket::new());
            overflow.as_ref()
        };
        ChainPosition { bucket, index: 0 }.fill(key, address);
        // Release pairs with the acquire load in `Bucket::next`.
        self.bucket.overflow.store(overflow.as_ptr(), Ordering::Release);
        true
    }
}

/// Waits for another thread to finish something short.
#[derive(Default)]
pub(super) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Waits a moment. If that has not helped for a while, lets another thread run, since the awaited one may
    /// have lost its processor.
    pub(super) fn wait(&mut self) {
        if self.rounds < SPINS_MAX {
            self.rounds += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}
