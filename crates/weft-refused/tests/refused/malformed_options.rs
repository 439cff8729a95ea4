use weft::Record;

#[derive(Clone, Record)]
#[record(key)]
struct KeyWithoutColumns {
    id: u64,
}

#[derive(Clone, Record)]
#[record(table = "", key(id))]
struct EmptyTableName {
    id: u64,
}

#[derive(Clone, Record)]
#[record(table = "one", table = "two", key(id))]
struct TwoTableNames {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), check = "not a path")]
struct CheckWithoutPath {
    id: u64,
}

fn main() {}
