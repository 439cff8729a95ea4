//! Tests of descriptions: round trips, rows read by them, and stored tables that differ from the
//! program's.

mod renames;
mod sequences;

use proptest::prelude::*;

use super::*;
use crate::Record;
use crate::row::column::ColumnValue;
use crate::row::schema::Storage;

#[derive(Clone, Debug, PartialEq, crate::ColumnValue)]
struct Address {
    street: String,
    number: u16,
}

#[derive(Clone, Debug, PartialEq, crate::Record)]
#[record(table = "accounts", storage = "hash", key(branch, number))]
#[record(index(name = by_owner, columns(owner, branch)))]
struct Account {
    number: u32,
    branch: u8,
    #[record(unique)]
    owner: String,
    balance: i64,
    address: Option<Address>,
    #[record(default = vec![1, 2])]
    marks: Vec<u16>,
}

fn account() -> Account {
    Account {
        number: 7,
        branch: 2,
        owner: "Ada".to_owned(),
        balance: -100,
        address: Some(Address { street: "Rue".to_owned(), number: 9 }),
        marks: vec![3],
    }
}

fn row_of(row: &impl Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode_row(&mut bytes);
    bytes
}

fn description_of<R: Record>() -> TableDescription {
    TableDescription::of::<R>().expect("the table is not volatile")
}

// ---- descriptions -----------------------------------------------------------------------------

#[test]
fn a_table_is_described() {
    let table = description_of::<Account>();
    assert_eq!((table.name.as_str(), table.storage), ("accounts", Storage::Hash));
    assert_eq!(table.key, [1, 0], "branch, number");
    let columns: Vec<_> =
        table.columns.iter().map(|it| format!("{}: {}", it.name, it.type_of)).collect();
    assert_eq!(
        columns,
        [
            "number: u32",
            "branch: u8",
            "owner: String",
            "balance: i64",
            "address: Option<Address { street: String, number: u16 }>",
            "marks: Vec<u16>",
        ]
    );
    let defaults: Vec<_> = table.columns.iter().map(|it| it.default.clone()).collect();
    assert_eq!(defaults, [None, None, None, None, None, Some(vec![2, 1, 0, 2, 0])]);
    let index = |name: &str, columns: &[usize], unique| IndexDescription {
        name: name.to_owned(),
        columns: columns.to_vec(),
        unique,
    };
    assert_eq!(table.indexes, [index("by_owner", &[2, 1], false), index("owner", &[2], true)]);
}

