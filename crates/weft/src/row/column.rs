//! The stored form of columns, and their types at run time.
//!
//! In memory rows need no format, because they are Rust values there. In a log, a checkpoint or a
//! backup, a row is its columns, one after the other in the order of the struct's fields. Each
//! column is written by its type's [`ColumnValue`]. There are no separators between the columns,
//! and no types beside them: the table's description, which is stored once, holds the types
//! ([`description`](crate::description)).
//!
//! ```text
//!   #[derive(Clone, Record)]
//!   struct Account {
//!       #[record(key)]
//!       id: u32,                  07 00 00 00                  7
//!       owner: String,            03 41 64 61                  "Ada"
//!       cents: i64,               9C FF FF FF FF FF FF FF      -100
//!       limit: Option<u16>,       01 F4 01                     Some(500)
//!   }
//! ```
//!
//! ## The format
//!
//! | type | [`ColumnType`] | bytes |
//! | --- | --- | --- |
//! | `bool` | `Bool` | `00` or `01` |
//! | `u8` … `u128`, `i8` … `i128` | `U8` … `I128` | little-endian, as wide as the type |
//! | `NonZero` of these | that of the number | as the number |
//! | `f32`, `f64` | `F32`, `F64` | the IEEE 754 bits, little-endian; every bit is kept, also in a NaN |
//! | `char` | `Char` | its code point, four bytes, little-endian |
//! | `String`, `Box<str>`, `Arc<str>`, `ArrayString<N>` | `String` | a length in bytes, then the UTF-8 |
//! | `Vec<T>`, `Box<[T]>`, `Arc<[T]>`, `ArrayVec<T, N>` | `List` | a length in elements, then the elements |
//! | `[T; N]` | `Array` | the elements |
//! | `BTreeMap<K, V>`, `HashMap<K, V>` | `List` of `Tuple`s | a length, then the entries as tuples, in ascending order of the keys |
//! | `BTreeSet<T>`, `HashSet<T>` | `List` | a length, then the values, in ascending order |
//! | `Duration` | `Struct` | seconds: `u64`, nanoseconds below 10^9: `u32` |
//! | `SystemTime` | `Struct` | the same since 1970, with an `i64`; before 1970 the seconds are rounded down |
//! | `Option<T>` | `Option` | `00`, or `01` and the value |
//! | `()`, tuples, up to 12 elements | `Tuple` | the elements |
//! | structs that derive [`ColumnValue`](macro@crate::ColumnValue) | `Struct` | the fields |
//! | enums without fields that derive it | `Enum` | the variant's number, counted from 0 in the order of declaration, encoded as a length |
//! | other enums that derive it | `Struct` | for each variant `00`, but `01` and its fields for the one that the value is |
//!
//! Cargo features of `weft` add `bytes::Bytes` (`bytes`, stored as `Vec<u8>`), `Timestamp` and civil times (`jiff`), `Decimal`
//! (`rust_decimal`) and `Uuid` (`uuid`). Their forms are in the table that opens `row/parts.rs`.
//!
//! Lengths are in unsigned LEB128 ([`write_leb128`]): seven bits to a byte, the lowest first, the
//! top bit set in every byte but the last, and no more bytes than needed.
//!
//! This format does not preserve the order of values, unlike the encoding of keys in indexes
//! ([`encoding`](crate::encoding)). A key in a log is written in this format, column by column.
//!
//! ## Promises
//!
//! 1. **Exactness.** What is read equals what was written, to the bit.
//! 2. **One form.** A value has one encoding, and bytes that are not exactly that are refused.
//! 3. **Totality.** Any bytes at all give a value or a [`DecodeError`]: no panic, no loop that the
//!    input's length does not bound, and no allocation for more elements than its bytes can hold.
//!
//! Because of the third promise, elements of lists and arrays must take at least one byte each.
//! Otherwise a list of a thousand million `()` would take only five bytes. The compiler refuses
//! such columns:
//!
//! ```compile_fail,E0080
//! #[derive(Clone, weft::Record)]
//! struct Row { #[record(key)] id: u32, marks: Vec<()> }
//! ```

use std::fmt;

pub use error::DecodeError;
pub use set::{ColumnSet, UsedColumns};

mod collections;
mod error;
mod set;
mod values;

