use weft::ColumnValue;

#[derive(ColumnValue)]
enum Shape {
    Point,
    Circle { radius: usize },
}

#[derive(ColumnValue)]
enum Never {}

#[derive(ColumnValue)]
union Bits {
    float: f32,
    integer: u32,
}

#[derive(ColumnValue)]
struct Name<'a>(&'a str);

fn main() {}
