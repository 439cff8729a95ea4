//! Promotions while calls of the log fail.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weft::protocol::Dbx;
use weft_replication::{
    LogError, LogRecord, Node, NodeRole, Options, Primary, ReplicatedLog, ReplicationError,
    ReplicationToken, SimulatedConnection, SimulatedLog,
};

use accounts::{Account, builder};
use common::{LONG, by_call, wait_until};

mod accounts;
mod common;

fn node(log: &SimulatedLog) -> Node<Dbx> {
    builder().start(log.connect()).expect("the node starts")
}

fn add(primary: &Primary<Dbx>, cents: i64) -> ReplicationToken {
    let accounts = primary.database().table::<Account>().expect("the table is there");
    let added = primary.transact(|tx| {
        let before = tx.get(&accounts, &1)?.map_or(0, |account| account.cents);
        tx.upsert(&accounts, Account { id: 1, cents: before + cents })?;
        Ok::<_, ReplicationError>(())
    });
    added.expect("it commits").1
}

fn balance(node: &Node<Dbx>) -> Option<i64> {
    let view = node.snapshot().expect("the node is there");
    let accounts = view.table::<Account>().expect("the table is there");
    let row = view.snapshot().get(&accounts, &1).expect("it can be read");
    row.map(|account| account.cents)
}

/// A connection whose calls can be made to fail.
#[derive(Debug)]
struct SwitchedLog {
    inner: Arc<SimulatedConnection>,
    switches: Mutex<Switches>,
}

#[derive(Debug, Default)]
struct Switches {
    /// All calls fail.
    is_down: bool,
    appends_fail: bool,
    reads_fail: bool,
    /// The next append that succeeds makes reads fail.
    pauses: bool,
    /// How many appends have failed.
    failed_appends: u64,
}

impl SwitchedLog {
    fn new(log: &SimulatedLog) -> Arc<SwitchedLog> {
        Arc::new(SwitchedLog { inner: log.connect(), switches: Mutex::default() })
    }

    fn switches(&self) -> MutexGuard<'_, Switches> {
        self.switches.lock().expect("no panic")
    }

    fn reach(&self, fails: impl FnOnce(&Switches) -> bool) -> Result<(), LogError> {
        let switches = self.switches();
        match switches.is_down || fails(&switches) {
            true => Err(LogError::Unavailable("it is switched off".to_owned())),
            false => Ok(()),
        }
    }
}

impl ReplicatedLog for SwitchedLog {
    fn append(&self, record: &[u8]) -> Result<u64, LogError> {
        let reached = self.reach(|switches| switches.appends_fail);
        reached.inspect_err(|_| self.switches().failed_appends += 1)?;
        let offset = self.inner.append(record)?;
        let mut switches = self.switches();
        switches.reads_fail |= switches.pauses;
        Ok(offset)
    }

    fn read(&self, from: u64, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        self.reach(|switches| switches.reads_fail)?;
        self.inner.read(from, wait)
    }

    fn identity(&self) -> Result<String, LogError> {
        self.reach(|_| false)?;
        self.inner.identity()
    }

    fn truncate_before(&self, offset: u64) -> Result<(), LogError> {
        self.reach(|_| false)?;
        self.inner.truncate_before(offset)
    }

    fn range(&self) -> Result<(u64, u64), LogError> {
        self.reach(|_| false)?;
        self.inner.range()
    }
}

fn end_of(log: &SimulatedLog) -> u64 {
    log.connect().range().expect("it is there").1
}

