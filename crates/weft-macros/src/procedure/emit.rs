//! The code that is generated for a procedure: the function as it is, a struct of its arguments, and the
//! implementation of `Procedure` for it.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Error, Expr, GenericParam, Generics, Ident, Lifetime, Type, TypeReference,
    Visibility, parse_quote,
};

use super::flow::{Flow, Origins, StepDependencies};
use super::function::{Function, Kind, Parameter};
use super::steps::{Site, Steps, columns_tokens};

pub fn procedure(function: &Function, steps: &Steps, flow: &Flow) -> Result<TokenStream, Error> {
    let original = &function.item;
    let structure = structure(function);
    let shape = shape(function, steps, flow)?;
    let execute = execute(function, steps);
    let run = run(function);
    let (name, protocol) = (&function.name, &function.protocol);
    let generics = generics(function);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let output = with_lifetime(&function.output, "'tx");
    let error = &function.error;
    let owned = owned_output(function);
    let served = match &function.served {
        Some(option) => Some(super::served::served(function, option)?),
        None => None,
    };
    Ok(quote! {
        #original
        #structure

        #[automatically_derived]
        #[allow(
            clippy::all,
            unreachable_code,
            unused_mut,
            unused_variables,
            reason = "the function above is the one that is looked at"
        )]
        impl #impl_generics ::weft_procedures::Procedure<#protocol> for #name #type_generics #where_clause {
            type Output<'tx> = #output where Self: 'tx;
            type Error = #error;
            #shape
            #run
            #execute
        }

        #owned
        #served
    })
}

/// Declares that the output refers to no rows, if its type says so.
fn owned_output(function: &Function) -> Option<TokenStream> {
    if has_lifetimes([&function.output]) {
        return None;
    }
    let (name, protocol, output) = (&function.name, &function.protocol, &function.output);
    let generics = generics(function);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Some(quote! {
        #[automatically_derived]
        impl #impl_generics ::weft_procedures::OwnedOutput<#protocol> for #name #type_generics #where_clause {
            type Owned = #output;
            fn into_owned<'tx>(output: Self::Output<'tx>) -> Self::Owned
            where
                Self: 'tx,
            {
                output
            }
        }
    })
}

/// Returns the struct's lifetime, if it has references.
fn lifetime(function: &Function) -> Option<Lifetime> {
    let has_references = function.parameters.iter().any(|parameter| parameter.kind != Kind::Owned)
        || has_lifetimes(function.parameters.iter().map(|parameter| &parameter.of));
    has_references.then(|| Lifetime::new("'args", Span::call_site()))
}

/// Whether one of the types has a lifetime other than `'static`.
fn has_lifetimes<'t>(types: impl IntoIterator<Item = &'t Type>) -> bool {
    struct Lifetimes(bool);
    impl<'ast> Visit<'ast> for Lifetimes {
        fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
            self.0 |= lifetime.ident != "static";
        }
        fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
            self.0 |= reference.lifetime.is_none();
            visit::visit_type_reference(self, reference);
        }
    }
    let mut lifetimes = Lifetimes(false);
    types.into_iter().for_each(|of| lifetimes.visit_type(of));
    lifetimes.0
}

