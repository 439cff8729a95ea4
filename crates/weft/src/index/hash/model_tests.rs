//! The operations under interleavings that a model checker chooses.
//!
//! Under a model checker a bucket has one entry, the smallest table has two buckets, and one bucket is moved
//! at a time. So the second key of a bucket makes a chain and starts a growth, and the next two insertions or
//! removals move the two buckets. A key is its own hash. `0` and `1 << 62` share the first of two buckets,
//! and are in different ones when there are four. The keys below `1 << 60` stay together until there are 16
//! buckets.
//!
//! The worker frees and overwrites retired memory as soon as no pinned thread could still reach it. Each
//! model ends with a check that every block was given back once.

use std::sync::Arc;

#[cfg(loom)]
use loom::thread;
#[cfg(shuttle)]
use shuttle::thread;
use weft_htm::word::{Ordering, Word};

use super::super::test_memory::TestMemory;
use super::super::{IndexKey, IndexWorker, Insertion, Lookup, NodeVersion};
use super::HashTable;

/// A key that is its own hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedKey(u64);

impl IndexKey for PlacedKey {
    type KeySlot = Word;

    fn compare(&self, slot: &Word, is_current: impl Fn() -> bool) -> Option<std::cmp::Ordering> {
        self.0.compare(slot, is_current)
    }

    fn load(slot: &Word, is_current: impl Fn() -> bool) -> Option<Self> {
        u64::load(slot, is_current).map(PlacedKey)
    }

    fn store(&self, slot: &Word, worker: &impl IndexWorker) {
        self.0.store(slot, worker);
    }

    fn move_slot(from: &Word, to: &Word) {
        u64::move_slot(from, to);
    }

    fn retire(_slot: &Word, _worker: &impl IndexWorker) {}

    fn hash(&self) -> u64 {
        self.0
    }
}

/// Keys of the first bucket, which stay together for long.
const NEAR: [u64; 3] = [0, 1, 2];
/// A key of the first bucket that soon parts from the others.
const PARTING: u64 = 1 << 62;
/// A key of the second bucket.
const FAR: u64 = 1 << 63;

/// Returns the address that these models store under a key.
fn address(key: u64) -> u64 {
    key + 100
}

/// What the threads of a model share.
struct Model {
    memory: Arc<TestMemory>,
    table: HashTable<PlacedKey>,
}

/// A step of a thread of a model. Each step is a transaction of its own.
enum Step {
    /// Inserts a key that no other thread inserts.
    Insert(u64),
    /// Removes a key that no other thread removes.
    Remove(u64),
    /// Looks up a key that is there throughout.
    Find(u64),
    /// Looks a key up twice. If the first look-up misses it and the second finds it, the noted version has
    /// changed.
    MissThenFind(u64),
}

impl Model {
    /// Creates a table with these keys, inserted one after the other.
    fn with(keys: &[u64]) -> Self {
        let memory = Arc::new(TestMemory::default());
        let worker = memory.worker();
        let table = HashTable::new(&worker);
        let model = Model { memory, table };
        for &key in keys {
            model.run(&Step::Insert(key));
        }
        model
    }

    fn run(&self, step: &Step) {
        let worker = self.memory.worker();
        let _pin = worker.pin();
        match *step {
            Step::Insert(key) => {
                let inserted = self.table.get_or_insert(&PlacedKey(key), address(key), &worker);
                assert!(matches!(inserted, Insertion::Inserted { .. }));
            }
            Step::Remove(key) => {
                assert!(self.table.remove(&PlacedKey(key), address(key), &worker));
            }
            Step::Find(key) => {
                let found = self.table.get(&PlacedKey(key));
                assert_eq!(found, Lookup::Found(address(key)));
            }
            Step::MissThenFind(key) => {
                if let Lookup::Absent(noted) = self.table.get(&PlacedKey(key))
                    && let Lookup::Found(_) = self.table.get(&PlacedKey(key))
                {
                    assert_ne!(value(noted), noted.version, "a phantom");
                }
            }
        }
    }

