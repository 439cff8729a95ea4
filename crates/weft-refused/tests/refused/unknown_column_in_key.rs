use weft::Record;

#[derive(Clone, Record)]
#[record(key(branch, number))]
struct Account {
    branch: u16,
    id: u64,
}

fn main() {}
