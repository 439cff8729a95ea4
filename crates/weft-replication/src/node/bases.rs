//! The rows in a node's directory.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use weft::Failure;
use weft::durability::{CheckpointOptions, StorageError, write_backup};
use weft::protocol::Protocol;

use super::error::ReplicationError;
use super::life::{Applied, Life};
use super::report::Report;
use super::state::Core;
use crate::base::capture;
use crate::position::StoredPosition;

/// How often a node looks whether it should write its rows to its directory.
const BASE_INTERVAL: Duration = Duration::from_millis(100);

impl<P: Protocol> Core<P> {
    /// Writes the rows to the directory when there is much to replay without that. This is what a thread of the node does.
    pub(super) fn keep_bases(&self) {
        let base_bytes = self.setup.builder.options.base_bytes;
        while !self.wait(BASE_INTERVAL, |state| state.is_stopping || state.fault.is_some()) {
            let life = Arc::clone(&self.state().life);
            let is_due = life
                .link
                .session()
                .journal
                .as_ref()
                .is_some_and(|journal| journal.bytes_since_base() > base_bytes);
            if is_due && let Err(error) = self.write_base(&life) {
                self.report(Report::BaseFailed(error.to_string()));
            }
        }
    }

    /// Writes the rows to the directory. Returns whether there are any that it does not have already.
    pub(super) fn write_base(&self, life: &Life<P>) -> Result<bool, ReplicationError> {
        let Some(directory) = &self.setup.directory else {
            return Err(ReplicationError::Unfit("the node has no directory".to_owned()));
        };
        // A base has its name before it is complete, and another one that is begun in the same place would remove its files.
        let _alone = self.writing_base.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = &mut life.link.session().journal {
            journal.begin_base();
        }
        let failed = |error: std::io::Error, path: &Path| StorageError::io("write", path, &error);
        let written = capture(life, |manifest, source, applied| {
            let counted = applied.position.counted;
            let base = directory.begin_base(counted);
            let Some(base) = base.map_err(|error| failed(error, directory.path()))? else {
                return Ok(None);
            };
            let options = CheckpointOptions::default();
            write_backup(&*base.backend, &base.path, manifest, source, &options)?;
            Ok(Some((base, applied.clone())))
        })?;
        let Some((base, Applied { position, body })) = written else { return Ok(false) };
        // The records before the base must not be the last ones that the directory has.
        self.sync_journal(life);
        let stored = StoredPosition { log: directory.identity().to_owned(), position, body };
        let ended = directory.end_base(base, stored);
        let ended = ended.map_err(|error| Failure::from(failed(error, directory.path())))?;
        Ok(ended)
    }
}
