//! Scanned ranges: the part of a leaf on which a scan relies, and whether it is unchanged when the leaf has
//! changed.
//!
//! A leaf's version changes with every key that is inserted, also with one outside the range of a scan. That
//! is not rare. Say the keys are (district, order). The newest orders of one district go into the leaf where
//! the oldest orders of the next district begin, so a scan for the latter begins in that leaf. Then every new
//! order in the one district would abort each transaction that looks for the oldest order of the other. So a
//! scan remembers its range, and what was in it. At commit, if nothing but insertions has happened to the
//! leaf, the transaction checks whether there are new keys in the range. If more has happened to it, what
//! is in the range now says nothing about the time in between. Then the range is read once more, and the scan relies
//! on what was read now ([`ScannedRange::read_again`]); the commit that follows validates that.
//!
//! (It is not enough that the transaction has read a record that is there now. It may have reached that
//! record after the scan, by another scan, and then the record is a phantom for the first scan.)

use std::cell::Cell;
use std::ops::Bound;

use weft_htm::word::{Ordering, Word};

use super::super::{IndexKey, NodeVersion};
use super::BPlusTree;
use super::node::{LEAF_CAPACITY, Leaf, only_inserted_since};
use super::scan::{Direction, Page, Range};
use super::search::{Access, Backoff, LeafHint, OptimisticAccess, rank};

/// The part of a range that a scan has read in one leaf.
#[derive(Clone, Copy, Debug)]
pub struct ScannedRange {
    /// The least and the greatest key, as numbers.
    least: u128,
    greatest: u128,
    direction: Direction,
    /// The addresses in the range, in the order of the scan.
    addresses: [u64; LEAF_CAPACITY],
    count: usize,
    /// How many of them the scan has followed. At the next one it has stopped, if there is one.
    followed: usize,
    tree: *const (),
    /// What depends on the form of the tree's keys.
    form: &'static Form,
}

