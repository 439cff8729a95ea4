//! Operations on columns: each is at the transaction that made it, whenever it reaches the row.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft::durability::SimulatedDisk;
use weft::operation::{Add, Take};
use weft::protocol::{Dbx, Protocol};
use weft::{
    Acknowledge, Database, DurabilityOptions, Error, Failure, Record, Table, Transaction, column_of,
};
use weft_changes::{ChangeFeed, ChangeKind, ChangesError, Position};
use weft_protocols::{BuilderExt, Doppel, LabelledDatabase, PhaseOptions};
use weft_tests::for_each_kind;

/// The stock and the sales of an item.
#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
    sold: u64,
}

/// The record of a sale, or of what came back.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(key(seller, number))]
struct Sale {
    seller: u32,
    number: u64,
    pieces: i64,
}

struct Shop<P: Protocol> {
    database: Database<P>,
    items: Table<Item>,
    sales: Table<Sale>,
}

const STOCK: i64 = 1000;

impl<P: Protocol> Shop<P> {
    fn open(builder: weft::Builder<P>) -> Shop<P> {
        let disk = Arc::new(SimulatedDisk::new(1));
        let builder = builder.table::<Item>().table::<Sale>().workers_max(8.min(P::WORKERS_MAX));
        let database = builder.directory("/db").backend(disk, false).open().unwrap();
        let (items, sales) = (database.table().unwrap(), database.table().unwrap());
        let shop = Shop { database, items, sales };
        let item = Item { id: 1, stock: STOCK, sold: 0 };
        shop.database.transact(|tx| tx.insert(&shop.items, item.clone())).unwrap();
        shop
    }

    /// Sells some pieces, or takes them back, unless there are not enough.
    fn sell(&self, seller: u32, number: u64, pieces: i64) -> bool {
        let sold: Result<(), Error> = self.database.transact(|tx| {
            self.change(tx, pieces)?;
            tx.insert(&self.sales, Sale { seller, number, pieces })
        });
        match sold {
            Err(Error::Failure(Failure::NotEnough { .. })) => false,
            sold => sold.map(|()| true).unwrap(),
        }
    }

    fn change(&self, tx: &Transaction<'_, P>, pieces: i64) -> Result<(), Error> {
        match pieces > 0 {
            true => tx.take(&self.items, &1, column_of!(Item.stock), pieces)?,
            false => tx.give(&self.items, &1, column_of!(Item.stock), -pieces)?,
        }
        tx.add(&self.items, &1, column_of!(Item.sold), 1)
    }
}

/// A copy of the shop, which is made of the feed alone.
#[derive(Default)]
struct Copied {
    item: Option<Item>,
    sales: i64,
    pieces: i64,
    operations: u64,
    updates: u64,
}

impl Copied {
    /// Applies a transaction. Checks that what was done to the item is in the transaction that has the record of it.
    fn follow(&mut self, transaction: &weft_changes::Transaction) {
        for change in transaction.changes() {
            if change.is::<Item>() {
                self.operations += u64::from(change.kind() == ChangeKind::Operation);
                self.updates += u64::from(change.kind() == ChangeKind::Update);
                self.item = change.apply(self.item.take()).unwrap();
            } else {
                self.sales += 1;
                self.pieces += change.row::<Sale>().unwrap().unwrap().pieces;
            }
        }
        let item = self.item.as_ref().expect("the item is never deleted");
        assert_eq!(item.stock, STOCK - self.pieces, "{transaction:?}");
        assert_eq!(item.sold as i64, self.sales, "{transaction:?}");
    }
}

/// Sells on three threads, until the feed has had operations and updates of the item, in turns of phases.
fn split_item_is_followed<P: Protocol>(shop: &Shop<P>) {
    let mut changes = shop.database.changes(Position::START).unwrap();
    let (stop, mut copied) = (OnceLock::new(), Copied::default());
    std::thread::scope(|scope| {
        for seller in 0..3 {
            let (shop, stop) = (&shop, &stop);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seller.into());
                let mut number = 0;
                while stop.get().is_none() {
                    number += u64::from(shop.sell(seller, number, random.i64(-9..10)));
                }
            });
        }
        while copied.operations < 200 || copied.updates < 20 {
            copied.follow(&changes.next().unwrap().unwrap());
        }
        stop.set(()).expect("it is set once");
    });
    shop.database.flush().unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        copied.follow(&transaction);
    }
    let snapshot = shop.database.open_snapshot().unwrap();
    let item = snapshot.get(&shop.items, &1).unwrap().cloned();
    assert_eq!(copied.item, item, "the slices are merged without a change of their own");
}

#[test]
fn operations_of_split_phases_are_at_their_transactions() {
    fn run<P: Protocol>()
    where
        Database<P>: LabelledDatabase,
    {
        let phases = PhaseOptions::new().length(Duration::from_millis(2));
        let shop = Shop::<P>::open(Database::builder().protocol::<P>().phases(phases));
        let (items, stock, sold) = (&shop.items, column_of!(Item.stock), column_of!(Item.sold));
        shop.database.label_split::<_, _, Take<_>>(items, &1, stock).unwrap();
        shop.database.label_split::<_, _, Add<_>>(items, &1, sold).unwrap();
        split_item_is_followed(&shop);
    }
    run::<Doppel>();
}

