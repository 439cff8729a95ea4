//! A node of a replicated database: the primary, or a standby.
//!
//! A node has a thread that follows the log. What a node keeps between two changes of its role is a *life*: an open
//! database, and a member of the protocol. A primary that steps down may have committed in memory what the log never
//! accepted. So it begins a new life, with an empty database, its directory or a backup, and follows the log from there.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weft::protocol::Protocol;

use self::state::{Core, State};
use crate::directory::Directory;
use crate::disk::{Mode, Sink};
use crate::reader::{Fault, ReplicationToken};

mod bases;
mod builder;
mod error;
mod fence;
mod life;
mod primary;
mod report;
mod roles;
mod state;
mod thread;
mod view;

pub use builder::{NodeBuilder, Options};
pub use error::{ReplicationError, Trouble};
pub use life::{Applied, Life};
pub use primary::Primary;
pub use report::Report;
pub use view::{NodeSnapshot, NodeStatus, Replica};

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// It follows the primary, or opens its database again to do so.
    Standby,
    /// It is the primary.
    Primary,
    /// It has stopped, because of a [`Fault`], or because it was shut down.
    Stopped,
}

/// A node of a replicated database. Dropping it shuts it down.
pub struct Node<P: Protocol> {
    core: Arc<Core<P>>,
    threads: Vec<JoinHandle<()>>,
}

/// An error of the backups.
#[cfg(feature = "object-store")]
pub fn unwritable(error: impl fmt::Display) -> ReplicationError {
    ReplicationError::Backup(error.to_string())
}

#[cfg(feature = "object-store")]
impl<P: Protocol> Node<P> {
    pub(crate) fn life(&self) -> Result<Arc<Life<P>>, ReplicationError> {
        let state = self.core.state();
        state.check()?;
        Ok(Arc::clone(&state.life))
    }

    pub(crate) fn truncate_before(&self, offset: u64) -> Result<(), ReplicationError> {
        Ok(self.core.setup.log.truncate_before(offset)?)
    }
}

impl<P: Protocol> Node<P> {
    /// Returns what the node does now.
    pub fn role(&self) -> NodeRole {
        self.core.state().role
    }

    /// Returns the end of the last epoch that the node has applied. (A primary returns the beginning of its generation. It
    /// has more than that.)
    pub fn token(&self) -> ReplicationToken {
        self.core.state().token
    }

    /// Returns why the node has stopped, if it has met a fault.
    pub fn fault(&self) -> Option<Fault> {
        self.core.state().fault.clone()
    }

    /// Returns why the last call of the replicated log has failed, or why the store with the backups does not answer, if one
    /// of them is so. The node tries again.
    pub fn trouble(&self) -> Option<Trouble> {
        let (life, trouble) = {
            let state = self.core.state();
            (Arc::clone(&state.life), state.trouble.clone())
        };
        trouble.or_else(|| life.link.trouble().map(Trouble::Log))
    }

