//! The background removal of rows that have expired, and hooks.
//!
//! The first handle to a table whose rows expire starts the thread `weft-expiry`, which serves all such tables. Every
//! few milliseconds it advances the database's time, and looks at the beginning of each table's index by time. What has
//! expired is removed in transactions of a few rows. After each of them the thread pauses for several times as long as
//! the transaction took, so that it takes a small part of one processor. If rows wait for a minute it takes up to a half.
//!
//! If the table has a hook, each row has a transaction of its own, so that a hook that fails stops no other row. The
//! row stays, and is tried again after a time that doubles with each failure.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_htm::blocking::{Mutex, MutexGuard, hold};
use weft_htm::word::{Ordering, Word};

use super::background::{self, Stop};
use super::{Database, Inner, TransactionOptions};
use crate::commit::Protocol;
use crate::error::{Error, Failure};
use crate::index::LongKey;
use crate::row::encoding::KeyForm;
use crate::row::schema::Record;
use crate::store::table::{Hook, Table};
use crate::store::worker::SharedState;
use crate::transaction::{TableHook, Transaction};

/// How often the thread looks for rows that have expired.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How many rows one transaction removes.
const BATCH_ROWS: usize = 64;

/// How many times as long as it has worked the thread pauses, and the same if rows have waited for long.
const PAUSE: u32 = 9;
const SHORT_PAUSE: u32 = 1;

/// After how many milliseconds rows have waited for long.
const LONG_WAIT_MS: u64 = 60_000;

/// How often a removal is run again after a conflict, before other rows come first.
const RETRIES_MAX: u32 = 8;

/// The shortest and the longest time after which a hook that has failed is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// What the removal of rows that have expired has done, if any rows of the database expire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpiryMetrics {
    /// How many rows were removed in the background, and by [`Database::remove_expired`]. Those that have made way for
    /// rows with the same key, and those of [`Transaction::run_due`], are not counted.
    pub removed: u64,
    /// For how long the row that waits longest has waited to be removed since it has expired. So this is how far the
    /// removal is behind. It is that of the last look at the tables.
    pub overdue: Duration,
    /// How often a hook has failed or panicked.
    pub hook_failures: u64,
    /// What the last failure was.
    pub last_failure: Option<String>,
}

/// Removes the rows of a database that have expired.
pub struct Expiry<P: Protocol> {
    removers: Mutex<Vec<Arc<dyn Remove<P>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    removed: Word,
    hook_failures: Word,
    last_failure: Mutex<Option<String>>,
}

impl<P: Protocol> Default for Expiry<P> {
    fn default() -> Self {
        Expiry {
            removers: Mutex::default(),
            thread: Mutex::default(),
            stop: Stop::default(),
            counts: Counts::default(),
        }
    }
}

impl<P: Protocol> Expiry<P> {
    /// Makes the thread stop, without waiting for it.
    pub fn stop_soon(&self) {
        self.stop.request();
    }

    /// Stops the thread, and waits for it. If this is the thread itself, it ends when it returns.
    pub fn stop(&self) {
        self.stop_soon();
        let thread = hold(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // If the thread has panicked, the panic's message was printed.
            let _ = thread.join();
        }
    }

    pub fn metrics(&self, shared: &SharedState) -> Option<ExpiryMetrics> {
        let removers = hold(&self.removers).clone();
        let oldest = removers.iter().map(|remover| remover.oldest()).min()?;
        Some(ExpiryMetrics {
            removed: self.counts.removed.load(Ordering::Relaxed),
            overdue: Duration::from_millis(shared.time.present().saturating_sub(oldest)),
            hook_failures: self.counts.hook_failures.load(Ordering::Relaxed),
            last_failure: hold(&self.counts.last_failure).clone(),
        })
    }
}

/// The table of a database from which rows are removed.
trait Remove<P: Protocol>: Send + Sync {
    /// The table's number.
    fn table(&self) -> usize;

    /// When the row expired that waits longest, in milliseconds since 1970, as of the last look; `u64::MAX` if none
    /// waits.
    fn oldest(&self) -> u64;

    /// Tries hooks again that have failed. If another thread removes rows of the table, this `waits` for it, or does nothing.
    fn try_again(&self, waits: bool);

    /// Removes a few rows. Returns how many, and whether there may be more to do at once. If another thread removes rows of
    /// the table, this `waits` for it, or does nothing.
    fn remove(&self, database: &Database<P>, waits: bool) -> Result<(usize, bool), Failure>;
}

struct Remover<T: Record> {
    table: Table<T>,
    /// Which hooks have failed, by the rows' encoded keys. Locked while rows are removed.
    failed: Mutex<BTreeMap<Vec<u8>, Failed>>,
    oldest: Word,
}

