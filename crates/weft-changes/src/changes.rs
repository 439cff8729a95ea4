//! The feed of all changes of a database.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use weft::durability::StorageError;
use weft::protocol::Protocol;
use weft::{Database, Failure, Record};

use crate::change::Transaction;
use crate::error::ChangesError;
use crate::order::{Epoch, EpochError};
use crate::position::Position;
use crate::reader::{LogReader, fell_behind};
use crate::schema::Schema;

/// Committed transactions, in the order of the feed (see the [crate](crate)).
///
/// It is an iterator that blocks while there is nothing new, and a [`Stream`] that waits without a thread. Both end
/// when the database is closed, or after an error. It keeps no handle of the database: the database closes while a
/// reader waits.
pub struct Changes {
    reader: LogReader,
    schema: Arc<Schema>,
    database: u64,
    /// The epoch that is being handed out, and the next transaction in it.
    epoch: Option<(Arc<Epoch>, usize)>,
    position: Position,
    /// The durable epoch up to which everything was read.
    seen: u64,
    has_ended: bool,
    /// Wakes the thread that iterates.
    waker: Option<(ThreadId, Waker)>,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a reader does when there is nothing new.
enum Next {
    Transaction(Transaction),
    /// Wait to be woken.
    Wait,
    End,
}

impl Changes {
    /// Returns the feed after `position`, or after everything that is durable now.
    pub(crate) fn open<P: Protocol>(
        database: &Database<P>,
        position: Option<Position>,
    ) -> Result<Changes, ChangesError> {
        let (log, ..) = database.readable_log()?;
        let names = LogReader::list(&log)?;
        let (log, manifest, durable) = database.readable_log()?;
        let database = database_id(&manifest.database);
        let position = position.unwrap_or(Position::end_of(database, durable));
        if position != Position::START && position.database != database {
            return Err(ChangesError::ForeignPosition { position });
        }
        let durable_epoch = log.durable_epoch();
        if position.epoch > durable_epoch {
            return Err(ChangesError::Ahead { position, durable_epoch });
        }
        let position = Position { database, ..position };
        if position.epoch < log.unlogged_epoch() {
            return Err(fell_behind(position, log.unlogged_epoch(), true));
        }
        Ok(Changes {
            reader: LogReader::new(log, &names, &manifest, position)?,
            schema: Arc::new(Schema::new(&manifest)),
            database,
            epoch: None,
            position,
            seen: 0,
            has_ended: false,
            waker: None,
        })
    }

    /// Returns whether the database has a table with rows of type `T`.
    pub(crate) fn has_table<T: Record>(&self) -> bool {
        (0..self.schema.tables.len()).any(|table| self.schema.is::<T>(table as u32))
    }

    /// Ends the feed.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the position behind the last transaction that was handed out.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the next transaction, or `None` if there is nothing new.
    ///
    /// # Errors
    /// [`ChangesError::FellBehind`], [`ChangesError::Failure`]. The feed then ends.
    pub fn try_next(&mut self) -> Result<Option<Transaction>, ChangesError> {
        if self.has_ended {
            return Ok(None);
        }
        self.read_next().inspect_err(|_| self.has_ended = true)
    }

    fn read_next(&mut self) -> Result<Option<Transaction>, ChangesError> {
        loop {
            if let Some(transaction) = self.hand_out() {
                return Ok(Some(transaction));
            }
            let durable = self.reader.log.durable_epoch();
            let unlogged = self.reader.log.unlogged_epoch();
            if self.position.epoch < unlogged {
                return Err(fell_behind(self.position, unlogged, true));
            }
            let Some((number, bytes)) = self.reader.next_epoch(durable, self.position)? else {
                self.seen = durable;
                return Ok(None);
            };
            let epoch = Epoch::read(number, bytes, &self.schema.tables);
            let epoch = epoch.map_err(|error| self.unreadable(number, error))?;
            let next = match number == self.position.epoch {
                true => self.position.index as usize,
                false => 0,
            };
            self.epoch = Some((Arc::new(epoch), next));
        }
    }

