//! Watches of a key and of ranges.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::{Acknowledge, Database, DurabilityOptions, Error, Record};
use weft_changes::{ChangeFeed, ChangeKind, Changes, ChangesError, KeyRange, Position};

use crate::bank::{Account, Bank, Receipt};

fn bank() -> Bank<weft::protocol::Dbx> {
    let builder = Database::builder().directory("/db");
    Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), true)).unwrap()
}

#[test]
fn watch_shows_each_change_of_its_range_once_and_no_other() {
    let bank = bank();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..80 {
        bank.transfer(random.u32(..3), &mut random).unwrap();
    }
    // The changes of every key, from the whole feed.
    let mut all = Vec::new();
    let mut changes = bank.database.changes(Position::START).unwrap();
    while let Some(transaction) = changes.try_next().unwrap() {
        for change in transaction.changes() {
            if change.is::<Receipt>() {
                let key = change.key::<Receipt>().unwrap();
                all.push((transaction.position(), key, change.kind()));
            }
        }
    }
    let keys: BTreeSet<(u32, u64)> = all.iter().map(|(_, key, _)| *key).collect();
    for _ in 0..40 {
        let one = fastrand::choice(&keys).copied().unwrap();
        let other = fastrand::choice(&keys).copied().unwrap();
        let range = one.min(other)..one.max(other);
        let mut watch =
            bank.database.watch_from(&bank.receipts, range.clone(), Position::START).unwrap();
        let mut seen = Vec::new();
        while let Some(transaction) = watch.try_next().unwrap() {
            assert!(transaction.changes().len() > 0);
            for change in transaction.changes() {
                let key = change.key::<Receipt>().unwrap();
                seen.push((transaction.position(), key, change.kind()));
            }
        }
        let within = all.iter().filter(|(_, key, _)| range.contains(key));
        assert_eq!(seen, within.copied().collect::<Vec<_>>(), "{range:?}");
    }
}

