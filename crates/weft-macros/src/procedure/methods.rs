//! What is known of methods: the operations of a transaction, and the methods of the standard library's types
//! that change nothing.

use proc_macro2::TokenStream;
use quote::quote;

/// An operation, as a method of a transaction.
#[derive(Debug)]
pub struct Method {
    pub name: &'static str,
    pub access: Access,
    /// Its arguments after the table.
    pub arguments: &'static [Argument],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
    Insert,
    Delete,
    Scan,
    /// The commutative operation of this name.
    Operation(&'static str),
    /// The commutative operation that is among the arguments.
    AnyOperation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A key, keys, or a range of them.
    Key,
    Value,
    Index,
    /// A column, or several.
    Column,
    /// A whole row, which contains its key, or several.
    Row,
    /// A closure that makes a row with the key that it gets.
    NewRow,
    /// A closure that changes a row, or columns of it.
    Change,
    /// A commutative operation.
    Operation,
}

use Argument::{Change, Column, Index, Key, NewRow, Operation, Row, Value};

macro_rules! method {
    ($name:ident, $access:expr, $($argument:ident),*) => {
        Method { name: stringify!($name), access: $access, arguments: &[$($argument),*] }
    };
}

/// The list of operations: those that `weft_procedures::At` has. This is the only such list.
const METHODS: &[Method] = &[
    method!(get, Access::Read, Key),
    method!(contains, Access::Read, Key),
    method!(get_columns, Access::Read, Key, Column),
    method!(get_many, Access::Read, Key),
    method!(get_by, Access::Scan, Index, Key),
    method!(last_by, Access::Scan, Index, Key),
    method!(len, Access::Scan,),
    method!(range, Access::Scan, Key),
    method!(prefix, Access::Scan, Key),
    method!(starts_with, Access::Scan, Key),
    method!(range_by, Access::Scan, Index, Key),
    method!(prefix_by, Access::Scan, Index, Key),
    method!(starts_with_by, Access::Scan, Index, Key),
    method!(insert, Access::Insert, Row),
    method!(insert_many, Access::Insert, Row),
    method!(insert_generated, Access::Insert, NewRow),
    method!(upsert, Access::ReadWrite, Row),
    method!(update, Access::ReadWrite, Key, Change),
    method!(update_columns, Access::ReadWrite, Key, Column, Change),
    method!(update_many, Access::ReadWrite, Key, Change),
    method!(delete, Access::Delete, Key),
    method!(delete_range, Access::Delete, Key),
    method!(apply, Access::AnyOperation, Key, Column, Operation),
    method!(add, Access::Operation("Add"), Key, Column, Value),
    method!(take, Access::Operation("Take"), Key, Column, Value),
    method!(give, Access::Operation("Add"), Key, Column, Value),
    method!(mul, Access::Operation("Mul"), Key, Column, Value),
    method!(max, Access::Operation("Max"), Key, Column, Value),
    method!(min, Access::Operation("Min"), Key, Column, Value),
    method!(or, Access::Operation("Or"), Key, Column, Value),
    method!(and, Access::Operation("And"), Key, Column, Value),
    method!(ordered_put, Access::Operation("OrderedPut"), Key, Column, Value, Value),
    method!(top_k_insert, Access::Operation("TopKInsert"), Key, Column, Value, Value),
    method!(union, Access::Operation("Union"), Key, Column, Value),
];

/// The operations that `apply` accepts, each with its kind.
const OPERATIONS: &[(&str, &str)] = &[
    ("Add", "Add"),
    ("Take", "Take"),
    ("Give", "Add"),
    ("Mul", "Mul"),
    ("Max", "Max"),
    ("Min", "Min"),
    ("Or", "Or"),
    ("And", "And"),
    ("OrderedPut", "OrderedPut"),
    ("TopKInsert", "TopKInsert"),
    ("Union", "Union"),
];

/// Hints, which are not operations of the transaction.
const HINTS: &[&str] = &["prefetch", "prefetch_for_update"];

/// The methods of a transaction that a procedure cannot have, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "savepoint",
        "a procedure has no savepoints, because its operations may be committed or run again one by one: return an \
         error, which rolls everything back, or use `Database::transact`",
    ),
    ("commit", "a procedure does not end its transaction: return `Ok`, and it commits"),
    (
        "rollback",
        "a procedure does not end its transaction: return an error, and everything is rolled back",
    ),
    (
        "run_due",
        "a procedure runs no hooks, because it cannot be seen what they do: call `run_due` in a transaction before \
         the procedure",
    ),
];

