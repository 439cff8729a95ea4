//! Types of other libraries as columns and keys: times of the standard library, and, each behind the cargo feature of
//! its name, those of `jiff`, `uuid`, `rust_decimal` and `bytes`.
//!
//! | type | stored as | as a key | width of the key |
//! | --- | --- | --- | --- |
//! | `Duration` | `{ seconds: u64, nanoseconds: u32 }` | the same | 12 |
//! | `SystemTime` | `{ seconds: i64, nanoseconds: u32 }`, since 1970; before it the seconds are rounded down | the same | 12 |
//! | `jiff::Timestamp` | as `SystemTime` | the same | 12 |
//! | `jiff::civil::Date` | `{ year: i16, month: i8, day: i8 }` | the same | 4 |
//! | `jiff::civil::Time` | `{ hour: i8, minute: i8, second: i8, nanosecond: i32 }` | the same | 7 |
//! | `jiff::civil::DateTime` | `{ date, time }` | the same | 11 |
//! | `uuid::Uuid` | `[u8; 16]` | the bytes | 16 |
//! | `rust_decimal::Decimal` | `{ mantissa: i128, scale: u8 }`; negative zero as zero | the value times 10^28, 192 bits, the sign bit flipped | 24 |
//! | `bytes::Bytes` | as `Vec<u8>` | as `Vec<u8>` | varies |
//!
//! At run time the ones in braces are structs of these names and fields, and bytes that are not such a value are
//! refused. The order of a key is that of the Rust type.

use std::time::{Duration, SystemTime};

use super::column::{ColumnType, ColumnValue, DecodeError, FieldType};
use super::encoding::{Key, KeyEncoder};

/// Implements [`ColumnValue`] for a type that is stored as its parts, a tuple. `$from` returns `None` if the parts are
/// not those of a value.
macro_rules! stored_as_parts {
    ($type_of:ty, $name:literal { $($field:ident: $part:ty),+ }, $parts:expr, $from:expr) => {
        impl ColumnValue for $type_of {
            const TYPE: ColumnType = ColumnType::Struct {
                name: $name,
                fields: &[$(FieldType::new(stringify!($field), <$part>::TYPE)),+],
            };

            #[inline]
            fn write(&self, output: &mut Vec<u8>) {
                $parts(self).write(output);
            }

            #[inline]
            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let start = *input;
                let parts = <($($part,)+)>::read(input)?;
                let from: fn(($($part,)+)) -> Option<$type_of> = $from;
                // One value has only one form.
                from(parts).filter(|value| $parts(value) == parts).ok_or_else(|| {
                    DecodeError::new(start, concat!("its parts are not those of a ", $name))
                })
            }

            #[inline]
            fn stored_bytes(&self) -> usize {
                $parts(self).stored_bytes()
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                $parts(self) == $parts(other)
            }
        }
    };
}

/// Implements [`Key`] for a type whose values compare as their parts do, a tuple.
macro_rules! key_by_parts {
    ($type_of:ty, ($($part:ty),+), $parts:expr) => {
        impl Key for $type_of {
            const WIDTH_BYTES: Option<usize> = <($($part,)+)>::WIDTH_BYTES;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                $parts(self).encode(encoder);
            }
        }
    };
}

/// Implements both.
macro_rules! made_of_parts {
    ($type_of:ty, $name:literal { $($field:ident: $part:ty),+ }, $parts:expr, $from:expr) => {
        stored_as_parts!($type_of, $name { $($field: $part),+ }, $parts, $from);
        key_by_parts!($type_of, ($($part),+), $parts);
    };
}

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

fn duration_parts(duration: &Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

fn duration(seconds: u64, nanoseconds: u32) -> Option<Duration> {
    (nanoseconds < NANOSECONDS_PER_SECOND).then(|| Duration::new(seconds, nanoseconds))
}

made_of_parts!(
    Duration,
    "Duration" { seconds: u64, nanoseconds: u32 },
    duration_parts,
    |(seconds, nanoseconds)| duration(seconds, nanoseconds)
);

fn system_time_parts(time: &SystemTime) -> (i64, u32) {
    // The seconds of a `SystemTime` fit in an `i64` on every platform.
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
        Err(earlier) => {
            let (seconds, nanoseconds) = duration_parts(&earlier.duration());
            let seconds = 0_i64.wrapping_sub_unsigned(seconds);
            match nanoseconds {
                0 => (seconds, 0),
                _ => (seconds - 1, NANOSECONDS_PER_SECOND - nanoseconds),
            }
        }
    }
}

made_of_parts!(
    SystemTime,
    "SystemTime" { seconds: i64, nanoseconds: u32 },
    system_time_parts,
    |(seconds, nanoseconds)| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let time = match seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(whole),
            false => SystemTime::UNIX_EPOCH.checked_add(whole),
        };
        time?.checked_add(duration(0, nanoseconds)?)
    }
);

#[cfg(feature = "jiff")]
mod of_jiff {
    use jiff::Timestamp;
    use jiff::civil::{Date, DateTime, Time};

    use super::*;

    fn timestamp_parts(time: &Timestamp) -> (i64, u32) {
        // Jiff rounds towards 1970, and gives the rest its sign.
        let (seconds, rest) = (time.as_second(), time.subsec_nanosecond());
        match u32::try_from(rest) {
            Ok(rest) => (seconds, rest),
            Err(_) => (seconds - 1, NANOSECONDS_PER_SECOND - rest.unsigned_abs()),
        }
    }

