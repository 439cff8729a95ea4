//! Tests of the operations on many rows: `insert_many`, `get_many`, `update_many` and `delete_range`. Each must do what
//! a loop over the operation on one row does.

use std::cell::Cell;
use std::collections::BTreeMap;

use weft::protocol::Protocol;
use weft::schema::Violation;
use weft::{Database, Error, Failure, Record, Table, Transaction};
use weft_protocols::Atomic;

use weft_tests::{Seed, for_each_executor, for_each_kind, on_a_thread, on_threads, threads};

/// A row of an order. Its keys lie in two words.
#[derive(Clone, Debug, PartialEq, Record)]
#[record(check = Line::check_item)]
struct Line {
    #[record(key)]
    order: u64,
    #[record(key)]
    number: u8,
    item: u32,
}

impl Line {
    fn new(order: u64, number: u8) -> Line {
        Line { order, number, item: u32::from(number) }
    }

    fn check_item(&self) -> Result<(), Violation> {
        if self.item > 1_000_000 { Err("there is no such item".into()) } else { Ok(()) }
    }
}

/// A row that does not lie in its record, with something that must be dropped.
#[derive(Clone, Debug, PartialEq, Record)]
struct Large {
    #[record(key)]
    id: u64,
    text: String,
    filler: [u64; 100],
}

