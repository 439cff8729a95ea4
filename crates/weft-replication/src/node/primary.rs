//! The handle of a primary.

use std::sync::Arc;

use weft::protocol::Protocol;
use weft::{Database, TransactWith, Transaction, TransactionOptions};

use super::error::ReplicationError;
use super::life::Life;
use crate::disk::{Mode, Sink};
use crate::reader::ReplicationToken;

/// The primary, for as long as its node is the primary.
pub struct Primary<P: Protocol> {
    pub(super) life: Arc<Life<P>>,
    pub(super) generation: u64,
}

impl<P: Protocol> Primary<P> {
    /// Returns the database.
    ///
    /// A commit in it is acknowledged when it is replicated. Anything that is read without [`Primary::transact`] needs
    /// [`Primary::confirm`] afterwards, since this node may have been replaced without knowing it. Bulk loads are refused. Do not
    /// close the database: shut the node down.
    pub fn database(&self) -> &Database<P> {
        &self.life.database
    }

    /// Runs a transaction, as [`Database::transact`] does. When it returns, the transaction is replicated, and nothing that
    /// it has read was out of date. Also returns a token, for which a standby can [wait](super::Node::wait_for).
    ///
    /// # Errors
    /// Those of [`Database::transact`]; [`ReplicationError::NotPrimary`] and [`ReplicationError::OutcomeUnknown`].
    #[track_caller]
    pub fn transact<R, E: From<weft::Error> + From<ReplicationError>>(
        &self,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, ReplicationToken), E> {
        self.transact_with(&TransactionOptions::new(), body)
    }

    /// Runs a transaction with options, as [`Primary::transact`] does.
    ///
    /// With a [key](TransactionOptions::once) the transaction happens once, also if its outcome is unknown: ask again with
    /// the key, at the next primary. If the transaction has committed, this returns its result, and otherwise runs it. The
    /// nodes need [`NodeBuilder::once`](super::NodeBuilder::once).
    ///
    /// # Errors
    /// As [`Primary::transact`].
    #[track_caller]
    pub fn transact_with<R, E: From<weft::Error> + From<ReplicationError>>(
        &self,
        options: &impl TransactWith<P, R>,
        body: impl FnMut(&Transaction<'_, P>) -> Result<R, E>,
    ) -> Result<(R, ReplicationToken), E> {
        self.check()?;
        let (result, token) = match self.life.database.transact_with_token(options, body) {
            Ok(committed) => committed,
            // The error follows from what was read.
            Err(error) => {
                self.confirm()?;
                return Err(error);
            }
        };
        let unknown = || ReplicationError::OutcomeUnknown;
        self.life.database.wait_durable(token).map_err(|_| unknown())?;
        self.confirm().map_err(|_| unknown())?;
        // A transaction that has written nothing gets the last epoch of the engine, which may be one that this node has
        // applied as a standby. Standbys never find that one in this generation. Everything that the transaction has read
        // is replicated, since it has waited for that.
        let epoch = token.epoch().min(self.life.link.acknowledged_epoch());
        Ok((result, ReplicationToken { generation: self.generation, epoch }))
    }

    /// Proves that this node was the only primary until now. If it does, everything that was read from this primary before
    /// was up to date. Within the lease of the last append this waits for nothing; otherwise it appends a heartbeat.
    ///
    /// # Errors
    /// [`ReplicationError::NotPrimary`].
    pub fn confirm(&self) -> Result<(), ReplicationError> {
        let link = &self.life.link;
        link.prove(link.now()).map_err(|_| ReplicationError::NotPrimary)
    }

    fn check(&self) -> Result<(), ReplicationError> {
        match self.life.link.mode() {
            Mode::Writing => Ok(()),
            Mode::Following | Mode::Ended => Err(ReplicationError::NotPrimary),
        }
    }
}
