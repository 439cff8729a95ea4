//! Interleavings chosen by a model checker (`--cfg shuttle`), at every access to a shared word.
//!
//! Under a model checker a leaf has two keys and an inner node four children, so a handful of keys makes
//! three levels. The worker of these tests frees and overwrites retired memory as soon as no pinned thread
//! could still reach it. So a pointer that is followed for too long leads to nonsense.

use std::ops::Bound;
use std::sync::Arc;

use shuttle::{check_pct, check_random, thread};

use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{Insertion, LongKey, Lookup, NodeChange, NodeVersion, RunInsertion};
use super::testing::{TestKey, is_unchanged, scan, verify};
use super::{BPlusTree, Direction, LeafHint};

const ITERATIONS: usize = 2_000;

/// A step of a thread of a model. Each step is a transaction of its own.
#[derive(Clone, Copy)]
enum Step {
    /// Inserts a number that no other thread inserts.
    Insert(u64),
    /// Inserts three numbers that follow each other, and that no other thread inserts, as a run.
    InsertRun(u64),
    /// Removes a number that is in the tree and that no other thread removes.
    Remove(u64),
    /// Looks up a number that is in the tree throughout.
    Find(u64),
    /// Looks up four numbers that are in the tree throughout, as a batch.
    FindAll([u64; 4]),
    /// Looks a number up twice. If the first look-up misses it and the second finds it, the noted version has
    /// changed.
    MissThenFind(u64),
    /// Scans. Every multiple of ten is in the tree throughout, so the scan finds all of them, in order.
    Scan(Direction),
    /// Scans twice. If no noted version has changed in between, both scans see the same.
    ScanTwice,
    /// As `ScanTwice`, with an insertion in between. The noted versions are adjusted by what the insertion
    /// reports.
    ScanInsertScan(u64),
    /// As `ScanInsertScan`, with three numbers that are inserted as a run.
    ScanInsertRunScan(u64),
}

fn key<K: TestKey>(number: u64) -> K {
    K::from_number(number * 40)
}

/// Returns the address that these models store under a number.
fn address(number: u64) -> u64 {
    number + 1
}

/// Inserts three numbers as a run. Notes what it reports in `versions`, as a transaction does.
fn insert_run<K: TestKey>(
    number: u64,
    tree: &BPlusTree<K>,
    hint: &mut LeafHint<K>,
    versions: &mut Vec<NodeVersion>,
    worker: &TestWorker,
) {
    let numbers = number..number + 3;
    let run: Vec<(K, u64)> = numbers.map(|number| (key(number), address(number))).collect();
    let mut rest = run.as_slice();
    while !rest.is_empty() {
        match tree.insert_run(rest, hint, worker) {
            RunInsertion::Inserted { count, change, sibling } => {
                note(versions, change, sibling);
                rest = &rest[count..];
            }
            found => panic!("{found:?}"),
        }
    }
}

/// Accounts for an insertion in the versions that were noted before it.
fn note(versions: &mut Vec<NodeVersion>, change: NodeChange, sibling: Option<NodeVersion>) {
    let mut is_noted = false;
    for version in versions.iter_mut() {
        if (version.word, version.version) == (change.word, change.before) {
            version.version = change.after;
            is_noted = true;
        }
    }
    versions.extend(sibling.filter(|_| is_noted));
}

