//! What the threads of a node and its handles share.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft::protocol::Protocol;

use super::NodeRole;
use super::error::{ReplicationError, Trouble};
use super::life::{Life, Setup};
use super::report::Report;
use crate::reader::{Fault, ReplicationToken};

/// Why a node that restores an earlier moment has stopped applying epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StayReason {
    /// The next record is later than the moment.
    LaterRecord,
    /// It has read the end of the log.
    LogEnd,
}

/// What a node's thread and its handles share.
pub(super) struct Core<P: Protocol> {
    pub(super) setup: Setup<P>,
    pub(super) state: Mutex<State<P>>,
    pub(super) changed: Condvar,
    /// Held while rows are written to the directory.
    pub(super) writing_base: Mutex<()>,
}

pub(super) struct State<P: Protocol> {
    pub(super) life: Arc<Life<P>>,
    pub(super) role: NodeRole,
    /// The end of the last epoch that the database has.
    pub(super) token: ReplicationToken,
    pub(super) next_offset: u64,
    /// Which records the node lacks before those that it has read.
    pub(super) missing: Option<Fault>,
    pub(super) reports: Vec<Report>,
    /// Why the node has stopped.
    pub(super) fault: Option<Fault>,
    /// How many threads wait in [`Node::promote`] until the node becomes the primary.
    pub(super) promotions: usize,
    /// How often the node has become the primary.
    pub(super) times_primary: u64,
    /// Whether the node may become the primary although records are missing.
    pub(super) gives_up_missing: bool,
    /// Set when the node has applied everything up to the moment where it stays.
    pub(super) stays: Option<StayReason>,
    pub(super) is_stopping: bool,
    /// Whether the database has everything that the log had when the node began to read it.
    pub(super) is_current: bool,
    /// The address in the last fence that the node has read or written, if it has one. While the node reads old records, this
    /// is a primary of the past.
    pub(super) primary: Option<Arc<str>>,
    /// Why the node cannot begin again at present.
    pub(super) trouble: Option<Trouble>,
}

impl<P: Protocol> State<P> {
    /// Returns whether the database has everything that was acknowledged with a token.
    pub(super) fn has(&self, token: ReplicationToken) -> bool {
        // A primary has what it has acknowledged itself.
        self.token >= token
            || self.role == NodeRole::Primary && self.token.generation == token.generation
    }

    /// Returns the address of the primary as others may see it. `own` is this node's address.
    pub(super) fn known_primary(&self, own: &str) -> Option<&Arc<str>> {
        let is_known = match self.role {
            NodeRole::Primary => true,
            // The last fence can be that of an earlier run of this node, which is no longer the primary.
            NodeRole::Standby | NodeRole::Stopped => {
                self.is_current && self.primary.as_deref() != Some(own)
            }
        };
        self.primary.as_ref().filter(|_| is_known)
    }

    pub(super) fn check(&self) -> Result<(), ReplicationError> {
        match (&self.fault, self.role) {
            (Some(fault), _) => Err(ReplicationError::Stopped(fault.clone())),
            (None, NodeRole::Stopped) => Err(ReplicationError::ShutDown),
            (None, _) => Ok(()),
        }
    }
}

impl<P: Protocol> Core<P> {
    pub(super) fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes all threads that wait for a change.
    pub(super) fn change(&self, change: impl FnOnce(&mut State<P>)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Changes the state, and wakes all threads that wait for a change, if `change` returns true.
    pub(super) fn change_quietly(&self, change: impl FnOnce(&mut State<P>) -> bool) {
        if change(&mut self.state()) {
            self.changed.notify_all();
        }
    }

    /// Waits until `condition` holds, but for no longer than `limit`. Returns whether it holds.
    pub(super) fn wait(
        &self,
        limit: Duration,
        mut condition: impl FnMut(&mut State<P>) -> bool,
    ) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), limit, |it| !condition(it));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
