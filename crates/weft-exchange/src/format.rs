//! The file formats, and their detection from a file's name.

use std::fmt;
use std::path::Path;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Comma-separated values, RFC 4180, with a header.
    Csv,
    /// The file format of Arrow's inter-process communication, also known as Feather version 2.
    ArrowIpc,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 3] = [Format::Csv, Format::ArrowIpc, Format::Parquet];

    /// Returns the format of files whose names end in `.` and `extension`, in upper or lower case: `csv`;
    /// `arrow` or `feather`; `parquet`.
    pub fn from_extension(extension: &str) -> Option<Format> {
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "arrow" | "feather" => Some(Format::ArrowIpc),
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }

    /// Returns the format of a file by its name.
    ///
    /// ```
    /// use weft_exchange::Format;
    /// assert_eq!(Format::from_path("accounts.parquet".as_ref()), Some(Format::Parquet));
    /// assert_eq!(Format::from_path("accounts.xlsx".as_ref()), None);
    /// ```
    pub fn from_path(path: &Path) -> Option<Format> {
        Format::from_extension(path.extension()?.to_str()?)
    }

    /// Returns the extension of its files, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::ArrowIpc => "arrow",
            Format::Parquet => "parquet",
        }
    }

    /// Returns its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Csv => "CSV",
            Format::ArrowIpc => "Arrow IPC",
            Format::Parquet => "Parquet",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
