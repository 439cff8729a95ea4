//! The log: the writes of committed transactions, brought to the disk epoch by epoch.
//!
//! ```text
//!   workers        append to a buffer of their own, at commit      [slot 0] [slot 1] [slot 2] ...
//!                                                                      \       |       /
//!   leader         closes the epoch, takes what was appended in it       groups, by logger
//!                                                                        /            \
//!   loggers        write it, a group each, and sync               0-0000000001.log  1-0000000001.log
//!                                                                        \            /
//!   leader         all synced: the epoch is durable; wakes waiters      durable epoch
//! ```
//!
//! This is group commit by epochs, as in Silo (Tu et al., SOSP 2013, §4.10) and in DBX §5.6. A
//! transaction is durable when its epoch is. Everything that it depends on is durable then, too,
//! because it belongs to the same epoch or an earlier one. While an epoch is written, the workers
//! go on in the next one. [`format`] describes the segments.
//!
//! **Failures.** The log never declares an epoch durable before all syncs of the epoch have
//! succeeded.
//!
//! - A failed sync ends the log. The operating system may have dropped what it could not write, and
//!   a later sync would succeed without it. From then on nothing is declared durable. Every caller
//!   that waits, or wants to begin to write, gets the error. All other errors have the same effect,
//!   except that of a full disk.
//! - A full disk does not end the log. What has been written of the group is cut off again, and is
//!   written once more in the space of the `spare`. From then on every caller that wants to begin to
//!   write gets an error. If the spare is too small for what has committed, it stays in the buffers,
//!   and every caller that waits gets an error, too. The log tries again until there is space, and
//!   then goes on.
//! - A disk that is slower than the workers delays them. [`Log::admit`] makes writing transactions
//!   wait before they begin, so that the buffers stay bounded.
//!
//! Workers append to a `buffer`. A `logger` writes segments. The `coordinator` goes through the
//! epochs. It has no thread of its own: a caller that waits takes it and so becomes the leader, or else
//! the log's own thread does (see `lead`).
//!
//! [`format`]: super::format

mod buffer;
mod coordinator;
mod follow;
mod lead;
mod logger;
mod spare;

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LockResult, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_htm::blocking::{Condvar, Mutex, MutexGuard};
use weft_htm::word::{Ordering, Word};

use self::buffer::LogSlot;
use self::coordinator::Coordinator;
use self::follow::Follower;
use self::lead::Sleeper;
use self::logger::{Logger, Segment, Segments};
use super::backend::Backend;
use super::format::{PAYLOAD_BYTES, parse_segment_name};
use crate::error::StorageError;

/// Options of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// How many threads write the log at the same time, each to segments of its own. One of them is
    /// the leader. Default: 1.
    pub loggers: usize,
    /// The time from one epoch to the next, unless a caller waits for an epoch. Default: 10 ms (the
    /// papers: 40 ms).
    pub epoch_interval: Duration,
    /// The size in bytes at which a logger begins another segment. Default: 64 MiB.
    pub segment_bytes: u64,
    /// About how many bytes may wait to be written before writing transactions must wait, too.
    /// Default: 256 MiB.
    pub buffer_bytes_max: usize,
    /// The size in bytes of a frame's payload at which another frame is begun. Default:
    /// [`PAYLOAD_BYTES`].
    pub frame_bytes: usize,
    /// How many bytes of the disk are kept for what has committed when the disk is full. Default: 0.
    pub spare_bytes: u64,
    /// How many bytes of a segment are filled with zeros at a time before groups are written there; 0 for none. Default: 0.
    pub reserve_bytes: u64,
    /// Runs without threads. Only the callers of [`Log::step`], and callers that have to wait, write
    /// epochs, and they do so at once. For tests that must run the same way each time. Default: false.
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
            spare_bytes: 0,
            reserve_bytes: 0,
            manual: false,
        }
    }
}

/// The source of epochs: the engine's clock.
pub trait Epochs: Send + Sync {
    /// Ends the current epoch and begins the next. Returns the ended one once everything that
    /// committed in it, or before it, has been appended to the log. Each call returns a greater
    /// epoch than the call before. Returns `None` if the epoch cannot end yet
    /// ([`StorageError::EpochHeld`]).
    fn close_epoch(&self) -> Option<u64>;

    /// Called by the log's own thread at least once in an interval, whatever the state of the disk.
    fn pass_time(&self) {}
}

