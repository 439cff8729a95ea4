//! The code that `#[derive(Record)]` generates. All of its paths start at `::weft`.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Type};

use crate::attributes::{BoundOption, Storage};
use crate::row::{Column, Expiry, Index, Row, closed_up};

/// Generates the implementation of `Record`, and the constants that name the indexes.
pub(crate) fn record(row: &Row<'_>) -> TokenStream {
    let name = row.name;
    let table = &row.table;
    let storage = match row.storage {
        Storage::Ordered => quote!(Ordered),
        Storage::Hash => quote!(Hash),
    };
    let key_type = key_type(row, &row.key, row.key_span);
    let key_columns_are_keys = key_columns_are_keys(row);
    let key_columns_have_one_form = key_columns_have_one_form(row);
    let volatile = row.volatile;
    let key_columns = &row.key;
    let columns = (0..row.columns.len()).map(|position| column_description(row, position));
    let indexes = row.indexes.iter().map(|index| index_description(row, index));
    let key_methods = key_methods(row);
    let index_methods = index_methods(row);
    let stored_form = stored_form(row);
    let check_method = check_method(row);
    let evolution = evolution(row);
    let (key_number, generated) = generated(row);
    let expiry = expiry(row);
    let constants = index_constants(row);
    let ordered = matches!(row.storage, Storage::Ordered).then(|| {
        quote! {
            #[automatically_derived]
            impl ::weft::schema::OrderedRecord for #name {}
        }
    });
    quote! {
        #key_columns_are_keys
        #key_columns_have_one_form

        #[automatically_derived]
        impl ::weft::schema::Record for #name {
            type Key = #key_type;
            const TABLE: &'static str = #table;
            const STORAGE: ::weft::schema::Storage = ::weft::schema::Storage::#storage;
            const VOLATILE: bool = #volatile;
            const PLAIN: ::core::option::Option<::weft::schema::PlainRow<Self>> = {
                #[allow(unused_imports)]
                use ::weft::schema::NotPlain as _;
                ::weft::schema::PlainProbe::<Self>::PLAIN
            };
            const COLUMNS: &'static [::weft::schema::Column] = &[#(#columns),*];
            const KEY_COLUMNS: &'static [usize] = &[#(#key_columns),*];
            const INDEXES: &'static [::weft::schema::IndexDescription] = &[#(#indexes),*];
            #key_number
            #key_methods
            #index_methods
            #stored_form
            #check_method
            #evolution
            #expiry
        }

        #ordered
        #generated

        #constants
    }
}

