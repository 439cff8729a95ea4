//! What bad use gets: a typed error that names what is at fault, an unchanged state, and a
//! database that goes on working.

mod support;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread::{scope, yield_now};
use std::time::Duration;

use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol};
use weft::schema::Violation;
use weft::{
    Conflict, ConflictReason, Database, Error, Failure, Record, Table, Transaction,
    TransactionOptions,
};

use support::{for_each_protocol, on_a_thread, panic_quietly};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "people", check = Person::check_age)]
struct Person {
    #[record(key)]
    name: String,
    #[record(index)]
    city: String,
    #[record(unique)]
    phone: u32,
    #[record(unique)]
    passport: String,
    age: i32,
}

impl Person {
    fn check_age(&self) -> Result<(), Violation> {
        if self.age < 0 {
            return Err(format!("{} cannot be {} years old", self.name, self.age).into());
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "hits", storage = "hash")]
struct Hit {
    #[record(key)]
    id: u64,
    count: i64,
}

#[derive(Clone, Debug, Record)]
#[record(table = "strangers")]
struct Stranger {
    #[record(key)]
    id: u8,
}

/// An application's own error.
#[derive(Debug)]
enum Refused {
    Because(&'static str),
    Engine(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Engine(error)
    }
}

struct Fixture<P: Protocol> {
    database: Database<P>,
    people: Table<Person, P>,
    hits: Table<Hit, P>,
}

fn person(name: &str, phone: u32) -> Person {
    Person { name: name.into(), city: "Rome".into(), phone, passport: format!("P{phone}"), age: 30 }
}

impl<P: Protocol> Fixture<P> {
    /// Ada (phone 1), Bob (phone 2), and hit 1, counted 10.
    fn new() -> Self {
        let builder = Database::<P>::builder().table::<Person>().table::<Hit>();
        let database = builder.open().unwrap();
        let people = database.table().unwrap();
        let hits = database.table().unwrap();
        database
            .transact(|tx| {
                tx.insert(&people, person("Ada", 1))?;
                tx.insert(&people, person("Bob", 2))?;
                tx.insert(&hits, Hit { id: 1, count: 10 })
            })
            .unwrap();
        Fixture { database, people, hits }
    }

    fn count(&self) -> i64 {
        self.database.transact(|tx| Ok::<_, Error>(tx.get(&self.hits, &1)?.unwrap().count)).unwrap()
    }

    fn add_one(&self, tx: &Transaction<'_, P>) -> Result<(), Error> {
        let added = tx.update(&self.hits, &1, |hit| hit.count += 1)?;
        assert!(added.is_some());
        Ok(())
    }

    /// The state is that of [`Fixture::new`], by every index, and the database works.
    fn check_unchanged(&self) {
        let (by_name, by_city, by_phone, by_passport) = self
            .database
            .transact(|tx| -> Result<_, Error> {
                let copy = |row: Result<&Person, Error>| row.cloned();
                Ok((
                    tx.range(&self.people, ..).map(copy).collect::<Result<Vec<_>, _>>()?,
                    tx.range_by(&self.people, Person::CITY, ..)
                        .map(copy)
                        .collect::<Result<Vec<_>, _>>()?,
                    tx.range_by(&self.people, Person::PHONE, ..)
                        .map(copy)
                        .collect::<Result<Vec<_>, _>>()?,
                    tx.range_by(&self.people, Person::PASSPORT, ..)
                        .map(copy)
                        .collect::<Result<Vec<_>, _>>()?,
                ))
            })
            .unwrap();
        assert_eq!(by_name, [person("Ada", 1), person("Bob", 2)]);
        assert_eq!(by_city, by_name);
        assert_eq!(by_phone, by_name);
        assert_eq!(by_passport, by_name);
        assert_eq!(self.count(), 10);
        self.database.transact(|tx| self.add_one(tx)).unwrap();
        assert_eq!(self.count(), 11);
    }
}

fn failure<R>(result: Result<R, Error>) -> Failure {
    match result {
        Err(Error::Failure(failure)) => failure,
        Err(Error::Conflict(conflict)) => panic!("{conflict}"),
        Ok(_) => panic!("it went well"),
    }
}

// ---- the closure ------------------------------------------------------------------------------

#[test]
fn an_error_of_the_users_own_passes_through_and_rolls_back() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let result = it.database.transact(|tx| -> Result<(), Refused> {
            it.add_one(tx)?;
            tx.insert(&it.people, person("Eve", 3))?;
            tx.delete(&it.people, &"Ada".into())?;
            Err(Refused::Because("changed my mind"))
        });
        assert!(matches!(result, Err(Refused::Because("changed my mind"))));
        assert_eq!(it.database.metrics().rolled_back, 1);
        it.check_unchanged();
    });
}

