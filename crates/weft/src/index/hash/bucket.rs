//! A bucket: one cache line of entries under one version word, and the steps on its chain.
//!
//! A key has one *home* bucket. What does not fit there goes into overflow buckets chained to it.
//! The version word of the home bucket covers the whole chain; the version words of overflow
//! buckets are not used.
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
//! As many entries as the line holds: 3 for `u64` keys, 2 where a key slot takes two words.
//!
//! A chain is *dense*: its entries fill the home bucket first and then one overflow bucket after
//! the other, without holes. So a search ends at the first empty entry, an insertion happens
//! there, and a removal moves the chain's last entry into the hole. An overflow bucket that loses
//! its last entry is unlinked; its `overflow` pointer stays as it was, so that a reader that still
//! stands in it finds the end of the chain.
//!
//! # Reading while others write
//!
//! Nothing that can be reached is freed while a caller is pinned, so a search may walk a chain
//! that is being changed: it sees entries of different moments, but always words that are keys
//! and addresses, and pointers to buckets. Whether what it saw is true at one moment is decided
//! by the home bucket's version, read before (acquire) and again after, behind a fence.

use std::cmp;
use std::ptr::{self, NonNull};

use weft_htm::word::{Ordering, Word, WordPointer, fence, spin_loop, yield_now};

use super::super::{IndexKey, IndexWorker};

/// How often a thread looks at a held lock again before it gives up its time slice.
const SPINS_MAX: u32 = 64;

// The version word of a home bucket:
//
//  63                                2        1        0
// +-----------------------------------+----------+--------+
// | count of changes                  | migrated | locked |
// +-----------------------------------+----------+--------+

/// A writer is changing the chain.
pub(super) const LOCKED: u64 = 1;
/// The entries have moved to the next array; the bucket is never used again.
pub(super) const MIGRATED: u64 = 2;
/// One insertion, removal or migration.
pub(super) const CHANGE: u64 = 4;

/// A key and the address under it.
#[repr(C)]
struct Entry<K: IndexKey> {
    key: K::Slot,
    address: Word,
}

impl<K: IndexKey> Entry<K> {
    #[inline(always)]
    fn empty() -> Self {
        Entry { key: K::Slot::default(), address: Word::new(0) }
    }
}

/// One cache line of entries.
#[repr(C, align(64))]
pub(super) struct Bucket<K: IndexKey> {
    version: Word,
    overflow: WordPointer<Bucket<K>>,
    space: space::Space<K>,
}

/// The entries of a bucket: what is left of the cache line, cut into as many as fit.
#[cfg(not(any(loom, shuttle)))]
mod space {
    use std::marker::PhantomData;
    use std::mem::{align_of, size_of};

    use weft_htm::word::Word;

    use super::{Bucket, Entry, IndexKey};

    /// The size of a bucket, and what it is aligned to.
    const LINE_BYTES: usize = 64;

    const WORDS: usize = LINE_BYTES / size_of::<Word>() - 2;

    #[repr(transparent)]
    pub(super) struct Space<K: IndexKey>([Word; WORDS], PhantomData<K::Slot>);

    impl<K: IndexKey> Space<K> {
        pub(super) const ENTRIES: usize = {
            let entries = WORDS * size_of::<Word>() / size_of::<Entry<K>>();
            assert!(entries > 0, "a key slot does not fit a bucket");
            assert!(align_of::<Entry<K>>() <= align_of::<Word>());
            assert!(size_of::<Bucket<K>>() == LINE_BYTES);
            entries
        };

        #[inline(always)]
        pub(super) fn new() -> Self {
            let mut space = Space([const { Word::new(0) }; WORDS], PhantomData);
            let entries = space.0.as_mut_ptr().cast::<Entry<K>>();
            for index in 0..Self::ENTRIES {
                // SAFETY: `ENTRIES` entries fit the words by its definition, which also checks
                // the alignment; `space` is this function's own.
                unsafe { entries.add(index).write(Entry::empty()) };
            }
            space
        }

        #[inline(always)]
        pub(super) fn entries(&self) -> &[Entry<K>] {
            // SAFETY: `new` wrote `ENTRIES` entries here, and this type hands out nothing else.
            // The words make the memory one that may change behind a shared reference, and an
            // entry too is made of shared words only.
            unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), Self::ENTRIES) }
        }
    }
}

