//! The result of a transaction that runs once is stored, so it must be a column value.

use std::time::Instant;

use weft::{Database, Error, TransactionOptions};

fn main() {
    let database = Database::builder().open().unwrap();
    let options = TransactionOptions::new().once("key");
    let _ = database.transact_with(&options, |_tx| Ok::<Instant, Error>(Instant::now()));
}
