//! Tests of phase reconciliation with the mechanisms of its paper.

use std::thread::scope;
use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record, column_of};
use weft_protocols::{
    BuilderExt, CoordinatedDatabase, Doppel, LabelledDatabase, Merging, PhaseOptions,
    coordinator_of,
};

#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    sold: u64,
    #[record(min = 0)]
    left: i64,
    name: String,
}

const ITEMS: u32 = 3;
const STOCK: i64 = 5000;

fn open(options: PhaseOptions) -> (Database<Doppel>, weft::Table<Item>) {
    let database =
        Database::builder().protocol::<Doppel>().table::<Item>().phases(options).open().unwrap();
    let items = database.table::<Item>().unwrap();
    for id in 0..ITEMS {
        let item = Item { id, sold: 0, left: STOCK, name: format!("item {id}") };
        database.transact(|tx| tx.insert(&items, item.clone())).unwrap();
        database
            .label_split::<_, _, weft::operation::Add<_>>(&items, &id, column_of!(Item.sold))
            .unwrap();
        database
            .label_split::<_, _, weft::operation::Add<_>>(&items, &id, column_of!(Item.left))
            .unwrap();
    }
    (database, items)
}

/// Three threads sell all items, and read them now and then. One thread may change the phases.
fn sell_all(options: PhaseOptions) {
    let (database, items) = open(options);
    let has_ended = Word::new(0);
    scope(|scope| {
        if options.has_coordinator {
            scope
                .spawn(|| database.coordinate(&|| has_ended.load(Ordering::Relaxed) == 0).unwrap());
        }
        let sellers: Vec<_> = (0..3)
            .map(|seller| {
                let (database, items) = (&database, &items);
                scope.spawn(move || {
                    let mut sold = 0;
                    for turn in seller.. {
                        let id = turn % ITEMS;
                        let sale: Result<(), Error> = database.transact(|tx| {
                            tx.take(items, &id, column_of!(Item.left), 1)?;
                            tx.add(items, &id, column_of!(Item.sold), 1)
                        });
                        match sale {
                            Ok(()) => sold += 1,
                            Err(_) => break,
                        }
                        if turn % 512 == 0 {
                            let item = database
                                .transact(|tx| Ok::<_, Error>(tx.get(items, &id)?.cloned()))
                                .unwrap()
                                .unwrap();
                            assert_eq!(item.sold as i64 + item.left, STOCK);
                            assert_eq!(item.name, format!("item {id}"));
                        }
                    }
                    sold
                })
            })
            .collect();
        let sold: u64 = sellers.into_iter().map(|seller| seller.join().unwrap()).sum();
        has_ended.store(1, Ordering::Relaxed);
        let all = |tx: &weft::Transaction<'_, Doppel>| {
            (0..ITEMS)
                .map(|id| Ok(tx.get(&items, &id)?.unwrap().clone()))
                .collect::<Result<Vec<_>, Error>>()
        };
        let rows = database.transact(all).unwrap();
        assert_eq!(rows.iter().map(|row| row.sold).sum::<u64>(), sold);
        assert!(rows.iter().all(|row| row.sold as i64 + row.left == STOCK && row.left >= 0));
        assert!(rows.iter().any(|row| row.left == 0), "a seller ends when an item is sold out");
    });
    assert!(database.metrics().phases.unwrap().split_phases > 0);
}

fn short_phases() -> PhaseOptions {
    PhaseOptions::new().length(Duration::from_micros(100))
}

#[test]
fn nothing_is_lost_whichever_worker_merges() {
    for merging in [Merging::OneWorker, Merging::ByRecord, Merging::OwnSlices] {
        sell_all(short_phases().merging(merging));
    }
}

#[test]
fn nothing_is_lost_where_operations_are_applied_at_the_commit() {
    sell_all(short_phases().applies_at_commit(true));
}

#[test]
fn nothing_is_lost_with_all_mechanisms() {
    let all = short_phases()
        .merging(Merging::OwnSlices)
        .applies_at_commit(true)
        .has_coordinator(true)
        .has_whole_joined_phases(true)
        .counts_same_time(true);
    sell_all(all);
}

#[test]
fn only_the_coordinator_changes_the_phase_while_there_is_one() {
    let (database, items) = open(short_phases().has_coordinator(true));
    assert!(coordinator_of(&database).is_some());
    let split_phases = || database.metrics().phases.unwrap().split_phases;
    let add = || database.transact(|tx| tx.add(&items, &1, column_of!(Item.sold), 1)).unwrap();
    // A coordinator that is asked once whether it goes on, and does nothing more.
    let has_asked = Word::new(0);
    let may_end = Word::new(0);
    let wait = || {
        has_asked.store(1, Ordering::Release);
        while may_end.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        false
    };
    scope(|scope| {
        let coordinator = scope.spawn(|| database.coordinate(&wait));
        while has_asked.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let before = split_phases();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {
            add();
        }
        let beside_a_coordinator = split_phases();
        may_end.store(1, Ordering::Release);
        coordinator.join().unwrap().unwrap();
        assert_eq!(beside_a_coordinator, before, "a worker has changed the phase");
        let begun = Instant::now();
        while split_phases() == before {
            add();
            assert!(begun.elapsed() < Duration::from_secs(20), "workers do not change the phase");
        }
    });
    assert!(coordinator_of(&open(PhaseOptions::new()).0).is_none());
}
