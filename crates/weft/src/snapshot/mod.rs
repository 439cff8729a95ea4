//! Snapshots: read-only views of the database as it was at one moment (DBX §5.4).
//!
//! The idea. Opening a snapshot takes the global snapshot number and increments it. Whatever
//! commits from then on draws a greater number, and leaves the versions that it replaces to the
//! snapshot, as long as that is open. So the snapshot reads, of each record, the newest version
//! whose number is not greater than its own. It notes nothing, validates nothing, locks nothing and
//! never aborts; and writers do not wait for it. It is the most recent state there is: everything
//! that had committed when it was opened is in it.
//!
//! Only opening waits, for a moment: for the commits that have drawn their numbers and have not yet
//! installed all their versions (see [`Commits`](crate::sync::clock::Commits)). In return no read
//! ever meets a record that is half way.
//!
//! What a version knows of its number and its predecessor is in [`version`](crate::store::record::version);
//! which versions are kept, and for how long, in [`retention`]. Both are the same under every
//! protocol: it is the transaction layer that numbers what a protocol has installed. What a
//! protocol has to see to is that numbers, drawn at its serialization points, agree with its
//! serial order; those that draw them with all their locks held do so by themselves.
//!
//! **Departures from the paper**
//! - The paper's writers compare the record's number with the global one inside the commit region,
//!   and create a version there. Here versions are numbered after the commit, and openers wait for
//!   that, so regions do not grow.
//! - The paper's old versions go when all read-only transactions that were running have ended.
//!   Here a version goes when no open snapshot needs it: see [`retention`].

mod batch;
mod scan;

use std::any::Any;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use weft_htm::word::yield_now;

pub use batch::SnapshotRows;
pub use scan::SnapshotScan;

use crate::error::Failure;
use crate::index::Lookup;
use crate::index::bplus_tree::LeafHint;
use crate::row::encoding::{Key, KeyForm, KeyPrefix};
use crate::row::schema::{Index, Record};
use crate::store::ranges::{describe_range, encode_index_range, encode_range, prefix_of};
use crate::store::recent::Times;
use crate::store::record::version::{self, Seen};
use crate::store::record::{newest, record_at};
use crate::store::table::{Identity, PickForm, Table, TableInner, with_form, with_secondary};
use crate::store::worker::{Pinned, Shared, WorkerState};

/// The database as it was when the snapshot was opened.
///
/// Reading from it never conflicts with anything, however long it takes and however much is
/// written meanwhile. The rows that it returns stay valid as long as it does. It may be sent to
/// another thread, and be read by several at once; each of them counts as one of the database's
/// [workers](crate::Builder::workers_max).
///
/// While it is open, the database keeps the versions that it needs: at most one of each row that it
/// can read, and one of each index entry of such a row, however often the row is changed, deleted or
/// inserted again. Rows that were inserted since cost nothing: if they are deleted they go at once.
/// [`Metrics::snapshots`] shows how much is kept, and how old the oldest snapshot is.
///
/// Dropping it gives back what was kept for it alone, which takes a time in proportion. It does so in
/// small steps, and other threads do not wait for it.
///
/// ```
/// use weft::{Database, Error, Record};
///
/// #[derive(Clone, Record)]
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
    /// Records what is read, as one transaction in a session of its own, which ends with the
    /// snapshot.
    #[cfg(feature = "history")]
    recorder: Option<std::sync::Mutex<crate::history::Recorder>>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Snapshot").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A database as its snapshots see it, whatever its protocol.
pub(crate) trait SnapshotSource: Send + Sync {
    fn shared(&self) -> &Shared;

    fn identity(&self) -> &Arc<Identity>;

    /// This thread's worker, if it is one.
    fn registered(&self) -> Option<&WorkerState>;

    /// Makes this thread a worker.
    fn register(self: Arc<Self>) -> Result<(), Failure>;
}

/// The database of a snapshot, which does not go before the snapshot does.
pub(crate) struct SnapshotHome {
    /// What keeps the database's run going. Before `source`, so that the last of them finds the database still there.
    pub _user: Option<Arc<dyn Any + Send + Sync>>,
    pub source: Arc<dyn SnapshotSource>,
}

