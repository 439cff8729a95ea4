//! The directory of a replicated database: a file system on which the log is durable when it is replicated.
//!
//! The engine writes an epoch's frames to a segment of its log and syncs it. Here the sync also appends the epoch to the
//! replicated log, and fails if that does. So a replicated database needs nothing of the engine. A failed sync ends the
//! engine's log: nothing is acknowledged any more, and every caller that waits gets an error.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weft::durability::format::{FrameReader, Next, parse_segment_name};
use weft::durability::{Backend, File, LockError, LockGuard};

/// What happens to what a database writes to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The node is a standby. What the database writes is in the replicated log already.
    Following,
    /// The node is the primary. What the database writes is appended.
    Writing,
    /// The node has ceased to follow the log with this database, which must not write any more.
    Ended,
}

/// Where epochs go.
pub trait Sink: Debug + Send + Sync {
    /// Returns what happens to epochs now.
    fn mode(&self) -> Mode;

    /// Appends an epoch, and returns when it is acknowledged.
    fn replicate(&self, epoch: u64, entries: &[u8]) -> io::Result<()>;
}

/// A file system whose segments of the log are replicated.
#[derive(Debug)]
pub struct ReplicatedDisk {
    inner: Arc<dyn Backend>,
    sink: Arc<dyn Sink>,
    /// The directory of the database.
    directory: PathBuf,
    /// The directory from which the checkpoint is read, if there is one.
    base: Option<(Arc<dyn Backend>, PathBuf)>,
}

/// A segment of the log that is being written.
#[derive(Debug)]
struct ReplicatedSegment {
    inner: Box<dyn File>,
    path: PathBuf,
    sink: Arc<dyn Sink>,
    unsynced: Mutex<Unsynced>,
}

/// The frames that were written since the last sync.
#[derive(Clone, Debug, Default)]
struct Unsynced {
    /// Their place in the segment.
    start: u64,
    bytes: Vec<u8>,
}

impl ReplicatedDisk {
    pub fn new(
        inner: Arc<dyn Backend>,
        sink: Arc<dyn Sink>,
        directory: &Path,
        base: Option<(Arc<dyn Backend>, PathBuf)>,
    ) -> ReplicatedDisk {
        ReplicatedDisk { inner, sink, directory: directory.to_owned(), base }
    }

    /// Returns where the base has a file or a directory of its checkpoint.
    fn in_base(&self, path: &Path) -> Option<(&dyn Backend, PathBuf)> {
        let (backend, base) = self.base.as_ref()?;
        let inside = path.strip_prefix(&self.directory).ok()?;
        let first = inside.components().next()?.as_os_str().to_str()?;
        let path = first.starts_with("checkpoint-").then(|| base.join(inside))?;
        backend.exists(&path).is_ok_and(|exists| exists).then_some((&**backend, path))
    }
}

impl Unsynced {
    /// Returns the number of the epoch and its entries, or `None` if there isn't anything in these frames. The engine
    /// syncs after each epoch with anything in it.
    fn epoch(&self, path: &Path) -> io::Result<Option<(u64, Vec<u8>)>> {
        let mut reader = FrameReader::new(self, path).map_err(io::Error::other)?;
        reader.seek(self.start);
        let (mut number, mut entries) = (0, Vec::new());
        loop {
            match reader.next().map_err(io::Error::other)? {
                Next::Frame(frame) if frame.payload.is_empty() => {}
                Next::Frame(frame) => {
                    number = frame.header.epoch;
                    entries.extend_from_slice(frame.payload);
                }
                Next::End => return Ok((!entries.is_empty()).then_some((number, entries))),
                Next::Damage(damage) => return Err(io::Error::other(damage.what)),
            }
        }
    }
}

/// A file that has only these frames.
impl File for Unsynced {
    fn length(&self) -> io::Result<u64> {
        Ok(self.start + self.bytes.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = &self.bytes[(offset - self.start) as usize..];
        let read = buffer.len().min(from.len());
        buffer[..read].copy_from_slice(&from[..read]);
        Ok(read)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl File for ReplicatedSegment {
    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)?;
        if self.sink.mode() != Mode::Following {
            let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            if unsynced.bytes.is_empty() {
                unsynced.start = offset;
            }
            unsynced.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.inner.allocate(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        // These zeros belong to no epoch.
        self.inner.reserve(offset, bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = length.saturating_sub(unsynced.start);
        unsynced.bytes.truncate(kept as usize);
        drop(unsynced);
        self.inner.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let written = std::mem::take(&mut *unsynced);
        drop(unsynced);
        if let Some((epoch, entries)) = written.epoch(&self.path)? {
            self.sink.replicate(epoch, &entries)?;
        }
        self.inner.sync()
    }
}

impl Backend for ReplicatedDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = self.inner.list(directory)?;
        if let Some((backend, path)) = self.in_base(directory) {
            names.extend(backend.list(&path)?);
        }
        Ok(names)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("unlogged-") {
            let what = "a replicated database cannot be loaded in bulk: use transactions, which are replicated";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let inner = self.inner.create_new(path)?;
        if parse_segment_name(name).is_none() {
            return Ok(inner);
        }
        let (path, sink) = (path.to_owned(), Arc::clone(&self.sink));
        Ok(Box::new(ReplicatedSegment { inner, path, sink, unsynced: Mutex::default() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.inner.open(path)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        match self.in_base(path) {
            Some((backend, path)) => backend.open_read_only(&path),
            None => self.inner.open_read_only(path),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.in_base(path).is_some() || self.inner.exists(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // The base stays as it is.
        if self.in_base(path).is_some() { Ok(()) } else { self.inner.remove(path) }
    }

    fn drops_segments(&self) -> bool {
        self.inner.drops_segments()
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_directory(path)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.inner.try_lock(path)
    }
}
