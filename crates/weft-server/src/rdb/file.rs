//! Whole files.

use std::io;

use crc::{Digest, Table};

use super::read::{Value, value};
use super::{CHECKSUM, Fault, Input, Read, VERSION_MAX, types};

/// What stands in front of a part of a file that is no key, with the names that Redis's source has for it.
mod opcodes {
    pub const SLOT_INFO: u8 = 0xf4;
    pub const FUNCTION: u8 = 0xf5;
    pub const MODULE_AUX: u8 = 0xf7;
    pub const IDLE: u8 = 0xf8;
    pub const FREQ: u8 = 0xf9;
    pub const AUX: u8 = 0xfa;
    pub const RESIZE_DB: u8 = 0xfb;
    pub const EXPIRE_TIME_MS: u8 = 0xfc;
    pub const EXPIRE_TIME: u8 = 0xfd;
    pub const SELECT_DB: u8 = 0xfe;
    pub const EOF: u8 = 0xff;
}

/// The first version whose files end with a checksum.
const VERSION_WITH_CHECKSUM: u16 = 5;

/// A part of a file.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// The keys that follow are in this numbered database.
    Space(u64),
    /// The code of a library of functions.
    Library(Vec<u8>),
    /// A key, with its value, and when it expires in milliseconds since 1970. The value is missing if it is of a module.
    Key(Vec<u8>, Option<Value>, Option<u64>),
}

/// A file.
#[derive(Debug)]
pub struct File<R: io::Read> {
    input: Input<Summed<R>>,
    version: u16,
}

/// A source whose bytes are summed up.
struct Summed<R> {
    source: R,
    digest: Digest<'static, u64, Table<16>>,
}

impl<R> std::fmt::Debug for Summed<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Summed")
    }
}

impl<R: io::Read> io::Read for Summed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(bytes)?;
        self.digest.update(&bytes[..read]);
        Ok(read)
    }
}

impl<R: io::Read> File<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    /// It is not one, or of an unknown version.
    pub fn open(source: R) -> Read<Self> {
        // The file is the operator's, so each value may be as large as it is.
        let mut input = Input::new(Summed { source, digest: CHECKSUM.digest() }, usize::MAX);
        let head = input.array::<9>();
        let version = match &head {
            Ok(head) if head.starts_with(b"REDIS") => std::str::from_utf8(&head[5..]).ok(),
            _ => None,
        };
        match version.and_then(|version| version.parse().ok()) {
            None => Err(Fault::Damaged("this is no RDB file")),
            Some(version) if version > VERSION_MAX => {
                Err(Fault::Damaged("the version of the file is newer than those that are known"))
            }
            Some(version) => Ok(File { input, version }),
        }
    }

    /// Reads the next part. `None` at the end, if the checksum is right.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn next(&mut self) -> Read<Option<Part>> {
        let mut expires_at = None;
        loop {
            let input = &mut self.input;
            input.set_room(usize::MAX);
            match input.byte()? {
                opcodes::EOF => return self.end().map(|()| None),
                opcodes::SELECT_DB => return Ok(Some(Part::Space(input.length()?))),
                opcodes::FUNCTION => return Ok(Some(Part::Library(input.string()?))),
                opcodes::EXPIRE_TIME => {
                    let seconds = i32::from_le_bytes(input.array()?);
                    expires_at = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                opcodes::EXPIRE_TIME_MS => {
                    let millis = i64::from_le_bytes(input.array()?);
                    expires_at = Some(u64::try_from(millis).unwrap_or(0));
                }
                opcodes::AUX => drop((input.string()?, input.string()?)),
                opcodes::RESIZE_DB => drop((input.length()?, input.length()?)),
                opcodes::SLOT_INFO => drop((input.length()?, input.length()?, input.length()?)),
                opcodes::IDLE => drop(input.length()?),
                opcodes::FREQ => drop(input.byte()?),
                opcodes::MODULE_AUX => self.skip_module()?,
                kind => {
                    let key = input.string()?;
                    let value = match kind {
                        types::MODULE_2 => self.skip_module().map(|()| None)?,
                        kind => Some(value(input, kind)?),
                    };
                    return Ok(Some(Part::Key(key, value, expires_at)));
                }
            }
        }
    }

    /// Skips what a module has written: its number, and values with their types in front.
    fn skip_module(&mut self) -> Read<()> {
        let input = &mut self.input;
        input.length()?;
        loop {
            match input.length()? {
                0 => return Ok(()),
                1 | 2 => drop(input.length()?),
                3 => drop(input.array::<4>()?),
                4 => drop(input.array::<8>()?),
                5 => drop(input.string()?),
                _ => return Err(Fault::Damaged("what a module has written")),
            }
        }
    }

    /// Compares the checksum at the end. It is 0 if Redis was told to write none.
    fn end(&mut self) -> Read<()> {
        if self.version < VERSION_WITH_CHECKSUM {
            return Ok(());
        }
        let summed = self.input.source();
        let sum = summed.digest.clone().finalize();
        let mut written = [0; 8];
        summed.source.read_exact(&mut written)?;
        match u64::from_le_bytes(written) {
            0 => Ok(()),
            written if written == sum => Ok(()),
            _ => Err(Fault::Damaged("the checksum is wrong")),
        }
    }
}
