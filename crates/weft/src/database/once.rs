//! Transactions that run once for a key: the result is kept, and returned to each later call with the same key.
//!
//! The result is a row of a table of the engine's own, which the transaction inserts in the same commit. So the commit
//! ensures that a transaction happens once: of two transactions that insert the same key, one conflicts, runs again,
//! and finds the result. The log, checkpoints, dumps and recovery treat the table as every other. Around the transaction
//! there are [lines], in which calls with the same key wait, and a queue of the stored results, the oldest first.
//! After its commit, a call removes the oldest results that are not needed any more, a few at a time.

pub mod lines;

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weft_htm::blocking::{current_thread, park_timeout};
use weft_htm::word::{Mutex, Ordering, Word};
use weft_macros::Record;

use super::{Builder, Database, TransactionOptions};
use crate::commit::{CommitToken, Protocol};
use crate::database::run::Strategy;
use crate::error::{Error, Failure};
use crate::row::column::ColumnValue;
use crate::row::description::{TypeDescription, read_as};
use crate::row::schema::Record;
use crate::store::deadline::Deadline;
use crate::store::observer::Label;
use crate::store::table::Table;
use crate::transaction::Transaction;

use lines::{Lines, Place, Unpark};

/// How long a database keeps the results of transactions that run [once](TransactionOptions::once).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OnceOptions {
    /// How long a result is kept at least. Default: 24 hours. A call with the same key after that time may run its
    /// closure again.
    pub retention: Duration,
    /// How many results are kept at most; the oldest ones are removed, even before their time. `None`, the default,
    /// sets no limit. Up to 15 more are kept, since results are removed 16 at a time.
    pub results_max: Option<usize>,
}

impl Default for OnceOptions {
    fn default() -> Self {
        OnceOptions { retention: Duration::from_secs(24 * 60 * 60), results_max: None }
    }
}

impl OnceOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`OnceOptions::retention`].
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets [`OnceOptions::results_max`].
    pub fn results_max(mut self, results_max: usize) -> Self {
        self.results_max = Some(results_max);
        self
    }
}

/// The key of a transaction that runs [once](TransactionOptions::once): a text, bytes or a number. Keys of different
/// kinds are different. Conversions make it of `&str`, `&[u8]`, `u64` and `u128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnceKey<'k> {
    /// A text.
    Text(&'k str),
    /// Bytes.
    Bytes(&'k [u8]),
    /// A number.
    Number(u128),
}

macro_rules! once_keys {
    ($([$($generics:tt)*] $type:ty => $key:ident $convert:expr,)*) => {$(
        impl<'k, $($generics)*> From<$type> for OnceKey<'k> {
            fn from(key: $type) -> Self {
                OnceKey::$key($convert(key))
            }
        }
    )*};
}

once_keys! {
    [] &'k str => Text std::convert::identity,
    [] &'k String => Text String::as_str,
    [] &'k [u8] => Bytes std::convert::identity,
    [] &'k Vec<u8> => Bytes Vec::as_slice,
    [const N: usize] &'k [u8; N] => Bytes <[u8; N]>::as_slice,
    [] u128 => Number std::convert::identity,
    [] u64 => Number u128::from,
}

/// A key as it is stored: its kind, and a text that is the key, the key's bytes in hexadecimal digits, or the number.
type StoredKey = (u8, String);

impl From<OnceKey<'_>> for StoredKey {
    fn from(key: OnceKey<'_>) -> Self {
        match key {
            OnceKey::Text(text) => (0, text.to_owned()),
            OnceKey::Bytes(bytes) => {
                let mut digits = String::with_capacity(2 * bytes.len());
                for byte in bytes {
                    write!(digits, "{byte:02x}").expect("writing to a string succeeds");
                }
                (1, digits)
            }
            OnceKey::Number(number) => (2, number.to_string()),
        }
    }
}

/// Options of a transaction or a submission that runs once for a key. Made by [`TransactionOptions::once`] and
/// [`SubmitOptions::once`](crate::SubmitOptions::once).
#[derive(Clone, Debug)]
pub struct Once<'k, O> {
    pub(super) key: OnceKey<'k>,
    pub(super) options: O,
}

