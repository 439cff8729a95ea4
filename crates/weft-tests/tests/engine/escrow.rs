//! Tests of bounded columns: `take`, `give` and `add` succeed or say that there is not enough, and no column is ever
//! out of its bounds, under every protocol, in snapshots, and in the shares of a split row.

use std::time::Duration;

use weft::htm::word::{Ordering, Word};
use weft::operation::{Add, Max, OperationKind, Take};
use weft::protocol::{Dbx, Protocol, Silo};
use weft::{Database, Error, Failure, Record, Table, Violation, column_of};
use weft_protocols::doppel::{JoinedProtocol, PhaseReconciliation};
use weft_protocols::{BuilderExt, LabelledDatabase, NAMES, PhaseOptions, with_protocol};
use weft_tests::{Seed, over_joined_protocols, stress, threads};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Item {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
    /// Its least value is that of the type.
    pieces: u32,
    #[record(min = -5, max = 100)]
    seats: i8,
}

fn item(id: u32, stock: i64) -> Item {
    Item { id, stock, pieces: 3, seats: 98 }
}

fn open<P: Protocol>(stock: i64) -> (Database<P>, Table<Item>) {
    let database = Database::builder().protocol::<P>().table::<Item>().open().unwrap();
    let items = database.table::<Item>().unwrap();
    let inserted: Result<(), Error> = database.transact(|tx| tx.insert(&items, item(1, stock)));
    inserted.unwrap();
    (database, items)
}

fn stored<P: Protocol>(database: &Database<P>, items: &Table<Item>) -> Item {
    let read: Result<_, Error> = database.transact(|tx| Ok(*tx.get(items, &1)?.expect("an item")));
    read.unwrap()
}

fn failure<R: std::fmt::Debug>(result: Result<R, Error>) -> Failure {
    match result.expect_err("the operation fails") {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => panic!("{conflict}"),
    }
}

fn is_not_enough<R>(result: &Result<R, Error>) -> bool {
    matches!(result, Err(Error::Failure(Failure::NotEnough { .. })))
}

#[test]
fn bounded_operations_succeed_or_change_nothing_under_every_protocol() {
    fn run<P: Protocol>() {
        let (database, items) = open::<P>(5);
        let stock = column_of!(Item.stock);
        let take = |number| database.transact(|tx| tx.take(&items, &1, stock, number));
        take(4).unwrap();
        let failed = failure(take(2));
        let expected = Failure::NotEnough {
            table: "item",
            key: "1".into(),
            column: "stock",
            operation: OperationKind::Take,
            message: "1 - 2 is less than the minimum 0".into(),
        };
        assert_eq!(failed, expected, "{}", P::NAME);
        assert_eq!(
            failed.to_string(),
            "table item, key 1: take on column stock: 1 - 2 is less than the minimum 0"
        );
        let added = database.transact(|tx| tx.add(&items, &1, stock, -2));
        let Failure::NotEnough { operation: OperationKind::Add, .. } = failure(added) else {
            panic!("{}", P::NAME)
        };
        assert!(is_not_enough(&database.transact(|tx| tx.add(&items, &1, stock, i64::MAX))));
        database.transact(|tx| tx.give(&items, &1, stock, 2)).unwrap();
        take(3).unwrap();
        assert_eq!(stored(&database, &items).stock, 0, "{}", P::NAME);
        take(0).unwrap();

        let seats = column_of!(Item.seats);
        let give = |number| database.transact(|tx| tx.give(&items, &1, seats, number));
        give(2).unwrap();
        assert!(is_not_enough(&give(1)) && is_not_enough(&give(127)), "{}", P::NAME);
        database.transact(|tx| tx.take(&items, &1, seats, 105)).unwrap();
        assert!(is_not_enough(&database.transact(|tx| tx.take(&items, &1, seats, 1))));

        // Without declared bounds there are those of the type.
        let pieces = column_of!(Item.pieces);
        database.transact(|tx| tx.take(&items, &1, pieces, 3)).unwrap();
        assert!(is_not_enough(&database.transact(|tx| tx.take(&items, &1, pieces, 1))));

        // A negative number would turn a take into a gift.
        let refused = [
            database.transact(|tx| tx.take(&items, &1, stock, -1)),
            database.transact(|tx| tx.give(&items, &1, stock, -1)),
        ];
        for refused in refused {
            let Failure::OutOfRange { message, .. } = failure(refused) else { panic!() };
            assert_eq!(message, "-1 is negative", "{}", P::NAME);
        }
        let missing = database.transact(|tx| tx.take(&items, &2, stock, 1));
        assert!(matches!(failure(missing), Failure::NoSuchRow { .. }));

        // All other writes are checked.
        let writes = [
            database.transact(|tx| tx.update(&items, &1, |item| item.stock = -1).map(drop)),
            database.transact(|tx| {
                tx.update_columns(&items, &1, seats, |seats| *seats = 101).map(drop)
            }),
            database.transact(|tx| tx.insert(&items, item(2, -1))),
            database.transact(|tx| tx.min(&items, &1, stock, -7)),
            database.transact(|tx| tx.max(&items, &1, seats, 101)),
        ];
        for (write, expected) in writes.into_iter().zip([
            "stock: -1 is less than the minimum 0",
            "seats: 101 is more than the maximum 100",
            "stock: -1 is less than the minimum 0",
            "stock: -7 is less than the minimum 0",
            "seats: 101 is more than the maximum 100",
        ]) {
            let Failure::Constraint { violation, .. } = failure(write) else {
                panic!("{expected}")
            };
            assert_eq!(violation.to_string(), expected, "{}", P::NAME);
        }
        let expected = Item { stock: 0, pieces: 0, seats: -5, id: 1 };
        assert_eq!(stored(&database, &items), expected, "{}", P::NAME);
    }
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>());
    }
}

