//! Fallback locks by partition (§3.3).
//!
//! A piece that is no region, though it was to be one, holds the locks of all partitions that it touches. A region begins
//! only while the locks of the partitions that it will touch are free, and rolls back if one of them is taken:
//!
//! ```text
//!   region     are the locks held? ─ yes: wait outside │ no: go on …… rolled back if one is taken
//!   fallback   touch: take the lock, and keep it up to the end of the piece
//! ```
//!
//! A partition is a part of one table or index: the keys with the same leading bytes. In TPC-C these are a warehouse's
//! number, as in the paper. The paper knows which partitions a piece touches, and sorts their locks before it takes them.
//! Here a piece finds out by touching them. So a region goes by what the same piece touched the last times, and looks at the
//! lock of each other partition when it touches it. A fallback waits for a lock only if the lock comes after all those that it
//! holds. Otherwise, if the lock is not free, it gives up, and takes all locks that it is known to need when it begins again.
//!
//! A fallback holds up all others of its partitions, so it has to be rare. A region that rolls back because a lock was taken
//! has had a conflict. Therefore [a hundred](CONFLICTS_MAX) conflicts make a fallback, and not eight as elsewhere.
//!
//! Nothing depends on these locks but how often a fallback fails. It also locks the records that it writes, because there
//! are transactions that are not in pieces.

use arrayvec::ArrayVec;
use weft::ConflictReason;
use weft::commit::Abort;
use weft::encoding::EncodedKey;
use weft::store::table::TableRef;
use weft::store::worker::WorkerMemory;

use super::{PieceExecutor, TransactionKind};
use crate::dbx_spin::CommitLock;

/// How many leading bytes of a key say to which partition it belongs.
const KEY_BYTES: u32 = 2;

/// The number of locks. Two partitions may have the same lock.
const LOCKS: usize = 1024;

/// The lock of the ranges that lie in more than one partition. All of them have the same one.
const SPANNING: usize = 0;

/// After this many conflicts a region is given up (DBX, §6.1).
pub(super) const CONFLICTS_MAX: u32 = 100;

/// How many locks are remembered for a piece.
const TOUCHED_MAX: usize = 16;

/// The positions of the locks of the partitions that a piece has touched lately.
pub type TouchedLocks = ArrayVec<usize, TOUCHED_MAX>;

/// A database's locks.
#[derive(Debug)]
pub struct PartitionLocks {
    locks: Box<[CommitLock]>,
}

impl PartitionLocks {
    pub fn new() -> PartitionLocks {
        PartitionLocks { locks: (0..LOCKS).map(|_| CommitLock::default()).collect() }
    }

    /// Returns the position of the lock of a key's partition.
    fn of_key(table: TableRef, key: &EncodedKey) -> usize {
        // Not the lock of ranges.
        1 + position(table, leading(key, KEY_BYTES), LOCKS - 1)
    }

    /// Returns whether one of these locks is held.
    pub(super) fn is_any_held(&self, positions: &[usize]) -> bool {
        positions.iter().any(|&position| self.locks[position].is_held())
    }

    /// Returns the position of the lock of a range between two keys.
    fn of_range(table: TableRef, ends: &[Option<EncodedKey>; 2]) -> usize {
        match leading_of_range(ends, KEY_BYTES) {
            Some(leading) => 1 + position(table, leading, LOCKS - 1),
            None => SPANNING,
        }
    }
}

/// Returns the leading bytes of a key, as a number.
pub(super) fn leading(key: &EncodedKey, bytes: u32) -> u64 {
    let first = match key {
        EncodedKey::Words1(word) | EncodedKey::Words2([word, _]) => *word,
        EncodedKey::Long(key) => {
            let mut word = [0; size_of::<u64>()];
            let known = key.as_bytes().len().min(word.len());
            word[..known].copy_from_slice(&key.as_bytes()[..known]);
            u64::from_be_bytes(word)
        }
    };
    first >> (u64::BITS - 8 * bytes)
}

/// Returns the leading bytes that all keys between two keys have, or `None` if they differ.
pub(super) fn leading_of_range(ends: &[Option<EncodedKey>; 2], bytes: u32) -> Option<u64> {
    let [Some(least), Some(greatest)] = ends else { return None };
    let leading_bytes = leading(least, bytes);
    (leading_bytes == leading(greatest, bytes)).then_some(leading_bytes)
}

