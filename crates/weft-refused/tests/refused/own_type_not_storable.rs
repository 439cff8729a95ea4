use weft::Record;

#[derive(Clone)]
struct Colour;

#[derive(Clone, Record)]
struct Lamp {
    #[record(key)]
    id: u32,
    colours: Vec<Colour>,
}

fn main() {}
