//! What every format's reader does for the importer.

use std::io;
#[cfg(feature = "columnar")]
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::description::ValueMismatch;

use crate::error::{Misfit, Place};

/// Gives rows, one after the other.
pub trait RowSource: Send {
    /// Appends the next row, encoded, to `output`; or returns false if there is none.
    fn next_row(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault>;

    /// How many bytes of the file were read.
    fn bytes_read(&self) -> u64;
}

/// Why there is no next row. The importer adds the names of file and table.
#[derive(Debug)]
pub enum Fault {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is not what it should be.
    Malformed(Place, String),
    /// Its columns are not those of the table.
    Columns(Vec<String>),
    /// A value is not one of its column.
    Value(Place, String, Misfit),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Malformed(Place::File, error.to_string()),
            _ => Fault::Io(error),
        }
    }
}

impl From<ValueMismatch> for Misfit {
    fn from(mismatch: ValueMismatch) -> Self {
        Misfit { expected: mismatch.expected, found: mismatch.found }
    }
}

/// Calls a library that reads a file which may be damaged. The libraries are written to refuse
/// such a file, and where they panic all the same, it is a fault of the file to the caller.
#[cfg(feature = "columnar")]
pub fn guarded<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // What the call leaves behind half-done is not used again: after a fault, an importer has
    // no more rows.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        let problem =
            format!("the file is damaged: its contents contradict each other ({message})");
        Err(Fault::Malformed(Place::File, problem))
    })
}
