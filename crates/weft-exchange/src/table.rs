//! A table of a database to a file, by the rows' Rust type.

use std::io::Write;

use weft::description::TableDescription;
use weft::protocol::Protocol;
use weft::{Record, Snapshot, Table};

use crate::error::ExportError;
use crate::export::Exporter;
use crate::format::Format;
use crate::progress::Progress;

/// Writes all rows of a table, as a snapshot sees them, and returns the writer. Rows are in the
/// order of their keys; those of a hash table are in none. The database goes on meanwhile.
///
/// `progress` is called after every batch, and at the end with the number of all rows. The writer
/// need not be buffered.
///
/// ```
/// use weft::{Database, Error, Record};
/// use weft_exchange::{Format, export_table};
///
/// #[derive(Clone, Record)]
/// struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
///
/// let database: Database = Database::builder().table::<Seat>().open()?;
/// let seats = database.table::<Seat>()?;
/// database.transact(|tx| {
///     tx.insert(&seats, Seat { number: 2, taken_by: None })?;
///     tx.insert(&seats, Seat { number: 1, taken_by: Some("Ada".into()) })
/// })?;
///
/// let snapshot = database.open_snapshot()?;
/// let file = export_table(&snapshot, &seats, Format::Csv, Vec::new(), |_| ())?;
/// assert_eq!(file, b"number,taken_by\r\n1,Ada\r\n2,\r\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ExportError::Volatile`]; [`ExportError::Read`], with the error of the snapshot's scan; those of
/// [`Exporter`].
pub fn export_table<T: Record, P: Protocol, W: Write + Send>(
    snapshot: &Snapshot<P>,
    table: &Table<T, P>,
    format: Format,
    writer: W,
    progress: impl FnMut(Progress) + Send,
) -> Result<W, ExportError> {
    let description = TableDescription::of::<T>()
        .ok_or_else(|| ExportError::Volatile { table: T::TABLE.to_owned() })?;
    let mut exporter = Exporter::new(&description, format, writer)?.on_progress(progress);
    let mut encoded = Vec::new();
    for row in snapshot.rows(table) {
        let row = row.map_err(|source| ExportError::Read { table: T::TABLE.to_owned(), source })?;
        encoded.clear();
        row.encode_row(&mut encoded);
        exporter.push(&encoded)?;
    }
    exporter.finish()
}
