//! Keys: what they are, how they are ordered, and how a history stores each of them once.
//!
//! A key is an integer, a text, or a tuple of keys. Integers come before texts, and texts before tuples.
//! Integers are ordered by value, texts by their bytes, and tuples by their first differing element; a prefix
//! comes before its continuations. Scans depend on this order, so it must be the order of the system that
//! recorded the history.
//!
//! A history stores a key as bytes that have the same order. So a comparison is a `memcmp`, and a small integer
//! takes two or three bytes:
//!
//! ```text
//! table        four bytes, big-endian
//! integer      tag 0x20 ± the number of bytes of its magnitude, then the magnitude, big-endian
//!              (minus below 0x20 with all bits flipped: longer negatives come first)
//! text         0x40, the bytes with 00 written as 00 FF, then 00 00
//! tuple        0x50, the elements, then 00, which is below every tag
//! ```

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// The tag of the integer zero. The tag of another integer differs from it by the number of its bytes.
const TAG_ZERO: u8 = 0x20;
/// The tag of a text.
const TAG_TEXT: u8 = 0x40;
/// The tag of a tuple.
const TAG_TUPLE: u8 = 0x50;
/// Ends a tuple, and twice ends a text.
const END: u8 = 0x00;
/// Follows a zero byte of a text.
const ESCAPED: u8 = 0xFF;
/// The number of bytes of the table in front of a key.
pub(crate) const TABLE_BYTES: usize = 4;

/// The key of a row within its table.
///
/// ```
/// use weft_checker::Key;
/// let order: Key = vec![Key::from(1), Key::from("ABLE")].into();
/// assert!(Key::from(7) < Key::from("7"));
/// assert_eq!(order.to_string(), r#"[1,"ABLE"]"#);
/// ```
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// A whole number.
    Integer(i128),
    /// A text, ordered by its bytes.
    Text(String),
    /// Several keys, ordered by the first that differs.
    Tuple(Vec<Key>),
}

macro_rules! key_from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Key {
            fn from(value: $integer) -> Key {
                Key::Integer(i128::from(value))
            }
        }
    )*};
}
key_from_integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::Text(text.to_owned())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Key {
        Key::Text(text)
    }
}

