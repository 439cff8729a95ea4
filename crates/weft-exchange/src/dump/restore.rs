//! Restoring a dump.

use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use weft::durability::{
    Backend, CheckpointOptions, CheckpointSource, Manifest, StorageError, write_backup,
};

use super::{DumpReader, DumpReport};

/// Makes a database of a dump, in a directory that is empty or does not exist. The database has an identity of its
/// own, and opens with the program's row types like the one from which the dump was made.
///
/// The dump is checked while it is read. The directory becomes a database in the last step, when all rows have been
/// written and synced, and the end of the dump was found. After a crash or an error before that, the directory is
/// not a database: remove it, if a second attempt refuses it.
///
/// # Errors
/// Those of [`DumpReader::next_row`]; [`StorageError::NotADatabase`] if the directory is not empty;
/// [`StorageError::AlreadyOpen`]; those of the file system.
pub fn restore_dump<R: Read + Send>(
    dump: DumpReader<'_, R>,
    backend: &dyn Backend,
    directory: &Path,
) -> Result<DumpReport, StorageError> {
    let (schema, oldest_schema) = dump.versions();
    let tables = dump.tables().to_vec();
    let manifest = Manifest { tables, schema, oldest_schema, ..Manifest::empty() };
    let mut rows = PendingRow { dump, row: Vec::new(), table: None };
    rows.advance()?;
    let source = DumpedRows(Mutex::new(rows));
    // One thread: rows come table by table.
    write_backup(backend, directory, &manifest, &source, &CheckpointOptions::default())?;
    let rows = source.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    debug_assert_eq!(rows.table, None, "all rows were written, and the end was found");
    Ok(rows.dump.report())
}

/// The rows of a dump, which are read once, in the order of the tables.
struct DumpedRows<'a, R>(Mutex<PendingRow<'a, R>>);

struct PendingRow<'a, R> {
    dump: DumpReader<'a, R>,
    /// The row that was read last, and its table; `None` at the end.
    row: Vec<u8>,
    table: Option<usize>,
}

impl<R: Read> PendingRow<'_, R> {
    fn advance(&mut self) -> Result<(), StorageError> {
        self.table = self.dump.next_row(&mut self.row)?;
        Ok(())
    }
}

impl<R: Read + Send> CheckpointSource for DumpedRows<'_, R> {
    fn epoch(&self) -> u64 {
        1
    }

    fn rows(
        &self,
        table: u32,
        _part: u32,
        _parts: u32,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while rows.table == Some(table as usize) {
            sink(&rows.row)?;
            rows.advance()?;
        }
        Ok(())
    }
}
