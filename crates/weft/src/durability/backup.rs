//! Backups: copies of a running database in another directory.
//!
//! A backup is a checkpoint of its own, written from a snapshot of the running database, and a
//! manifest. So it opens like any other database, with the state at the end of the snapshot's
//! epoch. It has an identity of its own. There is no log to copy. The manifest is written last.
//! Until then the directory is not a database, and cannot be mistaken for one.

use std::path::Path;

use super::backend::Backend;
use super::checkpoint::{self, CheckpointOptions, CheckpointSource};
use super::directory;
use super::manifest::Manifest;
use crate::error::StorageError;

/// Writes all tables of a database, as `source` shows them, into `directory`, which must be empty
/// or not exist. `manifest` is the manifest of the database. Returns the manifest of the backup,
/// which says how many rows and bytes the backup has.
///
/// # Errors
/// [`StorageError::NotADatabase`] if the directory is not empty, [`StorageError::AlreadyOpen`] if
/// another process or handle has locked it, those of the file system, and those of `source`.
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
    let checkpoint_rows = checkpoint.rows();
    let backup = Manifest {
        first_epoch: checkpoint.epoch + 1,
        recovered_epoch: checkpoint.epoch,
        checkpoint: Some(checkpoint),
        tables: manifest.tables.clone(),
        dropped: manifest.dropped.clone(),
        schema: manifest.schema,
        oldest_schema: manifest.oldest_schema,
        time: manifest.time.max(source.time()),
        ..Manifest::empty()
    };
    if checkpoint_rows > 0 {
        // A reader of the copy's log misses these rows, also if it begins at the start.
        let log = directory::log_directory(directory);
        directory::create_directory(backend, &log)?;
        directory::mark_unlogged(backend, &log, backup.recovered_epoch)?;
    }
    backup.write(backend, directory)?;
    Ok(backup)
}
