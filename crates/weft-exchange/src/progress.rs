//! How far an export or an import has come.

use std::io::{self, Write};

/// How far an export or an import has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows taken by the exporter, or given by the importer.
    pub rows: u64,
    /// Bytes written to the file, or read from it.
    pub bytes: u64,
    /// How many bytes there are in all, if that is known: the size of the file that is imported.
    pub bytes_total: Option<u64>,
}

/// Who is told of it.
pub struct Listener<'a> {
    callback: Option<Box<dyn FnMut(Progress) + Send + 'a>>,
    rows_told: u64,
}

/// An importer tells of its progress once in so many rows; an exporter, after each batch.
pub const ROWS_BETWEEN_CALLS: u64 = 8192;

impl<'a> Listener<'a> {
    /// Nobody.
    pub fn none() -> Self {
        Listener { callback: None, rows_told: 0 }
    }

    /// One that is called.
    pub fn new(callback: impl FnMut(Progress) + Send + 'a) -> Self {
        Listener { callback: Some(Box::new(callback)), rows_told: 0 }
    }

    /// Tells it.
    pub fn tell(&mut self, progress: Progress) {
        self.rows_told = progress.rows;
        if let Some(callback) = &mut self.callback {
            callback(progress);
        }
    }

    /// Whether enough rows have come since the last time.
    pub fn is_due(&self, rows: u64) -> bool {
        rows - self.rows_told >= ROWS_BETWEEN_CALLS
    }
}

/// A writer that counts what goes through it.
#[derive(Debug)]
pub struct CountingWriter<W> {
    writer: W,
    bytes: u64,
}

impl<W> CountingWriter<W> {
    /// Nothing has gone through it yet.
    pub fn new(writer: W) -> Self {
        CountingWriter { writer, bytes: 0 }
    }

    /// How many bytes were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The writer within.
    pub fn into_inner(self) -> W {
        self.writer
    }
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(buffer)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
