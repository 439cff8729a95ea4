//! Derive macros of the Weft database. Use them through the crate `weft`, which re-exports them.
//!
//! In reading order: the grammar of the attributes (`attributes`), the row type that they describe
//! once names are resolved and rules checked (`row`), and the code that is written for it
//! (`generate`).

mod attributes;
mod generate;
mod row;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a row type: implements `weft::schema::Record` for it.
///
/// ```
/// use arrayvec::ArrayString;
/// use weft::Record;
/// use weft::schema::{Storage, Violation};
///
/// #[derive(Clone, Record)]
/// #[record(table = "customer", storage = "hash")]
/// #[record(key(w_id, d_id, id))]
/// #[record(index(name = by_last_name, columns(w_id, d_id, last, first)))]
/// #[record(check = Customer::check_credit)]
/// pub struct Customer {
///     pub w_id: u16,
///     pub d_id: u8,
///     pub id: u32,
///     pub last: ArrayString<16>,
///     pub first: ArrayString<16>,
///     #[record(unique)]
///     pub phone: ArrayString<15>,
///     pub balance_cents: i64,
///     pub credit_cents: i64,
/// }
///
/// impl Customer {
///     fn check_credit(&self) -> Result<(), Violation> {
///         if self.balance_cents < -self.credit_cents {
///             return Err(format!("customer {} is over their credit limit", self.id).into());
///         }
///         Ok(())
///     }
/// }
///
/// let customer = Customer {
///     w_id: 1,
///     d_id: 2,
///     id: 3,
///     last: ArrayString::from("BARBARBAR").unwrap(),
///     first: ArrayString::from("Ada").unwrap(),
///     phone: ArrayString::from("0123456789").unwrap(),
///     balance_cents: -1_00,
///     credit_cents: 0,
/// };
/// assert_eq!(Customer::TABLE, "customer");
/// assert_eq!(Customer::STORAGE, Storage::Hash);
/// assert_eq!(customer.key(), (1, 2, 3));
/// assert_eq!(customer.check().unwrap_err().message, "customer 3 is over their credit limit");
///
/// // One constant per index names it, with the types of its columns.
/// assert_eq!(Customer::BY_LAST_NAME.description().columns, ["w_id", "d_id", "last", "first"]);
/// assert!(Customer::PHONE.description().unique);
/// ```
///
/// # On the struct
///
/// Options can share an attribute, or have one each. The name of an index and the path of a check
/// may stand within quotation marks, too.
///
/// | option | meaning |
/// | --- | --- |
/// | `key(a, b)` | the primary key: these columns, in this order |
/// | `table = "name"` | the table's name; if absent, the struct's name in `snake_case` |
/// | `storage = "ordered"` | keeps the rows in a B+-tree, for point access and range scans; this is the default |
/// | `storage = "hash"` | keeps the rows in a hash table, for point access only |
/// | `index(name = by_a, columns(a, b))` | a secondary index, ordered by these columns and then by the primary key; may be repeated |
/// | `index(name = by_a, columns(a, b), unique)` | the same, but no two rows may share the same values of these columns |
/// | `check = path` | a `fn(&Self) -> Result<(), Violation>` that every row must pass before it is written; may be repeated, and they run in the order written |
///
/// # On a field
///
/// | option | meaning |
/// | --- | --- |
/// | `key` | this column belongs to the primary key; if several do, they are in the order of the fields |
/// | `index` | a secondary index of this column, which has the column's name |
/// | `unique` | the same, but no two rows may share this column's value |
///
/// # What is generated
///
/// - The primary key's type, `Record::Key`: the column's type if it is one column, otherwise a
///   tuple of the columns' types.
/// - For each index a constant on the struct, as visible as the struct is, named as the index in
///   capitals: `Customer::BY_LAST_NAME` is an `Index<Customer, (u16, u8, ArrayString<16>,
///   ArrayString<16>)>`, and `Customer::PHONE` an `Index<Customer, ArrayString<15>>`.
///   The indexes declared on the struct come first, then those on fields.
///
/// # What is refused
///
/// Generic structs, enums, and structs without named fields. The columns of keys and indexes must
/// implement `weft::encoding::Key`, which floating-point numbers do not. For a unique index `None`
/// is a value like any other: only one row can have it.
#[proc_macro_derive(Record, attributes(record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::Row::from_input(&input)
        .map(|row| generate::record(&row))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