/// The failures of a row's hook.
struct Failed {
    failures: u32,
    again_at: Instant,
}

impl<T: Record, P: Protocol> Remove<P> for Remover<T> {
    fn table(&self) -> usize {
        self.table.inner.number()
    }

    fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    fn try_again(&self, waits: bool) {
        if let Some(mut failed) = self.lock(waits) {
            let now = Instant::now();
            failed.values_mut().for_each(|failed| failed.again_at = now);
        }
    }

    fn remove(&self, database: &Database<P>, waits: bool) -> Result<(usize, bool), Failure> {
        let Some(mut failed) = self.lock(waits) else { return Ok((0, false)) };
        let now = Instant::now();
        // A row that was removed in another way is not tried again.
        failed.retain(|_, failed| now < failed.again_at + 2 * BACKOFF_MAX);
        let has_hook = T::EXPIRY.is_some_and(|expiry| expiry.has_hook);
        let limit = if has_hook { 1 } else { BATCH_ROWS };
        let options = TransactionOptions::new().retries_max(RETRIES_MAX).label("weft-expiry");
        // The key of the row that was tried last. When the oldest of the rows that were tried had expired, and of those
        // that were left for later.
        let (mut tried, mut oldest, mut oldest_left) = (Vec::new(), u64::MAX, u64::MAX);
        let mut run = |tx: &Transaction<'_, P>| {
            (oldest, oldest_left) = (u64::MAX, u64::MAX);
            tried.clear();
            tx.run_due_if(&self.table, limit, &mut |row| {
                let expired_at = row.expires_at().as_millis();
                let mut key = Vec::new();
                if has_hook {
                    key.extend_from_slice(LongKey::from_key(&row.key()).to_bytes().as_ref());
                }
                let is_wanted = failed.get(&key).is_none_or(|failed| failed.again_at <= now);
                let oldest = if is_wanted { &mut oldest } else { &mut oldest_left };
                *oldest = expired_at.min(*oldest);
                if is_wanted {
                    tried = key;
                }
                is_wanted
            })
        };
        let run = || database.transact_with_token::<_, Error>(&options, &mut run);
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let removed = match outcome {
            Ok(Ok((removed, _))) => {
                if removed > 0 {
                    failed.remove(&tried);
                }
                removed
            }
            // Others come first, or the hook is still to be set.
            Ok(Err(Error::Failure(Failure::RetriesExhausted { .. } | Failure::NoHook { .. }))) => {
                return Ok((0, false));
            }
            Ok(Err(Error::Failure(closed @ (Failure::Closed | Failure::Loading)))) => {
                return Err(closed);
            }
            Ok(Err(error)) => {
                self.oldest.store(oldest.min(oldest_left), Ordering::Relaxed);
                self.note_failure(database, &mut failed, tried, error.to_string());
                return Ok((0, has_hook));
            }
            Err(panic) => {
                self.oldest.store(oldest.min(oldest_left), Ordering::Relaxed);
                let message = super::builder::panic_message(&*panic);
                // The payload is the user's, and its `Drop` might panic, too.
                std::mem::forget(panic);
                self.note_failure(database, &mut failed, tried, message);
                return Ok((0, true));
            }
        };
        database.inner.expiry.counts.removed.fetch_add(removed as u64, Ordering::Relaxed);
        let is_more = removed == limit;
        let oldest = if is_more { oldest.min(oldest_left) } else { oldest_left };
        self.oldest.store(oldest, Ordering::Relaxed);
        Ok((removed, is_more))
    }
}

impl<T: Record> Remover<T> {
    /// Returns `None` if this does not wait, and rows of the table are being removed by another thread, or by this one, which
    /// calls this from a hook.
    fn lock(&self, waits: bool) -> Option<MutexGuard<'_, BTreeMap<Vec<u8>, Failed>>> {
        if waits { Some(hold(&self.failed)) } else { self.failed.try_lock().ok() }
    }

    fn note_failure<P: Protocol>(
        &self,
        database: &Database<P>,
        failed: &mut BTreeMap<Vec<u8>, Failed>,
        key: Vec<u8>,
        message: String,
    ) {
        let counts = &database.inner.expiry.counts;
        counts.hook_failures.fetch_add(1, Ordering::Relaxed);
        *hold(&counts.last_failure) = Some(format!("table {}: {message}", self.table.name()));
        let now = Instant::now();
        let failed = failed.entry(key).or_insert(Failed { failures: 0, again_at: now });
        let doubled = BACKOFF_MIN * (1 << failed.failures.min(16));
        failed.failures += 1;
        failed.again_at = now + doubled.min(BACKOFF_MAX);
    }
}

