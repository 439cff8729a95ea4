//! The changes of an epoch whose entries come from elsewhere than the database's own log, for the crate that replicates
//! them.

use std::sync::Arc;

use weft::durability::Manifest;

use crate::change::Change;
use crate::error::ChangesError;
use crate::order::{Epoch, EpochError, Write};
use crate::schema::Schema;

/// The tables that entries of a log name.
#[derive(Clone, Debug)]
pub struct LoggedTables(Arc<Schema>);

/// The changes of an epoch.
#[derive(Debug)]
pub struct LoggedEpoch {
    epoch: Epoch,
    /// The writes, those of each row in order. `None` if the log's order is one.
    writes: Option<Vec<Write>>,
}

impl LoggedTables {
    /// Returns the tables of the database with this manifest.
    pub fn new(manifest: &Manifest) -> LoggedTables {
        LoggedTables(Arc::new(Schema::new(manifest)))
    }

    /// Reads the entries of an epoch. `place` says where they come from, for errors.
    ///
    /// # Errors
    /// If they are damaged, or name other tables.
    pub fn read(
        &self,
        number: u64,
        entries: Vec<u8>,
        place: &str,
    ) -> Result<LoggedEpoch, ChangesError> {
        let unreadable =
            |error: EpochError| error.into_changes_error(number, &self.0, place.as_ref());
        let epoch = Epoch::read(number, entries, Arc::clone(&self.0)).map_err(unreadable)?;
        let writes = epoch.sort_rows().map_err(unreadable)?;
        Ok(LoggedEpoch { epoch, writes })
    }
}

impl LoggedEpoch {
    /// Returns the latest time that the epoch sets, in milliseconds since 1970, if it sets one. It is not before that of any
    /// transaction of the epoch which has looked at the time, unless an earlier epoch has set a later one.
    pub fn time(&self) -> Option<u64> {
        self.epoch.time
    }

    /// Returns the changes. Those of each row are in order. Those of a transaction may be apart.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        let writes = self.writes.as_deref().unwrap_or(self.epoch.logged());
        writes.iter().map(|write| Change::new(&self.epoch, write))
    }
}
