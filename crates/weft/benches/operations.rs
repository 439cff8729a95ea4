//! Measures operations beside others that could be used in their place. Those that are compared take turns.
//!
//! - Insertions of rows with generated keys, beside keys that the caller makes: from one counter that all threads share,
//!   or each thread from numbers of its own.
//! - Look-ups by borrowed forms of a key, beside the key itself.
//! - Writes in a savepoint, beside the same writes without one.
//! - Updates of a column that is a map, beside an array of the same numbers.
//!
//! `cargo bench -p weft --bench operations -- [ROWS] [ROUNDS]`

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record, Transaction};

#[derive(Clone, Copy, Record)]
struct Event {
    #[record(key, generated)]
    id: u64,
    value: u64,
}

/// How the keys are made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    Generated,
    SharedCounter,
    OwnNumbers,
}

const ALL: [Keys; 3] = [Keys::Generated, Keys::SharedCounter, Keys::OwnNumbers];

/// Inserts `rows` rows on each of `threads` threads, each in a transaction. Returns the nanoseconds per row and thread.
fn insert(keys: Keys, threads: u64, rows: u64) -> Result<f64, Error> {
    let database = Database::builder().table::<Event>().open()?;
    let events = database.table::<Event>()?;
    let counter = Word::new(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (database, events, counter) = (&database, &events, &counter);
        let work = |thread: u64| {
            move || {
                for value in 0..rows {
                    match keys {
                        Keys::Generated => {
                            database.transact(|tx| {
                                tx.insert_generated(events, |id| Event { id, value })
                            })?;
                        }
                        Keys::SharedCounter => {
                            let id = counter.fetch_add(1, Ordering::Relaxed);
                            database.transact(|tx| tx.insert(events, Event { id, value }))?;
                        }
                        Keys::OwnNumbers => {
                            let id = (thread << 40) + value;
                            database.transact(|tx| tx.insert(events, Event { id, value }))?;
                        }
                    }
                }
                Ok::<(), Error>(())
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(start.elapsed().as_nanos() as f64 / rows as f64)
}

#[derive(Clone, Record)]
struct Person {
    #[record(key)]
    name: String,
    visits: u64,
}

#[derive(Clone, Record)]
struct Grade {
    #[record(key)]
    pupil: String,
    #[record(key)]
    year: u16,
    grade: u64,
}

#[derive(Clone, Record)]
struct Tags {
    #[record(key)]
    id: u64,
    counts: BTreeMap<u32, u64>,
}

#[derive(Clone, Record)]
struct Slots {
    #[record(key)]
    id: u64,
    counts: [u64; COUNTS],
}

const COUNTS: usize = 8;

/// How many rows each table has.
const ROWS: u64 = 1024;

/// How many operations a transaction makes.
const OPERATIONS: usize = 16;

/// A kind of transaction to measure. It gets the number of its first row.
type Measured<'m> = (&'m str, &'m dyn Fn(&Transaction<'_>, usize) -> Result<(), Undone>);

/// The error of a savepoint that is to be undone.
#[derive(Debug)]
enum Undone {
    Wanted,
    Engine(#[expect(dead_code, reason = "it is printed")] Error),
}

impl From<Error> for Undone {
    fn from(error: Error) -> Self {
        Undone::Engine(error)
    }
}

/// Prints how long one operation of each kind takes.
fn compare(database: &Database, count: u64, rounds: u64, kinds: &[Measured<'_>]) {
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for ((_, run), times) in kinds.iter().zip(&mut times) {
            let transactions = count as usize / OPERATIONS;
            let start = Instant::now();
            for number in 0..transactions {
                let first = number * 31 % (ROWS as usize - OPERATIONS);
                database.transact(|tx| run(tx, first)).expect("there is no other transaction");
            }
            times.push(start.elapsed().as_nanos() as f64 / (transactions * OPERATIONS) as f64);
        }
    }
    for ((name, _), times) in kinds.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.1} ns", times[times.len() / 2]);
    }
}