/// A type that a column can have: one whose values can be stored.
///
/// Implemented for `bool`, numbers of a fixed width, `char`, strings, times, and lists, maps, sets,
/// arrays, options and tuples of these ([the whole table](self#the-format)). For structs and enums,
/// derive it:
///
/// ```
/// use weft::{ColumnValue, Record};
///
/// #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
/// enum Currency { Euro, Yen }
///
/// #[derive(Clone, Debug, PartialEq, ColumnValue)]
/// struct Price { amount: i64, currency: Currency }
///
/// #[derive(Clone, Record)]
/// struct Item { #[record(key)] id: u32, price: Option<Price> }
///
/// let item = Item { id: 7, price: Some(Price { amount: 300, currency: Currency::Yen }) };
/// let mut row = Vec::new();
/// item.encode_row(&mut row);
/// assert_eq!(row, [7, 0, 0, 0, 1, 44, 1, 0, 0, 0, 0, 0, 0, 1]);
/// assert_eq!(Item::decode_row(&mut &row[..])?.price, item.price);
/// # Ok::<(), weft::column::DecodeError>(())
/// ```
///
/// To implement it by hand, delegate: write another type's form, read it back, and refuse what your
/// own type does not allow.
///
/// ```
/// use weft::column::{ColumnType, ColumnValue, DecodeError};
///
/// /// A share of a whole, in hundredths of a percent.
/// struct Share(u16);
///
/// impl ColumnValue for Share {
///     const TYPE: ColumnType = u16::TYPE;
///
///     fn write(&self, output: &mut Vec<u8>) {
///         self.0.write(output);
///     }
///
///     fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
///         let start = *input;
///         match u16::read(input)? {
///             share @ 0..=10_000 => Ok(Share(share)),
///             more => Err(DecodeError::new(start, format!("a share is {more}, which is over 10000"))),
///         }
///     }
/// }
/// ```
///
/// An implementation must keep the three [promises](self#promises), and [`Self::write`] must write
/// what [`Self::TYPE`] says: programs that do not have the Rust type read values by [`Self::TYPE`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored, and a column of a table is",
    label = "not a column type",
    note = "columns are `bool`, numbers of a fixed width, `char`, strings that own their text, `Duration`, `SystemTime`, and lists, maps, sets, arrays, options and tuples of these",
    note = "`usize` cannot be a column, because its width depends on the machine: use `u64`; `&str` cannot, because it does not own its text: use `String`",
    note = "for a struct or an enum of yours: `#[derive(weft::ColumnValue)]`",
    note = "`Uuid`, `jiff`'s times, `Decimal` and `Bytes` are columns with weft's features `uuid`, `jiff`, `rust_decimal` and `bytes`",
    note = "a table that need not outlive the process can have columns of any type: `#[record(volatile)]` on its struct"
)]
pub trait ColumnValue: Sized {
    /// The type at run time.
    const TYPE: ColumnType;

    /// Appends the value to `output`.
    fn write(&self, output: &mut Vec<u8>);

    /// Reads a value from the beginning of `input`, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with the encoding of a value. `input` is then left at an
    /// unspecified place.
    fn read(input: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Returns how many bytes the value takes when stored. The engine calls this for the columns of
    /// every row that owns memory, because the length of a stored row is limited. The default
    /// implementation writes the value and counts the bytes. Implementing it is worth while.
    #[inline]
    fn stored_bytes(&self) -> usize {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes.len()
    }

    /// Returns about how many bytes the value takes outside itself: the memory that it owns, as the global
    /// allocator gives it ([`allocation_bytes`]). The engine calls this for the columns of every row that owns
    /// memory, for [`Metrics::memory`](crate::Metrics::memory) and the
    /// [memory limit](crate::Builder::memory_limit). The default implementation takes the length of the stored form,
    /// or 0 for a type that owns nothing. Implement it for a type that owns much more.
    #[inline]
    fn heap_bytes(&self) -> usize {
        if std::mem::needs_drop::<Self>() { allocation_bytes(self.stored_bytes()) } else { 0 }
    }

    /// Returns how many bytes the values of a list take when stored.
    #[doc(hidden)]
    #[inline]
    fn all_stored_bytes(values: &[Self]) -> usize {
        values.iter().map(Self::stored_bytes).sum()
    }

    /// Returns whether another value is stored as the same bytes. The engine calls this for the
    /// columns of every row that is written, because the log holds only the columns that changed.
    ///
    /// The default implementation writes both values into new memory. Implementing it is worth
    /// while if there is a faster way. All of Weft's own implementations have one.
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        self.write(&mut own);
        other.write(&mut others);
        own == others
    }

    /// Returns `self + (after - before)`, exactly. Returns `None` if the result is not a value of
    /// the type, or if the type has no exact sums. The default implementation returns `None`; the
    /// integers override it.
    ///
    /// If a transaction only added to a column, and so changed it from `before` to `after`, the
    /// result is what the same transaction makes of the value `self`.
    #[inline]
    fn add_difference(&self, after: &Self, before: &Self) -> Option<Self> {
        let _ = (after, before);
        None
    }

