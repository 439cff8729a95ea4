//! Every protocol, on a database so small that clients keep getting in each other's way.

use std::thread;

use weft::protocol::{NAMES, Protocol};

use super::{assert_consistent, load};
use crate::tpcc::mix::TransactionType;
use crate::tpcc::{Mix, Parameters, Scale, Tpcc, order_status};
use crate::workload::Workload;

const THREADS: usize = 4;
const TRANSACTIONS_PER_THREAD: u32 = 2_000;

/// Runs `mix` under `P`; how often each transaction ended, and how many were rolled back.
fn run<P: Protocol>(warehouses: u16, mix: Mix, seed: u64) -> ([u32; 5], u32) {
    let parameters = Parameters { warehouses, mix, scale: Scale::TINY };
    let threads = THREADS.min(P::WORKERS_MAX);
    let tpcc: Tpcc<P> = load(parameters, seed, threads);
    let (mut ended, mut rolled_back) = ([0; 5], 0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let tpcc = &tpcc;
                scope.spawn(move || {
                    let mut client = tpcc.client(seed, thread, threads);
                    (0..TRANSACTIONS_PER_THREAD)
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
    assert_eq!(ended.iter().sum::<u32>(), threads as u32 * TRANSACTIONS_PER_THREAD);
    (ended, rolled_back)
}

fn for_each_protocol(test: impl Fn(&str)) {
    assert!(!NAMES.is_empty());
    NAMES.iter().for_each(|name| test(name));
}

#[test]
fn the_standard_mix_keeps_every_condition() {
    for_each_protocol(|name| {
        for warehouses in [1, 3] {
            let (ended, rolled_back) =
                weft::protocol::with_protocol!(name, |P| run::<P>(warehouses, Mix::STANDARD, 11))
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

/// Deliveries empty the districts and wait at the end of an index for orders to deliver.
#[test]
fn orders_against_deliveries_keep_every_condition() {
    for_each_protocol(|name| {
        let mix = Mix::weighted([60, 0, 10, 30, 0]).expect("a mix");
        weft::protocol::with_protocol!(name, |P| run::<P>(1, mix, 12)).expect("a name of the list");
    });
}

#[test]
fn each_transaction_alone_keeps_every_condition() {
    for_each_protocol(|name| {
        for transaction in TransactionType::ALL {
            let mix = Mix::only(transaction);
            let (ended, _) = weft::protocol::with_protocol!(name, |P| run::<P>(1, mix, 13))
                .expect("a name of the list");
            assert!(ended[transaction as usize] > 0);
        }
    });
}

/// While orders are entered and delivered, one client asks for their status: it must find each
/// order whole, and delivered whole or not at all.
fn readers_see_whole_orders<P: Protocol>() {
    const SEED: u64 = 14;
    let mix = Mix::weighted([50, 0, 0, 50, 0]).expect("a mix");
    let parameters = Parameters { warehouses: 1, mix, scale: Scale::TINY };
    let threads = THREADS.min(P::WORKERS_MAX);
    let tpcc: Tpcc<P> = load(parameters, SEED, threads);
    let write = |thread| {
        let mut client = tpcc.client(SEED, thread, threads);
        for _ in 0..TRANSACTIONS_PER_THREAD {
            tpcc.execute(&mut client).expect("it runs to its end");
        }
    };
    let read = |thread| {
        let mut client = tpcc.client(SEED, thread, threads);
        let mut found = Vec::new();
        for _ in 0..TRANSACTIONS_PER_THREAD {
            let input = order_status::Input::draw(&mut client);
            let output = tpcc
                .database
                .transact(|tx| order_status::run(&tpcc.tables, tx, &input, &mut found))
                .expect("it runs to its end");
            let order = output.order.expect("every customer has an order");
            let context = format!("{}, seed {SEED}: {order:?}", P::NAME);
            assert!(order.lines.len() >= 5, "{context}");
            for line in &order.lines {
                assert_eq!(line.delivery_d.is_some(), order.carrier_id.is_some(), "{context}");
            }
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|thread| drop(scope.spawn(move || write(thread))));
        read(0);
    });
    assert_consistent(&tpcc, P::NAME);
}

#[test]
fn order_status_sees_whole_orders() {
    for_each_protocol(|name| {
        weft::protocol::with_protocol!(name, |P| readers_see_whole_orders::<P>())
            .expect("a name of the list");
    });
}
