//! The function that becomes a procedure: its attribute and its signature.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericArgument, GenericParam, Ident, ItemFn, Pat, PathArguments, Result,
    ReturnType, Token, Type, TypeParamBound,
};

/// The attribute: `#[procedure(Name)]`, with the options `transaction = parameter` and `served`.
pub struct Attribute {
    pub name: Ident,
    pub transaction: Option<Ident>,
    /// The option `served`, which lets clients of `weft-server` call the procedure.
    pub served: Option<Ident>,
}

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.is_empty() {
            return Err(Error::new(
                Span::call_site(),
                "name the procedure's type: `#[procedure(PayIn)]`",
            ));
        }
        let name = input.parse()?;
        let (mut transaction, mut served) = (None, None);
        while input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let option: Ident = input.parse()?;
            if option == "served" {
                served = Some(option);
                continue;
            }
            if option != "transaction" {
                let message = "unknown option; there are `transaction = PARAMETER` and `served`";
                return Err(Error::new(option.span(), message));
            }
            input.parse::<Token![=]>()?;
            transaction = Some(input.parse()?);
        }
        if !input.is_empty() {
            return Err(
                input.error("expected `, transaction = PARAMETER`, `, served`, or nothing more")
            );
        }
        Ok(Attribute { name, transaction, served })
    }
}

/// A parameter other than the transaction.
pub struct Parameter {
    pub name: Ident,
    pub is_mutable: bool,
    pub kind: Kind,
    /// The type that it refers to, or its type if it is owned.
    pub of: Type,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Shared,
    Exclusive,
    Owned,
}

/// The function, and what its signature says.
pub struct Function {
    pub item: ItemFn,
    /// The type of the procedure.
    pub name: Ident,
    pub transaction: Ident,
    pub protocol: Type,
    pub parameters: Vec<Parameter>,
    /// The names of all arguments in order, for a call.
    pub order: Vec<Ident>,
    pub output: Type,
    pub error: Type,
    /// The option `served`, if it is there.
    pub served: Option<Ident>,
}

impl Function {
    pub fn new(attribute: Attribute, item: ItemFn) -> Result<Self> {
        let signature = &item.sig;
        if let Some(asynchronous) = &signature.asyncness {
            return Err(Error::new(
                asynchronous.span,
                "a procedure cannot be an `async` function: remove `async`",
            ));
        }
        if let Some(unsafety) = &signature.unsafety {
            return Err(Error::new(unsafety.span, "a procedure cannot be an `unsafe` function"));
        }
        for parameter in &signature.generics.params {
            if let GenericParam::Const(constant) = parameter {
                return Err(Error::new(
                    constant.span(),
                    "a procedure has no const parameters: write one for each constant",
                ));
            }
        }
        let mut transaction = None;
        let mut parameters = Vec::new();
        let mut order = Vec::new();
        for input in &signature.inputs {
            let FnArg::Typed(typed) = input else {
                return Err(Error::new(
                    input.span(),
                    "a procedure cannot be a method: pass what it needs of `self` as parameters",
                ));
            };
            let Pat::Ident(pattern) = &*typed.pat else {
                return Err(Error::new(
                    typed.pat.span(),
                    "name this parameter, and take it apart by a `let` in the body",
                ));
            };
            let name = pattern.ident.clone();
            order.push(name.clone());
            let is_transaction = match &attribute.transaction {
                Some(named) => *named == name,
                None => is_reference_to_transaction(&typed.ty),
            };
            if is_transaction {
                transaction = Some((name, protocol_of(&typed.ty)?));
                continue;
            }
            let (kind, of) = match &*typed.ty {
                Type::Reference(reference) if reference.mutability.is_some() => {
                    (Kind::Exclusive, (*reference.elem).clone())
                }
                Type::Reference(reference) => (Kind::Shared, (*reference.elem).clone()),
                other => (Kind::Owned, other.clone()),
            };
            if let Type::ImplTrait(opaque) = &of {
                return Err(Error::new(
                    opaque.span(),
                    "the type has a field of this type, which has to have a name: use a type parameter",
                ));
            }
            let is_mutable = pattern.mutability.is_some();
            parameters.push(Parameter { name, is_mutable, kind, of });
        }
        let Some((transaction, protocol)) = transaction else {
            return Err(Error::new(
                signature.ident.span(),
                "a procedure has a parameter that is a `&Transaction<'_, P>`; if it is a trait's, name it: \
                 `#[procedure(Name, transaction = view)]`",
            ));
        };
        let (output, error) = result_of(&signature.output, signature.ident.span())?;
        let (name, served) = (attribute.name, attribute.served);
        Ok(Function { name, transaction, protocol, parameters, order, output, error, served, item })
    }
}

fn is_reference_to_transaction(of: &Type) -> bool {
    let Type::Reference(reference) = of else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "Transaction")
}

/// Returns the protocol `P` of a `&Transaction<'_, P>` or a `&impl View<P>`.
fn protocol_of(of: &Type) -> Result<Type> {
    let missing = || Error::new(of.span(), "expected `&Transaction<'_, P>` or `&impl Trait<P>`");
    let Type::Reference(reference) = of else { return Err(missing()) };
    let path = match &*reference.elem {
        Type::Path(path) => &path.path,
        Type::ImplTrait(opaque) => match opaque.bounds.first() {
            Some(TypeParamBound::Trait(bound)) => &bound.path,
            _ => return Err(missing()),
        },
        _ => return Err(missing()),
    };
    let arguments = &path.segments.last().ok_or_else(missing)?.arguments;
    let PathArguments::AngleBracketed(arguments) = arguments else {
        return Ok(syn::parse_quote!(::weft::protocol::Dbx));
    };
    let of_type = arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(of_type) => Some(of_type.clone()),
        _ => None,
    });
    Ok(of_type.unwrap_or_else(|| syn::parse_quote!(::weft::protocol::Dbx)))
}

fn result_of(output: &ReturnType, span: Span) -> Result<(Type, Type)> {
    let message = "a procedure returns a `Result<Output, Error>`, with both types written out";
    let ReturnType::Type(_, of) = output else { return Err(Error::new(span, message)) };
    let wrong = || Error::new(of.span(), message);
    let Type::Path(path) = &**of else { return Err(wrong()) };
    let last = path.path.segments.last().ok_or_else(wrong)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Err(wrong()) };
    let types: Vec<&Type> = arguments
        .args
        .iter()
        .filter_map(|argument| match argument {
            GenericArgument::Type(of_type) => Some(of_type),
            _ => None,
        })
        .collect();
    match (last.ident == "Result", types.as_slice()) {
        (true, [output, error]) => Ok(((*output).clone(), (*error).clone())),
        _ => Err(wrong()),
    }
}
