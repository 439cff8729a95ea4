//! The format of a database's files: frames, and the entries in the frames of the log.
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
//!      8      4    logger          the one that wrote it; rows: the part of the checkpoint
//!     12      4    number          of the frame, from 0, within its epoch; rows: within its file
//!     16      8    epoch           in which the payload's transactions committed
//!     24      8    previous epoch  the last epoch that this logger closed before this one
//!     32      8    durable epoch   an epoch that was durable when the frame was written
//!     40      8    position        of the frame's beginning in the file
//!     48      8    synced          how far the file was synced when the frame was written
//!     56      4    payload length  in bytes
//!     60      4    checksum        CRC-32C of bytes 0..60 and of the payload
//!     64           payload
//! ```
//!
//! A later version may change anything but the places of the magic, the version, the payload length
//! and the checksum. So a newer file can be distinguished from a damaged one.
//!
//! # The log
//!
//! A logger writes the frames of one epoch together, as its *group*. Their payloads have at most
//! [`PAYLOAD_BYTES`] (more only if a single entry is longer). The last frame has the flag that
//! closes the epoch. A group lies in one segment. Whenever one logger has something to write in an
//! epoch, all loggers write a group, which may be one closing frame without a payload. Then all of
//! them sync. Only when all have done so is the epoch durable and the next one written.
//!
//! An epoch without writes has no frames, except that the first such epoch after others is closed
//! by an empty group, a *note*. The note says that the epochs before it are durable. It is synced
//! with what is written next.
//!
//! So the log is complete if, for each logger, the groups follow each other by `previous epoch`,
//! and recovery has reached the greatest `durable epoch` of any valid frame. The first group after
//! the database was opened has the recovered epoch in both fields.
//!
//! A segment may end in zeros, which its logger has reserved and not written into yet. It then ends before them, behind its
//! last frame. When a logger has left a segment, or the log has ended, they are cut off.
//!
//! # Torn tails
//!
//! What was written but not yet synced when the power failed may be there in part, sector by
//! sector. This concerns the last group of a segment (and a note before it), which was not
//! acknowledged as durable. Anything else that does not read as a frame is damage. The field
//! `synced` distinguishes the two: if a valid frame follows after the bad place, and was written
//! after the bad place had been synced, then no crash can have made it bad. A frame is valid only
//! at the position that it names, so a copy of a frame inside a row is not a frame.
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
//!   time          06  milliseconds since 1970
//! ```
//!
//! A time entry is the time of transactions in this epoch or later ones. After a restart the time is not before the
//! greatest one in the log.
//!
//! A transaction entry precedes the writes of each transaction. A procedure that commits in pieces has one for all of
//! its pieces, which lie in the same epoch.
//! `table` is the table's number in the manifest. `version` orders the writes of one key within an
//! epoch.
//!
//! A change gives new values to some columns of a row. It applies to the row as the previous write
//! has left it. This is the write with the greatest lesser version in the same epoch, or the last
//! one in the last earlier epoch in which the key was written, in the log or in the checkpoint. A
//! change consists of
//!
//! ```text
//!   encoded key   which columns: a bit each, the first column's the lowest of the first byte   their values
//! ```
//!
//! An operation says what was done to a column of a row. It applies to the row as a change does.
//! Any number of operations on a row may have the same version, because their order makes no
//! difference, as long as those of one worker keep theirs. An operation consists of
//!
//! ```text
//!   encoded key   the column's position   the kind of the operation, a byte   its operand
//! ```
//!
//! | kind | operation | operand |
//! | --- | --- | --- |
//! | 1 2 3 4 5 6 | add, mul, max, min, or, and | a value of the column's type |
//! | 7 | ordered_put | order, value and stamp (8 bytes), as the column holds them |
//! | 8 | top_k_insert | `K`; 1 if a value has one entry, else 0; order, value and stamp |
//! | 9 | union | the greatest number of elements; a list of elements |
//! | 10 | take | a value of the column's type |
//!
//! A transaction whose operations were applied directly to rows logs changes instead.

use std::fmt;
use std::path::{Path, PathBuf};

use super::backend::File;
use crate::error::StorageError;

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"\xf5WFT";

/// The version of the format that is written. It is also the only one that is read.
pub const VERSION: u16 = 1;

/// The length of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 64;

/// The size of a payload at which another frame is begun, in bytes.
pub const PAYLOAD_BYTES: usize = 16 << 20;

