//! Many workers at the same time, with the log's own threads.

use std::sync::{Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use super::super::LogState;
use super::*;
use crate::durability::file_system::FileSystem;

/// A clock for many threads: a transaction holds its epoch while it appends.
struct SharedClock(RwLock<u64>);

impl SharedClock {
    fn starting_at(epoch: u64) -> Arc<SharedClock> {
        Arc::new(SharedClock(RwLock::new(epoch)))
    }

    /// Commits a transaction that puts a row. Returns its epoch.
    fn commit(&self, log: &Log, slot: usize, row: &[u8]) -> u64 {
        let epoch = self.0.read().unwrap();
        append_row(log, slot, *epoch, row);
        *epoch
    }
}

impl Epochs for SharedClock {
    fn close_epoch(&self) -> Option<u64> {
        let mut epoch = self.0.write().unwrap();
        *epoch += 1;
        Some(*epoch - 1)
    }
}

fn threaded(loggers: usize) -> LogOptions {
    let epoch_interval = Duration::from_millis(1);
    LogOptions { manual: false, epoch_interval, segment_bytes: 50_000, ..small(loggers) }
}

/// Workers commit, some of them wait, and the power may go off at any time.
#[test]
fn acknowledged_writes_survive_any_crash() {
    for loggers in [1, 3] {
        let disk = SimulatedDisk::new(7);
        let clock = SharedClock::starting_at(1);
        let options = LogOptions { buffer_bytes_max: 20_000, ..threaded(loggers) };
        let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
        let appended = Mutex::new(Rows::new());
        thread::scope(|scope| {
            for slot in 0..4usize {
                let (log, clock, disk, appended) = (&log, &clock, &disk, &appended);
                scope.spawn(move || {
                    for serial in 0..400u64 {
                        log.admit().unwrap();
                        let row = [slot as u64, serial].map(u64::to_be_bytes).concat();
                        let epoch = clock.commit(log, slot, &row);
                        appended.lock().unwrap().entry(epoch).or_default().insert(row.clone());
                        if serial % 40 == 39 {
                            log.wait_durable(epoch).unwrap();
                            let found = find(&disk.crash(serial), loggers, 0).unwrap();
                            assert!(found.rows[&epoch].contains(&row), "{slot}, {serial}");
                        }
                    }
                });
            }
        });
        log.shutdown().unwrap();
        let found = find(&disk.crash(1), loggers, 0).unwrap();
        assert_eq!(found.rows, appended.into_inner().unwrap());
        assert_eq!(log.metrics().transactions, 1600);
        assert_eq!(log.metrics().buffered_bytes, 0);
    }
}

/// The interval is one hour. Only a waiting caller makes the next epoch come.
#[test]
fn waiting_hurries_the_epoch() {
    let disk = SimulatedDisk::new(0);
    let clock = SharedClock::starting_at(1);
    let options = LogOptions { epoch_interval: Duration::from_secs(3600), ..threaded(2) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    thread::scope(|scope| {
        for slot in 0..4 {
            let (log, clock) = (&log, &clock);
            scope.spawn(move || {
                for serial in 0..20u8 {
                    let epoch = clock.commit(log, slot, &[slot as u8, serial]);
                    log.wait_durable(epoch).unwrap();
                }
            });
        }
    });
    assert_eq!(log.metrics().transactions, 80);
}

/// The same holds for a worker that finds the buffers full.
#[test]
fn full_buffers_block_writers_and_hurry_the_log() {
    let disk = SimulatedDisk::new(0);
    let clock = SharedClock::starting_at(1);
    let epoch_interval = Duration::from_secs(3600);
    let options = LogOptions { epoch_interval, buffer_bytes_max: 4000, ..threaded(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    thread::scope(|scope| {
        for slot in 0..4 {
            let (log, clock) = (&log, &clock);
            scope.spawn(move || {
                for serial in 0..200u8 {
                    log.admit().unwrap();
                    clock.commit(log, slot, &[&[slot as u8, serial][..], &[0; 98]].concat());
                    let bytes = log.metrics().buffered_bytes;
                    assert!(bytes < 4000 + 4 * 250, "{bytes} bytes");
                }
            });
        }
    });
    log.shutdown().unwrap();
    assert_eq!(find(&disk, 1, 0).unwrap().rows.values().map(BTreeSet::len).sum::<usize>(), 800);
}

#[test]
fn a_failed_sync_reaches_all_waiters() {
    let disk = SimulatedDisk::new(0);
    let clock = SharedClock::starting_at(1);
    let log = start(&disk, threaded(2), clock.clone(), 1, &[]).unwrap();
    disk.fail_sync(20);
    let durable = thread::scope(|scope| {
        let workers = [0, 1, 2, 3].map(|slot| {
            let (log, clock) = (&log, &clock);
            scope.spawn(move || {
                for serial in 0u64.. {
                    let row = [slot as u64, serial].map(u64::to_be_bytes).concat();
                    let epoch = clock.commit(log, slot, &row);
                    match log.wait_durable(epoch) {
                        Ok(()) => {}
                        Err(StorageError::SyncFailed { .. }) => return serial,
                        Err(error) => panic!("{error}"),
                    }
                }
                unreachable!("the sync fails before that")
            })
        });
        workers.map(|worker| worker.join().unwrap()).iter().sum::<u64>()
    });
    assert!(matches!(log.admit(), Err(StorageError::SyncFailed { .. })));
    assert_eq!(log.metrics().state, LogState::Failed);
    assert_eq!(disk.syncs(), 20, "no sync after the one that failed, but the other logger's");
    for crash in 0..20 {
        let found = find(&disk.crash(crash), 2, 0).unwrap();
        let rows = found.rows.values().map(BTreeSet::len).sum::<usize>();
        assert!(rows as u64 >= durable, "{rows} of {durable} rows");
    }
}

/// The interval is one hour. The log's own thread tries again nevertheless, although no caller leads.
#[test]
fn a_full_disk_is_retried_until_there_is_space() {
    let disk = SimulatedDisk::new(0);
    let clock = SharedClock::starting_at(1);
    let options = LogOptions { epoch_interval: Duration::from_secs(3600), ..threaded(2) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    disk.set_capacity(Some(100));
    let epoch = clock.commit(&log, 1, &[7; 300]);
    assert!(matches!(log.wait_durable(epoch), Err(StorageError::DiskFull { .. })));
    assert!(matches!(log.admit(), Err(StorageError::DiskFull { .. })));
    disk.set_capacity(None);
    while let Err(error) = log.wait_durable(epoch) {
        assert!(matches!(error, StorageError::DiskFull { .. }), "{error}");
        thread::yield_now();
    }
    while log.admit().is_err() {
        thread::yield_now();
    }
    assert_eq!(find(&disk.crash(0), 2, 0).unwrap().rows[&epoch], BTreeSet::from([vec![7; 300]]));
}

/// While an epoch is being written, workers go on in the next one.
#[test]
fn a_slow_clock_delays_only_waiters() {
    /// Closes an epoch when it is allowed to.
    struct HeldClock(Clock, Mutex<mpsc::Receiver<()>>);
    impl Epochs for HeldClock {
        fn close_epoch(&self) -> Option<u64> {
            let _ = self.1.lock().unwrap().recv();
            self.0.close_epoch()
        }
    }
    let (release, held) = mpsc::channel();
    let epochs = Arc::new(HeldClock(Clock(Word::new(1)), Mutex::new(held)));
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, threaded(1), epochs, 1, &[]).unwrap();
    for serial in 0..100 {
        log.admit().unwrap();
        append_row(&log, 0, 1, &[serial]);
    }
    assert_eq!(log.durable_epoch(), 0);
    release.send(()).unwrap();
    log.wait_durable(1).unwrap();
    assert_eq!(find(&disk.crash(0), 1, 0).unwrap().rows[&1].len(), 100);
    drop(release);
}

#[test]
fn a_panic_of_the_clock_fails_the_log() {
    struct BrokenClock((Mutex<bool>, Condvar));
    impl Epochs for BrokenClock {
        fn close_epoch(&self) -> Option<u64> {
            let (flag, wake) = &self.0;
            let mut is_set = flag.lock().unwrap();
            while !*is_set {
                is_set = wake.wait(is_set).unwrap();
            }
            drop(is_set);
            panic!("a broken clock")
        }
    }
    let epochs = Arc::new(BrokenClock((Mutex::new(false), Condvar::new())));
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, threaded(2), epochs.clone(), 1, &[]).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| log.wait_durable(1));
        *epochs.0.0.lock().unwrap() = true;
        epochs.0.1.notify_all();
        assert!(matches!(waiter.join().unwrap(), Err(StorageError::Io { .. })));
    });
    assert!(log.shutdown().is_err());
}

