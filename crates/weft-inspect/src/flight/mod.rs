//! The flight recorder: the last minutes of a database, for after the fact.
//!
//! A thread, `weft-flight`, makes a report every second, and appends it to a ring of fixed size. If the database has a
//! directory, the ring is the file `FLIGHT` in it, mapped into memory. So when the process ends, however it ends, the
//! reports are in the file, and nothing has to be written at that moment. `weft report DIRECTORY` shows it.

mod file;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::{self, Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use memmap2::MmapMut;
use serde::{Deserialize, Serialize};
use weft::Database;
use weft::protocol::Protocol;

use crate::Report;
use crate::outlet::Outlet;
use crate::source::Source;
use file::{BYTES_MIN, Ring};

/// The name of the recorder's file in the database's directory.
pub const FLIGHT_FILE: &str = "FLIGHT";

/// The name of the file of the recorder before it. So what happened before a crash is there when the program runs again.
pub const PREVIOUS_FLIGHT_FILE: &str = "FLIGHT.previous";

/// The largest file that [`Flight::read`] reads.
const READ_BYTES_MAX: u64 = 1 << 30;

/// Options of a flight recorder.
#[derive(Clone, Debug)]
#[must_use]
pub struct FlightOptions {
    bytes: usize,
    interval: Duration,
}

impl Default for FlightOptions {
    fn default() -> Self {
        FlightOptions { bytes: 8 << 20, interval: Duration::from_secs(1) }
    }
}

impl FlightOptions {
    /// Returns the default options: 8 MiB, and a report every second.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how large the file is, or the memory if there is no file, in bytes. It is at least 4 KiB. A report that is
    /// larger than a quarter of it is left out.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes.max(BYTES_MIN);
        self
    }

    /// Sets the time between two reports.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Starts to record: into [`FLIGHT_FILE`] in the database's directory, or into memory if the database has none. A
    /// recording that is there becomes [`PREVIOUS_FLIGHT_FILE`].
    ///
    /// # Errors
    /// If the file cannot be written, for example because the disk has no space; if another recorder writes it.
    pub fn start<P: Protocol>(&self, database: &Database<P>) -> io::Result<FlightRecorder> {
        let file = database.directory().map(|directory| directory.join(FLIGHT_FILE));
        let bytes = match &file {
            None => Bytes::Memory(vec![0; self.bytes]),
            Some(path) => {
                keep_previous(path)?;
                create(path, self.bytes)?
            }
        };
        let shared = Arc::new(Shared(Mutex::new(Ring::new(bytes))));
        let source = Source::of(database);
        // The database may be closed.
        if let Ok(report) = source.report() {
            shared.record(report);
        }
        let recorded = Arc::clone(&shared);
        let each = move |report| recorded.record(report);
        let outlet = Outlet::start("weft-flight", self.interval, source, each)?;
        Ok(FlightRecorder { shared, file, _outlet: outlet })
    }
}

/// What a record has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A report of the database.
    Report(Box<Report>),
    /// A panic: its message, thread and place.
    Panic(String),
}

/// Records a database until it is dropped. Until then it keeps the database open, like a handle.
///
/// ```
/// # use weft::{Database, Record};
/// # use weft_inspect::FlightRecorder;
/// # #[derive(Clone, Record)]
/// # struct Page { #[record(key)] id: u32, views: u64 }
/// # fn main() -> std::io::Result<()> {
/// # let database = Database::builder().table::<Page>().open().unwrap();
/// # let path = std::env::temp_dir().join(format!("weft-flight-doc-{}", std::process::id()));
/// let recorder = FlightRecorder::start(&database)?;
/// recorder.save(&path)?;
/// # std::fs::remove_file(&path)
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the recorder stops when it is dropped"]
pub struct FlightRecorder {
    shared: Arc<Shared>,
    file: Option<PathBuf>,
    _outlet: Outlet,
}

