//! TATP's seven transactions, as the sections that they go through.

use std::hint::black_box;

use arrayvec::ArrayVec;
use weft::htm::Regions;
use weft::htm::lock::Mode;
use weft::htm::word::Ordering;

use super::pages::Table;
use super::{Bucket, StorageManager};
use crate::locks::{Draws, Ran, Row};
use crate::tatp::TransactionType;

/// The number of types of access, and of special facilities.
pub(super) const TYPES: u32 = 4;

/// The number of places for the forwardings of a facility, and how many of them are used: one for each time at
/// which a forwarding may begin.
pub(super) const FORWARDINGS: u32 = 4;
const TIMES: u32 = 3;

/// The most row locks that a transaction takes.
const REQUESTS_MAX: usize = 5;

/// A transaction in progress.
struct Running<'a> {
    manager: &'a StorageManager,
    regions: &'a Regions,
    requested: ArrayVec<&'a Bucket, REQUESTS_MAX>,
    updates: u64,
    digest: u64,
}

impl<'a> Running<'a> {
    fn begin(manager: &'a StorageManager, regions: &'a Regions) -> Self {
        let digest =
            manager.checkpoint.section(Mode::Shared, regions, || manager.histogram.digest());
        Running { manager, regions, requested: ArrayVec::new(), updates: 0, digest }
    }

    /// Locks a row until the end of the transaction.
    #[inline]
    fn request(&mut self, table: &Table, key: u32) {
        let bucket = self.manager.bucket(table, key);
        bucket.lock.section(Mode::Exclusive, self.regions, || bucket.count(1));
        self.requested.push(bucket);
    }

    /// Reads a row. Returns whether it exists.
    #[inline]
    fn read(&mut self, table: &Table, key: u32) -> bool {
        self.request(table, key);
        let at = (&self.manager.pool, self.regions);
        let digest = table.visit(at, Mode::Shared, Mode::Shared, (key, 1), |rows| {
            (rows[0].number() != 0).then(|| rows[0].digest())
        });
        self.digest ^= digest.unwrap_or(0);
        digest.is_some()
    }

    /// Updates a row if it exists and `may` allows it. Returns whether it did. The leaf of the tree is latched in
    /// the mode `leaf`.
    #[inline]
    fn change(&mut self, table: &Table, key: u32, leaf: Mode, may: impl Fn(&Row) -> bool) -> bool {
        self.request(table, key);
        let at = (&self.manager.pool, self.regions);
        let changed = table.visit(at, Mode::Exclusive, leaf, (key, 1), |rows| {
            let may = rows[0].number() != 0 && may(&rows[0]);
            if may {
                rows[0].update();
            }
            may
        });
        if changed {
            self.updates += 1;
            self.log();
        }
        changed
    }

    /// Appends a record to the log.
    fn log(&self) {
        let log = &self.manager.log;
        log.lock.section(Mode::Exclusive, self.regions, || log.tail.update());
    }

    /// Finds the subscriber with a telephone number.
    #[inline]
    fn find_by_number(&self, s_id: u32) {
        let manager = self.manager;
        black_box(manager.numbers.probe(&manager.pool, self.regions, Mode::Shared, s_id));
    }

    /// Commits a transaction that succeeded, and releases the locks.
    fn end(self, place: usize, transaction: TransactionType, succeeded: bool) -> Ran {
        if self.updates > 0 {
            self.log();
        }
        for bucket in &self.requested {
            let release = || bucket.count(1_u64.wrapping_neg());
            bucket.lock.section(Mode::Exclusive, self.regions, release);
        }
        let noted = &self.manager.places[place];
        self.manager.transactions.section(Mode::Exclusive, self.regions, || noted.update());
        black_box(self.digest);
        Ran { transaction: transaction as usize, succeeded, updates: self.updates }
    }
}

impl Bucket {
    #[inline]
    fn count(&self, change: u64) {
        // Relaxed: under the lock.
        let requests = self.requests.load(Ordering::Relaxed);
        self.requests.store(requests.wrapping_add(change), Ordering::Relaxed);
    }
}

/// Returns whether the forwarding in this place exists: each update inserts or deletes it.
pub(super) fn is_forwarding(row: &Row) -> bool {
    row.updates() % 2 == 1
}

impl StorageManager {
    /// Runs one of TATP's transactions.
    #[inline]
    pub(super) fn run(&self, place: usize, regions: &Regions, draws: &mut Draws) -> Ran {
        use TransactionType::*;
        let transaction = draws.mix.draw(&mut draws.random);
        let subscriber = draws.subscriber() - 1;
        let mut running = Running::begin(self, regions);
        let succeeded = match transaction {
            GetSubscriberData => running.read(&self.subscribers, subscriber),
            GetNewDestination => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let time = draws.one_of(TIMES);
                running.read(&self.facilities, facility)
                    && running.find_destination(facility * FORWARDINGS, time)
            }
            GetAccessData => running.read(&self.accesses, subscriber * TYPES + draws.one_of(TYPES)),
            UpdateSubscriberData => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                // Update first the row that may not exist, so that nothing must be undone.
                running.change(&self.facilities, facility, Mode::Shared, |_| true)
                    && running.change(&self.subscribers, subscriber, Mode::Shared, |_| true)
            }
            UpdateLocation => {
                running.find_by_number(subscriber);
                running.change(&self.subscribers, subscriber, Mode::Shared, |_| true)
            }
            InsertCallForwarding => {
                running.find_by_number(subscriber);
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let forwarding = facility * FORWARDINGS + draws.one_of(TIMES);
                let may = |row: &Row| !is_forwarding(row);
                running.read(&self.subscribers, subscriber)
                    && running.read(&self.facilities, facility)
                    && running.change(&self.forwardings, forwarding, Mode::Exclusive, may)
            }
            DeleteCallForwarding => {
                running.find_by_number(subscriber);
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let forwarding = facility * FORWARDINGS + draws.one_of(TIMES);
                running.change(&self.forwardings, forwarding, Mode::Exclusive, is_forwarding)
            }
        };
        running.end(place, transaction, succeeded)
    }
}

impl Running<'_> {
    /// Reads the forwardings of a facility that begin by `time`. Returns whether there is one.
    #[inline]
    fn find_destination(&mut self, first: u32, time: u32) -> bool {
        let manager = self.manager;
        self.request(&manager.forwardings, first);
        let at = (&manager.pool, self.regions);
        let keys = (first, time as usize + 1);
        let (found, digest) =
            manager.forwardings.visit(at, Mode::Shared, Mode::Shared, keys, |rows| {
                let there = rows.iter().filter(|row| is_forwarding(row));
                there.fold((false, 0), |(_, digest), row| (true, digest ^ row.digest()))
            });
        self.digest ^= digest;
        found
    }
}
