//! The files of a backup, as a file system that can be read.
//!
//! A file is fetched part by part when somebody reads it. An open file keeps one part in memory.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use weft::durability::{Backend, File, LockError, LockGuard};

use super::{Backup, BackupError, Client, NoLock, Part, relative, unsupported};
use crate::base::StoreTrouble;

/// The files of a backup.
pub(super) struct BackupDisk {
    shared: Arc<Reading>,
}

/// What a backup's file system and its files share.
struct Reading {
    client: Arc<Client>,
    backup: Backup,
    trouble: StoreTrouble,
}

impl Client {
    /// Reads a part of a backup, and checks that it is as it was written.
    ///
    /// # Errors
    /// [`BackupError::Damaged`], [`BackupError::Store`].
    pub(super) fn read_part(&self, backup: &str, part: &Part) -> Result<Vec<u8>, BackupError> {
        let damaged = |what: String| BackupError::Damaged { name: backup.to_owned(), what };
        let name = format!("{:06}", part.number);
        let read = match self.get(self.path(backup, &name)) {
            Err(object_store::Error::NotFound { .. }) => {
                return Err(damaged(format!("part {name} is missing")));
            }
            read => read?,
        };
        if read.len() as u64 != part.bytes || crc32c::crc32c(&read) != part.checksum {
            return Err(damaged(format!("part {name} has a wrong length or checksum")));
        }
        Ok(read)
    }
}

impl BackupDisk {
    pub(super) fn new(client: Arc<Client>, backup: Backup) -> BackupDisk {
        let trouble = StoreTrouble::default();
        BackupDisk { shared: Arc::new(Reading { client, backup, trouble }) }
    }

    /// Returns where an error of the store is noted.
    pub(super) fn trouble(&self) -> StoreTrouble {
        Arc::clone(&self.shared.trouble)
    }
}

impl fmt::Debug for BackupDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BackupDisk").field("backup", &self.shared.backup.name).finish()
    }
}

impl Backend for BackupDisk {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let directory = relative(directory);
        let inside = self.shared.backup.files.keys().filter_map(|path| {
            let first = path.strip_prefix(&directory).ok()?.components().next()?;
            Some(first.as_os_str().to_str()?.to_owned())
        });
        let mut names: Vec<String> = inside.collect();
        names.dedup();
        Ok(names)
    }

    fn create_new(&self, _path: &Path) -> io::Result<Box<dyn File>> {
        unsupported()
    }

    fn open(&self, _path: &Path) -> io::Result<Box<dyn File>> {
        unsupported()
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let parts = self.shared.backup.files.get(&relative(path));
        let parts = parts.ok_or(io::ErrorKind::NotFound)?.clone();
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(ReadFile { shared, parts, fetched: Mutex::default() }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let path = relative(path);
        Ok(self.shared.backup.files.keys().any(|file| file.starts_with(&path)))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unsupported()
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn remove_directory(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, _path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        Ok(Box::new(NoLock))
    }
}

/// A file of a backup that is being read.
struct ReadFile {
    shared: Arc<Reading>,
    parts: Vec<Part>,
    /// The number of the part that was fetched last, and its bytes.
    fetched: Mutex<Option<(u64, Vec<u8>)>>,
}

impl ReadFile {
    /// Copies bytes of one part into `buffer`, from `from` on. Returns how many bytes it copied.
    fn read_part(&self, part: &Part, buffer: &mut [u8], from: usize) -> io::Result<usize> {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match fetched.take() {
            Some((number, bytes)) if number == part.number => bytes,
            _ => {
                let Reading { client, backup, trouble } = &*self.shared;
                client.read_part(&backup.name, part).map_err(|error| {
                    if let BackupError::Store(error) = &error {
                        *trouble.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(error.to_string());
                    }
                    io::Error::other(error)
                })?
            }
        };
        let read = buffer.len().min(bytes.len() - from);
        buffer[..read].copy_from_slice(&bytes[from..from + read]);
        *fetched = Some((part.number, bytes));
        Ok(read)
    }
}

impl fmt::Debug for ReadFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReadFile").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl File for ReadFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.parts.iter().map(|part| part.bytes).sum())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut read, mut start) = (0, 0);
        for part in &self.parts {
            let (at, end) = (offset + read as u64, start + part.bytes);
            if read < buffer.len() && (start..end).contains(&at) {
                read += self.read_part(part, &mut buffer[read..], (at - start) as usize)?;
            }
            start = end;
        }
        Ok(read)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        unsupported()
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        unsupported()
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        unsupported()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
