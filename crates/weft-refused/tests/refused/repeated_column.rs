use weft::Record;

#[derive(Clone, Record)]
#[record(key(id), index(name = by_owner, columns(owner, id, owner)))]
struct Account {
    id: u64,
    owner: u64,
}

fn main() {}
