use weft::Record;

#[derive(Clone, Record)]
struct Generic<T> {
    #[record(key)]
    id: T,
}

#[derive(Clone, Record)]
struct Borrowing<'a> {
    #[record(key)]
    id: u64,
    name: &'a str,
}

#[derive(Clone, Record)]
enum Either {
    One,
    Other,
}

#[derive(Clone, Record)]
struct Tuple(u64, u64);

#[derive(Clone, Record)]
struct Unit;

fn main() {}
