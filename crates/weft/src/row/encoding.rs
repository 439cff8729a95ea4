//! The encoding of keys as byte strings that sort as their values do.
//!
//! An index knows no types. It orders words and byte strings. So a key is *encoded*, and the
//! encoding keeps three promises, on which everything above it relies:
//!
//! 1. **Order.** Encodings compare, byte by byte, as the values do.
//! 2. **Injectivity.** Different values have different encodings.
//! 3. **No encoding is the beginning of another** of the same type. So encodings can be put one
//!    after the other: a tuple is the encodings of its elements in a row, and it keeps order and
//!    injectivity. And all the keys that begin with the same elements ([`KeyPrefix`]) lie together.
//!
//! ## The format
//!
//! | type | bytes | width |
//! | --- | --- | --- |
//! | `u8` … `u128` | big-endian | fixed |
//! | `i8` … `i128` | big-endian, the sign bit flipped, so that negative numbers come first | fixed |
//! | `bool` | `00` or `01` | 1 |
//! | `char` | its code point, big-endian | 3 |
//! | `[u8; N]` | as they are | `N` |
//! | `ArrayString<N>`, `ArrayVec<u8, N>`, `N` ≤ 15 | the bytes, zeros up to `N`, and the length in one byte | `N` + 1 |
//! | the same, `N` ≥ 16 | as a string | varies |
//! | strings, `Vec<u8>` | the bytes, where `00` is written `01 01` and `01` is written `01 02`; then a terminator, `00` | varies |
//! | `Option<T>` | `None` is `00`, followed by zeros if `T` has a fixed width; `Some` is `01` and the value | 1 + that of `T` |
//! | `Duration`, `SystemTime` | seconds and nanoseconds, as integers | 12 |
//! | structs that derive [`Key`](macro@crate::Key) | the fields, one after the other | the sum |
//! | enums that derive it | the variant's number in one byte (two, from 257 variants on), the variant's fields, and zeros up to the width of the widest variant, if all have a fixed width | 1 + that of the widest, or varies |
//! | `()` | nothing | 0 |
//! | tuples, up to 8 elements | the elements, one after the other | the sum |
//!
//! Strings are written this way because the terminator is smaller than every byte that can stand in
//! its place, which puts a string before its continuations. The bytes of a string are mostly text,
//! so the escapes cost almost nothing, and the terminator is one byte. Short arrays have a fixed
//! width instead, so that they fit in a word; a fifteen-digit telephone number does. The length at
//! the end distinguishes "ab" from "ab" followed by a zero byte.
//!
//! Types of other libraries are keys with a cargo feature of `weft`. Their forms are in the table that opens
//! `row/parts.rs`.
//!
//! Floating-point numbers cannot be keys, because they have no total order (`NaN`, `-0.0`). Store a
//! scaled integer. `usize` and `isize` cannot be keys either, because their width depends on the
//! machine.
//!
//! ## The three forms
//!
//! An index holds encodings in one of three forms ([`KeyForm`]). The width of the type decides
//! which one ([`Key::WIDTH_BYTES`]):
//!
//! ```text
//!   up to 8 bytes    u64       first byte of the encoding in the most significant byte,
//!   up to 16         u128      zeros after the last one: (7_u16, 1_u8) is 0x0007_0100_0000_0000
//!   more, or varies  LongKey   the bytes
//! ```
//!
//! Comparing two words compares their bytes in order, so promise 1 holds in every form. For a type
//! of fixed width the compiler knows at every step how much of the word is filled, so encoding
//! compiles to a few shifts.

mod lookup;

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};
use smallvec::SmallVec;

use crate::index::{IndexKey, LongKey};
#[doc(hidden)]
pub use lookup::{BorrowableKey, WholeKey, start_range};
pub use lookup::{KeyLookup, KeyPart, KeyStart};