impl TransactionOptions {
    /// Makes the transaction run once for `key`. Its result is stored in the same commit. Each later call with the key
    /// returns this result and does not run its closure, also after a restart or a crash, for as long as the
    /// database [keeps results](OnceOptions). Errors and panics are not stored: the next call runs its closure.
    ///
    /// While a transaction with the key runs, later calls wait for it, in the order of their arrival and within their
    /// deadlines. If commits are acknowledged when they are durable, a result is returned only when it is durable.
    ///
    /// The result must be a [`ColumnValue`], since it is stored. If its type has changed since, the stored result is
    /// converted as a [column](macro@crate::Record#how-a-schema-changes) would be. Use a key for one kind of
    /// transaction only, and name the kind by [`TransactionOptions::label`]: a call with another label fails.
    ///
    /// ```
    /// use weft::{Database, Error, OnceOptions, Record, TransactionOptions};
    ///
    /// #[derive(Clone, Record)]
    /// struct Account { #[record(key)] id: u32, cents: i64 }
    ///
    /// let database = Database::builder().table::<Account>().once(OnceOptions::new()).open()?;
    /// let accounts = database.table::<Account>()?;
    /// database.transact(|tx| tx.insert(&accounts, Account { id: 1, cents: 0 }))?;
    ///
    /// let pay_in = |request: &str, cents: i64| {
    ///     let options = TransactionOptions::new().label("pay in").once(request);
    ///     database.transact_with(&options, |tx| {
    ///         tx.update(&accounts, &1, |account| {
    ///             account.cents += cents;
    ///             account.cents
    ///         })
    ///     })
    /// };
    /// assert_eq!(pay_in("request 17", 50)?, Some(50));
    /// assert_eq!(pay_in("request 17", 50)?, Some(50), "the same request has the same result");
    /// assert_eq!(pay_in("request 18", 50)?, Some(100));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Besides the usual ones, the transaction fails with
    /// - [`Failure::ResultsNotKept`] if the database was opened without [`Builder::once`],
    /// - [`Failure::OnceLabel`] if the result was stored under another label,
    /// - [`Failure::OnceResult`] if the stored result is of another type.
    pub fn once<'k>(self, key: impl Into<OnceKey<'k>>) -> Once<'k, Self> {
        Once { key: key.into(), options: self }
    }
}

#[cfg(feature = "internals")]
impl<P: Protocol> Database<P> {
    /// Finds the stored results again, because the table was filled with the changes of another database.
    ///
    /// # Errors
    /// [`Failure::Closed`].
    #[doc(hidden)]
    pub fn recall_results(&self) -> Result<(), Failure> {
        self.results().map_or(Ok(()), |results| results.recall(self))
    }
}

impl<P: Protocol> Builder<P> {
    /// Keeps the results of transactions that run [once](TransactionOptions::once) for a key, in a table of the
    /// engine's own, `weft_once`. It is stored as the other tables are. A program that opens the directory without this
    /// call leaves the table as it is.
    pub fn once(mut self, options: OnceOptions) -> Self {
        if self.once.replace(options).is_none() {
            self = self.table::<StoredResult>();
        }
        self
    }
}

/// The options that [`Database::transact_with`] takes for a transaction with the result `R`:
/// [`TransactionOptions`], or [`Once`] if the result can be stored.
pub trait TransactWith<P: Protocol, R> {
    /// Runs a transaction with these options until it has ended.
    #[doc(hidden)]
    #[track_caller]
    fn run<E: From<Error>>(
        &self,
        database: &Database<P>,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, CommitToken), E>;
}

impl<P: Protocol, R> TransactWith<P, R> for TransactionOptions {
    #[inline(always)]
    #[track_caller]
    fn run<E: From<Error>>(
        &self,
        database: &Database<P>,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, CommitToken), E> {
        database.run_closure(self, (Strategy::default(), Label::here()), &mut body).result()
    }
}

impl<P: Protocol, R: ColumnValue> TransactWith<P, R> for Once<'_, TransactionOptions> {
    #[track_caller]
    fn run<E: From<Error>>(
        &self,
        database: &Database<P>,
        mut body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, CommitToken), E> {
        let (mut options, label) = (self.options.clone(), Label::here());
        let run = OnceRun::wait(database, self.key, &mut options).map_err(Error::from)?;
        let strategy = (Strategy::default(), label);
        let mut body = |tx: &Transaction<'_, P>| run.transact(tx, &mut body);
        let ended = database.run_closure(&options, strategy, &mut body);
        let ended = ended.result()?;
        run.commit(database);
        Ok(ended)
    }
}

