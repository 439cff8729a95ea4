//! The log: what committed transactions have written, brought to the disk epoch by epoch.
//!
//! ```text
//!   workers        append to a buffer of their own, at commit      [slot 0] [slot 1] [slot 2] ...
//!                                                                      \       |       /
//!   coordinator    closes the epoch, takes what was appended in it       groups, by logger
//!                                                                        /            \
//!   loggers        write it, a group each, and sync               0-0000000001.log  1-0000000001.log
//!                                                                        \            /
//!   coordinator    all synced: the epoch is durable; wakes who waits     durable epoch
//! ```
//!
//! This is group commit by epochs, as in Silo (Tu et al., SOSP 2013, §4.10) and in DBX §5.6: a
//! transaction is durable when its epoch is, and then so is all that it depends on, since that is
//! of the same epoch or an earlier one. Meanwhile the workers go on in the next epoch. [`format`]
//! says how the segments look.
//!
//! **When it fails.** The log never says of an epoch that it is durable without having seen all
//! of its syncs succeed.
//!
//! - A failed sync ends it: the operating system may have dropped what it could not write, and a
//!   later sync would succeed without it. Nobody is told anything to be durable from then on; all
//!   who wait, or want to begin to write, get the error. So it is with any other error but:
//! - A full disk. What has been written of the group is cut off again, and those who wait or want
//!   to begin to write get an error; but what was committed stays in the buffers, and is tried
//!   again until there is space, and then all goes on.
//! - A disk that is slower than the workers: [`Log::admit`] makes writing transactions wait before
//!   they begin, so that the buffers stay bounded.
//!
//! `buffer` is what workers append to, `logger` writes segments, `coordinator` goes through the
//! epochs.
//!
//! [`format`]: super::format

mod buffer;
mod coordinator;
mod logger;

use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_htm::blocking::{Condvar, Mutex, MutexGuard};
use weft_htm::word::{Ordering, Word};

use self::buffer::Slot;
use self::coordinator::Coordinator;
use self::logger::{Logger, Segment, Segments};
use super::backend::Backend;
use super::format::{PAYLOAD_BYTES, parse_segment_name};
use crate::error::StorageError;

/// How the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// How many threads write it, each to segments of its own. Default: 1.
    pub loggers: usize,
    /// Time from one epoch to the next, unless somebody waits. Default: 10 ms (the papers: 40 ms).
    pub epoch_interval: Duration,
    /// Size in bytes at which a segment is left for another. Default: 64 MiB.
    pub segment_bytes: u64,
    /// About how many bytes may wait to be written before writing transactions have to wait, too.
    /// Default: 256 MiB.
    pub buffer_bytes_max: usize,
    /// How large a frame's payload may grow before another frame is begun, in bytes. Default:
    /// [`PAYLOAD_BYTES`].
    pub frame_bytes: usize,
    /// No threads: an epoch is written by whoever calls [`Log::step`], or has to wait. For tests
    /// that are to run the same again. Default: false.
    pub manual: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            loggers: 1,
            epoch_interval: Duration::from_millis(10),
            segment_bytes: 64 << 20,
            buffer_bytes_max: 256 << 20,
            frame_bytes: PAYLOAD_BYTES,
            manual: false,
        }
    }
}

/// Where the epochs come from: the engine's clock.
pub trait Epochs: Send + Sync {
    /// Ends the current epoch and begins the next; returns the ended one when all that committed
    /// in it, or before, has been appended to the log. Each call returns more than the one before.
    fn close_epoch(&self) -> u64;
}

/// How a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// All is well.
    Running,
    /// There is no space on the disk; it will be tried again.
    DiskFull,
    /// It has failed, for good.
    Failed,
    /// It was shut down.
    Closed,
}

/// What a log has done since it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMetrics {
    /// How it is.
    pub state: LogState,
    /// All that committed in this epoch, or before, survives a crash.
    pub durable_epoch: u64,
    /// Epochs with something to write that have become durable.
    pub epochs_written: u64,
    /// Transactions in them.
    pub transactions: u64,
    /// Bytes written to segments.
    pub bytes_written: u64,
    /// Syncs of segments that succeeded.
    pub syncs: u64,
    /// Time that they took, all together.
    pub sync_time: Duration,
    /// Time that the longest of them took.
    pub sync_time_max: Duration,
    /// About how many bytes wait to be written.
    pub buffered_bytes: u64,
    /// Segments that are there, also those from before the start.
    pub segments: usize,
    /// Bytes in these segments.
    pub segment_bytes: u64,
}

