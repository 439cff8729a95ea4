//! Processes that run TPC-C on a database in a directory, and are killed in the middle of it.
//!
//! The process is this test program once more, at [`runs_until_it_is_killed`]. It says on its standard
//! output what was acknowledged as durable. Afterwards all of that is there, and every consistency
//! condition holds.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, scope, sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft::protocol::{Dbx, Protocol, TwoPhaseLocking};
use weft::schema::Record;
use weft::{Acknowledge, Builder, Database, DurabilityOptions, Failure, Table};
use weft_workloads::tpcc::schema::{Customer, District, History, Order};
use weft_workloads::tpcc::{Parameters, Scale, Tpcc};
use weft_workloads::{LoadOptions, Workload};

/// Decides the rows.
const LOAD_SEED: u64 = 7;
/// Threads that run transactions.
const THREADS: usize = 2;
/// What the process is told by its environment.
const DIRECTORY: &str = "WEFT_KILL_DIRECTORY";
const PROTOCOL: &str = "WEFT_KILL_PROTOCOL";
const SEED: &str = "WEFT_KILL_SEED";

fn parameters() -> Parameters {
    Parameters { warehouses: 1, scale: Scale::TINY, ..Parameters::default() }
}

/// Small segments and checkpoints often, so that kills find all of it under way.
fn builder<P: Protocol>(directory: &Path, acknowledge: Acknowledge) -> Builder<P> {
    let options = DurabilityOptions::new()
        .acknowledge(acknowledge)
        .epoch_interval(Duration::from_millis(2))
        .loggers(2)
        .segment_bytes(64 << 10)
        .checkpoint_log_bytes(Some(100 << 10))
        .threads(2);
    Database::<P>::builder().directory(directory).durability(options)
}

fn reopen<P: Protocol>(directory: &Path) -> Tpcc<P> {
    let builder = builder(directory, Acknowledge::Durable);
    Tpcc::reopen(builder, &parameters(), LOAD_SEED).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
#[ignore = "the others run it, as a process of its own"]
fn runs_until_it_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let protocol = std::env::var(PROTOCOL).expect("it is given a protocol");
    let seed = std::env::var(SEED).expect("it is given a seed").parse().expect("a number");
    match protocol.as_str() {
        Dbx::NAME => run::<Dbx>(Path::new(&directory), seed),
        TwoPhaseLocking::NAME => run::<TwoPhaseLocking>(Path::new(&directory), seed),
        other => panic!("no run under {other}"),
    }
}

/// Runs transactions until the end; it ends by itself only if nobody listens any more.
fn run<P: Protocol>(directory: &Path, seed: u64) {
    let tpcc = &reopen::<P>(directory);
    say("\nopen");
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut client = tpcc.client(seed, thread, THREADS);
                loop {
                    let outcome = tpcc.execute(&mut client).expect("it runs to its end");
                    match <Tpcc<P> as Workload<P>>::TRANSACTIONS[outcome.transaction] {
                        "neworder" if !outcome.rolled_back => {
                            let (w_id, d_id, o_id) = client.last_order().expect("it was entered");
                            say(&format!("order {w_id} {d_id} {o_id}"));
                        }
                        "payment" => say("payment"),
                        _ => {}
                    }
                }
            });
        }
    });
}

/// One line, at once and in one piece.
fn say(line: &str) {
    let line = format!("{line}\n");
    let mut output = std::io::stdout().lock();
    let said = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    said.expect("somebody listens");
}

/// A process that runs transactions.
struct Runner {
    child: Child,
    /// Told when the database is open.
    open: Receiver<()>,
    reader: JoinHandle<Acknowledged>,
}

/// What a process, or several, have said.
#[derive(Debug, Default)]
struct Acknowledged {
    orders: Vec<(u16, u8, u32)>,
    payments: usize,
}

impl Runner {
    fn start<P: Protocol>(directory: &Path, seed: u64) -> Runner {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runs_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .env(PROTOCOL, P::NAME)
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (is_open, open) = channel();
        let reader = spawn(move || {
            let mut acknowledged = Acknowledged::default();
            let mut line = String::new();
            while output.read_line(&mut line).unwrap() > 0 {
                let words: Vec<&str> = line.split_whitespace().collect();
                // A line that was not written to its end is none.
                match words[..] {
                    _ if !line.ends_with('\n') => {}
                    ["open"] => is_open.send(()).unwrap(),
                    ["payment"] => acknowledged.payments += 1,
                    ["order", w_id, d_id, o_id] => {
                        let number = |text: &str| text.parse::<u32>().unwrap();
                        let key = (number(w_id) as u16, number(d_id) as u8, number(o_id));
                        acknowledged.orders.push(key);
                    }
                    // What the test harness says.
                    _ => {}
                }
                line.clear();
            }
            acknowledged
        });
        Runner { child, open, reader }
    }

    fn wait_until_open(&self) {
        self.open.recv().expect("the process opens the database");
    }

    /// Sends SIGKILL, and returns what was said before.
    fn kill(mut self) -> Acknowledged {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended by itself: {ended:?}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap()
    }
}

