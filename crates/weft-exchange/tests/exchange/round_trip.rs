//! Round trips: in every format, rows that are exported and imported again are the same, to the bit. The tests
//! use random tables of random types, and tables that take several batches.

use std::io::Cursor;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use weft::description::{ColumnDescription, TableDescription, TypeDescription, Value};
use weft::schema::Storage;
use weft_exchange::{Exporter, Format, Importer, Progress};

/// Returns a table of these columns, named `c0`, `c1` and so on.
fn table(types: Vec<TypeDescription>) -> TableDescription {
    let column = |(position, type_of)| ColumnDescription::new(format!("c{position}"), type_of);
    TableDescription {
        name: "random".to_owned(),
        storage: Storage::Ordered,
        columns: types.into_iter().enumerate().map(column).collect(),
        key: vec![0],
        indexes: Vec::new(),
        ..TableDescription::default()
    }
}

fn encode(table: &TableDescription, values: &[Value]) -> Vec<u8> {
    let mut row = Vec::new();
    for (column, value) in table.columns.iter().zip(values) {
        value.write(&column.type_of, &mut row).expect("the value is one of the type");
    }
    row
}

fn export(table: &TableDescription, format: Format, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut exporter = Exporter::new(table, format, Vec::new()).expect("memory cannot fail");
    for row in rows {
        exporter.push(row).expect("the row is one of the table");
    }
    exporter.finish().expect("memory cannot fail")
}

fn import(table: &TableDescription, format: Format, file: Vec<u8>) -> Result<Vec<Vec<u8>>, String> {
    let importer = Importer::new(table, format, "file", Cursor::new(file));
    importer.and_then(|rows| rows.collect()).map_err(|error| error.to_string())
}

fn any_type() -> BoxedStrategy<TypeDescription> {
    use TypeDescription as Type;
    let name = || prop_oneof!["[a-z][a-z0-9_]{0,5}", Just("größe".to_owned())];
    let leaf = prop_oneof![
        Just(Type::Bool),
        Just(Type::I8),
        Just(Type::I16),
        Just(Type::I32),
        Just(Type::I64),
        Just(Type::I128),
        Just(Type::U8),
        Just(Type::U16),
        Just(Type::U32),
        Just(Type::U64),
        Just(Type::U128),
        Just(Type::F32),
        Just(Type::F64),
        Just(Type::Char),
        Just(Type::String),
        Just(Type::Tuple(Vec::new())),
        btree_set(name(), 1..5).prop_map(|variants| Type::Enum {
            name: "Choice".to_owned(),
            variants: variants.into_iter().collect(),
        }),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        // The elements of lists and arrays take at least one byte each.
        let element = inner.clone().prop_map(|type_of| match takes_no_bytes(&type_of) {
            true => Type::U8,
            false => type_of,
        });
        prop_oneof![
            element.clone().prop_map(|element| Type::List(Box::new(element))),
            (element, 0_usize..5)
                .prop_map(|(element, length)| Type::Array(Box::new(element), length)),
            inner.clone().prop_map(|inner| Type::Option(Box::new(inner))),
            inner.clone().prop_map(|inner| Type::Option(Box::new(inner))),
            vec(inner.clone(), 0..4).prop_map(Type::Tuple),
            (btree_set(name(), 0..4), vec(inner, 4)).prop_map(|(names, types)| Type::Struct {
                name: "Part".to_owned(),
                fields: names
                    .into_iter()
                    .zip(types)
                    .map(|(name, type_of)| ColumnDescription::new(name, type_of))
                    .collect(),
            }),
        ]
    })
    .boxed()
}

fn takes_no_bytes(type_of: &TypeDescription) -> bool {
    match type_of {
        TypeDescription::Array(_, length) => *length == 0,
        TypeDescription::Tuple(elements) => elements.iter().all(takes_no_bytes),
        TypeDescription::Struct { fields, .. } => {
            fields.iter().all(|field| takes_no_bytes(&field.type_of))
        }
        _ => false,
    }
}

fn any_text() -> BoxedStrategy<String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        prop::sample::select(vec![
            "", ",", "\"", "\r", "\n", "\r\n", "\\", "\\N", "NULL", "null", "\0", "\u{feff}", " ",
            "[", "a",
        ])
        .prop_map(String::from),
    ];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat()).boxed()
}

