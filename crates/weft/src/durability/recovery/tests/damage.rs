//! Damage of every kind: its message, and the fact that no file is changed.

use super::*;

/// Returns a closed database with a checkpoint, sealed segments, and a run that was killed.
fn database(seed: u64, shape: Shape) -> (SimulatedDisk, Model) {
    let (disk, mut model) = (new_disk(seed), Model::default());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut engine = Engine::open(&disk, &mut model, shape).unwrap();
    for _ in 0..6 {
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
    }
    engine.checkpoint(&model).unwrap();
    for _ in 0..6 {
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
    }
    engine.close(&mut model).unwrap();
    let mut engine = Engine::open(&disk, &mut model, shape).unwrap();
    for _ in 0..6 {
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
    }
    let killed = disk.snapshot();
    drop(engine);
    (killed, model)
}

/// Returns a shape with one to three loggers, and one segment or several in each run.
fn shape_of(seed: u64) -> Shape {
    let segment_bytes = if seed.is_multiple_of(2) { 1500 } else { 300 };
    Shape { loggers: 1 + seed as usize % 3, segment_bytes, ..Shape::default() }
}

fn bytes_of(disk: &SimulatedDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|path| (path.clone(), disk.contents(&path))).collect()
}

/// Recovers a damaged disk. Recovery must refuse it and leave it as it is.
#[track_caller]
fn refused(disk: &SimulatedDisk) -> StorageError {
    let before = bytes_of(disk);
    let error = recover_all(disk, &RecoveryOptions::default()).expect_err("the damage is found");
    assert_eq!(bytes_of(disk), before, "files were touched: {error}");
    error
}

/// Recovers a damaged disk, and returns whether it was refused. Otherwise the damage made no
/// difference, or was at the very end of a log, and was reported as a torn tail.
fn refused_or_cut(disk: &SimulatedDisk, model: &Model, circumstances: &str) -> bool {
    let before = bytes_of(disk);
    match recover_all(disk, &RecoveryOptions { dry_run: true, ..RecoveryOptions::default() }) {
        Err(StorageError::Damaged { .. } | StorageError::UnknownVersion { .. }) => {
            assert_eq!(bytes_of(disk), before, "{circumstances}");
            true
        }
        Err(error) => panic!("{error}: {circumstances}"),
        Ok((recovered, state)) => {
            assert_eq!(state, model.state_at(recovered.epoch), "{circumstances}");
            assert!(
                recovered.epoch >= model.acknowledged || !recovered.cuts.is_empty(),
                "epoch {} instead of {}, and nothing was said: {circumstances}",
                recovered.epoch,
                model.acknowledged
            );
            false
        }
    }
}

/// Returns up to where a segment is known to have been synced, according to its own frames.
fn synced(disk: &SimulatedDisk, path: &Path) -> u64 {
    let file = disk.open_read_only(path).unwrap();
    let mut reader = format::FrameReader::new(&*file, path).unwrap();
    let mut synced = 0;
    while let format::Next::Frame(frame) = reader.next().unwrap() {
        synced = frame.header.synced;
    }
    synced
}

/// Every flipped bit that matters is found. In the last group of the log it is reported as a torn
/// tail, because nothing proves that this group was complete.
#[test]
fn a_flipped_bit_is_never_believed() {
    for seed in 0..6 {
        let (disk, model) = database(seed, shape_of(seed));
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut refusals, mut others) = (0, 0);
        for path in disk.files() {
            let length = disk.contents(&path).len() as u64;
            for _ in 0..40.min(length) {
                let bit = random.u64(..length * 8);
                let damaged = disk.snapshot();
                damaged.flip_bit(&path, bit);
                let circumstances = format!("seed {seed}, bit {bit} of {}", path.display());
                let is_refused = refused_or_cut(&damaged, &model, &circumstances);
                let may_be_torn = path.starts_with("/db/log")
                    && is_last_segment(&disk, &path)
                    && bit / 8 >= synced(&disk, &path);
                assert!(is_refused || may_be_torn, "{circumstances}");
                if is_refused { refusals += 1 } else { others += 1 }
            }
        }
        assert!(refusals > others, "seed {seed}: {refusals} refused, {others} not");
    }
}

/// Returns whether a segment is the last one of its logger.
fn is_last_segment(disk: &SimulatedDisk, path: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let (logger, sequence) = format::parse_segment_name(&name(path)).unwrap();
    let all = log_files(disk);
    let of_logger = all.iter().filter_map(|path| format::parse_segment_name(&name(path)));
    of_logger.filter(|(other, _)| *other == logger).all(|(_, other)| other <= sequence)
}

