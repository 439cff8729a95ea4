use std::time::Instant;

use weft::ColumnValue;

#[derive(ColumnValue)]
struct Visit {
    number: u32,
    at: Instant,
}

fn main() {}