    /// Returns whether `self + (after - before)` is a value of the type, even if some thousand sums
    /// of that size are added first. If it is, the sum can be promised now and made later. The
    /// default implementation, for types without exact sums, returns `true`.
    ///
    /// For an integer this holds if `self` is at least a quarter of the type's range away from the
    /// end that the sum moves it towards, and the difference is at most a 2^14th part of the range.
    #[doc(hidden)]
    #[inline]
    fn has_room(&self, after: &Self, before: &Self) -> bool {
        let _ = (after, before);
        true
    }

    /// Returns whether two lists of the same length are stored as the same bytes.
    #[doc(hidden)]
    #[inline]
    fn are_same(values: &[Self], others: &[Self]) -> bool {
        values.iter().zip(others).all(|(value, other)| value.is_same(other))
    }

    /// Appends `values`, one after the other.
    #[doc(hidden)]
    #[inline]
    fn write_all(values: &[Self], output: &mut Vec<u8>) {
        for value in values {
            value.write(output);
        }
    }

    /// Reads `count` values. The caller has checked that the input may hold that many.
    #[doc(hidden)]
    #[inline]
    fn read_many(count: usize, input: &mut &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(Self::read(input)?);
        }
        Ok(values)
    }

    /// Reads `N` values.
    #[doc(hidden)]
    #[inline]
    fn read_array<const N: usize>(input: &mut &[u8]) -> Result<[Self; N], DecodeError> {
        let mut values = arrayvec::ArrayVec::<Self, N>::new();
        for _ in 0..N {
            values.push(Self::read(input)?);
        }
        match values.into_inner() {
            Ok(array) => Ok(array),
            Err(_) => unreachable!("as many were pushed as there is room for"),
        }
    }
}

/// Returns how many bytes of memory an allocation of `bytes` takes: with the eight bytes and the rounding that most
/// allocators add.
#[inline]
pub const fn allocation_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16) + 16 * (bytes < 8) as usize }
}

/// Writes which columns of a row have changed, and their values. Used by
/// [`Record::encode_changes`](crate::schema::Record::encode_changes).
#[derive(Debug)]
pub struct ChangeWriter<'a> {
    output: &'a mut Vec<u8>,
    /// The place in `output` at which the columns' bits begin.
    bits: usize,
}

impl<'a> ChangeWriter<'a> {
    /// Begins the changes of a row with this number of columns: appends one bit per column to
    /// `output`, all of them zero.
    #[inline]
    pub fn new(columns: usize, output: &'a mut Vec<u8>) -> ChangeWriter<'a> {
        let bits = output.len();
        output.resize(bits + columns.div_ceil(8), 0);
        ChangeWriter { output, bits }
    }

    /// Appends the value of the column at `position` if it differs from `before`. Call this for the
    /// columns in their order.
    #[inline]
    pub fn column<T: ColumnValue>(&mut self, position: usize, value: &T, before: &T) {
        if !value.is_same(before) {
            value.write(self.changed(position));
        }
    }

    /// Marks the column at `position` as changed, and returns the buffer to append its value to.
    #[doc(hidden)]
    #[inline]
    pub fn changed(&mut self, position: usize) -> &mut Vec<u8> {
        self.output[self.bits + position / 8] |= 1 << (position % 8);
        self.output
    }
}

/// A field of a struct that is a column's type, at run time.
#[derive(Clone, Copy, Debug)]
pub struct FieldType {
    /// The field's name; `0`, `1` and so on in a tuple struct.
    pub name: &'static str,
    /// The type of its values.
    pub type_of: ColumnType,
    /// The names that the field had earlier.
    pub was: &'static [&'static str],
    /// Appends the encoded value of this field for structs that were stored before the field
    /// existed. `None` if the field has no such default.
    pub default: Option<fn(&mut Vec<u8>)>,
}

impl FieldType {
    /// Returns a field that has neither a default nor a past.
    pub const fn new(name: &'static str, type_of: ColumnType) -> FieldType {
        FieldType { name, type_of, was: &[], default: None }
    }
}

