use weft::Record;

#[derive(Clone, Record)]
struct Lamp {
    #[record(key)]
    id: u32,
    brightness: usize,
}

fn main() {}
