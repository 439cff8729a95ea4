use weft::Record;

#[derive(Clone, Record)]
#[record(key(id))]
struct Account {
    #[record(key)]
    id: u64,
}

fn main() {}
