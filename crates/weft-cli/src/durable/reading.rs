//! A recovery into memory that leaves the directory unchanged.

use std::path::Path;
use std::sync::Arc;

use weft::durability::{
    FileSystem, Manifest, RecoveryOptions, RecoveryReport, StorageError, StoredTable,
    lock_for_reading, recover,
};

use weft_bench::stop::Stop;

/// How many times an open database is read, if recovery reports an error.
const ATTEMPTS: usize = 5;

/// The result of a recovery into memory.
pub struct Reading<T> {
    /// What the recovery reports.
    pub recovered: RecoveryReport,
    /// The tables, as the command's `make` returned them.
    pub tables: T,
    /// Whether another process had the database open.
    pub is_open: bool,
}

/// Reads the manifest of a directory.
///
/// # Errors
/// The manifest cannot be read, or the directory has none.
pub fn read_manifest(directory: &Path) -> Result<Manifest, StorageError> {
    Manifest::read(&FileSystem, directory)?.ok_or_else(|| StorageError::NotADatabase {
        directory: directory.to_owned(),
        message: "it has no MANIFEST".to_owned(),
    })
}

/// Recovers without writing, into the tables that `make` returns. `make` returns them twice: in the form that the
/// command wants to keep, and as the trait objects that recovery fills.
///
/// If another process has the database open, it may append to the files, or replace them by a checkpoint, during
/// the recovery. An error may then be such a race, so the recovery is tried again, with new tables.
///
/// # Errors
/// The errors of recovery and of `make`.
pub fn recover_in_memory<T>(
    directory: &Path,
    options: &RecoveryOptions<'_>,
    make: impl Fn(&Manifest) -> Result<(T, Vec<Arc<dyn StoredTable>>), Stop>,
) -> Result<Reading<T>, Stop> {
    let options = RecoveryOptions { dry_run: true, ..*options };
    let manifest = read_manifest(directory)?;
    let lock = lock_for_reading(&FileSystem, directory)?;
    let is_open = lock.open_elsewhere;
    let attempt = |manifest: Manifest| -> Result<Result<Reading<T>, StorageError>, Stop> {
        let (tables, stored) = make(&manifest)?;
        let recovered = recover(&FileSystem, directory, &stored, &options);
        Ok(recovered.map(|recovered| Reading { recovered, tables, is_open }))
    };
    let mut outcome = attempt(manifest)?;
    for _ in 1..ATTEMPTS {
        match &outcome {
            Err(error) if is_open && !matches!(error, StorageError::EpochUnavailable { .. }) => {
                outcome = attempt(read_manifest(directory)?)?;
            }
            _ => break,
        }
    }
    outcome.map_err(Stop::from)
}
