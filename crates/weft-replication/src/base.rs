//! A database as it was at a position of the log: how a node takes it from its open database.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weft::durability::{Backend, CheckpointSource, File, Manifest, StorageError};
use weft::protocol::Protocol;
use weft::{Database, Failure};

use crate::disk::{Mode, Sink};
use crate::flaw::flawed;
use crate::link::Link;
use crate::node::{Applied, Life};
use crate::position::StoredPosition;
use crate::reader::{Position, ReplicationToken};

/// Passes all rows of a node's database to `write`, as they are at a position of the log. Also passes that position, and the
/// body of the fence before it. Transactions and the replay go on at the same time.
///
/// # Errors
/// Those of `write`; if the database ends.
pub fn capture<P: Protocol, R>(
    life: &Life<P>,
    write: impl FnOnce(&Manifest, &dyn CheckpointSource, &Applied) -> Result<R, StorageError>,
) -> Result<R, Failure> {
    let _alone = life.capturing.lock().unwrap_or_else(PoisonError::into_inner);
    let held = life.applied.lock().unwrap_or_else(PoisonError::into_inner);
    match life.link.mode() {
        // The rows stay as they are until the snapshot is open.
        Mode::Following => life.database.read_stored(|manifest, source| {
            let applied = held.clone();
            drop(held);
            write(manifest, source, &applied)
        }),
        Mode::Writing | Mode::Ended => {
            let body = held.body.clone();
            drop(held);
            let recorder = Recorder::start(&life.link);
            life.database.read_stored(|manifest, source| {
                let position = recorder.position_at(&life.database, source.epoch())?;
                write(manifest, source, &Applied { position, body })
            })
        }
    }
}

/// A backup with which a node can begin.
pub struct FoundBackup {
    pub backend: Arc<dyn Backend>,
    pub path: PathBuf,
    pub stored: StoredPosition,
    pub trouble: StoreTrouble,
}

/// Why the store of a backup has failed while the backup was read, if it has.
pub type StoreTrouble = Arc<Mutex<Option<String>>>;

/// Where backups are found.
pub trait BackupSource: Send + Sync {
    /// Returns the newest backup of the log `log` that is as it was written, that the log's records from `first` on
    /// continue, and that has nothing later than `until`. Also returns what was passed over, and why.
    ///
    /// # Errors
    /// Why the store does not answer. The same call may succeed later.
    fn newest(
        &self,
        log: &str,
        first: u64,
        until: Option<ReplicationToken>,
    ) -> Result<(Option<FoundBackup>, Vec<String>), String>;
}

/// Copies a directory, the manifest last. Opening a directory of `source` as a file must be [`io::ErrorKind::NotFound`], as
/// it is in a backup.
///
/// # Errors
/// Those of the file systems.
pub fn copy_files(
    source: &dyn Backend,
    from: &Path,
    target: &dyn Backend,
    to: &Path,
) -> io::Result<()> {
    if !target.exists(to)? {
        target.create_directory(to)?;
    }
    let mut names = source.list(from)?;
    names.sort_unstable_by_key(|name| name == "MANIFEST");
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        match source.open_read_only(&from) {
            Ok(file) => copy_file(&*file, target, &to)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                copy_files(source, &from, target, &to)?;
            }
            Err(error) => return Err(error),
        }
    }
    target.sync_directory(to)?;
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    target.sync_directory(parent.unwrap_or(Path::new(".")))
}

fn copy_file(file: &dyn File, target: &dyn Backend, to: &Path) -> io::Result<()> {
    let copy = target.create_new(to)?;
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut buffer, offset)?;
        if read == 0 {
            return copy.sync();
        }
        copy.write_at(&buffer[..read], offset)?;
        offset += read as u64;
    }
}

/// Has the link note where in the log the primary's epochs end.
struct Recorder<'l>(&'l Link);

impl Recorder<'_> {
    fn start(link: &Link) -> Recorder<'_> {
        let mut session = link.session();
        session.recorded = Some(vec![(0, session.member.position())]);
        Recorder(link)
    }

    /// Waits until everything up to an epoch of the primary is replicated, and returns where in the log it ends.
    fn position_at<P: Protocol>(
        &self,
        database: &Database<P>,
        epoch: u64,
    ) -> Result<Position, StorageError> {
        database.flush().map_err(|error| StorageError::Io {
            operation: "replicate the epochs before a checkpoint of",
            path: database.directory().unwrap_or("".as_ref()).to_owned(),
            message: error.to_string(),
        })?;
        let mut session = self.0.session();
        let recorded = session.recorded.take().unwrap_or_default();
        let is_before = |it: &&(u64, Position)| {
            it.0 <= epoch || flawed!(session.member.flaw(), PositionTooLate)
        };
        let last = recorded.iter().rev().find(is_before);
        Ok(last.expect("the first one is before all epochs").1)
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.0.session().recorded = None;
    }
}