    /// Returns the next transaction of the epoch that is being handed out.
    fn hand_out(&mut self) -> Option<Transaction> {
        let (epoch, next) = self.epoch.as_mut()?;
        let Some(writes) = epoch.transactions.get(*next) else {
            self.epoch = None;
            return None;
        };
        *next += 1;
        let end = Position::end_of(self.database, epoch.number);
        self.position = match *next == epoch.transactions.len() {
            true => end,
            false => Position { index: *next as u32, ..end },
        };
        Some(Transaction {
            schema: Arc::clone(&self.schema),
            epoch: Arc::clone(epoch),
            writes: writes.clone().collect(),
            position: self.position,
        })
    }

    fn unreadable(&self, epoch: u64, error: EpochError) -> ChangesError {
        let what = match error {
            EpochError::Entry(error) => format!("an entry of epoch {epoch}: {error}"),
            EpochError::UnknownTable(table) => {
                format!("epoch {epoch} has a row of table {table}, which is unknown")
            }
            EpochError::Key(table, source) => {
                let table = self.schema.tables[table as usize].name.clone();
                return ChangesError::Decode { table, source };
            }
        };
        StorageError::damaged(self.reader.log.place().1, 0, what).into()
    }

    /// Returns the next transaction, or makes the log wake `waker` when there is one.
    fn next_or_wake(&mut self, waker: &Waker) -> Result<Next, ChangesError> {
        loop {
            if let Some(transaction) = self.try_next()? {
                return Ok(Next::Transaction(transaction));
            }
            if self.has_ended {
                return Ok(Next::End);
            }
            match self.reader.log.follow(self.seen, waker) {
                Ok(true) => return Ok(Next::Wait),
                Ok(false) => {}
                Err(error) => {
                    // The last epochs may have become durable since they were looked for.
                    if let Some(transaction) = self.try_next()? {
                        return Ok(Next::Transaction(transaction));
                    }
                    self.has_ended = true;
                    return match error {
                        StorageError::Closed => Ok(Next::End),
                        error => Err(error.into()),
                    };
                }
            }
        }
    }

    fn thread_waker(&mut self) -> Waker {
        let thread = std::thread::current();
        let known = self.waker.take().filter(|(id, _)| *id == thread.id());
        let (id, waker) = known.unwrap_or_else(|| (thread.id(), Arc::new(Unpark(thread)).into()));
        self.waker = Some((id, waker.clone()));
        waker
    }

    /// Blocks until there is another transaction, but not for longer than `timeout`. Returns `None` if there
    /// isn't one by then, or if the feed has ended.
    ///
    /// # Errors
    /// As [`Changes::try_next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Transaction>, ChangesError> {
        let (waker, start) = (self.thread_waker(), Instant::now());
        loop {
            match self.next_or_wake(&waker)? {
                Next::Transaction(transaction) => return Ok(Some(transaction)),
                Next::End => return Ok(None),
                Next::Wait => match timeout.checked_sub(start.elapsed()) {
                    Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                    _ => return Ok(None),
                },
            }
        }
    }

    /// Returns the next transaction, without blocking a thread, or `None` if the feed has ended.
    ///
    /// # Errors
    /// As [`Changes::try_next`].
    pub async fn next_async(&mut self) -> Result<Option<Transaction>, ChangesError> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }
}

fn database_id(database: &[u8; 16]) -> u64 {
    let id = u64::from_le_bytes(database[..8].try_into().expect("eight bytes"));
    // 0 is that of `Position::START`.
    id.max(1)
}

pub(crate) fn position_of<P: Protocol>(
    database: &Database<P>,
    epoch: u64,
) -> Result<Position, Failure> {
    let (_, manifest, _) = database.readable_log()?;
    Ok(Position::end_of(database_id(&manifest.database), epoch))
}

impl Iterator for Changes {
    type Item = Result<Transaction, ChangesError>;

    fn next(&mut self) -> Option<Self::Item> {
        let waker = self.thread_waker();
        loop {
            match self.next_or_wake(&waker) {
                Ok(Next::Transaction(transaction)) => return Some(Ok(transaction)),
                Ok(Next::End) => return None,
                Ok(Next::Wait) => std::thread::park(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Stream for Changes {
    type Item = Result<Transaction, ChangesError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.next_or_wake(context.waker()) {
            Ok(Next::Transaction(transaction)) => Poll::Ready(Some(Ok(transaction))),
            Ok(Next::End) => Poll::Ready(None),
            Ok(Next::Wait) => Poll::Pending,
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl FusedStream for Changes {
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.position.to_string();
        formatter.debug_struct("Changes").field("position", &position).finish_non_exhaustive()
    }
}
