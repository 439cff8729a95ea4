//! The nine tables of clause 1.3. Every column has its name in the specification.
//!
//! | table | key | stored in | rows per warehouse |
//! | --- | --- | --- | --- |
//! | [`Warehouse`] | w | hash table | 1 |
//! | [`District`] | w, d | hash table | 10 |
//! | [`Customer`] | w, d, c | hash table; by w, d, last name, first name | 30,000 |
//! | [`History`] | origin, sequence | B+-tree | 30,000, growing |
//! | [`NewOrderRow`] | w, d, o | B+-tree | 9,000 |
//! | [`Order`] | w, d, o | B+-tree; by w, d, c, o | 30,000, growing |
//! | [`OrderLine`] | w, d, o, number | B+-tree | about 300,000, growing |
//! | [`Item`] | i | hash table | 100,000 in all |
//! | [`Stock`] | w, i | hash table | 100,000 |
//!
//! The tables that some transaction scans are trees, and the others are hash tables, as in §7.4.1 of the DBX paper.
//! Primary keys fit in eight bytes. The longest, (w, d, o, number), has exactly eight: 2 + 1 + 4 + 1.
//!
//! `HISTORY` has no primary key in the specification (clause 1.3.1). Here it has a key without meaning: the writer
//! of the row, and the row's number among the writer's rows. So no counter is shared, and each writer appends to
//! its own range of the tree. During the load, each warehouse is a writer (origin = w). During a run, each client
//! is a writer (see [`History::origin_of_client`]).
//!
//! Money is in cents, and rates are in hundredths of a percent. Rows own no heap memory: variable text is an
//! `ArrayString` as wide as the column, and fixed text is a [`FixedText`]. A column that may be null in the
//! specification is an `Option`.

use std::fmt;
use std::num::NonZeroU64;
use std::time::SystemTime;

use arrayvec::ArrayString;
use weft::column::{ColumnType, DecodeError, read_text, write_text};
use weft::{ColumnValue, Record};

/// The number of districts per warehouse (clause 1.2.1).
pub const DISTRICTS: u8 = 10;

/// The largest number of lines of an order (clause 2.4.1.3).
pub const LINES_MAX: usize = 15;

/// The width of the columns for first and last names, in bytes.
pub const NAME_BYTES_MAX: usize = 16;

/// Money, in cents.
pub type Cents = i64;

/// A rate, in hundredths of a percent: 10,000 is 100 %.
pub type BasisPoints = u16;

/// Text of exactly `N` ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FixedText<const N: usize>([u8; N]);

impl<const N: usize> FixedText<N> {
    /// Creates the text from its characters.
    ///
    /// # Panics
    /// The characters are not all ASCII.
    pub const fn new(characters: [u8; N]) -> Self {
        assert!(characters.is_ascii(), "fixed text is ASCII");
        FixedText(characters)
    }

    /// Returns the characters as bytes.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }
}

/// It is stored as text and not as an array of bytes, so that other programs show it as text.
impl<const N: usize> ColumnValue for FixedText<N> {
    const TYPE: ColumnType = ColumnType::String;

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        // SAFETY: `new` and `read` check that the characters are ASCII. (Checking this again for each of the eleven
        // texts in a row of stock took a large part of the time to log the row.)
        write_text(unsafe { str::from_utf8_unchecked(&self.0) }, output);
    }

    #[inline]
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let text = read_text(input)?;
        match text.as_bytes().try_into() {
            Ok(characters) if text.is_ascii() => Ok(FixedText(characters)),
            _ => Err(DecodeError::new(start, format!("a text is not {N} characters of ASCII"))),
        }
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        const { assert!(N < 1 << 7, "the length takes one byte") };
        1 + N
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl<const N: usize> fmt::Debug for FixedText<N> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}

/// A date and time in microseconds since the start of 1970 (UTC). It is never zero, so an optional one takes no
/// more space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ColumnValue)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// Returns the current time.
    #[inline]
    pub fn now() -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::from_micros(since_1970.map_or(1, |time| time.as_micros() as u64))
    }

    /// Returns the time `micros` microseconds after the start of 1970. 0 is replaced by 1.
    #[inline]
    pub const fn from_micros(micros: u64) -> Timestamp {
        match NonZeroU64::new(micros) {
            Some(micros) => Timestamp(micros),
            None => Timestamp(NonZeroU64::MIN),
        }
    }
}