/// A result, for the crate that replicates the table.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub type ReplicatedResult = StoredResult;

/// The result of a transaction. The primary key is that of the transaction, as [`StoredKey`] says.
#[derive(Clone, Record)]
#[record(table = "weft_once", storage = "hash", key(kind, key))]
pub struct StoredResult {
    kind: u8,
    key: String,
    label: Option<String>,
    /// When the result was stored, in milliseconds since the year 1970.
    stored_ms: u64,
    /// The type of the result, as its description is encoded.
    type_of: Vec<u8>,
    /// The stored form of the result.
    result: Vec<u8>,
}

impl StoredResult {
    /// Returns the result, if a transaction with this label has stored it.
    fn read<R: ColumnValue>(&self, label: Option<&str>, type_of: &[u8]) -> Result<R, Failure> {
        if self.label.as_deref() != label {
            let (stored, label) = (self.label.clone(), label.map(str::to_owned));
            return Err(Failure::OnceLabel { key: self.key.clone(), stored, label });
        }
        let read = if self.type_of == type_of {
            R::read(&mut &self.result[..]).map_err(|error| error.to_string())
        } else {
            TypeDescription::read(&mut &self.type_of[..])
                .map_err(|error| error.to_string())
                .and_then(|stored| read_as("the result", &stored, &self.result))
        };
        read.map_err(|message| Failure::OnceResult { key: self.key.clone(), message })
    }
}

/// The results that a database keeps.
pub(super) struct Results {
    table: Table<StoredResult>,
    options: OnceOptions,
    lines: Arc<Lines>,
    /// The keys of the stored results, the oldest first, and when each was stored.
    stored: Mutex<VecDeque<(u64, StoredKey)>>,
    /// When the database was opened, and the time of then in milliseconds since the year 1970. It is not before any
    /// stored result, so the time of the results never goes back.
    opened: (Instant, Word),
}

impl std::fmt::Debug for Results {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Results").field("options", &self.options).finish_non_exhaustive()
    }
}

/// How many results are removed at a time.
const REMOVED_AT_ONCE: usize = 16;

impl Results {
    /// Returns the results of a database that is being opened, with those that were recovered.
    pub fn open<P: Protocol>(
        database: &Database<P>,
        options: OnceOptions,
    ) -> Result<Arc<Results>, Failure> {
        let table = database.table::<StoredResult>()?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let opened = (Instant::now(), Word::new(since_1970.as_millis() as u64));
        let stored = Mutex::default();
        let results = Results { table, options, lines: Arc::default(), stored, opened };
        if database.inner().storage.get().is_some() {
            results.recall(database)?;
        }
        Ok(Arc::new(results))
    }

    /// Finds the results that the table has.
    fn recall<P: Protocol>(&self, database: &Database<P>) -> Result<(), Failure> {
        let mut found = Vec::new();
        for row in database.open_snapshot()?.rows(&self.table) {
            let row = row?;
            found.push((row.stored_ms, row.key()));
        }
        found.sort_unstable();
        let last_ms = found.last().map_or(0, |&(stored_ms, _)| stored_ms);
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = found.into();
        // Relaxed: no other thread stores results yet.
        self.opened.1.fetch_add(last_ms.saturating_sub(self.now_ms()), Ordering::Relaxed);
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.opened.1.load(Ordering::Relaxed) + self.opened.0.elapsed().as_millis() as u64
    }

    /// Notes that a result was stored. Returns the oldest results if they are to be removed.
    fn note_stored(&self, key: StoredKey) -> VecDeque<(u64, StoredKey)> {
        let (now_ms, kept_ms) = (self.now_ms(), self.options.retention.as_millis());
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.push_back((now_ms, key));
        let is_due = stored.get(REMOVED_AT_ONCE - 1).is_some_and(|&(stored_ms, _)| {
            u128::from(now_ms.saturating_sub(stored_ms)) >= kept_ms
                || self.options.results_max.is_some_and(|max| stored.len() - REMOVED_AT_ONCE >= max)
        });
        match is_due {
            true => stored.drain(..REMOVED_AT_ONCE).collect(),
            false => VecDeque::new(),
        }
    }
}

