//! Positions in the change feed.

use std::fmt;
use std::str::FromStr;

/// The index of a position behind the last transaction of its epoch.
const END: u32 = u32::MAX;

/// A place in the change feed of one database: behind a transaction. It stays valid when the database is opened
/// again, and after a crash.
///
/// Store it as text: [`Display`](fmt::Display) writes it, and [`FromStr`] reads it. A later position is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Identifies the database; 0 in [`Position::START`].
    pub(crate) database: u64,
    pub(crate) epoch: u64,
    /// How many transactions of the epoch lie before it.
    pub(crate) index: u32,
}

impl Position {
    /// The beginning of every feed, before the database's first transaction.
    pub const START: Position = Position { database: 0, epoch: 0, index: END };

    /// Returns the position behind the last transaction of an epoch.
    pub(crate) fn end_of(database: u64, epoch: u64) -> Position {
        Position { database, epoch, index: END }
    }

    /// Returns whether it lies within its epoch.
    pub(crate) fn is_within_epoch(&self) -> bool {
        self.index != END
    }

    /// Returns the first epoch with anything behind it.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.epoch + u64::from(!self.is_within_epoch())
    }

    /// Returns the epoch in which the last transaction before the position committed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{}-", self.database, self.epoch)?;
        match self.index {
            END => formatter.write_str("end"),
            index => write!(formatter, "{index}"),
        }
    }
}

/// The error for a text that is not a position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a position in a change feed; a position looks like `00c0ffee00c0ffee-1234-end`"
)]
pub struct ParsePositionError {
    /// The text.
    pub text: String,
}

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Position, ParsePositionError> {
        let parse = || {
            let mut parts = text.split('-');
            let (database, epoch, index) = (parts.next()?, parts.next()?, parts.next()?);
            let index = match index {
                "end" => END,
                number => number.parse().ok().filter(|&index| index != END)?,
            };
            let database = u64::from_str_radix(database, 16).ok()?;
            let position = Position { database, epoch: epoch.parse().ok()?, index };
            // One text for each position, so that texts can be compared.
            (parts.next().is_none() && position.to_string() == text).then_some(position)
        };
        parse().ok_or_else(|| ParsePositionError { text: text.to_owned() })
    }
}
