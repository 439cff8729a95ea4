//! The unordered index: a hash table of cache-line buckets that grows while it is in use.
//!
//! It takes the place of DBX's unordered store ("Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database", §4). It offers look-up, get-with-insert and removal of single keys. If there is
//! hardware transactional memory, the latter two are one short region each. It departs from the paper in four
//! ways:
//! - A bucket holds several entries, since an address needs no cache line of its own.
//! - The software twin locks one bucket and not the table.
//! - Growth stops no operation, whereas DBX takes a global lock to resize.
//! - A look-up is not a region: it validates by the version, which is faster (`docs/rtm.md`). A protocol may run it in
//!   one (`get_in`), as DBX does.
//!
//! The files:
//! - `bucket`: the layout of a bucket, its version word, and the steps on a chain.
//! - `resize`: arrays of buckets, when a table grows, and how the buckets are moved.
//! - This page: the operations.
//!
//! A look-up of a present key touches one cache line: the home bucket with its version, keys and addresses.
//! (It also touches two lines of the table itself, which stay in the cache.) Readers write nothing.
//!
//! # The operations and their twins
//!
//! Every operation consists of an *entry*, a *search*, and for writers a *change*. The table shows how
//! software and regions make each step safe (a look-up is in software, unless a protocol asks for a region):
//!
//! | | in software | in a hardware region |
//! | --- | --- | --- |
//! | entry | waits until the home bucket is unlocked, and remembers its version | aborts if the bucket is locked; the version is in the region's read set |
//! | search | valid if the version is still the same | as in a sequential program |
//! | change | locks the version that the search saw, then writes and unlocks | writes |
//! | version | + `CHANGE` as the lock is released | + `CHANGE` |
//!
//! Both leave the same words behind, and each sees the other. A region that has read a version word aborts
//! when a lock is taken there. A reader in software finds that a version has changed if a region has
//! committed a change to it. A region never allocates. What it needs of a long key is prepared before it
//! (`StagedKey`), and what it removes is retired after it. An insertion that needs an overflow bucket is left to
//! the twin, and so are the moves of buckets in a growing table.
//!
//! # Serialization points
//!
//! - A look-up, a get-with-insert that finds the key, and a removal that is refused: the load of the home
//!   bucket's version against which the search is checked. In a growing table a key has one home bucket at
//!   any time: the old one until its version says that it is migrated, and from then on one of its children.
//! - An insertion and a removal: the store of the new version (or the region's commit). Until then the lock
//!   bit is in the version, so no other operation returns what this one wrote.
//!
//! The [`NodeVersion`] of a miss is the home bucket's. Any later insertion of the key goes to that bucket and
//! changes its version, or finds the bucket migrated; then the migration has changed the version.

mod bucket;
#[cfg(all(test, any(loom, shuttle)))]
mod model_tests;
#[cfg(all(
    test,
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(loom, shuttle))
))]
mod region_tests;
mod resize;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::ptr::NonNull;

use weft_htm::Region;
use weft_htm::prefetch::prefetch_lines;
use weft_htm::word::{Ordering, WordPointer};

use super::key::StagedKey;
use super::{IndexKey, IndexWorker, Insertion, Lookup, NodeChange, NodeVersion};
use bucket::{Backoff, Bucket, CHANGE, LOCKED, MIGRATED, Removal, Search};
use resize::{Array, retire_bucket};

/// An unordered map from keys to record addresses.
///
/// The memory comes from the worker of each operation. When it is no longer used, it goes back to a worker.
/// Dropping a table frees nothing: what is left at the end must be given back by [`HashTable::clear`].
///
/// As for every index, the caller of an operation must be pinned (see [the index module](super)).
pub struct HashTable<K: IndexKey> {
    /// Where operations start. Null only after [`HashTable::clear`].
    current: WordPointer<Array<K>>,
}

