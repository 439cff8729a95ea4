use weft::Record;

#[derive(Clone, Record)]
#[record(key(id), primary)]
struct OnTheStruct {
    id: u64,
}

#[derive(Clone, Record)]
struct OnAField {
    #[record(primary)]
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), index(name = by_id, columns(id), sparse))]
struct OnAnIndex {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), storage = "btree")]
struct OfStorage {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), unique)]
struct UniqueOnTheStruct {
    id: u64,
}

#[derive(Clone, Record)]
struct ArgumentsOnAField {
    #[record(key)]
    id: u64,
    #[record(index(name = by_owner))]
    owner: u64,
}

fn main() {}
