//! `#[derive(ColumnValue)]`. A struct is stored as its fields, an enum as the number of its variant.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
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
    let descriptions = fields.iter().zip(&members).map(|(field, member)| {
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
    });
    let descriptions = descriptions.collect::<Result<Vec<_>>>()?;
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

fn enum_body(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if data.variants.is_empty() {
        return Err(Error::new(
            input.ident.span(),
            "an enum without variants has no values that could be stored",
        ));
    }
    if let Some(variant) = data.variants.iter().find(|it| !matches!(it.fields, Fields::Unit)) {
        return Err(Error::new(
            variant.fields.span(),
            format!(
                "the variants of a stored enum have no fields, and `{}` has some: store them in \
                 columns of their own, optional ones perhaps, or implement `ColumnValue` by hand",
                variant.ident
            ),
        ));
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
                #(Self::#variants => #numbers,)*
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
                #(Self::#variants => #numbers,)*
            };
            ::weft::column::write_leb128(number, output);
        }

        #[inline]
        fn read(
            input: &mut &[u8],
        ) -> ::core::result::Result<Self, ::weft::column::DecodeError> {
            let start = *input;
            match ::weft::column::read_leb128(input)? {
                #(#numbers => ::core::result::Result::Ok(Self::#variants),)*
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

/// Returns the span at which messages about a field point. Names resolve as everywhere else in generated code.
fn at(field: &Field) -> Span {
    field.ty.span().resolved_at(Span::call_site())
}
