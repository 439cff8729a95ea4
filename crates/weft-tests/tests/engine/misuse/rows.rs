//! Invalid rows and keys: duplicates, violated constraints, changed keys, and sizes at the limits.

use super::*;

#[test]
fn duplicate_key_is_named_and_changes_nothing() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let in_primary = failure(tx.insert(&it.people, person("Ada", 7)));
                assert_eq!(
                    in_primary.to_string(),
                    "a row with this key exists (table people, key \"Ada\")"
                );
                // The index entries before that of `passport` are removed again.
                let in_last = failure(
                    tx.insert(&it.people, Person { passport: "P2".into(), ..person("Eve", 7) }),
                );
                assert_eq!(
                    in_last.to_string(),
                    "a row with this key exists (table people, index passport, key \"P2\")"
                );
                let update = failure(tx.update(&it.people, "Ada", |row| {
                    (row.city, row.phone, row.passport) = ("Oslo".into(), 77, "P2".into());
                }));
                assert!(matches!(update, Failure::DuplicateKey { index: Some("passport"), .. }));
                let upsert = failure(tx.upsert(
                    &it.people,
                    Person { city: "Oslo".into(), passport: "P2".into(), ..person("Ada", 7) },
                ));
                assert!(matches!(upsert, Failure::DuplicateKey { index: Some("passport"), .. }));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn duplicate_within_a_transaction_is_refused() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                tx.insert(&it.people, person("Eve", 3))?;
                assert!(matches!(
                    failure(tx.insert(&it.people, person("Eve", 4))),
                    Failure::DuplicateKey { index: None, .. }
                ));
                assert!(matches!(
                    failure(tx.insert(&it.people, person("Mallory", 3))),
                    Failure::DuplicateKey { index: Some("phone"), .. }
                ));
                assert!(tx.delete(&it.people, "Eve")?);
                tx.insert(&it.people, person("Mallory", 3))?;
                assert!(tx.delete(&it.people, "Mallory")?);
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn violated_constraint_names_the_row_and_changes_nothing() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let unborn = failure(tx.insert(&it.people, Person { age: -1, ..person("Eve", 3) }));
                let text = "table people, key \"Eve\": check_age: Eve cannot be -1 years old";
                assert_eq!(unborn.to_string(), text);
                let update = tx.update(&it.people, "Ada", |row| row.age = -1);
                assert!(matches!(failure(update), Failure::Constraint { table: "people", .. }));
                let upsert = tx.upsert(&it.people, Person { age: -1, ..person("Ada", 1) });
                assert!(matches!(failure(upsert), Failure::Constraint { table: "people", .. }));
                assert_eq!(tx.get(&it.people, "Ada")?, Some(&person("Ada", 1)));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn an_update_may_not_change_the_key() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let renamed = tx.update(&it.people, "Ada", |row| row.name = "Eva".into());
                let Failure::KeyChanged { table, key, changed } = failure(renamed) else {
                    panic!("another failure");
                };
                assert_eq!((table, &*key, &*changed), ("people", "\"Ada\"", "\"Eva\""));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn a_row_may_not_be_written_inside_its_own_update() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let nested = |change: &dyn Fn(&Transaction<'_, P>)| {
            it.database.transact(|tx| -> Result<(), Error> {
                tx.update(&it.hits, &1, |row| {
                    row.count = 99;
                    change(tx);
                })?;
                Ok(())
            })
        };
        let expected = Failure::NestedWrite { table: "hits", key: "1".into() };
        assert_eq!(failure(nested(&|tx| it.add_one(tx).unwrap())), expected);
        assert_eq!(failure(nested(&|tx| assert!(tx.delete(&it.hits, &1).unwrap()))), expected);
        let replace = |tx: &Transaction<'_, P>| {
            assert!(tx.delete(&it.hits, &1).unwrap());
            tx.insert(&it.hits, Hit { id: 1, count: 5 }).unwrap();
        };
        assert_eq!(failure(nested(&replace)), expected);
        // Writing another row and reading any row are allowed.
        it.database
            .transact(|tx| {
                tx.update(&it.hits, &1, |_| {
                    assert_eq!(tx.get(&it.hits, &1).unwrap().unwrap().count, 10);
                    tx.update(&it.people, "Ada", |row| row.age += 1).unwrap();
                    tx.update(&it.people, "Ada", |row| row.age -= 1).unwrap();
                })
            })
            .unwrap();
        it.check_unchanged();
    });
}

