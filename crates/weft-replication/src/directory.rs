//! The directory of a node.
//!
//! ```text
//!   DIR/LOCK                     held by the process that has the directory open
//!   DIR/LOG                      the identity of the replicated log
//!   DIR/base-<number>/           a database as it was behind a record: a directory of Weft's
//!   DIR/base-<number>/POSITION   where in the log that is; written last
//!   DIR/records-<number>         the records behind the older base: see `journal.rs`
//!   DIR/lost-<number>-<number>   records that the log does not have
//! ```
//!
//! The state of a node follows from the records alone. So the rows on the disk need no position of their own that could
//! disagree with them: a base has one, which never changes, and behind it the records are replayed. The last two bases
//! stay, so that a node can go back behind records that the log has lost.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft::durability::{Backend, FileSystem, LockError, LockGuard};

use crate::base::copy_files;
use crate::flaw::{Flaw, flawed};
use crate::journal::{Journal, JournalRecord, PREFIX, StoredJournal};
use crate::log::{LogError, ReplicatedLog};
use crate::position::{StoredPosition, read_file, write_file};
use crate::reader::{Effect, Position, Reader};
use crate::record::{Record, RecordKind};
use crate::tail::{Agreement, Kept, Tail, repair};

const BASE_PREFIX: &str = "base-";
const POSITION: &str = "POSITION";
const LOG: &str = "LOG";

/// How many bases stay.
const BASES: usize = 2;

/// Where a node keeps its state.
#[derive(Clone)]
pub struct Place {
    pub backend: Arc<dyn Backend>,
    pub path: PathBuf,
}

impl Place {
    pub fn new(path: &Path) -> Place {
        Place { backend: Arc::new(FileSystem), path: path.to_owned() }
    }
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the node's directory {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Unconnected(String),
}

/// Records that a node has, and the replicated log has not: the log has lost them, or has never accepted them, and a new
/// primary went on without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The generation of the first lost epoch.
    pub generation: u64,
    /// The first lost epoch.
    pub first_epoch: u64,
    /// The last one.
    pub last_epoch: u64,
    /// Whether the log had confirmed some of it, so that commits were acknowledged. If not, that is unknown.
    pub was_confirmed: bool,
    /// The file with the records, if the node has a directory.
    pub file: Option<PathBuf>,
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { generation, first_epoch, last_epoch, was_confirmed, file } = self;
        write!(
            formatter,
            "the replicated log does not have the epochs {first_epoch} to {last_epoch} of generation {generation}, "
        )?;
        match was_confirmed {
            true => write!(formatter, "which it had confirmed")?,
            false => write!(formatter, "which it may have confirmed")?,
        }
        match file {
            Some(file) => write!(formatter, "; they are in {}", file.display()),
            None => Ok(()),
        }
    }
}

/// Returns the epochs among some records that the log does not have, if there are any.
pub fn loss<'a>(
    records: impl Iterator<Item = (&'a [u8], bool)>,
    file: Option<PathBuf>,
) -> Option<Loss> {
    let mut found: Option<Loss> = None;
    for (bytes, was_confirmed) in records {
        let Ok(record) = Record::decode(bytes) else { continue };
        let RecordKind::Part { epoch, .. } = record.kind else { continue };
        let loss = found.get_or_insert(Loss {
            generation: record.generation,
            first_epoch: epoch,
            last_epoch: epoch,
            was_confirmed: false,
            file: file.clone(),
        });
        loss.last_epoch = epoch;
        loss.was_confirmed |= was_confirmed;
    }
    found
}

/// The file system and the directory of a base, if there is one.
pub type BasePlace = Option<(Arc<dyn Backend>, PathBuf)>;

/// A base of a directory.
#[derive(Clone, Debug)]
pub struct Base {
    pub path: PathBuf,
    pub stored: StoredPosition,
}

/// Where a node begins.
#[derive(Default)]
pub struct Origin {
    /// The rows, and where they are. `None` for an empty database.
    pub base: Option<(Arc<dyn Backend>, PathBuf)>,
    pub position: Position,
    /// The body of the last fence before the position.
    pub body: Vec<u8>,
    /// The records behind the position, which the log has, too.
    pub replay: Vec<Kept>,
    /// Where in the log they end.
    pub next: u64,
    pub journal: Option<Journal>,
    pub loss: Option<Loss>,
    /// How many records were appended to the log again.
    pub repaired: usize,
}

