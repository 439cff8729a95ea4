use weft::Record;

#[derive(Clone, Record)]
#[record(key(id))]
struct Account {
    id: u64,
    #[record(index, unique)]
    owner: u64,
}

fn main() {}
