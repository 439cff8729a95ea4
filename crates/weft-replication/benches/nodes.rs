//! Durable commits with and without replication, and how fast a standby applies them: `cargo bench -p weft-replication`.
//!
//! The replicated log is in memory, so this is what replication costs besides the log. With `--features object-store` also: a new
//! standby that begins with a backup, beside a primary that commits.

use std::hint::black_box;
use std::sync::Arc;
#[cfg(feature = "object-store")]
use std::sync::Mutex;
use std::time::{Duration, Instant};

use weft::{Database, Record, Table, TransactionOptions};
use weft_changes::ChangeRing;
use weft_replication::{
    LogError, LogRecord, Node, NodeBuilder, ReplicatedLog, ReplicationError, SimulatedConnection,
    SimulatedLog,
};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    id: u64,
    cents: i64,
}

/// Returns how long a call takes, in microseconds.
fn time(calls: u32, mut call: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

fn add(database: &Database, accounts: &Table<Account>, turn: u32) {
    let id = u64::from(turn % 1000);
    let options = TransactionOptions::new();
    let committed: Result<_, weft::Error> = database
        .transact_with_token(&options, |tx| tx.update(accounts, &id, |account| account.cents += 1));
    black_box(committed).expect("it commits");
}

fn fill(database: &Database) -> Table<Account> {
    let accounts = database.table::<Account>().expect("it is there");
    let filled: Result<_, weft::Error> = database
        .transact(|tx| (0..1000).try_for_each(|id| tx.insert(&accounts, Account { id, cents: 0 })));
    filled.expect("it commits");
    accounts
}

fn main() {
    // A test of all targets must not take long.
    let calls = if std::env::args().any(|argument| argument == "--bench") { 20_000 } else { 100 };
    let ring =
        Database::builder().table::<Account>().change_ring(8 << 20).open().expect("it opens");
    let accounts = fill(&ring);
    let waiting = time(calls, |turn| {
        add(&ring, &accounts, turn);
        ring.flush().expect("it is written");
    });
    println!("a commit that waits for a log in memory:   {waiting:8.2} us");

    let log = SimulatedLog::new(1);
    let start = || -> Node<_> {
        let builder = NodeBuilder::new(Database::builder).table::<Account>();
        builder.start(log.connect()).expect("it starts")
    };
    let (one, other) = (start(), start());
    let primary = Arc::new(one.promote(LIMIT).expect("it becomes the primary"));
    let database = primary.database();
    let accounts = fill(database);
    let waiting = time(calls, |turn| {
        add(database, &accounts, turn);
        database.flush().expect("it is replicated");
    });
    println!("a commit that waits for a replicated log:  {waiting:8.2} us");
    let read = time(calls, |turn| {
        let id = u64::from(turn % 1000);
        let row =
            primary.transact(|tx| Ok::<_, ReplicationError>(tx.get(&accounts, &id)?.is_some()));
        black_box(row.expect("it is the primary"));
    });
    println!("a confirmed read of the primary:           {read:8.2} us");
    other.shut_down();

    // Large epochs, which a standby applies from the beginning of the log.
    let many = calls * 20;
    let commit = time(many, |turn| add(database, &accounts, turn));
    println!("a commit that does not wait:               {commit:8.2} us");
    let last = primary.transact(|tx| {
        Ok::<_, ReplicationError>(tx.update(&accounts, &1, |account| account.cents += 1)?)
    });
    let (_, token) = last.expect("it commits");
    let begin = Instant::now();
    let standby = start();
    standby.wait_for(token, LIMIT).expect("it follows");
    let total = f64::from(calls + many);
    let each = begin.elapsed().as_secs_f64() * 1e6 / total;
    println!("a commit, applied by a standby:            {each:8.2} us ({total} commits)");
    measure_directories((calls / 20).max(10));
    #[cfg(feature = "object-store")]
    measure_backups(u64::from(calls) * 50);
}

/// A log whose appends take a while, as those of a log on other machines do.
#[derive(Debug)]
struct SlowLog(Arc<SimulatedConnection>, Duration);

impl ReplicatedLog for SlowLog {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        std::thread::sleep(self.1);
        self.0.append(record)
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        self.0.read(from, wait)
    }

    fn identity(&self) -> Result<String, LogError> {
        self.0.identity()
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        self.0.truncate_before(offset)
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        self.0.range()
    }
}