#[test]
fn closure_can_act_on_not_enough() {
    fn run<P: Protocol>() {
        if P::SINGLE_KEY {
            return;
        }
        let (database, items) = open::<P>(5);
        let stock = column_of!(Item.stock);
        // Takes 4 pieces, or all that there are.
        let take = || -> Result<i64, Error> {
            database.transact(|tx| match tx.take(&items, &1, stock, 4) {
                Err(Error::Failure(Failure::NotEnough { .. })) => {
                    let rest = tx.get(&items, &1)?.expect("an item").stock;
                    tx.take(&items, &1, stock, rest)?;
                    Ok(rest)
                }
                taken => taken.map(|()| 4),
            })
        };
        assert_eq!([take().unwrap(), take().unwrap(), take().unwrap()], [4, 1, 0], "{}", P::NAME);
        assert_eq!(stored(&database, &items).stock, 0);
    }
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>());
    }
}

/// *Not enough* is an observation: if another transaction gives something back before this one ends, this one is run
/// again, whether it passes the failure on or acts on it.
#[test]
fn not_enough_is_validated() {
    fn run<P: Protocol>() {
        for acts_on_it in [false, true] {
            let (database, items) = open::<P>(1);
            let stock = column_of!(Item.stock);
            let mut attempts = 0;
            let taken: Result<bool, Error> = database.transact(|tx| {
                attempts += 1;
                let taken = tx.take(&items, &1, stock, 2);
                if attempts == 1 {
                    std::thread::scope(|scope| {
                        let give = || database.transact(|tx| tx.give(&items, &1, stock, 1));
                        scope.spawn(give).join().unwrap()
                    })?;
                }
                match taken {
                    Err(Error::Failure(Failure::NotEnough { .. })) if acts_on_it => {
                        tx.update(&items, &1, |_| ())?;
                        Ok(false)
                    }
                    taken => taken.map(|()| true),
                }
            });
            assert!(taken.unwrap(), "{}", P::NAME);
            assert_eq!((attempts, stored(&database, &items).stock), (2, 0), "{}", P::NAME);
        }
    }
    run::<Dbx>();
    run::<Silo>();
}

