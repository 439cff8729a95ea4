//! The records in the log, as bytes.
//!
//! All numbers are little-endian.
//!
//! ```text
//!   offset  bytes
//!      0      4    magic and version   "WRL", 1
//!      4      1    kind                1 part of an epoch, 2 fence, 3 heartbeat, 4 question
//!      5      1    flags               bit 0: the epoch's last part; the others are zero
//!      6      2    zero
//!      8      8    generation
//!     16      8    node
//!     24      8    epoch               of a part; otherwise zero
//!     32      4    part                its number in the epoch, from 0; otherwise zero
//!     36      4    chain               of a part: the chain of checksums before it; otherwise zero
//!     40      4    checksum            CRC-32C of bytes 0..40 and of the body
//!     44           body
//! ```
//!
//! The bodies of an epoch's parts, one after the other, are the epoch's content, compressed with LZ4 behind its length in
//! bytes (four bytes). The body of a fence says how to read the contents of its generation. A heartbeat and
//! a question have none.

/// The first bytes of every record. The last one is the version of the format.
const MAGIC: [u8; 4] = *b"WRL\x01";

/// The length of a record without its body, in bytes.
const HEADER_BYTES: usize = 44;

/// The longest record, in bytes. Kafka takes records of up to 1 MB if nothing else is configured.
pub const RECORD_BYTES_MAX: usize = 900_000;

/// The longest body, in bytes.
pub const BODY_BYTES_MAX: usize = RECORD_BYTES_MAX - HEADER_BYTES;

/// The longest content of an epoch, in bytes.
pub const EPOCH_BYTES_MAX: usize = 1 << 31;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A part of an epoch.
    Part {
        epoch: u64,
        /// The number of the part, from 0.
        part: u32,
        is_last: bool,
        /// The chain of checksums before the part.
        chain: u32,
    },
    /// Begins a generation, unless another fence was faster.
    Fence,
    /// Shows that the primary is there.
    Heartbeat,
    /// Asks the other nodes for records that the log does not have.
    Question,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub generation: u64,
    pub node: u64,
    pub kind: RecordKind,
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, flags, epoch, part, chain) = match self.kind {
            RecordKind::Part { epoch, part, is_last, chain } => {
                (1, u8::from(is_last), epoch, part, chain)
            }
            RecordKind::Fence => (2, 0, 0, 0, 0),
            RecordKind::Heartbeat => (3, 0, 0, 0, 0),
            RecordKind::Question => (4, 0, 0, 0, 0),
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[kind, flags, 0, 0]);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.node.to_le_bytes());
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&part.to_le_bytes());
        bytes.extend_from_slice(&chain.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes), self.body);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(self.body);
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The error in it, to follow "record 5 ".
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>, &'static str> {
        let (header, body) =
            bytes.split_at_checked(HEADER_BYTES).ok_or("is too short to be one of Weft's")?;
        if header[..3] != MAGIC[..3] {
            return Err("is not one of Weft's");
        }
        if header[3] != MAGIC[3] {
            return Err("has a format version that this version of Weft cannot read");
        }
        let u32_at =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let u64_at =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        if u32_at(40) != crc32c::crc32c_append(crc32c::crc32c(&header[..40]), body) {
            return Err("has a wrong checksum");
        }
        let kind = match (header[4], header[5]) {
            (1, flags @ 0..=1) => RecordKind::Part {
                epoch: u64_at(24),
                part: u32_at(32),
                is_last: flags == 1,
                chain: u32_at(36),
            },
            (2, 0) => RecordKind::Fence,
            (3, 0) => RecordKind::Heartbeat,
            (4, 0) => RecordKind::Question,
            _ => return Err("is of an unknown kind"),
        };
        Ok(Record { generation: u64_at(8), node: u64_at(16), kind, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record<'static>> {
        let part = RecordKind::Part { epoch: 7, part: 2, is_last: true, chain: 0xdead_beef };
        [part, RecordKind::Fence, RecordKind::Heartbeat, RecordKind::Question]
            .map(|kind| Record { generation: 3, node: u64::MAX, kind, body: b"content" })
            .to_vec()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in samples() {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        for record in samples() {
            let bytes = record.encode();
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::decode(&changed).is_err(), "bit {bit}");
            }
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err(), "{length} bytes");
            }
        }
    }
}
