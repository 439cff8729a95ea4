//! Finds the operations in the body, numbers them in the order in which they run, and rewrites the body for a
//! walk: `tx.get(…)` becomes `__weft_walk.at(3).get(&__weft_slot_3, …)`, and loops with operations count their
//! iterations. A use of the transaction that is not visibly an operation is refused.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};
use syn::{
    BinOp, Block, Error, Expr, ExprClosure, ExprMacro, ExprMethodCall, Ident, Item, Local, Macro,
    Member, Pat, UnOp, parse_quote, parse_quote_spanned,
};

use super::methods::{self, Access, Argument, Method};
use super::name_of;

/// The most loops around an operation: `weft_procedures::LOOPS_MAX`.
const LOOPS_MAX: usize = 3;

/// An operation in the body.
pub struct Site {
    pub method: &'static Method,
    pub line: usize,
    /// The expression for its table.
    pub table: Expr,
    pub index: Option<Expr>,
    /// The kind of the operation that `apply` is given.
    pub kind: Option<&'static str>,
    pub loops: Vec<usize>,
    /// The columns that it reads and writes, as far as they are known.
    pub reads: Option<Vec<String>>,
    pub writes: Option<Vec<String>>,
    pub adds: Vec<String>,
}

/// A loop of the body that contains operations.
pub struct LoopSite {
    pub steps: (usize, usize),
    pub depth: usize,
    pub line: usize,
}

/// The rewritten body, with its operations and loops.
pub struct Steps {
    pub body: Block,
    pub sites: Vec<Site>,
    pub loops: Vec<LoopSite>,
    /// Whether the body asks for the time.
    pub uses_time: bool,
}

pub fn find(body: &Block, transaction: &Ident) -> Result<Steps, Error> {
    let aliases = Aliases::find(body);
    let mut finder = Finder {
        transaction,
        aliases,
        sites: Vec::new(),
        loops: Vec::new(),
        around: Vec::new(),
        error: None,
        is_in_closure: false,
        uses_time: false,
    };
    let mut rewritten = body.clone();
    finder.visit_block_mut(&mut rewritten);
    if let Some(error) = finder.error {
        return Err(error);
    }
    let Finder { mut sites, loops, uses_time, .. } = finder;
    for (number, name) in bound_reads(&rewritten) {
        sites[number].reads = columns_of_row(body, &name);
    }
    Ok(Steps { body: rewritten, sites, loops, uses_time })
}

/// Returns the name of the walk. It resolves at the call site: the same name even if a macro has written
/// the body.
fn walk() -> Ident {
    Ident::new("__weft_walk", Span::call_site())
}

/// Whether tokens mention an identifier.
pub fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => name_of(&ident) == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Literal(literal) => {
            super::captured_by_literal(&literal.to_string()).any(|captured| captured == name)
        }
        TokenTree::Punct(_) => false,
    })
}

struct Finder<'a> {
    transaction: &'a Ident,
    aliases: Aliases,
    sites: Vec<Site>,
    loops: Vec<LoopSite>,
    around: Vec<usize>,
    error: Option<Error>,
    is_in_closure: bool,
    uses_time: bool,
}

