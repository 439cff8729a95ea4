//! Writing a dump.

use std::io::Write;
use std::path::Path;

use snap::raw::Encoder;
use weft::column::ColumnValue;
use weft::durability::format::push_number;
use weft::durability::{CheckpointSource, Manifest, StorageError};
use weft::protocol::Protocol;
use weft::{Database, Failure};

use super::{BLOCK_BYTES, DumpReport, MAGIC, VERSION, checksum, kind};
use crate::progress::Progress;

/// Writes a dump of a database as it is now, with the tables and columns that the program does not have. Transactions
/// can run at the same time, but no checkpoint is written. Errors call the file `name`. The writer need not be
/// buffered. Keeps a block of rows in memory. Calls `progress` after every block.
///
/// The dump is complete when this returns. Sync the file, and rename it if it replaces another one.
///
/// ```
/// use weft::durability::FileSystem;
/// use weft::{Database, Record};
/// use weft_exchange::{DumpReader, dump, restore_dump};
///
/// #[derive(Clone, Record)]
/// struct Seat { #[record(key)] number: u16, taken_by: Option<String> }
///
/// # let parent = std::env::temp_dir().join(format!("weft-dump-{}", std::process::id()));
/// # std::fs::create_dir_all(&parent)?;
/// # let (directory, copy) = (parent.join("seats.weft"), parent.join("copy.weft"));
/// let database = Database::builder().table::<Seat>().directory(&directory).open()?;
/// let seats = database.table::<Seat>()?;
/// database.transact(|tx| tx.insert(&seats, Seat { number: 1, taken_by: Some("Ada".into()) }))?;
///
/// let mut file = Vec::new();
/// let report = dump(&database, "seats.dump".as_ref(), &mut file, |_| ())?;
/// assert_eq!(report.tables, [("seat".to_owned(), 1)]);
///
/// let reader = DumpReader::new("seats.dump".as_ref(), &file[..])?;
/// restore_dump(reader, &FileSystem, &copy)?;
/// let restored = Database::builder().table::<Seat>().directory(&copy).open()?;
/// # drop((database, restored));
/// # std::fs::remove_dir_all(&parent)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of [`Database::read_stored`], and [`Failure::Storage`] if the writer fails.
pub fn dump<P: Protocol, W: Write>(
    database: &Database<P>,
    name: &Path,
    writer: W,
    progress: impl FnMut(Progress),
) -> Result<DumpReport, Failure> {
    database.read_stored(|manifest, source| write_dump(manifest, source, name, writer, progress))
}

/// Writes a dump of the current tables of `manifest`, with the rows that `source` has. See [`dump`].
///
/// # Errors
/// Those of `source`. [`StorageError::DiskFull`] and [`StorageError::Io`] if the writer fails.
pub fn write_dump<W: Write>(
    manifest: &Manifest,
    source: &dyn CheckpointSource,
    name: &Path,
    writer: W,
    progress: impl FnMut(Progress),
) -> Result<DumpReport, StorageError> {
    let numbers = manifest.current_tables();
    let mut writer = BlockWriter {
        writer,
        name,
        progress,
        payload: Vec::new(),
        encoder: Encoder::new(),
        blocks: 0,
        rows: 0,
        bytes: 0,
    };
    writer.put(&[&MAGIC[..], &VERSION.to_le_bytes()].concat())?;
    (source.epoch(), manifest.schema, manifest.oldest_schema).write(&mut writer.payload);
    push_number(&mut writer.payload, numbers.len() as u64);
    let descriptions = numbers.iter().map(|&number| &manifest.tables[number as usize]);
    descriptions.clone().for_each(|table| table.write(&mut writer.payload));
    writer.end_block(kind::TABLES)?;

    let mut rows = Vec::with_capacity(numbers.len());
    for (position, &number) in (0..).zip(&numbers) {
        let rows_before = writer.rows;
        source.rows(number, 0, 1, &mut |row| {
            if !writer.payload.is_empty() && writer.payload.len() + row.len() > BLOCK_BYTES {
                writer.end_block(kind::ROWS)?;
            }
            if writer.payload.is_empty() {
                push_number(&mut writer.payload, position);
            }
            push_number(&mut writer.payload, row.len() as u64);
            writer.payload.extend_from_slice(row);
            writer.rows += 1;
            Ok(())
        })?;
        if !writer.payload.is_empty() {
            writer.end_block(kind::ROWS)?;
        }
        rows.push(writer.rows - rows_before);
    }
    rows.iter().for_each(|&rows| push_number(&mut writer.payload, rows));
    writer.end_block(kind::END)?;
    writer.writer.flush().map_err(|error| StorageError::io("write", name, &error))?;
    let names = descriptions.map(|table| table.name.clone());
    Ok(DumpReport { epoch: source.epoch(), tables: names.zip(rows).collect(), bytes: writer.bytes })
}

struct BlockWriter<'a, W, F> {
    writer: W,
    name: &'a Path,
    progress: F,
    /// The payload that is being filled.
    payload: Vec<u8>,
    encoder: Encoder,
    blocks: u64,
    rows: u64,
    bytes: u64,
}

impl<W: Write, F: FnMut(Progress)> BlockWriter<'_, W, F> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.bytes += bytes.len() as u64;
        let written = self.writer.write_all(bytes);
        written.map_err(|error| StorageError::io("write", self.name, &error))
    }

    fn end_block(&mut self, kind: u8) -> Result<(), StorageError> {
        // A block has one long row at most, and no row is longer than `STORED_BYTES_MAX`.
        let compressed = self.encoder.compress_vec(&self.payload).expect("a block is not too long");
        let length = u32::try_from(compressed.len()).expect("a block is not too long");
        self.payload.clear();
        let mut header = vec![kind];
        header.extend_from_slice(&length.to_le_bytes());
        let checksum = checksum(self.blocks, &header, &compressed);
        self.put(&[&checksum.to_le_bytes()[..], &header, &compressed].concat())?;
        self.blocks += 1;
        (self.progress)(Progress { rows: self.rows, bytes: self.bytes, bytes_total: None });
        Ok(())
    }
}
