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
use weft::{Database, Failure};

use crate::change::{Change, Transaction};
use crate::error::ChangesError;
use crate::order::Epoch;
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
    database: u64,
    /// The rows that are watched, unless all are.
    watched: Option<WatchedRows>,
    /// The epoch that is being handed out, and the next transaction in it.
    epoch: Option<(Arc<Epoch>, usize)>,
    position: Position,
    /// The durable epoch up to which everything was read.
    seen: u64,
    has_ended: bool,
    /// Wakes the thread that iterates.
    waker: Option<(ThreadId, Waker)>,
}

/// Decides whether the row that has changed is watched.
type IsWatched = dyn FnMut(&Change<'_>) -> Result<bool, ChangesError> + Send + Sync;

/// Some rows of a table.
pub(crate) struct WatchedRows {
    /// The numbers of the table.
    pub tables: Vec<u32>,
    pub is_watched: Box<IsWatched>,
}

impl WatchedRows {
    /// Returns those of a transaction's writes that are watched.
    fn choose(
        &mut self,
        epoch: &Epoch,
        writes: std::ops::Range<usize>,
    ) -> Result<Box<[usize]>, ChangesError> {
        let mut watched = Vec::new();
        for write in writes {
            let change = Change::new(epoch, &epoch.ordered().writes[write]);
            if self.tables.contains(&change.table_number()) && (self.is_watched)(&change)? {
                watched.push(write);
            }
        }
        Ok(watched.into())
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a reader finds.
enum Step {
    Transaction(Transaction),
    /// There may be more. An epoch in which nothing is watched was passed, or one has just become durable.
    Again,
    /// There is nothing new.
    Nothing,
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
        let schema = Arc::new(Schema::new(&manifest));
        Ok(Changes {
            reader: LogReader::new(log, &names, &manifest, position, schema)?,
            database,
            watched: None,
            epoch: None,
            position,
            seen: 0,
            has_ended: false,
            waker: None,
        })
    }

    /// Returns the tables of the log.
    pub(crate) fn schema(&self) -> &Schema {
        &self.reader.schema
    }

    /// Leaves out what is not watched.
    pub(crate) fn watch(self, watched: WatchedRows) -> Changes {
        Changes { watched: Some(watched), ..self }
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
        loop {
            match self.step()? {
                Step::Transaction(transaction) => return Ok(Some(transaction)),
                Step::Again => {}
                Step::Nothing | Step::End => return Ok(None),
            }
        }
    }

    /// Goes on by a transaction, or by an epoch in which nothing is watched. An error ends the feed.
    fn step(&mut self) -> Result<Step, ChangesError> {
        if self.has_ended {
            return Ok(Step::End);
        }
        self.try_step().inspect_err(|_| self.has_ended = true)
    }

    fn try_step(&mut self) -> Result<Step, ChangesError> {
        if let Some(transaction) = self.hand_out()? {
            return Ok(Step::Transaction(transaction));
        }
        let durable = self.reader.log.durable_epoch();
        let unlogged = self.reader.log.unlogged_epoch();
        if self.position.epoch < unlogged {
            return Err(fell_behind(self.position, unlogged, true));
        }
        if durable == self.seen {
            return Ok(Step::Nothing);
        }
        let Some(epoch) = self.reader.next_epoch(durable, self.position)? else {
            self.seen = durable;
            return Ok(Step::Nothing);
        };
        if self.watched.as_ref().is_some_and(|watched| !epoch.writes_any(&watched.tables)) {
            self.position = Position::end_of(self.database, epoch.number);
            return Ok(Step::Again);
        }
        let sorted = epoch.transactions();
        sorted.map_err(|error| self.reader.unreadable(epoch.number, error))?;
        let next = match epoch.number == self.position.epoch {
            true => self.position.index as usize,
            false => 0,
        };
        self.epoch = Some((epoch, next));
        Ok(self.hand_out()?.map_or(Step::Again, Step::Transaction))
    }

    /// Returns the next transaction of the epoch that is being handed out, if there is one.
    fn hand_out(&mut self) -> Result<Option<Transaction>, ChangesError> {
        while let Some((epoch, next)) = &mut self.epoch {
            let transactions = epoch.ordered();
            let Some(writes) = transactions.get(*next) else {
                // An epoch can have a time, and no transaction.
                self.position = Position::end_of(self.database, epoch.number);
                self.epoch = None;
                break;
            };
            let watched = match &mut self.watched {
                None => None,
                Some(watched) => Some(watched.choose(epoch, writes.clone())?),
            };
            *next += 1;
            let end = Position::end_of(self.database, epoch.number);
            self.position = match *next == transactions.len() {
                true => end,
                false => Position { index: *next as u32, ..end },
            };
            if watched.as_ref().is_none_or(|watched| !watched.is_empty()) {
                let (epoch, position) = (Arc::clone(epoch), self.position);
                return Ok(Some(Transaction { epoch, writes, watched, position }));
            }
        }
        Ok(None)
    }

    /// Makes the log wake `waker` when there is something new. Called when there was nothing.
    fn follow(&mut self, waker: &Waker) -> Result<Step, ChangesError> {
        match self.reader.log.follow(self.seen, waker) {
            Ok(true) => Ok(Step::Nothing),
            Ok(false) => Ok(Step::Again),
            Err(error) => {
                // The last epochs may have become durable since they were looked for.
                match self.step()? {
                    Step::Nothing => {}
                    step => return Ok(step),
                }
                self.has_ended = true;
                match error {
                    StorageError::Closed => Ok(Step::End),
                    error => Err(error.into()),
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

    /// Blocks until there is another transaction, or `timeout` has passed.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Transaction>, ChangesError> {
        // The clock is read only if there is something to wait for.
        let mut start = None;
        loop {
            let is_new = match self.step()? {
                Step::Transaction(transaction) => return Ok(Some(transaction)),
                Step::Again => true,
                Step::End => return Ok(None),
                Step::Nothing => {
                    let waker = self.thread_waker();
                    match self.follow(&waker)? {
                        Step::Transaction(transaction) => return Ok(Some(transaction)),
                        Step::Again => true,
                        Step::End => return Ok(None),
                        Step::Nothing => false,
                    }
                }
            };
            let elapsed = start.get_or_insert_with(Instant::now).elapsed();
            match timeout.map(|timeout| timeout.saturating_sub(elapsed)) {
                Some(Duration::ZERO) => return Ok(None),
                _ if is_new => {}
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Blocks until there is another transaction, but not for longer than `timeout`. Returns `None` if there
    /// isn't one by then, or if the feed has ended.
    ///
    /// # Errors
    /// As [`Changes::try_next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Transaction>, ChangesError> {
        self.wait(Some(timeout))
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
        self.wait(None).transpose()
    }
}

impl Stream for Changes {
    type Item = Result<Transaction, ChangesError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let step = match self.step() {
            Ok(Step::Nothing) => self.follow(context.waker()),
            step => step,
        };
        match step {
            Ok(Step::Transaction(transaction)) => Poll::Ready(Some(Ok(transaction))),
            Ok(Step::End) => Poll::Ready(None),
            Ok(Step::Nothing) => Poll::Pending,
            Ok(Step::Again) => {
                // Others have their turn before the next epoch.
                context.waker().wake_by_ref();
                Poll::Pending
            }
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