/// Compares look-ups, savepoints and maps.
fn compare_all(count: u64, rounds: u64) -> Result<(), Error> {
    let builder = Database::builder().table::<Person>().table::<Grade>();
    let database = builder.table::<Tags>().table::<Slots>().open()?;
    let (people, grades) = (database.table::<Person>()?, database.table::<Grade>()?);
    let (tags, slots) = (database.table::<Tags>()?, database.table::<Slots>()?);
    let names: Vec<String> = (0..ROWS).map(|id| format!("person number {id:08}")).collect();
    let keys: Vec<(String, u16)> = names.iter().map(|name| (name.clone(), 7)).collect();
    for (id, name) in (0..).zip(&names) {
        let counts: [u64; COUNTS] = std::array::from_fn(|count| count as u64);
        database.transact(|tx| {
            tx.insert(&people, Person { name: name.clone(), visits: 0 })?;
            tx.insert(&grades, Grade { pupil: name.clone(), year: 7, grade: 0 })?;
            tx.insert(&tags, Tags { id, counts: (0..).zip(counts).collect() })?;
            tx.insert(&slots, Slots { id, counts })
        })?;
    }
    let visit = |tx: &Transaction<'_>, first: usize, times: usize| {
        names[first..first + OPERATIONS / times].iter().try_for_each(|name| {
            for _ in 0..times {
                tx.update(&people, name, |person| person.visits += 1)?;
            }
            Ok::<(), Undone>(())
        })
    };
    let undone = |result: Result<(), Undone>| match result {
        Err(Undone::Wanted) => Ok(()),
        result => result,
    };
    compare(
        &database,
        count,
        rounds,
        &[
            ("get by &String", &|tx, first| {
                for name in &names[first..first + OPERATIONS] {
                    black_box(tx.get(&people, name)?);
                }
                Ok(())
            }),
            ("get by &str", &|tx, first| {
                for name in &names[first..first + OPERATIONS] {
                    black_box(tx.get(&people, name.as_str())?);
                }
                Ok(())
            }),
            ("get by a new String", &|tx, first| {
                for name in &names[first..first + OPERATIONS] {
                    black_box(tx.get(&people, &name.as_str().to_owned())?);
                }
                Ok(())
            }),
            ("get by &(String, u16)", &|tx, first| {
                for key in &keys[first..first + OPERATIONS] {
                    black_box(tx.get(&grades, key)?);
                }
                Ok(())
            }),
            ("get by (&str, u16)", &|tx, first| {
                for (name, year) in &keys[first..first + OPERATIONS] {
                    black_box(tx.get(&grades, (name.as_str(), *year))?);
                }
                Ok(())
            }),
            ("update", &|tx, first| visit(tx, first, 1)),
            ("update in a savepoint", &|tx, first| tx.savepoint(|tx| visit(tx, first, 1))),
            ("update in a savepoint that is undone", &|tx, first| {
                undone(tx.savepoint(|tx| visit(tx, first, 1).and(Err(Undone::Wanted))))
            }),
            ("update a row twice", &|tx, first| visit(tx, first, 2)),
            ("update a row twice in a savepoint", &|tx, first| {
                tx.savepoint(|tx| visit(tx, first, 2))
            }),
            ("update a map of 8", &|tx, first| {
                for id in first as u64..(first + OPERATIONS) as u64 {
                    tx.update(&tags, &id, |row| *row.counts.entry(3).or_default() += 1)?;
                }
                Ok(())
            }),
            ("update an array of 8", &|tx, first| {
                for id in first as u64..(first + OPERATIONS) as u64 {
                    tx.update(&slots, &id, |row| row.counts[3] += 1)?;
                }
                Ok(())
            }),
        ],
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .map(|it| it.parse().expect("a number"));
    let rows = arguments.next().unwrap_or(500_000);
    let rounds = arguments.next().unwrap_or(7);
    compare_all(rows, rounds)?;
    for threads in [1, 2] {
        let mut times = ALL.map(|_| Vec::new());
        for _ in 0..rounds {
            for (keys, times) in ALL.into_iter().zip(&mut times) {
                times.push(insert(keys, threads, rows)?);
            }
        }
        for (keys, times) in ALL.into_iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            println!("{threads} threads, {keys:?}: {median:.0} ns for each row of a thread");
        }
    }
    Ok(())
}