impl FlightRecorder {
    /// Starts to record with default options: see [`FlightOptions::start`].
    ///
    /// # Errors
    /// Those of [`FlightOptions::start`].
    pub fn start<P: Protocol>(database: &Database<P>) -> io::Result<Self> {
        FlightOptions::new().start(database)
    }

    /// Returns the path of the file, or `None` if the recorder records into memory.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Writes what is recorded to another file, which is replaced if it exists.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.shared.save(path.as_ref())
    }

    /// Records each panic of the program from now on, and saves everything to a file at each panic, if one is given. The
    /// recorder of a database without a directory has no other file.
    ///
    /// This adds a [hook](std::panic::set_hook) in front of the one that there is. It does nothing when the recorder was
    /// dropped.
    pub fn record_panics(&self, file: Option<&Path>) {
        let (shared, file) = (Arc::downgrade(&self.shared), file.map(Path::to_owned));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            record_panic(&shared, file.as_deref(), panic);
            before(panic);
        }));
    }
}

/// How long a thread that panics waits for the ring. Others hold it for the time of a record or of a file.
const PANIC_WAITS: Duration = Duration::from_secs(1);

/// Runs in the thread that panics. If this thread itself holds the ring, it records nothing.
fn record_panic(shared: &Weak<Shared>, file: Option<&Path>, panic: &PanicHookInfo<'_>) {
    let Some(shared) = shared.upgrade() else { return };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name").to_owned();
    let entry = Entry::Panic(format!("the thread {name} panicked: {panic}"));
    let begin = Instant::now();
    let mut ring = loop {
        match shared.0.try_lock() {
            Ok(ring) => break ring,
            Err(sync::TryLockError::Poisoned(ring)) => break ring.into_inner(),
            Err(sync::TryLockError::WouldBlock) if begin.elapsed() < PANIC_WAITS => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(sync::TryLockError::WouldBlock) => return,
        }
    };
    ring.append(now(), &to_json(&entry));
    if let Some(file) = file {
        // There is no caller to return an error to, and the panic itself is reported.
        let _ = write(file, ring.bytes());
    }
}

/// What the recorder's thread, its owner and the panic hook share.
struct Shared(Mutex<Ring<Bytes>>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ring<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, report: Report) {
        let mut entry = Entry::Report(Box::new(report));
        while !self.lock().append(now(), &to_json(&entry)) {
            // It is too large, so what matters least is left out.
            let Entry::Report(report) = &mut entry else { return };
            if report.labels.is_empty() && report.points.is_empty() {
                return;
            }
            report.labels.truncate(report.labels.len() / 2);
            report.points.truncate(report.points.len() / 2);
        }
    }

    fn save(&self, path: &Path) -> io::Result<()> {
        let bytes = self.lock().bytes().to_vec();
        write(path, &bytes)
    }
}

/// The bytes of a ring.
enum Bytes {
    Memory(Vec<u8>),
    /// The file stays open, because it is locked as long as that.
    File(
        MmapMut,
        #[cfg_attr(not(test), expect(dead_code, reason = "it holds the lock"))] LockedFile,
    ),
}

/// A file whose lock this process has.
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file would not be enough: a child process that another thread has just forked has a copy of the descriptor,
        // and so of the lock, until it executes its program. After an error the file is closed all the same.
        let _ = self.0.unlock();
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Bytes::Memory(bytes) => bytes,
            Bytes::File(map, _) => map,
        }
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Memory(bytes) => bytes,
            Bytes::File(map, _) => map,
        }
    }
}

/// Renames the file of an earlier recorder. Removes a file that is not a recording: the recorder that created it did not
/// start, and the recording before it is more useful.
fn keep_previous(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) => match file.try_lock() {
            Ok(()) if file::is_recording(&file)? => {
                std::fs::rename(path, path.with_file_name(PREVIOUS_FLIGHT_FILE))
            }
            Ok(()) => std::fs::remove_file(path),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("another flight recorder writes {}", path.display()),
            )),
            Err(TryLockError::Error(error)) => Err(error),
        },
    }
}

