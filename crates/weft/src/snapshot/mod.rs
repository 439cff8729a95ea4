//! Snapshots: read-only views of the database as it was at one moment (DBX §5.4).
//!
//! The idea. Opening a snapshot takes the global snapshot number and increments it. Transactions that commit after
//! that draw greater numbers. They leave the versions that they replace to the snapshot, as long as it is open. So
//! of each record the snapshot reads the newest version whose number is not greater than its own. It notes nothing,
//! validates nothing, locks nothing and never aborts, and writers do not wait for it. It shows the most recent
//! state: everything that had committed when it was opened.
//!
//! Only opening waits, for a moment: for the commits that have drawn their numbers and have not yet installed all
//! their versions (see [`ActivityWords`](crate::sync::clock::ActivityWords)). So no read ever meets a record of which only a
//! part has changed.
//!
//! The module [`version`](crate::store::record::version) describes what a version knows of its number and its
//! predecessor. [`retention`] describes which versions are kept, and for how long. Both are the same under every
//! protocol, because the transaction layer numbers what a protocol has installed. The protocol must draw the
//! numbers so that they agree with its serial order. It draws them at its serialization points, and if it holds all
//! its locks at that time, they agree automatically.
//!
//! **Departures from the paper**
//! - The paper's writers compare the record's number with the global one inside the commit region, and create a
//!   version there. Here versions are numbered after the commit, and a thread that opens a snapshot waits for that.
//!   So regions do not grow.
//! - In the paper, old versions are freed when all read-only transactions that were running have ended. Here a
//!   version is freed when no open snapshot needs it: see [`retention`].
//!
//! [`retention`]: crate::store::retention

mod batch;
mod scan;

use std::any::Any;
use std::cell::Cell;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

pub use batch::SnapshotRows;
pub use scan::SnapshotScan;

use crate::error::Failure;
use crate::index::Lookup;
use crate::index::bplus_tree::LeafHint;
use crate::row::encoding::{Key, KeyForm, KeyLookup, KeyPrefix, KeyStart, start_range};
use crate::row::schema::{Index, OrderedRecord, Record};
use crate::row::timestamp::Timestamp;
use crate::store::ages::SnapshotLife;
use crate::store::eventual::AdjustedRows;
use crate::store::ranges::{encode_index_range, encode_range, lookup_of, prefix_of, start_of};
use crate::store::recent::{OpeningTimes, SharedSnapshot};
use crate::store::record::record_at;
use crate::store::record::version::row_seen_at;
use crate::store::table::{Identity, PickForm, Table, TableInner, with_form, with_secondary};
use crate::store::worker::{ClaimGuard, PinnedWorker, SharedState, WorkerState};

/// A read-only view of the database as it was when the snapshot was opened.
///
/// Reading from a snapshot never conflicts with anything, however long it takes and however much is written in that
/// time. The rows that it returns stay valid as long as the snapshot exists. You can send it to another thread, and
/// several threads can read from it at the same time. A read needs one of the database's
/// [workers](crate::Builder::workers_max), and waits while all of them are busy.
///
/// While a snapshot is open, the database keeps the versions that the snapshot needs. This is at most one version
/// of each row that it can read, and one of each index entry of such a row, however often the row is changed,
/// deleted or inserted again. Rows that were inserted later cost nothing: if they are deleted, they are not kept.
/// [`Metrics::snapshots`] shows how much is kept, and how old the oldest snapshot is.
///
/// Dropping a snapshot frees what was kept only for it. This takes time in proportion to the amount, but it is done
/// in small steps, and other threads do not wait for it.
///
/// ```
/// use weft::{Database, Error, Record};
///
/// #[derive(Clone, Copy, Record)]
/// #[record(table = "accounts")]
/// struct Account {
///     #[record(key)]
///     id: u32,
///     balance: i64,
/// }
///
/// let database = Database::builder().table::<Account>().open()?;
/// let accounts = database.table::<Account>()?;
/// database.transact(|tx| tx.insert(&accounts, Account { id: 1, balance: 100 }))?;
///
/// let before = database.open_snapshot()?;
/// database.transact(|tx| tx.update(&accounts, &1, |account| account.balance = 0))?;
/// assert_eq!(before.get(&accounts, &1)?.map(|account| account.balance), Some(100));
///
/// let total = database.snapshot(|snapshot| {
///     snapshot.range(&accounts, ..).map(|row| Ok::<_, Error>(row?.balance)).sum::<Result<i64, _>>()
/// })?;
/// assert_eq!(total, 0);
/// # Ok::<(), Error>(())
/// ```
///
/// [`Metrics::snapshots`]: crate::Metrics::snapshots
#[must_use = "a snapshot costs memory as long as it is open"]
pub struct Snapshot {
    database: SnapshotHome,
    number: u64,
    /// The snapshot's time, in milliseconds since 1970: see [`Time`](crate::sync::time::Time).
    now: u64,
    /// Whether rows that have expired are shown, too.
    shows_expired: bool,
    life: Arc<SnapshotLife>,
    /// The rows that the snapshot sees in place of the records' own, if there are any: see
    /// [`eventual`](crate::store::eventual).
    adjusted: Option<Arc<AdjustedRows>>,
    /// Records what is read, as one transaction in a session of its own. The session ends with the snapshot.
    #[cfg(feature = "history")]
    recorder: Option<std::sync::Mutex<crate::history::Recorder>>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Snapshot").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A database as its snapshots see it, with any protocol.
pub(crate) trait SnapshotSource: Send + Sync {
    fn shared(&self) -> &SharedState;

