//! Nodes with directories: what is there after a start, a crash, and a log that has lost its end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft::durability::{Backend, File, LockError, LockGuard, SimulatedDisk};
use weft::protocol::Dbx;
use weft_changes::{ChangeFeed, ChangesError, Position};
use weft_replication::{
    Faults, Node, NodeRole, Options, Primary, ReplicatedLog, ReplicationError, ReplicationToken,
    Report, SimulatedLog,
};

use accounts::{Account, builder};
use common::{LONG, by_call, wait_until};

mod accounts;
mod common;

fn start_on(disk: &SimulatedDisk, log: &SimulatedLog) -> Node<Dbx> {
    let disk: Arc<dyn Backend> = Arc::new(disk.clone());
    builder().directory_on(disk, "/node").start(log.connect()).expect("the node starts")
}

fn add(primary: &Primary<Dbx>, id: u32, cents: i64) -> Result<ReplicationToken, ReplicationError> {
    let accounts = primary.database().table::<Account>()?;
    let added = primary.transact(|tx| {
        let before = tx.get(&accounts, &id)?.map_or(0, |account| account.cents);
        tx.upsert(&accounts, Account { id, cents: before + cents })?;
        Ok::<_, ReplicationError>(())
    });
    Ok(added?.1)
}

fn balance(node: &Node<Dbx>, id: u32) -> Option<i64> {
    let view = node.snapshot().expect("the node is there");
    let accounts = view.table::<Account>().expect("the table is there");
    let row = view.snapshot().get(&accounts, &id).expect("it can be read");
    row.map(|account| account.cents)
}

#[test]
fn node_goes_on_from_its_directory() {
    let log = SimulatedLog::new(1);
    let disk = SimulatedDisk::new(1);
    let one = start_on(&disk, &log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    for _ in 0..10 {
        add(&primary, 1, 1).expect("it commits");
    }
    // The rows, and the records behind them.
    one.checkpoint().expect("it is written");
    for _ in 0..10 {
        add(&primary, 1, 1).expect("it commits");
    }
    one.checkpoint().expect("it is written");
    let token = add(&primary, 1, 1).expect("it commits");
    let behind = log.connect().range().expect("it is there").1;
    drop(primary);
    one.shut_down();
    // The log no longer has the first records.
    log.connect().truncate_before(behind - 1).expect("it is there");
    let again = start_on(&disk, &log);
    again.wait_for(token, LONG).expect("it is there");
    assert_eq!(balance(&again, 1), Some(21));
    let primary = again.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 1).expect("it commits");
    assert_eq!((balance(&again, 1), again.reports()), (Some(22), Vec::new()));
}

/// Fault: each start set the number of bytes since the last base to zero. A node that was restarted often never wrote a base,
/// and its records grew without bound.
#[test]
fn node_that_is_restarted_often_writes_its_rows() {
    let log = SimulatedLog::new(8);
    let disk = SimulatedDisk::new(8);
    let start = || {
        let options = Options { base_bytes: 50_000, ..by_call() };
        let disk: Arc<dyn Backend> = Arc::new(disk.clone());
        let builder = builder().options(options).directory_on(disk, "/node");
        builder.start(log.connect()).expect("the node starts")
    };
    let has_name = |path: &Path, name: &str| path.display().to_string().contains(name);
    let records_bytes = || {
        let files = disk.files().into_iter().filter(|path| has_name(path, "/records-"));
        files.map(|path| disk.contents(path).len()).sum::<usize>()
    };
    for _ in 0..4 {
        let node = start();
        let primary = node.promote(LONG).expect("it becomes the primary");
        let begin = records_bytes();
        while records_bytes() < begin + 20_000 {
            add(&primary, 1, 1).expect("it commits");
        }
        drop(primary);
        node.shut_down();
    }
    let _node = start();
    wait_until("a base", || disk.files().iter().any(|path| has_name(path, "/POSITION")));
}

/// A disk that takes long to write the position of a base, which completes it.
#[derive(Debug)]
struct SlowDisk(SimulatedDisk);

impl Backend for SlowDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn File>> {
        if path.ends_with("POSITION.new") {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.0.create_new(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.0.open(path)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn File>> {
        self.0.open_read_only(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.sync_directory(path)
    }

    fn try_lock(&self, path: &Path) -> Result<Box<dyn LockGuard>, LockError> {
        self.0.try_lock(path)
    }
}

/// Fault: a checkpoint that began before another one was complete removed its rows, and both counted as bases.
#[test]
fn checkpoints_at_the_same_time_leave_all_rows() {
    let log = SimulatedLog::new(7);
    let disk = SimulatedDisk::new(7);
    let slow: Arc<dyn Backend> = Arc::new(SlowDisk(disk.clone()));
    // As long as nothing is appended, all checkpoints are at the same position.
    let one = builder().directory_on(slow, "/node").start(log.connect()).expect("it starts");
    let other = builder().start(log.connect()).expect("it starts");
    let primary = other.promote(LONG).expect("it becomes the primary");
    for round in 1..4 {
        let token = add(&primary, 1, 1).expect("it commits");
        one.wait_for(token, LONG).expect("it follows");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| one.checkpoint().expect("it is written"));
            }
        });
        let names = disk.list(Path::new("/node")).expect("it is there");
        let bases = names.iter().filter(|name| name.starts_with("base-")).count();
        assert_eq!(bases, round.min(2), "{names:?}");
    }
    let token = add(&primary, 1, 1).expect("it commits");
    one.wait_for(token, LONG).expect("it follows");
    one.shut_down();
    let again = start_on(&disk, &log);
    again.wait_for(token, LONG).expect("it follows");
    assert_eq!(balance(&again, 1), Some(4));
}

