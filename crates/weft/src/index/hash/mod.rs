//! The unordered index: a hash table of cache-line buckets that grows while it is in use.
//!
//! It plays the part of DBX's unordered store ("Using Restricted Transactional Memory to Build a
//! Scalable In-Memory Database", §4): look-up, get-with-insert and removal of single keys, of which
//! the latter two are one short region of hardware transactional memory where there is such a thing.
//! It departs from the paper in four ways: a bucket holds several entries, since an address needs no
//! cache line of its own; the software twin locks one bucket and not the table; growing stops
//! nobody, where DBX takes a global lock to resize; and a look-up is no region, since it has the
//! version to validate by, and that is quicker (`docs/rtm.md`).
//!
//! - `bucket`: the layout of a bucket, its version word, and the steps on a chain.
//! - `resize`: arrays of buckets, when a table grows, and how the buckets are moved.
//! - This page: the operations.
//!
//! A look-up of a present key touches, beside the table's own two lines, which stay in the cache,
//! one cache line: the home bucket with its version, keys and addresses. Readers write nothing.
//!
//! # The operations and their twins
//!
//! Every operation is an *entry*, a *search*, and for writers a *change*. They differ in who
//! watches over them (a look-up is always in software):
//!
//! | | in software | in a hardware region |
//! | --- | --- | --- |
//! | entry | waits until the home bucket is unlocked, remembers its version | aborts if it is locked; the version is in the region's read set |
//! | search | true if the version is still the same | as in a sequential program |
//! | change | locks the version that the search saw, then writes and unlocks | writes |
//! | version | + `CHANGE` as the lock is released | + `CHANGE` |
//!
//! Both leave the same words behind, and each sees the other: a region that has read a version
//! word aborts when a lock is taken there, and a reader in software finds a version changed that
//! a region has committed. A region never allocates: what it needs of a long key is prepared
//! before it (`Staged`), what it removes is retired after it, and an insertion that needs an
//! overflow bucket is left to the twin. So are the moves of a growing table.
//!
//! # Serialization points
//!
//! - A look-up, a found get-with-insert, and a refused removal: the load of the home bucket's
//!   version that the search is checked against. A growing table has one bucket for a key at
//!   any time: the old one until its version says that it is migrated, and from then on its
//!   child.
//! - An insertion and a removal: the store of the new version (or the region's commit). Until
//!   then nobody returns what the operation wrote, as the lock bit is in the version.
//!
//! A [`NodeVersion`] of a miss is the home bucket's. Any later insertion of the key goes
//! to that bucket and changes its version, or finds the bucket migrated, and then that has.

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

use super::key::Staged;
use super::{IndexKey, IndexWorker, Insertion, Lookup, NodeChange, NodeVersion};
use bucket::{Backoff, Bucket, CHANGE, LOCKED, MIGRATED, Removal, Search};
use resize::{Array, retire_bucket};

/// A map from keys to record addresses, without order.
///
/// Memory comes from the worker of each operation and goes back to a worker when it is no longer
/// used; what is left at the end has to be given back by [`HashTable::clear`], as dropping a
/// table frees nothing.
///
/// As for every index, the caller of an operation is pinned (see [the index module](super)).
pub struct HashTable<K: IndexKey> {
    /// Where operations start. Null only after [`HashTable::clear`].
    current: WordPointer<Array<K>>,
}

/// Where an operation on a key takes place.
struct Home<'a, K: IndexKey> {
    array: &'a Array<K>,
    bucket: &'a Bucket<K>,
    /// The bucket's version when it was found: not migrated, and after an entry not locked.
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

    /// Looks for the key in software; `None` if the bucket has changed since the entry. An
    /// absence may still be out of date, and so may an address: see [`Bucket::search`].
    #[inline(always)]
    fn search(&self, key: &K) -> Option<Search<'a, K>> {
        self.bucket.search(key, || self.bucket.is_current(self.version))
    }

    /// Looks for the key as a sequential program does: for regions, in which nothing changes.
    #[inline(always)]
    fn search_alone(&self, key: &K) -> Search<'a, K> {
        self.bucket.search(key, || true).expect("nothing changes in a region")
    }

    /// The answer of a look-up.
    #[inline(always)]
    fn lookup(&self, search: &Search<'a, K>) -> Lookup {
        match *search {
            Search::Found(_, address) => Lookup::Found(address),
            Search::Absent(_) => Lookup::Absent(self.node_version()),
        }
    }
}

/// What a removal has taken out, and of which array; `None` if it was refused.
type Removed<'a, K> = Option<(Removal<K>, &'a Array<K>)>;

impl<K: IndexKey> HashTable<K> {
    /// An empty table of the smallest size.
    pub fn new(worker: &impl IndexWorker) -> Self {
        Self::with_capacity(0, worker)
    }

