//! Macros of the Weft database. Use them through the crate `weft`, which re-exports them.
//!
//! In reading order: the grammar of the attributes (`attributes`), the row type that they describe once names
//! are resolved and rules are checked (`row`), and the generated code (`generate`). `column_value` is the
//! derive macro for column types, and `procedure` the attribute for procedures.

mod attributes;
mod column_value;
mod generate;
mod procedure;
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
/// Several options can share an attribute, or each can have its own. The name of an index and the path of a
/// check can also be written in quotation marks.
///
/// | option | meaning |
/// | --- | --- |
/// | `key(a, b)` | the primary key: these columns, in this order |
/// | `table = "name"` | the table's name; if absent, the struct's name in `snake_case` |
/// | `storage = "ordered"` | keeps the rows in a B+-tree, for point access and range scans; this is the default |
/// | `storage = "hash"` | keeps the rows in a hash table, for point access only |
/// | `index(name = by_a, columns(a, b))` | a secondary index, ordered by these columns and then by the primary key; may be repeated |
/// | `index(name = by_a, columns(a, b), unique)` | the same, but no two rows may share the same values of these columns |
/// | `volatile` | the table is never logged: it is empty whenever the database is opened; its columns can be of any type |
/// | `was = "name"` | a name that the table had in an earlier version of the program; may be repeated |
/// | `dropped(a, b.c, by_d, "Row::check")` | columns, fields of columns, unique indexes and checks that earlier versions of the program had, and that are not needed any more |
/// | `migrate = path` | a `fn(&StoredRow) -> Result<Option<Self>, Violation>` that makes a row of a stored one, if the primary key or the types of the columns have changed so that Weft cannot |
/// | `check = path` | a `fn(&Self) -> Result<(), Violation>` that every row must pass before it is written, and every stored row when the database is opened; may be repeated, and they run in the order written |
/// | `check(path, columns(a, b))` | the same, for a `fn(&A, &B) -> Result<(), Violation>` that gets these columns and nothing else of the row; other columns can still be split |
///
/// # On a field
///
/// | option | meaning |
/// | --- | --- |
/// | `key` | this column belongs to the primary key; if several do, they are in the order of the fields |
/// | `index` | a secondary index of this column, which has the column's name |
/// | `unique` | the same, but no two rows may share this column's value |
/// | `default = value` | an expression: what this column is in rows that were stored before it was added to the struct |
/// | `computed = path` | a `fn(&StoredRow) -> Result<Type, Violation>` that computes this column for such rows |
/// | `was = "name"` | a name that the column had in an earlier version of the program; may be repeated |
/// | `min = 0`, `max = 9` | the least and the greatest value of a column of integers, which every row keeps as it keeps a check; operations that would leave them fail with `Failure::NotEnough` |
///
/// # How a schema changes
///
/// A directory knows the tables of the program that has written it. A program with other row types opens it as
/// well. `docs/row-format.md` has every case. In short:
///
/// - Columns may be added with a `default` or `computed`, renamed with `was`, put into another order, and get a
///   wider type: a larger integer, `f64` for `f32`, an enum with more variants, `Option<T>` for `T`. The same holds
///   for the fields of structs that are columns.
/// - What the program does not have is kept: an older program can open the directory of a newer one, and write
///   to it. Name what is not needed any more in `dropped(…)`, and drop whole tables with `Builder::drop_table`.
/// - Checks, bounds and unique indexes may be added if all stored rows pass. Otherwise opening fails, and lists
///   them. Bounds may become tighter in the same way. A bound that is given up is named in `dropped("stock >= 0")`.
///
/// ```
/// use weft::Record;
/// use weft::description::StoredRow;
/// use weft::schema::Violation;
///
/// // Earlier: struct Client { id: u32, first: String, last: String, fax: String, visits: u32 }
/// #[derive(Clone, Record)]
/// #[record(was = "client", dropped(first, last, fax))]
/// pub struct Customer {
///     #[record(key)]
///     pub id: u32,
///     #[record(computed = Customer::full_name)]
///     pub name: String,
///     #[record(was = "visits")]
///     pub visit_count: u64,
///     #[record(default = None)]
///     pub email: Option<String>,
/// }
///
/// impl Customer {
///     fn full_name(row: &StoredRow<'_>) -> Result<String, Violation> {
///         Ok(format!("{} {}", row.get::<String>("first")?, row.get::<String>("last")?))
///     }
/// }
/// ```
///
/// # Generated code
///
/// - The primary key's type, `Record::Key`: the column's type if it is one column, otherwise a tuple of the
///   columns' types.
/// - For each index a constant on the struct, with the struct's visibility. Its name is the index's name in
///   capitals: `Customer::BY_LAST_NAME` is an `Index<Customer, (u16, u8, ArrayString<16>, ArrayString<16>)>`,
///   and `Customer::PHONE` an `Index<Customer, ArrayString<15>>`. The indexes declared on the struct come
///   first, then those on fields.
///
/// # Restrictions
///
/// Generic structs, enums, and structs without named fields are refused. Columns must implement
/// `weft::ColumnValue`, so that they can be stored, unless the table is `volatile`; your own types can derive
/// it. The columns of keys and indexes must implement `weft::encoding::Key`, which floating-point numbers do
/// not. For a unique index `None` is a value like any other: only one row can have it.
#[proc_macro_derive(Record, attributes(record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::Row::from_input(&input)
        .map(|row| generate::record(&row))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a struct or an enum a column type: implements `weft::ColumnValue` for it.