fn step<K: TestKey>(step: Step, tree: &BPlusTree<K>, stable: usize, worker: &TestWorker) {
    let _pin = worker.pin();
    let mut hint = LeafHint::new();
    let mut whole = |direction, hint: &mut _| {
        scan(tree, Bound::Unbounded, Bound::Unbounded, direction, hint, worker)
    };
    match step {
        Step::Insert(number) => {
            let done = tree.get_or_insert(&key(number), address(number), &mut hint, worker);
            assert!(matches!(done, Insertion::Inserted { .. }), "{done:?}");
        }
        Step::InsertRun(number) => insert_run(number, tree, &mut hint, &mut Vec::new(), worker),
        Step::ScanInsertRunScan(number) => {
            let mut first = whole(Direction::Forward, &mut hint);
            insert_run(number, tree, &mut hint, &mut first.versions, worker);
            first.addresses.extend((number..number + 3).map(address));
            first.addresses.sort_unstable();
            let second = whole(Direction::Forward, &mut hint);
            if first.versions.iter().all(|version| is_unchanged(*version)) {
                assert_eq!(first.addresses, second.addresses, "a phantom");
            }
        }
        Step::Remove(number) => assert!(tree.remove(&key(number), address(number), worker)),
        Step::Find(number) => {
            let found = tree.get(&key(number), &mut hint);
            assert_eq!(found, Lookup::Found(address(number)));
        }
        Step::FindAll(numbers) => {
            let (keys, mut found) = (numbers.map(key::<K>), Vec::new());
            tree.get_batch(&keys, &mut hint, |lookup| found.push(lookup));
            let expected = numbers.map(|number| Lookup::Found(address(number)));
            assert_eq!(found, expected);
        }
        Step::MissThenFind(number) => {
            if let Lookup::Absent(version) = tree.get(&key(number), &mut hint)
                && let Lookup::Found(_) = tree.get(&key(number), &mut hint)
            {
                assert!(!is_unchanged(version), "a phantom");
            }
        }
        Step::Scan(direction) => {
            let mut found = whole(direction, &mut hint).addresses;
            if direction == Direction::Reverse {
                found.reverse();
            }
            assert!(found.is_sorted_by(|left, right| left < right), "{found:?}");
            assert_eq!(found.iter().filter(|&found| found % 10 == 1).count(), stable);
        }
        Step::ScanTwice => {
            let first = whole(Direction::Forward, &mut hint);
            let second = whole(Direction::Reverse, &mut hint);
            if first.versions.iter().all(|version| is_unchanged(*version)) {
                let found: Vec<u64> = second.addresses.into_iter().rev().collect();
                assert_eq!(first.addresses, found, "a phantom");
            }
        }
        Step::ScanInsertScan(number) => {
            let mut first = whole(Direction::Forward, &mut hint);
            let done = tree.get_or_insert(&key(number), address(number), &mut hint, worker);
            let Insertion::Inserted { change, sibling } = done else {
                panic!("{done:?}");
            };
            note(&mut first.versions, change, sibling);
            let place = first.addresses.partition_point(|&other| other < address(number));
            first.addresses.insert(place, address(number));
            let second = whole(Direction::Forward, &mut hint);
            if first.versions.iter().all(|version| is_unchanged(*version)) {
                assert_eq!(first.addresses, second.addresses, "a phantom");
            }
        }
    }
}

