//! The change feed of a Weft database: what has committed, transaction by transaction.
//!
//! ```
//! use weft::{Database, Error, Record};
//! use weft_changes::{ChangeFeed, ChangeKind, ChangeRing};
//!
//! #[derive(Clone, Debug, PartialEq, Record)]
//! struct Account {
//!     #[record(key)]
//!     id: u32,
//!     cents: i64,
//! }
//!
//! // A database in memory keeps its changes in a ring of 1 MiB. One with a directory needs nothing.
//! let database = Database::builder().table::<Account>().change_ring(1 << 20).open()?;
//! let accounts = database.table::<Account>()?;
//! let mut changes = database.changes_from_now()?;
//!
//! database.transact(|tx| tx.insert(&accounts, Account { id: 1, cents: 100 }))?;
//! database.transact(|tx| tx.update(&accounts, &1, |account| account.cents -= 30))?;
//!
//! let transaction = changes.next().expect("the database is open")?;
//! let change = transaction.changes().next().expect("a transaction of the feed has a change");
//! assert_eq!(change.kind(), ChangeKind::Insert);
//! assert_eq!(change.row::<Account>()?, Some(Account { id: 1, cents: 100 }));
//!
//! let transaction = changes.next().expect("the database is open")?;
//! let change = transaction.changes().next().expect("a transaction of the feed has a change");
//! assert_eq!((change.kind(), change.key::<Account>()?), (ChangeKind::Update, 1));
//! assert_eq!(change.column::<i64>("cents")?, Some(70));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the feed has
//!
//! - *Whole transactions*, each once, with all their changes of tables that are not volatile. A procedure that commits in
//!   pieces, under the protocol `dbx-tc`, is one transaction, too. (Those that cannot be told apart are one: see
//!   [`Transaction`].)
//! - *Only what is durable*, if the database has a directory: no crash takes back what the feed has shown. The feed of a
//!   [ring](ChangeRing) shows what has committed.
//! - *The order of commits for each key, and of epochs.* The transactions of one epoch (10 ms, or less if a commit waits
//!   for the disk) come in the order of their commits wherever they write the same row. Others of the same epoch may
//!   come in another order than that of their commits.
//! - *New values*: an insert has the row, an update the columns that have changed, and a delete the key. Operations on
//!   split columns appear as operations, at the transaction that made them. Labels are not in the log, and not in the
//!   feed.
//!
//! A [`Position`] stays valid after a restart. A reader that stores it together with its own effects sees each
//! transaction exactly once. Otherwise it sees again what it had not stored yet.
//!
//! # What a reader costs
//!
//! The feed is read from the log's files. A transaction does nothing for readers, and does not know of them. The log's
//! own thread wakes the readers that wait, once in an epoch's interval at most. So a reader sees a change at most about
//! as much later than it is durable.
//!
//! All readers of a database share what one of them has read. So a thousand readers read the files once. A
//! [watch](Watch) does not sort or decode the changes of other tables.
//!
//! A reader may be slow. What it has not read stays in the files until a checkpoint removes them, and for longer if the
//! database [keeps them](weft::DurabilityOptions::keep_log_bytes). After that the reader gets
//! [`ChangesError::FellBehind`], and goes on from a [snapshot](ChangeFeed::snapshot_with_position).
//!
//! Rows that a bulk load or a migration has made are not in the log. A reader gets the same error there.

#![warn(missing_docs)]

mod change;
mod changes;
mod error;
mod logged;
mod order;
mod position;
mod reader;
mod ring;
mod schema;
mod watch;

use weft::protocol::Protocol;
use weft::{Database, Record, Snapshot, Table};

pub use change::{Change, ChangeKind, Operation, Transaction};
pub use changes::Changes;
pub use error::ChangesError;
#[doc(hidden)]
pub use logged::{LoggedEpoch, LoggedTables};
pub use position::{ParsePositionError, Position};
pub use ring::ChangeRing;
#[doc(hidden)]
pub use ring::ring_disk;
pub use watch::{KeyRange, Watch, WatchedKeys};

/// Adds the change feed to a [`Database`].
pub trait ChangeFeed {
    /// Returns the changes after `from`. [`Position::START`] is before all of them.
    ///
    /// # Errors
    /// - [`ChangesError::FellBehind`], [`ChangesError::ForeignPosition`], [`ChangesError::Ahead`].
    /// - [`ChangesError::Failure`] with [`Failure::InMemory`](weft::Failure::InMemory) if the database has neither a
    ///   directory nor a [ring](ChangeRing), with [`Failure::ReadOnly`](weft::Failure::ReadOnly), and if the log cannot
    ///   be read.
    fn changes(&self, from: Position) -> Result<Changes, ChangesError>;

    /// Returns the changes that become durable from now on.
    ///
    /// # Errors
    /// [`ChangesError::Failure`] as for [`ChangeFeed::changes`].
    fn changes_from_now(&self) -> Result<Changes, ChangesError>;

    /// Returns the changes of a row, or of a range of rows, that become durable from now on. `keys` is `&key`, a range
    /// such as `1..10`, or a [`KeyRange`] such as all keys with a prefix.
    ///
    /// # Errors
    /// Those of [`ChangeFeed::changes_from_now`], and [`ChangesError::Volatile`].
    fn watch<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl WatchedKeys<T::Key>,
    ) -> Result<Watch<T>, ChangesError>;

    /// Returns the changes after `from` of a row, or of a range of rows.
    ///
    /// # Errors
    /// Those of [`ChangeFeed::changes`], and [`ChangesError::Volatile`].
    fn watch_from<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl WatchedKeys<T::Key>,
        from: Position,
    ) -> Result<Watch<T>, ChangesError>;

    /// Returns a snapshot of the present state, and the position of the feed that continues it: the snapshot shows
    /// what all transactions before the position have done, and nothing else. Waits until that is durable.
    ///
    /// # Errors
    /// [`ChangesError::Failure`] as for [`ChangeFeed::changes`], and those of
    /// [`Database::open_snapshot`].
    fn snapshot_with_position(&self) -> Result<(Snapshot, Position), ChangesError>;
}

impl<P: Protocol> ChangeFeed for Database<P> {
    fn changes(&self, from: Position) -> Result<Changes, ChangesError> {
        Changes::open(self, Some(from))
    }

    fn changes_from_now(&self) -> Result<Changes, ChangesError> {
        Changes::open(self, None)
    }

    fn watch<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl WatchedKeys<T::Key>,
    ) -> Result<Watch<T>, ChangesError> {
        Watch::new(self.changes_from_now()?, table, keys)
    }

    fn watch_from<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl WatchedKeys<T::Key>,
        from: Position,
    ) -> Result<Watch<T>, ChangesError> {
        Watch::new(self.changes(from)?, table, keys)
    }

    fn snapshot_with_position(&self) -> Result<(Snapshot, Position), ChangesError> {
        let (snapshot, epoch) = self.snapshot_with_epoch()?;
        let position = changes::position_of(self, epoch)?;
        Ok((snapshot, position))
    }
}