#[test]
fn an_error_of_the_engine_reaches_the_users_own_type() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let result = it.database.transact(|tx| -> Result<(), Refused> {
            tx.insert(&it.people, person("Ada", 3))?;
            Ok(())
        });
        let Err(Refused::Engine(Error::Failure(Failure::DuplicateKey { .. }))) = result else {
            panic!("{result:?}");
        };
        it.check_unchanged();
    });
}

#[test]
fn a_panic_in_the_closure_passes_through_and_rolls_back() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            it.database.transact(|tx| -> Result<(), Error> {
                it.add_one(tx)?;
                tx.upsert(&it.people, Person { age: 31, ..person("Ada", 9) })?;
                panic_quietly("a mistake of the application")
            })
        }));
        let payload = caught.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"a mistake of the application"));
        it.check_unchanged();
    });
}

#[test]
fn a_panic_in_an_update_closure_passes_through_and_rolls_back() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            it.database.transact(|tx| {
                it.add_one(tx)?;
                tx.update(&it.people, &"Ada".into(), |row| {
                    row.city = "Oslo".into();
                    panic_quietly("half-way through")
                })
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"half-way through"));
        it.check_unchanged();
    });
}

#[test]
fn a_panic_caught_inside_the_closure_leaves_the_transaction_usable() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    tx.update(&it.people, &"Ada".into(), |row| {
                        row.age = 99;
                        panic_quietly("never mind")
                    })
                }));
                assert!(caught.is_err());
                assert_eq!(tx.get(&it.people, &"Ada".into())?, Some(&person("Ada", 1)));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

/// What a closure concludes from rows that were never there together is no conclusion.
#[test]
fn errors_and_panics_concluded_from_stale_rows_are_retried() {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            for panics in [false, true] {
                let it = Fixture::<P>::new();
                let mut attempts = 0;
                let result = it.database.transact(|tx| -> Result<(), Refused> {
                    attempts += 1;
                    let hits = tx.update(&it.hits, &1, |hit| {
                        // The row that the closure holds goes stale while it runs.
                        if attempts == 1 {
                            elsewhere(&it);
                        }
                        if hit.count == 10 && panics {
                            panic_quietly("concluded from a stale row");
                        }
                        hit.count
                    })?;
                    if hits == Some(10) { Err(Refused::Because("stale")) } else { Ok(()) }
                });
                assert!(result.is_ok(), "{result:?}");
                assert_eq!(attempts, 2);
            }
        }
    });

    fn elsewhere<P: Protocol>(it: &Fixture<P>) {
        on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
    }
}

#[test]
fn a_nested_transaction_is_refused_and_the_outer_one_goes_on() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                it.add_one(tx)?;
                let nested = it.database.transact(|tx| it.add_one(tx));
                assert_eq!(failure(nested), Failure::NestedTransaction);
                assert_eq!(it.database.begin().unwrap_err(), Failure::NestedTransaction);
                it.add_one(tx)
            })
            .unwrap();
        assert_eq!(it.count(), 12);
    });
}

#[test]
fn a_swallowed_conflict_fails_the_commit() {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            let it = Fixture::<P>::new();
            let tx = it.database.begin().unwrap();
            let row = tx.get(&it.hits, &1).unwrap().unwrap();
            on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
            let _ = it.add_one(&tx);
            let _ = tx.insert(&it.people, person("Eve", 3));
            assert_eq!(row.count, 10, "a row once read stays as it was");
            let Err(Error::Conflict(Conflict { reason, table, key, .. })) = tx.commit() else {
                panic!("a stale read was committed");
            };
            assert!(ConflictReason::ALL.contains(&reason));
            assert_eq!((table, key.as_deref()), ("hits", Some("1")));
            assert_eq!(it.count(), 11);
            let found = it
                .database
                .transact(|tx| Ok::<_, Error>(tx.get(&it.people, &"Eve".into())?.is_some()));
            assert!(!found.unwrap());
        }
    });
}

