//! Opening snapshots: of the present state, or of a recent one that readers share.

use super::Database;
use crate::commit::{Protocol, Worker};
use crate::error::{Error, Failure};
use crate::snapshot::Snapshot;
use crate::store::recent::Taken;

impl<P: Protocol> Database<P> {
    /// Runs `body` on a snapshot of the present state, once.
    ///
    /// In a transaction, it shows what had committed before, and nothing of the transaction's own. If
    /// the database [acknowledges](crate::Acknowledge) durable commits only, this returns when what
    /// was read is durable, too.
    ///
    /// # Errors
    /// Those of `body`; and [`Failure::TooManyWorkers`], [`Failure::Closed`], [`Failure::Loading`],
    /// [`Failure::Storage`].
    pub fn snapshot<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read_from(self.open_snapshot(), body)
    }

    /// Runs `body` on a snapshot that was opened, and waits until what it has read is durable, if commits are
    /// acknowledged then.
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
    /// Waits for the commits that are under way, a moment. (Under `tso`, whose transactions give
    /// way to one another by their age, a snapshot that is opened makes those transactions give way
    /// that are in progress and have written something; while one of them has the database to
    /// itself, because it was [starving](Database#starvation), opening waits for it.)
    ///
    /// # Errors
    /// [`Failure::TooManyWorkers`], [`Failure::Closed`], [`Failure::Loading`];
    /// [`Failure::NestedTransaction`] in the `drop` of a row, if that is part of a commit;
    /// [`Failure::RowsSplit`] inside a transaction, under a protocol that splits rows.
    pub fn open_snapshot(&self) -> Result<Snapshot, Failure> {
        let worker = self.worker()?;
        self.check_no_commit()?;
        let shared = &self.engine().shared;
        shared.check_open()?;
        if P::SNAPSHOTS_ABORT_WRITERS && !worker.active.get() {
            shared.turnstile.pass(0, &mut || self.check_wait(None, 0))?;
        }
        let snapshot = self.open_snapshot_by(worker, || shared.clock.take_number())?;
        // A table may be loaded since; whoever loads looks for snapshots after it has said so.
        shared.check_open()?;
        Ok(snapshot)
    }

    /// Who opens a snapshot waits for the commits under way. If that were one of its own, or two
    /// commits did it, they would wait for ever.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`]: this thread is committing; this is the `drop` of a row.
    pub(crate) fn check_no_commit(&self) -> Result<(), Failure> {
        match self.registered_worker() {
            Some(worker) if worker.memory.is_committing() => Err(Failure::NestedTransaction),
            _ => Ok(()),
        }
    }

    /// Opens a snapshot whose number is taken by `take`, on a thread that [is not
    /// committing](Database::check_no_commit).
    pub(crate) fn open_snapshot_by(
        &self,
        worker: &Worker<P>,
        take: impl FnOnce() -> u64,
    ) -> Result<Snapshot, Failure> {
        P::with_whole_rows(self.engine(), worker, || Snapshot::open(self.home(), take)).inspect(
            |_| {
                // What was held back while rows were made whole.
                if !worker.active.get() {
                    worker.memory.run_discarded();
                }
            },
        )
    }

    /// Runs `body` on a snapshot of a recent state, once. See [`Database::open_recent_snapshot`].
    ///
    /// # Errors
    /// As [`Database::snapshot`].
    pub fn recent_snapshot<R, E: From<Error>>(
        &self,
        body: impl FnOnce(&Snapshot) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read_from(self.open_recent_snapshot(), body)
    }

    /// Opens a snapshot of a state that may be some 40 milliseconds old: what had committed when the present
    /// epoch began is in it, or if the epoch has only just begun, what had when the one before did.
    ///
    /// It is shared by all who ask for one in an epoch, so it costs less to open than a snapshot of the present
    /// state: one of them opens it, and the others wait for nothing. Writers keep at most one version more of each
    /// row, however many read. In return a reader may miss what it has just committed itself. So this is
    /// serializable, but not strictly; for that, take [`Database::open_snapshot`]. The recent snapshots that a
    /// thread opens never go back in time: each has the number of the one before, or a greater one.
    ///
    /// A row that the snapshot can read, and that is deleted while it is shared, stays in the indexes that long, and
    /// scans pass over it. In tables that are queues, all scans look for the head, where these rows are: there,
    /// snapshots of the readers' own cost less.
    ///
    /// ```
    /// use weft::{Database, Error, Record};
    ///
    /// #[derive(Clone, Record)]
    /// struct Item { #[record(key)] id: u32, left: u32 }
    ///
    /// let database = Database::builder().table::<Item>().open()?;
    /// let items = database.table::<Item>()?;
    /// database.transact(|tx| tx.insert(&items, Item { id: 1, left: 10 }))?;
    /// let left = database.recent_snapshot(|snapshot| {
    ///     Ok::<_, Error>(snapshot.get(&items, &1)?.map(|item| item.left))
    /// })?;
    /// assert_eq!(left, Some(10), "nobody has taken a snapshot before: this is the first");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::open_snapshot`].
    pub fn open_recent_snapshot(&self) -> Result<Snapshot, Failure> {
        self.worker()?;
        let shared = &self.engine().shared;
        shared.check_open()?;
        let epoch = shared.clock.epoch();
        let join = |epoch| Some(self.join_snapshot(shared.recent.join(epoch, &shared.retention)?));
        if let Some(snapshot) = join(epoch) {
            return Ok(snapshot);
        }
        let renewal = shared.recent.begin_renewal();
        if renewal.is_none()
            && let Some(snapshot) = join(epoch - 1)
        {
            return Ok(snapshot);
        }
        let snapshot = self.open_snapshot()?;
        // Also without a renewal: the thread's next recent snapshot may not be an earlier one.
        let taken = Taken { number: snapshot.number(), times: snapshot.times() };
        shared.recent.share(taken, &shared.retention);
        drop(renewal);
        snapshot.release_all();
        Ok(snapshot)
    }

    fn join_snapshot(&self, taken: Taken) -> Snapshot {
        Snapshot::joined(self.home(), taken.number, taken.times)
    }
}
