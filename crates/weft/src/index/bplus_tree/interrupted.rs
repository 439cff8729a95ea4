//! Reads that are interrupted by a whole write, at each point in turn at which the read looks at a version.
//!
//! Random schedules hardly ever produce such cases: the write takes many steps, and it must fall into a gap
//! of few steps.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use weft_htm::word::Word;

use super::super::Lookup;
use super::super::test_memory::{TestMemory, TestWorker};
use super::scan::Range;
use super::search::{Access, OptimisticAccess};
use super::testing::{is_unchanged, scan};
use super::{BPlusTree, Direction, LeafHint};

/// Looks at versions as [`OptimisticAccess`] does, and runs the write before one of the looks.
struct InterruptedAccess<'w> {
    looks_before: Cell<usize>,
    write: Cell<Option<&'w dyn Fn()>>,
}

impl InterruptedAccess<'_> {
    fn look(&self) {
        match self.looks_before.get() {
            0 => self.write.take().into_iter().for_each(|write| write()),
            looks => self.looks_before.set(looks - 1),
        }
    }
}

impl Access for InterruptedAccess<'_> {
    fn version(&self, word: &Word) -> Option<u64> {
        self.look();
        OptimisticAccess.version(word)
    }

    fn is_current(&self, word: &Word, version: u64) -> bool {
        self.look();
        OptimisticAccess.is_current(word, version)
    }

    fn lock(&self, _word: &Word, _version: u64) -> bool {
        unreachable!("a read locks nothing")
    }
}

type Tree = BPlusTree<u64>;
type Step = fn(&Tree, &TestWorker);

/// The writes: a name, how the empty tree is prepared, and the write that interrupts the read.
const WRITES: [(&str, Step, Step); 6] = [
    (
        "an insertion",
        |tree, worker| (0..90).for_each(|key| insert(tree, 2 * key, worker)),
        |tree, worker| insert(tree, 179, worker),
    ),
    ("a removal", fill, |tree, worker| assert!(tree.remove(&40, 41, worker))),
    ("a split", fill, |tree, worker| insert(tree, 41, worker)),
    (
        "a split of the root",
        |tree, worker| (0..29).for_each(|key| insert(tree, 2 * key, worker)),
        |tree, worker| insert(tree, 21, worker),
    ),
    (
        "an empty leaf takes over the keys of the next",
        |tree, worker| {
            fill(tree, worker);
            empty(tree, 0);
        },
        |tree, worker| tree.tidy(&0, worker),
    ),
    (
        "a leaf takes over the range of the next, which is empty",
        |tree, worker| {
            fill(tree, worker);
            empty(tree, 29);
        },
        |tree, worker| tree.tidy(&58, worker),
    ),
];

/// Inserts the even numbers below 200 in ascending order, which leaves full leaves behind.
fn fill(tree: &Tree, worker: &TestWorker) {
    (0..100).for_each(|key| insert(tree, 2 * key, worker));
}

fn insert(tree: &Tree, key: u64, worker: &TestWorker) {
    tree.get_or_insert(&key, key + 1, &mut LeafHint::new(), worker);
}

/// Removes the 29 even numbers from `2 * first` on, which are the keys of one full leaf, and leaves the leaf
/// in the tree.
fn empty(tree: &Tree, first: u64) {
    for key in (first..first + 29).map(|number| 2 * number) {
        assert!(tree.try_remove(&OptimisticAccess, &key, key + 1).is_some());
    }
}

fn all(tree: &Tree, worker: &TestWorker) -> Vec<u64> {
    let (from, to) = (Bound::Unbounded, Bound::Unbounded);
    scan(tree, from, to, Direction::Forward, &mut LeafHint::new(), worker).addresses
}