/// A type that can be a key, or a column of one.
///
/// Implemented for integers of a fixed width, `bool`, `char`, strings, byte strings, arrays of
/// bytes, `Duration`, `SystemTime`, options of these, and tuples of up to eight of these. Cargo features of `weft` add
/// `Uuid` (`uuid`), `Timestamp` and civil times (`jiff`), `Decimal` (`rust_decimal`) and `Bytes` (`bytes`).
///
/// For a struct or an enum of your own, [derive](macro@crate::Key) it. To implement it by hand, encode the parts. The
/// implementation must keep the three promises of [the module](self), and equal keys must have the same stored form.
/// The easiest way is to delegate:
///
/// ```
/// use weft::encoding::{Key, KeyEncoder};
///
/// #[derive(Clone, Debug, PartialEq, PartialOrd)]
/// struct AccountNumber { branch: u16, serial: u32 }
///
/// impl Key for AccountNumber {
///     const WIDTH_BYTES: Option<usize> = <(u16, u32)>::WIDTH_BYTES;
///
///     fn encode(&self, encoder: &mut impl KeyEncoder) {
///         (self.branch, self.serial).encode(encoder);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a key, nor a column of a key or of an index",
    label = "not a key type",
    note = "keys are made of integers of a fixed width, `bool`, `char`, strings, byte strings, arrays of bytes, times, options of these, and tuples of up to eight of these",
    note = "for a struct or an enum of yours: `#[derive(weft::Key)]`",
    note = "floating-point numbers have no total order: store a scaled integer, such as cents"
)]
pub trait Key: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// The width of every encoding in bytes; `None` if it varies.
    const WIDTH_BYTES: Option<usize>;

    /// Whether the type is a single column by nature, as numbers and strings are.
    #[doc(hidden)]
    const IS_COLUMN: bool = false;

    /// Whether equal values are stored as the same bytes. If not, the type can be in an index, but not in the primary
    /// key of a stored table: recovery finds rows by the stored form of their keys.
    #[doc(hidden)]
    const HAS_ONE_STORED_FORM: bool = true;

    /// Appends this key's encoding to what `encoder` holds.
    fn encode(&self, encoder: &mut impl KeyEncoder);
}

/// Collects the encoding of a key.
pub trait KeyEncoder {
    /// Appends the low `width_bytes` bytes of `value`, the most significant first.
    ///
    /// # Panics
    /// If `width_bytes` is not within 1 to 8. Also if the encoder fills a word that is too narrow
    /// for the key, which means that the key's [`Key::WIDTH_BYTES`] is wrong.
    fn push(&mut self, value: u64, width_bytes: u32);

    /// Appends all sixteen bytes of `value`, the most significant first.
    ///
    /// # Panics
    /// As [`KeyEncoder::push`], if the key does not fit.
    fn push_wide(&mut self, value: u128);

    /// Appends `bytes` as they are.
    ///
    /// # Panics
    /// As [`KeyEncoder::push`], if the key does not fit.
    fn push_slice(&mut self, bytes: &[u8]);

    /// Offers the encoder a column as a value, where the encoding does not show what the value was.
    /// If the encoder takes it (`true`), it does not get the encoding. The encoders of indexes
    /// never take it.
    #[doc(hidden)]
    #[inline(always)]
    fn take(&mut self, column: Column<'_>) -> bool {
        let _ = column;
        false
    }
}

/// A column of a key before encoding.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// A signed number.
    Signed(i128),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// The padding in place of an absent value.
    Padding,
}

/// Values that are the leading part of a key `K`: all the keys that begin with it lie together.
///
/// A whole key is a prefix, too. The prefixes of a tuple key `(A, B, C)` are also `(A, B)`, `(A,)`
/// and, for convenience, a lone `A`. A lone `A` that is a text or a byte string can be a `str` or a
/// `[u8]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the leading part of the key `{K}`",
    label = "not a prefix of the key",
    note = "a prefix is the whole key, or a tuple of its first columns, or its first column alone"
)]
pub trait KeyPrefix<K: Key> {
    /// Appends the encoding of the prefix to what `encoder` holds.
    fn encode_prefix(&self, encoder: &mut impl KeyEncoder);
}

impl<K: Key> KeyPrefix<K> for K {
    #[inline]
    fn encode_prefix(&self, encoder: &mut impl KeyEncoder) {
        self.encode(encoder);
    }
}

