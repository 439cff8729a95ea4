//! **Doppel**: phase reconciliation, by which many cores change the same record at the same time.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory Transactions*,
//! OSDI 2014; sections below are that paper's.
//!
//! The idea. An ordinary protocol runs transactions that change the same record one after the other, on one
//! core at a time, by locks or by aborts. But many such changes are commutative [operations](weft::operation):
//! add one, take the greater. So the database goes through phases. In a *joined* phase everything is as under
//! the protocol below, `silo` or `2pl`, and the records about which transactions conflict are counted. In a
//! *split* phase the most contended records are *split*, each for one operation on each column. Every worker
//! gathers these operations in its own *slice* of the record, without writing a shared cache line. Every other
//! access to the record (reading it, updating it, another operation on that column) waits for the next joined
//! phase. Transactions on other records go on as before. At the end of a split phase the slices are merged into
//! the rows: *reconciliation*.
//!
//! The files, by the paper's sections:
//!
//! - §5.1: `joined` has the protocol of joined phases; `execution` has what a worker does in a joined phase and in a
//!   split one;
//! - §5.2: `splits` has split records and their slices; `commit` has the commit of a split phase, and `drafts` what is
//!   applied at the commit;
//! - §5.3: `reconciliation` merges slices into rows; `merging` divides that work among the workers;
//! - §5.4: `phases` says which phase it is, and how one gives way to the next; `transition` says when a phase ends;
//!   `coordinator` has the paper's thread that changes it. (The crate's `clock` has its time, and `turn` the lock of the worker
//!   that changes the phase.)
//! - §5.5: `contention` has the records that conflicts are about, `classification` chooses what is split, and `labels`
//!   has rows that the application wants split;
//! - `shared` has what the workers share, besides `options` and `metrics`; this file has the protocol.
//!
//! Header of a record: that of the protocol below. A small table of addresses, empty in joined phases, says
//! which records are split.
//!
//! **The serialization point** is that of the protocol below. As to the operations on split records, a
//! transaction can be placed anywhere in the phase, because no transaction sees their results before its end
//! (§5.6). So every order that is right for the other records is right for the split ones.
//!
//! **Errors.** An operation that might not fit (see [`operation`](weft::operation#errors)) is not gathered. It
//! waits for the joined phase, where its result is known. So an overflow is an error at the same place as under
//! any other protocol. The same holds for sums within declared bounds: a worker takes from its share of what there
//! is above the least value. A share begins with nothing, and grows by parts of a common reserve, which a worker
//! draws without waiting. When the reserve is empty, the take waits for the joined phase, which returns all shares
//! to the row. (This is escrow: P. O'Neil, *The Escrow Transactional Method*, TODS 1986.)
//!
//! **Snapshots** are opened in joined phases: opening one during a split phase ends the phase. So a snapshot
//! shows everything that had committed. **Durability**: a transaction logs its operations as such when it
//! commits; reconciliation logs nothing. So what was acknowledged does not depend on whether its slices were
//! merged. **Histories** show a reconciliation as one transaction for each record, which replaces the row by
//! one that contains all operations of the phase.
//!
//! **Waiting.** A transaction that accesses a split record in another way is rolled back. `transact` waits for
//! the next joined phase and runs it again. That phase comes at once if no other worker is in a transaction. A
//! [`Stash`](weft::Stash), as the workers of a [`Pool`](weft::Pool) have it, sets the transaction aside instead
//! (the paper's *stashed* transactions), and goes on with others. In the next joined phase the stashed
//! transactions come first, and a split phase begins only when all of them have run.
//!
//! **Under a joined protocol that adapts** ([`JoinedProtocol::ADAPTS`]), which is that of
//! [`adaptive`](crate::adaptive), phases begin only when conflicts cost much, and a record stays split only if the
//! split phase was measured to be faster than the joined one.
//!
//! **Departures from the paper**. [`PhaseOptions`] has a switch for each mechanism of the paper that is replaced here, for
//! comparison. (`doppel:paper` in measurements has all of them; decision 74 has what each costs or gains.)
//! - There is no coordinator thread. A worker that finds, between two transactions, that the phase has lasted
//!   long enough changes it. So an idle database does nothing at all, and no thread has to be woken up. A
//!   thread that waits for the next phase does the work itself instead of waiting for another thread to do it.
//! - A worker merges the slices of all workers into a record, and replaces its row once. The worker that changes the
//!   phase and all that wait for the next one divide the records among each other. In the paper each worker merges
//!   its own slices, while others still run transactions; but then a worker that sleeps would delay the phase.
//! - Slices are changed when an operation is applied, and changed back if the transaction does not commit,
//!   instead of at the commit (Figure 3). So an operation that does not fit is found where it is applied.
//! - In the paper all transactions that access a split record in another way are stashed. Here a thread that
//!   has no stash, or whose stash is full, waits itself. So a phase is shorter when a thread waits. A record is
//!   not split again for a while if threads have waited for it longer than its operations can have saved.
//! - A split phase begins as soon as all transactions that have waited, or were stashed, have committed. A
//!   joined phase of full length comes only before new records are split. Records stay split from one split
//!   phase to the next as long as it pays.

