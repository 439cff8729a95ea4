use weft::description::StoredRow;
use weft::schema::Violation;
use weft::{ColumnValue, Record};

#[derive(Clone, Record)]
struct WasWithoutName {
    #[record(key)]
    id: u32,
    #[record(was)]
    count: u32,
}

#[derive(Clone, Record)]
#[record(dropped)]
struct DroppedWithoutNames {
    #[record(key)]
    id: u32,
}

#[derive(Clone, Record)]
struct ComputedKey {
    #[record(key, computed = one)]
    id: u32,
}

#[derive(Clone, Record)]
struct ComputedOfAnotherType {
    #[record(key)]
    id: u32,
    #[record(computed = one)]
    name: String,
}

fn one(_: &StoredRow<'_>) -> Result<u32, Violation> {
    Ok(1)
}

#[derive(ColumnValue)]
struct UnknownOption {
    #[column(dropped)]
    street: String,
}

#[derive(Clone, Record)]
#[record(migrate = "1 + 1")]
struct MigratedByNoPath {
    #[record(key)]
    id: u32,
}

fn main() {}