/// Calls `read` for every point at which `write` can interrupt it, with a prepared tree and an
/// [`InterruptedAccess`]. Then calls `check` with the result, and the addresses before and after the write.
fn at_every_place<R>(
    (name, prepare, write): (&str, Step, Step),
    read: impl Fn(&Tree, &InterruptedAccess<'_>, &TestWorker) -> R,
    check: impl Fn(&str, R, &[u64], &[u64]),
) {
    for looks in 0.. {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker();
        let _pin = worker.pin();
        let mut tree = BPlusTree::new(&worker);
        prepare(&tree, &worker);
        let before = all(&tree, &worker);
        let write = || write(&tree, &worker);
        let access =
            InterruptedAccess { looks_before: Cell::new(looks), write: Cell::new(Some(&write)) };
        let result = read(&tree, &access, &worker);
        let is_over = access.write.take().is_some();
        let after = all(&tree, &worker);
        check(&format!("{name}, before look {looks}"), result, &before, &after);
        tree.clear(&worker);
        if is_over {
            assert!(looks > 2, "the write never fell into the read");
            return;
        }
    }
}

#[test]
fn interrupted_lookups_see_the_tree_before_or_after() {
    for write in WRITES {
        for key in 0..200 {
            at_every_place(
                write,
                |tree, access, _| {
                    let lookup = tree.try_get(access, &key, &LeafHint::new())?;
                    let is_noted = matches!(lookup, Lookup::Absent(noted) if is_unchanged(noted));
                    Some((lookup, is_noted))
                },
                |place, result, before, after| {
                    let address = key + 1;
                    let (before, after) = (before.contains(&address), after.contains(&address));
                    match result {
                        Some((Lookup::Found(found), _)) => {
                            assert!(found == address && (before || after), "{key}: {place}");
                        }
                        Some((Lookup::Absent(_), is_noted)) => {
                            assert!(!before || !after, "{key} was missed: {place}");
                            assert!(!is_noted || !after, "{key} is a phantom: {place}");
                        }
                        None => {}
                    }
                },
            );
        }
    }
}

#[test]
fn interrupted_scans_see_the_tree_before_or_after() {
    let starts = (0..200).step_by(9).map(Bound::Included).chain([Bound::Unbounded]);
    for (start, direction) in starts.flat_map(|start| {
        [Direction::Forward, Direction::Reverse].map(|direction| (start, direction))
    }) {
        let within = |address: &&u64| match (start, direction) {
            (Bound::Included(start), Direction::Forward) => **address > start,
            (Bound::Included(start), Direction::Reverse) => **address <= start + 1,
            _ => true,
        };
        for write in WRITES {
            at_every_place(
                write,
                |tree, access, worker| scan_interrupted(tree, access, start, direction, worker),
                |place, result, before, after| {
                    let Some((found, is_noted)) = result else { return };
                    let place = format!("{direction:?} from {start:?}: {place}");
                    assert!(found.is_sorted_by(|left, right| left < right), "{place}");
                    let after: Vec<u64> = after.iter().filter(within).copied().collect();
                    let stable = after.iter().filter(|address| before.contains(address));
                    stable.for_each(|address| assert!(found.contains(address), "{place}"));
                    assert!(
                        found.iter().all(|found| before.contains(found) || after.contains(found)),
                        "{place}"
                    );
                    assert!(!is_noted || found == after, "a phantom: {place}");
                },
            );
        }
    }
}

/// Scans from `start` on, with the write interrupting the first page. Returns `None` if that page must be
/// read again. Otherwise returns the addresses, ascending, and whether the versions noted are still current.
fn scan_interrupted(
    tree: &Tree,
    access: &InterruptedAccess<'_>,
    start: Bound<u64>,
    direction: Direction,
    worker: &TestWorker,
) -> Option<(Vec<u64>, bool)> {
    let range = Range { from: start.as_ref(), to: Bound::Unbounded, direction };
    let addresses = [const { Cell::new(0) }; super::node::LEAF_CAPACITY];
    let share = tree.try_page(access, range, &addresses, &LeafHint::new())?;
    let mut found: Vec<u64> = addresses[..share.count].iter().map(Cell::get).collect();
    let mut versions = vec![share.place.node_version()];
    if let Some(next) = share.next(direction)? {
        let mut hint = LeafHint::new();
        let rest = scan(tree, next.as_ref(), Bound::Unbounded, direction, &mut hint, worker);
        found.extend(rest.addresses);
        versions.extend(rest.versions);
    }
    if direction == Direction::Reverse {
        found.reverse();
    }
    Some((found, versions.into_iter().all(is_unchanged)))
}