/// Returns the width of several encodings in a row: the sum of their widths, or `None` if one of
/// them varies.
#[doc(hidden)]
pub const fn total_width_bytes(widths_bytes: &[Option<usize>]) -> Option<usize> {
    let mut total_bytes = 0;
    let mut position = 0;
    while position < widths_bytes.len() {
        match widths_bytes[position] {
            Some(width_bytes) => total_bytes += width_bytes,
            None => return None,
        }
        position += 1;
    }
    Some(total_bytes)
}

/// Returns the width of the widest of several encodings, or `None` if one of them varies.
#[doc(hidden)]
pub const fn widest_bytes(widths_bytes: &[Option<usize>]) -> Option<usize> {
    let mut widest_bytes = 0;
    let mut position = 0;
    while position < widths_bytes.len() {
        match widths_bytes[position] {
            Some(width_bytes) if width_bytes > widest_bytes => widest_bytes = width_bytes,
            Some(_) => {}
            None => return None,
        }
        position += 1;
    }
    Some(widest_bytes)
}

/// Appends zeros after an encoding of the width `width_bytes`, up to the width `total_bytes`, if that is fixed.
#[doc(hidden)]
#[inline]
pub fn pad(width_bytes: Option<usize>, total_bytes: Option<usize>, encoder: &mut impl KeyEncoder) {
    let (Some(width_bytes), Some(total_bytes)) = (width_bytes, total_bytes) else { return };
    if width_bytes < total_bytes && !encoder.take(Column::Padding) {
        (width_bytes..total_bytes).for_each(|_| encoder.push(0, 1));
    }
}

/// A struct with one field that derives `Key`.
#[doc(hidden)]
pub trait Newtype: Key {
    /// The field's type.
    type Inner: Key;

    /// Makes a value of the field.
    fn wrap(inner: Self::Inner) -> Self;

    /// Returns the field.
    fn inner(&self) -> &Self::Inner;
}

// Numbers.

macro_rules! unsigned_keys {
    ($($integer:ident)*) => {$(
        impl Key for $integer {
            const WIDTH_BYTES: Option<usize> = Some(size_of::<$integer>());
            const IS_COLUMN: bool = true;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                encoder.push(u64::from(*self), $integer::BITS / 8);
            }
        }
    )*};
}

unsigned_keys!(u8 u16 u32 u64);

macro_rules! signed_keys {
    ($($integer:ident $unsigned:ident)*) => {$(
        impl Key for $integer {
            const WIDTH_BYTES: Option<usize> = $unsigned::WIDTH_BYTES;
            const IS_COLUMN: bool = true;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                if encoder.take(Column::Signed(i128::from(*self))) {
                    return;
                }
                // Flipping the sign bit, the only one that is set in the smallest number, puts
                // negative numbers first.
                (self ^ $integer::MIN).cast_unsigned().encode(encoder);
            }
        }
    )*};
}

signed_keys!(i8 u8 i16 u16 i32 u32 i64 u64 i128 u128);

impl Key for u128 {
    const WIDTH_BYTES: Option<usize> = Some(size_of::<u128>());
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push_wide(*self);
    }
}

impl Key for bool {
    const WIDTH_BYTES: Option<usize> = Some(1);
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push(u64::from(*self), 1);
    }
}

/// The width of a `char` in a key: code points end at 0x10_FFFF.
const CHAR_WIDTH_BYTES: u32 = 3;

impl Key for char {
    const WIDTH_BYTES: Option<usize> = Some(CHAR_WIDTH_BYTES as usize);
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        if encoder.take(Column::Text(self.encode_utf8(&mut [0; 4]))) {
            return;
        }
        encoder.push(u64::from(*self), CHAR_WIDTH_BYTES);
    }
}

// Strings and bytes.

/// Ends a string. It is smaller than every byte that may stand in its place.
const TERMINATOR: u8 = 0;
/// Stands before a byte of a string that is at most [`ESCAPE`] itself. That byte follows, plus one.
const ESCAPE: u8 = 1;
/// The capacity of the longest array whose encoding is padded to a fixed width. With its length it
/// fills the widest word.
const PADDED_CAPACITY_MAX: usize = 15;

