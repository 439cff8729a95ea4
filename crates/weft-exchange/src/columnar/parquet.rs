//! The reader of Parquet files, and the properties of the writer.

use std::io::{Read, Seek};

use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use weft::description::TableDescription;

use super::random_access::RandomAccess;
use super::{BATCH_BYTES, BATCH_ROWS, RowReader};
use crate::error::FilePlace;
use crate::source::{Fault, RowSource, guarded};

/// The size of a row group, which is in memory until it is complete.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Returns the properties of the files to write: compressed by Snappy, which every reader of Parquet supports.
pub fn writer_properties() -> WriterProperties {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_created_by(concat!("weft-exchange ", env!("CARGO_PKG_VERSION")).to_owned())
        .build()
}

/// Reads a table's rows.
pub struct ParquetSource<R> {
    file: RandomAccess<R>,
    batches: ParquetRecordBatchReader,
    reader: RowReader,
}

impl<R: Read + Seek + Send + 'static> ParquetSource<R> {
    /// Reads the footer.
    pub fn new(table: TableDescription, file: R) -> Result<Self, Fault> {
        let file = RandomAccess::new(file)?;
        guarded(|| Self::open(table, file.clone())).map_err(|fault| file.fault(fault))
    }

    fn open(table: TableDescription, file: RandomAccess<R>) -> Result<Self, Fault> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone())?;
        let reader = RowReader::new(table, builder.schema())?;
        check_compression(builder.metadata())?;
        let batch_rows = batch_rows(builder.metadata());
        let batches = builder.with_batch_size(batch_rows).build()?;
        Ok(ParquetSource { file, batches, reader })
    }
}

fn check_compression(metadata: &ParquetMetaData) -> Result<(), Fault> {
    let columns = metadata.row_groups().iter().flat_map(|row_group| row_group.columns());
    for compression in columns.map(|column| column.compression()) {
        if !matches!(compression, Compression::UNCOMPRESSED | Compression::SNAPPY) {
            // The text has the compression level in parentheses; leave that out.
            let name = compression.to_string();
            let name = name.split('(').next().unwrap_or_default();
            let problem = format!(
                "it is compressed by {name}, which is not supported; write it with Snappy, \
                 or without compression"
            );
            return Err(Fault::Malformed(FilePlace::File, problem));
        }
    }
    Ok(())
}

/// Returns the number of rows for which rows of average size fit into a batch.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let row_bytes = metadata.row_groups().iter().map(|row_group| {
        let bytes = usize::try_from(row_group.total_byte_size()).unwrap_or(0);
        bytes / usize::try_from(row_group.num_rows()).unwrap_or(0).max(1)
    });
    (BATCH_BYTES / row_bytes.max().unwrap_or(0).max(1)).clamp(1, BATCH_ROWS)
}

impl<R: Read + Seek + Send> RowSource for ParquetSource<R> {
    fn next_row(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault> {
        while self.reader.needs_batch() {
            let batch = guarded(|| Ok(self.batches.next().transpose()?));
            match batch.map_err(|fault| self.file.fault(fault))? {
                Some(batch) => self.reader.set_batch(batch),
                None => return Ok(false),
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

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Self {
        Fault::Malformed(FilePlace::File, error.to_string())
    }
}
