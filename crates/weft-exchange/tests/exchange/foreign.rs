//! Files of another program, with types that are not exactly Weft's (`foreign/make.py`).

use std::path::PathBuf;

use weft::description::TableDescription;
use weft::{ColumnValue, Record};
use weft_exchange::Importer;

#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
enum Kind {
    Sell,
    Buy,
}

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Price {
    amount: u8,
    currency: String,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "foreign")]
struct Row {
    #[record(key)]
    id: u16,
    owner: String,
    kind: Option<Kind>,
    large: i128,
    rate: f64,
    digest: [u8; 2],
    pair: [u16; 2],
    tags: Vec<Option<String>>,
    price: Option<Price>,
}

#[derive(Clone, Debug, Record)]
#[record(table = "dates")]
struct Date {
    #[record(key)]
    id: u16,
    day: u32,
}

fn open<R: Record>(name: &str) -> Result<Vec<R>, String> {
    let table = TableDescription::of::<R>().expect("the table is not volatile");
    let path: PathBuf = ["tests", "foreign", name].iter().collect();
    let importer = Importer::open(&table, &path).map_err(|error| error.to_string())?;
    importer
        .map(|row| {
            let row = row.map_err(|error| error.to_string())?;
            Ok(R::decode_row(&mut &row[..]).expect("what is imported is a row"))
        })
        .collect()
}

#[test]
fn types_of_the_same_kind_are_converted() {
    let expected = [
        Row {
            id: 1,
            owner: "Ada".into(),
            kind: Some(Kind::Buy),
            large: 0,
            rate: 0.5,
            digest: [1, 2],
            pair: [1, 2],
            tags: vec![Some("a".into()), Some("b".into())],
            price: Some(Price { amount: 1, currency: "EUR".into() }),
        },
        Row {
            id: 2,
            owner: "Bob".into(),
            kind: Some(Kind::Sell),
            large: -5,
            rate: f64::INFINITY,
            digest: [3, 4],
            pair: [3, 4],
            tags: vec![],
            price: None,
        },
        Row {
            id: 300,
            owner: "Ada".into(),
            kind: None,
            large: 10_i128.pow(37),
            rate: -0.0,
            digest: [5, 6],
            pair: [5, 6],
            tags: vec![None],
            price: Some(Price { amount: 3, currency: "JPY".into() }),
        },
    ];
    for name in ["plain.arrow", "plain.parquet"] {
        assert_eq!(open::<Row>(name).as_deref(), Ok(&expected[..]), "{name}");
    }
}

/// A byte order mark, line feeds, blank lines, columns in another order, JSON with spaces.
#[test]
fn csv_of_other_programs_is_read() {
    let csv = "\u{feff}kind,id,\"owner\",tags,digest,pair,price,rate,large\n\
               Buy,1,Ada,\"[ \"\"a\"\" , null ]\",0aFF,\"[1, 2]\",,1,+7\n\
               \n\
               ,2,,[],0000,\"[3,4]\",\"{ \"\"currency\"\": \"\"\\u00e9\"\", \"\"amount\"\": 3 }\",-Infinity,-0";
    let table = TableDescription::of::<Row>().expect("the table is not volatile");
    let rows = Importer::from_csv_stream(&table, "standard input", csv.as_bytes())
        .expect("the header is right")
        .map(|row| Row::decode_row(&mut &row.expect("the row is right")[..]));
    let first = Row {
        id: 1,
        owner: "Ada".into(),
        kind: Some(Kind::Buy),
        large: 7,
        rate: 1.0,
        digest: [10, 255],
        pair: [1, 2],
        tags: vec![Some("a".into()), None],
        price: None,
    };
    let second = Row {
        id: 2,
        owner: String::new(),
        kind: None,
        large: 0,
        rate: f64::NEG_INFINITY,
        digest: [0, 0],
        pair: [3, 4],
        tags: vec![],
        price: Some(Price { amount: 3, currency: "é".into() }),
    };
    let rows: Result<Vec<_>, _> = rows.collect();
    assert_eq!(rows.expect("what is imported is a row"), [first, second]);
}

#[test]
fn unsupported_features_are_reported() {
    let message = |name| open::<Row>(name).expect_err("it is not supported");
    assert_eq!(
        message("compressed.feather"),
        "tests/foreign/compressed.feather: its batches are compressed, which is not supported; \
         write it without compression, or as Parquet"
    );
    assert_eq!(
        message("compressed.parquet"),
        "tests/foreign/compressed.parquet: it is compressed by ZSTD, which is not supported; \
         write it with Snappy, or without compression"
    );
    assert_eq!(
        open::<Date>("dates.parquet").expect_err("it is not supported"),
        "tests/foreign/dates.parquet does not fit table `dates`: \
         column `day` is u32, and cannot be read from Date32"
    );
}
