//! Random access to a file, within its bounds.
//!
//! Arrow IPC and Parquet files end with a table of contents: offsets and lengths, which can be anything in a
//! damaged file. All reading goes through [`RandomAccess`], which compares both with the file's size before it
//! allocates.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::source::Fault;

/// A file of known size. Clones share the file.
pub struct RandomAccess<R> {
    shared: Arc<Mutex<SharedFile<R>>>,
    size_bytes: u64,
}

struct SharedFile<R> {
    file: R,
    bytes_read: u64,
    /// The first error by which the file could not be read.
    failure: Option<io::Error>,
}

impl<R> Clone for RandomAccess<R> {
    fn clone(&self) -> Self {
        RandomAccess { shared: Arc::clone(&self.shared), size_bytes: self.size_bytes }
    }
}

impl<R: Read + Seek> RandomAccess<R> {
    /// Determines the size of `file`.
    pub fn new(mut file: R) -> io::Result<Self> {
        let size_bytes = file.seek(SeekFrom::End(0))?;
        let shared = Arc::new(Mutex::new(SharedFile { file, bytes_read: 0, failure: None }));
        Ok(RandomAccess { shared, size_bytes })
    }

    /// Returns the size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns how many bytes were read. Bytes that were read twice count twice.
    pub fn bytes_read(&self) -> u64 {
        self.lock().bytes_read
    }

    /// Returns the `length` bytes from `offset` on.
    ///
    /// # Errors
    /// If the file cannot be read, or (`UnexpectedEof`) does not have these bytes.
    pub fn read_at(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            let message = format!(
                "its contents should have {length} bytes at {offset}, but the file ends at {}",
                self.size_bytes
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut buffer = vec![0; length];
        let mut shared = self.lock();
        let file = &mut shared.file;
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(&mut buffer));
        if let Err(error) = read {
            let copy = io::Error::new(error.kind(), error.to_string());
            shared.failure.get_or_insert(error);
            return Err(copy);
        }
        shared.bytes_read += length as u64;
        Ok(buffer)
    }

    /// Returns the file's own error, if there was one, in place of a library's fault: libraries turn errors
    /// into texts.
    pub fn fault(&self, fault: Fault) -> Fault {
        self.lock().failure.take().map_or(fault, Fault::Io)
    }

    fn lock(&self) -> MutexGuard<'_, SharedFile<R>> {
        // The next call does not rely on the position, so a panic between seeking and reading does no harm.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Read + Seek + Send> Length for RandomAccess<R> {
    fn len(&self) -> u64 {
        self.size_bytes
    }
}

impl<R: Read + Seek + Send> ChunkReader for RandomAccess<R> {
    type T = ReaderAt<R>;

    fn get_read(&self, start: u64) -> Result<ReaderAt<R>, ParquetError> {
        Ok(ReaderAt { file: self.clone(), position: start, reads_at_end: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        Ok(self.read_at(start, length as u64)?.into())
    }
}

/// The part of the file from a position on.
pub struct ReaderAt<R> {
    file: RandomAccess<R>,
    position: u64,
    /// How often it was read at its end.
    reads_at_end: u32,
}

/// A part of the file may be read so often at its end. The library for Parquet passes over fields that a header says it has
/// without looking whether they are there. In a damaged file these can be two billion, and it would read each of them at the end.
const READS_AT_END_MAX: u32 = 100;

impl<R: Read + Seek> Read for ReaderAt<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.file.size_bytes.saturating_sub(self.position);
        let length = left.min(buffer.len() as u64);
        if left == 0 && !buffer.is_empty() {
            self.reads_at_end += 1;
            if self.reads_at_end > READS_AT_END_MAX {
                let message = format!("the file ends at {} within a header", self.file.size_bytes);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
        }
        let bytes = self.file.read_at(self.position.min(self.file.size_bytes), length)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.position += length;
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn a_reader_that_goes_on_at_the_end_gets_an_error() {
        let file = RandomAccess::new(Cursor::new(b"bytes".to_vec())).expect("memory can be read");
        let mut reader = file.get_read(2).expect("it is within the file");
        let mut rest = Vec::new();
        assert_eq!(reader.read_to_end(&mut rest).expect("it ends"), 3);
        assert_eq!(rest, b"tes");
        let reads = (0..10 * READS_AT_END_MAX).map(|_| reader.read(&mut [0; 8]));
        let error = reads.filter_map(Result::err).next().expect("it does not go on for ever");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
