//! Database caches (§3.3): small tables that hold new records, before these are put into the indexes.
//!
//! To insert into an index takes a search and changes a node, which many insertions have in common. So a piece that is a
//! region puts its new records into a cache, and they are written back after it, one by one:
//!
//! ```text
//!   region      search the index, put the record into the cache │ the piece's other accesses │ install
//!   afterwards  put the record into the index, take it out of the cache
//! ```
//!
//! A cache has the new records of one table or index whose keys have the same leading bytes. In TPC-C these are the
//! numbers of a warehouse and a district. A look-up finds a key in the cache or in the index:
//!
//! - **A region** searches the cache first. If a range is to be scanned whose cache is not empty, it rolls back, or if the
//!   records are its own, puts them into the index first. (A record is in a cache for a few microseconds.)
//! - **A transaction that is no region** does not read what is in a cache. If the cache is empty, it notes its version, as
//!   that of an index node, and uses the index. Otherwise it begins again. It must not wait: it may have put a placeholder
//!   into the index, under the key of a cached record, and then the record cannot be written back until it has given up.
//! - **Outsiders and snapshots** find all caches empty. They wait for the procedures that are in pieces, and these have
//!   written back what they have cached.
//!
//! A record can be deleted before it was written back. It leaves the index after a grace period, when it has long been put there.
//!
//! The paper's caches also hold updates of records. Here an update replaces a row in its record, and changes no index.
//! It has no caches for tables without insertions; here no piece looks for one there, because nothing was ever put into
//! it.

use weft::ConflictReason;
use weft::commit::{Abort, CachedInsertion, Executor};
use weft::encoding::EncodedKey;
use weft::index::{Lookup, NodeVersion};
use weft::store::record::RecordPointer;
use weft::store::table::TableRef;
use weft::store::worker::WorkerMemory;
use weft_htm::word::{Ordering, Word, yield_now};

use super::partition::{leading, leading_of_range, position};
use super::{PieceExecutor, TransactionKind};

/// How many leading bytes of a key say in which cache it belongs.
const KEY_BYTES: u32 = 3;

/// The number of caches. Tables, and parts of tables, may share one.
const CACHES: usize = 256;

/// How many records a cache holds. Further ones are put into the index at once.
const SLOTS: usize = 48;

/// A database's caches.
#[derive(Debug)]
pub struct Caches {
    caches: Box<[Cache]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Cache {
    /// Counts the records that have been put into the cache.
    version: Word,
    /// How many are in it.
    used: Word,
    slots: [Slot; SLOTS],
}

#[derive(Debug, Default)]
struct Slot {
    /// The address of the record, or 0.
    record: Word,
    table: Word,
    key: [Word; 2],
}

impl Caches {
    pub fn new() -> Caches {
        let cache = || Cache {
            version: Word::new(0),
            used: Word::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        };
        Caches { caches: (0..CACHES).map(|_| cache()).collect() }
    }

    /// Returns the position of a key's cache.
    fn of_key(table: TableRef, key: &EncodedKey) -> usize {
        position(table, leading(key, KEY_BYTES), CACHES)
    }

    /// Returns the positions of the caches of a range between two keys.
    fn of_range(table: TableRef, ends: &[Option<EncodedKey>; 2]) -> std::ops::Range<usize> {
        match leading_of_range(ends, KEY_BYTES) {
            Some(leading) => {
                let position = position(table, leading, CACHES);
                position..position + 1
            }
            None => 0..CACHES,
        }
    }
}

impl Cache {
    fn is_empty(&self) -> bool {
        // Acquire: pairs with the release in `remove`, so what is not here any more is in the index.
        self.used.load(Ordering::Acquire) == 0
    }

    /// Returns the address of the record under a key. Only a region finds all words of a slot as they belong together.
    fn find(&self, table: TableRef, key: [u64; 2]) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let is_it = |slot: &&Slot| {
            slot.record.load(Ordering::Relaxed) != 0
                && slot.table.load(Ordering::Relaxed) == table.core().number as u64
                && slot.key[0].load(Ordering::Relaxed) == key[0]
                && slot.key[1].load(Ordering::Relaxed) == key[1]
        };
        self.slots.iter().find(is_it).map(|slot| slot.record.load(Ordering::Relaxed))
    }

    /// Puts a record into a free slot, in a region. Returns the slot, or `None` if all are used.
    fn insert(&self, table: TableRef, key: [u64; 2], record: u64) -> Option<usize> {
        let position =
            self.slots.iter().position(|slot| slot.record.load(Ordering::Relaxed) == 0)?;
        let slot = &self.slots[position];
        slot.table.store(table.core().number as u64, Ordering::Relaxed);
        slot.key[0].store(key[0], Ordering::Relaxed);
        slot.key[1].store(key[1], Ordering::Relaxed);
        slot.record.store(record, Ordering::Relaxed);
        self.used.fetch_add(1, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Relaxed);
        Some(position)
    }

    /// Frees a slot whose record is in the index.
    fn remove(&self, slot: usize) {
        self.slots[slot].record.store(0, Ordering::Release);
        // Release: see `is_empty`.
        self.used.fetch_add(1u64.wrapping_neg(), Ordering::Release);
    }
}

/// Returns a key as it is kept in a slot, or `None` if it is too long.
fn words(key: &EncodedKey) -> Option<[u64; 2]> {
    match key {
        EncodedKey::Words1(word) => Some([*word, 0]),
        EncodedKey::Words2(words) => Some(*words),
        EncodedKey::Long(_) => None,
    }
}