/// Under a model checker words have another size, and one entry makes chains soonest.
#[cfg(any(loom, shuttle))]
mod space {
    use super::{Entry, IndexKey};

    pub(super) struct Space<K: IndexKey>([Entry<K>; 1]);

    impl<K: IndexKey> Space<K> {
        pub(super) const ENTRIES: usize = 1;

        pub(super) fn new() -> Self {
            Space([Entry::empty()])
        }

        pub(super) fn entries(&self) -> &[Entry<K>] {
            &self.0
        }
    }
}

/// A place in a chain: the entry at `index` of `bucket`. Where `index` is one past the bucket's
/// entries, the chain is full and `bucket` its last.
#[derive(Clone, Copy)]
pub(super) struct Place<'a, K: IndexKey> {
    bucket: &'a Bucket<K>,
    index: usize,
}

/// What a search of a chain found.
pub(super) enum Search<'a, K: IndexKey> {
    /// The key is here, with this address.
    Found(Place<'a, K>, u64),
    /// The key is not in the chain, and this is where it would go.
    Absent(Place<'a, K>),
}

/// What a removal leaves to be done when the lock is released.
pub(super) struct Removal<K: IndexKey> {
    /// The removed key, for [`IndexKey::retire`].
    pub(super) key: K::Slot,
    /// The overflow bucket that lost its last entry and was unlinked.
    pub(super) emptied: Option<NonNull<Bucket<K>>>,
    /// The home bucket has no overflow bucket any more.
    pub(super) is_within_home: bool,
}

impl<K: IndexKey> Bucket<K> {
    /// How many entries a bucket holds.
    pub(super) const ENTRIES: usize = space::Space::<K>::ENTRIES;

    /// An empty bucket.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Bucket {
            version: Word::new(0),
            overflow: WordPointer::new(ptr::null_mut()),
            space: space::Space::new(),
        }
    }

    /// The version word, by which a transaction notes the bucket.
    #[inline(always)]
    pub(super) fn version(&self) -> &Word {
        &self.version
    }

    #[inline(always)]
    fn entries(&self) -> &[Entry<K>] {
        self.space.entries()
    }

    /// The next bucket of the chain. Only for pinned callers, who may follow it even when the
    /// chain is changing.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<&Bucket<K>> {
        // Acquire pairs with the release store in `Place::insert`: who sees the pointer sees the
        // bucket initialised.
        let next = self.overflow.load(Ordering::Acquire);
        // SAFETY: the pointer is null or a bucket that was initialised before it was linked, and
        // that is retired, not freed, after it is unlinked; the caller is pinned.
        unsafe { next.as_ref() }
    }

    /// The keys' slots and addresses in this bucket, without the rest of the chain.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (&K::Slot, u64)> {
        let occupied = self.entries().iter().map(|entry| {
            let address = entry.address.load(Ordering::Relaxed);
            (&entry.key, address)
        });
        occupied.take_while(|&(_, address)| address != 0)
    }

    /// Looks for `key` in the chain of this home bucket. `None`: the chain has changed meanwhile,
    /// as `is_current` knows. Anything else is true only if the version is still the same.
    #[inline(always)]
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
                    return Some(Search::Absent(Place { bucket, index }));
                }
                if key.compare(&entry.key, is_current)? == cmp::Ordering::Equal {
                    return Some(Search::Found(Place { bucket, index }, address));
                }
            }
            match bucket.next() {
                Some(next) => bucket = next,
                None => return Some(Search::Absent(Place { bucket, index: Self::ENTRIES })),
            }
        }
    }

    /// Whether the version is still `version`, so that all that was read since it was read is
    /// true of one moment.
    #[inline(always)]
    pub(super) fn is_current(&self, version: u64) -> bool {
        // Partner: the release fence in `try_lock`. If one of the loads before this fence saw a
        // store of a lock holder, then the load below sees that holder's lock bit or something
        // later, which differs from `version`.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Locks the chain if the version is still `version`, which must be unlocked and not
    /// migrated.
    #[inline(always)]
    pub(super) fn try_lock(&self, version: u64) -> bool {
        debug_assert_eq!(version & (LOCKED | MIGRATED), 0);
        // Acquire pairs with the release store of the holder before, in `set_version`. As the exchange
        // fails on any other version, what was read under `version` needs no second check.
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

    /// Releases the lock and leaves `version`.
    #[inline(always)]
    pub(super) fn unlock(&self, version: u64) {
        debug_assert_eq!(version & LOCKED, 0);
        debug_assert_ne!(self.version.load(Ordering::Relaxed) & LOCKED, 0);
        self.set_version(version);
    }

    /// Writes the version, as the last store of a change by a lock holder or a region.
    #[inline(always)]
    pub(super) fn set_version(&self, version: u64) {
        // Release pairs with the acquire loads of the version by readers and by the next holder:
        // who sees this version sees the entries, and also the record behind an address, which
        // its inserter initialised before.
        self.version.store(version, Ordering::Release);
    }

    /// Takes the entry at `place` out of the chain of this home bucket. The caller holds the
    /// lock, or runs in a region.
    #[inline(always)]
    pub(super) fn remove(&self, place: Place<'_, K>) -> Removal<K> {
        let (mut tail, mut before_tail) = (self, None);
        while let Some(next) = tail.next() {
            (tail, before_tail) = (next, Some(tail));
        }
        let last_index = tail.occupied().count() - 1;
        let (last, hole) = (&tail.entries()[last_index], place.entry());
        let mut removal = Removal { key: K::Slot::default(), emptied: None, is_within_home: false };
        K::move_slot(&hole.key, &removal.key);
        if !ptr::eq(last, hole) {
            K::move_slot(&last.key, &hole.key);
            hole.address.store(last.address.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        last.address.store(0, Ordering::Relaxed);
        if last_index == 0
            && let Some(before_tail) = before_tail
        {
            before_tail.overflow.store(ptr::null_mut(), Ordering::Relaxed);
            removal.emptied = Some(NonNull::from(tail));
            removal.is_within_home = ptr::eq(before_tail, self);
        }
        removal
    }

    /// Adds an entry to the end of the chain of this home bucket, whose keys are other keys and
    /// which only the caller can reach. Returns whether that gave the home bucket its first
    /// overflow bucket.
    pub(super) fn append(&self, key: &K::Slot, address: u64, worker: &impl IndexWorker) -> bool {
        let mut bucket = self;
        while let Some(next) = bucket.next() {
            bucket = next;
        }
        let index = bucket.occupied().count();
        Place { bucket, index }.insert(key, address, worker) && ptr::eq(bucket, self)
    }
}

impl<'a, K: IndexKey> Place<'a, K> {
    /// Whether there is an empty entry here.
    #[inline(always)]
    pub(super) fn is_entry(&self) -> bool {
        self.index < Bucket::<K>::ENTRIES
    }

    /// Whether the place is in, or at the end of, the bucket `home`.
    #[inline(always)]
    pub(super) fn is_in(&self, home: &Bucket<K>) -> bool {
        ptr::eq(self.bucket, home)
    }

    #[inline(always)]
    fn entry(&self) -> &'a Entry<K> {
        &self.bucket.entries()[self.index]
    }

    /// Writes the empty entry here; `key` is left for the caller to forget. The caller holds the
    /// lock, or runs in a region.
    #[inline(always)]
    pub(super) fn fill(&self, key: &K::Slot, address: u64) {
        let entry = self.entry();
        K::move_slot(key, &entry.key);
        entry.address.store(address, Ordering::Relaxed);
    }

    /// Writes the empty entry here, or adds an overflow bucket if there is none, and returns
    /// whether it did. The caller holds the lock.
    #[inline(always)]
    pub(super) fn insert(&self, key: &K::Slot, address: u64, worker: &impl IndexWorker) -> bool {
        if self.is_entry() {
            self.fill(key, address);
            return false;
        }
        let overflow = worker.allocate(std::alloc::Layout::new::<Bucket<K>>()).cast::<Bucket<K>>();
        // SAFETY: `allocate` gave memory of this layout, which is nobody else's yet.
        let bucket = unsafe {
            overflow.write(Bucket::new());
            overflow.as_ref()
        };
        Place { bucket, index: 0 }.fill(key, address);
        // Release pairs with the acquire load in `Bucket::next`.
        self.bucket.overflow.store(overflow.as_ptr(), Ordering::Release);
        true
    }
}

/// Waiting for another thread's short work.
#[derive(Default)]
pub(super) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Waits a moment; when that has not helped for a while, lets another thread run, as the
    /// awaited one may have lost its processor.
    pub(super) fn wait(&mut self) {
        if self.rounds < SPINS_MAX {
            self.rounds += 1;
            spin_loop();
        } else {
            yield_now();
        }
    }
}
