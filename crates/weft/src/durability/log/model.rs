//! Schedules of callers that wait for the log, chosen by a model checker (`--cfg shuttle`).
//!
//! The log is manual: the callers lead by turns, as they do in a log with a thread of its own. A
//! wake-up that is lost is a deadlock, which the checker reports. If two threads led at the same time,
//! an epoch would be missing on the disk, or be there twice.

use std::path::Path;
use std::sync::Arc;

use shuttle::sync::RwLock;
use shuttle::thread;

use super::{Epochs, Log, LogOptions, LogState};
use crate::durability::format::{WriteKind, push_transaction, push_write};
use crate::durability::simulated_disk::SimulatedDisk;
use crate::error::StorageError;

const ITERATIONS: usize = 4_000;

/// A clock whose lock transactions share while they append.
struct Clock(RwLock<u64>);

impl Epochs for Clock {
    fn close_epoch(&self) -> Option<u64> {
        let mut epoch = self.0.write().unwrap();
        *epoch += 1;
        Some(*epoch - 1)
    }
}

struct Model {
    disk: SimulatedDisk,
    clock: Arc<Clock>,
    log: Log,
}

impl Model {
    fn start(buffer_bytes_max: usize) -> Arc<Model> {
        let disk = SimulatedDisk::new(0);
        let clock = Arc::new(Clock(RwLock::new(1)));
        let options = LogOptions { manual: true, buffer_bytes_max, ..LogOptions::default() };
        let backend = Arc::new(disk.clone());
        let log = Log::start(backend, Path::new("/log"), options, 4, clock.clone(), 1, &[]);
        Arc::new(Model { disk, clock, log: log.unwrap() })
    }

    /// Commits a transaction, and returns its epoch.
    fn commit(&self, slot: usize) -> u64 {
        let epoch = self.clock.0.read().unwrap();
        self.log.append(slot, *epoch, |buffer| {
            push_transaction(buffer);
            push_write(buffer, WriteKind::Put, 1, 1, |buffer| buffer.extend_from_slice(&[0; 50]));
        });
        *epoch
    }

    /// Commits a transaction, and waits until it is durable.
    fn commit_durably(&self, slot: usize) -> Result<(), StorageError> {
        self.log.wait_durable(self.commit(slot))
    }

    /// Checks that so many transactions are durable, in epochs that follow each other.
    fn check(&self, transactions: u64) {
        let metrics = self.log.metrics();
        assert_eq!(metrics.transactions, transactions);
        assert_eq!(metrics.durable_epoch, *self.clock.0.read().unwrap() - 1);
        let path = Path::new("/log/0-0000000001.log");
        let file = crate::durability::Backend::open_read_only(&self.disk, path).unwrap();
        let mut epochs = Vec::new();
        let mut reader = crate::durability::format::FrameReader::new(&*file, path).unwrap();
        while let crate::durability::format::Next::Frame(frame) = reader.next().unwrap() {
            epochs.push((frame.header.previous_epoch, frame.header.epoch));
        }
        assert!(epochs.windows(2).all(|pair| pair[0].1 == pair[1].0), "{epochs:?}");
    }
}

/// Runs `work` on some threads at the same time, under many schedules. `check` follows when they have
/// ended.
fn explore(threads: usize, buffer_bytes_max: usize, work: fn(&Model, usize), check: fn(&Model)) {
    let model = move || {
        let model = Model::start(buffer_bytes_max);
        let workers: Vec<_> = (0..threads)
            .map(|slot| {
                let model = Arc::clone(&model);
                thread::spawn(move || work(&model, slot))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        check(&model);
    };
    shuttle::check_random(model, ITERATIONS);
    shuttle::check_pct(model, ITERATIONS, 3);
}

#[test]
fn callers_lead_by_turns() {
    let work = |model: &Model, slot: usize| {
        for _ in 0..2 {
            model.commit_durably(slot).unwrap();
        }
    };
    explore(3, 1 << 20, work, |model| model.check(6));
}

/// One of the threads stands for the log's own, which leads at intervals.
#[test]
fn callers_lead_beside_the_thread_of_the_log() {
    let work = |model: &Model, slot: usize| match slot {
        0 => drop(model.log.step().unwrap()),
        _ => model.commit_durably(slot).unwrap(),
    };
    explore(3, 1 << 20, work, |model| model.check(2));
}

/// Each caller that was admitted in time may exceed the limit by one transaction, even if the one that has reached it
/// goes no further for a while.
#[test]
fn callers_that_wait_for_space_lead_by_turns() {
    let work = |model: &Model, slot: usize| {
        for _ in 0..3 {
            model.log.admit().unwrap();
            model.commit(slot);
            let bytes = model.log.metrics().buffered_bytes;
            assert!(bytes < 100 + 3 * 90, "{bytes} bytes");
        }
    };
    let check = |model: &Model| {
        model.log.shutdown().unwrap();
        model.check(9);
    };
    explore(3, 100, work, check);
}

#[test]
fn a_log_that_is_shut_down_wakes_every_caller() {
    let work = |model: &Model, slot: usize| match slot {
        0 | 1 => model.log.shutdown().unwrap(),
        _ => {
            let waited = model.log.wait_durable(1);
            assert!(matches!(waited, Ok(()) | Err(StorageError::Closed)), "{waited:?}");
        }
    };
    explore(4, 1 << 20, work, |model| {
        assert_eq!(model.log.metrics().state, LogState::Closed);
        assert!(super::lock(&model.log.shared.state).sleepers.is_empty());
    });
}

#[test]
fn a_failed_sync_wakes_every_caller() {
    let work = |model: &Model, slot: usize| {
        model.disk.fail_sync(2);
        while model.commit_durably(slot).is_ok() {}
    };
    explore(3, 1 << 20, work, |model| assert_eq!(model.log.metrics().state, LogState::Failed));
}

#[test]
fn a_full_disk_wakes_every_caller_and_has_them_lead_again() {
    let work = |model: &Model, slot: usize| {
        if slot == 0 {
            model.disk.set_capacity(Some(0));
            let _ = model.commit_durably(slot);
            model.disk.set_capacity(None);
            model.log.step().unwrap();
        }
        while let Err(error) = model.commit_durably(slot) {
            assert!(matches!(error, StorageError::DiskFull { .. }), "{error}");
            thread::yield_now();
        }
    };
    explore(3, 1 << 20, work, |model| assert_eq!(model.log.metrics().state, LogState::Running));
}