    fn identity(&self) -> &Arc<Identity>;

    /// Claims a worker for this thread. Waits while all of them are busy.
    fn claim(&self) -> Result<ClaimedState<'_>, Failure>;
}

/// A worker that the calling thread has claimed, with any protocol.
pub(crate) struct ClaimedState<'s> {
    pub state: &'s WorkerState,
    /// Whether the claim has pinned the worker.
    pub is_pinned: bool,
    pub _guard: ClaimGuard<'s>,
}

/// The database of a snapshot, which lives as long as the snapshot.
pub(crate) struct SnapshotHome {
    /// Keeps the database's run going. Declared before `source`, so that the database still exists when the last
    /// user handle is dropped.
    pub _user: Option<Arc<dyn Any + Send + Sync>>,
    pub source: Arc<dyn SnapshotSource>,
}

impl Snapshot {
    /// Returns the snapshot's number. A later snapshot has a greater number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the snapshot's time. Rows [have expired](macro@crate::Record#rows-that-expire) by it, however long the
    /// snapshot is open. It is not before [the time](crate::Transaction::now) of any transaction that the snapshot shows
    /// and that has looked at its time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Makes the snapshot show rows that have expired, too, for code that copies all rows.
    pub(crate) fn show_expired(&mut self) {
        self.shows_expired = true;
    }

    /// Returns whether a row that was found is there, and has not expired.
    ///
    /// # Safety
    /// A row of the table that the snapshot sees.
    #[inline(always)]
    unsafe fn shows<T: Record>(&self, row: NonNull<u8>) -> bool {
        if const { !matches!(T::EXPIRY, Some(expiry) if !expiry.has_hook) } {
            return true;
        }
        // SAFETY: by the contract.
        let row = unsafe { row.cast::<T>().as_ref() };
        self.shows_expired || row.expires_at() == Timestamp::MAX || row.expires_at() > self.now()
    }

    /// Returns what the database's workers share.
    pub(crate) fn shared(&self) -> &SharedState {
        self.database.source.shared()
    }

    /// Returns the row with this primary key, or `None` if there is no such row.
    ///
    /// # Errors
    /// - [`Failure::ForeignTable`].
    /// - [`Failure::SnapshotTooOld`] if the snapshot has been open for longer than the
    ///   [limit](crate::Builder::snapshot_age_limit).
    /// - [`Failure::Closed`] if the database was closed and all its workers are busy.
    pub fn get<T: Record>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<Option<&T>, Failure> {
        let inner = self.enter(table)?;
        let row = with_form!(T::Key::WIDTH_BYTES, |K| {
            // Encoded before the worker is pinned, since this runs the user's code.
            let key = K::from_lookup(&key);
            self.read_pinned(|_| match K::pick(&inner.primary).get(&key, &mut LeafHint::new()) {
                // SAFETY: the worker is pinned, and the table's own index holds addresses of its records.
                Lookup::Found(address) => unsafe { self.see(address) },
                Lookup::Absent(_) => None,
            })?
        });
        self.record_read(inner, &key, row);
        // SAFETY: a row of the table that the snapshot needs. It is kept as long as the snapshot is open.
        let row = row.filter(|&row| unsafe { self.shows::<T>(row) });
        // SAFETY: as above.
        Ok(row.map(|row| unsafe { row.cast::<T>().as_ref() }))
    }

