//! Durable commits with and without replication, and how fast a standby applies them: `cargo bench -p weft-replication`.
//!
//! The replicated log is in memory, so this is what replication costs besides the log.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft::{Database, Record, Table, TransactionOptions};
use weft_changes::ChangeRing;
use weft_replication::{Node, NodeBuilder, ReplicationError, SimulatedLog};

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
}