/// The functions of a form of keys.
#[derive(Debug)]
struct Form {
    is_unchanged: unsafe fn(&ScannedRange, NodeVersion, IsOwn<'_>) -> bool,
    read_again: unsafe fn(&ScannedRange, IsOwn<'_>, Noting<'_>) -> bool,
}

/// Whether the caller has inserted what lies at an address.
type IsOwn<'a> = &'a dyn Fn(u64) -> bool;
/// Notes a leaf.
type Noting<'a> = &'a mut dyn FnMut(NodeVersion);

impl ScannedRange {
    /// Creates the range of a scan of a tree, or of the rest of a scan. `from` is where it begins, as for
    /// [`read_page`](BPlusTree::read_page). Returns `None` if keys of this form are not numbers; then
    /// the scan relies on the leaf as a whole. Otherwise the caller must then call [`ScannedRange::found`].
    pub fn new<K: IndexKey>(
        tree: &BPlusTree<K>,
        from: Bound<&K>,
        to: Bound<&K>,
        direction: Direction,
    ) -> Option<ScannedRange> {
        let (lower, upper) = match direction {
            Direction::Forward => (from, to),
            Direction::Reverse => (to, from),
        };
        let least = match lower {
            Bound::Included(key) => key.to_wide()?,
            Bound::Excluded(key) => key.to_wide()?.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let greatest = match upper {
            Bound::Included(key) => key.to_wide()?,
            Bound::Excluded(key) => key.to_wide()?.checked_sub(1)?,
            Bound::Unbounded => u128::MAX,
        };
        K::from_wide(least)?;
        Some(ScannedRange {
            least,
            greatest,
            direction,
            addresses: [0; LEAF_CAPACITY],
            count: 0,
            followed: 0,
            tree: std::ptr::from_ref(tree).cast(),
            form: const { &Form { is_unchanged: is_unchanged::<K>, read_again: read_again::<K> } },
        })
    }

    /// Sets what the scan found in the range, which ends where the scan goes on with the next leaf.
    #[inline]
    pub fn found<K: IndexKey>(&mut self, page: &Page<K>) {
        (self.addresses, self.count) = page.all();
        self.followed = self.count;
        match page.next().map(|next| (self.direction, next)) {
            Some((Direction::Forward, Bound::Included(next))) => {
                let end = next.to_wide().and_then(|next| next.checked_sub(1));
                self.greatest = end.unwrap_or(self.greatest);
            }
            Some((Direction::Reverse, Bound::Excluded(next))) => {
                self.least = next.to_wide().unwrap_or(self.least);
            }
            _ => {}
        }
    }

    /// Notes that the scan has stopped: it has read nothing from this address on.
    pub fn stop_at(&mut self, address: u64) {
        let position = self.followed().iter().position(|found| *found == address);
        self.followed = position.unwrap_or(self.followed);
    }

    /// Returns the addresses that the scan has followed.
    pub fn followed(&self) -> &[u64] {
        &self.addresses[..self.followed]
    }

    /// Returns whether every key that is now in the range was there when the leaf had the noted version, or
    /// was inserted by the caller itself (`is_own` is true for its address), and has been there ever since. Returns
    /// false if it is no longer possible to tell.
    ///
    /// # Safety
    /// `node` is what `read_page` returned for this range, or `read_again` for one of its leaves, and the worker has
    /// been pinned since then.
    #[cold]
    pub unsafe fn is_unchanged(&self, node: NodeVersion, is_own: IsOwn<'_>) -> bool {
        // SAFETY: the function was chosen for a tree with keys of this form; the rest is the caller's
        // promise.
        unsafe { (self.form.is_unchanged)(self, node, is_own) }
    }

    /// Reads the range again. Returns whether there are no other keys in it than those that the scan has followed, and
    /// those that the caller has inserted. Keys that are gone do not matter: the caller has to know of the records to which
    /// they led that they have no row. Passes each leaf that was read to `note`, and may do so before it returns false.
    ///
    /// # Safety
    /// The tree still exists, and the worker is pinned.
    #[cold]
    pub unsafe fn read_again(&self, is_own: IsOwn<'_>, note: Noting<'_>) -> bool {
        // SAFETY: as above.
        unsafe { (self.form.read_again)(self, is_own, note) }
    }

    /// Returns whether every address up to where the scan stopped is one that it has followed, or the caller's own; and
    /// whether the scan has stopped at one of them.
    fn holds_no_more(
        &self,
        mut addresses: impl Iterator<Item = u64>,
        is_own: IsOwn<'_>,
    ) -> (bool, bool) {
        let (followed, left) = self.addresses[..self.count].split_at(self.followed);
        let other = addresses.find(|address| !followed.contains(address) && !is_own(*address));
        let has_stopped = other.is_some_and(|address| left.contains(&address));
        (other.is_none() || has_stopped, has_stopped)
    }
}

/// [`ScannedRange::is_unchanged`], for a tree with these keys.
unsafe fn is_unchanged<K: IndexKey>(
    range: &ScannedRange,
    node: NodeVersion,
    is_own: IsOwn<'_>,
) -> bool {
    // SAFETY: the node is a leaf of a tree with these keys, and begins with its version. It is not freed, as
    // the worker is pinned.
    let leaf = unsafe { node.word.cast::<Leaf<K>>().as_ref() };
    holds_no_more(leaf, node.version, range, is_own).unwrap_or(false)
}

/// As [`ScannedRange::is_unchanged`]. Returns `None` if the leaf is being changed, or if something other than
/// insertions has happened to it.
fn holds_no_more<K: IndexKey>(
    leaf: &Leaf<K>,
    noted: u64,
    range: &ScannedRange,
    is_own: IsOwn<'_>,
) -> Option<bool> {
    let version = OptimisticAccess.version(&leaf.node.version)?;
    if !only_inserted_since(noted, version) {
        return None;
    }
    let is_current = || OptimisticAccess.is_current(&leaf.node.version, version);
    // Read the addresses that are in the range now, and validate what was read.
    let keys = &leaf.keys[..leaf.count()];
    let first = rank(keys, &K::from_wide(range.least)?, false, is_current)?;
    let end = rank(keys, &K::from_wide(range.greatest)?, true, is_current)?;
    let mut addresses = [0; LEAF_CAPACITY];
    let found = leaf.addresses.get(first..end).unwrap_or_default();
    let copy = |(to, from): (&mut u64, &Word)| *to = from.load(Ordering::Relaxed);
    addresses.iter_mut().zip(found).for_each(copy);
    let addresses = &mut addresses[..found.len()];
    if range.direction == Direction::Reverse {
        addresses.reverse();
    }
    is_current().then(|| range.holds_no_more(addresses.iter().copied(), is_own).0)
}

/// [`ScannedRange::read_again`], for a tree with these keys.
unsafe fn read_again<K: IndexKey>(
    range: &ScannedRange,
    is_own: IsOwn<'_>,
    note: Noting<'_>,
) -> bool {
    // SAFETY: the range was created for this tree, which exists by the caller's promise.
    let tree = unsafe { &*range.tree.cast::<BPlusTree<K>>() };
    let (Some(least), Some(greatest)) = (K::from_wide(range.least), K::from_wide(range.greatest))
    else {
        return false;
    };
    let (first, last) = match range.direction {
        Direction::Forward => (least, greatest),
        Direction::Reverse => (greatest, least),
    };
    let (mut from, to) = (Bound::Included(first), Bound::Included(&last));
    let addresses = [const { Cell::new(0) }; LEAF_CAPACITY];
    loop {
        let share = Range { from: from.as_ref(), to, direction: range.direction };
        let Some((node, count, next)) = read_share(tree, share, &addresses) else { return false };
        note(node);
        match range.holds_no_more(addresses[..count].iter().map(Cell::get), is_own) {
            (false, _) => return false,
            (true, true) => return true,
            (true, false) => match next {
                Some(next) => from = next,
                None => return true,
            },
        }
    }
}

/// Reads one leaf's share of a range, without a region. Returns the leaf, the number of addresses, and where the range goes
/// on. Gives up after some attempts.
fn read_share<K: IndexKey>(
    tree: &BPlusTree<K>,
    range: Range<'_, K>,
    addresses: &[Cell<u64>],
) -> Option<(NodeVersion, usize, Option<Bound<K>>)> {
    const ATTEMPTS: usize = 16;
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        if let Some(share) = tree.try_page(&OptimisticAccess, range, addresses, &LeafHint::new())
            && let Some(next) = share.next(range.direction)
        {
            return Some((share.place.node_version(), share.count, next));
        }
        backoff.pause();
    }
    None
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::testing::TestKey;
    use super::super::{BPlusTree, LeafHint, Page};
    use super::*;
    use crate::index::test_memory::{TestMemory, TestWorker};