#[test]
fn watch_of_a_key_waits_for_its_changes() {
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), false)).unwrap();
    let insert = |id| {
        let account = Account { id, cents: 0, note: String::new() };
        bank.database.transact(|tx| tx.insert(&bank.accounts, account.clone())).unwrap();
    };
    insert(1);
    let mut watch = bank.database.watch(&bank.accounts, &2).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (3..20).chain([2]).chain(20..30).for_each(insert));
        let transaction = watch.next().unwrap().unwrap();
        let change = transaction.changes().next().unwrap();
        assert_eq!(change.row::<Account>().unwrap().unwrap().id, 2);
    });
    let deleted: Result<_, Error> = bank.database.transact(|tx| {
        tx.delete(&bank.accounts, &2)?;
        tx.delete(&bank.accounts, &3)
    });
    deleted.unwrap();
    let transaction = pollster::block_on(watch.next_async()).unwrap().unwrap();
    assert_eq!(transaction.changes().len(), 1, "the other row is not watched");
    bank.database.close().unwrap();
    assert!(watch.next().is_none());
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Named {
    #[record(key)]
    name: String,
    level: i8,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Ranked {
    #[record(key)]
    level: i8,
}

#[test]
fn ranges_are_in_the_order_of_the_keys() {
    let builder = Database::builder().table::<Named>().table::<Ranked>().directory("/db");
    let database = builder.backend(Arc::new(SimulatedDisk::new(1)), true).open().unwrap();
    let (named, ranked) = (database.table::<Named>().unwrap(), database.table::<Ranked>().unwrap());
    let mut names = database.watch(&named, "b".to_owned()..="bz".to_owned()).unwrap();
    let mut levels = database.watch(&ranked, -2..3).unwrap();
    let mut everything = database.watch(&named, ..).unwrap();
    for (name, level) in [("a", -3), ("b", -2), ("ba", 0), ("bz", 2), ("bzz", 3), ("c", 4)] {
        let inserted: Result<(), Error> = database.transact(|tx| {
            tx.insert(&named, Named { name: name.to_owned(), level })?;
            tx.insert(&ranked, Ranked { level })
        });
        inserted.unwrap();
    }
    for expected in ["b", "ba", "bz"] {
        let transaction = names.try_next().unwrap().unwrap();
        let change = transaction.changes().next().unwrap();
        assert_eq!(change.key::<Named>().unwrap(), expected);
    }
    assert!(names.try_next().unwrap().is_none());
    for expected in [-2, 0, 2] {
        let transaction = levels.try_next().unwrap().unwrap();
        let change = transaction.changes().next().unwrap();
        assert_eq!(change.key::<Ranked>().unwrap(), expected);
    }
    assert!(levels.try_next().unwrap().is_none());
    assert_eq!(std::iter::from_fn(|| everything.try_next().unwrap()).count(), 6);
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Bid {
    #[record(key)]
    id: (u32, String),
    cents: u64,
}

#[test]
fn prefixes_and_beginnings_of_texts_are_watched() {
    let builder = Database::builder().table::<Named>().table::<Bid>().directory("/db");
    let database = builder.backend(Arc::new(SimulatedDisk::new(1)), true).open().unwrap();
    let (named, bids) = (database.table::<Named>().unwrap(), database.table::<Bid>().unwrap());
    let mut ad = database.watch(&named, KeyRange::starts_with("Ad")).unwrap();
    let mut ada = database.watch(&named, KeyRange::key("Ada")).unwrap();
    let mut article = database.watch(&bids, KeyRange::prefix(&7)).unwrap();
    let mut bidders = database.watch(&bids, KeyRange::starts_with((7, "Ad"))).unwrap();
    let mut last = database.watch(&bids, KeyRange::prefix(&u32::MAX)).unwrap();
    for name in ["A", "Ac\u{10ffff}", "Ad", "Ada", "Ad\u{10ffff}", "Ae", "ad"] {
        let inserted: Result<(), Error> = database.transact(|tx| {
            tx.insert(&named, Named { name: name.to_owned(), level: 0 })?;
            [6, 7, 8, u32::MAX].into_iter().try_for_each(|article| {
                tx.insert(&bids, Bid { id: (article, name.to_owned()), cents: 1 })
            })
        });
        inserted.unwrap();
    }
    fn keys<T: Record>(watch: &mut weft_changes::Watch<T>) -> Vec<T::Key> {
        let transactions = std::iter::from_fn(|| watch.try_next().unwrap());
        transactions
            .flat_map(|transaction| {
                let keys = transaction.changes().map(|change| change.key::<T>().unwrap());
                keys.collect::<Vec<_>>()
            })
            .collect()
    }
    assert_eq!(keys(&mut ad), ["Ad", "Ada", "Ad\u{10ffff}"]);
    assert_eq!(keys(&mut ada), ["Ada"]);
    assert_eq!(keys(&mut article).len(), 7);
    let expected = ["Ad", "Ada", "Ad\u{10ffff}"].map(|name| (7, name.to_owned()));
    assert_eq!(keys(&mut bidders), expected);
    assert_eq!(keys(&mut last).len(), 7);
}

#[test]
fn thousand_watches_each_see_their_row() {
    const WATCHES: u32 = 1000;
    let builder = Database::builder().directory("/db");
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), false)).unwrap();
    let mut watches: Vec<_> =
        (0..WATCHES).map(|id| bank.database.watch(&bank.accounts, &id).unwrap()).collect();
    for round in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..WATCHES {
                    let account = Account { id, cents: round, note: String::new() };
                    let put =
                        bank.database.transact(|tx| tx.upsert(&bank.accounts, account.clone()));
                    put.unwrap();
                }
            });
            for (id, watch) in watches.iter_mut().enumerate() {
                let transaction = watch.next().unwrap().unwrap();
                assert_eq!(transaction.changes().len(), 1);
                let change = transaction.changes().next().unwrap();
                assert_eq!(change.key::<Account>().unwrap(), id as u32);
                assert_eq!(change.column::<i64>("cents").unwrap(), Some(round));
            }
        });
    }
    bank.database.flush().unwrap();
    for watch in &mut watches {
        assert!(watch.try_next().unwrap().is_none());
    }
    bank.database.close().unwrap();
    assert!(watches.into_iter().all(|mut watch| watch.next().is_none()));
}

#[test]
fn slow_watch_is_told_and_resumes_from_a_snapshot_without_a_gap() {
    let options = DurabilityOptions::new().threads(1).segment_bytes(2000);
    let builder = Database::builder().directory("/db").durability(options);
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), true)).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut slow = bank.database.watch(&bank.receipts, KeyRange::prefix(&1)).unwrap();
    for _ in 0..90 {
        bank.transfer(random.u32(..3), &mut random).unwrap();
    }
    bank.database.checkpoint().unwrap();
    let behind = slow.try_next().unwrap_err();
    assert!(matches!(behind, ChangesError::FellBehind { is_unlogged: false, .. }), "{behind}");
    assert!(slow.try_next().unwrap().is_none(), "the watch has ended");

    let (snapshot, position) = bank.database.snapshot_with_position().unwrap();
    let mut numbers: BTreeSet<u64> =
        bank.rows(&snapshot).receipts.keys().filter(|key| key.0 == 1).map(|key| key.1).collect();
    drop(snapshot);
    for _ in 0..20 {
        bank.transfer(random.u32(..3), &mut random).unwrap();
    }
    let keys = KeyRange::prefix(&1);
    let mut watch = bank.database.watch_from(&bank.receipts, keys, position).unwrap();
    while let Some(transaction) = watch.try_next().unwrap() {
        for change in transaction.changes() {
            let (_, number) = change.key::<Receipt>().unwrap();
            match change.kind() {
                ChangeKind::Insert => assert!(numbers.insert(number), "{number} came before"),
                _ => assert!(numbers.remove(&number), "{number} did not come"),
            }
        }
    }
    let present = bank.state().receipts;
    let present = present.keys().filter(|key| key.0 == 1).map(|key| key.1);
    assert_eq!(numbers, present.collect());
}