/// The inner write stays if the caller ignores the failure of the outer one.
#[test]
fn a_swallowed_nested_write_keeps_the_inner_one() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let outer = tx.update(&it.hits, &1, |row| {
                    row.count = 99;
                    it.add_one(tx).unwrap();
                });
                assert!(matches!(failure(outer), Failure::NestedWrite { .. }));
                Ok(())
            })
            .unwrap();
        assert_eq!(it.count(), 11);
    });
}

#[test]
fn empty_and_huge_keys_work() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let names: Vec<String> = [0, 1, 31, 32, 33, 4096, 32 << 10, 64 << 10, 1 << 20]
            .iter()
            .map(|length| "k".repeat(*length))
            .collect();
        let insert = || {
            it.database.transact(|tx| -> Result<(), Error> {
                for (number, name) in names.iter().enumerate() {
                    let mut row = person(name, 100 + number as u32);
                    (row.city, row.passport) = (name.clone(), name.clone());
                    tx.insert(&it.people, row)?;
                }
                Ok(())
            })
        };
        insert().unwrap();
        assert!(matches!(failure(insert()), Failure::DuplicateKey { table: "people", .. }));
        it.database
            .transact(|tx| -> Result<(), Error> {
                for name in &names {
                    assert_eq!(&tx.get(&it.people, name)?.expect("inserted").name, name);
                    let by_passport = tx.get_by(&it.people, Person::PASSPORT, name)?;
                    assert_eq!(&by_passport.expect("inserted").name, name);
                    let in_city = tx.prefix_by(&it.people, Person::CITY, name).count();
                    assert_eq!(in_city, 1);
                    assert!(tx.delete(&it.people, name)?);
                }
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "huge")]
struct Huge {
    #[record(key)]
    id: u8,
    content: [u8; 32 << 10],
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "large")]
struct Large {
    #[record(key)]
    id: u16,
    content: [u8; (32 << 10) - 66],
}

#[test]
fn rows_beyond_the_size_limit_are_refused() {
    for_each_executor!(|P| {
        let Err(failed) = Database::builder().protocol::<P>().table::<Huge>().open() else {
            panic!("a row above the size limit was accepted");
        };
        let Failure::RowTooLarge { table: "huge", size_bytes, size_max_bytes } = failed else {
            panic!("{failed}");
        };
        assert_eq!(size_bytes, size_of::<Huge>());
        assert!(size_max_bytes < size_bytes && size_of::<Large>() <= size_max_bytes);

        let database = Database::builder().protocol::<P>().table::<Large>().open().unwrap();
        let table = database.table::<Large>().unwrap();
        for id in 0..40 {
            let row = Large { id, content: [id as u8; _] };
            database.transact(|tx| tx.insert(&table, row)).unwrap();
            database.transact(|tx| tx.update(&table, &id, |row| row.content[7] += 1)).unwrap();
        }
        let sum = database.transact(|tx| -> Result<u64, Error> {
            tx.range(&table, ..).try_fold(0, |sum, row| Ok(sum + u64::from(row?.content[7])))
        });
        assert_eq!(sum.unwrap(), (1..=40_u64).sum::<u64>());
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "nothing")]
struct Nothing {
    #[record(key)]
    key: (),
}

/// A row of no bytes takes no memory, but the table still knows whether it has the row, and holds at most one.
#[test]
fn row_of_no_bytes_works() {
    for_each_executor!(|P| {
        let database = Database::builder().protocol::<P>().table::<Nothing>().open().unwrap();
        let table = database.table::<Nothing>().unwrap();
        for _ in 0..100 {
            database
                .transact(|tx| -> Result<(), Error> {
                    assert_eq!(tx.get(&table, &())?, None);
                    tx.insert(&table, Nothing { key: () })?;
                    assert!(tx.insert(&table, Nothing { key: () }).is_err());
                    Ok(())
                })
                .unwrap();
            let removed = database.transact(|tx| -> Result<bool, Error> {
                tx.update(&table, &(), |_| ())?;
                tx.delete(&table, &())
            });
            assert!(removed.unwrap());
        }
    });
}
