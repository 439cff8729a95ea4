//! How a database's files look: frames, and the entries in the frames of the log.
//!
//! # Frames
//!
//! Every file (segments of the log, checkpoints, the manifest) is a sequence of frames, one after
//! the other without gaps. All numbers are little-endian.
//!
//! ```text
//!   offset  bytes
//!      0      4    magic           f5 "WFT"
//!      4      2    version         of the format: 1
//!      6      1    kind            1 log, 2 rows of a checkpoint, 3 manifest
//!      7      1    flags           bit 0: closes the epoch; the others are zero
//!      8      4    logger          that wrote it; rows: the part of the checkpoint
//!     12      4    number          of the frame, from 0, within its epoch; rows: within its file
//!     16      8    epoch           in which the payload's transactions committed
//!     24      8    previous epoch  the last one that this logger closed before this one
//!     32      8    durable epoch   an epoch that was durable when the frame was written
//!     40      8    position        where in the file the frame begins
//!     48      8    synced          all of the file before this was synced when it was written
//!     56      4    payload length  in bytes
//!     60      4    checksum        CRC-32C of bytes 0..60 and of the payload
//!     64           payload
//! ```
//!
//! A version to come may change anything but the places of the magic, the version, the payload
//! length and the checksum: so that what is newer is told from what is damaged.
//!
//! # The log
//!
//! A logger writes the frames of one epoch together, its *group*: payloads of at most
//! [`PAYLOAD_BYTES`] (more only if a single entry is longer), the last frame with the flag that
//! closes the epoch. A group lies in one segment. Whenever one logger has something to write in
//! an epoch, all loggers write a group, if need be of one closing frame without a payload. Then
//! all of them sync, and only when all have done so is the epoch durable and the next one written.
//! An epoch in which nobody wrote has no frames, except that the first such epoch after others is
//! closed by an empty group, a *note*, which says of the epochs before it that they are durable.
//! It is synced with what is written next.
//!
//! So the log is what it claims to be if for each logger the groups follow each other by
//! `previous epoch`, and recovery has reached the greatest `durable epoch` of any valid frame.
//! The first group after the database was opened has the recovered epoch as both.
//!
//! # Torn tails
//!
//! What was written but not yet synced when the power failed may be there in part, sector by
//! sector. That concerns the last group of a segment (and a note before it), which nobody was told
//! to be durable. Anything else that does not read as a frame is damage. The field `synced` tells
//! the two apart: if a valid frame follows somewhere behind the bad place, and was written after
//! the bad place had been synced, then no crash has made it bad. A frame is valid only where it
//! says that it lies, so that a copy of a frame inside a row is none.
//!
//! # Entries
//!
//! The payload of a log frame is a sequence of entries. Numbers are LEB128.
//!
//! ```text
//!   transaction   01
//!   put           02  table  version  length  encoded row
//!   delete        03  table  version  length  encoded key
//!   change        04  table  version  length  encoded change
//!   operation     05  table  version  length  encoded operation
//! ```
//!
//! A transaction entry precedes the writes of each transaction; it serves to count them. `table`
//! is the table's number in the manifest; `version` orders the writes of one key within an epoch.
//!
//! A change says what has become of some columns of a row, and applies to the row as the writes
//! before it have left it: to that of the greatest lesser version in its epoch, or of the last epoch
//! in which the key was written, be it in the log or in the checkpoint. It is
//!
//! ```text
//!   encoded key   which columns: a bit each, the first column's the lowest of the first byte   their values
//! ```
//!
//! An operation says what was done to a column of a row, and applies to the row as a change does. Any
//! number of operations on a row may have the same version; their order makes no difference. It is
//!
//! ```text
//!   encoded key   the column's position   the kind of the operation, a byte   its operand
//! ```
//!
//! | kind | operation | operand |
//! | --- | --- | --- |
//! | 1 2 3 4 5 6 | add, mul, max, min, or, and | a value of the column's type |
//! | 7 | ordered_put | order, core (4 bytes) and value, as the column holds them |
//! | 8 | top_k_insert | `K`; order, core and value |
//! | 9 | union | the most elements that there may be; a list of elements |
//!
//! A transaction whose operations were applied to rows at once logs changes instead.

use std::fmt;
use std::path::{Path, PathBuf};

use super::backend::File;
use crate::error::StorageError;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"\xf5WFT";

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u16 = 1;

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 64;

