//! The hash table that finds a record's own write in an access set.

use std::ptr::NonNull;

use crate::store::record::StoredRecord;
use crate::store::record::tid::Tid;

const _: () = assert!(size_of::<StoredRecord<Tid>>().is_multiple_of(16));

/// A small open-addressing hash table from a record's address to its position in a list. For the write set it
/// answers "did I write this record?", which every read after the first write asks.
pub struct Positions {
    /// Generation (upper half) and position (lower half). A slot of another generation is free, so emptying the
    /// table takes one addition. The length is a power of two.
    slots: Vec<u64>,
    /// The present generation, in the upper half. It is never 0.
    generation: u64,
    used: usize,
}

const POSITIONS_MIN: usize = 128;
const GENERATION_ONE: u64 = 1 << 32;

impl Default for Positions {
    fn default() -> Self {
        Positions { slots: vec![0; POSITIONS_MIN], generation: GENERATION_ONE, used: 0 }
    }
}

impl Positions {
    #[inline(always)]
    fn start(&self, block: NonNull<u8>) -> usize {
        // Fibonacci hashing. The shift removes low bits that are the same in all addresses, since blocks are at
        // least 16 bytes apart.
        let hash = (block.as_ptr() as usize as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    /// Returns the position in a slot, if it is of this generation.
    #[inline(always)]
    fn position(&self, slot: usize) -> Option<usize> {
        // In a slot of the present generation this leaves the position. In any other slot it leaves more than 32
        // bits.
        let position = self.slots[slot] ^ self.generation;
        (position < GENERATION_ONE).then_some(position as usize)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn find(&self, block: NonNull<u8>, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mut slot = self.start(block);
        loop {
            let position = self.position(slot)?;
            if is_it(position) {
                return Some(position);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    pub fn insert(
        &mut self,
        block: NonNull<u8>,
        position: usize,
        at: impl Fn(usize) -> NonNull<u8>,
    ) {
        if self.used * 2 >= self.slots.len() {
            self.grow(position, at);
        }
        self.used += 1;
        self.place(block, position);
    }

    #[inline(always)]
    fn place(&mut self, block: NonNull<u8>, position: usize) {
        let mut slot = self.start(block);
        while self.position(slot).is_some() {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = self.generation | position as u64;
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

    #[inline(always)]
    pub fn clear(&mut self) {
        self.used = 0;
        self.generation = self.generation.wrapping_add(GENERATION_ONE);
        // Starts again with empty slots when the generation has wrapped around. Also gives up a table that a huge
        // transaction has made large, since later small ones do not need it.
        if self.generation == 0 || self.slots.len() > 16 * POSITIONS_MIN {
            *self = Positions::default();
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

    #[test]
    fn a_reused_generation_finds_nothing() {
        let block = NonNull::new(std::ptr::without_provenance_mut(48)).unwrap();
        let mut positions = Positions::default();
        positions.insert(block, 7, |_| block);
        positions.generation = u64::MAX - u64::from(u32::MAX);
        positions.used = 0;
        assert_eq!(positions.find(block, |_| true), None);
        positions.insert(block, 8, |_| block);
        assert_eq!(positions.find(block, |_| true), Some(8));
        positions.clear();
        assert_eq!(positions.generation, GENERATION_ONE);
        assert_eq!(positions.find(block, |_| true), None);
    }
}
