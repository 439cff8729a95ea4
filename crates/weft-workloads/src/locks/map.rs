//! A hash map in which each transaction updates ten records. It compares whole transactions in hardware regions
//! with a lock for each record.
//!
//! Y. Wu, K.-L. Tan: *Scalable In-Memory Transaction Processing with HTM*, USENIX ATC 2016, §2.1 and Figure 1.
//!
//! With elision, one lock protects the whole map. A transaction runs in a region, as often as the retry policy
//! allows; then it takes the lock, which aborts all other regions. Without elision, a transaction finds its
//! records, sorts them so that there is no deadlock, and takes the lock of each.
//!
//! ```text
//!   buckets       records, a line each
//!  +--------+    +------+-----+------+---------+
//!  | record |--->| lock | key | next | updates |--> the next one of the bucket
//!  +--------+    +------+-----+------+---------+
//! ```
//!
//! Records are updated in place, and the set of records does not change. So nothing must be remembered, allocated
//! or freed: this is an upper bound of what regions and locks can achieve.

use std::cell::Cell;
use std::sync::Arc;

use arrayvec::ArrayVec;
use weft::Failure;
use weft::htm::lock::{Lock, Mode, Tatas};
use weft::htm::word::{Ordering, Word};
use weft::htm::{Region, Regions};

use super::{Draws, Ran, Structure, compute, scattered};
use crate::finding::Finding;
use crate::popularity::{Course, Pick, draw_zipf};
use crate::workload::Condition;

/// The number of records that a transaction updates.
const UPDATES: usize = 10;

/// The map of records.
#[derive(Debug)]
pub struct Map {
    is_elided: bool,
    lock: Coarse,
    /// The first record of each bucket, counted from 1; 0 for an empty bucket.
    buckets: Box<[Word]>,
    records: Box<[Record]>,
    drawn: Arc<[Pick]>,
}

/// The lock of the whole map. It has a pair of cache lines of its own, because they are fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Coarse(Tatas);

impl Coarse {
    fn is_held(&self) -> bool {
        self.0.excludes(Mode::Exclusive)
    }
}

/// A record, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Record {
    lock: Tatas,
    key: Word,
    next: Word,
    updates: Word,
}

// Relaxed, below: keys and buckets do not change after loading. Updates are made under a lock, or in the region
// that replaces it.

impl Record {
    fn new(key: u64) -> Record {
        let [key, next, updates] = [key, 0, 0].map(Word::new);
        Record { lock: Tatas::default(), key, next, updates }
    }

