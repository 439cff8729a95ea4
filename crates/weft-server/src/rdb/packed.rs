//! The forms in which Redis packs the elements of a small collection into one string.
//!
//! ```text
//!   listpack  bytes (4), elements (2),            (form and content, length of both) ...              0xff
//!   ziplist   bytes (4), last (4), elements (2),  (length of the one before, form and content) ...    0xff
//!   intset    width (4), elements (4),            integers
//!   zipmap    elements (1),                       (length, name, length, spare (1), value, spare) ... 0xff
//! ```

use super::input::take;
use super::{Fault, Read};

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'b> {
    /// Bytes.
    Text(&'b [u8]),
    /// An integer.
    Number(i64),
}

impl Element<'_> {
    /// Returns the element as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Element::Text(text) => text.to_vec(),
            Element::Number(number) => number.to_string().into_bytes(),
        }
    }

    /// Returns the element as an integer.
    pub fn number(&self) -> Option<i64> {
        match self {
            Element::Text(text) => crate::request::parse_integer(text),
            Element::Number(number) => Some(*number),
        }
    }
}

/// The number of elements says that there are more.
const MANY: u16 = u16::MAX;
const END: u8 = 0xff;

const WRONG_LISTPACK: &str = "a listpack is not one";
const WRONG_ZIPLIST: &str = "a ziplist is not one";
const WRONG_INTSET: &str = "an intset is not one";
const WRONG_ZIPMAP: &str = "a zipmap is not one";

/// The function that gets each element. It ends the reading if there are too many.
pub type Each<'e, 'b> = &'e mut dyn FnMut(Element<'b>) -> Read<()>;

/// Reads a packed collection.
pub type Parse = for<'b> fn(&'b [u8], Each<'_, 'b>) -> Read<()>;

/// Returns an integer of up to eight bytes, the lowest one first.
fn integer(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}

/// Reads the elements of a packed collection whose length and count are in its header.
fn elements<'b>(
    packed: &'b [u8],
    header: usize,
    wrong: &'static str,
    parse: impl Fn(&mut &'b [u8]) -> Option<Element<'b>>,
    each: Each<'_, 'b>,
) -> Read<()> {
    let mut rest = packed.get(header..).ok_or(Fault::Damaged(wrong))?;
    let announced = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    let announced_elements = u16::from_le_bytes([packed[header - 2], packed[header - 1]]);
    let mut count = 0;
    while *rest.first().ok_or(Fault::Damaged(wrong))? != END {
        each(parse(&mut rest).ok_or(Fault::Damaged(wrong))?)?;
        count += 1;
    }
    let is_counted = announced_elements == MANY || usize::from(announced_elements) == count;
    let is_whole = rest.len() == 1 && announced as usize == packed.len();
    if is_counted && is_whole { Ok(()) } else { Err(Fault::Damaged(wrong)) }
}

/// Reads a listpack.
///
/// # Errors
/// It is not one, or has too many elements.
pub fn listpack<'b>(packed: &'b [u8], each: Each<'_, 'b>) -> Read<()> {
    elements(packed, 6, WRONG_LISTPACK, listpack_element, each)
}

fn listpack_element<'b>(rest: &mut &'b [u8]) -> Option<Element<'b>> {
    let start = *rest;
    let first = take(rest, 1)?[0];
    let low = usize::from(first & 0x0f);
    let mut text = |length: usize| take(rest, length).map(Element::Text);
    let element = match first {
        0..0x80 => Element::Number(first.into()),
        0x80..0xc0 => text(usize::from(first & 0x3f))?,
        0xc0..0xe0 => {
            let number = i64::from(first & 0x1f) << 8 | i64::from(take(rest, 1)?[0]);
            // 13 bits with a sign.
            Element::Number((number << 51) >> 51)
        }
        0xe0..0xf0 => {
            let length = low << 8 | usize::from(take(rest, 1)?[0]);
            Element::Text(take(rest, length)?)
        }
        0xf0 => {
            let length = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
            Element::Text(take(rest, length as usize)?)
        }
        0xf1 => Element::Number(integer(take(rest, 2)?)),
        0xf2 => Element::Number(integer(take(rest, 3)?)),
        0xf3 => Element::Number(integer(take(rest, 4)?)),
        0xf4 => Element::Number(integer(take(rest, 8)?)),
        0xf5.. => return None,
    };
    let length = back_length(start.len() - rest.len());
    (take(rest, length.len())? == length.as_slice()).then_some(element)
}

/// Returns the length of an element in the form in which it stands behind it: seven bits in each byte, the lowest ones last.
pub fn back_length(length: usize) -> smallvec::SmallVec<[u8; 5]> {
    // Redis's own bounds, which are one less than what would fit.
    let bytes = match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let part = |byte: usize| (length >> (7 * (bytes - 1 - byte))) as u8 & 0x7f;
    (0..bytes).map(|byte| if byte == 0 { part(0) } else { part(byte) | 0x80 }).collect()
}

