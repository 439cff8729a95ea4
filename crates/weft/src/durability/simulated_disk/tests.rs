//! Tests that the disk is exactly as bad as it claims to be.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

fn create(disk: &SimulatedDisk, name: &str) -> Box<dyn File> {
    disk.create_new(&path(name)).unwrap()
}

/// Creates a file whose name is synced.
fn create_synced(disk: &SimulatedDisk, name: &str) -> Box<dyn File> {
    let file = create(disk, name);
    disk.sync_directory(Path::new("/")).unwrap();
    file
}

fn outcomes<T: Ord>(outcome: impl Fn(u64) -> T) -> BTreeSet<T> {
    (0..400).map(outcome).collect()
}

#[test]
fn synced_bytes_survive_every_crash() {
    let disk = SimulatedDisk::new(1);
    let file = create_synced(&disk, "a");
    file.write_at(&[1; 2000], 0).unwrap();
    file.sync().unwrap();
    let survivors = outcomes(|seed| disk.crash(seed).contents(path("a")));
    assert_eq!(survivors, BTreeSet::from([vec![1; 2000]]));
}

#[test]
fn unsynced_bytes_survive_in_any_set_of_sectors() {
    let disk = SimulatedDisk::new(1);
    let file = create_synced(&disk, "a");
    file.write_at(&[1; 3 * SECTOR_BYTES], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 3 * SECTOR_BYTES], 0).unwrap();
    let survivors = outcomes(|seed| {
        let contents = disk.crash(seed).contents(path("a"));
        assert_eq!(contents.len(), 3 * SECTOR_BYTES);
        let sectors = contents.chunks(SECTOR_BYTES);
        sectors
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
                sector[0]
            })
            .collect::<Vec<u8>>()
    });
    assert_eq!(survivors.len(), 8, "all, none, and any of three: {survivors:?}");
}

#[test]
fn a_file_may_grow_without_its_bytes() {
    let disk = SimulatedDisk::new(1);
    let file = create_synced(&disk, "a");
    file.write_at(&[1; 100], 0).unwrap();
    let survivors = outcomes(|seed| disk.crash(seed).contents(path("a")));
    assert_eq!(survivors, BTreeSet::from([vec![], vec![0; 100], vec![1; 100]]));
}

#[test]
fn names_survive_if_their_directory_was_synced() {
    let disk = SimulatedDisk::new(1);
    create_synced(&disk, "old").sync().unwrap();
    create(&disk, "new").sync().unwrap();
    disk.remove(&path("old")).unwrap();
    let names = |disk: &SimulatedDisk| disk.list(Path::new("/")).unwrap();
    let survivors = outcomes(|seed| names(&disk.crash(seed)));
    assert_eq!(survivors.len(), 4, "each of two changes, or not: {survivors:?}");
    disk.sync_directory(Path::new("/")).unwrap();
    assert_eq!(outcomes(|seed| names(&disk.crash(seed))), BTreeSet::from([vec!["new".into()]]));
}

#[test]
fn a_rename_happens_or_does_not() {
    let disk = SimulatedDisk::new(1);
    for (name, byte) in [("current", 1), ("next", 2)] {
        let file = create_synced(&disk, name);
        file.write_at(&[byte], 0).unwrap();
        file.sync().unwrap();
    }
    disk.rename(&path("next"), &path("current")).unwrap();
    let survivors = outcomes(|seed| {
        let disk = disk.crash(seed);
        (disk.contents(path("current")), disk.exists(&path("next")).unwrap())
    });
    assert_eq!(survivors, BTreeSet::from([(vec![1], true), (vec![2], false)]));
}

#[test]
fn a_lost_directory_loses_its_files() {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(&path("d")).unwrap();
    create(&disk, "d/a");
    disk.sync_directory(&path("d")).unwrap();
    let survivors = outcomes(|seed| {
        let disk = disk.crash(seed);
        (disk.exists(&path("d")).unwrap(), disk.exists(&path("d/a")).unwrap())
    });
    assert_eq!(survivors, BTreeSet::from([(false, false), (true, true)]));
}

#[test]
fn power_goes_off_at_the_named_change_and_stays_off() {
    let written = outcomes(|seed| {
        let disk = SimulatedDisk::new(seed);
        let file = create_synced(&disk, "a");
        file.write_at(&[1; 10], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.operations(), 4);
        disk.stop_at(5);
        assert!(file.write_at(&[2; 10], 0).is_err(), "the fifth change");
        assert!(file.write_at(&[3; 10], 0).is_err());
        assert!(file.sync().is_err());
        assert!(file.read_at(&mut [0], 0).is_err());
        assert!(disk.open(&path("a")).is_err());
        disk.contents(path("a"))
    });
    assert!(written.contains(&vec![1; 10]) && written.contains(&vec![2; 10]), "all or nothing");
    assert!(written.len() > 2, "or a part: {written:?}");
}

#[test]
fn a_failed_sync_drops_its_changes_silently() {
    let survivors = outcomes(|seed| {
        let disk = SimulatedDisk::new(seed);
        let file = create_synced(&disk, "a");
        disk.fail_sync(2);
        file.write_at(&[1; SECTOR_BYTES], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[2; SECTOR_BYTES], 0).unwrap();
        assert!(file.sync().is_err());
        let mut seen = [0];
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!(seen, [2], "the process goes on seeing it");
        file.write_at(&[3], SECTOR_BYTES as u64).unwrap();
        file.sync().unwrap();
        let contents = disk.crash(seed).contents(path("a"));
        assert_eq!(contents[SECTOR_BYTES], 3);
        contents[0]
    });
    assert_eq!(survivors, BTreeSet::from([1, 2]));
}

#[test]
fn a_full_disk_takes_a_part_of_a_write() {
    let lengths = outcomes(|seed| {
        let disk = SimulatedDisk::new(seed);
        let file = create(&disk, "a");
        disk.set_capacity(Some(100));
        file.write_at(&[1; 60], 0).unwrap();
        let error = file.write_at(&[2; 60], 60).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let length = file.length().unwrap();
        file.truncate(60).unwrap();
        file.write_at(&[3; 40], 60).unwrap();
        file.write_at(&[4; 100], 0).expect("no byte more than before");
        disk.set_capacity(None);
        file.write_at(&[5; 60], 100).unwrap();
        length
    });
    assert!(lengths.contains(&100) && lengths.len() > 3 && lengths.iter().all(|l| *l <= 100));
}

#[test]
fn the_same_seeds_have_the_same_outcome() {
    let run = |seed| {
        let disk = SimulatedDisk::new(seed);
        let file = create(&disk, "a");
        file.write_at(&[1; 5000], 0).unwrap();
        disk.stop_at(3);
        let _ = file.sync();
        (disk.contents(path("a")), disk.crash(seed + 1).files())
    };
    (0..20).for_each(|seed| assert_eq!(run(seed), run(seed)));
    assert!(outcomes(run).len() > 1);
}

#[test]
fn a_lock_is_exclusive_and_ends_with_the_guard_or_a_crash() {
    let disk = SimulatedDisk::new(1);
    let guard = disk.try_lock(&path("LOCK")).unwrap();
    assert!(matches!(disk.try_lock(&path("LOCK")), Err(LockError::AlreadyLocked)));
    let found = disk.snapshot();
    drop(guard);
    drop(disk.try_lock(&path("LOCK")).unwrap());
    drop(found.try_lock(&path("LOCK")).unwrap());
}
