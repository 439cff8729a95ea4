//! Keys that are given in a borrowed form: a `&str` where the key is a `String`, a tuple of references where the key
//! is a tuple. Nothing is allocated to look a row up.
//!
//! An index compares and hashes encodings, and no types. So all that a borrowed form has to do is to give the encoder
//! what the key itself would give it. A form that gives it something else finds other rows, or none: the engine
//! relies on it for nothing else.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use arrayvec::{ArrayString, ArrayVec};

use super::{
    Column, Key, KeyEncoder, KeyForm, PADDED_CAPACITY_MAX, push_array, push_escaped,
    push_terminated,
};

/// A value by which a row with a key of type `K` is looked up.
///
/// | key | looked up by |
/// | --- | --- |
/// | any `K` | `&K` |
/// | `String`, `Box<str>`, `Arc<str>`, `ArrayString` | `&str` |
/// | `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`, `ArrayVec<u8, N>` | `&[u8]`, `&[u8; N]` |
/// | a tuple | a tuple, by value, whose elements are [parts](KeyPart): `("Ada", 7)` for a `(String, u32)` |
///
/// Implement it for other borrowed forms of a key of your own. [`KeyLookup::encode_lookup`] must give the encoder what
/// [`Key::encode`] gives it for the key that is meant. Otherwise the look-up finds another row, or none.
#[diagnostic::on_unimplemented(
    message = "a row whose key is a `{K}` cannot be looked up by `{Self}`",
    label = "not a key of this table or index, nor a borrowed form of one",
    note = "give the key by reference, as in `&key`; a text key as a `&str`; a byte-string key as a `&[u8]`",
    note = "give a key of several columns by reference, or as a tuple of borrowed parts without a `&`: `(\"Ada\", 7)`"
)]
pub trait KeyLookup<K: Key>: Debug {
    /// Gives the encoder what the key would give it.
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder);

    /// Returns the key itself, if this is a reference to one. It can then be compared with rows that the transaction
    /// has found before.
    #[doc(hidden)]
    #[inline(always)]
    fn as_key(&self) -> Option<&K> {
        None
    }
}

/// One element of a tuple by which a row is looked up, for a column of type `K`: a `K`, or a borrowed form of it.
///
/// The forms of a text are `&str` and a reference to the text's own type, as `&String`. Those of a byte string are
/// `&[u8]` and the same. The form of an `Option` of either is an `Option` of the form. A tuple within a key is given by
/// reference: `&("Ada", 7)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `{K}`, nor a borrowed form of one",
    label = "not a column of this key",
    note = "give columns by value, except texts as `&str` and byte strings as `&[u8]`"
)]
pub trait KeyPart<K: Key>: Debug {
    /// Gives the encoder what the column would give it.
    fn encode_part(&self, encoder: &mut impl KeyEncoder);

    /// Returns the column itself, if this is one.
    #[doc(hidden)]
    #[inline(always)]
    fn as_column(&self) -> Option<&K> {
        None
    }
}

/// A part that is a whole key, to look a row up by.
#[doc(hidden)]
#[derive(Debug)]
pub struct WholeKey<'k, Q>(pub &'k Q);

impl<K: Key, Q: KeyPart<K>> KeyLookup<K> for WholeKey<'_, Q> {
    #[inline(always)]
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
        self.0.encode_part(encoder);
    }

    #[inline(always)]
    fn as_key(&self) -> Option<&K> {
        self.0.as_column()
    }
}

/// The first part of a key of type `K`, whose last element is the beginning of a text or of a byte string.
///
/// For a key that is a text, it is a `&str`. For a key that is a tuple, it is a tuple with the key's first elements,
/// the last of which is the beginning of a text: for a `(u32, String)`, `(7, "Ad")`.
#[diagnostic::on_unimplemented(
    message = "a key of type `{K}` cannot start with `{Self}`",
    label = "not the beginning of a text in this key",
    note = "a text key starts with a `&str`, a byte-string key with a `&[u8]`",
    note = "a key of several columns starts with a tuple of its first columns, the last of which is the beginning of a \
            text: `(7, \"Ad\")`"
)]
pub trait KeyStart<K: Key>: Debug {
    /// Encodes the part. Its last element is encoded `as_whole`, like a text that ends there, or else like one that
    /// goes on.
    #[doc(hidden)]
    fn encode_start(&self, as_whole: bool, encoder: &mut impl KeyEncoder);
}

/// Returns the range of all keys that start with `start`.
#[doc(hidden)]
pub fn start_range<K: Key, F: KeyForm>(start: &impl KeyStart<K>) -> (Bound<F>, Bound<F>) {
    let encoded = |as_whole| {
        let mut encoder = F::Encoder::default();
        start.encode_start(as_whole, &mut encoder);
        encoder
    };
    // The text that ends there is the least of all that start with it.
    (Bound::Included(F::finish(encoded(true))), F::prefix_end(encoded(false)))
}