/// Creates a file of zeros, and maps it. If that fails, there is no file.
fn create(path: &Path, bytes: usize) -> io::Result<Bytes> {
    let file = new_file(OpenOptions::new().read(true).create_new(true), path)?;
    file.try_lock().map_err(io::Error::from)?;
    match fill_and_map(&file, bytes) {
        Ok(map) => Ok(Bytes::File(map, LockedFile(file))),
        Err(error) => {
            // The lock is still held, so the file cannot be another recorder's. If it cannot be removed, the next recorder
            // removes it.
            let _ = std::fs::remove_file(path);
            Err(error)
        }
    }
}

/// Writes zeros to an empty file, and maps it.
fn fill_and_map(mut file: &File, bytes: usize) -> io::Result<MmapMut> {
    // Every byte is written, so that the file has its space on the disk. If the disk were full later, a write into the
    // mapping would end the process.
    file.write_all(&vec![0; bytes])?;
    // SAFETY: the mapping is valid as long as no process truncates the file. This process does not, nor does another
    // recorder, because the file is locked. Other processes only read it: their reads may be torn, which the checksums
    // tell.
    unsafe { MmapMut::map_mut(file) }
}

/// Writes a file that appears at its path when it is complete.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".new");
    let mut file = new_file(OpenOptions::new().create(true).truncate(true), Path::new(&partial))?;
    file.write_all(bytes)?;
    std::fs::rename(partial, path)
}

/// Opens a file for writing that only the owner may read, since reports have keys of rows.
fn new_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).open(path)
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

fn to_json(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("an entry is plain data")
}

/// What a recorder has recorded.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Flight {
    /// What was recorded, and when, in microseconds of the Unix epoch. The oldest comes first.
    pub entries: Vec<(u64, Entry)>,
    /// A message for each record that is torn or damaged, and was skipped.
    pub skipped: Vec<String>,
}

impl Flight {
    /// Reads a recorder's file. It may be that of a recorder which still records.
    ///
    /// # Errors
    /// If the file cannot be read, is no recorder's, or is larger than 1 GiB.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Flight> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut bytes = Vec::new();
        let mut file = File::open(path)?.take(READ_BYTES_MAX + 1);
        file.read_to_end(&mut bytes)?;
        if bytes.len() as u64 > READ_BYTES_MAX {
            return Err(invalid(
                "this is no file of a flight recorder: it is too large".to_owned(),
            ));
        }
        let (records, skipped) = file::read(&bytes).map_err(invalid)?;
        let mut flight = Flight { entries: Vec::new(), skipped };
        for record in records {
            match serde_json::from_str(&record.payload) {
                Ok(entry) => flight.entries.push((record.time, entry)),
                Err(error) => flight
                    .skipped
                    .push(format!("the record {} is of an unknown kind: {error}", record.number)),
            }
        }
        Ok(flight)
    }

    /// Returns the reports, the oldest first.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.entries.iter().filter_map(|(_, entry)| match entry {
            Entry::Report(report) => Some(&**report),
            Entry::Panic(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a child process has one that was forked while the recorder ran.
    #[test]
    fn a_recorder_that_has_ended_has_no_lock_although_a_copy_of_its_descriptor_is_left() {
        let path = std::env::temp_dir().join(format!("weft-flight-lock-{}", std::process::id()));
        let bytes = create(&path, 4096).unwrap();
        let Bytes::File(_, locked) = &bytes else { unreachable!("it is in a file") };
        let copy = locked.0.try_clone().unwrap();
        assert!(matches!(File::open(&path).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
        drop(bytes);
        File::open(&path).unwrap().try_lock().unwrap();
        drop(copy);
        std::fs::remove_file(path).unwrap();
    }
}
