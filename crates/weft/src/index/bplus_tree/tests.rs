//! The operations of one thread, compared with a model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use weft_htm::word::Ordering;
use weft_htm::{Htm, Statistics};

use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{IndexKey, IndexWorker, Insertion, LongKey, Lookup, RunInsertion};
use super::node::{LEAF_CAPACITY, after_insertions};
use super::testing::{NotedVersion, TestKey, is_unchanged, noted, scan, verify};
use super::{BPlusTree, Direction, LeafHint};

pub(super) mod against_a_model {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    pub(in super::super) enum Operation {
        Insert(u64),
        Remove(u64),
        /// Removes so many keys from a number on, which empties leaves.
        Clear(u64, u64),
        /// Inserts so many keys in ascending order.
        Ascend(u64, u64),
        /// Inserts a run: the numbers from the first on, each so much greater than the one before, so many of them.
        Run(u64, u64, u64),
        Get(u64),
        /// Looks up a batch of keys: the numbers from the first on, each so much greater than the one before.
        GetBatch(u64, u64, u64),
        Scan(Bound<u64>, Bound<u64>, bool),
        /// Ends a transaction, and begins another.
        Unpin,
    }

    fn bound(number: impl Strategy<Value = u64> + Clone) -> impl Strategy<Value = Bound<u64>> {
        prop_oneof![
            3 => number.clone().prop_map(Bound::Included),
            3 => number.prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    }

    pub(in super::super) fn operation() -> impl Strategy<Value = Operation> {
        let number = prop_oneof![20 => 0..400_u64, 1 => Just(u64::MAX), 1 => Just(0)];
        prop_oneof![
            30 => number.clone().prop_map(Operation::Insert),
            15 => number.clone().prop_map(Operation::Remove),
            2 => (0..400_u64, 1..200_u64).prop_map(|(from, count)| Operation::Clear(from, count)),
            3 => (0..400_u64, 1..100_u64).prop_map(|(from, count)| Operation::Ascend(from, count)),
            10 => (0..400_u64, 0..5_u64, 1..70_u64)
                .prop_map(|(from, step, count)| Operation::Run(from, step, count)),
            5 => number.clone().prop_map(Operation::Get),
            5 => (0..400_u64, 0..40_u64, 0..40_u64)
                .prop_map(|(from, step, count)| Operation::GetBatch(from, step, count)),
            10 => (bound(number.clone()), bound(number), any::<bool>())
                .prop_map(|(from, to, reverse)| Operation::Scan(from, to, reverse)),
            2 => Just(Operation::Unpin),
        ]
    }

    struct Trial<K: IndexKey> {
        tree: BPlusTree<K>,
        model: BTreeMap<K, u64>,
        hint: LeafHint<K>,
        worker: TestWorker,
        /// A worker without hardware regions.
        observer: TestWorker,
        addresses: u64,
    }

    impl<K: TestKey> Trial<K> {
        fn versions(&mut self) -> BTreeSet<NotedVersion> {
            let all = (Bound::Unbounded, Bound::Unbounded);
            // With a hint of its own, so that the trial's hint is not changed.
            let mut hint = LeafHint::new();
            let scan =
                scan(&self.tree, all.0, all.1, Direction::Forward, &mut hint, &self.observer);
            scan.versions.into_iter().map(noted).collect()
        }

        fn get(&mut self, key: &K) -> Lookup {
            self.tree.get(key, &mut self.hint)
        }

        fn insert(&mut self, key: K) {
            self.addresses += 8;
            let address = self.addresses;
            let before = self.versions();
            let lookup = self.get(&key);
            let insertion = self.tree.get_or_insert(&key, address, &mut self.hint, &self.worker);
            let mut expected = before.clone();
            match (lookup, insertion) {
                (Lookup::Found(found), Insertion::Found(other)) => {
                    assert_eq!((Some(&found), found), (self.model.get(&key), other));
                }
                (Lookup::Absent(version), Insertion::Inserted { change, sibling }) => {
                    assert_eq!(self.model.insert(key.clone(), address), None);
                    assert_eq!((version.word, version.version), (change.word, change.before));
                    assert_ne!(change.before, change.after);
                    assert!(expected.remove(&noted(version)));
                    expected.insert((change.word.as_ptr().addr(), change.after));
                    expected.extend(sibling.map(noted));
                }
                mismatch => panic!("{key:?}: {mismatch:?}"),
            }
            assert_eq!(self.versions(), expected, "what changed is what was reported");
            assert_eq!(self.get(&key), Lookup::Found(self.model[&key]));
        }

        /// Inserts a run, part by part. Each part changes what it reports, and nothing else.
        fn insert_run(&mut self, numbers: impl Iterator<Item = u64>) {
            let first_address = self.addresses + 8;
            let run: Vec<(K, u64)> =
                numbers.map(K::from_number).zip((first_address..).step_by(8)).collect();
            self.addresses += 8 * run.len() as u64;
            let mut rest = run.as_slice();
            while let [(first, _), ..] = rest {
                let mut expected = self.versions();
                let lookup = self.get(first);
                match (lookup, self.tree.insert_run(rest, &mut self.hint, &self.worker)) {
                    (Lookup::Found(found), RunInsertion::Found(other)) => {
                        assert_eq!((Some(&found), found), (self.model.get(first), other));
                        rest = &rest[1..];
                    }
                    (
                        Lookup::Absent(version),
                        RunInsertion::Inserted { count, change, sibling },
                    ) => {
                        let (inserted, after) = rest.split_at(count);
                        assert!(inserted.is_sorted_by(|one, other| one.0 < other.0));
                        for (key, address) in inserted {
                            assert_eq!(self.model.insert(key.clone(), *address), None);
                            assert_eq!(self.get(key), Lookup::Found(*address));
                        }
                        assert_eq!((version.word, version.version), (change.word, change.before));
                        if sibling.is_none() {
                            let each = after_insertions(change.before, 1) - change.before;
                            assert_eq!(change.after, change.before + each * count as u64);
                        }
                        assert!(expected.remove(&noted(version)));
                        expected.insert((change.word.as_ptr().addr(), change.after));
                        expected.extend(sibling.map(noted));
                        rest = after;
                    }
                    mismatch => panic!("{first:?}: {mismatch:?}"),
                }
                assert_eq!(self.versions(), expected, "what changed is what was reported");
            }
        }

        fn remove(&mut self, key: &K) {
            let Some(address) = self.model.remove(key) else {
                assert!(!self.tree.remove(key, 8, &self.worker));
                return;
            };
            assert!(!self.tree.remove(key, address + 1, &self.worker), "another address");
            let before = self.versions();
            assert!(self.tree.remove(key, address, &self.worker));
            let after = self.versions();
            match self.get(key) {
                Lookup::Absent(version) => assert!(!before.contains(&noted(version))),
                found => panic!("{key:?} was removed: {found:?}"),
            }
            let changed = after.difference(&before).count();
            assert!(changed == 1, "a removal changed {changed} leaves");
        }

        fn scan(&mut self, from: Bound<u64>, to: Bound<u64>, direction: Direction) {
            let (from, to) = (from.map(K::from_number), to.map(K::from_number));
            let (from, to) = (from.as_ref(), to.as_ref());
            let scan = scan(&self.tree, from, to, direction, &mut self.hint, &self.worker);
            let within = |key: &K| {
                let (lower, upper) = match direction {
                    Direction::Forward => (from, to),
                    Direction::Reverse => (to, from),
                };
                (match lower {
                    Bound::Included(lower) => key >= lower,
                    Bound::Excluded(lower) => key > lower,
                    Bound::Unbounded => true,
                }) && (match upper {
                    Bound::Included(upper) => key <= upper,
                    Bound::Excluded(upper) => key < upper,
                    Bound::Unbounded => true,
                })
            };
            let expected = self.model.iter().filter(|(key, _)| within(key));
            let mut expected: Vec<u64> = expected.map(|(_, address)| *address).collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            assert_eq!(scan.addresses, expected);

            let covered: BTreeSet<NotedVersion> = scan.versions.into_iter().map(noted).collect();
            for key in (0..400).step_by(3).map(K::from_number).filter(within) {
                let lookup = self.tree.get(&key, &mut LeafHint::new());
                if let Lookup::Absent(version) = lookup {
                    assert!(covered.contains(&noted(version)), "{key:?} is in no noted leaf");
                }
            }
        }

        fn run(&mut self, operation: &Operation) {
            match *operation {
                Operation::Insert(number) => self.insert(K::from_number(number)),
                Operation::Remove(number) => self.remove(&K::from_number(number)),
                Operation::Clear(from, count) => {
                    (from..from + count).for_each(|number| self.remove(&K::from_number(number)));
                }
                Operation::Ascend(from, count) => {
                    (from..from + count).for_each(|number| self.insert(K::from_number(number)));
                }
                Operation::Run(from, step, count) => {
                    self.insert_run((0..count).map(|position| from + step * position));
                }
                Operation::Get(number) => {
                    let key = K::from_number(number);
                    match (self.get(&key), self.model.get(&key)) {
                        (Lookup::Found(found), Some(&expected)) => assert_eq!(found, expected),
                        (Lookup::Absent(version), None) => assert!(is_unchanged(version)),
                        mismatch => panic!("{key:?}: {mismatch:?}"),
                    }
                }
                Operation::GetBatch(from, step, count) => {
                    let numbers = (0..count).map(|position| from + step * position);
                    let keys: Vec<K> = numbers.map(K::from_number).collect();
                    let mut found = Vec::new();
                    self.tree.get_batch(&keys, &mut self.hint, |lookup| found.push(lookup));
                    let one_by_one =
                        keys.iter().map(|key| self.tree.get(key, &mut LeafHint::new()));
                    assert_eq!(found, one_by_one.collect::<Vec<_>>());
                }
                Operation::Scan(from, to, reverse) => {
                    let direction = if reverse { Direction::Reverse } else { Direction::Forward };
                    self.scan(from, to, direction);
                }
                Operation::Unpin => unreachable!("handled by the caller"),
            }
        }
    }

    /// Runs the operations and returns the statistics of the regions.
    pub(in super::super) fn check<K: TestKey>(operations: &[Operation], htm: &Htm) -> Statistics {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker_with(htm);
        let mut trial = Trial::<K> {
            tree: BPlusTree::new(&worker),
            model: BTreeMap::new(),
            hint: LeafHint::new(),
            worker,
            observer: memory.worker(),
            addresses: 0,
        };
        let pinner = memory.worker();
        for transaction in operations.split(|operation| matches!(operation, Operation::Unpin)) {
            let pin = pinner.pin();
            transaction.iter().for_each(|operation| trial.run(operation));
            trial.hint.reset();
            drop(pin);
            assert_eq!(verify(&mut trial.tree), trial.model);
        }
        trial.tree.clear(&trial.worker);
        assert_eq!(memory.in_use(), 0, "nodes or keys were not given back");
        trial.worker.regions().statistics()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn one_word_keys(operations in vec(operation(), 1..150)) {
            check::<u64>(&operations, &Htm::software());
        }

        #[test]
        fn two_word_keys(operations in vec(operation(), 1..150)) {
            check::<u128>(&operations, &Htm::software());
        }

        #[test]
        fn long_keys(operations in vec(operation(), 1..150)) {
            check::<LongKey>(&operations, &Htm::software());
        }
    }
}

/// Three levels of inner nodes come and go, with splits, merges, redistributions and the lowering of the
/// root.
fn grow_and_shrink<K: TestKey>(count: u64, seed: u64) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut tree = BPlusTree::<K>::new(&worker);
    let mut numbers: Vec<u64> = (0..count).collect();
    type Order = fn(&mut fastrand::Rng, &mut [u64]);
    let orders: [Order; 3] = [
        |random, numbers| random.shuffle(numbers),
        |_, numbers| numbers.sort_unstable(),
        |_, numbers| numbers.sort_unstable_by(|left, right| right.cmp(left)),
    ];
    for (inserting, removing) in (0..9).map(|pair| (orders[pair / 3], orders[pair % 3])) {
        let mut model = BTreeMap::new();
        let mut hint = LeafHint::new();
        inserting(&mut random, &mut numbers);
        for &number in &numbers {
            tree.get_or_insert(&K::from_number(number), number + 1, &mut hint, &worker);
            model.entry(K::from_number(number)).or_insert(number + 1);
        }
        assert_eq!(verify(&mut tree), model);
        assert!(tree.root.height.load(Ordering::Relaxed) > 1);
        removing(&mut random, &mut numbers);
        for (removed, &number) in numbers.iter().enumerate() {
            let key = K::from_number(number);
            if let Some(address) = model.remove(&key) {
                assert!(tree.remove(&key, address, &worker));
            }
            if removed % (numbers.len() / 4) == 0 {
                assert_eq!(verify(&mut tree), model);
            }
        }
        assert_eq!(verify(&mut tree), model);
        assert_eq!(tree.root.height.load(Ordering::Relaxed), 0, "all levels went away");
        drop(worker.pin());
        assert_eq!(memory.in_use(), 1, "one empty leaf is left");
    }
    tree.clear(&worker);
}

