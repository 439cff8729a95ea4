//! A small storage manager with the structures of Shore-MT that TATP's transactions go through, and its locks.
//!
//! Shore-MT is the paper's system. Its source shows the structures, their sizes and the order of its locks (the
//! version of EPFL's DIAS laboratory of November 2012, with lock inheritance). Names in brackets are its own.
//!
//! - `rows`: pages of 8 KiB with slots (`page_s`);
//! - `tree`: B+-trees over such pages (`btree_impl`), and the tables that they lead to;
//! - `pool`: the frames of the buffer pool, and the hash table that finds them (`bf_core_m`, `bfcb_t`);
//! - `lock_table`: lock heads, requests, the caches of transactions, lock inheritance (`lock_core_m`);
//! - `list`: lists of requests and of transactions;
//! - `transactions`: the objects of transactions and their list (`xct_t`);
//! - `log`: the log buffer (`log_core`);
//! - `thread`: the statistics of a thread, and its list of latches (`latch_holder_t`);
//! - `protected`: the locks with their fences;
//! - [`parts`](Part): what of all this can be left out, to see what it contributes;
//! - `tatp`: the seven transactions.
//!
//! `GET_SUBSCRIBER_DATA`, the main transaction measured, has these steps. An indented step is nested in the one above
//! it: in a region it becomes a part of that region.
//!
//! | step | lock | section |
//! | --- | --- | --- |
//! | begin | `occ_rwlock` of mounts, shared | sets the transaction's object |
//! | – join the list | `mcs` of the list | gets a number, is the last of the list |
//! | – attach the thread | `mcs` of the transaction | hands over the caches |
//! | lock the index: twice | `mcs` of the transaction's locks | finds it in the cache, or reclaims an inherited lock |
//! | fix the root, an inner page, the leaf | `tatas` of each bucket | pins the frame, unless it is pinned already |
//! | – search in the page | `srwlock` of the page, shared | counts a holder, searches; fixes the next page inside |
//! | – – lock the page and the row: in the leaf | `mcs` of the transaction's locks | looks for ancestors in the cache |
//! | – – – find the lock head | `mcs` of the bucket | finds or creates the head |
//! | – – – request the lock | `mcs` of the head | adds a request to the queue |
//! | lock the row again | the same | finds its own request |
//! | fix the page of the row | `tatas`, as above | |
//! | – read the row | `srwlock` of the page, shared | counts a holder, reads |
//! | change to committing | `mcs` of the transaction | |
//! | end | `occ_rwlock` of checkpoints, shared | changes the state |
//! | – leave the list | `mcs` of the list | |
//! | release the locks | `mcs` of the transaction's locks | hands those of stores to the thread |
//! | – release a lock, twice | `mcs` of the head, then of the bucket | frees the head if its queue is empty |
//! | detach the thread, reset: twice | `mcs` of the transaction | |
//!
//! The other six ([`tatp`]) do the same for each of their rows, one to three in four tables. Three of them begin with
//! an index of telephone numbers. A transaction that changes a row latches its page exclusively. Under the latch it
//! appends to the log (`mcs`), with the row before and after. The commit appends two more records, and asks for the
//! log to be written (`tatas`).
//!
//! The count of a latch's holders is the paper's "statistic variable accessed in the critical sections protected by
//! `srwlock`" (§4.2): Shore-MT increments it when a latch is acquired, and decrements it at the release. With a coarse
//! latch (§5), an `mcs` of the tree replaces the latches from the root to the leaf. Frames are still pinned.
//!
//! No section computes for a chosen time. All that takes time are the accesses themselves.
//!
//! Not modelled are waits for row locks and deadlock detection (each request is granted at once), roll-backs, the
//! replacement of pages, checkpoints, and threads that sleep. Trees do not grow: each possible forwarding has a fixed
//! place, where it exists or not.

mod list;
mod lock_table;
mod log;
mod parts;
mod pool;
mod protected;
mod rows;
mod tatp;
mod thread;
mod transactions;
mod tree;

use weft::Failure;
use weft::htm::Regions;
use weft::htm::word::{Ordering, Word};

use super::{Structure, TransactionResult, TransactionSource, scattered};
use crate::finding::Finding;
use crate::tatp::{Mix, TransactionType};
use crate::workload::Condition;
use lock_table::LockTable;
use log::Log;
use pool::Pool;
use rows::{ROW_WORDS_MAX, SHORT_ROW_WORDS};
use tatp::{FORWARDINGS, TYPES};
use thread::{Session, Thread};
use transactions::Transactions;
use tree::{Latching, Loader, Table, Tree};

pub use parts::{Part, Parts};

/// The most threads that may use a storage manager.
const THREADS_MAX: usize = 512;

/// The kinds of locks that are elided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// The locks of mounts and of checkpoints.
    pub occ_rwlock: bool,
    /// The locks of the buffer pool's buckets, and of the log's flush.
    pub tatas: bool,
    /// The locks of the lock table, of transactions, of their list, and of the log; and the coarse latch.
    pub mcs: bool,
    /// The latches of pages.
    pub srwlock: bool,
}

/// The structures of the storage manager, and their locks.
#[derive(Debug)]
pub struct StorageManager {
    kinds: Kinds,
    parts: Parts,
    pool: Pool,
    lock_table: LockTable,
    log: Log,
    transactions: Transactions,
    threads: Box<[Thread]>,
    next_thread: Word,
    subscribers: Table,
    accesses: Table,
    facilities: Table,
    forwardings: Table,
    /// The index of telephone numbers.
    numbers: Tree,
}

