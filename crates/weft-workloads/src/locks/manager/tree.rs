//! Trees over pages, and the tables that they lead to.
//!
//! The first record of a page is its header. Each other record is an entry: its tag, a key, and where it leads to.
//! In a leaf that is a row (its page and its slot), and in an inner page a page of the next level. An entry has 32
//! bytes, as in Shore-MT: four for its tag, four for the key, and up to 24 for the name of a row.

use weft::htm::lock::{Elidable, Mcs, Mode};

use super::lock_table::{LockMode, LockName};
use super::log::Kind;
use super::parts::Part;
use super::pool::{Fixed, Pool};
use super::protected::Protected;
use super::rows::{Page, Row, new_row};
use super::thread::{Counter, Session, get, increment};
use super::{Kinds, Parts};

/// The words of a page's header record (`btctrl_t`): the root, the level, the leftmost page, and flags.
const HEADER_WORDS: usize = 3;

/// The words of an entry.
const ENTRY_WORDS: usize = 4;

/// The most entries of a page.
const FANOUT: usize = Page::capacity(HEADER_WORDS, ENTRY_WORDS);

/// The pages that are loaded, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Loader {
    pub(super) pages: Vec<Page>,
}

impl Loader {
    fn page(&mut self) -> &Page {
        self.pages.push(Page::new(self.pages.len() as u64));
        self.pages.last().expect("it was just added")
    }
}

/// Where a row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    store: usize,
    page: u64,
    slot: usize,
}

impl Place {
    /// Returns the name of the row's lock.
    pub(super) fn name(self) -> LockName {
        LockName::row(self.store, self.page, self.slot)
    }
}

/// A tree over the keys from 0 on. A probe visits one page of each level, from the root to a leaf.
#[derive(Debug)]
pub(super) struct Tree {
    store: usize,
    /// The store of the rows.
    rows: usize,
    root: u64,
    coarse: Option<Elidable<Protected<Mcs>>>,
}

/// How a tree is latched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latching {
    pub(super) kinds: Kinds,
    pub(super) parts: Parts,
    /// Whether one latch protects a whole probe.
    pub(super) coarse: bool,
}

impl Tree {
    /// Creates the tree of a store, whose entries lead to rows of the store `rows` at these places.
    pub(super) fn load(
        loader: &mut Loader,
        (store, rows): (usize, usize),
        places: impl Iterator<Item = (u64, usize)>,
        latching: Latching,
    ) -> Tree {
        let mut entries: Vec<[u64; ENTRY_WORDS]> =
            (0..).zip(places).map(|(key, (page, slot))| [4, key, page, slot as u64]).collect();
        let mut level = 0;
        // Build the levels from the leaves up to a single page.
        loop {
            let mut above = Vec::new();
            for chunk in entries.chunks(FANOUT) {
                let page = loader.page();
                page.add(&[store as u64, level, 0]);
                chunk.iter().for_each(|entry| page.add(entry));
                above.push([4, chunk[0][1], page.number(), 0]);
            }
            level += 1;
            if above.len() <= 1 {
                let root = match above.first() {
                    Some(entry) => entry[2],
                    None => {
                        let page = loader.page();
                        page.add(&[store as u64, 0, 0]);
                        page.number()
                    }
                };
                let Latching { kinds, parts, coarse } = latching;
                let latch = || Protected::new(parts.has(Part::Fences), kinds.mcs);
                return Tree { store, rows, root, coarse: coarse.then(latch) };
            }
            entries = above;
        }
    }