    /// Runs each list of steps on a thread of its own. Then checks that exactly `keys` are left, and gives
    /// everything back.
    fn finish(self, threads: Vec<Vec<Step>>, mut keys: Vec<u64>) {
        let shared = Arc::new(self);
        let threads: Vec<_> = threads
            .into_iter()
            .map(|steps| {
                let shared = shared.clone();
                thread::spawn(move || steps.iter().for_each(|step| shared.run(step)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut model = Arc::into_inner(shared).expect("the threads have ended");
        let worker = model.memory.worker();
        let _pin = worker.pin();
        let mut walked = Vec::new();
        model.table.for_each(|key, found| {
            assert_eq!(found, address(key.0));
            walked.push(key.0);
        });
        walked.sort_unstable();
        keys.sort_unstable();
        assert_eq!(walked, keys);
        model.table.clear(&worker);
        assert_eq!(model.memory.in_use(), 0);
    }
}

fn value(noted: NodeVersion) -> u64 {
    // SAFETY: the worker that noted it is still pinned.
    unsafe { noted.word.as_ref() }.load(Ordering::Acquire)
}

/// Explores interleavings of `model`. A failure prints the schedule that repeats it.
fn explore(model: impl Fn() + Send + Sync + Copy + 'static) {
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }
    #[cfg(shuttle)]
    {
        shuttle::check_random(model, 4_000);
        shuttle::check_pct(model, 4_000, 3);
    }
}

use Step::{Find, Insert, MissThenFind, Remove};

#[test]
fn an_insertion_and_a_look_up() {
    explore(|| {
        let threads = vec![vec![Insert(NEAR[0])], vec![MissThenFind(NEAR[0])]];
        Model::with(&[]).finish(threads, vec![NEAR[0]]);
    });
}

#[test]
fn two_insertions_of_one_key() {
    explore(|| {
        let mut model = Arc::new(Model::with(&[]));
        let insert = |model: &Model, mine: u64| {
            let worker = model.memory.worker();
            let _pin = worker.pin();
            model.table.get_or_insert(&PlacedKey(NEAR[0]), mine, &worker)
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || match insert(&model, 1) {
                Insertion::Found(found) => found,
                Insertion::Inserted { .. } => 1,
            })
        };
        let (winner, inserted) = match insert(&model, 2) {
            Insertion::Found(found) => (found, false),
            Insertion::Inserted { .. } => (2, true),
        };
        assert_eq!(inserted, winner == 2);
        assert_eq!(other.join().unwrap(), winner);
        let model = Arc::get_mut(&mut model).expect("the thread has ended");
        model.table.clear(&model.memory.worker());
    });
}

/// The removal fills its hole with the last entry of the chain, which a concurrent reader must not miss.
#[test]
fn a_removal_and_a_look_up_of_the_moved_entry() {
    explore(|| {
        let threads = vec![vec![Remove(NEAR[0])], vec![Find(NEAR[1])]];
        Model::with(&[NEAR[0], NEAR[1]]).finish(threads, vec![NEAR[1]]);
    });
}

/// A growth starts, moves its buckets and ends beside look-ups of the keys that are moved.
#[test]
fn growth_and_look_ups() {
    explore(|| {
        let writer = vec![Insert(PARTING), Remove(FAR), Insert(FAR), Insert(NEAR[1])];
        let reader = vec![Find(NEAR[0]), MissThenFind(NEAR[1]), Find(NEAR[0])];
        let left = vec![NEAR[0], NEAR[1], PARTING, FAR];
        Model::with(&[NEAR[0], FAR]).finish(vec![writer, reader], left);
    });
}

/// The buckets of a growing table are moved during insertions and removals in them.
#[cfg(shuttle)]
#[test]
fn growth_and_insertions_and_removals() {
    explore(|| {
        let threads = vec![
            vec![Insert(FAR), Remove(NEAR[0])],
            vec![Insert(NEAR[1]), Find(NEAR[1])],
            vec![MissThenFind(NEAR[1]), Remove(PARTING)],
        ];
        Model::with(&[NEAR[0], PARTING]).finish(threads, vec![NEAR[1], FAR]);
    });
}

/// Both threads exceed the limit at once.
#[test]
fn two_starts_of_a_growth() {
    explore(|| {
        let threads = vec![vec![Insert(NEAR[1])], vec![Insert(FAR + 1)]];
        let left = vec![NEAR[0], NEAR[1], FAR, FAR + 1];
        Model::with(&[NEAR[0], FAR]).finish(threads, left);
    });
}

/// Two threads move one bucket each of a table with two buckets, so either may move the last one.
#[test]
fn two_ends_of_a_growth() {
    explore(|| {
        let threads = vec![vec![Remove(NEAR[0])], vec![Remove(PARTING)]];
        Model::with(&[NEAR[0], PARTING]).finish(threads, vec![]);
    });
}

/// In a table that grows twice: what a look-up noted before a bucket is moved does not stay valid when the
/// key is inserted into a child.
#[cfg(shuttle)]
#[test]
fn a_miss_across_growths() {
    explore(|| {
        let writer =
            vec![Insert(NEAR[1]), Insert(FAR), Remove(FAR), Insert(NEAR[2]), Insert(PARTING)];
        let threads = vec![
            writer,
            vec![MissThenFind(NEAR[2]), Find(NEAR[0]), MissThenFind(PARTING)],
            vec![MissThenFind(PARTING), Insert(FAR + 1)],
        ];
        let left = vec![NEAR[0], NEAR[1], NEAR[2], PARTING, FAR + 1];
        Model::with(&[NEAR[0]]).finish(threads, left);
    });
}
