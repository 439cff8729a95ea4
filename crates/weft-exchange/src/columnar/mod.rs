//! Arrow IPC and Parquet: batches of rows as Arrow arrays, one for each column.

mod arrays;
mod fields;
mod ipc;
mod parquet;
mod random_access;
mod types;

use std::io::{self, BufWriter, Write};
use std::mem;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::errors::ParquetError;
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use weft::description::{TableDescription, Value};

pub use self::ipc::IpcSource;
pub use self::parquet::ParquetSource;

use self::fields::FieldReader;
use crate::columns::match_columns;
use crate::error::{Place, WriteFault};
use crate::progress::CountingWriter;
use crate::source::Fault;

/// The largest number of rows in a batch.
const BATCH_ROWS: usize = 8192;
/// A batch ends when the encodings of its rows reach this size.
const BATCH_BYTES: usize = 8 << 20;
/// Arrow counts the bytes of texts and the elements of lists in 31 bits, for a whole batch.
const ROW_BYTES_MAX: usize = 1 << 30;

/// Writes a table's rows, in batches.
pub struct BatchWriter<W: Write + Send> {
    schema: SchemaRef,
    rows: Vec<Vec<Value>>,
    rows_max: usize,
    bytes: usize,
    file: File<W>,
}

enum File<W: Write + Send> {
    ArrowIpc(Box<FileWriter<BufWriter<CountingWriter<W>>>>),
    Parquet(Box<ArrowWriter<CountingWriter<W>>>),
}

impl<W: Write + Send> BatchWriter<W> {
    /// Begins an Arrow IPC file.
    pub fn arrow_ipc(
        table: &TableDescription,
        writer: CountingWriter<W>,
    ) -> Result<Self, WriteFault> {
        let schema = Arc::new(types::schema(table).map_err(WriteFault::Limit)?);
        let file = FileWriter::try_new(BufWriter::new(writer), &schema)?;
        Ok(Self::new(schema, File::ArrowIpc(Box::new(file))))
    }

    /// Begins a Parquet file.
    pub fn parquet(
        table: &TableDescription,
        writer: CountingWriter<W>,
    ) -> Result<Self, WriteFault> {
        let schema = Arc::new(types::schema(table).map_err(WriteFault::Limit)?);
        let properties = Some(self::parquet::writer_properties());
        let file = ArrowWriter::try_new(writer, Arc::clone(&schema), properties)?;
        Ok(Self::new(schema, File::Parquet(Box::new(file))))
    }

    fn new(schema: SchemaRef, file: File<W>) -> Self {
        let rows_max = rows_max(&schema);
        BatchWriter { schema, rows: Vec::new(), rows_max, bytes: 0, file }
    }

    /// Writes a row, whose encoding has `bytes` bytes. Returns whether this completed a batch, which was
    /// written.
    pub fn write(
        &mut self,
        table: &TableDescription,
        row: Vec<Value>,
        bytes: usize,
    ) -> Result<bool, WriteFault> {
        if bytes > ROW_BYTES_MAX {
            return Err(WriteFault::Limit(format!(
                "a row has {bytes} bytes, but at most {ROW_BYTES_MAX} are possible"
            )));
        }
        if self.bytes + bytes > ROW_BYTES_MAX {
            self.write_batch(table)?;
        }
        self.rows.push(row);
        self.bytes += bytes;
        if self.rows.len() < self.rows_max && self.bytes < BATCH_BYTES {
            return Ok(false);
        }
        self.write_batch(table)?;
        Ok(true)
    }

    /// Writes the last batch, and the end of the file.
    pub fn finish(mut self, table: &TableDescription) -> Result<CountingWriter<W>, WriteFault> {
        self.write_batch(table)?;
        let mut writer = match self.file {
            File::ArrowIpc(file) => {
                file.into_inner()?.into_inner().map_err(|error| error.into_error())?
            }
            File::Parquet(file) => file.into_inner()?,
        };
        writer.flush()?;
        Ok(writer)
    }

    /// Returns how many bytes were written.
    pub fn bytes(&self) -> u64 {
        match &self.file {
            File::ArrowIpc(file) => file.get_ref().get_ref().bytes(),
            File::Parquet(file) => file.inner().bytes(),
        }
    }