/// The home bucket of a key, where an operation takes place.
struct Home<'a, K: IndexKey> {
    array: &'a Array<K>,
    bucket: &'a Bucket<K>,
    /// The bucket's version when it was found: not migrated and, after an entry, not locked.
    version: u64,
}

impl<'a, K: IndexKey> Home<'a, K> {
    #[inline(always)]
    fn is_locked(&self) -> bool {
        self.version & LOCKED != 0
    }

    fn node_version(&self) -> NodeVersion {
        NodeVersion { word: NonNull::from(self.bucket.version()), version: self.version }
    }

    fn node_change(&self) -> NodeChange {
        let word = NonNull::from(self.bucket.version());
        NodeChange { word, before: self.version, after: self.version + CHANGE }
    }

    /// Looks for the key in software. Returns `None` if the bucket was seen to change since the entry. The
    /// result, found or absent, may still be out of date: see [`Bucket::search`].
    #[inline(always)]
    fn search(&self, key: &K) -> Option<Search<'a, K>> {
        self.bucket.search(key, || self.bucket.is_current(self.version))
    }

    /// Looks for the key as a sequential program does: for regions, in which nothing changes.
    #[inline(always)]
    fn search_alone(&self, key: &K) -> Search<'a, K> {
        self.bucket.search(key, || true).expect("nothing changes in a region")
    }

    /// Turns the result of a search into that of a look-up.
    #[inline(always)]
    fn lookup(&self, search: &Search<'a, K>) -> Lookup {
        match *search {
            Search::Found(_, address) => Lookup::Found(address),
            Search::Absent(_) => Lookup::Absent(self.node_version()),
        }
    }
}

/// What a removal has taken out, and the array from which it did; `None` if it was refused.
type RemovalResult<'a, K> = Option<(Removal<K>, &'a Array<K>)>;

impl<K: IndexKey> HashTable<K> {
    /// Creates an empty table of the smallest size.
    pub fn new(worker: &impl IndexWorker) -> Self {
        Self::with_capacity(0, worker)
    }

    /// Creates an empty table that takes about `expected` keys before it grows. All its memory is written at
    /// once, whereas a table that grows writes its memory bit by bit.
    pub fn with_capacity(expected: usize, worker: &impl IndexWorker) -> Self {
        HashTable { current: WordPointer::new(Array::with_capacity(expected, worker).as_ptr()) }
    }

