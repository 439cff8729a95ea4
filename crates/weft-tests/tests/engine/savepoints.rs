//! Tests of savepoints, under every protocol: what is undone, what stays, and what is validated.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::encoding::{Key, KeyEncoder};
use weft::operation::Add;
use weft::protocol::{Dbx, Protocol};
use weft::{
    ColumnValue, Database, Error, Failure, Record, Table, Transaction, TransactionOptions,
    column_of,
};
use weft_tests::{for_each_kind, panic_quietly};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_group, columns(group)))]
#[record(index(name = by_code, columns(code), unique))]
struct Item {
    #[record(key)]
    id: u32,
    group: u8,
    code: String,
    count: i64,
}

/// Why a savepoint ends.
#[derive(Debug)]
enum Stop {
    Undone,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

fn item(id: u32) -> Item {
    Item { id, group: (id % 3) as u8, code: format!("code {id}"), count: 0 }
}

/// Opens a database with the items 0, 2, 4, 6 and 8.
fn filled<P: Protocol>() -> (Database<P>, Table<Item>) {
    let database = Database::builder().protocol::<P>().table::<Item>().open().unwrap();
    let items = database.table::<Item>().unwrap();
    database.transact(|tx| tx.insert_many(&items, (0..10).step_by(2).map(item))).unwrap();
    (database, items)
}

/// Returns the rows, through the primary index, and through each of the others.
fn contents<P: Protocol>(tx: &Transaction<'_, P>, items: &Table<Item>) -> Vec<Vec<Item>> {
    let rows = |scan: weft::Scan<'_, '_, Item, P>| scan.map(|row| row.unwrap().clone()).collect();
    vec![
        rows(tx.range(items, ..)),
        rows(tx.range_by(items, Item::BY_GROUP, ..)),
        rows(tx.range_by(items, Item::BY_CODE, ..)),
    ]
}

/// Writes in many ways.
fn write<P: Protocol>(
    tx: &Transaction<'_, P>,
    items: &Table<Item>,
    seed: u32,
) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    for _ in 0..random.u32(1..12) {
        let id = random.u32(..10);
        match random.u8(..7) {
            0 => _ = tx.delete(items, &id)?,
            1 => _ = tx.upsert(items, Item { count: random.i64(0..9), ..item(id) })?,
            2 => _ = tx.update(items, &id, |row| row.group = random.u8(..3))?,
            3 => _ = tx.update(items, &id, |row| row.code.push('x'))?,
            4 => _ = tx.update_columns(items, &id, column_of!(Item.count), |count| *count += 1)?,
            5 => match tx.insert(items, item(id)) {
                Err(Error::Failure(Failure::DuplicateKey { .. })) => {}
                other => other?,
            },
            _ => match tx.apply(items, &id, column_of!(Item.count), Add(1)) {
                Err(Error::Failure(Failure::NoSuchRow { .. })) => {}
                other => other?,
            },
        }
    }
    Ok(())
}

#[test]
fn a_savepoint_that_fails_leaves_everything_as_it_was() {
    fn check<P: Protocol>() {
        let (database, items) = filled::<P>();
        for seed in 0..60 {
            let left = database.transact(|tx| {
                write(tx, &items, 4 * seed)?;
                let before = contents(tx, &items);
                let undone: Result<(), Stop> = tx.savepoint(|tx| {
                    write(tx, &items, 4 * seed + 1)?;
                    let within = contents(tx, &items);
                    let inner: Result<(), Stop> = tx.savepoint(|tx| {
                        write(tx, &items, 4 * seed + 2)?;
                        Err(Stop::Undone)
                    });
                    assert!(matches!(inner, Err(Stop::Undone)), "{inner:?}");
                    assert_eq!(contents(tx, &items), within, "seed {seed}");
                    tx.savepoint(|tx| write(tx, &items, 4 * seed + 3))?;
                    Err(Stop::Undone)
                });
                assert!(matches!(undone, Err(Stop::Undone)), "{undone:?}");
                assert_eq!(contents(tx, &items), before, "seed {seed}");
                if seed % 3 > 0 {
                    tx.savepoint(|tx| write(tx, &items, 4 * seed + 3))?;
                }
                Ok::<_, Error>(contents(tx, &items))
            });
            let left = left.unwrap();
            let found = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
            assert_eq!(found, left, "seed {seed}");
            let snapshot = database.open_snapshot().unwrap();
            let rows: Vec<Item> = snapshot.rows(&items).map(|row| row.unwrap().clone()).collect();
            assert_eq!(rows, left[0], "seed {seed}");
        }
    }
    for_each_kind!(|P| check::<P>());
}

