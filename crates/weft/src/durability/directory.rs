//! The names in a database's directory, and operations on whole files.

use std::path::{Path, PathBuf};

use super::backend::{Backend, File, LockError, LockGuard};
use super::format::{FrameHeader, FrameKind, FrameReader, Next, write_frame};
use crate::error::StorageError;

const LOCK: &str = "LOCK";
const MANIFEST: &str = "MANIFEST";
const MANIFEST_NEW: &str = "MANIFEST.new";
const LOG: &str = "log";
const CHECKPOINT_PREFIX: &str = "checkpoint-";
const UNLOGGED_PREFIX: &str = "unlogged-";

pub(super) fn manifest_path(directory: &Path) -> PathBuf {
    directory.join(MANIFEST)
}

pub(super) fn new_manifest_path(directory: &Path) -> PathBuf {
    directory.join(MANIFEST_NEW)
}

pub(super) fn log_directory(directory: &Path) -> PathBuf {
    directory.join(LOG)
}

/// Returns the directory of the checkpoint of `epoch`. Epochs are padded, so that the names sort in
/// their order.
pub(super) fn checkpoint_directory(directory: &Path, epoch: u64) -> PathBuf {
    directory.join(format!("{CHECKPOINT_PREFIX}{epoch:020}"))
}

/// Returns the epoch of the checkpoint whose directory has this name; `None` if it is not the name
/// of one.
fn parse_checkpoint_name(name: &str) -> Option<u64> {
    let epoch = name.strip_prefix(CHECKPOINT_PREFIX)?.parse().ok()?;
    (checkpoint_directory(Path::new(""), epoch) == Path::new(name)).then_some(epoch)
}

/// Returns the last epoch with changes that are not in the log, as the names of empty files in the log's
/// directory say; 0 if there isn't one.
pub(super) fn unlogged_epoch(backend: &dyn Backend, log: &Path) -> Result<u64, StorageError> {
    let names = list(backend, log)?;
    let epochs = names.iter().filter_map(|name| name.strip_prefix(UNLOGGED_PREFIX)?.parse().ok());
    Ok(epochs.max().unwrap_or(0))
}

/// Records in the log's directory that changes of `epoch` are not in the log. A reader of the log that has
/// not seen this epoch must not go on as if it had missed nothing.
pub(super) fn mark_unlogged(
    backend: &dyn Backend,
    log: &Path,
    epoch: u64,
) -> Result<(), StorageError> {
    if unlogged_epoch(backend, log)? < epoch {
        let path = log.join(format!("{UNLOGGED_PREFIX}{epoch}"));
        backend.create_new(&path).map_err(|error| StorageError::io("create", &path, &error))?;
    }
    sync(backend, log)
}

/// Returns the path of the file of a checkpoint that has part `part` of the rows of table `table`.
pub(super) fn rows_path(checkpoint_directory: &Path, table: u32, part: u32) -> PathBuf {
    checkpoint_directory.join(format!("{table}-{part}.rows"))
}

/// Locks a database's directory, which is created if it does not exist. The lock lasts until the
/// guard is dropped or the process ends.
///
/// # Errors
/// [`StorageError::AlreadyOpen`] if another handle has the lock, in this process or in another.
pub fn lock(backend: &dyn Backend, directory: &Path) -> Result<Box<dyn LockGuard>, StorageError> {
    create_directory(backend, directory)?;
    let path = directory.join(LOCK);
    backend.try_lock(&path).map_err(|error| match error {
        LockError::AlreadyLocked => StorageError::AlreadyOpen { directory: directory.to_owned() },
        LockError::Io(error) => StorageError::io("lock", &path, &error),
    })
}

/// The result of locking a directory for reading.
#[derive(Debug)]
pub struct ReadingLock {
    /// Another process, or another handle of this one, has the database open.
    pub open_elsewhere: bool,
    /// Keeps others from opening the database as long as it exists.
    _guard: Option<Box<dyn LockGuard>>,
}

/// Locks a directory for reading, if no other handle has the lock. Creates nothing in a directory
/// that was never opened.
///
/// # Errors
/// Those of the file system.
pub fn lock_for_reading(
    backend: &dyn Backend,
    directory: &Path,
) -> Result<ReadingLock, StorageError> {
    if !exists(backend, &directory.join(LOCK))? {
        return Ok(ReadingLock { open_elsewhere: false, _guard: None });
    }
    match lock(backend, directory) {
        Ok(guard) => Ok(ReadingLock { open_elsewhere: false, _guard: Some(guard) }),
        Err(StorageError::AlreadyOpen { .. }) => {
            Ok(ReadingLock { open_elsewhere: true, _guard: None })
        }
        Err(error) => Err(error),
    }
}

