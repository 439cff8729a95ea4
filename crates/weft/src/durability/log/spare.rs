//! The spare: a file that keeps space on the disk for what has committed when the disk is found to be full.
//!
//! A transaction commits in memory before its writes go to the log. If the disk is full then, other transactions
//! may have read what cannot be made durable, and none of them could be acknowledged before there is space again.
//! So the log keeps some space in advance, in a file that holds nothing. When a write finds the disk full, the log
//! removes the file and writes again. New writing transactions are refused from then on, until there is space for
//! the file once more. Everything that has committed is durable, so reads go on.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::super::backend::Backend;
use crate::error::StorageError;

pub struct Spare {
    path: PathBuf,
    bytes: u64,
    /// Whether the file has its space.
    is_there: bool,
    /// Whether the space was given to the log, and must be reserved again before transactions may write.
    is_used: bool,
}

impl Spare {
    /// Reserves `bytes` in a file of the log's directory. If the disk has no room for it, the log begins without a
    /// spare.
    pub fn new(backend: &dyn Backend, directory: &Path, bytes: u64) -> Result<Spare, StorageError> {
        let mut spare =
            Spare { path: directory.join("spare"), bytes, is_there: false, is_used: false };
        let reserved = if bytes > 0 { spare.reserve(backend) } else { spare.remove(backend) };
        match reserved.map_err(|error| StorageError::io("reserve space in", &spare.path, &error)) {
            Ok(()) | Err(StorageError::DiskFull { .. }) => Ok(spare),
            Err(error) => Err(error),
        }
    }

    fn reserve(&mut self, backend: &dyn Backend) -> io::Result<()> {
        let file = match backend.exists(&self.path)? {
            true => backend.open(&self.path)?,
            false => backend.create_new(&self.path)?,
        };
        match file.allocate(self.bytes) {
            Ok(()) => self.is_there = true,
            Err(error) => {
                // Give back what was reserved of it.
                self.remove(backend)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove(&mut self, backend: &dyn Backend) -> io::Result<()> {
        self.is_there = false;
        match backend.remove(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives the space to the log. Returns false if it has none.
    pub fn give(&mut self, backend: &dyn Backend) -> bool {
        let is_given = self.is_there && self.remove(backend).is_ok();
        self.is_used |= is_given;
        is_given
    }

    /// Reserves the space again, if it was given to the log. Returns the error of a disk that is still full. After
    /// any other error the log goes on without a spare.
    pub fn restore(&mut self, backend: &dyn Backend) -> Option<StorageError> {
        if !self.is_used {
            return None;
        }
        let reserved = self.reserve(backend);
        let error = reserved.map_err(|error| StorageError::io("reserve", &self.path, &error)).err();
        let is_full = matches!(error, Some(StorageError::DiskFull { .. }));
        self.is_used = is_full;
        error.filter(|_| is_full)
    }
}
