//! The benchmark of the hash table.
//!
//! Its memory is touched in advance, as a database's is after a while. So the rows show the cost of
//! the table and not of fresh pages, which varies tenfold on virtual machines. The row "insert,
//! fresh memory" includes that cost.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;

use weft::index::hash::HashTable;
use weft::index::{IndexKey, IndexWorker, Insertion, LongKey, Lookup};
use weft_htm::word::{Ordering, Word};
use weft_htm::{Htm, Regions};

use super::{KEYS, ROUNDS, THREADS, report, time_threads};

pub fn run() {
    measure::<u64>("hash, u64", |number| number);
    measure::<u128>("hash, u128", |number| u128::from(number) << 64 | 7);
    measure::<LongKey>("hash, 24 bytes", |number| {
        let mut bytes = [b'k'; 24];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        LongKey::from(&bytes[..])
    });
}

/// How many lookups are prefetched together.
const BATCH: usize = 8;

fn measure<K: IndexKey>(section: &str, key: impl Fn(u64) -> K + Sync) {
    let mut random = fastrand::Rng::with_seed(42);
    let keys: Vec<K> = (0..KEYS).map(|_| key(random.u64(..))).collect();
    let absent: Vec<K> = (0..KEYS).map(|_| key(random.u64(..))).collect();
    let mut shuffled = keys.clone();
    random.shuffle(&mut shuffled);

    let mut pool = Pool::new();
    let names = [
        "insert, fresh memory",
        "insert while growing",
        "insert in capacity",
        "get",
        "get absent",
        "get prefetched",
        "remove",
    ];
    let mut rows: [Vec<f64>; 7] = Default::default();
    let mut bytes_per_key = [0.0; 2];
    for _ in 0..ROUNDS {
        let fresh = Pool::new();
        let table = HashTable::new(&fresh.worker());
        rows[0].push(time_threads(|thread| insert_all(&table, share(&keys, thread), &fresh)));
        drop(fresh);
        pool.reuse();
        let table = HashTable::new(&pool.worker());
        rows[1].push(time_threads(|thread| insert_all(&table, share(&keys, thread), &pool)));
        bytes_per_key[0] = pool.bytes_in_use() as f64 / KEYS as f64;

        pool.reuse();
        let table = HashTable::with_capacity(KEYS, &pool.worker());
        rows[2].push(time_threads(|thread| insert_all(&table, share(&keys, thread), &pool)));
        bytes_per_key[1] = pool.bytes_in_use() as f64 / KEYS as f64;
        rows[3].push(time_threads(|thread| {
            let (keys, _pinned) = (share(&shuffled, thread), pool.worker());
            keys.iter().for_each(|key| assert_eq!(table.get(key), Lookup::Found(8)));
            keys.len()
        }));
        rows[4].push(time_threads(|thread| {
            let (keys, _pinned) = (share(&absent, thread), pool.worker());
            let is_absent = |key| matches!(table.get(key), Lookup::Absent(_));
            keys.iter().for_each(|key| assert!(is_absent(key)));
            keys.len()
        }));
        rows[5].push(time_threads(|thread| {
            let (keys, _pinned) = (share(&shuffled, thread), pool.worker());
            for batch in keys.chunks(BATCH) {
                batch.iter().for_each(|key| table.prefetch(key));
                batch.iter().for_each(|key| assert_eq!(table.get(key), Lookup::Found(8)));
            }
            keys.len()
        }));
        rows[6].push(time_threads(|thread| {
            let (keys, worker) = (share(&shuffled, thread), pool.worker());
            keys.iter().for_each(|key| assert!(table.remove(key, 8, &worker)));
            keys.len()
        }));
    }
    for (name, row) in names.into_iter().zip(&mut rows) {
        report(section, name, row);
    }
    let [grown, made] = bytes_per_key;
    println!("{section:<28} bytes per key: grown {grown:.0}, in capacity {made:.0}");
}

/// Returns a thread's share of `items`.
fn share<T>(items: &[T], thread: usize) -> &[T] {
    let length = items.len() / THREADS;
    &items[thread * length..][..length]
}

fn insert_all<K: IndexKey>(table: &HashTable<K>, keys: &[K], pool: &Pool) -> usize {
    let worker = pool.worker();
    for key in keys {
        let insertion = table.get_or_insert(key, 8, &worker);
        assert!(matches!(insertion, Insertion::Inserted { .. }), "the keys are distinct");
    }
    keys.len()
}

/// Huge pages for all the tables of one round. Several workers take chunks of them.
struct Pool {
    start: usize,
    /// Bytes handed out.
    taken: Word,
    /// Bytes that the tables have retired. They are not handed out again.
    retired: Word,
}

impl Pool {
    const LAYOUT: Layout = match Layout::from_size_align(384 << 20, 2 << 20) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };
    const CHUNK_BYTES: usize = 64 << 10;

    /// Returns a pool whose pages are not touched yet.
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc(Self::LAYOUT) }).expect("memory");
        #[cfg(target_os = "linux")]
        // SAFETY: the pages belong to this pool; the advice does not change their content.
        unsafe {
            libc::madvise(memory.as_ptr().cast(), Self::LAYOUT.size(), libc::MADV_HUGEPAGE);
        }
        let start = memory.as_ptr().expose_provenance();
        Pool { start, taken: Word::new(0), retired: Word::new(0) }
    }

    /// Makes the whole pool free again, with every page touched.
    fn reuse(&mut self) {
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: `&mut self` shows that the workers, which borrow the pool, are gone. The tables
        // are not used any more.
        unsafe { memory.write_bytes(0xDD, Self::LAYOUT.size()) };
        (self.taken, self.retired) = (Word::new(0), Word::new(0));
    }

    fn worker(&self) -> PoolWorker<'_> {
        let regions = Regions::new(&Htm::software());
        PoolWorker { pool: self, next: Cell::new(0), end: Cell::new(0), regions }
    }

    fn take(&self, bytes: usize) -> usize {
        let offset = self.taken.fetch_add(bytes as u64, Ordering::Relaxed) as usize;
        assert!(offset + bytes <= Self::LAYOUT.size(), "the pool is too small");
        self.start + offset
    }

    fn bytes_in_use(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) - self.retired.load(Ordering::Relaxed)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. The workers are gone, because they borrow
        // the pool, and the tables are not used any more.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(self.start), Self::LAYOUT) };
    }
}

struct PoolWorker<'a> {
    pool: &'a Pool,
    next: Cell<usize>,
    end: Cell<usize>,
    regions: Regions,
}

impl IndexWorker for PoolWorker<'_> {
    fn regions(&self) -> &Regions {
        &self.regions
    }

    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        let address = if layout.size() >= Pool::CHUNK_BYTES {
            self.pool.take(layout.size())
        } else {
            let mut start = self.next.get().next_multiple_of(layout.align());
            if start + layout.size() > self.end.get() {
                start = self.pool.take(Pool::CHUNK_BYTES);
                self.end.set(start + Pool::CHUNK_BYTES);
            }
            self.next.set(start + layout.size());
            start
        };
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("in the pool")
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: retiring a block demands less of the caller than freeing it.
        unsafe { self.retire(block, layout) };
    }

    unsafe fn retire(&self, _block: NonNull<u8>, layout: Layout) {
        self.pool.retired.fetch_add(layout.size() as u64, Ordering::Relaxed);
    }
}
