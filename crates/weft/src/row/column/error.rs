//! The error for bytes that are not a valid value, row or description.

use std::borrow::Cow;
use std::fmt;

/// An error about bytes that are not a stored value, row or description: what is wrong with them,
/// and where.
#[derive(Clone, PartialEq, Eq)]
pub struct DecodeError(Box<DecodeFault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct DecodeFault {
    what: Cow<'static, str>,
    /// The length of the input from the faulty byte on. The code that reads a value does not know
    /// what precedes the value. The code that began reading does know, and turns this into
    /// `position`.
    rest_bytes: usize,
    position: Option<usize>,
    column: Option<Cow<'static, str>>,
}

impl DecodeError {
    /// Returns an error about the first byte of `rest`, which is the input from the faulty byte on.
    /// `what` says what is wrong, in words that can follow "byte 12: ".
    #[cold]
    pub fn new(rest: &[u8], what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError(Box::new(DecodeFault {
            what: what.into(),
            rest_bytes: rest.len(),
            position: None,
            column: None,
        }))
    }

    /// Returns the error for an input that ends within `what`. `rest` is the part of `what` that is
    /// there.
    #[cold]
    pub(crate) fn ends_within(rest: &[u8], what: &str) -> DecodeError {
        DecodeError::new(&rest[rest.len()..], format!("the bytes end within {what}"))
    }

    /// Returns the error for an input that goes on with `rest`, where `what` should have ended.
    #[doc(hidden)]
    #[cold]
    pub fn goes_on(rest: &[u8], what: &str) -> DecodeError {
        DecodeError::new(rest, format!("{what} ends here, but {} bytes follow", rest.len()))
    }

    /// Returns the error for a variant number that the enum `name` does not have. The value begins
    /// at the start of `rest`.
    #[doc(hidden)]
    #[cold]
    pub fn no_variant(rest: &[u8], name: &str, number: u64, variants: usize) -> DecodeError {
        let message = format!("{name} has {variants} variants, and none with the number {number}");
        DecodeError::new(rest, message)
    }

    /// Returns the error for an attempt to read a row or a key of a volatile table.
    #[doc(hidden)]
    #[cold]
    pub fn volatile(table: &'static str, input: &[u8]) -> DecodeError {
        DecodeError::new(input, format!("table `{table}` is volatile: its rows are never stored"))
    }

    /// Adds the position of the error, within an input of `length_bytes`. Has no effect if the
    /// position is already known.
    #[must_use]
    pub fn within(mut self, length_bytes: usize) -> DecodeError {
        let position = length_bytes.saturating_sub(self.0.rest_bytes);
        self.0.position.get_or_insert(position);
        self
    }

    /// Adds the column, and the position within a row or key of `length_bytes`. Has no effect on
    /// what is already known.
    #[must_use]
    pub fn in_column(
        mut self,
        column: impl Into<Cow<'static, str>>,
        length_bytes: usize,
    ) -> DecodeError {
        self.0.column.get_or_insert_with(|| column.into());
        self.within(length_bytes)
    }

    /// Returns what is wrong, without the place.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Returns the position of the faulty byte in the row, counted from 0; `None` if the value was
    /// not read as part of a row.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// Returns the name of the column, if it is known.
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DecodeFault { what, rest_bytes, position, column } = &*self.0;
        match position {
            Some(position) => write!(formatter, "byte {position}")?,
            None => write!(formatter, "{rest_bytes} bytes before the end")?,
        }
        if let Some(column) = column {
            write!(formatter, " (column `{column}`)")?;
        }
        write!(formatter, ": {what}")
    }
}

impl fmt::Debug for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for DecodeError {}