/// An open directory.
pub struct Directory {
    place: Place,
    identity: String,
    state: Mutex<State>,
    pub flaw: Flaw,
    _lock: Box<dyn LockGuard>,
}

#[derive(Default)]
struct State {
    /// The bases, the oldest first.
    bases: Vec<Base>,
    /// How often a node has begun here. A base that was begun before does not count any more.
    lives: u64,
}

/// A base that is being written.
pub struct NewBase {
    pub backend: Arc<dyn Backend>,
    pub path: PathBuf,
    lives: u64,
}

impl Directory {
    /// Locks a directory, which is created if it does not exist, and checks that it belongs to this log.
    ///
    /// # Errors
    /// Those of the file system; [`DirectoryError::Refused`].
    pub fn open(place: &Place, identity: &str) -> Result<Directory, DirectoryError> {
        let Place { backend, path } = place;
        let at = |error| DirectoryError::Io { path: path.clone(), error };
        if !backend.exists(path).map_err(at)? {
            backend.create_directory(path).map_err(at)?;
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        backend.sync_directory(parent.unwrap_or(Path::new("."))).map_err(at)?;
        let lock = backend.try_lock(&path.join("LOCK")).map_err(|error| match error {
            LockError::AlreadyLocked => DirectoryError::Refused(format!(
                "the directory {} is open in another node: stop that one, or name another directory",
                path.display()
            )),
            LockError::Io(error) => at(error),
        })?;
        let name = path.join(LOG);
        if backend.exists(&name).map_err(at)? {
            let known = read_file(&**backend, &name).map_err(at)?;
            if known != identity.as_bytes() {
                return Err(DirectoryError::Refused(format!(
                    "the directory {} belongs to the replicated log `{}`, and this is `{identity}`: connect with that log, \
                     or name an empty directory to begin with this one",
                    path.display(),
                    String::from_utf8_lossy(&known)
                )));
            }
        } else {
            let names = backend.list(path).map_err(at)?;
            let foreign = names.iter().find(|name| !matches!(name.as_str(), "LOCK" | "LOG.new"));
            if let Some(foreign) = foreign {
                return Err(DirectoryError::Refused(format!(
                    "the directory {} holds `{foreign}`, and is no node's: name an empty directory",
                    path.display()
                )));
            }
            write_file(&**backend, path, LOG, identity.as_bytes()).map_err(at)?;
        }
        let (place, identity) = (place.clone(), identity.to_owned());
        let flaw = Flaw::default();
        Ok(Directory { place, identity, state: Mutex::default(), flaw, _lock: lock })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: io::Error) -> DirectoryError {
        DirectoryError::Io { path: self.place.path.clone(), error }
    }

    /// Decides with the log's help where the node begins: records that the log has lost are appended to it again, and those
    /// that it never accepted are cut off. `all` is that of [`Tail::compare`].
    ///
    /// # Errors
    /// If the log cannot be reached, those of the file system, and damage; [`DirectoryError::Unconnected`] if the log does not
    /// continue what the directory has.
    pub fn load(&self, log: &dyn ReplicatedLog, all: bool) -> Result<Origin, DirectoryError> {
        let Place { backend, path } = &self.place;
        let mut state = self.state();
        state.lives += 1;
        let bases = self.find_bases()?;
        let stored = StoredJournal::read(&**backend, path).map_err(|error| self.error(error))?;
        // As long as the first records are there, the beginning of the log is a base, too.
        let oldest = bases.first().filter(|_| stored.first > 0 || stored.records.is_empty());
        let start = oldest.map(|base| base.stored.clone()).unwrap_or_default();
        if stored.first > start.position.counted && !stored.records.is_empty() {
            return Err(DirectoryError::Refused(format!(
                "the directory {} lacks the records {} to {}: a file is gone; name an empty directory",
                path.display(),
                start.position.counted,
                stored.first
            )));
        }
        let mut tail = tail_of(&stored, &start);
        let (mut agreement, repaired) = repair(&tail, log, all, None)?;
        if let Agreement::Other { from } = agreement {
            if !flawed!(self.flaw, UnacceptedKept) {
                tail.cut(from);
            }
            agreement = tail.compare(log, all, None)?;
        }
        let kept = tail.length();
        let next = match agreement {
            Agreement::Whole { next } => next,
            _ if flawed!(self.flaw, UnacceptedKept) => 0,
            // Unknown: nothing in the log shows that it continues this directory.
            _ if tail.length() == 0 && bases.is_empty() => 0,
            _ => {
                return Err(DirectoryError::Unconnected(format!(
                    "the replicated log `{}` does not have record {}, behind which the directory {} goes on; \
                     name an empty directory, or begin with a backup",
                    self.identity,
                    start.position.next,
                    path.display()
                )));
            }
        };
        let end = start.position.counted + kept as u64;
        let lost = end.saturating_sub(stored.first) as usize;
        let lost = stored.records.get(lost..).unwrap_or_default();
        let loss = self.keep_lost(end, lost)?;
        let base = bases.iter().rev().find(|base| base.stored.position.counted <= end).cloned();
        let (usable, useless): (Vec<_>, Vec<_>) =
            bases.into_iter().partition(|base| base.stored.position.counted <= end);
        for base in useless {
            remove_all(&**backend, &base.path).map_err(|error| self.error(error))?;
        }
        state.bases = usable;
        drop(state);
        let origin = base.as_ref().map(|base| base.stored.clone()).unwrap_or_default();
        let counted = origin.position.counted;
        let journal = stored.cut(backend, path, end, counted).map_err(|error| self.error(error))?;
        let replay: Vec<Kept> =
            tail.since(counted).take((end - counted) as usize).cloned().collect();
        Ok(Origin {
            base: base.map(|base| (Arc::clone(backend), base.path)),
            position: origin.position,
            body: origin.body,
            replay,
            next,
            journal: Some(journal),
            loss,
            repaired,
        })
    }

    /// Writes the records that only this node has into a file.
    fn keep_lost(
        &self,
        first: u64,
        records: &[JournalRecord],
    ) -> Result<Option<Loss>, DirectoryError> {
        if records.is_empty() {
            return Ok(None);
        }
        let Place { backend, path } = &self.place;
        let name = format!("lost-{first:020}-{:08x}", fastrand::u32(..));
        let file = path.join(&name);
        // A primary writes an epoch when the log has confirmed the one before.
        let epoch_of = |record: &JournalRecord| match Record::decode(&record.bytes).ok()? {
            Record { generation, kind: RecordKind::Part { epoch, .. }, .. } => {
                Some((generation, epoch))
            }
            _ => None,
        };
        let last = records.last().and_then(epoch_of);
        let confirmed = records
            .iter()
            .map(|record| (&record.bytes[..], !record.is_ahead || epoch_of(record) != last));
        let Some(loss) = loss(confirmed, Some(file)) else { return Ok(None) };
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&record.bytes);
        }
        write_file(&**backend, path, &name, &bytes).map_err(|error| self.error(error))?;
        Ok(Some(loss))
    }

    /// Returns the complete bases, the oldest first, and removes the others.
    fn find_bases(&self) -> Result<Vec<Base>, DirectoryError> {
        let Place { backend, path } = &self.place;
        let mut bases = Vec::new();
        let names = backend.list(path).map_err(|error| self.error(error))?;
        for name in names.iter().filter(|name| name.starts_with(BASE_PREFIX)) {
            let base = path.join(name);
            match StoredPosition::read(&**backend, &base.join(POSITION)) {
                Ok(Some(stored)) => bases.push(Base { path: base, stored }),
                Ok(None) => {
                    remove_all(&**backend, &base).map_err(|error| self.error(error))?;
                }
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(bases)
    }

    /// Returns the place of a new base behind this many records, in which nothing is yet; `None` if there is one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn begin_base(&self, counted: u64) -> io::Result<Option<NewBase>> {
        let Place { backend, path } = &self.place;
        let path = path.join(format!("{BASE_PREFIX}{counted:020}"));
        let state = self.state();
        if state.bases.iter().any(|known| known.path == path) {
            return Ok(None);
        }
        // A failed attempt may have left something.
        if backend.exists(&path)? {
            remove_all(&**backend, &path)?;
        }
        Ok(Some(NewBase { backend: Arc::clone(backend), path, lives: state.lives }))
    }

    /// Makes a base, whose rows are on the disk, the newest one, and removes what is needed no longer. Returns false if
    /// the node has begun again since the base was begun.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn end_base(&self, base: NewBase, stored: StoredPosition) -> io::Result<bool> {
        let Place { backend, path } = &self.place;
        let mut state = self.state();
        if state.lives != base.lives {
            return Ok(false);
        }
        write_file(&**backend, &base.path, POSITION, &stored.encode())?;
        backend.sync_directory(path)?;
        state.bases.push(Base { path: base.path, stored });
        while state.bases.len() > BASES {
            remove_all(&**backend, &state.bases.remove(0).path)?;
        }
        // With one base, the node can go back to the beginning of the log.
        if state.bases.len() == BASES {
            let oldest = state.bases[0].stored.position.counted;
            Journal::forget_before(&**backend, path, oldest)?;
        }
        Ok(true)
    }

    /// Moves everything in the directory into a new directory inside of it, and returns that.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_aside(&self) -> Result<PathBuf, DirectoryError> {
        let Place { backend, path } = &self.place;
        let aside = path.join(format!("aside-{:08x}", fastrand::u32(..)));
        let move_all = || {
            let mut names = backend.list(path)?;
            backend.create_directory(&aside)?;
            let stays = |name: &str| matches!(name, "LOCK" | LOG) || name.starts_with("aside-");
            names.retain(|name| !stays(name));
            // A crash leaves what is not moved yet. Records without the base before them would be refused. So the records
            // are moved before the bases, the newest ones first.
            names.sort_unstable();
            let (records, others): (Vec<_>, Vec<_>) =
                names.iter().partition(|name| name.starts_with(PREFIX));
            for name in records.into_iter().rev().chain(others) {
                backend.rename(&path.join(name), &aside.join(name))?;
                backend.sync_directory(&aside)?;
                backend.sync_directory(path)?;
            }
            Ok(())
        };
        move_all().map_err(|error| self.error(error))?;
        Ok(aside)
    }

    /// Copies a backup into the directory, which has nothing else. Returns the new base, and the journal behind it.
    ///
    /// # Errors
    /// Those of the file systems.
    pub fn install(
        &self,
        (source, from): (Arc<dyn Backend>, PathBuf),
        stored: StoredPosition,
    ) -> Result<(BasePlace, Option<Journal>), DirectoryError> {
        let Place { backend, path } = &self.place;
        let counted = stored.position.counted;
        let install = || {
            let base = self.begin_base(counted)?.ok_or(io::ErrorKind::AlreadyExists)?;
            let place = (Arc::clone(backend), base.path.clone());
            copy_files(&*source, &from, &**backend, &base.path)?;
            self.end_base(base, stored)?;
            let journal = StoredJournal::default().cut(backend, path, counted, counted)?;
            Ok((Some(place), Some(journal)))
        };
        install().map_err(|error: io::Error| self.error(error))
    }

    pub fn path(&self) -> &Path {
        &self.place.path
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }
}

/// Replays the records of a journal behind a position, and returns those that count.
fn tail_of(stored: &StoredJournal, start: &StoredPosition) -> Tail {
    let mut tail = Tail::at(start.position);
    tail.keep_all();
    let mut reader = Reader::at(start.position);
    let skipped = start.position.counted.saturating_sub(stored.first) as usize;
    for record in stored.records.iter().skip(skipped) {
        let before = reader.position();
        reader.next = record.offset;
        match reader.take(record.offset, &record.bytes) {
            Ok(Effect::Part | Effect::Epoch { .. } | Effect::Generation { .. }) => {}
            // It was written, and did not count.
            _ => break,
        }
        tail.push(record.offset, &record.bytes, before);
    }
    tail
}

/// Removes a directory and everything in it.
pub fn remove_all(backend: &dyn Backend, path: &Path) -> io::Result<()> {
    for name in backend.list(path)? {
        let inside = path.join(name);
        if backend.remove(&inside).is_err() {
            remove_all(backend, &inside)?;
        }
    }
    backend.remove_directory(path)
}
