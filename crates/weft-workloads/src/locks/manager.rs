//! A miniature of a storage manager: the critical sections that TATP's transactions go through in
//! Shore-MT, with the locks that Shore-MT has there.
//!
//! `GET_SUBSCRIBER_DATA`, which is most of what is measured, in the order of its steps:
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | begin | `occ_rwlock`, shared | reads the histogram, which a checkpoint would keep still |
//! | lock the row | `mcs` of a bucket of the lock table | counts a request |
//! | fix each page: from the root to the leaf, and that of the row | `tatas` of its frame | looks at the frame, marks it used |
//! | read in it | `srwlock` of the page, shared | searches, or reads the row; counts a visit |
//! | unlock the row | `mcs` of the bucket | takes the request back |
//! | end | `tatas` of the list of transactions | notes the transaction in the thread's place |
//!
//! The other six ([`tatp`]) do the same for each of their rows, of which there are one to three, in four tables; and
//! three begin in a tree of telephone numbers. What changes a row latches its page exclusively, and appends to the
//! log, as does the commit:
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | change a row | `srwlock` of its page, exclusive | writes the row; counts a visit |
//! | insert or delete one | `srwlock` of the leaf, exclusive | searches |
//! | log a change, or the commit | `tatas` of the log | writes at its tail |
//!
//! The paper's four locks and what they protect are from its §3.2; that a latch's section counts a
//! visit is from §4.2, where such statistics make the elided latches collide. With a coarse latch
//! (§5) an `mcs` of the tree takes the place of the frames' and the pages' from the root to the
//! leaf; the visits are counted all the same.
//!
//! Sections are as short as they can be here, while Shore-MT runs hundreds of instructions under a
//! latch. [`working`](StorageManager::working) has the pages' sections compute as well, for as long as
//! one likes: how long a region lasts after its first store decides how often it collides.
//!
//! What is not there: lock inheritance (all locks above the row's are inherited in the paper's
//! runs, and are left out here), deadlock detection, and locks that anybody waits for, roll-backs, the buffer
//! pool's replacement, and threads that sleep. Trees do not change: a forwarding has a place, and is there or not.
//! So sections are a larger part of the transaction than in Shore-MT, and gains and losses larger.

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

/// Buckets of the lock table.
const BUCKETS: usize = 4096;

/// Places in the list of transactions; threads may share one.
const PLACES: usize = 64;

/// Which of the locks are elided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// That of checkpoints and histograms.
    pub occ_rwlock: bool,
    /// Those of frames, of the log, and of the list of transactions.
    pub tatas: bool,
    /// Those of the lock table, and the coarse latch.
    pub mcs: bool,
    /// The pages' latches.
    pub srwlock: bool,
}

/// The structures, and their locks.
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
    /// Telephone numbers.
    numbers: Tree,
}

/// Rows' locks, by the hash of their keys.
#[derive(Debug)]
struct Bucket {
    lock: Elidable<Mcs>,
    requests: Word,
}

/// The log, of which only the tail is there.
#[derive(Debug)]
struct Log {
    lock: Elidable<Tatas>,
    tail: Row,
}

impl StorageManager {
    /// So many subscribers, with these kinds of locks elided; with `coarse`, trees are probed under one
    /// latch each. There is as much as the transactions of `mix` need.
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

    /// Whether these transactions go to more than the subscribers.
    pub fn has_other_tables(mix: Mix) -> bool {
        mix != Mix::only(TransactionType::GetSubscriberData)
    }

    /// The same, with so many steps of computing in each section of a page: cycles of the simulated
    /// machine; of a processor, turns of a loop, each about a cycle.
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

/// Whether there is a row of a type: a subscriber has one to four of the four types, each count as often.
fn is_of_type(key: u32) -> bool {
    key % TYPES <= scattered(key / TYPES) % TYPES
}

/// Whether a facility has a forwarding when it is loaded: none to three of three, each count as often.
fn is_forwarded_at_first(key: u32) -> bool {
    let facility = key / FORWARDINGS;
    is_of_type(facility) && key % FORWARDINGS < scattered(facility) % FORWARDINGS
}

impl Structure for StorageManager {
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    /// The thread's place in the list of transactions.
    type Worker = usize;

    fn worker(&self, _seed: u64, _thread: usize, _threads: usize) -> Result<usize, Failure> {
        // ORDERING: relaxed, since only the numbers' being different matters.
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
