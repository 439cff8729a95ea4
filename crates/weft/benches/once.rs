//! What it costs to run a transaction once for a key:
//!
//! ```console
//! $ cargo bench -p weft --bench once -- [TRANSACTIONS [ROUNDS]]
//! ```
//!
//! Each round has a new database in memory, and runs the same update of one row without a key, with a new key each time,
//! and with these keys again. It prints the median of the rounds. The last row inserts a result as a program without
//! `once` would: a row with the key, in a table of its own.

use std::time::Instant;

use weft::{Database, Error, OnceOptions, Record, Transaction, TransactionOptions};

#[derive(Clone, Copy, Record)]
struct Account {
    #[record(key)]
    id: u64,
    cents: u64,
}

/// A result that the program stores itself.
#[derive(Clone, Record)]
#[record(storage = "hash")]
struct Answer {
    #[record(key)]
    request: String,
    cents: Option<u64>,
}

const ACCOUNTS: u64 = 1024;

fn main() -> Result<(), Error> {
    let mut arguments =
        std::env::args().skip(1).filter(|it| it != "--bench").map(|argument| argument.parse());
    let mut number = |default| arguments.next().map_or(default, |it| it.expect("a number"));
    let (transactions, rounds) = (number(200_000), number(7));
    let mut rows: [(&str, Vec<f64>); 4] =
        ["without a key", "a new key", "the same key again", "by hand"].map(|it| (it, Vec::new()));
    let mut bytes = 0.0;
    for _ in 0..rounds {
        let (ns, bytes_now) = round(transactions)?;
        bytes = bytes_now;
        rows.iter_mut().zip(ns).for_each(|(row, ns)| row.1.push(ns));
    }
    for (name, mut ns) in rows {
        ns.sort_unstable_by(f64::total_cmp);
        println!("{name:20} {:6.0} ns", ns[ns.len() / 2]);
    }
    println!("{:20} {bytes:6.0} bytes", "a result");
    Ok(())
}

/// Returns the nanoseconds that a transaction took, for each way, and the bytes of a result in its table.
fn round(transactions: u64) -> Result<([f64; 4], f64), Error> {
    let builder = Database::builder().table::<Account>().table::<Answer>();
    let database = builder.once(OnceOptions::new()).open()?;
    let (accounts, answers) = (database.table::<Account>()?, database.table::<Answer>()?);
    let load = |tx: &Transaction<'_>| {
        (0..ACCOUNTS).try_for_each(|id| tx.insert(&accounts, Account { id, cents: 0 }))
    };
    database.transact(load)?;
    let keys: Vec<String> = (0..transactions).map(|key| format!("request {key:08}")).collect();
    let pay = |tx: &Transaction<'_>, number: usize| {
        tx.update(&accounts, &(number as u64 * 31 % ACCOUNTS), |account| {
            account.cents += 1;
            account.cents
        })
    };
    let timed = |run: &dyn Fn(usize, &str) -> Result<(), Error>| {
        let start = Instant::now();
        for (number, key) in keys.iter().enumerate() {
            run(number, key)?;
        }
        Ok::<f64, Error>(start.elapsed().as_nanos() as f64 / transactions as f64)
    };
    let once = |number: usize, key: &str| {
        let options = TransactionOptions::new().label("pay").once(key);
        database.transact_with(&options, |tx| pay(tx, number)).map(drop)
    };
    let without = timed(&|number, _key| {
        database.transact_with(&TransactionOptions::new(), |tx| pay(tx, number)).map(drop)
    })?;
    let (new, again) = (timed(&once)?, timed(&once)?);
    let indexes = database.metrics().memory.indexes;
    let results = indexes.iter().find(|index| index.table == "weft_once").expect("it is open");
    let bytes = results.record_bytes + results.node_bytes + results.heap_bytes;
    let bytes = bytes as f64 / results.records as f64;
    let by_hand = timed(&|number, key| {
        let body = |tx: &Transaction<'_>| {
            let request = key.to_owned();
            if let Some(answer) = tx.get(&answers, &request)? {
                return Ok(answer.cents);
            }
            let cents = pay(tx, number)?;
            tx.insert(&answers, Answer { request, cents })?;
            Ok(cents)
        };
        database.transact(body).map(drop).map_err(|error: Error| error)
    })?;
    Ok(([without, new, again, by_hand], bytes))
}
