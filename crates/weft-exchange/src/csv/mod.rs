//! CSV: RFC 4180, with a header of the columns' names.
//!
//! The writer ends lines with `\r\n`. The reader also accepts `\n`. An option that is `None` is an empty field.
//! An empty text is an empty field in quotes. The crate's documentation lists the forms of all values.

mod json;
mod lexer;
mod text;

use std::io::{self, Read, Write};

use weft::description::{TableDescription, Value};

use self::lexer::{Lexer, LexerError, Record, write_field};
use crate::columns::match_columns;
use crate::error::{FilePlace, ValueMisfit, excerpt};
use crate::source::{Fault, RowSource};

/// How many bytes are collected before they are passed to the writer.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes a table's rows.
pub struct CsvWriter<W> {
    writer: W,
    buffer: Vec<u8>,
    text: String,
}

impl<W: Write> CsvWriter<W> {
    /// Begins a file with its header.
    pub fn new(table: &TableDescription, writer: W) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        for (index, column) in table.columns.iter().enumerate() {
            if index > 0 {
                buffer.push(b',');
            }
            write_field(&column.name, &mut buffer);
        }
        buffer.extend_from_slice(b"\r\n");
        CsvWriter { writer, buffer, text: String::new() }
    }

    /// Writes a row of `table`.
    pub fn write(&mut self, table: &TableDescription, row: &[Value]) -> io::Result<()> {
        for (index, (column, value)) in table.columns.iter().zip(row).enumerate() {
            if index > 0 {
                self.buffer.push(b',');
            }
            self.text.clear();
            if text::write_column(&column.type_of, value, &mut self.text) {
                write_field(&self.text, &mut self.buffer);
            }
        }
        self.buffer.extend_from_slice(b"\r\n");
        if self.buffer.len() >= BUFFER_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Writes the remaining bytes.
    pub fn finish(mut self) -> io::Result<W> {
        self.hand_over()?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// Returns the writer, which may not have received everything yet.
    pub fn writer(&self) -> &W {
        &self.writer
    }

    fn hand_over(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a table's rows.
pub struct CsvSource<R> {
    table: TableDescription,
    positions: Vec<Option<usize>>,
    lexer: Lexer<R>,
    record: Record,
    /// The number of fields of a record.
    width: usize,
}

impl<R: Read> CsvSource<R> {
    /// Reads the header.
    pub fn new(table: TableDescription, input: R) -> Result<Self, Fault> {
        let mut lexer = Lexer::new(input);
        let mut header = Record::default();
        lexer.skip_byte_order_mark()?;
        if !lexer.read(&mut header)? {
            let problem = "the file is empty, and should begin with the names of its columns";
            return Err(Fault::Malformed(FilePlace::File, problem.to_owned()));
        }
        let names: Result<Vec<&str>, _> =
            header.iter().map(|field| std::str::from_utf8(field.bytes)).collect();
        let names = names.map_err(|_| {
            Fault::Malformed(FilePlace::Line(1), "a column's name is not in UTF-8".to_owned())
        })?;
        let positions = match_columns(&table, names.into_iter()).map_err(Fault::Columns)?;
        let width = header.len();
        Ok(CsvSource { table, positions, lexer, record: header, width })
    }

    /// Reads the next record that is not a blank line. If there is only one column, a blank line is a row.
    fn next_record(&mut self) -> Result<bool, Fault> {
        while self.lexer.read(&mut self.record)? {
            if self.width == 1 || !self.record.is_blank() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<R: Read + Send> RowSource for CsvSource<R> {
    fn next_row(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault> {
        if !self.next_record()? {
            return Ok(false);
        }
        let place = FilePlace::Line(self.record.line);
        if self.record.len() != self.width {
            let problem =
                format!("{} fields, but the header has {}", self.record.len(), self.width);
            return Err(Fault::Malformed(place, problem));
        }
        for (column, position) in self.table.columns.iter().zip(&self.positions) {
            let Some(field) = position.and_then(|position| self.record.get(position)) else {
                output.extend_from_slice(column.default.as_deref().unwrap_or_default());
                continue;
            };
            let misfit = |misfit| Fault::Value(place, column.name.clone(), misfit);
            let value = text::read_column(&column.type_of, field).map_err(misfit)?;
            value.write(&column.type_of, output).map_err(|mismatch| {
                let found = String::from_utf8_lossy(field.bytes);
                misfit(ValueMisfit::new(mismatch.expected, excerpt(&found)))
            })?;
        }
        Ok(true)
    }

    fn bytes_read(&self) -> u64 {
        self.lexer.bytes_read()
    }

    fn place(&self) -> FilePlace {
        FilePlace::Line(self.record.line)
    }

    fn has_column(&self, column: usize) -> bool {
        self.positions[column].is_some()
    }
}

impl From<LexerError> for Fault {
    fn from(error: LexerError) -> Self {
        match error {
            LexerError::Io(error) => Fault::Io(error),
            LexerError::Syntax { line, problem } => {
                Fault::Malformed(FilePlace::Line(line), problem)
            }
        }
    }
}