impl<P: Protocol> Database<P> {
    /// Sets what is run when a row of `table` has expired, if the row type declares `expires(column, hook)`. Such a row
    /// stays until a transaction removes it and calls `hook` with it. Both happen, or neither does. Replaces the hook that
    /// was set before.
    ///
    /// The database calls the hook in the background, soon after the row has expired, and
    /// [`Transaction::run_due`] calls it at once. Like the closure of a transaction, the hook may run several times
    /// until the transaction commits. If it returns an error or panics in the background, the row stays, and is tried again
    /// after 100 ms, then after twice that, up to a minute: see [`ExpiryMetrics::hook_failures`]. Until the hook is set, rows
    /// stay. Set it right after opening the database.
    ///
    /// A hook holds [tables](Database::table), but not a handle of its database, which would then never be dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use weft::{Database, Record, Timestamp, column_of};
    ///
    /// #[derive(Clone, Record)]
    /// struct Item { #[record(key)] id: u32, #[record(min = 0)] stock: i64 }
    ///
    /// #[derive(Clone, Record)]
    /// #[record(expires(until, hook))]
    /// struct Reservation { #[record(key)] number: u64, item: u32, pieces: i64, until: Timestamp }
    ///
    /// let database = Database::builder().table::<Item>().table::<Reservation>().open()?;
    /// let (items, reservations) = (database.table::<Item>()?, database.table::<Reservation>()?);
    /// let stock = items.clone();
    /// database.on_expiry(&reservations, move |tx, reservation| {
    ///     tx.give(&stock, &reservation.item, column_of!(Item.stock), reservation.pieces)
    /// })?;
    /// database.transact(|tx| tx.insert(&items, Item { id: 7, stock: 5 }))?;
    ///
    /// let reserve = |number, pieces| {
    ///     database.transact(|tx| {
    ///         // What has expired is in stock again.
    ///         tx.run_due(&reservations, 100)?;
    ///         tx.take(&items, &7, column_of!(Item.stock), pieces)?;
    ///         let until = tx.now() + Duration::from_secs(600);
    ///         tx.insert(&reservations, Reservation { number, item: 7, pieces, until })
    ///     })
    /// };
    /// reserve(1, 5)?;
    /// assert!(reserve(2, 1).is_err());
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::NoHook`] if the row type does not declare a hook; [`Failure::ForeignTable`].
    pub fn on_expiry<T: Record>(
        &self,
        table: &Table<T>,
        hook: impl Fn(&Transaction<'_, P>, &T) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        if !Arc::ptr_eq(&table.inner.identity, &self.inner.identity) {
            return Err(Failure::ForeignTable { table: table.name() });
        }
        if !T::EXPIRY.is_some_and(|expiry| expiry.has_hook) {
            return Err(Failure::NoHook { table: table.name() });
        }
        let hook: Box<TableHook<P, T>> = Box::new(hook);
        table.inner.set_hook(Some(Arc::new(Hook(hook))));
        Ok(())
    }

    /// Removes all rows that have expired, and runs their hooks, in small transactions, and returns how many there were.
    /// The database does this in the background, unless it has a [manual clock](crate::Builder::clock). Rows whose hook
    /// fails stay.
    ///
    /// # Errors
    /// [`Failure::Closed`], [`Failure::Loading`].
    pub fn remove_expired(&self) -> Result<usize, Failure> {
        let removers = hold(&self.inner.expiry.removers).clone();
        // Code of a row type, or a hook, that runs on this thread may be called by a removal.
        let waits = self.claimed_worker().is_none();
        removers.iter().for_each(|remover| remover.try_again(waits));
        self.remove_due(&removers, waits, |_| true)
    }

    /// Makes time go by another clock from now on, or by that of the system, and removes rows that have expired. For a
    /// database that has gone by a clock of its own, because it followed another database.
    ///
    /// # Errors
    /// [`Failure::Thread`].
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn follow_clock(&self, clock: Option<&super::ManualClock>) -> Result<(), Failure> {
        let shared = &self.inner.shared;
        let Some(clock) = clock else {
            shared.time.set_manual(false);
            shared.time.follow_system();
            let has_removers = !hold(&self.inner.expiry.removers).is_empty();
            return if has_removers { self.start_removing() } else { Ok(()) };
        };
        clock.attach(shared);
        Ok(())
    }

    /// Removes rows until none is left that has expired, or `pause` returns false. It gets the time that the last
    /// transaction took, and is called after each that leaves more to do. The tables take turns, so that one which cannot be
    /// emptied does not stop the others.
    fn remove_due(
        &self,
        removers: &[Arc<dyn Remove<P>>],
        waits: bool,
        mut pause: impl FnMut(Duration) -> bool,
    ) -> Result<usize, Failure> {
        let mut total = 0;
        loop {
            let mut is_done = true;
            for remover in removers {
                let begin = Instant::now();
                let (removed, is_more) = remover.remove(self, waits)?;
                total += removed;
                if is_more {
                    is_done = false;
                    if !pause(begin.elapsed()) {
                        return Ok(total);
                    }
                }
            }
            if is_done {
                return Ok(total);
            }
        }
    }

    /// Removes the rows of a table in the background from now on, if that is not done already.
    #[cold]
    pub(super) fn remove_in_background<T: Record>(&self, table: &Table<T>) -> Result<(), Failure> {
        // A database that is being opened has no user handle.
        if self.user.is_none() {
            return Ok(());
        }
        let expiry = &self.inner.expiry;
        let mut removers = hold(&expiry.removers);
        if removers.iter().any(|remover| remover.table() == table.inner.number()) {
            return Ok(());
        }
        let oldest = Word::new(u64::MAX);
        removers.push(Arc::new(Remover { table: table.clone(), failed: Mutex::default(), oldest }));
        drop(removers);
        self.start_removing()
    }

    /// Starts the thread that removes rows, unless it runs, or the time is set by hand.
    fn start_removing(&self) -> Result<(), Failure> {
        let expiry = &self.inner.expiry;
        let mut thread = hold(&expiry.thread);
        // The simulated machine has no threads of the host.
        if thread.is_none() && !self.inner.shared.time.is_manual() && !cfg!(weft_sim) {
            let (inner, stop) = (self.inner.this.clone(), expiry.stop.clone());
            let work = move || {
                while stop.pause(LOOK_INTERVAL)
                    && inner.upgrade().is_some_and(|inner| look(inner, &stop))
                {}
            };
            *thread = Some(background::start("weft-expiry", work)?);
        }
        Ok(())
    }
}

/// Removes what has expired. Returns false if the thread must stop.
fn look<P: Protocol>(inner: Arc<Inner<P>>, stop: &Stop) -> bool {
    inner.shared.time.follow_system();
    let removers = hold(&inner.expiry.removers).clone();
    let database = Database::of(inner);
    let removed = database.remove_due(&removers, false, |worked| {
        let shared = &database.inner.shared;
        shared.time.follow_system();
        let oldest = removers.iter().map(|remover| remover.oldest()).min().unwrap_or(u64::MAX);
        let is_late = shared.time.present().saturating_sub(oldest) > LONG_WAIT_MS;
        stop.pause(worked * if is_late { SHORT_PAUSE } else { PAUSE })
    });
    !matches!(removed, Err(Failure::Closed))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::row::timestamp::Timestamp;
    use crate::{ManualClock, Record, protocol::Dbx};

    #[derive(Clone, Debug, Record)]
    #[record(table = "tasks", expires(until, hook))]
    struct Task {
        #[record(key)]
        id: u32,
        until: Timestamp,
    }

    /// Fault: a row that was looked at and left for later counted as tried. When nothing else was due, its failures were
    /// forgotten, and the hook ran again at once instead of after a growing time.
    #[test]
    fn failing_hook_waits_for_its_time() {
        let start = Timestamp::from_millis(1_000_000);
        let clock = ManualClock::new(start);
        let database = Database::builder().table::<Task>().clock(&clock).open().unwrap();
        let tasks = database.table::<Task>().unwrap();
        let calls = Arc::new(Word::new(0));
        let counted = Arc::clone(&calls);
        let hook = move |_: &Transaction<'_, Dbx>, _: &Task| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(Failure::NoSuchRow { table: "tasks", key: "7".to_owned() }.into())
        };
        database.on_expiry(&tasks, hook).unwrap();
        database.transact(|tx| tx.insert(&tasks, Task { id: 1, until: start })).unwrap();
        let oldest = Word::new(u64::MAX);
        let remover = Remover { table: tasks, failed: Mutex::default(), oldest };
        for round in 0..3 {
            Remove::<Dbx>::remove(&remover, &database, true).unwrap();
            let mut failed = hold(&remover.failed);
            assert_eq!(failed.len(), 1, "round {round}");
            // However slow this test is, the time does not pass.
            failed.values_mut().for_each(|failed| failed.again_at += BACKOFF_MAX);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // When its time has come, the row is tried again, and waits for twice as long.
        <Remover<Task> as Remove<Dbx>>::try_again(&remover, true);
        Remove::<Dbx>::remove(&remover, &database, true).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        assert_eq!(hold(&remover.failed).values().map(|it| it.failures).collect::<Vec<_>>(), [2]);
    }
}