    /// Returns a row, found without latches. No thread may be running.
    pub(super) fn row<'a>(&self, pool: &'a Pool, key: u32) -> Row<'a> {
        let mut page = pool.page(self.root);
        loop {
            let entry = page.record(Tree::search(page, key.into()));
            let below = pool.page(get(&entry[2]));
            if get(&page.record(0)[1]) == 0 {
                return below.row(get(&entry[3]) as usize);
            }
            page = below;
        }
    }

    /// Finds the slot of the last entry of a page whose key is not greater.
    #[inline]
    fn search(page: &Page, key: u64) -> usize {
        // Slot 0 is the header.
        let (mut low, mut high) = (1, page.slots() - 1);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if get(&page.record(middle)[1]) <= key {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

/// The result of a step of a probe.
enum Step {
    Inner(u64),
    Leaf(Place),
}

impl<'a> Session<'a> {
    /// Finds the place of a row in a tree, and locks the row there. The leaf is latched in the mode `leaf`.
    #[inline]
    pub(super) fn probe(&self, tree: &'a Tree, key: u32, leaf: Mode) -> Place {
        self.enter();
        self.count(Counter::Lookups);
        let store = LockName::store(tree.store);
        if self.has(Part::Requests) && !self.is_locked(store) {
            self.lock(store, LockMode::IntentShared);
        }
        self.count(Counter::Traversals);
        let (key, root) = (u64::from(key), tree.root);
        if let Some(coarse) = &tree.coarse {
            return self.alone(coarse, || self.descend_unlatched(tree, key));
        }
        if self.has(Part::Coupling) {
            return self.descend_coupled(tree, (root, key), Mode::Shared, leaf);
        }
        let mut page = root;
        loop {
            let fixed = self.fix(page);
            let mode = if self.is_leaf(fixed) { leaf } else { Mode::Shared };
            let step = self.latched(fixed, mode, |page| self.step(tree, fixed, page, key, mode));
            self.unfix(fixed);
            match step {
                Step::Inner(next) => page = next,
                Step::Leaf(place) => return place,
            }
        }
    }

    /// Descends with each latch held until the row is locked. Shore-MT releases the latch of a page when it has that
    /// of its grandchild.
    fn descend_coupled(
        &self,
        tree: &'a Tree,
        (page, key): (u64, u64),
        mode: Mode,
        leaf: Mode,
    ) -> Place {
        let fixed = self.fix(page);
        let mode = if self.is_leaf(fixed) { leaf } else { mode };
        let place =
            self.latched(fixed, mode, |page| match self.step(tree, fixed, page, key, mode) {
                Step::Inner(next) => self.descend_coupled(tree, (next, key), mode, leaf),
                Step::Leaf(place) => place,
            });
        self.unfix(fixed);
        place
    }

    /// Descends under the coarse latch, without others.
    fn descend_unlatched(&self, tree: &Tree, key: u64) -> Place {
        let mut page = tree.root;
        loop {
            let fixed = self.fix(page);
            let step = self.step(tree, fixed, fixed.page, key, Mode::Shared);
            self.unfix(fixed);
            match step {
                Step::Inner(next) => page = next,
                Step::Leaf(place) => return place,
            }
        }
    }

    /// Returns whether a page is a leaf. Levels never change.
    #[inline]
    fn is_leaf(&self, fixed: Fixed<'_>) -> bool {
        get(&fixed.page.record(0)[1]) == 0
    }

    /// Searches in a page, and locks the row if the page is a leaf.
    #[inline]
    fn step(&self, tree: &Tree, fixed: Fixed<'_>, page: &Page, key: u64, mode: Mode) -> Step {
        let level = get(&page.record(0)[1]);
        // A later look at the position of the last change would show whether the page has changed since.
        let _ = page.log_position();
        let slot = Tree::search(page, key);
        let entry = page.record(slot);
        if level > 0 {
            return Step::Inner(get(&entry[2]));
        }
        let place = Place { store: tree.rows, page: get(&entry[2]), slot: get(&entry[3]) as usize };
        self.lock(place.name(), LockMode::Shared);
        if mode == Mode::Exclusive {
            let position = self.log(Kind::Leaf, page, 2 * ENTRY_WORDS, |at| get(&entry[at % 4]));
            increment(&entry[0], 1 << 32);
            self.changed(fixed, position);
        }
        Step::Leaf(place)
    }

    fn log(&self, kind: Kind, page: &Page, words: usize, word: impl Fn(usize) -> u64) -> u64 {
        self.manager.log.append(*self, kind, page.number(), words, word)
    }

    /// Runs a section on a row, and on `count - 1` rows after it, all in one page. The row is locked in `mode`.
    #[inline]
    pub(super) fn visit<R>(
        &self,
        place: Place,
        count: usize,
        mode: Mode,
        mut section: impl FnMut(Fixed<'a>, Rows<'a>) -> R,
    ) -> R {
        self.enter();
        self.count(Counter::RowsPinned);
        if self.has(Part::Requests) {
            let mode = match mode {
                Mode::Shared => LockMode::Shared,
                Mode::Exclusive => LockMode::Exclusive,
            };
            self.lock(place.name(), mode);
        }
        let fixed = self.fix(place.page);
        let result = self.latched(fixed, mode, |page| {
            section(fixed, Rows { page, slots: place.slot..place.slot + count })
        });
        self.unfix(fixed);
        self.count(Counter::RowsUnpinned);
        result
    }

    /// Updates a row under the exclusive latch of its page, and logs the change.
    #[inline]
    pub(super) fn update(&self, fixed: Fixed<'_>, row: Row<'_>) {
        let (size, after) = (row.size(), row.after_update());
        let position = self.log(Kind::Row, fixed.page, 2 * size, |at| {
            if at < size { row.word(at) } else { after(at - size) }
        });
        row.update();
        self.changed(fixed, position);
        increment(&self.thread.updates, 1);
    }
}

/// Some rows of a page, one after the other.
#[derive(Clone)]
pub(super) struct Rows<'a> {
    page: &'a Page,
    slots: std::ops::Range<usize>,
}

impl<'a> Rows<'a> {
    /// Returns the first row.
    #[inline]
    pub(super) fn first(&self) -> Row<'a> {
        self.page.row(self.slots.start)
    }

    /// Returns the rows.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let page = self.page;
        self.slots.clone().map(move |slot| page.row(slot))
    }
}