/// The type of a column, at run time. Its `Display` form is the type as written in Rust.
///
/// It describes the stored form: a `Box<str>` and an `ArrayString<16>` are both `String`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the variants without a comment are Rust's own types")]
pub enum ColumnType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    F32,
    F64,
    Char,
    /// Any type that holds text.
    String,
    /// Any number of values of one type.
    List(&'static ColumnType),
    /// A value of this type, or `None`.
    Option(&'static ColumnType),
    /// A fixed number of values of one type.
    Array(&'static ColumnType, usize),
    /// One value of each of these types.
    Tuple(&'static [ColumnType]),
    /// A struct that derives `ColumnValue`.
    Struct {
        /// Its name, without a path.
        name: &'static str,
        /// Its fields, in order.
        fields: &'static [FieldType],
    },
    /// An enum that derives `ColumnValue`.
    Enum {
        /// Its name, without a path.
        name: &'static str,
        /// Its variants, in order.
        variants: &'static [&'static str],
    },
}

impl ColumnType {
    /// Returns the least number of bytes in which a value of this type is stored.
    pub const fn width_min_bytes(&self) -> usize {
        match *self {
            ColumnType::Bool | ColumnType::I8 | ColumnType::U8 => 1,
            ColumnType::I16 | ColumnType::U16 => 2,
            ColumnType::I32 | ColumnType::U32 | ColumnType::F32 | ColumnType::Char => 4,
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64 => 8,
            ColumnType::I128 | ColumnType::U128 => 16,
            ColumnType::String
            | ColumnType::List(_)
            | ColumnType::Option(_)
            | ColumnType::Enum { .. } => 1,
            ColumnType::Array(element, length) => element.width_min_bytes().saturating_mul(length),
            ColumnType::Tuple(elements) => {
                let (mut width_bytes, mut position) = (0_usize, 0);
                while position < elements.len() {
                    width_bytes = width_bytes.saturating_add(elements[position].width_min_bytes());
                    position += 1;
                }
                width_bytes
            }
            ColumnType::Struct { fields, .. } => {
                let (mut width_bytes, mut position) = (0_usize, 0);
                while position < fields.len() {
                    width_bytes =
                        width_bytes.saturating_add(fields[position].type_of.width_min_bytes());
                    position += 1;
                }
                width_bytes
            }
        }
    }

    /// Returns this type, for use as the element type of a list or an array.
    ///
    /// # Panics
    /// If values of the type may take no bytes. In a constant, this is a compile-time error.
    const fn as_element(self) -> ColumnType {
        assert!(
            self.width_min_bytes() > 0,
            "the elements of a stored list or array must take at least one byte each"
        );
        self
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::row::description::TypeDescription::from(*self).fmt(formatter)
    }
}

/// Appends `value` in unsigned LEB128: one to ten bytes.
#[inline]
pub fn write_leb128(value: u64, output: &mut Vec<u8>) {
    let mut rest = value;
    while rest >= 0x80 {
        output.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    output.push(rest as u8);
}

/// Returns how many bytes [`write_leb128`] writes for `value`.
#[inline]
pub const fn leb128_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads a number that [`write_leb128`] wrote, and advances `input` past it.
///
/// # Errors
/// If the input ends within the number, if the number does not fit in 64 bits, or if it takes more
/// bytes than it needs.
#[inline]
pub fn read_leb128(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let start = *input;
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some((&byte, rest)) = input.split_first() else {
            return Err(DecodeError::ends_within(start, "a length"));
        };
        *input = rest;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            if byte == 0 && shift > 0 {
                return Err(DecodeError::new(start, "a length has more bytes than it needs"));
            }
            return Ok(value);
        }
    }
    Err(DecodeError::new(start, "a length does not fit in 64 bits"))
}

/// Appends a text in the stored form of a `String`.
#[inline]
pub fn write_text(text: &str, output: &mut Vec<u8>) {
    write_leb128(text.len() as u64, output);
    output.extend_from_slice(text.as_bytes());
}

/// Reads a text that [`write_text`] wrote, in place.
///
/// # Errors
/// If `input` does not begin with such a text.
#[inline]
pub fn read_text<'a>(input: &mut &'a [u8]) -> Result<&'a str, DecodeError> {
    let length = read_leb128(input)?;
    let start = *input;
    let bytes = usize::try_from(length).ok().and_then(|length| input.split_off(..length));
    let Some(bytes) = bytes else {
        return Err(DecodeError::new(
            start,
            format!("a text has {length} bytes, and only {} are left", start.len()),
        ));
    };
    std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::new(&start[error.valid_up_to()..], "a text is not in UTF-8"))
}

/// Reads the first byte of an option, and returns whether a value follows.
#[inline]
pub(crate) fn read_is_some(input: &mut &[u8]) -> Result<bool, DecodeError> {
    let start = *input;
    match u8::read(input)? {
        0 => Ok(false),
        1 => Ok(true),
        byte => {
            Err(DecodeError::new(start, format!("an option begins with {byte}, and not 0 or 1")))
        }
    }
}

/// Reads the length of a list whose elements take at least `width_min_bytes` each, and checks that
/// the rest of the input can hold that many elements.
pub(crate) fn read_list_length(
    width_min_bytes: usize,
    input: &mut &[u8],
) -> Result<usize, DecodeError> {
    let start = *input;
    let length = read_leb128(input)?;
    match usize::try_from(length) {
        Ok(length) if length <= input.len() / width_min_bytes.max(1) => Ok(length),
        _ => Err(DecodeError::new(
            start,
            format!("a list has {length} elements, more than {} bytes can hold", input.len()),
        )),
    }
}
