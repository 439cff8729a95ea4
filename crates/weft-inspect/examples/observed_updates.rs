//! Updates one row again and again, to count with callgrind what a transaction costs that is observed.
//!
//! `cargo build --release -p weft-inspect --example observed_updates`, and then
//! `valgrind --tool=callgrind target/release/examples/observed_updates COUNT off|on [LABELS]`. The difference between two
//! counts is what the transactions take without the opening of the database. Without LABELS a transaction has its place
//! in the source as its label, and otherwise so many labels take turns. The observer's clock stands still, so it times
//! very few transactions.

use weft::{Database, Error, Record, TransactionOptions};

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: u64,
    value: u64,
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let mode = arguments.next().unwrap_or_default();
    let builder = Database::builder().table::<Row>();
    let builder = match mode == "off" {
        true => builder,
        false => builder.protocol_options(weft_inspect::observer(Some(|| 1))),
    };
    let database = builder.open()?;
    let rows = database.table::<Row>()?;
    database.transact(|tx| (0..1_000).try_for_each(|id| tx.insert(&rows, Row { id, value: 0 })))?;
    let labels: u64 = arguments.next().and_then(|labels| labels.parse().ok()).unwrap_or(0);
    let labelled = |number: u64| TransactionOptions::new().label(format!("label {number}").leak());
    let options: Vec<_> = (0..labels).map(labelled).collect();
    for number in 0..count {
        let update = |tx: &weft::Transaction<'_>| -> Result<(), Error> {
            tx.update(&rows, &(number % 1_000), |row| row.value += 1).map(drop)
        };
        match options.get(number as usize % options.len().max(1)) {
            None => database.transact(update)?,
            Some(options) => database.transact_with(options, update)?,
        }
    }
    Ok(())
}
