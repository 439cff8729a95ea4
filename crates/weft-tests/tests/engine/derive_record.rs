//! Tests of the code that `#[derive(Record)]` generates for a struct: description, keys, checks and shorthands.
//! The tests of what it refuses are beside the macro, in `weft-macros`.

use std::panic::catch_unwind;

use arrayvec::ArrayString;
use weft::column::ColumnType;
use weft::encoding::{Key, KeyEncoder};
use weft::schema::{Column, Index, IndexDescription, Record, Storage, Violation};

/// Uses every option in its long form, with and without quotation marks around names. The order of the key's
/// columns differs from the order of the fields.
#[derive(Clone, Copy, weft::Record)]
#[record(table = "customers", storage = "hash")]
#[record(key(w_id, d_id, id))]
#[record(index(name = by_last_name, columns(w_id, d_id, last, first)))]
#[record(index(name = by_phone, columns(phone), unique))]
#[record(index(name = "by_district", columns(d_id, w_id)))]
#[record(check = "Customer::check_balance", check = check_discount)]
pub struct Customer {
    id: u32,
    d_id: u8,
    w_id: u16,
    first: ArrayString<16>,
    last: ArrayString<16>,
    phone: ArrayString<15>,
    balance_cents: i64,
    discount: f64,
}

impl Customer {
    fn check_balance(&self) -> Result<(), Violation> {
        if self.balance_cents < 0 {
            return Err(format!("customer {} owes {} cents", self.id, -self.balance_cents).into());
        }
        Ok(())
    }
}

fn check_discount(customer: &Customer) -> Result<(), Violation> {
    if !(0.0..1.0).contains(&customer.discount) {
        return Err("a discount is at least 0 and less than 1".into());
    }
    Ok(())
}

fn customer() -> Customer {
    Customer {
        id: 3,
        d_id: 2,
        w_id: 1,
        first: ArrayString::from("Ada").unwrap(),
        last: ArrayString::from("BAR").unwrap(),
        phone: ArrayString::from("555").unwrap(),
        balance_cents: 0,
        discount: 0.5,
    }
}

/// Uses the defaults, and the options on fields. One field's name is a keyword.
#[derive(Clone, weft::Record)]
struct OrderLine {
    #[record(key)]
    order: u32,
    #[record(key)]
    number: u8,
    #[record(index)]
    item: u32,
    #[record(unique)]
    r#type: Option<String>,
}

