//! A miniature of a storage manager: the critical sections that TATP's transactions go through in Shore-MT, with
//! Shore-MT's locks.
//!
//! `GET_SUBSCRIBER_DATA`, the main transaction measured, has these steps:
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | begin | `occ_rwlock`, shared | reads the histogram, which a checkpoint would block |
//! | lock the row | `mcs` of a bucket of the lock table | counts a request |
//! | fix each page: from the root to the leaf, and that of the row | `tatas` of its frame | reads the frame, and marks it used |
//! | read in the page | `srwlock` of the page, shared | searches, or reads the row; counts a visit |
//! | unlock the row | `mcs` of the bucket | takes the request back |
//! | end | `tatas` of the list of transactions | records the transaction in the thread's place |
//!
//! The other six ([`tatp`]) do the same for each of their rows, one to three in four tables. Three of them begin
//! with a tree of telephone numbers. A transaction that changes a row latches its page exclusively, and appends to
//! the log, as does the commit:
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | change a row | `srwlock` of its page, exclusive | writes the row; counts a visit |
//! | insert or delete a row | `srwlock` of the leaf, exclusive | searches |
//! | log a change, or the commit | `tatas` of the log | writes at its tail |
//!
//! The paper's four locks and what they protect are from its §3.2. That a latch's section counts a visit is from
//! §4.2: these statistics make regions that elide latches conflict. With a coarse latch (§5), an `mcs` of the tree
//! replaces the locks of frames and pages from the root to the leaf; visits are still counted.
//!
//! Sections are as short as possible here, while Shore-MT runs hundreds of instructions under a latch.
//! [`working`](StorageManager::working) makes the pages' sections compute for an adjustable time: the longer a
//! region lasts after its first store, the more often it conflicts.
//!
//! Not modelled are lock inheritance (in the paper's runs all locks above the row's are inherited; they are left
//! out here), deadlock detection, waits for row locks, roll-backs, the buffer pool's replacement, and threads that
//! sleep. Trees do not change: each possible forwarding has a fixed place, where it exists or not. So sections are
//! a larger part of the transaction than in Shore-MT, and gains and losses are larger.

mod pages;
mod tatp;

use weft::Failure;
use weft::htm::Regions;
use weft::htm::lock::{Elidable, Mcs, OccRwLock, Tatas};
use weft::htm::word::{Ordering, Word};

use super::{Draws, Ran, Row, Structure, scattered};
use crate::finding::Finding;
use crate::tatp::{Mix, TransactionType};
use crate::workload::Condition;
use pages::{Pool, Table, Tree};
use tatp::{FORWARDINGS, TYPES};

/// The number of buckets of the lock table.
const BUCKETS: usize = 4096;

/// The number of places in the list of transactions; threads may share one.
const PLACES: usize = 64;

/// The kinds of locks that are elided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The lock of checkpoints and histograms.
    pub occ_rwlock: bool,
    /// The locks of frames, of the log, and of the list of transactions.
    pub tatas: bool,
    /// The locks of the lock table, and the coarse latch.
    pub mcs: bool,
    /// The latches of pages.
    pub srwlock: bool,
}

/// The structures of the storage manager, and their locks.
#[derive(Debug)]
pub struct StorageManager {
    kinds: Kinds,
    checkpoint: Elidable<OccRwLock>,
    histogram: Row,
    buckets: Box<[Bucket]>,
    pool: Pool,
    log: Log,
    transactions: Elidable<Tatas>,
    places: Box<[Row]>,
    next_place: Word,
    subscribers: Table,
    accesses: Table,
    facilities: Table,
    forwardings: Table,
    /// The tree of telephone numbers.
    numbers: Tree,
}

/// A bucket of the lock table, which holds row locks by the hash of their keys.
#[derive(Debug)]
struct Bucket {
    lock: Elidable<Mcs>,
    requests: Word,
}

/// The log; only its tail is modelled.
#[derive(Debug)]
struct Log {
    lock: Elidable<Tatas>,
    tail: Row,
}

