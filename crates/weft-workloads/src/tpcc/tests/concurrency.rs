//! Every protocol, on a database so small that the clients' transactions conflict often.

use std::thread;

use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol};
use weft::{Error, Transaction};

use super::{assert_consistent, load, runnable_protocols};
use crate::snapshots::Snapshots;
use crate::tpcc::mix::TransactionType;
use crate::tpcc::schema::{DISTRICTS, Order, OrderLine};
use crate::tpcc::{DeliverySearch, Mix, Parameters, Scale, Tpcc, order_status, stock_level};
use crate::trials::with_protocol;
use crate::workload::Workload;

const THREADS: usize = 4;

fn transactions_per_thread() -> u32 {
    800 * weft_tests::stress() as u32
}

/// Runs `mix` under `P`. Returns how often each transaction ended, and how many were rolled back.
fn run<P: Protocol>(warehouses: u16, mix: Mix, seed: u64) -> ([u32; 5], u32) {
    run_with::<P>(Parameters { warehouses, mix, scale: Scale::TINY, ..Parameters::default() }, seed)
}

/// Runs the mix of the parameters. Returns the same as [`run`].
fn run_with<P: Protocol>(parameters: Parameters, seed: u64) -> ([u32; 5], u32) {
    let mix = parameters.mix;
    let threads = THREADS.min(P::WORKERS_MAX);
    let tpcc: Tpcc<P> = load(parameters, seed, threads);
    let (mut ended, mut rolled_back) = ([0; 5], 0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let tpcc = &tpcc;
                scope.spawn(move || {
                    let mut client = tpcc.client(seed, thread, threads);
                    (0..transactions_per_thread())
                        .map(|_| tpcc.execute(&mut client).expect("it runs to its end"))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for client in clients {
            for outcome in client.join().expect("no client panics") {
                ended[outcome.transaction] += 1;
                rolled_back += u32::from(outcome.rolled_back);
            }
        }
    });
    assert_consistent(&tpcc, &format!("{}, mix {mix}, seed {seed}", P::NAME));
    assert_eq!(ended.iter().sum::<u32>(), threads as u32 * transactions_per_thread());
    (ended, rolled_back)
}

/// Calls `test` with the name of every protocol that can run TPC-C.
fn for_each_protocol(test: impl Fn(&str)) {
    let protocols = runnable_protocols();
    assert!(!protocols.is_empty());
    protocols.into_iter().for_each(test);
}

#[test]
fn the_standard_mix_keeps_every_condition() {
    for_each_protocol(|name| {
        for (warehouses, delivery_search) in
            [(1, DeliverySearch::BehindLast), (3, DeliverySearch::FromStart)]
        {
            let parameters = Parameters {
                warehouses,
                scale: Scale::TINY,
                delivery_search,
                ..Parameters::default()
            };
            let (ended, rolled_back) =
                with_protocol!(name, |P| run_with::<P>(parameters.clone(), 11))
                    .expect("a name of the list");
            assert!(ended.iter().all(|&count| count > 20), "{name}: {ended:?}");
            let new_orders = ended[TransactionType::NewOrder as usize];
            assert!(
                rolled_back > 0 && rolled_back < new_orders / 20,
                "{name}: {rolled_back} of {new_orders}"
            );
        }
    });
}

/// Deliveries empty the districts, and read the end of an index, where orders are inserted.
#[test]
fn orders_against_deliveries_keep_every_condition() {
    for_each_protocol(|name| {
        let mix = Mix::weighted([60, 0, 10, 30, 0]).expect("a mix");
        with_protocol!(name, |P| run::<P>(1, mix, 12)).expect("a name of the list");
    });
}

/// Stock-Level and Order-Status on snapshots, while other transactions change the rows that they read.
#[test]
fn snapshots_beside_orders_and_deliveries_keep_every_condition() {
    for_each_protocol(|name| {
        for snapshots in [Snapshots::On, Snapshots::Recent] {
            let mix = Mix::weighted([30, 0, 30, 10, 30]).expect("a mix");
            let parameters =
                Parameters { mix, scale: Scale::TINY, snapshots, ..Parameters::default() };
            let (ended, _) = with_protocol!(name, |P| run_with::<P>(parameters.clone(), 15))
                .expect("a name of the list");
            assert!(ended[TransactionType::StockLevel as usize] > 0, "{name}");
            assert!(ended[TransactionType::OrderStatus as usize] > 0, "{name}");
        }
    });
}

/// While nothing changes, a snapshot has the rows that a transaction reads.
#[test]
fn snapshots_and_transactions_read_the_same() {
    const SEED: u64 = 16;
    let parameters = Parameters { scale: Scale::TINY, ..Parameters::default() };
    let tpcc: Tpcc<Dbx> = load(parameters, SEED, 1);
    let mut client = tpcc.client(SEED, 0, 1);
    for _ in 0..300 {
        tpcc.execute(&mut client).expect("it runs to its end");
        let input = stock_level::Input::draw(&mut client);
        let mut found = Vec::new();
        let by_transaction =
            tpcc.database.transact(|tx| stock_level::run(&tpcc.tables, tx, &input, &mut found));
        let by_snapshot = tpcc.database.snapshot(|snapshot| {
            stock_level::run::<Dbx>(&tpcc.tables, snapshot, &input, &mut found)
        });
        assert_eq!(by_snapshot.expect("reads"), by_transaction.expect("reads"), "seed {SEED}");

        let input = order_status::Input::draw(&mut client);
        let by_transaction =
            tpcc.database.transact(|tx| order_status::run(&tpcc.tables, tx, &input, &mut found));
        let by_snapshot = tpcc.database.snapshot(|snapshot| {
            order_status::run::<Dbx>(&tpcc.tables, snapshot, &input, &mut found)
        });
        assert_eq!(by_snapshot.expect("reads"), by_transaction.expect("reads"), "seed {SEED}");
    }
}

#[test]
fn each_transaction_alone_keeps_every_condition() {
    for_each_protocol(|name| {
        for transaction in TransactionType::ALL {
            let mix = Mix::only(transaction);
            let (ended, _) =
                with_protocol!(name, |P| run::<P>(1, mix, 13)).expect("a name of the list");
            assert!(ended[transaction as usize] > 0);
        }
    });
}

/// A reader's view of a district: order numbers that must be equal (condition 2), and the last order with its lines
/// (conditions 6 and 7).
struct DistrictView {
    last_used: u32,
    last_order: Order,
    last_new_order: Option<u32>,
    lines: Vec<OrderLine>,
}

/// Reads a district, in one of two orders, and lets other threads run between the reads. Their commits in the
/// meantime must not be visible, or the reader must not commit.
fn look<P: Protocol>(
    tpcc: &Tpcc<P>,
    tx: &Transaction<'_, P>,
    district: (u16, u8),
    backwards: bool,
) -> Result<DistrictView, Error> {
    let (w_id, d_id) = district;
    let last_used = || {
        let district = tx.get(&tpcc.tables.district, &district)?.expect("a district");
        Ok::<_, Error>(district.d_next_o_id - 1)
    };
    let last_order = || {
        let mut orders = tx.prefix(&tpcc.tables.order, &district).descending();
        orders.next().expect("a district has orders").cloned()
    };
    let last_new_order = || {
        let mut new_orders = tx.prefix(&tpcc.tables.new_order, &district).descending();
        Ok::<_, Error>(new_orders.next().transpose()?.map(|row| row.no_o_id))
    };
    let lines = |o_id| {
        let lines = tx.prefix(&tpcc.tables.order_line, &(w_id, d_id, o_id));
        lines.map(|line| line.cloned()).collect::<Result<Vec<_>, Error>>()
    };
    if backwards {
        let last_new_order = last_new_order()?;
        thread::yield_now();
        let last_order = last_order()?;
        thread::yield_now();
        let lines = lines(last_order.o_id)?;
        thread::yield_now();
        Ok(DistrictView { last_used: last_used()?, last_order, last_new_order, lines })
    } else {
        let last_used = last_used()?;
        thread::yield_now();
        let lines = lines(last_used)?;
        thread::yield_now();
        let last_order = last_order()?;
        thread::yield_now();
        Ok(DistrictView { last_used, last_order, last_new_order: last_new_order()?, lines })
    }
}

/// While orders are entered and delivered, one client reads districts. It must see each of them as of one moment.
fn readers_see_one_state<P: Protocol>(mix: Mix) {
    const SEED: u64 = 14;
    let parameters = Parameters { warehouses: 1, mix, scale: Scale::TINY, ..Parameters::default() };
    let threads = THREADS.min(P::WORKERS_MAX);
    let tpcc: Tpcc<P> = load(parameters, SEED, threads);
    let (tpcc, finished) = (&tpcc, &Word::new(0));
    let write = |thread| {
        let mut client = tpcc.client(SEED, thread, threads);
        for _ in 0..transactions_per_thread() {
            tpcc.execute(&mut client).expect("it runs to its end");
            // Yield so often that the reader's reads come in between, even if there are few cores.
            thread::yield_now();
        }
        // Relaxed: the count only tells the reader when to stop.
        finished.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        (1..threads).for_each(|thread| drop(scope.spawn(move || write(thread))));
        let mut number = 0_u32;
        while number < 100 || finished.load(Ordering::Relaxed) < threads as u64 - 1 {
            number += 1;
            let district = (1, (number % u32::from(DISTRICTS)) as u8 + 1);
            let backwards = (number / u32::from(DISTRICTS)).is_multiple_of(2);
            let sight = tpcc.database.transact(|tx| look(tpcc, tx, district, backwards));
            let DistrictView { last_used, last_order, last_new_order, lines } =
                sight.expect("it runs to its end");
            let context = format!("{}, mix {mix}, {district:?}, {last_order:?}", P::NAME);
            assert_eq!(last_order.o_id, last_used, "{context}");
            assert_eq!(last_new_order.unwrap_or(last_used), last_used, "{context}");
            assert_eq!(lines.len(), usize::from(last_order.o_ol_cnt), "{context}");
            for line in lines {
                let delivered = last_order.o_carrier_id.is_some();
                assert_eq!(line.ol_delivery_d.is_some(), delivered, "{context}: {line:?}");
            }
        }
    });
    assert_consistent(tpcc, P::NAME);
}

/// While orders are inserted, a reader that does not validate its scanned ranges misses some of them.
#[test]
fn readers_see_one_state_while_orders_are_entered() {
    for_each_protocol(|name| {
        let mix = Mix::only(TransactionType::NewOrder);
        with_protocol!(name, |P| readers_see_one_state::<P>(mix)).expect("a name of the list");
    });
}

/// While orders change, a reader that does not validate the rows that it has read sees some half delivered.
#[test]
fn readers_see_one_state_while_orders_are_delivered() {
    for_each_protocol(|name| {
        let mix = Mix::weighted([80, 0, 0, 20, 0]).expect("a mix");
        with_protocol!(name, |P| readers_see_one_state::<P>(mix)).expect("a name of the list");
    });
}
