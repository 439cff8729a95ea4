//! Reading a dump.

use std::io::{Read, Take};
use std::path::{Path, PathBuf};

use snap::raw::{Decoder, decompress_len};
use weft::column::{ColumnValue, DecodeError};
use weft::description::TableDescription;
use weft::durability::StorageError;
use weft::durability::format::take_number;

use super::{BLOCK_HEADER_BYTES, DumpReport, MAGIC, VERSION, checksum, kind};
use crate::progress::{Listener, Progress};

/// A block that claims to expand by more than this factor is damaged: Snappy's shortest element is three bytes for 64.
const EXPANSION_MAX: usize = 22;

/// Reads a dump, row by row, without the Rust types of the rows. Keeps one block in memory.
///
/// Every checksum and every row is checked. Whatever bytes a file has, reading ends with valid rows or an error. If
/// [`DumpReader::next_row`] has returned `None`, the dump is whole.
pub struct DumpReader<'a, R> {
    input: R,
    name: PathBuf,
    listener: Listener<'a>,
    epoch: u64,
    /// The version of the schema, and that of the oldest programs that may open it.
    versions: (u32, u32),
    tables: Vec<TableDescription>,
    /// How many rows of each table were read.
    rows: Vec<u64>,
    /// The payload of the present block, and how much of it was read.
    payload: Vec<u8>,
    position: usize,
    /// The table of the present block.
    table: usize,
    blocks: u64,
    /// The place where the present block begins, and where it ends.
    block_start: u64,
    block_end: u64,
    is_ended: bool,
}

impl<'a, R: Read> DumpReader<'a, R> {
    /// Reads the descriptions of the tables. Errors call the file `name`. The input need not be buffered.
    ///
    /// # Errors
    /// [`StorageError::Io`]; [`StorageError::Damaged`], also if the file is no dump; [`StorageError::UnknownVersion`].
    pub fn new(name: &Path, mut input: R) -> Result<Self, StorageError> {
        let mut start = Vec::new();
        let length = MAGIC.len() + 4;
        read_up_to(input.by_ref().take(length as u64), &mut start, name)?;
        let Some(version) = start.strip_prefix(&MAGIC) else {
            return Err(StorageError::damaged(name, 0, "it does not begin as a dump does"));
        };
        let Ok(version) = version.try_into().map(u32::from_le_bytes) else {
            return Err(StorageError::damaged(name, 8, "the file ends, and was cut off"));
        };
        if !(1..=VERSION).contains(&version) {
            return Err(StorageError::UnknownVersion { path: name.to_owned(), version });
        }
        let mut reader = DumpReader {
            input,
            name: name.to_owned(),
            listener: Listener::none(),
            epoch: 0,
            versions: (0, 0),
            tables: Vec::new(),
            rows: Vec::new(),
            payload: Vec::new(),
            position: 0,
            table: 0,
            blocks: 0,
            block_start: 0,
            block_end: length as u64,
            is_ended: false,
        };
        if reader.next_block()? != kind::TABLES {
            return Err(reader.damaged("the descriptions of the tables are missing"));
        }
        let described = read_tables(version, &mut &reader.payload[..]);
        (reader.epoch, reader.versions, reader.tables) = described.map_err(|error| {
            reader.damaged(format!("the descriptions of the tables cannot be read: {error}"))
        })?;
        reader.rows = vec![0; reader.tables.len()];
        reader.position = reader.payload.len();
        Ok(reader)
    }

