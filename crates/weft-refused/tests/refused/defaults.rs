use weft::Record;

#[derive(Clone, Record)]
struct KeyWithDefault {
    #[record(key, default = 0)]
    id: u32,
}

#[derive(Clone, Record)]
struct DefaultWithoutValue {
    #[record(key)]
    id: u32,
    #[record(default)]
    count: u32,
}

#[derive(Clone, Record)]
#[record(volatile)]
struct VolatileWithDefault {
    #[record(key)]
    id: u32,
    #[record(default = 0)]
    count: u32,
}

#[derive(Clone, Record)]
struct DefaultGivenTwice {
    #[record(key)]
    id: u32,
    #[record(default = 0, default = 1)]
    count: u32,
}

#[derive(Clone, Record)]
#[record(volatile = true)]
struct VolatileWithValue {
    #[record(key)]
    id: u32,
}

fn main() {}
