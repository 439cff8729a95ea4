//! `#[derive(ColumnValue)]`. A struct is stored as its fields, an enum as the number of its variant. If a variant has
//! fields, the enum is stored as a struct with a field for each variant: one of them is present, with its fields.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Field, Fields, GenericParam, Index, Member, Result};

use crate::attributes::PartOptions;
use crate::generate;

/// Generates the implementation of `ColumnValue`.
pub(crate) fn column_value(input: &DeriveInput) -> Result<TokenStream> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.span(),
            "a column's type cannot have lifetimes, because a row that is read from a file has nothing to borrow from: use types that own their data",
        ));
    }
    let body = match &input.data {
        Data::Struct(data) => struct_body(input, &data.fields)?,
        Data::Enum(data) => enum_body(input, data)?,
        Data::Union(_) => {
            return Err(Error::new(
                input.ident.span(),
                "a union does not say what it holds, so it cannot be stored: make it a struct",
            ));
        }
    };
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(syn::parse_quote!(::weft::column::ColumnValue));
        }
    }
    let (parameters, arguments, conditions) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters ::weft::column::ColumnValue for #name #arguments #conditions {
            #body
        }
    })
}

fn struct_body(input: &DeriveInput, fields: &Fields) -> Result<TokenStream> {
    let name = input.ident.unraw().to_string();
    let members: Vec<Member> = fields.members().collect();
    let descriptions = descriptions(fields)?;
    let writes = fields.iter().zip(&members).map(|(field, member)| {
        let type_of = &field.ty;
        quote_spanned! {at(field)=>
            <#type_of as ::weft::column::ColumnValue>::write(&self.#member, output);
        }
    });
    let reads = fields.iter().map(|field| {
        let type_of = &field.ty;
        quote_spanned!(at(field)=> <#type_of as ::weft::column::ColumnValue>::read(input)?)
    });
    let sizes = fields.iter().zip(&members).map(|(field, member)| {
        let type_of = &field.ty;
        quote_spanned! {at(field)=>
            + <#type_of as ::weft::column::ColumnValue>::stored_bytes(&self.#member)
        }
    });
    let heap_sizes = fields.iter().zip(&members).map(|(field, member)| {
        let type_of = &field.ty;
        quote_spanned! {at(field)=>
            + <#type_of as ::weft::column::ColumnValue>::heap_bytes(&self.#member)
        }
    });
    let comparisons = fields.iter().zip(&members).map(|(field, member)| {
        let type_of = &field.ty;
        quote_spanned! {at(field)=>
            && <#type_of as ::weft::column::ColumnValue>::is_same(&self.#member, &other.#member)
        }
    });
    // A struct without fields uses no parameter.
    let use_parameter = |parameter| fields.is_empty().then(|| quote!(let _ = #parameter;));
    let (use_output, use_input) = (use_parameter(quote!(output)), use_parameter(quote!(input)));
    let use_other = use_parameter(quote!(other));
    Ok(quote! {
        const TYPE: ::weft::column::ColumnType = ::weft::column::ColumnType::Struct {
            name: #name,
            fields: &[#(#descriptions),*],
        };

        #[inline]
        fn write(&self, output: &mut ::std::vec::Vec<u8>) {
            #use_output
            #(#writes)*
        }

        #[inline]
        fn read(
            input: &mut &[u8],
        ) -> ::core::result::Result<Self, ::weft::column::DecodeError> {
            #use_input
            ::core::result::Result::Ok(Self { #(#members: #reads),* })
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
        fn is_same(&self, other: &Self) -> bool {
            #use_other
            true #(#comparisons)*
        }
    })
}

/// Generates the descriptions of a struct's or a variant's fields.
fn descriptions(fields: &Fields) -> Result<Vec<TokenStream>> {
    let description = |(field, member): (&Field, Member)| {
        let name = match member {
            Member::Named(ident) => ident.unraw().to_string(),
            Member::Unnamed(Index { index, .. }) => index.to_string(),
        };
        let PartOptions { default, was } = PartOptions::parse(&field.attrs)?;
        let type_of = &field.ty;
        let default = generate::default(type_of, default.as_ref().map(|default| &default.value));
        Ok(quote_spanned! {at(field)=>
            ::weft::column::FieldType {
                name: #name,
                type_of: <#type_of as ::weft::column::ColumnValue>::TYPE,
                was: &[#(#was),*],
                default: #default,
            }
        })
    };
    fields.iter().zip(fields.members()).map(description).collect()
}

fn enum_body(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if data.variants.is_empty() {
        return Err(Error::new(
            input.ident.span(),
            "an enum without variants has no values that could be stored",
        ));
    }
    if data.variants.iter().any(|variant| !variant.fields.is_empty()) {
        return choice_body(input, data);
    }
    let name = input.ident.unraw().to_string();
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names = variants.iter().map(|variant| variant.unraw().to_string());
    let numbers: Vec<Literal> = (0..variants.len()).map(Literal::usize_unsuffixed).collect();
    let count = variants.len();
    // One byte, unless there are more than 128 variants.
    let stored_bytes = if count <= 1 << 7 {
        quote!(1)
    } else {
        quote! {
            ::weft::column::leb128_bytes(match self {
                #(Self::#variants { .. } => #numbers,)*
            })
        }
    };
    Ok(quote! {
        const TYPE: ::weft::column::ColumnType = ::weft::column::ColumnType::Enum {
            name: #name,
            variants: &[#(#names),*],
        };

        #[inline]
        fn write(&self, output: &mut ::std::vec::Vec<u8>) {
            let number = match self {
                #(Self::#variants { .. } => #numbers,)*
            };
            ::weft::column::write_leb128(number, output);
        }

        #[inline]
        fn read(
            input: &mut &[u8],
        ) -> ::core::result::Result<Self, ::weft::column::DecodeError> {
            let start = *input;
            match ::weft::column::read_leb128(input)? {
                #(#numbers => ::core::result::Result::Ok(Self::#variants {}),)*
                number => ::core::result::Result::Err(
                    ::weft::column::DecodeError::no_variant(start, #name, number, #count),
                ),
            }
        }

        #[inline]
        fn stored_bytes(&self) -> usize {
            #stored_bytes
        }

        #[inline]
        fn is_same(&self, other: &Self) -> bool {
            ::core::mem::discriminant(self) == ::core::mem::discriminant(other)
        }
    })
}

/// Generates the body for an enum with fields.
fn choice_body(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    let name = input.ident.unraw().to_string();
    let count = data.variants.len();
    let (mut types, mut writes, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut heap_sizes, mut comparisons) = (Vec::new(), Vec::new(), Vec::new());
    for (position, variant) in data.variants.iter().enumerate() {
        let (ident, fields) = (&variant.ident, &variant.fields);
        let variant_name = ident.unraw().to_string();
        let field_types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
        let value = quote!(::weft::column::ColumnValue);
        let descriptions = descriptions(fields)?;
        let type_of = match fields.is_empty() {
            true => quote!(::weft::column::ColumnType::Bool),
            false => quote! {
                ::weft::column::ColumnType::Option(&::weft::column::ColumnType::Struct {
                    name: #variant_name,
                    fields: &[#(#descriptions),*],
                })
            },
        };
        types.push(quote! {
            ::weft::column::FieldType {
                name: #variant_name,
                type_of: #type_of,
                was: &[],
                // Enums that were stored before the variant existed are not this variant.
                default: ::core::option::Option::Some(|output| output.push(0)),
            }
        });
        let names = |prefix: &str| -> Vec<_> {
            (0..fields.len()).map(|field| format_ident!("{prefix}_{field}")).collect()
        };
        let (own, others) = (names("own"), names("other"));
        let members: Vec<Member> = fields.members().collect();
        let pattern = |names: &[syn::Ident]| quote!(Self::#ident { #(#members: #names),* });
        let (own_pattern, other_pattern) = (pattern(&own), pattern(&others));
        let after = count - 1 - position;
        writes.push(quote! {
            #own_pattern => {
                output.extend_from_slice(&[0; #position]);
                output.push(1);
                #(<#field_types as #value>::write(#own, output);)*
                output.extend_from_slice(&[0; #after]);
            }
        });
        reads.push(quote! {
            if <bool as #value>::read(input)? {
                let value = Self::#ident { #(#members: <#field_types as #value>::read(input)?),* };
                if found.replace(value).is_some() {
                    return ::core::result::Result::Err(::weft::column::DecodeError::new(
                        start,
                        ::core::concat!("a value of ", #name, " has two of its variants"),
                    ));
                }
            }
        });
        let sum = |method| {
            let method = format_ident!("{method}");
            quote!(#own_pattern => 0 #(+ <#field_types as #value>::#method(#own))*)
        };
        sizes.push(sum("stored_bytes"));
        heap_sizes.push(sum("heap_bytes"));
        comparisons.push(quote! {
            (#own_pattern, #other_pattern) => {
                true #(&& <#field_types as #value>::is_same(#own, #others))*
            }
        });
    }
    Ok(quote! {
        const TYPE: ::weft::column::ColumnType = ::weft::column::ColumnType::Struct {
            name: #name,
            fields: &[#(#types),*],
        };

        fn write(&self, output: &mut ::std::vec::Vec<u8>) {
            match self {
                #(#writes)*
            }
        }

        fn read(
            input: &mut &[u8],
        ) -> ::core::result::Result<Self, ::weft::column::DecodeError> {
            let start = *input;
            let mut found = ::core::option::Option::None;
            #(#reads)*
            found.ok_or_else(|| {
                ::weft::column::DecodeError::new(
                    start,
                    ::core::concat!("a value of ", #name, " has none of its variants"),
                )
            })
        }

        fn stored_bytes(&self) -> usize {
            #count + match self {
                #(#sizes,)*
            }
        }

        fn heap_bytes(&self) -> usize {
            match self {
                #(#heap_sizes,)*
            }
        }

        fn is_same(&self, other: &Self) -> bool {
            match (self, other) {
                #(#comparisons)*
                #[allow(unreachable_patterns)]
                _ => false,
            }
        }
    })
}

/// Returns the span at which messages about a field point. Names resolve as everywhere else in generated code.
pub(crate) fn at(field: &Field) -> Span {
    field.ty.span().resolved_at(Span::call_site())
}