/// A commit applies a take again to a row that others have replaced, as long as there is enough.
#[test]
fn take_is_applied_again_while_there_is_enough() {
    fn run<P: Protocol>() {
        for (others, expected) in [(3, Ok(0)), (4, Err(1))] {
            let (database, items) = open::<P>(5);
            let stock = column_of!(Item.stock);
            let mut attempts = 0;
            let taken: Result<(), Error> = database.transact(|tx| {
                attempts += 1;
                tx.take(&items, &1, stock, 2)?;
                if attempts == 1 {
                    std::thread::scope(|scope| {
                        let take = || database.transact(|tx| tx.take(&items, &1, stock, others));
                        scope.spawn(take).join().unwrap()
                    })?;
                }
                Ok(())
            });
            let reapplied = database.metrics().reapplied;
            match expected {
                Ok(rest) => {
                    taken.unwrap();
                    assert_eq!((attempts, reapplied), (1, 1), "{}", P::NAME);
                    assert_eq!(stored(&database, &items).stock, rest, "{}", P::NAME);
                }
                Err(rest) => {
                    assert!(is_not_enough(&taken), "{}", P::NAME);
                    assert_eq!((attempts, reapplied), (2, 0), "{}", P::NAME);
                    assert_eq!(stored(&database, &items).stock, rest, "{}", P::NAME);
                }
            }
        }
    }
    run::<Dbx>();
    run::<Silo>();
}

/// Fault: operations that are applied again were only checked together, so a take from which something was given back later
/// succeeded although there was not enough for it.
#[test]
fn operations_are_applied_again_only_if_there_is_enough_for_each() {
    fn run<P: Protocol>() {
        let (database, items) = open::<P>(5);
        database.transact(|tx| tx.insert(&items, item(2, 0))).unwrap();
        let stock = column_of!(Item.stock);
        let mut attempts = 0;
        let taken: Result<(), Error> = database.transact(|tx| {
            attempts += 1;
            tx.take(&items, &1, stock, 3)?;
            tx.give(&items, &1, stock, 3)?;
            if attempts == 1 {
                let others = || {
                    database.transact(|tx| {
                        tx.take(&items, &1, stock, 4)?;
                        tx.give(&items, &2, stock, 1)
                    })
                };
                std::thread::scope(|scope| scope.spawn(others).join().unwrap())?;
                // So this transaction comes after the other one, which has left too little.
                assert_eq!(tx.get(&items, &2)?.map(|item| item.stock), Some(1));
            }
            Ok(())
        });
        assert!(is_not_enough(&taken), "{}: {taken:?}", P::NAME);
        assert_eq!((attempts, database.metrics().reapplied), (2, 0), "{}", P::NAME);
        assert_eq!(stored(&database, &items).stock, 1, "{}", P::NAME);
    }
    run::<Dbx>();
    run::<Silo>();
}

#[derive(Clone, Copy, Debug, Record)]
#[record(storage = "hash")]
struct Bought {
    #[record(key)]
    buyer: u32,
    pieces: i64,
}

