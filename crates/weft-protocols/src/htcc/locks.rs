//! The locks on hot records that a transaction holds.

use weft::commit::access_set::ReadEntry;
use weft::commit::optimistic::stored;
use weft::commit::positions::Positions;
use weft::store::record::RecordPointer;

use super::heat::HeatHeader;

/// A lock on a hot record.
pub struct HeldLock {
    pub record: RecordPointer<HeatHeader>,
    pub is_exclusive: bool,
    /// Whether the lock takes the place of validation.
    pub binds: bool,
    /// The round in which the record was last accessed.
    pub round: u32,
}

/// The locks that a transaction holds, each one once.
#[derive(Default)]
pub struct HeldLocks {
    pub locks: Vec<HeldLock>,
    positions: Positions,
    /// How many of the locks bind.
    binding: usize,
    /// All reads, during a commit that does not validate some of them.
    all_reads: Vec<ReadEntry<HeatHeader>>,
}

// SAFETY: a worker's locks move between threads only with the worker. It holds none between transactions, and does not
// look at the reads of earlier ones.
unsafe impl Send for HeldLocks {}

impl HeldLocks {
    pub fn find(&self, record: RecordPointer<HeatHeader>) -> Option<usize> {
        if self.locks.is_empty() {
            return None;
        }
        self.positions.find(record.block(), |position| self.locks[position].record == record)
    }

    pub fn push(&mut self, held: HeldLock) {
        self.binding += usize::from(held.binds);
        let HeldLocks { locks, positions, .. } = self;
        let block = |position: usize| locks[position].record.block();
        positions.insert(held.record.block(), locks.len(), block);
        locks.push(held);
    }

    /// Releases the locks of records that were not accessed in this round (§4.1, the delta-set `del_set`).
    pub fn release_other_rounds(&mut self, round: u32) {
        if self.locks.iter().all(|held| held.round == round) {
            return;
        }
        let all = std::mem::take(&mut self.locks);
        self.positions.clear();
        self.binding = 0;
        for held in all {
            if held.round == round { self.push(held) } else { release(&held) }
        }
    }

    #[inline(always)]
    pub fn release_all(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        self.locks.drain(..).for_each(|held| release(&held));
        self.positions.clear();
        self.binding = 0;
    }

    /// Returns whether the transaction holds a lock that takes the place of validation.
    #[inline(always)]
    pub fn any_binds(&self) -> bool {
        self.binding > 0
    }

    /// Removes those reads that were made under such locks. Returns whether there were any. A record that had no row is
    /// validated all the same: the transaction that inserts the row, and the collector of deleted records, take no lock.
    pub fn leave_out_locked(&mut self, reads: &mut Vec<ReadEntry<HeatHeader>>) -> bool {
        let is_locked =
            |read: &ReadEntry<HeatHeader>| !read.observed.is_absent() && self.binds(read.record);
        if !reads.iter().any(is_locked) {
            return false;
        }
        let mut all = std::mem::take(&mut self.all_reads);
        all.clear();
        all.extend_from_slice(reads);
        reads.retain(|read| !self.binds(read.record) || read.observed.is_absent());
        self.all_reads = all;
        true
    }

    /// Puts the removed reads back, each in its place.
    pub fn put_back(&mut self, reads: &mut Vec<ReadEntry<HeatHeader>>) {
        std::mem::swap(reads, &mut self.all_reads);
    }

    /// Returns whether the transaction holds such a lock on a record.
    fn binds(&self, record: RecordPointer<HeatHeader>) -> bool {
        self.find(record).is_some_and(|position| self.locks[position].binds)
    }
}

fn release(held: &HeldLock) {
    let heat = &stored(held.record).header.heat;
    if held.is_exclusive { heat.unlock_exclusive() } else { heat.unlock_shared() }
}
