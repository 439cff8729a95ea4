use weft::{Database, Error, Record};

#[derive(Clone, Copy, Record)]
struct Hit {
    #[record(key)]
    id: u64,
    count: u64,
}

fn main() {
    let database = Database::builder().table::<Hit>().open().unwrap();
    let hits = database.table::<Hit>().unwrap();
    // The row is valid only as long as the transaction: return `tx.get(&hits, &1)?.copied()`.
    let _ = database.transact(|tx| -> Result<_, Error> { Ok(tx.get(&hits, &1)?) });
}