#[test]
fn trees_of_one_word_keys_grow_and_shrink() {
    grow_and_shrink::<u64>(5_000, 1);
}

#[test]
fn trees_of_two_word_keys_grow_and_shrink() {
    grow_and_shrink::<u128>(5_000, 2);
}

#[test]
fn trees_of_long_keys_grow_and_shrink() {
    grow_and_shrink::<LongKey>(5_000, 3);
}

/// Sequences that ascend below interleaved prefixes, like order lines below their districts, leave full
/// leaves behind.
#[test]
fn interleaved_ascending_sequences_fill_their_leaves() {
    const SEQUENCES: u64 = 10;
    const LENGTH: u64 = 2_000;
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut tree = BPlusTree::<u64>::new(&worker);
    let mut hint = LeafHint::new();
    for number in (0..LENGTH).step_by(5) {
        for sequence in 0..SEQUENCES {
            for line in 0..5 {
                let key = sequence << 32 | (number + line);
                tree.get_or_insert(&key, 1, &mut hint, &worker);
            }
        }
    }
    assert_eq!(verify(&mut tree).len() as u64, SEQUENCES * LENGTH);
    let leaves = scan(
        &tree,
        Bound::Unbounded,
        Bound::Unbounded,
        Direction::Forward,
        &mut LeafHint::new(),
        &worker,
    );
    let filled = leaves.addresses.len() as f64 / (leaves.versions.len() * LEAF_CAPACITY) as f64;
    assert!(filled > 0.9, "leaves are filled to {filled}");
    tree.clear(&worker);
}

