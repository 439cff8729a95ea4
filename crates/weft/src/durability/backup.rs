//! Backups: a database copied into another directory, while it goes on.
//!
//! A backup is a checkpoint of its own, from a snapshot of the running database, and a manifest: so
//! it opens like any other database, with the state at the end of the snapshot's epoch, and with
//! an identity of its own. There is no log to copy. The manifest is written last: until then the
//! directory is not a database, and cannot be mistaken for one.

use std::path::Path;

use super::backend::Backend;
use super::checkpoint::{self, CheckpointOptions, CheckpointSource};
use super::directory;
use super::manifest::Manifest;
use crate::error::StorageError;

/// Writes all tables of a database, as `source` shows them, into `directory`, which is empty or
/// does not exist. `manifest` is that of the database. Returns the manifest of the backup, which
/// says how many rows and bytes it has.
///
/// # Errors
/// [`StorageError::NotADatabase`] if there is something in the directory,
/// [`StorageError::AlreadyOpen`] if somebody else is at work there, those of the file system, and
/// those of `source`.
pub fn write_backup(
    backend: &dyn Backend,
    directory: &Path,
    manifest: &Manifest,
    source: &dyn CheckpointSource,
    options: &CheckpointOptions<'_>,
) -> Result<Manifest, StorageError> {
    if Manifest::read(backend, directory)?.is_some() {
        let message = "it holds a database, and a backup needs an empty directory".to_owned();
        return Err(StorageError::NotADatabase { directory: directory.to_owned(), message });
    }
    let _lock = directory::lock(backend, directory)?;
    let tables = manifest.current_tables();
    let checkpoint = checkpoint::write_files(backend, directory, &tables, source, options)?;
    let backup = Manifest {
        first_epoch: checkpoint.epoch + 1,
        recovered_epoch: checkpoint.epoch,
        checkpoint: Some(checkpoint),
        tables: manifest.tables.clone(),
        ..Manifest::new()
    };
    backup.write(backend, directory)?;
    Ok(backup)
}
