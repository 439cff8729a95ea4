use weft::{ColumnValue, Key, Record};

#[derive(Key)]
union Bits {
    float: f32,
    integer: u32,
}

#[derive(Clone, Debug, PartialEq, Key)]
struct Nothing;

#[derive(Clone, Debug, PartialEq, Key)]
enum Never {}

#[derive(Clone, Debug, PartialEq, Key)]
struct Name<'a>(&'a str);

#[derive(Clone, Debug, PartialEq, Key)]
struct Measured {
    station: u32,
    celsius: f64,
}

#[derive(Clone, Debug, PartialEq, Key)]
enum Size {
    Small = 1,
    Large = 3,
    Medium = 2,
}

#[derive(Clone, Debug, PartialEq, Key)]
#[repr(u8)]
enum Choice {
    Nothing = 1,
    Number(u8) = 2,
}

#[derive(Clone, Debug, PartialEq, Key)]
struct OnlyAKey(u32);

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: OnlyAKey,
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct OnlyAColumn(u32);

#[derive(Clone, Record)]
#[record(table = "others")]
struct Other {
    #[record(key)]
    id: OnlyAColumn,
}

fn main() {}