/// A tree, and the pages with the rows that it leads to.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) tree: Tree,
    heap: Heap,
}

/// The pages of a table's rows.
#[derive(Clone, Copy, Debug)]
struct Heap {
    rows: u32,
    first_page: u64,
    rows_per_page: usize,
}

impl Heap {
    /// Returns the page and the slot of each row.
    fn places(self) -> impl Iterator<Item = (u64, usize)> {
        let Heap { rows, first_page, rows_per_page } = self;
        (0..rows as usize)
            .map(move |key| (first_page + (key / rows_per_page) as u64, key % rows_per_page))
    }
}

impl Table {
    /// Creates the table with this number and `rows` rows of `words` words; `row` returns the number and the updates
    /// of the row of a key. `together` rows in sequence lie in one page.
    pub(super) fn load(
        loader: &mut Loader,
        (number, rows): (usize, u32),
        (words, together): (usize, usize),
        latching: Latching,
        row: impl Fn(u32) -> (u64, u64),
    ) -> Table {
        let capacity = Page::capacity(0, new_row(words, 0, 0).len());
        let rows_per_page = capacity - capacity % together;
        let first_page = loader.pages.len() as u64;
        for key in 0..rows {
            if (key as usize).is_multiple_of(rows_per_page) {
                loader.page();
            }
            let page = loader.pages.last().expect("the first row makes a page");
            let (number, updates) = row(key);
            page.add(&new_row(words, number, updates));
        }
        let heap = Heap { rows, first_page, rows_per_page };
        let stores = (2 * number, 2 * number + 1);
        Table { tree: Tree::load(loader, stores, heap.places(), latching), heap }
    }

    /// Creates another tree that leads to the rows of this table.
    pub(super) fn load_index(
        &self,
        loader: &mut Loader,
        number: usize,
        latching: Latching,
    ) -> Tree {
        Tree::load(loader, (2 * number, self.tree.rows), self.heap.places(), latching)
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> u32 {
        self.heap.rows
    }
}