/// Returns the place of some keys of a table among `places`.
pub(super) fn position(table: TableRef, leading: u64, places: usize) -> usize {
    // Neighbours get different places.
    let mixed = (leading.wrapping_mul(31) + table.core().number as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % places
}

/// The locks of a piece, by their positions, in order.
#[derive(Debug, Default)]
pub struct PieceLocks {
    /// The piece's position in its procedure.
    pub(super) piece: usize,
    held: Vec<usize>,
    /// Those that the piece needs when it begins again.
    needed: Vec<usize>,
}

impl PieceExecutor {
    /// Touches the partition of a key.
    pub(super) fn touch_key(
        &mut self,
        table: TableRef,
        key: &EncodedKey,
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        self.touch(table, || PartitionLocks::of_key(table, key), memory)
    }

    /// Touches the partition of a range between two keys.
    pub(super) fn touch_range(
        &mut self,
        table: TableRef,
        ends: &[Option<EncodedKey>; 2],
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        self.touch(table, || PartitionLocks::of_range(table, ends), memory)
    }

    fn touch(
        &mut self,
        table: TableRef,
        position: impl FnOnce() -> usize,
        memory: &WorkerMemory,
    ) -> Result<(), Abort> {
        let Some(PartitionLocks { locks }) = &self.shared.locks else { return Ok(()) };
        // Without hardware there are no regions from which a fallback has to be kept apart.
        if self.kind != TransactionKind::InPieces || !memory.regions().is_hardware() {
            return Ok(());
        }
        let position = position();
        let touched = self.procedures.touched(self.locks.piece);
        if !touched.contains(&position) {
            if touched.is_full() {
                touched.clear();
            }
            touched.push(position);
        }
        if self.is_in_region {
            if locks[position].is_held() {
                memory.regions().abort_open_locked();
            }
            return Ok(());
        }
        let PieceLocks { held, needed, .. } = &mut self.locks;
        match held.binary_search(&position) {
            Ok(_) => return Ok(()),
            Err(end) if end == held.len() => locks[position].lock(),
            Err(_) if locks[position].try_lock() => {}
            Err(_) => {
                needed.clone_from(held);
                needed.push(position);
                needed.sort_unstable();
                return Err(Abort::of_table(ConflictReason::WriteLocked, table));
            }
        }
        held.push(position);
        held.sort_unstable();
        Ok(())
    }

    /// Returns whether the piece has given up for the order of its locks, and knows now which it needs.
    pub(super) fn has_needed_locks(&self) -> bool {
        !self.locks.needed.is_empty()
    }

    /// Takes the locks that the piece is known to need, in their order. It begins as a fallback.
    pub(super) fn lock_needed(&mut self) {
        let Some(PartitionLocks { locks }) = &self.shared.locks else { return };
        debug_assert!(self.locks.held.is_empty(), "the last piece has ended");
        let needed = std::mem::take(&mut self.locks.needed);
        needed.iter().for_each(|&position| locks[position].lock());
        self.locks.held = needed;
    }

    /// Gives the locks of the piece back. It has ended, or begins again.
    pub(super) fn unlock_partitions(&mut self, begins_again: bool) {
        if !begins_again {
            self.locks.needed.clear();
        }
        let Some(PartitionLocks { locks }) = &self.shared.locks else { return };
        self.locks.held.drain(..).for_each(|position| locks[position].unlock());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft::index::LongKey;

    use super::*;

    fn long(bytes: &[u8]) -> EncodedKey {
        EncodedKey::Long(Arc::new(LongKey::from(bytes)))
    }

    #[test]
    fn leading_bytes_are_the_same_in_all_forms_of_keys() {
        let word = u64::from_be_bytes(*b"abcdefgh");
        for (bytes, expected) in [(2, 0x6162), (3, 0x61_62_63)] {
            assert_eq!(leading(&EncodedKey::Words1(word), bytes), expected);
            assert_eq!(leading(&EncodedKey::Words2([word, 7]), bytes), expected);
            assert_eq!(leading(&long(b"abcdefghijk"), bytes), expected);
        }
        assert_eq!(leading(&long(b"a"), 2), 0x6100);
    }

    #[test]
    fn a_range_has_leading_bytes_if_both_ends_have_them() {
        let key = |number: u64| Some(EncodedKey::Words1(number << 48 | 5));
        assert_eq!(leading_of_range(&[key(3), key(3)], 2), Some(3));
        assert_eq!(leading_of_range(&[key(3), key(4)], 2), None);
        assert_eq!(leading_of_range(&[key(3), None], 2), None);
        assert_eq!(leading_of_range(&[None, key(3)], 2), None);
    }
}