    /// Returns a scan of the rows whose primary keys lie in `range`, in the order of the keys. A range whose start is
    /// greater than its end has no rows.
    ///
    /// # Errors
    /// The scan's items are those of [`Snapshot::get`].
    pub fn range<'s, T: OrderedRecord>(
        &'s self,
        table: &Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> SnapshotScan<'s, T> {
        self.range_in_order(table, range)
    }

    /// As [`Snapshot::range`], for a table whose storage is known to be ordered.
    fn range_in_order<'s, T: Record>(
        &'s self,
        table: &Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> SnapshotScan<'s, T> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = encode_range::<K, _>(&range);
            SnapshotScan::primary::<K>(self, table, bounds)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::key_range(&range));
        scan
    }

    /// Returns a scan of the rows whose primary keys begin with `prefix`, in the order of the keys.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix<'s, T: OrderedRecord>(
        &'s self,
        table: &Table<T>,
        prefix: &(impl KeyPrefix<T::Key> + ?Sized),
    ) -> SnapshotScan<'s, T> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = K::prefix_range::<T::Key>(prefix);
            SnapshotScan::primary::<K>(self, table, bounds)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::prefix_range(prefix));
        scan
    }

    /// Returns a scan of the rows whose primary keys start with a text or with bytes, as
    /// [`Transaction::starts_with`](crate::Transaction::starts_with) does.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn starts_with<'s, T: OrderedRecord>(
        &'s self,
        table: &Table<T>,
        start: impl KeyStart<T::Key>,
    ) -> SnapshotScan<'s, T> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            SnapshotScan::primary::<K>(self, table, start_range(&start))
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::start_range(&start));
        scan
    }

    /// As [`Snapshot::starts_with`], for the columns of a secondary index.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn starts_with_by<'s, T: Record, K: Key>(
        &'s self,
        table: &Table<T>,
        index: Index<T, K>,
        start: impl KeyStart<K>,
    ) -> SnapshotScan<'s, T> {
        let position = index.position();
        with_secondary!(&table.inner.secondary[position], |secondary| {
            SnapshotScan::secondary(self, table, position, start_of(secondary, &start))
        })
    }

    /// Returns whether there is a row with this primary key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains<T: Record>(
        &self,
        table: &Table<T>,
        key: impl KeyLookup<T::Key>,
    ) -> Result<bool, Failure> {
        Ok(self.get(table, key)?.is_some())
    }

    /// Returns how many rows a table has, of any storage. It counts them.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn len<T: Record>(&self, table: &Table<T>) -> Result<usize, Failure> {
        self.rows(table).count_rows()
    }

    /// Returns a scan of all rows of a table. Rows of a B+-tree come in the order of the keys, rows of a hash table
    /// in no order. In a hash table the first `next` gathers the addresses of all rows, which takes eight bytes a
    /// row.
    ///
    /// # Errors
    /// The scan's items are those of [`Snapshot::get`].
    pub fn rows<'s, T: Record>(&'s self, table: &Table<T>) -> SnapshotScan<'s, T> {
        match T::STORAGE {
            crate::row::schema::Storage::Ordered => self.range_in_order(table, ..),
            crate::row::schema::Storage::Hash => {
                with_form!(T::Key::WIDTH_BYTES, |K| SnapshotScan::unordered::<K>(self, table))
            }
        }
    }

    /// Returns the row with this key in a unique index, or `None` if there is no such row.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_by<T: Record, K: Key>(
        &self,
        table: &Table<T>,
        index: Index<T, K>,
        key: impl KeyLookup<K>,
    ) -> Result<Option<&T>, Failure> {
        let position = index.position();
        let mut scan = with_secondary!(&table.inner.secondary[position], |secondary| {
            SnapshotScan::secondary(self, table, position, lookup_of(secondary, &key))
        });
        scan.next().transpose()
    }

    /// Returns a scan of the rows whose keys in a secondary index lie in `range`, in the order of the index.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn range_by<'s, T: Record, K: Key>(
        &'s self,
        table: &Table<T>,
        index: Index<T, K>,
        range: impl RangeBounds<K>,
    ) -> SnapshotScan<'s, T> {
        let position = index.position();
        with_secondary!(&table.inner.secondary[position], |secondary| {
            let bounds = encode_index_range(secondary, &range);
            SnapshotScan::secondary(self, table, position, bounds)
        })
    }

    /// Returns a scan of the rows whose keys in a secondary index begin with `prefix`, in the order of the index.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix_by<'s, T: Record, K: Key>(
        &'s self,
        table: &Table<T>,
        index: Index<T, K>,
        prefix: &(impl KeyPrefix<K> + ?Sized),
    ) -> SnapshotScan<'s, T> {
        let position = index.position();
        with_secondary!(&table.inner.secondary[position], |secondary| {
            let bounds = prefix_of(secondary, prefix);
            SnapshotScan::secondary(self, table, position, bounds)
        })
    }

    fn enter<'t, T: Record>(&self, table: &'t Table<T>) -> Result<&'t TableInner<T>, Failure> {
        if Arc::ptr_eq(&table.inner.identity, self.database.source.identity()) {
            Ok(&table.inner)
        } else {
            Err(Failure::ForeignTable { table: table.name() })
        }
    }

    /// As [`Snapshot::pinned`], unless the snapshot is too old to be read.
    fn read_pinned<R>(&self, body: impl FnOnce(&WorkerState) -> R) -> Result<R, Failure> {
        self.life.begin_read()?;
        self.pinned(body)
    }

    /// Runs `body` while this thread's worker is pinned, so that nothing that `body` finds is freed.
    fn pinned<R>(&self, body: impl FnOnce(&WorkerState) -> R) -> Result<R, Failure> {
        let claimed = self.database.source.claim()?;
        // Inside a transaction the worker is pinned already.
        if claimed.state.active.get() {
            return Ok(body(claimed.state));
        }
        let pinned = match claimed.is_pinned {
            true => PinnedWorker::already_pinned(claimed.state),
            false => PinnedWorker::new(claimed.state),
        };
        let result = body(pinned.worker());
        drop(pinned);
        Ok(result)
    }

    /// Returns the row of a record that the snapshot sees.
    ///
    /// # Safety
    /// The worker is pinned, and has been since it got the address from an index of the database.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn see(&self, address: u64) -> Option<NonNull<u8>> {
        if let Some(adjusted) = &self.adjusted
            && let Some(row) = adjusted.get(address)
        {
            return row;
        }
        // SAFETY: by this function's contract.
        unsafe { row_seen_at(record_at(address), self.number) }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        #[cfg(feature = "history")]
        self.record_end();
        self.shared().retention.close(self.number);
        self.release_all();
    }
}