#[test]
fn options_bound_the_retries_and_the_time() {
    for_each_protocol!(|P| {
        if P::WORKERS_MAX > 1 {
            let it = Fixture::<P>::new();
            // Every attempt is spoilt by a transaction of another thread.
            let spoilt = |tx: &Transaction<'_, P>| -> Result<(), Error> {
                let _ = tx.get(&it.hits, &1)?;
                on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
                it.add_one(tx)
            };
            let mut attempts = 0;
            let options = TransactionOptions::new().retries_max(3);
            let result = it.database.transact_with(&options, |tx| {
                attempts += 1;
                spoilt(tx)
            });
            assert_eq!(attempts, 4, "one, and three more");
            let Failure::RetriesExhausted { attempts: 4, last } = failure(result) else {
                panic!("another failure");
            };
            assert_eq!(last.table, "hits");
            assert_eq!(it.count(), 14);

            let deadline = Duration::from_millis(2);
            let options = TransactionOptions::new().deadline(deadline);
            let result = it.database.transact_with(&options, spoilt);
            let failed = failure(result);
            assert!(
                matches!(failed, Failure::DeadlineExceeded { deadline: at, .. } if at == deadline)
            );
        }
    });
}

#[test]
fn a_deadline_stops_a_closure_that_would_never_end() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let options = TransactionOptions::new().deadline(Duration::from_millis(2));
        let result = it.database.transact_with(&options, |tx| -> Result<(), Error> {
            loop {
                it.add_one(tx)?;
            }
        });
        assert!(matches!(failure(result), Failure::DeadlineExceeded { attempts: 1, .. }));
        it.check_unchanged();
    });
}

#[test]
fn a_deadline_beyond_the_end_of_time_is_none() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let options = TransactionOptions::new().deadline(Duration::MAX).retries_max(u32::MAX);
        it.database.transact_with(&options, |tx| it.add_one(tx)).unwrap();
        assert_eq!(it.count(), 11);
    });
}

// ---- rows and keys ----------------------------------------------------------------------------