impl<K: Key> KeyLookup<K> for &K {
    #[inline(always)]
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
        self.encode(encoder);
    }

    #[inline(always)]
    fn as_key(&self) -> Option<&K> {
        Some(self)
    }
}

/// For calls in code that matches on a `&mut` value, where a `&mut K` was taken for a `&K`.
impl<K: Key> KeyLookup<K> for &mut K {
    #[inline(always)]
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
        self.encode(encoder);
    }

    #[inline(always)]
    fn as_key(&self) -> Option<&K> {
        Some(self)
    }
}

impl<K: Key> KeyPart<K> for K {
    #[inline(always)]
    fn encode_part(&self, encoder: &mut impl KeyEncoder) {
        self.encode(encoder);
    }

    #[inline(always)]
    fn as_column(&self) -> Option<&K> {
        Some(self)
    }
}

/// A key that is a text or a byte string, and has a borrowed form.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a text nor a byte string, and is not looked up by a `&str` or a `&[u8]`: give a \
               `&{Self}` as the key, or a `{Self}` within a tuple",
    label = "the key has a `{Self}` here"
)]
#[doc(hidden)]
pub trait BorrowableKey: Key {
    /// `str` or `[u8]`.
    type Borrowed: AsRef<[u8]> + ?Sized;

    /// Gives the encoder what a key with this content would give it.
    fn encode_borrowed(borrowed: &Self::Borrowed, encoder: &mut impl KeyEncoder);

    /// Gives the encoder what all keys give it that begin with these bytes.
    fn encode_beginning(bytes: &[u8], encoder: &mut impl KeyEncoder) {
        push_escaped(bytes, encoder);
    }
}

macro_rules! borrowable_keys {
    ($borrowed:ty, $column:ident: $($owned:ty)*) => {$(
        impl BorrowableKey for $owned {
            type Borrowed = $borrowed;

            #[inline]
            fn encode_borrowed(borrowed: &$borrowed, encoder: &mut impl KeyEncoder) {
                if !encoder.take(Column::$column(borrowed)) {
                    push_terminated(borrowed.as_ref(), encoder);
                }
            }
        }

        impl KeyPart<$owned> for &$owned {
            #[inline]
            fn encode_part(&self, encoder: &mut impl KeyEncoder) {
                self.encode(encoder);
            }
        }
    )*};
}

borrowable_keys!(str, Text: String Box<str> Arc<str>);
borrowable_keys!([u8], Bytes: Vec<u8> Box<[u8]> Arc<[u8]>);

/// The length of a content that no array has, since it is too long.
const TOO_LONG: u8 = u8::MAX;

/// Pushes the beginning of a content that is too long for an array, so that it is found in none.
fn push_too_long(beginning: &[u8], encoder: &mut impl KeyEncoder) {
    encoder.push_slice(beginning);
    encoder.push(u64::from(TOO_LONG), 1);
}

macro_rules! borrowable_arrays {
    ($borrowed:ty, $column:ident: $owned:ty) => {
        impl<const N: usize> BorrowableKey for $owned {
            type Borrowed = $borrowed;

            #[inline]
            fn encode_borrowed(borrowed: &$borrowed, encoder: &mut impl KeyEncoder) {
                if encoder.take(Column::$column(borrowed)) {
                    return;
                }
                let bytes: &[u8] = borrowed.as_ref();
                match bytes.get(..N) {
                    Some(beginning) if N <= PADDED_CAPACITY_MAX && bytes.len() > N => {
                        push_too_long(beginning, encoder);
                    }
                    _ => push_array::<N>(bytes, encoder),
                }
            }

            fn encode_beginning(bytes: &[u8], encoder: &mut impl KeyEncoder) {
                match bytes.get(..N) {
                    _ if N > PADDED_CAPACITY_MAX => push_escaped(bytes, encoder),
                    Some(beginning) if bytes.len() > N => push_too_long(beginning, encoder),
                    _ => encoder.push_slice(bytes),
                }
            }
        }

        impl<const N: usize> KeyPart<$owned> for &$owned {
            #[inline]
            fn encode_part(&self, encoder: &mut impl KeyEncoder) {
                self.encode(encoder);
            }
        }
    };
}

borrowable_arrays!(str, Text: ArrayString<N>);
borrowable_arrays!([u8], Bytes: ArrayVec<u8, N>);

