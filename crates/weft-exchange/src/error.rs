//! Errors of exports and imports, with the place where they occurred.

use std::fmt;
use std::io;

use weft::Failure;
use weft::column::DecodeError;

/// Why a table was not exported. What was written until then is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The writer failed.
    #[error("table `{table}` cannot be written: {source}")]
    Io {
        /// The table.
        table: String,
        /// The writer's error.
        source: io::Error,
    },
    /// The table is volatile: its columns have no stored form.
    #[error("table `{table}` is volatile, and its columns have no stored form")]
    Volatile {
        /// The table.
        table: String,
    },
    /// The rows cannot be read.
    #[error("table `{table}` cannot be read: {source}")]
    Read {
        /// The table.
        table: String,
        /// The snapshot's error.
        source: Failure,
    },
    /// A row is not encoded as the table's description says.
    #[error("row {row} of table `{table}` does not match the table's description: {source}")]
    Row {
        /// The table.
        table: String,
        /// The number of the row, counted from 1, in the order of the calls of `push`.
        row: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The data exceeds a limit of the format.
    #[error("table `{table}` cannot be written as {format}: {problem}")]
    Limit {
        /// The table.
        table: String,
        /// The format's name.
        format: &'static str,
        /// What exceeds the limit.
        problem: String,
    },
}

/// Why a file was not imported, or not completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file's name.
        file: String,
        /// The reader's error.
        source: io::Error,
    },
    /// The file's name does not have the extension of a known format.
    #[error("{file}: {}", UNKNOWN_EXTENSION)]
    UnknownFormat {
        /// The file's name.
        file: String,
    },
    /// The file is damaged, or of another format, or uses a feature that is not supported.
    #[error("{file}{}: {problem}", place.after_comma())]
    Malformed {
        /// The file's name.
        file: String,
        /// Where, if that is known.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// The file's columns are not those of the table.
    #[error("{file} does not fit table `{table}`: {}", problems.join("; "))]
    Columns {
        /// The file's name.
        file: String,
        /// The table.
        table: String,
        /// Every difference, in words.
        problems: Vec<String>,
    },
    /// The table cannot be filled: it already has rows, two rows of the file have the same key, or
    /// [`Database::load`](weft::Database::load) fails for another reason.
    #[error(transparent)]
    Load(#[from] weft::Failure),
    /// A value that its column cannot hold.
    #[error("{file}{}, column `{column}`: expected {expected}, found {found}", place.after_comma())]
    Value {
        /// The file's name.
        file: String,
        /// The place of the value.
        place: Place,
        /// The table's column.
        column: String,
        /// What the column can hold.
        expected: String,
        /// What the file has instead.
        found: String,
    },
}

const UNKNOWN_EXTENSION: &str =
    "the format is unknown; a file's name should end in .csv, .arrow, .feather or .parquet";

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line of text, counted from 1. A record of several lines is named by its first line.
    Line(u64),
    /// A row, counted from 1.
    Row(u64),
}

impl Place {
    fn after_comma(&self) -> String {
        match self {
            Place::File => String::new(),
            place => format!(", {place}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => formatter.write_str("the file"),
            Place::Line(line) => write!(formatter, "line {line}"),
            Place::Row(row) => write!(formatter, "row {row}"),
        }
    }
}

/// Why rows could not be written.
#[derive(Debug)]
pub enum WriteFault {
    /// The writer failed.
    Io(io::Error),
    /// The data exceeds a limit of the format.
    Limit(String),
}

/// A value that does not fit its column, before its place in the file is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What the column can hold.
    pub expected: String,
    /// The value instead.
    pub found: String,
}

impl Misfit {
    /// Makes the error for a value that is not `expected`.
    pub fn new(expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Misfit { expected: expected.to_string(), found: found.to_string() }
    }
}

/// Returns a text for use in a message: quoted, and cut if it is long.
pub fn excerpt(text: &str) -> String {
    const LENGTH_MAX: usize = 60;
    match text.char_indices().nth(LENGTH_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}