#[inline]
fn push_terminated(bytes: &[u8], encoder: &mut impl KeyEncoder) {
    push_escaped(bytes, encoder);
    encoder.push(u64::from(TERMINATOR), 1);
}

/// Appends the beginning of a string.
#[inline]
fn push_escaped(bytes: &[u8], encoder: &mut impl KeyEncoder) {
    let mut rest = bytes;
    while let Some(position) = position_of_escaped(rest) {
        encoder.push_slice(&rest[..position]);
        encoder.push(u64::from(ESCAPE), 1);
        encoder.push(u64::from(rest[position] + 1), 1);
        rest = &rest[position + 1..];
    }
    encoder.push_slice(rest);
}

/// Returns where the first byte is that is written as two. Looks at eight bytes at a time, since there is mostly none.
#[inline]
fn position_of_escaped(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const { assert!(ESCAPE == 1) };
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        // The escaped bytes are now those that are 0. The lowest bit that is left belongs to the first of them.
        let word = u64::from_le_bytes(*word) & !ONES;
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some(8 * number + zeros.trailing_zeros() as usize / 8);
        }
    }
    let position = rest.iter().position(|&byte| byte <= ESCAPE);
    position.map(|position| 8 * words.len() + position)
}

const fn array_width_bytes(capacity: usize) -> Option<usize> {
    if capacity <= PADDED_CAPACITY_MAX { Some(capacity + 1) } else { None }
}

/// Appends `bytes`, the contents of an array that can hold `CAPACITY` bytes.
#[inline]
fn push_array<const CAPACITY: usize>(bytes: &[u8], encoder: &mut impl KeyEncoder) {
    if CAPACITY > PADDED_CAPACITY_MAX {
        return push_terminated(bytes, encoder);
    }
    let mut padded = [0; PADDED_CAPACITY_MAX + 1];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded[CAPACITY] = bytes.len() as u8;
    encoder.push_slice(&padded[..=CAPACITY]);
}

macro_rules! terminated_keys {
    ($($string:ty)*) => {$(
        impl Key for $string {
            const WIDTH_BYTES: Option<usize> = None;
            const IS_COLUMN: bool = true;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                if encoder.take(Column::Bytes(self)) {
                    return;
                }
                push_terminated(self.as_ref(), encoder);
            }
        }
    )*};
}

terminated_keys!(Vec<u8> Box<[u8]> Arc<[u8]>);
#[cfg(feature = "bytes")]
terminated_keys!(bytes::Bytes);

macro_rules! text_keys {
    ($($text:ty)*) => {$(
        impl Key for $text {
            const WIDTH_BYTES: Option<usize> = None;
            const IS_COLUMN: bool = true;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                if encoder.take(Column::Text(self)) {
                    return;
                }
                push_terminated(self.as_bytes(), encoder);
            }
        }
    )*};
}

text_keys!(String Box<str> Arc<str> &'static str);

impl<const N: usize> Key for ArrayString<N> {
    const WIDTH_BYTES: Option<usize> = array_width_bytes(N);
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        if encoder.take(Column::Text(self)) {
            return;
        }
        push_array::<N>(self.as_bytes(), encoder);
    }
}

impl<const N: usize> Key for ArrayVec<u8, N> {
    const WIDTH_BYTES: Option<usize> = array_width_bytes(N);
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        if encoder.take(Column::Bytes(self)) {
            return;
        }
        push_array::<N>(self, encoder);
    }
}

impl<const N: usize> Key for [u8; N] {
    const WIDTH_BYTES: Option<usize> = Some(N);
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push_slice(self);
    }
}

// Keys made of other keys.

impl<T: Key> Key for Option<T> {
    const WIDTH_BYTES: Option<usize> = total_width_bytes(&[Some(1), T::WIDTH_BYTES]);
    const HAS_ONE_STORED_FORM: bool = T::HAS_ONE_STORED_FORM;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        encoder.push(u64::from(self.is_some()), 1);
        match self {
            Some(value) => value.encode(encoder),
            None => pad(Some(0), T::WIDTH_BYTES, encoder),
        }
    }
}

impl Key for () {
    const WIDTH_BYTES: Option<usize> = Some(0);

    #[inline]
    fn encode(&self, _encoder: &mut impl KeyEncoder) {}
}

