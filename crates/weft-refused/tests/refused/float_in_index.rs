use weft::Record;

#[derive(Clone, Record)]
#[record(index(name = by_celsius, columns(celsius, station)))]
struct Reading {
    #[record(key)]
    station: u32,
    celsius: f64,
}

fn main() {}
