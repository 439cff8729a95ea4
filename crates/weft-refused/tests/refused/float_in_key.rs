use weft::Record;

#[derive(Clone, Record)]
#[record(key(station, celsius))]
struct Reading {
    station: u32,
    celsius: f64,
}

fn main() {}