/// A row of `WAREHOUSE`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "warehouse", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct Warehouse {
    #[record(key)]
    pub w_id: u16,
    pub w_tax: BasisPoints,
    pub w_ytd: Cents,
    pub w_name: ArrayString<10>,
    pub w_street_1: ArrayString<20>,
    pub w_street_2: ArrayString<20>,
    pub w_city: ArrayString<20>,
    pub w_state: FixedText<2>,
    pub w_zip: FixedText<9>,
}

/// A row of `DISTRICT`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "district", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct District {
    #[record(key)]
    pub d_w_id: u16,
    #[record(key)]
    pub d_id: u8,
    pub d_tax: BasisPoints,
    pub d_next_o_id: u32,
    pub d_ytd: Cents,
    pub d_name: ArrayString<10>,
    pub d_street_1: ArrayString<20>,
    pub d_street_2: ArrayString<20>,
    pub d_city: ArrayString<20>,
    pub d_state: FixedText<2>,
    pub d_zip: FixedText<9>,
}

/// A row of `CUSTOMER`. The columns are stored in this order, beginning with those that most transactions need: a
/// row has several cache lines, and the order determines how many of them are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "customer", storage = "hash")]
#[record(index(name = "by_name", columns(c_w_id, c_d_id, c_last, c_first)))]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
#[repr(C)]
pub struct Customer {
    #[record(key)]
    pub c_w_id: u16,
    #[record(key)]
    pub c_d_id: u8,
    #[record(key)]
    pub c_id: u32,
    pub c_credit: Credit,
    pub c_discount: BasisPoints,
    pub c_balance: Cents,
    pub c_ytd_payment: Cents,
    pub c_payment_cnt: u32,
    pub c_delivery_cnt: u32,
    pub c_credit_lim: Cents,
    pub c_since: Timestamp,
    pub c_first: ArrayString<NAME_BYTES_MAX>,
    pub c_middle: FixedText<2>,
    pub c_last: ArrayString<NAME_BYTES_MAX>,
    pub c_street_1: ArrayString<20>,
    pub c_street_2: ArrayString<20>,
    pub c_city: ArrayString<20>,
    pub c_state: FixedText<2>,
    pub c_zip: FixedText<9>,
    pub c_phone: FixedText<16>,
    pub c_data: ArrayString<500>,
}

/// A customer's credit: the column is `GC` or `BC`.
pub type Credit = FixedText<2>;

/// Good credit.
pub const GOOD_CREDIT: Credit = FixedText::new(*b"GC");

/// Bad credit.
pub const BAD_CREDIT: Credit = FixedText::new(*b"BC");

/// A row of `HISTORY`. The first two columns are not in the specification: see [the
/// module](self).
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "history", storage = "ordered")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct History {
    #[record(key)]
    pub h_origin: u32,
    #[record(key)]
    pub h_sequence: u32,
    pub h_c_id: u32,
    pub h_c_d_id: u8,
    pub h_d_id: u8,
    pub h_c_w_id: u16,
    pub h_w_id: u16,
    pub h_date: Timestamp,
    pub h_amount: Cents,
    pub h_data: ArrayString<24>,
}

impl History {
    /// The first client's rows have this origin, and the further ones' its multiples. Smaller origins are warehouses. So
    /// the leading bytes of clients' keys differ, as those of warehouses do in other tables.
    const FIRST_CLIENT: u32 = 1 << 16;

    /// Returns the origin of the rows of a client, by its number from 0. There are fewer than 2<sup>16</sup> clients.
    pub fn origin_of_client(number: u32) -> u32 {
        History::FIRST_CLIENT * (number + 1)
    }

    /// Returns how many clients have origins up to this one.
    pub fn clients_up_to(origin: u32) -> u32 {
        origin / History::FIRST_CLIENT
    }
}

/// A row of `NEW-ORDER`, for an order that is not yet delivered.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "new_order", storage = "ordered")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct NewOrderRow {
    #[record(key)]
    pub no_w_id: u16,
    #[record(key)]
    pub no_d_id: u8,
    #[record(key)]
    pub no_o_id: u32,
}

/// A row of `ORDER`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "order", storage = "ordered")]
#[record(index(name = "by_customer", columns(o_w_id, o_d_id, o_c_id, o_id), unique))]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct Order {
    #[record(key)]
    pub o_w_id: u16,
    #[record(key)]
    pub o_d_id: u8,
    #[record(key)]
    pub o_id: u32,
    pub o_c_id: u32,
    pub o_entry_d: Timestamp,
    pub o_carrier_id: Option<u8>,
    pub o_ol_cnt: u8,
    pub o_all_local: bool,
}

