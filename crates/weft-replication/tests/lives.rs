//! Nodes that begin again, read old records, or stay at an earlier moment.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft::durability::{Backend, SimulatedDisk};
use weft::protocol::Dbx;
use weft_replication::{
    LogError, LogRecord, NodeRole, Options, Primary, ReplicatedLog, ReplicationError,
    ReplicationToken, SimulatedConnection, SimulatedLog, Trouble,
};

use accounts::{Account, builder};
use common::{LONG, by_call, wait_until};

mod accounts;
mod common;

/// A connection that shows only the first records, or says that there are more.
#[derive(Debug)]
struct AlteredLog {
    log: Arc<SimulatedConnection>,
    /// The offset of the first record that cannot be read.
    shown: Mutex<u64>,
    /// How many records `range` counts that are not there.
    more: u64,
}

impl AlteredLog {
    fn new(log: &SimulatedLog, shown: u64, more: u64) -> Arc<AlteredLog> {
        Arc::new(AlteredLog { log: log.connect(), shown: Mutex::new(shown), more })
    }
}

impl ReplicatedLog for AlteredLog {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        self.log.append(record)
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let shown = *self.shown.lock().expect("no panic");
        if from >= shown {
            return Err(LogError::Unavailable("no answer".to_owned()));
        }
        let mut records = self.log.read(from, wait)?;
        records.retain(|record| record.offset < shown);
        Ok(records)
    }

    fn identity(&self) -> Result<String, LogError> {
        self.log.identity()
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        self.log.truncate_before(offset)
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        self.log.range().map(|(first, end)| (first, end + self.more))
    }
}

fn insert(primary: &Primary<Dbx>, id: u32) -> ReplicationToken {
    let accounts = primary.database().table::<Account>().expect("it is there");
    let inserted = primary
        .transact(|tx| Ok::<_, ReplicationError>(tx.insert(&accounts, Account { id, cents: 1 })?));
    inserted.expect("it commits").1
}

/// Fault: the role of a node with a directory stayed `Primary` until its next database was open, which needs the log. So the
/// node called itself the primary for as long as the log did not answer.
#[test]
fn primary_that_gives_up_is_a_standby_while_the_log_is_away() {
    let log = SimulatedLog::new(1);
    let connection = log.connect();
    let disk: Arc<dyn Backend> = Arc::new(SimulatedDisk::new(1));
    let options = Options { deadline: Duration::from_millis(100), ..by_call() };
    let builder = builder().address("one.example:1").options(options).directory_on(disk, "/node");
    let one = builder.start(Arc::clone(&connection) as _).expect("it starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    let token = insert(&primary, 1);
    assert_eq!(one.status().primary.as_deref(), Some("one.example:1"));
    connection.cut_off(true);
    wait_until("stepping down", || one.role() == NodeRole::Standby);
    assert!(matches!(one.primary(), Err(ReplicationError::NotPrimary)));
    let (replica, status) = one.current();
    assert!(replica.is_over() && !status.is_current && status.primary.is_none(), "{status:?}");
    wait_until("trouble", || matches!(one.trouble(), Some(Trouble::Log(_))));
    assert_eq!(one.role(), NodeRole::Standby);
    connection.cut_off(false);
    one.wait_for(token, LONG).expect("it has the commit");
    assert!(!one.current().0.is_over());
    let primary = one.promote(LONG).expect("it becomes the primary again");
    insert(&primary, 2);
}

/// Fault: a node that read old records named a primary of the past, or itself, as the primary.
#[test]
fn node_that_reads_old_records_knows_no_primary() {
    let log = SimulatedLog::new(2);
    let start = |address: &str| builder().address(address).start(log.connect()).expect("it starts");
    let (one, other) = (start("one.example:1"), start("two.example:2"));
    let is_two = |primary: Option<Arc<str>>| primary.as_deref() == Some("two.example:2");
    one.promote(LONG).expect("it becomes the primary");
    other.promote(LONG).expect("it becomes the primary");
    wait_until("following", || is_two(one.status().primary));
    assert!(is_two(other.status().primary));
    // This node reads the fence of the first primary, and not yet that of the second one.
    let altered = AlteredLog::new(&log, 1, 0);
    let third = builder().address("three.example:3").start(Arc::clone(&altered) as _);
    let third = third.expect("it starts");
    wait_until("the first fence", || third.token().generation == 1);
    let (replica, status) = third.current();
    assert!(!status.is_current && status.primary.is_none(), "{status:?}");
    // The address that is not shown is no change either.
    let (begin, limit) = (Instant::now(), Duration::from_millis(50));
    third.wait_for_change((&replica, &status), limit);
    assert!(begin.elapsed() >= limit);
    *altered.shown.lock().expect("no panic") = u64::MAX;
    wait_until("the second fence", || is_two(third.status().primary));
    // The last fence is that of an earlier run of this node, which is not the primary any more.
    other.shut_down();
    let again = start("two.example:2");
    wait_until("reading the log", || again.status().is_current);
    assert_eq!(again.status().primary, None);
}

/// Fault: a node that began with a base knew the primary only after the next promotion, since the fence before the base
/// was not looked at.
#[test]
fn node_that_begins_with_its_directory_knows_the_primary() {
    let log = SimulatedLog::new(3);
    let disk: Arc<dyn Backend> = Arc::new(SimulatedDisk::new(3));
    let one = builder().address("one.example:1").start(log.connect()).expect("it starts");
    let start = || builder().directory_on(Arc::clone(&disk), "/node").start(log.connect());
    let other = start().expect("it starts");
    let token = insert(&one.promote(LONG).expect("it becomes the primary"), 1);
    other.wait_for(token, LONG).expect("it follows");
    other.checkpoint().expect("it is written");
    other.shut_down();
    let again = start().expect("it starts");
    wait_until("the primary", || again.status().primary.as_deref() == Some("one.example:1"));
}

/// Fault: `restore_at` compared the log's end with what it had read. If a heartbeat came between the two, it restored an
/// earlier moment without an error.
#[test]
fn moment_that_the_log_has_not_reached_is_not_restored() {
    let log = SimulatedLog::new(4);
    let one = builder().start(log.connect()).expect("it starts");
    let last = insert(&one.promote(LONG).expect("it becomes the primary"), 1);
    one.shut_down();
    let later = ReplicationToken { epoch: last.epoch + 1000, ..last };
    let target = std::env::temp_dir().join(format!("weft-lives-{}", std::process::id()));
    // The log's end has always moved on when the node asks for it.
    let altered = AlteredLog::new(&log, u64::MAX, 1);
    let refused = builder().restore_at(altered, later, &target, LONG);
    let Err(ReplicationError::Unfit(what)) = refused else { panic!("{refused:?}") };
    assert!(what.contains("ends with") && !target.exists(), "{what}");
}
