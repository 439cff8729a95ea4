//! What is written when nothing goes wrong.

use super::super::buffer::LogSlot;
use super::super::{LogMetrics, LogState};
use super::*;

fn row(byte: u8, length: usize) -> Vec<u8> {
    vec![byte; length]
}

#[test]
fn an_epoch_is_durable_when_all_its_groups_are() {
    let disk = SimulatedDisk::new(0);
    let clock = Clock::starting_at(1);
    let log = start(&disk, small(2), clock.clone(), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    append_row(&log, 1, 1, b"b");
    append_row(&log, 2, 1, b"c");
    assert_eq!(log.durable_epoch(), 0);
    assert_eq!(log.step().unwrap(), 1);
    append_row(&log, 0, 2, b"lost");
    let found = find(&disk.crash(1), 2, 0).unwrap();
    assert_eq!(found.epoch, 1);
    let all = [b"a", b"b", b"c"].map(|row| row.to_vec());
    assert_eq!(found.rows, Rows::from([(1, BTreeSet::from(all))]));
    let loggers: Vec<u32> = found.headers.iter().map(|header| header.logger).collect();
    assert_eq!(loggers, [0, 1], "worker 0 and 2 to one logger, worker 1 to the other");
}

#[test]
fn a_logger_with_nothing_to_write_also_closes_the_epoch() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(3), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 1, 1, b"a");
    log.step().unwrap();
    let found = find(&disk.crash(1), 3, 0).unwrap();
    assert_eq!(found.headers.len(), 3);
    assert!(found.headers.iter().all(|header| header.closes_epoch && header.epoch == 1));
}

#[test]
fn an_idle_log_writes_one_note() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(2), Clock::starting_at(1), 1, &[]).unwrap();
    let before = disk.operations();
    assert_eq!(log.step().unwrap(), 1);
    assert_eq!(disk.operations(), before, "nothing was ever written");
    append_row(&log, 0, 2, b"a");
    assert_eq!(log.step().unwrap(), 2);
    let (before, syncs) = (disk.operations(), disk.syncs());
    assert_eq!(log.step().unwrap(), 3);
    assert_eq!((disk.operations() - before, disk.syncs()), (2, syncs), "a note of each logger");
    let before = disk.operations();
    assert_eq!(log.step().unwrap(), 4);
    assert_eq!(disk.operations(), before, "no second note");
    let headers = find(&disk, 2, 0).unwrap().headers;
    let notes = headers.iter().filter(|header| header.epoch == 3);
    assert_eq!(notes.filter(|note| note.durable_epoch == 2).count(), 2);
}

/// Without the note, damage of the last group would look like a torn tail.
#[test]
fn a_note_distinguishes_damage_from_a_torn_tail() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(2), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, &row(7, 400));
    log.step().unwrap();
    let path = &disk.files()[0];
    let bits = disk.contents(path).len() as u64 * 8;
    let flip = |disk: &SimulatedDisk, bit| {
        let disk = disk.snapshot();
        disk.flip_bit(path, bit);
        find(&disk, 2, 0)
    };
    assert_eq!(flip(&disk, 100).unwrap().epoch, 0, "nothing proves that it was durable");
    log.step().unwrap();
    for bit in 0..bits {
        assert!(flip(&disk, bit).is_err(), "bit {bit} was durable");
    }
}

#[test]
fn a_large_epoch_takes_several_frames_of_whole_entries() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    let rows: Vec<_> = (0..20).map(|byte| row(byte, 37)).chain([row(20, 1000)]).collect();
    for (index, row) in rows.iter().enumerate() {
        append_row(&log, index % 3, 1, row);
    }
    log.append(3, 1, |buffer| {
        for byte in 21..40 {
            push_write(buffer, WriteKind::Put, 1, 3, |buffer| buffer.extend(row(byte, 37)));
        }
    });
    log.step().unwrap();
    let found = find(&disk, 1, 0).unwrap();
    assert_eq!(found.rows[&1].len(), 40);
    assert!(found.headers.len() > 10, "{} frames", found.headers.len());
    assert_eq!(found.headers.iter().filter(|header| header.closes_epoch).count(), 1);
    let lengths = found.headers.windows(2).map(|pair| pair[1].position - pair[0].position - 64);
    let longer = lengths.filter(|length| *length > 150).count();
    assert_eq!(longer, 2, "the put and the delete of the long row, in frames of their own");
}

