use weft::Record;

#[derive(Clone, Record)]
#[record(expires = until)]
struct Session {
    #[record(key)]
    id: u32,
    until: u64,
}

fn main() {}