/// Bits of [`Shared::gate`]: why [`Log::admit`] looks twice.
mod gate {
    pub const BUFFERS_FULL: u64 = 1;
    pub const DISK_FULL: u64 = 2;
    pub const FAILED: u64 = 4;
    pub const CLOSED: u64 = 8;
}

/// The log of one database.
pub struct Log {
    shared: Arc<Shared>,
    /// The coordinator, if the log is manual; its thread otherwise. None when it was shut down.
    coordinator: Mutex<Runner>,
}

enum Runner {
    Manual(Box<Coordinator>),
    Thread(JoinHandle<()>),
    None,
}

/// What the coordinator, the loggers and the workers share.
struct Shared {
    /// Zero when all is well.
    gate: Word,
    /// The durable epoch. Written under the lock of `state`.
    durable: Word,
    slots: Box<[Slot]>,
    /// One more than the highest slot ever used.
    slots_used: Word,
    /// Bytes in the buffers, as far as the slots have reported them.
    buffered: Word,
    buffer_bytes_max: u64,
    /// How many bytes a slot gathers before it reports them.
    report_bytes: usize,
    state: Mutex<State>,
    /// Wakes the coordinator's thread.
    work: Condvar,
    /// Wakes everybody else: the durable epoch, or the gate, has changed.
    progress: Condvar,
    totals: Mutex<Totals>,
    /// The segments of each logger.
    segments: Box<[Segments]>,
    /// Segments of loggers that are no more.
    foreign_segments: Segments,
    backend: Arc<dyn Backend>,
    directory: PathBuf,
    options: LogOptions,
    first_epoch: u64,
}

#[derive(Default)]
struct State {
    /// The first error that was final.
    failure: Option<StorageError>,
    /// The error that may pass.
    disk_full: Option<StorageError>,
    /// The highest epoch that somebody waits for.
    wanted: u64,
    /// Somebody waits for space in the buffers.
    crowded: bool,
    /// The coordinator is to write what there is, and to end.
    closing: bool,
    closed: bool,
}

#[derive(Default)]
struct Totals {
    epochs_written: u64,
    transactions: u64,
    bytes_written: u64,
    syncs: u64,
    sync_time: Duration,
    sync_time_max: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Starts a log whose segments lie in `directory`, which is made if need be, for workers with
    /// slots up to `workers_max`.
    ///
    /// `first_epoch` is the first that may be appended to; all before it count as durable, so it is
    /// one more than what was recovered. `sequences` are the numbers of the loggers' first
    /// segments, beyond all that there are; 1 for loggers that it leaves out.
    ///
    /// # Errors
    /// [`StorageError::Io`], also if the operating system gives no thread;
    /// [`StorageError::Damaged`] if there is a segment already where one is to be written.
    ///
    /// # Panics
    /// If there are to be no loggers, or the first epoch is 0.
    pub fn start(
        backend: Arc<dyn Backend>,
        directory: &Path,
        options: LogOptions,
        workers_max: usize,
        epochs: Arc<dyn Epochs>,
        first_epoch: u64,
        sequences: &[u64],
    ) -> Result<Log, StorageError> {
        assert!(options.loggers > 0, "a log needs a logger");
        assert!(first_epoch > 0, "epoch 0 is the time before all epochs");
        make_directory(&*backend, directory)?;
        let sequence = |logger: usize| sequences.get(logger).copied().unwrap_or(1);
        let segments: Box<[Segments]> = (0..options.loggers).map(|_| Segments::default()).collect();
        let foreign_segments = Segments::default();
        for segment in find_segments(&*backend, directory, first_epoch - 1)? {
            let logger = segment.logger as usize;
            if logger < options.loggers && segment.sequence >= sequence(logger) {
                let what = "a segment that was not recovered, where another is to be written";
                return Err(StorageError::damaged(&segment.path, 0, what));
            }
            segments.get(logger).unwrap_or(&foreign_segments).push(segment);
        }
        let shared = Arc::new(Shared {
            gate: Word::new(0),
            durable: Word::new(first_epoch - 1),
            slots: (0..workers_max).map(|_| Slot::default()).collect(),
            slots_used: Word::new(0),
            buffered: Word::new(0),
            buffer_bytes_max: options.buffer_bytes_max as u64,
            report_bytes: (options.buffer_bytes_max / (2 * workers_max.max(1))).clamp(1, 64 << 10),
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            totals: Mutex::default(),
            segments,
            foreign_segments,
            backend,
            directory: directory.to_owned(),
            options,
            first_epoch,
        });
        let loggers = (0..shared.options.loggers)
            .map(|index| Logger::new(Arc::clone(&shared), index as u32, sequence(index)))
            .collect();
        let coordinator = Coordinator::new(Arc::clone(&shared), epochs, loggers)?;
        let runner = if shared.options.manual {
            Runner::Manual(Box::new(coordinator))
        } else {
            Runner::Thread(spawn("weft-log", directory, move || coordinator.run())?)
        };
        Ok(Log { shared, coordinator: Mutex::new(runner) })
    }