/// A commit that waits for a directory, for a log whose appends take 1 ms, and for both.
fn measure_directories(calls: u32) {
    let directory = std::env::temp_dir().join(format!("weft-nodes-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("it is created");
    let local = Database::builder().table::<Account>().directory(directory.join("local")).open();
    let local = local.expect("it opens");
    let accounts = fill(&local);
    let update = |database: &Database, accounts: &Table<Account>, turn| {
        add(database, accounts, turn);
        database.flush().expect("it is durable");
    };
    let waiting = time(calls, |turn| update(&local, &accounts, turn));
    println!("a commit that waits for a directory:       {waiting:8.2} us");
    for (what, append_ms, has_directory) in [
        ("a directory and a log in memory:     ", 0, true),
        ("a log of 1 ms:                       ", 1, false),
        ("a directory and a log of 1 ms:       ", 1, true),
    ] {
        let log = SimulatedLog::new(1);
        let slow = Arc::new(SlowLog(log.connect(), Duration::from_millis(append_ms)));
        let mut builder = NodeBuilder::new(Database::builder).table::<Account>();
        if has_directory {
            builder = builder.directory(directory.join(format!("node-{append_ms}")));
        }
        let node: Node<_> = builder.start(slow).expect("it starts");
        let primary = node.promote(LIMIT).expect("it becomes the primary");
        let accounts = fill(primary.database());
        let waiting = time(calls, |turn| update(primary.database(), &accounts, turn));
        println!("a commit, {what}{waiting:8.2} us");
    }
    let _ = std::fs::remove_dir_all(&directory);
}

/// How long a new standby takes to begin with a backup, and what the primary's commits take while it does.
#[cfg(feature = "object-store")]
fn measure_backups(rows: u64) {
    use object_store::local::LocalFileSystem;
    use weft_replication::backup::Backups;

    let directory = std::env::temp_dir().join(format!("weft-backups-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("it is created");
    let store = LocalFileSystem::new_with_prefix(&directory).expect("it is there").with_fsync(true);
    let backups = Arc::new(Backups::open(Arc::new(store), "accounts").expect("it opens"));
    let log = SimulatedLog::new(1);
    let builder = || NodeBuilder::new(Database::builder).table::<Account>();
    let node: Node<_> = builder().start(log.connect()).expect("it starts");
    let primary = node.promote(LIMIT).expect("it becomes the primary");
    let database = primary.database();
    let accounts = database.table::<Account>().expect("it is there");
    for first in (0..rows).step_by(1000) {
        let filled: Result<_, weft::Error> = database.transact(|tx| {
            let mut batch = first..rows.min(first + 1000);
            batch.try_for_each(|id| tx.insert(&accounts, Account { id, cents: 0 }))
        });
        filled.expect("it commits");
    }
    database.flush().expect("it is replicated");
    // Commits of one client, until `work` has ended; and how long that took.
    let beside = |what: &str, work: &mut (dyn FnMut() + Send)| {
        let done = Mutex::new(false);
        let (begin, mut times) = (Instant::now(), Vec::new());
        std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                work();
                *done.lock().expect("no panic") = true;
            });
            for turn in 0.. {
                if *done.lock().expect("no panic") {
                    break;
                }
                let start = Instant::now();
                add(database, &accounts, turn);
                database.flush().expect("it is replicated");
                times.push(start.elapsed());
            }
        });
        times.sort_unstable();
        let share = |part: usize| {
            times.get(times.len() * part / 100).map_or(0.0, |it| it.as_secs_f64() * 1e6)
        };
        let (total, count) = (begin.elapsed().as_secs_f64(), times.len());
        let (half, most) = (share(50), share(99));
        println!("{what}: {total:6.2} s; commits p50 {half:7.1} us, p99 {most:7.1} us ({count})");
    };
    beside("alone, for a second        ", &mut || std::thread::sleep(Duration::from_secs(1)));
    beside("a backup of the primary    ", &mut || {
        let backup = node.back_up(&backups).expect("it is written");
        black_box(backup);
    });
    let last = primary.transact(|tx| {
        Ok::<_, ReplicationError>(tx.update(&accounts, &1, |account| account.cents += 1)?)
    });
    let (_, token) = last.expect("it commits");
    beside("a standby from the backup  ", &mut || {
        let standby = builder().backups(Arc::clone(&backups)).start(log.connect());
        standby.expect("it starts").wait_for(token, LIMIT).expect("it follows");
    });
    beside("a standby from the log     ", &mut || {
        let standby: Node<weft::protocol::Dbx> = builder().start(log.connect()).expect("it starts");
        standby.wait_for(token, LIMIT).expect("it follows");
    });
    let _ = std::fs::remove_dir_all(&directory);
}
