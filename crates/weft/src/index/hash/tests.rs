//! Tests of the table: against a map of the standard library, and with several threads.

use std::cmp;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use proptest::prelude::*;
use weft_htm::Statistics;
use weft_htm::word::{Ordering, Word, WordPointer, fence};

use super::super::test_machine::Machine;
use super::super::test_memory::{TestMemory, TestWorker};
use super::super::{IndexKey, IndexWorker, Insertion, Lookup, NodeVersion};
use super::{Bucket, HashTable};

/// A key that the tests make from a number.
pub(super) trait TestKey: IndexKey + Hash {
    fn of(number: u64) -> Self;
}

impl TestKey for u64 {
    fn of(number: u64) -> Self {
        number
    }
}

/// A key whose hash has few values, so chains are long, whatever the size of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CollidingKey(u64);

impl TestKey for CollidingKey {
    fn of(number: u64) -> Self {
        CollidingKey(number)
    }
}

impl IndexKey for CollidingKey {
    type KeySlot = Word;

    fn compare(&self, slot: &Word, is_current: impl Fn() -> bool) -> Option<cmp::Ordering> {
        self.0.compare(slot, is_current)
    }

    fn load(slot: &Word, is_current: impl Fn() -> bool) -> Option<Self> {
        u64::load(slot, is_current).map(CollidingKey)
    }

    fn store(&self, slot: &Word, worker: &impl IndexWorker) {
        self.0.store(slot, worker);
    }

    fn move_slot(from: &Word, to: &Word) {
        u64::move_slot(from, to);
    }

    fn retire(_slot: &Word, _worker: &impl IndexWorker) {}

    fn hash(&self) -> u64 {
        (self.0 % 5) << 60
    }
}

/// A key that is kept out of line, in a block whose second word proves that the block holds a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OutOfLineKey(u64);

impl OutOfLineKey {
    const LAYOUT: std::alloc::Layout = std::alloc::Layout::new::<[u64; 2]>();
}

impl TestKey for OutOfLineKey {
    fn of(number: u64) -> Self {
        OutOfLineKey(number)
    }
}

/// Two words, so that a bucket holds two entries.
pub(super) struct OutOfLineSlot {
    block: WordPointer<[u64; 2]>,
    _unused: Word,
}

impl Default for OutOfLineSlot {
    fn default() -> Self {
        OutOfLineSlot { block: WordPointer::new(ptr::null_mut()), _unused: Word::new(0) }
    }
}

impl IndexKey for OutOfLineKey {
    type KeySlot = OutOfLineSlot;

    fn compare(
        &self,
        slot: &OutOfLineSlot,
        is_current: impl Fn() -> bool,
    ) -> Option<cmp::Ordering> {
        Some(self.cmp(&Self::load(slot, is_current)?))
    }

    fn load(slot: &OutOfLineSlot, is_current: impl Fn() -> bool) -> Option<Self> {
        let block = slot.block.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if !is_current() {
            return None;
        }
        // SAFETY: the bucket has not changed since it was entered, so this is a key's block. It is not freed
        // while the test's worker is pinned.
        let [number, proof] = unsafe { *block };
        assert_eq!(proof, !number, "not a key: the block was freed or never written");
        Some(OutOfLineKey(number))
    }

    fn store(&self, slot: &OutOfLineSlot, worker: &impl IndexWorker) {
        let block = worker.allocate(Self::LAYOUT).cast::<[u64; 2]>();
        // SAFETY: the block was just allocated with this layout.
        unsafe { block.write([self.0, !self.0]) };
        slot.block.store(block.as_ptr(), Ordering::Relaxed);
    }