    /// Looks a key up. A miss returns the version that any later insertion of the key changes.
    ///
    /// Never uses a region: to enter one takes longer than to load the bucket's version twice.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Lookup {
        // The hash is computed in the caller, from the key as it is there. A function of its own would load the key from memory,
        // where the caller may have just put it, and wait for that with all that depends on the hash.
        self.get_hashed(key, key.hash())
    }

    #[inline]
    fn get_hashed(&self, key: &K, hash: u64) -> Lookup {
        let mut backoff = Backoff::default();
        loop {
            let home = self.enter(hash, || backoff.wait());
            if let Some(search) = home.search(key)
                && home.bucket.is_current(home.version)
            {
                return home.lookup(&search);
            }
            backoff.wait();
        }
    }

    /// Looks up a key by the sequential algorithm, in a region that the caller has begun.
    #[inline]
    pub fn get_in(&self, region: &Region, key: &K) -> Lookup {
        let home = self.enter_in_region(key.hash(), region);
        home.lookup(&home.search_alone(key))
    }

    /// Looks a key up, and inserts it with `address`, which is not zero, if it is absent.
    ///
    /// [`Insertion::Inserted`] never has a sibling here.
    pub fn get_or_insert(&self, key: &K, address: u64, worker: &impl IndexWorker) -> Insertion {
        debug_assert_ne!(address, 0);
        self.help_to_grow(worker);
        let hash = key.hash();
        let staged = StagedKey::new();
        let insertion = self
            .insert_in_region(key, hash, &staged, address, worker)
            .unwrap_or_else(|| self.insert_in_software(key, hash, &staged, address, worker));
        if let Insertion::Found(_) = insertion {
            staged.free(worker);
        }
        insertion
    }

    /// Inserts into an empty entry. Returns `None` if the chain has none, or if there are no hardware
    /// regions.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn insert_in_region(
        &self,
        key: &K,
        hash: u64,
        staged: &StagedKey<K>,
        address: u64,
        worker: &impl IndexWorker,
    ) -> Option<Insertion> {
        if !worker.regions().is_hardware() {
            return None;
        }
        // A key that is already there need not be staged.
        if let Lookup::Found(found) = self.get(key) {
            return Some(Insertion::Found(found));
        }
        let slot = staged.stage(key, worker);
        let in_region = worker.regions().run(
            |region| {
                let home = self.enter_in_region(hash, region);
                match home.search_alone(key) {
                    Search::Found(_, found) => Some(Insertion::Found(found)),
                    Search::Absent(place) if place.is_entry() => {
                        place.fill(slot, address);
                        home.bucket.set_version(home.version + CHANGE);
                        Some(Insertion::Inserted { change: home.node_change(), sibling: None })
                    }
                    Search::Absent(_) => None,
                }
            },
            || self.find(hash).is_locked(),
        );
        in_region.flatten()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn insert_in_software(
        &self,
        key: &K,
        hash: u64,
        staged: &StagedKey<K>,
        address: u64,
        worker: &impl IndexWorker,
    ) -> Insertion {
        let mut backoff = Backoff::default();
        loop {
            let home = self.enter(hash, || backoff.wait());
            match home.search(key) {
                Some(Search::Found(_, found)) if home.bucket.is_current(home.version) => {
                    return Insertion::Found(found);
                }
                Some(Search::Absent(place)) => {
                    let slot = staged.stage(key, worker);
                    // The lock is taken only if the bucket has not changed since the search.
                    if home.bucket.try_lock(home.version) {
                        let is_extended = place.insert(slot, address, worker);
                        home.bucket.unlock(home.version + CHANGE);
                        if is_extended && place.is_in(home.bucket) {
                            home.array.add_overflowing(worker);
                        }
                        return Insertion::Inserted { change: home.node_change(), sibling: None };
                    }
                }
                _ => {}
            }
            backoff.wait();
        }
    }

    /// Removes a key if `address` is stored under it. Returns whether it did.
    pub fn remove(&self, key: &K, address: u64, worker: &impl IndexWorker) -> bool {
        self.help_to_grow(worker);
        let hash = key.hash();
        let in_region = worker.regions().run(
            |region| {
                let home = self.enter_in_region(hash, region);
                match home.search_alone(key) {
                    Search::Found(place, found) if found == address => {
                        let removal = home.bucket.remove(place);
                        home.bucket.set_version(home.version + CHANGE);
                        Some((removal, home.array))
                    }
                    _ => None,
                }
            },
            || self.find(hash).is_locked(),
        );
        match in_region.unwrap_or_else(|| self.remove_in_software(key, hash, address)) {
            Some((removal, array)) => {
                retire_removal(removal, array, worker);
                true
            }
            None => false,
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn remove_in_software(&self, key: &K, hash: u64, address: u64) -> RemovalResult<'_, K> {
        let mut backoff = Backoff::default();
        loop {
            let home = self.enter(hash, || backoff.wait());
            let place = match home.search(key) {
                Some(Search::Found(place, found)) if found == address => Some(place),
                Some(_) if home.bucket.is_current(home.version) => return None,
                _ => None,
            };
            // The lock is taken only if the bucket has not changed since the search.
            if let Some(place) = place
                && home.bucket.try_lock(home.version)
            {
                let removal = home.bucket.remove(place);
                home.bucket.unlock(home.version + CHANGE);
                return Some((removal, home.array));
            }
            backoff.wait();
        }
    }

    /// Prefetches the home bucket of `key`, for a look-up that comes soon. Does not wait for it.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        prefetch_lines(self.array().home_pointer(key.hash()).cast(), size_of::<Bucket<K>>());
    }

    /// Calls `visit` with every key and its address, in no particular order. A key that is present throughout
    /// the call is visited once. A key that is inserted or removed during the call may be visited or not.
    pub fn for_each(&self, mut visit: impl FnMut(K, u64)) {
        let mut entries = Vec::new();
        self.visit_homes(|bucket| {
            let mut backoff = Backoff::default();
            loop {
                let version = bucket.version().load(Ordering::Acquire);
                if version & MIGRATED != 0 {
                    return false;
                }
                entries.clear();
                if version & LOCKED == 0
                    && copy_chain(bucket, version, &mut entries).is_some()
                    && bucket.is_current(version)
                {
                    break;
                }
                backoff.wait();
            }
            entries.drain(..).for_each(|(key, address)| visit(key, address));
            true
        });
    }

    /// Frees everything that the table has allocated, keys included. Afterwards every other operation panics.
    /// No worker that has used the table may be pinned any more.
    pub fn clear(&mut self, worker: &impl IndexWorker) {
        if !self.current.load(Ordering::Acquire).is_null() {
            self.free_all(worker);
        }
    }

    /// Returns the array in which operations start.
    #[inline(always)]
    fn array(&self) -> &Array<K> {
        // Acquire pairs with the release store in `migrate_step`, by the thread that moved the last bucket of
        // the previous array: all buckets of this one are initialised.
        let array = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or leads to an array that is retired only after it is replaced here;
        // the caller is pinned.
        unsafe { array.as_ref() }.expect("a table that is not cleared")
    }

    /// Finds the home bucket, in whatever array it is now. It may be locked.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn find(&self, hash: u64) -> Home<'_, K> {
        let mut array = self.array();
        loop {
            // SAFETY: the current array, or one whose parent bucket was found migrated below;
            // the caller is pinned.
            let bucket = unsafe { array.home(hash) };
            // Acquire pairs with the release store in `Bucket::set_version`: the entries are at
            // least as new as the version, and a migrated bucket's children are initialised.
            let version = bucket.version().load(Ordering::Acquire);
            if version & MIGRATED == 0 {
                return Home { array, bucket, version };
            }
            array = array.next().expect("a migrated bucket has children");
        }
    }

    /// Finds the home bucket unlocked. Calls `meet_locked` each time that it is locked.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn enter(&self, hash: u64, mut meet_locked: impl FnMut()) -> Home<'_, K> {
        loop {
            let home = self.find(hash);
            if !home.is_locked() {
                return home;
            }
            meet_locked();
        }
    }

    /// Enters a region: finds the home bucket, and aborts the region if the bucket is locked.
    #[inline(always)]
    fn enter_in_region(&self, hash: u64, region: &Region) -> Home<'_, K> {
        self.enter(hash, || region.abort_locked())
    }
}

/// Copies the entries of a chain. Returns `None` if the chain was seen to change since it had `version`.
fn copy_chain<K: IndexKey>(
    home: &Bucket<K>,
    version: u64,
    entries: &mut Vec<(K, u64)>,
) -> Option<()> {
    let mut next = Some(home);
    while let Some(bucket) = next {
        for (slot, address) in bucket.occupied() {
            entries.push((K::load(slot, || home.is_current(version))?, address));
        }
        next = bucket.next();
    }
    Some(())
}

/// Retires what a removal took out. Called when the lock has been released.
#[cfg_attr(not(debug_assertions), inline(always))]
fn retire_removal<K: IndexKey>(removal: Removal<K>, array: &Array<K>, worker: &impl IndexWorker) {
    K::retire(&removal.key, worker);
    if let Some(emptied) = removal.emptied {
        // SAFETY: the bucket was unlinked under the lock, which is released by now. An operation that starts
        // from now on finds the chain without it.
        unsafe { retire_bucket(emptied, worker) };
        if removal.is_within_home {
            array.remove_overflowing();
        }
    }
}
