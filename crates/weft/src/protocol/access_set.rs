//! The access sets of the optimistic protocols: what a transaction has read, is to write, and
//! which index nodes it relies on. Reused from one transaction to the next.

use std::ptr::NonNull;

use crate::index::{NodeChange, NodeVersion};
use crate::record::tid::Tid;
use crate::record::{RecordPointer, StoredRecord};
use crate::table::TableRef;

/// A record read, and the version it had.
pub struct ReadEntry<H> {
    pub record: RecordPointer<H>,
    pub observed: Tid,
    pub table: TableRef,
}

/// A record to be written.
pub struct WriteEntry<H> {
    pub record: RecordPointer<H>,
    pub table: TableRef,
    /// The version that the write replaces; the lock is taken at this version and no other.
    pub expected: Tid,
    /// The row of that version (of a deleted record, the row it had); null if it never had one.
    pub replaced: *mut u8,
    /// The row to install; `None` to leave the record without one.
    pub row: Option<NonNull<u8>>,
    /// If this transaction has put the record into the index: the row that it did so with, which
    /// tells the record's key as long as the transaction lasts.
    pub created: Option<NonNull<u8>>,
}

/// An index node relied on.
pub struct NodeEntry {
    pub node: NodeVersion,
    pub table: TableRef,
}

/// A private row that was replaced before anybody else saw it: the transaction's own references
/// to it last until it ends.
pub struct Superseded<H> {
    pub record: RecordPointer<H>,
    pub row: NonNull<u8>,
    pub table: TableRef,
}

/// Everything that a transaction has accessed.
pub struct AccessSet<H> {
    pub reads: Vec<ReadEntry<H>>,
    pub writes: Vec<WriteEntry<H>>,
    pub nodes: Vec<NodeEntry>,
    pub superseded: Vec<Superseded<H>>,
    positions: Positions,
}

// SAFETY: an access set moves between threads only with its worker, empty between transactions.
unsafe impl<H> Send for AccessSet<H> {}

impl<H> Default for AccessSet<H> {
    fn default() -> Self {
        AccessSet {
            reads: Vec::new(),
            writes: Vec::new(),
            nodes: Vec::new(),
            superseded: Vec::new(),
            positions: Positions::default(),
        }
    }
}

impl<H> AccessSet<H> {
    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.reads.clear();
        self.nodes.clear();
        self.superseded.clear();
        if !self.writes.is_empty() {
            self.writes.clear();
            self.positions.clear();
        }
    }

    /// The position among the writes of this transaction's own write of `record`.
    #[inline(always)]
    pub fn find_write(&self, record: RecordPointer<H>) -> Option<usize> {
        if self.writes.is_empty() {
            return None;
        }
        self.positions.find(record.block(), |position| self.writes[position].record == record)
    }

    /// Adds a write of a record that has none yet.
    #[inline(always)]
    pub fn push_write(&mut self, entry: WriteEntry<H>) {
        self.positions.insert(entry.record.block(), self.writes.len(), |position| {
            self.writes[position].record.block()
        });
        self.writes.push(entry);
    }

    /// Sorts the writes by address. Positions found before mean nothing afterwards.
    pub fn sort_writes(&mut self) {
        self.writes.sort_unstable_by_key(|entry| entry.record.block());
        self.positions.clear();
        for (position, entry) in self.writes.iter().enumerate() {
            self.positions.insert(entry.record.block(), position, |position| {
                self.writes[position].record.block()
            });
        }
    }

    /// Takes this transaction's own change of a node into account. False if the node had changed
    /// before, by another's doing, since it was noted.
    #[inline]
    pub fn note_own_insertion(
        &mut self,
        table: TableRef,
        change: NodeChange,
        sibling: Option<NodeVersion>,
    ) -> bool {
        let mut noted = false;
        for entry in self.nodes.iter_mut().filter(|entry| entry.node.word == change.word) {
            if entry.node.version != change.before {
                return false;
            }
            entry.node.version = change.after;
            noted = true;
        }
        if noted && let Some(node) = sibling {
            self.nodes.push(NodeEntry { node, table });
        }
        true
    }
}

/// Whether a row of `record` lies inline in it.
#[inline(always)]
pub fn is_inline<H>(table: TableRef, record: RecordPointer<H>, row: NonNull<u8>) -> bool {
    table.core().holds_rows_inline() && record.inline_row() == row
}

const _: () = assert!(size_of::<StoredRecord<Tid>>().is_multiple_of(16));

/// A small open-addressing hash table from a record's address to its position among the writes.
/// It answers "did I write this record?", which every read after the first write asks.
struct Positions {
    /// Position plus one; zero where free. The length is a power of two.
    slots: Vec<u32>,
    used: usize,
}

const POSITIONS_MIN: usize = 128;

impl Default for Positions {
    fn default() -> Self {
        Positions { slots: vec![0; POSITIONS_MIN], used: 0 }
    }
}

impl Positions {
    #[inline(always)]
    fn start(&self, block: NonNull<u8>) -> usize {
        // Fibonacci hashing; blocks are at least 16 bytes apart.
        let hash = (block.as_ptr() as usize as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline(always)]
    fn find(&self, block: NonNull<u8>, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut slot = self.start(block);
        loop {
            let position = self.slots[slot].checked_sub(1)? as usize;
            if is_it(position) {
                return Some(position);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    fn insert(&mut self, block: NonNull<u8>, position: usize, at: impl Fn(usize) -> NonNull<u8>) {
        if self.used * 2 >= self.slots.len() {
            self.grow(position, at);
        }
        self.used += 1;
        self.place(block, position);
    }

    #[inline(always)]
    fn place(&mut self, block: NonNull<u8>, position: usize) {
        let mut slot = self.start(block);
        while self.slots[slot] != 0 {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = position as u32 + 1;
    }

    #[cold]
    fn grow(&mut self, positions: usize, at: impl Fn(usize) -> NonNull<u8>) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, 0);
        for position in 0..positions {
            self.place(at(position), position);
        }
    }

    fn clear(&mut self) {
        // What a huge transaction has needed is not cleared again for every small one.
        if self.slots.len() > 16 * POSITIONS_MIN {
            *self = Positions::default();
        } else {
            self.slots.fill(0);
            self.used = 0;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_through_growth_and_clearing() {
        let blocks: Vec<NonNull<u8>> = (1..=5000usize)
            .map(|n| NonNull::new(std::ptr::without_provenance_mut(n * 48)).unwrap())
            .collect();
        let mut positions = Positions::default();
        for round in 0..3 {
            for (position, &block) in blocks.iter().enumerate() {
                assert_eq!(positions.find(block, |found| blocks[found] == block), None, "{round}");
                positions.insert(block, position, |position| blocks[position]);
            }
            for (position, &block) in blocks.iter().enumerate() {
                assert_eq!(positions.find(block, |found| blocks[found] == block), Some(position));
            }
            positions.clear();
        }
    }
}