/// Makes a borrowed first element a prefix of the tuple, and its beginning a start of the tuple.
macro_rules! borrowed_prefixes {
    ($borrowed:ty, $first:ident $($rest:ident)*) => {
        impl<$first: BorrowableKey<Borrowed = $borrowed>, $($rest: Key),*>
            KeyPrefix<($first, $($rest,)*)> for $borrowed
        {
            #[inline]
            fn encode_prefix(&self, encoder: &mut impl KeyEncoder) {
                $first::encode_borrowed(self, encoder);
            }
        }

        impl<$first: BorrowableKey<Borrowed = $borrowed>, $($rest: Key),*>
            KeyStart<($first, $($rest,)*)> for &$borrowed
        {
            fn encode_start(&self, as_whole: bool, encoder: &mut impl KeyEncoder) {
                KeyStart::<$first>::encode_start(self, as_whole, encoder);
            }
        }
    };
}

macro_rules! tuple_keys {
    ($($element:ident $position:tt),+) => {
        impl<$($element: Key),+> Key for ($($element,)+) {
            const WIDTH_BYTES: Option<usize> = total_width_bytes(&[$($element::WIDTH_BYTES),+]);
            const HAS_ONE_STORED_FORM: bool = true $(&& $element::HAS_ONE_STORED_FORM)+;

            #[inline]
            fn encode(&self, encoder: &mut impl KeyEncoder) {
                $(self.$position.encode(encoder);)+
            }
        }

        impl<$($element: Key),+> KeyPrefix<($($element,)+)> for A {
            #[inline]
            fn encode_prefix(&self, encoder: &mut impl KeyEncoder) {
                self.encode(encoder);
            }
        }

        borrowed_prefixes!(str, $($element)+);
        borrowed_prefixes!([u8], $($element)+);
    };
}

tuple_keys!(A 0);
tuple_keys!(A 0, B 1);
tuple_keys!(A 0, B 1, C 2);
tuple_keys!(A 0, B 1, C 2, D 3);
tuple_keys!(A 0, B 1, C 2, D 3, E 4);
tuple_keys!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_keys!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_keys!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Makes the elements before the semicolon a prefix of the whole tuple, then moves one element to
/// the left.
macro_rules! tuple_prefixes {
    ($($leading:ident)+;) => {};
    ($($leading:ident)+; $next:ident $($rest:ident)*) => {
        impl<$($leading: Key,)+ $next: Key, $($rest: Key),*>
            KeyPrefix<($($leading,)+ $next, $($rest,)*)> for ($($leading,)+)
        {
            #[inline]
            fn encode_prefix(&self, encoder: &mut impl KeyEncoder) {
                self.encode(encoder);
            }
        }

        tuple_prefixes!($($leading)+ $next; $($rest)*);
    };
}

tuple_prefixes!(A; B);
tuple_prefixes!(A; B C);
tuple_prefixes!(A; B C D);
tuple_prefixes!(A; B C D E);
tuple_prefixes!(A; B C D E F);
tuple_prefixes!(A; B C D E F G);
tuple_prefixes!(A; B C D E F G H);

// The forms that an index stores.

/// One of the three forms in which an index stores encodings, and the conversion from an encoding.
///
/// An index is declared with the narrowest form that its keys fit in. Only a wrong
/// [`Key::WIDTH_BYTES`] can make an encoding overflow its form. Encoding panics in this case,
/// because two keys cut to the same word would become one.
#[doc(hidden)]
pub trait KeyForm: IndexKey {
    /// The encoder that collects an encoding for this form.
    type Encoder: KeyEncoder + Clone + Default;

    /// Returns the key that was encoded.
    fn finish(encoder: Self::Encoder) -> Self;

    /// Returns the bytes of the encoding. For a word this includes the zeros that follow it.
    fn to_bytes(&self) -> impl AsRef<[u8]>;

    /// Returns the end of the range of keys that begin with what was encoded. (The range starts at
    /// [`KeyForm::finish`], inclusive.)
    fn prefix_end(encoder: Self::Encoder) -> Bound<Self>;