    /// Appends a transaction's entries, which `write` does by the functions of
    /// [`format`](super::format), to the buffer of the worker with this slot.
    ///
    /// To be called between the transaction's serialization point, where it drew `epoch`, and the
    /// moment when [`Epochs::close_epoch`] no longer waits for it. Never waits for the disk.
    ///
    /// # Panics
    /// If the epoch is closed already, or comes before the slot's last one, or if `write` panics:
    /// the transaction is not in the log, which has failed then.
    #[inline]
    pub fn append(&self, slot: usize, epoch: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let shared = &*self.shared;
        // Relaxed: only a worker of this slot has changed it so that this matters.
        if slot as u64 >= shared.slots_used.load(Ordering::Relaxed) {
            shared.enlist(slot);
        }
        let append = || {
            shared.slots[slot]
                .append(epoch, shared.report_bytes, write, |bytes| shared.report(bytes));
        };
        if let Err(panicked) = panic::catch_unwind(AssertUnwindSafe(append)) {
            // Before the epoch can be closed, since that waits for this transaction.
            shared.fail(StorageError::Io {
                operation: "append to",
                path: shared.directory.clone(),
                message: "a transaction's writes could not be encoded, or came too late".to_owned(),
            });
            panic::resume_unwind(panicked);
        }
    }

    /// Lets a writing transaction begin. Waits while too much is in the buffers.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`] while that is so; [`StorageError::Closed`]; or why the log has
    /// failed.
    #[inline]
    pub fn admit(&self) -> Result<(), StorageError> {
        // Relaxed: a transaction that misses a change of the gate is as one that began before it.
        if self.shared.gate.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.admit_slowly()
    }

    #[cold]
    fn admit_slowly(&self) -> Result<(), StorageError> {
        let shared = &*self.shared;
        let mut state = lock(&shared.state);
        loop {
            state.check()?;
            if shared.gate.load(Ordering::SeqCst) & gate::BUFFERS_FULL == 0 {
                return Ok(());
            }
            if shared.options.manual {
                drop(state);
                self.step()?;
                state = lock(&shared.state);
            } else {
                state.crowded = true;
                shared.work.notify_one();
                state = shared.wait(state);
            }
        }
    }

