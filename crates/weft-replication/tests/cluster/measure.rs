//! Replicated commits beside local ones, the lag of a standby, and what compression costs. Runs only with
//! `WEFT_KAFKA_MEASURE`, the seconds for each figure; use a release build, and a machine that does nothing else.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use weft::protocol::Dbx;
use weft::{Acknowledge, Database, DurabilityOptions, Record, Table, Transaction};
use weft_replication::kafka::{KafkaLog, KafkaOptions};
use weft_replication::{Node, NodeBuilder, Options, Primary, ReplicationError};

use crate::brokers::Cluster;

const ACCOUNTS: u32 = 10_000;
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Record)]
struct Account {
    #[record(key)]
    id: u32,
    cents: i64,
    owner: String,
}

#[derive(Clone, Copy, Debug)]
enum Workload {
    /// Money goes from one of many accounts to another.
    Transfers,
    /// Every transaction adds to the same row.
    OneHotRow,
}

/// Where transactions run.
enum Place {
    Local(Database<Dbx>),
    Replicated(Primary<Dbx>),
}

impl Place {
    fn database(&self) -> &Database<Dbx> {
        match self {
            Place::Local(database) => database,
            Place::Replicated(primary) => primary.database(),
        }
    }

    fn run(
        &self,
        accounts: &Table<Account>,
        body: impl Fn(&Transaction<'_, Dbx>, &Table<Account>) -> Result<(), ReplicationError>,
    ) {
        match self {
            Place::Local(database) => database.transact(|tx| body(tx, accounts)),
            Place::Replicated(primary) => primary.transact(|tx| body(tx, accounts)).map(|_| ()),
        }
        .expect("it commits");
    }

    fn fill(&self) {
        let accounts = self.database().table::<Account>().expect("it is there");
        for first in (0..ACCOUNTS).step_by(1000) {
            self.run(&accounts, |tx, accounts| {
                for id in first..first + 1000 {
                    let owner = format!("owner {id} of an account");
                    tx.upsert(accounts, Account { id, cents: 0, owner })?;
                }
                Ok(())
            });
        }
    }
}

fn transaction(place: &Place, accounts: &Table<Account>, workload: Workload, rng: &mut Rng) {
    let (from, to) = (rng.u32(..ACCOUNTS), rng.u32(..ACCOUNTS));
    place.run(accounts, |tx, accounts| {
        match workload {
            Workload::Transfers => {
                tx.update(accounts, &from, |account| account.cents -= 1)?;
                tx.update(accounts, &to, |account| account.cents += 1)?;
            }
            Workload::OneHotRow => {
                tx.update(accounts, &0, |account| account.cents += 1)?;
            }
        }
        Ok(())
    });
}

/// Runs transactions, and prints how many there were and how long they took.
fn measure(name: &str, place: &Place, workload: Workload, clients: usize, time: Duration) {
    let end = Instant::now() + time;
    let client = |seed: u64| {
        let mut rng = Rng::with_seed(seed);
        let accounts = place.database().table::<Account>().expect("it is there");
        let mut took = Vec::new();
        while Instant::now() < end {
            let begin = Instant::now();
            transaction(place, &accounts, workload, &mut rng);
            took.push(begin.elapsed());
        }
        took
    };
    let client = &client;
    let mut took: Vec<Duration> = thread::scope(|scope| {
        let running: Vec<_> =
            (0..clients).map(|number| scope.spawn(move || client(number as u64))).collect();
        running.into_iter().flat_map(|running| running.join().expect("no panic")).collect()
    });
    took.sort_unstable();
    let at = |share: f64| took[(took.len() as f64 * share) as usize];
    let each_second = took.len() as f64 / time.as_secs_f64();
    let (median, most) = (at(0.5), at(0.99));
    println!(
        "| {name} | {workload:?} | {clients} | {each_second:.0} | {median:.1?} | {most:.1?} |"
    );
}

/// Measures how far a standby is behind while the primary works, until `is_over`.
fn measure_lag(primary: &Primary<Dbx>, standby: &Node<Dbx>, is_over: &AtomicBool) {
    let accounts = primary.database().table::<Account>().expect("it is there");
    let (mut records, mut times) = (Vec::new(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let id = ACCOUNTS - 1;
        let update = primary.transact(|tx| {
            Ok::<_, ReplicationError>(tx.update(&accounts, &id, |account| account.cents += 1)?)
        });
        let token = update.expect("it commits").1;
        let begin = Instant::now();
        standby.wait_for(token, LIMIT).expect("it follows");
        times.push(begin.elapsed());
        records.push(standby.records_behind().expect("it answers"));
        thread::sleep(Duration::from_millis(20));
    }
    times.sort_unstable();
    records.sort_unstable();
    let (last, middle) = (times.len() - 1, times.len() / 2);
    println!(
        "a standby has a commit after the primary has acknowledged it: median {:.1?}, worst {:.1?}; records behind: median {}, most {}",
        times[middle], times[last], records[middle], records[last]
    );
}

/// Prints how fast the log of a database is compressed.
fn measure_compression(directory: &std::path::Path) {
    let mut bytes = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("it is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "log") {
                bytes.extend(fs::read(path).expect("it is read"));
            }
        }
    }
    assert!(!bytes.is_empty(), "there is no log in {}", directory.display());
    // The space that was allocated in advance would compress too well.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    let begin = Instant::now();
    let compressed: usize = bytes
        .chunks(64 << 10)
        .map(|chunk| lz4_flex::block::compress_prepend_size(chunk).len())
        .sum();
    let speed = bytes.len() as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let share = compressed as f64 / bytes.len() as f64;
    println!(
        "compression: {speed:.0} MB/s on one core, to {:.0} % of {} bytes",
        share * 100.0,
        bytes.len()
    );
}

#[test]
fn replicated_and_local_commits() {
    let Ok(seconds) = std::env::var("WEFT_KAFKA_MEASURE") else { return };
    let Some(cluster) = Cluster::start("measure") else { return };
    let time = Duration::from_secs_f64(seconds.parse().expect("a number"));
    let directory = cluster.directory.join("local");
    let local = Database::builder()
        .workers_max(80)
        .table::<Account>()
        .directory(&directory)
        .durability(DurabilityOptions::new().acknowledge(Acknowledge::Durable));
    let local = Place::Local(local.open().expect("it opens"));
    cluster.create_topic("measure");
    let addresses = cluster.admin_addresses();
    let addresses: Vec<&str> = addresses.iter().map(|address| &**address).collect();
    let start = || {
        let log = KafkaLog::open(&KafkaOptions::new(&addresses, "measure")).expect("it opens");
        let builder = NodeBuilder::new(|| Database::builder().workers_max(80)).table::<Account>();
        let options = Options { silence: None, ..Options::default() };
        builder.options(options).start(Arc::new(log)).expect("it starts")
    };
    let nodes = [start(), start()];
    let replicated = Place::Replicated(nodes[0].promote(LIMIT).expect("it is promoted"));
    println!("| | workload | clients | commits a second | median | p99 |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (name, place) in [("local", &local), ("replicated", &replicated)] {
        place.fill();
        for workload in [Workload::Transfers, Workload::OneHotRow] {
            for clients in [1, 8, 64] {
                measure(name, place, workload, clients, time);
            }
        }
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let primary = nodes[0].primary().expect("it is the primary");
        let (standby, is_over) = (&nodes[1], &is_over);
        scope.spawn(move || measure_lag(&primary, standby, is_over));
        measure("with a standby watched", &replicated, Workload::Transfers, 64, time);
        is_over.store(true, Ordering::Relaxed);
    });
    drop(local);
    measure_compression(&directory);
}