/// The format is a promise: a change here makes stored databases unreadable.
#[test]
fn a_descriptions_bytes_match_the_documentation() {
    #[derive(Clone, crate::Record)]
    #[record(table = "t", index(name = i, columns(b), unique), was = "s", dropped(d))]
    struct Row {
        #[record(key, generated)]
        a: u64,
        #[record(default = Some(true), was = "x")]
        b: Option<bool>,
        c: [Address2; 3],
    }
    #[derive(Clone, crate::ColumnValue)]
    struct Address2(#[column(default = 5)] i8);
    let mut bytes = Vec::new();
    description_of::<Row>().write(&mut bytes);
    let expected: &[&[u8]] = &[
        &[1, b't', 0, 3],
        &[1, b'a', 9, 0, 0, 0],
        &[1, b'b', 16, 0, 1, 2, 1, 1, 1, 1, b'x', 0],
        &[1, b'c', 17, 21, 8],
        b"Address2",
        &[1, 1, b'0', 1, 1, 1, 5, 0, 0, 3, 0, 0, 0],
        &[1, 0],
        &[1, 1, b'i', 1, 1, 1],
        &[1, 1, b's', 0, 1, 1, b'd', 0, 0],
        &[1, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(bytes, expected.concat());
    // The form before that had no next key.
    let older = &mut &bytes[..bytes.len() - 9];
    let read = TableDescription::read_form(2, older).unwrap();
    assert_eq!(read, TableDescription { next_key: None, ..description_of::<Row>() });
    assert!(older.is_empty());
    let row = Row { a: 1, b: None, c: [const { Address2(2) }; 3] };
    assert_eq!(row_of(&row), [1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2]);
}

#[test]
fn a_volatile_table_is_not_described() {
    #[derive(Clone, crate::Record)]
    #[record(volatile)]
    struct Session {
        #[record(key)]
        name: &'static str,
        since: std::time::Instant,
    }
    const { assert!(Session::VOLATILE && Session::COLUMNS[0].type_of.is_none()) };
    assert_eq!(TableDescription::of::<Session>(), None);
    let session = Session { name: "a", since: std::time::Instant::now() };
    assert_eq!(row_of(&session), []);
    let mut key = Vec::new();
    Session::encode_key(&session.key(), &mut key);
    assert_eq!(key, []);
    let message = "table `session` is volatile: its rows are never stored";
    assert_eq!(Session::decode_row(&mut &[][..]).map(drop).unwrap_err().what(), message);
    assert_eq!(Session::decode_key(&mut &[][..]).unwrap_err().what(), message);
    assert!(session.since.elapsed() >= std::time::Duration::ZERO);
}

/// Generates types of all kinds, nested up to four deep.
fn types() -> impl Strategy<Value = TypeDescription> {
    use TypeDescription as Type;
    let plain = prop::sample::select(vec![
        Type::Bool,
        Type::I8,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::I128,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::U128,
        Type::F32,
        Type::F64,
        Type::Char,
        Type::String,
        Type::Tuple(Vec::new()),
    ]);
    let name = "[a-z_]{1,5}";
    plain.prop_recursive(4, 24, 4, move |inner| {
        let element = inner.clone().prop_map(|type_of| match type_of.width_min_bytes() {
            0 => Type::Bool,
            _ => type_of,
        });
        let field = (name, inner.clone());
        prop_oneof![
            element.clone().prop_map(|element| Type::List(Box::new(element))),
            inner.clone().prop_map(|value| Type::Option(Box::new(value))),
            (element, 0..5_usize)
                .prop_map(|(element, length)| Type::Array(Box::new(element), length)),
            prop::collection::vec(inner, 0..4).prop_map(Type::Tuple),
            (name, prop::collection::vec(field, 0..4)).prop_map(|(name, fields)| {
                let field = |(name, type_of)| ColumnDescription::new(name, type_of);
                Type::Struct { name, fields: fields.into_iter().map(field).collect() }
            }),
            (name, prop::collection::vec(name, 1..200))
                .prop_map(|(name, variants)| Type::Enum { name, variants }),
        ]
    })
}

/// Returns a random value of `type_of`.
fn value_of(type_of: &TypeDescription, draw: &mut fastrand::Rng) -> Value {
    use TypeDescription as Type;
    let values = |type_of: &Type, count: usize, draw: &mut fastrand::Rng| match type_of {
        Type::U8 => Value::Bytes((0..count).map(|_| draw.u8(..)).collect()),
        _ => Value::List((0..count).map(|_| value_of(type_of, draw)).collect()),
    };
    match type_of {
        Type::Bool => Value::Bool(draw.bool()),
        Type::I8 => Value::Signed(draw.i8(..).into()),
        Type::I16 => Value::Signed(draw.i16(..).into()),
        Type::I32 => Value::Signed(draw.i32(..).into()),
        Type::I64 => Value::Signed(draw.i64(..).into()),
        Type::I128 => Value::Signed(draw.i128(..)),
        Type::U8 => Value::Unsigned(draw.u8(..).into()),
        Type::U16 => Value::Unsigned(draw.u16(..).into()),
        Type::U32 => Value::Unsigned(draw.u32(..).into()),
        Type::U64 => Value::Unsigned(draw.u64(..).into()),
        Type::U128 => Value::Unsigned(draw.u128(..)),
        Type::F32 => Value::F32(draw.f32()),
        Type::F64 => Value::F64(draw.f64()),
        Type::Char => Value::Char(draw.char(..)),
        Type::String => {
            let length = draw.usize(..200);
            Value::String((0..length).map(|_| draw.char(..)).collect())
        }
        Type::List(element) => {
            let length = draw.usize(..5);
            values(element, length, draw)
        }
        Type::Array(element, length) => values(element, *length, draw),
        Type::Option(inner) => Value::Option(draw.bool().then(|| Box::new(value_of(inner, draw)))),
        Type::Tuple(elements) => {
            Value::Tuple(elements.iter().map(|element| value_of(element, draw)).collect())
        }
        Type::Struct { fields, .. } => {
            Value::Tuple(fields.iter().map(|field| value_of(&field.type_of, draw)).collect())
        }
        Type::Enum { variants, .. } => Value::Enum(draw.usize(..variants.len())),
    }
}

/// Generates tables with random columns, which are named `a`, `b` and so on. The first column is
/// the key.
fn tables() -> impl Strategy<Value = TableDescription> {
    (prop::collection::vec((types(), any::<bool>()), 1..8), any::<u64>()).prop_map(
        |(types, seed)| {
            let mut draw = fastrand::Rng::with_seed(seed);
            let columns = types.into_iter().zip('a'..).map(|((type_of, has_default), name)| {
                let default = has_default.then(|| {
                    let mut bytes = Vec::new();
                    value_of(&type_of, &mut draw).write(&type_of, &mut bytes).unwrap();
                    bytes
                });
                let was = if draw.bool() { vec!["was".to_owned()] } else { Vec::new() };
                let is_computed = draw.bool();
                ColumnDescription {
                    default,
                    was,
                    is_computed,
                    ..ColumnDescription::new(name.into(), type_of)
                }
            });
            TableDescription {
                name: "table".to_owned(),
                storage: Storage::Ordered,
                columns: columns.collect(),
                key: vec![0],
                checks: vec!["check".to_owned()],
                next_key: Some(300),
                ..TableDescription::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn a_description_round_trips(table in tables()) {
        let mut bytes = Vec::new();
        table.write(&mut bytes);
        let followed = [&bytes[..], b"more"].concat();
        let mut rest = &followed[..];
        prop_assert_eq!(&TableDescription::read(&mut rest).unwrap(), &table);
        prop_assert_eq!(rest, b"more");
        for length in 0..bytes.len() {
            prop_assert!(TableDescription::read(&mut &bytes[..length]).is_err());
        }
    }

    #[test]
    fn any_bytes_decode_to_a_description_or_an_error(
        table in tables(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        table.write(&mut bytes);
        for (place, byte) in damage {
            *place.get_mut(&mut bytes) = byte;
        }
        let mut rest = &bytes[..];
        if let Ok(read) = TableDescription::read(&mut rest) {
            let length = bytes.len() - rest.len();
            let mut again = Vec::new();
            read.write(&mut again);
            prop_assert_eq!(&again[..], &bytes[..length]);
        }
    }

    #[test]
    fn values_of_any_type_round_trip(type_of in types(), seed: u64) {
        let value = value_of(&type_of, &mut fastrand::Rng::with_seed(seed));
        let mut bytes = Vec::new();
        value.write(&type_of, &mut bytes).unwrap();
        let mut rest = &bytes[..];
        prop_assert_eq!(type_of.read_value(&mut rest).unwrap(), value);
        prop_assert!(rest.is_empty());
        let mut rest = &bytes[..];
        type_of.skip(&mut rest).unwrap();
        prop_assert!(rest.is_empty());
        prop_assert!(bytes.len() >= type_of.width_min_bytes());
        for length in 0..bytes.len() {
            prop_assert!(type_of.read_value(&mut &bytes[..length]).is_err());
        }
    }

    #[test]
    fn any_bytes_decode_to_a_value_or_an_error(
        type_of in types(),
        bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..64),
    ) {
        let (mut rest, mut skipped) = (&bytes[..], &bytes[..]);
        let is_skipped = type_of.skip(&mut skipped).is_ok();
        if let Ok(value) = type_of.read_value(&mut rest) {
            let mut again = Vec::new();
            value.write(&type_of, &mut again).unwrap();
            prop_assert_eq!(&again[..], &bytes[..bytes.len() - rest.len()]);
            prop_assert!(is_skipped && skipped.len() == rest.len());
        }
    }
}

#[test]
fn faulty_descriptions_are_refused_with_a_message() {
    fn assert_refused(bytes: &[&[u8]], expected: &str) {
        let bytes = bytes.concat();
        let error = TableDescription::read(&mut &bytes[..]).expect_err("it is faulty");
        assert_eq!(error.to_string(), expected);
    }
    let head: &[u8] = &[1, b't', 0];
    assert_refused(&[&[1, b't', 2]], "byte 2: a table has the unknown kind of index 2");
    assert_refused(&[head, &[1, 1, b'a', 77]], "byte 6: a type has the unknown number 77");
    assert_refused(
        &[head, &[2, 1, b'a', 0, 0, 0, 0, 1, b'a', 0, 0, 0, 0]],
        "byte 3: two columns are named `a`",
    );
    assert_refused(
        &[head, &[1, 1, b'a', 0, 1, 1, 9]],
        "byte 7: the default of column `a` is not a value of type bool",
    );
    let column: &[u8] = &[1, 1, b'a', 0, 0, 0, 0];
    assert_refused(&[head, column, &[1, 1]], "byte 11: column 1 is named, and there are 1");
    assert_refused(&[head, column, &[2, 0, 0]], "byte 10: a column is named twice");
    assert_refused(
        &[head, column, &[1, 0, 0, 0, 0, 0, 0, 1]],
        "byte 17: more columns are kept than there are",
    );
    assert_refused(
        &[head, &[1, 1, b'a', 15, 18, 0, 0]],
        "byte 6: the elements of a list or an array are (), of no bytes",
    );
    let deep = [16; 300];
    assert_refused(&[head, &[127, 1, b'a'], &deep], "byte 262: a type is nested too deep");
}

// ---- rows and keys ----------------------------------------------------------------------------

#[test]
fn rows_and_keys_are_read_by_their_description() {
    let table = description_of::<Account>();
    let (mut key, row) = (Vec::new(), row_of(&account()));
    Account::encode_key(&account().key(), &mut key);
    assert_eq!(key, [2, 7, 0, 0, 0]);
    assert_eq!(Account::decode_key(&mut &key[..]), Ok((2, 7)));
    assert_eq!(Account::decode_row(&mut &row[..]), Ok(account()));
    assert_eq!(table.read_key(&key), Ok(vec![Value::Unsigned(2), Value::Unsigned(7)]));
    let address = Value::Tuple(vec![Value::String("Rue".into()), Value::Unsigned(9)]);
    let values = [
        Value::Unsigned(7),
        Value::Unsigned(2),
        Value::String("Ada".into()),
        Value::Signed(-100),
        Value::Option(Some(Box::new(address))),
        Value::List(vec![Value::Unsigned(3)]),
    ];
    assert_eq!(table.read_row(&row), Ok(values.into()));
}

#[test]
fn a_faulty_row_is_refused_with_its_column() {
    let table = description_of::<Account>();
    let mut row = row_of(&account());
    row.push(0);
    let message = "byte 27: the row ends here, but 1 bytes follow";
    assert_eq!(table.read_row(&row).unwrap_err().to_string(), message);
    row[17] = 2;
    let message = "byte 17 (column `address`): an option begins with 2, and not 0 or 1";
    assert_eq!(table.read_row(&row).unwrap_err().to_string(), message);
    let error = Account::decode_row(&mut &row[..]).unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!((error.position(), error.column()), (Some(17), Some("address")));
    let message = "byte 2 (column `number`): the bytes end within u32";
    assert_eq!(table.read_key(&[1, 2]).unwrap_err().to_string(), message);
    assert_eq!(Account::decode_key(&mut &[1, 2][..]).unwrap_err().to_string(), message);
    let message = "byte 5: the key ends here, but 1 bytes follow";
    assert_eq!(table.read_key(&[0; 6]).unwrap_err().to_string(), message);
}

#[test]
fn a_value_of_another_type_is_refused_with_a_message() {
    fn assert_refused<T: ColumnValue>(value: Value, expected: &str) {
        let refused = value.write(&T::TYPE.into(), &mut Vec::new());
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
    assert_refused::<u8>(Value::Unsigned(256), "the unsigned number 256 is no u8");
    assert_refused::<u8>(Value::Signed(1), "the signed number 1 is no u8");
    assert_refused::<i8>(Value::Signed(-129), "the signed number -129 is no i8");
    assert_refused::<String>(Value::Bytes(vec![1]), "a sequence of 1 bytes is no String");
    assert_refused::<[u8; 2]>(Value::Bytes(vec![1]), "a sequence of 1 bytes is no [u8; 2]");
    assert_refused::<Vec<u8>>(Value::List(vec![]), "a list of 0 values is no Vec<u8>");
    assert_refused::<Option<bool>>(Value::Bool(true), "true is no Option<bool>");
    assert_refused::<(bool,)>(Value::Tuple(vec![]), "a tuple of 0 values is no (bool,)");
    assert_refused::<Vec<char>>(
        Value::List(vec![Value::String("a".into())]),
        "a text of 1 bytes is no char",
    );
}

// ---- stored tables and the program's ----------------------------------------------------------

/// The table `accounts` as another program has it.
macro_rules! other_accounts {
    ($($(#[$attribute:meta])* $column:ident: $type_of:ty,)*) => {{
        #[derive(Clone, Debug, PartialEq, crate::Record)]
        #[record(table = "accounts")]
        struct Other {
            $($(#[$attribute])* $column: $type_of,)*
        }
        description_of::<Other>()
    }};
}
use other_accounts;

fn matched(stored: &TableDescription, current: &TableDescription) -> Result<OpenedTable, String> {
    let matches = compare(std::slice::from_ref(stored), std::slice::from_ref(current), &[]);
    match matches.map_err(|mismatch| mismatch.to_string())?.pop() {
        Some(TableMatch::Opened(opened)) => Ok(*opened),
        _ => Err("it is kept".to_owned()),
    }
}

fn adaptation(stored: &TableDescription, current: &TableDescription) -> Adaptation {
    let opened = matched(stored, current).unwrap();
    Adaptation::new(&[stored], opened.step.as_ref()).unwrap()
}

fn refusal(stored: &TableDescription, current: &TableDescription) -> String {
    matched(stored, current).expect_err("something stands in the way")
}

#[test]
fn a_table_that_did_not_change_needs_no_adaptation() {
    let table = description_of::<Account>();
    let adaptation = adaptation(&table, &table);
    assert!(adaptation.is_identity() && adaptation.keeps_keys());
    let row = row_of(&account());
    assert_eq!(adaptation.row(&row).unwrap(), row);
}

#[test]
fn storage_and_indexes_may_change_and_unique_ones_may_be_dropped() {
    let stored = description_of::<Account>();
    let mut current = stored.clone();
    current.storage = Storage::Ordered;
    current.indexes.remove(0);
    assert!(adaptation(&stored, &current).is_identity());
    assert!(adaptation(&current, &stored).is_identity());
    current.indexes[0].unique = false;
    current.checks.push("check".to_owned());
    assert!(adaptation(&current, &stored_with(&stored, &["check"])).is_identity());
    assert!(refusal(&current, &stored).contains("`#[record(dropped(check))]`"));
    let message = refusal(&stored, &current);
    assert!(message.contains("the unique index `owner`"), "{message}");
    assert!(message.contains("`#[record(dropped(owner))]`"), "{message}");
    assert!(adaptation(&stored, &stored_with(&current, &["owner"])).is_identity());
}

/// Returns the table with names that were dropped.
fn stored_with(table: &TableDescription, dropped: &[&str]) -> TableDescription {
    let dropped = dropped.iter().map(|&name| name.to_owned()).collect();
    TableDescription { dropped, ..table.clone() }
}

#[test]
fn columns_with_defaults_are_added_in_their_places() {
    let stored = description_of::<Account>();
    #[derive(Clone, Debug, PartialEq, crate::Record)]
    #[record(table = "accounts", key(branch, number), dropped(owner))]
    struct Wider {
        #[record(default = "EUR".to_owned())]
        currency: String,
        branch: u8,
        number: u32,
        marks: Vec<u16>,
        owner: String,
        #[record(default = None)]
        limit: Option<u64>,
        balance: i64,
        address: Option<Address>,
    }
    let adaptation = adaptation(&stored, &description_of::<Wider>());
    assert!(!adaptation.is_identity() && adaptation.keeps_keys());
    let stored = row_of(&account());
    let row = adaptation.row(&stored).unwrap();
    let mut rest = &row[..];
    let Account { number, branch, owner, balance, address, marks } = account();
    let expected = Wider {
        currency: "EUR".to_owned(),
        branch,
        number,
        marks,
        owner,
        limit: None,
        balance,
        address,
    };
    assert_eq!(Wider::decode_row(&mut rest), Ok(expected));
    assert!(rest.is_empty());
}

#[derive(Clone, Copy, Debug, PartialEq, crate::ColumnValue)]
enum Status {
    Old,
    Open,
    Frozen,
}

#[derive(Clone, Debug, PartialEq, crate::ColumnValue)]
struct Place {
    #[column(default = 7)]
    floor: u8,
    number: u64,
    #[column(was = "street")]
    road: Option<String>,
}

/// Every column of this table has changed from [`before::Row`].
#[derive(Clone, Debug, PartialEq, crate::Record)]
#[record(table = "rows", dropped(places.town))]
struct Row {
    #[record(key, was = "number")]
    id: u64,
    status: Status,
    wide: i64,
    maybe: Option<u64>,
    list: Vec<u32>,
    bytes: Vec<u16>,
    places: Vec<Place>,
    pair: (f64, Option<bool>),
}

mod before {
    #[derive(Clone, Copy, Debug, PartialEq, crate::ColumnValue)]
    pub enum Status {
        Open,
        Old,
    }

    #[derive(Clone, Debug, PartialEq, crate::ColumnValue)]
    pub struct Place {
        pub street: String,
        pub number: u16,
        pub town: String,
    }

    #[derive(Clone, Debug, PartialEq, crate::Record)]
    #[record(table = "rows")]
    pub struct Row {
        #[record(key)]
        pub number: u32,
        pub wide: u32,
        pub maybe: u16,
        pub status: Status,
        pub list: Vec<u16>,
        pub bytes: Vec<u8>,
        pub places: Vec<Place>,
        pub pair: (f32, bool),
    }
}

fn old_row() -> before::Row {
    before::Row {
        number: 3,
        wide: u32::MAX,
        maybe: 300,
        status: before::Status::Old,
        list: vec![1, 500],
        bytes: vec![0, 255],
        places: vec![before::Place { street: "Rue".into(), number: 9, town: "Ys".into() }],
        pair: (0.5, true),
    }
}

fn new_row() -> Row {
    Row {
        id: 3,
        status: Status::Old,
        wide: u32::MAX.into(),
        maybe: Some(300),
        list: vec![1, 500],
        bytes: vec![0, 255],
        places: vec![Place { floor: 7, number: 9, road: Some("Rue".into()) }],
        pair: (0.5, Some(true)),
    }
}

#[test]
fn columns_are_renamed_reordered_and_widened() {
    let (stored, current) = (description_of::<before::Row>(), description_of::<Row>());
    assert!(matched(&stored, &current).unwrap().is_simple());
    let adaptation = adaptation(&stored, &current);
    assert!(!adaptation.keeps_keys());
    let bytes = row_of(&old_row());
    let row = adaptation.row(&bytes).unwrap();
    assert_eq!(Row::decode_row(&mut &row[..]), Ok(new_row()));
    assert_eq!(adaptation.key(&[3, 0, 0, 0]).unwrap(), &[3, 0, 0, 0, 0, 0, 0, 0][..]);
    assert!(adaptation.key(&[3, 0, 0]).is_err());
}

/// The older program narrows what the newer one has widened. Only some rows fit.
#[test]
fn narrower_types_take_the_rows_that_fit() {
    let stored = description_of::<Row>();
    let current = stored_with(&description_of::<before::Row>(), &["places.floor"]);
    let message = refusal(&stored, &current);
    assert!(message.contains("field `places.town` is new, and has no default"), "{message}");
    let mut current = current;
    let TypeDescription::List(place) = &mut current.columns[6].type_of else { panic!() };
    let TypeDescription::Struct { fields, .. } = &mut **place else { panic!() };
    fields[2].default = Some(vec![0]);
    let opened = matched(&stored, &current).unwrap();
    assert!(!opened.is_simple() && opened.kept.is_empty());
    let convert = |row: &Row| {
        let mut output = Vec::new();
        let computed =
            |_, _: &StoredRow<'_>, _: &mut Vec<u8>| unreachable!("no column is computed");
        let converted = opened.step.as_ref().unwrap().row(&row_of(row), computed, &mut output);
        converted.map(|()| before::Row::decode_row(&mut &output[..]).unwrap()).map_err(|fault| {
            match fault {
                RowFault::Misfit(violation) => violation.message,
                RowFault::Undecodable(error) => panic!("{error}"),
            }
        })
    };
    let mut expected = old_row();
    expected.places[0].town = String::new();
    assert_eq!(convert(&new_row()), Ok(expected));
    for (row, column, what) in [
        (Row { id: 1 << 32, ..new_row() }, "id", "the unsigned number 4294967296 is no u32"),
        (
            Row { status: Status::Frozen, ..new_row() },
            "status",
            "the variant `Frozen` is not known",
        ),
        (Row { wide: -1, ..new_row() }, "wide", "-1 is negative"),
        (Row { maybe: None, ..new_row() }, "maybe", "it is `None`"),
        (Row { bytes: vec![256], ..new_row() }, "bytes", "the unsigned number 256 is no u8"),
        (Row { pair: (0.1, Some(true)), ..new_row() }, "pair", "0.1 is no f32"),
    ] {
        assert_eq!(
            convert(&row),
            Err(format!("the value of column `{column}` does not fit: {what}"))
        );
    }
}

#[test]
fn renamed_column_whose_name_is_used_again_is_not_confused() {
    let stored = other_accounts! { #[record(key)] number: u32, a: u8, };
    let current = other_accounts! {
        #[record(key)] number: u32,
        #[record(default = 9)] a: u8,
        #[record(was = "a")] b: u8,
    };
    let first = adaptation(&stored, &current);
    assert_eq!(first.row(&[1, 0, 0, 0, 5]).unwrap(), &[1, 0, 0, 0, 9, 5][..]);
    assert!(adaptation(&current, &current).is_identity());
    // Through the description in between, a later program finds the column, too.
    let last = other_accounts! { #[record(key)] number: u32, #[record(was = "b")] c: u8, };
    let last = stored_with(&last, &["a"]);
    let opened = matched(&current, &last).unwrap();
    let both = Adaptation::new(&[&stored, &current], opened.step.as_ref()).unwrap();
    assert_eq!(both.row(&[1, 0, 0, 0, 5]).unwrap(), &[1, 0, 0, 0, 5][..]);
    // Fault: the first program kept the newer column `a` beside its own. The directory then had two
    // columns of this name, and no program could read it any more.
    let message = refusal(&current, &stored);
    assert!(message.contains("renamed the program's column `a`"), "{message}");
}

#[test]
fn stored_row_is_read_by_name() {
    let (table, bytes) = (description_of::<before::Row>(), row_of(&old_row()));
    let row = StoredRow::new(&table, &bytes);
    assert_eq!(row.get::<u32>("wide"), Ok(u32::MAX));
    assert_eq!(row.get::<Option<i64>>("wide"), Ok(Some(u32::MAX.into())));
    assert_eq!(row.get::<Vec<before::Place>>("places"), Ok(old_row().places));
    let message = |result: Result<u8, crate::schema::Violation>| result.unwrap_err().message;
    assert_eq!(message(row.get("depth")), "there is no stored column `depth`");
    assert_eq!(
        message(row.get("maybe")),
        "the value of column `maybe` does not fit: the unsigned number 300 is no u8"
    );
    assert_eq!(message(row.get("pair")), "column `pair` is stored as (f32, bool), and is no u8");
    assert_eq!(row.values().unwrap().len(), 8);
}

#[test]
fn a_faulty_row_is_not_adapted() {
    let stored = description_of::<Account>();
    let mut current = stored.clone();
    current.columns.swap(2, 3);
    current.indexes.clear();
    let current = stored_with(&current, &["owner"]);
    let adaptation = adaptation(&stored, &current);
    let mut row = row_of(&account());
    let refusal = |row: &[u8]| adaptation.row(row).unwrap_err().to_string();
    assert_eq!(refusal(&row[..10]), "byte 10 (column `balance`): the bytes end within i64");
    row.push(1);
    assert_eq!(refusal(&row), "byte 27: the row ends here, but 1 bytes follow");
}

// ---- changes ----------------------------------------------------------------------------------

/// Returns the change that turns `before` into `row`.
fn change_of<R: Record>(before: &R, row: &R) -> Vec<u8> {
    let mut change = Vec::new();
    R::encode_key(&row.key(), &mut change);
    row.encode_changes(before, &mut change);
    change
}

#[test]
fn change_bytes_match_the_diagram() {
    let mut changed = account();
    assert_eq!(change_of(&account(), &changed), [2, 7, 0, 0, 0, 0], "the key, and no column");
    changed.owner = "Zoe".to_owned();
    changed.marks = vec![];
    let change = change_of(&account(), &changed);
    assert_eq!(change, [2, 7, 0, 0, 0, 0b10_0100, 3, b'Z', b'o', b'e', 0]);
}

#[test]
fn a_faulty_change_is_refused() {
    let table = description_of::<Account>();
    let refusal = |change: &[u8]| table.read_change(change).unwrap_err().to_string();
    assert_eq!(refusal(&[2, 7, 0]), "byte 3 (column `number`): the bytes end within u32");
    assert_eq!(refusal(&[2, 7, 0, 0, 0]), "byte 5: the bytes end within a change");
    assert_eq!(
        refusal(&[2, 7, 0, 0, 0, 0x40]),
        "byte 5: a change names a column that does not exist"
    );
    let of_key = refusal(&[2, 7, 0, 0, 0, 1, 7, 0, 0, 0]);
    assert_eq!(of_key, "byte 5: a change names a column of the primary key");
    let cut = refusal(&[2, 7, 0, 0, 0, 0b1000, 1]);
    assert_eq!(cut, "byte 7 (column `balance`): the bytes end within i64");
    assert_eq!(refusal(&[2, 7, 0, 0, 0, 0, 9]), "byte 6: a change ends here, but 1 bytes follow");
}

fn accounts() -> impl Strategy<Value = Account> {
    let address = (any::<String>(), any::<u16>());
    let address = address.prop_map(|(street, number)| Address { street, number });
    // Use few values, so that columns often stay as they are.
    let owner = prop::sample::select(vec!["", "Ada", "Zoë"]);
    let marks = prop::collection::vec(0..2_u16, 0..2);
    (owner, 0..2_i64, prop::option::of(address), marks).prop_map(
        |(owner, balance, address, marks)| {
            let owner = owner.to_owned();
            Account { owner, balance, address, marks, ..account() }
        },
    )
}

proptest! {
    /// A change turns the old row into the new row from which it was made, even if the columns have
    /// other positions now.
    #[test]
    fn a_change_turns_one_row_into_another((before, row) in (accounts(), accounts())) {
        let table = description_of::<Account>();
        let change = change_of(&before, &row);
        let (key, mut columns) = table.read_change(&change).unwrap();
        prop_assert_eq!(Account::decode_key(&mut &*key), Ok(row.key()));
        let mut changed = Vec::new();
        columns.apply(&table, &row_of(&before), &mut changed).unwrap();
        prop_assert_eq!(&changed, &row_of(&row));

        let mut current = table.clone();
        current.columns.rotate_left(2);
        current.columns.insert(1, ColumnDescription {
            default: Some(vec![9]),
            ..ColumnDescription::new("new".to_owned(), TypeDescription::U8)
        });
        current.key = vec![6, 5];
        // The balance, and the marks, get a wider type.
        current.columns[2].type_of = TypeDescription::I128;
        current.columns[4].type_of = TypeDescription::List(Box::new(TypeDescription::U32));
        current.columns[4].default = None;
        current.indexes.clear();
        let current = stored_with(&current, &["owner"]);
        let adaptation = adaptation(&table, &current);
        adaptation.change(&mut columns).unwrap();
        let (before, row) = (row_of(&before), row_of(&row));
        let (adapted_before, adapted) = (adaptation.row(&before).unwrap(), adaptation.row(&row).unwrap());
        let mut changed = Vec::new();
        columns.apply(&current, &adapted_before, &mut changed).unwrap();
        prop_assert_eq!(changed, &adapted[..]);
    }
}

// ---- differences ------------------------------------------------------------------------------

/// An operation that was logged for a narrower column is applied to the wider one.
#[test]
fn operation_is_applied_to_a_column_of_another_type() {
    let stored = other_accounts! { #[record(key)] number: u32, balance: u16, gone: u8, };
    let current = other_accounts! { #[record(key)] number: u32, balance: Option<u64>, };
    let adaptation = adaptation(&stored, &stored_with(&current, &["gone"]));
    let apply = |operation: &[u8], row: &[u8]| {
        let (_, mut change) = stored.read_operation(operation).unwrap();
        adaptation.change(&mut change).unwrap();
        let mut changed = Vec::new();
        change.apply(&current, row, &mut changed).map(|()| changed)
    };
    let row = |balance: u16| {
        let stored = [&[1, 0, 0, 0][..], &balance.to_le_bytes(), &[9]].concat();
        adaptation.row(&stored).unwrap().into_owned()
    };
    let add = crate::row::operation::OperationKind::Add as u8;
    assert_eq!(apply(&[1, 0, 0, 0, 1, add, 5, 0], &row(300)), Ok(row(305)));
    assert_eq!(apply(&[1, 0, 0, 0, 2, add, 5], &row(300)), Ok(row(300)), "the column is dropped");
    assert!(apply(&[1, 0, 0, 0, 1, add, 5, 0], &row(u16::MAX)).is_err());
}

#[test]
fn everything_that_stands_in_the_way_is_listed() {
    let stored = other_accounts! {
        #[record(key)] number: u32,
        balance: i64,
        owner: String,
        note: Option<String>,
    };
    let current = other_accounts! {
        number: u32,
        balance: u64,
        #[record(key)] owner: String,
        limit: u16,
    };
    assert_eq!(
        refusal(&stored, &current),
        "table `accounts`: column `balance` is stored as i64, and is u64 now: give the new column \
         another name, and compute it from the old one with `#[record(computed = …)]`; \
         column `limit` is new, and has no default for the rows that are stored: \
         give it one with `#[record(default = …)]`, or compute it from the row with \
         `#[record(computed = …)]`; \
         the primary key is stored as (`number`), and is (`owner`) now: make the new rows from the \
         stored ones in a function, and name it with `#[record(migrate = …)]`; \
         column `note` is stored, and the program does not have it. If it is not needed any more, \
         say so: `#[record(dropped(note))]`. If the program is older than the directory: rows that \
         it inserts need a value for the column, and the newer program has declared no default for it"
    );
    let opened = matched(&stored, &stored_with(&current, &["note"])).unwrap_err();
    assert!(!opened.contains("`note`"), "{opened}");
}

#[test]
fn the_order_of_key_columns_matters() {
    let stored = description_of::<Account>();
    let mut current = stored.clone();
    current.key.reverse();
    assert!(refusal(&stored, &current).contains(
        "the primary key is stored as (`branch`, `number`), and is (`number`, `branch`) now"
    ));
    current.is_migrated = true;
    assert!(matched(&stored, &current).unwrap().step.is_none(), "the program makes the rows");
    current = stored.clone();
    current.columns.swap(0, 1);
    current.key = vec![0, 1];
    assert!(matched(&stored, &current).is_ok(), "it is the same key in other places");
}

#[test]
fn whole_schemas_are_compared() {
    let table =
        |name: &str| TableDescription { name: name.to_owned(), ..description_of::<Account>() };
    let mut renamed = table("c2");
    renamed.was = vec!["c".to_owned()];
    let stored = [table("a"), table("b"), table("c"), table("d")];
    let current = [table("b"), table("new"), table("a"), renamed.clone()];
    let matches = compare(&stored, &current, &["d".to_owned(), "e".to_owned()]).unwrap();
    let position = |matched: &TableMatch| match matched {
        TableMatch::Opened(opened) => Some(opened.current),
        TableMatch::Kept | TableMatch::Dropped => None,
    };
    let positions: Vec<_> = matches.iter().map(position).collect();
    assert_eq!(positions, [Some(2), Some(0), Some(3), None]);
    assert!(matches!(matches[3], TableMatch::Dropped));
    let back = compare(&[renamed], &[table("c")], &[]).unwrap();
    assert_eq!(position(&back[0]), Some(0), "an older program finds a table that was renamed");
    let kept = compare(&[table("d")], &current, &[]).unwrap();
    assert!(matches!(kept[0], TableMatch::Kept));
    let message = compare(&[table("b")], &current, &["b".to_owned()]).unwrap_err().to_string();
    assert_eq!(message, "table `b`: the program opens it, and drops it: leave out one of the two");
}