/// How large a payload may grow before another frame is begun, in bytes.
pub const PAYLOAD_BYTES: usize = 16 << 20;

/// The longest row, key or change that an entry may hold, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// The longest row that can be stored, in bytes: of a change of all of its columns, the key and the
/// columns together fit into an entry.
pub const STORED_BYTES_MAX: usize = ENTRY_BYTES_MAX / 2 - 1024;

/// Flag: the epoch has no further frames of this logger.
const CLOSES_EPOCH: u8 = 1;

/// Where the fields of a header lie.
mod field {
    pub const VERSION: usize = 4;
    pub const KIND: usize = 6;
    pub const FLAGS: usize = 7;
    pub const LOGGER: usize = 8;
    pub const NUMBER: usize = 12;
    pub const EPOCH: usize = 16;
    pub const PREVIOUS_EPOCH: usize = 24;
    pub const DURABLE_EPOCH: usize = 32;
    pub const POSITION: usize = 40;
    pub const SYNCED: usize = 48;
    pub const PAYLOAD_LENGTH: usize = 56;
    pub const CHECKSUM: usize = 60;
    const _: () = assert!(CHECKSUM + 4 == super::HEADER_BYTES);
}

/// What a frame is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The log.
    Log,
    /// The rows of a checkpoint.
    Rows,
    /// The manifest.
    Manifest,
}

/// What a frame's header says, but for the payload's length and the checksum. The module describes
/// the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub closes_epoch: bool,
    pub logger: u32,
    pub number: u32,
    pub epoch: u64,
    pub previous_epoch: u64,
    pub durable_epoch: u64,
    pub position: u64,
    pub synced: u64,
}

impl FrameHeader {
    /// A header of this kind that lies at `position`, with zeros in it.
    pub fn new(kind: FrameKind, position: u64) -> FrameHeader {
        FrameHeader {
            kind,
            closes_epoch: false,
            logger: 0,
            number: 0,
            epoch: 0,
            previous_epoch: 0,
            durable_epoch: 0,
            position,
            synced: 0,
        }
    }

    /// The header's bytes, in front of this payload.
    fn encode(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            FrameKind::Log => 1,
            FrameKind::Rows => 2,
            FrameKind::Manifest => 3,
        };
        let length = u32::try_from(payload.len()).expect("a payload is far below 4 GiB");
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(field::VERSION, &VERSION.to_le_bytes());
        put(field::KIND, &[kind]);
        put(field::FLAGS, &[if self.closes_epoch { CLOSES_EPOCH } else { 0 }]);
        put(field::LOGGER, &self.logger.to_le_bytes());
        put(field::NUMBER, &self.number.to_le_bytes());
        put(field::EPOCH, &self.epoch.to_le_bytes());
        put(field::PREVIOUS_EPOCH, &self.previous_epoch.to_le_bytes());
        put(field::DURABLE_EPOCH, &self.durable_epoch.to_le_bytes());
        put(field::POSITION, &self.position.to_le_bytes());
        put(field::SYNCED, &self.synced.to_le_bytes());
        put(field::PAYLOAD_LENGTH, &length.to_le_bytes());
        let checksum = checksum(&bytes, payload);
        bytes[field::CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header in front of a payload whose checksum is right.
    fn decode(bytes: &[u8]) -> Result<FrameHeader, String> {
        let kind = match bytes[field::KIND] {
            1 => FrameKind::Log,
            2 => FrameKind::Rows,
            3 => FrameKind::Manifest,
            unknown => return Err(format!("a frame of unknown kind {unknown}")),
        };
        let flags = bytes[field::FLAGS];
        if flags & !CLOSES_EPOCH != 0 {
            return Err(format!("a frame with unknown flags {flags:#04x}"));
        }
        Ok(FrameHeader {
            kind,
            closes_epoch: flags & CLOSES_EPOCH != 0,
            logger: u32_at(bytes, field::LOGGER),
            number: u32_at(bytes, field::NUMBER),
            epoch: u64_at(bytes, field::EPOCH),
            previous_epoch: u64_at(bytes, field::PREVIOUS_EPOCH),
            durable_epoch: u64_at(bytes, field::DURABLE_EPOCH),
            position: u64_at(bytes, field::POSITION),
            synced: u64_at(bytes, field::SYNCED),
        })
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..field::CHECKSUM]), payload)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