    /// Returns the key as a value that can hold any form.
    fn erase(&self) -> EncodedKey;

    /// Returns how much memory this value holds besides its own size, in bytes.
    fn erased_heap_bytes(&self) -> usize {
        0
    }

    /// Returns the key that [`KeyForm::erase`] was called on, in this form.
    fn restore(key: &EncodedKey) -> Self;

    /// Encodes a whole key.
    #[inline]
    fn from_key<K: Key>(key: &K) -> Self {
        let mut encoder = Self::Encoder::default();
        key.encode(&mut encoder);
        Self::finish(encoder)
    }

    /// Encodes the key of the row that is looked up.
    #[inline]
    fn from_lookup<K: Key>(key: &impl KeyLookup<K>) -> Self {
        let mut encoder = Self::Encoder::default();
        key.encode_lookup(&mut encoder);
        Self::finish(encoder)
    }

    /// Returns the range of all keys that begin with `prefix`.
    #[inline]
    fn prefix_range<K: Key>(prefix: &(impl KeyPrefix<K> + ?Sized)) -> (Bound<Self>, Bound<Self>) {
        let mut encoder = Self::Encoder::default();
        prefix.encode_prefix(&mut encoder);
        (Bound::Included(Self::finish(encoder.clone())), Self::prefix_end(encoder))
    }
}

/// The key of a record, as its index holds it, in any of the forms.
///
/// A worker that will remove a record from its index later keeps one of these from the moment at
/// which it inserted or found the record there. So nothing is encoded again. Encoding would run the
/// user's code, which might give another result.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedKey {
    /// A key in the form `u64`.
    Words1(u64),
    /// A key in the form `u128`, the more significant word first. (Two `u64` have an alignment of 8
    /// bytes, a `u128` one of 16.)
    Words2([u64; 2]),
    /// A key of any length.
    Long(Arc<LongKey>),
}

const _: () = assert!(size_of::<EncodedKey>() == 24 && size_of::<Option<EncodedKey>>() == 24);

impl EncodedKey {
    /// Returns how much memory the key holds besides its own size, in bytes. Its copies share this
    /// memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            EncodedKey::Words1(_) | EncodedKey::Words2(_) => 0,
            EncodedKey::Long(key) => key.erased_heap_bytes(),
        }
    }
}

const WRONG_FORM: &str = "all keys of an index have the same form";

/// Fills a word from its most significant byte down.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WordEncoder<W> {
    word: W,
    filled_bits: u32,
}

impl KeyEncoder for WordEncoder<u64> {
    #[inline(always)]
    fn push(&mut self, value: u64, width_bytes: u32) {
        assert!(width_bytes.wrapping_sub(1) < 8, "a word has one to eight bytes");
        let filled_bits = self.filled_bits + 8 * width_bytes;
        assert!(filled_bits <= u64::BITS, "a key is wider than its WIDTH_BYTES");
        // Shift the value to the left end, which drops what is above its width, then to its place.
        self.word |= value << (u64::BITS - 8 * width_bytes) >> self.filled_bits;
        self.filled_bits = filled_bits;
    }

    #[inline(always)]
    fn push_wide(&mut self, _value: u128) {
        panic!("a key is wider than its WIDTH_BYTES");
    }

    #[inline(always)]
    fn push_slice(&mut self, bytes: &[u8]) {
        push_slice_as_words(self, bytes);
    }
}

impl KeyEncoder for WordEncoder<u128> {
    #[inline(always)]
    fn push(&mut self, value: u64, width_bytes: u32) {
        assert!(width_bytes.wrapping_sub(1) < 8, "a word has one to eight bytes");
        let filled_bits = self.filled_bits + 8 * width_bytes;
        assert!(filled_bits <= u128::BITS, "a key is wider than its WIDTH_BYTES");
        self.word |= u128::from(value) << (u128::BITS - 8 * width_bytes) >> self.filled_bits;
        self.filled_bits = filled_bits;
    }

    #[inline(always)]
    fn push_wide(&mut self, value: u128) {
        assert!(self.filled_bits == 0, "a key is wider than its WIDTH_BYTES");
        self.word = value;
        self.filled_bits = u128::BITS;
    }