/// The longest row, key or change that an entry may hold, in bytes.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// The longest row that can be stored, in bytes. For a change of all of its columns, the key and
/// the columns together still fit in an entry.
pub const STORED_BYTES_MAX: usize = ENTRY_BYTES_MAX / 2 - 1024;

/// Flag: this is the logger's last frame in the epoch.
const CLOSES_EPOCH: u8 = 1;

/// The offsets of a header's fields.
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

/// What a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The log.
    Log,
    /// The rows of a checkpoint.
    Rows,
    /// The manifest.
    Manifest,
}

/// The header of a frame, without the payload's length and the checksum. The module describes the
/// fields.
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
    /// Returns a header of this kind for `position`. The other fields are zero.
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

    /// Returns the header's bytes, to stand before this payload.
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

    /// Reads the header of a frame whose checksum is right.
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

/// Appends a frame to `buffer`. The caller must write the frame to the position that the header
/// names.
pub fn write_frame(buffer: &mut Vec<u8>, header: &FrameHeader, payload: &[u8]) {
    buffer.extend_from_slice(&header.encode(payload));
    buffer.extend_from_slice(payload);
}

/// Makes room for a header at the end of `buffer`. Returns its place in the buffer, for
/// [`end_frame`]. The caller appends the payload between the two calls.
pub fn begin_frame(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.resize(start + HEADER_BYTES, 0);
    start
}

/// Ends the frame that [`begin_frame`] began at `start`. Its payload is everything that was
/// appended since.
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
    /// The end of the file, after a frame or before the first one.
    End,
    /// The bytes here are not a valid frame. The reader does not advance past them.
    Damage(Damage),
}

/// A valid frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header. The field `position` is its place in the file.
    pub header: FrameHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

/// A place in a file that does not read as a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The position in bytes from the start of the file: the end of the last valid frame before it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// Whether a crash may have left this (see the module). If not, something is damaged that had
    /// been synced.
    pub torn: bool,
    /// The first valid frame after it, if there is one.
    pub follows: Option<FrameHeader>,
}

/// How much of a file is read at a time at least, in bytes.
const READ_BYTES: usize = 256 << 10;

/// Reads a file's frames in order, one at a time.
#[derive(Debug)]
pub struct FrameReader<'f> {
    file: &'f dyn File,
    path: PathBuf,
    length: u64,
    /// The position of the next frame.
    position: u64,
    /// A part of the file. It begins at `buffer_position` in the file.
    buffer: Vec<u8>,
    buffer_position: u64,
}

