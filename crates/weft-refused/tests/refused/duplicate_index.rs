use weft::Record;

#[derive(Clone, Record)]
#[record(key(id))]
#[record(index(name = "owner", columns(owner, id)))]
struct Account {
    id: u64,
    #[record(unique)]
    owner: u64,
}

fn main() {}