/// A row with a text as its key.
#[derive(Clone, Debug, PartialEq, Record)]
struct Named {
    #[record(key)]
    name: String,
    value: u64,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Unordered {
    #[record(key)]
    id: u64,
    value: u64,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Indexed {
    #[record(key)]
    id: u64,
    #[record(unique)]
    other: u64,
}

struct Tables<P: Protocol> {
    database: Database<P>,
    lines: Table<Line>,
    large: Table<Large>,
    named: Table<Named>,
    unordered: Table<Unordered>,
    indexed: Table<Indexed>,
}

impl<P: Protocol> Tables<P> {
    fn new() -> Self {
        let database = Database::builder()
            .protocol::<P>()
            .table::<Line>()
            .table::<Large>()
            .table::<Named>()
            .table::<Unordered>()
            .table::<Indexed>()
            .open()
            .unwrap();
        Tables {
            lines: database.table().unwrap(),
            large: database.table().unwrap(),
            named: database.table().unwrap(),
            unordered: database.table().unwrap(),
            indexed: database.table().unwrap(),
            database,
        }
    }

    fn lines(&self) -> Vec<Line> {
        let all = self.database.transact(|tx| {
            tx.range(&self.lines, ..).map(|row| Ok(row?.clone())).collect::<Result<_, Error>>()
        });
        all.unwrap()
    }
}

fn failure<R: std::fmt::Debug>(result: Result<R, Error>) -> Failure {
    match result.expect_err("the operation fails") {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => panic!("{conflict}"),
    }
}

/// Inserts the rows made of `numbers` by `insert_many`, in a table that has some of them already and has lost others,
/// and compares with a model.
fn compare_insertions<P: Protocol, T: Record + PartialEq + std::fmt::Debug>(
    database: &Database<P>,
    table: &Table<T>,
    row: impl Fn(u64) -> T,
    random: &mut fastrand::Rng,
) where
    T::Key: Ord,
{
    let mut model = BTreeMap::new();
    for round in 0..12 {
        let first = random.u64(..200);
        let mut numbers: Vec<u64> = (first..first + random.u64(1..90)).collect();
        if round % 3 == 0 {
            random.shuffle(&mut numbers);
        }
        numbers.retain(|number| !model.contains_key(&row(*number).key()));
        let inserted = database.transact(|tx| {
            tx.insert_many(table, numbers.iter().map(|&number| row(number)))?;
            // The transaction sees its own rows.
            for &number in &numbers {
                assert_eq!(tx.get(table, &row(number).key())?, Some(&row(number)));
            }
            Ok::<_, Error>(())
        });
        inserted.unwrap();
        model.extend(numbers.iter().map(|&number| (row(number).key(), row(number))));
        // Delete some, so that later runs find records without rows.
        let gone: Vec<T::Key> = model.keys().filter(|_| random.u8(..3) == 0).cloned().collect();
        let deleted: Result<(), Error> = database.transact(|tx| {
            for key in &gone {
                assert!(tx.delete(table, key)?);
            }
            Ok(())
        });
        deleted.unwrap();
        gone.iter().for_each(|key| drop(model.remove(key)));
    }
    let found = database.transact(|tx| {
        let rows = tx.get_many(table, model.keys().cloned())?;
        rows.map(|row| Ok(row?.cloned())).collect::<Result<Vec<_>, Error>>()
    });
    assert_eq!(found.unwrap(), model.into_values().map(Some).collect::<Vec<_>>());
}

#[test]
fn insert_many_inserts_what_single_insertions_insert() {
    let seed = Seed::draw();
    for_each_kind!(|P| {
        let (tables, random) = (Tables::<P>::new(), &mut seed.random(0));
        let database = &tables.database;
        let line = |number| Line::new(number / 10, (number % 10) as u8);
        compare_insertions(database, &tables.lines, line, random);
        let large = |id| Large { id, text: format!("{id}"), filler: [id; 100] };
        compare_insertions(database, &tables.large, large, random);
        let named =
            |number| Named { name: format!("a long name, number {number:05}"), value: number };
        compare_insertions(database, &tables.named, named, random);
        let unordered = |id| Unordered { id, value: id };
        compare_insertions(database, &tables.unordered, unordered, random);
        let indexed = |id| Indexed { id, other: id + 1_000 };
        compare_insertions(database, &tables.indexed, indexed, random);
    });
}

/// A refused row stops the insertion. The rows before it are inserted, the others are not, and all are if the
/// transaction is rolled back.
#[test]
fn insert_many_stops_at_the_row_that_is_refused() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        let (database, lines) = (&tables.database, &tables.lines);
        let insert = |line: Line| database.transact(|tx| tx.insert(lines, line.clone()));
        insert(Line::new(1, 7)).unwrap();
        let run = |order| (0..40).map(move |number| Line::new(order, number));

        // Returned from the closure, the failure rolls everything back.
        let failed: Result<(), Error> = database.transact(|tx| tx.insert_many(lines, run(1)));
        match failure(failed) {
            Failure::DuplicateKey { key, index: None, .. } => assert_eq!(key, "(1, 7)"),
            other => panic!("{other}"),
        }
        assert_eq!(tables.lines(), [Line::new(1, 7)]);

        // Ignored, it leaves what was inserted before.
        let committed: Result<(), Error> = database.transact(|tx| {
            let failed = tx.insert_many(lines, run(1));
            assert!(matches!(failed, Err(Error::Failure(Failure::DuplicateKey { .. }))));
            Ok(())
        });
        committed.unwrap();
        assert_eq!(tables.lines(), run(1).take(8).collect::<Vec<_>>());

        // The same for a constraint, in the second batch.
        let broken = run(2).map(|line| match line.number {
            20 => Line { item: u32::MAX, ..line },
            _ => line,
        });
        let committed: Result<(), Error> = database.transact(|tx| {
            match tx.insert_many(lines, broken.clone()) {
                Err(Error::Failure(Failure::Constraint { key, .. })) => {
                    assert_eq!(key, "(2, 20)");
                }
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        committed.unwrap();
        let order = |order| tables.lines().into_iter().filter(move |line| line.order == order);
        assert_eq!(order(2).collect::<Vec<_>>(), run(2).take(20).collect::<Vec<_>>());

        // The same for two equal keys in one run.
        let committed: Result<(), Error> = database.transact(|tx| {
            let rows = [1, 2, 3, 3, 4].map(|number| Line::new(3, number));
            assert!(matches!(
                tx.insert_many(lines, rows),
                Err(Error::Failure(Failure::DuplicateKey { .. }))
            ));
            Ok(())
        });
        committed.unwrap();
        assert_eq!(order(3).map(|line| line.number).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

/// A row with an entry in a unique index that is refused.
#[test]
fn insert_many_stops_at_a_duplicate_in_a_unique_index() {
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        let committed: Result<(), Error> = tables.database.transact(|tx| {
            let rows =
                [(1, 10), (2, 20), (3, 10), (4, 40)].map(|(id, other)| Indexed { id, other });
            match tx.insert_many(&tables.indexed, rows) {
                Err(Error::Failure(Failure::DuplicateKey { index: Some(_), key, .. })) => {
                    assert_eq!(key, "10");
                }
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        committed.unwrap();
        let ids: Result<Vec<u64>, Error> = tables
            .database
            .transact(|tx| tx.range(&tables.indexed, ..).map(|row| Ok(row?.id)).collect());
        assert_eq!(ids.unwrap(), [1, 2]);
    });
}

thread_local! {
    /// How many rows this thread has made and not dropped.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// A value that counts itself.
#[derive(Debug, PartialEq, weft::ColumnValue)]
struct Live {
    number: u32,
}

impl Live {
    fn new() -> Live {
        LIVE.set(LIVE.get() + 1);
        Live { number: 0 }
    }
}

impl Clone for Live {
    fn clone(&self) -> Self {
        Live::new()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
    }
}

#[derive(Clone, Debug, Record)]
struct Counted {
    #[record(key)]
    id: u64,
    live: Live,
}

/// No row is leaked or dropped twice: not those that were inserted, not the refused one, and not those after it.
#[test]
fn every_row_of_a_refused_run_is_dropped_once() {
    for_each_executor!(|P| {
        let database = Database::builder().protocol::<P>().table::<Counted>().open().unwrap();
        let table = database.table::<Counted>().unwrap();
        let row = |id| Counted { id, live: Live::new() };
        let insert = |tx: &Transaction<'_, P>, ids: std::ops::Range<u64>| {
            tx.insert_many(&table, ids.map(row))
        };
        database.transact(|tx| insert(tx, 30..31)).unwrap();
        let failed: Result<(), Error> = database.transact(|tx| insert(tx, 0..100));
        assert!(matches!(failed, Err(Error::Failure(Failure::DuplicateKey { .. }))));
        drop(database.begin().map(|tx| insert(&tx, 40..60)).unwrap());
        // A panic of the iterator, in the middle of a run.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let ids = (100..120).inspect(|id| {
                if *id == 110 {
                    weft_tests::panic_quietly("the iterator panics");
                }
            });
            database.transact(|tx| tx.insert_many(&table, ids.clone().map(row)))
        }));
        assert!(panicked.is_err());
        drop((table, database));
        assert_eq!(LIVE.get(), 0);
    });
}

#[test]
fn single_key_protocols_refuse_a_second_row() {
    let database = Database::builder().protocol::<Atomic>().table::<Unordered>().open().unwrap();
    let table = database.table::<Unordered>().unwrap();
    let row = |id| Unordered { id, value: id };
    let inserted: Result<(), Error> = database.transact(|tx| tx.insert_many(&table, [row(1)]));
    inserted.unwrap();
    let failed: Result<(), Error> =
        database.transact(|tx| tx.insert_many(&table, [row(2), row(3)]));
    assert!(matches!(failed, Err(Error::Failure(Failure::SingleKey { .. }))));
    let got: Result<Vec<bool>, Error> =
        database.transact(|tx| tx.get_many(&table, [1])?.map(|row| Ok(row?.is_some())).collect());
    assert_eq!(got.unwrap(), [true]);
    let updated: Result<usize, Error> =
        database.transact(|tx| tx.update_many(&table, [1], |_, row| row.value += 1));
    assert_eq!(updated.unwrap(), 1);
}

/// A transaction's own runs are not phantoms, and another transaction's are.
#[test]
fn runs_and_scanned_ranges() {
    for_each_executor!(
        [Dbx, TwoPhaseLocking, Htcc, Doppel, DbxTc, Adaptive] | P | {
            for is_phantom in [false, true] {
                let tables = Tables::<P>::new();
                let (database, lines) = (&tables.database, &tables.lines);
                let insert = |tx: &Transaction<'_, P>, order, numbers: std::ops::Range<u8>| {
                    tx.insert_many(lines, numbers.map(|number| Line::new(order, number)))
                };
                database.transact(|tx| insert(tx, 1, 0..3)).unwrap();
                let tx = database.begin().unwrap();
                let count = |tx: &Transaction<'_, P>| tx.prefix(lines, &1_u64).count();
                assert_eq!(count(&tx), 3);
                // Enough to split leaves.
                insert(&tx, 1, 3..100).unwrap();
                assert_eq!(count(&tx), 100);
                on_a_thread(|| {
                    let order = if is_phantom { 1 } else { 2 };
                    database.transact(|tx| insert(tx, order, 200..203)).unwrap();
                });
                let ended = insert(&tx, 1, 100..110).and_then(|()| tx.commit());
                assert_eq!(ended.is_err(), is_phantom, "{ended:?}");
            }
        }
    );
}

/// Each row is as the transaction has written it until the iterator comes to it.
#[test]
fn get_many_sees_what_was_written_meanwhile() {
    for_each_kind!(|P| {
        let tables = Tables::<P>::new();
        let (database, table) = (&tables.database, &tables.unordered);
        let row = |id| Unordered { id, value: id };
        let inserted: Result<(), Error> =
            database.transact(|tx| tx.insert_many(table, (0..40).map(|id| row(2 * id))));
        inserted.unwrap();
        let read = database.transact(|tx| {
            let mut read = Vec::new();
            for (id, row) in (0..80).zip(tx.get_many(table, 0..80)?) {
                read.push(row?.map(|row| row.value));
                // Change rows that were fetched together with this one.
                match id {
                    0 => {
                        tx.update(table, &4, |row| row.value = 1_000)?;
                        assert!(tx.delete(table, &6)?);
                        tx.insert(table, Unordered { id: 7, value: 1_007 })?;
                    }
                    5 => drop(tx.delete(table, &7)?),
                    _ => {}
                }
            }
            Ok::<_, Error>(read)
        });
        let mut expected: Vec<Option<u64>> =
            (0..80).map(|id| (id % 2 == 0).then_some(id)).collect();
        (expected[4], expected[6]) = (Some(1_000), None);
        assert_eq!(read.unwrap(), expected);
    });
}

/// Absent keys are reads: a transaction that relies on an absence cannot commit if the row was inserted.
#[test]
fn get_many_notes_absent_keys() {
    for_each_executor!(
        [Dbx, TwoPhaseLocking, Htcc, Doppel, DbxTc, Adaptive] | P | {
            let tables = Tables::<P>::new();
            let (database, lines) = (&tables.database, &tables.lines);
            let tx = database.begin().unwrap();
            for row in tx.get_many(lines, [(1, 1), (1, 2)]).unwrap() {
                assert_eq!(row.unwrap(), None);
            }
            on_a_thread(|| {
                let inserted: Result<(), Error> =
                    database.transact(|tx| tx.insert(lines, Line::new(1, 2)));
                inserted.unwrap();
            });
            let ended = tx.insert(lines, Line::new(7, 1)).and_then(|()| tx.commit());
            assert!(matches!(ended, Err(Error::Conflict(_))), "{ended:?}");
        }
    );
}

#[test]
fn update_many_updates_each_row_in_order() {
    for_each_kind!(|P| {
        let tables = Tables::<P>::new();
        let (database, lines) = (&tables.database, &tables.lines);
        let inserted: Result<(), Error> = database
            .transact(|tx| tx.insert_many(lines, (0..50).map(|number| Line::new(1, number))));
        inserted.unwrap();
        // A key without a row, and a key that comes twice.
        let keys = || [(2, 1)].into_iter().chain((0..40).map(|number| (1, number))).chain([(1, 3)]);
        let updated = database.transact(|tx| {
            tx.update_many(lines, keys(), |position, line| line.item += 100 * position as u32)
        });
        assert_eq!(updated.unwrap(), 41);
        for line in tables.lines() {
            let added = match line.number {
                3 => 100 * (4 + 41),
                number @ 0..40 => 100 * (u32::from(number) + 1),
                _ => 0,
            };
            assert_eq!(line.item, u32::from(line.number) + added);
        }
        // The error names the row. The rows before it are updated if the transaction commits.
        let committed: Result<(), Error> = database.transact(|tx| {
            let updated = tx.update_many(lines, keys(), |_, line| {
                line.item = if line.number == 30 { u32::MAX } else { 5 };
            });
            match updated {
                Err(Error::Failure(Failure::Constraint { key, .. })) => assert_eq!(key, "(1, 30)"),
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        committed.unwrap();
        assert_eq!(tables.lines().iter().filter(|line| line.item == 5).count(), 30);
    });
}

#[test]
fn delete_range_deletes_the_range() {
    for_each_kind!(|P| {
        let tables = Tables::<P>::new();
        let (database, lines) = (&tables.database, &tables.lines);
        let deleted = database.transact(|tx| {
            for order in 1..4 {
                tx.insert_many(lines, (0..100).map(|number| Line::new(order, number)))?;
            }
            Ok::<_, Error>(())
        });
        deleted.unwrap();
        let delete = |range: std::ops::Range<(u64, u8)>| {
            let deleted: Result<usize, Error> =
                database.transact(|tx| tx.delete_range(lines, range.clone()));
            deleted.unwrap()
        };
        assert_eq!(delete((1, 90)..(3, 10)), 120);
        assert_eq!(delete((1, 90)..(3, 10)), 0);
        let left = tables.lines();
        assert_eq!(left.len(), 180);
        assert!(left.iter().all(
            |line| (line.order, line.number) < (1, 90) || (line.order, line.number) >= (3, 10)
        ));
    });
}

/// Orders of several threads, inserted, completed and deleted in runs: every transaction sees whole orders.
#[test]
fn orders_are_whole() {
    let seed = Seed::draw();
    for_each_kind!(|P| {
        let tables = Tables::<P>::new();
        let (database, lines) = (&tables.database, &tables.lines);
        on_threads(threads::<P>(), |thread| {
            let random = &mut seed.random(thread);
            for _ in 0..60 * weft_tests::stress() {
                let order = random.u64(..8);
                let ended: Result<(), Error> = database.transact(|tx| {
                    let found: Vec<u8> = tx
                        .prefix(lines, &order)
                        .map(|line| Ok(line?.number))
                        .collect::<Result<_, Error>>()?;
                    weft_tests::chaos(random);
                    let whole: Vec<u8> = (0..found.len() as u8).collect();
                    assert!(found == whole && found.len().is_multiple_of(10), "{order}: {found:?}");
                    if found.len() < 30 {
                        let next = found.len() as u8;
                        tx.insert_many(lines, (next..next + 10).map(|n| Line::new(order, n)))
                    } else {
                        let deleted = tx.delete_range(lines, (order, 0)..(order + 1, 0))?;
                        assert_eq!(deleted, 30);
                        Ok(())
                    }
                });
                ended.unwrap();
            }
        });
    });
}
