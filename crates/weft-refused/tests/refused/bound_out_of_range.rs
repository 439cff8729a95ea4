use weft::Record;

#[derive(Clone, Record)]
struct Narrow {
    #[record(key)]
    id: u32,
    #[record(max = 300)]
    stock: u8,
}

fn main() {}
