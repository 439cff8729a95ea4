//! Dumps: a whole database in one portable file.
//!
//! ```text
//!   file:   "WEFTDUMP"   version: u32   blocks, one after the other
//!   block:  checksum: u32   kind: u8   length: u32   payload, which has this length in bytes
//!
//!   kind        the payload, before it is compressed
//!   1 tables    epoch: u64   version of the schema: u32   that of the oldest programs which may open it: u32
//!               number of tables   for each table its description
//!   2 rows      the table's position   for each row its length in bytes, and the row
//!   3 end       for each table its number of rows
//! ```
//!
//! There is one block of tables, then any number of blocks of rows, and one end, after which the file ends. The rows
//! of one table follow those of the table before it. A block of rows has about [`BLOCK_BYTES`], or a single row that
//! is longer.
//!
//! Numbers of a fixed width have their lowest byte first. All others, such as positions and lengths within a payload,
//! are in LEB128. Rows have [their stored form](weft::column), and descriptions
//! [theirs](weft::description). Payloads are compressed in Snappy's raw format. The checksum is the CRC-32C of the
//! block's number as a `u64`, counted from 0, and of everything in the block after the checksum. So a block that is
//! missing, repeated or in another place is found.
//!
//! Nothing in the file depends on the machine, or on the formats of the log and of checkpoints.

mod read;
mod restore;
mod write;

pub use read::DumpReader;
pub use restore::restore_dump;
pub use write::{dump, write_dump};

/// The first bytes of a dump.
const MAGIC: [u8; 8] = *b"WEFTDUMP";

/// The version of the format that is written. In version 1, which is read as well, descriptions have no next key.
const VERSION: u32 = 2;

/// The size of a block's payload, before it is compressed, at which another block is begun.
const BLOCK_BYTES: usize = 256 << 10;

/// The length of what precedes a payload.
const BLOCK_HEADER_BYTES: usize = 9;

mod kind {
    pub const TABLES: u8 = 1;
    pub const ROWS: u8 = 2;
    pub const END: u8 = 3;
}

/// Returns the checksum of a block: of its number, its kind and length, and its payload.
fn checksum(number: u64, kind_and_length: &[u8], payload: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(checksum, kind_and_length), payload)
}

/// What a dump holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpReport {
    /// It has the state at the end of this epoch of the database from which it was made.
    pub epoch: u64,
    /// The name of each table, and its number of rows.
    pub tables: Vec<(String, u64)>,
    /// The length of the file, in bytes.
    pub bytes: u64,
}

impl DumpReport {
    /// Returns the number of rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|(_, rows)| rows).sum()
    }
}
