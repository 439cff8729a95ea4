//! The interface to a file system: the operations that durability needs.
//!
//! All input and output of a database goes through a [`Backend`]. There are two: the
//! [`FileSystem`](super::FileSystem) of the operating system, and the
//! [`SimulatedDisk`](super::SimulatedDisk), which behaves as badly as disks may.
//!
//! Callers may rely on the following, and on nothing more:
//!
//! - What was written to a file is on the disk once [`File::sync`] has returned. Before that, any
//!   part of it may be on the disk or not, sector by sector, in any order.
//! - The creation, renaming or removal of a name is on the disk once [`Backend::sync_directory`] of
//!   its directory has returned. Before that, the disk may have the old name or the new one.
//! - A rename is atomic: the new name leads to the old file or to the renamed one.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// A file system, or something that behaves like one.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Creates a directory. Its parent must exist.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, in the order of their bytes.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Creates an empty file, for reading and writing. It is an error if the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens a file for reading and writing. This function and [`Backend::open_read_only`] never
    /// block. They refuse anything but a regular file, with an error that holds a
    /// [`NotRegular`](super::NotRegular).
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens a file for reading only.
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Returns whether a file or a directory with this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file. This removes the file that had the new name before.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Returns whether this file system itself removes the oldest segments of the log, to make room for new ones. Nothing
    /// can be recovered from it then.
    fn drops_segments(&self) -> bool {
        false
    }

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Syncs the names in a directory to the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is created if it does not exist. The lock lasts until the returned guard
    /// is dropped or the process ends.
    ///
    /// # Errors
    /// [`LockError::AlreadyLocked`] if another handle has the lock, in this process or in another.
    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError>;
}

/// An open file.
pub trait File: Debug + Send + Sync {
    /// Returns the file's length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads from `offset` on until `buffer` is full or the file ends. Returns how many bytes it
    /// read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`. After an error, any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves space on the disk for the first `bytes` of the file. Its length may become `bytes`.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Fills `bytes` bytes from `offset` on, the end of the file, with zeros. A later sync of what is written there does not
    /// have to record a new length of the file, nor where its bytes lie on the disk, and takes less time on many file systems.
    /// Returns whether the file has the zeros. If not, it is as it was.
    ///
    /// # Errors
    /// Any part of the zeros may have been written.
    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        let _ = (offset, bytes);
        Ok(false)
    }

    /// Sets the file's length to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Syncs the file's contents and its length to the disk. After an error it is unknown what the
    /// disk has, and a later success says nothing about it.
    fn sync(&self) -> io::Result<()>;
}

/// Holds the lock of a file. Dropping it releases the lock.
pub trait LockGuard: Debug + Send + Sync {}

/// Why a file could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another handle has the lock.
    #[error("another handle has the lock")]
    AlreadyLocked,
    /// The operating system returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}
