//! The other functions of recovery: points in time, several threads, changed schemas, backups and
//! reports.

use super::*;
use crate::durability::inspect::{checked_tables, inspect, verify};
use crate::durability::write_backup;

/// Returns a database that was killed in its last run, after a checkpoint.
fn database(seed: u64, shape: Shape) -> (SimulatedDisk, Model) {
    let (disk, mut model) = (new_disk(seed), Model::default());
    let mut random = fastrand::Rng::with_seed(seed);
    for run in 0..3 {
        let mut engine = Engine::open(&disk, &mut model, shape).unwrap();
        work(&mut engine, &mut random, &mut model, 15).unwrap();
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
        if run == 1 {
            engine.checkpoint(&model).unwrap();
        }
        engine.transact(&mut random, &mut model);
        engine.step(&mut model).unwrap();
        if run == 2 {
            let killed = disk.snapshot();
            drop(engine);
            return (killed, model);
        }
        engine.close(&mut model).unwrap();
    }
    unreachable!("the last run returns")
}

#[test]
fn any_number_of_threads_recovers_the_same() {
    for seed in 0..10 {
        let shape = Shape {
            loggers: 1 + seed as usize % 3,
            threads: 1 + seed as usize % 3,
            ..Shape::default()
        };
        let (disk, model) = database(seed, shape);
        for threads in [1, 2, 4, 7] {
            let options = RecoveryOptions { threads, dry_run: true, ..RecoveryOptions::default() };
            let (recovered, state) = recover_all(&disk, &options).unwrap();
            model.check(&recovered, &state, &format!("seed {seed}, {threads} threads"));
            assert!(recovered.entries > 0 && recovered.transactions > 0, "seed {seed}");
            assert!(recovered.entries >= recovered.transactions, "seed {seed}");
        }
    }
}

/// Each epoch from the checkpoint on can be recovered, with the state at its end. No other epoch
/// can, and the directory stays as it is.
#[test]
fn a_point_in_time_is_the_state_of_its_epoch() {
    let (disk, model) = database(5, Shape::default());
    let before: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    let (last, _) = look(&disk).unwrap();
    let first = last.checkpoint_epoch.unwrap();
    assert!(last.epoch > first + 1, "there is something to choose from");
    for epoch in first..=last.epoch {
        let options = RecoveryOptions { up_to_epoch: Some(epoch), ..RecoveryOptions::default() };
        let (recovered, state) = recover_all(&disk, &options).unwrap();
        assert_eq!(recovered.epoch, epoch);
        assert_eq!(state, model.state_at(epoch), "epoch {epoch}");
    }
    for epoch in [first - 1, last.epoch + 1] {
        let options = RecoveryOptions { up_to_epoch: Some(epoch), ..RecoveryOptions::default() };
        let error = recover_all(&disk, &options).unwrap_err();
        assert_eq!(error, StorageError::EpochUnavailable { epoch, first, last: last.epoch });
    }
    let after: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    assert_eq!(before, after);
}

#[test]
fn files_of_tables_that_are_not_opened_are_not_read() {
    let (disk, model) = database(4, Shape::default());
    let manifest = Manifest::read(&disk, Path::new(DIRECTORY)).unwrap().unwrap();
    let checkpoint = manifest.checkpoint.unwrap();
    let orders = checkpoint.files.iter().filter(|file| file.table == 1 && file.rows > 0);
    for file in orders {
        disk.flip_bit(checkpoint::rows_path(Path::new(DIRECTORY), checkpoint.epoch, file), 800);
    }
    look(&disk).expect_err("a file of the checkpoint is damaged");
    let accounts = MapTable::new(describe("accounts", &[]));
    let stored = [Arc::clone(&accounts) as Arc<dyn StoredTable>];
    let options = RecoveryOptions { dry_run: true, ..RecoveryOptions::default() };
    let recovered = recover(&disk, Path::new(DIRECTORY), &stored, &options).unwrap();
    assert_eq!(accounts.texts(), model.state_at(recovered.epoch)[0]);
}

