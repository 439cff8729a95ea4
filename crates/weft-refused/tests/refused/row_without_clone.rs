use weft::Record;

#[derive(Record)]
struct Account {
    #[record(key)]
    id: u64,
}

fn main() {}