/// Reads a ziplist.
///
/// # Errors
/// It is not one, or has too many elements.
pub fn ziplist<'b>(packed: &'b [u8], each: Each<'_, 'b>) -> Read<()> {
    elements(packed, 10, WRONG_ZIPLIST, ziplist_element, each)
}

fn ziplist_element<'b>(rest: &mut &'b [u8]) -> Option<Element<'b>> {
    // How long the element before is.
    if take(rest, 1)?[0] == 0xfe {
        take(rest, 4)?;
    }
    let first = take(rest, 1)?[0];
    let low = usize::from(first & 0x3f);
    Some(match first {
        0..0x40 => Element::Text(take(rest, low)?),
        0x40..0x80 => {
            let length = low << 8 | usize::from(take(rest, 1)?[0]);
            Element::Text(take(rest, length)?)
        }
        0x80 => {
            let length = u32::from_be_bytes(take(rest, 4)?.try_into().ok()?);
            Element::Text(take(rest, length as usize)?)
        }
        0xc0 => Element::Number(integer(take(rest, 2)?)),
        0xd0 => Element::Number(integer(take(rest, 4)?)),
        0xe0 => Element::Number(integer(take(rest, 8)?)),
        0xf0 => Element::Number(integer(take(rest, 3)?)),
        0xfe => Element::Number(integer(take(rest, 1)?)),
        0xf1..=0xfd => Element::Number(i64::from(first & 0x0f) - 1),
        _ => return None,
    })
}

/// Reads a set of integers.
///
/// # Errors
/// It is not one, or has too many elements.
pub fn intset<'b>(packed: &'b [u8], each: Each<'_, 'b>) -> Read<()> {
    let mut rest = packed;
    let mut number = || Some(u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?) as usize);
    let (Some(width), Some(count)) = (number(), number()) else {
        return Err(Fault::Damaged(WRONG_INTSET));
    };
    if !matches!(width, 2 | 4 | 8) || rest.len() != width.saturating_mul(count) {
        return Err(Fault::Damaged(WRONG_INTSET));
    }
    rest.chunks_exact(width).try_for_each(|bytes| each(Element::Number(integer(bytes))))
}

/// Reads a hash in the form of Redis 2.4: names and values in turn.
///
/// # Errors
/// It is not one, or has too many elements.
pub fn zipmap<'b>(packed: &'b [u8], each: Each<'_, 'b>) -> Read<()> {
    let wrong = || Fault::Damaged(WRONG_ZIPMAP);
    let mut rest = packed.get(1..).ok_or_else(wrong)?;
    while *rest.first().ok_or_else(wrong)? != END {
        let [name, value] = zipmap_pair(&mut rest).ok_or_else(wrong)?;
        each(Element::Text(name))?;
        each(Element::Text(value))?;
    }
    if rest.len() == 1 { Ok(()) } else { Err(wrong()) }
}

fn zipmap_pair<'b>(rest: &mut &'b [u8]) -> Option<[&'b [u8]; 2]> {
    let length = zipmap_length(rest)?;
    let name = take(rest, length)?;
    let length = zipmap_length(rest)?;
    let spare = take(rest, 1)?[0];
    let value = take(rest, length)?;
    take(rest, spare.into())?;
    Some([name, value])
}

fn zipmap_length(rest: &mut &[u8]) -> Option<usize> {
    match take(rest, 1)?[0] {
        0xff => None,
        0xfe => Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?) as usize),
        length => Some(length.into()),
    }
}

/// A listpack that is written.
#[derive(Debug)]
pub struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl ListpackWriter {
    /// Creates an empty one.
    pub fn new() -> Self {
        ListpackWriter { bytes: vec![0; 6], count: 0 }
    }

    /// Adds an element of these parts.
    fn add(&mut self, parts: [&[u8]; 2]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend(back_length(parts[0].len() + parts[1].len()));
        self.count += 1;
    }

    /// Adds bytes.
    pub fn text(&mut self, text: &[u8]) {
        let length = text.len();
        match length {
            0..64 => self.add([&[0x80 | length as u8], text]),
            64..4096 => self.add([&[0xe0 | (length >> 8) as u8, length as u8], text]),
            _ => {
                let mut header = [0xf0; 5];
                header[1..].copy_from_slice(&(length as u32).to_le_bytes());
                self.add([&header, text]);
            }
        }
    }

    /// Adds an integer.
    pub fn number(&mut self, number: i64) {
        let bytes = number.to_le_bytes();
        match number {
            0..128 => self.add([&bytes[..1], &[]]),
            -4096..4096 => self.add([&[0xc0 | (bytes[1] & 0x1f), bytes[0]], &[]]),
            -0x8000..0x8000 => self.add([&[0xf1], &bytes[..2]]),
            -0x80_0000..0x80_0000 => self.add([&[0xf2], &bytes[..3]]),
            -0x8000_0000..0x8000_0000 => self.add([&[0xf3], &bytes[..4]]),
            _ => self.add([&[0xf4], &bytes]),
        }
    }

    /// Returns the listpack.
    pub fn end(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let (length, count) = (self.bytes.len() as u32, self.count.min(MANY.into()) as u16);
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}
