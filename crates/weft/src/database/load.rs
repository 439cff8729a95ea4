//! Bulk loading: several threads put rows into an empty table, without a transaction for each row.
//!
//! While a table is loaded, the database is closed for everything else: no transaction and no snapshot begins. So
//! the loaded rows need not be locked, validated, numbered or logged. If the database has a directory, a checkpoint
//! makes all loaded rows durable at once. If anything goes wrong before that, the table is empty again, in memory
//! and in the directory.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};

use weft_htm::blocking::{self, Mutex};
use weft_htm::word::{Ordering, Word, yield_now};

use crate::commit::Protocol;
use crate::database::Database;
use crate::database::storage::{CheckpointHold, Storage};
use crate::database::stored::{FillOutcome, FillingMemories};
use crate::error::Failure;
use crate::row::schema::Record;
use crate::store::retention::NONE_OPEN;
use crate::store::table::{Identity, Table};
use crate::store::worker::{CLOSED, Growth, LOADING, LeafHints, OPEN, SharedState};
use crate::sync::reclaim::OFFLINE;

/// How many rows a thread loads between two reports of its progress.
const ROWS_PER_REPORT: u64 = 8192;

impl<P: Protocol> Database<P> {
    /// Fills an empty table with the rows of `parts`, with one thread for each part, and returns the number of
    /// rows. This is several times as fast as transactions. From time to time one of the threads calls `progress`
    /// with the number of rows so far.
    ///
    /// While it runs, no transaction and no snapshot begins ([`Failure::Loading`]). When it returns and the
    /// database has a directory, the rows are durable. If it or one of the parts fails, the table is empty again.
    ///
    /// # Errors
    /// - The errors of the parts.
    /// - [`Failure::NotEmpty`], [`Failure::ForeignTable`].
    /// - [`Failure::DuplicateKey`] if two rows have the same key.
    /// - [`Failure::Constraint`] if a row breaks one of its constraints.
    /// - [`Failure::StoredRowTooLarge`] if a row is too long to be stored.
    /// - [`Failure::MemoryFull`] if the rows need more memory than the database may use.
    /// - [`Failure::SnapshotOpen`], [`Failure::NestedTransaction`], [`Failure::Loading`], [`Failure::Closed`].
    /// - [`Failure::ReadOnly`], [`Failure::Storage`].
    pub fn load<T, I, E>(
        &self,
        table: &Table<T>,
        parts: impl IntoIterator<Item = I>,
        progress: impl Fn(u64) + Sync,
    ) -> Result<u64, E>
    where
        T: Record,
        I: IntoIterator<Item = Result<T, E>> + Send,
        E: From<Failure> + Send,
    {
        load_into(self, table, parts, &progress)
    }
}

/// What a load needs of a database, whatever its protocol. So a load is compiled once for each kind of rows, and not for each
/// protocol as well.
trait LoadedDatabase {
    fn identity(&self) -> &Arc<Identity>;
    fn shared(&self) -> &Arc<SharedState>;
    fn storage(&self) -> Option<&Storage>;
    /// Returns an error if the database cannot be changed now, by this thread.
    fn check(&self) -> Result<(), Failure>;
    /// Closes the database for everything but the load.
    fn begin(&self) -> Result<LoadingGuard<'_>, Failure>;
    /// Makes the rows durable.
    fn checkpoint(&self, storage: &Storage, held: &mut CheckpointHold<'_>) -> Result<(), Failure>;
}

impl<P: Protocol> LoadedDatabase for Database<P> {
    fn identity(&self) -> &Arc<Identity> {
        &self.inner().identity
    }

    fn shared(&self) -> &Arc<SharedState> {
        &self.inner().shared
    }

    fn storage(&self) -> Option<&Storage> {
        self.inner().storage.get()
    }

    fn check(&self) -> Result<(), Failure> {
        if self.engine().is_durable() {
            self.engine().log()?;
        }
        self.check_no_commit()
    }

    fn begin(&self) -> Result<LoadingGuard<'_>, Failure> {
        if self.claimed_worker().is_some_and(|worker| worker.active.get()) {
            return Err(Failure::NestedTransaction);
        }
        LoadingGuard::begin(&self.inner().shared)
    }

    fn checkpoint(&self, storage: &Storage, held: &mut CheckpointHold<'_>) -> Result<(), Failure> {
        self.checkpoint_while_held(storage, held, true, &|_| {}).map(drop)
    }
}

