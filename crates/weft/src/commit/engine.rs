//! The part of a database that its transactions work on, and waiting until a transaction is durable.

use std::sync::Arc;
use std::time::Instant;

use super::{Protocol, Worker};
use crate::durability::Log;
use crate::error::Failure;
use crate::store::table::Identity;
use crate::store::worker::{EngineLog, SharedState};

/// Identifies a commit, for [`Database::wait_durable`](crate::Database::wait_durable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitToken {
    /// The transaction, and all that it depends on, are durable if this epoch is.
    epoch: u64,
}

impl CommitToken {
    /// Returns the token of a commit in an epoch.
    #[doc(hidden)]
    pub fn of(epoch: u64) -> Self {
        CommitToken { epoch }
    }

    /// Returns the epoch of the commit. A database can be [opened](crate::Builder::at_epoch) as it was at the end
    /// of this epoch.
    pub fn epoch(self) -> u64 {
        self.epoch
    }
}

/// What happens to commits when the process ends.
#[derive(Clone, Copy, Debug)]
pub enum Durability {
    /// Commits are lost: the database lives in memory alone.
    None,
    /// No transaction can commit a write: the database was opened for reading, as it was at the end of this epoch.
    ReadOnly {
        /// The epoch.
        epoch: u64,
    },
    /// Commits are in the log.
    Logged {
        /// Whether a commit is acknowledged only when it is durable.
        acknowledges_durable: bool,
    },
}

/// The part of a database that its transactions work on.
pub struct Engine<P: Protocol> {
    /// Declared before `shared`, so that it is dropped before the memory that it may refer to.
    pub protocol: Arc<P::Shared>,
    /// What all workers share.
    pub shared: Arc<SharedState>,
    /// Distinguishes the database's tables from those of other databases.
    pub identity: Arc<Identity>,
    /// What happens to commits when the process ends.
    pub durability: Durability,
}

/// All waiting for durability is here.
impl<P: Protocol> Engine<P> {
    /// Returns whether the database has a directory.
    #[inline(always)]
    pub fn is_durable(&self) -> bool {
        !matches!(self.durability, Durability::None)
    }

    /// Returns the log.
    ///
    /// # Errors
    /// [`Failure::InMemory`], [`Failure::ReadOnly`] if the database has no log.
    pub fn log(&self) -> Result<&Arc<Log>, Failure> {
        Ok(&self.engine_log()?.log)
    }

    fn engine_log(&self) -> Result<&EngineLog, Failure> {
        match (self.durability, self.shared.log.get()) {
            (Durability::ReadOnly { epoch }, _) => Err(Failure::ReadOnly { epoch }),
            (_, Some(engine)) => Ok(engine),
            (_, None) => Err(Failure::InMemory),
        }
    }

    /// Returns whether commits are acknowledged when they are durable.
    #[inline(always)]
    pub fn acknowledges_durable(&self) -> bool {
        matches!(self.durability, Durability::Logged { acknowledges_durable: true })
    }

    /// Waits until a commit may be acknowledged. If commits are acknowledged when they are durable, this is when
    /// the commit is durable; otherwise it is at once. `worker` is the calling thread's.
    ///
    /// # Errors
    /// As [`Engine::wait_durable`].
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn acknowledge<'w>(
        &self,
        worker: impl FnOnce() -> Option<&'w Worker<P>>,
        commit: CommitToken,
    ) -> Result<(), Failure> {
        if !self.acknowledges_durable() {
            return Ok(());
        }
        let since = self.shared.observer.as_ref().map(|observer| (observer, Instant::now()));
        let waited = self.wait_durable(worker(), commit);
        if let Some((observer, since)) = since {
            observer.waited_for_log(since.elapsed());
        }
        waited
    }

    /// Waits until a commit, and what it has read, is durable. `worker` is the calling thread's.
    ///
    /// # Errors
    /// See [`Database::wait_durable`](crate::Database::wait_durable).
    pub fn wait_durable(
        &self,
        worker: Option<&Worker<P>>,
        commit: CommitToken,
    ) -> Result<(), Failure> {
        // Between two pieces of its procedure this thread would wait for itself: the log waits for the
        // procedure's end.
        if let (Some(gate), Some(worker)) = (&self.shared.gate, worker)
            && gate.is_in_pieces(worker.memory.core() as usize)
        {
            return Err(Failure::NestedTransaction);
        }
        Ok(self.log()?.wait_durable(commit.epoch)?)
    }

    /// Starts the thread that [`Engine::when_durable`] uses.
    ///
    /// # Errors
    /// [`Failure::Thread`]; those of [`Engine::log`].
    pub fn start_acknowledger(&self) -> Result<(), Failure> {
        let engine = self.engine_log()?;
        engine.acknowledger.start(&engine.log)
    }

    /// Calls `acknowledge` when a commit, and what it has read, is durable, on a thread of the database. If it is
    /// durable already, or cannot become durable, calls it at once.
    pub fn when_durable(
        &self,
        commit: CommitToken,
        acknowledge: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) {
        match self.engine_log() {
            Ok(EngineLog { log, acknowledger, .. }) => {
                acknowledger.when_durable(log, commit.epoch, acknowledge);
            }
            Err(failure) => acknowledge(Err(failure)),
        }
    }
}
