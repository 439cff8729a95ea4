use weft::Record;

#[derive(Clone, Record)]
struct Lamp {
    #[record(key)]
    id: u32,
    #[record(default = 60.0)]
    watts: u32,
}

fn main() {}
