//! Backups in an object store: S3, Google Cloud Storage, Azure, or a directory.
//!
//! ```text
//!   PREFIX/<number>-<random>/000000 …   parts of the files, each at most 8 MiB
//!   PREFIX/<number>-<random>/manifest   the files, their parts and checksums, and the position in the log
//! ```
//!
//! `number` says how many records of the log had counted. A backup is a directory of Weft's, in parts. The manifest is put
//! last, and only if there isn't one. A backup without a manifest is unfinished, and is never used.
//!
//! A new node begins with the newest backup, and reads the log from there. If that backup is damaged, it takes the one
//! before it. So the log is [truncated](crate::Node::truncate_log) only below the *second*-newest one.
//!
//! A backup must be on the disk before the log is truncated because of it. So a `LocalFileSystem` needs `with_fsync(true)`.
//! [`Backups::at`] sets that.
//!
//! The crate `object_store` has the clients. Choose yours with the features of that crate:
//!
//! ```rust
//! use std::sync::Arc;
//!
//! use object_store::local::LocalFileSystem;
//! use weft::{Database, Record};
//! use weft_replication::backup::Backups;
//! use weft_replication::{NodeBuilder, SimulatedLog};
//!
//! #[derive(Clone, Record)]
//! struct Account {
//!     #[record(key)]
//!     id: u32,
//!     cents: i64,
//! }
//!
//! # let directory = std::env::temp_dir().join(format!("weft-backups-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! let store = LocalFileSystem::new_with_prefix(&directory)?.with_fsync(true);
//! let backups = Arc::new(Backups::open(Arc::new(store), "accounts")?);
//! let log = SimulatedLog::new(1);
//! let builder = || NodeBuilder::new(Database::builder).table::<Account>();
//! let node = builder().start(log.connect())?;
//! node.back_up(&backups)?;
//! let other = builder().backups(Arc::clone(&backups)).start(log.connect())?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::runtime::{Builder, Runtime};
use url::Url;
use weft::durability::{
    Backend, CheckpointOptions, File, FileSystem, LockError, LockGuard, write_backup,
};
use weft::protocol::Protocol;

use crate::base::{BackupSource, FoundBackup, capture, copy_files};
use crate::node::{Node, NodeBuilder, ReplicationError, unwritable};
use crate::position::StoredPosition;
use crate::reader::{Position, ReplicationToken};

mod reading;

use reading::BackupDisk;

/// How many bytes a part has at most.
const PART_BYTES: usize = 8 << 20;

/// The first bytes of a manifest. The last one is the version of the format.
const MAGIC: [u8; 4] = *b"WRB\x01";

const MANIFEST: &str = "manifest";

/// The directory of a backup, as its file system sees it.
const DIRECTORY: &str = "backup";

/// Why something cannot be done with backups.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The object store has returned an error.
    #[error("the object store: {0}")]
    Store(#[from] object_store::Error),
    /// A backup is not as it was written.
    #[error("backup {name} is damaged: {what}; use another one")]
    Damaged {
        /// The backup's name.
        name: String,
        /// The error in it.
        what: String,
    },
    /// The directory that was to be written has something in it, or cannot be written.
    #[error("{path}: {message}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error.
        message: String,
    },
    /// The system cannot start a thread.
    #[error("the thread of the object store's client: {0}")]
    Thread(String),
    /// An address names no object store that this program has a client for.
    #[error("`{address}` cannot be used: {message}")]
    Address {
        /// The address.
        address: String,
        /// The error.
        message: String,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: u64,
    bytes: u64,
    checksum: u32,
}

/// The parts of each file, by its path in the backup.
type Files = BTreeMap<PathBuf, Vec<Part>>;

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    name: String,
    stored: StoredPosition,
    files: Files,
}

/// What an object store has under a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The complete backups. Those of each log stand in order, the newest first. Those of several logs do not.
    pub backups: Vec<Backup>,
    /// What is unfinished, or cannot be read: the names, and why.
    pub unusable: Vec<(String, String)>,
}

