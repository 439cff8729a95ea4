//! Backups in an object store: new nodes begin with them, the log is truncated below them, and they are restored.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use object_store::local::LocalFileSystem;
use weft::durability::{Backend, File, FileSystem, LockError, LockGuard, SimulatedDisk};
use weft::protocol::Dbx;
use weft::{Database, Error, Record};
use weft_changes::{ChangeFeed, ChangesError, Position};
use weft_replication::backup::{Backup, BackupError, Backups};
use weft_replication::{
    Node, NodeBuilder, Primary, ReplicatedLog, ReplicationError, ReplicationToken, Report,
    SimulatedLog,
};

use common::{LONG, by_call};

#[expect(dead_code, reason = "these tests wait for tokens, not for conditions")]
mod common;

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_owner, columns(owner)))]
struct Account {
    #[record(key)]
    id: u32,
    owner: String,
    cents: i64,
}

fn builder() -> NodeBuilder<Dbx> {
    NodeBuilder::new(Database::builder).table::<Account>().options(by_call())
}

/// A directory for a test, which is removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("it is created");
        Directory(path)
    }

    fn backups(&self) -> Arc<Backups> {
        let store = LocalFileSystem::new_with_prefix(&self.0).expect("it is there");
        Arc::new(Backups::open(Arc::new(store), "accounts").expect("it opens"))
    }

    /// Returns the files of all backups, in order.
    fn files(&self) -> Vec<PathBuf> {
        let read = |path: &Path| {
            let entries = std::fs::read_dir(path).expect("it is there");
            let mut paths: Vec<_> = entries.map(|it| it.expect("it is there").path()).collect();
            paths.sort();
            paths
        };
        read(&self.0.join("accounts")).iter().flat_map(|path| read(path)).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn add(primary: &Primary<Dbx>, id: u32, cents: i64) -> ReplicationToken {
    let accounts = primary.database().table::<Account>().expect("it is there");
    let added = primary.transact(|tx| {
        let before = tx.get(&accounts, &id)?.map_or(0, |account| account.cents);
        let owner = format!("owner {}", id % 3);
        tx.upsert(&accounts, Account { id, owner, cents: before + cents })?;
        Ok::<_, ReplicationError>(())
    });
    added.expect("it commits").1
}

fn rows(node: &Node<Dbx>) -> Vec<(u32, i64)> {
    let view = node.snapshot().expect("the node is there");
    let accounts = view.table::<Account>().expect("the table is there");
    let rows = view.snapshot().rows(&accounts).map(|row| {
        let row = row.expect("it can be read");
        (row.id, row.cents)
    });
    rows.collect()
}

fn restored_rows(directory: &Path) -> Vec<(u32, i64)> {
    let database = Database::builder().table::<Account>().directory(directory).open();
    let database = database.expect("it opens like any other");
    let accounts = database.table::<Account>().expect("it is there");
    let rows: Result<_, Error> = database.snapshot(|snapshot| {
        let rows = snapshot.rows(&accounts).map(|row| row.map(|row| (row.id, row.cents)));
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    });
    rows.expect("they can be read")
}

#[test]
fn new_node_begins_with_a_backup_and_the_tail_of_the_log() {
    let directory = Directory::new("backup-begin");
    let backups = directory.backups();
    let log = SimulatedLog::new(1);
    let one = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    assert_eq!(one.truncate_log(&backups).expect("it can be asked"), None);
    let mut offsets = Vec::new();
    for round in 0..3 {
        (0..20).for_each(|id| _ = add(&primary, id, round));
        // Commits go on while it is written.
        std::thread::scope(|scope| {
            scope.spawn(|| (20..120).for_each(|id| _ = add(&primary, id, 1)));
            let backup = one.back_up(&backups).expect("it is written");
            offsets.push(backup.position().next);
        });
    }
    let listing = backups.list().expect("it is there");
    assert_eq!((listing.backups.len(), listing.unusable.len()), (3, 0));
    listing.backups.iter().for_each(|it| backups.verify(it).expect("it is as it was written"));
    let token = add(&primary, 7, 100);
    // Below the second-newest one, and not below the newest one.
    let before = one.truncate_log(&backups).expect("it is truncated").expect("there are three");
    assert_eq!((before, log.connect().range().expect("it is there").0), (offsets[1], offsets[1]));

    // Without the backups, a node finds that records are gone.
    let lost = builder().start(log.connect()).expect("it starts");
    assert!(lost.promote(LONG).is_err());
    assert!(lost.fault().expect("it has met one").to_string().contains("begin with a backup"));
    // With them, in memory and with a directory.
    let in_memory =
        builder().backups(Arc::clone(&backups)).start(log.connect()).expect("it starts");
    let disk = SimulatedDisk::new(1);
    let start = |disk: &SimulatedDisk| {
        let builder = builder().backups(Arc::clone(&backups));
        builder.directory_on(Arc::new(disk.clone()), "/node").start(log.connect())
    };
    let stored = start(&disk).expect("it starts");
    for node in [&in_memory, &stored] {
        node.wait_for(token, LONG).expect("it follows");
        assert_eq!((rows(node), node.reports()), (rows(&one), Vec::new()));
    }
    // The one with a directory needs no backup when it starts again.
    let expected = rows(&one);
    let crashed = disk.crash(1);
    drop(stored);
    directory.files().iter().for_each(|file| std::fs::remove_file(file).expect("it is removed"));
    let again = start(&crashed).expect("it starts");
    again.wait_for(token, LONG).expect("it follows");
    assert_eq!(rows(&again), expected);
}

#[test]
fn damaged_and_unfinished_backups_are_passed_over() {
    let directory = Directory::new("backup-damage");
    let backups = directory.backups();
    let log = SimulatedLog::new(2);
    let one = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    for id in 0..2 {
        add(&primary, id, 1);
        one.back_up(&backups).expect("it is written");
    }
    let token = add(&primary, 2, 1);
    one.truncate_log(&backups).expect("it is truncated").expect("there are two");
    let whole = |files: &[PathBuf]| -> Vec<Vec<u8>> {
        files.iter().map(|file| std::fs::read(file).expect("it is there")).collect()
    };
    let files = directory.files();
    let contents = whole(&files);
    // Each file of the newest backup is damaged, cut and removed in turn.
    let newest: Vec<usize> = (files.len() / 2..files.len()).collect();
    for &file in &newest {
        let damaged = [
            Some(contents[file].iter().map(|byte| byte ^ 1).collect()),
            Some(contents[file][..contents[file].len() - 1].to_vec()),
            None,
        ];
        for (kind, damaged) in damaged.into_iter().enumerate() {
            match damaged {
                Some(bytes) => std::fs::write(&files[file], bytes).expect("it is written"),
                None => std::fs::remove_file(&files[file]).expect("it is removed"),
            }
            let node = builder().backups(Arc::clone(&backups)).start(log.connect());
            let node = node.expect("it begins with the older backup");
            node.wait_for(token, LONG).expect("it follows");
            assert_eq!(rows(&node), rows(&one), "{file}, {kind}");
            let reports = node.reports();
            assert!(matches!(&reports[..], [Report::BackupSkipped(_)]), "{reports:?}");
            std::fs::write(&files[file], &contents[file]).expect("it is written");
        }
    }
    // Without any that is whole, the node says so.
    files.iter().for_each(|file| std::fs::write(file, b"x").expect("it is written"));
    let refused = builder().backups(Arc::clone(&backups)).start(log.connect());
    let Err(ReplicationError::Backup(what)) = refused else { panic!("it starts") };
    assert!(what.contains("no backup reaches"), "{what}");
}

#[test]
fn backup_is_restored_into_a_directory() {
    let directory = Directory::new("backup-restore");
    let backups = directory.backups();
    let log = SimulatedLog::new(3);
    let one = builder().start(log.connect()).expect("it starts");
    let standby = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    let token = (0..50).map(|id| add(&primary, id, 5)).fold(ReplicationToken::default(), Ord::max);
    standby.wait_for(token, LONG).expect("it follows");
    let backup = standby.back_up(&backups).expect("it is written");
    let expected = rows(&standby);
    add(&primary, 1, 1000);
    let target = directory.0.join("restored");
    backups.restore(&backup, &target).expect("it is restored");
    assert_eq!(restored_rows(&target), expected);
    // The backup has no changes that led to the rows.
    let restored = Database::builder().table::<Account>().directory(&target).open();
    let restored = restored.expect("it opens like any other");
    let begun = restored.changes(Position::START);
    assert!(matches!(begun, Err(ChangesError::FellBehind { is_unlogged: true, .. })));
    drop((begun, restored));
    let refused = backups.restore(&backup, &target);
    assert!(matches!(refused, Err(BackupError::Directory { .. })), "{refused:?}");
    backups.remove(&backup).expect("it is removed");
    assert_eq!(backups.list().expect("it is there").backups, []);
}

/// Each moment is restored from the last backup before it and the log, or from the log alone.
#[test]
fn any_moment_is_restored() {
    let directory = Directory::new("backup-moments");
    let backups = directory.backups();
    let log = SimulatedLog::new(6);
    let nodes = [(); 2].map(|()| builder().start(log.connect()).expect("it starts"));
    let mut moments = Vec::new();
    for round in 0..4 {
        let node = &nodes[round % 2];
        let primary = node.promote(LONG).expect("it becomes the primary");
        for id in 0..3 {
            moments.push((add(&primary, id, round as i64 + 1), rows(node)));
        }
        if round == 1 {
            node.back_up(&backups).expect("it is written");
        }
    }
    let restore = |number: usize, has_backups: bool, at| {
        let target = directory.0.join(format!("moment-{number}-{has_backups}"));
        let mut builder = builder();
        if has_backups {
            builder = builder.backups(Arc::clone(&backups));
        }
        builder.restore_at(log.connect(), at, &target, LONG).map(|token| (token, target))
    };
    for (number, (at, expected)) in moments.iter().enumerate() {
        for has_backups in [false, true] {
            let (token, target) = restore(number, has_backups, *at).expect("it is restored");
            assert_eq!((token, &restored_rows(&target)), (*at, expected), "moment {number}");
        }
    }
    let last = moments.last().expect("there are some").0;
    let later = ReplicationToken { epoch: last.epoch + 1000, ..last };
    let refused = restore(100, true, later);
    let Err(ReplicationError::Unfit(what)) = refused else { panic!("{refused:?}") };
    assert!(what.contains("ends with"), "{what}");
}

/// The program does the same for a shell.
#[test]
fn program_lists_verifies_and_restores() {
    let directory = Directory::new("backup-program");
    let backups = directory.backups();
    let log = SimulatedLog::new(5);
    let one = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 1);
    let older = one.back_up(&backups).expect("it is written");
    let expected = rows(&one);
    add(&primary, 2, 2);
    let newer = one.back_up(&backups).expect("it is written");
    let store = directory.0.join("accounts");
    let run = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_weft-backups"));
        let output = program.arg(arguments[0]).arg(&store).args(&arguments[1..]).output();
        let output = output.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, text) = run(&["list"]);
    assert_eq!((code, text), (Some(0), format!("{newer}\n{older}\n")));
    let target = directory.0.join("restored");
    let restored = run(&["restore", target.to_str().expect("it is a text"), older.name()]);
    assert_eq!(restored.0, Some(0), "{}", restored.1);
    assert_eq!(restored_rows(&target), expected);
    let again = run(&["restore", target.to_str().expect("it is a text")]);
    assert!(again.0 == Some(1) && again.1.contains("name an empty directory"), "{}", again.1);
    assert_eq!(run(&["verify"]).0, Some(0));
    let files = directory.files();
    std::fs::write(&files[0], b"x").expect("it is written");
    let (code, text) = run(&["verify"]);
    assert!(code == Some(1) && text.contains("is damaged"), "{text}");
    assert_eq!(run(&["verify", newer.name()]).0, Some(0));
    assert_eq!(run(&["verify", "other"]).0, Some(1));
    assert_eq!(run(&["remove"]).0, Some(2));
}

