//! A stand-in for Arrow IPC and Parquet in a build without their libraries. The formats are known, and an error
//! says which build supports them.

use std::convert::Infallible;
use std::io::{Read, Seek, Write};
use std::marker::PhantomData;

use weft::description::{TableDescription, Value};

use crate::error::{FilePlace, WriteFault};
use crate::progress::CountingWriter;
use crate::source::{Fault, RowSource};

const ABSENT: &str = "this program was built without Arrow and Parquet: build it with the feature `columnar`, \
                      use `cargo export` in Weft's own repository, or use CSV";

/// A writer that cannot be constructed.
pub struct BatchWriter<W> {
    never: Infallible,
    writer: PhantomData<W>,
}

impl<W: Write + Send> BatchWriter<W> {
    pub fn arrow_ipc(
        _table: &TableDescription,
        _writer: CountingWriter<W>,
    ) -> Result<Self, WriteFault> {
        Err(WriteFault::Limit(ABSENT.to_owned()))
    }

    pub fn parquet(
        table: &TableDescription,
        writer: CountingWriter<W>,
    ) -> Result<Self, WriteFault> {
        Self::arrow_ipc(table, writer)
    }

    pub fn write(
        &mut self,
        _table: &TableDescription,
        _row: Vec<Value>,
        _bytes: usize,
    ) -> Result<bool, WriteFault> {
        match self.never {}
    }

    pub fn finish(self, _table: &TableDescription) -> Result<CountingWriter<W>, WriteFault> {
        match self.never {}
    }

    pub fn bytes(&self) -> u64 {
        match self.never {}
    }
}

/// A source that cannot be constructed.
pub struct AbsentSource(Infallible);

pub type IpcSource = AbsentSource;
pub type ParquetSource = AbsentSource;

impl AbsentSource {
    pub fn new<R: Read + Seek + Send>(_table: TableDescription, _file: R) -> Result<Self, Fault> {
        Err(Fault::Malformed(FilePlace::File, ABSENT.to_owned()))
    }
}

impl RowSource for AbsentSource {
    fn next_row(&mut self, _output: &mut Vec<u8>) -> Result<bool, Fault> {
        match self.0 {}
    }

    fn bytes_read(&self) -> u64 {
        match self.0 {}
    }

    fn place(&self) -> FilePlace {
        match self.0 {}
    }

    fn has_column(&self, _column: usize) -> bool {
        match self.0 {}
    }
}