impl<'f> FrameReader<'f> {
    /// Returns a reader of `file`, from its start to its present end. `path` serves for errors.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn new(file: &'f dyn File, path: &Path) -> Result<FrameReader<'f>, StorageError> {
        let length = file.length().map_err(|error| StorageError::io("measure", path, &error))?;
        let path = path.to_owned();
        Ok(FrameReader { file, path, length, position: 0, buffer: Vec::new(), buffer_position: 0 })
    }

    /// Treats the file as if it were only `length` bytes long.
    pub fn limit(&mut self, length: u64) {
        self.length = self.length.min(length);
    }

    /// Returns the position of the next frame, in bytes from the start of the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the file's length, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Continues at `position`, at which a frame must begin.
    pub fn seek(&mut self, position: u64) {
        self.position = position.min(self.length);
    }

    /// Reads the next frame, or returns why there isn't one.
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

    /// Reads bytes `offset..offset + needed` of the file into the buffer, and more after them. The file may have become shorter: the
    /// log of an open database cuts off zeros that it has reserved.
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
                self.length = offset + (kept + read) as u64;
                self.buffer.truncate(kept + read);
            }
            if self.buffer.len() < needed {
                self.buffer.clear();
                return Err(StorageError::Io {
                    operation: "read",
                    path: self.path.clone(),
                    message: "the file became shorter while it was read".to_owned(),
                });
            }
        }
        let start = (offset - self.buffer_position) as usize;
        Ok(&self.buffer[start..start + needed])
    }

    /// Reads the frame at `offset` into the buffer. Returns its header and its length, or what is
    /// wrong with it.
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

    /// Returns whether the bad place at `offset` can be a torn tail, and the first valid frame
    /// after it.
    fn look_behind(&mut self, offset: u64) -> Result<(bool, Option<FrameHeader>), StorageError> {
        let mut follows = None;
        let mut position = offset + 1;
        while self.length.saturating_sub(position) >= HEADER_BYTES as u64 {
            let length = self.length;
            let available = (READ_BYTES as u64).min(length - position) as usize;
            let window = self.fill(position, available);
            let found =
                window.map(|window| window.windows(MAGIC.len()).position(|bytes| bytes == MAGIC));
            if self.length < length {
                continue; // The file has become shorter.
            }
            let Some(found) = found? else {
                // A magic may straddle the end of the window.
                position += (available - MAGIC.len() + 1) as u64;
                continue;
            };
            position += found as u64;
            let frame = self.frame_at(position);
            if self.length < length {
                continue;
            }
            match frame? {
                Ok((header, length)) => {
                    follows.get_or_insert(header);
                    // This frame was written after the bad place had been synced, so no crash has
                    // made it bad.
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
const TIME: u8 = 6;

/// Bytes that are reserved for an entry's length before it is known. A longer length is inserted
/// afterwards. Two bytes are enough for most rows.
const LENGTH_BYTES: usize = 2;

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEntry<'a> {
    /// The beginning of a transaction, whose writes follow.
    Transaction,
    /// A write of the transaction.
    Write(LogWrite<'a>),
    /// The time of transactions, in milliseconds since 1970.
    Time(u64),
}

/// What a transaction did to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWrite<'a> {
    /// The kind of the write.
    pub kind: WriteKind,
    /// The table's number in the manifest.
    pub table: u32,
    /// A number that orders the writes of one key within an epoch.
    pub version: u64,
    /// The encoded row, key, change or operation.
    pub bytes: &'a [u8],
}

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// A row was inserted, or replaced the row with its key.
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

/// Appends a time, in milliseconds since 1970.
pub fn push_time(buffer: &mut Vec<u8>, time: u64) {
    buffer.push(TIME);
    push_number(buffer, time);
}

/// Appends the entry of a write. `write` appends the encoded row, key, change or operation.
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
    // A length below 2^14 fits in the reserved bytes.
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

/// Takes a LEB128 number off the front of `bytes`. Returns `None` if there is no complete number of
/// 64 bits. Zeros above the highest bit are allowed.
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

/// Why a payload does not read as entries, although its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// The beginning of the bad entry, in bytes from the start of the payload.
    pub offset: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for EntryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at byte {} of the payload", self.what, self.offset)
    }
}

/// An iterator over the entries of a payload, in order. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    payload: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Returns an iterator over the entries of a log frame's payload.
    pub fn new(payload: &'a [u8]) -> Entries<'a> {
        Entries { payload, rest: payload }
    }

    /// Returns the beginning of the next entry, in bytes from the start of the payload.
    pub fn offset(&self) -> usize {
        self.payload.len() - self.rest.len()
    }

    fn take(&mut self) -> Result<LogEntry<'a>, &'static str> {
        let (&kind, rest) = self.rest.split_first().ok_or("nothing")?;
        self.rest = rest;
        let kind = match kind {
            TRANSACTION => return Ok(LogEntry::Transaction),
            PUT => WriteKind::Put,
            DELETE => WriteKind::Delete,
            CHANGE => WriteKind::Change,
            OPERATION => WriteKind::Operation,
            TIME => {
                let time = take_number(&mut self.rest).ok_or("an incomplete time")?;
                return Ok(LogEntry::Time(time));
            }
            _ => return Err("an entry of unknown kind"),
        };
        let table = take_number(&mut self.rest).ok_or("an incomplete table number")?;
        let table = u32::try_from(table).map_err(|_| "a table number beyond 32 bits")?;
        let version = take_number(&mut self.rest).ok_or("an incomplete version")?;
        let length = take_number(&mut self.rest).ok_or("an incomplete length")?;
        let length = usize::try_from(length).map_err(|_| "a length beyond the payload")?;
        let (bytes, rest) =
            self.rest.split_at_checked(length).ok_or("a length beyond the payload")?;
        self.rest = rest;
        Ok(LogEntry::Write(LogWrite { kind, table, version, bytes }))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<LogEntry<'a>, EntryError>;

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

/// Returns the name of a segment of the log. Sequence numbers begin at 1.
pub fn segment_name(logger: u32, sequence: u64) -> String {
    format!("{logger}-{sequence:010}.log")
}

/// Returns the logger and the sequence number of the segment with this name; `None` if it is not
/// the name of one.
pub fn parse_segment_name(name: &str) -> Option<(u32, u64)> {
    let (logger, sequence) = name.strip_suffix(".log")?.split_once('-')?;
    let (logger, sequence) = (logger.parse().ok()?, sequence.parse().ok()?);
    (segment_name(logger, sequence) == name).then_some((logger, sequence))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
