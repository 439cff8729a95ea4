//! Importing: a file to a table's rows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use weft::description::TableDescription;

use crate::columnar::{IpcSource, ParquetSource};
use crate::csv::CsvSource;
use crate::error::ImportError;
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
    source: Option<Box<dyn RowSource + 'a>>,
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
        let mut importer = Importer {
            table: table.name.clone(),
            file: name.to_owned(),
            source: None,
            rows: 0,
            bytes_total,
            listener: Listener::none(),
        };
        importer.source = Some(source.map_err(|fault| importer.error(fault))?);
        Ok(importer)
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
        let Some(source) = &mut self.source else { return Ok(false) };
        let read = source.next_row(row);
        let bytes = source.bytes_read();
        self.rows += u64::from(matches!(read, Ok(true)));
        if !matches!(read, Ok(true)) {
            self.source = None;
        }
        if matches!(read, Ok(false)) || self.listener.is_due(self.rows) {
            let (rows, bytes_total) = (self.rows, self.bytes_total);
            self.listener.tell(Progress { rows, bytes, bytes_total });
        }
        read.map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> ImportError {
        let file = self.file.clone();
        match fault {
            Fault::Io(source) => ImportError::Io { file, source },
            Fault::Malformed(place, problem) => ImportError::Malformed { file, place, problem },
            Fault::Columns(problems) => {
                ImportError::Columns { file, table: self.table.clone(), problems }
            }
            Fault::Value(place, column, misfit) => ImportError::Value {
                file,
                place,
                column,
                expected: misfit.expected,
                found: misfit.found,
            },
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
