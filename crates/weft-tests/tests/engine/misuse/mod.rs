//! Tests of misuse: it gets a typed error that names the cause, the state is unchanged, and the database works
//! afterwards.

mod closures;
mod lifetimes;
mod opening;
mod rows;
mod tables;

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

use weft_tests::{begin_waits, for_each_executor, on_a_thread, panic_quietly, threads};

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

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(table = "hits", storage = "hash")]
struct Hit {
    #[record(key)]
    id: u64,
    count: i64,
}

#[derive(Clone, Copy, Debug, Record)]
#[record(table = "strangers")]
struct Stranger {
    #[record(key)]
    id: u8,
}

/// An application's error type.
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
    people: Table<Person>,
    hits: Table<Hit>,
}

fn person(name: &str, phone: u32) -> Person {
    Person { name: name.into(), city: "Rome".into(), phone, passport: format!("P{phone}"), age: 30 }
}

impl<P: Protocol> Fixture<P> {
    /// Creates Ada (phone 1), Bob (phone 2), and hit 1 with the count 10.
    fn new() -> Self {
        let builder = Database::builder().protocol::<P>().table::<Person>().table::<Hit>();
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

    /// Checks that all indexes show the state of [`Fixture::new`], and that the database works.
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
        Ok(_) => panic!("it succeeded"),
    }
}