    /// An empty table that takes about `expected` keys before it grows. Its memory is written at
    /// once; a table that grows does that bit by bit.
    pub fn with_capacity(expected: usize, worker: &impl IndexWorker) -> Self {
        HashTable { current: WordPointer::new(Array::with_capacity(expected, worker).as_ptr()) }
    }

    /// Looks a key up. A miss returns the version that any later insertion of the key changes.
    ///
    /// Never in a region: to enter one takes longer than to look at the bucket's version twice.
    #[inline]
    pub fn get(&self, key: &K) -> Lookup {
        let hash = key.hash();
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

    /// Looks a key up, and inserts it with `address`, which is not zero, if it is absent.
    ///
    /// [`Insertion::Inserted`] never has a sibling here.
    pub fn get_or_insert(&self, key: &K, address: u64, worker: &impl IndexWorker) -> Insertion {
        debug_assert_ne!(address, 0);
        self.help_to_grow(worker);
        let hash = key.hash();
        let staged = Staged::new();
        let insertion = self
            .insert_in_region(key, hash, &staged, address, worker)
            .unwrap_or_else(|| self.insert_in_software(key, hash, &staged, address, worker));
        if let Insertion::Found(_) = insertion {
            staged.free(worker);
        }
        insertion
    }

    /// Inserts into an empty entry; `None` if there is none, or no hardware.
    #[inline(always)]
    fn insert_in_region(
        &self,
        key: &K,
        hash: u64,
        staged: &Staged<K>,
        address: u64,
        worker: &impl IndexWorker,
    ) -> Option<Insertion> {
        if !worker.regions().is_hardware() {
            return None;
        }
        // A key that is there need not be staged.
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

    #[inline(always)]
    fn insert_in_software(
        &self,
        key: &K,
        hash: u64,
        staged: &Staged<K>,
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
                    // The lock is had only if the bucket is as it was searched.
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

    /// Removes a key if `address` is what is stored under it, and returns whether it was.
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

    #[inline(always)]
    fn remove_in_software(&self, key: &K, hash: u64, address: u64) -> Removed<'_, K> {
        let mut backoff = Backoff::default();
        loop {
            let home = self.enter(hash, || backoff.wait());
            let place = match home.search(key) {
                Some(Search::Found(place, found)) if found == address => Some(place),
                Some(_) if home.bucket.is_current(home.version) => return None,
                _ => None,
            };
            // The lock is had only if the bucket is as it was searched.
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

    /// Asks the processor to bring the home bucket of `key` into the cache, for a look-up that
    /// comes soon. Does not wait for it.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        prefetch_lines(self.array().home_pointer(key.hash()).cast(), size_of::<Bucket<K>>());
    }

    /// Calls `visit` with every key and its address, in no order. A key that is present
    /// throughout is visited once; one that comes or goes meanwhile may or may not be.
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

    /// Frees everything that the table has allocated, keys included, at the end of the table:
    /// every other operation panics from then on. No worker is pinned any more that has used it.
    pub fn clear(&mut self, worker: &impl IndexWorker) {
        if !self.current.load(Ordering::Acquire).is_null() {
            self.free_all(worker);
        }
    }

    /// The array in which operations start.
    #[inline(always)]
    fn array(&self) -> &Array<K> {
        // Acquire pairs with the release store by who moved the last bucket of the array before
        // (`migrate_step`): all buckets are initialised.
        let array = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null or an array that is retired only after it is replaced here;
        // the caller is pinned.
        unsafe { array.as_ref() }.expect("a table that is not cleared")
    }

    /// Finds the home bucket, wherever it is by now. It may be locked.
    #[inline(always)]
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

    /// Finds the home bucket unlocked, and calls `meet_locked` as often as it is not.
    #[inline(always)]
    fn enter(&self, hash: u64, mut meet_locked: impl FnMut()) -> Home<'_, K> {
        loop {
            let home = self.find(hash);
            if !home.is_locked() {
                return home;
            }
            meet_locked();
        }
    }

    /// The entry of a region, which aborts if the home bucket is locked.
    #[inline(always)]
    fn enter_in_region(&self, hash: u64, region: &Region) -> Home<'_, K> {
        self.enter(hash, || region.abort_locked())
    }
}

/// Copies the entries of a chain; `None` if it has changed since it had `version`.
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

/// Does what a removal leaves to be done when the lock is released.
#[inline(always)]
fn retire_removal<K: IndexKey>(removal: Removal<K>, array: &Array<K>, worker: &impl IndexWorker) {
    K::retire(&removal.key, worker);
    if let Some(emptied) = removal.emptied {
        // SAFETY: it was unlinked under the lock that is released by now; who starts from now on
        // finds the chain without it.
        unsafe { retire_bucket(emptied, worker) };
        if removal.is_within_home {
            array.remove_overflowing();
        }
    }
}
