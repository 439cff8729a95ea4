use weft::Record;

#[derive(Clone, Record)]
struct BoundOfKey {
    #[record(key, min = 0)]
    id: i32,
}

#[derive(Clone, Record)]
struct NotANumber {
    #[record(key)]
    id: u32,
    #[record(min = ZERO)]
    stock: i64,
}

#[derive(Clone, Record)]
struct WithoutNumber {
    #[record(key)]
    id: u32,
    #[record(min)]
    stock: i64,
}

#[derive(Clone, Record)]
struct NothingBetween {
    #[record(key)]
    id: u32,
    #[record(min = 5, max = 4)]
    stock: i64,
}

#[derive(Clone, Record)]
struct GivenTwice {
    #[record(key)]
    id: u32,
    #[record(min = 5, min = 4)]
    stock: i64,
}

#[derive(Clone, Record)]
#[record(check(Misnamed::check, columns(stocks)))]
struct Misnamed {
    #[record(key)]
    id: u32,
    stock: i64,
}

#[derive(Clone, Record)]
#[record(check(WithoutColumns::check))]
struct WithoutColumns {
    #[record(key)]
    id: u32,
    stock: i64,
}

fn main() {}
