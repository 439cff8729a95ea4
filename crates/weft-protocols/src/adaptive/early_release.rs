//! Early release: a transaction gives up its turn at a range before it commits.
//!
//! TPC-C's Delivery takes the first row of a queue and deletes it, and so do the consumers of most queues. A turn that lasts
//! until the commit makes such transactions run one after the other. So the turn ends as soon as the transaction goes on to
//! another table, because by then it has found its rows:
//!
//! ```text
//!   first   scans, deletes row 1 | updates other tables             | commits
//!   second                       | scans: passes over row 1, deletes row 2 | updates … | waits, commits
//! ```
//!
//! The first one *claims* the records that it will delete ([`claims`](super::claims)). The second one passes over them as if
//! they were deleted already. Before it commits, it waits until they are.
//!
//! This is the early release of Bamboo (Z. Guo, K. Wu, C. Yan, X. Yu: *Releasing Locks As Early As You Can*, SIGMOD 2021) for
//! one kind of write. There, others read rows that are not committed, and abort with those who wrote them. Here, all that is
//! seen of a transaction that has not committed is which records it will delete.
//!
//! **Nothing relies on claims.** A record that was passed over is in the read set, as deleted, with a version that no record
//! ever has. The wait at the commit replaces it by the version with which the record was deleted, and the commit validates that.
//! If the record was not deleted, the commit fails.
//!
//! **Waits end.** A transaction passes over claims by earlier tickets alone, so it waits for those who have had their turn before
//! it; and after it has given its turn up it waits for no other turn. A wait is bounded, too, and then the claim is removed: its
//! transaction may have been leaked.
//!
//! **One abort takes at most one other along.** A transaction that has passed over records gives its turn up only when these are
//! deleted. (Without that rule, an abort made all transactions behind it abort, and those that began in the meantime believed
//! the claims of the ones that were about to abort: TPC-C had a third of its throughput.)

use arrayvec::ArrayVec;
use weft::commit::access_set::{AccessSet, ReadEntry, TidHeader, TidOnly};
use weft::commit::optimistic::stored;
use weft::store::record::RecordPointer;
use weft::store::table::TableRef;

use super::points::Points;
use super::{Patience, Turn};

/// How many records a transaction claims, and passes over, at most.
const CLAIMED_MAX: usize = 16;
const PASSED_OVER_MAX: usize = 64;

/// After this many attempts a transaction believes no claims any more.
const ATTEMPTS_MAX: u32 = 16;

/// A transaction's turn at a range.
pub struct RangeTurn {
    /// The table or index of the range.
    table: TableRef,
    turn: Turn,
    has_ended: bool,
    /// The addresses of the records that the transaction has claimed.
    claimed: ArrayVec<u64, CLAIMED_MAX>,
    /// The positions in the read set of the records that it has passed over.
    passed_over: ArrayVec<usize, PASSED_OVER_MAX>,
}

impl RangeTurn {
    pub fn new(table: TableRef, turn: Turn) -> RangeTurn {
        let (claimed, passed_over) = (ArrayVec::new(), ArrayVec::new());
        RangeTurn { table, turn, has_ended: false, claimed, passed_over }
    }

    /// Returns whether the turn was given up.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Claims a record that the transaction will delete.
    pub fn claim(&mut self, table: TableRef, record: RecordPointer<TidOnly>, points: &Points) {
        if table == self.table && self.claimed.try_push(record.address()).is_ok() {
            points.claims.claim(record.address(), self.turn.ticket);
        }
    }

    /// Gives the turn up, if the transaction goes on to another table and its rows are certain.
    pub fn leave(&mut self, to: TableRef, set: &AccessSet<TidOnly>, points: &Points) {
        if to != self.table {
            self.give_up(set, points);
        }
    }

    /// Gives the turn up, if the transaction's rows are certain: it has claimed some, and what it has passed over is deleted.
    pub fn give_up(&mut self, set: &AccessSet<TidOnly>, points: &Points) {
        let is_deleted = |&position: &usize| {
            set.reads.get(position).is_some_and(|entry| is_deleted(entry.record))
        };
        if !self.has_ended && !self.claimed.is_empty() && self.passed_over.iter().all(is_deleted) {
            self.has_ended = true;
            points.queue(self.turn.position).leave(self.turn.ticket);
        }
    }

    /// Returns whether the transaction passes over a record, which is in the read set then.
    pub fn passes_over(
        &mut self,
        (table, record): (TableRef, RecordPointer<TidOnly>),
        attempt: u32,
        set: &mut AccessSet<TidOnly>,
        points: &Points,
    ) -> bool {
        let address = record.address();
        if table != self.table
            || attempt > ATTEMPTS_MAX
            || self.passed_over.is_full()
            || !points.claims.has_earlier(address, self.turn.ticket)
        {
            return false;
        }
        // (The record may be locked by the commit that deletes it. If that fails once more, the row is still there.)
        let tid = stored(record).header.tid().load_relaxed().unlocked();
        if tid.is_absent() || set.find_write(record).is_some() {
            return false;
        }
        self.passed_over.push(set.reads.len());
        // A deletion makes a greater version.
        let observed = tid.deleted_at(tid.version());
        set.reads.push(ReadEntry { record, observed, table });
        true
    }

    /// Waits until the records that were passed over are deleted, or will not be.
    pub fn await_deletions(&mut self, set: &mut AccessSet<TidOnly>, points: &Points) {
        for &position in &self.passed_over {
            let Some(entry) = set.reads.get_mut(position) else { continue };
            let record = entry.record;
            let mut patience = Patience::default();
            while !is_deleted(record)
                && points.claims.has_earlier(record.address(), self.turn.ticket)
            {
                if !patience.wait() {
                    points.claims.give_up(record.address(), self.turn.ticket);
                }
            }
            entry.rely_on_absence(stored(record).header.tid().load(), &set.nodes);
        }
    }

    /// Forgets that the transaction relies on the last record that it has passed over. A flaw, made on purpose for tests.
    #[cfg(feature = "canary")]
    pub fn forget_last(&mut self, set: &mut AccessSet<TidOnly>) {
        self.passed_over.pop();
        set.reads.pop();
    }

    /// Takes the claims back when the transaction ends.
    pub fn end(&mut self, points: &Points) {
        for address in self.claimed.drain(..) {
            points.claims.give_up(address, self.turn.ticket);
        }
    }
}

/// Returns whether a record's row was deleted.
fn is_deleted(record: RecordPointer<TidOnly>) -> bool {
    let tid = stored(record).header.tid().load();
    tid.is_absent() && !tid.is_locked()
}