/// The segments of the loggers are read one after the other, while the database goes on.
#[test]
fn entries_appended_during_the_read_are_left_out() {
    for seed in 0..10 {
        let (disk, mut model) = (new_disk(seed), Model::default());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut engine = Engine::open(&disk, &mut model, Shape::default()).unwrap();
        work(&mut engine, &mut random, &mut model, 10).unwrap();
        let manifest = engine.manifest.lock().unwrap().clone();
        let epoch = look(&disk).unwrap().0.epoch;
        let listing = segments::list(&disk, Path::new(DIRECTORY), &manifest).unwrap();
        let mut logs = Vec::new();
        for segments in listing.loggers {
            let scan = |segment: &Segment| segments::scan(&disk, segment, |_| Ok(())).unwrap();
            let scans = segments.iter().map(scan).collect();
            logs.push(LoggerLog { segments, scans });
            for _ in 0..3 {
                engine.transact(&mut random, &mut model);
                engine.step(&mut model).unwrap();
            }
        }
        assert_eq!(segments::assess(&manifest, &logs).unwrap().epoch, epoch, "seed {seed}");
    }
}

#[test]
fn indexes_are_built_once_in_all_parts() {
    let (disk, _) = database(2, Shape::default());
    let (maps, stored) = tables(&default_tables());
    let options = RecoveryOptions { threads: 3, ..RecoveryOptions::default() };
    recover(&disk, Path::new(DIRECTORY), &stored, &options).unwrap();
    for table in maps {
        let mut built = table.indexes_built.lock().unwrap().clone();
        built.sort_unstable();
        assert_eq!(built, [(0, 3), (1, 3), (2, 3)]);
    }
}

/// The progress reaches the end of every phase that has something to do, and never exceeds it.
#[test]
fn progress_is_reported() {
    let (disk, _) = database(4, Shape::default());
    let seen = Mutex::new(Vec::new());
    let progress = |progress: RecoveryProgress| seen.lock().unwrap().push(progress);
    let options =
        RecoveryOptions { threads: 2, progress: Some(&progress), ..RecoveryOptions::default() };
    recover_all(&disk, &options).unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.iter().all(|progress| progress.done <= progress.total), "{seen:?}");
    for phase in [Phase::ReadLog, Phase::LoadCheckpoint, Phase::Replay, Phase::BuildIndexes] {
        let end = seen.iter().filter(|it| it.phase == phase).any(|it| it.done == it.total);
        assert!(end, "{phase:?}: {seen:?}");
    }
}

/// A column with a default is added. Rows in the log and in the checkpoint do not have it.
#[test]
fn rows_without_a_new_column_get_its_default() {
    let (disk, model) = database(6, Shape::default());
    let new = vec![describe("accounts", &[("rank", Some(7))]), describe("orders", &[])];
    let (maps, stored) = tables(&new);
    let recovered =
        recover(&disk, Path::new(DIRECTORY), &stored, &RecoveryOptions::default()).unwrap();
    assert_eq!(recovered.table_numbers, [2, 1], "rows of another encoding have another number");
    assert_eq!(maps[0].texts(), model.state_at(recovered.epoch)[0]);
    assert!(maps[0].rows() > 0, "there are rows to look at");
    for row in maps[0].rows.lock().unwrap().values() {
        assert_eq!(row.last(), Some(&7));
    }
    // The log still has rows of both encodings.
    let (maps, stored) = tables(&new);
    let again = recover(&disk, Path::new(DIRECTORY), &stored, &RecoveryOptions::default()).unwrap();
    assert_eq!(again.table_numbers, [2, 1]);
    assert_eq!(maps[0].texts(), model.state_at(recovered.epoch)[0]);
    // Old rows get the default that the directory knows, also if the program has it no more. A later default is for
    // later directories.
    for default in [None, Some(9)] {
        let now = [describe("accounts", &[("rank", default)]), describe("orders", &[])];
        let (maps, stored) = tables(&now);
        recover(&disk, Path::new(DIRECTORY), &stored, &RecoveryOptions::default()).unwrap();
        assert!(maps[0].rows.lock().unwrap().values().all(|row| row.last() == Some(&7)));
    }
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let (disk, _) = database(6, Shape::default());
    let before: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    let (_, stored) = tables(&[describe("accounts", &[("rank", None)]), describe("orders", &[])]);
    let error =
        recover(&disk, Path::new(DIRECTORY), &stored, &RecoveryOptions::default()).unwrap_err();
    assert!(
        matches!(&error, StorageError::SchemaMismatch { message } if message.contains("`rank`")),
        "{error}"
    );
    let after: Vec<_> = disk.files().iter().map(|path| disk.contents(path)).collect();
    assert_eq!(before, after);
    // An additional table is allowed.
    let mut more = default_tables();
    more.insert(0, describe("audit", &[]));
    let (_, stored) = tables(&more);
    let recovered =
        recover(&disk, Path::new(DIRECTORY), &stored, &RecoveryOptions::default()).unwrap();
    assert_eq!(recovered.table_numbers, [2, 0, 1]);
}

