//! The node's own copy of the replicated log's newest records, on disk.
//!
//! A directory has the records that have counted, in order, in files named by the number of their first record:
//!
//! ```text
//!   offset  bytes
//!      0      4    length      of the record, in bytes
//!      4      4    checksum    CRC-32C of the record's number (8 bytes) and of all that follows
//!      8      1    flags       bit 0: written before the log had accepted it
//!      9      8    offset      in the log, or an earlier one
//!     17           the record
//! ```
//!
//! Numbers are little-endian. The record's number counts all that this directory ever had. What a crash has torn does not
//! read as a record, and ends the file. A file is synced before the next one begins.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use weft::durability::{Backend, File};

/// After how many bytes a file ends.
const FILE_BYTES: u64 = 16 << 20;

/// The length of what precedes a record, in bytes.
const HEADER_BYTES: usize = 17;

/// Where in the header the bytes begin that the checksum covers.
const CHECKED_FROM: usize = 8;

/// The names of the files begin so.
pub const PREFIX: &str = "records-";

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// Where it was in the log, or an earlier offset.
    pub offset: u64,
    /// Whether it was written before the log had accepted it.
    pub is_ahead: bool,
    pub bytes: Vec<u8>,
}

/// The files of a journal, to be appended to.
#[derive(Debug)]
pub struct Journal {
    backend: Arc<dyn Backend>,
    directory: PathBuf,
    file: Option<Arc<dyn File>>,
    length: u64,
    /// The number of the next record.
    next: u64,
    /// How many bytes the records behind the newest base have.
    bytes_since_base: u64,
    syncer: Syncer,
}

/// The journal as it was found.
#[derive(Debug, Default)]
pub struct StoredJournal {
    /// The number of the first record.
    pub first: u64,
    pub records: Vec<JournalRecord>,
    /// For each file, the number of its first record.
    files: Vec<u64>,
}

fn path_of(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{PREFIX}{first:020}"))
}

fn checksum(number: u64, checked: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), checked)
}

fn encode(number: u64, record: &JournalRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + record.bytes.len());
    bytes.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(u8::from(record.is_ahead));
    bytes.extend_from_slice(&record.offset.to_le_bytes());
    bytes.extend_from_slice(&record.bytes);
    let checksum = checksum(number, &bytes[CHECKED_FROM..]);
    bytes[4..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns how many bytes these records have in a file.
fn bytes_of(records: &[JournalRecord]) -> u64 {
    records.iter().map(|record| (HEADER_BYTES + record.bytes.len()) as u64).sum()
}

/// Takes a record from the beginning of `bytes`; `None` if there is no whole one.
fn decode(number: u64, bytes: &mut &[u8]) -> Option<JournalRecord> {
    let header = bytes.get(..HEADER_BYTES)?;
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
    let length = HEADER_BYTES + u32_at(0) as usize;
    let whole = bytes.get(..length)?;
    if u32_at(4) != checksum(number, &whole[CHECKED_FROM..]) {
        return None;
    }
    *bytes = &bytes[length..];
    Some(JournalRecord {
        is_ahead: header[CHECKED_FROM] & 1 == 1,
        offset: u64::from_le_bytes(header[9..HEADER_BYTES].try_into().expect("8 bytes")),
        bytes: whole[HEADER_BYTES..].to_vec(),
    })
}

impl StoredJournal {
    /// Reads the journal in a directory, up to the first record that is torn.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(backend: &dyn Backend, directory: &Path) -> io::Result<StoredJournal> {
        let names = backend.list(directory)?;
        let numbers = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok());
        let files: Vec<u64> = numbers.collect();
        let mut journal = StoredJournal::default();
        for &first in &files {
            if journal.files.is_empty() {
                journal.first = first;
            } else if first != journal.next() {
                // The file before is torn, so what follows has nothing to follow.
                break;
            }
            let file = backend.open_read_only(&path_of(directory, first))?;
            let mut bytes = vec![0; file.length()? as usize];
            file.read_at(&mut bytes, 0)?;
            let mut rest = &bytes[..];
            while let Some(record) = decode(journal.next(), &mut rest) {
                journal.records.push(record);
            }
            journal.files.push(first);
        }
        Ok(journal)
    }

    /// Returns the number of the record after the last one.
    pub fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Removes all records from `number` on, from the disk, too, and returns the journal to go on with. Without any
    /// record before it, the journal goes on with `number`. The newest base is the state before record `base`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn cut(
        mut self,
        backend: &Arc<dyn Backend>,
        directory: &Path,
        number: u64,
        base: u64,
    ) -> io::Result<Journal> {
        let kept = number.saturating_sub(self.first) as usize;
        let is_empty = self.files.is_empty() || number <= self.first;
        self.records.truncate(if is_empty { 0 } else { kept });
        let last = self.files.iter().rposition(|&first| first < number).filter(|_| !is_empty);
        for name in backend.list(directory)? {
            let first = name.strip_prefix(PREFIX).and_then(|first| first.parse::<u64>().ok());
            let stays = |first| last.is_some_and(|last| self.files[..=last].contains(&first));
            if first.is_some_and(|first| !stays(first)) {
                backend.remove(&directory.join(name))?;
            }
        }
        let behind_base = base.saturating_sub(self.first) as usize;
        let behind_base = self.records.get(behind_base..).unwrap_or_default();
        let mut journal = Journal {
            backend: Arc::clone(backend),
            directory: directory.to_owned(),
            file: None,
            length: 0,
            next: number,
            bytes_since_base: bytes_of(behind_base),
            syncer: Syncer::start()?,
        };
        if let Some(last) = last {
            let first = self.files[last];
            let records = &self.records[(first - self.first) as usize..];
            journal.length = bytes_of(records);
            journal.next = self.next();
            let file = backend.open(&path_of(directory, first))?;
            file.truncate(journal.length)?;
            file.sync()?;
            journal.file = Some(Arc::from(file));
        }
        backend.sync_directory(directory)?;
        Ok(journal)
    }
}

