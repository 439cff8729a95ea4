//! Failed syncs, full disks and panics: the log acknowledges nothing that is not true.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::LogState;
use super::*;

fn is_sync_failure<T: std::fmt::Debug>(result: Result<T, StorageError>) -> bool {
    matches!(result, Err(StorageError::SyncFailed { .. }))
}

fn is_disk_full<T: std::fmt::Debug>(result: Result<T, StorageError>) -> bool {
    matches!(result, Err(StorageError::DiskFull { .. }))
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    // Either the first or the second of two loggers fails.
    for sync in [3, 4] {
        let disk = SimulatedDisk::new(sync);
        let clock = Clock::starting_at(1);
        let log = start(&disk, small(2), clock.clone(), 1, &[]).unwrap();
        append_row(&log, 0, 1, b"a");
        log.step().unwrap();
        disk.fail_sync(sync);
        append_row(&log, 0, 2, b"b");
        assert!(is_sync_failure(log.step()));
        let syncs = disk.syncs();
        assert_eq!(log.durable_epoch(), 1);
        assert_eq!(log.metrics().state, LogState::Failed);
        // The disk works again. This must make no difference.
        append_row(&log, 0, 3, b"c");
        for _ in 0..3 {
            assert!(is_sync_failure(log.step()));
            assert!(is_sync_failure(log.wait_durable(2)));
            assert!(is_sync_failure(log.wait_durable(3)));
            assert!(is_sync_failure(log.admit()));
        }
        log.wait_durable(1).unwrap();
        assert!(is_sync_failure(log.shutdown()));
        assert_eq!((disk.syncs(), log.durable_epoch()), (syncs, 1), "never tried again");
        for crash in 0..20 {
            let found = find(&disk.crash(crash), 2, 0).unwrap();
            assert!(found.rows[&1].contains(&b"a"[..]), "what was durable is still there");
        }
    }
}

#[test]
fn a_failed_sync_names_the_file_and_the_remedy() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    disk.fail_sync(1);
    append_row(&log, 0, 1, b"a");
    assert_eq!(
        log.step().unwrap_err().to_string(),
        "cannot sync /log/0-0000000001.log: simulated input/output error; nothing committed since \
         the last durable epoch is durable, and nothing will be until the database is opened again"
    );
}

#[test]
fn a_full_disk_refuses_writers_and_loses_nothing() {
    for seed in 0..200 {
        let disk = SimulatedDisk::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = Clock::starting_at(1);
        let log = start(&disk, small(2), clock.clone(), 1, &[]).unwrap();
        let mut appended = Rows::new();
        let mut append = |epoch: u64, serial: u8| {
            for slot in 0..3 {
                let row = [serial, slot as u8, 0, 0, 0];
                append_row(&log, slot, epoch, &row.repeat(20));
                appended.entry(epoch).or_default().insert(row.repeat(20));
            }
        };
        append(1, 1);
        log.step().unwrap();
        // Leave space for nothing, for a part of one group, or for one of two groups.
        disk.set_capacity(Some(disk.used_bytes() + random.u64(..600)));
        append(2, 2);
        for attempt in 0..3 {
            assert!(is_disk_full(log.step()), "seed {seed}, attempt {attempt}");
            assert!(is_disk_full(log.admit()));
            assert!(is_disk_full(log.wait_durable(2)));
            log.wait_durable(1).unwrap();
            assert_eq!(log.metrics().state, LogState::DiskFull);
            let found = find(&disk.snapshot(), 2, 0).unwrap();
            let ends: Vec<_> = disk.files().iter().map(|path| disk.contents(path).len()).collect();
            let frames: usize = found.headers.len();
            assert!(frames >= 2 && ends.iter().all(|end| *end > 0), "partial groups are cut off");
            let crashed = find(&disk.crash(attempt), 2, 0).unwrap();
            assert!(crashed.epoch == 1 && crashed.rows.len() == 1, "seed {seed}");
        }
        // A transaction that was under way still commits.
        append(clock.now(), 3);
        disk.set_capacity(None);
        log.step().unwrap();
        log.step().unwrap();
        log.admit().unwrap();
        assert_eq!(log.metrics().state, LogState::Running);
        assert_eq!(log.durable_epoch(), clock.now() - 1);
        assert_eq!(find(&disk.crash(seed), 2, 0).unwrap().rows, appended, "seed {seed}");
        assert_eq!(log.metrics().buffered_bytes, 0);
    }
}

/// Bytes of a group that did not fit must not stay after the last frame.
#[test]
fn a_partly_written_group_is_cut_off() {
    for seed in 0..50 {
        let disk = SimulatedDisk::new(seed);
        let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
        append_row(&log, 0, 1, b"a");
        log.step().unwrap();
        let length = disk.used_bytes();
        disk.set_capacity(Some(length + 100));
        append_row(&log, 0, 2, &[7; 400]);
        assert!(is_disk_full(log.step()));
        assert_eq!(disk.used_bytes(), length);
    }
}

