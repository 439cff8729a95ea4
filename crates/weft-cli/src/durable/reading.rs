//! A recovery into memory that changes nothing in the directory.

use std::path::Path;
use std::sync::Arc;

use weft::durability::{
    FileSystem, Manifest, Recovered, RecoveryOptions, StorageError, StoredTable, lock_for_reading,
    recover,
};

use weft_bench::stop::Stop;

/// How often a database that is open is read, if something seems to be wrong with it.
const ATTEMPTS: usize = 5;

/// What was recovered.
pub struct Reading<T> {
    /// As recovery tells it.
    pub recovered: Recovered,
    /// What the tables were made with.
    pub tables: T,
    /// Whether somebody had the database open.
    pub is_open: bool,
}

/// The manifest of a directory.
///
/// # Errors
/// It cannot be read, or there is none.
pub fn read_manifest(directory: &Path) -> Result<Manifest, StorageError> {
    Manifest::read(&FileSystem, directory)?.ok_or_else(|| StorageError::NotADatabase {
        directory: directory.to_owned(),
        message: "it has no MANIFEST".to_owned(),
    })
}

/// Recovers without writing, into the tables that `make` makes: what the command wants to keep of
/// them, and the same as recovery takes it.
///
/// If the database is open, its files may be appended to, or replaced by a checkpoint, meanwhile.
/// Then it is tried again, with fresh tables.
///
/// # Errors
/// Those of recovery and of `make`.
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
