use weft::Record;

#[derive(Clone, Record)]
#[record(key(id), index(columns(id)))]
struct NoName {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), index(name = by_id))]
struct NoColumns {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), index(name = by_id, columns()))]
struct EmptyColumns {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), index(name = "by id", columns(id)))]
struct NoGoodName {
    id: u64,
}

#[derive(Clone, Record)]
#[record(key(id), index)]
struct Nothing {
    id: u64,
}

fn main() {}
