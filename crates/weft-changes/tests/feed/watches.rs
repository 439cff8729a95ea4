//! Watches of a key and of ranges.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::{Database, Error, Record};
use weft_changes::{ChangeFeed, Position};

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