impl Snapshot {
    /// The snapshot's number: a later one has a greater number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the database's workers share.
    pub(crate) fn shared(&self) -> &Shared {
        self.database.source.shared()
    }

    /// The row with this primary key.
    ///
    /// # Errors
    /// [`Failure::ForeignTable`], [`Failure::TooManyWorkers`].
    pub fn get<T: Record>(&self, table: &Table<T>, key: &T::Key) -> Result<Option<&T>, Failure> {
        let inner = self.enter(table)?;
        let row = with_form!(T::Key::WIDTH_BYTES, |K| {
            // Before the worker is pinned: it is the user's code.
            let key = K::from_key(key);
            self.pinned(|_| match K::pick(&inner.primary).get(&key, &mut LeafHint::new()) {
                // SAFETY: pinned, and the table's own index holds addresses of its records.
                Lookup::Found(address) => unsafe { self.see(address) },
                Lookup::Absent(_) => None,
            })?
        });
        self.record_read(inner, key, row);
        // SAFETY: a row of the table that the snapshot needs, which is kept as long as it is open.
        Ok(row.map(|row| unsafe { row.cast::<T>().as_ref() }))
    }

    /// The rows whose primary keys lie in `range`, in the order of the keys.
    ///
    /// # Errors
    /// The scan's items are: [`Failure::UnorderedTable`], [`Failure::InvalidRange`],
    /// [`Failure::ForeignTable`], [`Failure::TooManyWorkers`].
    pub fn range<'s, T: Record>(
        &'s self,
        table: &Table<T>,
        range: impl RangeBounds<T::Key>,
    ) -> SnapshotScan<'s, T> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = encode_range::<K, _>(&range);
            SnapshotScan::primary::<K>(self, table, bounds, || describe_range(&range))
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::key_range(&range));
        scan
    }

    /// The rows whose primary keys begin with `prefix`, in the order of the keys.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix<'s, T: Record>(
        &'s self,
        table: &Table<T>,
        prefix: &impl KeyPrefix<T::Key>,
    ) -> SnapshotScan<'s, T> {
        let scan = with_form!(T::Key::WIDTH_BYTES, |K| {
            let bounds = K::prefix_range::<T::Key>(prefix);
            SnapshotScan::primary::<K>(self, table, bounds, Default::default)
        });
        #[cfg(feature = "history")]
        let scan = scan.recorded(|| crate::history::prefix_range(prefix));
        scan
    }

    /// All rows of a table, of whatever storage: in the order of the keys if it has one, else in
    /// none. The addresses of the rows of a hash table are gathered at the first `next`: eight
    /// bytes a row.
    ///
    /// # Errors
    /// The scan's items are: [`Failure::ForeignTable`], [`Failure::TooManyWorkers`].
    pub fn rows<'s, T: Record>(&'s self, table: &Table<T>) -> SnapshotScan<'s, T> {
        match T::STORAGE {
            crate::row::schema::Storage::Ordered => self.range(table, ..),
            crate::row::schema::Storage::Hash => {
                with_form!(T::Key::WIDTH_BYTES, |K| SnapshotScan::unordered::<K>(self, table))
            }
        }
    }

    /// The row with this key in a unique index.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_by<T: Record, K: Key>(
        &self,
        table: &Table<T>,
        index: Index<T, K>,
        key: &K,
    ) -> Result<Option<&T>, Failure> {
        self.prefix_by(table, index, key).next().transpose()
    }

    /// The rows whose keys in a secondary index lie in `range`, in the order of the index.
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
            SnapshotScan::secondary(self, table, position, bounds, || describe_range(&range))
        })
    }

    /// The rows whose keys in a secondary index begin with `prefix`, in the order of the index.
    ///
    /// # Errors
    /// As [`Snapshot::range`].
    pub fn prefix_by<'s, T: Record, K: Key>(
        &'s self,
        table: &Table<T>,
        index: Index<T, K>,
        prefix: &impl KeyPrefix<K>,
    ) -> SnapshotScan<'s, T> {
        let position = index.position();
        with_secondary!(&table.inner.secondary[position], |secondary| {
            let bounds = prefix_of(secondary, prefix);
            SnapshotScan::secondary(self, table, position, bounds, Default::default)
        })
    }

    fn enter<'t, T: Record>(&self, table: &'t Table<T>) -> Result<&'t TableInner<T>, Failure> {
        if Arc::ptr_eq(&table.inner.identity, self.database.source.identity()) {
            Ok(&table.inner)
        } else {
            Err(Failure::ForeignTable { table: T::TABLE })
        }
    }

    /// Runs `body`, in which nothing is freed that it finds.
    fn pinned<R>(&self, body: impl FnOnce(&WorkerState) -> R) -> Result<R, Failure> {
        let source = &self.database.source;
        let worker = match source.registered() {
            Some(worker) => worker,
            None => {
                Arc::clone(source).register()?;
                source.registered().ok_or(Failure::ThreadEnding)?
            }
        };
        // A transaction has its worker pinned.
        if worker.active.get() {
            return Ok(body(worker));
        }
        let pinned = Pinned::new(worker);
        let result = body(pinned.worker());
        drop(pinned);
        Ok(result)
    }

    /// The row of a record that the snapshot sees.
    ///
    /// # Safety
    /// The worker is pinned, and got the address from an index of the database while it was.
    #[inline(always)]
    unsafe fn see(&self, address: u64) -> Option<NonNull<u8>> {
        loop {
            // SAFETY: by the contract.
            let seen = unsafe {
                // Acquire: pairs with the publication of the version.
                let newest_row = newest(record_at(address));
                version::seen_at(newest_row, self.number)
            };
            match seen {
                Seen::Row(row) => return Some(row),
                Seen::Absent => return None,
                // Somebody is unlinking a version that this snapshot has no need of.
                Seen::Changed => yield_now(),
            }
        }
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
    /// Opens a snapshot whose number is taken by `take`, and waits for the commits that are under way.
    pub(crate) fn open(database: SnapshotHome, take: impl FnOnce() -> u64) -> Self {
        let shared = database.source.shared();
        #[cfg(feature = "history")]
        let recorder = recording::recorder(shared);
        let number = shared.retention.open(&shared.clock, take);
        let snapshot = Snapshot {
            database,
            number,
            #[cfg(feature = "history")]
            recorder,
        };
        let shared = snapshot.shared();
        shared.commits.wait(shared.grace.slots_used());
        #[cfg(feature = "history")]
        snapshot.record_opened();
        snapshot
    }

    /// One that was opened before, and is open still.
    #[cfg_attr(
        not(feature = "history"),
        allow(unused_variables, reason = "the times are for the recorder")
    )]
    pub(crate) fn joined(database: SnapshotHome, number: u64, times: Times) -> Self {
        #[cfg(feature = "history")]
        let recorder = recording::recorder_of(database.source.shared(), times);
        Snapshot {
            database,
            number,
            #[cfg(feature = "history")]
            recorder,
        }
    }

    /// When it was opened.
    pub(crate) fn times(&self) -> Times {
        Times {
            #[cfg(feature = "history")]
            opened: self.recorder().map(|recorder| recorder.times()),
        }
    }

    /// Releases what was kept for snapshots that are closed now, one chunk after the other. Between two chunks
    /// this thread is not pinned.
    pub(crate) fn release_all(&self) {
        let retention = &self.shared().retention;
        // If this thread cannot be a worker, the others will see to what was kept.
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
    use crate::store::worker::Shared;

    /// What records a snapshot that is about to be opened, if the database is recorded.
    pub(super) fn recorder(shared: &Shared) -> Option<Mutex<Recorder>> {
        let mut recorder = shared.recording.as_ref()?.recorder();
        recorder.invoke();
        Some(Mutex::new(recorder))
    }

    /// What records a reader of one that was opened at some time.
    pub(super) fn recorder_of(shared: &Shared, times: Times) -> Option<Mutex<Recorder>> {
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
            key: &T::Key,
            row: Option<NonNull<u8>>,
        ) {
            if let Some(mut recorder) = self.recorder() {
                let reference = table.reference();
                // SAFETY: a row that the snapshot sees, of a recorded database.
                let seen = row.map(|row| unsafe { reference.core().stamp(row) });
                recorder.read(table.number(), HistoryKey::of(key), seen);
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
        key: &T::Key,
        row: Option<NonNull<u8>>,
    ) {
        #[cfg(feature = "history")]
        self.record_seen(table, key, row);
    }
}