/// See [`Database::load`].
fn load_into<T, I, E>(
    database: &dyn LoadedDatabase,
    table: &Table<T>,
    parts: impl IntoIterator<Item = I>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64, E>
where
    T: Record,
    I: IntoIterator<Item = Result<T, E>> + Send,
    E: From<Failure> + Send,
{
    if !Arc::ptr_eq(&table.inner.identity, database.identity()) {
        return Err(Failure::ForeignTable { table: table.name() }.into());
    }
    let storage = database.storage();
    database.check()?;
    // No checkpoint and no backup may see half of the load.
    let mut no_checkpoint = storage.map(|storage| storage.hold_checkpoints()).transpose()?;
    let loading = database.begin()?;
    let memories = FillingMemories::new(Arc::clone(database.shared()));
    if memories.with(|memory| !table.inner.is_empty(memory)) {
        return Err(Failure::NotEmpty { table: table.name() }.into());
    }
    let loader = Loader { table, memories: &memories, storage, progress, rows: Word::new(0) };
    // The parts and the rows run the user's code, which may panic. The table is empty after that, as after an
    // error.
    let result = catch_unwind(AssertUnwindSafe(|| {
        loader.load(parts).and_then(|rows| {
            if let (Some(storage), Some(held)) = (storage, &mut no_checkpoint) {
                database.checkpoint(storage, held)?;
            }
            Ok(rows)
        })
    }));
    if !matches!(result, Ok(Ok(_))) {
        memories.with(|memory| table.inner.clear(memory));
    }
    drop(memories);
    drop(loading);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// As long as this lives, a database is closed for everything but loading.
struct LoadingGuard<'a>(&'a SharedState);

impl<'a> LoadingGuard<'a> {
    /// Closes the database. The calling thread runs no transaction.
    fn begin(shared: &'a SharedState) -> Result<Self, Failure> {
        // From now on no transaction and no snapshot begins.
        shared
            .admission
            .compare_exchange(OPEN, LOADING, Ordering::SeqCst, Ordering::SeqCst)
            .map_err(|state| match state {
                CLOSED => Failure::Closed,
                _ => Failure::Loading,
            })?;
        let loading = LoadingGuard(shared);
        // Closes the shared recent snapshot. Readers that have joined it count like any others.
        shared.recent.close(&shared.retention);
        if shared.retention.oldest() != NONE_OPEN {
            return Err(Failure::SnapshotOpen);
        }
        // A thread that was pinned before it could see the new state may be in a transaction. Wait for all of them.
        while shared.grace.horizon() != OFFLINE {
            yield_now();
        }
        Ok(loading)
    }
}

impl Drop for LoadingGuard<'_> {
    fn drop(&mut self) {
        // If `close` was called in the meantime, the database stays closed.
        let _ =
            self.0.admission.compare_exchange(LOADING, OPEN, Ordering::SeqCst, Ordering::SeqCst);
    }
}

struct Loader<'a, T: Record> {
    table: &'a Table<T>,
    memories: &'a FillingMemories,
    storage: Option<&'a Storage>,
    progress: &'a (dyn Fn(u64) + Sync),
    rows: Word,
}

impl<T: Record> Loader<'_, T> {
    fn load<I, E>(&self, parts: impl IntoIterator<Item = I>) -> Result<u64, E>
    where
        I: IntoIterator<Item = Result<T, E>> + Send,
        E: From<Failure> + Send,
    {
        let outcome = Mutex::new(Ok(()));
        let failed = Word::new(0);
        let work = |result: Result<(), E>| {
            if let Err(error) = result {
                // Relaxed: the flag only makes the other parts stop early. The error is passed on under the mutex.
                failed.store(1, Ordering::Relaxed);
                let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                if outcome.is_ok() {
                    *outcome = Err(error);
                }
            }
        };
        // Phase 1: fill in the rows, with one thread for each part.
        let mut threads = 0;
        blocking::scope(|scope| {
            for part in parts {
                threads += 1;
                let (work, failed) = (&work, &failed);
                scope.spawn(move || work(self.load_part(part, failed)));
            }
        });
        // Phase 2: build the secondary indexes from the rows, with as many threads.
        let threads = threads.max(1);
        if failed.load(Ordering::Relaxed) == 0 {
            blocking::scope(|scope| {
                for part in 0..threads {
                    let work = &work;
                    scope.spawn(move || work(self.build_indexes(part, threads)));
                }
            });
        }
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let rows = self.rows.load(Ordering::Relaxed);
        (self.progress)(rows);
        Ok(rows)
    }

    /// Fills in the rows of one part. Stops when another part has failed.
    fn load_part<E: From<Failure>>(
        &self,
        part: impl IntoIterator<Item = Result<T, E>>,
        failed: &Word,
    ) -> Result<(), E> {
        let _in_user_code = self.storage.map(Storage::in_user_code);
        self.memories.with(|memory| {
            let mut unreported = 0;
            // The rows of a part mostly are in the order of their keys, so a row goes into the leaf of the one before.
            let mut hints = LeafHints::default();
            for row in part {
                let row = row?;
                self.table.inner.check(&row).map_err(E::from)?;
                if failed.load(Ordering::Relaxed) != 0 {
                    return Ok(());
                }
                let table = self.table.inner.reference();
                // The row's own memory counts when it is filled in.
                memory.make_room::<Failure>(table.core(), Growth::Insert, 0)?;
                let key = row.key();
                // Another part may fill in a row with the same key at the same time, so none is replaced.
                let filled = self.table.inner.fill(row, false, &mut hints, memory);
                if let FillOutcome::Present(_) = filled {
                    let (index, key) = (None, format!("{key:?}"));
                    return Err(
                        Failure::DuplicateKey { table: self.table.name(), index, key }.into()
                    );
                }
                unreported += 1;
                if unreported == ROWS_PER_REPORT {
                    let before = self.rows.fetch_add(unreported, Ordering::Relaxed);
                    (self.progress)(before + unreported);
                    unreported = 0;
                }
            }
            self.rows.fetch_add(unreported, Ordering::Relaxed);
            Ok(())
        })
    }

    fn build_indexes<E: From<Failure>>(&self, part: usize, parts: usize) -> Result<(), E> {
        let _in_user_code = self.storage.map(Storage::in_user_code);
        // No check: the rows were checked when they were filled in.
        let first = Cell::new(None);
        let duplicate = |index, row: &T, _: &T| {
            first.set(first.take().or_else(|| Some((index, row.index_key_text(index)))));
        };
        self.memories.with(|memory| {
            self.table.inner.build_indexes((part, parts), memory, None, &duplicate);
        });
        match first.take() {
            None => Ok(()),
            Some((index, key)) => {
                let index = Some(T::INDEXES[index].name);
                Err(Failure::DuplicateKey { table: self.table.name(), index, key }.into())
            }
        }
    }
}