    /// Returns how many records of the log the node has not read yet.
    ///
    /// # Errors
    /// [`ReplicationError::Log`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn records_behind(&self) -> Result<u64, ReplicationError> {
        let life = {
            let state = self.core.state();
            state.check()?;
            match state.role {
                NodeRole::Primary => Arc::clone(&state.life),
                _ => {
                    let next = state.next_offset;
                    drop(state);
                    return Ok(self.core.setup.log.range()?.1.saturating_sub(next));
                }
            }
        };
        let next = life.link.session().member.next_offset();
        Ok(self.core.setup.log.range()?.1.saturating_sub(next))
    }

    /// Returns the primary, if this node is the primary.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn primary(&self) -> Result<Primary<P>, ReplicationError> {
        let state = self.core.state();
        state.check()?;
        match state.role {
            NodeRole::Primary => {
                let (life, generation) = (Arc::clone(&state.life), state.token.generation);
                Ok(Primary { life, generation })
            }
            _ => Err(ReplicationError::NotPrimary),
        }
    }

    /// Makes this node the primary, and returns it. Waits for at most `limit`. If there is a primary, it steps down.
    ///
    /// # Errors
    /// [`ReplicationError::TimedOut`] if the log does not answer, or other nodes were faster again and again;
    /// [`ReplicationError::NotPrimary`] if another node has taken over already; [`ReplicationError::RecordsMissing`] if the
    /// log has lost records that another node may have; [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn promote(&self, limit: Duration) -> Result<Primary<P>, ReplicationError> {
        let core = &*self.core;
        let before = {
            let mut state = core.state();
            // The role of a primary that has been replaced is Primary for a moment longer.
            let waits = match state.role {
                NodeRole::Standby => true,
                NodeRole::Primary => state.life.link.mode() == Mode::Ended,
                NodeRole::Stopped => false,
            };
            if !waits {
                drop(state);
                return self.primary();
            }
            state.promotions += 1;
            state.times_primary
        };
        let has_ended =
            |state: &mut State<P>| state.role == NodeRole::Stopped || state.times_primary != before;
        core.wait(limit, has_ended);
        let mut state = core.state();
        if has_ended(&mut state) {
            drop(state);
            return self.primary();
        }
        state.promotions -= 1;
        Err(match &state.missing {
            Some(fault) => ReplicationError::RecordsMissing(fault.clone()),
            None => ReplicationError::TimedOut,
        })
    }

    /// As [`Node::promote`], also if records of the log are [missing](Node::missing). They are lost then. Do that only if no
    /// node that could have them will come back.
    ///
    /// # Errors
    /// Those of [`Node::promote`], except [`ReplicationError::RecordsMissing`].
    pub fn promote_without_missing(&self, limit: Duration) -> Result<Primary<P>, ReplicationError> {
        self.core.change(|state| state.gives_up_missing = true);
        let promoted = self.promote(limit);
        self.core.change(|state| state.gives_up_missing = false);
        promoted
    }

    /// Returns what has happened to this node that an operator should know of, the oldest first: records that the log has
    /// lost, and what has become of them.
    pub fn reports(&self) -> Vec<Report> {
        self.core.state().reports.clone()
    }

    /// Returns which records of the log are missing, if some are that another node may append again.
    pub fn missing(&self) -> Option<Fault> {
        self.core.state().missing.clone()
    }

    /// Returns the [identity](crate::ReplicatedLog::identity) of the log.
    ///
    /// # Errors
    /// [`ReplicationError::Log`].
    pub fn log_identity(&self) -> Result<String, ReplicationError> {
        Ok(self.core.setup.log.identity()?)
    }

    /// Returns the path of the node's directory, if it has one.
    pub fn directory(&self) -> Option<&Path> {
        self.core.setup.directory.as_ref().map(Directory::path)
    }

    /// Writes all rows to the node's directory, so that it need not replay records from before this when it starts. A node
    /// does so automatically from time to time.
    ///
    /// # Errors
    /// [`ReplicationError::Unfit`] without a directory; [`ReplicationError::Engine`], [`ReplicationError::Stopped`],
    /// [`ReplicationError::ShutDown`].
    pub fn checkpoint(&self) -> Result<(), ReplicationError> {
        let life = {
            let state = self.core.state();
            state.check()?;
            Arc::clone(&state.life)
        };
        self.core.write_base(&life).map(|_| ())
    }

    /// Waits until this node has everything that was acknowledged with `token`, but for no longer than `limit`.
    ///
    /// # Errors
    /// [`ReplicationError::TimedOut`], [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`].
    pub fn wait_for(
        &self,
        token: ReplicationToken,
        limit: Duration,
    ) -> Result<(), ReplicationError> {
        let core = &*self.core;
        core.wait(limit, |state| state.has(token) || state.role == NodeRole::Stopped);
        let state = core.state();
        match state.has(token) {
            true => Ok(()),
            false => state.check().and(Err(ReplicationError::TimedOut)),
        }
    }

    /// Returns the database as it is now at this node: a standby's, which may be behind the primary's, or the primary's. It shows
    /// nothing that is not replicated: at a primary, this waits for the log as a commit does.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`] if the node has just ceased to be the primary: ask again.
    /// [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`], [`ReplicationError::Engine`].
    pub fn snapshot(&self) -> Result<NodeSnapshot<P>, ReplicationError> {
        let (life, token) = {
            let state = self.core.state();
            state.check()?;
            (Arc::clone(&state.life), state.token)
        };
        let snapshot = life.database.open_snapshot()?;
        // Everything that a standby has lies in the log. A primary has commits that wait for it.
        if life.link.mode() != Mode::Following {
            let replicated = life.database.wait_durable(snapshot.token());
            replicated.map_err(|_| ReplicationError::NotPrimary)?;
        }
        Ok(NodeSnapshot { snapshot, token, life })
    }

    /// Shuts the node down. A primary first waits until its transactions have ended and its commits are replicated, but for no
    /// longer than the [deadline](Options::deadline).
    pub fn shut_down(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.core.change(|state| state.is_stopping = true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<P: Protocol> fmt::Debug for Node<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("role", &self.role()).finish_non_exhaustive()
    }
}

impl<P: Protocol> Drop for Node<P> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, feature = "object-store"))]
mod tests;