    /// The last epoch that is durable: all that committed in it, or before, survives a crash.
    #[inline]
    pub fn durable_epoch(&self) -> u64 {
        // Acquire: who sees the epoch sees what came before it.
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Waits until `epoch` is durable, and makes it so at once instead of at the next interval.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`]: the epoch is not durable, but will be if there is space again.
    /// [`StorageError::Closed`], or why the log has failed: it may or may not survive.
    pub fn wait_durable(&self, epoch: u64) -> Result<(), StorageError> {
        let shared = &*self.shared;
        if self.durable_epoch() >= epoch {
            return Ok(());
        }
        let mut state = lock(&shared.state);
        loop {
            if self.durable_epoch() >= epoch {
                return Ok(());
            }
            state.check()?;
            if shared.options.manual {
                drop(state);
                self.step()?;
                state = lock(&shared.state);
            } else {
                if state.wanted < epoch {
                    state.wanted = epoch;
                    shared.work.notify_one();
                }
                state = shared.wait(state);
            }
        }
    }

    /// In a manual log: closes the epoch and writes it, or tries again what the disk had no space
    /// for. Returns the durable epoch.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], [`StorageError::Closed`], or why the log has failed.
    ///
    /// # Panics
    /// If the log is not manual.
    pub fn step(&self) -> Result<u64, StorageError> {
        assert!(self.shared.options.manual, "the log has threads, which do that");
        let mut runner = lock(&self.coordinator);
        let Runner::Manual(coordinator) = &mut *runner else {
            return Err(self.shared.failure().unwrap_or(StorageError::Closed));
        };
        coordinator.tick()?;
        Ok(self.durable_epoch())
    }

    /// Removes the segments that hold nothing beyond `epoch`, when a checkpoint of that epoch has
    /// become durable; returns how many. The segments that are being written stay.
    ///
    /// # Errors
    /// [`StorageError::Io`], [`StorageError::SyncFailed`]: some may be left, to be removed the next
    /// time.
    pub fn remove_segments_up_to(&self, epoch: u64) -> Result<usize, StorageError> {
        self.remove_segments(|segment| segment.last_epoch <= epoch)
    }

    /// Removes the segments of each logger whose numbers are below the logger's in `sequences`, as
    /// [`Log::remove_segments_up_to`] does; those of loggers that it leaves out stay.
    ///
    /// # Errors
    /// As for [`Log::remove_segments_up_to`].
    pub fn remove_segments_before(&self, sequences: &[u64]) -> Result<usize, StorageError> {
        self.remove_segments(|segment| {
            let needed = sequences.get(segment.logger as usize);
            needed.is_some_and(|&needed| segment.sequence < needed)
        })
    }

    fn remove_segments(
        &self,
        is_removable: impl Fn(&Segment) -> bool,
    ) -> Result<usize, StorageError> {
        let shared = &*self.shared;
        let mut removed = 0;
        for segments in shared.all_segments() {
            // One after the other, in order, so that no crash leaves a gap between those that stay.
            while let Some(path) = segments.first_if(&is_removable) {
                shared.remove_segment(&path)?;
                segments.forget(&path);
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// What the log has done, and how it is.
    pub fn metrics(&self) -> LogMetrics {
        let shared = &*self.shared;
        let state = match shared.gate.load(Ordering::SeqCst) {
            gate if gate & gate::FAILED != 0 => LogState::Failed,
            gate if gate & gate::CLOSED != 0 => LogState::Closed,
            gate if gate & gate::DISK_FULL != 0 => LogState::DiskFull,
            _ => LogState::Running,
        };
        let (segments, segment_bytes) =
            shared.all_segments().map(Segments::size).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let totals = lock(&shared.totals);
        LogMetrics {
            state,
            durable_epoch: self.durable_epoch(),
            epochs_written: totals.epochs_written,
            transactions: totals.transactions,
            bytes_written: totals.bytes_written,
            syncs: totals.syncs,
            sync_time: totals.sync_time,
            sync_time_max: totals.sync_time_max,
            buffered_bytes: shared.buffered.load(Ordering::Relaxed),
            segments,
            segment_bytes,
        }
    }

    /// Writes all that was appended, makes it durable, and ends the log. Appending is over.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`]: what was not yet durable is lost. Or why the log has failed.
    pub fn shutdown(&self) -> Result<(), StorageError> {
        let shared = &*self.shared;
        let mut runner = lock(&self.coordinator);
        match std::mem::replace(&mut *runner, Runner::None) {
            // An error is what the state says.
            Runner::Manual(mut coordinator) => drop(coordinator.finish()),
            Runner::Thread(thread) => {
                lock(&shared.state).closing = true;
                shared.work.notify_one();
                // If it panicked, it has left a failure behind.
                let _ = thread.join();
            }
            Runner::None => {}
        }
        let state = lock(&shared.state);
        match state.failure.as_ref().or(state.disk_full.as_ref()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Who wants to know calls it before.
        let _ = self.shutdown();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directory = &self.shared.directory;
        formatter.debug_struct("Log").field("directory", directory).finish_non_exhaustive()
    }
}

impl State {
    /// Why nobody should wait or begin to write, if so.
    fn check(&self) -> Result<(), StorageError> {
        if let Some(error) = self.failure.as_ref() {
            return Err(error.clone());
        }
        if self.closed {
            return Err(StorageError::Closed);
        }
        self.disk_full.clone().map_or(Ok(()), Err)
    }
}

impl Shared {
    #[cold]
    fn enlist(&self, slot: usize) {
        let _state = lock(&self.state);
        // SeqCst, under the lock: of two slots at a time the higher one prevails.
        let used = self.slots_used.load(Ordering::SeqCst).max(slot as u64 + 1);
        self.slots_used.store(used, Ordering::SeqCst);
    }

    /// Counts bytes that a slot has gathered.
    #[inline]
    fn report(&self, bytes: usize) {
        let before = self.buffered.fetch_add(bytes as u64, Ordering::SeqCst);
        let full = |buffered| buffered >= self.buffer_bytes_max;
        if !full(before) && full(before + bytes as u64) {
            self.buffers_changed();
        }
    }

