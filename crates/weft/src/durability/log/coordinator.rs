//! The coordinator of the log, which closes epochs, has them written, and declares them durable.
//!
//! It runs on the thread of the leader, as does the first logger. Each further logger has a thread of
//! its own.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use weft_htm::word::Ordering;

use super::lead::Gathering;
use super::logger::{Group, Logger};
use super::spare::Spare;
use super::{LogCore, lock, spawn};
use crate::error::StorageError;

/// An epoch on its way to the disk.
struct Round {
    epoch: u64,
    /// The group of each logger; `None` once it is durable.
    groups: Vec<Option<Group>>,
}

/// A logger, and where it runs.
enum LoggerHandle {
    Here(Box<Logger>),
    Thread { jobs: Sender<Job>, results: Receiver<JobResult>, thread: Option<JoinHandle<()>> },
}

/// A job for a logger.
enum Job {
    Write(Group),
    Note(u64, u64),
    End,
}

/// The job's group, if it had one, and the result.
type JobResult = (Option<Group>, Result<(), StorageError>);

pub struct Coordinator {
    shared: Arc<LogCore>,
    handles: Vec<LoggerHandle>,
    /// Epochs that were closed and are not yet durable.
    rounds: VecDeque<Round>,
    /// The last epoch that was closed.
    closed_epoch: u64,
    /// The last epoch with groups that is durable.
    written_epoch: u64,
    /// Whether nothing in the log says yet that `written_epoch` is durable.
    note_is_due: bool,
    /// Whether the epoch could not end when it was to be closed last.
    is_held: bool,
    spare: Spare,
    /// What the next leader has to know.
    pub gathering: Gathering,
}

impl Coordinator {
    pub fn new(shared: Arc<LogCore>, loggers: Vec<Logger>) -> Result<Coordinator, StorageError> {
        let mut handles = Vec::new();
        for (index, logger) in loggers.into_iter().enumerate() {
            handles.push(if index == 0 || shared.options.manual {
                LoggerHandle::Here(Box::new(logger))
            } else {
                LoggerHandle::spawn(index, logger, &shared)?
            });
        }
        let closed_epoch = shared.first_epoch - 1;
        let spare = Spare::new(&*shared.backend, &shared.directory, shared.options.spare_bytes)?;
        Ok(Coordinator {
            shared,
            handles,
            rounds: VecDeque::new(),
            closed_epoch,
            written_epoch: closed_epoch,
            note_is_due: false,
            is_held: false,
            spare,
            gathering: Gathering::new(),
        })
    }

    /// Closes the epoch and writes it, or goes on with the epochs for which there was no space.
    pub fn tick(&mut self) -> Result<(), StorageError> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        let result = self.try_tick();
        let disk_full = match &result {
            Ok(()) => self.spare.restore(&*self.shared.backend),
            Err(error @ StorageError::DiskFull { .. }) => Some(error.clone()),
            Err(StorageError::EpochHeld) => return result,
            Err(error) => {
                self.shared.fail(error.clone());
                return result;
            }
        };
        self.shared.set_disk_full(disk_full, result.is_err());
        result
    }

    fn try_tick(&mut self) -> Result<(), StorageError> {
        // Close the next epoch, unless earlier ones still wait for space.
        if self.rounds.is_empty() {
            let epoch = self.shared.epochs.close_epoch();
            if std::mem::replace(&mut self.is_held, epoch.is_none()) != epoch.is_none() {
                self.shared.set_held(epoch.is_none());
            }
            let epoch = epoch.ok_or(StorageError::EpochHeld)?;
            assert!(epoch > self.closed_epoch, "epoch {epoch} was closed before");
            self.closed_epoch = epoch;
            self.collect();
        }
        let is_idle = self.rounds.is_empty();
        while let Some(mut round) = self.rounds.pop_front() {
            let start = Instant::now();
            let written = self.write(&mut round);
            let time = start.elapsed().as_nanos() as u64;
            // Relaxed: only a hint for those that wait.
            self.shared.write_ns.store(time, Ordering::Relaxed);
            if let Err(error) = written {
                self.rounds.push_front(round);
                if matches!(error, StorageError::DiskFull { .. })
                    && self.spare.give(&*self.shared.backend)
                {
                    // Transactions that write are refused from now on. Callers that wait go on waiting.
                    self.shared.set_disk_full(Some(error), false);
                    continue;
                }
                return Err(error);
            }
            self.written_epoch = round.epoch;
            self.note_is_due = true;
            lock(&self.shared.totals).epochs_written += 1;
            self.shared.publish(round.epoch, true)?;
        }
        // Close an idle epoch with a note, which says that the epochs before it are durable.
        if is_idle && self.note_is_due {
            let (epoch, durable_epoch) = (self.closed_epoch, self.written_epoch);
            self.all(|| Job::Note(epoch, durable_epoch))?;
            self.note_is_due = false;
        }
        self.shared.publish(self.closed_epoch, false)
    }

    /// Takes everything that was appended up to the closed epoch, and makes a round for each epoch
    /// in it.
    fn collect(&mut self) {
        let loggers = self.handles.len();
        let shared = &*self.shared;
        let rounds = &mut self.rounds;
        let used = shared.slots_used.load(Ordering::SeqCst) as usize;
        for (slot, buffer) in shared.slots[..used].iter().enumerate() {
            buffer.take(self.closed_epoch, |chunk| {
                let epoch = chunk.epoch;
                let at = rounds.partition_point(|round| round.epoch < epoch);
                if rounds.get(at).is_none_or(|round| round.epoch != epoch) {
                    let group = || Some(Group { epoch, ..Group::default() });
                    let groups = (0..loggers).map(|_| group()).collect();
                    rounds.insert(at, Round { epoch, groups });
                }
                let group = rounds[at].groups[slot % loggers].as_mut();
                group.expect("no group of the round is written yet").chunks.push((slot, chunk));
            });
        }
    }

    /// Has the loggers write all groups of a round that are not durable yet.
    fn write(&mut self, round: &mut Round) -> Result<(), StorageError> {
        let jobs = round.groups.iter_mut().map(|group| {
            let mut group = group.take()?;
            group.durable_epoch = self.written_epoch;
            Some(Job::Write(group))
        });
        let mut outcome = Ok(());
        for (index, done) in
            ask(&mut self.handles, &self.shared.directory, jobs).into_iter().enumerate()
        {
            let Some((group, result)) = done else { continue };
            match result {
                Ok(()) => self.give_back(group),
                Err(error) => {
                    round.groups[index] = group;
                    // If there are both, return the failure and not the full disk.
                    if !matches!(outcome, Err(ref e) if !matches!(e, StorageError::DiskFull { .. }))
                    {
                        outcome = Err(error);
                    }
                }
            }
        }
        outcome
    }

    /// Gives the chunks of a durable group back to their slots.
    fn give_back(&self, group: Option<Group>) {
        let mut transactions = 0;
        for (slot, chunk) in group.into_iter().flat_map(|group| group.chunks) {
            transactions += chunk.transactions;
            let settled = self.shared.slots[slot].give_back(chunk);
            if settled > 0 {
                self.shared.settle(settled);
            }
        }
        lock(&self.shared.totals).transactions += transactions;
    }

    /// Gives all loggers the same job.
    fn all(&mut self, job: impl Fn() -> Job) -> Result<(), StorageError> {
        let jobs = (0..self.handles.len()).map(|_| Some(job())).collect::<Vec<_>>();
        let done = ask(&mut self.handles, &self.shared.directory, jobs.into_iter());
        done.into_iter().flatten().try_for_each(|(_, result)| result)
    }

    /// Writes everything, followed by a note.
    pub fn finish(&mut self) -> Result<(), StorageError> {
        let result = self.try_finish();
        if let Err(error) = &result
            && !matches!(error, StorageError::DiskFull { .. } | StorageError::EpochHeld)
        {
            self.shared.fail(error.clone());
        }
        result
    }

    fn try_finish(&mut self) -> Result<(), StorageError> {
        // One tick each for what waits for space, for what was appended since, and for the note.
        // There would be more if a worker still appends. This is left out then.
        for _ in 0..4 {
            self.tick()?;
            if !self.note_is_due {
                break;
            }
        }
        self.all(|| Job::End)
    }
}

