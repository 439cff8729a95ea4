//! What a program that serves clients needs to know of its node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{Database, Failure, Record, Snapshot};

use super::{Life, Node, NodeRole, ReplicationError};
use crate::disk::{Mode, Sink};
use crate::reader::ReplicationToken;

/// What a node does and has at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// What it does.
    pub role: NodeRole,
    /// The end of the last epoch that a standby has applied; the beginning of its generation, for a primary.
    pub token: ReplicationToken,
    /// Whether the node has applied what the log had when the node began to read it. Until then it shows old states.
    pub is_current: bool,
    /// The offset of the next record that a standby reads.
    pub next_offset: u64,
    /// The [address](super::NodeBuilder::address) of the primary, if it has published one. A standby knows it only when it is
    /// [current](NodeStatus::is_current): until then it reads what primaries of the past have written.
    pub primary: Option<Arc<str>>,
}

/// The database that a node has now. When the node steps down, it goes on with another one.
pub struct Replica<P: Protocol> {
    life: Arc<Life<P>>,
}

impl<P: Protocol> Clone for Replica<P> {
    fn clone(&self) -> Self {
        Replica { life: Arc::clone(&self.life) }
    }
}

impl<P: Protocol> fmt::Debug for Replica<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Replica").finish_non_exhaustive()
    }
}

impl<P: Protocol> PartialEq for Replica<P> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.life, &other.life)
    }
}

impl<P: Protocol> Replica<P> {
    /// Returns the database.
    ///
    /// While the node is a standby, transactions in it must not write: what they write is not replicated, and stands in the
    /// way of what the primary has written. They see whole epochs of the primary. While the node is the primary, see
    /// [`Primary::database`](super::Primary::database).
    pub fn database(&self) -> &Database<P> {
        &self.life.database
    }

    /// As [`Primary::confirm`](super::Primary::confirm). The read must have begun while the node was the primary: look at
    /// [`NodeStatus::role`] before it. What a standby has read can be out of date, also if the node has become the primary
    /// since.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`], also at a standby.
    pub fn confirm(&self) -> Result<(), ReplicationError> {
        let link = &self.life.link;
        link.prove(link.now()).map_err(|_| ReplicationError::NotPrimary)
    }

    /// Returns whether the node no longer follows the log with this database. It goes on with another one as soon as it can
    /// open that.
    pub fn is_over(&self) -> bool {
        self.life.link.mode() == Mode::Ended
    }

    /// Returns true if [`confirm`](Replica::confirm) would return at once.
    pub fn is_certain(&self) -> bool {
        let link = &self.life.link;
        link.is_certain(link.now())
    }
}

impl<P: Protocol> Node<P> {
    /// Returns the database that the node has now, and what the node does.
    pub fn current(&self) -> (Replica<P>, NodeStatus) {
        let state = self.core.state();
        let status = NodeStatus {
            role: state.role,
            token: state.token,
            is_current: state.is_current,
            next_offset: state.next_offset,
            primary: state.known_primary(&self.core.setup.builder.address).cloned(),
        };
        (Replica { life: Arc::clone(&state.life) }, status)
    }

    /// Shuts the node down, and waits for that, but for no longer than `limit`: see [`Node::shut_down`].
    pub fn stop(&self, limit: Duration) {
        self.core.change(|state| state.is_stopping = true);
        let _ = self.core.wait(limit, |state| state.role == NodeRole::Stopped);
    }

    /// Returns what the node does.
    pub fn status(&self) -> NodeStatus {
        self.current().1
    }

    /// Waits until the node has another role or database than here, or has become [current](NodeStatus::is_current), but for
    /// no longer than `limit`.
    pub fn wait_for_change(&self, from: (&Replica<P>, &NodeStatus), limit: Duration) {
        let (replica, status) = from;
        let own = &*self.core.setup.builder.address;
        self.core.wait(limit, |state| {
            state.role != status.role
                || state.is_current != status.is_current
                || state.known_primary(own) != status.primary.as_ref()
                || !Arc::ptr_eq(&state.life, &replica.life)
        });
    }
}

/// A snapshot of a node's database: whole epochs of the primary.
pub struct NodeSnapshot<P: Protocol> {
    pub(super) snapshot: Snapshot,
    pub(super) token: ReplicationToken,
    pub(super) life: Arc<Life<P>>,
}

impl<P: Protocol> NodeSnapshot<P> {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns a table to read in the snapshot.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`].
    pub fn table<T: Record>(&self) -> Result<weft::Table<T>, Failure> {
        self.life.database.table()
    }

    /// Returns the table with this name to read in the snapshot.
    ///
    /// # Errors
    /// [`Failure::UnknownTable`].
    pub fn table_named<T: Record>(&self, name: &str) -> Result<weft::Table<T>, Failure> {
        self.life.database.table_named(name)
    }

    /// Returns a moment that the snapshot has reached. It may show the next epochs, too.
    pub fn token(&self) -> ReplicationToken {
        self.token
    }
}
