use weft::{Record, Timestamp};

#[derive(Clone, Record)]
#[record(expires)]
struct Without {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

#[derive(Clone, Record)]
#[record(expires(until, when))]
struct Misspelt {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

#[derive(Clone, Record)]
#[record(expires = untill)]
struct Unknown {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

#[derive(Clone, Record)]
#[record(expires = until)]
struct InKey {
    #[record(key)]
    id: u32,
    #[record(key)]
    until: Timestamp,
}

#[derive(Clone, Record)]
#[record(expires = until)]
struct Unique {
    #[record(key)]
    id: u32,
    #[record(unique)]
    until: Timestamp,
}

#[derive(Clone, Record)]
#[record(expires = until, expires = until)]
struct Twice {
    #[record(key)]
    id: u32,
    until: Timestamp,
}

fn main() {}
