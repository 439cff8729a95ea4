//! `#[procedure(Name, served)]`: what `weft-server` needs of a procedure that its clients call.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, Expr, Ident, Lit, Meta, Type};

use super::emit::generics;
use super::function::{Function, Kind};

/// Generates the implementation of `Served`. `option` is the word in the attribute.
pub fn served(function: &Function, option: &Ident) -> Result<TokenStream, Error> {
    if function.item.sig.generics.type_params().next().is_some() {
        return Err(Error::new(
            option.span(),
            "a served procedure has no type parameters, because the server's database has one protocol: write \
             `&Transaction<'_>`",
        ));
    }
    let mut tables: Vec<&Type> = Vec::new();
    let (mut described, mut converted, mut given) = (Vec::new(), Vec::new(), Vec::new());
    for parameter in &function.parameters {
        let (name, of) = (&parameter.name, &parameter.of);
        let local = format_ident!("__weft_{}", name);
        let shown = name.to_string();
        let owned = match parameter.kind {
            Kind::Owned => quote!(#of),
            Kind::Shared if is_text(of) => quote!(::std::string::String),
            Kind::Shared if is_bytes(of) => quote!(::std::vec::Vec<u8>),
            Kind::Shared => {
                let place = syn::Index::from(tables.len());
                tables.push(of);
                given.push(quote!(&__weft_tables.#place));
                continue;
            }
            Kind::Exclusive => {
                return Err(Error::new(
                    name.span(),
                    "clients cannot give a `&mut`: return the value instead",
                ));
            }
        };
        described.push(quote!(::weft_server::Parameter::new::<#owned>(#shown)));
        converted.push(quote!(let #local: #owned = __weft_arguments.take()?;));
        given.push(match parameter.kind {
            Kind::Owned => quote!(#local),
            _ => quote!(&#local),
        });
    }
    let (name, summary) = (&function.name, summary(function));
    let generics = generics(function);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::weft_server::Served for #name #type_generics #where_clause {
            type Tables = (#(#tables,)*);
            const SUMMARY: &'static str = #summary;

            fn parameters() -> ::std::vec::Vec<::weft_server::Parameter> {
                ::std::vec![#(#described),*]
            }

            fn is_read_only() -> bool {
                let shape = <Self as ::weft_procedures::Procedure<::weft::protocol::Dbx>>::shape();
                shape.steps.iter().all(|step| {
                    ::core::matches!(
                        step.access,
                        ::weft_procedures::Access::Read | ::weft_procedures::Access::Scan
                    )
                })
            }

            fn tables(
                __weft_database: &::weft::Database,
            ) -> ::core::result::Result<Self::Tables, ::weft::Failure> {
                ::core::result::Result::Ok((
                    #(<#tables as ::weft_server::FromDatabase>::from_database(__weft_database)?,)*
                ))
            }

            fn call(
                __weft_tables: &Self::Tables,
                __weft_transaction: &::weft::Transaction<'_>,
                __weft_arguments: &mut ::weft_server::Arguments<'_>,
                __weft_reply: &mut ::weft_server::Reply,
            ) -> ::core::result::Result<(), ::weft_server::Refused> {
                #(#converted)*
                let mut __weft_procedure = #name::new(#(#given),*);
                let __weft_output = ::weft_procedures::Procedure::run(&mut __weft_procedure, __weft_transaction)
                    .map_err(::weft_server::Refused::new)?;
                ::weft_server::IntoReply::write(&__weft_output, __weft_reply);
                ::core::result::Result::Ok(())
            }
        }
    })
}

fn is_text(of: &Type) -> bool {
    matches!(of, Type::Path(path) if path.path.is_ident("str"))
}

fn is_bytes(of: &Type) -> bool {
    matches!(of, Type::Slice(slice) if matches!(&*slice.elem, Type::Path(path) if path.path.is_ident("u8")))
}

/// Returns the first line of the function's documentation.
fn summary(function: &Function) -> String {
    let lines = function.item.attrs.iter().filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        match &literal.lit {
            Lit::Str(text) if pair.path.is_ident("doc") => Some(text.value().trim().to_owned()),
            _ => None,
        }
    });
    lines.into_iter().next().unwrap_or_default()
}
