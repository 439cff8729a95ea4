use weft::Record;

#[derive(Clone, Record)]
struct Reading {
    #[record(key)]
    celsius: f64,
}

fn main() {}