/// A transaction that runs once for its key.
pub(super) struct OnceRun {
    results: Arc<Results>,
    place: Place,
    label: Option<&'static str>,
    /// Whether the last attempt has run the closure: 1 if it has, and 0 if it has found the result.
    has_run: Word,
}

impl OnceRun {
    /// Joins the line of a key. `wake` is called when the transaction may run, unless it may at once.
    pub fn join(
        results: &Arc<Results>,
        key: OnceKey<'_>,
        label: Option<&'static str>,
        waker: Waker,
    ) -> OnceRun {
        let place = Place::join(&results.lines, key.into(), waker);
        OnceRun { results: Arc::clone(results), place, label, has_run: Word::new(0) }
    }

    /// Joins the line of a key, and blocks until the transaction may run. Leaves what is left of the deadline in
    /// `options`.
    fn wait<P: Protocol>(
        database: &Database<P>,
        key: OnceKey<'_>,
        options: &mut TransactionOptions,
    ) -> Result<OnceRun, Failure> {
        let results = database.results().ok_or(Failure::ResultsNotKept)?;
        // Inside a transaction the thread would perhaps wait for itself. So it would in the `Drop` of a row, which runs at the
        // end of a transaction, before the others in the line may run.
        if database.claimed_worker().is_some() {
            return Err(Failure::NestedTransaction);
        }
        let waker = Arc::new(Unpark(current_thread())).into();
        let run = OnceRun::join(results, key, options.label, waker);
        if !run.may_run() {
            let deadline = options.deadline.and_then(Deadline::after);
            while !run.may_run() {
                database.check_wait(deadline.as_ref(), 0)?;
                let left = deadline.map_or(LOOKS_EVERY, |deadline| deadline.remaining());
                park_timeout(left.min(LOOKS_EVERY));
            }
            options.deadline = deadline.map(|deadline| deadline.remaining());
        }
        Ok(run)
    }

    /// Returns whether the transaction may run.
    pub fn may_run(&self) -> bool {
        self.place.may_run()
    }

    /// Returns the stored result. If there isn't one, runs `body`, and stores what it returns.
    pub fn transact<P: Protocol, R: ColumnValue, E: From<Error>>(
        &self,
        tx: &Transaction<'_, P>,
        body: impl FnOnce(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (table, key) = (&self.results.table, &self.place.key);
        let mut type_of = Vec::new();
        TypeDescription::from(R::TYPE).write(&mut type_of);
        // Relaxed: the thread that commits the transaction is the one that has run it, or has got it from that one.
        self.has_run.store(0, Ordering::Relaxed);
        if let Some(stored) = tx.get(table, key)? {
            return Ok(stored.read(self.label, &type_of).map_err(Error::from)?);
        }
        self.has_run.store(1, Ordering::Relaxed);
        let value = body(tx)?;
        let mut result = Vec::new();
        value.write(&mut result);
        let (kind, key) = key.clone();
        let (label, stored_ms) = (self.label.map(str::to_owned), self.results.now_ms());
        tx.insert(table, StoredResult { kind, key, label, stored_ms, type_of, result })?;
        Ok(value)
    }

    /// Lets the others in the line run, since the transaction has committed, and removes results that are too old.
    pub fn commit<P: Protocol>(&self, database: &Database<P>) {
        self.place.open();
        if self.has_run.load(Ordering::Relaxed) == 0 {
            return;
        }
        let results = &self.results;
        let mut old = results.note_stored(self.place.key.clone());
        if old.is_empty() {
            return;
        }
        let options = TransactionOptions::new().label(StoredResult::TABLE);
        let removed = database.transact_with_token(&options, |tx| {
            old.iter().try_for_each(|(_, key)| tx.delete(&results.table, key).map(drop))
        });
        // Only a database that is closed, or whose disk fails, does not remove them. A later call tries again.
        if removed.map_err(|_: Error| ()).is_err() {
            let mut stored = results.stored.lock().unwrap_or_else(PoisonError::into_inner);
            old.append(&mut stored);
            *stored = old;
        }
    }
}

/// How long a thread that waits for its turn sleeps between two looks at whether the database is still open.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
