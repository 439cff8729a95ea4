//! The forms of values are a promise. The tests compare a table with every kind of column, as CSV, byte for
//! byte, and pass the same table through files of every format.

use std::fs;
use std::path::Path;

use weft::description::TableDescription;
use weft::{ColumnValue, Record};
use weft_exchange::{Exporter, Format, Importer};

#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
enum Suit {
    Hearts,
    Spades,
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Price {
    amount: i64,
    currency: String,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "everything")]
struct Row {
    #[record(key)]
    id: u32,
    flag: bool,
    small: i8,
    large: u128,
    negative: i128,
    single: f32,
    double: f64,
    letter: char,
    text: String,
    maybe: Option<String>,
    nested: Option<Option<u8>>,
    bytes: Vec<u8>,
    digest: [u8; 4],
    numbers: Vec<u16>,
    point: [f64; 2],
    pair: (u8, Option<String>),
    suit: Suit,
    price: Option<Price>,
}

fn rows() -> [Row; 3] {
    let ordinary = Row {
        id: 1,
        flag: true,
        small: -128,
        large: u128::MAX,
        negative: i128::MIN,
        single: 0.1,
        double: 1e300,
        letter: 'é',
        text: "plain".into(),
        maybe: Some("there".into()),
        nested: Some(Some(7)),
        bytes: vec![0, 255],
        digest: [0xDE, 0xAD, 0xBE, 0xEF],
        numbers: vec![1, 2, 3],
        point: [1.0, -0.5],
        pair: (9, Some("nine".into())),
        suit: Suit::Spades,
        price: Some(Price { amount: -100, currency: "EUR".into() }),
    };
    let empty = Row {
        id: 2,
        flag: false,
        small: 0,
        large: 0,
        negative: 0,
        single: 0.0,
        double: -0.0,
        letter: '0',
        text: String::new(),
        maybe: None,
        nested: None,
        bytes: Vec::new(),
        digest: [0; 4],
        numbers: Vec::new(),
        point: [0.0; 2],
        pair: (0, None),
        suit: Suit::Hearts,
        price: None,
    };
    let awkward = Row {
        id: 3,
        single: f32::NEG_INFINITY,
        double: f64::INFINITY,
        letter: '"',
        text: "a,b\r\nc \"quoted\" \\N".into(),
        maybe: Some(String::new()),
        nested: Some(None),
        point: [f64::INFINITY, 5e-324],
        pair: (0, Some("\"\\\u{1}\n".into())),
        price: Some(Price { amount: i64::MAX, currency: "null".into() }),
        ..empty.clone()
    };
    [ordinary, empty, awkward]
}

fn table() -> TableDescription {
    TableDescription::of::<Row>().expect("the table is not volatile")
}

fn encode(row: &Row) -> Vec<u8> {
    let mut encoded = Vec::new();
    row.encode_row(&mut encoded);
    encoded
}

#[test]
fn csv_matches_its_golden_file() {
    let mut exporter =
        Exporter::new(&table(), Format::Csv, Vec::new()).expect("memory cannot fail");
    for row in rows() {
        exporter.push(&encode(&row)).expect("the row is one of the table");
    }
    let file = exporter.finish().expect("memory cannot fail");
    assert_eq!(
        String::from_utf8(file).expect("CSV is UTF-8"),
        include_str!("../golden/everything.csv"),
        "the forms of values have changed: files written before can no longer be read"
    );
}

#[test]
fn files_of_every_format_stay_readable() {
    for format in Format::ALL {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = directory.join("everything").with_extension(format.extension());
        let file = fs::File::create(&path).expect("there is room for a few files");
        let mut exporter = Exporter::new(&table(), format, file).expect("the file can be written");
        for row in rows() {
            exporter.push(&encode(&row)).expect("the row is one of the table");
        }
        exporter.finish().expect("the file can be written");

        let importer = Importer::open(&table(), &path).expect("the file is well-formed");
        let read = importer.map(|row| {
            let row = row.expect("the file is well-formed");
            Row::decode_row(&mut &row[..]).expect("what is imported is a row")
        });
        assert_eq!(read.collect::<Vec<_>>(), rows(), "{format}");
    }
}
