//! The ring: the log of a database that keeps its rows in memory alone.
//!
//! A database with a ring has its log on a file system in memory, which keeps the newest segments of the log, up to
//! the size of the ring. So the feed of such a database is read as any other.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft::durability::format::parse_segment_name;
use weft::durability::{Backend, File, LockError, LockGuard};
use weft::protocol::Protocol;
use weft::{Acknowledge, Builder, DurabilityOptions};

/// How many segments a ring consists of. The oldest is dropped as a whole.
const SEGMENTS: u64 = 8;

/// Adds a ring to a [`Builder`].
pub trait ChangeRing: Sized {
    /// Keeps the changes of a database in memory, so that it has a [change feed](crate::ChangeFeed) without a
    /// directory. Nothing survives the process.
    ///
    /// The ring keeps the newest changes, about `bytes` bytes of them (one epoch, which is 10 ms, may be more than
    /// that). A reader that is slower than the ring falls behind. An insert takes about as many bytes as the row, and
    /// an update as many as the key and the changed columns.
    ///
    /// A transaction that writes also writes its changes to the ring, and this costs as much as a log without a disk. A
    /// database without a ring pays nothing. In all other respects the database is one with a directory, whose
    /// commits are acknowledged before they are durable. It replaces a directory that was named before.
    fn change_ring(self, bytes: u64) -> Self;
}

impl<P: Protocol> ChangeRing for Builder<P> {
    fn change_ring(self, bytes: u64) -> Self {
        let segment_bytes = (bytes / SEGMENTS).max(1);
        let options = DurabilityOptions::new()
            .acknowledge(Acknowledge::Committed)
            .segment_bytes(segment_bytes)
            .checkpoint_log_bytes(None)
            .spare_bytes(0)
            .threads(1);
        self.directory("ring").durability(options).backend(ring_disk(bytes), false)
    }
}

/// Returns a file system in memory that keeps the newest segments of a log, about `bytes` bytes of them.
#[doc(hidden)]
pub fn ring_disk(bytes: u64) -> Arc<dyn Backend> {
    Arc::new(RingDisk { bytes, state: Mutex::default() })
}

/// A file system in memory.
#[derive(Debug)]
struct RingDisk {
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    directories: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Arc<RingFile>>,
}

#[derive(Debug)]
struct RingFile {
    contents: Mutex<Contents>,
    /// Only the length counts: the rows of a checkpoint, which nothing reads again.
    is_discarded: bool,
}

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    length: u64,
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the logger and the number of a segment of the log.
fn segment(path: &Path) -> Option<(u32, u64)> {
    parse_segment_name(path.file_name()?.to_str()?)
}

impl State {
    /// Removes the oldest segments, until there is room for another one.
    fn make_room(&mut self, bytes: u64) {
        let of_segment = |(path, file): (&PathBuf, &Arc<RingFile>)| {
            let (_, sequence) = segment(path)?;
            Some((sequence, path.clone(), hold(&file.contents).length))
        };
        let mut segments: Vec<_> = self.files.iter().filter_map(of_segment).collect();
        segments.sort_unstable();
        let mut used: u64 = segments.iter().map(|(.., bytes)| bytes).sum();
        // The newest segment stays: it may be the only one.
        segments.pop();
        let room = bytes - bytes / SEGMENTS;
        for (_, path, bytes) in segments {
            if used <= room {
                break;
            }
            used -= bytes;
            self.files.remove(&path);
        }
    }

    fn find(&self, path: &Path) -> io::Result<Box<dyn File>> {
        match self.files.get(path) {
            Some(file) => Ok(Box::new(OpenRingFile(Arc::clone(file)))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Backend for RingDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        hold(&self.state).directories.push(path.to_owned());
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = hold(&self.state);
        let paths = state.files.keys().chain(&state.directories);
        let inside = paths.filter(|path| path.parent() == Some(directory));
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let mut names: Vec<_> = inside.filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut state = hold(&self.state);
        if state.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if segment(path).is_some() {
            state.make_room(self.bytes);
        }
        let is_discarded = path.extension().is_some_and(|extension| extension == "rows");
        let file = Arc::new(RingFile { contents: Mutex::default(), is_discarded });
        state.files.insert(path.to_owned(), file);
        state.find(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        hold(&self.state).find(path)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        hold(&self.state).find(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = hold(&self.state);
        Ok(state.files.contains_key(path) || state.directories.iter().any(|it| it == path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = hold(&self.state);
        let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = hold(&self.state).files.remove(path);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn drops_segments(&self) -> bool {
        true
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        hold(&self.state).directories.retain(|directory| directory != path);
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, _path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        Ok(Box::new(RingLock))
    }
}

/// The lock of a ring, which no other process can reach.
#[derive(Debug)]
struct RingLock;

impl LockGuard for RingLock {}

#[derive(Debug)]
struct OpenRingFile(Arc<RingFile>);

impl File for OpenRingFile {
    fn length(&self) -> io::Result<u64> {
        Ok(hold(&self.0.contents).length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let contents = hold(&self.0.contents);
        let start = (offset as usize).min(contents.bytes.len());
        let read = buffer.len().min(contents.bytes.len() - start);
        buffer[..read].copy_from_slice(&contents.bytes[start..start + read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = hold(&self.0.contents);
        let end = offset + bytes.len() as u64;
        contents.length = contents.length.max(end);
        if !self.0.is_discarded {
            let length = contents.length as usize;
            contents.bytes.resize(length, 0);
            contents.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut contents = hold(&self.0.contents);
        contents.length = length;
        if !self.0.is_discarded {
            contents.bytes.resize(length as usize, 0);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
