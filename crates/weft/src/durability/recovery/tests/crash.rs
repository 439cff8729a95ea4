//! Crashes at every operation that changes the disk.

use super::*;
use crate::durability::format::HEADER_BYTES;

/// Runs the database twice, with checkpoints. The first run may end without being closed.
fn scenario(
    disk: &SimulatedDisk,
    seed: u64,
    shape: Shape,
    model: &mut Model,
) -> Result<(), StorageError> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut engine = Engine::open(disk, model, shape)?;
    work(&mut engine, &mut random, model, 12)?;
    if random.bool() {
        engine.checkpoint(model)?;
    }
    if random.bool() {
        engine.close(model)?;
    } else {
        drop(engine);
    }
    // Use another number of loggers than before.
    let shape = Shape { loggers: shape.loggers % 3 + 1, ..shape };
    let mut engine = Engine::open(disk, model, shape)?;
    work(&mut engine, &mut random, model, 8)?;
    engine.close(model)
}

fn shape_of(seed: u64) -> Shape {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5ba9e);
    Shape {
        loggers: random.usize(1..=3),
        threads: 1,
        segment_bytes: [400, 1500, 100_000][random.usize(..3)],
        frame_bytes: [100, 1000, 100_000][random.usize(..3)],
        reserve_bytes: [0, 1500, 6000][random.usize(..3)],
    }
}

/// The most important test. For every operation at which the disk stops, everything acknowledged is
/// recovered and nothing is recovered in part. Recovering again, or after a crash of recovery,
/// gives the same result.
#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    for seed in 0..6 {
        let shape = shape_of(seed);
        let operations = {
            let disk = new_disk(seed);
            scenario(&disk, seed, shape, &mut Model::default()).unwrap();
            disk.operations()
        };
        for stop in 1..=operations {
            let disk = new_disk(seed);
            disk.stop_at(stop);
            let mut model = Model::default();
            let result = scenario(&disk, seed, shape, &mut model);
            assert!(result.is_err(), "seed {seed}, operation {stop}: no crash");
            for crash in 0..2 {
                let circumstances =
                    format!("seed {seed}, {shape:?}, operation {stop}, crash {crash}");
                check_crashed(&disk.crash(crash), &model, &circumstances);
            }
        }
    }
}

/// Recovers a crashed disk, with crashes at every operation of recovery itself.
fn check_crashed(crashed: &SimulatedDisk, model: &Model, circumstances: &str) {
    let whole = crashed.snapshot();
    let (first, state) = recover_all(&whole, &RecoveryOptions::default())
        .unwrap_or_else(|error| panic!("{error}: {circumstances}"));
    model.check(&first, &state, circumstances);
    let operations = whole.operations();

    let (again, same) = recover_all(&whole.crash(1), &RecoveryOptions::default())
        .unwrap_or_else(|error| panic!("the second time: {error}: {circumstances}"));
    assert_eq!(same, state, "the second time: {circumstances}");
    assert_eq!(again.cuts, [], "all was cut off the first time: {circumstances}");
    assert!(again.epoch >= first.epoch, "{circumstances}");

    for stop in 1..=operations {
        let interrupted = crashed.snapshot();
        interrupted.stop_at(stop);
        let result = recover_all(&interrupted, &RecoveryOptions::default());
        assert!(result.is_err(), "recovery operation {stop} of {operations}: {circumstances}");
        let (after, same) = recover_all(&interrupted.crash(stop), &RecoveryOptions::default())
            .unwrap_or_else(|error| {
                panic!("{error}: recovery operation {stop} of {operations}: {circumstances}")
            });
        assert_eq!(same, state, "recovery operation {stop} of {operations}: {circumstances}");
        assert!(after.epoch >= first.epoch, "{circumstances}");
    }
}

/// A database that crashes again and again, at random, and goes on each time.
#[test]
fn a_database_survives_many_crashes() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = new_disk(seed);
        let mut model = Model::default();
        for run in 0..12 {
            let shape = Shape { threads: 1, ..shape_of(seed * 100 + run) };
            disk.stop_at(disk.operations() + random.u64(1..150));
            let circumstances = format!("seed {seed}, run {run}, {shape:?}");
            match Engine::open(&disk, &mut model, shape) {
                Ok(mut engine) => {
                    let worked = work(&mut engine, &mut random, &mut model, 25);
                    if worked.is_ok() && random.bool() {
                        let _ = engine.close(&mut model);
                    }
                }
                Err(StorageError::Io { .. } | StorageError::SyncFailed { .. }) => {}
                Err(error) => panic!("{error}: {circumstances}"),
            }
            // What was not synced may be lost, or may all be there. Or the operating system goes
            // on, and what an interrupted sync has not written to the disk never reaches it.
            match random.u8(..4) {
                0 => disk = disk.snapshot(),
                1 => disk.stop_at(u64::MAX),
                _ => disk = disk.crash(seed + run),
            }
        }
        let (recovered, state) =
            look(&disk).unwrap_or_else(|error| panic!("{error}: seed {seed}, at the end"));
        model.check(&recovered, &state, &format!("seed {seed}, at the end"));
    }
}