fn any_value(type_of: &TypeDescription) -> BoxedStrategy<Value> {
    use TypeDescription as Type;
    macro_rules! number {
        ($number:ident, $variant:ident) => {
            prop_oneof![any::<$number>(), Just($number::MIN), Just($number::MAX)]
                .prop_map(|number| Value::$variant(number.into()))
                .boxed()
        };
    }
    match type_of {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::I8 => number!(i8, Signed),
        Type::I16 => number!(i16, Signed),
        Type::I32 => number!(i32, Signed),
        Type::I64 => number!(i64, Signed),
        Type::I128 => number!(i128, Signed),
        Type::U8 => number!(u8, Unsigned),
        Type::U16 => number!(u16, Unsigned),
        Type::U32 => number!(u32, Unsigned),
        Type::U64 => number!(u64, Unsigned),
        Type::U128 => number!(u128, Unsigned),
        Type::F32 => {
            let special = prop::sample::select(vec![
                f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                -0.0,
                f32::MIN_POSITIVE / 2.0,
                f32::MAX,
                16_777_216.0,
            ]);
            prop_oneof![any::<u32>().prop_map(f32::from_bits), special].prop_map(Value::F32).boxed()
        }
        Type::F64 => {
            let special = prop::sample::select(vec![
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                f64::MIN_POSITIVE / 2.0,
                f64::MAX,
                0.1,
                1e15,
            ]);
            prop_oneof![any::<u64>().prop_map(f64::from_bits), special].prop_map(Value::F64).boxed()
        }
        Type::Char => prop_oneof![any::<char>(), Just('"'), Just(','), Just('\n'), Just('\0')]
            .prop_map(Value::Char)
            .boxed(),
        Type::String => any_text().prop_map(Value::String).boxed(),
        Type::List(element) if **element == Type::U8 => {
            vec(any::<u8>(), 0..5).prop_map(Value::Bytes).boxed()
        }
        Type::Array(element, length) if **element == Type::U8 => {
            vec(any::<u8>(), *length).prop_map(Value::Bytes).boxed()
        }
        Type::List(element) => vec(any_value(element), 0..4).prop_map(Value::List).boxed(),
        Type::Array(element, length) => {
            vec(any_value(element), *length).prop_map(Value::List).boxed()
        }
        Type::Option(inner) => prop_oneof![
            Just(Value::Option(None)),
            any_value(inner).prop_map(|value| Value::Option(Some(Box::new(value)))),
        ]
        .boxed(),
        Type::Tuple(elements) => {
            elements.iter().map(any_value).collect::<Vec<_>>().prop_map(Value::Tuple).boxed()
        }
        Type::Struct { fields, .. } => {
            let values: Vec<_> = fields.iter().map(|field| any_value(&field.type_of)).collect();
            values.prop_map(Value::Tuple).boxed()
        }
        Type::Enum { variants, .. } => (0..variants.len()).prop_map(Value::Enum).boxed(),
    }
}