impl StorageManager {
    /// Creates a storage manager with this number of subscribers, in which the locks of these kinds are elided.
    /// With `coarse`, each tree is probed under one latch. It has only the tables that the transactions of `mix`
    /// need.
    pub fn new(subscribers: u32, mix: Mix, kinds: Kinds, coarse: bool) -> Self {
        let others = if Self::has_other_tables(mix) { subscribers } else { 0 };
        let of_type = |key: u32| Row::new(if is_of_type(key) { key + 1 } else { 0 });
        let forwarding = |key: u32| {
            let row = Row::new(key + 1);
            if is_forwarded_at_first(key) {
                row.update();
            }
            row
        };
        let table =
            |number, keys, row: &dyn Fn(u32) -> Row| Table::new((number, keys), kinds, coarse, row);
        let bucket = |_| Bucket { lock: Elidable::new(kinds.mcs), requests: Word::new(0) };
        StorageManager {
            kinds,
            checkpoint: Elidable::new(kinds.occ_rwlock),
            histogram: Row::new(0),
            buckets: (0..BUCKETS).map(bucket).collect(),
            pool: Pool::new(kinds),
            log: Log { lock: Elidable::new(kinds.tatas), tail: Row::new(0) },
            transactions: Elidable::new(kinds.tatas),
            places: (0..PLACES).map(|_| Row::new(0)).collect(),
            next_place: Word::new(0),
            subscribers: table(0, subscribers, &|key| Row::new(key + 1)),
            accesses: table(1, others * TYPES, &of_type),
            facilities: table(2, others * TYPES, &of_type),
            forwardings: table(3, others * TYPES * FORWARDINGS, &forwarding),
            numbers: Tree::new(4, others, kinds, coarse),
        }
    }

    /// Returns whether these transactions access more than the table of subscribers.
    pub fn has_other_tables(mix: Mix) -> bool {
        mix != Mix::only(TransactionType::GetSubscriberData)
    }

    /// Returns the same storage manager, with `work` steps of computing in each section of a page. A step is a
    /// cycle of the simulated machine; on a processor, an iteration of a loop, of about a cycle.
    pub fn working(mut self, work: u64) -> Self {
        self.pool.work = work;
        self
    }

    fn bucket(&self, table: &Table, key: u32) -> &Bucket {
        &self.buckets[(scattered(key + 1) as usize + table.tree.number * 1031) % BUCKETS]
    }

    fn tables(&self) -> [&Table; 4] {
        [&self.subscribers, &self.accesses, &self.facilities, &self.forwardings]
    }
}

/// Returns whether a row of this type exists. A subscriber has one to four of the four types, each number equally
/// often.
fn is_of_type(key: u32) -> bool {
    key % TYPES <= scattered(key / TYPES) % TYPES
}

/// Returns whether a facility has this forwarding when loaded. It has zero to three of three, each number equally
/// often.
fn is_forwarded_at_first(key: u32) -> bool {
    let facility = key / FORWARDINGS;
    is_of_type(facility) && key % FORWARDINGS < scattered(facility) % FORWARDINGS
}

impl Structure for StorageManager {
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    /// The thread's place in the list of transactions.
    type Worker = usize;

    fn worker(&self, _seed: u64, _thread: usize, _threads: usize) -> Result<usize, Failure> {
        // ORDERING: relaxed, because only the numbers' being different matters.
        Ok(self.next_place.fetch_add(1, Ordering::Relaxed) as usize % PLACES)
    }

    fn is_elided(&self) -> bool {
        self.kinds != Kinds::default()
    }

    #[inline]
    fn execute(&self, place: &mut usize, regions: &Regions, draws: &mut Draws) -> Ran {
        self.run(*place, regions, draws)
    }

    fn conditions(&self, updates: u64) -> Vec<Condition> {
        let mut requests = Finding::new("every request for a row's lock was taken back");
        for (position, bucket) in self.buckets.iter().enumerate() {
            let left = bucket.requests.load(Ordering::Relaxed);
            requests.check(left == 0, format_args!("bucket {position}: {left}"));
        }
        let mut transactions = Finding::new("every note of a transaction is whole");
        for (position, place) in self.places.iter().enumerate() {
            transactions.check(place.is_whole(), format_args!("{position}: {:?}", place.words()));
        }
        let mut rows = Finding::new("every row is where the tree leads to, and whole");
        let mut sum = 0;
        for (number, table) in self.tables().into_iter().enumerate() {
            for (key, row) in table.rows() {
                let is_here = [0, u64::from(key) + 1].contains(&row.number());
                let words = || row.words();
                rows.check(
                    is_here && row.is_whole(),
                    format_args!("{number}, {key}: {:?}", words()),
                );
                sum += row.updates();
            }
        }
        let forwardings = self.forwardings.rows();
        let loaded = forwardings.filter(|&(key, _)| is_forwarded_at_first(key)).count() as u64;
        let mut counted = Finding::new("the rows were updated as often as transactions say");
        let sum = sum - loaded;
        counted.check(sum == updates, format_args!("{sum} and {updates}"));
        let changes = self.log.tail.updates();
        let mut logged = Finding::new("every change is in the log");
        let holds = self.log.tail.is_whole() && changes >= updates;
        logged.check(holds, format_args!("{changes} and {updates}"));
        [requests, transactions, rows, counted, logged].map(Finding::into_condition).into()
    }
}