/// The backups of one database.
pub struct Backups {
    client: Arc<Client>,
}

/// The object store, and the runtime that its client needs.
struct Client {
    store: Arc<dyn ObjectStore>,
    prefix: ObjectPath,
    runtime: Option<Runtime>,
}

impl Backup {
    /// Returns its name, which sorts later than those of earlier backups of the same log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the identity of the replicated log.
    pub fn log(&self) -> &str {
        &self.stored.log
    }

    /// Returns where in the log the backup's state is.
    pub fn position(&self) -> Position {
        self.stored.position
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.values().flatten().map(|part| part.bytes).sum()
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut put = |text: &[u8]| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        };
        put(&self.stored.encode());
        for (path, parts) in &self.files {
            put(path.to_str().expect("the names are ours").as_bytes());
            let numbers = parts.iter().flat_map(|it| [it.number, it.bytes, it.checksum.into()]);
            put(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(name: &str, bytes: &[u8]) -> Option<Backup> {
        let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let take = |rest: &mut &[u8]| {
            let length = u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
            Some(rest.split_off(..usize::try_from(length).ok()?)?.to_vec())
        };
        let stored = StoredPosition::decode(&take(&mut rest)?)?;
        let mut files = Files::new();
        while !rest.is_empty() {
            let path = PathBuf::from(String::from_utf8(take(&mut rest)?).ok()?);
            let numbers = take(&mut rest)?;
            let parts = numbers.chunks_exact(24).map(|part| {
                let number = |at| u64::from_le_bytes(part[at..at + 8].try_into().expect("8 bytes"));
                let checksum = u32::try_from(number(16)).ok()?;
                Some(Part { number: number(0), bytes: number(8), checksum })
            });
            files.insert(path, parts.collect::<Option<_>>()?);
        }
        Some(Backup { name: name.to_owned(), stored, files })
    }
}

impl fmt::Display for Backup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { next, generation, epoch, .. } = self.position();
        let (name, bytes, log) = (&self.name, self.bytes(), self.log());
        write!(
            formatter,
            "{name}  {bytes} bytes  generation {generation}, epoch {epoch}, before record {next} of {log}"
        )
    }
}

