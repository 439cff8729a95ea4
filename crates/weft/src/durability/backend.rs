//! Where the files of a database lie: the operations that durability needs of a file system.
//!
//! All of a database's input and output goes through a [`Backend`]. There are two: the
//! [`FileSystem`](super::FileSystem) of the operating system, and the
//! [`SimulatedDisk`](super::SimulatedDisk), which behaves as badly as disks may.
//!
//! What the callers may rely on, and no more:
//!
//! - What was written to a file is on the disk after [`File::sync`] has returned, and may or may
//!   not be before, sector by sector, in any order.
//! - A name that was created, renamed or removed is so on the disk after
//!   [`Backend::sync_directory`] of the directory that it lies in; before, it is the old or the
//!   new.
//! - A rename is never half done: the new name leads to the old file or to the renamed one.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// A file system, or what behaves like one.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Makes a directory, whose parent exists.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Names of what lies in a directory, in the order of bytes.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file, for reading and writing; an error if the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens a file for reading and writing. This and [`Backend::open_read_only`] never block, and
    /// refuse anything but a regular file by an error that holds a [`NotRegular`](super::NotRegular).
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Opens a file for reading alone.
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>>;

    /// Whether there is a file or a directory of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Gives a file another name; what had that name before is gone.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Brings the names in a directory to the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is made if need be, until the returned guard is dropped or the process
    /// ends.
    ///
    /// # Errors
    /// [`LockError::AlreadyLocked`] if somebody else holds the lock, in this process or in another.
    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError>;
}

/// An open file.
pub trait File: Debug + Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads from `offset` on until `buffer` is full or the file ends, and returns how much it was.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`. After an error any part of it may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the file `length` bytes long.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Brings what was written, and the file's length, to the disk. After an error it is unknown
    /// what of it is there, and a later success tells nothing about it.
    fn sync(&self) -> io::Result<()>;
}

/// Holds the lock of a file; dropping it gives the lock back.
pub trait LockGuard: Debug + Send + Sync {}

/// Why a file could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else holds the lock.
    #[error("somebody else holds the lock")]
    AlreadyLocked,
    /// The operating system's.
    #[error(transparent)]
    Io(#[from] io::Error),
}