impl Journal {
    /// Returns the number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Appends a record, which is on the disk after the next sync.
    ///
    /// # Errors
    /// Those of the file system. Then the journal is of no use any more.
    pub fn push(&mut self, record: &JournalRecord) -> io::Result<()> {
        if self.length > FILE_BYTES
            && let Some(full) = self.file.take()
        {
            full.sync()?;
        }
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = self.backend.create_new(&path_of(&self.directory, self.next))?;
                self.backend.sync_directory(&self.directory)?;
                self.length = 0;
                self.file.insert(Arc::from(file))
            }
        };
        let bytes = encode(self.next, record);
        file.write_at(&bytes, self.length)?;
        self.length += bytes.len() as u64;
        self.bytes_since_base += bytes.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Returns how many bytes the records behind the newest base have, also those of earlier runs.
    pub fn bytes_since_base(&self) -> u64 {
        self.bytes_since_base
    }

    /// Notes that a base is begun.
    pub fn begin_base(&mut self) {
        self.bytes_since_base = 0;
    }

    /// Syncs what was appended, on another thread.
    pub fn begin_sync(&self) -> PendingSync {
        let (sender, done) = channel();
        if let Some(file) = &self.file {
            // An error means that the thread is gone, and is noticed when the sync is awaited.
            let _ = self.syncer.files.send((Arc::clone(file), sender));
        } else {
            let _ = sender.send(Ok(()));
        }
        PendingSync(done)
    }

    /// Removes the files that have no record from this number on.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget_before(backend: &dyn Backend, directory: &Path, number: u64) -> io::Result<()> {
        let names = backend.list(directory)?;
        let numbers = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok());
        let files: Vec<u64> = numbers.collect();
        for pair in files.windows(2).filter(|pair| pair[1] <= number) {
            backend.remove(&path_of(directory, pair[0]))?;
        }
        backend.sync_directory(directory)
    }
}

/// A sync that was begun.
#[derive(Debug)]
pub struct PendingSync(Receiver<io::Result<()>>);

impl PendingSync {
    /// Waits for the end of the sync.
    ///
    /// # Errors
    /// The sync's.
    pub fn wait(self) -> io::Result<()> {
        let gone = || io::Error::other("the thread that syncs the directory is gone");
        self.0.recv().map_err(|_| gone())?
    }
}

type SyncJob = (Arc<dyn File>, Sender<io::Result<()>>);

/// The thread that syncs files, while another one waits for the replicated log.
#[derive(Debug)]
struct Syncer {
    files: Sender<SyncJob>,
}

impl Syncer {
    fn start() -> io::Result<Syncer> {
        let (files, jobs) = channel::<SyncJob>();
        thread::Builder::new().name("weft-journal".to_owned()).spawn(move || {
            for (file, done) in jobs {
                // An error means that the caller has given up.
                let _ = done.send(file.sync());
            }
        })?;
        Ok(Syncer { files })
    }
}