/// Runs a model: a tree with the numbers `present`, on which `threads` work. Then the tree must hold the
/// numbers `left`.
fn model<K: TestKey>(present: &[u64], threads: &[&[Step]], left: &[u64]) {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let tree = BPlusTree::<K>::new(&worker);
    for &number in present {
        step(Step::Insert(number), &tree, 0, &worker);
    }
    let stable = left.iter().filter(|&number| number % 10 == 0).count();
    let tree = Arc::new(tree);
    let threads: Vec<_> = threads
        .iter()
        .map(|steps| {
            let (steps, tree, worker) = (steps.to_vec(), tree.clone(), memory.worker());
            thread::spawn(move || steps.iter().for_each(|one| step(*one, &tree, stable, &worker)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut tree = Arc::into_inner(tree).expect("the threads have ended");
    let content = verify(&mut tree);
    let expected = left.iter().map(|&number| (key::<K>(number), address(number)));
    assert_eq!(content, expected.collect());
    tree.clear(&worker);
    drop(worker.pin());
    assert_eq!(memory.in_use(), 0, "nodes or keys were not given back");
}

/// Runs a model under random schedules and under schedules with few, well-placed switches.
fn check(present: &'static [u64], threads: &'static [&'static [Step]], left: &'static [u64]) {
    check_random(move || model::<u64>(present, threads, left), ITERATIONS);
    check_pct(move || model::<u64>(present, threads, left), ITERATIONS, 3);
    check_random(move || model::<LongKey>(present, threads, left), ITERATIONS / 2);
}

#[test]
fn insertions_against_lookups() {
    check(
        &[10, 20],
        &[
            &[Step::Insert(15), Step::Insert(5)],
            &[Step::MissThenFind(15), Step::Find(20)],
            &[Step::Find(10), Step::MissThenFind(5)],
        ],
        &[5, 10, 15, 20],
    );
}

#[test]
fn splits_against_scans() {
    check(
        &[10, 20, 30, 40],
        &[
            &[Step::Insert(15), Step::Insert(17), Step::Insert(35)],
            &[Step::Scan(Direction::Forward), Step::ScanTwice],
            &[Step::Scan(Direction::Reverse)],
        ],
        &[10, 15, 17, 20, 30, 35, 40],
    );
}

#[test]
fn emptied_leaves_against_insertions_and_scans() {
    check(
        &[1, 2, 10, 11, 20, 30],
        &[
            &[Step::Remove(1), Step::Remove(2), Step::Remove(11)],
            &[Step::Insert(3), Step::MissThenFind(12)],
            &[Step::Insert(12), Step::Scan(Direction::Reverse), Step::ScanTwice],
        ],
        &[3, 10, 12, 20, 30],
    );
}

#[test]
fn noted_versions_and_own_insertions() {
    check(
        &[10, 20, 25, 30],
        &[
            &[Step::ScanInsertScan(21), Step::ScanInsertScan(23)],
            &[Step::ScanInsertScan(12), Step::Remove(25)],
        ],
        &[10, 12, 20, 21, 23, 30],
    );
}

#[test]
fn inner_nodes_split_and_merge() {
    check(
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
        &[
            &[Step::Remove(1), Step::Remove(2), Step::Remove(3), Step::Remove(4)],
            &[Step::Remove(5), Step::Remove(6), Step::Remove(7), Step::Remove(8)],
            &[Step::Insert(15), Step::Insert(16), Step::Insert(17), Step::Insert(18)],
            &[Step::Find(10), Step::ScanTwice],
        ],
        &[9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
    );
}

#[test]
fn the_tree_grows_while_it_empties() {
    check(
        &[1, 2, 3],
        &[
            &[Step::Remove(1), Step::Remove(2), Step::Remove(3)],
            &[Step::Insert(10), Step::Insert(11), Step::Insert(12)],
        ],
        &[10, 11, 12],
    );
}

/// Runs of different threads that belong between the same neighbours, beside look-ups and scans of their keys.
#[test]
fn runs_against_lookups_and_scans() {
    check(
        &[10, 40],
        &[
            &[Step::InsertRun(11), Step::Find(40)],
            &[Step::InsertRun(21), Step::ScanTwice],
            &[Step::MissThenFind(12), Step::MissThenFind(23), Step::Scan(Direction::Reverse)],
        ],
        &[10, 11, 12, 13, 21, 22, 23, 40],
    );
}

/// Runs into leaves that become empty at the same time.
#[test]
fn runs_into_emptied_leaves() {
    check(
        &[1, 2, 10, 14, 15],
        &[
            &[Step::Remove(1), Step::Remove(2), Step::Remove(14), Step::Remove(15)],
            &[Step::InsertRun(3), Step::InsertRun(11)],
            &[Step::ScanTwice],
        ],
        &[3, 4, 5, 10, 11, 12, 13],
    );
}

/// A transaction accounts for its own runs in the versions that it has noted, and for nothing else.
#[test]
fn noted_versions_and_own_runs() {
    check(
        &[10, 20, 30],
        &[
            &[Step::ScanInsertRunScan(21), Step::Remove(30)],
            &[Step::ScanInsertRunScan(24), Step::ScanInsertScan(12)],
        ],
        &[10, 12, 20, 21, 22, 23, 24, 25, 26],
    );
}

/// Batches of look-ups on all levels of a tree whose nodes are split and taken out.
#[test]
fn batches_against_splits_and_emptied_leaves() {
    check(
        &[1, 2, 3, 10, 20, 30, 40, 50],
        &[
            &[Step::Remove(1), Step::Remove(2), Step::Remove(3), Step::InsertRun(21)],
            &[Step::InsertRun(31), Step::Insert(45)],
            &[Step::FindAll([10, 40, 20, 50]), Step::FindAll([50, 30, 10, 40])],
        ],
        &[10, 20, 21, 22, 23, 30, 31, 32, 33, 40, 45, 50],
    );
}
