//! The keys of a history: readable, and in the order of the keys that they represent.
//!
//! A typed key describes itself column by column to a [`Columns`] collector, through the same
//! [`Key::encode`] that makes the encoding for the index:
//!
//! | column | in the history |
//! | --- | --- |
//! | integers, `bool` | an integer; a `u128` above `i128::MAX`: its 32 hexadecimal digits |
//! | `char`, strings | a text |
//! | byte strings and arrays | a text, their hexadecimal digits |
//! | `Option` | 0 for `None`; 1 and the value, two columns, for `Some` |
//! | a tuple within a tuple | its columns |
//!
//! A key whose type is in the first three rows is that integer or text. Every other key, including
//! one of the user's own type, is a tuple of its columns. So all keys of a table compare in the
//! same way: integers before texts, texts by their bytes, tuples column by column.
//!
//! The key of an entry of a secondary index is known only in its encoded form. It is a text, the
//! hexadecimal digits of the encoding, which keeps the index's order.

use std::ops::{Bound, RangeBounds};

use crate::history::HistoryRange;
use crate::row::encoding::{Column, Key, KeyEncoder, KeyForm, KeyLookup, KeyPrefix, KeyStart};

/// The key of a row, for keys of any type.
///
/// History keys have the order of the keys that they represent. Integers and `bool` become integers
/// (but a `u128` above `i128::MAX` becomes the text of its 32 hexadecimal digits). `char` and
/// strings become texts. Byte strings become texts of hexadecimal digits. `None` becomes 0, and
/// `Some` becomes 1 followed by the value. A key of several columns, or of a type of your own,
/// becomes a tuple of its columns. The key of an index entry becomes the text of its encoding's
/// hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HistoryKey {
    /// A number.
    Integer(i128),
    /// A text, ordered by its bytes.
    Text(String),
    /// Several columns, ordered by the first that differs.
    Tuple(Vec<HistoryKey>),
}

impl HistoryKey {
    /// Returns the history key for `key`.
    pub fn of<K: Key>(key: &K) -> Self {
        let mut columns = Columns::default();
        key.encode(&mut columns);
        assemble::<K>(columns.0)
    }

    /// Returns the history key for the key of a row that is looked up.
    pub(crate) fn of_lookup<K: Key>(key: &impl KeyLookup<K>) -> Self {
        let mut columns = Columns::default();
        key.encode_lookup(&mut columns);
        assemble::<K>(columns.0)
    }

    /// Returns the history key for an entry of a secondary index.
    pub(crate) fn encoded(key: &impl KeyForm) -> Self {
        Self::hexadecimal(key.to_bytes().as_ref())
    }

    /// Returns the text of the hexadecimal digits of `bytes`.
    fn hexadecimal(bytes: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        HistoryKey::Text(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }

    /// Returns the smallest key that is greater than this one and all tuples that continue it.
    fn next(mut self) -> Bound<Self> {
        match &mut self {
            HistoryKey::Integer(value) => match value.checked_add(1) {
                Some(next) => *value = next,
                // Texts come after all integers.
                None => self = HistoryKey::Text(String::new()),
            },
            HistoryKey::Text(text) => text.push('\0'),
            HistoryKey::Tuple(columns) => match columns.pop().map(HistoryKey::next) {
                Some(Bound::Excluded(next)) => columns.push(next),
                // This is a prefix without a column: all keys begin with it.
                _ => return Bound::Unbounded,
            },
        }
        Bound::Excluded(self)
    }

    /// Returns the smallest key that is greater than all keys that go on after the text at the end of this one.
    fn after_start(self) -> Bound<Self> {
        match self {
            HistoryKey::Text(mut text) => {
                while let Some(last) = text.pop() {
                    if let Some(next) = (last..=char::MAX).nth(1) {
                        text.push(next);
                        return Bound::Excluded(HistoryKey::Text(text));
                    }
                }
                Bound::Unbounded
            }
            HistoryKey::Tuple(mut columns) => match columns.pop().map(HistoryKey::after_start) {
                Some(Bound::Excluded(next)) => {
                    columns.push(next);
                    Bound::Excluded(HistoryKey::Tuple(columns))
                }
                _ => HistoryKey::Tuple(columns).next(),
            },
            HistoryKey::Integer(_) => self.next(),
        }
    }
}

/// Returns a range of keys as history keys.
pub(crate) fn key_range<K: Key>(range: &impl RangeBounds<K>) -> HistoryRange {
    (range.start_bound().map(HistoryKey::of), range.end_bound().map(HistoryKey::of))
}

/// Returns a range of entries of a secondary index as history keys.
pub(crate) fn encoded_range<K: KeyForm>(range: &(Bound<K>, Bound<K>)) -> HistoryRange {
    (range.0.as_ref().map(HistoryKey::encoded), range.1.as_ref().map(HistoryKey::encoded))
}

/// Returns the range of the keys of type `K` that begin with `prefix`.
pub(crate) fn prefix_range<K: Key>(prefix: &(impl KeyPrefix<K> + ?Sized)) -> HistoryRange {
    let mut columns = Columns::default();
    prefix.encode_prefix(&mut columns);
    let first = assemble::<K>(columns.0);
    (Bound::Included(first.clone()), first.next())
}

/// Returns the range of the keys of type `K` that start with `start`.
pub(crate) fn start_range<K: Key>(start: &impl KeyStart<K>) -> HistoryRange {
    let mut columns = Columns::default();
    start.encode_start(true, &mut columns);
    let first = assemble::<K>(columns.0);
    (Bound::Included(first.clone()), first.after_start())
}

/// Makes a key of type `K` from its columns.
fn assemble<K: Key>(mut columns: Vec<HistoryKey>) -> HistoryKey {
    match columns.pop() {
        Some(column) if K::IS_COLUMN => column,
        last => {
            columns.extend(last);
            HistoryKey::Tuple(columns)
        }
    }
}

/// Collects the columns of a key.
#[derive(Default)]
struct Columns(Vec<HistoryKey>);

impl KeyEncoder for Columns {
    fn push(&mut self, value: u64, width_bytes: u32) {
        let value = value & (u64::MAX >> (u64::BITS - 8 * width_bytes));
        self.0.push(HistoryKey::Integer(i128::from(value)));
    }

