//! The interface between the importer and each format's reader.

use std::io;
#[cfg(feature = "columnar")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::description::ValueMismatch;

use crate::error::{FilePlace, ValueMisfit};

/// A reader that returns rows, one after the other.
pub trait RowSource: Send {
    /// Appends the next row, encoded, to `output`. Returns `false` if there are no more rows.
    fn next_row(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault>;

    /// Returns how many bytes of the file were read.
    fn bytes_read(&self) -> u64;

    /// Returns the place of the last row.
    fn place(&self) -> FilePlace;

    /// Returns whether the file has values for the table's column at a position.
    fn has_column(&self, column: usize) -> bool;
}

/// Why there is no next row. The importer adds the names of the file and the table.
#[derive(Debug)]
pub enum Fault {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is damaged, or does not have the expected format.
    Malformed(FilePlace, String),
    /// Its columns are not those of the table.
    Columns(Vec<String>),
    /// A value does not fit its column.
    Value(FilePlace, String, ValueMisfit),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Malformed(FilePlace::File, error.to_string()),
            _ => Fault::Io(error),
        }
    }
}

impl From<ValueMismatch> for ValueMisfit {
    fn from(mismatch: ValueMismatch) -> Self {
        ValueMisfit { expected: mismatch.expected, found: mismatch.found }
    }
}

/// Calls a library that reads a file, which may be damaged. The libraries are meant to refuse such a file. If
/// one panics nevertheless, this returns a fault of the file.
#[cfg(feature = "columnar")]
pub fn guarded<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // The half-done state of a call that panicked is not used again: after a fault, an importer returns no more
    // rows.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        let problem =
            format!("the file is damaged: its contents contradict each other ({message})");
        Err(Fault::Malformed(FilePlace::File, problem))
    })
}