    #[inline(always)]
    fn push_slice(&mut self, bytes: &[u8]) {
        push_slice_as_words(self, bytes);
    }
}

/// Pushes `bytes` eight at a time.
#[cfg_attr(not(debug_assertions), inline(always))]
fn push_slice_as_words(encoder: &mut impl KeyEncoder, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        encoder.push(u64::from_be_bytes(*word), 8);
    }
    for byte in rest {
        encoder.push(u64::from(*byte), 1);
    }
}

macro_rules! word_forms {
    ($($word:ident, $erase:expr, $pattern:pat => $restored:expr;)*) => {$(
        impl KeyForm for $word {
            type Encoder = WordEncoder<$word>;

            #[inline(always)]
            fn finish(encoder: Self::Encoder) -> $word {
                encoder.word
            }

            fn to_bytes(&self) -> impl AsRef<[u8]> {
                self.to_be_bytes()
            }

            #[inline(always)]
            fn prefix_end(encoder: Self::Encoder) -> Bound<$word> {
                let after = $word::MAX.checked_shr(encoder.filled_bits).unwrap_or(0);
                Bound::Included(encoder.word | after)
            }

            #[inline(always)]
            fn erase(&self) -> EncodedKey {
                let erase: fn($word) -> EncodedKey = $erase;
                erase(*self)
            }

            fn restore(key: &EncodedKey) -> $word {
                match *key {
                    $pattern => $restored,
                    _ => unreachable!("{WRONG_FORM}"),
                }
            }
        }
    )*};
}

word_forms! {
    u64, EncodedKey::Words1, EncodedKey::Words1(word) => word;
    u128, |wide| EncodedKey::Words2([(wide >> 64) as u64, wide as u64]),
        EncodedKey::Words2([upper, lower]) => u128::from(upper) << 64 | u128::from(lower);
}

macro_rules! byte_encoders {
    ($($bytes:ty)*) => {$(
        impl KeyEncoder for $bytes {
            #[inline]
            fn push(&mut self, value: u64, width_bytes: u32) {
                assert!(width_bytes.wrapping_sub(1) < 8, "a word has one to eight bytes");
                let bytes = value.to_be_bytes();
                self.extend_from_slice(&bytes[bytes.len() - width_bytes as usize..]);
            }

            #[inline]
            fn push_wide(&mut self, value: u128) {
                self.extend_from_slice(&value.to_be_bytes());
            }

            #[inline]
            fn push_slice(&mut self, bytes: &[u8]) {
                self.extend_from_slice(bytes);
            }
        }
    )*};
}

/// Collects the bytes of a [`LongKey`]. Needs no allocation for up to 64 bytes, which is the usual
/// case.
type LongKeyEncoder = SmallVec<[u8; 64]>;

byte_encoders!(LongKeyEncoder Vec<u8>);

impl KeyForm for LongKey {
    type Encoder = LongKeyEncoder;

    #[inline]
    fn finish(encoder: LongKeyEncoder) -> LongKey {
        LongKey::from(encoder.as_slice())
    }

    fn to_bytes(&self) -> impl AsRef<[u8]> {
        self.as_bytes()
    }

    fn prefix_end(mut encoder: LongKeyEncoder) -> Bound<LongKey> {
        // The end is the smallest byte string that is greater than all that begin with these bytes:
        // raise the last byte that can be raised, and drop what follows it.
        let Some(raised) = encoder.iter().rposition(|&byte| byte < u8::MAX) else {
            return Bound::Unbounded;
        };
        encoder.truncate(raised + 1);
        encoder[raised] += 1;
        Bound::Excluded(LongKey::from(encoder.as_slice()))
    }

    #[inline]
    fn erase(&self) -> EncodedKey {
        EncodedKey::Long(Arc::new(self.clone()))
    }

    fn erased_heap_bytes(&self) -> usize {
        // The two counters of the `Arc` come first.
        2 * size_of::<usize>() + self.total_bytes()
    }

    fn restore(key: &EncodedKey) -> LongKey {
        match key {
            EncodedKey::Long(key) => LongKey::clone(key),
            _ => unreachable!("{WRONG_FORM}"),
        }
    }
}
