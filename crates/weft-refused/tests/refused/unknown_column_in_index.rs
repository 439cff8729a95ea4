use weft::Record;

#[derive(Clone, Record)]
#[record(key(id), index(name = by_owner, columns(owner)))]
struct Account {
    id: u64,
    cents: i64,
}

fn main() {}