#[test]
fn a_duplicate_key_is_named_and_has_no_partial_effect() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let in_primary = failure(tx.insert(&it.people, person("Ada", 7)));
                assert_eq!(
                    in_primary.to_string(),
                    "a row with this key exists (table people, key \"Ada\")"
                );
                // The entries of the indexes before `passport` are taken back.
                let in_last = failure(
                    tx.insert(&it.people, Person { passport: "P2".into(), ..person("Eve", 7) }),
                );
                let Failure::DuplicateKey { table: "people", index, key } = in_last else {
                    panic!("{in_last}");
                };
                assert_eq!(index, Some("passport"));
                assert!(key.contains("Eve") || key.contains("P2"), "{key}");
                let update = failure(tx.update(&it.people, &"Ada".into(), |row| {
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
fn a_duplicate_of_a_row_of_the_same_transaction() {
    for_each_protocol!(|P| {
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
                assert!(tx.delete(&it.people, &"Eve".into())?);
                tx.insert(&it.people, person("Mallory", 3))?;
                assert!(tx.delete(&it.people, &"Mallory".into())?);
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn a_broken_constraint_names_the_row_and_leaves_it_as_it_was() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let unborn = failure(tx.insert(&it.people, Person { age: -1, ..person("Eve", 3) }));
                let text = "table people, key \"Eve\": Eve cannot be -1 years old";
                assert_eq!(unborn.to_string(), text);
                let update = tx.update(&it.people, &"Ada".into(), |row| row.age = -1);
                assert!(matches!(failure(update), Failure::Constraint { table: "people", .. }));
                let upsert = tx.upsert(&it.people, Person { age: -1, ..person("Ada", 1) });
                assert!(matches!(failure(upsert), Failure::Constraint { table: "people", .. }));
                assert_eq!(tx.get(&it.people, &"Ada".into())?, Some(&person("Ada", 1)));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn an_update_may_not_change_the_key() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let renamed = tx.update(&it.people, &"Ada".into(), |row| row.name = "Eva".into());
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
    for_each_protocol!(|P| {
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
        // Another row, and reads of any, are no problem.
        it.database
            .transact(|tx| {
                tx.update(&it.hits, &1, |_| {
                    assert_eq!(tx.get(&it.hits, &1).unwrap().unwrap().count, 10);
                    tx.update(&it.people, &"Ada".into(), |row| row.age += 1).unwrap();
                    tx.update(&it.people, &"Ada".into(), |row| row.age -= 1).unwrap();
                })
            })
            .unwrap();
        it.check_unchanged();
    });
}

/// The inner write stays, if the caller decides that the failure of the outer one is fine.
#[test]
fn a_swallowed_nested_write_keeps_the_inner_one() {
    for_each_protocol!(|P| {
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
fn empty_and_huge_keys() {
    for_each_protocol!(|P| {
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

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "huge")]
struct Huge {
    #[record(key)]
    id: u8,
    content: [u8; 32 << 10],
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "large")]
struct Large {
    #[record(key)]
    id: u16,
    content: [u8; (32 << 10) - 66],
}

#[test]
fn rows_up_to_the_limit_and_beyond() {
    for_each_protocol!(|P| {
        let Err(failed) = Database::<P>::builder().table::<Huge>().open() else {
            panic!("a row of more than the limit");
        };
        let Failure::RowTooLarge { table: "huge", size_bytes, size_max_bytes } = failed else {
            panic!("{failed}");
        };
        assert_eq!(size_bytes, size_of::<Huge>());
        assert!(size_max_bytes < size_bytes && size_of::<Large>() <= size_max_bytes);

        let database = Database::<P>::builder().table::<Large>().open().unwrap();
        let table = database.table::<Large>().unwrap();
        for id in 0..40 {
            let row = Large { id, content: [id as u8; _] };
            database.transact(|tx| tx.insert(&table, row.clone())).unwrap();
            database.transact(|tx| tx.update(&table, &id, |row| row.content[7] += 1)).unwrap();
        }
        let sum = database.transact(|tx| -> Result<u64, Error> {
            tx.range(&table, ..).try_fold(0, |sum, row| Ok(sum + u64::from(row?.content[7])))
        });
        assert_eq!(sum.unwrap(), (1..=40).sum());
    });
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "nothing")]
struct Nothing {
    #[record(key)]
    key: (),
}

/// A row of no bytes takes no place, but the table holds at most one and knows whether.
#[test]
fn a_row_of_no_bytes() {
    for_each_protocol!(|P| {
        let database = Database::<P>::builder().table::<Nothing>().open().unwrap();
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

// ---- tables and ranges ------------------------------------------------------------------------

#[test]
fn a_table_that_was_not_registered_is_named() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let failed = it.database.table::<Stranger>().unwrap_err();
        let Failure::UnknownTable { table, row_type } = failed else { panic!("{failed}") };
        assert_eq!(table, "strangers");
        assert!(row_type.ends_with("Stranger"));
        let text = failed.to_string();
        assert!(text.contains("strangers") && text.contains("Stranger>()"), "{text}");
    });
}

#[test]
fn a_table_that_is_registered_twice_is_named() {
    #[derive(Clone, Debug, Record)]
    #[record(table = "hits")]
    struct Namesake {
        #[record(key)]
        id: u8,
    }
    for_each_protocol!(|P| {
        let twice = Database::<P>::builder().table::<Hit>().table::<Hit>().open();
        assert_eq!(twice.unwrap_err(), Failure::DuplicateTable { table: "hits" });
        let namesakes = Database::<P>::builder().table::<Hit>().table::<Namesake>().open();
        assert_eq!(namesakes.unwrap_err(), Failure::DuplicateTable { table: "hits" });
    });
}

#[test]
fn a_handle_of_another_database_is_refused() {
    for_each_protocol!(|P| {
        let (it, other) = (Fixture::<P>::new(), Fixture::<P>::new());
        let dropped = {
            let third = Fixture::<P>::new();
            third.hits.clone()
        };
        let foreign = Failure::ForeignTable { table: "hits" };
        it.database
            .transact(|tx| -> Result<(), Error> {
                for hits in [&other.hits, &dropped] {
                    assert_eq!(failure(tx.get(hits, &1)), foreign);
                    assert_eq!(failure(tx.insert(hits, Hit { id: 2, count: 0 })), foreign);
                    assert_eq!(failure(tx.upsert(hits, Hit { id: 1, count: 0 })), foreign);
                    assert_eq!(failure(tx.update(hits, &1, |_| ())), foreign);
                    assert_eq!(failure(tx.delete(hits, &1)), foreign);
                }
                let mut scan = tx.range(&other.people, ..);
                assert!(matches!(
                    scan.next(),
                    Some(Err(Error::Failure(Failure::ForeignTable { .. })))
                ));
                assert!(scan.next().is_none(), "a scan ends with its failure");
                let by_phone = tx.get_by(&other.people, Person::PHONE, &1);
                assert_eq!(failure(by_phone), Failure::ForeignTable { table: "people" });
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
        other.check_unchanged();
    });
}

#[test]
fn a_hash_table_has_no_ranges() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let unordered = Failure::UnorderedTable { table: "hits" };
                let range = tx.range(&it.hits, ..).next().unwrap();
                assert_eq!(failure(range), unordered);
                let descending = tx.range(&it.hits, 1..=1).descending().next().unwrap();
                assert_eq!(failure(descending), unordered);
                assert_eq!(failure(tx.prefix(&it.hits, &1).next().unwrap()), unordered);
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn a_range_the_wrong_way_round_is_named_and_an_empty_one_is_empty() {
    use std::ops::Bound::{Excluded, Included};
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let reversed = tx.range(&it.people, "b".to_owned().."a".to_owned()).next();
                assert_eq!(
                    failure(reversed.unwrap()).to_string(),
                    "table people: the range starts at \"b\", behind its end \"a\" (excluded)"
                );
                #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
                let by_phone = tx.range_by(&it.people, Person::PHONE, 5..=4).next();
                assert!(matches!(failure(by_phone.unwrap()), Failure::InvalidRange { .. }));
                let (ada, bob) = ("Ada".to_owned(), "Bob".to_owned());
                for empty in [
                    (Excluded(ada.clone()), Excluded(ada.clone())),
                    (Included(ada.clone()), Excluded(ada.clone())),
                    (Excluded(ada.clone()), Included(ada.clone())),
                    (Excluded(ada.clone()), Excluded(bob.clone())),
                ] {
                    assert_eq!(tx.range(&it.people, empty.clone()).count(), 0, "{empty:?}");
                }
                for same in [
                    (Excluded(1), Excluded(1)),
                    (Included(1), Excluded(1)),
                    (Excluded(1), Included(1)),
                    (Excluded(1), Excluded(2)),
                ] {
                    assert_eq!(tx.range_by(&it.people, Person::PHONE, same).count(), 0, "{same:?}");
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
#[should_panic(expected = "the scan has begun")]
fn the_direction_of_a_scan_cannot_change_half_way() {
    let it = Fixture::<Dbx>::new();
    let tx = it.database.begin().unwrap();
    let mut scan = tx.range(&it.people, ..);
    assert!(scan.next().is_some());
    let _ = scan.descending();
}

// ---- opening and closing ----------------------------------------------------------------------

#[test]
fn a_closed_database_says_so() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database.close().unwrap();
        it.database.close().unwrap();
        let other_handle = it.database.clone();
        assert_eq!(other_handle.begin().unwrap_err(), Failure::Closed);
        assert_eq!(failure(it.database.transact(|tx| it.add_one(tx))), Failure::Closed);
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        assert_eq!(elsewhere, Err(Failure::Closed), "on a thread that comes too late");
    });
}

#[test]
fn a_transaction_cannot_close_its_own_database() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|_| -> Result<(), Error> {
                assert_eq!(it.database.close(), Err(Failure::NestedTransaction));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn close_waits_for_running_transactions() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let committed = Word::new(0);
        let (begun, has_begun) = channel();
        scope(|scope| {
            scope.spawn(|| {
                let tx = it.database.begin().unwrap();
                begun.send(()).unwrap();
                // Until the close has set in, and a little longer.
                let probe = || scope.spawn(|| it.database.begin().map(drop)).join().unwrap();
                while probe() != Err(Failure::Closed) {
                    yield_now();
                }
                (0..100).for_each(|_| yield_now());
                it.add_one(&tx).unwrap();
                tx.commit().unwrap();
                committed.store(1, Ordering::SeqCst);
            });
            has_begun.recv().unwrap();
            it.database.close().unwrap();
            // The commit itself precedes the end of the transaction; the line after it may not.
            assert_eq!(it.database.metrics().committed, 2);
        });
        assert_eq!(committed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn too_many_threads_are_refused_and_places_come_back() {
    for_each_protocol!(|P| {
        let builder = Database::<P>::builder().table::<Hit>().workers_max(2);
        let database = builder.open().unwrap();
        let use_it = || database.begin().map(drop);
        for round in 0..5 {
            let (ready, is_ready) = channel();
            scope(|scope| {
                let both = [0, 1].map(|_| ready.clone()).map(|ready| {
                    scope.spawn(move || {
                        // One at a time, for the protocol that bears no more.
                        while use_it() == Err(Failure::SingleThreaded { protocol: P::NAME }) {
                            yield_now();
                        }
                        ready.send(()).unwrap();
                        // Stays a worker until told.
                        while ROUND.load(Ordering::SeqCst) == round {
                            yield_now();
                        }
                    })
                });
                is_ready.recv().unwrap();
                is_ready.recv().unwrap();
                let third = scope.spawn(use_it).join().unwrap();
                assert_eq!(third, Err(Failure::TooManyWorkers { workers_max: 2 }));
                assert_eq!(database.metrics().workers, 2);
                ROUND.store(round + 1, Ordering::SeqCst);
                for thread in both {
                    thread.join().unwrap();
                }
            });
        }
        ROUND.store(0, Ordering::SeqCst);
        assert_eq!(database.metrics().workers, 0);
        assert_eq!(use_it(), Ok(()));
    });
    static ROUND: Word = Word::new(0);
}

#[test]
fn one_thread_at_a_time_where_the_protocol_wants_it() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let tx = it.database.begin().unwrap();
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        let expected = match P::WORKERS_MAX {
            1 => Err(Failure::SingleThreaded { protocol: P::NAME }),
            _ => Ok(()),
        };
        assert_eq!(elsewhere, expected);
        drop(tx);
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        assert_eq!(elsewhere, Ok(()));
    });
}

#[test]
fn no_place_for_workers_means_one() {
    for_each_protocol!(|P| {
        let database = Database::<P>::builder().table::<Hit>().workers_max(0).open().unwrap();
        database.begin().unwrap().commit().unwrap();
    });
}

#[test]
fn a_database_without_tables() {
    for_each_protocol!(|P| {
        let database = Database::<P>::builder().open().unwrap();
        database.transact(|_| Ok::<_, Error>(())).unwrap();
        assert!(database.table::<Hit>().is_err());
    });
}

// ---- several databases, and threads that come and go ------------------------------------------

#[test]
fn one_thread_uses_several_databases_interleaved() {
    for_each_protocol!(|P| {
        let them: Vec<Fixture<P>> = (0..5).map(|_| Fixture::new()).collect();
        let transactions: Vec<_> = them.iter().map(|it| it.database.begin().unwrap()).collect();
        for (number, (it, tx)) in them.iter().zip(&transactions).enumerate() {
            for _ in 0..=number {
                it.add_one(tx).unwrap();
            }
        }
        for (number, tx) in transactions.into_iter().enumerate() {
            if number % 2 == 0 { tx.commit().unwrap() } else { tx.rollback() }
        }
        let counts: Vec<i64> = them.iter().map(Fixture::count).collect();
        assert_eq!(counts, [11, 10, 13, 10, 15]);
        // Inside each other, too.
        them[1]
            .database
            .transact(|outer| {
                them[1].add_one(outer)?;
                them[3].database.transact(|inner| them[3].add_one(inner))
            })
            .unwrap();
        assert_eq!((them[1].count(), them[3].count()), (11, 11));
    });
}

#[test]
fn databases_come_and_go_under_a_thread_that_stays() {
    for_each_protocol!(|P| {
        let stays = Fixture::<P>::new();
        for round in 0..50 {
            let goes = Fixture::<P>::new();
            goes.database.transact(|tx| goes.add_one(tx)).unwrap();
            stays.database.transact(|tx| stays.add_one(tx)).unwrap();
            assert_eq!(goes.count(), 11);
            assert_eq!(stays.count(), 11 + round);
        }
    });
}

#[test]
fn a_database_is_dropped_while_other_threads_are_registered() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let (registered, is_registered) = channel();
        let (drop_it, dropped) = channel::<()>();
        let handle = it.database.clone();
        let hits = it.hits.clone();
        let thread = std::thread::spawn(move || {
            handle.transact(|tx| tx.update(&hits, &1, |hit| hit.count += 1)).unwrap();
            drop(handle);
            registered.send(()).unwrap();
            dropped.recv().unwrap_err();
            // The thread goes on to use another one.
            let next = Fixture::<P>::new();
            next.check_unchanged();
        });
        is_registered.recv().unwrap();
        assert_eq!(it.count(), 11);
        assert_eq!(it.database.metrics().workers, 2);
        drop(it);
        drop(drop_it);
        thread.join().unwrap();
    });
}

#[test]
fn the_last_handle_goes_on_another_thread() {
    for_each_protocol!(|P| {
        for _ in 0..20 {
            let it = Fixture::<P>::new();
            let handle = it.database.clone();
            let thread = std::thread::spawn(move || drop(handle));
            drop(it);
            thread.join().unwrap();
        }
    });
}

/// A transaction that is leaked holds its place for good, and nothing else.
#[test]
fn a_thread_that_leaks_a_transaction() {
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        on_a_thread(|| {
            let tx = it.database.begin().unwrap();
            it.add_one(&tx).unwrap();
            tx.insert(&it.people, person("Eve", 3)).unwrap();
            std::mem::forget(tx);
            assert_eq!(it.database.begin().unwrap_err(), Failure::NestedTransaction);
        });
        if P::WORKERS_MAX > 1 {
            it.check_unchanged();
            // What the leaked transaction was about to insert can be inserted.
            it.database.transact(|tx| tx.insert(&it.people, person("Eve", 3))).unwrap();
        } else {
            let begun = it.database.begin();
            assert_eq!(begun.unwrap_err(), Failure::SingleThreaded { protocol: P::NAME });
        }
    });
}

#[test]
fn a_transaction_that_outlives_other_uses_of_its_thread_is_leaked_at_its_end() {
    // The row stays readable: the worker is not given back under it.
    for_each_protocol!(|P| {
        let it = Fixture::<P>::new();
        let row: &Person = on_a_thread(|| {
            let tx = Box::leak(Box::new(it.database.begin().unwrap()));
            tx.get(&it.people, &"Ada".into()).unwrap().unwrap()
        });
        if P::WORKERS_MAX > 1 {
            for age in 0..2000 {
                it.database
                    .transact(|tx| tx.update(&it.people, &"Ada".into(), |row| row.age = age))
                    .unwrap();
            }
        }
        assert_eq!(row, &person("Ada", 1));
    });
}

/// Rows whose end is counted, to see that none is forgotten with its worker.
#[derive(Debug, Record)]
#[record(table = "counted")]
struct Counted {
    #[record(key)]
    id: u64,
    live: &'static Live,
}

#[derive(Debug)]
struct Live(Word);

impl Counted {
    fn new(id: u64, live: &'static Live) -> Self {
        live.0.fetch_add(1, Ordering::SeqCst);
        Counted { id, live }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(self.id, self.live)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.0.fetch_add(u64::MAX, Ordering::SeqCst);
    }
}

#[test]
fn a_worker_ends_with_garbage_pending() {
    for_each_protocol!(|P| {
        let live: &'static Live = Box::leak(Box::new(Live(Word::new(0))));
        let database = Database::<P>::builder().table::<Counted>().open().unwrap();
        let table = database.table::<Counted>().unwrap();
        let churn = |id: u64| {
            database.transact(|tx| tx.insert(&table, Counted::new(id, live))).unwrap();
            database.transact(|tx| tx.update(&table, &id, |_| ())).unwrap();
            if id.is_multiple_of(2) {
                database.transact(|tx| tx.delete(&table, &id)).unwrap();
            }
        };
        for round in 0..10 {
            on_a_thread(|| (round * 10..round * 10 + 10).for_each(churn));
        }
        let visible =
            database.transact(|tx| Ok::<_, Error>(tx.range(&table, ..).count() as u64)).unwrap();
        assert_eq!(visible, 50);
        assert!(live.0.load(Ordering::SeqCst) >= visible);
        drop((database, table));
        assert_eq!(live.0.load(Ordering::SeqCst), 0, "rows that nobody dropped, or twice");
    });
}

#[test]
fn rows_of_failed_and_rolled_back_writes_are_dropped() {
    for_each_protocol!(|P| {
        let live: &'static Live = Box::leak(Box::new(Live(Word::new(0))));
        let database = Database::<P>::builder().table::<Counted>().open().unwrap();
        let table = database.table::<Counted>().unwrap();
        database.transact(|tx| tx.insert(&table, Counted::new(1, live))).unwrap();
        let attempt = |end: &dyn Fn()| {
            database.transact(|tx| -> Result<(), Error> {
                assert!(tx.insert(&table, Counted::new(1, live)).is_err());
                assert!(tx.upsert(&table, Counted::new(1, live))?);
                tx.update(&table, &1, |_| ())?;
                assert!(tx.update(&table, &1, |row| row.id = 9).is_err());
                tx.insert(&table, Counted::new(2, live))?;
                tx.update(&table, &2, |_| ())?;
                tx.delete(&table, &2)?;
                tx.insert(&table, Counted::new(2, live))?;
                tx.delete(&table, &1)?;
                tx.insert(&table, Counted::new(1, live))?;
                end();
                Err(Failure::Closed.into())
            })
        };
        attempt(&|| ()).unwrap_err();
        catch_unwind(AssertUnwindSafe(|| attempt(&|| panic_quietly("at the end")))).unwrap_err();
        assert_eq!(live.0.load(Ordering::SeqCst), 1, "the committed row, and no other");
        drop((database, table));
        assert_eq!(live.0.load(Ordering::SeqCst), 0);
    });
}

/// A row that, when it is dropped, calls what its thread has set up for that.
#[derive(Debug, Record)]
#[record(table = "reentrant")]
struct Reentrant {
    #[record(key)]
    id: u64,
    text: String,
}

type OnDrop = Box<dyn Fn()>;

thread_local! {
    static ON_DROP: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

impl Clone for Reentrant {
    fn clone(&self) -> Self {
        Reentrant { id: self.id, text: self.text.clone() }
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        ON_DROP.with_borrow(|on_drop| {
            if let Some(call) = on_drop {
                call();
            }
        });
    }
}

/// Rows are dropped at the ends of transactions, and a `drop` may do anything.
#[test]
fn a_row_whose_drop_runs_a_transaction() {
    for_each_protocol!(|P| {
        let database = Database::<P>::builder().table::<Reentrant>().open().unwrap();
        let table = database.table::<Reentrant>().unwrap();
        let row = |id: u64| Reentrant { id, text: format!("number {id}") };
        (0..50).for_each(|id| database.transact(|tx| tx.insert(&table, row(id))).unwrap());
        let nested = Rc::new(Cell::new(0));
        let on_drop = {
            let (database, table, nested) = (database.clone(), table.clone(), Rc::clone(&nested));
            move || {
                let count = |tx: &Transaction<'_, P>| Ok(tx.range(&table, ..).count());
                match database.transact(count) {
                    Ok(_) => {}
                    Err(Error::Failure(Failure::NestedTransaction)) => nested.set(nested.get() + 1),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        ON_DROP.set(Some(Box::new(on_drop)));
        for turn in 0..100 {
            for id in 0..50 {
                let change = |row: &mut Reentrant| row.text = format!("{id} in turn {turn}");
                database.transact(|tx| tx.update(&table, &id, change)).unwrap();
            }
        }
        drop(ON_DROP.take());
        assert!(nested.get() > 1000, "{} rows were dropped", nested.get());
        let last = database.transact(|tx| Ok::<_, Error>(tx.get(&table, &49)?.cloned()));
        assert_eq!(last.unwrap().unwrap().text, "49 in turn 99");
    });
}