/// Fault: the candidate went on in the same life, without the tables of the new primary, and panicked.
#[test]
fn candidate_that_reads_its_fence_and_the_next_one_at_once_follows() {
    let log = SimulatedLog::new(1);
    let paused = SwitchedLog::new(&log);
    let one = builder().start(Arc::clone(&paused) as _).expect("the node starts");
    let other = node(&log);
    wait_until("reading the log", || one.status().is_current);
    paused.switches().pauses = true;
    wait_until("a fence", || {
        let promoted = one.promote(Duration::from_millis(20)).map(|_| ());
        assert!(matches!(promoted, Err(ReplicationError::TimedOut)), "{promoted:?}");
        end_of(&log) == 1
    });
    // The other node reads this fence, and replaces a primary that does not know yet that it is one.
    let new = other.promote(LONG).expect("it becomes the primary");
    let token = add(&new, 100);
    *paused.switches() = Switches::default();
    one.wait_for(token, LONG).expect("it follows");
    assert_eq!((balance(&one), one.role()), (Some(100), NodeRole::Standby));
    assert_eq!((one.fault(), other.role()), (None, NodeRole::Primary));
    let token = add(&new, 1);
    one.wait_for(token, LONG).expect("it follows");
}

/// Fault: the fence of a new primary took the place of commits that the log had lost and the node had.
#[test]
fn promoted_node_appends_what_the_log_has_lost_before_its_fence() {
    // The node is promoted while the log is down, or is a candidate already when the log loses its end.
    for is_candidate in [false, true] {
        let log = SimulatedLog::new(2);
        let connection = log.connect();
        let one = builder().start(Arc::clone(&connection) as _).expect("the node starts");
        let switched = SwitchedLog::new(&log);
        let other = builder().start(Arc::clone(&switched) as _).expect("the node starts");
        let old = one.promote(LONG).expect("it becomes the primary");
        add(&old, 1);
        let kept = end_of(&log);
        add(&old, 10);
        let token = add(&old, 100);
        other.wait_for(token, LONG).expect("it follows");
        // The primary and all machines of the log fail.
        connection.cut_off(true);
        wait_until("reading the log", || other.records_behind().is_ok_and(|behind| behind == 0));
        match is_candidate {
            true => switched.switches().appends_fail = true,
            false => {
                switched.switches().is_down = true;
                wait_until("trouble", || other.trouble().is_some());
            }
        }
        let new = std::thread::scope(|scope| {
            let promoted = scope.spawn(|| other.promote(LONG));
            match is_candidate {
                true => wait_until("an append", || switched.switches().failed_appends > 0),
                false => std::thread::sleep(Duration::from_millis(50)),
            }
            log.lose_tail((end_of(&log) - kept) as usize);
            *switched.switches() = Switches::default();
            promoted.join().expect("no panic").expect("it becomes the primary")
        });
        assert_eq!(balance(&other), Some(111), "candidate: {is_candidate}");
        let token = add(&new, 1000);
        connection.cut_off(false);
        let third = node(&log);
        for node in [&one, &other, &third] {
            node.wait_for(token, LONG).expect("it follows");
            assert_eq!(balance(node), Some(1111), "candidate: {is_candidate}");
        }
    }
}

#[test]
fn standby_stays_current_while_the_log_is_down() {
    let log = SimulatedLog::new(3);
    let switched = SwitchedLog::new(&log);
    let one = builder().start(Arc::clone(&switched) as _).expect("the node starts");
    wait_until("reading the log", || one.status().is_current);
    switched.switches().is_down = true;
    wait_until("trouble", || one.trouble().is_some());
    std::thread::sleep(Duration::from_millis(20));
    assert!(one.status().is_current);
}

#[test]
fn promotion_goes_on_after_the_node_has_given_up_waiting_for_the_log() {
    let log = SimulatedLog::new(4);
    let options = Options { deadline: Duration::from_millis(20), ..by_call() };
    let switched = SwitchedLog::new(&log);
    let one = builder().options(options).start(Arc::clone(&switched) as _).expect("it starts");
    wait_until("reading the log", || one.status().is_current);
    switched.switches().appends_fail = true;
    let promoted = std::thread::scope(|scope| {
        let promoted = scope.spawn(|| one.promote(LONG));
        std::thread::sleep(Duration::from_millis(200));
        *switched.switches() = Switches::default();
        promoted.join().expect("no panic")
    });
    add(&promoted.expect("it becomes the primary"), 1);
}
