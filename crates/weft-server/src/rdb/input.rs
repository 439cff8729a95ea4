//! Lengths and strings of Redis's format.

use std::io::{self, Read as _};

use super::{Fault, Read};

/// What an element needs besides its bytes, as far as the limit goes.
pub const ELEMENT_BYTES: usize = 32;

/// A source of values, with a limit for the memory that they may need.
#[derive(Debug)]
pub struct Input<R> {
    source: R,
    room: usize,
}

/// What stands where a length may be.
#[derive(Debug, PartialEq, Eq)]
enum Length {
    Plain(u64),
    /// A string in another form.
    Special(u8),
}

const SPECIAL_LZF: u8 = 3;
const WRONG_LENGTH: Fault = Fault::Damaged("a length is not one");

impl<R: io::Read> Input<R> {
    /// Creates an input that may make `room` bytes of each value.
    pub fn new(source: R, room: usize) -> Self {
        Input { source, room }
    }

    /// Sets how many bytes may be made of what follows.
    pub fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Returns the source.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// Takes some of the memory that may be used.
    ///
    /// # Errors
    /// There is not so much left.
    pub fn take_room(&mut self, bytes: usize) -> Read<()> {
        self.room = self.room.checked_sub(bytes).ok_or(Fault::TooLarge)?;
        Ok(())
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// There are not so many.
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// The source has ended.
    pub fn byte(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads so many bytes. The memory for them grows with those that are there.
    fn bytes(&mut self, length: u64) -> Read<Vec<u8>> {
        let length = usize::try_from(length).map_err(|_| Fault::TooLarge)?;
        self.take_room(length.saturating_add(ELEMENT_BYTES))?;
        let mut bytes = Vec::new();
        let read = (&mut self.source).take(length as u64).read_to_end(&mut bytes)?;
        if read < length {
            return Err(Fault::File(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    fn any_length(&mut self) -> Read<Length> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match first {
            0..0x40 => Length::Plain(low.into()),
            0x40..0x80 => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            0x80 => Length::Plain(u32::from_be_bytes(self.array()?).into()),
            0x81 => Length::Plain(u64::from_be_bytes(self.array()?)),
            0x82..0xc0 => return Err(WRONG_LENGTH),
            0xc0.. => Length::Special(low),
        })
    }

    /// Reads a length, or another number.
    ///
    /// # Errors
    /// It is not one.
    pub fn length(&mut self) -> Read<u64> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(WRONG_LENGTH),
        }
    }

    /// Reads a number of milliseconds.
    ///
    /// # Errors
    /// The source has ended.
    pub fn millis(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a string.
    ///
    /// # Errors
    /// It is not one.
    pub fn string(&mut self) -> Read<Vec<u8>> {
        let number = match self.any_length()? {
            Length::Plain(length) => return self.bytes(length),
            Length::Special(SPECIAL_LZF) => return self.compressed(),
            Length::Special(0) => i8::from_le_bytes(self.array()?).into(),
            Length::Special(1) => i16::from_le_bytes(self.array()?).into(),
            Length::Special(2) => i32::from_le_bytes(self.array()?),
            Length::Special(_) => return Err(Fault::Damaged("a string has an unknown form")),
        };
        self.take_room(ELEMENT_BYTES)?;
        Ok(number.to_string().into_bytes())
    }

    fn compressed(&mut self) -> Read<Vec<u8>> {
        let (compressed, whole) = (self.length()?, self.length()?);
        let compressed = self.bytes(compressed)?;
        let whole = usize::try_from(whole).map_err(|_| Fault::TooLarge)?;
        self.take_room(whole)?;
        decompress(&compressed, whole).ok_or(Fault::Damaged("a string is wrongly compressed"))
    }
}

/// Decompresses LZF: runs of bytes, and copies of what came before. Returns `None` if that is not what it is.
fn decompress(mut rest: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut whole: Vec<u8> = Vec::new();
    while let Some((control, after)) = rest.split_first() {
        rest = after;
        let (high, low) = (usize::from(control >> 5), usize::from(control & 0x1f));
        if high == 0 {
            whole.extend(take(&mut rest, low + 1)?);
        } else {
            let more = if high == 7 { usize::from(take(&mut rest, 1)?[0]) } else { 0 };
            let back = (low << 8) + usize::from(take(&mut rest, 1)?[0]) + 1;
            let start = whole.len().checked_sub(back)?;
            // The copy may reach into itself.
            for at in start..start + high + more + 2 {
                whole.push(whole[at]);
            }
        }
        if whole.len() > length {
            return None;
        }
    }
    (whole.len() == length).then_some(whole)
}

/// Takes bytes from the front.
pub fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_strings_are_refused() {
        let string = |bytes: &[u8]| Input::new(bytes, 1000).string();
        assert_eq!(string(b"\x02ab").unwrap(), b"ab");
        assert_eq!(string(b"\xc1\xff\xff").unwrap(), b"-1");
        // A copy that reaches into itself.
        assert!(string(b"\xc3\x05\x06\x00a\x60\x00").is_err());
        assert_eq!(string(b"\xc3\x04\x06\x00a\x60\x00").unwrap(), b"aaaaaa");
        for wrong in [
            &b""[..],
            b"\x03ab",
            b"\xc4\x01",
            b"\xc3\x03\x06\x20\x00",
            b"\xc3\x04\x05\x00a\x60\x00",
            b"\x82\x00\x00\x00\x00",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(string(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn memory_has_a_limit() {
        let read = |bytes: &[u8], room| Input::new(bytes, room).string();
        let text = [&[0x40, 100][..], &[b'x'; 100]].concat();
        assert!(read(&text, 100 + ELEMENT_BYTES).is_ok());
        assert!(matches!(read(&text, 99 + ELEMENT_BYTES), Err(Fault::TooLarge)));
        // Six bytes that announce more.
        let bomb = b"\xc3\x04\x80\x7f\xff\xff\xff\x00a\x60\x00";
        assert!(matches!(read(bomb, 1 << 20), Err(Fault::TooLarge)));
    }
}