/// A log is cut at any byte. Either the cut is found, or what it removed is reported or was never
/// acknowledged.
#[test]
fn a_log_cut_at_any_byte_is_refused_or_ends_with_an_epoch() {
    for seed in 0..6 {
        let (disk, model) = database(seed, shape_of(seed));
        for path in log_files(&disk) {
            let length = disk.contents(&path).len() as u64;
            for cut in 0..length {
                let damaged = disk.snapshot();
                damaged.cut(&path, cut);
                let circumstances = format!("seed {seed}, {} cut at {cut}", path.display());
                let before = bytes_of(&damaged);
                match look(&damaged) {
                    Err(StorageError::Damaged { .. }) => {
                        assert_eq!(bytes_of(&damaged), before, "{circumstances}");
                    }
                    Err(error) => panic!("{error}: {circumstances}"),
                    Ok((recovered, state)) => {
                        assert!(is_last_segment(&disk, &path), "{circumstances}");
                        assert_eq!(state, model.state_at(recovered.epoch), "{circumstances}");
                        // The other loggers know what was durable.
                        let last_known = model.states.keys().rev().nth(1).copied().unwrap();
                        assert!(
                            shape_of(seed).loggers == 1 || recovered.epoch >= last_known,
                            "{circumstances}"
                        );
                    }
                }
            }
        }
    }
}

/// Any kind and amount of damage is done to the files. Either the recovered state is that of the
/// epoch that recovery names, or nothing is recovered.
#[test]
fn random_damage_is_never_believed() {
    let (mut refused, mut recovered_some) = (0, 0);
    for seed in 0..1500 {
        let (disk, model) = database(seed % 12, shape_of(seed % 12));
        let mut random = fastrand::Rng::with_seed(seed);
        let files: Vec<PathBuf> =
            disk.files().into_iter().filter(|path| !path.ends_with("LOCK")).collect();
        for _ in 0..random.usize(1..4) {
            let path = &files[random.usize(..files.len())];
            let other = disk.contents(&files[random.usize(..files.len())]);
            disk.damage(path, |bytes| {
                let start = random.usize(..=bytes.len());
                let end = random.usize(start..=bytes.len());
                match random.u8(..6) {
                    0 => bytes[start..end].fill(0),
                    1 => bytes[start..end].iter_mut().for_each(|byte| *byte = random.u8(..)),
                    2 => bytes.extend((0..random.usize(1..200)).map(|_| random.u8(..))),
                    3 => bytes.truncate(start),
                    4 => *bytes = other,
                    _ => drop(bytes.drain(start..end)),
                }
            });
        }
        let before = bytes_of(&disk);
        match recover_all(&disk, &RecoveryOptions::default()) {
            Ok((recovered, state)) => {
                assert_eq!(state, model.state_at(recovered.epoch), "seed {seed}");
                recovered_some += 1;
            }
            Err(StorageError::Damaged { .. } | StorageError::UnknownVersion { .. }) => {
                assert_eq!(bytes_of(&disk), before, "seed {seed}");
                refused += 1;
            }
            Err(error) => panic!("{error}: seed {seed}"),
        }
    }
    assert!(refused > recovered_some && recovered_some > 20, "{refused}, {recovered_some}");
}

/// A file is missing, or has changed places with another.
#[test]
fn a_missing_or_swapped_file_is_found() {
    let shape = Shape { loggers: 2, segment_bytes: 400, ..Shape::default() };
    let (disk, _) = database(7, shape);
    let files: Vec<PathBuf> =
        disk.files().into_iter().filter(|path| !path.ends_with("LOCK")).collect();
    let mut missing = 0;
    for path in &files {
        let damaged = disk.snapshot();
        damaged.remove(path).unwrap();
        // A logger's last segment may hold nothing that is known to another logger.
        if path.starts_with("/db/log") && is_last_segment(&disk, path) {
            continue;
        }
        let error = refused(&damaged);
        let words = error.to_string();
        assert!(words.contains("missing") || words.contains("no MANIFEST"), "{words}");
        missing += 1;
    }
    assert!(missing > 6, "{files:?}");
    for (position, first) in files.iter().enumerate() {
        for second in &files[position + 1..] {
            if disk.contents(first) == disk.contents(second) {
                continue;
            }
            let damaged = disk.snapshot();
            let contents = damaged.contents(first);
            let other = damaged.contents(second);
            damaged.damage(first, |bytes| *bytes = other);
            damaged.damage(second, |bytes| *bytes = contents);
            let error = refused(&damaged);
            assert!(
                matches!(error, StorageError::Damaged { .. }),
                "{} and {}: {error}",
                first.display(),
                second.display()
            );
        }
    }
}