///
/// ```
/// use weft::{ColumnValue, Record};
///
/// #[derive(Clone, Copy, Debug, PartialEq, ColumnValue)]
/// pub enum Condition { New, Used, Broken }
///
/// #[derive(Clone, Debug, PartialEq, ColumnValue)]
/// pub struct Place { latitude: f64, longitude: f64 }
///
/// #[derive(Clone, Debug, PartialEq, ColumnValue)]
/// pub struct Distance<T>(T);
///
/// #[derive(Clone, Record)]
/// pub struct Bicycle {
///     #[record(key)]
///     id: u32,
///     condition: Condition,
///     places: Vec<Place>,
///     ridden: Distance<u64>,
/// }
///
/// assert_eq!(Condition::TYPE.to_string(), "Condition { New, Used, Broken }");
/// assert_eq!(Place::TYPE.to_string(), "Place { latitude: f64, longitude: f64 }");
/// assert_eq!(Distance::<u64>::TYPE.to_string(), "Distance(u64)");
/// ```
///
/// A struct is stored as its fields in order, each of which must be a `ColumnValue`. An enum, whose variants
/// must have no fields, is stored as the number of the variant: 0 for the first one, whatever its discriminant
/// is. Fields and variants are matched by name with those that are stored. On a field,
/// `#[column(was = "name")]` gives a name that it had earlier, and `#[column(default = value)]` its value in rows
/// that were stored before it was there.
///
/// This does not make the type a key: for that implement `weft::encoding::Key`, too.
///
/// # Restrictions
///
/// Unions, enums without variants or with fields in a variant, and types with lifetimes are refused.
#[proc_macro_derive(ColumnValue, attributes(column))]
pub fn derive_column_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    column_value::column_value(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Turns a function into a procedure: keeps the function as it is, and adds a struct of its arguments that
/// implements `weft_procedures::Procedure`.
///
/// ```
/// use weft::protocol::{Dbx, Protocol};
/// use weft::{Error, Record, Table, Transaction};
/// use weft_procedures::{Procedure, procedure};
///
/// #[derive(Clone, Record)]
/// pub struct Counter { #[record(key)] id: u32, next: Option<u32>, value: i64 }
///
/// /// Adds a number to a counter, and to all counters that follow it.
/// #[procedure(AddAlong)]
/// pub fn add_along<P: Protocol>(
///     counters: &Table<Counter>,
///     tx: &Transaction<'_, P>,
///     first: u32,
///     number: i64,
/// ) -> Result<u32, Error> {
///     let (mut next, mut changed) = (Some(first), 0);
///     while let Some(id) = next {
///         next = tx
///             .update(counters, &id, |counter| {
///                 counter.value += number;
///                 counter.next
///             })?
///             .flatten();
///         changed += 1;
///     }
///     Ok(changed)
/// }
///
/// let shape = AddAlong::<Dbx>::shape();
/// assert_eq!(shape.name, "add_along");
/// // One step, in a loop, whose key depends on the iteration before.
/// let [step] = shape.steps else { panic!() };
/// let key = step.key_dependencies().next().unwrap();
/// assert_eq!((key.on, key.carried), (0, Some(0)));
/// assert_eq!(step.writes, Some(&["value"][..]));
/// ```
///
/// # The function
///
/// `#[procedure(Name)]` names the struct, which has the function's visibility. The transaction is the parameter
/// of type `&Transaction<'_, P>`. If it has another type with the same methods, such as a trait that
/// transactions and snapshots implement, name the parameter: `#[procedure(Name, transaction = view)]`.
///
/// The function returns a `Result<Output, Error>`. Parameters are references, or owned and `Clone`; results of
/// operations are `Clone`. Given the same arguments and the same results of its operations, the function must
/// do the same. So, as in a `transact`, it must not look at anything else that changes (clocks, random numbers,
/// `Cell`s).
///
/// # Restrictions
///
/// Everything that hides an operation, or hides on what an operation depends, is refused: passing on or storing
/// the transaction; operations in closures and macros; methods that are not operations (`commit`); tables that
/// are not reached from a parameter; closures of operations that change variables outside; operations in more
/// than three nested loops; `async`, `unsafe`, and `ref mut`. Functions without operations may be called
/// freely.
///
/// Dependencies are found by data-flow analysis, without types: see `flow` in the source. The analysis may find
/// more dependencies than there are, but never fewer.
/// more than there is, and never less.
#[proc_macro_attribute]
pub fn procedure(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let item: proc_macro2::TokenStream = item.into();
    procedure::procedure(attribute.into(), item.clone())
        .unwrap_or_else(|error| {
            // Keep the function as it is, so that this is the only error.
            let error = error.into_compile_error();
            quote::quote!(#item #error)
        })
        .into()
}