#[test]
fn a_transaction_that_rolls_back_undoes_its_savepoints_too() {
    fn check<P: Protocol>() {
        let (database, items) = filled::<P>();
        let before = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
        for seed in 0..40 {
            let ended: Result<(), Stop> = database.transact(|tx| {
                let undone: Result<(), Stop> = tx.savepoint(|tx| {
                    write(tx, &items, seed)?;
                    Err(Stop::Undone)
                });
                if let Err(Stop::Failed(error)) = undone {
                    return Err(error.into());
                }
                tx.savepoint(|tx| write(tx, &items, seed + 1))?;
                Err(Stop::Undone)
            });
            assert!(matches!(ended, Err(Stop::Undone)), "{ended:?}");
            let after = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
            assert_eq!(after, before, "seed {seed}");
        }
    }
    for_each_kind!(|P| check::<P>());
}

#[test]
fn rows_that_were_handed_out_outlive_the_savepoint() {
    fn check<P: Protocol>() {
        let (database, items) = filled::<P>();
        let seen = database.transact(|tx| {
            let mut seen = Vec::new();
            let undone: Result<(), Stop> = tx.savepoint(|tx| {
                tx.insert(&items, item(1))?;
                seen.extend(tx.get(&items, &1)?);
                tx.update(&items, &1, |row| row.count = 5)?;
                seen.extend(tx.get(&items, &1)?);
                tx.update(&items, &2, |row| row.count = 6)?;
                seen.extend(tx.get(&items, &2)?);
                tx.delete(&items, &4)?;
                Err(Stop::Undone)
            });
            assert!(matches!(undone, Err(Stop::Undone)), "{undone:?}");
            tx.insert(&items, Item { count: 7, ..item(1) })?;
            seen.extend(tx.get(&items, &1)?);
            Ok::<_, Error>(seen.iter().map(|row| (row.code.clone(), row.count)).collect::<Vec<_>>())
        });
        let of = |id: u32, count: i64| (format!("code {id}"), count);
        assert_eq!(seen.unwrap(), [of(1, 0), of(1, 5), of(2, 6), of(1, 7)]);
    }
    for_each_kind!(|P| check::<P>());
}

#[test]
fn a_panic_in_a_savepoint_undoes_it() {
    fn check<P: Protocol>() {
        let (database, items) = filled::<P>();
        let found = database.transact(|tx| {
            tx.update(&items, &0, |row| row.count = 1)?;
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                tx.savepoint(|tx| {
                    tx.update(&items, &0, |row| row.count = 2)?;
                    tx.insert(&items, item(1))?;
                    panic_quietly("the savepoint panics");
                    #[allow(unreachable_code, reason = "it names the error's type")]
                    Ok::<(), Error>(())
                })
            }));
            assert!(panicked.is_err());
            Ok::<_, Error>((tx.get(&items, &0)?.unwrap().count, tx.contains(&items, &1)?))
        });
        assert_eq!(found.unwrap(), (1, false));
    }
    for_each_kind!(|P| check::<P>());
}

/// A text whose encoding as a key panics if it is "panics".
#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Fragile(String);

impl Key for Fragile {
    const WIDTH_BYTES: Option<usize> = None;

