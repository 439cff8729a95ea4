//! The reader of Arrow IPC files.
//!
//! ```text
//!   ARROW1  padding  schema  blocks: dictionaries, record batches  footer  its length  ARROW1
//! ```
//!
//! The footer says where each block is. The library's own reader of files trusts the footer, and allocates as
//! much as it says. This reader fetches the block through [`RandomAccess`] first, which checks its bounds.

use std::io::{Read, Seek};
use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::{Block, convert, root_as_footer, root_as_message};
use arrow_schema::ArrowError;
use weft::description::TableDescription;

use super::RowReader;
use super::random_access::RandomAccess;
use crate::error::FilePlace;
use crate::source::{Fault, RowSource, guarded};

/// The size of the footer's length and of the magic bytes.
const TRAILER_BYTES: u64 = 10;

/// Reads a table's rows.
pub struct IpcSource<R> {
    file: RandomAccess<R>,
    decoder: FileDecoder,
    /// The record batches that are still to be read, the next one last.
    blocks: Vec<Block>,
    reader: RowReader,
}

impl<R: Read + Seek> IpcSource<R> {
    /// Reads the footer and the dictionaries.
    pub fn new(table: TableDescription, file: R) -> Result<Self, Fault> {
        let file = RandomAccess::new(file)?;
        guarded(|| Self::open(table, file))
    }

    fn open(table: TableDescription, file: RandomAccess<R>) -> Result<Self, Fault> {
        let trailer_offset = file.size_bytes().checked_sub(TRAILER_BYTES);
        let trailer_offset = trailer_offset.ok_or_else(|| malformed("the file is too short"))?;
        let trailer = file.read_at(trailer_offset, TRAILER_BYTES)?;
        let trailer = trailer.try_into().map_err(|_| malformed("the file is too short"))?;
        let footer_length = read_footer_length(trailer).map_err(|_| {
            malformed("it does not end like an Arrow IPC file: it is of another format, or cut off")
        })? as u64;
        let footer_offset = trailer_offset.checked_sub(footer_length);
        let footer_offset = footer_offset.ok_or_else(|| malformed("its footer is damaged"))?;
        let footer = file.read_at(footer_offset, footer_length)?;
        let footer = root_as_footer(&footer)
            .map_err(|error| malformed(&format!("its footer is damaged: {error}")))?;

        let schema = footer.schema().ok_or_else(|| malformed("its footer has no schema"))?;
        if !schema.endianness().equals_to_target_endianness() {
            return Err(malformed("its numbers have another byte order than this machine"));
        }
        let schema = Arc::new(convert::try_fb_to_schema(schema)?);
        let reader = RowReader::new(table, &schema)?;
        let mut decoder = FileDecoder::new(schema, footer.version());
        for block in footer.dictionaries().iter().flatten() {
            decoder.read_dictionary(block, &read_block(&file, block)?)?;
        }
        let blocks = footer.recordBatches().into_iter().flatten().copied();
        let mut blocks: Vec<Block> = blocks.collect();
        blocks.reverse();
        Ok(IpcSource { file, decoder, blocks, reader })
    }
}

impl<R: Read + Seek + Send> RowSource for IpcSource<R> {
    fn next_row(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault> {
        while self.reader.needs_batch() {
            let Some(block) = self.blocks.pop() else { return Ok(false) };
            let batch = guarded(|| {
                let bytes = read_block(&self.file, &block)?;
                Ok(self.decoder.read_record_batch(&block, &bytes)?)
            })?;
            if let Some(batch) = batch {
                self.reader.set_batch(batch);
            }
        }
        self.reader.read(output)
    }

    fn bytes_read(&self) -> u64 {
        self.file.bytes_read()
    }

    fn place(&self) -> FilePlace {
        FilePlace::Row(self.reader.rows)
    }

    fn has_column(&self, column: usize) -> bool {
        self.reader.columns[column].is_some()
    }
}

fn read_block<R: Read + Seek>(file: &RandomAccess<R>, block: &Block) -> Result<Buffer, Fault> {
    let range = || {
        let offset = u64::try_from(block.offset()).ok()?;
        let length = u64::try_from(block.metaDataLength()).ok()?;
        Some((offset, length.checked_add(u64::try_from(block.bodyLength()).ok()?)?))
    };
    let (offset, length) = range().ok_or_else(|| malformed("its footer is damaged"))?;
    let bytes = file.read_at(offset, length)?;
    if is_compressed(&bytes) {
        return Err(malformed(
            "its batches are compressed, which is not supported; write it without compression, or as Parquet",
        ));
    }
    Ok(Buffer::from_vec(bytes))
}

/// Returns whether a block is a batch with compressed buffers.
fn is_compressed(block: &[u8]) -> bool {
    // The message follows its length. In all but old files, four bytes of ones come before the length.
    let prefix_bytes = if block.starts_with(&[0xFF; 4]) { 8 } else { 4 };
    let message = block.get(prefix_bytes..).and_then(|message| root_as_message(message).ok());
    let batch = message.and_then(|message| match message.header_as_dictionary_batch() {
        Some(dictionary) => dictionary.data(),
        None => message.header_as_record_batch(),
    });
    batch.is_some_and(|batch| batch.compression().is_some())
}

fn malformed(problem: &str) -> Fault {
    Fault::Malformed(FilePlace::File, problem.to_owned())
}

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Fault::from(error),
            error => malformed(&error.to_string()),
        }
    }
}