// ---- writing frames -------------------------------------------------------------------------

/// Appends a frame to `buffer`. The caller sees to it that the frame comes to lie at the position
/// that the header names.
pub fn write_frame(buffer: &mut Vec<u8>, header: &FrameHeader, payload: &[u8]) {
    buffer.extend_from_slice(&header.encode(payload));
    buffer.extend_from_slice(payload);
}

/// Makes room for a header at the end of `buffer` and returns where it lies, for
/// [`end_frame`]. The payload is to be appended between the two.
pub fn begin_frame(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.resize(start + HEADER_BYTES, 0);
    start
}

/// Ends the frame that [`begin_frame`] began at `start`: its payload is all that was appended
/// since.
pub fn end_frame(buffer: &mut [u8], start: usize, header: &FrameHeader) {
    let (head, payload) = buffer[start..].split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header.encode(payload));
}

// ---- reading frames -------------------------------------------------------------------------

/// What comes next in a file.
#[derive(Debug)]
pub enum Next<'a> {
    /// A valid frame.
    Frame(Frame<'a>),
    /// The file ends here, right behind a frame, or before the first.
    End,
    /// What is here is no valid frame. The reader does not go on behind it.
    Damage(Damage),
}

/// A valid frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header; `position` is where it lies.
    pub header: FrameHeader,
    /// What it holds.
    pub payload: &'a [u8],
}

/// A place in a file that does not read as a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where, in bytes from the start of the file: the end of the last valid frame before.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// Whether a crash may have left it so, see the module. If not, it is damage of what had been
    /// synced.
    pub torn: bool,
    /// The first valid frame after it, if there is one.
    pub follows: Option<FrameHeader>,
}

/// How much of a file is read at a time, at least, in bytes.
const READ_BYTES: usize = 256 << 10;

/// Reads a file's frames in order, one at a time.
#[derive(Debug)]
pub struct FrameReader<'f> {
    file: &'f dyn File,
    path: PathBuf,
    length: u64,
    /// Where the next frame begins.
    position: u64,
    /// A part of the file, and where it lies.
    buffer: Vec<u8>,
    buffer_position: u64,
}