#[test]
fn a_note_is_left_out_on_a_full_disk() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.step().unwrap();
    let length = disk.used_bytes();
    disk.set_capacity(Some(length + 10));
    assert_eq!(log.step().unwrap(), 2);
    assert_eq!(disk.used_bytes(), length);
    disk.set_capacity(None);
    append_row(&log, 0, 3, b"b");
    log.step().unwrap();
    assert_eq!(find(&disk.crash(1), 1, 0).unwrap().rows.len(), 2);
}

#[test]
fn shutdown_on_a_full_disk_returns_an_error() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    disk.set_capacity(Some(10));
    append_row(&log, 0, 1, b"a");
    assert!(is_disk_full(log.shutdown()));
    assert!(is_disk_full(log.shutdown()));
    assert_eq!(log.durable_epoch(), 0);
    assert_eq!(log.admit(), Err(StorageError::Closed));
}

#[test]
fn a_failed_sync_of_the_directory_fails_the_log() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    // The segment is created, and then its name is synced.
    disk.stop_at(disk.operations() + 2);
    append_row(&log, 0, 1, b"a");
    let error = log.step().unwrap_err();
    let StorageError::SyncFailed { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, Path::new(DIRECTORY));
}

#[test]
fn a_panic_while_encoding_fails_the_log_and_leaves_nothing() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.step().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        log.append(0, 2, |buffer| {
            push_transaction(buffer);
            push_write(buffer, WriteKind::Put, 1, 3, |_| panic!("the row's own encoder"));
        });
    }));
    assert!(result.is_err());
    for result in [log.step().map(drop), log.admit(), log.wait_durable(2), log.shutdown()] {
        assert!(matches!(result, Err(StorageError::Io { operation: "append to", .. })));
    }
    assert_eq!(find(&disk.snapshot(), 1, 0).unwrap().rows.len(), 1);
}

#[test]
fn appending_to_a_durable_epoch_fails_the_log() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.step().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| append_row(&log, 0, 1, b"late"))).is_err());
    assert!(log.admit().is_err(), "the log was wrong, and says so");
}

#[test]
fn what_has_committed_becomes_durable_in_the_space_of_the_spare() {
    for seed in 0..100 {
        let disk = SimulatedDisk::new(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = Clock::starting_at(1);
        let options = LogOptions { spare_bytes: 10_000, ..small(2) };
        let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
        let mut appended = Rows::new();
        let mut append = |serial: u8| {
            for slot in 0..3 {
                let (epoch, row) = (clock.now(), [serial, slot as u8, 0, 0, 0].repeat(20));
                append_row(&log, slot, epoch, &row);
                appended.entry(epoch).or_default().insert(row);
            }
        };
        append(1);
        log.step().unwrap();
        assert!(disk.used_bytes() > 10_000, "the spare takes space in advance");
        disk.set_capacity(Some(disk.used_bytes() + random.u64(..600)));
        append(2);
        // The epoch that finds the disk full is durable, and so is one that was under way.
        for serial in 3..5 {
            let epoch = clock.now();
            assert_eq!(log.step(), Ok(epoch), "seed {seed}");
            log.wait_durable(epoch).unwrap();
            assert_eq!(log.metrics().state, LogState::DiskFull, "seed {seed}");
            assert!(is_disk_full(log.admit()), "no other transaction begins to write");
            append(serial);
        }
        log.step().unwrap();
        assert!(is_disk_full(log.admit()), "there is space, but not for the spare");
        disk.set_capacity(None);
        log.step().unwrap();
        log.admit().unwrap();
        assert_eq!(log.metrics().state, LogState::Running);
        assert_eq!(find_beside_spare(&disk.crash(seed)).rows, appended, "seed {seed}");
        log.shutdown().unwrap();
    }
}

/// As `find`, for the two loggers of a log with a spare.
fn find_beside_spare(disk: &SimulatedDisk) -> LogContents {
    let _ = disk.remove(&Path::new(DIRECTORY).join("spare"));
    find(disk, 2, 0).unwrap()
}

#[test]
fn what_does_not_fit_into_the_spare_waits_for_space() {
    let disk = SimulatedDisk::new(0);
    let clock = Clock::starting_at(1);
    let options = LogOptions { spare_bytes: 100, ..small(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    append_row(&log, 0, 1, &[7; 400]);
    assert!(is_disk_full(log.step()) && is_disk_full(log.wait_durable(1)));
    disk.set_capacity(None);
    log.step().unwrap();
    log.wait_durable(1).unwrap();
    log.admit().unwrap();
}

#[test]
fn a_disk_without_room_for_the_spare_is_used_without_one() {
    let disk = SimulatedDisk::new(0);
    disk.set_capacity(Some(2000));
    let clock = Clock::starting_at(1);
    let options = LogOptions { spare_bytes: 10_000, ..small(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.step().unwrap();
    log.admit().unwrap();
    append_row(&log, 0, clock.now(), &[7; 3000]);
    assert!(is_disk_full(log.step()));
}