/// A queue, filled at one end and emptied at the other, does not leave a trail of nodes.
#[test]
fn a_queue_stays_small() {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut tree = BPlusTree::<u64>::new(&worker);
    let mut hint = LeafHint::new();
    for key in 0..200_000 {
        tree.get_or_insert(&key, key + 1, &mut hint, &worker);
        if let Some(old) = key.checked_sub(1_000) {
            assert!(tree.remove(&old, old + 1, &worker));
        }
        if key % 1_000 == 0 {
            hint.reset();
            drop(worker.pin());
            let nodes = memory.in_use();
            assert!(nodes < 200, "{nodes} nodes hold a thousand keys");
        }
    }
    assert_eq!(verify(&mut tree).len(), 1_000);
    tree.clear(&worker);
}

#[test]
#[should_panic(expected = "used after it was cleared")]
fn a_cleared_tree_refuses_to_be_used() {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut tree = BPlusTree::<u64>::new(&worker);
    tree.clear(&worker);
    tree.get(&1, &mut LeafHint::new());
}

/// A run that is inserted under few locks leaves the leaves that single insertions leave: the same keys, versions and
/// sequences, so that later splits are the same.
#[test]
fn a_run_leaves_what_single_insertions_leave() {
    fn leaves<K: TestKey>(in_runs: bool) -> (Vec<(Vec<u64>, u64)>, usize) {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker();
        let _pin = worker.pin();
        let mut tree = BPlusTree::<K>::new(&worker);
        let (mut hint, mut changes) = (LeafHint::new(), 0);
        // Orders of several districts in turns, each with ten lines.
        for order in 0..40_u64 {
            for district in 0..4_u64 {
                let number = |line| 8 * (district * 10_000 + order * 10 + line);
                let lines: Vec<(K, u64)> =
                    (0..10).map(|line| (K::from_number(number(line)), number(line) + 1)).collect();
                let mut rest = lines.as_slice();
                while !rest.is_empty() {
                    let part = if in_runs { rest } else { &rest[..1] };
                    match tree.insert_run(part, &mut hint, &worker) {
                        RunInsertion::Inserted { count, .. } => rest = &rest[count..],
                        RunInsertion::Found(_) => unreachable!("each key is inserted once"),
                    }
                    changes += 1;
                }
            }
        }
        let mut leaves = Vec::new();
        let (mut page, mut next) = (super::Page::new(), Some(Bound::Unbounded));
        while let Some(from) = next {
            let (from, to) = (from.as_ref(), Bound::Unbounded);
            let forward = Direction::Forward;
            let node = tree.read_page(from, to, forward, &mut page, &mut hint, &worker);
            leaves.push((page.addresses().to_vec(), node.version));
            next = page.take_next();
        }
        tree.clear(&worker);
        (leaves, changes)
    }
    fn check<K: TestKey>() -> (usize, usize) {
        let ((one_by_one, single), (in_runs, runs)) = (leaves::<K>(false), leaves::<K>(true));
        assert_eq!(in_runs, one_by_one);
        (single, runs)
    }
    for (single, runs) in [check::<u64>(), check::<u128>()] {
        assert!(single == 1_600 && runs < 400, "{runs} changes instead of {single}");
    }
    // Long keys are inserted one by one.
    let (single, runs) = check::<LongKey>();
    assert_eq!(single, runs);
}