/// The state of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// The log works normally.
    Running,
    /// The disk has no space. No transaction that writes begins. The log tries again.
    DiskFull,
    /// The log has failed, and will not recover.
    Failed,
    /// The log was shut down.
    Closed,
}

/// What a log has done since it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMetrics {
    /// The state of the log.
    pub state: LogState,
    /// The durable epoch: everything that committed in it, or before, survives a crash.
    pub durable_epoch: u64,
    /// How many epochs with something to write have become durable.
    pub epochs_written: u64,
    /// How many transactions these epochs had.
    pub transactions: u64,
    /// How many bytes were written to segments.
    pub bytes_written: u64,
    /// How many syncs of segments succeeded.
    pub syncs: u64,
    /// The time that all these syncs took together.
    pub sync_time: Duration,
    /// The time that the longest of these syncs took.
    pub sync_time_max: Duration,
    /// About how many bytes wait to be written.
    pub buffered_bytes: u64,
    /// How many segments exist, including those from before the start.
    pub segments: usize,
    /// How many bytes these segments have.
    pub segment_bytes: u64,
}

/// Bits of [`LogCore::gate`]: the reasons for which [`Log::admit`] takes its slow path.
mod gate {
    pub const BUFFERS_FULL: u64 = 1;
    pub const DISK_FULL: u64 = 2;
    pub const FAILED: u64 = 4;
    pub const CLOSED: u64 = 8;
}