/// The names of backups say nothing of which log came first.
#[test]
fn program_restores_backups_of_several_logs_by_name() {
    let directory = Directory::new("backup-logs");
    let backups = directory.backups();
    let write = |seed, commits| {
        let log = SimulatedLog::new(seed);
        let one = builder().start(log.connect()).expect("it starts");
        let primary = one.promote(LONG).expect("it becomes the primary");
        (0..commits).for_each(|id| _ = add(&primary, id, 1));
        let written = [(); 2].map(|()| {
            add(&primary, 100, 1);
            one.back_up(&backups).expect("it is written")
        });
        (written, rows(&one))
    };
    // The database goes on with another log, in which less has happened.
    let ((old, _), (new, expected)) = (write(7, 20), write(8, 1));
    assert!(new[1].name() < old[0].name());
    let store = directory.0.join("accounts");
    let run = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_weft-backups"));
        let output = program.arg(arguments[0]).arg(&store).args(&arguments[1..]).output();
        let output = output.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let lines = |of_log: &[Backup; 2]| format!("{}\n{}\n", of_log[1], of_log[0]);
    let mut logs = [&old, &new];
    logs.sort_by_key(|of_log| of_log[0].log().to_owned());
    assert_eq!(run(&["list"]), (Some(0), logs.map(lines).concat()));
    let target = directory.0.join("restored");
    let target_text = target.to_str().expect("it is a text");
    let (code, text) = run(&["restore", target_text]);
    assert!(code == Some(1) && text.contains("are of several logs"), "{text}");
    assert!(text.contains(old[0].log()) && text.contains(new[0].log()), "{text}");
    assert!(!target.exists());
    assert_eq!(run(&["restore", target_text, new[1].name()]).0, Some(0));
    assert_eq!(restored_rows(&target), expected);
    assert_eq!(run(&["verify"]).0, Some(0));
}