/// Under `dbx` an operation is applied again at the commit if another transaction has changed the row.
#[test]
fn operations_applied_again_are_updates_of_their_transaction() {
    let shop = Shop::<Dbx>::open(Database::builder());
    let mut changes = shop.database.changes_from_now().unwrap();
    let mut attempts = 0;
    let sold: Result<(), Error> = shop.database.transact(|tx| {
        attempts += 1;
        shop.change(tx, 5)?;
        if attempts == 1 {
            std::thread::scope(|scope| scope.spawn(|| shop.sell(2, 1, 7)).join().unwrap());
        }
        tx.insert(&shop.sales, Sale { seller: 1, number: 1, pieces: 5 })
    });
    sold.unwrap();
    assert_eq!(attempts, 1, "the commit applies the operations again");
    for (pieces, left, count) in [(7, STOCK - 7, 1), (5, STOCK - 12, 2)] {
        let transaction = changes.next().unwrap().unwrap();
        assert_eq!(transaction.changes().len(), 2);
        for change in transaction.changes() {
            if change.is::<Sale>() {
                assert_eq!(change.column::<i64>("pieces").unwrap(), Some(pieces));
            } else {
                assert_eq!(change.kind(), ChangeKind::Update);
                assert_eq!(change.column::<i64>("stock").unwrap(), Some(left));
                assert_eq!(change.column::<u64>("sold").unwrap(), Some(count));
            }
        }
    }
}

/// Takes and gives back, under every kind of protocol.
#[test]
fn bounded_operations_are_at_their_transactions() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::open(Database::builder().protocol::<P>());
        let mut changes = shop.database.changes(Position::START).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut sold = 0;
        for number in 0..60 {
            sold += i64::from(shop.sell(1, number, random.i64(-50..150)));
        }
        assert!(sold < 60, "some are refused");
        let mut copied = Copied::default();
        while copied.sales < sold {
            copied.follow(&changes.next().unwrap().unwrap());
        }
        shop.database.flush().unwrap();
        assert!(changes.try_next().unwrap().is_none(), "a refused sale changes nothing");
    });
}

/// Pieces in stock, which are never less than 0.
#[derive(Clone, Debug, PartialEq, Record)]
struct Stock {
    #[record(key)]
    id: u32,
    pieces: u32,
}

/// The seller that was the last one to take a piece.
#[derive(Clone, Debug, PartialEq, Record)]
struct Latest {
    #[record(key)]
    id: u32,
    seller: u32,
}

/// Fault: sellers give pieces and take them again. When they take them, all of them write the same row. The feed showed that
/// they took pieces that were not there.
#[test]
fn pieces_are_given_before_they_are_taken() {
    let phases = PhaseOptions::new().length(Duration::from_millis(2));
    let builder = Database::builder().protocol::<Doppel>().phases(phases).workers_max(8);
    let disk = Arc::new(SimulatedDisk::new(1));
    // So that an epoch has many transactions of each seller.
    let durability = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
    let builder = builder.table::<Stock>().table::<Latest>().directory("/db");
    let database = builder.backend(disk, false).durability(durability).open().unwrap();
    let (stock, latest) = (database.table::<Stock>().unwrap(), database.table::<Latest>().unwrap());
    let inserted: Result<(), Error> = database.transact(|tx| {
        tx.insert(&stock, Stock { id: 1, pieces: 0 })?;
        tx.insert(&latest, Latest { id: 1, seller: 0 })
    });
    inserted.unwrap();
    let pieces = column_of!(Stock.pieces);
    database.label_split::<_, _, Take<_>>(&stock, &1, pieces).unwrap();
    let (database, stock, latest) = (&database, &stock, &latest);
    let mut changes = database.changes(Position::START).unwrap();
    let stop = OnceLock::new();
    let (mut row, mut operations): (Option<Stock>, u64) = (None, 0);
    let mut follow = |transaction: &weft_changes::Transaction| {
        for change in transaction.changes().filter(|change| change.is::<Stock>()) {
            operations += u64::from(change.kind() == ChangeKind::Operation);
            row = change.apply(row.take())?;
        }
        Ok::<_, ChangesError>(operations)
    };
    std::thread::scope(|scope| {
        let stop = &stop;
        for seller in 0..3 {
            scope.spawn(move || {
                let mut is_given = false;
                while stop.get().is_none() {
                    let done: Result<(), Error> = database.transact(|tx| {
                        if !is_given {
                            return tx.give(stock, &1, pieces, 1);
                        }
                        tx.take(stock, &1, pieces, 1)?;
                        tx.update(latest, &1, |row| row.seller = seller).map(|_| ())
                    });
                    match done {
                        // Another seller has taken the piece.
                        Err(Error::Failure(Failure::NotEnough { .. })) => is_given = false,
                        done => done.map(|()| is_given = !is_given).unwrap(),
                    }
                }
            });
        }
        let mut follow_some = || {
            while follow(&changes.next().expect("it is open")?)? < 10_000 {}
            Ok::<_, ChangesError>(())
        };
        let followed = follow_some();
        stop.set(()).expect("it is set once");
        followed.unwrap();
    });
    database.flush().unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        follow(&transaction).unwrap();
    }
    assert_eq!(row, database.open_snapshot().unwrap().get(stock, &1).unwrap().cloned());
}