/// Returns why a procedure cannot have a method, if there is a particular reason.
pub fn why_refused(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(method, _)| *method == name).map(|(_, why)| *why)
}

/// Returns the operation of this name.
pub fn operation(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

pub fn is_hint(name: &str) -> bool {
    HINTS.contains(&name)
}

/// Returns the names of all operations and hints, for messages.
pub fn names() -> String {
    ["now"]
        .into_iter()
        .chain(METHODS.iter().map(|method| method.name))
        .chain(HINTS.iter().copied())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the kind of a commutative operation, by the name of its type.
pub fn operation_kind(name: &str) -> Option<&'static str> {
    OPERATIONS.iter().find(|(operation, _)| *operation == name).map(|(_, kind)| *kind)
}

impl Access {
    /// Returns the access as an expression. `kind` is the operation that `apply` was given.
    pub fn tokens(self, kind: Option<&str>) -> TokenStream {
        let plain = |name: &str| {
            let name = quote::format_ident!("{name}");
            quote!(::weft_procedures::Access::#name)
        };
        let operation = |name: &str| {
            let name = quote::format_ident!("{name}");
            quote!(::weft_procedures::Access::Operation(::weft::operation::OperationKind::#name))
        };
        match self {
            Access::Read => plain("Read"),
            Access::ReadWrite => plain("ReadWrite"),
            Access::Insert => plain("Insert"),
            Access::Delete => plain("Delete"),
            Access::Scan => plain("Scan"),
            Access::Operation(name) => operation(name),
            Access::AnyOperation => operation(kind.unwrap_or("Add")),
        }
    }
}

/// Methods that do not change the receiver, and return nothing through which it could be changed. All types of
/// the standard library (and of `arrayvec`) that have these methods declare them with `&self`.
const READING: &[&str] = &[
    "abs_diff",
    "as_bytes",
    "as_ref",
    "as_slice",
    "as_str",
    "capacity",
    "chars",
    "checked_add",
    "checked_sub",
    "clone",
    "cloned",
    "concat",
    "contains",
    "contains_key",
    "copied",
    "div_ceil",
    "ends_with",
    "eq",
    "first",
    "first_key_value",
    "get",
    "is_empty",
    "is_err",
    "is_none",
    "is_none_or",
    "is_ok",
    "is_some",
    "is_some_and",
    "iter",
    "join",
    "keys",
    "last",
    "last_key_value",
    "len",
    "remaining_capacity",
    "saturating_add",
    "saturating_sub",
    "split_first",
    "split_last",
    "starts_with",
    "to_owned",
    "to_string",
    "to_vec",
    "values",
    "windows",
    "wrapping_add",
    "wrapping_mul",
    "wrapping_sub",
];

/// Methods that may change the receiver, and return nothing through which it could be changed later.
const WRITING: &[&str] = &[
    "append",
    "clear",
    "dedup",
    "extend",
    "extend_from_slice",
    "fill",
    "insert",
    "next",
    "pop",
    "push",
    "push_back",
    "push_str",
    "remove",
    "resize",
    "retain",
    "reverse",
    "sort",
    "sort_by",
    "sort_by_key",
    "sort_unstable",
    "sort_unstable_by",
    "sort_unstable_by_key",
    "swap",
    "swap_remove",
    "truncate",
];

pub fn only_reads(name: &str) -> bool {
    READING.contains(&name)
}

pub fn returns_no_reference(name: &str) -> bool {
    READING.contains(&name) || WRITING.contains(&name)
}

/// Macros of the standard library and of Weft that change none of their arguments.
const READING_MACROS: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "column_of",
    "columns_of",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprintln",
    "format",
    "format_args",
    "matches",
    "panic",
    "println",
    "unreachable",
    "vec",
];

pub fn macro_only_reads(name: &str) -> bool {
    READING_MACROS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_one_key_or_a_row() {
        for method in METHODS.iter().filter(|method| !method.arguments.is_empty()) {
            let is_place = |argument: &&Argument| matches!(argument, Key | Row | NewRow);
            assert_eq!(method.arguments.iter().filter(is_place).count(), 1, "{}", method.name);
            assert!(!is_hint(method.name));
        }
    }
}