/// Generates what a row type with a generated key has: the key's number, and the implementation of `GeneratedRecord`.
fn generated(row: &Row<'_>) -> (TokenStream, TokenStream) {
    if !row.is_generated {
        return (TokenStream::new(), TokenStream::new());
    }
    let name = row.name;
    let column = &row.columns[row.key[0]];
    let type_of = column.type_of;
    let number = quote_spanned! {at(column)=>
        const KEY_NUMBER: ::core::option::Option<fn(&Self::Key) -> u64> =
            ::core::option::Option::Some(<#type_of as ::weft::schema::GeneratedKey>::number);
    };
    let generated = quote_spanned! {at(column)=>
        #[automatically_derived]
        impl ::weft::schema::GeneratedRecord for #name {}
    };
    (number, generated)
}

/// Returns the type of a key made of the columns at `positions`: the column's own type if it is one column,
/// otherwise a tuple.
///
/// Its tokens point at the fields, and the tuple at `span`. So the compiler's message points there if a type
/// does not implement `Key`.
fn key_type(row: &Row<'_>, positions: &[usize], span: Span) -> TokenStream {
    let types = positions.iter().map(|&position| row.columns[position].type_of);
    if let [position] = positions {
        row.columns[*position].type_of.to_token_stream()
    } else {
        quote_spanned!(span=> (#(#types),*))
    }
}

/// Uses each column of a primary key as a `Key`. If one does not implement `Key`, the compiler then points at
/// that column, and not only at the tuple of all.
fn key_columns_are_keys(row: &Row<'_>) -> TokenStream {
    if row.key.len() == 1 {
        return TokenStream::new();
    }
    row.key
        .iter()
        .map(|&position| {
            let column_width = width(&row.columns[position]);
            quote!(const _: ::core::option::Option<usize> = #column_width;)
        })
        .collect()
}

/// Generates a check that equal primary keys have the same stored form, if they are stored.
fn key_columns_have_one_form(row: &Row<'_>) -> TokenStream {
    let columns = row.key.iter().filter(|_| !row.volatile).map(|&position| &row.columns[position]);
    columns
        .map(|column| {
            let type_of = column.type_of;
            quote_spanned! {at(column)=>
                const _: () = ::core::assert!(
                    <#type_of as ::weft::encoding::Key>::HAS_ONE_STORED_FORM,
                    "equal values of this type can be stored in different forms (`1.0` and `1.00`), so it cannot be in the primary key: use an integer, such as cents; an index can have it",
                );
            }
        })
        .collect()
}

/// Returns the width of a column's encoding, in tokens that point at the column.
fn width(column: &Column<'_>) -> TokenStream {
    let type_of = column.type_of;
    quote_spanned!(at(column)=> <#type_of as ::weft::encoding::Key>::WIDTH_BYTES)
}

/// Returns the span at which messages about a column point. Names resolve as everywhere else in generated code.
fn at(column: &Column<'_>) -> Span {
    column.type_of.span().resolved_at(Span::call_site())
}

fn column_description(row: &Row<'_>, position: usize) -> TokenStream {
    let column = &row.columns[position];
    let name = &column.name;
    let type_name = column.type_name();
    let in_key = row.key.contains(&position);
    let column_type = if row.volatile {
        quote!(::core::option::Option::None)
    } else {
        let type_of = column.type_of;
        quote_spanned! {at(column)=>
            ::core::option::Option::Some(<#type_of as ::weft::column::ColumnValue>::TYPE)
        }
    };
    let default = default(column.type_of, column.default.as_ref());
    let was = &column.was;
    let computed = computed(column);
    let bounds = bounds(column);
    let is_checked = row
        .checks
        .iter()
        .any(|check| check.columns.as_ref().is_none_or(|columns| columns.contains(&position)));
    quote! {
        ::weft::schema::Column {
            name: #name,
            type_name: #type_name,
            type_of: #column_type,
            in_key: #in_key,
            default: #default,
            was: &[#(#was),*],
            computed: #computed,
            bounds: #bounds,
            is_checked: #is_checked,
        }
    }
}

/// Generates the bounds of a column. The compiler checks that they are values of the column's type.
fn bounds(column: &Column<'_>) -> TokenStream {
    if column.min.is_none() && column.max.is_none() {
        return quote!(::weft::schema::Bounds::NONE);
    }
    let type_of = column.type_of;
    let bound = |bound: &Option<BoundOption>| match bound {
        None => quote!(::core::option::Option::None),
        Some(BoundOption { number, literal, span }) => {
            let number = Literal::i128_suffixed(*number);
            quote_spanned! {span.resolved_at(Span::call_site())=>
                ::core::option::Option::Some({
                    const _: #type_of = #literal;
                    #number
                })
            }
        }
    };
    let (min, max) = (bound(&column.min), bound(&column.max));
    quote!(::weft::schema::Bounds { min: #min, max: #max })
}

/// Returns the names of a column's bounds: `stock >= 0`.
fn bound_names(column: &Column<'_>) -> impl Iterator<Item = String> {
    let of = |sign: &str, bound: &Option<BoundOption>| {
        bound.as_ref().map(|bound| format!("{} {sign} {}", column.name, bound.number))
    };
    of(">=", &column.min).into_iter().chain(of("<=", &column.max))
}

/// Generates what writes the default of a column or field, if it has one.
pub(crate) fn default(type_of: &Type, default: Option<&Expr>) -> TokenStream {
    let Some(value) = default else {
        return quote!(::core::option::Option::None);
    };
    quote! {
        ::core::option::Option::Some(|output| {
            let value: #type_of = #value;
            ::weft::column::ColumnValue::write(&value, output);
        })
    }
}

/// Generates what computes a column of a stored row, if it is computed.
fn computed(column: &Column<'_>) -> TokenStream {
    let Some(path) = &column.computed else {
        return quote!(::core::option::Option::None);
    };
    let type_of = column.type_of;
    quote! {
        ::core::option::Option::Some(|row, output| {
            let compute: fn(&::weft::description::StoredRow<'_>)
                -> ::core::result::Result<#type_of, ::weft::schema::Violation> = #path;
            ::weft::column::ColumnValue::write(&compute(row)?, output);
            ::core::result::Result::Ok(())
        })
    }
}

/// Generates what the row type says about its earlier versions.
fn evolution(row: &Row<'_>) -> TokenStream {
    let checks =
        row.checks.iter().map(|check| closed_up(&check.path.to_token_stream().to_string()));
    let checks = checks.chain(row.columns.iter().flat_map(bound_names));
    let (was, dropped) = (&row.was, &row.dropped);
    let is_migrated = row.migrate.is_some();
    let migrate = row.migrate.as_ref().map(|path| {
        quote! {
            fn migrate(
                stored: &::weft::description::StoredRow<'_>,
            ) -> ::core::result::Result<
                ::core::option::Option<Self>,
                ::weft::schema::Violation,
            > {
                #path(stored)
            }
        }
    });
    quote! {
        const EVOLUTION: ::weft::schema::Evolution = ::weft::schema::Evolution {
            was: &[#(#was),*],
            checks: &[#(#checks),*],
            dropped: &[#(#dropped),*],
            is_migrated: #is_migrated,
        };

        #migrate
    }
}

/// Generates when the row expires, if rows expire.
fn expiry(row: &Row<'_>) -> TokenStream {
    let Some(Expiry { column: position, index, has_hook }) = row.expiry else {
        return TokenStream::new();
    };
    let column = &row.columns[position];
    let (field, type_of) = (column.field, column.type_of);
    let expiry_column = quote_spanned! {at(column)=>
        <#type_of as ::weft::schema::ExpiryColumn>
    };
    quote! {
        const EXPIRY: ::core::option::Option<::weft::schema::Expiry> =
            ::core::option::Option::Some(::weft::schema::Expiry {
                column: #position,
                index: #index,
                is_optional: #expiry_column::IS_OPTIONAL,
                has_hook: #has_hook,
            });

        #[inline(always)]
        fn expires_at(&self) -> ::weft::Timestamp {
            #expiry_column::expires_at(&self.#field)
        }
    }
}

fn index_description(row: &Row<'_>, index: &Index) -> TokenStream {
    let name = &index.name;
    let unique = index.unique;
    let columns = index.columns.iter().map(|&position| &row.columns[position].name);
    let widths = entry_columns(row, index).map(width);
    quote! {
        ::weft::schema::IndexDescription {
            name: #name,
            columns: &[#(#columns),*],
            unique: #unique,
            width_bytes: ::weft::encoding::total_width_bytes(&[#(#widths),*]),
        }
    }
}

/// Returns the columns of an entry of `index`: its own, and if it is not unique, those of the primary key after
/// them. A column that is in both is not written twice, because the entry identifies and sorts rows without
/// that.
fn entry_columns<'r>(row: &'r Row<'_>, index: &'r Index) -> impl Iterator<Item = &'r Column<'r>> {
    let key = row.key.iter().filter(|position| !index.unique && !index.columns.contains(position));
    index.columns.iter().chain(key).map(|&position| &row.columns[position])
}

fn key_methods(row: &Row<'_>) -> TokenStream {
    let fields: Vec<&Ident> = row.key.iter().map(|&position| row.columns[position].field).collect();
    let (key, equals) = if let [field] = fields[..] {
        (quote!(::core::clone::Clone::clone(&self.#field)), quote!(self.#field == *key))
    } else {
        let elements = (0..fields.len()).map(Literal::usize_unsuffixed);
        (
            quote!((#(::core::clone::Clone::clone(&self.#fields)),*)),
            quote!(#(self.#fields == key.#elements)&&*),
        )
    };
    quote! {
        #[inline]
        fn key(&self) -> Self::Key {
            #key
        }

        #[inline]
        fn key_equals(&self, key: &Self::Key) -> bool {
            #equals
        }
    }
}

fn index_methods(row: &Row<'_>) -> TokenStream {
    let positions: Vec<Literal> = (0..row.indexes.len()).map(Literal::usize_unsuffixed).collect();
    let encodings = row.indexes.iter().map(|index| {
        let pushes = entry_columns(row, index).map(|column| {
            let (field, type_of) = (column.field, column.type_of);
            quote_spanned! {at(column)=>
                <#type_of as ::weft::encoding::Key>::encode(&self.#field, encoder);
            }
        });
        quote!({ #(#pushes)* })
    });
    let rests = row.indexes.iter().map(|index| {
        let pushes = row.key.iter().enumerate().filter_map(|(element, position)| {
            if index.unique || index.columns.contains(position) {
                return None;
            }
            let column = &row.columns[*position];
            let type_of = column.type_of;
            let element = Literal::usize_unsuffixed(element);
            let element = if row.key.len() == 1 { quote!(key) } else { quote!(&key.#element) };
            Some(quote_spanned! {at(column)=>
                <#type_of as ::weft::encoding::Key>::encode(#element, encoder);
            })
        });
        quote!({ #(#pushes)* })
    });
    let differences = row.indexes.iter().map(|index| index_difference(row, index));
    let texts = row.indexes.iter().map(|index| {
        let fields: Vec<_> =
            index.columns.iter().map(|&column| row.columns[column].field).collect();
        match fields[..] {
            [field] => quote!(::std::format!("{:?}", self.#field)),
            _ => quote!(::std::format!("{:?}", (#(&self.#fields),*))),
        }
    });
    // A row without indexes uses neither parameter.
    let (encoder, other) = if row.indexes.is_empty() {
        (format_ident!("_encoder"), format_ident!("_other"))
    } else {
        (format_ident!("encoder"), format_ident!("other"))
    };
    let table = &row.table;
    let no_such_index = quote! {
        ::core::panic!("table `{}` has no secondary index {}", #table, index)
    };
    quote! {
        #[inline]
        fn encode_index_key(
            &self,
            index: usize,
            #encoder: &mut impl ::weft::encoding::KeyEncoder,
        ) {
            match index {
                #(#positions => #encodings,)*
                _ => #no_such_index,
            }
        }

        #[allow(unused_variables)]
        fn encode_rest_of_key(
            index: usize,
            key: &Self::Key,
            encoder: &mut impl ::weft::encoding::KeyEncoder,
        ) {
            match index {
                #(#positions => #rests,)*
                _ => #no_such_index,
            }
        }

        #[inline]
        fn index_key_text(&self, index: usize) -> ::std::string::String {
            match index {
                #(#positions => #texts,)*
                _ => #no_such_index,
            }
        }

        #[inline]
        fn index_key_differs(&self, #other: &Self, index: usize) -> bool {
            match index {
                #(#positions => #differences,)*
                _ => #no_such_index,
            }
        }
    }
}

/// Compares the index's columns, except those of the primary key, which do not change.
fn index_difference(row: &Row<'_>, index: &Index) -> TokenStream {
    let fields: Vec<&Ident> = index
        .columns
        .iter()
        .filter(|position| !row.key.contains(position))
        .map(|&position| row.columns[position].field)
        .collect();
    if fields.is_empty() {
        // Use the parameter, because perhaps no other index of the row does.
        return quote!({
            let _ = other;
            false
        });
    }
    quote!(#(self.#fields != other.#fields)||*)
}

/// Generates the methods that write and read rows and keys.
fn stored_form(row: &Row<'_>) -> TokenStream {
    let result = quote!(::core::result::Result);
    let error = quote!(::weft::column::DecodeError);
    let bytes = quote!(::std::vec::Vec<u8>);
    if row.volatile {
        let table = &row.table;
        return quote! {
            fn encode_row(&self, _output: &mut #bytes) {}

            fn decode_row(input: &mut &[u8]) -> #result<Self, #error> {
                #result::Err(#error::volatile(#table, input))
            }

            fn stored_bytes(&self) -> usize {
                0
            }

            fn encode_changes(&self, _before: &Self, _output: &mut #bytes) {}

            fn encode_key(_key: &Self::Key, _output: &mut #bytes) {}

            fn decode_key(input: &mut &[u8]) -> #result<Self::Key, #error> {
                #result::Err(#error::volatile(#table, input))
            }
        };
    }
    let fields = row.columns.iter().map(|column| column.field);
    let row_reads = row.columns.iter().map(read_column);
    let row_writes = row.columns.iter().map(|column| {
        let field = column.field;
        write_column(column, &quote!(&self.#field))
    });
    let sizes = row.columns.iter().map(|column| {
        let (type_of, field) = (column.type_of, column.field);
        quote_spanned! {at(column)=>
            + <#type_of as ::weft::column::ColumnValue>::stored_bytes(&self.#field)
        }
    });
    let heap_sizes = row.columns.iter().map(|column| {
        let (type_of, field) = (column.type_of, column.field);
        quote_spanned! {at(column)=>
            + <#type_of as ::weft::column::ColumnValue>::heap_bytes(&self.#field)
        }
    });
    let columns = row.columns.len();
    let changes = row.columns.iter().enumerate();
    let changes = changes.filter(|(position, _)| !row.key.contains(position));
    let changes: Vec<_> =
        changes.map(|(position, column)| write_change(column, position)).collect();
    let changes = if changes.is_empty() {
        quote! {
            let _ = before;
            ::weft::column::ChangeWriter::new(#columns, output);
        }
    } else {
        quote! {
            let mut changes = ::weft::column::ChangeWriter::new(#columns, output);
            #(#changes)*
        }
    };
    let by_column = by_column(row);
    let key: Vec<&Column<'_>> = row.key.iter().map(|&position| &row.columns[position]).collect();
    let key_reads = key.iter().map(|column| read_column(column));
    let (key_result, key_writes) = if let [column] = key[..] {
        (quote!(#(#key_reads)*), write_column(column, &quote!(key)))
    } else {
        let elements = (0..key.len()).map(Literal::usize_unsuffixed);
        let writes = key.iter().zip(elements);
        let writes = writes.map(|(column, element)| write_column(column, &quote!(&key.#element)));
        (quote!(#result::Ok((#(#key_reads?),*))), quote!(#(#writes)*))
    };
    quote! {
        #[inline]
        fn encode_row(&self, output: &mut #bytes) {
            #(#row_writes)*
        }

        #[inline]
        fn decode_row(input: &mut &[u8]) -> #result<Self, #error> {
            let length = input.len();
            #result::Ok(Self { #(#fields: #row_reads?),* })
        }

        #[inline]
        fn stored_bytes(&self) -> usize {
            0 #(#sizes)*
        }

        #[inline]
        fn heap_bytes(&self) -> usize {
            0 #(#heap_sizes)*
        }

        #[inline]
        fn encode_changes(&self, before: &Self, output: &mut #bytes) {
            #changes
        }

        #by_column

        #[inline]
        fn encode_key(key: &Self::Key, output: &mut #bytes) {
            #key_writes
        }

        #[inline]
        fn decode_key(input: &mut &[u8]) -> #result<Self::Key, #error> {
            let length = input.len();
            #key_result
        }
    }
}

/// Generates the methods that compare two versions of a row column by column. They leave out the key's columns.
fn by_column(row: &Row<'_>) -> TokenStream {
    let option = quote!(::core::option::Option);
    let columns = || {
        let columns = row.columns.iter().enumerate();
        columns.filter(|(position, _)| !row.key.contains(position))
    };
    if columns().next().is_none() {
        return quote! {
            fn same_columns(&self, _other: &Self, _columns: ::weft::column::ColumnSet) -> bool {
                true
            }

            fn rebase(
                &self,
                _before: &Self,
                onto: &Self,
                _adds: ::weft::column::ColumnSet,
            ) -> #option<Self> {
                #option::Some(::core::clone::Clone::clone(onto))
            }
        };
    }
    let comparisons = columns().map(|(position, column)| {
        let (type_of, field) = (column.type_of, column.field);
        quote_spanned! {at(column)=>
            (!columns.contains(#position)
                || <#type_of as ::weft::column::ColumnValue>::is_same(&self.#field, &other.#field))
        }
    });
    // Columns need not be `Clone`, but rows are. So changed columns are taken out of a copy of the whole row.
    let changes = columns().map(|(position, column)| {
        let (type_of, field) = (column.type_of, column.field);
        quote_spanned! {at(column)=>
            if !<#type_of as ::weft::column::ColumnValue>::is_same(&self.#field, &before.#field) {
                if !adds.contains(#position) {
                    let changed = changed
                        .get_or_insert_with(|| ::core::clone::Clone::clone(self));
                    ::core::mem::swap(&mut rebased.#field, &mut changed.#field);
                } else if #position < ::weft::column::ColumnSet::SINGLE {
                    rebased.#field = <#type_of as ::weft::column::ColumnValue>::add_difference(
                        &onto.#field,
                        &self.#field,
                        &before.#field,
                    )?;
                } else {
                    return #option::None;
                }
            }
        }
    });
    let rooms = columns().map(|(position, column)| {
        let (type_of, field) = (column.type_of, column.field);
        quote_spanned! {at(column)=>
            if adds.contains(#position)
                && !<#type_of as ::weft::column::ColumnValue>::has_room(
                    &onto.#field,
                    &self.#field,
                    &before.#field,
                )
            {
                return #option::Some(#position);
            }
        }
    });
    quote! {
        fn same_columns(&self, other: &Self, columns: ::weft::column::ColumnSet) -> bool {
            #(#comparisons)&&*
        }

        fn lacks_room(
            &self,
            before: &Self,
            onto: &Self,
            adds: ::weft::column::ColumnSet,
        ) -> #option<usize> {
            #(#rooms)*
            #option::None
        }

        fn rebase(
            &self,
            before: &Self,
            onto: &Self,
            adds: ::weft::column::ColumnSet,
        ) -> #option<Self> {
            let mut rebased = ::core::clone::Clone::clone(onto);
            let mut changed: #option<Self> = #option::None;
            #(#changes)*
            // If a `Drop` in it panics, the other row must be dropped as well, and a returned value would not be.
            {
                let _dropped_here = changed;
            }
            #option::Some(rebased)
        }
    }
}

/// Returns a statement that appends `value`, a reference, as the column's value.
fn write_column(column: &Column<'_>, value: &TokenStream) -> TokenStream {
    let type_of = column.type_of;
    quote_spanned! {at(column)=>
        <#type_of as ::weft::column::ColumnValue>::write(#value, output);
    }
}

/// Returns a statement that appends the column's value if it differs from that in `before`.
fn write_change(column: &Column<'_>, position: usize) -> TokenStream {
    let (type_of, field) = (column.type_of, column.field);
    // By the trait's own functions, as everywhere, so that a type without the trait is only one error.
    quote_spanned! {at(column)=>
        if !<#type_of as ::weft::column::ColumnValue>::is_same(&self.#field, &before.#field) {
            let output = changes.changed(#position);
            <#type_of as ::weft::column::ColumnValue>::write(&self.#field, output);
        }
    }
}

/// Returns an expression that reads the column from `input`, which had `length` bytes at the beginning.
fn read_column(column: &Column<'_>) -> TokenStream {
    let (type_of, name) = (column.type_of, &column.name);
    quote_spanned! {at(column)=>
        <#type_of as ::weft::column::ColumnValue>::read(input)
            .map_err(|error| error.in_column(#name, length))
    }
}

fn check_method(row: &Row<'_>) -> TokenStream {
    let bounded = row.columns.iter().enumerate();
    let bounded = bounded.filter(|(_, column)| column.min.is_some() || column.max.is_some());
    let bounds = bounded.map(|(position, column)| {
        let field = column.field;
        quote_spanned! {at(column)=>
            ::weft::schema::check_bounds(
                self.#field,
                &<Self as ::weft::schema::Record>::COLUMNS[#position],
            )?;
        }
    });
    let bounds: Vec<_> = bounds.collect();
    if row.checks.is_empty() && bounds.is_empty() {
        return quote!(
            const IS_CHECKED: bool = false;
        );
    }
    let checks = row.checks.iter().map(|check| {
        let path = &check.path;
        let name =
            path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let violation = quote!(::core::result::Result<(), ::weft::schema::Violation>);
        let (type_of, call) = match &check.columns {
            None => (quote!(fn(&Self) -> #violation), quote!(check(self))),
            Some(columns) => {
                let columns = || columns.iter().map(|&column| &row.columns[column]);
                let types = columns().map(|column| column.type_of);
                let fields = columns().map(|column| column.field);
                (quote!(fn(#(&#types),*) -> #violation), quote!(check(#(&self.#fields),*)))
            }
        };
        quote! {{
            let check: #type_of = #path;
            if let ::core::result::Result::Err(violation) = #call {
                return ::core::result::Result::Err(::weft::schema::Violation {
                    check: #name,
                    ..violation
                });
            }
        }}
    });
    quote! {
        #[inline]
        fn check(&self) -> ::core::result::Result<(), ::weft::schema::Violation> {
            #(#bounds)*
            #(#checks)*
            ::core::result::Result::Ok(())
        }
    }
}

fn index_constants(row: &Row<'_>) -> TokenStream {
    if row.indexes.is_empty() {
        return TokenStream::new();
    }
    let name = row.name;
    let visibility = row.visibility;
    let constants = row.indexes.iter().enumerate().map(|(position, index)| {
        let constant = Ident::new(&index.name.to_uppercase(), index.name_span);
        let key_type = key_type(row, &index.columns, index.name_span);
        let columns: Vec<String> = index
            .columns
            .iter()
            .map(|&position| format!("`{}`", row.columns[position].name))
            .collect();
        let kind = if index.unique { "unique index" } else { "index" };
        let documentation = format!(" The {kind} `{}`, on {}.", index.name, columns.join(", "));
        let new = quote_spanned!(index.name_span=> ::weft::schema::Index::new(#position));
        quote! {
            #[doc = #documentation]
            #[allow(dead_code)]
            #visibility const #constant: ::weft::schema::Index<#name, #key_type> = #new;
        }
    });
    quote! {
        #[automatically_derived]
        impl #name {
            #(#constants)*
        }
    }
}
