use weft::{Database, Record};

#[derive(Clone, Record)]
struct Text {
    #[record(key, generated)]
    id: String,
}

#[derive(Clone, Record)]
struct Narrow {
    #[record(key, generated)]
    id: u16,
}

#[derive(Clone, Record)]
struct NotTheKey {
    #[record(key)]
    id: u32,
    #[record(generated)]
    number: u64,
}

#[derive(Clone, Record)]
struct Part {
    #[record(key)]
    order: u32,
    #[record(key, generated)]
    number: u64,
}

#[derive(Clone, Record)]
struct Argument {
    #[record(key, generated = 7)]
    number: u64,
}

#[derive(Clone, Record)]
struct Plain {
    #[record(key)]
    id: u64,
}

fn main() {
    let database = Database::builder().table::<Plain>().open().unwrap();
    let table = database.table::<Plain>().unwrap();
    let _ = database.transact(|tx| tx.insert_generated(&table, |id| Plain { id }));
}