    /// Counts bytes off that were written.
    fn settle(&self, bytes: usize) {
        let before = self.buffered.fetch_add((bytes as u64).wrapping_neg(), Ordering::SeqCst);
        let full = |buffered| buffered >= self.buffer_bytes_max;
        if full(before) && !full(before - bytes as u64) {
            self.buffers_changed();
            self.progress.notify_all();
        }
    }

    /// Brings the gate in line with the buffers, which have become full, or no longer are. Under
    /// the lock: of several at a time, the last one sees what all of them have done.
    #[cold]
    fn buffers_changed(&self) {
        let _state = lock(&self.state);
        if self.buffered.load(Ordering::SeqCst) >= self.buffer_bytes_max {
            self.gate.fetch_or(gate::BUFFERS_FULL, Ordering::SeqCst);
        } else {
            self.gate.fetch_and(!gate::BUFFERS_FULL, Ordering::SeqCst);
        }
    }

    /// Makes an error final.
    fn fail(&self, error: StorageError) {
        let mut state = lock(&self.state);
        state.failure.get_or_insert(error);
        self.gate.fetch_or(gate::FAILED, Ordering::SeqCst);
        drop(state);
        self.progress.notify_all();
        self.work.notify_one();
    }

    fn failure(&self) -> Option<StorageError> {
        lock(&self.state).failure.clone()
    }

    /// Notes that there is no space, or that there is again.
    fn set_disk_full(&self, error: Option<StorageError>) {
        let mut state = lock(&self.state);
        if error.is_some() {
            self.gate.fetch_or(gate::DISK_FULL, Ordering::SeqCst);
            // Who waits gets the error, and so nobody does any more.
            state.wanted = 0;
        } else if state.disk_full.is_some() {
            self.gate.fetch_and(!gate::DISK_FULL, Ordering::SeqCst);
        } else {
            return;
        }
        state.disk_full = error;
        drop(state);
        self.progress.notify_all();
    }

    /// Makes `epoch` the durable one, unless the log has failed.
    fn publish(&self, epoch: u64) -> Result<(), StorageError> {
        let state = lock(&self.state);
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        // Release: pairs with the acquire in `durable_epoch`.
        self.durable.store(epoch, Ordering::Release);
        drop(state);
        self.progress.notify_all();
        Ok(())
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.gate.fetch_or(gate::CLOSED, Ordering::SeqCst);
        drop(state);
        self.progress.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.progress.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn all_segments(&self) -> impl Iterator<Item = &Segments> {
        self.segments.iter().chain([&self.foreign_segments])
    }

    fn remove_segment(&self, path: &Path) -> Result<(), StorageError> {
        match self.backend.remove(path) {
            // An attempt before this one has not come to its end.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => result.map_err(|error| StorageError::io("remove", path, &error))?,
        }
        self.backend
            .sync_directory(&self.directory)
            .map_err(|error| StorageError::sync(&self.directory, &error))
    }
}

fn make_directory(backend: &dyn Backend, directory: &Path) -> Result<(), StorageError> {
    let exists = backend.exists(directory);
    if exists.map_err(|error| StorageError::io("look for", directory, &error))? {
        return Ok(());
    }
    backend
        .create_directory(directory)
        .map_err(|error| StorageError::io("create", directory, &error))?;
    match directory.parent() {
        Some(parent) => {
            backend.sync_directory(parent).map_err(|error| StorageError::sync(parent, &error))
        }
        None => Ok(()),
    }
}

/// The segments that are there, in order, which hold nothing beyond `last_epoch`.
fn find_segments(
    backend: &dyn Backend,
    directory: &Path,
    last_epoch: u64,
) -> Result<Vec<Segment>, StorageError> {
    let names =
        backend.list(directory).map_err(|error| StorageError::io("list", directory, &error))?;
    let mut found = Vec::new();
    for name in names {
        let Some((logger, sequence)) = parse_segment_name(&name) else { continue };
        let path = directory.join(&name);
        let file = backend.open_read_only(&path);
        let bytes = file
            .and_then(|file| file.length())
            .map_err(|error| StorageError::io("measure", &path, &error))?;
        found.push(Segment { logger, sequence, path, last_epoch, bytes, is_open: false });
    }
    found.sort_unstable_by_key(|segment| (segment.logger, segment.sequence));
    Ok(found)
}

fn spawn(
    name: &str,
    directory: &Path,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StorageError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| StorageError::io("start a thread for", directory, &error))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