/// A row of `ORDER-LINE`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "order_line", storage = "ordered")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct OrderLine {
    #[record(key)]
    pub ol_w_id: u16,
    #[record(key)]
    pub ol_d_id: u8,
    #[record(key)]
    pub ol_o_id: u32,
    #[record(key)]
    pub ol_number: u8,
    pub ol_quantity: u8,
    pub ol_supply_w_id: u16,
    pub ol_i_id: u32,
    pub ol_delivery_d: Option<Timestamp>,
    pub ol_amount: Cents,
    pub ol_dist_info: FixedText<24>,
}

/// A row of `ITEM`.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "item", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
pub struct Item {
    #[record(key)]
    pub i_id: u32,
    pub i_im_id: u32,
    pub i_price: Cents,
    pub i_name: ArrayString<24>,
    pub i_data: ArrayString<50>,
}

/// A row of `STOCK`. The columns are stored in this order, beginning with those that most transactions need: a row
/// has several cache lines, and the order determines how many of them are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "stock", storage = "hash")]
#[allow(missing_docs, reason = "the columns are those of clause 1.3.1")]
#[repr(C)]
pub struct Stock {
    #[record(key)]
    pub s_w_id: u16,
    #[record(key)]
    pub s_i_id: u32,
    pub s_quantity: i32,
    pub s_order_cnt: u32,
    pub s_remote_cnt: u32,
    pub s_ytd: u64,
    /// `S_DIST_01` to `S_DIST_10`.
    pub s_dist: [FixedText<24>; DISTRICTS as usize],
    pub s_data: ArrayString<50>,
}

const _: () = {
    assert!(size_of::<Option<Timestamp>>() == 8);
    assert!(size_of::<OrderLine>() <= 64, "an order line should fit a cache line");
    assert!(size_of::<Order>() <= 32);
};

#[cfg(test)]
mod tests {
    use weft::description::{TableDescription, Value};

    use super::*;

    #[test]
    fn rows_come_back_from_their_stored_form() {
        let stock = Stock {
            s_w_id: 1,
            s_i_id: 2,
            s_quantity: -3,
            s_order_cnt: 4,
            s_remote_cnt: 5,
            s_ytd: 6,
            s_dist: [FixedText::new(*b"twenty-four characters.."); DISTRICTS as usize],
            s_data: ArrayString::from("ORIGINAL").expect("it fits"),
        };
        let line = OrderLine {
            ol_w_id: 1,
            ol_d_id: 2,
            ol_o_id: 3,
            ol_number: 4,
            ol_quantity: 5,
            ol_supply_w_id: 6,
            ol_i_id: 7,
            ol_delivery_d: Some(Timestamp::from_micros(u64::MAX)),
            ol_amount: -8,
            ol_dist_info: stock.s_dist[0],
        };
        let undelivered = OrderLine { ol_delivery_d: None, ..line };
        let (mut stocks, mut lines) = (Vec::new(), Vec::new());
        stock.encode_row(&mut stocks);
        line.encode_row(&mut lines);
        undelivered.encode_row(&mut lines);
        assert_eq!(Stock::decode_row(&mut &stocks[..]), Ok(stock));
        let mut rest = &lines[..];
        assert_eq!(OrderLine::decode_row(&mut rest), Ok(line));
        assert_eq!(OrderLine::decode_row(&mut rest), Ok(undelivered));
        assert!(rest.is_empty());
        let table = TableDescription::of::<Stock>().expect("it is not volatile");
        let values = table.read_row(&stocks).expect("the description is correct");
        let text = Value::String("twenty-four characters..".to_owned());
        assert_eq!(values[6], Value::List(vec![text; DISTRICTS as usize]));
    }

    #[test]
    fn invalid_fixed_text_is_refused() {
        for bytes in ["\u{1}G", "\u{3}GCX", "\u{2}\u{e4}"] {
            let error = Credit::read(&mut bytes.as_bytes()).expect_err("not two letters");
            assert_eq!(error.what(), "a text is not 2 characters of ASCII");
        }
        assert_eq!(Credit::read(&mut "\u{2}GC".as_bytes()), Ok(GOOD_CREDIT));
    }
}