/// Several transactions in an epoch: the position of a watch is one of the whole feed.
#[test]
fn position_of_a_watch_continues_the_feed() {
    let options = DurabilityOptions::new().acknowledge(Acknowledge::Committed);
    let builder = Database::builder().directory("/db").durability(options);
    let bank = Bank::open(builder.backend(Arc::new(SimulatedDisk::new(1)), true)).unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..30 {
        bank.transfer(random.u32(..3), &mut random).unwrap();
    }
    bank.database.flush().unwrap();
    let mut all = positions(bank.database.changes(Position::START).unwrap());
    let mut watch = bank.database.watch_from(&bank.writers, &1, Position::START).unwrap();
    let mut seen = 0;
    while let Some(transaction) = watch.try_next().unwrap() {
        let at = all.iter().position(|position| *position == transaction.position()).unwrap();
        let rest = positions(bank.database.changes(transaction.position()).unwrap());
        assert_eq!(rest, all.split_off(at + 1));
        all = rest;
        seen += 1;
    }
    assert!(seen > 2);
}

/// Returns the positions of all transactions that are there.
fn positions(mut changes: Changes) -> Vec<Position> {
    let transactions = std::iter::from_fn(|| changes.try_next().unwrap());
    transactions.map(|transaction| transaction.position()).collect()
}

/// Traffic in other tables, and none in the one that is watched.
#[test]
fn watch_passes_other_tables_and_stands_behind_them() {
    let bank = bank();
    let mut watch = bank.database.watch_from(&bank.accounts, .., Position::START).unwrap();
    let receipt = |number| Receipt { writer: 1, number, cents: 1 };
    for number in 0..9 {
        bank.database.transact(|tx| tx.insert(&bank.receipts, receipt(number))).unwrap();
    }
    assert!(watch.next_timeout(std::time::Duration::ZERO).unwrap().is_none());
    assert!(watch.try_next().unwrap().is_none());
    let mut changes = bank.database.changes(watch.position()).unwrap();
    assert!(changes.try_next().unwrap().is_none(), "the watch has passed everything");
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Lot {
    #[record(key)]
    id: u32,
    pieces: i64,
}

#[test]
fn tables_of_one_type_are_told_apart_by_their_names() {
    let builder = Database::builder().directory("/db").table::<Lot>().table_named::<Lot>("north");
    let builder = builder.backend(Arc::new(SimulatedDisk::new(1)), true);
    let database = builder.table_named::<Lot>("south").open().unwrap();
    let tables = ["lot", "north", "south"].map(|name| database.table_named::<Lot>(name).unwrap());
    let mut watch = database.watch(&tables[2], ..).unwrap();
    let filled: Result<(), Error> = database.transact(|tx| {
        let lots = (1..).zip(&tables).map(|(id, table)| (table, Lot { id, pieces: 5 }));
        lots.into_iter().try_for_each(|(table, lot)| tx.insert(table, lot))
    });
    filled.unwrap();
    let rows = |transaction: &weft_changes::Transaction, table| {
        let of_table = transaction.changes().filter(|change| change.is_of(table));
        of_table.map(|change| change.row::<Lot>().unwrap().unwrap().id).collect::<Vec<_>>()
    };
    let seen = watch.try_next().unwrap().unwrap();
    assert_eq!((seen.changes().len(), rows(&seen, &tables[2])), (1, vec![3]));
    let mut changes = database.changes(Position::START).unwrap();
    let all = changes.try_next().unwrap().unwrap();
    for (id, table) in (1..).zip(&tables) {
        assert_eq!(rows(&all, table), [id]);
    }
    assert_eq!(all.changes().filter(|change| change.is::<Lot>()).count(), 3);
}