/// The directory of a node is so old that the log has been truncated behind it.
#[test]
fn directory_that_the_log_does_not_continue_is_set_aside() {
    let directory = Directory::new("backup-aside");
    let backups = directory.backups();
    let log = SimulatedLog::new(4);
    let one = builder().start(log.connect()).expect("it starts");
    let path = directory.0.join("node");
    let start = || builder().backups(Arc::clone(&backups)).directory(&path).start(log.connect());
    let primary = one.promote(LONG).expect("it becomes the primary");
    let token = add(&primary, 1, 1);
    let old = start().expect("it starts");
    old.wait_for(token, LONG).expect("it follows");
    old.shut_down();
    for id in 2..4 {
        add(&primary, id, 1);
        one.back_up(&backups).expect("it is written");
    }
    let token = add(&primary, 5, 1);
    one.truncate_log(&backups).expect("it is truncated").expect("there are two");
    let again = start().expect("it starts");
    again.wait_for(token, LONG).expect("it follows");
    assert_eq!(rows(&again), rows(&one));
    let reports = again.reports();
    let [Report::SetAside(aside)] = &reports[..] else { panic!("{reports:?}") };
    assert!(std::fs::read_dir(aside).expect("it is there").next().is_some());
}

/// A file system on which only so many renames succeed.
#[derive(Debug)]
struct FewRenames(Mutex<u32>);

