//! Measures what it costs insertions that the number of rows is kept: alone, and beside a thread that asks for the
//! number every 100 ms. The two take turns. Says also how long the question takes.
//!
//! `cargo bench -p weft --bench row_count -- [ROWS] [ROUNDS]`

use std::time::{Duration, Instant};

use weft::htm::word::{Ordering, Word};
use weft::{Database, Error, Record};

#[derive(Clone, Copy, Record)]
struct Event {
    #[record(key)]
    id: u64,
    value: u64,
}

/// How often the number of rows is asked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a run has measured.
struct Run {
    /// Nanoseconds for each row of a thread.
    insertion: f64,
    /// Microseconds for each answer.
    answers: Vec<f64>,
}

/// Inserts `rows` rows on each of `threads` threads, each in a transaction.
fn insert(threads: u64, rows: u64, is_asked: bool) -> Result<Run, Error> {
    let database = Database::builder().table::<Event>().open()?;
    let events = database.table::<Event>()?;
    let ended = Word::new(0);
    let mut run = Run { insertion: 0.0, answers: Vec::new() };
    std::thread::scope(|scope| {
        let (database, events, ended) = (&database, &events, &ended);
        let work = |thread: u64| {
            move || {
                let start = Instant::now();
                for value in 0..rows {
                    let id = (thread << 40) + value;
                    database.transact(|tx| tx.insert(events, Event { id, value }))?;
                }
                ended.fetch_add(1, Ordering::Relaxed);
                Ok::<f64, Error>(start.elapsed().as_nanos() as f64 / rows as f64)
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        let mut before = 0;
        while is_asked && ended.load(Ordering::Relaxed) < threads {
            let asked = Instant::now();
            let rows = database.transact(|tx| tx.len(events))?;
            run.answers.push(asked.elapsed().as_nanos() as f64 / 1000.0);
            assert!(rows >= before, "no row is deleted");
            before = rows;
            std::thread::sleep(INTERVAL);
        }
        for thread in handles {
            run.insertion += thread.join().expect("no thread panics")? / threads as f64;
        }
        Ok::<(), Error>(())
    })?;
    assert_eq!(database.transact(|tx| tx.len(&events))? as u64, threads * rows);
    Ok(run)
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|it| it != "--bench")
        .map(|it| it.parse().expect("a number"));
    let rows = arguments.next().unwrap_or(1_000_000);
    let rounds = arguments.next().unwrap_or(7);
    for threads in [1, 2] {
        let (mut alone, mut beside, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(insert(threads, rows, false)?.insertion);
            let run = insert(threads, rows, true)?;
            beside.push(run.insertion);
            answers.extend(run.answers);
        }
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        println!(
            "{threads} threads: {alone:.0} ns for each row of a thread alone, {beside:.0} beside a question every \
             {INTERVAL:?}; an answer takes {:.1} us",
            median(&mut answers)
        );
    }
    Ok(())
}