/// A backup opens as a database of its own, with the state of its epoch.
#[test]
fn a_backup_opens_as_a_database() {
    let (disk, mut model) = (new_disk(8), Model::default());
    let mut random = fastrand::Rng::with_seed(8);
    let mut engine = Engine::open(&disk, &mut model, Shape::default()).unwrap();
    work(&mut engine, &mut random, &mut model, 20).unwrap();
    let epoch = engine.clock.epoch() - 1;
    let source = Snapshot { epoch, state: model.state_at(epoch), numbers: engine.numbers.clone() };
    let manifest = engine.manifest.lock().unwrap().clone();
    let options = CheckpointOptions { threads: 2, ..CheckpointOptions::default() };

    let target = new_disk(9);
    let directory = Path::new(DIRECTORY);
    let backup = write_backup(&target, directory, &manifest, &source, &options).unwrap();
    assert_ne!(backup.database, manifest.database);
    let error = write_backup(&target, directory, &manifest, &source, &options).unwrap_err();
    assert!(matches!(error, StorageError::NotADatabase { .. }), "{error}");
    verify(&target, directory, 1).unwrap();

    let target = target.crash(0);
    let mut model =
        Model { states: BTreeMap::from([(epoch, model.state_at(epoch))]), acknowledged: epoch };
    let mut engine = Engine::open(&target, &mut model, Shape::default()).unwrap();
    work(&mut engine, &mut random, &mut model, 10).unwrap();
    engine.close(&mut model).unwrap();
    Engine::open(&target.crash(1), &mut model, Shape::default()).unwrap();
}

/// A backup that was interrupted at any operation is not a database, or it is the complete backup.
#[test]
fn an_interrupted_backup_is_refused_or_complete() {
    let state = vec![BTreeMap::from([(1, "one".to_owned())]), BTreeMap::new()];
    let source = Snapshot { epoch: 4, state: state.clone(), numbers: vec![0, 1] };
    let manifest = Manifest { tables: default_tables(), ..Manifest::empty() };
    let write = |disk: &SimulatedDisk| {
        let options = CheckpointOptions::default();
        write_backup(disk, Path::new(DIRECTORY), &manifest, &source, &options)
    };
    let whole = new_disk(0);
    write(&whole).unwrap();
    let mut refused = 0;
    for stop in 1..=whole.operations() {
        for crash in 0..4 {
            let disk = new_disk(stop);
            disk.stop_at(stop);
            write(&disk).unwrap_err();
            match look(&disk.crash(crash)) {
                Ok((recovered, found)) if !recovered.is_new => assert_eq!(found, state),
                Ok((_, found)) => assert_eq!(found, vec![BTreeMap::new(); 2]),
                Err(StorageError::NotADatabase { .. }) => refused += 1,
                Err(error) => panic!("{error}: operation {stop}, crash {crash}"),
            }
        }
    }
    assert!(refused > 0);
}