    /// A tree in which one leaf of a range has been read up to some row.
    struct Trial<K: IndexKey> {
        tree: BPlusTree<K>,
        worker: TestWorker,
        model: BTreeMap<K, u64>,
        /// How many keys were inserted. So no two have the same address.
        inserted: u64,
    }

    /// What was read, and what the reader inserted.
    struct Reading {
        range: ScannedRange,
        node: NodeVersion,
        read: Vec<u64>,
        own: Vec<u64>,
    }

    impl Reading {
        fn holds(&self) -> bool {
            // SAFETY: the tests give no memory back before they end.
            let now = unsafe { self.node.word.as_ref() }.load(Ordering::Acquire);
            // SAFETY: as above; and they were noted together.
            now == self.node.version
                || unsafe { self.range.is_unchanged(self.node, &|a| self.own.contains(&a)) }
        }

        /// Reads the range again. If it is in one leaf, the reading relies on that one from then on.
        fn is_the_same_again(&mut self) -> bool {
            let mut nodes = Vec::new();
            let note = &mut |node| nodes.push(node);
            // SAFETY: as above.
            let is = unsafe { self.range.read_again(&|a| self.own.contains(&a), note) };
            let is = is && nodes.len() == 1;
            self.node = if is { nodes[0] } else { self.node };
            is
        }
    }

