//! Macros of the Weft database. Use them through the crate `weft`, which re-exports them.
//!
//! In reading order: the grammar of the attributes (`attributes`), the row type that they describe once names
//! are resolved and rules are checked (`row`), and the generated code (`generate`). `column_value` and `key`
//! are the derive macros for column types and keys, and `procedure` the attribute for procedures. What users read is in `docs/`.
//! `weft-guide` runs the examples in `docs/`, and `weft-tests` has what the macros refuse.

mod attributes;
mod column_value;
mod generate;
mod key;
mod procedure;
mod row;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

#[doc = include_str!("../docs/record.md")]
#[proc_macro_derive(Record, attributes(record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::Row::from_input(&input)
        .map(|row| generate::record(&row))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

#[doc = include_str!("../docs/column_value.md")]
#[proc_macro_derive(ColumnValue, attributes(column))]
pub fn derive_column_value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    column_value::column_value(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

#[doc = include_str!("../docs/key.md")]
#[proc_macro_derive(Key)]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    key::key(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

#[doc = include_str!("../docs/procedure.md")]
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
