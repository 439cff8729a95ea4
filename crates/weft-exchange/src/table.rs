//! Exporting and importing a database's table, by the Rust type of its rows.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft::column::DecodeError;
use weft::description::TableDescription;
use weft::protocol::Protocol;
use weft::{Database, Record, Snapshot, Table};

use crate::error::{ExportError, FilePlace, ImportError};
use crate::export::Exporter;
use crate::format::Format;
use crate::import::Importer;
use crate::progress::Progress;

/// Writes all rows of a table, as a snapshot sees them, and returns the writer. Rows are in the order of their
/// keys, except that those of a hash table have no order. Other transactions can run during the export.
///
/// Calls `progress` after every batch, and at the end with the number of all rows. The writer need not be
/// buffered.
///
/// ```
/// use weft::{Database, Error, Record};
/// use weft_exchange::{Format, export_table};
///
/// #[derive(Clone, Record)]
/// struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
///
/// let database = Database::builder().table::<Seat>().open()?;
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
/// [`ExportError::Volatile`]; [`ExportError::Read`] with the error of the snapshot's scan; the errors of
/// [`Exporter`].
pub fn export_table<T: Record, W: Write + Send>(
    snapshot: &Snapshot,
    table: &Table<T>,
    format: Format,
    writer: W,
    progress: impl FnMut(Progress) + Send,
) -> Result<W, ExportError> {
    let description = TableDescription::named::<T>(table.name())
        .ok_or_else(|| ExportError::Volatile { table: table.name().to_owned() })?;
    let mut exporter = Exporter::new(&description, format, writer)?.on_progress(progress);
    let mut encoded = Vec::new();
    for row in snapshot.rows(table) {
        let row =
            row.map_err(|source| ExportError::Read { table: table.name().to_owned(), source })?;
        encoded.clear();
        row.encode_row(&mut encoded);
        exporter.push(&encoded)?;
    }
    exporter.finish()
}

/// How many rows a thread takes from the file at a time.
const ROWS_AT_ONCE: usize = 256;

/// Fills an empty table with the rows of a file, with `threads` threads, one of which reads at a time. Returns
/// how many rows there are. Nothing else can use the database during the import. If the import fails, the table
/// is empty again: see [`Database::load`]. For progress, see [`Importer::on_progress`].
///
/// ```
/// use weft::description::TableDescription;
/// use weft::{Database, Error, Record};
/// use weft_exchange::{Format, Importer, import_table};
///
/// #[derive(Clone, Record)]
/// struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
///
/// let database = Database::builder().table::<Seat>().open()?;
/// let seats = database.table::<Seat>()?;
/// let description = TableDescription::of::<Seat>().expect("not volatile");
/// let file = "taken_by,number\nAda,1\n,2\n".as_bytes();
/// let rows = Importer::from_csv_stream(&description, "seats.csv", file)?;
/// assert_eq!(import_table(&database, &seats, rows, 2)?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of the [`Importer`], and [`ImportError::Load`].
pub fn import_table<T: Record, P: Protocol>(
    database: &Database<P>,
    table: &Table<T>,
    rows: Importer<'_>,
    threads: usize,
) -> Result<u64, ImportError> {
    let rows = Mutex::new(rows);
    let part = |_| {
        let mut batches = Batches { rows: &rows, batch: Vec::new().into_iter() };
        std::iter::from_fn(move || {
            let (place, row) = match batches.next_encoded()? {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            let row = T::decode_row(&mut &row[..]);
            Some(row.map_err(|error| batches.misfit(place, table.name(), &error)))
        })
    };
    database.load(table, (0..threads.max(1)).map(part), |_| {})
}

/// One thread's share of the rows of a file.
struct Batches<'a, 'f> {
    rows: &'a Mutex<Importer<'f>>,
    batch: std::vec::IntoIter<Result<(FilePlace, Vec<u8>), ImportError>>,
}

impl<'f> Batches<'_, 'f> {
    /// Returns the next row, encoded, and its place in the file. Each thread decodes its own rows, outside of the lock.
    fn next_encoded(&mut self) -> Option<Result<(FilePlace, Vec<u8>), ImportError>> {
        if let Some(row) = self.batch.next() {
            return Some(row);
        }
        let mut rows = self.rows();
        let mut next = || {
            let row = rows.next()?;
            Some(row.map(|row| (rows.place(), row)))
        };
        let batch: Vec<_> = std::iter::from_fn(&mut next).take(ROWS_AT_ONCE).collect();
        drop(rows);
        self.batch = batch.into_iter();
        self.batch.next()
    }

    /// Returns the error for a row that the file may have, but not the program's row type: a column's type can refuse values
    /// that its stored form could hold.
    fn misfit(&self, place: FilePlace, table: &str, error: &DecodeError) -> ImportError {
        let problem = format!("the row does not fit table `{table}`: {error}");
        ImportError::Malformed { file: self.rows().file().to_owned(), place, problem }
    }

    fn rows(&self) -> MutexGuard<'_, Importer<'f>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
