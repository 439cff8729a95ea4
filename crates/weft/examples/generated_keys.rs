//! Measures the insertion of rows with generated keys, beside keys that the caller makes: from one counter that all
//! threads share, or each thread from numbers of its own. The three take turns.
//!
//! `cargo run --release -p weft --example generated_keys -- [ROWS] [ROUNDS]`

use std::time::Instant;

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record};

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

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse().expect("a number"));
    let rows = arguments.next().unwrap_or(500_000);
    let rounds = arguments.next().unwrap_or(7);
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