    fn encode(&self, encoder: &mut impl KeyEncoder) {
        if self.0 == "panics" {
            panic_quietly("the key panics");
        }
        self.0.encode(encoder);
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Named {
    #[record(key)]
    id: u32,
    #[record(index)]
    name: Fragile,
}

/// Fault: if an operation in a savepoint panicked half way, the savepoint undid it, and the commit panicked all the same.
#[test]
fn a_panic_within_an_operation_of_a_savepoint_is_undone() {
    fn check<P: Protocol>() {
        let database = Database::builder().protocol::<P>().table::<Named>().open().unwrap();
        let table = database.table::<Named>().unwrap();
        let named = |id: u32, name: &str| Named { id, name: Fragile(name.to_owned()) };
        let ids = database.transact(|tx| {
            tx.insert(&table, named(1, "one"))?;
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                tx.savepoint(|tx| tx.insert(&table, named(2, "panics")))
            }));
            assert!(panicked.is_err());
            tx.insert(&table, named(3, "three"))?;
            tx.range(&table, ..).map(|row| Ok::<_, Error>(row?.id)).collect::<Result<Vec<_>, _>>()
        });
        assert_eq!(ids.unwrap(), [1, 3]);
        let by_name = database.transact(|tx| {
            tx.range_by(&table, Named::NAME, ..).map(|row| Ok::<_, Error>(row?.id)).collect()
        });
        let by_name: Vec<u32> = by_name.unwrap();
        assert_eq!(by_name, [1, 3]);
    }
    for_each_kind!(|P| check::<P>());
}

/// What was read in a savepoint that was undone is validated: the error may follow from it.
#[test]
fn a_row_that_was_read_in_a_savepoint_conflicts_when_it_changes() {
    fn check<P: Protocol>(is_written: bool) {
        let (database, items) = filled::<P>();
        let tx = database.begin().unwrap();
        let undone: Result<(), Stop> = tx.savepoint(|tx| {
            match is_written {
                true => _ = tx.update(&items, &2, |row| row.count = 9)?,
                false => _ = tx.get(&items, &2)?,
            }
            Err(Stop::Undone)
        });
        assert!(matches!(undone, Err(Stop::Undone)), "{undone:?}");
        weft_tests::on_a_thread(|| {
            let changed = database.transact(|tx| tx.update(&items, &2, |row| row.count = 5));
            changed.unwrap();
        });
        tx.insert(&items, item(3)).unwrap();
        assert!(matches!(tx.commit(), Err(Error::Conflict(_))));
        let read =
            |tx: &Transaction<'_, P>| Ok::<_, Error>(tx.get(&items, &2)?.map(|row| row.count));
        assert_eq!(database.transact(read).unwrap(), Some(5));
    }
    check::<Dbx>(false);
    check::<Dbx>(true);
    check::<weft_protocols::Htcc>(true);
    check::<weft_protocols::DbxTc>(true);
}

/// Under two-phase locking the lock of a row that was written stays.
#[test]
fn two_phase_locking_keeps_its_locks() {
    type P = weft::protocol::TwoPhaseLockingNoWait;
    let (database, items) = filled::<P>();
    let tx = database.begin().unwrap();
    let undone: Result<(), Stop> = tx.savepoint(|tx| {
        tx.update(&items, &2, |row| row.count = 9)?;
        Err(Stop::Undone)
    });
    assert!(matches!(undone, Err(Stop::Undone)), "{undone:?}");
    weft_tests::on_a_thread(|| {
        let other = database.begin().unwrap();
        assert!(matches!(other.get(&items, &2), Err(Error::Conflict(_))));
    });
    tx.commit().unwrap();
}