    made_of_parts!(
        Timestamp,
        "Timestamp" { seconds: i64, nanoseconds: u32 },
        timestamp_parts,
        |(seconds, nanoseconds)| {
            let nanoseconds = i32::try_from(nanoseconds).ok()?;
            Timestamp::new(seconds, nanoseconds).ok()
        }
    );

    fn date_parts(date: &Date) -> (i16, i8, i8) {
        (date.year(), date.month(), date.day())
    }

    made_of_parts!(
        Date,
        "Date" { year: i16, month: i8, day: i8 },
        date_parts,
        |(year, month, day)| Date::new(year, month, day).ok()
    );

    fn time_parts(time: &Time) -> (i8, i8, i8, i32) {
        (time.hour(), time.minute(), time.second(), time.subsec_nanosecond())
    }

    made_of_parts!(
        Time,
        "Time" { hour: i8, minute: i8, second: i8, nanosecond: i32 },
        time_parts,
        |(hour, minute, second, nanosecond)| Time::new(hour, minute, second, nanosecond).ok()
    );

    fn date_time_parts(time: &DateTime) -> (Date, Time) {
        (time.date(), time.time())
    }

    made_of_parts!(
        DateTime,
        "DateTime" { date: Date, time: Time },
        date_time_parts,
        |(date, time)| Some(DateTime::from_parts(date, time))
    );
}

#[cfg(feature = "uuid")]
mod of_uuid {
    use uuid::Uuid;

    use super::*;

    impl ColumnValue for Uuid {
        const TYPE: ColumnType = <[u8; 16]>::TYPE;

        #[inline]
        fn write(&self, output: &mut Vec<u8>) {
            output.extend_from_slice(self.as_bytes());
        }

        #[inline]
        fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
            <[u8; 16]>::read(input).map(Uuid::from_bytes)
        }

        #[inline]
        fn stored_bytes(&self) -> usize {
            16
        }

        #[inline]
        fn is_same(&self, other: &Self) -> bool {
            self == other
        }
    }

    impl Key for Uuid {
        const WIDTH_BYTES: Option<usize> = Some(16);
        const IS_COLUMN: bool = true;

        #[inline]
        fn encode(&self, encoder: &mut impl KeyEncoder) {
            self.as_bytes().encode(encoder);
        }
    }
}

#[cfg(feature = "rust_decimal")]
mod of_rust_decimal {
    use rust_decimal::Decimal;

    use super::*;

    fn decimal_parts(decimal: &Decimal) -> (i128, u8) {
        (decimal.mantissa(), decimal.scale() as u8)
    }

    stored_as_parts!(
        Decimal,
        "Decimal" { mantissa: i128, scale: u8 },
        decimal_parts,
        |(mantissa, scale)| Decimal::try_from_i128_with_scale(mantissa, scale.into()).ok()
    );

    impl Key for Decimal {
        const WIDTH_BYTES: Option<usize> = Some(24);
        const HAS_ONE_STORED_FORM: bool = false;

        fn encode(&self, encoder: &mut impl KeyEncoder) {
            // The value as a multiple of 10^-28, the least one there is: below 2^190.
            let factor = 10_u128.pow(Decimal::MAX_SCALE - self.scale());
            let mantissa = self.mantissa().unsigned_abs();
            let (low, high) = (mantissa & u128::from(u64::MAX), mantissa >> 64);
            let (factor_low, factor_high) = (factor & u128::from(u64::MAX), factor >> 64);
            let least = low * factor_low;
            let middle = low * factor_high + high * factor_low + (least >> 64);
            let most = high * factor_high + (middle >> 64);
            // Flip the sign bit, and all bits of a negative number, less one.
            let mut words = [most as u64 | 1 << 63, middle as u64, least as u64];
            if self.mantissa() < 0 {
                let mut carry = true;
                for word in words.iter_mut().rev() {
                    (*word, carry) = (!*word).overflowing_add(carry.into());
                }
            }
            words.into_iter().for_each(|word| encoder.push(word, 8));
        }
    }
}

#[cfg(feature = "bytes")]
mod of_bytes {
    use bytes::Bytes;

    use super::*;
    use crate::row::column::{allocation_bytes, leb128_bytes, write_leb128};

    /// A copy of the row shares the bytes. A value that is read from a file gets memory of its own, so that it does not
    /// keep the file's buffer.
    impl ColumnValue for Bytes {
        const TYPE: ColumnType = Vec::<u8>::TYPE;

        #[inline]
        fn write(&self, output: &mut Vec<u8>) {
            write_leb128(self.len() as u64, output);
            output.extend_from_slice(self);
        }

        #[inline]
        fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
            Vec::<u8>::read(input).map(Bytes::from)
        }

        #[inline]
        fn stored_bytes(&self) -> usize {
            leb128_bytes(self.len() as u64) + self.len()
        }

        #[inline]
        fn heap_bytes(&self) -> usize {
            allocation_bytes(self.len())
        }

        #[inline]
        fn is_same(&self, other: &Self) -> bool {
            self == other
        }
    }
}