impl<'f> FrameReader<'f> {
    /// Reads `file` from its start to its end as it is now; `path` serves for errors.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn new(file: &'f dyn File, path: &Path) -> Result<FrameReader<'f>, StorageError> {
        let length = file.length().map_err(|error| StorageError::io("measure", path, &error))?;
        let path = path.to_owned();
        Ok(FrameReader { file, path, length, position: 0, buffer: Vec::new(), buffer_position: 0 })
    }

    /// Takes the file for being `length` bytes long, if it is longer.
    pub(super) fn limit(&mut self, length: u64) {
        self.length = self.length.min(length);
    }

    /// Where the next frame begins, in bytes from the start of the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file's length, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Goes on at `position`, where a frame is known to begin.
    pub fn seek(&mut self, position: u64) {
        self.position = position.min(self.length);
    }

    /// The next frame, or why there is none.
    ///
    /// # Errors
    /// [`StorageError::Io`], and [`StorageError::UnknownVersion`] for a frame that is whole, but of
    /// another version.
    #[allow(clippy::should_implement_trait, reason = "it lends")]
    pub fn next(&mut self) -> Result<Next<'_>, StorageError> {
        let offset = self.position;
        if offset == self.length {
            return Ok(Next::End);
        }
        match self.frame_at(offset)? {
            Ok((header, length)) => {
                self.position += length as u64;
                let start = (offset - self.buffer_position) as usize;
                let payload = &self.buffer[start + HEADER_BYTES..start + length];
                Ok(Next::Frame(Frame { header, payload }))
            }
            Err(what) => {
                let (torn, follows) = self.look_behind(offset)?;
                Ok(Next::Damage(Damage { offset, what, torn, follows }))
            }
        }
    }

    /// Brings bytes `offset..offset + needed` of the file into the buffer, and more behind them.
    fn fill(&mut self, offset: u64, needed: usize) -> Result<&[u8], StorageError> {
        let end = self.buffer_position + self.buffer.len() as u64;
        if offset < self.buffer_position || offset + needed as u64 > end {
            let kept = if (self.buffer_position..end).contains(&offset) {
                self.buffer.drain(..(offset - self.buffer_position) as usize);
                self.buffer.len()
            } else {
                0
            };
            let wanted = (needed.max(READ_BYTES) as u64).min(self.length - offset) as usize;
            self.buffer.resize(wanted, 0);
            self.buffer_position = offset;
            let read = self
                .file
                .read_at(&mut self.buffer[kept..], offset + kept as u64)
                .map_err(|error| StorageError::io("read", &self.path, &error))?;
            if kept + read < wanted {
                self.buffer.clear();
                return Err(StorageError::Io {
                    operation: "read",
                    path: self.path.clone(),
                    message: "the file became shorter meanwhile".to_owned(),
                });
            }
        }
        let start = (offset - self.buffer_position) as usize;
        Ok(&self.buffer[start..start + needed])
    }

    /// The frame at `offset`, which lies in the buffer then: its header, and its length; or what is
    /// wrong.
    fn frame_at(
        &mut self,
        offset: u64,
    ) -> Result<Result<(FrameHeader, usize), String>, StorageError> {
        let remaining = self.length - offset;
        if remaining < HEADER_BYTES as u64 {
            return Ok(Err(format!("{remaining} bytes, less than the header of a frame")));
        }
        let header = self.fill(offset, HEADER_BYTES)?;
        if header[..MAGIC.len()] != MAGIC {
            return Ok(Err("no frame begins here".to_owned()));
        }
        let length = HEADER_BYTES as u64 + u64::from(u32_at(header, field::PAYLOAD_LENGTH));
        if length > remaining {
            return Ok(Err(format!(
                "a frame of {length} bytes, of which the file has {remaining}"
            )));
        }
        let frame = self.fill(offset, length as usize)?;
        let (header, payload) = frame.split_at(HEADER_BYTES);
        let (stored, computed) = (u32_at(header, field::CHECKSUM), checksum(header, payload));
        if stored != computed {
            return Ok(Err(format!(
                "a frame of {length} bytes whose checksum is {computed:08x} instead of {stored:08x}"
            )));
        }
        let version = u16::from_le_bytes([header[field::VERSION], header[field::VERSION + 1]]);
        if version != VERSION {
            let path = self.path.clone();
            return Err(StorageError::UnknownVersion { path, version: version.into() });
        }
        Ok(FrameHeader::decode(header).and_then(|header| {
            if header.position == offset {
                Ok((header, length as usize))
            } else {
                Err(format!("a frame that was written for byte {}", header.position))
            }
        }))
    }

    /// Whether the bad place at `offset` can be a torn tail, and the first valid frame behind it.
    fn look_behind(&mut self, offset: u64) -> Result<(bool, Option<FrameHeader>), StorageError> {
        let mut follows = None;
        let mut position = offset + 1;
        while self.length - position >= HEADER_BYTES as u64 {
            let available = (READ_BYTES as u64).min(self.length - position) as usize;
            let window = self.fill(position, available)?;
            let Some(found) = window.windows(MAGIC.len()).position(|bytes| bytes == MAGIC) else {
                // A magic may straddle the end of the window.
                position += (available - MAGIC.len() + 1) as u64;
                continue;
            };
            position += found as u64;
            match self.frame_at(position)? {
                Ok((header, length)) => {
                    follows.get_or_insert(header);
                    if header.synced > offset {
                        return Ok((false, follows));
                    }
                    position += length as u64;
                }
                Err(_) => position += 1,
            }
        }
        Ok((true, follows))
    }
}

// ---- entries --------------------------------------------------------------------------------

const TRANSACTION: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const CHANGE: u8 = 4;
const OPERATION: u8 = 5;

/// Bytes that are left for an entry's length before it is known; longer ones make way. Two bytes
/// are enough for what rows usually take.
const LENGTH_BYTES: usize = 2;

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A transaction's writes follow.
    Transaction,
    /// One of them.
    Write(LogWrite<'a>),
}

/// What a transaction has done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWrite<'a> {
    /// What that is.
    pub kind: WriteKind,
    /// The table's number in the manifest.
    pub table: u32,
    /// Orders the writes of one key within an epoch.
    pub version: u64,
    /// The encoded row, key or change.
    pub bytes: &'a [u8],
}

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// A row was inserted, or replaced the one with its key.
    Put,
    /// A row was deleted.
    Delete,
    /// Columns of a row were changed.
    Change,
    /// A commutative operation was applied to a column.
    Operation,
}

