//! What is wrong with bytes that should be a row.

use std::borrow::Cow;
use std::fmt;

/// Bytes that are no stored value, row or description: what is wrong with them, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct DecodeError(Box<Fault>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    what: Cow<'static, str>,
    /// How many bytes the input had from the faulty one on. Whoever reads a value does not know
    /// what was before it; whoever began to read does, and turns it into `position`.
    rest_bytes: usize,
    position: Option<usize>,
    column: Option<Cow<'static, str>>,
}

impl DecodeError {
    /// The bytes at the beginning of `rest`, the input from the faulty byte on, are wrong: `what`
    /// says in which way, in words that can follow "byte 12: ".
    #[cold]
    pub fn new(rest: &[u8], what: impl Into<Cow<'static, str>>) -> DecodeError {
        DecodeError(Box::new(Fault {
            what: what.into(),
            rest_bytes: rest.len(),
            position: None,
            column: None,
        }))
    }

    /// The input ends within `what`, of which it holds `rest`.
    #[cold]
    pub(crate) fn ends_within(rest: &[u8], what: &str) -> DecodeError {
        DecodeError::new(&rest[rest.len()..], format!("the bytes end within {what}"))
    }

    /// More bytes follow, `rest`, where `what` should have ended.
    #[cold]
    pub(crate) fn goes_on(rest: &[u8], what: &str) -> DecodeError {
        DecodeError::new(rest, format!("{what} ends here, but {} bytes follow", rest.len()))
    }

    /// The enum `name`, whose value begins `rest`, has no variant of this number.
    #[doc(hidden)]
    #[cold]
    pub fn no_variant(rest: &[u8], name: &str, number: u64, variants: usize) -> DecodeError {
        let message = format!("{name} has {variants} variants, and none with the number {number}");
        DecodeError::new(rest, message)
    }

    /// A row or a key of a volatile table was to be read.
    #[doc(hidden)]
    #[cold]
    pub fn volatile(table: &'static str, input: &[u8]) -> DecodeError {
        DecodeError::new(input, format!("table `{table}` is volatile: its rows are never stored"))
    }

    /// Says where the error is: within an input of `length_bytes`. Without effect if that is known.
    #[must_use]
    pub fn within(mut self, length_bytes: usize) -> DecodeError {
        let position = length_bytes.saturating_sub(self.0.rest_bytes);
        self.0.position.get_or_insert(position);
        self
    }

    /// Says where the error is: in `column` of a row or key of `length_bytes`.
    #[must_use]
    pub fn in_column(
        mut self,
        column: impl Into<Cow<'static, str>>,
        length_bytes: usize,
    ) -> DecodeError {
        self.0.column.get_or_insert_with(|| column.into());
        self.within(length_bytes)
    }

    /// What is wrong, without the place.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Which byte of the row, counted from 0; `None` if a value was read by itself.
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// The name of the column.
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { what, rest_bytes, position, column } = &*self.0;
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