impl Client {
    /// Waits for a request. It runs on the client's thread, so this can be called from any thread.
    fn wait<R: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<R>> + Send + 'static,
    ) -> object_store::Result<R> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("it is there until the client is dropped");
        runtime.spawn(async move {
            // An error means that the caller has given up.
            let _ = sender.send(request.await);
        });
        let gone = || object_store::Error::Generic {
            store: "client",
            source: "its thread is gone".into(),
        };
        receiver.recv().map_err(|_| gone())?
    }

    fn path(&self, backup: &str, object: &str) -> ObjectPath {
        self.prefix.clone().join(backup).join(object)
    }

    fn get(&self, path: ObjectPath) -> object_store::Result<Vec<u8>> {
        let store = Arc::clone(&self.store);
        self.wait(async move { Ok(store.get(&path).await?.bytes().await?.to_vec()) })
    }

    /// Puts an object that must not be there.
    fn create(&self, path: ObjectPath, bytes: Vec<u8>) -> object_store::Result<()> {
        let store = Arc::clone(&self.store);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.wait(async move {
            store.put_opts(&path, PutPayload::from(bytes), options).await?;
            Ok(())
        })
    }

    /// Returns the next parts of what is under a path: objects, and names that others begin with.
    fn list(&self, path: ObjectPath) -> object_store::Result<(Vec<String>, Vec<String>)> {
        let store = Arc::clone(&self.store);
        let found = self.wait(async move { store.list_with_delimiter(Some(&path)).await })?;
        let name = |path: &ObjectPath| path.filename().map(str::to_owned);
        let objects = found.objects.iter().filter_map(|object| name(&object.location));
        Ok((objects.collect(), found.common_prefixes.iter().filter_map(name).collect()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Waiting for the runtime would panic on a thread of an executor.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Backups {
    /// Returns the backups under a prefix of an object store. A directory needs [`LocalFileSystem::with_fsync`]: without it,
    /// a machine that loses power can lose a backup because of which the log was truncated.
    ///
    /// # Errors
    /// [`BackupError::Thread`].
    pub fn open(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Backups, BackupError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| BackupError::Thread(error.to_string()))?;
        let client = Client { store, prefix: ObjectPath::from(prefix), runtime: Some(runtime) };
        Ok(Backups { client: Arc::new(client) })
    }

    /// Returns the backups in a directory, which must exist, or at the address of an object store, such as `s3://bucket/accounts`.
    /// In a directory, what is written is synced.
    /// The store's options are in the environment (`AWS_ACCESS_KEY_ID` and so on). Which stores there are depends on the
    /// features `s3`, `gcs` and `azure`.
    ///
    /// # Errors
    /// [`BackupError::Address`], [`BackupError::Thread`].
    pub fn at(address: &str) -> Result<Backups, BackupError> {
        let wrong = |message: String| BackupError::Address { address: address.to_owned(), message };
        let (store, prefix) = match Url::parse(address) {
            Err(_) => {
                let store = LocalFileSystem::new_with_prefix(address);
                let store = store.map_err(|error| wrong(error.to_string()))?.with_fsync(true);
                (Arc::new(store) as Arc<dyn ObjectStore>, String::new())
            }
            Ok(url) => {
                let found = object_store::parse_url_opts(&url, std::env::vars());
                let (store, prefix) = found.map_err(|error| {
                    wrong(format!("{error}; is the program built with the feature for this store?"))
                })?;
                let store: Arc<dyn ObjectStore> = match url.scheme() {
                    "file" => Arc::new(LocalFileSystem::new().with_fsync(true)),
                    _ => store.into(),
                };
                (store, prefix.to_string())
            }
        };
        Backups::open(store, &prefix)
    }

    /// Lists the backups.
    ///
    /// # Errors
    /// [`BackupError::Store`].
    pub fn list(&self) -> Result<Listing, BackupError> {
        let mut listing = Listing::default();
        let mut names = self.client.list(self.client.prefix.clone())?.1;
        names.sort_unstable();
        for name in names.into_iter().rev() {
            match self.client.get(self.client.path(&name, MANIFEST)) {
                Ok(bytes) => match Backup::decode(&name, &bytes) {
                    Some(backup) => listing.backups.push(backup),
                    None => listing.unusable.push((name, "its manifest is damaged".to_owned())),
                },
                Err(object_store::Error::NotFound { .. }) => {
                    listing.unusable.push((name, "it is unfinished".to_owned()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(listing)
    }

    /// Reads a whole backup, and checks that it is as it was written.
    ///
    /// # Errors
    /// [`BackupError::Damaged`], [`BackupError::Store`].
    pub fn verify(&self, backup: &Backup) -> Result<(), BackupError> {
        let mut parts = backup.files.values().flatten();
        parts.try_for_each(|part| self.client.read_part(&backup.name, part).map(|_| ()))
    }

    /// Writes a backup's state into a directory, which must be empty or not exist. A database opens it like any other.
    ///
    /// # Errors
    /// [`BackupError::Directory`], [`BackupError::Damaged`], [`BackupError::Store`].
    pub fn restore(&self, backup: &Backup, directory: &Path) -> Result<(), BackupError> {
        let failed = |error: io::Error| BackupError::Directory {
            path: directory.to_owned(),
            message: error.to_string(),
        };
        if FileSystem.exists(directory).map_err(failed)? {
            let names = FileSystem.list(directory).map_err(failed)?;
            if let Some(name) = names.first() {
                let message = format!("it holds `{name}`; name an empty directory");
                return Err(BackupError::Directory { path: directory.to_owned(), message });
            }
        }
        self.verify(backup)?;
        let disk = self.disk(backup);
        copy_files(&disk, Path::new(DIRECTORY), &FileSystem, directory).map_err(failed)
    }

    /// Removes a backup, its manifest first. Do not remove the two newest ones.
    ///
    /// # Errors
    /// [`BackupError::Store`].
    pub fn remove(&self, backup: &Backup) -> Result<(), BackupError> {
        let numbers = backup.files.values().flatten().map(|part| format!("{:06}", part.number));
        for object in std::iter::once(MANIFEST.to_owned()).chain(numbers) {
            let (store, path) =
                (Arc::clone(&self.client.store), self.client.path(&backup.name, &object));
            self.client.wait(async move { store.delete(&path).await })?;
        }
        Ok(())
    }

    fn disk(&self, backup: &Backup) -> BackupDisk {
        BackupDisk::new(Arc::clone(&self.client), backup.clone())
    }
}

impl fmt::Debug for Backups {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Backups").field("prefix", &self.client.prefix).finish()
    }
}

impl BackupSource for Backups {
    fn newest(
        &self,
        log: &str,
        first: u64,
        until: Option<ReplicationToken>,
    ) -> Result<(Option<FoundBackup>, Vec<String>), String> {
        let listing = self.list().map_err(|error| error.to_string())?;
        let mut skipped = Vec::new();
        for (name, why) in listing.unusable {
            skipped.push(format!("{name}: {why}"));
        }
        let fits = |backup: &&Backup| {
            let is_too_late = until.is_some_and(|until| backup.position().token() > until);
            backup.log() == log && !is_too_late
        };
        for backup in listing.backups.iter().filter(fits) {
            if backup.position().next < first {
                skipped.push(format!("{}: the log does not reach back to it", backup.name));
                continue;
            }
            match self.verify(backup) {
                Ok(()) => {
                    let disk = self.disk(backup);
                    let found = FoundBackup {
                        trouble: disk.trouble(),
                        backend: Arc::new(disk),
                        path: DIRECTORY.into(),
                        stored: backup.stored.clone(),
                    };
                    return Ok((Some(found), skipped));
                }
                Err(error @ BackupError::Damaged { .. }) => skipped.push(error.to_string()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok((None, skipped))
    }
}

/// A file system on which what is written becomes the parts of a backup.
struct UploadDisk {
    shared: Arc<Upload>,
}

struct Upload {
    client: Arc<Client>,
    name: String,
    next_part: Mutex<u64>,
    files: Mutex<Files>,
}

/// A file that is being written, from its beginning to its end.
struct UploadFile {
    shared: Arc<Upload>,
    path: PathBuf,
    buffer: Mutex<Vec<u8>>,
}

impl Upload {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a part of a file.
    fn put(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let number = {
            let mut next = self.next_part.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next - 1
        };
        let part = Part { number, bytes: bytes.len() as u64, checksum: crc32c::crc32c(&bytes) };
        let object = self.client.path(&self.name, &format!("{number:06}"));
        self.client.create(object, bytes).map_err(io::Error::other)?;
        self.files().entry(path.to_owned()).or_default().push(part);
        Ok(())
    }
}

fn unsupported<R>() -> io::Result<R> {
    Err(io::ErrorKind::Unsupported.into())
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix(DIRECTORY).unwrap_or(path).to_owned()
}

impl fmt::Debug for UploadDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UploadDisk").field("name", &self.shared.name).finish()
    }
}

impl fmt::Debug for UploadFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UploadFile").field("path", &self.path).finish()
    }
}

impl Backend for UploadDisk {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let path = relative(path);
        self.shared.files().insert(path.clone(), Vec::new());
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(UploadFile { shared, path, buffer: Mutex::default() }))
    }

    fn open(&self, _path: &Path) -> io::Result<Box<dyn File>> {
        unsupported()
    }

    fn open_read_only(&self, _path: &Path) -> io::Result<Box<dyn File>> {
        unsupported()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.shared.files().contains_key(&relative(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.shared.files();
        let parts = files.remove(&relative(from)).ok_or(io::ErrorKind::NotFound)?;
        files.insert(relative(to), parts);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.files().remove(&relative(path));
        Ok(())
    }

    fn remove_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, _path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        Ok(Box::new(NoLock))
    }
}

/// The lock of a directory that no other process can reach, or that is not written.
#[derive(Debug)]
struct NoLock;

impl LockGuard for NoLock {}

impl UploadFile {
    fn buffer(&self) -> MutexGuard<'_, Vec<u8>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File for UploadFile {
    fn length(&self) -> io::Result<u64> {
        let uploaded: u64 =
            self.shared.files().get(&self.path).into_iter().flatten().map(|it| it.bytes).sum();
        Ok(uploaded + self.buffer().len() as u64)
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        unsupported()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.length()? != offset {
            return unsupported();
        }
        let mut buffer = self.buffer();
        buffer.extend_from_slice(bytes);
        while buffer.len() >= PART_BYTES {
            let rest = buffer.split_off(PART_BYTES);
            self.shared.put(&self.path, std::mem::replace(&mut *buffer, rest))?;
        }
        Ok(())
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        unsupported()
    }

    fn sync(&self) -> io::Result<()> {
        let rest = std::mem::take(&mut *self.buffer());
        if rest.is_empty() { Ok(()) } else { self.shared.put(&self.path, rest) }
    }
}

impl<P: Protocol> NodeBuilder<P> {
    /// Lets a node that has nothing, or whose records the log no longer continues, begin with the newest of these backups.
    pub fn backups(self, backups: Arc<Backups>) -> Self {
        self.backup_source(backups)
    }
}

impl<P: Protocol> Node<P> {
    /// Writes a backup of this node's state, while transactions and the replay go on. Returns it when it is complete. A standby
    /// is as good as the primary for that.
    ///
    /// # Errors
    /// [`ReplicationError::Stopped`], [`ReplicationError::ShutDown`], [`ReplicationError::Log`],
    /// [`ReplicationError::Engine`], [`ReplicationError::Backup`].
    pub fn back_up(&self, backups: &Backups) -> Result<Backup, ReplicationError> {
        let life = self.life()?;
        let log = self.log_identity()?;
        let (client, mut backup) = (Arc::clone(&backups.client), None);
        let random = fastrand::u32(..);
        capture(&life, |manifest, source, applied| {
            let name = format!("{:020}-{random:08x}", applied.position.counted);
            let shared = Arc::new(Upload {
                client: Arc::clone(&client),
                name: name.clone(),
                next_part: Mutex::default(),
                files: Mutex::default(),
            });
            let disk = UploadDisk { shared: Arc::clone(&shared) };
            let options = CheckpointOptions::default();
            write_backup(&disk, Path::new(DIRECTORY), manifest, source, &options)?;
            let stored =
                StoredPosition { log, position: applied.position, body: applied.body.clone() };
            let files = std::mem::take(&mut *shared.files());
            backup = Some(Backup { name, stored, files });
            Ok(())
        })?;
        let backup = backup.expect("it was written");
        // A state that the log does not have must not become a backup.
        if self.life().is_err() || !Arc::ptr_eq(&self.life()?, &life) {
            return Err(ReplicationError::Unfit(
                "the node has begun again while the backup was written: make another one".into(),
            ));
        }
        client.create(client.path(&backup.name, MANIFEST), backup.encode()).map_err(unwritable)?;
        Ok(backup)
    }

    /// Removes the records of the log that come before the two newest complete backups, and returns the first offset that
    /// stays; `None` if there are not two. A node that needs an earlier record begins with a backup.
    ///
    /// # Errors
    /// [`ReplicationError::Log`], [`ReplicationError::Backup`].
    pub fn truncate_log(&self, backups: &Backups) -> Result<Option<u64>, ReplicationError> {
        let log = self.log_identity()?;
        let listing = backups.list().map_err(unwritable)?;
        let newest: Vec<_> = listing.backups.iter().filter(|it| it.log() == log).take(2).collect();
        // The position of a node that has begun with its directory can be an earlier one than it was.
        let before = newest.iter().map(|backup| backup.position().next).min();
        let Some(before) = before.filter(|_| newest.len() == 2) else { return Ok(None) };
        self.truncate_before(before)?;
        Ok(Some(before))
    }
}

#[cfg(test)]
mod tests;
