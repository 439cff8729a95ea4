//! The benchmark of the B+-tree.

use std::ops::Bound;

use weft::index::bplus_tree::{BPlusTree, Direction, LeafHint, Page};
use weft::index::{IndexKey, Insertion, LongKey, Lookup};

use super::memory::{BenchWorker, GlobalWorker, HugePageWorker};
use super::{KEYS, ROUNDS, THREADS, report, time_threads};

pub fn run() {
    measure::<u64, HugePageWorker>("tree, u64", |number| number);
    measure::<u64, GlobalWorker>("tree, u64", |number| number);
    measure::<u128, HugePageWorker>("tree, u128", |number| u128::from(number) << 64 | 7);
    measure::<LongKey, HugePageWorker>("tree, 24 bytes", |number| {
        let mut bytes = [b'k'; 24];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        LongKey::from(&bytes[..])
    });
}

/// Returns a thread's share of `items`.
fn share<T>(items: &[T], thread: usize) -> &[T] {
    let length = items.len() / THREADS;
    &items[thread * length..][..length]
}

fn measure<K: IndexKey, W: BenchWorker>(form: &str, key: impl Fn(u64) -> K + Sync) {
    let section = format!("{form}, {}", W::NAME);
    let mut random = fastrand::Rng::with_seed(42);
    let keys: Vec<K> = (0..KEYS).map(|_| key(random.u64(..))).collect();
    let mut shuffled = keys.clone();
    random.shuffle(&mut shuffled);

    let (mut insert, mut ascend, mut get, mut page, mut short) =
        (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let tree = BPlusTree::new(&W::new());
        insert.push(time_threads(|thread| insert_all(&tree, share(&keys, thread), &W::new())));
        get.push(time_threads(|thread| get_all(&tree, share(&shuffled, thread))));
        page.push(time_threads(|_| scan_all(&tree, &W::new())));
        short.push(time_threads(|thread| scan_short(&tree, share(&shuffled, thread), &W::new())));

        let tree = BPlusTree::new(&W::new());
        ascend.push(time_threads(|thread| {
            let worker = W::new();
            let mut hint = LeafHint::new();
            let count = (KEYS / THREADS) as u64;
            for number in 0..count {
                let key = key((thread as u64) << 32 | number);
                tree.get_or_insert(&key, 8, &mut hint, &worker);
            }
            count as usize
        }));
    }
    report(&section, "insert random", &mut insert);
    report(&section, "insert ascending", &mut ascend);
    report(&section, "get random", &mut get);
    report(&section, "scan all, per item", &mut page);
    report(&section, "scan 100, per item", &mut short);
}

fn insert_all<K: IndexKey>(tree: &BPlusTree<K>, keys: &[K], worker: &impl BenchWorker) -> usize {
    let mut hint = LeafHint::new();
    for key in keys {
        hint.reset();
        let insertion = tree.get_or_insert(key, 8, &mut hint, worker);
        assert!(matches!(insertion, Insertion::Inserted { .. }), "the keys are distinct");
    }
    keys.len()
}

fn get_all<K: IndexKey>(tree: &BPlusTree<K>, keys: &[K]) -> usize {
    let mut hint = LeafHint::new();
    for key in keys {
        hint.reset();
        assert_eq!(tree.get(key, &mut hint), Lookup::Found(8));
    }
    keys.len()
}

fn scan_all<K: IndexKey>(tree: &BPlusTree<K>, worker: &impl BenchWorker) -> usize {
    let mut count = 0;
    let mut hint = LeafHint::new();
    let mut page = Page::new();
    let mut from = Some(Bound::Unbounded);
    while let Some(start) = from {
        let direction = Direction::Forward;
        tree.read_page(start.as_ref(), Bound::Unbounded, direction, &mut page, &mut hint, worker);
        count += page.addresses().len();
        from = page.take_next();
    }
    assert_eq!(count, KEYS);
    count
}

/// Scans about a hundred keys from each of several random places.
fn scan_short<K: IndexKey>(tree: &BPlusTree<K>, keys: &[K], worker: &impl BenchWorker) -> usize {
    let mut count = 0;
    let mut hint = LeafHint::new();
    let mut page = Page::new();
    for key in keys.iter().step_by(50) {
        hint.reset();
        let mut found = 0;
        let mut from = Some(Bound::Included(key.clone()));
        while let Some(start) = from.filter(|_| found < 100) {
            let direction = Direction::Forward;
            let to = Bound::Unbounded;
            tree.read_page(start.as_ref(), to, direction, &mut page, &mut hint, worker);
            found += page.addresses().len();
            from = page.take_next();
        }
        count += found;
    }
    count
}
