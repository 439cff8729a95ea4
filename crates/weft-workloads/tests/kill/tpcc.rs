//! TPC-C: every acknowledged order and payment is in the database, and every consistency condition holds.

use std::cell::Cell;
use std::path::Path;
use std::thread::scope;

use weft::protocol::Protocol;
use weft::schema::Record;
use weft::{Acknowledge, Database, Failure, Table};
use weft_workloads::tpcc::schema::{Customer, District, History, Order};
use weft_workloads::tpcc::{Parameters, Scale, Tpcc};
use weft_workloads::{LoadOptions, Workload};

use crate::process::{self, Killed, builder, say, say_open};

/// The name of the workload for the process.
pub const NAME: &str = "tpcc";

/// The seed of the load.
const LOAD_SEED: u64 = 7;
/// The number of threads that run transactions.
const THREADS: usize = 2;

fn parameters() -> Parameters {
    Parameters { warehouses: 1, scale: Scale::TINY, ..Parameters::default() }
}

fn reopen<P: Protocol>(directory: &Path) -> Tpcc<P> {
    let builder = builder(directory, Acknowledge::Durable);
    Tpcc::reopen(builder, &parameters(), LOAD_SEED).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs transactions until the process is killed. If the test no longer reads the output, it panics.
pub fn run<P: Protocol>(directory: &Path, seed: u64) {
    let tpcc = &reopen::<P>(directory);
    say_open();
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

/// The acknowledged transactions of one or more processes.
#[derive(Debug, Default)]
struct Acknowledged {
    orders: Vec<(u16, u8, u32)>,
    payments: usize,
}

impl Acknowledged {
    fn add(&mut self, line: &str) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["payment"] => self.payments += 1,
            ["order", w_id, d_id, o_id] => {
                let number = |text: &str| text.parse::<u32>().unwrap();
                self.orders.push((number(w_id) as u16, number(d_id) as u8, number(o_id)));
            }
            // A line of the test harness.
            _ => {}
        }
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
            let table: Table<R> = database.table().unwrap();
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
        // A hash table returns its rows in no particular order.
        rows.districts.sort_by_key(Record::key);
        rows.customers.sort_by_key(Record::key);
        rows.orders.sort_by_key(Record::key);
        rows.history.sort_by_key(Record::key);
        rows
    }
}

/// Checks that the database has all transactions that were ever acknowledged.
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
    assert!(lost.is_empty(), "lost although acknowledged: {lost:?}: {circumstances}");
    let payments = rows.history.len() - loaded_history;
    assert!(
        payments >= acknowledged.payments,
        "{payments} payments instead of {}: {circumstances}",
        acknowledged.payments
    );
    rows
}

/// Kills `rounds` processes that run TPC-C.
pub fn kill_again_and_again<P: Protocol>(rounds: u32) {
    let loaded_history = Cell::new(0);
    let load = |directory: &Path| {
        let builder = builder::<P>(directory, Acknowledge::Committed);
        let options = LoadOptions { seed: LOAD_SEED, ..LoadOptions::default() };
        let tpcc = Tpcc::load_with(builder, &parameters(), &options).unwrap();
        tpcc.database().checkpoint().unwrap();
        loaded_history.set(Rows::of(&tpcc).history.len());
    };
    let mut acknowledged = Acknowledged::default();
    let check = |killed: Killed<'_>| {
        killed.said.iter().for_each(|line| acknowledged.add(line));
        let tpcc = reopen::<P>(killed.directory);
        let rows = check(&tpcc, &acknowledged, loaded_history.get(), killed.circumstances);
        drop(tpcc);
        if killed.random.bool() {
            let again = Rows::of(&reopen::<P>(killed.directory));
            let circumstances = killed.circumstances;
            assert!(again == rows, "reopened, it has other rows: {circumstances}");
        }
    };
    process::kill_again_and_again::<P>(NAME, rounds, load, check);
    let Acknowledged { orders, payments } = &acknowledged;
    println!("{} orders and {payments} payments were acknowledged", orders.len());
    assert!(!orders.is_empty() && *payments > 0, "no transactions");
}