#[test]
fn full_segments_are_closed_and_unneeded_ones_removed() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(2), Clock::starting_at(1), 1, &[]).unwrap();
    for epoch in 1..=12 {
        append_row(&log, 0, epoch, &row(epoch as u8, 100));
        append_row(&log, 1, epoch, &row(100 + epoch as u8, 10 * epoch as usize));
        log.step().unwrap();
    }
    let segments = disk.files().len();
    assert!(segments > 4, "{segments} segments");
    let metrics = log.metrics();
    assert_eq!(metrics.segments, segments);
    assert_eq!(metrics.segment_bytes, disk.used_bytes());
    for checkpoint in 0..=12 {
        let copy = disk.snapshot();
        log.remove_segments_up_to(checkpoint).unwrap();
        let needed: BTreeSet<u64> = (checkpoint + 1..=12).collect();
        let found = find(&disk, 2, checkpoint).unwrap();
        assert_eq!(found.rows.keys().copied().collect::<BTreeSet<_>>(), needed);
        // Everything that is needed is still there.
        for path in copy.files() {
            let file = copy.open(&path).unwrap();
            let mut reader = FrameReader::new(&*file, &path).unwrap();
            let mut is_needed = false;
            while let Next::Frame(frame) = reader.next().unwrap() {
                is_needed |= frame.header.epoch > checkpoint;
            }
            if is_needed {
                assert!(disk.exists(&path).unwrap(), "{path:?} at {checkpoint}");
            }
        }
    }
    assert_eq!(disk.files().len(), 2, "the open ones");
    assert_eq!(log.remove_segments_up_to(12).unwrap(), 0);
}

#[test]
fn segments_can_be_removed_by_number() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(2), Clock::starting_at(1), 1, &[]).unwrap();
    for epoch in 1..=5 {
        append_row(&log, 0, epoch, &row(epoch as u8, 700));
        log.step().unwrap();
    }
    assert_eq!(log.remove_segments_before(&[4]).unwrap(), 3, "of the first logger alone");
    let names: Vec<_> = disk.list(Path::new(DIRECTORY)).unwrap();
    assert_eq!(names, ["0-0000000004.log", "0-0000000005.log", "1-0000000001.log"]);
    assert_eq!(log.remove_segments_before(&[100, 100]).unwrap(), 1, "not those being written");
}

#[test]
fn a_second_run_starts_new_segments_and_knows_the_old_ones() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(3), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.shutdown().unwrap();
    let found = find(&disk.crash(1), 3, 0).unwrap();
    assert_eq!(found.epoch, 2, "the note is synced at the end");
    let sequences: Vec<u64> = found.sequences.iter().map(|sequence| sequence + 1).collect();

    let refused = start(&disk, small(3), Clock::starting_at(3), 3, &[]).unwrap_err();
    assert!(matches!(refused, StorageError::Damaged { .. }), "{refused}");

    let log = start(&disk, small(2), Clock::starting_at(3), 3, &sequences).unwrap();
    assert_eq!(log.durable_epoch(), 2);
    append_row(&log, 0, 3, b"b");
    log.step().unwrap();
    let new =
        FrameReader::new(&*disk.open(Path::new("/log/0-0000000002.log")).unwrap(), Path::new("x"))
            .map(|mut reader| match reader.next() {
                Ok(Next::Frame(frame)) => frame.header,
                other => panic!("{other:?}"),
            })
            .unwrap();
    assert_eq!((new.previous_epoch, new.durable_epoch, new.epoch), (2, 2, 3));
    assert_eq!(log.metrics().segments, 5);
    assert_eq!(log.remove_segments_up_to(1).unwrap(), 0);
    assert_eq!(log.remove_segments_up_to(2).unwrap(), 3);
    let names: Vec<_> = disk.list(Path::new(DIRECTORY)).unwrap();
    assert_eq!(names, ["0-0000000002.log", "1-0000000002.log"]);
}