/// A record that is in a cache.
#[derive(Debug)]
pub struct CachedRecord {
    cache: usize,
    slot: usize,
    table: TableRef,
    key: EncodedKey,
    record: std::ptr::NonNull<u8>,
}

/// What a piece knows of caches.
#[derive(Debug, Default)]
pub struct PieceCaches {
    /// The records that it has put into caches. Changed inside the region, so that an abort undoes it.
    cached: Vec<CachedRecord>,
    /// The caches that it has noted, if it is no region.
    noted: Vec<usize>,
}

impl PieceExecutor {
    /// Looks for a key in its cache. Returns the address of the record.
    pub(super) fn find_cached(
        &mut self,
        table: TableRef,
        key: &EncodedKey,
    ) -> Result<Option<u64>, Abort> {
        if !self.has_caches() {
            return Ok(None);
        }
        let (position, Some(words)) = (Caches::of_key(table, key), words(key)) else {
            return Ok(None);
        };
        #[cfg(feature = "canary")]
        if self.shared.is_cache_neglected {
            return Ok(None);
        }
        match &self.shared.caches {
            Some(Caches { caches }) if self.is_in_region => Ok(caches[position].find(table, words)),
            _ => self.note_cache(table, position).map(|()| None),
        }
    }

    /// Puts a new record into the cache of its key. See [`Executor::cache_insertion`](super::Executor::cache_insertion).
    pub(super) fn cache_record(
        &mut self,
        table: TableRef,
        key: EncodedKey,
        address: u64,
        search: impl Fn() -> Lookup,
    ) -> Result<CachedInsertion, Abort> {
        if let Some(found) = self.find_cached(table, &key)? {
            return Ok(CachedInsertion::Found(found));
        }
        let to_index = CachedInsertion::ToIndex { alone: self.has_caches() };
        let (true, Some(Caches { caches }), Some(words)) =
            (self.is_in_region, &self.shared.caches, words(&key))
        else {
            return Ok(to_index);
        };
        if let Lookup::Found(found) = search() {
            return Ok(CachedInsertion::Found(found));
        }
        let cache = Caches::of_key(table, &key);
        let Some(slot) = caches[cache].insert(table, words, address) else { return Ok(to_index) };
        // SAFETY: the record is new, and the worker is pinned.
        let record = unsafe { RecordPointer::<()>::from_address(address) }.block();
        self.caches.cached.push(CachedRecord { cache, slot, table, key, record });
        Ok(CachedInsertion::Cached)
    }

    /// Makes sure that the records of a range between two keys are in the index.
    pub(super) fn pass_caches(
        &mut self,
        table: TableRef,
        ends: &[Option<EncodedKey>; 2],
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        if !self.has_caches() || ends.iter().flatten().any(|end| words(end).is_none()) {
            return Ok(());
        }
        #[cfg(feature = "canary")]
        if self.shared.is_cache_neglected {
            return Ok(());
        }
        let positions = Caches::of_range(table, ends);
        if !self.is_in_region {
            return positions.into_iter().try_for_each(|position| self.note_cache(table, position));
        }
        if self.caches.cached.iter().any(|cached| positions.contains(&cached.cache)) {
            self.write_back(memory);
        }
        let Some(Caches { caches }) = &self.shared.caches else { return Ok(()) };
        if !caches[positions].iter().all(Cache::is_empty) {
            memory.regions().abort_open_locked();
        }
        Ok(())
    }

    /// Notes the version of a cache, which must be empty. The transaction is no region.
    fn note_cache(&mut self, table: TableRef, position: usize) -> Result<(), Abort> {
        let Some(Caches { caches }) = &self.shared.caches else { return Ok(()) };
        if self.caches.noted.contains(&position) {
            // If it has been used since, the note fails at the commit.
            return Ok(());
        }
        let cache = &caches[position];
        // Acquire: what was put into the cache after this load makes the note fail.
        let version = cache.version.load(Ordering::Acquire);
        if !cache.is_empty() {
            return Err(Abort::of_table(ConflictReason::RangeChanged, table));
        }
        let node = NodeVersion { word: std::ptr::NonNull::from(&cache.version), version };
        self.optimistic.note_node(table, node, None)?;
        self.caches.noted.push(position);
        Ok(())
    }

    /// Puts what is in caches into the indexes.
    pub(super) fn write_back(&mut self, memory: &WorkerMemory) {
        let Some(Caches { caches }) = &self.shared.caches else { return };
        for CachedRecord { cache, slot, table, key, record } in self.caches.cached.drain(..) {
            // SAFETY: the record was made for this key of the table, is in no index yet, and the worker is pinned. Until
            // the slot is freed, no other record is put under the key.
            while !unsafe { table.link(record, &key, memory) } {
                // A placeholder of a transaction that is no region. It will give up.
                if self.is_in_region {
                    memory.regions().abort_open_locked();
                }
                yield_now();
            }
            caches[cache].remove(slot);
        }
    }

    /// Forgets what the piece knows of caches. It has ended, or begins again.
    pub(super) fn forget_caches(&mut self) {
        self.caches.noted.clear();
    }

    /// Forgets what a region has put into caches that was rolled back.
    pub(super) fn forget_cached(&mut self) {
        self.caches.cached.clear();
    }

    /// Outsiders, and all that runs between procedures, find nothing in caches.
    fn has_caches(&self) -> bool {
        self.shared.caches.is_some()
            && matches!(self.kind, TransactionKind::InPieces | TransactionKind::Whole)
    }
}
