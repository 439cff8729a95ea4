//! A flash sale: many buyers, one item, and a stock that must not become negative. Measures what one and several
//! threads sell per second by `take`, and by `update` with the same bound, under several protocols.
//!
//! `cargo bench -p weft-protocols --bench flash_sale -- [THREADS] [SECONDS]`

use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol, Silo};
use weft::{Database, Error, Failure, Record, column_of};
use weft_protocols::{Adaptive, Doppel};

#[derive(Clone, Copy, Record)]
#[record(storage = "hash")]
struct Item {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
}

/// More than can be sold in a run.
const STOCK: i64 = 10_000_000_000;

/// How a piece is bought.
type Buy<P> = fn(&weft::Transaction<'_, P>, &weft::Table<Item>) -> Result<(), Error>;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .map(|it| it.parse::<u64>().expect("a number"));
    let (threads, seconds) = (arguments.next().unwrap_or(2), arguments.next().unwrap_or(2));
    for threads in [1, threads] {
        run::<Dbx>(threads, seconds);
        run::<Silo>(threads, seconds);
        run::<Doppel>(threads, seconds);
        run::<Adaptive>(threads, seconds);
    }
    sell_out();
}

fn run<P: Protocol>(threads: u64, seconds: u64) {
    let take: Buy<P> = |tx, items| tx.take(items, &1, column_of!(Item.stock), 1);
    let update: Buy<P> = |tx, items| {
        tx.update(items, &1, |item| item.stock -= 1).map(|changed| assert!(changed.is_some()))
    };
    for (name, buy) in [("take", take), ("update", update)] {
        let (database, items) = open::<P>(STOCK);
        let ends = Word::new(0);
        let began = Instant::now();
        let sold: i64 = std::thread::scope(|scope| {
            let sellers: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        let mut sold = 0;
                        while ends.load(Ordering::Relaxed) == 0 {
                            database.transact(|tx| buy(tx, &items)).expect("there is enough");
                            sold += 1;
                        }
                        sold
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_secs(seconds));
            ends.store(1, Ordering::Relaxed);
            sellers.into_iter().map(|seller| seller.join().expect("it does not panic")).sum()
        });
        let rate = sold as f64 / began.elapsed().as_secs_f64() / 1e6;
        assert_eq!(stock(&database, &items), STOCK - sold, "each piece is sold once");
        println!("{:>8} {name:>7} {threads} threads {rate:8.2} million a second", P::NAME);
    }
}

/// Sells everything under `doppel`, and counts who is told that there is not enough.
fn sell_out() {
    let pieces = 1_000_000;
    let (database, items) = open::<Doppel>(pieces);
    let began = Instant::now();
    let sold: i64 = std::thread::scope(|scope| {
        let sellers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut sold = 0;
                    loop {
                        let taken: Result<(), Error> =
                            database.transact(|tx| tx.take(&items, &1, column_of!(Item.stock), 1));
                        match taken {
                            Ok(()) => sold += 1,
                            Err(Error::Failure(Failure::NotEnough { .. })) => return sold,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        sellers.into_iter().map(|seller| seller.join().expect("it does not panic")).sum()
    });
    assert_eq!((sold, stock(&database, &items)), (pieces, 0));
    println!("{pieces} pieces were sold in {:?}", began.elapsed());
}

fn open<P: Protocol>(stock: i64) -> (Database<P>, weft::Table<Item>) {
    let database =
        Database::builder().protocol::<P>().table::<Item>().open().expect("it opens in memory");
    let items = database.table::<Item>().expect("it was named");
    let inserted: Result<(), Error> =
        database.transact(|tx| tx.insert(&items, Item { id: 1, stock }));
    inserted.expect("the table is empty");
    (database, items)
}

fn stock<P: Protocol>(database: &Database<P>, items: &weft::Table<Item>) -> i64 {
    let read: Result<i64, Error> =
        database.transact(|tx| Ok(tx.get(items, &1)?.expect("the item is there").stock));
    read.expect("it is readable")
}