/// Checks that a directory without a manifest holds nothing that could be lost if a database were
/// created there. This includes files that are not Weft's.
pub(super) fn expect_new(backend: &dyn Backend, directory: &Path) -> Result<(), StorageError> {
    if !exists(backend, directory)? {
        return Ok(());
    }
    let names = list(backend, directory)?;
    let foreign = names.iter().find(|name| !matches!(name.as_str(), LOCK | MANIFEST_NEW));
    let Some(foreign) = foreign else { return Ok(()) };
    let ours = foreign == LOG || parse_checkpoint_name(foreign).is_some();
    let message = if ours {
        format!(
            "it holds `{foreign}`, but no {MANIFEST}: that was lost, or this is a backup that was \
             interrupted"
        )
    } else {
        format!("it holds `{foreign}`, and no {MANIFEST}; a new database needs an empty directory")
    };
    Err(StorageError::NotADatabase { directory: directory.to_owned(), message })
}

pub(super) fn exists(backend: &dyn Backend, path: &Path) -> Result<bool, StorageError> {
    backend.exists(path).map_err(|error| StorageError::io("look for", path, &error))
}

pub(super) fn open_read_only(
    backend: &dyn Backend,
    path: &Path,
) -> Result<Box<dyn File>, StorageError> {
    backend.open_read_only(path).map_err(|error| StorageError::io("open", path, &error))
}

pub(super) fn list(backend: &dyn Backend, path: &Path) -> Result<Vec<String>, StorageError> {
    backend.list(path).map_err(|error| StorageError::io("list", path, &error))
}

pub(super) fn sync(backend: &dyn Backend, directory: &Path) -> Result<(), StorageError> {
    backend.sync_directory(directory).map_err(|error| StorageError::sync(directory, &error))
}

/// Creates a directory if it does not exist, and syncs its name to the disk.
pub(super) fn create_directory(backend: &dyn Backend, path: &Path) -> Result<(), StorageError> {
    if !exists(backend, path)? {
        backend
            .create_directory(path)
            .map_err(|error| StorageError::io("create the directory", path, &error))?;
    }
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync(backend, Path::new(".")),
        Some(parent) => sync(backend, parent),
        None => Ok(()),
    }
}

pub(super) fn remove_if_there(backend: &dyn Backend, path: &Path) -> Result<(), StorageError> {
    if !exists(backend, path)? {
        return Ok(());
    }
    backend.remove(path).map_err(|error| StorageError::io("remove", path, &error))
}

/// Removes the directories of all checkpoints except the one of epoch `current`.
pub(super) fn remove_other_checkpoints(
    backend: &dyn Backend,
    directory: &Path,
    current: Option<u64>,
) -> Result<(), StorageError> {
    for name in list(backend, directory)? {
        let epoch = parse_checkpoint_name(&name);
        if epoch.is_some() && epoch != current {
            remove_checkpoint(backend, &directory.join(name))?;
        }
    }
    Ok(())
}

/// Removes a checkpoint's directory and the files in it. After a crash, some of them may be left.
pub(super) fn remove_checkpoint(backend: &dyn Backend, path: &Path) -> Result<(), StorageError> {
    for name in list(backend, path)? {
        let file = path.join(name);
        backend.remove(&file).map_err(|error| StorageError::io("remove", &file, &error))?;
    }
    backend
        .remove_directory(path)
        .map_err(|error| StorageError::io("remove the directory", path, &error))
}

/// Writes a file that consists of one frame, and syncs the file but not its name.
pub(super) fn write_single_frame(
    backend: &dyn Backend,
    path: &Path,
    kind: FrameKind,
    payload: &[u8],
) -> Result<(), StorageError> {
    let mut bytes = Vec::new();
    let header = FrameHeader { closes_epoch: true, ..FrameHeader::new(kind, 0) };
    write_frame(&mut bytes, &header, payload);
    let file =
        backend.create_new(path).map_err(|error| StorageError::io("create", path, &error))?;
    file.write_at(&bytes, 0).map_err(|error| StorageError::io("write", path, &error))?;
    file.sync().map_err(|error| StorageError::sync(path, &error))
}

/// Reads the payload of a file that consists of one frame.
pub(super) fn read_single_frame(
    backend: &dyn Backend,
    path: &Path,
    kind: FrameKind,
) -> Result<Vec<u8>, StorageError> {
    let file = open_read_only(backend, path)?;
    let mut reader = FrameReader::new(&*file, path)?;
    let payload = match reader.next()? {
        Next::Frame(frame) if frame.header.kind == kind => frame.payload.to_vec(),
        Next::Frame(_) => return Err(StorageError::damaged(path, 0, "it is another kind of file")),
        Next::End => return Err(StorageError::damaged(path, 0, "the file is empty")),
        Next::Damage(damage) => {
            return Err(StorageError::damaged(path, damage.offset, damage.what));
        }
    };
    if reader.position() != reader.length() {
        return Err(StorageError::damaged(path, reader.position(), "more bytes follow"));
    }
    Ok(payload)
}
