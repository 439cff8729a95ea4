//! The version of a program's schema beside that of the directory.

use super::super::manifest::Manifest;
use crate::error::StorageError;

/// Passes the rows of part `part.0` of `part.1` of the table at a position to a sink, encoded, as the
/// program's hooks have left them.
pub(crate) type MigratedRows =
    Box<dyn Fn(usize, (usize, usize), &mut RowSink<'_>) -> Result<(), StorageError> + Send + Sync>;

/// What takes encoded rows.
pub(crate) type RowSink<'a> = dyn FnMut(&[u8]) -> Result<(), StorageError> + 'a;

/// Brings the tables that were recovered from a version of the schema to the program's, in an epoch in which
/// nothing else commits. The last argument is the time of the recovered state. Returns the rows, and the database's time
/// afterwards, which is at least the recovered one.
pub(crate) type Migrate<'a> =
    dyn FnMut(u32, u64, u64) -> Result<(MigratedRows, u64), StorageError> + 'a;

/// The version of a program's schema.
#[derive(Debug)]
pub(crate) struct ProgramVersion {
    pub current: u32,
    /// The version of the oldest programs that may open the directory afterwards.
    pub oldest: u32,
    /// The versions from which the program has a hook that leads to the next one, in order.
    pub hooks: Vec<u32>,
}

impl ProgramVersion {
    /// Makes the program's version that of the directory, unless the directory's is newer. Returns
    /// whether hooks have to run.
    ///
    /// # Errors
    /// [`StorageError::SchemaMismatch`] if the program is too old, or its hooks do not fit its version.
    pub(super) fn take_over(
        &self,
        is_new: bool,
        manifest: &mut Manifest,
    ) -> Result<bool, StorageError> {
        let ProgramVersion { current, oldest, .. } = *self;
        let stored = manifest.schema;
        if stored > current {
            let allowed = manifest.oldest_schema;
            if current >= allowed {
                return Ok(false);
            }
            let message = format!(
                "the directory has version {stored}, which opens with programs of version \
                 {allowed} and newer, and the program has version {current}; use a newer program, \
                 or restore a backup"
            );
            return Err(StorageError::SchemaMismatch { message });
        }
        let missing = (stored..current).find(|from| !is_new && !self.hooks.contains(from));
        if let Some(from) = missing {
            let message = format!(
                "the directory has version {stored}, the program has version {current}, and no hook \
                 leads from version {from} to the next one: add it with `Builder::migrate`, or open \
                 the directory with a program in between first"
            );
            return Err(StorageError::SchemaMismatch { message });
        }
        if let Some(from) = self.hooks.last().filter(|from| **from >= current) {
            let message = format!(
                "the program has a hook that leads on from version {from}, and its version is \
                 {current}: raise it with `Builder::version`"
            );
            return Err(StorageError::SchemaMismatch { message });
        }
        (manifest.schema, manifest.oldest_schema) = (current, oldest);
        Ok(!is_new && stored < current)
    }
}
