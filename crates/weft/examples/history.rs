//! Writes the history of a small contended workload to the terminal, as JSON lines. A few threads
//! move units between a few boxes, open and close boxes, and count them, all at the same time. Each
//! transaction adds to one of two tallies, which are rarely read, so that `doppel` splits their
//! rows.
//!
//! `cargo run --release --features history --example history -- dbx | weft check -`
//!
//! The first argument is the protocol (`dbx`, `silo`, `2pl` or `doppel`), `dbx` by default. The
//! second is how many transactions each thread runs, 200 by default.

use std::io::{self, BufWriter, Write};

use weft::history::History;
use weft::protocol::{Dbx, Protocol, Silo, TwoPhaseLocking};
use weft::{Database, Error, Record, column_of};
use weft_protocols::Doppel;

#[derive(Clone, Copy, Record)]
#[record(table = "boxes", index(name = by_units, columns(units)))]
struct UnitBox {
    #[record(key)]
    number: u32,
    units: u32,
}

#[derive(Clone, Copy, Record)]
#[record(table = "tallies", storage = "hash")]
struct Tally {
    #[record(key)]
    number: u32,
    transactions: u64,
}

const TALLIES: u32 = 2;

/// Boxes have numbers below this one. At first, every other one exists.
const NUMBERS: u32 = 12;
const UNITS: u32 = 4;
const THREADS: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "dbx".to_owned());
    let transactions = arguments.next().map_or(Ok(200), |number| number.parse())?;
    let history = match name.as_str() {
        Dbx::NAME => record::<Dbx>(transactions)?,
        Silo::NAME => record::<Silo>(transactions)?,
        TwoPhaseLocking::NAME => record::<TwoPhaseLocking>(transactions)?,
        Doppel::NAME => record::<Doppel>(transactions)?,
        _ => return Err(format!("unknown protocol `{name}`: use dbx, silo, 2pl or doppel").into()),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    history.write_json_lines(&mut out)?;
    out.flush()?;
    Ok(())
}

fn record<P: Protocol>(transactions: usize) -> Result<History, Error> {
    let builder = Database::builder().protocol::<P>().table::<UnitBox>().table::<Tally>();
    let database = builder.record_history(true).open()?;
    let (boxes, tallies) = (database.table::<UnitBox>()?, database.table::<Tally>()?);
    database.transact(|tx| {
        (0..TALLIES).try_for_each(|number| tx.insert(&tallies, Tally { number, transactions: 0 }))
    })?;
    database.transact(|tx| {
        (0..NUMBERS)
            .step_by(2)
            .try_for_each(|number| tx.insert(&boxes, UnitBox { number, units: UNITS }))
    })?;
    let work = |thread: usize| -> Result<(), Error> {
        let mut random = fastrand::Rng::with_seed(thread as u64);
        for _ in 0..transactions {
            let (number, other) = (random.u32(..NUMBERS), random.u32(..NUMBERS));
            let (what, tally, reads) =
                (random.u32(..10), random.u32(..TALLIES), random.u32(..500) == 0);
            database.transact(|tx| {
                tx.add(&tallies, &tally, column_of!(Tally.transactions), 1)?;
                if reads {
                    tx.get(&tallies, &(1 - tally))?;
                }
                match what {
                    // Move a unit.
                    0..4 => {
                        if tx.get(&boxes, &number)?.is_none_or(|from| from.units == 0)
                            || tx.update(&boxes, &other, |to| to.units += 1)?.is_none()
                        {
                            return Ok(());
                        }
                        tx.update(&boxes, &number, |from| from.units -= 1).map(|_| ())
                    }
                    // Open a box.
                    4..6 => tx.upsert(&boxes, UnitBox { number, units: 1 }).map(|_| ()),
                    // Close a box.
                    6..7 => tx.delete(&boxes, &number).map(|_| ()),
                    // Count boxes, by number or by units, to the end or not.
                    7..9 => tx.range(&boxes, number..).take(3).try_for_each(|row| row.map(|_| ())),
                    _ => tx
                        .range_by(&boxes, UnitBox::BY_UNITS, 1..)
                        .descending()
                        .try_for_each(|row| row.map(|_| ())),
                }
            })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = THREADS.min(P::WORKERS_MAX);
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let counted = database.transact(|tx| {
        (0..TALLIES)
            .map(|number| Ok(tx.get(&tallies, &number)?.map_or(0, |tally| tally.transactions)))
            .sum::<Result<u64, Error>>()
    })?;
    assert_eq!(
        counted,
        (transactions * THREADS.min(P::WORKERS_MAX)) as u64,
        "each is counted once"
    );
    if let Some(phases) = database.metrics().phases {
        eprintln!("{} split phases, {} refused", phases.split_phases, phases.refused);
    }
    Ok(database.take_history())
}