    fn push_wide(&mut self, value: u128) {
        self.0.push(match i128::try_from(value) {
            Ok(value) => HistoryKey::Integer(value),
            Err(_) => HistoryKey::hexadecimal(&value.to_be_bytes()),
        });
    }

    fn push_slice(&mut self, bytes: &[u8]) {
        self.0.push(HistoryKey::hexadecimal(bytes));
    }

    fn take(&mut self, column: Column<'_>) -> bool {
        match column {
            Column::Signed(value) => self.0.push(HistoryKey::Integer(value)),
            Column::Text(text) => self.0.push(HistoryKey::Text(text.to_owned())),
            Column::Bytes(bytes) => self.push_slice(bytes),
            // The 0 before it already says that the value is absent.
            Column::Padding => {}
        }
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use arrayvec::{ArrayString, ArrayVec};
    use proptest::prelude::*;

    use super::*;
    use crate::index::LongKey;

    fn integer(value: i128) -> HistoryKey {
        HistoryKey::Integer(value)
    }

    fn text(text: &str) -> HistoryKey {
        HistoryKey::Text(text.to_owned())
    }

    fn tuple(columns: impl Into<Vec<HistoryKey>>) -> HistoryKey {
        HistoryKey::Tuple(columns.into())
    }

    #[test]
    fn keys_show_their_columns() {
        assert_eq!(HistoryKey::of(&7_u8), integer(7));
        assert_eq!(HistoryKey::of(&-7_i64), integer(-7));
        assert_eq!(HistoryKey::of(&i128::MIN), integer(i128::MIN));
        assert_eq!(HistoryKey::of(&u64::MAX), integer(i128::from(u64::MAX)));
        assert_eq!(HistoryKey::of(&u128::MAX), text(&"f".repeat(32)));
        assert_eq!(HistoryKey::of(&true), integer(1));
        assert_eq!(HistoryKey::of(&'ß'), text("ß"));
        assert_eq!(HistoryKey::of(&"a\0b".to_owned()), text("a\0b"));
        assert_eq!(HistoryKey::of(&ArrayString::<4>::from("ab").unwrap()), text("ab"));
        assert_eq!(HistoryKey::of(&ArrayVec::<u8, 40>::from_iter([1, 255])), text("01ff"));
        assert_eq!(HistoryKey::of(&vec![0_u8, 16]), text("0010"));
        assert_eq!(HistoryKey::of(&[9_u8, 8]), text("0908"));
        assert_eq!(HistoryKey::of(&(1_u8, "x")), tuple([integer(1), text("x")]));
        assert_eq!(HistoryKey::of(&(1_u8,)), tuple([integer(1)]));
        assert_eq!(HistoryKey::of(&()), tuple([]));
        let options = (None::<u64>, Some(5_u16), 6_i8);
        assert_eq!(
            HistoryKey::of(&options),
            tuple([integer(0), integer(1), integer(5), integer(6)])
        );
    }

    #[test]
    fn a_prefix_ends_before_the_next_column_value() {
        let range = prefix_range::<(u8, i16)>(&3_u8);
        let end = Bound::Excluded(tuple([integer(4)]));
        assert_eq!(range, (Bound::Included(tuple([integer(3)])), end));
        assert_eq!(
            prefix_range::<u128>(&u128::MAX).1,
            Bound::Excluded(text(&("f".repeat(32) + "\0")))
        );
        let after_all_integers = Bound::Excluded(text(""));
        assert_eq!(prefix_range::<i128>(&i128::MAX).1, after_all_integers);
        assert_eq!(prefix_range::<()>(&()).1, Bound::Unbounded);
    }

    type Wide = (Option<i16>, String, u128, [u8; 2]);

    fn wide() -> impl Strategy<Value = Wide> {
        let high = prop_oneof![
            0..3_u128,
            (u128::MAX - 2)..=u128::MAX,
            ((1_u128 << 127) - 1)..=(1_u128 << 127)
        ];
        let number = proptest::option::of(-2..2_i16);
        (number, "[a\\x00\\x01é]{0,2}", high, any::<[u8; 2]>())
    }

    proptest! {
        #[test]
        fn history_keys_sort_as_the_keys_do(one in wide(), other in wide()) {
            let shown = HistoryKey::of(&one).cmp(&HistoryKey::of(&other));
            prop_assert_eq!(shown, one.cmp(&other));
        }

        #[test]
        fn a_prefix_covers_the_keys_that_begin_with_it(prefix in wide(), other in wide()) {
            use std::ops::RangeBounds;
            let key = HistoryKey::of(&other);
            let (one, two) = ((prefix.0,), (prefix.0, prefix.1));
            prop_assert_eq!(prefix_range::<Wide>(&one).contains(&key), one.0 == other.0);
            let begins = two.0 == other.0 && two.1 == other.1;
            prop_assert_eq!(prefix_range::<Wide>(&two).contains(&key), begins);
        }

        #[test]
        fn encoded_keys_keep_their_order(
            one in prop::collection::vec(any::<u8>(), 0..4),
            other in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let shown = |bytes: &[u8]| HistoryKey::encoded(&LongKey::from(bytes));
            prop_assert_eq!(shown(&one).cmp(&shown(&other)), one.cmp(&other));
        }
    }
}
