use weft::Record;

#[derive(Clone, Record)]
struct Account {
    id: u64,
    cents: i64,
}

fn main() {}