/// Sells pieces of one item, some of which are given back, and looks at the whole in between. No piece is lost or
/// sold twice, and *not enough* is said only if there was not enough for anybody.
fn sell<P: Protocol>(
    database: &Database<P>,
    seed: &Seed,
    wanted_max: i64,
    prepare: impl FnOnce(&Table<Item>),
) {
    const PIECES: i64 = 300;
    const BUYERS: u32 = 3;
    let (items, bought) = (database.table::<Item>().unwrap(), database.table::<Bought>().unwrap());
    let filled: Result<(), Error> = database.transact(|tx| {
        tx.insert(&items, item(1, PIECES))?;
        (0..BUYERS).try_for_each(|buyer| tx.insert(&bought, Bought { buyer, pieces: 0 }))
    });
    filled.unwrap();
    prepare(&items);
    let stock = column_of!(Item.stock);
    let running = Word::new(u64::from(BUYERS));
    std::thread::scope(|scope| {
        for buyer in 0..BUYERS {
            let (items, bought, running) = (&items, &bought, &running);
            let mut random = seed.random(buyer as usize);
            scope.spawn(move || {
                let mut refused = 0;
                while refused < 20 {
                    let wanted = random.i64(1..=wanted_max);
                    let rolls_back = random.u8(..16) == 0;
                    let gives_back = random.u8(..8) == 0;
                    let done: Result<(), Error> = database.transact(|tx| {
                        tx.take(items, &1, stock, wanted)?;
                        tx.add(bought, &buyer, column_of!(Bought.pieces), wanted)?;
                        if gives_back {
                            tx.give(items, &1, stock, 1)?;
                            tx.add(bought, &buyer, column_of!(Bought.pieces), -1)?;
                        }
                        if rolls_back { Err(Failure::Closed.into()) } else { Ok(()) }
                    });
                    match done {
                        Ok(()) => {}
                        Err(Error::Failure(Failure::NotEnough { .. })) => refused += 1,
                        Err(Error::Failure(Failure::Closed)) => assert!(rolls_back),
                        Err(other) => panic!("{other}"),
                    }
                }
                running.fetch_add(u64::MAX, Ordering::SeqCst);
            });
        }
        let mut turn = 0;
        while running.load(Ordering::SeqCst) > 0 {
            turn += 1;
            let seen: Result<(i64, i64), Error> = if turn % 2 == 0 {
                database.snapshot(|view| {
                    let left = view.get(&items, &1)?.expect("an item").stock;
                    let sold = (0..BUYERS)
                        .map(|buyer| Ok(view.get(&bought, &buyer)?.expect("a buyer").pieces));
                    Ok((left, sold.sum::<Result<i64, Error>>()?))
                })
            } else {
                database.transact(|tx| {
                    let left = tx.get(&items, &1)?.expect("an item").stock;
                    let sold = (0..BUYERS)
                        .map(|buyer| Ok(tx.get(&bought, &buyer)?.expect("a buyer").pieces));
                    Ok((left, sold.sum::<Result<i64, Error>>()?))
                })
            };
            let (left, sold) = seen.unwrap();
            assert!(left >= 0, "{left}: {}", P::NAME);
            assert_eq!(left + sold, PIECES, "{}", P::NAME);
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    let left = stored(database, &items).stock;
    assert!((0..wanted_max).contains(&left), "{left} are left: {}", P::NAME);
}

#[test]
fn every_piece_is_sold_once_under_every_protocol() {
    fn run<P: Protocol>(seed: &Seed) {
        if P::SINGLE_KEY || threads::<P>() == 1 {
            return;
        }
        let database =
            Database::builder().protocol::<P>().table::<Item>().table::<Bought>().open().unwrap();
        sell(&database, seed, 3, |_| ());
    }
    let seed = Seed::draw();
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>(&seed));
    }
}

/// A database whose rows are split as soon as they are labelled. Only a transaction that waits, or a snapshot, ends a
/// phase.
fn split_database<J: JoinedProtocol>(length: Duration) -> Database<PhaseReconciliation<J>> {
    let phases = PhaseOptions::new().length(length);
    let builder = Database::builder().protocol::<PhaseReconciliation<J>>();
    builder.table::<Item>().table::<Bought>().table::<Priced>().phases(phases).open().unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(check(Priced::check_price, columns(price, discount)))]
struct Priced {
    #[record(key)]
    id: u32,
    #[record(min = 0, max = 1_000)]
    stock: i64,
    price: i64,
    discount: i64,
}

impl Priced {
    fn check_price(price: &i64, discount: &i64) -> Result<(), Violation> {
        if discount > price { Err("the discount is more than the price".into()) } else { Ok(()) }
    }
}

over_joined_protocols! {
    every_piece_of_a_split_row_is_sold_once
    one_worker_can_take_everything_in_a_split_phase
    row_with_checks_on_other_columns_is_split
}

mod cases {
    use super::*;

    pub fn every_piece_of_a_split_row_is_sold_once<J: JoinedProtocol>() {
        let seed = Seed::draw();
        for round in 0..4 * stress() as u64 {
            let database = split_database::<J>(Duration::from_millis(1 + round % 3));
            sell(&database, &seed, 1 + round as i64 % 3, |items| {
                database.label_split::<_, _, Take<_>>(items, &1, column_of!(Item.stock)).unwrap();
            });
        }
    }

    /// One worker takes all that there is, also what would be the share of others: the total decides.
    pub fn one_worker_can_take_everything_in_a_split_phase<J: JoinedProtocol>() {
        let database = split_database::<J>(Duration::from_secs(3600));
        let items = database.table::<Item>().unwrap();
        let filled: Result<(), Error> = database.transact(|tx| tx.insert(&items, item(1, 102)));
        filled.unwrap();
        let stock = column_of!(Item.stock);
        database.label_split::<_, _, Add<_>>(&items, &1, stock).unwrap();
        let phases = || database.metrics().phases.unwrap();
        while !phases().is_split {
            let idle: Result<(), Error> = database.transact(|tx| tx.take(&items, &1, stock, 0));
            idle.unwrap();
        }
        let begun = phases();
        for _ in 0..10 {
            let taken: Result<(), Error> = database.transact(|tx| {
                tx.take(&items, &1, stock, 12)?;
                tx.give(&items, &1, stock, 2)
            });
            taken.unwrap();
            // What is rolled back returns to the share.
            let undone: Result<(), Error> = database.transact(|tx| {
                tx.add(&items, &1, stock, 3)?;
                Err(Failure::Closed.into())
            });
            assert_eq!(failure(undone), Failure::Closed);
        }
        let after = phases();
        assert_eq!((after.split_phases, after.refused), (begun.split_phases, begun.refused));
        assert!(after.is_split);
        // Only two are left. This is decided on the row, for which the phase ends.
        let failed = database.transact(|tx| tx.take(&items, &1, stock, 3));
        assert!(is_not_enough(&failed), "{failed:?}");
        assert!(phases().refused > after.refused);
        assert_eq!(stored(&database, &items).stock, 2);
    }

    /// A check forbids to split the columns that it reads, and no others.
    pub fn row_with_checks_on_other_columns_is_split<J: JoinedProtocol>() {
        let database = split_database::<J>(Duration::from_secs(3600));
        let priced = database.table::<Priced>().unwrap();
        let row = Priced { id: 1, stock: 10, price: 5, discount: 0 };
        let filled: Result<(), Error> = database.transact(|tx| tx.insert(&priced, row));
        filled.unwrap();
        let reason = |labelled: Result<(), Failure>| match labelled {
            Err(Failure::Unsplittable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let refused = database.label_split::<_, _, Add<_>>(&priced, &1, column_of!(Priced.price));
        assert!(reason(refused).starts_with("a check reads the column"));
        let refused = database.label_split::<_, _, Max<_>>(&priced, &1, column_of!(Priced.stock));
        assert!(reason(refused).starts_with("the column has bounds"));
        database.label_split::<_, _, Add<_>>(&priced, &1, column_of!(Priced.stock)).unwrap();
        let stock = column_of!(Priced.stock);
        while !database.metrics().phases.unwrap().is_split {
            let taken: Result<(), Error> = database.transact(|tx| tx.give(&priced, &1, stock, 1));
            taken.unwrap();
        }
        let taken: Result<(), Error> = database.transact(|tx| tx.take(&priced, &1, stock, 1));
        taken.unwrap();
        assert!(database.metrics().phases.unwrap().is_split);
        let raised = database.transact(|tx| tx.add(&priced, &1, column_of!(Priced.discount), 6));
        let Failure::Constraint { violation, .. } = failure(raised) else { panic!() };
        assert_eq!(violation.to_string(), "check_price: the discount is more than the price");
    }
}

/// Two threads sell from one split row, while a third looks. What is left and what was sold are the same in all.
#[test]
fn total_is_exact_beside_splitting_without_labels() {
    let database = split_database::<Silo>(Duration::from_millis(2));
    let items = database.table::<Item>().unwrap();
    const PIECES: i64 = 200_000;
    let filled: Result<(), Error> = database.transact(|tx| tx.insert(&items, item(1, PIECES)));
    filled.unwrap();
    let sold = Word::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let taken: Result<(), Error> =
                        database.transact(|tx| tx.take(&items, &1, column_of!(Item.stock), 1));
                    match taken {
                        Ok(()) => sold.fetch_add(1, Ordering::Relaxed),
                        Err(Error::Failure(Failure::NotEnough { .. })) => break,
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert_eq!(sold.load(Ordering::Relaxed), PIECES as u64);
    assert_eq!(stored(&database, &items).stock, 0);
}
