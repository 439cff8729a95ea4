//! What the transactions of a database work on, and how they wait until they are durable.

use std::sync::Arc;

use super::{Protocol, Worker};
use crate::durability::Log;
use crate::error::Failure;
use crate::store::table::Identity;
use crate::store::worker::Shared;

/// Identifies a commit, for [`Database::wait_durable`](crate::Database::wait_durable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitToken {
    /// The transaction, and all that it depends on, are durable if this epoch is.
    epoch: u64,
}

impl CommitToken {
    /// The token of a commit in an epoch.
    #[doc(hidden)]
    pub fn of(epoch: u64) -> Self {
        CommitToken { epoch }
    }

    /// The epoch of the commit: a database can be [opened](crate::Builder::at_epoch) as it was at
    /// the end of it.
    pub fn epoch(self) -> u64 {
        self.epoch
    }
}

/// What becomes of commits when the process ends.
#[derive(Clone, Copy, Debug)]
pub enum Durability {
    /// They are gone: the database lies in memory alone.
    None,
    /// There are none: the database was opened as it was at the end of this epoch, to be read.
    ReadOnly {
        /// The epoch.
        epoch: u64,
    },
    /// They are in the log.
    Logged {
        /// Whether a commit is acknowledged only when it is durable.
        acknowledges_durable: bool,
    },
}

/// What the transactions of a database work on.
pub struct Engine<P: Protocol> {
    /// Before `shared`, with whose memory goes what it may hold.
    pub protocol: Arc<P::Shared>,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Tells the database's tables from those of others.
    pub identity: Arc<Identity>,
    /// What becomes of commits.
    pub durability: Durability,
}

/// Waiting for durability, which has its one home here.
impl<P: Protocol> Engine<P> {
    /// Whether the database has a directory.
    #[inline(always)]
    pub fn is_durable(&self) -> bool {
        !matches!(self.durability, Durability::None)
    }

    /// The log.
    ///
    /// # Errors
    /// [`Failure::InMemory`], [`Failure::ReadOnly`]: there is none.
    pub fn log(&self) -> Result<&Arc<Log>, Failure> {
        match (self.durability, self.shared.log.get()) {
            (Durability::ReadOnly { epoch }, _) => Err(Failure::ReadOnly { epoch }),
            (_, Some(engine)) => Ok(&engine.log),
            (_, None) => Err(Failure::InMemory),
        }
    }

    /// Whether commits are acknowledged when they are durable.
    #[inline(always)]
    pub fn acknowledges_durable(&self) -> bool {
        matches!(self.durability, Durability::Logged { acknowledges_durable: true })
    }

    /// Waits until a commit may be acknowledged: until it is durable, if commits are acknowledged then. `worker` is the
    /// calling thread's.
    ///
    /// # Errors
    /// As [`Engine::wait_durable`].
    #[inline(always)]
    pub fn acknowledge<'w>(
        &self,
        worker: impl FnOnce() -> Option<&'w Worker<P>>,
        commit: CommitToken,
    ) -> Result<(), Failure> {
        if !self.acknowledges_durable() {
            return Ok(());
        }
        self.wait_durable(worker(), commit)
    }

    /// Waits until a commit is durable, and what it has read. `worker` is the calling thread's.
    ///
    /// # Errors
    /// See [`Database::wait_durable`](crate::Database::wait_durable).
    pub fn wait_durable(
        &self,
        worker: Option<&Worker<P>>,
        commit: CommitToken,
    ) -> Result<(), Failure> {
        if let (Some(gate), Some(worker)) = (&self.shared.gate, worker)
            && gate.is_in_pieces(worker.memory.core() as usize)
        {
            return Err(Failure::NestedTransaction);
        }
        Ok(self.log()?.wait_durable(commit.epoch)?)
    }
}
