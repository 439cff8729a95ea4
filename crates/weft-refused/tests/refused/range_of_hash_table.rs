use weft::{Database, Error, Record};

#[derive(Clone, Copy, Record)]
#[record(storage = "hash")]
struct Hit {
    #[record(key)]
    id: u64,
    count: u64,
}

fn main() {
    let database = Database::builder().table::<Hit>().open().unwrap();
    let hits = database.table::<Hit>().unwrap();
    let _ = database.transact(|tx| Ok::<_, Error>(tx.range(&hits, 1..5).count()));
}