/// A report agrees with what there is, and making it changes nothing.
#[test]
fn a_report_counts_the_files_contents() {
    for seed in 0..5 {
        let (disk, model) = database(seed, Shape { loggers: 2, ..Shape::default() });
        let operations = disk.operations();
        let directory = Path::new(DIRECTORY);
        let (recovered, state) = look(&disk).unwrap();
        model.check(&recovered, &state, &format!("seed {seed}"));
        let report = inspect(&disk, directory, 2).unwrap();
        assert_eq!(report.problems, []);
        assert_eq!(report.epoch, Some(recovered.epoch), "seed {seed}");
        assert_eq!(report.segments.len(), log_files(&disk).len(), "seed {seed}");
        assert!(report.transactions >= recovered.transactions, "seed {seed}");
        let names: Vec<_> = report.tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["accounts", "orders"]);
        let rows: u64 = report.tables.iter().map(|table| table.checkpoint_rows).sum();
        assert_eq!(rows, recovered.checkpoint_rows, "seed {seed}");
        assert!(report.tables.iter().all(|table| table.puts > 0 && table.log_bytes > 0));
        assert_eq!(verify(&disk, directory, 2).unwrap(), report);
        assert_eq!(disk.operations(), operations, "looking has changed something");
        // A dry run works without the program's tables.
        let stored = checked_tables(&report.manifest);
        let options = RecoveryOptions { dry_run: true, ..RecoveryOptions::default() };
        let dry = recover(&disk, directory, &stored, &options).unwrap();
        assert_eq!((dry.epoch, dry.entries), (recovered.epoch, recovered.entries));
        assert_eq!(disk.operations(), operations, "a dry run has changed something");
    }
}

/// Verification finds everything that is wrong in one run. Inspection works on a locked directory,
/// too.
#[test]
fn verification_finds_all_damage() {
    let (disk, _) = database(1, Shape { loggers: 1, segment_bytes: 300, ..Shape::default() });
    let directory = Path::new(DIRECTORY);
    let lock = crate::durability::lock(&disk, directory).unwrap();
    assert!(inspect(&disk, directory, 1).unwrap().is_open);
    let error = crate::durability::lock(&disk, directory).unwrap_err();
    assert_eq!(error, StorageError::AlreadyOpen { directory: directory.to_owned() });
    drop(lock);
    assert!(!inspect(&disk, directory, 1).unwrap().is_open);
    let rows: Vec<_> =
        disk.files().into_iter().filter(|path| path.to_str().unwrap().ends_with(".rows")).collect();
    assert_eq!(rows.len(), 2);
    disk.flip_bit(&rows[0], 8 * 70);
    disk.flip_bit(&rows[1], 8 * 70);
    disk.flip_bit(&log_files(&disk)[0], 8 * 70);
    let problems = verify(&disk, directory, 1).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
}

/// The same holds in a directory of the operating system.
#[test]
fn recovery_works_in_a_real_directory() {
    use crate::durability::FileSystem;

    let name = format!("weft-recovery-{}-{}", std::process::id(), fastrand::u64(..));
    let directory = std::env::temp_dir().join(name);
    let state = vec![BTreeMap::from([(1, "one".to_owned())]), BTreeMap::new()];
    let source = Snapshot { epoch: 4, state: state.clone(), numbers: vec![0, 1] };
    let manifest = Manifest { tables: default_tables(), ..Manifest::empty() };
    let options = CheckpointOptions::default();
    write_backup(&FileSystem, &directory, &manifest, &source, &options).unwrap();

    let lock = crate::durability::lock(&FileSystem, &directory).unwrap();
    let second = crate::durability::lock(&FileSystem, &directory);
    assert!(matches!(second, Err(StorageError::AlreadyOpen { .. })), "{second:?}");
    for run in 1..=2 {
        let (maps, stored) = tables(&default_tables());
        let recovered =
            recover(&FileSystem, &directory, &stored, &RecoveryOptions::default()).unwrap();
        assert_eq!((recovered.epoch, recovered.manifest.run), (4, run));
        assert_eq!(maps.iter().map(|table| table.texts()).collect::<State>(), state);
    }
    drop(lock);
    verify(&FileSystem, &directory, 1).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}