/// Callers of one log wait while another thread shuts it down.
#[test]
fn shutdown_waits_for_the_leader_and_wakes_all_callers() {
    for _ in 0..50 {
        let disk = SimulatedDisk::new(0);
        let clock = SharedClock::starting_at(1);
        let log = start(&disk, threaded(2), clock.clone(), 1, &[]).unwrap();
        let durable = thread::scope(|scope| {
            let workers = [0, 1, 2].map(|slot| {
                let (log, clock) = (&log, &clock);
                scope.spawn(move || {
                    for serial in 0u64.. {
                        let row = [slot as u64, serial].map(u64::to_be_bytes).concat();
                        match log.wait_durable(clock.commit(log, slot, &row)) {
                            Ok(()) => {}
                            Err(StorageError::Closed) => return serial,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    unreachable!("the log is shut down before that")
                })
            });
            while log.durable_epoch() < 3 {
                thread::yield_now();
            }
            log.shutdown().unwrap();
            workers.map(|worker| worker.join().unwrap()).iter().sum::<u64>()
        });
        let found = find(&disk.crash(0), 2, 0).unwrap();
        let rows = found.rows.values().map(BTreeSet::len).sum::<usize>();
        assert!(rows as u64 >= durable, "{rows} of {durable} rows");
    }
}

#[test]
fn the_log_works_on_the_file_system() {
    let name = format!("weft-log-{}-{:x}", std::process::id(), fastrand::u64(..));
    let root = std::env::temp_dir().join(name);
    std::fs::create_dir(&root).unwrap();
    let directory = root.join("log");
    let clock = SharedClock::starting_at(1);
    let options = LogOptions { segment_bytes: 1000, ..threaded(2) };
    let start =
        |options| Log::start(Arc::new(FileSystem), &directory, options, 2, clock.clone(), 1, &[]);
    let log = start(options.clone()).unwrap();
    for serial in 0..20 {
        let epoch = clock.commit(&log, serial % 2, &[serial as u8; 100]);
        log.wait_durable(epoch).unwrap();
    }
    let removed = log.remove_segments_up_to(log.durable_epoch()).unwrap();
    assert!(removed > 2, "{removed} segments");
    log.shutdown().unwrap();

    // Read through the simulated disk, from the directory with the last segments.
    let disk = SimulatedDisk::new(0);
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    let names = FileSystem.list(&directory).unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let bytes = std::fs::read(directory.join(&name)).unwrap();
        disk.create_new(&Path::new(DIRECTORY).join(name)).unwrap().write_at(&bytes, 0).unwrap();
    }
    assert!(find(&disk, 2, 0).is_ok());
    assert!(matches!(start(options), Err(StorageError::Damaged { .. })), "they are in the way");
    std::fs::remove_dir_all(root).unwrap();
}
