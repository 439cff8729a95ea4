//! The cache lines that a region has read and written, and the old contents of the written ones.
//!
//! All memory is allocated in advance, because the code runs in a signal handler, which may have interrupted
//! the allocator.
//!
//! The undo log keeps whole lines but restores only the bytes that the region wrote. The rest of a line may
//! belong to a thread that is not held while the region runs.
use crate::memory;

/// Size of a cache line in bytes.
pub(crate) const LINE_BYTES: u64 = 64;
/// Number of sets of the first-level data cache.
const SETS: usize = 64;

/// The error for a region that accesses more lines than fit.
pub(crate) struct Overflow;

/// The read set and the write set of a region.
pub(crate) struct Lines {
    read: Table,
    read_limit: usize,
    written: Table,
    /// The number of written lines in each set of the first-level cache.
    in_set: [usize; SETS],
    ways: usize,
    undo: Box<[Undo]>,
}

/// The contents of one line when the region first wrote to it.
#[derive(Clone, Copy)]
struct Undo {
    line: u64,
    bytes: [u8; LINE_BYTES as usize],
    /// One bit for each byte that the region may have written.
    written: u64,
}

impl Lines {
    /// Makes room for `ways` written lines in each set, and for `read_limit` lines read.
    pub(crate) fn new(ways: usize, read_limit: usize) -> Lines {
        let undo = Undo { line: 0, bytes: [0; LINE_BYTES as usize], written: 0 };
        Lines {
            read: Table::new(read_limit + 1),
            read_limit,
            written: Table::new(SETS * ways + 1),
            in_set: [0; SETS],
            ways,
            undo: vec![undo; SETS * ways + 1].into_boxed_slice(),
        }
    }

    /// Forgets all lines.
    pub(crate) fn clear(&mut self) {
        self.read.clear();
        self.written.clear();
        self.in_set = [0; SETS];
    }

    /// Notes the lines of a read.
    pub(crate) fn note_read(&mut self, address: u64, size: u64) -> Result<(), Overflow> {
        for (line, _) in pieces(address, size) {
            self.read.insert(line);
            if self.read.length > self.read_limit {
                return Err(Overflow);
            }
        }
        Ok(())
    }

    /// Notes the lines of a write that is about to happen, and saves their contents.
    pub(crate) fn note_write(&mut self, address: u64, size: u64) -> Result<(), Overflow> {
        for (line, bytes) in pieces(address, size) {
            let (place, new) = self.written.insert(line);
            if new {
                let set = (line / LINE_BYTES) as usize % SETS;
                self.in_set[set] += 1;
                let undo = &mut self.undo[place];
                (undo.line, undo.written) = (line, 0);
                if self.in_set[set] > self.ways {
                    return Err(Overflow);
                }
                // If this fails, the line is not mapped. Then the write will fault, and the region will abort.
                memory::read(line, &mut undo.bytes);
            }
            self.undo[place].written |= bytes;
        }
        Ok(())
    }

    /// Restores every written byte.
    ///
    /// # Safety
    ///
    /// The region is being rolled back, and no other thread has seen what it wrote.
    pub(crate) unsafe fn undo(&self) {
        for undo in &self.undo[..self.written.length] {
            let mut now = [0; LINE_BYTES as usize];
            if !memory::read(undo.line, &mut now) {
                // Unmapped: nothing was ever written there.
                continue;
            }
            for (byte, (now, before)) in now.iter().zip(&undo.bytes).enumerate() {
                // A byte that did not change may lie in read-only memory, where the write that was about to
                // happen faulted.
                if undo.written & 1 << byte != 0 && now != before {
                    // SAFETY: the region wrote this byte. The caller promises that no other thread sees it
                    // until the rollback is done.
                    let restored = unsafe { memory::write(undo.line + byte as u64, &[*before]) };
                    assert!(restored, "what a region has written can be written again");
                }
            }
        }
    }
}

/// Returns the lines that a range of addresses touches. Each comes with a mask that has a bit for every byte of
/// the line in the range.
fn pieces(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = address.saturating_add(size);
    let mut next = address;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let line = next & !(LINE_BYTES - 1);
        let line_end = line.saturating_add(LINE_BYTES);
        let (from, to) = (next - line, end.min(line_end) - line);
        next = line_end;
        // A mask of the bytes below `byte`.
        let below = |byte: u64| 1_u64.checked_shl(byte as u32).map_or(!0, |bit| bit - 1);
        Some((line, below(to) & !below(from)))
    })
}

/// A set of lines in the order of their insertion. It uses open addressing, in slots that are allocated once.
/// Raising the generation empties them all.
struct Table {
    slots: Box<[Slot]>,
    generation: u64,
    length: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    generation: u64,
    line: u64,
    place: usize,
}

impl Table {
    /// Makes room for `lines` lines, in at least twice as many slots.
    fn new(lines: usize) -> Table {
        let empty = Slot { generation: 0, line: 0, place: 0 };
        Table {
            slots: vec![empty; (2 * lines).next_power_of_two()].into_boxed_slice(),
            generation: 1,
            length: 0,
        }
    }

    fn clear(&mut self) {
        self.generation += 1;
        self.length = 0;
    }

    /// Inserts `line`. Returns its place in the order, and whether it is new.
    fn insert(&mut self, line: u64) -> (usize, bool) {
        let mask = self.slots.len() - 1;
        let mut at = (line / LINE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 16 & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.generation != self.generation {
                *slot = Slot { generation: self.generation, line, place: self.length };
                self.length += 1;
                return (slot.place, true);
            }
            if slot.line == line {
                return (slot.place, false);
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the byte masks: within a line, up to its end, and across it.
    #[test]
    fn a_range_is_cut_at_line_ends() {
        let cut = |address, size| pieces(address, size).collect::<Vec<_>>();
        assert_eq!(cut(0x1008, 8), [(0x1000, 0xff00)]);
        assert_eq!(cut(0x1000, 64), [(0x1000, !0)]);
        assert_eq!(cut(0x103c, 8), [(0x1000, 0xf << 60), (0x1040, 0xf)]);
        assert_eq!(cut(0x1000, 0), []);
        assert_eq!(cut(u64::MAX, 8).len(), 0, "the top byte of memory is never user memory");
    }

    /// Protects the table: places are given in order, once per line, and forgotten by `clear`.
    #[test]
    fn a_table_numbers_lines_in_the_order_they_come() {
        let mut table = Table::new(100);
        for round in 0..3 {
            for k in 0..100_usize {
                assert_eq!(table.insert(k as u64 * 4096), (k, true), "round {round}");
            }
            for k in 0..100_usize {
                assert_eq!(table.insert(k as u64 * 4096), (k, false), "round {round}");
            }
            table.clear();
        }
    }

    /// Protects neighbours on the same line: only the bytes that were written are restored.
    #[test]
    fn undo_restores_written_bytes_only() {
        #[repr(align(64))]
        struct Line([u8; 64]);
        let mut line = Line([1; 64]);
        let address = line.0.as_mut_ptr();
        let mut lines = Lines::new(8, 8);
        assert!(lines.note_write(address as u64 + 8, 2).is_ok());
        // SAFETY: both writes stay within our own array, which no other thread uses.
        unsafe {
            std::ptr::write_volatile(address.add(8), 7); // by the region
            std::ptr::write_volatile(address.add(20), 9); // // by another thread
            lines.undo();
        }
        let mut expected = [1; 64];
        expected[20] = 9;
        assert_eq!(std::hint::black_box(&line).0, expected);
    }
}