    #[inline(always)]
    fn update(&self) {
        self.updates.store(self.updates.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Map {
    /// Creates a map whose records have a popularity with skew `theta`, with one elided lock or a lock for each
    /// record.
    pub fn new(records: u32, theta: f64, seed: u64, is_elided: bool) -> Self {
        let count = (records as usize).next_power_of_two();
        let map = Map {
            is_elided,
            lock: Coarse::default(),
            buckets: (0..count).map(|_| Word::new(0)).collect(),
            records: (0..records).map(|key| Record::new(key.into())).collect(),
            drawn: draw_zipf(records.into(), theta, seed),
        };
        for (number, record) in (1..).zip(&map.records) {
            let bucket = map.bucket(record.key.load(Ordering::Relaxed));
            record.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
            bucket.store(number, Ordering::Relaxed);
        }
        map
    }

    #[inline(always)]
    fn bucket(&self, key: u64) -> &Word {
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Returns the position of the record with this key.
    #[inline(always)]
    fn find(&self, key: u64) -> usize {
        let mut number = self.bucket(key).load(Ordering::Relaxed);
        loop {
            let place = number.checked_sub(1).expect("every key that is drawn is there") as usize;
            let record = &self.records[place];
            if record.key.load(Ordering::Relaxed) == key {
                return place;
            }
            number = record.next.load(Ordering::Relaxed);
        }
    }

    /// Makes all updates in one region, or under the lock of the map.
    #[inline]
    fn update_at_once(&self, regions: &Regions, keys: &[u64]) {
        let update = || keys.iter().for_each(|&key| self.records[self.find(key)].update());
        let attempts = Cell::new(0);
        let in_region = |region: &Region| {
            // On a processor, no two attempts take exactly the same time. On the simulated machine they do, so two
            // conflicting regions would conflict again forever; a delay separates them. (On a processor an abort
            // undoes the count.)
            let attempt = attempts.replace(attempts.get() + 1);
            if attempt > 0 {
                compute(scattered(keys[0] as u32 ^ keys[1] as u32 ^ attempt << 24).into());
            }
            if self.lock.is_held() {
                region.abort_locked();
            }
            update();
        };
        if regions.run(in_region, || self.lock.is_held()).is_none() {
            self.lock.0.hold(Mode::Exclusive, update);
        }
    }

    /// Makes all updates, each under the lock of its record.
    #[inline]
    fn update_locked(&self, keys: &[u64]) {
        let found = keys.iter().map(|&key| self.find(key));
        let mut places: ArrayVec<usize, UPDATES> = found.collect();
        places.sort_unstable();
        // Ascending order prevents deadlocks.
        self.hold_all(&places, &mut || {
            places.iter().for_each(|&place| self.records[place].update());
        });
    }

    /// Takes the locks of the records at these positions, which are sorted; each once.
    fn hold_all(&self, places: &[usize], body: &mut dyn FnMut()) {
        let Some((&first, rest)) = places.split_first() else { return body() };
        match rest.first() {
            Some(&next) if next == first => self.hold_all(rest, body),
            _ => self.records[first].lock.hold(Mode::Exclusive, || self.hold_all(rest, body)),
        }
    }
}

impl Structure for Map {
    const TRANSACTIONS: &'static [&'static str] = &["update"];
    /// The thread's course through the drawn keys.
    type Worker = Keys;

    fn worker(&self, seed: u64, thread: usize, threads: usize) -> Result<Keys, Failure> {
        Ok(Keys(Course::new(&self.drawn, seed, thread, threads)))
    }

    fn is_elided(&self) -> bool {
        self.is_elided
    }

    #[inline]
    fn execute(&self, keys: &mut Keys, regions: &Regions, _draws: &mut Draws) -> Ran {
        let keys: [u64; UPDATES] = std::array::from_fn(|_| keys.0.draw().record());
        match self.is_elided {
            true => self.update_at_once(regions, &keys),
            false => self.update_locked(&keys),
        }
        Ran::updating(0, UPDATES as u64)
    }

    fn conditions(&self, updates: u64) -> Vec<Condition> {
        let mut found = Finding::new("every record is where its key leads to");
        let mut sum = 0;
        for (place, record) in self.records.iter().enumerate() {
            let key = record.key.load(Ordering::Relaxed);
            found.check(self.find(key) == place, format_args!("{key}"));
            sum += record.updates.load(Ordering::Relaxed);
        }
        let mut counted = Finding::new("the records were updated as often as transactions say");
        counted.check(sum == updates, format_args!("{sum} and {updates}"));
        vec![found.into_condition(), counted.into_condition()]
    }
}

/// A client's course through the drawn keys.
#[derive(Debug)]
pub struct Keys(Course);

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an update without counting it: verification must find this.
    #[test]
    fn an_update_that_is_not_counted_is_found() {
        let map = Map::new(100, 0.0, 1, false);
        map.update_locked(&[7, 3, 7, 99, 0, 1, 2, 4, 5, 6]);
        assert_eq!(map.records[map.find(7)].updates.load(Ordering::Relaxed), 2);
        assert!(map.conditions(10).iter().all(|condition| condition.holds));
        map.records[3].update();
        assert!(!map.conditions(10)[1].holds);
    }
}