/// Returns the struct's generic parameters: those of the function, with one lifetime in place of all lifetimes.
pub fn generics(function: &Function) -> Generics {
    let mut generics = function.item.sig.generics.clone();
    generics.params = generics
        .params
        .into_iter()
        .filter(|parameter| !matches!(parameter, GenericParam::Lifetime(_)))
        .collect();
    if let Some(lifetime) = lifetime(function) {
        generics.params.insert(0, parse_quote!(#lifetime));
        for parameter in &mut generics.params {
            if let GenericParam::Type(of) = parameter {
                of.bounds.push(parse_quote!(#lifetime));
            }
        }
    }
    generics
}

/// Replaces all lifetimes of a type by this one.
fn with_lifetime(of: &Type, name: &str) -> Type {
    struct Replace(Lifetime);
    impl VisitMut for Replace {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            if lifetime.ident != "static" {
                *lifetime = self.0.clone();
            }
        }
        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            reference.lifetime.get_or_insert_with(|| self.0.clone());
            visit_mut::visit_type_reference_mut(self, reference);
        }
    }
    let mut replaced = of.clone();
    Replace(Lifetime::new(name, Span::call_site())).visit_type_mut(&mut replaced);
    replaced
}

/// Returns the type of a parameter's field, or of its local variable in a pass.
fn type_of(parameter: &Parameter, name: &str) -> TokenStream {
    let of = with_lifetime(&parameter.of, name);
    let lifetime = Lifetime::new(name, Span::call_site());
    match parameter.kind {
        Kind::Shared => quote!(&#lifetime #of),
        Kind::Exclusive => quote!(&#lifetime mut #of),
        Kind::Owned => quote!(#of),
    }
}

fn structure(function: &Function) -> TokenStream {
    let (name, visibility) = (&function.name, &function.item.vis);
    let generics = generics(function);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let parameters: Vec<&Ident> = function.parameters.iter().map(|it| &it.name).collect();
    let types: Vec<_> = function.parameters.iter().map(|it| type_of(it, "'args")).collect();
    let of_types: Vec<Ident> =
        function.item.sig.generics.type_params().map(|it| it.ident.clone()).collect();
    let of_function = format!("The function [`{}`] as a procedure.", function.item.sig.ident);
    let documentation: Vec<&Attribute> =
        function.item.attrs.iter().filter(|it| it.path().is_ident("doc")).collect();
    let new = new_function(visibility, &parameters, &types);
    quote! {
        #[doc = #of_function]
        #[doc = ""]
        #(#documentation)*
        #[allow(dead_code, reason = "not every protocol executes procedures")]
        #visibility struct #name #impl_generics #where_clause {
            #(#parameters: #types,)*
            __weft_types: ::core::marker::PhantomData<fn() -> (#(#of_types,)*)>,
        }

        #[allow(dead_code, reason = "not every protocol executes procedures")]
        impl #impl_generics #name #type_generics #where_clause {
            #new
        }
    }
}

fn new_function(
    visibility: &Visibility,
    parameters: &[&Ident],
    types: &[TokenStream],
) -> TokenStream {
    quote! {
        /// Creates the procedure with these arguments, which are the function's without the transaction.
        #[allow(clippy::too_many_arguments, reason = "they are the function's")]
        #visibility fn new(#(#parameters: #types),*) -> Self {
            Self { #(#parameters,)* __weft_types: ::core::marker::PhantomData }
        }
    }
}

fn run(function: &Function) -> TokenStream {
    let called = &function.item.sig.ident;
    let protocol = &function.protocol;
    let arguments = function.order.iter().map(|name| {
        match function.parameters.iter().find(|parameter| parameter.name == *name) {
            None => quote!(__weft_transaction),
            Some(parameter) => argument(parameter),
        }
    });
    quote! {
        fn run<'tx>(
            &mut self,
            __weft_transaction: &'tx ::weft::Transaction<'_, #protocol>,
        ) -> ::core::result::Result<Self::Output<'tx>, Self::Error>
        where
            Self: 'tx,
        {
            #called(#(#arguments),*)
        }
    }
}

/// Returns an argument for one call.
fn argument(parameter: &Parameter) -> TokenStream {
    let name = &parameter.name;
    match parameter.kind {
        Kind::Shared => quote!(self.#name),
        Kind::Exclusive => quote!(&mut *self.#name),
        Kind::Owned => quote!(::core::clone::Clone::clone(&self.#name)),
    }
}

fn execute(function: &Function, steps: &Steps) -> TokenStream {
    let protocol = &function.protocol;
    let slots: Vec<Ident> =
        (0..steps.sites.len()).map(|number| format_ident!("__weft_slot_{number}")).collect();
    let numbers: Vec<usize> = (0..steps.sites.len()).collect();
    let arguments = function.parameters.iter().map(|parameter| {
        let (name, value) = (&parameter.name, argument(parameter));
        let mutability = parameter.is_mutable.then(|| quote!(mut));
        match parameter.kind {
            Kind::Exclusive => quote!(let #mutability #name = #value;),
            _ => {
                let of = type_of(parameter, "'tx");
                quote!(let #mutability #name: #of = #value;)
            }
        }
    });
    let body = &steps.body;
    quote! {
        fn execute<'tx, D: ::weft_procedures::Driver<#protocol>>(
            &mut self,
            __weft_driver: &'tx D,
        ) -> ::core::result::Result<Self::Output<'tx>, Self::Error>
        where
            Self: 'tx,
        {
            #(let #slots = ::weft_procedures::ResultSlot::default();)*
            let __weft_walk = ::weft_procedures::Walk::<#protocol, D>::new(
                __weft_driver,
                <Self as ::weft_procedures::Procedure<#protocol>>::shape(),
            );
            loop {
                __weft_walk.begin_pass();
                let __weft_result = __weft_walk.pass(
                    || -> ::core::result::Result<Self::Output<'tx>, Self::Error> {
                        #(#arguments)*
                        #body
                    },
                );
                let __weft_is_ok = ::core::matches!(__weft_result, Ok(Ok(_)));
                if __weft_is_ok {
                    #(__weft_walk.sweep(#numbers, &#slots);)*
                }
                if !__weft_walk.end_pass(__weft_is_ok) {
                    return ::weft_procedures::Walk::<#protocol, D>::ended(__weft_result);
                }
                if __weft_walk.is_to_note_writes() {
                    #(__weft_walk.note_writes(#numbers, &#slots);)*
                    __weft_walk.order_writes();
                }
            }
        }
    }
}

// ---- the shape ----------------------------------------------------------------------------------

fn shape(function: &Function, steps: &Steps, flow: &Flow) -> Result<TokenStream, Error> {
    let name = snake_case(&function.name.to_string());
    let described: Vec<TokenStream> = steps
        .sites
        .iter()
        .zip(&flow.steps)
        .map(|(site, found)| step(function, site, found))
        .collect::<Result<_, _>>()?;
    let loops = steps.loops.iter().zip(&flow.loops).map(|(site, guards)| {
        let ((first, end), depth, line) = (site.steps, site.depth, site.line as u32);
        let guards = dependencies(guards);
        quote!(::weft_procedures::Loop { steps: (#first, #end), depth: #depth, guards: #guards, line: #line })
    });
    let rollbacks = flow.rollbacks.iter().map(|&(before, line)| {
        let line = line as u32;
        quote!(::weft_procedures::Rollback { before: #before, line: #line })
    });
    let uses_time = steps.uses_time;
    Ok(quote! {
        fn shape() -> &'static ::weft_procedures::Shape {
            const {
                &::weft_procedures::Shape {
                    name: #name,
                    steps: &[#(#described),*],
                    loops: &[#(#loops),*],
                    rollbacks: &[#(#rollbacks),*],
                    uses_time: #uses_time,
                }
            }
        }
    })
}

fn step(function: &Function, site: &Site, found: &StepDependencies) -> Result<TokenStream, Error> {
    let method = site.method.name;
    let access = site.method.access.tokens(site.kind);
    let table = table(function, &site.table)?;
    let index = match &site.index {
        Some(index) => quote!(::core::option::Option::Some((#index).description().name)),
        None => quote!(::core::option::Option::None),
    };
    let reads = columns_tokens(&site.reads, Span::call_site());
    let writes = columns_tokens(&site.writes, Span::call_site());
    let adds = &site.adds;
    let (loops, line) = (&site.loops, site.line as u32);
    let keys = dependencies(&found.keys);
    let values = dependencies(&found.values);
    let guards = dependencies(&found.guards);
    let columns = found.columns.iter().map(|(name, origins)| {
        let on = dependencies(origins);
        quote!((#name, #on))
    });
    Ok(quote! {
        ::weft_procedures::Step {
            method: #method,
            access: #access,
            table: #table,
            index: #index,
            reads: #reads,
            writes: #writes,
            adds: &[#(#adds),*],
            loops: &[#(#loops),*],
            keys: #keys,
            values: #values,
            columns: &[#(#columns),*],
            guards: #guards,
            line: #line,
        }
    })
}

/// Returns the table that an expression reaches, from the one parameter that it names.
fn table(function: &Function, table: &Expr) -> Result<TokenStream, Error> {
    let root = root(table);
    let parameter = function.parameters.iter().find(|parameter| root == Some(&parameter.name));
    let Some(parameter) = parameter else {
        return Err(Error::new(
            table.span(),
            "the analysis must know which table this is: name it by a parameter, as in `&tables.name`",
        ));
    };
    let (name, of) = (&parameter.name, with_lifetime(&parameter.of, "'_"));
    let span = table.span();
    Ok(quote_spanned!(span=> ::weft_procedures::TableShape::reached(|#name: &#of| #table)))
}

/// Returns the variable that an expression accesses.
fn root(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(field) => root(&field.base),
        Expr::Reference(reference) => root(&reference.expr),
        Expr::Paren(paren) => root(&paren.expr),
        _ => None,
    }
}

fn dependencies(origins: &Origins) -> TokenStream {
    let each = origins.0.iter().map(|(on, carried)| {
        let carried = match carried {
            Some(depth) => quote!(::core::option::Option::Some(#depth)),
            None => quote!(::core::option::Option::None),
        };
        quote!(::weft_procedures::Dependency { on: #on, carried: #carried })
    });
    quote!(&[#(#each),*])
}

/// Turns `NewOrder` into `new_order`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}