    impl<K: TestKey> Trial<K> {
        fn new(numbers: impl IntoIterator<Item = u64>) -> Self {
            let worker = Arc::new(TestMemory::default()).worker();
            let tree = BPlusTree::new(&worker);
            let mut trial = Trial { tree, worker, model: BTreeMap::new(), inserted: 0 };
            numbers.into_iter().for_each(|number| trial.insert(number));
            trial
        }

        fn insert(&mut self, number: u64) {
            self.inserted += 1;
            let (key, address) = (K::from_number(number), 8 * self.inserted);
            self.tree.get_or_insert(&key, address, &mut LeafHint::new(), &self.worker);
            self.model.entry(key).or_insert(address);
        }

        fn remove(&mut self, number: u64) {
            let key = K::from_number(number);
            if let Some(address) = self.model.remove(&key) {
                assert!(self.tree.remove(&key, address, &self.worker));
            }
        }

        /// Reads at most `rows` rows of one leaf's share.
        fn read(&self, from: u64, to: u64, direction: Direction, rows: usize) -> Reading {
            let (from, to) = (K::from_number(from), K::from_number(to));
            let (from, to) = (Bound::Included(&from), Bound::Included(&to));
            let range = ScannedRange::new(&self.tree, from, to, direction);
            let mut range = range.expect("keys of words");
            let mut page = Page::new();
            let hint = &mut LeafHint::new();
            let node = self.tree.read_page(from, to, direction, &mut page, hint, &self.worker);
            range.found(&page);
            if let Some(&address) = page.addresses().get(rows) {
                range.stop_at(address);
            }
            let read = page.addresses().iter().take(rows).copied().collect();
            Reading { range, node, read, own: Vec::new() }
        }
    }

    impl<K: IndexKey> Drop for Trial<K> {
        fn drop(&mut self) {
            self.tree.clear(&self.worker);
        }
    }

    const ALL: usize = usize::MAX;

    /// Protects the purpose: keys outside the range, and keys after the row at which a scan stopped, do not
    /// matter. A key inside the range does.
    #[test]
    fn only_insertions_in_the_range_matter() {
        for direction in [Direction::Forward, Direction::Reverse] {
            let (from, to) = match direction {
                Direction::Forward => (40, 60),
                Direction::Reverse => (60, 40),
            };
            let mut trial = Trial::<u64>::new([10, 45, 50, 55, 90]);
            let (whole, first) =
                (trial.read(from, to, direction, ALL), trial.read(from, to, direction, 1));
            trial.insert(39);
            trial.insert(61);
            assert!(whole.holds() && first.holds(), "{direction:?}");
            trial.insert(if direction == Direction::Forward { 51 } else { 49 });
            assert!(!whole.holds(), "{direction:?}");
            assert!(first.holds(), "{direction:?}: it stopped before that");
            trial.insert(if direction == Direction::Forward { 41 } else { 59 });
            assert!(!first.holds(), "{direction:?}");
        }
    }

    /// Protects the reader's own insertions: those are not phantoms.
    #[test]
    fn own_insertions_do_not_matter() {
        let mut trial = Trial::<u128>::new([10, 45]);
        let mut reading = trial.read(40, 60, Direction::Forward, ALL);
        trial.insert(50);
        assert!(!reading.holds());
        reading.own.push(trial.model[&u128::from_number(50)]);
        assert!(reading.holds());
    }

    /// Protects against what can no longer be seen: a key may have been inserted and removed, or be in
    /// another leaf.
    #[test]
    fn removals_and_splits_are_changes() {
        let mut trial = Trial::<u64>::new([10, 45, 90]);
        let reading = trial.read(40, 60, Direction::Forward, ALL);
        trial.insert(50);
        trial.remove(50);
        assert!(!reading.holds());

        let mut trial = Trial::<u64>::new(0..LEAF_CAPACITY as u64);
        let reading = trial.read(3, 4, Direction::Forward, ALL);
        trial.insert(1_000);
        assert!(!reading.holds(), "a full leaf was split");
    }

