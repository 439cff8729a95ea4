use weft::{Record, Violation};

#[derive(Clone, Record)]
struct Text {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    name: String,
}

#[derive(Clone, Record)]
struct Negative {
    #[record(key)]
    id: u32,
    #[record(min = -1)]
    stock: u8,
}

/// A check of some columns gets references to them, and to nothing else.
#[derive(Clone, Record)]
#[record(check(Checked::check, columns(stock)))]
struct Checked {
    #[record(key)]
    id: u32,
    stock: i64,
    price: i64,
}

impl Checked {
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

fn main() {}