/// All rows of some tables.
#[derive(PartialEq)]
struct Rows {
    districts: Vec<District>,
    customers: Vec<Customer>,
    orders: Vec<Order>,
    history: Vec<History>,
}

impl Rows {
    fn of<P: Protocol>(tpcc: &Tpcc<P>) -> Rows {
        fn all<R: Record, P: Protocol>(database: &Database<P>) -> Vec<R> {
            let table: Table<R, P> = database.table().unwrap();
            let snapshot = database.open_snapshot().unwrap();
            let rows = snapshot.rows(&table).map(|row| row.cloned());
            rows.collect::<Result<Vec<R>, Failure>>().unwrap()
        }
        let database = tpcc.database();
        let mut rows = Rows {
            districts: all(database),
            customers: all(database),
            orders: all(database),
            history: all(database),
        };
        // A hash table gives them in no order.
        rows.districts.sort_by_key(Record::key);
        rows.customers.sort_by_key(Record::key);
        rows.orders.sort_by_key(Record::key);
        rows.history.sort_by_key(Record::key);
        rows
    }
}

/// How much was tried.
#[derive(Debug, Default)]
struct Tried {
    kills: u32,
    while_opening: u32,
    orders: usize,
    payments: usize,
    with_cuts: u32,
    checkpoints: u32,
}

/// Checks what is there against all that was ever acknowledged.
fn check<P: Protocol>(
    tpcc: &Tpcc<P>,
    acknowledged: &Acknowledged,
    loaded_history: usize,
    circumstances: &str,
) -> Rows {
    let conditions = tpcc.verify(&|_, _| {}).unwrap();
    let broken: Vec<String> =
        conditions.iter().filter(|condition| !condition.holds).map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{circumstances}:\n{}", broken.join("\n"));
    let rows = Rows::of(tpcc);
    let keys = rows.orders.iter().map(|order| (order.o_w_id, order.o_d_id, order.o_id));
    let keys: std::collections::HashSet<_> = keys.collect();
    let lost: Vec<_> = acknowledged.orders.iter().filter(|key| !keys.contains(key)).collect();
    assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}: {circumstances}");
    let payments = rows.history.len() - loaded_history;
    assert!(
        payments >= acknowledged.payments,
        "{payments} payments of {}: {circumstances}",
        acknowledged.payments
    );
    rows
}

fn kill_again_and_again<P: Protocol>(rounds: u32) {
    let seed = match std::env::var("WEFT_SEED") {
        Ok(seed) => seed.parse().expect("WEFT_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = TemporaryDirectory::new(P::NAME);
    let loaded_history = {
        let builder = builder::<P>(&directory.0, Acknowledge::Committed);
        let options = LoadOptions { seed: LOAD_SEED, ..LoadOptions::default() };
        let tpcc = Tpcc::load_with(builder, &parameters(), &options).unwrap();
        tpcc.database().checkpoint().unwrap();
        Rows::of(&tpcc).history.len()
    };
    let mut acknowledged = Acknowledged::default();
    let mut tried = Tried::default();
    let mut checkpoint = None;
    for round in 0..rounds {
        let circumstances = format!("{}, round {round}, WEFT_SEED={seed}", P::NAME);
        println!("{circumstances}");
        let runner = Runner::start::<P>(&directory.0, random.u64(..));
        let while_opening = random.u8(..5) == 0;
        if while_opening {
            sleep(Duration::from_millis(random.u64(5..60)));
            tried.while_opening += 1;
        } else {
            runner.wait_until_open();
            sleep(Duration::from_millis(random.u64(50..400)));
        }
        let said = runner.kill();
        tried.kills += 1;
        acknowledged.orders.extend(said.orders);
        acknowledged.payments += said.payments;
        if round + 1 < rounds && random.u8(..4) == 0 {
            // Whatever is there is for the next process to recover.
            continue;
        }
        let tpcc = reopen::<P>(&directory.0);
        let recovered = tpcc.database().recovered().expect("it has a directory");
        tried.with_cuts += u32::from(!recovered.cuts.is_empty());
        tried.checkpoints += u32::from(recovered.checkpoint_epoch != checkpoint);
        checkpoint = recovered.checkpoint_epoch;
        let rows = check(&tpcc, &acknowledged, loaded_history, &circumstances);
        drop(tpcc);
        if random.bool() {
            let again = Rows::of(&reopen::<P>(&directory.0));
            assert!(again == rows, "opened again, it holds something else: {circumstances}");
        }
    }
    tried.orders = acknowledged.orders.len();
    tried.payments = acknowledged.payments;
    println!("{}: {tried:?}", P::NAME);
    assert!(tried.orders > 0 && tried.payments > 0, "nothing happened: {tried:?}");
}

fn stress() -> u32 {
    let given = std::env::var("WEFT_STRESS").ok();
    given.map_or(1, |factor| factor.parse().expect("WEFT_STRESS is a number"))
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged_dbx() {
    kill_again_and_again::<Dbx>(15 * stress());
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged_2pl() {
    kill_again_and_again::<TwoPhaseLocking>(15 * stress());
}

/// A directory that goes with the test, unless that fails.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new(name: &str) -> Self {
        let unique = format!("weft-kill-{name}-{}-{:x}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        TemporaryDirectory(path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the database is in {}", self.0.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