impl From<Vec<Key>> for Key {
    fn from(elements: Vec<Key>) -> Key {
        Key::Tuple(elements)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Key {
        key.clone()
    }
}

impl fmt::Display for Key {
    /// Writes the key as JSON does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Integer(value) => write!(f, "{value}"),
            Key::Text(text) => {
                let quoted = serde_json::to_string(text).map_err(|_| fmt::Error)?;
                f.write_str(&quoted)
            }
            Key::Tuple(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{element}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Appends the bytes of `table`.
pub(crate) fn encode_table(table: u32, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&table.to_be_bytes());
}

/// Appends the bytes of `key`, without those of the table.
pub(crate) fn encode(key: &Key, bytes: &mut Vec<u8>) {
    match key {
        Key::Integer(value) => encode_integer(*value, bytes),
        Key::Text(text) => {
            bytes.push(TAG_TEXT);
            for &byte in text.as_bytes() {
                bytes.push(byte);
                if byte == END {
                    bytes.push(ESCAPED);
                }
            }
            bytes.extend_from_slice(&[END, END]);
        }
        Key::Tuple(elements) => {
            bytes.push(TAG_TUPLE);
            for element in elements {
                encode(element, bytes);
            }
            bytes.push(END);
        }
    }
}

fn encode_integer(value: i128, bytes: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs().to_be_bytes();
    let leading = magnitude.iter().take_while(|&&byte| byte == 0).count();
    let used = &magnitude[leading..];
    let length = used.len() as u8;
    if value < 0 {
        bytes.push(TAG_ZERO - length);
        bytes.extend(used.iter().map(|byte| !byte));
    } else {
        bytes.push(TAG_ZERO + length);
        bytes.extend_from_slice(used);
    }
}

/// Reads one key, which `encode` wrote, from the front of `bytes`, and moves past it.
fn decode(bytes: &mut &[u8]) -> Key {
    let tag = bytes[0];
    *bytes = &bytes[1..];
    match tag {
        TAG_TEXT => decode_text(bytes),
        TAG_TUPLE => {
            let mut elements = Vec::new();
            while bytes[0] != END {
                elements.push(decode(bytes));
            }
            *bytes = &bytes[1..];
            Key::Tuple(elements)
        }
        _ => {
            let negative = tag < TAG_ZERO;
            let length = usize::from(tag.abs_diff(TAG_ZERO));
            let flip = if negative { 0xFF } else { 0 };
            let (used, rest) = bytes.split_at(length);
            let magnitude =
                used.iter().fold(0_u128, |sum, byte| (sum << 8) | u128::from(byte ^ flip));
            *bytes = rest;
            // The magnitude of the least integer is its own negative, modulo 2^128.
            let value = magnitude as i128;
            Key::Integer(if negative { value.wrapping_neg() } else { value })
        }
    }
}

fn decode_text(bytes: &mut &[u8]) -> Key {
    let mut text = Vec::new();
    loop {
        let byte = bytes[0];
        if byte == END {
            let escaped = bytes[1] == ESCAPED;
            *bytes = &bytes[2..];
            if !escaped {
                return Key::Text(String::from_utf8_lossy(&text).into_owned());
            }
        } else {
            *bytes = &bytes[1..];
        }
        text.push(byte);
    }
}

/// All keys of a history, each stored once and numbered in the order of first mention.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    /// The keys' bytes, one after the other, each with its table in front.
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
    /// Finds a key's number by its bytes.
    index: HashTable<u32>,
}

impl Keys {
    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes of key number `id`.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    /// Returns the number of the table of key number `id`.
    pub(crate) fn table(&self, id: u32) -> u32 {
        let bytes = self.bytes(id);
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Returns key number `id`.
    pub(crate) fn key(&self, id: u32) -> Key {
        decode_bare(&self.bytes(id)[TABLE_BYTES..])
    }

    /// Returns the number of the key with these bytes. A new key gets a new number.
    ///
    /// # Panics
    ///
    /// At the 2³²nd key.
    pub(crate) fn intern(&mut self, key: &[u8]) -> u32 {
        let Keys { bytes, ends, index } = self;
        let found = index.entry(
            hash(key),
            |&id| slice(bytes, ends, id) == key,
            |&id| hash(slice(bytes, ends, id)),
        );
        match found {
            hashbrown::hash_table::Entry::Occupied(entry) => *entry.get(),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                let id = u32::try_from(ends.len()).expect("fewer than 2^32 keys");
                entry.insert(id);
                bytes.extend_from_slice(key);
                ends.push(bytes.len());
                id
            }
        }
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the bytes of `key`, without a table.
pub(crate) fn encode_bare(key: &Key) -> Box<[u8]> {
    let mut bytes = Vec::new();
    encode(key, &mut bytes);
    bytes.into_boxed_slice()
}

/// Returns the key of bytes that have no table in front.
pub(crate) fn decode_bare(mut bytes: &[u8]) -> Key {
    decode(&mut bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Key> {
        let leaf = prop_oneof![
            any::<i128>().prop_map(Key::Integer),
            (-300_i128..300).prop_map(Key::Integer),
            "[a\\x00\\x01é]{0,4}".prop_map(Key::Text),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop::collection::vec(inner, 0..4).prop_map(Key::Tuple)
        })
    }

    fn with_table(key: &Key) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_table(7, &mut bytes);
        encode(key, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn encoded_keys_keep_their_order(one in keys(), other in keys()) {
            prop_assert_eq!(encode_bare(&one).cmp(&encode_bare(&other)), one.cmp(&other));
        }

        #[test]
        fn encoded_keys_round_trip(key in keys()) {
            prop_assert_eq!(decode_bare(&encode_bare(&key)), key);
        }
    }

    #[test]
    fn extreme_integers_round_trip() {
        for value in [i128::MIN, i128::MIN + 1, -256, -255, -1, 0, 1, 255, 256, i128::MAX] {
            assert_eq!(decode_bare(&encode_bare(&Key::Integer(value))), Key::Integer(value));
        }
    }

    #[test]
    fn equal_keys_have_the_same_number() {
        let mut all = Keys::default();
        let ids: Vec<u32> =
            [1, 2, 1, 3, 2].map(|n| all.intern(&with_table(&Key::from(n)))).to_vec();
        assert_eq!(ids, [0, 1, 0, 2, 1]);
        assert_eq!((all.key(2), all.table(2), all.len()), (Key::from(3), 7, 3));
    }
}