fn any_table() -> impl Strategy<Value = (TableDescription, Vec<Vec<Value>>)> {
    vec(any_type(), 1..4).prop_flat_map(|types| {
        let row: Vec<_> = types.iter().map(any_value).collect();
        (Just(table(types)), vec(row, 0..12))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_tables_round_trip((table, rows) in any_table()) {
        let rows: Vec<Vec<u8>> = rows.iter().map(|values| encode(&table, values)).collect();
        for format in Format::ALL {
            let file = export(&table, format, &rows);
            prop_assert_eq!(import(&table, format, file), Ok(rows.clone()), "{}", format);
        }
    }

    /// Columns are matched by name, whatever their order in file and table.
    #[test]
    fn columns_are_matched_by_name((table, rows) in any_table(), rotation in 0_usize..4) {
        let rotation = rotation % table.columns.len();
        let mut other = table.clone();
        other.columns.rotate_left(rotation);
        let written: Vec<_> = rows.iter().map(|values| encode(&table, values)).collect();
        let expected: Vec<_> = rows
            .into_iter()
            .map(|mut values| {
                values.rotate_left(rotation);
                encode(&other, &values)
            })
            .collect();
        for format in Format::ALL {
            let file = export(&table, format, &written);
            prop_assert_eq!(import(&other, format, file), Ok(expected.clone()), "{}", format);
        }
    }
}

/// Returns `count` rows of a number and a text, whose length is about `text_bytes`.
fn large_table(count: usize, text_bytes: usize) -> (TableDescription, Vec<Vec<u8>>) {
    let table = table(vec![
        TypeDescription::U32,
        TypeDescription::Option(Box::new(TypeDescription::String)),
    ]);
    let row = |number: usize| {
        let text = (!number.is_multiple_of(7))
            .then(|| Box::new(Value::String(number.to_string() + &"-".repeat(text_bytes))));
        encode(&table, &[Value::Unsigned(number as u128), Value::Option(text)])
    };
    let rows = (0..count).map(row).collect();
    (table, rows)
}

#[test]
fn several_batches_round_trip() {
    for (count, text_bytes) in [(20_000, 5), (50, 1 << 20)] {
        let (table, rows) = large_table(count, text_bytes);
        for format in Format::ALL {
            let file = export(&table, format, &rows);
            assert!(import(&table, format, file) == Ok(rows.clone()), "{format}, {count} rows");
        }
    }
}

/// More than 64 MiB, which Parquet splits into several row groups.
#[test]
fn several_row_groups_round_trip() {
    let table = table(vec![TypeDescription::List(Box::new(TypeDescription::U8))]);
    let mut random = fastrand::Rng::with_seed(7);
    let bytes: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
    let row = |number: u8| {
        let mut bytes = bytes.clone();
        bytes[0] = number;
        encode(&table, &[Value::Bytes(bytes)])
    };
    let rows: Vec<Vec<u8>> = (0..100).map(row).collect();
    let file = export(&table, Format::Parquet, &rows);
    let metadata = SerializedFileReader::new(Bytes::from(file.clone()));
    let metadata = metadata.expect("the file is well-formed").metadata().clone();
    assert!(metadata.num_row_groups() > 1);
    let importer = Importer::new(&table, Format::Parquet, "file", Cursor::new(file));
    let mut importer = importer.expect("the file is well-formed");
    let mut row = Vec::new();
    for expected in &rows {
        assert!(importer.next_row(&mut row).expect("the file is well-formed"));
        assert!(row == *expected);
    }
    assert!(!importer.next_row(&mut row).expect("the file is well-formed"));
}

/// In an option of an array, a `None` takes one byte in a row, but the array's room in a batch.
#[test]
fn absent_arrays_take_little_memory() {
    let array = TypeDescription::Array(Box::new(TypeDescription::U8), 64 << 20);
    let table = table(vec![TypeDescription::U8, TypeDescription::Option(Box::new(array))]);
    let row = |number: u8| encode(&table, &[Value::Unsigned(number.into()), Value::Option(None)]);
    let rows: Vec<Vec<u8>> = (0..5).map(row).collect();
    for format in Format::ALL {
        let file = export(&table, format, &rows);
        assert!(import(&table, format, file) == Ok(rows.clone()), "{format}");
    }
}

#[test]
fn progress_is_reported() {
    let (table, rows) = large_table(20_000, 5);
    for format in Format::ALL {
        let mut told: Vec<Progress> = Vec::new();
        let mut exporter = Exporter::new(&table, format, Vec::new())
            .expect("memory cannot fail")
            .on_progress(|progress| told.push(progress));
        for row in &rows {
            exporter.push(row).expect("the row is one of the table");
        }
        let file = exporter.finish().expect("memory cannot fail");
        let size_bytes = file.len() as u64;
        let counts: Vec<u64> = told.iter().map(|progress| progress.rows).collect();
        assert_eq!(counts, [8192, 16384, 20_000], "{format}");
        assert!(told.is_sorted_by_key(|progress| progress.bytes));
        assert_eq!(told[2], Progress { rows: 20_000, bytes: size_bytes, bytes_total: None });

        let mut told: Vec<Progress> = Vec::new();
        let importer = Importer::new(&table, format, "file", Cursor::new(file))
            .expect("the file is well-formed")
            .on_progress(|progress| told.push(progress));
        assert_eq!(importer.count(), 20_000);
        let counts: Vec<u64> = told.iter().map(|progress| progress.rows).collect();
        assert_eq!(counts, [8192, 16384, 20_000], "{format}");
        assert!(told.is_sorted_by_key(|progress| progress.bytes));
        assert!(told.iter().all(|progress| progress.bytes_total == Some(size_bytes)));
    }
}
