//! Memory, as far as the machine models it: which frame each page lies in, and which cores hold each line.
//!
//! Programs name bytes by address. The machine numbers pages in the order of their first use, and its seed
//! gives each page a frame of physical memory. So nothing depends on where the operating system has put a page.
//! A run depends only on the order of accesses and on the twelve lowest bits of the addresses. These say how
//! words share lines and, as on real processors, which set of a first-level cache a line belongs to.

use std::ops::{Index, IndexMut};

use fastrand::Rng;
use rustc_hash::FxHashMap;

use crate::profile::{LINE_BYTES, LINES_PER_PAGE};

/// No core, or no thread.
pub(crate) const NOBODY: u8 = u8::MAX;

const PAGE_BYTES: u64 = LINES_PER_PAGE * LINE_BYTES;

/// Which cores hold a line, and which regions have accessed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The cores that hold it in their caches, one bit each.
    pub(crate) cores: u128,
    /// The hardware threads in a region that have read it, one bit each.
    pub(crate) readers: u128,
    /// The only core that may write it without taking it from others. It may have done so.
    pub(crate) owner: u8,
    /// The hardware thread in a region that has written it.
    pub(crate) writer: u8,
    /// Whether the owner has written it.
    pub(crate) is_modified: bool,
}

impl Line {
    const NEW: Line =
        Line { cores: 0, readers: 0, owner: NOBODY, writer: NOBODY, is_modified: false };
}

/// A page that was accessed, or declared absent.
#[derive(Debug)]
struct Page {
    /// Its number in physical memory.
    frame: u64,
    /// The socket whose memory holds it: the socket of its first user.
    home: u8,
    /// Whether the operating system has not mapped it yet.
    is_absent: bool,
}

/// Pages and lines by their numbers.
#[derive(Debug)]
pub(crate) struct Memory {
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    lines: Vec<Line>,
    frames: Rng,
    /// The page that was found last, by address and number.
    last: (u64, u32),
}

impl Memory {
    pub(crate) fn new(seed: u64) -> Memory {
        Memory {
            numbers: FxHashMap::default(),
            pages: Vec::new(),
            lines: Vec::new(),
            frames: Rng::with_seed(seed),
            last: (u64::MAX, 0),
        }
    }

    /// Returns the number of the line at `address`. A new page is placed in the memory of `socket`.
    #[inline]
    pub(crate) fn line(&mut self, address: u64, socket: usize) -> u32 {
        let page = address / PAGE_BYTES;
        let number = if self.last.0 == page { self.last.1 } else { self.find(page, socket) };
        number * LINES_PER_PAGE as u32 + (address % PAGE_BYTES / LINE_BYTES) as u32
    }

    fn find(&mut self, page: u64, socket: usize) -> u32 {
        let number = match self.numbers.get(&page) {
            Some(&number) => number,
            None => self.add(page, socket, false),
        };
        self.last = (page, number);
        number
    }

    fn add(&mut self, page: u64, socket: usize, is_absent: bool) -> u32 {
        let number = u32::try_from(self.pages.len()).expect("fewer than 2^32 pages");
        assert!(number < u32::MAX / LINES_PER_PAGE as u32, "fewer than 2^26 pages");
        // Thirty-two bits are enough: two pages in one frame do no harm, since frames only choose sets.
        let frame = u64::from(self.frames.u32(..));
        self.pages.push(Page { frame, home: socket as u8, is_absent });
        self.lines.resize(self.lines.len() + LINES_PER_PAGE as usize, Line::NEW);
        self.numbers.insert(page, number);
        number
    }

    /// Declares the whole pages of a range absent: the first access to each will be a fault.
    pub(crate) fn declare_absent(&mut self, address: u64, bytes: u64) {
        let pages = address.div_ceil(PAGE_BYTES)..(address + bytes) / PAGE_BYTES;
        for page in pages {
            match self.numbers.get(&page) {
                Some(&number) => self.pages[number as usize].is_absent = true,
                None => {
                    self.add(page, 0, true);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn is_absent(&self, line: u32) -> bool {
        self.pages[line as usize / LINES_PER_PAGE as usize].is_absent
    }

    /// Maps the page of a line, in the memory of `socket`.
    pub(crate) fn map(&mut self, line: u32, socket: usize) {
        let page = &mut self.pages[line as usize / LINES_PER_PAGE as usize];
        page.is_absent = false;
        page.home = socket as u8;
    }

    /// Returns where the line lies in physical memory, in lines.
    #[inline]
    pub(crate) fn place(&self, line: u32) -> u64 {
        let page = &self.pages[line as usize / LINES_PER_PAGE as usize];
        page.frame * LINES_PER_PAGE + u64::from(line) % LINES_PER_PAGE
    }

    #[inline]
    pub(crate) fn home(&self, line: u32) -> usize {
        self.pages[line as usize / LINES_PER_PAGE as usize].home.into()
    }
}

impl Index<u32> for Memory {
    type Output = Line;

    #[inline]
    fn index(&self, line: u32) -> &Line {
        &self.lines[line as usize]
    }
}

impl IndexMut<u32> for Memory {
    #[inline]
    fn index_mut(&mut self, line: u32) -> &mut Line {
        &mut self.lines[line as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects what makes runs repeatable: numbers follow the order of first accesses, not the addresses, and
    /// frames follow the seed.
    #[test]
    fn pages_are_numbered_as_they_are_touched() {
        let (mut one, mut other) = (Memory::new(1), Memory::new(1));
        let far = 0x7f00_0000_0000;
        let numbers = |memory: &mut Memory, base: u64| {
            [0, 63, 64, 4096, 8 << 20, 100].map(|offset| memory.line(base + offset, 0))
        };
        let expected = [0, 0, 1, 64, 128, 1];
        assert_eq!(numbers(&mut one, 0), expected);
        assert_eq!(numbers(&mut other, far), expected);
        for line in expected {
            assert_eq!(one.place(line), other.place(line));
        }
        let mut reseeded = Memory::new(2);
        numbers(&mut reseeded, 0);
        assert!((0..3).any(|page| one.place(page * 64) != reseeded.place(page * 64)));
    }

    /// Protects the range of absent pages: only whole pages are absent, each until it is mapped.
    #[test]
    fn absent_pages_are_whole() {
        let mut memory = Memory::new(1);
        memory.declare_absent(100, 3 * 4096);
        let lines = [0, 4096, 8192, 12288].map(|address| memory.line(address, 0));
        assert_eq!(lines.map(|line| memory.is_absent(line)), [false, true, true, false]);
        memory.map(lines[1], 3);
        assert_eq!(lines.map(|line| memory.is_absent(line)), [false, false, true, false]);
        assert_eq!(memory.home(lines[1]), 3);
    }
}
