//! Times as columns, and the columns that say when a row expires.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::row::column::{ColumnType, ColumnValue, DecodeError};
use crate::row::encoding::{Key, KeyEncoder};

/// A time of day: milliseconds since 1970, in eight bytes. It is stored, and ordered in keys, as a `u64`.
///
/// [`Transaction::now`](crate::Transaction::now) returns one, and a column of this type can say
/// [when a row expires](macro@crate::Record#rows-that-expire).
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use weft::Timestamp;
///
/// let noon = Timestamp::from_millis(1_800_000_000_000);
/// assert_eq!(noon + Duration::from_secs(60) - noon, Duration::from_secs(60));
/// assert_eq!(Timestamp::from(SystemTime::from(noon)), noon);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The greatest time. A row that expires at this time never expires.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Returns the time that is so many milliseconds after the beginning of 1970 (UTC).
    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis)
    }

    /// Returns the milliseconds since the beginning of 1970 (UTC).
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// The time so much later. Parts of a millisecond count as a whole one. Never more than [`Timestamp::MAX`].
impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Timestamp(self.0.saturating_add(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

/// The time from an earlier one to this one; zero if that one is not earlier.
impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Parts of a millisecond count as a whole one. Times before 1970 become 1970.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Timestamp(0) + time.duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The last time that the system has, if this one is beyond it.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let seconds_max = Duration::from_secs(i64::MAX as u64);
        UNIX_EPOCH + Duration::from_millis(time.0).min(seconds_max)
    }
}

/// Milliseconds since 1970.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Key for Timestamp {
    const WIDTH_BYTES: Option<usize> = u64::WIDTH_BYTES;
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        self.0.encode(encoder);
    }
}

impl ColumnValue for Timestamp {
    const TYPE: ColumnType = u64::TYPE;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.0.write(output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        u64::read(input).map(Timestamp)
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        size_of::<u64>()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Timestamp {}
    impl Sealed for Option<super::Timestamp> {}
}

/// The type of a column that says when a row expires: [`Timestamp`], or `Option<Timestamp>`, whose `None` means never.
#[diagnostic::on_unimplemented(
    message = "a row cannot expire at a `{Self}`",
    label = "not `Timestamp` or `Option<Timestamp>`",
    note = "the column of `expires = …` is a `weft::Timestamp`, or an `Option` of one, whose `None` means never"
)]
pub trait ExpiryColumn: Key + sealed::Sealed {
    /// Whether a row may have no time at which it expires.
    #[doc(hidden)]
    const IS_OPTIONAL: bool;

    /// Returns when the row expires.
    #[doc(hidden)]
    fn expires_at(&self) -> Timestamp;
}

impl ExpiryColumn for Timestamp {
    const IS_OPTIONAL: bool = false;

    #[inline(always)]
    fn expires_at(&self) -> Timestamp {
        *self
    }
}

impl ExpiryColumn for Option<Timestamp> {
    const IS_OPTIONAL: bool = true;

    #[inline(always)]
    fn expires_at(&self) -> Timestamp {
        self.unwrap_or(Timestamp::MAX)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_millisecond_are_rounded_up() {
        let one = Timestamp::from_millis(1);
        assert_eq!(one + Duration::from_nanos(1), Timestamp::from_millis(2));
        assert_eq!(one + Duration::MAX, Timestamp::MAX);
        assert_eq!(one - Timestamp::MAX, Duration::ZERO);
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Timestamp::from(before), Timestamp::default());
        let _ = SystemTime::from(Timestamp::MAX);
    }
}