macro_rules! borrowed_forms {
    ($($borrowed:ty)*) => {$(
        impl<K: BorrowableKey<Borrowed = $borrowed>> KeyLookup<K> for &$borrowed {
            #[inline]
            fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
                K::encode_borrowed(self, encoder);
            }
        }

        impl<K: BorrowableKey<Borrowed = $borrowed>> KeyPart<K> for &$borrowed {
            #[inline]
            fn encode_part(&self, encoder: &mut impl KeyEncoder) {
                K::encode_borrowed(self, encoder);
            }
        }

        impl<K: BorrowableKey<Borrowed = $borrowed>> KeyPart<Option<K>> for Option<&$borrowed> {
            #[inline]
            fn encode_part(&self, encoder: &mut impl KeyEncoder) {
                match self {
                    Some(borrowed) => {
                        encoder.push(1, 1);
                        K::encode_borrowed(borrowed, encoder);
                    }
                    None => None::<K>.encode(encoder),
                }
            }
        }

        impl<K: BorrowableKey<Borrowed = $borrowed>> KeyStart<K> for &$borrowed {
            fn encode_start(&self, as_whole: bool, encoder: &mut impl KeyEncoder) {
                match as_whole {
                    true => K::encode_borrowed(self, encoder),
                    false => K::encode_beginning(self.as_ref(), encoder),
                }
            }
        }
    )*};
}

borrowed_forms!(str[u8]);

/// A literal, `b"..."`, is a reference to an array.
impl<K: BorrowableKey<Borrowed = [u8]>, const N: usize> KeyLookup<K> for &[u8; N] {
    #[inline]
    fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
        K::encode_borrowed(*self, encoder);
    }
}

impl<K: BorrowableKey<Borrowed = [u8]>, const N: usize> KeyPart<K> for &[u8; N] {
    #[inline]
    fn encode_part(&self, encoder: &mut impl KeyEncoder) {
        K::encode_borrowed(*self, encoder);
    }
}

impl<K: BorrowableKey<Borrowed = [u8]>, const N: usize> KeyStart<K> for &[u8; N] {
    fn encode_start(&self, as_whole: bool, encoder: &mut impl KeyEncoder) {
        KeyStart::<K>::encode_start(&&self[..], as_whole, encoder);
    }
}

/// Implements the traits for tuples: `key | part position`, for each element.
macro_rules! tuple_lookups {
    ($($key:ident $part:ident $position:tt),+) => {
        impl<$($key: Key, $part: KeyPart<$key>),+> KeyLookup<($($key,)+)> for ($($part,)+) {
            #[inline]
            fn encode_lookup(&self, encoder: &mut impl KeyEncoder) {
                $(self.$position.encode_part(encoder);)+
            }
        }

        impl<$($key: Key, $part: KeyPart<$key>),+> KeyPart<($($key,)+)> for &($($part,)+) {
            #[inline]
            fn encode_part(&self, encoder: &mut impl KeyEncoder) {
                $(self.$position.encode_part(encoder);)+
            }
        }
    };
}

tuple_lookups!(A P 0);
tuple_lookups!(A P 0, B Q 1);
tuple_lookups!(A P 0, B Q 1, C R 2);
tuple_lookups!(A P 0, B Q 1, C R 2, D S 3);
tuple_lookups!(A P 0, B Q 1, C R 2, D S 3, E T 4);
tuple_lookups!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5);
tuple_lookups!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6);
tuple_lookups!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6, H W 7);

/// Implements [`KeyStart`] for tuples. The first list has the elements before the last one; then come the last one and
/// the elements that a key may have after it.
macro_rules! tuple_starts {
    (@one [$($key:ident $part:ident $position:tt)*] [$last:ident $start:ident $at:tt] [$($rest:ident)*]) => {
        impl<
            $($key: Key, $part: KeyPart<$key>,)* $last: Key, $start: KeyStart<$last>, $($rest: Key),*
        > KeyStart<($($key,)* $last, $($rest,)*)> for ($($part,)* $start,)
        {
            fn encode_start(&self, as_whole: bool, encoder: &mut impl KeyEncoder) {
                $(self.$position.encode_part(encoder);)*
                self.$at.encode_start(as_whole, encoder);
            }
        }
    };
    (@ends $leading:tt $last:tt $rest:tt) => {
        tuple_starts!(@one $leading $last $rest);
    };
    (@ends $leading:tt $last:tt [$($rest:ident)*] ($next:ident $part:ident $at:tt) $($more:tt)*) => {
        tuple_starts!(@one $leading $last [$($rest)*]);
        tuple_starts!(@ends $leading $last [$($rest)* $next] $($more)*);
    };
    ([$($leading:tt)*]) => {};
    ([$($leading:tt)*] ($($last:tt)*) $($more:tt)*) => {
        tuple_starts!(@ends [$($leading)*] [$($last)*] [] $($more)*);
        tuple_starts!([$($leading)* $($last)*] $($more)*);
    };
}

tuple_starts!([] (A P 0) (B Q 1) (C R 2) (D S 3) (E T 4) (F U 5) (G V 6) (H W 7));