/// A node's database has no changes that led to the rows with which it begins.
#[test]
fn rows_of_the_directory_are_a_gap_in_the_feed() {
    let log = SimulatedLog::new(1);
    let disk = SimulatedDisk::new(1);
    let one = start_on(&disk, &log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 1).expect("it commits");
    one.checkpoint().expect("it is written");
    drop(primary);
    one.shut_down();
    let again = start_on(&disk, &log);
    let primary = again.promote(LONG).expect("it becomes the primary");
    let begun = primary.database().changes(Position::START);
    assert!(matches!(begun, Err(ChangesError::FellBehind { is_unlogged: true, .. })));
    let mut changes = primary.database().changes_from_now().expect("it is followed");
    add(&primary, 2, 5).expect("it commits");
    let next = changes.next().expect("it is open").expect("it can be read");
    let row = next.changes().next().expect("there is one").row::<Account>();
    assert_eq!(row.expect("it can be read"), Some(Account { id: 2, cents: 5 }));
}

/// The log is truncated behind the records with which a node compares it: in the middle of them, or behind them all.
#[test]
fn nodes_become_the_primary_after_the_log_was_truncated() {
    for after in [0, 3] {
        let log = SimulatedLog::new(1);
        let disk = SimulatedDisk::new(1);
        let (one, other) =
            (start_on(&disk, &log), builder().start(log.connect()).expect("it starts"));
        let primary = one.promote(LONG).expect("it becomes the primary");
        let add_some = |count: u32| {
            (0..count).fold(None, |_, _| Some(add(&primary, 1, 1).expect("it commits")))
        };
        let token = add_some(5).expect("it has a token");
        other.wait_for(token, LONG).expect("it is there");
        let end = log.connect().range().expect("it is there").1;
        if let Some(token) = add_some(after) {
            other.wait_for(token, LONG).expect("it is there");
        }
        log.connect().truncate_before(end).expect("it is there");
        let new = other.promote(LONG).expect("it becomes the primary");
        add(&new, 1, 1).expect("it commits");
        assert_eq!(balance(&other, 1), Some(i64::from(6 + after)), "{after} commits behind it");
    }
}

#[test]
fn standby_goes_on_from_its_directory_while_the_primary_commits() {
    let log = SimulatedLog::new(2);
    let disk = SimulatedDisk::new(2);
    let one = builder().start(log.connect()).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    let mut total = 0;
    for round in 0..5 {
        // Nothing is lost that the disk does not have: the log has it.
        let standby = start_on(&disk.crash(round), &log);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let tokens = (0..50).map(|_| add(&primary, 1, 1).expect("it commits"));
                tokens.fold(ReplicationToken::default(), ReplicationToken::max)
            });
            for _ in 0..3 {
                standby.checkpoint().expect("it is written");
            }
            standby.wait_for(writing.join().expect("no panic"), LONG).expect("it follows");
        });
        total += 50;
        assert_eq!(balance(&standby, 1), Some(total), "round {round}");
    }
}

/// All machines of the log and the only node lose power. The log's tail is gone, and comes from the node's directory.
#[test]
fn commits_that_the_log_has_lost_come_from_the_directory() {
    for seed in 0..10 {
        let log = SimulatedLog::new(seed);
        let disk = SimulatedDisk::new(seed);
        let one = start_on(&disk, &log);
        let primary = one.promote(LONG).expect("it becomes the primary");
        for _ in 0..10 {
            add(&primary, 1, 1).expect("it commits");
        }
        if seed % 2 == 1 {
            one.checkpoint().expect("it is written");
        }
        let token = add(&primary, 1, 1).expect("it commits");
        let crashed = disk.crash(seed);
        drop(primary);
        one.shut_down();
        log.lose_tail(1 + seed as usize);
        let again = start_on(&crashed, &log);
        // Another one finds it in the log again.
        let other = builder().start(log.connect()).expect("it starts");
        again.wait_for(token, LONG).expect("it is there");
        other.wait_for(token, LONG).expect("it is there");
        assert_eq!((balance(&again, 1), balance(&other, 1)), (Some(11), Some(11)), "seed {seed}");
    }
}

