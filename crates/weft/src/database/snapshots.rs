//! Opening snapshots: of the present state, or of a recent state, in a snapshot that readers share.

use super::Database;
use crate::commit::{Protocol, Worker};
use crate::error::{Error, Failure};
use crate::snapshot::Snapshot;
use crate::store::ages::SnapshotLife;
use crate::store::eventual::FormingSnapshot;

/// Options of a snapshot.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotOptions {
    /// What the snapshot is for, as [`Metrics::snapshots`](crate::Metrics::snapshots) and failures show it. The
    /// default is `None`.
    pub label: Option<&'static str>,
}

impl SnapshotOptions {
    /// Returns options without a label.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`SnapshotOptions::label`].
    pub fn label(mut self, label: &'static str) -> Self {
        self.label = Some(label);
        self
    }
}

impl<P: Protocol> Database<P> {
    /// Runs `body` once, on a snapshot of the present state, and returns what `body` returned.
    ///
    /// Inside a transaction, the snapshot shows what has committed, and nothing that the transaction itself has
    /// written. If the database [acknowledges](crate::Acknowledge) only durable commits, this returns when
    /// everything that was read is durable, too.
    ///
    /// # Errors
    /// The errors of `body`; and [`Failure::Closed`], [`Failure::Loading`], [`Failure::Storage`].
    pub fn snapshot<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read_from(self.open_snapshot(), body)
    }

    /// Runs `body` on an open snapshot. If commits are acknowledged when they are durable, then waits until what it
    /// has read is durable.
    fn read_from<R, E: From<Error>>(
        &self,
        opened: Result<Snapshot, Failure>,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Result<R, E> {
        let snapshot = opened.map_err(Error::from)?;
        let result = body(&snapshot)?;
        self.await_durable_reads(&snapshot).map_err(Error::from)?;
        Ok(result)
    }

    /// Opens a snapshot of the present state.
    ///
    /// Waits a moment, for the commits that are under way. Under `tso`, whose transactions are ordered by their
    /// age, opening a snapshot aborts the transactions in progress that have written something. While a
    /// [starving](Database#starvation) transaction runs alone under `tso`, opening waits for it.
    ///
    /// # Errors
    /// - [`Failure::Closed`], [`Failure::Loading`].
    /// - [`Failure::NestedTransaction`] in the `drop` of a row, if that is part of a commit. Under `dbx-tc` also in a registered
    ///   procedure, while changes that others have deferred wait.
    /// - [`Failure::RowsSplit`] inside a transaction, under a protocol that splits rows.
    pub fn open_snapshot(&self) -> Result<Snapshot, Failure> {
        self.open_snapshot_with(&SnapshotOptions::default())
    }

    /// As [`Database::open_snapshot`], with a label.
    ///
    /// # Errors
    /// As [`Database::open_snapshot`].
    pub fn open_snapshot_with(&self, options: &SnapshotOptions) -> Result<Snapshot, Failure> {
        let claim = self.claim(None)?;
        let worker = claim.worker();
        self.check_no_commit()?;
        let shared = &self.engine().shared;
        shared.check_open()?;
        if P::SNAPSHOTS_ABORT_WRITERS && !worker.active.get() {
            shared.turnstile.pass(false, &mut || self.check_wait(None, 0))?;
        }
        let life = || SnapshotLife::new(options.label, shared.ages.snapshot_limit);
        let take = || shared.clock.take_number();
        let open = |forming: &FormingSnapshot<'_>| {
            Snapshot::open(self.home(), life(), || forming.draw(take))
        };
        self.settle_present(worker);
        let snapshot = match P::open_eventually(self.engine(), worker, open)? {
            Some((snapshot, rows)) => snapshot.adjusted(rows),
            None => self.open_whole(worker, life(), take)?,
        };
        // A load may have begun since the first check. The loader closes the database first, and looks for open
        // snapshots after that, so one of the two sees the other.
        shared.check_open()?;
        Ok(snapshot)
    }

    /// Checks that this thread is not committing. Opening a snapshot waits for the commits under way, so a commit
    /// that opened one would wait for itself, and two that did would wait for each other.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`] if this thread is committing, so that this call is from the `drop` of a row.
    pub(crate) fn check_no_commit(&self) -> Result<(), Failure> {
        match self.claimed_worker() {
            Some(worker) if worker.memory.is_committing() => Err(Failure::NestedTransaction),
            _ => Ok(()),
        }
    }

    /// Opens a snapshot whose number `take` draws, on a thread that [is not committing](Database::check_no_commit).
    pub(crate) fn open_snapshot_by(
        &self,
        worker: &Worker<P>,
        life: SnapshotLife,
        take: impl Fn() -> u64,
    ) -> Result<Snapshot, Failure> {
        self.settle_present(worker);
        self.open_whole(worker, life, take)
    }

    /// Settles the present time, for a snapshot. If another commit does not end, the snapshot is of an earlier time.
    ///
    /// Nor is it settled if a transaction has closed the turnstile, or runs on this thread: that transaction may have asked for
    /// the time, and could not commit after a later one is settled.
    fn settle_present(&self, worker: &Worker<P>) {
        let shared = &self.engine().shared;
        if worker.active.get() || shared.turnstile.is_closed() {
            return;
        }
        let time = &shared.time;
        time.settle(time.present(), &shared.commits, shared.grace.slots_used());
    }

    /// Opens a snapshot while everything that has committed is in the rows.
    fn open_whole(
        &self,
        worker: &Worker<P>,
        life: SnapshotLife,
        take: impl Fn() -> u64,
    ) -> Result<Snapshot, Failure> {
        let open = || Snapshot::open(self.home(), life, take);
        P::with_whole_rows(self.engine(), worker, open).inspect(|_| {
            // Drop the values whose drop was postponed while rows were made whole.
            if !worker.active.get() {
                worker.memory.run_discarded();
            }
        })
    }

    /// Runs `body` once, on a snapshot of a recent state. See [`Database::open_recent_snapshot`].
    ///
    /// # Errors
    /// As [`Database::snapshot`].
    pub fn recent_snapshot<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read_from(self.open_recent_snapshot(), body)
    }

    /// Opens a snapshot of a recent state, which may be about 40 milliseconds old. It shows what had committed when
    /// the present epoch began. If the epoch has only just begun, it may show what had committed when the epoch
    /// before it began.
    ///
    /// All readers that ask for a recent snapshot in one epoch share it, so it costs less to open than a snapshot
    /// of the present state. One reader opens it, and the others do not wait. Writers keep at most one more version
    /// of each row, however many readers there are.
    ///
    /// In return, a reader may miss what it has just committed itself. Recent snapshots are serializable, but not
    /// strictly serializable; for that, use [`Database::open_snapshot`]. The recent snapshots that a thread opens
    /// never go back in time: each has the number of the one before, or a greater one.
    ///
    /// A deleted row that the snapshot can read stays in the indexes for as long as the snapshot is shared, and
    /// scans have to pass over it. In a table that serves as a queue all scans look for the head, which is where
    /// these rows are. There, a snapshot for each reader costs less.
    ///
    /// ```
    /// use weft::{Database, Error, Record};
    ///
    /// #[derive(Clone, Copy, Record)]
    /// struct Item { #[record(key)] id: u32, left: u32 }
    ///
    /// let database = Database::builder().table::<Item>().open()?;
    /// let items = database.table::<Item>()?;
    /// database.transact(|tx| tx.insert(&items, Item { id: 1, left: 10 }))?;
    /// let left = database.recent_snapshot(|snapshot| {
    ///     Ok::<_, Error>(snapshot.get(&items, &1)?.map(|item| item.left))
    /// })?;
    /// assert_eq!(left, Some(10), "this is the first snapshot of the epoch");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::open_snapshot`].
    pub fn open_recent_snapshot(&self) -> Result<Snapshot, Failure> {
        let shared = &self.engine().shared;
        shared.check_open()?;
        let epoch = shared.clock.epoch();
        let join = |epoch| {
            Some(Snapshot::sharing(self.home(), shared.recent.join(epoch, &shared.retention)?))
        };
        // Join the snapshot of this epoch, if there is one already.
        if let Some(snapshot) = join(epoch) {
            return Ok(snapshot);
        }
        let renewal = shared.recent.begin_renewal();
        // Another thread is opening one: use the snapshot of the epoch before.
        if renewal.is_none()
            && let Some(snapshot) = join(epoch - 1)
        {
            return Ok(snapshot);
        }
        let snapshot = self.open_snapshot()?;
        // Shared even without a renewal, since the thread's next recent snapshot must not be an earlier one.
        shared.recent.share(snapshot.to_share(), &shared.retention);
        drop(renewal);
        snapshot.release_all();
        Ok(snapshot)
    }
}