#[test]
fn epochs_closed_together_are_written_one_by_one() {
    let disk = SimulatedDisk::new(0);
    let clock = Clock::starting_at(1);
    let log = start(&disk, small(2), clock.clone(), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    append_row(&log, 1, 3, b"c");
    append_row(&log, 0, 2, b"b");
    append_row(&log, 0, 4, b"d");
    clock.close_epoch();
    clock.close_epoch();
    assert_eq!(log.step().unwrap(), 3);
    let found = find(&disk.crash(0), 2, 0).unwrap();
    assert_eq!(found.rows.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(log.step().unwrap(), 4);
}

#[test]
fn waiting_advances_a_manual_log_and_shutdown_closes_it() {
    let disk = SimulatedDisk::new(0);
    let clock = Clock::starting_at(1);
    let log = start(&disk, small(1), clock.clone(), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    log.wait_durable(1).unwrap();
    assert_eq!(clock.now(), 2);
    log.wait_durable(1).unwrap();
    assert_eq!(clock.now(), 2, "it is durable already");
    append_row(&log, 0, 2, b"b");
    log.admit().unwrap();
    log.shutdown().unwrap();
    log.shutdown().unwrap();
    assert_eq!(find(&disk.crash(0), 1, 0).unwrap().rows.len(), 2);
    assert_eq!(log.admit(), Err(StorageError::Closed));
    log.wait_durable(2).unwrap();
    assert_eq!(log.wait_durable(1000), Err(StorageError::Closed));
    assert_eq!(log.step(), Err(StorageError::Closed));
    assert_eq!(log.metrics().state, LogState::Closed);
}

#[test]
fn dropping_a_log_writes_its_buffers() {
    let disk = SimulatedDisk::new(0);
    let log = start(&disk, small(1), Clock::starting_at(1), 1, &[]).unwrap();
    append_row(&log, 0, 1, b"a");
    drop(log);
    assert_eq!(find(&disk.crash(0), 1, 0).unwrap().rows.len(), 1);
}

#[test]
fn metrics_count_epochs_bytes_and_syncs() {
    let disk = SimulatedDisk::new(0);
    let options = LogOptions { buffer_bytes_max: 1000, ..small(2) };
    let log = start(&disk, options, Clock::starting_at(1), 1, &[]).unwrap();
    for _ in 0..3 {
        append_row(&log, 0, 1, &row(1, 100));
    }
    let LogMetrics { buffered_bytes, .. } = log.metrics();
    assert!((600..1000).contains(&buffered_bytes), "{buffered_bytes} bytes");
    log.step().unwrap();
    let metrics = log.metrics();
    assert_eq!(metrics.state, LogState::Running);
    assert_eq!(metrics.durable_epoch, 1);
    assert_eq!((metrics.epochs_written, metrics.transactions), (1, 3));
    assert_eq!((metrics.syncs, disk.syncs()), (2, 2));
    assert_eq!((metrics.bytes_written, metrics.segments), (disk.used_bytes(), 2));
    assert_eq!(metrics.buffered_bytes, 0);
    assert!(metrics.sync_time_max <= metrics.sync_time);
}

#[test]
fn full_buffers_are_written_before_another_transaction_begins() {
    let disk = SimulatedDisk::new(0);
    let clock = Clock::starting_at(1);
    let options = LogOptions { buffer_bytes_max: 1000, ..small(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    for _ in 0..100 {
        log.admit().unwrap();
        append_row(&log, 0, clock.now(), &row(clock.now() as u8, 200));
        assert!(log.metrics().buffered_bytes < 1000 + 500);
    }
    assert!(clock.now() > 20, "epoch {}", clock.now());
}

/// The memory of a chunk is reused after the chunk was written.
#[test]
fn appending_reuses_chunks() {
    let slot = LogSlot::default();
    let mut places = BTreeSet::new();
    for epoch in 1..100 {
        for _ in 0..50 {
            slot.append(epoch, 1000, |buffer| buffer.extend([1; 40]), |_| ());
        }
        let mut taken = Vec::new();
        slot.take(epoch, |chunk| taken.push(chunk));
        assert_eq!(taken.len(), 1);
        let chunk = taken.pop().unwrap();
        places.insert((chunk.bytes.as_ptr(), chunk.bytes.capacity()));
        slot.give_back(chunk);
    }
    assert_eq!(places.len(), 1);
}

/// The space of small groups is filled with zeros before, and what is left of it is cut off when the segment is left, and when
/// the log ends. Groups that are large are written without it.
#[test]
fn small_groups_are_written_into_zeros() {
    let disk = SimulatedDisk::new(1);
    let clock = Clock::starting_at(1);
    let options = LogOptions { segment_bytes: 3000, reserve_bytes: 1600, ..small(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    let length = |sequence: u64| {
        disk.contents(Path::new(DIRECTORY).join(format!("0-{sequence:010}.log"))).len()
    };
    let append = |bytes: usize| {
        append_row(&log, 0, clock.now(), &vec![1; bytes]);
        log.step().unwrap();
        log.open_segment(0).unwrap()
    };
    // A frame takes 64 bytes, and the row twice its bytes.
    let (_, first) = append(20);
    assert!(first < 200 && length(1) == 1600, "{first} bytes");
    let mut bytes = first;
    while bytes + first <= 1600 {
        (_, bytes) = append(20);
        assert_eq!(length(1), 1600);
    }
    (_, bytes) = append(20);
    assert!(bytes > 1600 && length(1) == 3200, "{bytes} bytes");
    // This one is too large for more zeros, and ends behind those that are there.
    (_, bytes) = append(900);
    assert!(bytes > 3200, "{bytes} bytes");
    assert_eq!(length(1) as u64, bytes);
    // The next segment.
    assert_eq!(append(20), (2, first));
    assert_eq!(length(2), 1600);
    while append(20).0 == 2 {}
    let ends = disk.contents(Path::new(DIRECTORY).join("0-0000000002.log"));
    assert!(ends.len() >= 3000 && ends.len() < 3200, "zeros are left: {} bytes", ends.len());
    log.shutdown().unwrap();
    let left: usize = (1..=3).map(length).sum();
    let metrics = log.metrics();
    assert_eq!(left as u64, metrics.bytes_written);
    assert_eq!(find(&disk, 1, 0).unwrap().epoch, clock.now() - 1);
}

/// A disk without room for zeros takes groups as long as they fit.
#[test]
fn a_disk_without_room_for_zeros_takes_groups() {
    let disk = SimulatedDisk::new(2);
    let clock = Clock::starting_at(1);
    let options = LogOptions { segment_bytes: 100_000, reserve_bytes: 10_000, ..small(1) };
    let log = start(&disk, options, clock.clone(), 1, &[]).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 2000));
    let (mut epochs, mut bytes) = (0, 0);
    loop {
        append_row(&log, 0, clock.now(), &[1; 40]);
        if log.step().is_err() {
            break;
        }
        (epochs, (_, bytes)) = (epochs + 1, log.open_segment(0).unwrap());
        assert_eq!(disk.used_bytes(), bytes, "zeros are left");
    }
    assert!(epochs > 5 && bytes > 1800, "{epochs} epochs, {bytes} bytes");
}