/// The message for each kind of damage.
#[test]
fn each_kind_of_damage_has_its_message() {
    let shape =
        Shape { loggers: 2, segment_bytes: 100_000, frame_bytes: 100_000, ..Shape::default() };
    let (disk, _) = database(3, shape);
    let message = |damage: &dyn Fn(&SimulatedDisk)| {
        let damaged = disk.snapshot();
        damage(&damaged);
        refused(&damaged).to_string()
    };
    let log = |name: &str| PathBuf::from("/db/log").join(name);
    let checkpoint = disk
        .files()
        .into_iter()
        .find(|path| path.starts_with("/db/checkpoint-00000000000000000006"))
        .unwrap();
    let messages = [
        message(&|disk| disk.flip_bit(log("0-0000000001.log"), 8 * 70)),
        message(&|disk| disk.flip_bit(log("0-0000000002.log"), 8 * 70)),
        message(&|disk| disk.flip_bit(log("1-0000000002.log"), 8 * 70)),
        message(&|disk| disk.cut(log("0-0000000001.log"), 100)),
        message(&|disk| disk.cut(log("1-0000000002.log"), 0)),
        message(&|disk| disk.remove(&log("0-0000000001.log")).unwrap()),
        message(&|disk| disk.remove(&log("1-0000000002.log")).unwrap()),
        message(&|disk| disk.rename(&log("0-0000000002.log"), &log("0-0000000003.log")).unwrap()),
        message(&|disk| disk.rename(&log("0-0000000002.log"), &log("5-0000000002.log")).unwrap()),
        message(&|disk| disk.flip_bit(&checkpoint, 8 * 80)),
        message(&|disk| disk.cut(&checkpoint, 80)),
        message(&|disk| disk.remove(&checkpoint).unwrap()),
        message(&|disk| disk.flip_bit("/db/MANIFEST", 0)),
        message(&|disk| disk.cut("/db/MANIFEST", 0)),
        message(&|disk| disk.remove(Path::new("/db/MANIFEST")).unwrap()),
    ];
    let expected = include_str!("damage.txt");
    assert_eq!(messages.join("\n"), expected.trim_end(), "the messages have changed");
}

/// A change is accepted only if the row that it changes exists.
#[test]
fn a_change_without_its_row_is_damage() {
    let (disk, mut model) = (new_disk(0), Model::default());
    let shape = Shape { loggers: 1, ..Shape::default() };
    let engine = Engine::open(&disk, &mut model, shape).unwrap();
    engine.log.append(0, engine.clock.epoch(), |buffer| {
        format::push_transaction(buffer);
        format::push_write(buffer, WriteKind::Change, engine.numbers[0], 1, |buffer| {
            7_u64.write(buffer);
            buffer.push(1 << 1);
            write_text("gone", buffer);
        });
    });
    engine.log.step().unwrap();
    let killed = disk.snapshot();
    drop(engine);
    assert_eq!(
        refused(&killed).to_string(),
        "/db/log/0-0000000001.log is damaged at byte 0: a change of a row of table `accounts` that \
         is not there"
    );
}

/// A directory that is not a database's is left alone.
#[test]
fn a_foreign_directory_is_refused() {
    let disk = new_disk(0);
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk.create_new(Path::new("/db/thesis.tex")).unwrap();
    let error = refused(&disk);
    assert_eq!(
        error.to_string(),
        "/db is not a database: it holds `thesis.tex`, and no MANIFEST; a new database needs an \
         empty directory"
    );
}

/// A frame of a newer format, and a newer manifest, are distinguished from damage.
#[test]
fn a_newer_version_is_not_called_damage() {
    let (disk, _) = database(1, Shape::default());
    let path = "/db/MANIFEST";
    let payload = {
        let payload = &disk.contents(path)[format::HEADER_BYTES..];
        let mut payload = payload.to_vec();
        payload[0] = 9;
        payload
    };
    disk.damage(path, |bytes| {
        let header = format::FrameHeader {
            closes_epoch: true,
            ..format::FrameHeader::new(format::FrameKind::Manifest, 0)
        };
        bytes.clear();
        format::write_frame(bytes, &header, &payload);
    });
    let error = refused(&disk);
    assert_eq!(error, StorageError::UnknownVersion { path: path.into(), version: 9 });
}
