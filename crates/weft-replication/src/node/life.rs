//! Where a life begins: an empty database, a directory or a backup, and the log behind it.

use std::fmt::Display;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use weft::durability::{Backend, Manifest, StorageError};
use weft::protocol::Protocol;
use weft::{Acknowledge, Database, DurabilityOptions, Failure, ManualClock, Timestamp};
use weft_changes::{LoggedTables, ring_disk};

use super::builder::NodeBuilder;
use super::error::ReplicationError;
use super::fence;
use super::report::Report;
use crate::base::{FoundBackup, StoreTrouble};
use crate::directory::{Directory, DirectoryError, Origin};
use crate::disk::ReplicatedDisk;
use crate::link::Link;
use crate::log::ReplicatedLog;
use crate::reader::{Fault, Position};
use crate::record::BODY_BYTES_MAX;
use crate::tables::AppliedTable;
use crate::tail::Kept;

/// How many bytes of its changes a database keeps for readers of the change feed.
const RING_BYTES: u64 = 8 << 20;

/// The directory of a database, on the file system in memory.
const DIRECTORY: &str = "replicated";

/// What all lives of a node have in common.
pub(super) struct Setup<P: Protocol> {
    pub(super) log: Arc<dyn ReplicatedLog>,
    pub(super) builder: NodeBuilder<P>,
    pub(super) directory: Option<Directory>,
}

/// An open database, and its connection with the log.
pub struct Life<P: Protocol> {
    pub database: Database<P>,
    pub(super) tables: Vec<Box<dyn AppliedTable<P>>>,
    pub link: Arc<Link>,
    /// The clock of the database while the node is a standby. It shows the primary's time, as far as it was applied.
    pub(super) clock: ManualClock,
    /// What a fence of this node says: its address, and the database's manifest, which has its tables.
    pub(super) fence: Vec<u8>,
    /// Held while an epoch is applied.
    pub applied: Mutex<Applied>,
    /// Held while somebody reads all rows, and while the records of the directory are applied.
    pub capturing: Mutex<()>,
    /// What the node's directory has behind the position with which the life begins, and where in the log that ends.
    pub(super) replay: Mutex<(Vec<Kept>, u64)>,
}

/// How far a standby's database is.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    pub position: Position,
    /// The body of the last fence before the position.
    pub body: Vec<u8>,
}

