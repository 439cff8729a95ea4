//! File formats of histories.
//!
//! | format | looks like | read by |
//! | --- | --- | --- |
//! | `weft` | JSON lines, the first one `{"format":"weft-history","version":1}` | [`weft`] |
//! | `list-append` | Jepsen's events, EDN or JSON lines, micro-operations `append` and `r` | `jepsen`, `list_append` |
//! | `rw-register` | Jepsen's events, micro-operations `w` and `r` | `jepsen`, `register` |
//!
//! The first line of a file tells `weft` from the other two formats. The first transaction with more than reads
//! tells those two apart. `docs/history-format.md` describes all three with examples.
//!
//! Files are read line by line, and may be pipes. Bad input gives an error that names the line, never a panic.
//! A line has at most [`LINE_BYTES_MAX`] bytes and an event at most [`EVENT_BYTES_MAX`], so an endless line or
//! event cannot use up the memory. Messages quote at most 80 characters.

mod edn;
mod excerpt;
mod jepsen;
mod key_text;
mod list_append;
mod register;
mod values;
pub mod weft;

use std::io::{self, BufRead, Read};

use crate::history::History;

/// The largest length of a line, without its end: 256 MiB.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// The largest length of one of Jepsen's events, on any number of lines: 16 MiB.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

/// The format of a history file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Versioned reads and writes, one transaction on each line.
    Weft,
    /// Jepsen's events of transactions that append to lists and read them.
    ListAppend,
    /// Jepsen's events of transactions that write registers and read them.
    RwRegister,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Weft, Format::ListAppend, Format::RwRegister];

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Format::Weft => "weft",
            Format::ListAppend => "list-append",
            Format::RwRegister => "rw-register",
        }
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file itself could not be read.
    #[error("line {line}: cannot read: {source}")]
    Io {
        /// The number of the line, from 1.
        line: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// A line is longer than [`LINE_BYTES_MAX`].
    #[error(
        "line {line}: the line is longer than {bytes_max} bytes, which is the limit; check that the \
         file is a history, and put each transaction or event on a line of its own"
    )]
    LineTooLong {
        /// The number of the line, from 1.
        line: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// An event is longer than [`EVENT_BYTES_MAX`].
    #[error(
        "line {line}: the event that begins here is longer than {bytes_max} bytes, which is the \
         limit; check that its brackets are closed"
    )]
    EventTooLong {
        /// The number of the line where the event begins, from 1.
        line: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// A line does not have the required form.
    #[error("line {line}: {message}")]
    Syntax {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong, and what was expected.
        message: String,
    },
}

impl FormatError {
    pub(crate) fn syntax(line: u64, message: impl Into<String>) -> FormatError {
        FormatError::Syntax { line, message: message.into() }
    }

    /// Returns the number of the line at fault, from 1.
    pub fn line(&self) -> u64 {
        match self {
            FormatError::Io { line, .. }
            | FormatError::LineTooLong { line, .. }
            | FormatError::EventTooLong { line, .. }
            | FormatError::Syntax { line, .. } => *line,
        }
    }
}

/// Reads a file line by line.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
    /// Whether `buffer` holds a line that `next_line` must still return.
    is_put_back: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(reader: R) -> Self {
        Lines { reader, buffer: Vec::new(), number: 0, is_put_back: false }
    }

    /// Returns the next line that is not blank, without spaces at its ends, and its number.
    pub(crate) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, FormatError> {
        while !std::mem::take(&mut self.is_put_back) {
            self.buffer.clear();
            self.number += 1;
            let line = self.number;
            // Read up to one byte more than the limit: it is the line's end, or one byte too many.
            let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            let read = bounded.read_until(b'\n', &mut self.buffer);
            if read.map_err(|source| FormatError::Io { line, source })? == 0 {
                return Ok(None);
            }
            if self.buffer.len() > LINE_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
                return Err(FormatError::LineTooLong { line, bytes_max: LINE_BYTES_MAX });
            }
            self.is_put_back = !self.buffer.trim_ascii().is_empty();
        }
        Ok(Some((self.number, self.buffer.trim_ascii())))
    }

    /// Makes the next call return the same line again.
    fn put_back(&mut self) {
        self.is_put_back = true;
    }
}

/// A history that was read, and its format.
#[derive(Debug)]
pub struct ReadHistory {
    /// The history.
    pub history: History,
    /// The format that the file was in.
    pub format: Format,
}

/// Reads a history. Without a format, it detects the format from the file. It calls `progress` with the number
/// of the line now and then.
///
/// # Errors
///
/// If the file cannot be read, or is not in the format.
pub fn read(
    reader: impl BufRead,
    format: Option<Format>,
    progress: &mut dyn FnMut(u64),
) -> Result<ReadHistory, FormatError> {
    let mut lines = Lines::new(reader);
    let Some((_, first)) = lines.next_line()? else {
        return Err(FormatError::syntax(1, "the file is empty"));
    };
    let is_weft = format.map_or_else(|| weft::is_header(first), |format| format == Format::Weft);
    lines.put_back();
    if is_weft {
        let history = weft::read_lines(&mut lines, progress)?;
        return Ok(ReadHistory { history, format: Format::Weft });
    }
    let transactions = jepsen::read_lines(&mut lines, progress)?;
    let format = match format {
        Some(format) => format,
        None => jepsen::detect(&transactions)?,
    };
    let history = match format {
        Format::ListAppend => list_append::history(&transactions)?,
        _ => register::history(&transactions)?,
    };
    Ok(ReadHistory { history, format })
}

/// How many lines pass between two reports of progress.
pub(crate) const PROGRESS_INTERVAL: u64 = 1 << 12;
