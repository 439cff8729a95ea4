//! TATP's seven transactions, as the steps that they take in the storage manager.

use std::hint::black_box;

use arrayvec::ArrayVec;
use weft::htm::lock::Mode;

use super::lock_table::LockName;
use super::log::Kind;
use super::parts::Part;
use super::rows::Row;
use super::thread::{Session, get};
use super::tree::{Place, Tree};
use crate::locks::{TransactionResult, TransactionSource};
use crate::tatp::TransactionType;

/// The number of types of access, and of special facilities.
pub(super) const TYPES: u32 = 4;

/// The number of places for the forwardings of a facility, and how many of them are used: one for each time at
/// which a forwarding may begin.
pub(super) const FORWARDINGS: u32 = 4;
const TIMES: u32 = 3;

/// The most rows that a transaction locks.
const ROWS_MAX: usize = 5;

/// A transaction in progress.
struct OpenTransaction<'a> {
    session: Session<'a>,
    /// The rows that it has locked, for a lock table without requests.
    locked: ArrayVec<LockName, ROWS_MAX>,
    digest: u64,
}

impl<'a> OpenTransaction<'a> {
    fn begin(session: Session<'a>) -> Self {
        session.manager.transactions.begin(session);
        OpenTransaction { session, locked: ArrayVec::new(), digest: 0 }
    }

    /// Finds a row in an index, and locks it until the end of the transaction.
    #[inline]
    fn find(&mut self, index: &'a Tree, key: u32, leaf: Mode) -> Place {
        let place = self.session.probe(index, key, leaf);
        if !self.session.has(Part::Requests) {
            self.locked.push(place.name());
        }
        place
    }

    /// Reads a row. Returns whether it exists.
    #[inline]
    fn read(&mut self, index: &'a Tree, key: u32) -> bool {
        let place = self.find(index, key, Mode::Shared);
        let digest = self.session.visit(place, 1, Mode::Shared, |_, rows| {
            let row = rows.first();
            (row.number() != 0).then(|| row.digest())
        });
        self.digest ^= digest.unwrap_or(0);
        digest.is_some()
    }

    /// Updates a row if it exists and `may` allows it. Returns whether it did. The leaf of the index is latched in
    /// the mode `leaf`.
    #[inline]
    fn change(
        &mut self,
        index: &'a Tree,
        key: u32,
        leaf: Mode,
        may: impl Fn(Row<'_>) -> bool,
    ) -> bool {
        let place = self.find(index, key, leaf);
        let session = self.session;
        session.visit(place, 1, Mode::Exclusive, |fixed, rows| {
            let row = rows.first();
            let may = row.number() != 0 && may(row);
            if may {
                session.update(fixed, row);
            }
            may
        })
    }

    /// Reads the forwardings of a facility that begin by `time`. Returns whether there is one.
    #[inline]
    fn find_destination(&mut self, index: &'a Tree, first: u32, time: u32) -> bool {
        let place = self.find(index, first, Mode::Shared);
        let count = time as usize + 1;
        let (found, digest) = self.session.visit(place, count, Mode::Shared, |_, rows| {
            let there = rows.iter().filter(|&row| is_forwarding(row));
            there.fold((false, 0), |(_, digest), row| (true, digest ^ row.digest()))
        });
        self.digest ^= digest;
        found
    }

    /// Commits the transaction, and releases the locks.
    fn end(self, transaction: TransactionType, succeeded: bool) -> TransactionResult {
        let session = self.session;
        let (transactions, log) = (&session.manager.transactions, &session.manager.log);
        let updates = get(&session.thread.updates);
        transactions.prepare(session);
        // Only a transaction that has changed a row has anything to log.
        if updates > 0 {
            let position = log.append(session, Kind::FreeingSpace, 0, 0, |_| 0);
            log.request_flush(session, position);
        }
        transactions.end(session, || {
            if updates > 0 {
                log.append(session, Kind::End, 0, 0, |_| 0);
            }
        });
        session.unlock_all(&self.locked);
        transactions.detach(session);
        black_box(self.digest);
        TransactionResult { transaction: transaction as usize, succeeded, updates }
    }
}

/// Returns whether the forwarding in this place exists: each update inserts or deletes it.
fn is_forwarding(row: Row<'_>) -> bool {
    row.updates() % 2 == 1
}

impl Session<'_> {
    /// Runs one of TATP's transactions.
    #[inline]
    pub(super) fn run(self, draws: &mut TransactionSource) -> TransactionResult {
        use TransactionType::*;
        let manager = self.manager;
        let (subscribers, facilities) = (&manager.subscribers.tree, &manager.facilities.tree);
        let forwardings = &manager.forwardings.tree;
        let transaction = draws.mix.draw(&mut draws.random);
        let subscriber = draws.subscriber() - 1;
        let mut running = OpenTransaction::begin(self);
        let succeeded = match transaction {
            GetSubscriberData => running.read(subscribers, subscriber),
            GetNewDestination => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let time = draws.one_of(TIMES);
                running.read(facilities, facility)
                    && running.find_destination(forwardings, facility * FORWARDINGS, time)
            }
            GetAccessData => {
                let access = subscriber * TYPES + draws.one_of(TYPES);
                running.read(&manager.accesses.tree, access)
            }
            UpdateSubscriberData => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                // Update first the row that may not exist, so that nothing must be undone.
                running.change(facilities, facility, Mode::Shared, |_| true)
                    && running.change(subscribers, subscriber, Mode::Shared, |_| true)
            }
            UpdateLocation => running.change(&manager.numbers, subscriber, Mode::Shared, |_| true),
            InsertCallForwarding => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let forwarding = facility * FORWARDINGS + draws.one_of(TIMES);
                running.read(&manager.numbers, subscriber)
                    && running.read(facilities, facility)
                    && running
                        .change(forwardings, forwarding, Mode::Exclusive, |row| !is_forwarding(row))
            }
            DeleteCallForwarding => {
                let facility = subscriber * TYPES + draws.one_of(TYPES);
                let forwarding = facility * FORWARDINGS + draws.one_of(TIMES);
                running.read(&manager.numbers, subscriber)
                    && running.change(forwardings, forwarding, Mode::Exclusive, is_forwarding)
            }
        };
        running.end(transaction, succeeded)
    }
}
