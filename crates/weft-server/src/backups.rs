//! Backups of a replicated server, in a directory or an object store.
//!
//! Without the cargo feature `backups` no server has any.

#[cfg(feature = "backups")]
use std::sync::Arc;

use weft::protocol::Dbx;
use weft_replication::{Node, NodeBuilder, ReplicationError};

const NONE: &str = "this server has no place for backups: start it with --replicate-backups";

/// Where a server keeps its backups, if it has a place for them.
#[cfg(feature = "backups")]
#[derive(Clone, Debug, Default)]
pub struct ServerBackups(Option<Arc<weft_replication::backup::Backups>>);

/// No place for backups, since the program has no client for any.
#[cfg(not(feature = "backups"))]
#[derive(Clone, Debug, Default)]
pub struct ServerBackups;

fn none() -> ReplicationError {
    ReplicationError::Unfit(NONE.to_owned())
}

#[cfg(feature = "backups")]
impl ServerBackups {
    /// Opens the place with this address; an empty address means none.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn at(address: &str) -> Result<Self, String> {
        if address.is_empty() {
            return Ok(ServerBackups::default());
        }
        let backups = weft_replication::backup::Backups::at(address);
        let backups = backups.map_err(|error| format!("the backups cannot be used: {error}"))?;
        Ok(ServerBackups(Some(Arc::new(backups))))
    }

    /// Lets a node begin with the newest backup.
    pub fn attach(&self, node: NodeBuilder<Dbx>) -> NodeBuilder<Dbx> {
        match &self.0 {
            Some(backups) => node.backups(Arc::clone(backups)),
            None => node,
        }
    }

    /// Writes a backup, and describes it.
    ///
    /// # Errors
    /// Those of [`Node::back_up`]; the server has no place for backups.
    pub fn back_up(&self, node: &Node<Dbx>) -> Result<String, ReplicationError> {
        let backups = self.0.as_ref().ok_or_else(none)?;
        Ok(node.back_up(backups)?.to_string())
    }

    /// Removes the records of the log that the two newest backups make superfluous. Returns the first offset that stays, if there
    /// are two.
    ///
    /// # Errors
    /// Those of [`Node::truncate_log`]; the server has no place for backups.
    pub fn truncate_log(&self, node: &Node<Dbx>) -> Result<Option<u64>, ReplicationError> {
        node.truncate_log(self.0.as_ref().ok_or_else(none)?)
    }
}

#[cfg(not(feature = "backups"))]
impl ServerBackups {
    /// Refuses every address but the empty one.
    ///
    /// # Errors
    /// How to get a program that can.
    pub fn at(address: &str) -> Result<Self, String> {
        match address {
            "" => Ok(ServerBackups),
            _ => Err("this program was built without backups: build it with --features backups for a directory, or with \
                      s3, gcs or azure"
                .to_owned()),
        }
    }

    /// Returns the node as it is.
    pub fn attach(&self, node: NodeBuilder<Dbx>) -> NodeBuilder<Dbx> {
        node
    }

    /// # Errors
    /// Always: the server has no place for backups.
    pub fn back_up(&self, _: &Node<Dbx>) -> Result<String, ReplicationError> {
        Err(none())
    }

    /// # Errors
    /// Always: the server has no place for backups.
    pub fn truncate_log(&self, _: &Node<Dbx>) -> Result<Option<u64>, ReplicationError> {
        Err(none())
    }
}
