use rust_decimal::Decimal;
use weft::Record;

#[derive(Clone, Record)]
struct Price {
    #[record(key)]
    amount: Decimal,
}

fn main() {
    let _ = Price::TABLE;
}