#[test]
fn many_threads_undo_and_keep_savepoints() {
    fn check<P: Protocol>() {
        let (database, items) = filled::<P>();
        let kept: i64 = weft_tests::on_threads(weft_tests::threads::<P>(), |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            let mut kept = 0;
            for _ in 0..40 {
                let (id, is_kept, is_read) = (2 * random.u32(..5), random.bool(), random.bool());
                let options = TransactionOptions::new();
                let ran: Result<(), Error> = database.transact_with(&options, |tx| {
                    tx.update(&items, &0, |row| row.count += 1)?;
                    let ran: Result<(), Stop> = tx.savepoint(|tx| {
                        tx.delete(&items, &id)?;
                        tx.insert(&items, Item { count: 1000, ..item(id) })?;
                        tx.insert(&items, item(id + 101))?;
                        if is_read {
                            tx.len(&items)?;
                        }
                        Err(Stop::Undone)
                    });
                    if let Err(Stop::Failed(error)) = ran {
                        return Err(error);
                    }
                    let ran: Result<(), Stop> = tx.savepoint(|tx| {
                        tx.add(&items, &id, column_of!(Item.count), 1)?;
                        if is_kept { Ok(()) } else { Err(Stop::Undone) }
                    });
                    match ran {
                        Err(Stop::Failed(error)) => Err(error),
                        _ => Ok(()),
                    }
                });
                ran.unwrap();
                kept += 1 + i64::from(is_kept);
            }
            kept
        })
        .into_iter()
        .sum();
        let rows = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
        assert_eq!(rows[0].len(), 5);
        assert_eq!(rows[0].iter().map(|row| row.count).sum::<i64>(), kept);
    }
    for_each_kind!(|P| check::<P>());
}

#[test]
fn a_savepoint_survives_a_restart_only_if_it_was_kept() {
    let directory = weft_tests::TemporaryDirectory::new("savepoints");
    let open = || {
        let database = Database::builder().table::<Item>().directory(&directory.0).open().unwrap();
        let items = database.table::<Item>().unwrap();
        (database, items)
    };
    let (database, items) = open();
    database.transact(|tx| tx.insert_many(&items, (0..10).step_by(2).map(item))).unwrap();
    for seed in 0..40 {
        let ran: Result<(), Error> = database.transact(|tx| {
            write(tx, &items, seed)?;
            let undone: Result<(), Stop> = tx.savepoint(|tx| {
                write(tx, &items, seed + 1000)?;
                Err(Stop::Undone)
            });
            match undone {
                Err(Stop::Failed(error)) => Err(error),
                _ => tx.savepoint(|tx| write(tx, &items, seed + 2000)),
            }
        });
        ran.unwrap();
    }
    let left = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
    drop((database, items));
    let (database, items) = open();
    let found = database.transact(|tx| Ok::<_, Error>(contents(tx, &items))).unwrap();
    assert_eq!(found, left);
}

#[test]
fn a_savepoint_of_a_single_operation_is_undone_too() {
    #[derive(Clone, Copy, Record)]
    #[record(storage = "hash")]
    struct Word {
        #[record(key)]
        id: u32,
        count: u32,
    }
    let database =
        Database::builder().protocol::<weft_protocols::Atomic>().table::<Word>().open().unwrap();
    let words = database.table::<Word>().unwrap();
    database.transact(|tx| tx.insert(&words, Word { id: 1, count: 1 })).unwrap();
    for id in [1, 2] {
        let ran: Result<(), Error> = database.transact(|tx| {
            let undone: Result<(), Stop> = tx.savepoint(|tx| {
                match id {
                    1 => _ = tx.update(&words, &id, |row| row.count = 2)?,
                    _ => tx.insert(&words, Word { id, count: 2 })?,
                }
                Err(Stop::Undone)
            });
            assert!(matches!(undone, Err(Stop::Undone)), "{undone:?}");
            Ok(())
        });
        ran.unwrap();
    }
    let snapshot = database.open_snapshot().unwrap();
    let counts: Vec<u32> = snapshot.rows(&words).map(|row| row.unwrap().count).collect();
    assert_eq!(counts, [1]);
}