mod beginning;
mod classification;
mod commit;
mod contention;
mod coordinator;
mod drafts;
mod execution;
mod joined;
mod labels;
mod merging;
mod metrics;
mod options;
mod phases;
mod reconciliation;
mod shared;
mod splits;
mod transition;

use std::marker::PhantomData;
use std::time::Duration;

use weft::Failure;
use weft::commit::{
    ContentionAction, ContentionPoint, DeletedOutcome, Engine, HoldFunction, PhaseMetrics,
    Protocol, Silo, TwoPhaseLocking, Worker,
};
use weft::store::record::StoredRecord;
use weft_htm::word::Ordering;

pub(crate) use self::coordinator::coordinator_of;
pub use self::coordinator::stash_capacity_of;
#[doc(hidden)]
pub use self::execution::ReconcilingExecutor;
pub use self::joined::JoinedProtocol;
pub use self::labels::LabelledDatabase;
#[cfg(feature = "canary")]
pub use self::options::DoppelFlaw;
pub use self::options::{Merging, PhaseOptions};
use self::phases::Phase;
#[doc(hidden)]
pub use self::shared::Reconciliation;

/// Phase reconciliation over optimistic concurrency control (Silo). See the [module](self) for the paper and
/// the idea.
pub type Doppel = PhaseReconciliation<Silo>;

/// Phase reconciliation over two-phase locking.
pub type DoppelLocking = PhaseReconciliation<TwoPhaseLocking>;

/// Phase reconciliation over the protocol `J`. `J` rules the joined phases, and in split phases the records
/// that are not split.
#[derive(Debug)]
pub struct PhaseReconciliation<J>(PhantomData<J>);

// SAFETY: the joined protocol handles records that are not split; a slice belongs to its worker alone until it
// is merged into the row.
unsafe impl<J: JoinedProtocol> Protocol for PhaseReconciliation<J> {
    const NAME: &'static str = J::RECONCILED_NAME;
    const TITLE: &'static str = J::RECONCILED_TITLE;
    const SOURCE: &'static str = J::RECONCILED_SOURCE;
    const USES_HTM: bool = J::USES_HTM;
    const KEEPS_LOCKS: bool = true;
    const SPLITS: bool = true;
    const COUNTS_CONFLICTS: bool = !J::ADAPTS;
    type Header = J::Header;
    type Shared = Reconciliation<J>;
    type Executor = ReconcilingExecutor<J>;

    #[inline(always)]
    fn has_work_between(shared: &Reconciliation<J>) -> bool {
        shared.has_phases()
    }

    #[inline(always)]
    fn between_transactions(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        keep_waiting: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        transition::between_transactions(database, worker, keep_waiting)
    }

    fn wait_for_whole_rows<E>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        refused_in: u64,
        keep_waiting: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        transition::wait_for_whole_rows(database, worker, refused_in, keep_waiting)
    }

    #[inline(always)]
    fn has_whole_rows_since(shared: &Reconciliation<J>, refused_in: u64) -> bool {
        let present = shared.phases.present();
        present.phase() == Some(Phase::Joined) && present.number() > refused_in
    }

    fn note_stash(shared: &Reconciliation<J>, is_holding: bool) {
        let change = if is_holding { 1 } else { u64::MAX };
        shared.stashes.fetch_add(change, Ordering::Relaxed);
    }

    fn with_whole_rows<R>(
        database: &Engine<Self>,
        worker: &Worker<Self>,
        body: impl FnOnce() -> R,
    ) -> Result<R, Failure> {
        transition::with_whole_rows(database, worker, body)
    }

    fn contention_points(shared: &Reconciliation<J>) -> Vec<ContentionPoint> {
        let now = shared.now();
        let mut points = J::ordered_points(&shared.joined, now);
        points.extend(shared.split_records().into_iter().map(|(table, key, since)| {
            let lasted = Duration::from_nanos(now.saturating_sub(since));
            ContentionPoint { table, key: Some(key), action: ContentionAction::Split, lasted }
        }));
        points
    }

    fn phase_metrics(shared: &Reconciliation<J>) -> Option<PhaseMetrics> {
        Some(shared.metrics())
    }

    fn settle_deleted(
        record: &StoredRecord<J::Header>,
        may_go: impl Fn(u64) -> bool,
        unlink: impl FnOnce() -> bool,
    ) -> DeletedOutcome {
        J::settle_deleted(record, may_go, unlink)
    }

    const UNLINKS_AT_ONCE: bool = J::UNLINKS_AT_ONCE;
    const RESTARTS_IN_SNAPSHOTS: bool = J::RESTARTS_IN_SNAPSHOTS;
    const HOLD_ROW: Option<HoldFunction<J::Header>> = J::HOLD_ROW;
}