impl StorageManager {
    /// Creates a storage manager with this number of subscribers, in which the locks of these kinds are elided.
    /// With `coarse`, each tree is probed under one latch. It has only the tables that the transactions of `mix`
    /// need, and only these `parts`.
    pub fn new(subscribers: u32, mix: Mix, kinds: Kinds, coarse: bool, parts: Parts) -> Self {
        let others = if Self::has_other_tables(mix) { subscribers } else { 0 };
        let number = |key: u32| u64::from(key) + 1;
        let of_type = |key: u32| (if is_of_type(key) { number(key) } else { 0 }, 0);
        let forwarding = |key: u32| (number(key), u64::from(is_forwarded_at_first(key)));
        let latching = Latching { kinds, parts, coarse };
        let mut loader = Loader::default();
        let mut table = |number, keys, words, together, row: &dyn Fn(u32) -> (u64, u64)| {
            Table::load(&mut loader, (number, keys), (words, together), latching, row)
        };
        let short = SHORT_ROW_WORDS;
        let subscribers = table(0, subscribers, ROW_WORDS_MAX, 1, &|key| (number(key), 0));
        let accesses = table(1, others * TYPES, short, 1, &of_type);
        let facilities = table(2, others * TYPES, short, 1, &of_type);
        let together = FORWARDINGS as usize;
        let forwardings = table(3, others * TYPES * FORWARDINGS, short, together, &forwarding);
        let numbers = match others {
            0 => Tree::load(&mut loader, (8, 1), std::iter::empty(), latching),
            _ => subscribers.load_index(&mut loader, 4, latching),
        };
        let has_fences = parts.has(Part::Fences);
        StorageManager {
            kinds,
            parts,
            pool: Pool::new(loader.pages, kinds, parts),
            lock_table: LockTable::new(has_fences, kinds, THREADS_MAX),
            log: Log::new(has_fences, kinds),
            transactions: Transactions::new(has_fences, kinds),
            threads: (0..THREADS_MAX).map(|_| Thread::new(kinds, parts)).collect(),
            next_thread: Word::new(0),
            subscribers,
            accesses,
            facilities,
            forwardings,
            numbers,
        }
    }

    /// Returns whether these transactions access more than the table of subscribers.
    pub fn has_other_tables(mix: Mix) -> bool {
        mix != Mix::only(TransactionType::GetSubscriberData)
    }

    fn tables(&self) -> [&Table; 4] {
        [&self.subscribers, &self.accesses, &self.facilities, &self.forwardings]
    }

    /// Checks that every row is where its tree leads to. Returns the sum of all rows' updates, too.
    fn check_rows(&self) -> (Finding, u64) {
        let mut rows = Finding::new("every row is where the tree leads to, and whole");
        let mut sum = 0;
        for (number, table) in self.tables().into_iter().enumerate() {
            for key in 0..table.len() {
                let row = table.tree.row(&self.pool, key);
                let is_here = [0, u64::from(key) + 1].contains(&row.number());
                rows.check(
                    is_here && row.is_whole(),
                    format_args!("{number}, {key}: {} updated {}", row.number(), row.updates()),
                );
                sum += row.updates();
            }
        }
        (rows, sum)
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
    /// The number of the thread.
    type Worker = usize;

    fn worker(&self, _seed: u64, _thread: usize, _threads: usize) -> Result<usize, Failure> {
        // ORDERING: relaxed, because only the numbers' being different matters.
        let number = self.next_thread.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(number < THREADS_MAX, "a storage manager has memory for {THREADS_MAX} threads");
        Ok(number)
    }

    fn is_elided(&self) -> bool {
        self.kinds != Kinds::default()
    }

    #[inline]
    fn execute(
        &self,
        &mut number: &mut usize,
        regions: &Regions,
        draws: &mut TransactionSource,
    ) -> TransactionResult {
        Session { manager: self, number, thread: &self.threads[number], regions }.run(draws)
    }

    fn conditions(&self, updates: u64) -> Vec<Condition> {
        let mut requests = Finding::new("every lock of a page or a row was released");
        for (position, left) in self.lock_table.left() {
            requests.check(left == 0, format_args!("bucket {position}: {left}"));
        }
        let mut pins = Finding::new("every page was unpinned, and every latch released");
        for (frame, (pins_left, holders)) in self.pool.left().enumerate() {
            let holds = pins_left == 0 && holders == 0;
            pins.check(holds, format_args!("frame {frame}: {pins_left} and {holders}"));
        }
        let mut transactions = Finding::new("every transaction has left the list");
        let members = self.transactions.members();
        transactions.check(members == 0, format_args!("{members}"));
        let (rows, sum) = self.check_rows();
        let loaded = (0..self.forwardings.len()).filter(|&key| is_forwarded_at_first(key)).count();
        let mut counted = Finding::new("the rows were updated as often as transactions say");
        let sum = sum - loaded as u64;
        counted.check(sum == updates, format_args!("{sum} and {updates}"));
        let changes = self.log.changes();
        let mut logged = Finding::new("every change of a row is in the log, once");
        logged.check(changes == updates, format_args!("{changes} and {updates}"));
        [requests, pins, transactions, rows, counted, logged].map(Finding::into_condition).into()
    }
}