impl Backend for FewRenames {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        FileSystem.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        FileSystem.list(directory)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        FileSystem.create_new(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        FileSystem.open(path)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        FileSystem.open_read_only(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        FileSystem.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut left = self.0.lock().expect("no panic");
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("a planned crash"))?;
        FileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        FileSystem.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        FileSystem.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        FileSystem.sync_directory(path)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        FileSystem.try_lock(path)
    }
}

/// Fault: when a directory was set aside, its bases were moved before its records. A crash in between left records that
/// follow nothing, and the node refused to start.
#[test]
fn directory_is_set_aside_after_a_crash() {
    let directory = Directory::new("backup-aside-crash");
    let backups = directory.backups();
    let log = SimulatedLog::new(9);
    let one = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    let path = directory.0.join("node");
    let start = |renames: u32| {
        let disk = Arc::new(FewRenames(Mutex::new(renames)));
        let builder = builder().backups(Arc::clone(&backups));
        builder.directory_on(disk, &path).start(log.connect())
    };
    let mut next_id = 0;
    let mut shorten = || {
        for _ in 0..2 {
            next_id += 1;
            add(&primary, next_id, 1);
            one.back_up(&backups).expect("it is written");
        }
        one.truncate_log(&backups).expect("it is truncated").expect("there are two");
        add(&primary, next_id, 1)
    };
    // The directory begins with a backup, and has records and another base behind that.
    let token = shorten();
    let old = start(100).expect("it starts");
    old.wait_for(token, LONG).expect("it follows");
    old.checkpoint().expect("it is written");
    old.shut_down();
    let token = shorten();
    // Each start moves one name, and dies.
    let mut crashes = 0;
    let node = loop {
        match start(1) {
            Ok(node) => break node,
            Err(error) => assert!(error.to_string().contains("a planned crash"), "{error}"),
        }
        crashes += 1;
    };
    node.wait_for(token, LONG).expect("it follows");
    assert_eq!(rows(&node), rows(&one));
    assert!(crashes >= 3, "{crashes}");
}