    /// Calls `callback` after every block, and at the end.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(Progress) + Send + 'a) -> Self {
        self.listener = Listener::new(callback);
        self
    }

    /// Returns the tables.
    pub fn tables(&self) -> &[TableDescription] {
        &self.tables
    }

    /// Returns the [version of the schema](weft::Builder::version), and that of the oldest programs that may open it.
    pub fn versions(&self) -> (u32, u32) {
        self.versions
    }

    /// Returns what was read so far, and at the end what the dump holds.
    pub fn report(&self) -> DumpReport {
        let names = self.tables.iter().map(|table| table.name.clone());
        let tables = names.zip(self.rows.iter().copied()).collect();
        DumpReport { epoch: self.epoch, tables, bytes: self.block_end }
    }

    /// Replaces the contents of `row` by the next row, encoded as by [`weft::Record::encode_row`], and returns the
    /// position of its table. Rows come table by table. Returns `None` at the end.
    ///
    /// # Errors
    /// [`StorageError::Io`], and [`StorageError::Damaged`] with the place.
    pub fn next_row(&mut self, row: &mut Vec<u8>) -> Result<Option<usize>, StorageError> {
        while self.position == self.payload.len() {
            if self.is_ended {
                return Ok(None);
            }
            self.begin_block()?;
        }
        let mut rest = &self.payload[self.position..];
        let length = take_number(&mut rest).and_then(|length| usize::try_from(length).ok());
        let Some(found) = length.and_then(|length| rest.split_off(..length)) else {
            return Err(self.damaged("a row is incomplete"));
        };
        let table = &self.tables[self.table];
        if let Err(error) = table.read_row(found) {
            let what = format!("a row of table `{}` cannot be read: {error}", table.name);
            return Err(self.damaged(what));
        }
        row.clear();
        row.extend_from_slice(found);
        self.position = self.payload.len() - rest.len();
        self.rows[self.table] += 1;
        Ok(Some(self.table))
    }

    /// Reads the next block of rows, or the end.
    fn begin_block(&mut self) -> Result<(), StorageError> {
        let kind = self.next_block()?;
        let mut rest = &self.payload[..];
        match kind {
            kind::ROWS => {
                let table = take_number(&mut rest).and_then(|table| usize::try_from(table).ok());
                self.table = match table {
                    Some(table) if (self.table..self.tables.len()).contains(&table) => table,
                    _ => return Err(self.damaged("its rows are of an unexpected table")),
                };
                self.position = self.payload.len() - rest.len();
            }
            kind::END => {
                let is_whole = self.rows.iter().all(|&rows| take_number(&mut rest) == Some(rows));
                if !is_whole || !rest.is_empty() {
                    return Err(self.damaged("there were more rows, or fewer, when it was written"));
                }
                let mut more = [0];
                let read = self.input.read(&mut more);
                if read.map_err(|error| StorageError::io("read", &self.name, &error))? > 0 {
                    self.block_start = self.block_end;
                    return Err(self.damaged("more bytes follow after the end"));
                }
                self.position = self.payload.len();
                self.is_ended = true;
            }
            _ => return Err(self.damaged("a block of an unexpected kind")),
        }
        let rows = self.rows.iter().sum();
        self.listener.tell(Progress { rows, bytes: self.block_end, bytes_total: None });
        Ok(())
    }

    /// Reads a block, checks it, and returns its kind.
    fn next_block(&mut self) -> Result<u8, StorageError> {
        self.block_start = self.block_end;
        let cut_off = "the file ends here, in the middle of the dump: it was cut off";
        let mut header = Vec::new();
        let name = &self.name;
        read_up_to(self.input.by_ref().take(BLOCK_HEADER_BYTES as u64), &mut header, name)?;
        let Some((stored, kind_and_length)) = header.split_first_chunk::<4>() else {
            return Err(self.damaged(cut_off));
        };
        let Ok([kind, length @ ..]) = <[u8; 5]>::try_from(kind_and_length) else {
            return Err(self.damaged(cut_off));
        };
        let length = u32::from_le_bytes(length);
        let mut compressed = Vec::new();
        read_up_to(self.input.by_ref().take(length.into()), &mut compressed, name)?;
        if compressed.len() < length as usize {
            return Err(self.damaged(cut_off));
        }
        let (expected, found) =
            (u32::from_le_bytes(*stored), checksum(self.blocks, kind_and_length, &compressed));
        if found != expected {
            return Err(self.damaged(format!(
                "the block has checksum {found:08x}, and had {expected:08x} when it was written"
            )));
        }
        // A length that is not plausible must not be allocated.
        let is_plausible = decompress_len(&compressed)
            .is_ok_and(|length| length <= compressed.len().saturating_mul(EXPANSION_MAX));
        let payload = is_plausible.then(|| Decoder::new().decompress_vec(&compressed).ok());
        let Some(payload) = payload.flatten() else {
            return Err(self.damaged("the block cannot be decompressed"));
        };
        self.payload = payload;
        self.blocks += 1;
        self.block_end += BLOCK_HEADER_BYTES as u64 + u64::from(length);
        Ok(kind)
    }

    /// Returns the error for damage in the present block.
    #[cold]
    fn damaged(&self, what: impl std::fmt::Display) -> StorageError {
        StorageError::damaged(&self.name, self.block_start, what)
    }
}

/// Reads as many bytes as there are, up to the input's limit.
fn read_up_to<R: Read>(
    mut input: Take<R>,
    output: &mut Vec<u8>,
    name: &Path,
) -> Result<(), StorageError> {
    let read = input.read_to_end(output);
    read.map(drop).map_err(|error| StorageError::io("read", name, &error))
}

/// What precedes the rows: the epoch, the versions of the schema, and the tables.
type Described = (u64, (u32, u32), Vec<TableDescription>);

fn read_tables(version: u32, input: &mut &[u8]) -> Result<Described, DecodeError> {
    let (epoch, versions) = ColumnValue::read(input)?;
    let length = take_number(input).unwrap_or_default();
    let mut tables: Vec<TableDescription> = Vec::new();
    for _ in 0..length {
        let start = *input;
        let table = TableDescription::read_form(version + 1, input)?;
        if tables.iter().any(|other| other.name == table.name) {
            return Err(DecodeError::new(start, format!("two tables are named `{}`", table.name)));
        }
        tables.push(table);
    }
    match input.is_empty() {
        true => Ok((epoch, versions, tables)),
        false => Err(DecodeError::new(input, "more bytes follow")),
    }
}