/// After a failed sync nothing more is acknowledged, and what was acknowledged is recovered.
#[test]
fn a_failed_sync_loses_nothing_that_was_acknowledged() {
    for seed in 0..10 {
        let shape = shape_of(seed);
        let syncs = {
            let disk = new_disk(seed);
            scenario(&disk, seed, shape, &mut Model::default()).unwrap();
            disk.syncs()
        };
        let mut failed = 0;
        for sync in 1..=syncs {
            let disk = new_disk(seed);
            disk.fail_sync(sync);
            let mut model = Model::default();
            let result = scenario(&disk, seed, shape, &mut model);
            let circumstances = format!("seed {seed}, {shape:?}, sync {sync}: {result:?}");
            failed += u32::from(result.is_err());
            let (recovered, state) =
                look(&disk.crash(seed)).unwrap_or_else(|error| panic!("{error}: {circumstances}"));
            model.check(&recovered, &state, &circumstances);

            // Another process goes on, and sees what is not on the disk.
            let mut random = fastrand::Rng::with_seed(seed);
            let mut engine = Engine::open(&disk, &mut model, shape)
                .unwrap_or_else(|error| panic!("{error}: {circumstances}"));
            work(&mut engine, &mut random, &mut model, 3).unwrap();
            let (recovered, state) = look(&disk.crash(seed))
                .unwrap_or_else(|error| panic!("in the next run: {error}: {circumstances}"));
            model.check(&recovered, &state, &format!("in the next run: {circumstances}"));
        }
        assert!(failed > 0, "seed {seed}: no sync of {syncs} was missed");
    }
}

/// A full disk makes a checkpoint fail, and does nothing else to the database.
#[test]
fn a_full_disk_keeps_the_old_checkpoint() {
    for seed in 0..20 {
        let (disk, mut model) = (new_disk(seed), Model::default());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut engine = Engine::open(&disk, &mut model, Shape::default()).unwrap();
        work(&mut engine, &mut random, &mut model, 10).unwrap();
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
        let before = engine.manifest.lock().unwrap().clone();
        disk.set_capacity(Some(disk.used_bytes() + random.u64(1..200)));
        let error = engine.checkpoint(&model).unwrap_err();
        assert!(matches!(error, StorageError::DiskFull { .. }), "seed {seed}: {error}");
        assert_eq!(*engine.manifest.lock().unwrap(), before, "seed {seed}");
        let (recovered, state) = look(&disk.crash(seed)).unwrap();
        model.check(&recovered, &state, &format!("seed {seed}"));
        disk.set_capacity(None);
        engine.checkpoint(&model).unwrap();
        let (recovered, state) = look(&disk.crash(seed)).unwrap();
        model.check(&recovered, &state, &format!("seed {seed}"));
    }
}

/// Fault: if the disk had room for the note of one logger and not for that of another, what was committed after the note was
/// lost in a crash, or the log could not be opened.
#[test]
fn a_note_that_only_some_logs_have_loses_nothing() {
    let mut in_one_log = 0;
    for seed in 0..40 {
        let (disk, mut model) = (new_disk(seed), Model::default());
        let mut random = fastrand::Rng::with_seed(seed);
        let shape = Shape { segment_bytes: 100_000, ..Shape::default() };
        let mut engine = Engine::open(&disk, &mut model, shape).unwrap();
        for turn in 0..6 {
            engine.transact(&mut random, &mut model);
            engine.step(&mut model).unwrap();
            // Room for the notes of no logger, of one, or of both.
            let used = disk.used_bytes();
            disk.set_capacity(Some(used + random.u64(..3 * HEADER_BYTES as u64)));
            engine.step(&mut model).unwrap();
            in_one_log += u32::from(disk.used_bytes() == used + HEADER_BYTES as u64);
            disk.set_capacity(None);
            let circumstances = format!("seed {seed}, turn {turn}");
            let (recovered, state) =
                look(&disk.crash(seed)).unwrap_or_else(|error| panic!("{error}: {circumstances}"));
            model.check(&recovered, &state, &circumstances);
        }
        let disk = disk.crash(seed);
        let mut engine = Engine::open(&disk, &mut model, Shape::default()).unwrap();
        work(&mut engine, &mut random, &mut model, 5).unwrap();
        engine.close(&mut model).unwrap();
        let (recovered, state) = look(&disk).unwrap();
        model.check(&recovered, &state, &format!("seed {seed}, in the next run"));
    }
    assert!(in_one_log > 0, "no note was left out of one log only");
}
