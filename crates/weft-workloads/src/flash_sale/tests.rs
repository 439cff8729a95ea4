//! Tests of the flash sale: under every protocol nothing is oversold, and every order is counted once.

use std::cell::RefCell;

use crate::trials::with_protocol;
use weft::Error;
use weft::protocol::{Dbx, Protocol};

use super::{
    Buyer, FlashSale, Item, Order, Parameters, PlaceOrder, PlaceOrderByTake, Request, Restock,
    RestockByGive,
};
use crate::procedures::rehearsal::{AccessedRow, Change, Tally, subject};
use crate::stashing::RequestClient;
use crate::trials::{broken, load, run, runnable_protocols};
use crate::workload::{LoadOptions, Workload};

const FEW: Parameters =
    Parameters { items: 5, buyers: 10, hot: 1, hot_percent: 90, stock: 100, takes: false };

#[test]
fn nothing_is_oversold() {
    fn check<P: Protocol>() {
        for (seed, hot, takes) in [(41, 1, false), (42, 3, false), (45, 1, true), (46, 3, true)] {
            let sale: FlashSale<P> = load(&Parameters { hot, takes, ..FEW }, seed);
            let counts = run(&sale, 2_000, seed);
            let [orders, restocks] = counts[..] else { panic!("two types: {counts:?}") };
            assert!(orders[0] > 500 && restocks[0] > 5, "{}, seed {seed}: {counts:?}", P::NAME);
            assert!(orders[1] > 50, "{}, seed {seed}: some are refused", P::NAME);
        }
    }
    for name in runnable_protocols() {
        with_protocol!(name, |P| check::<P>()).expect("a name of the list");
    }
}

#[test]
fn hot_items_have_their_share() {
    const SEED: u64 = 43;
    const DRAWS: usize = 40_000;
    for hot in [1, 10] {
        let parameters = Parameters { items: 100, hot, hot_percent: 80, ..FEW };
        let sale: FlashSale<Dbx> = load(&parameters, SEED);
        let mut client = sale.client(SEED, 0, 1);
        let (mut restocks, mut items) = (0, [0; 100]);
        for _ in 0..DRAWS {
            let (Request::Order { item, .. } | Request::Restock { item }) = match client.draw() {
                request @ Request::Restock { .. } => {
                    restocks += 1;
                    request
                }
                request => request,
            };
            items[item as usize] += 1;
        }
        let near = |count: usize, share: f64| {
            let expected = share * DRAWS as f64;
            (count as f64 - expected).abs() < 5.0 * expected.sqrt()
        };
        assert!(near(restocks, 0.02), "seed {SEED}: {restocks}");
        let (of_hot, of_others) = items.split_at(hot as usize);
        assert!(
            of_hot.iter().all(|&count| near(count, 0.8 / hot as f64)),
            "seed {SEED}: {items:?}"
        );
        let share = 0.2 / (100 - hot) as f64;
        assert!(of_others.iter().all(|&count| near(count, share)), "seed {SEED}: {items:?}");
    }
}

#[test]
fn order_for_more_than_is_left_changes_nothing() {
    for takes in [false, true] {
        let sale: FlashSale<Dbx> = load(&Parameters { takes, ..FEW }, 44);
        let order = |units| {
            let request = Request::Order { buyer: 3, item: 2, units };
            sale.database.transact(|tx| sale.run(tx, &request)).expect("it runs to its end")
        };
        assert!(!order(FEW.stock + 1));
        assert_eq!(broken(&sale), [""; 0]);
        assert!(order(FEW.stock) && !order(1));
    }
}

/// Damages a database, and checks what verification reports.
#[test]
fn verification_finds_what_is_wrong() {
    fn change(sale: &FlashSale<Dbx>, change: fn(&mut Item)) -> Result<(), Error> {
        sale.database.transact(|tx| tx.update(&sale.tables.items, &0, change).map(drop))
    }
    type Damage = fn(&FlashSale<Dbx>) -> Result<(), Error>;
    let cases: [(Damage, &[&str]); 6] = [
        (
            |sale| sale.database.transact(|tx| tx.delete(&sale.tables.items, &0)).map(drop),
            &["each exists", "the units sold", "the units supplied"],
        ),
        (|sale| change(sale, |item| item.left += 1), &["left and sold"]),
        (
            |sale| {
                change(sale, |item| {
                    item.left += 1;
                    item.sold -= 1;
                })
            },
            &["the units sold"],
        ),
        (
            |sale| {
                let order = Order { buyer: 3, number: 100_000, item: 0, units: 0 };
                sale.database.transact(|tx| tx.insert(&sale.tables.orders, order))
            },
            &["buyers: each", "are numbered"],
        ),
        (
            |sale| {
                let forget = |row: &mut Buyer| row.orders -= 1;
                sale.database.transact(|tx| tx.update(&sale.tables.buyers, &3, forget).map(drop))
            },
            &["buyers: each"],
        ),
        (|sale| change(sale, |item| item.supplied += 1), &["left and sold", "the units supplied"]),
    ];
    for (damage, expected) in cases {
        const SEED: u64 = 45;
        let sale: FlashSale<Dbx> = load(&FEW, SEED);
        let mut client = sale.client(SEED, 0, 1);
        for _ in 0..500 {
            sale.execute(&mut client).expect("it runs to its end");
        }
        assert_eq!(broken(&sale), [""; 0]);
        damage(&sale).expect("it is done");
        let found = broken(&sale);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found:?}");
        }
    }
}

#[test]
fn repair_equals_a_run_from_the_start() {
    let sale: FlashSale<Dbx> = FlashSale::load(&FEW, &LoadOptions::default()).expect("loads");
    let mut client = sale.client(1, 0, 1);
    let mut tally = Tally::default();
    for seed in 0..300 {
        let random = RefCell::new(fastrand::Rng::with_seed(seed));
        let choose = |met: &[AccessedRow]| {
            let random = &mut random.borrow_mut();
            let (met, number) = (&met[random.usize(..met.len())], random.i64(0..5));
            vec![match (met.key::<Item>(), met.key::<Buyer>(), met.key::<Order>()) {
                (Some(&key), ..) => {
                    Change::update(&sale.tables.items, key, move |row: &mut Item| row.left = number)
                }
                (_, Some(&key), _) => {
                    Change::update(&sale.tables.buyers, key, move |row: &mut Buyer| {
                        row.orders += number as u32;
                    })
                }
                (.., Some(&(buyer, _))) => {
                    Change::update(&sale.tables.buyers, buyer, |row: &mut Buyer| row.units += 1)
                }
                _ => unreachable!("only three tables"),
            }]
        };
        let mut own = fastrand::Rng::with_seed(!seed);
        let tables = &sale.tables;
        let request = client.draw();
        let subject = match &request {
            Request::Order { buyer, item, units } if seed % 2 == 0 => {
                subject!(|| PlaceOrder::new(tables, *buyer, *item, *units))
            }
            Request::Order { buyer, item, units } => {
                subject!(|| PlaceOrderByTake::new(tables, *buyer, *item, *units))
            }
            Request::Restock { item } if seed % 2 == 0 => subject!(|| Restock::new(tables, *item)),
            Request::Restock { item } => subject!(|| RestockByGive::new(tables, *item)),
        };
        let context = format!("seed {seed}");
        tally.trial(sale.database(), &subject, subject.shape, &mut own, &choose, &context);
    }
    assert!(tally.kept > 0 && tally.ran_again > 0, "{tally:?}");
}