/// Lets loggers do jobs at the same time, and returns the results.
fn ask(
    handles: &mut [LoggerHandle],
    directory: &Path,
    jobs: impl Iterator<Item = Option<Job>>,
) -> Vec<Option<JobResult>> {
    let mut here = Vec::new();
    let mut done: Vec<Option<JobResult>> = Vec::new();
    done.resize_with(handles.len(), || None);
    let mut asked = Vec::new();
    for (index, (handle, job)) in handles.iter_mut().zip(jobs).enumerate() {
        let Some(job) = job else { continue };
        match handle {
            LoggerHandle::Here(_) => here.push((index, job)),
            LoggerHandle::Thread { jobs, .. } => {
                // If the thread is gone, there is no answer either.
                let _ = jobs.send(job);
                asked.push(index);
            }
        }
    }
    for (index, job) in here {
        let LoggerHandle::Here(logger) = &mut handles[index] else {
            unreachable!("it has no thread")
        };
        done[index] = Some(perform(logger, job));
    }
    for index in asked {
        let LoggerHandle::Thread { results, .. } = &handles[index] else {
            unreachable!("it has a thread")
        };
        done[index] = Some(results.recv().unwrap_or_else(|_| (None, Err(panicked(directory)))));
    }
    done
}

pub fn panicked(directory: &Path) -> StorageError {
    let message = "a thread of the log panicked".to_owned();
    StorageError::Io { operation: "write to", path: directory.to_owned(), message }
}

fn perform(logger: &mut Logger, job: Job) -> JobResult {
    match job {
        Job::Write(group) => {
            let result = logger.write(&group);
            (Some(group), result)
        }
        Job::Note(epoch, durable_epoch) => (None, logger.note(epoch, durable_epoch)),
        Job::End => (None, logger.end_segment()),
    }
}

impl LoggerHandle {
    fn spawn(
        index: usize,
        mut logger: Logger,
        shared: &LogCore,
    ) -> Result<LoggerHandle, StorageError> {
        let (jobs, jobs_in) = mpsc::channel();
        let (results_out, results) = mpsc::channel();
        let thread = spawn(&format!("weft-log-{index}"), &shared.directory, move || {
            while let Ok(job) = jobs_in.recv() {
                if results_out.send(perform(&mut logger, job)).is_err() {
                    break;
                }
            }
        })?;
        Ok(LoggerHandle::Thread { jobs, results, thread: Some(thread) })
    }
}

impl Drop for LoggerHandle {
    fn drop(&mut self) {
        if let LoggerHandle::Thread { jobs, thread, .. } = self {
            // Closes the channel, which ends the thread.
            *jobs = mpsc::channel().0;
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}
