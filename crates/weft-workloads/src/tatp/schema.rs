//! The four tables of the specification.
//!
//! | table | key | stored in | rows per subscriber |
//! | --- | --- | --- | --- |
//! | [`Subscriber`] | s | hash table; by number | 1 |
//! | [`AccessInfo`] | s, type | hash table | 1 to 4 |
//! | [`SpecialFacility`] | s, type | B+-tree | 1 to 4 |
//! | [`CallForwarding`] | s, type, start time | B+-tree | 0 to 3 for each special facility |
//!
//! The tables that some transaction scans are trees, and the others are hash tables. `BIT_1` to `BIT_10`, and the
//! two other series of ten columns, are one column of ten values each. Rows own no heap memory.

use arrayvec::ArrayString;
use weft::Record;

/// A telephone number: 15 digits.
pub type Number = ArrayString<15>;

/// The number of types of access, and of types of special facilities. Types are numbered from 1.
pub const TYPES: u8 = 4;

/// The times at which a call forwarding may start: hours of the day.
pub const START_TIMES: [u8; 3] = [0, 8, 16];

/// Returns the number of a subscriber: the identifier in 15 digits.
#[inline]
pub fn number_of(s_id: u32) -> Number {
    let mut digits = [b'0'; 15];
    let (mut rest, mut position) = (s_id, digits.len());
    while rest > 0 {
        position -= 1;
        digits[position] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text(digits)
}

/// Returns the text that `N` ASCII characters spell.
#[inline]
pub(super) fn text<const N: usize>(characters: [u8; N]) -> ArrayString<N> {
    ArrayString::from_byte_string(&characters).expect("ASCII is UTF-8")
}

/// A row of `SUBSCRIBER`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "subscriber", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct Subscriber {
    #[record(key)]
    pub s_id: u32,
    #[record(unique)]
    pub sub_nbr: Number,
    pub bit: [bool; 10],
    /// Each from 0 to 15.
    pub hex: [u8; 10],
    pub byte2: [u8; 10],
    pub msc_location: u32,
    pub vlr_location: u32,
}

/// A row of `ACCESS_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "access_info", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct AccessInfo {
    #[record(key)]
    pub s_id: u32,
    #[record(key)]
    pub ai_type: u8,
    pub data1: u8,
    pub data2: u8,
    pub data3: ArrayString<3>,
    pub data4: ArrayString<5>,
}

/// A row of `SPECIAL_FACILITY`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "special_facility", storage = "ordered")]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct SpecialFacility {
    #[record(key)]
    pub s_id: u32,
    #[record(key)]
    pub sf_type: u8,
    pub is_active: bool,
    pub error_cntrl: u8,
    pub data_a: u8,
    pub data_b: ArrayString<5>,
}

/// A row of `CALL_FORWARDING`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "call_forwarding", storage = "ordered")]
#[allow(missing_docs, reason = "the columns are those of the specification")]
pub struct CallForwarding {
    #[record(key)]
    pub s_id: u32,
    #[record(key)]
    pub sf_type: u8,
    #[record(key)]
    pub start_time: u8,
    pub end_time: u8,
    pub numberx: Number,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_15_digits() {
        assert_eq!(number_of(1).as_str(), "000000000000001");
        assert_eq!(number_of(80_000).as_str(), "000000000080000");
        assert_eq!(number_of(u32::MAX).as_str(), "000004294967295");
    }
}