impl Finder<'_> {
    fn refuse(&mut self, span: Span, message: impl std::fmt::Display) {
        let error = Error::new(span, message);
        match &mut self.error {
            Some(first) => first.combine(error),
            None => self.error = Some(error),
        }
    }

    fn is_transaction(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path.path.is_ident(self.transaction),
            Expr::Paren(paren) => self.is_transaction(&paren.expr),
            _ => false,
        }
    }

    fn mentions_transaction(&self, tokens: &impl ToTokens) -> bool {
        mentions(tokens.to_token_stream(), &name_of(self.transaction))
    }

    /// Rewrites an operation, whose arguments have been visited.
    fn operation(&mut self, call: &ExprMethodCall) -> Expr {
        let name = call.method.to_string();
        let span = call.method.span();
        let mut arguments: Vec<Expr> = call.args.iter().cloned().collect();
        let (method, args) = (&call.method, &call.args);
        // The time is the same in all passes, as an argument is.
        let is_time = name == "now" && args.is_empty();
        self.uses_time |= is_time;
        if is_time || methods::is_hint(&name) {
            let walk = walk();
            return parse_quote_spanned!(span=> #walk.#method(#args));
        }
        let Some(known) = methods::operation(&name) else {
            let known = methods::names();
            self.refuse(
                span,
                format!("not an operation that a procedure can have: there are {known}"),
            );
            return parse_quote!(());
        };
        if arguments.len() != known.arguments.len() + 1 {
            let expected = known.arguments.len() + 1;
            self.refuse(span, format!("`{name}` takes {expected} arguments"));
            return parse_quote!(());
        }
        if self.is_in_closure {
            self.refuse(
                span,
                "an operation within a closure, which may be called at any time or not at all: write a \
                 loop or a branch in its place",
            );
        }
        let number = self.sites.len();
        let table = self.aliases.resolve(&arguments[0]);
        let argument = |wanted| {
            let position = known.arguments.iter().position(|&argument| argument == wanted);
            position.map(|position| &arguments[position + 1])
        };
        let kind =
            argument(Argument::Operation).map(|operation| (operation.span(), kind_of(operation)));
        if let Some((span, None)) = kind {
            let message =
                "write the operation here, as in `Add(1)`, so that it can be seen which it is";
            self.refuse(span, message);
        }
        let index = argument(Argument::Index).cloned();
        if let Some(index) = &index
            && !matches!(index, Expr::Path(_))
        {
            self.refuse(index.span(), "name the index here, as in `Customer::BY_NAME`");
        }
        let mut adds = Vec::new();
        let columns = match known.name {
            // They only look whether there are rows.
            "contains" | "len" => Some(Vec::new()),
            _ => argument(Argument::Column).and_then(columns_of),
        };
        let (reads, writes) = match (known.access, argument(Argument::Change)) {
            (_, Some(Expr::Closure(closure))) => {
                let changed;
                (changed, adds) = match argument(Argument::Column) {
                    Some(_) => columns_of_references(closure, columns),
                    None => columns_of_change(closure),
                };
                changed
            }
            (Access::Read | Access::Scan, _) => (columns, Some(Vec::new())),
            _ => (columns.clone(), columns),
        };
        self.sites.push(Site {
            method: known,
            line: span.unwrap().line(),
            table,
            index,
            kind: kind.and_then(|(_, kind)| kind),
            loops: self.around.clone(),
            reads,
            writes,
            adds,
        });
        let slot = format_ident!("__weft_slot_{number}");
        arguments.insert(0, parse_quote_spanned!(span=> &#slot));
        let turbofish = &call.turbofish;
        let walk = walk();
        parse_quote_spanned!(span=> #walk.at(#number).#method #turbofish(#(#arguments),*))
    }

    /// Rewrites a loop around operations. `body` is the repeated part. Returns the loop's number.
    fn counted(&mut self, span: Span, body: &mut Block) -> usize {
        let (number, depth) = (self.loops.len(), self.around.len());
        if depth == LOOPS_MAX {
            let message = format!(
                "an operation can be in at most {LOOPS_MAX} nested loops: merge some of them"
            );
            self.refuse(span, message);
        }
        let first = self.sites.len();
        self.loops.push(LoopSite { steps: (first, first), depth, line: span.unwrap().line() });
        self.around.push(number);
        self.visit_block_mut(body);
        self.around.pop();
        self.loops[number].steps.1 = self.sites.len();
        body.stmts.insert(0, parse_quote!(__weft_walk.iterate(#number);));
        number
    }
}

impl VisitMut for Finder<'_> {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            Expr::MethodCall(call)
                if self.is_transaction(&call.receiver)
                    && let Some(why) = methods::why_refused(&call.method.to_string()) =>
            {
                self.refuse(call.method.span(), why);
            }
            Expr::MethodCall(call) if self.is_transaction(&call.receiver) => {
                for argument in &mut call.args {
                    self.visit_expr_mut(argument);
                }
                let call = call.clone();
                *expression = self.operation(&call);
            }
            Expr::ForLoop(repeated) if self.mentions_transaction(&repeated.body) => {
                self.visit_expr_mut(&mut repeated.expr);
                let span = repeated.for_token.span;
                let number = self.counted(span, &mut repeated.body);
                let repeated = &*repeated;
                *expression = parse_quote!({ __weft_walk.enter_loop(#number); #repeated });
            }
            Expr::While(repeated) if self.mentions_transaction(repeated) => {
                // The condition may contain operations, so it becomes a part of each iteration.
                let (label, condition, body) = (&repeated.label, &repeated.cond, &repeated.body);
                let span = repeated.while_token.span;
                let attributes = &repeated.attrs;
                let mut repeated: syn::ExprLoop = parse_quote! {
                    #(#attributes)* #label loop { if #condition #body else { break } }
                };
                let number = self.counted(span, &mut repeated.body);
                *expression = parse_quote!({ __weft_walk.enter_loop(#number); #repeated });
            }
            Expr::Loop(repeated) if self.mentions_transaction(&repeated.body) => {
                let span = repeated.loop_token.span;
                let number = self.counted(span, &mut repeated.body);
                let repeated = &*repeated;
                *expression = parse_quote!({ __weft_walk.enter_loop(#number); #repeated });
            }
            Expr::Closure(closure) => {
                let before = std::mem::replace(&mut self.is_in_closure, true);
                visit_mut::visit_expr_closure_mut(self, closure);
                self.is_in_closure = before;
            }
            Expr::Async(_) | Expr::Await(_) => {
                self.refuse(
                    expression.span(),
                    "a procedure cannot contain `async` code, because it can wait only for the database: \
                     do this before or after the procedure",
                );
            }
            Expr::Unsafe(unsafe_block) => {
                self.refuse(
                    unsafe_block.unsafe_token.span,
                    "unsafe code may change what cannot be seen to depend on it: put it into a function",
                );
            }
            Expr::Path(path) if path.path.is_ident(self.transaction) => {
                let message = format!(
                    "the transaction is passed on here, and what is done with it cannot be seen: write \
                     the operations into the procedure itself, as `{}.get(…)`",
                    self.transaction
                );
                self.refuse(path.span(), message);
            }
            _ => visit_mut::visit_expr_mut(self, expression),
        }
    }

    fn visit_macro_mut(&mut self, called: &mut Macro) {
        if self.mentions_transaction(&called.tokens) {
            self.refuse(
                called.path.span(),
                "an operation within a macro: put its result into a variable before, and that into the \
                 macro",
            );
        }
    }

    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// Local variables that are another name for a table: `let auctions = &tables.auctions;`.
struct Aliases(Vec<(String, Option<Expr>)>);

impl Aliases {
    fn find(body: &Block) -> Aliases {
        struct Lets(Vec<(String, Option<Expr>)>);
        impl<'ast> Visit<'ast> for Lets {
            fn visit_local(&mut self, local: &'ast Local) {
                if let Pat::Ident(pattern) = &local.pat {
                    let name = name_of(&pattern.ident);
                    let path = local.init.as_ref().and_then(|init| match &*init.expr {
                        Expr::Reference(reference) if is_place(&reference.expr) => {
                            Some(Expr::Reference(reference.clone()))
                        }
                        _ => None,
                    });
                    match self.0.iter_mut().find(|(known, _)| *known == name) {
                        // Two variables have this name: which one is meant is not clear.
                        Some((_, known)) => *known = None,
                        None => self.0.push((name, path)),
                    }
                }
                visit::visit_local(self, local);
            }
        }
        let mut lets = Lets(Vec::new());
        lets.visit_block(body);
        Aliases(lets.0)
    }

    fn resolve(&self, table: &Expr) -> Expr {
        let Expr::Path(path) = table else { return table.clone() };
        let name = path.path.get_ident().map(name_of).unwrap_or_default();
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.and_then(|(_, path)| path.clone()).unwrap_or_else(|| table.clone())
    }
}

/// Whether an expression is a variable, or a field of one.
fn is_place(expression: &Expr) -> bool {
    match expression {
        Expr::Path(path) => path.path.get_ident().is_some(),
        Expr::Field(field) => is_place(&field.base),
        _ => false,
    }
}

/// Returns the kind of the operation that is applied, if it is written out.
fn kind_of(operation: &Expr) -> Option<&'static str> {
    let Expr::Call(call) = operation else { return None };
    let Expr::Path(path) = &*call.func else { return None };
    methods::operation_kind(&path.path.segments.last()?.ident.to_string())
}

/// Returns the columns of a `column_of!(Row.column)` or a `columns_of!(Row.{column, column})`, in their order.
fn columns_of(columns: &Expr) -> Option<Vec<String>> {
    let Expr::Macro(ExprMacro { mac, .. }) = columns else { return None };
    let name = &mac.path.segments.last()?.ident;
    if name != "column_of" && name != "columns_of" {
        return None;
    }
    match mac.tokens.clone().into_iter().last()? {
        TokenTree::Ident(name) => Some(vec![name_of(&name)]),
        TokenTree::Group(names) => {
            let names = names.stream().into_iter();
            let name = |token| match token {
                TokenTree::Ident(name) => Some(name_of(&name)),
                _ => None,
            };
            Some(names.filter_map(name).collect())
        }
        _ => None,
    }
}

/// The uses of a row through its name, or of columns through the names of references to them: the columns that are
/// used, and whether the row is used as a whole.
struct Uses<'a> {
    /// The name of the row.
    name: &'a str,
    /// The names of references to columns, each with its column.
    references: Vec<(String, String)>,
    read: Vec<String>,
    written: Vec<String>,
    added: Vec<String>,
    as_a_whole: bool,
}

impl<'a> Uses<'a> {
    fn of(name: &'a str) -> Self {
        let (references, read, written, added) = Default::default();
        Uses { name, references, read, written, added, as_a_whole: false }
    }

    fn is_row(&self, expression: &Expr) -> bool {
        is_variable(expression, self.name)
    }

    /// Returns the column that a variable refers to.
    fn referred(&self, variable: &Expr) -> Option<String> {
        let known = self.references.iter().find(|(name, _)| is_variable(variable, name));
        known.map(|(_, column)| column.clone())
    }

    /// Returns the column that an expression accesses.
    fn column(&self, place: &Expr) -> Option<String> {
        match place {
            Expr::Path(_) => self.referred(place),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => self.column(&unary.expr),
            Expr::Field(field) if self.is_row(&field.base) => match &field.member {
                Member::Named(name) => Some(name_of(name)),
                Member::Unnamed(_) => None,
            },
            Expr::Field(field) => self.column(&field.base),
            Expr::Index(index) => self.column(&index.expr),
            Expr::Paren(paren) => self.column(&paren.expr),
            Expr::Group(group) => self.column(&group.expr),
            _ => None,
        }
    }

    /// Visits the indexes within a place that is in a column. They may read other columns.
    fn visit_indexes(&mut self, place: &Expr) {
        match place {
            Expr::Unary(unary) => self.visit_indexes(&unary.expr),
            Expr::Field(field) => self.visit_indexes(&field.base),
            Expr::Index(index) => {
                self.visit_indexes(&index.expr);
                self.visit_expr(&index.index);
            }
            Expr::Paren(paren) => self.visit_indexes(&paren.expr),
            Expr::Group(group) => self.visit_indexes(&group.expr),
            _ => {}
        }
    }

    /// Returns the columns that are read and written, and those of them that are only added to.
    fn columns(self) -> (Columns, Vec<String>) {
        let Uses { mut read, mut written, added, .. } = self;
        let is_used = |column: &String| read.contains(column) || written.contains(column);
        let adds: Vec<String> = added.iter().filter(|column| !is_used(column)).cloned().collect();
        read.extend(added.iter().cloned());
        written.extend(added);
        ((Some(each_once(read)), Some(each_once(written))), each_once(adds))
    }

    fn note_written(&mut self, place: &Expr) {
        self.written.extend(self.column(place));
    }

    /// Notes the places that an assignment writes. Its left side may be a pattern of places.
    fn note_assigned(&mut self, left: &Expr) {
        match super::assigned_places(left) {
            Some(places) => places.into_iter().for_each(|place| self.note_assigned(place)),
            None => self.note_written(left),
        }
    }
}

impl Visit<'_> for Uses<'_> {
    fn visit_expr(&mut self, expression: &Expr) {
        match expression {
            Expr::Field(_) | Expr::Unary(_) => {
                if let Some(column) = self.column(expression) {
                    self.read.push(column);
                    self.visit_indexes(expression);
                    return;
                }
            }
            Expr::Path(_) if self.is_row(expression) => self.as_a_whole = true,
            // A reference that is passed on.
            Expr::Path(_) => {
                let column = self.referred(expression);
                self.read.extend(column.clone());
                self.written.extend(column);
            }
            Expr::Assign(assign) => self.note_assigned(&assign.left),
            Expr::Binary(binary)
                if matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_)) =>
            {
                let is_column = match &*binary.left {
                    Expr::Field(field) => self.is_row(&field.base),
                    Expr::Unary(unary) => self.referred(&unary.expr).is_some(),
                    _ => false,
                };
                if is_column && let Some(column) = self.column(&binary.left) {
                    self.added.push(column);
                    self.visit_expr(&binary.right);
                    return;
                }
                self.note_written(&binary.left);
            }
            Expr::Binary(binary) if is_assignment(&binary.op) => self.note_written(&binary.left),
            Expr::Reference(reference) if reference.mutability.is_some() => {
                self.note_written(&reference.expr);
            }
            Expr::MethodCall(call) if !methods::only_reads(&call.method.to_string()) => {
                self.note_written(&call.receiver);
            }
            Expr::MethodCall(call) => {
                if let Some(column) = self.referred(&call.receiver) {
                    self.read.push(column);
                    call.args.iter().for_each(|argument| self.visit_expr(argument));
                    return;
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    fn visit_macro(&mut self, called: &Macro) {
        self.as_a_whole |= mentions(called.tokens.clone(), self.name);
        for (_, column) in
            self.references.iter().filter(|(name, _)| mentions(called.tokens.clone(), name))
        {
            self.read.push(column.clone());
            self.written.push(column.clone());
        }
    }
}

/// Whether an expression is the variable of this name.
fn is_variable(expression: &Expr, name: &str) -> bool {
    let Expr::Path(path) = expression else { return false };
    path.path.get_ident().is_some_and(|ident| name_of(ident) == name)
}

pub fn is_assignment(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

fn each_once(mut columns: Vec<String>) -> Vec<String> {
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The columns that are read, and the columns that are written, each `None` if unknown.
type Columns = (Option<Vec<String>>, Option<Vec<String>>);

/// Returns what the closure of an `update` reads and writes of the row, which is its last argument, and the columns to
/// which it only adds.
fn columns_of_change(closure: &ExprClosure) -> (Columns, Vec<String>) {
    let unknown = ((None, None), Vec::new());
    let Some(Pat::Ident(row)) = closure.inputs.last() else { return unknown };
    let name = name_of(&row.ident);
    let mut uses = Uses::of(&name);
    uses.visit_expr(&closure.body);
    // A pattern that contains `ref mut` may write.
    let takes_references = mentions(closure.body.to_token_stream(), "ref");
    if uses.as_a_whole || takes_references { unknown } else { uses.columns() }
}

/// As [`columns_of_change`], for a closure that gets references to these columns.
fn columns_of_references(
    closure: &ExprClosure,
    columns: Option<Vec<String>>,
) -> (Columns, Vec<String>) {
    let Some(columns) = columns else { return ((None, None), Vec::new()) };
    let patterns: Vec<&Pat> = match closure.inputs.first() {
        Some(Pat::Tuple(tuple)) => tuple.elems.iter().collect(),
        pattern => pattern.into_iter().collect(),
    };
    let are_names = patterns.iter().all(|pattern| matches!(pattern, Pat::Ident(_) | Pat::Wild(_)));
    if !are_names || patterns.len() != columns.len() {
        return ((Some(columns.clone()), Some(columns)), Vec::new());
    }
    let mut uses = Uses::of("");
    for (pattern, column) in patterns.into_iter().zip(columns) {
        if let Pat::Ident(reference) = pattern {
            uses.references.push((name_of(&reference.ident), column));
        }
    }
    uses.visit_expr(&closure.body);
    uses.columns()
}

/// Returns the `get`s whose rows are bound to a variable, with its name: `let row = tx.get(…)?.expect(…);`.
fn bound_reads(body: &Block) -> Vec<(usize, String)> {
    struct Lets(Vec<(usize, String)>);
    impl<'ast> Visit<'ast> for Lets {
        fn visit_local(&mut self, local: &'ast Local) {
            if let (Pat::Ident(pattern), Some(init)) = (&local.pat, &local.init)
                && let Some(number) = row_of_get(&init.expr)
            {
                self.0.push((number, name_of(&pattern.ident)));
            }
            visit::visit_local(self, local);
        }
    }
    let mut lets = Lets(Vec::new());
    lets.visit_block(body);
    lets.0
}

/// If an expression is the row of a `get`, returns the number of that `get`.
fn row_of_get(expression: &Expr) -> Option<usize> {
    let Expr::MethodCall(call) = expression else { return None };
    if call.method != "expect" && call.method != "unwrap" {
        return None;
    }
    let Expr::Try(tried) = &*call.receiver else { return None };
    match &*tried.expr {
        Expr::MethodCall(get) if get.method == "get" => super::number_of(get),
        _ => None,
    }
}

/// Returns the columns that are used of rows in variables of this name, anywhere in the body.
fn columns_of_row(body: &Block, name: &str) -> Option<Vec<String>> {
    let mut uses = Uses::of(name);
    uses.visit_block(body);
    uses.read.append(&mut uses.added);
    (!uses.as_a_whole).then(|| each_once(uses.read))
}

/// Returns the tokens for a list of columns.
pub fn columns_tokens(columns: &Option<Vec<String>>, span: Span) -> TokenStream {
    match columns {
        Some(columns) => quote_spanned!(span=> ::core::option::Option::Some(&[#(#columns),*])),
        None => quote_spanned!(span=> ::core::option::Option::None),
    }
}