/// The log of one database.
pub struct Log {
    shared: Arc<LogCore>,
    /// The log's own thread, until the log is shut down. A manual log has none.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the leader, the loggers and the workers share.
struct LogCore {
    /// Zero if the log works normally.
    gate: Word,
    /// The durable epoch. Written under the lock of `state`.
    durable: Word,
    slots: Box<[LogSlot]>,
    /// One more than the highest slot ever used.
    slots_used: Word,
    /// Bytes in the buffers, as far as the slots have reported them.
    buffered: Word,
    buffer_bytes_max: u64,
    /// How many bytes a slot gathers before it reports them.
    report_bytes: usize,
    state: Mutex<State>,
    /// 1 while a thread leads.
    is_led: Word,
    /// How many callers have waited for an epoch so far.
    joined: Word,
    /// How long the last epoch with groups took to write and sync, in nanoseconds.
    write_ns: Word,
    /// Wakes the log's own thread.
    work: Condvar,
    totals: Mutex<Totals>,
    /// The segments of each logger.
    segments: Box<[Segments]>,
    /// The segments of loggers that no longer exist.
    foreign_segments: Segments,
    /// The last epoch with changes that are not in the log.
    unlogged_epoch: Word,
    backend: Arc<dyn Backend>,
    epochs: Arc<dyn Epochs>,
    directory: PathBuf,
    options: LogOptions,
    first_epoch: u64,
}

struct State {
    /// The coordinator, unless a thread leads or the log was shut down.
    coordinator: Option<Box<Coordinator>>,
    /// The callers that sleep.
    sleepers: Vec<Sleeper>,
    /// The readers of the log that wait for more.
    followers: Vec<Follower>,
    /// See [`Log::shared_by_followers`].
    shared_by_followers: Weak<dyn Any + Send + Sync>,
    /// The last epoch with groups that has become durable since the log was started, or 0.
    written_epoch: u64,
    /// When the last leader had done its work.
    last_led: Instant,
    /// The first final error.
    failure: Option<StorageError>,
    /// The error of a full disk, which may pass.
    disk_full: Option<StorageError>,
    /// Whether something that has committed waits for space on the full disk.
    is_stuck: bool,
    /// Whether the epoch cannot end.
    is_held: bool,
    /// Whether the log is being shut down.
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
    unpoisoned(mutex.lock())
}

fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Starts a log whose segments lie in `directory`, which is created if it does not exist. The
    /// log has slots for `workers_max` workers.
    ///
    /// `first_epoch` is the first epoch that may be appended to, the recovered epoch plus one. All
    /// epochs before it count as durable. `sequences` has the numbers of the loggers' first
    /// segments, which must be greater than those of all existing segments. A logger that it leaves
    /// out begins with 1.
    ///
    /// # Errors
    /// [`StorageError::Io`], also if the operating system cannot start a thread;
    /// [`StorageError::Damaged`] if a segment already exists where a new one has to be written.
    ///
    /// # Panics
    /// If the number of loggers or the first epoch is 0.
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
        let unlogged_epoch = super::directory::unlogged_epoch(&*backend, directory)?;
        for segment in find_segments(&*backend, directory, first_epoch - 1)? {
            let logger = segment.logger as usize;
            if logger < options.loggers && segment.sequence >= sequence(logger) {
                let what = "a segment that was not recovered, where a new one must be written";
                return Err(StorageError::damaged(&segment.path, 0, what));
            }
            segments.get(logger).unwrap_or(&foreign_segments).push(segment);
        }
        let shared = Arc::new(LogCore {
            gate: Word::new(0),
            durable: Word::new(first_epoch - 1),
            slots: (0..workers_max).map(|_| LogSlot::default()).collect(),
            slots_used: Word::new(0),
            buffered: Word::new(0),
            buffer_bytes_max: options.buffer_bytes_max as u64,
            report_bytes: (options.buffer_bytes_max / (2 * workers_max.max(1))).clamp(1, 64 << 10),
            state: Mutex::new(State {
                coordinator: None,
                sleepers: Vec::new(),
                followers: Vec::new(),
                shared_by_followers: Weak::<()>::new(),
                written_epoch: 0,
                last_led: Instant::now(),
                failure: None,
                disk_full: None,
                is_stuck: false,
                is_held: false,
                closing: false,
                closed: false,
            }),
            is_led: Word::new(0),
            joined: Word::new(0),
            write_ns: Word::new(0),
            work: Condvar::new(),
            totals: Mutex::default(),
            segments,
            foreign_segments,
            unlogged_epoch: Word::new(unlogged_epoch),
            backend,
            epochs,
            directory: directory.to_owned(),
            options,
            first_epoch,
        });
        let loggers = (0..shared.options.loggers)
            .map(|index| Logger::new(Arc::clone(&shared), index as u32, sequence(index)))
            .collect();
        let coordinator = Coordinator::new(Arc::clone(&shared), loggers)?;
        let log = Log { shared, thread: Mutex::new(None) };
        lock(&log.shared.state).coordinator = Some(Box::new(coordinator));
        if !log.shared.options.manual {
            let shared = Arc::clone(&log.shared);
            let thread = spawn("weft-log", directory, move || shared.lead_at_intervals())?;
            *lock(&log.thread) = Some(thread);
        }
        Ok(log)
    }

    /// Appends a transaction's entries to the buffer of the worker with this slot. `write` appends
    /// them with the functions of [`format`](super::format). Returns by how many bytes the buffer has grown since that was
    /// last returned, or 0 while these are few.
    ///
    /// Call this after the transaction's serialization point, at which it drew `epoch`, and before
    /// [`Epochs::close_epoch`] stops waiting for the transaction. It never waits for the disk.
    ///
    /// # Panics
    /// If the epoch is already closed, or comes before the slot's last one, or if `write` panics.
    /// The transaction is then not in the log, and the log has failed.
    #[inline]
    pub fn append(&self, slot: usize, epoch: u64, write: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let shared = &*self.shared;
        // Relaxed: only a worker of this slot makes the change that matters here.
        if slot as u64 >= shared.slots_used.load(Ordering::Relaxed) {
            shared.enlist(slot);
        }
        let mut more = 0;
        let append = || {
            shared.slots[slot].append(epoch, shared.report_bytes, write, |bytes| {
                more = bytes as u64;
                shared.report(bytes);
            });
        };
        if let Err(panicked) = panic::catch_unwind(AssertUnwindSafe(append)) {
            // Fail before the epoch can be closed, which waits for this transaction.
            shared.fail(StorageError::Io {
                operation: "append to",
                path: shared.directory.clone(),
                message: "a transaction's writes could not be encoded, or came too late".to_owned(),
            });
            panic::resume_unwind(panicked);
        }
        more
    }

    /// Lets a writing transaction begin. Waits while the buffers are too full.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`] while the disk is full; [`StorageError::Closed`]; or the error by
    /// which the log has failed.
    #[inline]
    pub fn admit(&self) -> Result<(), StorageError> {
        // Relaxed: a transaction that misses a change of the gate is like one that began before the
        // change.
        if self.shared.gate.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.admit_slowly()
    }

    #[cold]
    fn admit_slowly(&self) -> Result<(), StorageError> {
        self.shared.wait_for_space()
    }

    /// Returns the durable epoch: everything that committed in it, or before, survives a crash.
    #[inline]
    pub fn durable_epoch(&self) -> u64 {
        // Acquire: pairs with the release in `publish`. A caller that sees the epoch also sees what
        // came before it.
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Waits until `epoch` is durable. Unless another thread writes the log, the caller closes the
    /// epoch and writes it.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], [`StorageError::EpochHeld`]: the epoch is not durable, but will be
    /// once there is space again, or the epoch can end.
    /// [`StorageError::Closed`], or the error by which the log has failed: the epoch may or may not
    /// survive.
    pub fn wait_durable(&self, epoch: u64) -> Result<(), StorageError> {
        if self.durable_epoch() >= epoch { Ok(()) } else { self.shared.wait_durable(epoch) }
    }

    /// Announces that a caller will soon wait for the epoch of a transaction that has committed, so
    /// that the epoch is not closed before other transactions that are expected. A caller that waits
    /// at once need not be announced.
    #[inline]
    pub fn expect_caller(&self) {
        self.shared.join();
    }

    /// In a manual log, closes the epoch and writes it, or tries again to write what the disk had
    /// no space for. Returns the durable epoch.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], [`StorageError::Closed`], or the error by which the log has
    /// failed.
    ///
    /// # Panics
    /// If the log is not manual.
    pub fn step(&self) -> Result<u64, StorageError> {
        assert!(self.shared.options.manual, "only a manual log is stepped by its caller");
        if let Some(coordinator) = self.shared.acquire() {
            self.shared.lead(coordinator);
        }
        lock(&self.shared.state).check_waiting()?;
        Ok(self.durable_epoch())
    }

    /// Removes the segments that hold nothing after `epoch`, when a checkpoint of that epoch has
    /// become durable. Returns how many it removed. Segments that are being written stay.
    ///
    /// # Errors
    /// [`StorageError::Io`], [`StorageError::SyncFailed`]: some segments may be left. The next call
    /// removes them.
    pub fn remove_segments_up_to(&self, epoch: u64) -> Result<usize, StorageError> {
        self.remove_segments(|segment| segment.last_epoch <= epoch)
    }

    /// Removes the segments of each logger whose numbers are below the logger's number in
    /// `sequences`, as [`Log::remove_segments_up_to`] does. The segments of loggers that
    /// `sequences` leaves out stay.
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
            // Remove them one by one, in order, so that no crash leaves a gap between those that
            // stay.
            while let Some(path) = segments.first_if(&is_removable) {
                shared.remove_segment(&path)?;
                segments.forget(&path);
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns what the log has done, and its state.
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

    /// Returns how many bytes of memory the buffers take.
    pub fn memory_bytes(&self) -> u64 {
        let used = self.shared.slots_used.load(Ordering::SeqCst) as usize;
        self.shared.slots[..used].iter().map(LogSlot::memory_bytes).sum()
    }

    /// Ends the log by an error of its directory: nothing becomes durable any more.
    pub(crate) fn fail(&self, error: StorageError) {
        self.shared.fail(error);
    }

    /// Writes everything that was appended, makes it durable, and ends the log. Nothing can be
    /// appended afterwards.
    ///
    /// # Errors
    /// [`StorageError::DiskFull`], [`StorageError::EpochHeld`]: what was not yet durable is lost. Or
    /// the error by which the log has failed.
    pub fn shutdown(&self) -> Result<(), StorageError> {
        let shared = &*self.shared;
        lock(&shared.state).closing = true;
        shared.work.notify_one();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        if let Some(mut coordinator) = shared.acquire() {
            // The state, which is read below, has an error as well.
            shared.attempt(|| drop(coordinator.finish()));
            shared.close();
        }
        let state = lock(&shared.state);
        let disk_full = state.disk_full.as_ref().filter(|_| state.is_stuck);
        match state.failure.as_ref().or(disk_full) {
            Some(error) => Err(error.clone()),
            None if state.is_held => Err(StorageError::EpochHeld),
            None => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A caller that wants to know the error has called `shutdown` before.
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
    /// Returns the error that stops callers from beginning to write, if there is one.
    fn check(&self) -> Result<(), StorageError> {
        self.check_waiting()?;
        self.disk_full.clone().map_or(Ok(()), Err)
    }

    /// Returns the error that stops callers from waiting, if there is one.
    fn check_waiting(&self) -> Result<(), StorageError> {
        match (&self.failure, &self.disk_full) {
            (Some(error), _) => Err(error.clone()),
            _ if self.closed => Err(StorageError::Closed),
            (None, Some(error)) if self.is_stuck => Err(error.clone()),
            _ if self.is_held => Err(StorageError::EpochHeld),
            _ => Ok(()),
        }
    }
}

impl LogCore {
    #[cold]
    fn enlist(&self, slot: usize) {
        let _state = lock(&self.state);
        // SeqCst, under the lock: of two slots that are enlisted at the same time, the higher one
        // prevails.
        let used = self.slots_used.load(Ordering::SeqCst).max(slot as u64 + 1);
        self.slots_used.store(used, Ordering::SeqCst);
    }

    /// Adds bytes that a slot has gathered.
    #[inline]
    fn report(&self, bytes: usize) {
        let before = self.buffered.fetch_add(bytes as u64, Ordering::SeqCst);
        let full = |buffered| buffered >= self.buffer_bytes_max;
        // The caller that has filled the buffers may have lost its core before it says so.
        let is_said = || self.gate.load(Ordering::SeqCst) & gate::BUFFERS_FULL != 0;
        if full(before + bytes as u64) && !(full(before) && is_said()) {
            self.buffers_changed();
        }
    }

    /// Subtracts bytes that were written.
    fn settle(&self, bytes: usize) {
        let before = self.buffered.fetch_add((bytes as u64).wrapping_neg(), Ordering::SeqCst);
        let full = |buffered| buffered >= self.buffer_bytes_max;
        if full(before) && !full(before - bytes as u64) {
            self.buffers_changed();
        }
    }

    /// Updates the gate when the buffers have become full, or no longer are. It takes the lock: of
    /// several callers at the same time, the last one sees what all of them have done.
    #[cold]
    fn buffers_changed(&self) {
        let _state = lock(&self.state);
        if self.buffered.load(Ordering::SeqCst) >= self.buffer_bytes_max {
            self.gate.fetch_or(gate::BUFFERS_FULL, Ordering::SeqCst);
        } else {
            self.gate.fetch_and(!gate::BUFFERS_FULL, Ordering::SeqCst);
        }
    }

    /// Records an error that is final.
    fn fail(&self, error: StorageError) {
        let mut state = lock(&self.state);
        state.failure.get_or_insert(error);
        self.gate.fetch_or(gate::FAILED, Ordering::SeqCst);
        self.work.notify_one();
        self.wake(state, |_| true);
    }

    fn failure(&self) -> Option<StorageError> {
        lock(&self.state).failure.clone()
    }

    /// Records that the disk is full, or that it has space again. `is_stuck` says whether something that has
    /// committed waits for space.
    fn set_disk_full(&self, error: Option<StorageError>, is_stuck: bool) {
        let mut state = lock(&self.state);
        state.is_stuck = is_stuck;
        if error.is_some() {
            self.gate.fetch_or(gate::DISK_FULL, Ordering::SeqCst);
        } else if state.disk_full.is_some() {
            self.gate.fetch_and(!gate::DISK_FULL, Ordering::SeqCst);
        } else {
            return;
        }
        state.disk_full = error;
        // The log's own thread tries again, sooner than at the next interval.
        self.work.notify_one();
        self.wake(state, |_| true);
    }

    /// Records whether the epoch cannot end.
    fn set_held(&self, is_held: bool) {
        let mut state = lock(&self.state);
        state.is_held = is_held;
        self.wake(state, |_| true);
    }

    /// Makes `epoch` the durable epoch, unless the log has failed. `has_groups` says whether there is
    /// anything in it.
    fn publish(&self, epoch: u64, has_groups: bool) -> Result<(), StorageError> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        if has_groups {
            state.written_epoch = epoch;
        }
        // Release: pairs with the acquire in `durable_epoch`.
        self.durable.store(epoch, Ordering::Release);
        self.wake(state, |sleeper| sleeper.epoch <= epoch);
        Ok(())
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.gate.fetch_or(gate::CLOSED, Ordering::SeqCst);
        self.wake(state, |_| true);
        self.wake_followers(lock(&self.state));
    }

    fn all_segments(&self) -> impl Iterator<Item = &Segments> {
        self.segments.iter().chain([&self.foreign_segments])
    }

    fn remove_segment(&self, path: &Path) -> Result<(), StorageError> {
        match self.backend.remove(path) {
            // An earlier attempt has removed the file, but did not finish.
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

/// Returns the existing segments, in order. They hold nothing after `last_epoch`.
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

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
