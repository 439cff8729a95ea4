//! The operating system's file system as a [`Backend`].

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use weft_htm::word::{Ordering, Word};

use super::backend::{Backend, File, LockError, LockGuard};
use crate::error::NotRegular;

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl Backend for FileSystem {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // Weft's own names are all UTF-8. For other names it is enough to know that they exist.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(OpenFile { file, is_new: Word::new(1) }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = open_regular(OpenOptions::new().read(true).write(true), path)?;
        Ok(Box::new(OpenFile { file, is_new: Word::new(0) }))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = open_regular(OpenOptions::new().read(true), path)?;
        Ok(Box::new(OpenFile { file, is_new: Word::new(0) }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    #[cfg(unix)]
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        // Opening anything but a directory is an error, and does not block.
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK);
        options.open(path)?.sync_all()
    }

    /// On other systems a directory cannot be opened, and the file system itself takes care of
    /// names.
    #[cfg(not(unix))]
    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        let mut options = OpenOptions::new();
        let file = open_regular(options.write(true).create(true).truncate(false), path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(LockedFile { file })),
            Err(TryLockError::WouldBlock) => Err(LockError::AlreadyLocked),
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }
}

/// Opens a file, which must be a regular file. Never blocks.
///
/// Opening a FIFO would wait for another process, and reading a device may never end.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<fs::File> {
    // Check first without opening it, because opening a device may have an effect.
    match fs::metadata(path) {
        Ok(metadata) => expect_regular(&metadata)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    // Check again, because the name may lead to something else by now.
    expect_regular(&file.metadata()?)?;
    Ok(file)
}

fn expect_regular(metadata: &fs::Metadata) -> io::Result<()> {
    let found = match metadata.file_type() {
        regular if regular.is_file() => return Ok(()),
        directory if directory.is_dir() => "a directory",
        #[cfg(unix)]
        fifo if fifo.is_fifo() => "a FIFO",
        #[cfg(unix)]
        socket if socket.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(NotRegular { found }))
}

/// A lock of the operating system, which ends with the process.
#[derive(Debug)]
struct LockedFile {
    file: fs::File,
}

impl LockGuard for LockedFile {}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file would not be enough. A child process that another thread has just forked
        // has a copy of the descriptor, and so of the lock, until it executes its program. Nothing
        // can be done about an error here except closing the file.
        let _ = self.file.unlock();
    }
}

#[derive(Debug)]
struct OpenFile {
    file: fs::File,
    /// One until the first sync, which also syncs all metadata of a new file.
    is_new: Word,
}

impl File for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match read_some(&self.file, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match write_some(&self.file, &bytes[written..], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let (file, length) =
                (std::os::fd::AsRawFd::as_raw_fd(&self.file), bytes as libc::off_t);
            loop {
                // SAFETY: the file is open, and the call touches no memory.
                if unsafe { libc::fallocate(file, 0, 0, length) } == 0 {
                    return Ok(());
                }
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::Unsupported => break,
                    _ => return Err(error),
                }
            }
        }
        // The file system cannot reserve space, so fill it.
        self.reserve(0, bytes)?;
        self.file.sync_data()
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        for done in (0..bytes).step_by(ZEROS.len()) {
            let length = ZEROS.len().min((bytes - done) as usize);
            self.write_at(&ZEROS[..length], offset + done)?;
        }
        Ok(true)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        // Relaxed: only one thread at a time syncs a file, and the other kind of sync would be
        // correct, too.
        if self.is_new.load(Ordering::Relaxed) == 1 {
            self.file.sync_all()?;
            self.is_new.store(0, Ordering::Relaxed);
            return Ok(());
        }
        self.file.sync_data()
    }
}

#[cfg(unix)]
fn read_some(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(unix)]
fn write_some(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_some(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    match std::os::windows::fs::FileExt::seek_read(file, buffer, offset) {
        // ERROR_HANDLE_EOF: on Windows the end of the file may be an error.
        Err(error) if error.raw_os_error() == Some(38) => Ok(0),
        result => result,
    }
}

#[cfg(windows)]
fn write_some(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_its_descriptor_was_copied() {
        let path = std::env::temp_dir().join(format!("weft-lock-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        file.try_lock().unwrap();
        // A fork makes such a copy.
        let copy = file.try_clone().unwrap();
        let guard = LockedFile { file };
        assert!(matches!(FileSystem.try_lock(&path), Err(LockError::AlreadyLocked)));
        drop(guard);
        assert!(FileSystem.try_lock(&path).is_ok());
        drop(copy);
        fs::remove_file(&path).unwrap();
    }
}
