//! The pages of a buffer pool: trees, and the rows that they lead to.

use weft::htm::Regions;
use weft::htm::lock::{Elidable, Mcs, Mode, SrwLock, Tatas};
use weft::htm::word::{Ordering, Word};

use super::Kinds;
use crate::locks::{Row, compute};

/// The number of entries of an inner page, and of rows of a page with rows.
const FANOUT: usize = 64;

/// The number of frames of the buffer pool; each has a lock.
const FRAMES: usize = 4096;

/// The frames of the buffer pool, and the cost of a visit to a page.
#[derive(Debug)]
pub(super) struct Pool {
    frames: Box<[Frame]>,
    /// The number of steps that each section of a page computes.
    pub(super) work: u64,
}

/// A frame of the buffer pool, which holds a page.
#[derive(Debug)]
struct Frame {
    lock: Elidable<Tatas>,
    is_used: Word,
}

impl Pool {
    pub(super) fn new(kinds: Kinds) -> Pool {
        let frame = |_| Frame { lock: Elidable::new(kinds.tatas), is_used: Word::new(0) };
        Pool { frames: (0..FRAMES).map(frame).collect(), work: 0 }
    }

    /// Fixes a page: finds its frame.
    #[inline]
    fn fix(&self, regions: &Regions, number: usize) {
        let frame = &self.frames[number % FRAMES];
        frame.lock.section(Mode::Exclusive, regions, || {
            // Relaxed: under the lock.
            if frame.is_used.load(Ordering::Relaxed) == 0 {
                frame.is_used.store(1, Ordering::Relaxed);
            }
        });
    }
}

/// A page with its latch.
#[derive(Debug)]
struct Page<C> {
    latch: Elidable<SrwLock>,
    /// A statistic. Readers share the latch, so some visits may be lost.
    visits: Word,
    content: C,
}

/// An inner page, or a leaf: the first key of each page below it.
type Entries = Page<Box<[Word]>>;

impl<C> Page<C> {
    fn new(content: C, kinds: Kinds) -> Page<C> {
        Page { latch: Elidable::new(kinds.srwlock), visits: Word::new(0), content }
    }

    /// Counts a visit, and does its work.
    #[inline]
    fn visit(&self, work: u64) {
        // Relaxed: see `visits`.
        self.visits.store(self.visits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        compute(work);
    }

    /// Runs a section under the latch.
    #[inline]
    fn latched<R>(
        &self,
        mode: Mode,
        regions: &Regions,
        work: u64,
        mut section: impl FnMut() -> R,
    ) -> R {
        self.latch.section(mode, regions, || {
            self.visit(work);
            section()
        })
    }
}

impl Entries {
    /// The position of the entry that leads to a key.
    #[inline]
    fn search(&self, key: u32) -> usize {
        // Relaxed: entries never change.
        self.content.partition_point(|first| first.load(Ordering::Relaxed) <= key.into()) - 1
    }
}

/// A tree over the keys from 0 on, whose leaves lead to pages of rows. A probe visits one page of each level, from
/// the root to a leaf.
#[derive(Debug)]
pub(super) struct Tree {
    /// The tree's number among all trees.
    pub(super) number: usize,
    levels: Vec<Box<[Entries]>>,
    coarse: Option<Elidable<Mcs>>,
}

impl Tree {
    /// Creates a tree over `keys` keys. With `coarse`, it is probed under one latch.
    pub(super) fn new(number: usize, keys: u32, kinds: Kinds, coarse: bool) -> Tree {
        let mut firsts: Vec<u32> = (0..keys).step_by(FANOUT).collect();
        let mut levels = Vec::new();
        // Build the levels from the leaves up to a single page.
        loop {
            let page_of_entries = |firsts: &[u32]| {
                let entries = firsts.iter().map(|&first| Word::new(first.into())).collect();
                Page::new(entries, kinds)
            };
            levels.push(firsts.chunks(FANOUT).map(page_of_entries).collect());
            if firsts.len() <= FANOUT {
                break;
            }
            firsts = firsts.into_iter().step_by(FANOUT).collect();
        }
        levels.reverse();
        Tree { number, levels, coarse: coarse.then(|| Elidable::new(kinds.mcs)) }
    }

    /// Returns the number of a page in the pool. The level of the rows follows that of the leaves.
    #[inline]
    fn page(&self, level: usize, position: usize) -> usize {
        position * 8 + level + self.number * 1031
    }

    /// Returns the position of the page with a key's row. The leaf is latched in this mode.
    #[inline]
    pub(super) fn probe(&self, pool: &Pool, regions: &Regions, mode: Mode, key: u32) -> usize {
        if let Some(coarse) = &self.coarse {
            return coarse.section(Mode::Exclusive, regions, || {
                self.levels.iter().fold(0, |position, level| {
                    let page = &level[position];
                    page.visit(pool.work);
                    position * FANOUT + page.search(key)
                })
            });
        }
        let leaves = self.levels.len() - 1;
        self.levels.iter().enumerate().fold(0, |position, (level, pages)| {
            pool.fix(regions, self.page(level, position));
            let (page, mode) =
                (&pages[position], if level == leaves { mode } else { Mode::Shared });
            position * FANOUT + page.latched(mode, regions, pool.work, || page.search(key))
        })
    }
}

/// A tree, and the rows that it leads to.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) tree: Tree,
    pages: Box<[Page<Box<[Row]>>]>,
}

impl Table {
    /// Creates a table with this number of rows; `row` creates the row of a key.
    pub(super) fn new(
        (number, keys): (usize, u32),
        kinds: Kinds,
        coarse: bool,
        row: impl Fn(u32) -> Row,
    ) -> Table {
        let page = |first: usize| {
            let keys = first as u32..keys.min((first + FANOUT) as u32);
            Page::new(keys.map(&row).collect(), kinds)
        };
        Table {
            tree: Tree::new(number, keys, kinds, coarse),
            pages: (0..keys as usize).step_by(FANOUT).map(page).collect(),
        }
    }

    /// Runs a section on the rows of `count` consecutive keys, which are in one page, under the page's latch.
    #[inline]
    pub(super) fn visit<R>(
        &self,
        (pool, regions): (&Pool, &Regions),
        mode: Mode,
        leaf: Mode,
        (key, count): (u32, usize),
        mut section: impl FnMut(&[Row]) -> R,
    ) -> R {
        let position = self.tree.probe(pool, regions, leaf, key);
        pool.fix(regions, self.tree.page(self.tree.levels.len(), position));
        let (page, place) = (&self.pages[position], key as usize % FANOUT);
        page.latched(mode, regions, pool.work, || section(&page.content[place..place + count]))
    }

    /// Returns all rows by key, each found through the tree.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, &Row)> {
        let (pool, regions) =
            (Pool::new(Kinds::default()), Regions::new(&weft::htm::Htm::software()));
        let count = self.pages.iter().map(|page| page.content.len() as u32).sum::<u32>();
        (0..count).map(move |key| {
            let position = self.tree.probe(&pool, &regions, Mode::Shared, key);
            (key, &self.pages[position].content[key as usize % FANOUT])
        })
    }
}