fn order_line() -> OrderLine {
    OrderLine { order: 7, number: 1, item: 9, r#type: None }
}

/// Has a single key column, as most tables do.
#[derive(Clone, weft::Record)]
struct Counter {
    #[record(key)]
    name: String,
    value: i64,
}

fn bytes_of(key: &impl Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

fn index_entry<R: Record, K: Key>(row: &R, index: Index<R, K>) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode_index_key(index.position(), &mut bytes);
    bytes
}

#[test]
fn a_row_describes_its_table_and_columns() {
    assert_eq!(Customer::TABLE, "customers");
    assert_eq!(Customer::STORAGE, Storage::Hash);
    assert_eq!(Customer::COLUMNS.len(), 8);
    let Column { name, type_name, type_of, in_key, default, .. } = Customer::COLUMNS[0];
    assert_eq!((name, type_name), ("id", "u32"));
    assert!(matches!(type_of, Some(ColumnType::U32)));
    assert!(in_key && default.is_none());
    let Column { name, type_name, type_of, in_key, .. } = Customer::COLUMNS[3];
    assert_eq!((name, type_name), ("first", "ArrayString<16>"));
    assert!(matches!(type_of, Some(ColumnType::String)) && !in_key);
    assert_eq!(Customer::KEY_COLUMNS, [2, 1, 0]);
    const { assert!(!Customer::VOLATILE) };
}

#[test]
fn omitted_options_have_defaults() {
    assert_eq!(OrderLine::TABLE, "order_line");
    assert_eq!(OrderLine::STORAGE, Storage::Ordered);
    let Column { name, type_name, in_key, .. } = OrderLine::COLUMNS[3];
    assert_eq!((name, type_name, in_key), ("type", "Option<String>", false));
    assert_eq!(order_line().check(), Ok(()));
    assert_eq!(Counter::INDEXES, []);
}

#[test]
fn indexes_are_described_in_order_and_named_by_constants() {
    let by_district = IndexDescription {
        name: "by_district",
        columns: &["d_id", "w_id"],
        unique: false,
        // The two columns, and `id`, the only column of the primary key that is not among them.
        width_bytes: Some(1 + 2 + 4),
    };
    let names: Vec<_> = Customer::INDEXES.iter().map(|index| index.name).collect();
    assert_eq!(names, ["by_last_name", "by_phone", "by_district"]);
    assert_eq!(*Customer::BY_DISTRICT.description(), by_district);
    assert_eq!(Customer::BY_DISTRICT.position(), 2);
    assert_eq!(Customer::BY_LAST_NAME.description().width_bytes, None);
    assert_eq!(Customer::BY_PHONE.description().width_bytes, Some(16));
    assert!(Customer::BY_PHONE.description().unique);
}

#[test]
fn index_constants_have_the_types_of_their_columns() {
    type Text = ArrayString<16>;
    let _: Index<Customer, (u16, u8, Text, Text)> = Customer::BY_LAST_NAME;
    let _: Index<Customer, ArrayString<15>> = Customer::BY_PHONE;
    let _: Index<OrderLine, Option<String>> = OrderLine::TYPE;
}

#[test]
fn option_on_a_field_names_its_index_after_the_column() {
    let item = IndexDescription {
        name: "item",
        columns: &["item"],
        unique: false,
        width_bytes: Some(4 + 4 + 1),
    };
    let type_of =
        IndexDescription { name: "type", columns: &["type"], unique: true, width_bytes: None };
    assert_eq!(OrderLine::INDEXES, [item, type_of]);
    assert_eq!(*OrderLine::ITEM.description(), item);
    assert_eq!(*OrderLine::TYPE.description(), type_of);
}

#[test]
fn a_key_has_its_columns_in_the_order_declared() {
    let (listed, marked) = (customer(), order_line());
    assert_eq!(listed.key(), (1_u16, 2_u8, 3_u32));
    assert_eq!(marked.key(), (7_u32, 1_u8));
    let counter = Counter { name: "hits".into(), value: 1 };
    assert_eq!(counter.key(), "hits".to_string());
    assert_eq!(counter.value, 1);
}

#[test]
fn keys_are_equal_if_every_column_is() {
    let row = customer();
    assert!(row.key_equals(&(1, 2, 3)));
    assert!(!row.key_equals(&(0, 2, 3)));
    assert!(!row.key_equals(&(1, 0, 3)));
    assert!(!row.key_equals(&(1, 2, 0)));
    let counter = Counter { name: "hits".into(), value: 1 };
    assert!(counter.key_equals(&"hits".to_string()));
    assert!(!counter.key_equals(&"misses".to_string()));
}

#[test]
fn index_entry_ends_with_the_rest_of_the_primary_key() {
    let row = customer();
    let columns = (row.w_id, row.d_id, row.last, row.first);
    assert_eq!(index_entry(&row, Customer::BY_LAST_NAME), bytes_of(&(columns, row.id)));
    assert_eq!(index_entry(&row, Customer::BY_DISTRICT), [2, 0, 1, 0, 0, 0, 3]);
    let line = order_line();
    assert_eq!(index_entry(&line, OrderLine::ITEM), bytes_of(&(9_u32, 7_u32, 1_u8)));
}

#[test]
fn unique_index_entry_has_only_its_columns() {
    let row = customer();
    assert_eq!(index_entry(&row, Customer::BY_PHONE), bytes_of(&row.phone));
    assert_eq!(index_entry(&order_line(), OrderLine::TYPE), bytes_of(&None::<String>));
}

#[test]
fn index_key_differs_only_with_its_columns() {
    let differs = |new: &Customer| -> Vec<bool> {
        (0..3).map(|index| customer().index_key_differs(new, index)).collect()
    };
    let richer = Customer { balance_cents: 1, ..customer() };
    assert_eq!(differs(&richer), [false, false, false]);
    let renamed = Customer { first: ArrayString::from("Eve").unwrap(), ..customer() };
    assert_eq!(differs(&renamed), [true, false, false]);
    let married = Customer { last: ArrayString::from("FOO").unwrap(), ..customer() };
    assert_eq!(differs(&married), [true, false, false]);
    let moved = Customer { phone: ArrayString::from("556").unwrap(), ..customer() };
    assert_eq!(differs(&moved), [false, true, false]);
}

#[test]
fn unknown_index_panics() {
    let differs = catch_unwind(|| customer().index_key_differs(&customer(), 3)).unwrap_err();
    let message = differs.downcast_ref::<String>().expect("a formatted message");
    assert_eq!(message, "table `customers` has no secondary index 3");
    let encode = || Counter { name: "hits".into(), value: 1 }.encode_index_key(0, &mut Vec::new());
    assert!(catch_unwind(encode).is_err());
}

#[test]
fn first_failing_check_is_reported() {
    assert_eq!(customer().check(), Ok(()));
    let favoured = Customer { discount: 1.0, ..customer() };
    let message = favoured.check().unwrap_err().message;
    assert_eq!(message, "a discount is at least 0 and less than 1");
    let indebted = Customer { balance_cents: -5, ..favoured };
    assert_eq!(indebted.check().unwrap_err().message, "customer 3 owes 5 cents");
}

/// A caller can pass an encoder of their own, and it receives each column of the index key.
#[test]
fn custom_encoders_work() {
    #[derive(Default)]
    struct Counting {
        bytes: usize,
    }
    impl KeyEncoder for Counting {
        fn push(&mut self, _value: u64, width_bytes: u32) {
            self.bytes += width_bytes as usize;
        }
        fn push_wide(&mut self, _value: u128) {
            self.bytes += 16;
        }
        fn push_slice(&mut self, bytes: &[u8]) {
            self.bytes += bytes.len();
        }
    }
    let mut encoder = Counting::default();
    customer().encode_index_key(Customer::BY_PHONE.position(), &mut encoder);
    assert_eq!(Some(encoder.bytes), Customer::BY_PHONE.description().width_bytes);
}