impl Snapshot {
    /// Opens a snapshot whose number `take` draws, and waits for the commits that are under way.
    pub(crate) fn open(database: SnapshotHome, life: SnapshotLife, take: impl Fn() -> u64) -> Self {
        let snapshot = Self::begin(database, life, take);
        let shared = snapshot.shared();
        shared.commits.wait(shared.grace.slots_used());
        #[cfg(feature = "history")]
        snapshot.record_opened();
        snapshot
    }

    /// As [`Snapshot::open`], but gives up if the commits that are under way don't end soon.
    pub(crate) fn open_soon(
        database: SnapshotHome,
        life: SnapshotLife,
        take: impl Fn() -> u64,
    ) -> Option<Self> {
        let snapshot = Self::begin(database, life, take);
        let shared = snapshot.shared();
        if !shared.commits.end_soon(shared.grace.slots_used()) {
            return None;
        }
        #[cfg(feature = "history")]
        snapshot.record_opened();
        Some(snapshot)
    }

    /// Begins to open a snapshot, which is not to be read before the commits that are under way have ended.
    fn begin(database: SnapshotHome, life: SnapshotLife, take: impl Fn() -> u64) -> Self {
        let shared = database.source.shared();
        let now = Cell::new(0);
        // The snapshot is of a moment at which its time was settled, so that it agrees with the times of the
        // transactions that come before it and after it: see `Time`.
        let take = || loop {
            now.set(shared.time.settled());
            let number = take();
            if shared.time.settled() == now.get() {
                break number;
            }
        };
        let life = Arc::new(life);
        #[cfg(feature = "history")]
        let recorder = recording::recorder(shared);
        let number = shared.retention.open(&shared.clock, &life, take);
        let now = now.get();
        Snapshot {
            database,
            number,
            now,
            shows_expired: false,
            life,
            adjusted: None,
            #[cfg(feature = "history")]
            recorder,
        }
    }