impl<P: Protocol> Life<P> {
    pub(super) fn applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Protocol> Setup<P> {
    /// Decides where a life begins: with the directory, with a backup, or with the first record of the log. Adds what the
    /// operator should know to `reports`, also if there is an error. If the life begins with a backup, `trouble` becomes
    /// the place where errors of its store are noted.
    pub(super) fn origin(
        &self,
        all: bool,
        reports: &mut Vec<Report>,
        trouble: &mut StoreTrouble,
    ) -> Result<Origin, ReplicationError> {
        let mut origin = Origin::default();
        if let Some(directory) = &self.directory {
            match directory.load(&*self.log, all) {
                Err(DirectoryError::Unconnected(_)) if self.builder.backups.is_some() => {
                    reports.push(Report::SetAside(directory.set_aside()?));
                    origin = directory.load(&*self.log, all)?;
                }
                loaded => origin = loaded?,
            }
        }
        let repaired = origin.repaired;
        reports.extend(origin.loss.take().map(Report::Lost));
        reports.extend((repaired > 0).then_some(Report::Repaired { records: repaired }));
        let is_empty = origin.base.is_none() && origin.replay.is_empty();
        let Some(backups) = self.builder.backups.as_ref().filter(|_| is_empty) else {
            return Ok(origin);
        };
        let (identity, (first, _)) = (self.log.identity()?, self.log.range()?);
        let (found, skipped) = backups
            .newest(&identity, first, self.builder.until)
            .map_err(ReplicationError::BackupStore)?;
        for report in skipped.into_iter().map(Report::BackupSkipped) {
            // An attempt before this one may have passed over the same backups.
            if !reports.contains(&report) {
                reports.push(report);
            }
        }
        match found {
            Some(found) => {
                *trouble = Arc::clone(&found.trouble);
                let FoundBackup { stored, .. } = &found;
                let (position, body) = (stored.position, stored.body.clone());
                origin = Origin { position, body, next: position.next, ..origin };
                origin.base = Some((found.backend, found.path));
                if let Some(directory) = &self.directory {
                    let base = origin.base.take().expect("it was set");
                    (origin.base, origin.journal) = directory.install(base, found.stored)?;
                }
            }
            None if first > 0 => {
                let what = format!(
                    "the replicated log begins with record {first}, and no backup reaches to it"
                );
                return Err(ReplicationError::Backup(what));
            }
            None => {}
        }
        Ok(origin)
    }

    /// Opens the database that the directory or a backup has, or an empty one. Adds what the operator should know to
    /// `reports`, also if there is an error. `all` says that all records of the directory are compared with the log.
    pub(super) fn begin(
        &self,
        all: bool,
        reports: &mut Vec<Report>,
    ) -> Result<Arc<Life<P>>, ReplicationError> {
        let mut trouble = StoreTrouble::default();
        let begun = self.origin(all, reports, &mut trouble).and_then(|origin| self.open(origin));
        begun.map_err(|error| {
            // The store has failed while the backup was copied or opened.
            let failed = trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
            failed.map_or(error, ReplicationError::BackupStore)
        })
    }

    /// Opens the database with which a life begins.
    fn open(&self, origin: Origin) -> Result<Arc<Life<P>>, ReplicationError> {
        let NodeBuilder { open, tables, options, address, prepare, .. } = &self.builder;
        let Origin { base, position, body, replay, next, journal, .. } = origin;
        let link = Arc::new(Link::new(Arc::clone(&self.log), options, position, journal));
        let memory = ring_disk(RING_BYTES);
        if let Some((backend, path)) = &base {
            let manifest = read_file(&**backend, &path.join("MANIFEST"))?;
            let written = write_manifest(&*memory, &manifest);
            written.and_then(|()| copy_unlogged(&**backend, path, &*memory)).map_err(|error| {
                let name = Path::new(DIRECTORY).join("MANIFEST");
                Failure::from(StorageError::io("write", &name, &error))
            })?;
        }
        let is_new = base.is_none();
        let threads = base.as_ref().and_then(|_| thread::available_parallelism().ok());
        let sink = Arc::clone(&link) as _;
        let disk = ReplicatedDisk::new(Arc::clone(&memory), sink, Path::new(DIRECTORY), base);
        let durability = DurabilityOptions::new()
            .acknowledge(Acknowledge::Durable)
            .segment_bytes(RING_BYTES / 8)
            .checkpoint_log_bytes(None)
            .spare_bytes(0)
            .loggers(1)
            .threads(threads.map_or(1, usize::from));
        let builder = tables.iter().fold(open(), |builder, table| table.declare(builder));
        let clock = ManualClock::new(Timestamp::from_millis(0));
        let builder = builder.directory(DIRECTORY).durability(durability).clock(&clock);
        let database = builder.backend(Arc::new(disk), false).open()?;
        if !is_new {
            // The time goes on from that of the rows.
            clock.set(database.open_snapshot()?.now());
        }
        let (_, stored, _) = database.readable_log()?;
        for number in stored.current_tables() {
            let name = &stored.tables[number as usize].name;
            if !tables.iter().any(|table| table.name() == name) {
                let what = format!(
                    "table `{name}` cannot be replicated: add it with NodeBuilder::table, or the results of transactions with \
                     NodeBuilder::once, not with the database's builder"
                );
                return Err(ReplicationError::Unfit(what));
            }
        }
        let manifest = read_file(&*memory, &Path::new(DIRECTORY).join("MANIFEST"))?;
        let fence = fence::encode(address, &manifest);
        if fence.len() > BODY_BYTES_MAX {
            return Err(ReplicationError::Unfit("there are too many tables".to_owned()));
        }
        let tables = tables.iter().map(|table| table.find(&database)).collect::<Result<_, _>>()?;
        prepare(&database)?;
        let life = Life {
            database,
            tables,
            link,
            clock,
            fence,
            applied: Mutex::new(Applied { position, body }),
            capturing: Mutex::default(),
            replay: Mutex::new((replay, next)),
        };
        Ok(Arc::new(life))
    }
}

pub(super) fn unfit(error: &impl Display) -> Fault {
    Fault::Unfit { message: error.to_string() }
}

pub(super) fn read_file(backend: &dyn Backend, path: &Path) -> Result<Vec<u8>, Failure> {
    let read = crate::position::read_file(backend, path);
    read.map_err(|error| StorageError::io("read", path, &error).into())
}

pub(super) fn write_manifest(disk: &dyn Backend, manifest: &[u8]) -> std::io::Result<()> {
    let directory = Path::new(DIRECTORY);
    disk.create_directory(directory)?;
    disk.create_new(&directory.join("MANIFEST"))?.write_at(manifest, 0)
}

/// Copies from a base which of its rows are not in the log, for readers of the change feed: names of empty files.
fn copy_unlogged(backend: &dyn Backend, base: &Path, memory: &dyn Backend) -> std::io::Result<()> {
    let (from, to) = (base.join("log"), Path::new(DIRECTORY).join("log"));
    if !backend.exists(&from)? {
        return Ok(());
    }
    memory.create_directory(&to)?;
    let names = backend.list(&from)?;
    let mut unlogged = names.iter().filter(|name| name.starts_with("unlogged-"));
    unlogged.try_for_each(|name| memory.create_new(&to.join(name)).map(|_| ()))
}

/// Reads the tables that a fence names.
pub(super) fn read_tables(manifest: &[u8]) -> Result<LoggedTables, String> {
    let (disk, directory) = (ring_disk(RING_BYTES), Path::new(DIRECTORY));
    write_manifest(&*disk, manifest).map_err(|error| error.to_string())?;
    match Manifest::read(&*disk, directory) {
        Ok(Some(manifest)) => Ok(LoggedTables::new(&manifest)),
        Ok(None) => Err("the fence has no manifest".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