    fn write_batch(&mut self, table: &TableDescription) -> Result<(), WriteFault> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = mem::take(&mut self.rows);
        self.bytes = 0;
        let columns = table.columns.iter().zip(self.schema.fields()).enumerate();
        let arrays = columns.map(|(position, (column, field))| {
            let values: Vec<_> = rows.iter().map(|row| row.get(position)).collect();
            arrays::array(&column.type_of, field.data_type(), &values)
        });
        let arrays = arrays.collect::<Result<_, _>>()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        match &mut self.file {
            File::ArrowIpc(file) => file.write(&batch)?,
            File::Parquet(file) => file.write(&batch)?,
        }
        Ok(())
    }
}

/// Returns how many rows a batch may have. An array of fixed length takes its room even in a row that has none.
fn rows_max(schema: &Schema) -> usize {
    fn width_min_bytes(data_type: &DataType) -> usize {
        match data_type {
            DataType::FixedSizeBinary(length) => *length as usize,
            DataType::FixedSizeList(element, length) => {
                width_min_bytes(element.data_type()).saturating_mul(*length as usize)
            }
            DataType::Struct(fields) => fields
                .iter()
                .fold(0_usize, |sum, field| sum.saturating_add(width_min_bytes(field.data_type()))),
            _ => 1,
        }
    }
    let width_min_bytes = schema
        .fields()
        .iter()
        .fold(1_usize, |sum, field| sum.saturating_add(width_min_bytes(field.data_type())));
    (BATCH_BYTES / width_min_bytes).clamp(1, BATCH_ROWS)
}

impl From<io::Error> for WriteFault {
    fn from(error: io::Error) -> Self {
        WriteFault::Io(error)
    }
}

impl From<ArrowError> for WriteFault {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => WriteFault::Io(error),
            error => WriteFault::Limit(error.to_string()),
        }
    }
}

impl From<ParquetError> for WriteFault {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => WriteFault::Io(*error),
                Err(error) => WriteFault::Limit(error.to_string()),
            },
            error => WriteFault::Limit(error.to_string()),
        }
    }
}

/// Reads the rows of batches, and encodes them as rows of a table.
struct RowReader {
    table: TableDescription,
    /// For each column of the table, its position in a batch and its reader. `None` if the column gets its
    /// default.
    columns: Vec<Option<(usize, FieldReader)>>,
    batch: Option<RecordBatch>,
    /// The index of the next row in the batch.
    index: usize,
    /// How many rows were read.
    rows: u64,
}

impl RowReader {
    /// Makes a reader. Matches the columns of the file with those of the table.
    fn new(table: TableDescription, schema: &Schema) -> Result<Self, Fault> {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let positions = match_columns(&table, names).map_err(Fault::Columns)?;
        let mut problems = Vec::new();
        let mut columns = Vec::new();
        for (column, position) in table.columns.iter().zip(positions) {
            columns.push(position.and_then(|position| {
                let data_type = schema.field(position).data_type();
                let reader = FieldReader::new(&column.type_of, data_type);
                if reader.is_none() {
                    problems.push(format!(
                        "column `{}` is {}, and cannot be read from {data_type}",
                        column.name, column.type_of
                    ));
                }
                Some((position, reader?))
            }));
        }
        match problems.is_empty() {
            true => Ok(RowReader { table, columns, batch: None, index: 0, rows: 0 }),
            false => Err(Fault::Columns(problems)),
        }
    }

    /// Returns whether the reader needs a [new batch](RowReader::set_batch) before it can read a row.
    fn needs_batch(&self) -> bool {
        self.batch.as_ref().is_none_or(|batch| self.index == batch.num_rows())
    }

    fn set_batch(&mut self, batch: RecordBatch) {
        self.batch = Some(batch);
        self.index = 0;
    }

    /// Appends the next row of the batch to `output`. Returns `false` if there are no more rows.
    fn read(&mut self, output: &mut Vec<u8>) -> Result<bool, Fault> {
        let Some(batch) = &self.batch else { return Ok(false) };
        if self.index == batch.num_rows() {
            return Ok(false);
        }
        for (column, reader) in self.table.columns.iter().zip(&self.columns) {
            let Some((position, reader)) = reader else {
                output.extend_from_slice(column.default.as_deref().unwrap_or_default());
                continue;
            };
            let misfit =
                |misfit| Fault::Value(Place::Row(self.rows + 1), column.name.clone(), misfit);
            let value = reader.read(batch.column(*position), self.index).map_err(misfit)?;
            value.write(&column.type_of, output).map_err(|mismatch| misfit(mismatch.into()))?;
        }
        self.index += 1;
        self.rows += 1;
        Ok(true)
    }
}
