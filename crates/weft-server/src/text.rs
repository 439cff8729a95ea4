//! Byte strings of rows: short ones lie in the row itself.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use weft::Key;
use weft::column::{
    ColumnType, ColumnValue, DecodeError, allocation_bytes, leb128_bytes, write_leb128,
};
use weft::encoding::{BorrowableKey, KeyEncoder, KeyPart};

/// A text of up to so many bytes needs no memory of its own.
const SHORT_BYTES_MAX: usize = 22;

/// Bytes in a row. Long ones are shared by the versions of the row. Most keys, names and values are short: they are copied,
/// so no reader or writer waits for memory besides the row's.
#[derive(Clone)]
pub struct Text(Form);

#[derive(Clone)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT_BYTES_MAX] },
    Long(Arc<[u8]>),
}

const _: () = assert!(size_of::<Option<Text>>() == 24);

impl Text {
    /// Returns how many bytes of memory the text needs besides its own size.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            // The two counters of the `Arc` come first.
            Form::Long(bytes) => allocation_bytes(bytes.len() + 2 * size_of::<usize>()),
        }
    }
}

impl Deref for Text {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Text {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > SHORT_BYTES_MAX {
            return Text(Form::Long(bytes.into()));
        }
        let mut short = [0; SHORT_BYTES_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Text(Form::Short { length: bytes.len() as u8, bytes: short })
    }
}

impl<const N: usize> From<[u8; N]> for Text {
    fn from(bytes: [u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<const N: usize> From<&[u8; N]> for Text {
    fn from(bytes: &[u8; N]) -> Self {
        bytes[..].into()
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        bytes[..].into()
    }
}

impl Default for Text {
    fn default() -> Self {
        [].into()
    }
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.escape_ascii())
    }
}

/// Keys are encoded as those of the engine's own byte strings.
impl Key for Text {
    const WIDTH_BYTES: Option<usize> = None;
    const IS_COLUMN: bool = true;

    #[inline]
    fn encode(&self, encoder: &mut impl KeyEncoder) {
        Self::encode_borrowed(self, encoder);
    }
}

impl BorrowableKey for Text {
    type Borrowed = [u8];

    #[inline]
    fn encode_borrowed(bytes: &[u8], encoder: &mut impl KeyEncoder) {
        Vec::<u8>::encode_borrowed(bytes, encoder);
    }
}

impl KeyPart<Text> for &Text {
    #[inline]
    fn encode_part(&self, encoder: &mut impl KeyEncoder) {
        self.encode(encoder);
    }
}

/// Stored as a `Vec<u8>`.
impl ColumnValue for Text {
    const TYPE: ColumnType = Vec::<u8>::TYPE;

    fn write(&self, output: &mut Vec<u8>) {
        write_leb128(self.len() as u64, output);
        output.extend_from_slice(self);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Vec::<u8>::read(input)?.into())
    }

    fn stored_bytes(&self) -> usize {
        leb128_bytes(self.len() as u64) + self.len()
    }

    fn heap_bytes(&self) -> usize {
        Text::heap_bytes(self)
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_keep_their_bytes() {
        for length in [0, 1, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 1000] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let text = Text::from(&bytes[..]);
            assert_eq!((&*text, text.heap_bytes() > 0), (&bytes[..], length > SHORT_BYTES_MAX));
            let mut stored = Vec::new();
            text.write(&mut stored);
            assert_eq!(stored.len(), text.stored_bytes());
            let mut expected = Vec::new();
            bytes.write(&mut expected);
            assert_eq!(stored, expected);
            assert_eq!(Text::read(&mut &stored[..]).unwrap(), text);
        }
    }
}
