//! `#[procedure]`: from a function to its steps.
//!
//! In the order of the expansion: `function` reads the signature; `steps` finds the operations and rewrites the
//! body for a walk (`methods` has the list of operations); `flow` analyses which operations depend on which;
//! and `emit` generates the procedure. `served` adds what `weft-server` needs of one that its clients call.

mod emit;
mod flow;
mod function;
mod methods;
mod served;
mod steps;

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::{Block, Error, Expr, ExprMethodCall, Ident, ItemFn, Lit, Stmt};

use function::{Attribute, Function};

/// Expands the attribute.
pub fn procedure(attribute: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let attribute: Attribute = syn::parse2(attribute)?;
    let item: ItemFn = syn::parse2(item)?;
    let function = Function::new(attribute, item)?;
    let steps = steps::find(&function.item.block, &function.transaction)?;
    let flow = flow::analyse(&function.parameters, &steps)?;
    emit::procedure(&function, &steps, &flow)
}

/// Returns the name of a variable, a field or a column. The identifiers `name` and `r#name` are the same name.
fn name_of(identifier: &Ident) -> String {
    identifier.unraw().to_string()
}

/// Whether an expression is the walk itself.
fn is_walk(expression: &Expr) -> bool {
    matches!(expression, Expr::Path(path) if path.path.is_ident("__weft_walk"))
}

/// Returns the step's number, if the call is an operation.
fn number_of(call: &ExprMethodCall) -> Option<usize> {
    let Expr::MethodCall(at) = &*call.receiver else { return None };
    if at.method != "at" || !is_walk(&at.receiver) {
        return None;
    }
    number(at.args.first()?)
}

fn number(expression: &Expr) -> Option<usize> {
    let Expr::Lit(literal) = expression else { return None };
    let Lit::Int(number) = &literal.lit else { return None };
    number.base10_parse().ok()
}

/// Whether an expression is an operation, or a hint.
fn is_walk_call(expression: &Expr) -> bool {
    let Expr::MethodCall(call) = expression else { return false };
    number_of(call).is_some() || is_walk(&call.receiver)
}

/// The methods of a scan, of its rows and of a row's result that do not add an error of their own.
const ADAPTERS: &[&str] = &[
    "after",
    "after_by",
    "count_rows",
    "descending",
    "first_row",
    "last_row",
    "next",
    "skip",
    "take",
    "transpose",
];

/// If the left side of an assignment is a pattern, as in `[a, b] = …` or `Pair(a, b) = …`, returns its parts.
fn assigned_places(left: &Expr) -> Option<Vec<&Expr>> {
    match left {
        Expr::Tuple(tuple) => Some(tuple.elems.iter().collect()),
        Expr::Array(array) => Some(array.elems.iter().collect()),
        // Among calls, only a constructor can be assigned to.
        Expr::Call(call) => Some(call.args.iter().collect()),
        Expr::Struct(of) => Some(of.fields.iter().map(|field| &field.expr).collect()),
        Expr::Paren(paren) => Some(vec![&paren.expr]),
        Expr::Group(group) => Some(vec![&group.expr]),
        _ => None,
    }
}

/// If a call is one of the [`ADAPTERS`], returns what it is called on.
fn adapted(call: &ExprMethodCall) -> Option<&Expr> {
    ADAPTERS.iter().any(|name| call.method == name).then_some(&*call.receiver)
}

/// If an expression is a scan, perhaps one that was narrowed, returns the number of its step.
fn number_of_scan(expression: &Expr) -> Option<usize> {
    let Expr::MethodCall(call) = expression else { return None };
    let is_narrowed = ["after", "after_by", "descending"].iter().any(|name| call.method == name);
    number_of(call).or_else(|| number_of_scan(&call.receiver).filter(|_| is_narrowed))
}

/// If the block stands around a loop with operations, returns the loop's number and the loop.
fn loop_of_block(block: &Block) -> Option<(usize, &Expr)> {
    let [Stmt::Expr(Expr::MethodCall(enter), Some(_)), Stmt::Expr(repeated, None)] =
        block.stmts.as_slice()
    else {
        return None;
    };
    if enter.method != "enter_loop" || !is_walk(&enter.receiver) {
        return None;
    }
    Some((number(enter.args.first()?)?, repeated))
}

/// Returns the variables that a text in a `format!` or the like may name, as in `"{name:?}"`.
fn captured_by_literal(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    })
}