#[test]
fn commits_in_whose_place_others_are_are_reported() {
    let log = SimulatedLog::new(3);
    let disk = SimulatedDisk::new(3);
    let one = start_on(&disk, &log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    for _ in 0..5 {
        add(&primary, 1, 1).expect("it commits");
    }
    drop(primary);
    one.shut_down();
    // It ends in the middle of what was confirmed, and a node that did not know that takes over.
    let end = log.connect().range().expect("it is there").1;
    log.lose_tail(end as usize - 3);
    let other = builder().start(log.connect()).expect("it starts");
    let new = other.promote(LONG).expect("it becomes the primary");
    let left = balance(&other, 1).unwrap_or(0);
    assert!(left < 5, "{left}");
    let token = add(&new, 2, 1).expect("it commits");
    let again = start_on(&disk, &log);
    again.wait_for(token, LONG).expect("it follows");
    assert_eq!((balance(&again, 1).unwrap_or(0), balance(&again, 2)), (left, Some(1)));
    let reports = again.reports();
    let [Report::Lost(loss)] = &reports[..] else { panic!("{reports:?}") };
    assert!(loss.was_confirmed && loss.generation == 1, "{loss}");
    let file = loss.file.as_ref().expect("the directory keeps it");
    assert!(disk.exists(file).expect("it can be read"), "{loss}");
    // What was reported once is not reported again.
    again.shut_down();
    assert_eq!(start_on(&disk, &log).reports(), []);
}

/// A commit that waits has reached the directory, but never the log.
#[test]
fn commit_that_the_log_never_accepted_is_cut() {
    let log = SimulatedLog::new(4);
    let disk = SimulatedDisk::new(4);
    let connection = log.connect();
    let backend: Arc<dyn Backend> = Arc::new(disk.clone());
    let one = builder().directory_on(backend, "/node").start(Arc::clone(&connection) as _);
    let one = one.expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 100).expect("it commits");
    let other = builder().start(log.connect()).expect("it starts");
    connection.cut_off(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&primary, 1, 1000));
        let new = other.promote(LONG).expect("it becomes the primary");
        let token = add(&new, 1, 1).expect("it commits");
        connection.cut_off(false);
        assert!(waiting.join().expect("no panic").is_err());
        one.wait_for(token, LONG).expect("it follows");
    });
    assert_eq!((balance(&one, 1), balance(&other, 1)), (Some(101), Some(101)));
}

/// The node's disk fails. Nothing is acknowledged that it does not have.
#[test]
fn nothing_is_acknowledged_that_the_directory_does_not_have() {
    let log = SimulatedLog::new(5);
    let disk = SimulatedDisk::new(5);
    let one = start_on(&disk, &log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 100).expect("it commits");
    disk.fail_sync(disk.syncs() + 1);
    let failed = add(&primary, 1, 1).expect_err("the disk has failed");
    assert!(matches!(failed, ReplicationError::OutcomeUnknown), "{failed:?}");
    wait_until("the end of the node", || one.role() == NodeRole::Stopped);
    let fault = one.fault().expect("it has met one").to_string();
    assert!(fault.contains("the node's directory"), "{fault}");
}

#[test]
fn directory_belongs_to_one_log_and_one_node() {
    let (log, other_log) = (SimulatedLog::new(6), SimulatedLog::new(6));
    let disk = SimulatedDisk::new(6);
    let backend: Arc<dyn Backend> = Arc::new(disk.clone());
    let refused = |path: &str, log: &SimulatedLog| {
        let builder = builder().directory_on(Arc::clone(&backend), path);
        match builder.start(log.connect()) {
            Err(ReplicationError::Unfit(what)) => what,
            started => panic!("{:?}", started.map(|node| node.role())),
        }
    };
    let one = start_on(&disk, &log);
    let what = refused("/node", &log);
    assert!(what.contains("is open in another node"), "{what}");
    one.shut_down();
    let what = refused("/node", &other_log);
    assert!(what.contains("name an empty directory"), "{what}");
    backend.create_directory(Path::new("/full")).expect("it is created");
    backend.create_new(Path::new("/full/photo")).expect("it is created");
    let what = refused("/full", &log);
    assert!(what.contains("`photo`"), "{what}");
}

/// The primary is killed again and again, with its disk, while appends fail and the log loses its end.
#[test]
fn nothing_acknowledged_is_lost_in_crashes() {
    for seed in 0..4 {
        let log = SimulatedLog::new(seed);
        let mut disk = SimulatedDisk::new(seed);
        let mut acknowledged = 0;
        let mut possible = 0;
        for round in 0..6 {
            log.set_faults(Faults::default());
            let node = start_on(&disk, &log);
            let primary = node.promote(LONG).expect("it becomes the primary");
            log.set_faults(Faults { lost: 5, unanswered: 5, late: 5, doubled: 5 });
            let balance = balance(&node, 1).unwrap_or(0);
            let place = format!("seed {seed}, round {round}");
            assert!((acknowledged..=possible).contains(&balance), "{place}: {balance}");
            (acknowledged, possible) = (balance, balance);
            for turn in 0..10 {
                possible += 1;
                acknowledged += i64::from(add(&primary, 1, 1).is_ok());
                if turn == 5 && round % 2 == 0 {
                    node.checkpoint().expect("it is written");
                }
            }
            disk = disk.crash(seed * 100 + round);
            drop(primary);
            node.shut_down();
            log.lose_tail(round as usize);
        }
    }
}
