//! Redis's own format of values: what `DUMP` returns, `RESTORE` reads, and an RDB file holds.
//!
//! ```text
//!   a payload:  type (1 byte), value                           version (2 bytes), CRC-64 of all before it (8 bytes)
//!   a file:     "REDIS0010", (opcode | type, key, value) ...   0xff,              CRC-64 of all before it (8 bytes)
//! ```
//!
//! [`input`] has lengths and strings, of which all else is made, and [`packed`] the forms in which Redis packs small collections
//! into one string. [`read`] reads values in each of the forms of Redis up to 7.4, and [`write`] writes one form for each type,
//! which all of these versions read. [`streams`] has the two for streams, and [`file`] walks over whole files.
//!
//! Any client may send a payload. So nothing that is read is believed: memory grows with the bytes that have arrived, and an
//! [`Input`] has a limit for what it makes of them.

pub mod file;
pub mod input;
mod packed;
pub mod read;
mod streams;
pub mod write;

use std::fmt;
use std::io;

use crc::{CRC_64_REDIS, Crc, Table};

use crate::stream_tables::Id;
use crate::tables::Text;

pub use input::Input;
pub use read::Value;

/// The version of the format that Redis 7.0 writes, and that is written here.
pub const VERSION: u16 = 10;
/// The last version whose values are known to be the same.
pub const VERSION_MAX: u16 = 13;
/// The version and the checksum of a payload.
const FOOTER_BYTES: usize = 10;

/// The checksum of payloads and files. (16 tables, so that it is no slower than copying.)
static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The numbers of types, with the names that Redis's source has for them.
mod types {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const ZSET: u8 = 3;
    pub const HASH: u8 = 4;
    pub const ZSET_2: u8 = 5;
    pub const MODULE_2: u8 = 7;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const STREAM_LISTPACKS: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM_LISTPACKS_2: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_LISTPACKS_3: u8 = 21;
    pub const HASH_METADATA: u8 = 24;
    pub const HASH_LISTPACK_EX: u8 = 25;
}

/// Why something cannot be read.
#[derive(Debug)]
pub enum Fault {
    /// It is not what Redis writes.
    Damaged(&'static str),
    /// It needs more memory than it may.
    TooLarge,
    /// A value is of a type that is not known.
    UnknownType(u8),
    /// The file cannot be read, or ends too early.
    File(io::Error),
}

/// The result of reading.
pub type Read<T> = Result<T, Fault>;

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Damaged(what) => write!(formatter, "damaged: {what}"),
            Fault::TooLarge => formatter.write_str("a value needs more memory than the limit"),
            Fault::UnknownType(number) => write!(
                formatter,
                "a value has the type {number}, which no Redis up to 7.4 has: import from the server while it runs"
            ),
            Fault::File(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                formatter.write_str("it ends in the middle of a value")
            }
            Fault::File(error) => error.fmt(formatter),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::File(error)
    }
}

/// A stream, with its groups of consumers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamValue {
    /// The entries in the order of their ids, with fields and values as [`encode`](crate::stream_tables::encode) makes them.
    pub entries: Vec<(Id, Text)>,
    /// The last id that was given.
    pub last: Id,
    /// The greatest id that was deleted.
    pub deleted: Id,
    /// How many entries were ever added.
    pub added: u64,
    /// The groups of consumers.
    pub groups: Vec<GroupValue>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupValue {
    /// The name.
    pub name: Text,
    /// The last id that was delivered.
    pub last: Id,
    /// How many entries were delivered; -1 if that is unknown.
    pub read: i64,
    /// The consumers: their names, and when each was seen, in milliseconds since 1970.
    pub consumers: Vec<(Text, u64)>,
    /// The pending entries in the order of their ids.
    pub pending: Vec<PendingValue>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingValue {
    /// The id.
    pub id: Id,
    /// The consumer's place among those of the group.
    pub consumer: usize,
    /// When it was delivered last, in milliseconds since 1970.
    pub delivered_at: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// Ends a payload with the version and the checksum.
pub fn seal(payload: &mut Vec<u8>) {
    payload.extend(VERSION.to_le_bytes());
    payload.extend(CHECKSUM.checksum(payload).to_le_bytes());
}

/// Returns what [`seal`] has closed. `None` if the version is not known, or the checksum is wrong.
pub fn unseal(payload: &[u8]) -> Option<&[u8]> {
    let (body, footer) = payload.split_last_chunk::<FOOTER_BYTES>()?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let sum = CHECKSUM.checksum(&payload[..payload.len() - 8]);
    (version <= VERSION_MAX && sum.to_le_bytes() == footer[2..]).then_some(body)
}

#[cfg(test)]
pub mod tests;
