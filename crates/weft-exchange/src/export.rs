//! Exporting: a table's rows to a file.

use std::io::Write;

use weft::description::TableDescription;

use crate::columnar::BatchWriter;
use crate::csv::CsvWriter;
use crate::error::{ExportError, WriteFault};
use crate::format::Format;
use crate::newtypes::without_newtypes;
use crate::progress::{CountingWriter, Listener, Progress};

/// Writes a table's rows to a file.
///
/// It keeps at most a batch of rows in memory (8 MiB or 8192 rows, the smaller of the two, as values and as
/// arrays), and for Parquet a row group (64 MiB). A file that was not [finished](Exporter::finish) is
/// incomplete.
///
/// ```
/// use weft::Record;
/// use weft::description::TableDescription;
/// use weft_exchange::{Exporter, Format, Importer};
///
/// #[derive(Clone, Record)]
/// struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
///
/// let table = TableDescription::of::<Seat>().expect("the table is not volatile");
/// let mut exporter = Exporter::new(&table, Format::Csv, Vec::new())?;
/// let mut row = Vec::new();
/// for seat in [
///     Seat { number: 1, taken_by: Some("Ada".into()) },
///     Seat { number: 2, taken_by: None },
/// ] {
///     row.clear();
///     seat.encode_row(&mut row);
///     exporter.push(&row)?;
/// }
/// let file = exporter.finish()?;
/// assert_eq!(file, b"number,taken_by\r\n1,Ada\r\n2,\r\n");
///
/// let file = std::io::Cursor::new(file);
/// for row in Importer::new(&table, Format::Csv, "seats.csv", file)? {
///     let seat = Seat::decode_row(&mut &row?[..])?;
///     assert_eq!(seat.taken_by.is_some(), seat.number == 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Exporter<'a, W: Write + Send> {
    table: TableDescription,
    format: Format,
    sink: Sink<W>,
    rows: u64,
    listener: Listener<'a>,
}

enum Sink<W: Write + Send> {
    Csv(CsvWriter<CountingWriter<W>>),
    Batches(BatchWriter<W>),
}

impl<'a, W: Write + Send> Exporter<'a, W> {
    /// Begins a file with the rows of `table`. The writer need not be buffered.
    ///
    /// # Errors
    /// If the writer fails, or the format cannot hold one of the columns.
    pub fn new(table: &TableDescription, format: Format, writer: W) -> Result<Self, ExportError> {
        let table = &without_newtypes(table);
        let writer = CountingWriter::new(writer);
        let sink = match format {
            Format::Csv => Ok(Sink::Csv(CsvWriter::new(table, writer))),
            Format::ArrowIpc => BatchWriter::arrow_ipc(table, writer).map(Sink::Batches),
            Format::Parquet => BatchWriter::parquet(table, writer).map(Sink::Batches),
        };
        let sink = sink.map_err(|fault| export_error(table, format, fault))?;
        let (table, listener) = (table.clone(), Listener::none());
        Ok(Exporter { table, format, sink, rows: 0, listener })
    }

    /// Calls `callback` after every batch, and at the end.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(Progress) + Send + 'a) -> Self {
        self.listener = Listener::new(callback);
        self
    }

    /// Writes a row, encoded by [`weft::Record::encode_row`].
    ///
    /// # Errors
    /// If it is not a row of the table, the writer fails, or the row is too large: Arrow IPC and Parquet take
    /// rows up to 1 GiB. The file is then not usable.
    pub fn push(&mut self, encoded_row: &[u8]) -> Result<(), ExportError> {
        let values = self.table.read_row(encoded_row).map_err(|source| ExportError::Row {
            table: self.table.name.clone(),
            row: self.rows + 1,
            source,
        })?;
        self.rows += 1;
        let batch_written = match &mut self.sink {
            Sink::Csv(writer) => writer
                .write(&self.table, &values)
                .map(|()| self.listener.is_due(self.rows))
                .map_err(WriteFault::Io),
            Sink::Batches(writer) => writer.write(&self.table, values, encoded_row.len()),
        };
        if batch_written.map_err(|fault| export_error(&self.table, self.format, fault))? {
            self.tell();
        }
        Ok(())
    }

    /// Writes the remaining rows, flushes the writer and returns it.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn finish(mut self) -> Result<W, ExportError> {
        let writer = match self.sink {
            Sink::Csv(writer) => writer.finish().map_err(WriteFault::Io),
            Sink::Batches(writer) => writer.finish(&self.table),
        };
        let writer = writer.map_err(|fault| export_error(&self.table, self.format, fault))?;
        let bytes = writer.bytes();
        self.listener.tell(Progress { rows: self.rows, bytes, bytes_total: None });
        Ok(writer.into_inner())
    }

    fn tell(&mut self) {
        let bytes = match &self.sink {
            Sink::Csv(writer) => writer.writer().bytes(),
            Sink::Batches(writer) => writer.bytes(),
        };
        self.listener.tell(Progress { rows: self.rows, bytes, bytes_total: None });
    }
}

fn export_error(table: &TableDescription, format: Format, fault: WriteFault) -> ExportError {
    let table = table.name.clone();
    match fault {
        WriteFault::Io(source) => ExportError::Io { table, source },
        WriteFault::Limit(problem) => ExportError::Limit { table, format: format.name(), problem },
    }
}