    fn move_slot(from: &OutOfLineSlot, to: &OutOfLineSlot) {
        to.block.store(from.block.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn retire(slot: &OutOfLineSlot, worker: &impl IndexWorker) {
        let block = NonNull::new(slot.block.load(Ordering::Relaxed)).expect("a key");
        // SAFETY: it came from `store`, and the caller has removed the key from the table.
        unsafe { worker.retire(block.cast(), Self::LAYOUT) };
    }

    fn hash(&self) -> u64 {
        IndexKey::hash(&self.0)
    }
}

/// Returns the current value of a noted version word.
fn value(noted: NodeVersion) -> u64 {
    // SAFETY: the tests read a noted version only while the worker that got it is pinned.
    unsafe { noted.word.as_ref() }.load(Ordering::Acquire)
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Get(u64),
    Insert(u64, u64),
    Remove(u64),
    RemoveOther(u64),
}

pub(super) fn steps(keys: u64, length: usize) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..keys;
    let step = prop_oneof![
        2 => key.clone().prop_map(Step::Get),
        4 => (key.clone(), 1..u64::MAX).prop_map(|(key, address)| Step::Insert(key, address)),
        2 => key.clone().prop_map(Step::Remove),
        1 => key.prop_map(Step::RemoveOther),
    ];
    prop::collection::vec(step, 0..length)
}

/// Runs `steps` on a table and on a map, and compares every result, versions included.
pub(super) fn agrees_with_a_map<K: TestKey>(steps: Vec<Step>, machine: &Machine) {
    let memory = Arc::new(TestMemory::default());
    let _thread = (machine.begin_thread)(0);
    let worker = memory.worker_with(&machine.htm);
    let pin = worker.pin();
    let mut table = HashTable::<K>::new(&worker);
    let mut map = HashMap::<u64, u64>::new();
    let mut missed = HashMap::<u64, NodeVersion>::new();
    for step in steps {
        match step {
            Step::Get(number) => match table.get(&K::of(number)) {
                Lookup::Found(address) => assert_eq!(map.get(&number), Some(&address)),
                Lookup::Absent(noted) => {
                    assert_eq!(map.get(&number), None);
                    assert_eq!(value(noted), noted.version, "nothing has changed since");
                    missed.insert(number, noted);
                }
            },
            Step::Insert(number, address) => {
                match table.get_or_insert(&K::of(number), address, &worker) {
                    Insertion::Found(found) => assert_eq!(map.get(&number), Some(&found)),
                    Insertion::Inserted { change, sibling } => {
                        assert_eq!(map.insert(number, address), None);
                        assert_eq!(sibling, None);
                        let noted = NodeVersion { word: change.word, version: change.after };
                        assert_eq!(value(noted), change.after);
                        assert_ne!(change.before, change.after);
                        if let Some(noted) = missed.remove(&number) {
                            assert_ne!(value(noted), noted.version, "a phantom");
                        }
                    }
                }
            }
            Step::Remove(number) => {
                let address = map.remove(&number);
                assert_eq!(
                    table.remove(&K::of(number), address.unwrap_or(1), &worker),
                    address.is_some()
                );
            }
            Step::RemoveOther(number) => {
                let other = map.get(&number).map_or(7, |address| address ^ 1);
                assert!(!table.remove(&K::of(number), other, &worker));
            }
        }
    }
    let mut walked = HashMap::new();
    table.for_each(|key, address| assert_eq!(walked.insert(key, address), None));
    let expected: HashMap<K, u64> = map.iter().map(|(&key, &value)| (K::of(key), value)).collect();
    assert_eq!(walked, expected);
    table.clear(&worker);
    assert_eq!(memory.in_use(), 0);
    drop(pin);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Few keys, so each is inserted and removed again and again.
    #[test]
    fn few_keys_agree_with_a_map(steps in steps(24, 600)) {
        agrees_with_a_map::<u64>(steps.clone(), &Machine::software());
        agrees_with_a_map::<CollidingKey>(steps.clone(), &Machine::software());
        agrees_with_a_map::<OutOfLineKey>(steps, &Machine::software());
    }

    /// Many keys, so the table grows several times during the test.
    #[test]
    fn many_keys_agree_with_a_map(steps in steps(3_000, 6_000)) {
        agrees_with_a_map::<u64>(steps.clone(), &Machine::software());
        agrees_with_a_map::<OutOfLineKey>(steps, &Machine::software());
    }
}

#[test]
fn a_bucket_is_a_cache_line() {
    assert_eq!(size_of::<Bucket<u64>>(), 64);
    assert_eq!(Bucket::<u64>::ENTRIES, 3);
    assert_eq!(size_of::<Bucket<OutOfLineKey>>(), 64);
    assert_eq!(Bucket::<OutOfLineKey>::ENTRIES, 2);
}

/// Overflow buckets and old arrays are given back while the table lives.
#[test]
fn an_emptied_table_keeps_one_array() {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let mut table = HashTable::<CollidingKey>::new(&worker);
    for number in 1..=500 {
        let _pin = worker.pin();
        table.get_or_insert(&CollidingKey(number), number, &worker);
    }
    assert!(memory.in_use() > 100, "the chains are long");
    for number in 1..=500 {
        let _pin = worker.pin();
        assert!(table.remove(&CollidingKey(number), number, &worker));
    }
    assert_eq!(memory.in_use(), 2, "an array and its buckets");
    table.clear(&worker);
}

/// Keys that collide lengthen their chain, but do not make the table grow without end.
#[test]
fn colliding_keys_do_not_inflate_the_table() {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let _pin = worker.pin();
    let mut table = HashTable::<CollidingKey>::new(&worker);
    for number in 1..=5_000 {
        table.get_or_insert(&CollidingKey(number), number, &worker);
    }
    assert!(table.array().bucket_count() <= 128);
    table.clear(&worker);
}

/// A table created for a number of keys holds them without growing.
#[test]
fn a_table_with_capacity_does_not_grow() {
    let memory = Arc::new(TestMemory::default());
    let worker = memory.worker();
    let _pin = worker.pin();
    for expected in [1_000_u64, 1_137, 9_000, 18_000, 30_000] {
        let mut table = HashTable::<u64>::with_capacity(expected as usize, &worker);
        let before = table.array().bucket_count();
        for number in 0..expected * 9 / 10 {
            table.get_or_insert(&number, 1, &worker);
        }
        assert!(table.array().next().is_none(), "{expected} keys in {before} buckets");
        table.clear(&worker);
    }
}

/// Runs `body` on `count` threads at once, each with a worker and a random generator of its own. Prints the
/// seed that repeats the choices of a failed run.
fn on_threads(
    memory: &Arc<TestMemory>,
    machine: &Machine,
    count: u64,
    body: impl Fn(u64, TestWorker, fastrand::Rng) + Sync,
) {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    let start = Barrier::new(count as usize);
    thread::scope(|scope| {
        for id in 0..count {
            let (body, start) = (&body, &start);
            scope.spawn(move || {
                let _thread = (machine.begin_thread)(seed ^ id);
                start.wait();
                body(
                    id,
                    memory.worker_with(&machine.htm_of_thread(id)),
                    fastrand::Rng::with_seed(seed ^ id),
                );
            });
        }
    });
}

/// Protects three facts while a table grows from the smallest size. What was inserted is found from then on,
/// also by other threads. A key that is inserted and removed all the time is there exactly if its only writer
/// left it there. If a thread misses a key and then finds it, the version that it noted has changed.
pub(super) fn nothing_is_lost_while_growing<K: TestKey>(
    threads: u64,
    keys: u64,
    machine: &Machine,
) -> Statistics {
    let memory = Arc::new(TestMemory::default());
    let first = memory.worker();
    let mut table = HashTable::<K>::new(&first);
    // How many stable keys of each thread are in the table.
    let progress: Vec<Word> = (0..threads).map(|_| Word::new(0)).collect();
    let stable = |thread: u64, number: u64| K::of(2 * (number * threads + thread));
    let churning = |thread: u64, number: u64| K::of(2 * (number * threads + thread) + 1);
    let statistics = Mutex::new(Statistics::default());
    on_threads(&memory, machine, threads, |id, worker, mut random| {
        let mut churn = [0_u64; 64];
        for number in 0..keys {
            let pin = worker.pin();
            let inserted = table.get_or_insert(&stable(id, number), number + 1, &worker);
            assert!(matches!(inserted, Insertion::Inserted { .. }));
            progress[id as usize].store(number + 1, Ordering::Release);

            let slot = random.u64(..64);
            let key = churning(id, slot);
            let address = &mut churn[slot as usize];
            if *address == 0 {
                *address = random.u64(1..);
                let inserted = table.get_or_insert(&key, *address, &worker);
                assert!(matches!(inserted, Insertion::Inserted { .. }));
            } else {
                assert_eq!(table.get(&key), Lookup::Found(*address));
                assert!(!table.remove(&key, *address ^ 1, &worker));
                assert!(table.remove(&key, *address, &worker));
                *address = 0;
            }

            let other = random.u64(..threads);
            let end = progress[other as usize].load(Ordering::Acquire);
            if end > 0 {
                let number = random.u64(..end);
                let found = table.get(&stable(other, number));
                assert_eq!(found, Lookup::Found(number + 1));
            }
            if let Lookup::Absent(noted) = table.get(&stable(other, end)) {
                thread::yield_now();
                if table.get(&stable(other, end)) == Lookup::Found(end + 1) {
                    assert_ne!(value(noted), noted.version, "a phantom");
                }
            }
            drop(pin);
        }
        let _pin = worker.pin();
        for slot in (0..64).filter(|&slot| churn[slot as usize] != 0) {
            assert!(table.remove(&churning(id, slot), churn[slot as usize], &worker));
        }
        *statistics.lock().unwrap() += worker.regions().statistics();
    });
    let pin = first.pin();
    let mut walked = HashMap::new();
    table.for_each(|key, address| assert_eq!(walked.insert(key, address), None));
    assert_eq!(walked.len() as u64, threads * keys);
    for (id, number) in (0..threads).flat_map(|id| (0..keys).map(move |number| (id, number))) {
        assert_eq!(walked.get(&stable(id, number)), Some(&(number + 1)));
    }
    table.clear(&first);
    drop(pin);
    assert_eq!(memory.in_use(), 0);
    statistics.into_inner().unwrap()
}

#[test]
fn nothing_is_lost_while_growing_with_words() {
    nothing_is_lost_while_growing::<u64>(4, 20_000, &Machine::software());
}

#[test]
fn nothing_is_lost_while_growing_with_keys_out_of_line() {
    nothing_is_lost_while_growing::<OutOfLineKey>(4, 10_000, &Machine::software());
}

#[test]
fn nothing_is_lost_in_long_chains() {
    nothing_is_lost_while_growing::<CollidingKey>(4, 150, &Machine::software());
}

/// If several threads insert the same key at once, one insertion wins, and all the others find its address.
pub(super) fn insertions_have_one_winner<K: TestKey>(rounds: u64, machine: &Machine) {
    const THREADS: u64 = 4;
    let memory = Arc::new(TestMemory::default());
    let first = memory.worker();
    let mut table = HashTable::<K>::new(&first);
    let winners: Vec<Word> = (0..rounds).map(|_| Word::new(0)).collect();
    let finders: Vec<Word> = (0..rounds).map(|_| Word::new(0)).collect();
    on_threads(&memory, machine, THREADS, |id, worker, _| {
        for round in 0..rounds {
            let _pin = worker.pin();
            let address = round * THREADS + id + 1;
            match table.get_or_insert(&K::of(round), address, &worker) {
                Insertion::Inserted { .. } => {
                    assert_eq!(winners[round as usize].swap(address, Ordering::AcqRel), 0);
                }
                Insertion::Found(found) => {
                    finders[round as usize].swap(found, Ordering::AcqRel);
                }
            }
        }
    });
    let _pin = first.pin();
    for round in 0..rounds {
        let winner = winners[round as usize].load(Ordering::Acquire);
        let found = finders[round as usize].load(Ordering::Acquire);
        assert_eq!(winner, found);
        assert_eq!(table.get(&K::of(round)), Lookup::Found(winner));
    }
    table.clear(&first);
}

#[test]
fn insertions_of_one_key_have_one_winner() {
    insertions_have_one_winner::<u64>(30_000, &Machine::software());
    insertions_have_one_winner::<OutOfLineKey>(10_000, &Machine::software());
    insertions_have_one_winner::<CollidingKey>(400, &Machine::software());
}

/// All threads insert and remove the same few keys. Successful insertions and removals of a key alternate:
/// there are as many removals as insertions, or one less if the key is there at the end.
#[test]
fn insertions_and_removals_alternate() {
    const KEYS: u64 = 7;
    let memory = Arc::new(TestMemory::default());
    let first = memory.worker();
    let mut table = HashTable::<OutOfLineKey>::new(&first);
    let balance: Vec<Word> = (0..KEYS).map(|_| Word::new(0)).collect();
    on_threads(&memory, &Machine::software(), 4, |_, worker, mut random| {
        for _ in 0..20_000 {
            let _pin = worker.pin();
            let number = random.u64(..KEYS);
            let key = OutOfLineKey(number);
            let count = &balance[number as usize];
            if random.bool() {
                if let Insertion::Inserted { .. } = table.get_or_insert(&key, number + 1, &worker) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            } else if table.remove(&key, number + 1, &worker) {
                count.fetch_add(u64::MAX, Ordering::Relaxed);
            }
        }
    });
    let _pin = first.pin();
    for number in 0..KEYS {
        let is_present = table.get(&OutOfLineKey(number)) == Lookup::Found(number + 1);
        assert_eq!(balance[number as usize].load(Ordering::Relaxed), u64::from(is_present));
    }
    table.clear(&first);
}

/// A walk beside writers visits each key that is there throughout, and visits it once.
#[test]
fn a_walk_visits_stable_keys_once() {
    const STABLE: u64 = 2_000;
    let memory = Arc::new(TestMemory::default());
    let first = memory.worker();
    let mut table = HashTable::<u64>::new(&first);
    for number in 0..STABLE {
        let _pin = first.pin();
        table.get_or_insert(&number, number + 1, &first);
    }
    let is_done = Word::new(0);
    on_threads(&memory, &Machine::software(), 2, |id, worker, _| {
        if id == 0 {
            for number in STABLE..20 * STABLE {
                let _pin = worker.pin();
                table.get_or_insert(&number, number + 1, &worker);
            }
            is_done.store(1, Ordering::Release);
        } else {
            while is_done.load(Ordering::Acquire) == 0 {
                let _pin = worker.pin();
                let mut visits = HashMap::new();
                table.for_each(|key, address| {
                    assert_eq!(address, key + 1);
                    assert_eq!(visits.insert(key, ()), None, "visited twice");
                });
                assert!((0..STABLE).all(|number| visits.contains_key(&number)));
            }
        }
    });
    let _pin = first.pin();
    table.clear(&first);
}