    /// Returns a snapshot that shares the number of one that was opened earlier and is still open.
    pub(crate) fn sharing(database: SnapshotHome, shared: SharedSnapshot) -> Self {
        #[cfg(feature = "history")]
        let recorder = recording::recorder_of(database.source.shared(), shared.times);
        Snapshot {
            database,
            number: shared.number,
            now: shared.now,
            shows_expired: false,
            life: shared.life,
            adjusted: shared.adjusted,
            #[cfg(feature = "history")]
            recorder,
        }
    }

    /// Returns the snapshot for others to share.
    pub(crate) fn to_share(&self) -> SharedSnapshot {
        let times = OpeningTimes {
            #[cfg(feature = "history")]
            opened: self.recorder().map(|recorder| recorder.times()),
        };
        SharedSnapshot {
            number: self.number,
            now: self.now,
            life: Arc::clone(&self.life),
            adjusted: self.adjusted.clone(),
            times,
        }
    }

    /// Returns the snapshot with rows that it sees in place of the records' own.
    pub(crate) fn adjusted(mut self, rows: AdjustedRows) -> Self {
        self.adjusted = (!rows.is_empty()).then(|| Arc::new(rows));
        self
    }

    /// Frees what was kept for snapshots that are closed now, one chunk after the other. Between two chunks this
    /// thread is not pinned.
    pub(crate) fn release_all(&self) {
        let retention = &self.shared().retention;
        // If this thread cannot be a worker, other threads will free what was kept.
        while retention.has_released() && matches!(self.release(), Ok(true)) {}
    }

    fn release(&self) -> Result<bool, Failure> {
        self.pinned(|worker| worker.memory.release_retained())
    }
}

// ---- for the history --------------------------------------------------------------------------

#[cfg(feature = "history")]
mod recording {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::history::{HistoryKey, Recorder, Status};
    use crate::store::worker::SharedState;

    /// Returns a recorder for a snapshot that is about to be opened, if the database is recorded.
    pub(super) fn recorder(shared: &SharedState) -> Option<Mutex<Recorder>> {
        let mut recorder = shared.recording.as_ref()?.recorder();
        recorder.invoke();
        Some(Mutex::new(recorder))
    }

    /// Returns a recorder for a reader of a snapshot that was opened earlier, at these times.
    pub(super) fn recorder_of(
        shared: &SharedState,
        times: OpeningTimes,
    ) -> Option<Mutex<Recorder>> {
        let mut recorder = shared.recording.as_ref()?.recorder();
        recorder.invoke();
        if let Some(times) = times.opened {
            recorder.set_times(times);
        }
        Some(Mutex::new(recorder))
    }

    impl Snapshot {
        pub(super) fn recorder(&self) -> Option<MutexGuard<'_, Recorder>> {
            let recorder = self.recorder.as_ref()?;
            Some(recorder.lock().unwrap_or_else(PoisonError::into_inner))
        }

        /// Returns the recorded times of the snapshot's invocation and opening.
        pub(crate) fn recorded_times(&self) -> Option<(u64, u64)> {
            self.recorder().map(|recorder| recorder.times())
        }

        /// Records that the snapshot has been opened.
        pub(super) fn record_opened(&self) {
            if let Some(mut recorder) = self.recorder() {
                recorder.complete();
            }
        }

        /// Records that a key was looked up.
        pub(super) fn record_seen<T: Record>(
            &self,
            table: &TableInner<T>,
            key: &impl KeyLookup<T::Key>,
            row: Option<NonNull<u8>>,
        ) {
            if let Some(mut recorder) = self.recorder() {
                let reference = table.reference();
                // SAFETY: a row that the snapshot sees, of a recorded database.
                let seen = row.map(|row| unsafe { reference.core().stamp(row) });
                recorder.read(table.number(), HistoryKey::of_lookup(key), seen);
            }
        }

        /// Records that the snapshot is closed.
        pub(super) fn record_end(&self) {
            if let Some(mut recorder) = self.recorder() {
                recorder.end(Status::Committed);
            }
        }
    }
}

#[cfg_attr(
    not(feature = "history"),
    allow(unused_variables, reason = "the arguments are for the recorder")
)]
impl Snapshot {
    #[inline(always)]
    fn record_read<T: Record>(
        &self,
        table: &TableInner<T>,
        key: &impl KeyLookup<T::Key>,
        row: Option<NonNull<u8>>,
    ) {
        #[cfg(feature = "history")]
        self.record_seen(table, key, row);
    }
}
