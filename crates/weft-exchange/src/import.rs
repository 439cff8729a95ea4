//! Importing: a file to a table's rows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use weft::description::TableDescription;

use crate::columnar::{IpcSource, ParquetSource};
use crate::csv::CsvSource;
use crate::error::{FilePlace, ImportError};
use crate::format::Format;
use crate::newtypes::without_newtypes;
use crate::progress::{Listener, Progress};
use crate::source::{Fault, RowSource};

/// Reads a table's rows from a file: an iterator of encoded rows.
///
/// The file's columns are matched with the table's by name, in any order. If the file lacks a column that has a
/// default, every row gets the default. If the table lacks a column of the file, that is an error.
///
/// For CSV, it keeps one record in memory, at most 256 MiB. For Arrow IPC, it keeps a batch, as large as the
/// program that wrote the file made it. For Parquet, it keeps some pages and a batch of rows.
///
/// After an error there are no more rows.
pub struct Importer<'a> {
    table: String,
    file: String,
    source: Box<dyn RowSource + 'a>,
    /// Whether there are no more rows, or an error was returned.
    is_ended: bool,
    rows: u64,
    bytes_total: Option<u64>,
    listener: Listener<'a>,
}

impl<'a> Importer<'a> {
    /// Opens the file at `path`. Its name determines the format.
    ///
    /// # Errors
    /// If the name has no known extension, or the file cannot be read, is of another format, or has other
    /// columns.
    pub fn open(table: &TableDescription, path: &Path) -> Result<Self, ImportError> {
        let name = path.display().to_string();
        let Some(format) = Format::from_path(path) else {
            return Err(ImportError::UnknownFormat { file: name });
        };
        let file =
            File::open(path).map_err(|source| ImportError::Io { file: name.clone(), source })?;
        Importer::new(table, format, &name, file)
    }

    /// Reads `file`. Errors call it `name`. It need not be buffered.
    ///
    /// # Errors
    /// If the file cannot be read, is of another format, or has other columns.
    pub fn new<R: Read + Seek + Send + 'static>(
        table: &TableDescription,
        format: Format,
        name: &str,
        mut file: R,
    ) -> Result<Self, ImportError> {
        let size_bytes = |file: &mut R| {
            let size_bytes = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(0))?;
            Ok(size_bytes)
        };
        let bytes_total = size_bytes(&mut file)
            .map_err(|source: io::Error| ImportError::Io { file: name.to_owned(), source })?;
        let plain = without_newtypes(table);
        let source: Result<Box<dyn RowSource>, Fault> = match format {
            Format::Csv => CsvSource::new(plain, file).map(|source| Box::new(source) as Box<_>),
            Format::ArrowIpc => {
                IpcSource::new(plain, file).map(|source| Box::new(source) as Box<_>)
            }
            Format::Parquet => {
                ParquetSource::new(plain, file).map(|source| Box::new(source) as Box<_>)
            }
        };
        Importer::from_source(table, name, source, Some(bytes_total))
    }

    /// Reads CSV from a stream whose end is not known, such as standard input. Errors call it `name`. It need
    /// not be buffered.
    ///
    /// # Errors
    /// If the header cannot be read, or has other columns.
    pub fn from_csv_stream<R: Read + Send + 'a>(
        table: &TableDescription,
        name: &str,
        stream: R,
    ) -> Result<Self, ImportError> {
        let source = CsvSource::new(without_newtypes(table), stream)
            .map(|source| Box::new(source) as Box<_>);
        Importer::from_source(table, name, source, None)
    }

    fn from_source(
        table: &TableDescription,
        name: &str,
        source: Result<Box<dyn RowSource + 'a>, Fault>,
        bytes_total: Option<u64>,
    ) -> Result<Self, ImportError> {
        Ok(Importer {
            source: source.map_err(|fault| import_error(&table.name, name, fault))?,
            table: table.name.clone(),
            file: name.to_owned(),
            is_ended: false,
            rows: 0,
            bytes_total,
            listener: Listener::none(),
        })
    }

    /// Returns the name by which errors call the file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Returns the place in the file of the row that was read last.
    pub fn place(&self) -> FilePlace {
        self.source.place()
    }

    /// Returns whether the file has values for the table's column at a position. In all other columns, rows have the
    /// default.
    pub fn has_column(&self, column: usize) -> bool {
        self.source.has_column(column)
    }

    /// Calls `callback` after every 8192 rows, and at the end.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(Progress) + Send + 'a) -> Self {
        self.listener = Listener::new(callback);
        self
    }

    /// Replaces the contents of `row` by the next row, encoded as by [`weft::Record::encode_row`], and returns
    /// `true`. Returns `false` if there are no more rows. It does the same as the iterator, for callers that
    /// want to reuse their memory.
    ///
    /// # Errors
    /// If the file is damaged, or a value does not fit its column. The error says where.
    pub fn next_row(&mut self, row: &mut Vec<u8>) -> Result<bool, ImportError> {
        row.clear();
        if self.is_ended {
            return Ok(false);
        }
        let read = self.source.next_row(row);
        let bytes = self.source.bytes_read();
        self.is_ended = !matches!(read, Ok(true));
        self.rows += u64::from(!self.is_ended);
        if matches!(read, Ok(false)) || self.listener.is_due(self.rows) {
            let (rows, bytes_total) = (self.rows, self.bytes_total);
            self.listener.tell(Progress { rows, bytes, bytes_total });
        }
        read.map_err(|fault| import_error(&self.table, &self.file, fault))
    }
}

fn import_error(table: &str, file: &str, fault: Fault) -> ImportError {
    let file = file.to_owned();
    match fault {
        Fault::Io(source) => ImportError::Io { file, source },
        Fault::Malformed(place, problem) => ImportError::Malformed { file, place, problem },
        Fault::Columns(problems) => {
            ImportError::Columns { file, table: table.to_owned(), problems }
        }
        Fault::Value(place, column, misfit) => {
            let (expected, found) = (misfit.expected, misfit.found);
            ImportError::Value { file, place, column, expected, found }
        }
    }
}

impl Iterator for Importer<'_> {
    type Item = Result<Vec<u8>, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut row = Vec::new();
        match self.next_row(&mut row) {
            Ok(true) => Some(Ok(row)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for Importer<'_> {}