    /// Protects scans beside transactions that delete: what has left the leaf does not matter, and what has come does.
    #[test]
    fn a_scan_can_rely_on_a_leaf_from_which_keys_were_removed() {
        let mut trial = Trial::<u64>::new([10, 45, 50, 90]);
        let mut reading = trial.read(40, 60, Direction::Forward, ALL);
        trial.remove(45);
        assert!(!reading.holds() && reading.is_the_same_again() && reading.holds());
        trial.insert(55);
        assert!(!reading.is_the_same_again());
        trial.remove(55);
        assert!(reading.is_the_same_again());
        trial.insert(45);
        assert!(!reading.is_the_same_again(), "the same key with another record");

        let mut trial = Trial::<u64>::new([10, 20, 30]);
        let mut reading = trial.read(0, 60, Direction::Forward, 1);
        trial.insert(25);
        trial.remove(20);
        assert!(!reading.is_the_same_again(), "it may lie before the row that ended the scan");
        trial.remove(25);
        trial.insert(35);
        assert!(reading.is_the_same_again(), "the scan did not come to 30");

        let mut trial = Trial::<u64>::new(0..LEAF_CAPACITY as u64);
        let mut reading = trial.read(3, 4, Direction::Forward, ALL);
        trial.insert(1_000);
        assert!(!reading.holds() && reading.is_the_same_again(), "a full leaf was split");
    }

    /// Protects keys that are not numbers: such a scan relies on the whole leaf.
    #[test]
    fn long_keys_have_no_ranges() {
        let key = crate::index::LongKey::from_number(7);
        let trial = Trial::<crate::index::LongKey>::new([]);
        let (from, to) = (Bound::Included(&key), Bound::Unbounded);
        assert!(ScannedRange::new(&trial.tree, from, to, Direction::Forward).is_none());
    }

    fn never_misses_a_key<K: TestKey>(
        present: Vec<u64>,
        (from, to, reverse, rows): (u64, u64, bool, usize),
        changes: Vec<(u64, bool)>,
    ) {
        let mut trial = Trial::<K>::new(present);
        let (least, greatest) = (from.min(to), from.max(to));
        let (from, to, direction) = match reverse {
            false => (least, greatest, Direction::Forward),
            true => (greatest, least, Direction::Reverse),
        };
        let mut reading = trial.read(from, to, direction, rows);
        for (number, is_insertion) in changes {
            if is_insertion {
                trial.insert(number)
            } else {
                trial.remove(number)
            }
            if reading.holds() {
                let again = trial.read(from, to, direction, reading.read.len());
                let stopped = reading.range.followed < reading.range.count;
                assert_eq!(again.read, reading.read);
                let ended = again.range.followed == again.range.count;
                assert!(stopped || ended, "more rows than were read");
            } else if reading.is_the_same_again() {
                reading
                    .read
                    .retain(|address| trial.model.values().any(|present| present == address));
                let again = trial.read(from, to, direction, reading.read.len());
                assert_eq!(again.read, reading.read);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Protects soundness: whenever a range is reported as unchanged, reading it again returns what was
        /// read; and what of it is left, if the scan relies on the leaf as it is now.
        #[test]
        fn unchanged_ranges_read_the_same_again(
            present in vec(0..120_u64, 0..60),
            scan in (0..120_u64, 0..120_u64, any::<bool>(), prop_oneof![Just(ALL), 0..4_usize]),
            changes in vec((0..120_u64, any::<bool>()), 1..20),
        ) {
            never_misses_a_key::<u64>(present.clone(), scan, changes.clone());
            never_misses_a_key::<u128>(present, scan, changes);
        }
    }
}
