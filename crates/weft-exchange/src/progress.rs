//! Progress of an export or an import.

use std::io::{self, Write};

/// The progress of an export or an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that the exporter has taken, or the importer has returned.
    pub rows: u64,
    /// Bytes written to the file, or read from it.
    pub bytes: u64,
    /// The size of the imported file, if it is known.
    pub bytes_total: Option<u64>,
}

/// Passes progress on to a callback, if there is one.
pub struct Listener<'a> {
    callback: Option<Box<dyn FnMut(Progress) + Send + 'a>>,
    rows_reported: u64,
}

/// An importer reports its progress after this many rows. An exporter reports it after each batch.
pub const ROWS_BETWEEN_CALLS: u64 = 8192;

impl<'a> Listener<'a> {
    /// Makes a listener that ignores progress.
    pub fn none() -> Self {
        Listener { callback: None, rows_reported: 0 }
    }

    /// Makes a listener that calls `callback`.
    pub fn new(callback: impl FnMut(Progress) + Send + 'a) -> Self {
        Listener { callback: Some(Box::new(callback)), rows_reported: 0 }
    }

    /// Reports progress.
    pub fn tell(&mut self, progress: Progress) {
        self.rows_reported = progress.rows;
        if let Some(callback) = &mut self.callback {
            callback(progress);
        }
    }

    /// Returns whether enough rows have passed since the last report.
    pub fn is_due(&self, rows: u64) -> bool {
        rows - self.rows_reported >= ROWS_BETWEEN_CALLS
    }
}

/// A writer that counts the bytes that go through it.
#[derive(Debug)]
pub struct CountingWriter<W> {
    writer: W,
    bytes: u64,
}

impl<W> CountingWriter<W> {
    /// Makes a writer whose count is 0.
    pub fn new(writer: W) -> Self {
        CountingWriter { writer, bytes: 0 }
    }

    /// Returns how many bytes were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the underlying writer.
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
