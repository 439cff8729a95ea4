//! Newtypes: each is exported and imported as the value that it holds, in every format.

use std::io::Cursor;

use arrow_schema::DataType;
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use weft::description::TableDescription;
use weft::{ColumnValue, Record};
use weft_exchange::{Exporter, Format, Importer};

/// Microseconds since the start of 1970.
#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
struct Timestamp(i64);

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Name(String);

/// A newtype of a newtype.
#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Author(Name);

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Digest([u8; 2]);

#[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
struct Octet(u8);

#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Maybe(Option<u8>);

/// Not a newtype: a struct with a named field.
#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Price {
    cents: Octet,
}

/// Not a newtype: a tuple struct of two fields.
#[derive(Clone, Debug, PartialEq, ColumnValue)]
struct Pair(Timestamp, Name);

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "posts")]
struct Post {
    #[record(key)]
    id: u32,
    written: Timestamp,
    changed: Option<Timestamp>,
    author: Author,
    digest: Digest,
    octets: Vec<Octet>,
    times: Vec<Timestamp>,
    /// An option of an option, which is JSON in a CSV field.
    maybe: Option<Maybe>,
    price: Price,
    pair: Pair,
    deleted: (bool, Timestamp),
}

fn posts() -> [Post; 2] {
    let first = Post {
        id: 1,
        written: Timestamp(1_795_000_000_000_000),
        changed: Some(Timestamp(-1)),
        author: Author(Name("Ada, \"A\"".into())),
        digest: Digest([0xAB, 1]),
        octets: vec![Octet(0), Octet(255)],
        times: vec![Timestamp(1), Timestamp(2)],
        maybe: Some(Maybe(Some(7))),
        price: Price { cents: Octet(99) },
        pair: Pair(Timestamp(3), Name("c".into())),
        deleted: (false, Timestamp(0)),
    };
    let second = Post {
        id: 2,
        changed: None,
        octets: Vec::new(),
        times: Vec::new(),
        maybe: Some(Maybe(None)),
        ..first.clone()
    };
    [first, second]
}

fn export(format: Format) -> Vec<u8> {
    let table = TableDescription::of::<Post>().unwrap();
    let mut exporter = Exporter::new(&table, format, Vec::new()).unwrap();
    for post in posts() {
        let mut row = Vec::new();
        post.encode_row(&mut row);
        exporter.push(&row).unwrap();
    }
    exporter.finish().unwrap()
}

fn import(format: Format, file: Vec<u8>) -> Vec<Post> {
    let table = TableDescription::of::<Post>().unwrap();
    let rows = Importer::new(&table, format, "file", Cursor::new(file)).unwrap();
    rows.map(|row| Post::decode_row(&mut &row.unwrap()[..]).unwrap()).collect()
}

#[test]
fn newtype_is_a_plain_value_in_csv() {
    let expected = "id,written,changed,author,digest,octets,times,maybe,price,pair,deleted\r\n\
        1,1795000000000000,-1,\"Ada, \"\"A\"\"\",ab01,00ff,\"[1,2]\",7,\"{\"\"cents\"\":99}\",\
        \"{\"\"0\"\":3,\"\"1\"\":\"\"c\"\"}\",\"[false,0]\"\r\n\
        2,1795000000000000,,\"Ada, \"\"A\"\"\",ab01,\"\",[],null,\"{\"\"cents\"\":99}\",\
        \"{\"\"0\"\":3,\"\"1\"\":\"\"c\"\"}\",\"[false,0]\"\r\n";
    assert_eq!(String::from_utf8(export(Format::Csv)).unwrap(), expected);
}

#[test]
fn newtype_has_the_type_of_its_value_in_arrow() {
    let file = Cursor::new(export(Format::ArrowIpc));
    let schema = arrow_ipc::reader::FileReader::try_new(file, None).unwrap().schema();
    let type_of = |name: &str| schema.field_with_name(name).unwrap().data_type().clone();
    assert_eq!(type_of("written"), DataType::Int64);
    assert_eq!(type_of("changed"), DataType::Int64);
    assert!(schema.field_with_name("changed").unwrap().is_nullable());
    assert_eq!(type_of("author"), DataType::Utf8);
    assert_eq!(type_of("digest"), DataType::FixedSizeBinary(2));
    assert_eq!(type_of("octets"), DataType::Binary);
    assert!(
        matches!(type_of("times"), DataType::List(field) if *field.data_type() == DataType::Int64)
    );
    let DataType::Struct(fields) = type_of("price") else { panic!("{:?}", type_of("price")) };
    assert_eq!((fields[0].name().as_str(), fields[0].data_type()), ("cents", &DataType::UInt8));
}

#[test]
fn newtype_has_the_type_of_its_value_in_parquet() {
    let file = SerializedFileReader::new(Bytes::from(export(Format::Parquet))).unwrap();
    let schema = file.metadata().file_metadata().schema_descr();
    let paths: Vec<String> = schema.columns().iter().map(|it| it.path().string()).collect();
    assert_eq!(paths[1..6], ["written", "changed", "author", "digest", "octets"], "{paths:?}");
}

#[test]
fn newtype_is_imported_as_it_was_exported() {
    for format in Format::ALL {
        assert_eq!(import(format, export(format)), posts(), "{format:?}");
    }
    let table = TableDescription::of::<Post>().unwrap();
    let file = "id,written,changed,author,digest,octets,times,maybe,price,pair,deleted\n\
        5,17,18,me,0000,00,[1],1,\"{\"\"cents\"\":1}\",\"{\"\"0\"\":1,\"\"1\"\":\"\"\"\"}\",\"[true,2]\"\n";
    let mut rows = Importer::from_csv_stream(&table, "posts.csv", file.as_bytes()).unwrap();
    let post = Post::decode_row(&mut &rows.next().unwrap().unwrap()[..]).unwrap();
    assert_eq!((post.written, post.changed), (Timestamp(17), Some(Timestamp(18))));
    assert_eq!(post.author, Author(Name("me".into())));
}

#[test]
fn message_names_the_type_of_the_value() {
    let table = TableDescription::of::<Post>().unwrap();
    let file = "id,written,changed,author,digest,octets,times,maybe,price,pair,deleted\n\
        5,soon,18,me,0000,00,[1],1,\"{\"\"cents\"\":1}\",\"{\"\"0\"\":1,\"\"1\"\":\"\"\"\"}\",\"[true,2]\"\n";
    let mut rows = Importer::from_csv_stream(&table, "posts.csv", file.as_bytes()).unwrap();
    let message = rows.next().unwrap().unwrap_err().to_string();
    assert!(message.contains("column `written`") && message.contains("i64"), "{message}");
}