/// Appends the entry that precedes the writes of a transaction.
#[inline]
pub fn push_transaction(buffer: &mut Vec<u8>) {
    buffer.push(TRANSACTION);
}

/// Appends the entry of a write; `write` appends the encoded row, key or change.
///
/// # Panics
/// If that takes more than 1 GiB.
#[inline]
pub fn push_write(
    buffer: &mut Vec<u8>,
    kind: WriteKind,
    table: u32,
    version: u64,
    write: impl FnOnce(&mut Vec<u8>),
) {
    buffer.push(match kind {
        WriteKind::Put => PUT,
        WriteKind::Delete => DELETE,
        WriteKind::Change => CHANGE,
        WriteKind::Operation => OPERATION,
    });
    push_number(buffer, table.into());
    push_number(buffer, version);
    let start = buffer.len();
    buffer.extend_from_slice(&[0; LENGTH_BYTES]);
    write(buffer);
    let length = buffer.len() - start - LENGTH_BYTES;
    if length < 1 << 14 {
        buffer[start] = length as u8 | 0x80;
        buffer[start + 1] = (length >> 7) as u8;
    } else {
        assert!(length <= ENTRY_BYTES_MAX, "a row of {length} bytes is too long for the log");
        let mut bytes = Vec::new();
        push_number(&mut bytes, length as u64);
        buffer.splice(start..start + LENGTH_BYTES, bytes);
    }
}

/// Appends a number as LEB128: seven bits to a byte, the lowest first, and the highest bit of a
/// byte set if another follows.
#[inline]
pub fn push_number(buffer: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        buffer.push(number as u8 | 0x80);
        number >>= 7;
    }
    buffer.push(number as u8);
}

/// Takes a LEB128 number off the front of `bytes`; none if there is no whole one of 64 bits. Zeros
/// above the highest bit are allowed.
#[inline]
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Why a payload does not read as entries, though its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// Where the bad entry begins, in bytes from the start of the payload.
    pub offset: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for EntryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at byte {} of the payload", self.what, self.offset)
    }
}

/// The entries of a payload, in order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    payload: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// The entries of a log frame's payload.
    pub fn new(payload: &'a [u8]) -> Entries<'a> {
        Entries { payload, rest: payload }
    }

    /// Where the next entry begins, in bytes from the start of the payload.
    pub fn offset(&self) -> usize {
        self.payload.len() - self.rest.len()
    }

    fn take(&mut self) -> Result<Entry<'a>, &'static str> {
        let (&kind, rest) = self.rest.split_first().ok_or("nothing")?;
        self.rest = rest;
        let kind = match kind {
            TRANSACTION => return Ok(Entry::Transaction),
            PUT => WriteKind::Put,
            DELETE => WriteKind::Delete,
            CHANGE => WriteKind::Change,
            OPERATION => WriteKind::Operation,
            _ => return Err("an entry of unknown kind"),
        };
        let table = take_number(&mut self.rest).ok_or("a cut table number")?;
        let table = u32::try_from(table).map_err(|_| "a table number beyond 32 bits")?;
        let version = take_number(&mut self.rest).ok_or("a cut version")?;
        let length = take_number(&mut self.rest).ok_or("a cut length")?;
        let length = usize::try_from(length).map_err(|_| "a length beyond the payload")?;
        let (bytes, rest) =
            self.rest.split_at_checked(length).ok_or("a length beyond the payload")?;
        self.rest = rest;
        Ok(Entry::Write(LogWrite { kind, table, version, bytes }))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let offset = self.offset();
        Some(self.take().map_err(|what| {
            self.rest = &[];
            EntryError { offset, what }
        }))
    }
}

// ---- names ----------------------------------------------------------------------------------

/// The name of a segment of the log. Sequence numbers begin at 1.
pub fn segment_name(logger: u32, sequence: u64) -> String {
    format!("{logger}-{sequence:010}.log")
}

/// The logger and the sequence number of the segment with this name; none if no segment has it.
pub fn parse_segment_name(name: &str) -> Option<(u32, u64)> {
    let (logger, sequence) = name.strip_suffix(".log")?.split_once('-')?;
    let (logger, sequence) = (logger.parse().ok()?, sequence.parse().ok()?);
    (segment_name(logger, sequence) == name).then_some((logger, sequence))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
