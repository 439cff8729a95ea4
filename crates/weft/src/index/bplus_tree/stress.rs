//! Many threads on one tree. Each test prints its seed; the machine determines the interleaving.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::thread;

use weft_htm::Statistics;
use weft_htm::word::{Ordering, Word};

use super::super::test_machine::Machine;
use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{IndexKey, IndexWorker, Insertion, LongKey, Lookup};
use super::testing::{NotedVersion, Scan, TestKey, is_unchanged, noted, scan, verify};
use super::{BPlusTree, Direction, LeafHint};

const THREADS: u64 = 4;
/// How many operations a thread does between two pins.
const TRANSACTION: usize = 50;

fn seed() -> u64 {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    seed
}

/// Runs `work` on [`THREADS`] threads, each with a worker and random numbers of its own. Then checks the
/// tree's shape, calls `check` with its content, clears it, and returns the statistics of the regions.
fn on_threads<K: TestKey>(
    machine: &Machine,
    prepare: impl FnOnce(&BPlusTree<K>, &TestWorker),
    work: impl Fn(u64, &BPlusTree<K>, &TestWorker, &mut fastrand::Rng) + Sync,
    check: impl FnOnce(BTreeMap<K, u64>),
) -> Statistics {
    let seed = seed();
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut tree = BPlusTree::new(&worker);
    prepare(&tree, &worker);
    let statistics = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (tree, work, memory) = (&tree, &work, &memory);
                scope.spawn(move || {
                    let _thread = (machine.begin_thread)(seed ^ thread);
                    let mut random = fastrand::Rng::with_seed(seed ^ thread);
                    let worker = memory.worker_with(&machine.htm_of_thread(thread));
                    work(thread, tree, &worker, &mut random);
                    worker.regions().statistics()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    check(verify(&mut tree));
    tree.clear(&worker);
    assert_eq!(memory.in_use(), 0, "nodes or keys were not given back");
    statistics
}

/// Every thread inserts, removes and looks up keys of its own, which lie between those of the others, and
/// always sees its own last write. Most keys are removed again, so leaves become empty all the time.
pub(super) fn interleaved_keys<K: TestKey>(
    machine: &Machine,
    range: u64,
    transactions: usize,
) -> Statistics {
    let expected = std::sync::Mutex::new(BTreeMap::new());
    on_threads::<K>(
        machine,
        |_, _| {},
        |thread, tree, worker, random| {
            let mut mine: BTreeMap<K, u64> = BTreeMap::new();
            let mut hint = LeafHint::new();
            for transaction in 0..transactions {
                let pin = worker.pin();
                // Phases of growth alternate with phases of shrinking.
                let grows = transaction / 20 % 2 == 0;
                let base = random.u64(..range);
                for step in 0..TRANSACTION as u64 {
                    let number = (base + step) % range * THREADS + thread;
                    let key = K::from_number(number * 40);
                    match mine.get(&key).copied() {
                        Some(address) if !grows || random.u8(..) < 50 => {
                            assert!(tree.remove(&key, address, worker));
                            mine.remove(&key);
                        }
                        Some(address) => {
                            assert_eq!(tree.get(&key, &mut hint), Lookup::Found(address));
                        }
                        None if grows || random.u8(..) < 50 => {
                            let address = random.u64(1..);
                            let done = tree.get_or_insert(&key, address, &mut hint, worker);
                            assert!(matches!(done, Insertion::Inserted { .. }), "{done:?}");
                            mine.insert(key, address);
                        }
                        None => {
                            let lookup = tree.get(&key, &mut hint);
                            assert!(matches!(lookup, Lookup::Absent(_)), "{lookup:?}");
                        }
                    }
                }
                hint.reset();
                drop(pin);
            }
            expected.lock().unwrap().append(&mut mine);
        },
        |content| assert_eq!(content, *expected.lock().unwrap()),
    )
}

#[test]
fn interleaved_one_word_keys() {
    interleaved_keys::<u64>(&Machine::software(), 40, 2_000);
    interleaved_keys::<u64>(&Machine::software(), 4_000, 2_000);
}

#[test]
fn interleaved_two_word_keys() {
    interleaved_keys::<u128>(&Machine::software(), 200, 2_000);
}

#[test]
fn interleaved_long_keys() {
    interleaved_keys::<LongKey>(&Machine::software(), 200, 2_000);
}

/// All threads insert and remove the same keys. For each key one insertion wins, and all threads see its
/// address. Each address is removed by one thread only.
#[test]
fn races_for_a_key_have_one_winner() {
    const KEYS: u64 = 500;
    const ROUNDS: u64 = 60;
    let inserted: Vec<Word> = (0..KEYS).map(|_| Word::new(0)).collect();
    let removed: Vec<Word> = (0..KEYS).map(|_| Word::new(0)).collect();
    on_threads::<u64>(
        &Machine::software(),
        |_, _| {},
        |thread, tree, worker, random| {
            let mut hint = LeafHint::new();
            for round in 0..ROUNDS {
                let pin = worker.pin();
                for key in 0..KEYS {
                    let address = (round * THREADS + thread) * KEYS + key + 1;
                    let here = match tree.get_or_insert(&key, address, &mut hint, worker) {
                        Insertion::Inserted { .. } => {
                            inserted[key as usize].fetch_add(1, Ordering::Relaxed);
                            address
                        }
                        Insertion::Found(other) => {
                            assert_eq!((other - 1) % KEYS, key, "the address of another key");
                            other
                        }
                    };
                    if random.bool() && tree.remove(&key, here, worker) {
                        removed[key as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
                hint.reset();
                drop(pin);
            }
        },
        |content| {
            for key in 0..KEYS {
                let inserted = inserted[key as usize].load(Ordering::Relaxed);
                let removed = removed[key as usize].load(Ordering::Relaxed);
                let left = u64::from(content.contains_key(&key));
                assert_eq!(inserted, removed + left, "key {key}");
            }
        },
    );
}

/// Returns the address that these tests store under the key of `number`.
fn address(number: u64) -> u64 {
    number + 1
}

fn whole<K: IndexKey>(
    tree: &BPlusTree<K>,
    direction: Direction,
    hint: &mut LeafHint<K>,
    worker: &TestWorker,
) -> Scan {
    scan(tree, Bound::Unbounded, Bound::Unbounded, direction, hint, worker)
}

/// Half of the threads insert and remove numbers that are not multiples of 50. The others scan in both
/// directions, and must see every multiple of 50 once, in order.
fn stable_keys_under_scans<K: TestKey>(machine: &Machine, range: u64, rounds: usize) -> Statistics {
    const STABLE: u64 = 50;
    on_threads::<K>(
        machine,
        |tree, worker| {
            let mut hint = LeafHint::new();
            for number in (0..range).step_by(STABLE as usize) {
                let key = K::from_number(number * 40);
                tree.get_or_insert(&key, address(number), &mut hint, worker);
            }
        },
        |thread, tree, worker, random| {
            let mut hint = LeafHint::new();
            for _ in 0..rounds {
                let pin = worker.pin();
                if thread % 2 == 0 {
                    churn(tree, worker, random, &mut hint, range, |number| number % STABLE != 0);
                } else {
                    let direction =
                        if random.bool() { Direction::Forward } else { Direction::Reverse };
                    let mut found = whole(tree, direction, &mut hint, worker).addresses;
                    if direction == Direction::Reverse {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|left, right| left < right), "{direction:?}");
                    let stable = found.iter().filter(|&found| (found - 1) % STABLE == 0);
                    assert_eq!(stable.count() as u64, range.div_ceil(STABLE));
                }
                hint.reset();
                drop(pin);
            }
        },
        |_| {},
    )
}

/// Fills or empties a random stretch of the numbers below `range`, as far as `may_touch` allows.
fn churn<K: TestKey>(
    tree: &BPlusTree<K>,
    worker: &TestWorker,
    random: &mut fastrand::Rng,
    hint: &mut LeafHint<K>,
    range: u64,
    may_touch: impl Fn(u64) -> bool,
) {
    let (start, fills) = (random.u64(..range), random.bool());
    for number in (start..range.min(start + 200)).filter(|&number| may_touch(number)) {
        let key = K::from_number(number * 40);
        if fills {
            tree.get_or_insert(&key, address(number), hint, worker);
        } else {
            tree.remove(&key, address(number), worker);
        }
    }
}

#[test]
fn scans_see_every_stable_one_word_key() {
    stable_keys_under_scans::<u64>(&Machine::software(), 3_000, 400);
}

#[test]
fn scans_see_every_stable_long_key() {
    stable_keys_under_scans::<LongKey>(&Machine::software(), 3_000, 200);
}

/// If all versions that a scan noted are unchanged after a second scan, then both scans saw the same keys. If
/// the transaction inserts a key in between, and updates its noted versions as the insertion reports, then
/// the second scan sees that key in addition and nothing else.
pub(super) fn noted_versions_mean_what_they_say<K: TestKey>(
    machine: &Machine,
    range: u64,
    rounds: usize,
) -> Statistics {
    let confirmed = Word::new(0);
    on_threads::<K>(
        machine,
        |_, _| {},
        |thread, tree, worker, random| {
            let mut hint = LeafHint::new();
            // On a busy machine the other threads may find no range unchanged while the first one churns. They
            // go on after it has ended, until one of them does.
            let goes_on =
                |round| round < rounds || thread != 0 && confirmed.load(Ordering::Relaxed) == 0;
            for _ in (0..).take_while(|&round| goes_on(round)) {
                let pin = worker.pin();
                if thread == 0 {
                    if random.u8(..4) == 0 {
                        std::thread::yield_now();
                    } else {
                        churn(tree, worker, random, &mut hint, range, |_| true);
                    }
                } else if own_insertion_is_told(tree, worker, random, &mut hint, range) {
                    confirmed.fetch_add(1, Ordering::Relaxed);
                }
                hint.reset();
                drop(pin);
            }
        },
        |_| {},
    )
}

/// Scans, inserts a key, and scans again. Returns whether other threads have left the noted versions
/// unchanged.
fn own_insertion_is_told<K: TestKey>(
    tree: &BPlusTree<K>,
    worker: &TestWorker,
    random: &mut fastrand::Rng,
    hint: &mut LeafHint<K>,
    range: u64,
) -> bool {
    let start = random.u64(..range);
    let (from, to) = (K::from_number(start * 40), K::from_number((start + 60) * 40));
    let (from, to) = (Bound::Included(&from), Bound::Excluded(&to));
    let first = scan(tree, from, to, Direction::Forward, hint, worker);
    let mut expected = first.addresses;
    let mut versions = first.versions;

    let number = start + random.u64(..60);
    let key = K::from_number(number * 40);
    if let Insertion::Inserted { change, sibling } =
        tree.get_or_insert(&key, address(number), hint, worker)
    {
        let before: NotedVersion = (change.word.as_ptr().addr(), change.before);
        let Some(own) = versions.iter_mut().find(|version| noted(**version) == before) else {
            return false;
        };
        own.version = change.after;
        versions.extend(sibling);
        let place = expected.partition_point(|&other| other < address(number));
        expected.insert(place, address(number));
    }
    let second = scan(tree, from, to, Direction::Forward, hint, worker);
    let unchanged = versions.iter().all(|version| is_unchanged(*version));
    if unchanged {
        assert_eq!(second.addresses, expected);
    }
    unchanged
}

#[test]
fn noted_versions_of_one_word_keys() {
    noted_versions_mean_what_they_say::<u64>(&Machine::software(), 2_000, 2_000);
}

#[test]
fn noted_versions_of_long_keys() {
    noted_versions_mean_what_they_say::<LongKey>(&Machine::software(), 2_000, 1_000);
}
