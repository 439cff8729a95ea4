//! `#[derive(Key)]`. A struct is encoded as its fields, an enum as the number of its variant, followed by the variant's
//! fields.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Error, Expr, Fields, GenericParam, Ident, Result, Type};

use crate::column_value::at;

/// Generates the implementation of `Key`.
pub(crate) fn key(input: &DeriveInput) -> Result<TokenStream> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new(
            lifetime.span(),
            "a key cannot have lifetimes, because an index has nothing to borrow from: use types that own their data",
        ));
    }
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(syn::parse_quote!(::weft::encoding::Key));
        }
    }
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let (body, checks) = match &input.data {
        Data::Struct(data) => (struct_body(name, &data.fields)?, TokenStream::new()),
        Data::Enum(data) => (enum_body(name, data)?, order_of_discriminants(name, data)?),
        Data::Union(_) => {
            let message =
                "a union does not say what it holds, so it has no order: make it a struct";
            return Err(Error::new(name.span(), message));
        }
    };
    let newtype = match &input.data {
        Data::Struct(data) if data.fields.len() == 1 => {
            let field = data.fields.iter().next().expect("there is one");
            let member = data.fields.members().next().expect("there is one");
            let type_of = &field.ty;
            quote! {
                #[automatically_derived]
                impl #parameters ::weft::encoding::Newtype for #name #arguments #conditions {
                    type Inner = #type_of;

                    #[inline]
                    fn wrap(inner: #type_of) -> Self {
                        Self { #member: inner }
                    }

                    #[inline]
                    fn inner(&self) -> &#type_of {
                        &self.#member
                    }
                }
            }
        }
        _ => TokenStream::new(),
    };
    Ok(quote! {
        #checks

        #[automatically_derived]
        impl #parameters ::weft::encoding::Key for #name #arguments #conditions {
            #body
        }

        #newtype
    })
}

fn struct_body(name: &Ident, fields: &Fields) -> Result<TokenStream> {
    if fields.is_empty() {
        let message = "a struct without fields has one value only, so a table with this key would have one row";
        return Err(Error::new(name.span(), message));
    }
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let widths = fields.iter().map(width);
    let members = fields.members();
    let encodings = fields.iter().zip(members).map(|(field, member)| {
        let type_of = &field.ty;
        quote_spanned! {at(field)=>
            <#type_of as ::weft::encoding::Key>::encode(&self.#member, encoder);
        }
    });
    let is_column = match &types[..] {
        [type_of] => quote!(<#type_of as ::weft::encoding::Key>::IS_COLUMN),
        _ => quote!(false),
    };
    let has_one_form = has_one_form(&types);
    Ok(quote! {
        const WIDTH_BYTES: ::core::option::Option<usize> =
            ::weft::encoding::total_width_bytes(&[#(#widths),*]);
        const IS_COLUMN: bool = #is_column;
        #has_one_form

        #[inline]
        fn encode(&self, encoder: &mut impl ::weft::encoding::KeyEncoder) {
            #(#encodings)*
        }
    })
}

fn enum_body(name: &Ident, data: &DataEnum) -> Result<TokenStream> {
    if data.variants.is_empty() {
        let message = "an enum without variants has no values that could be keys";
        return Err(Error::new(name.span(), message));
    }
    let number_bytes: u32 = if data.variants.len() <= 1 << 8 { 1 } else { 2 };
    let fields = || data.variants.iter().flat_map(|variant| &variant.fields);
    let is_column = fields().next().is_none();
    let has_one_form = has_one_form(&fields().map(|field| &field.ty).collect::<Vec<_>>());
    let widths = data.variants.iter().map(|variant| {
        let widths = variant.fields.iter().map(width);
        quote!(::weft::encoding::total_width_bytes(&[#(#widths),*]))
    });
    let widths: Vec<_> = widths.collect();
    let arms =
        data.variants.iter().zip(&widths).enumerate().map(|(number, (variant, own_width))| {
            let (ident, number) = (&variant.ident, number as u64);
            let names: Vec<_> =
                (0..variant.fields.len()).map(|it| format_ident!("field_{it}")).collect();
            let members = variant.fields.members();
            let encodings = variant.fields.iter().zip(&names).map(|(field, name)| {
                let type_of = &field.ty;
                quote_spanned! {at(field)=>
                    <#type_of as ::weft::encoding::Key>::encode(#name, encoder);
                }
            });
            let padding = (!is_column)
                .then(|| quote!(::weft::encoding::pad(const { #own_width }, widest, encoder);));
            quote! {
                Self::#ident { #(#members: #names),* } => {
                    encoder.push(#number, #number_bytes);
                    #(#encodings)*
                    #padding
                }
            }
        });
    let widest = quote!(::weft::encoding::widest_bytes(&[#(#widths),*]));
    let widest_constant = (!is_column)
        .then(|| quote!(let widest: ::core::option::Option<usize> = const { #widest };));
    Ok(quote! {
        const WIDTH_BYTES: ::core::option::Option<usize> = ::weft::encoding::total_width_bytes(&[
            ::core::option::Option::Some(#number_bytes as usize),
            #widest,
        ]);
        const IS_COLUMN: bool = #is_column;
        #has_one_form

        #[inline]
        fn encode(&self, encoder: &mut impl ::weft::encoding::KeyEncoder) {
            #widest_constant
            match self {
                #(#arms)*
            }
        }
    })
}

/// Generates a check that discriminants that the enum declares are in the order of the variants, so that the order of
/// the keys is also that of a derived `Ord`.
fn order_of_discriminants(name: &Ident, data: &DataEnum) -> Result<TokenStream> {
    let declared = data.variants.iter().find_map(|variant| variant.discriminant.as_ref());
    let Some((_, declared)) = declared else { return Ok(TokenStream::new()) };
    if data.variants.iter().any(|variant| !variant.fields.is_empty()) {
        let message = "the order of these keys is that of the variants: leave out the discriminants, which are not stored";
        return Err(Error::new(Expr::span(declared), message));
    }
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let pairs = variants.windows(2).map(|pair| {
        let (one, next) = (pair[0], pair[1]);
        quote_spanned! {next.span()=>
            const _: () = ::core::assert!(
                (#name::#one as i128) < (#name::#next as i128),
                "the order of these keys is that of the variants, and their discriminants have another order: sort the variants by their discriminants",
            );
        }
    });
    Ok(pairs.collect())
}

/// Generates the constant that says whether equal keys have the same stored form.
fn has_one_form(types: &[&Type]) -> TokenStream {
    quote! {
        const HAS_ONE_STORED_FORM: bool =
            true #(&& <#types as ::weft::encoding::Key>::HAS_ONE_STORED_FORM)*;
    }
}

/// Returns the width of a field's encoding, in tokens that point at the field.
fn width(field: &syn::Field) -> TokenStream {
    let type_of = &field.ty;
    quote_spanned!(at(field)=> <#type_of as ::weft::encoding::Key>::WIDTH_BYTES)
}
