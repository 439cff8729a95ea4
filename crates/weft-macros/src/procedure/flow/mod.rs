//! The data-flow analysis: which operations' results flow into which operations.
//!
//! It goes through the body statement by statement, as the body runs, and keeps track of what every variable is
//! computed from ([`state`]). It follows the branches one by one and joins their states. It repeats the body of
//! a loop until nothing new is found. A value that is assigned under a condition also depends on what the
//! condition depends on.
//!
//! It knows no types, so it assumes the worst. A method that is called on a variable which may be changed
//! counts as changing it, by everything that its arguments come from, unless the method is known not to. The
//! same holds for a function that gets the variable by `&mut`, and for a macro that names it. A variable that
//! may hold a `&mut` to another one is an *alias* of that: what is written to it is written to both. So the
//! analysis may find dependencies that do not exist, but it misses none. This holds for a body that is a
//! function of its arguments and of the results of its operations: it must not look at clocks, at random
//! numbers, at statics or through `Cell`s. (The transaction's own time is the same in all passes, so it counts as an
//! argument.)
//!
//! In reading order: this file, what a step is found to depend on; `state`; `statements`, blocks, branches,
//! loops; `expressions`; `calls`, methods, functions, closures and macros.

mod calls;
mod expressions;
mod state;
mod statements;

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::{Block, Error, Expr, Pat};

use super::function::{Kind, Parameter};
use super::steps::Steps;
use super::{adapted, is_walk_call, name_of};
pub use state::Origins;
use state::{State, Value, Variable, VariableState};

/// The dependencies of a step.
#[derive(Clone, Debug, Default)]
pub struct StepDependencies {
    pub keys: Origins,
    pub values: Origins,
    /// The origins of a row that is written out, column by column.
    pub columns: Vec<(String, Origins)>,
    pub guards: Origins,
}

/// The result of the analysis for the whole body.
pub struct Flow {
    pub steps: Vec<StepDependencies>,
    /// What decides about the iterations of each loop.
    pub loops: Vec<Origins>,
    /// The places where the body may end with an error of its own: the number of steps that may have run
    /// before, and the line.
    pub rollbacks: Vec<(usize, usize)>,
}

pub fn analyse(parameters: &[Parameter], steps: &Steps) -> Result<Flow, Error> {
    let mut analysis = Analysis::new(steps);
    analysis.scopes.push(Vec::new());
    for parameter in parameters {
        let variable = analysis.declare(&name_of(&parameter.name));
        analysis.kinds[variable].is_mutable = parameter.is_mutable;
        analysis.kinds[variable].is_exclusive_reference = parameter.kind == Kind::Exclusive;
        // A `&mut`, or a value that may contain one.
        let may_change = match parameter.kind {
            Kind::Shared => false,
            Kind::Exclusive => true,
            Kind::Owned => !is_plain(&parameter.of),
        };
        let aliases = if may_change { BTreeSet::from([variable]) } else { BTreeSet::new() };
        analysis.state.0.insert(variable, VariableState { aliases, ..VariableState::default() });
    }
    analysis.block(&steps.body);
    analysis.note_tail(&steps.body);
    match analysis.error {
        Some(error) => Err(error),
        None => {
            let Analysis { found, loop_guards, mut rollbacks, .. } = analysis;
            rollbacks.sort_unstable();
            rollbacks.dedup();
            Ok(Flow { steps: found, loops: loop_guards, rollbacks })
        }
    }
}

/// The message for a closure of an operation that writes to what it has captured.
const NOT_ITS_OWN: &str = "the closure of an operation changes a variable that is not its own, and is not \
                           run again where the operation keeps what it has returned: return the value \
                           from the closure, and write it behind the operation";

/// Whether a type is a number or another type that contains no references.
fn is_plain(of: &syn::Type) -> bool {
    const PLAIN: &[&str] = &[
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16",
        "u32", "u64", "u128", "usize", "String",
    ];
    let syn::Type::Path(path) = of else { return false };
    if PLAIN.iter().any(|plain| path.path.is_ident(plain)) {
        return true;
    }
    // An option, or a list, of such values.
    let Some(segment) = path.path.segments.last().filter(|_| path.path.segments.len() == 1) else {
        return false;
    };
    let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else { return false };
    (segment.ident == "Option" || segment.ident == "Vec")
        && arguments
            .args
            .iter()
            .all(|argument| matches!(argument, syn::GenericArgument::Type(of) if is_plain(of)))
}

/// How a variable was declared.
#[derive(Clone, Copy, Debug, Default)]
struct VariableKind {
    /// With `mut`.
    is_mutable: bool,
    /// As a `&mut`: no value that is not `Copy` can be moved out of its fields.
    is_exclusive_reference: bool,
    /// Whether it was declared as a scan, as a row of a scan or as the result of an operation. Its error is then the
    /// engine's, unless the variable is mutable and may hold another result now.
    is_of_engine: bool,
    /// The number of conditions and (`frames`) of loops around the declaration. A write under further
    /// conditions, or in further loops, may not happen. (A read of the variable is under all the conditions of
    /// the declaration.)
    guards: usize,
    frames: usize,
}

/// A loop, or a block with a label, around the present point.
struct Frame {
    label: Option<String>,
    is_loop: bool,
    /// What decides when it is left.
    exits: Origins,
    /// What decides whether the rest of an iteration is reached.
    skips: Origins,
    /// The state where the loop is left early, and (`continued`) where an iteration is.
    left: Option<State>,
    continued: Option<State>,
}

struct Analysis<'a> {
    steps: &'a Steps,
    found: Vec<StepDependencies>,
    loop_guards: Vec<Origins>,
    rollbacks: Vec<(usize, usize)>,
    state: State,
    /// The names in scope, the innermost last.
    scopes: Vec<Vec<(String, Variable)>>,
    kinds: Vec<VariableKind>,
    /// What decides whether this point is reached.
    guards: Vec<Origins>,
    frames: Vec<Frame>,
    /// What decides whether the procedure has ended before this point.
    ends: Origins,
    /// The origins of all variables that were read since this was cleared.
    read: Origins,
    /// The variables that were written since this was cleared.
    written: BTreeSet<Variable>,
    /// Set in the closure of an operation: variables with smaller numbers are not the closure's own.
    own_from: Option<Variable>,
    /// The number of steps that have been reached.
    steps_before: usize,
    /// The numbers of the loops with operations around this point, from the outermost.
    counted: Vec<usize>,
    error: Option<Error>,
}

impl<'a> Analysis<'a> {
    fn new(steps: &'a Steps) -> Self {
        Analysis {
            steps,
            found: vec![StepDependencies::default(); steps.sites.len()],
            loop_guards: vec![Origins::default(); steps.loops.len()],
            rollbacks: Vec::new(),
            state: State::default(),
            scopes: Vec::new(),
            kinds: Vec::new(),
            guards: Vec::new(),
            frames: Vec::new(),
            ends: Origins::default(),
            read: Origins::default(),
            written: BTreeSet::new(),
            own_from: None,
            steps_before: 0,
            counted: Vec::new(),
            error: None,
        }
    }

    fn refuse(&mut self, span: Span, message: impl std::fmt::Display) {
        let error = Error::new(span, message);
        match &mut self.error {
            // Loops are analysed more than once, so the same error may come again.
            Some(first) => {
                let known = first.clone().into_iter().any(|known| {
                    known.to_string() == error.to_string()
                        && format!("{:?}", known.span()) == format!("{:?}", error.span())
                });
                if !known {
                    first.combine(error);
                }
            }
            None => self.error = Some(error),
        }
    }

    // ---- variables --------------------------------------------------------------------------

    fn declare(&mut self, name: &str) -> Variable {
        let variable = self.kinds.len();
        let (guards, frames) = (self.guards.len(), self.frames.len());
        self.kinds.push(VariableKind { guards, frames, ..VariableKind::default() });
        self.state.0.insert(variable, VariableState::default());
        let scope = self.scopes.last_mut().expect("there is a scope");
        scope.push((name.to_owned(), variable));
        variable
    }

    fn lookup(&self, name: &str) -> Option<Variable> {
        let mut names = self.scopes.iter().rev().flat_map(|scope| scope.iter().rev());
        names.find(|(known, _)| known == name).map(|&(_, variable)| variable)
    }

    /// Runs `body` in a new scope.
    fn scoped<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.scopes.push(Vec::new());
        let result = body(self);
        let scope = self.scopes.pop().expect("it was pushed");
        let gone: BTreeSet<Variable> = scope.into_iter().map(|(_, variable)| variable).collect();
        self.state.forget(&gone);
        for frame in &mut self.frames {
            let states = frame.left.iter_mut().chain(&mut frame.continued);
            states.for_each(|state| state.forget(&gone));
        }
        result
    }

    /// Runs `body` under a condition.
    fn guarded<R>(&mut self, guard: Origins, body: impl FnOnce(&mut Self) -> R) -> R {
        self.guards.push(guard);
        let result = body(self);
        self.guards.pop();
        result
    }

    /// Returns what decides whether this point is reached.
    fn guard(&self) -> Origins {
        self.guard_within(0, 0)
    }

    /// As [`Analysis::guard`], but without the outermost `guards` conditions and `frames` loops.
    fn guard_within(&self, guards: usize, frames: usize) -> Origins {
        let skips = self.frames.iter().skip(frames).map(|frame| &frame.skips);
        self.guards.iter().skip(guards).chain(skips).fold(Origins::default(), Origins::and)
    }

    /// Returns what decides whether a variable is written at this point.
    fn guard_of_write(&self, variable: Variable) -> Origins {
        let kind = self.kinds[variable];
        self.guard_within(kind.guards, kind.frames)
    }

    /// Whether a variable can be changed by a function that gets it, or by a method that is called on it.
    fn may_change(&self, variable: Variable) -> bool {
        let kind = self.kinds[variable];
        let has_aliases = self.state.0.get(&variable).is_some_and(|held| !held.aliases.is_empty());
        kind.is_mutable || kind.is_exclusive_reference || has_aliases
    }

    fn held(&self, variable: Variable) -> VariableState {
        self.state.0.get(&variable).cloned().unwrap_or_default()
    }

    /// Reads a variable or one of its fields.
    fn read(&mut self, variable: Variable, field: Option<&str>) -> Origins {
        let held = self.held(variable);
        let origins = match field {
            Some(name) => held.field(name),
            None => held.all(),
        };
        self.read.add(&origins);
        origins
    }

    /// Writes to a variable or one of its fields. Without `replaces` the old value may stay.
    fn write(
        &mut self,
        variable: Variable,
        field: Option<&str>,
        value: &Value,
        replaces: bool,
        span: Span,
    ) {
        if self.own_from.is_some_and(|first| variable < first) {
            self.refuse(span, NOT_ITS_OWN);
        }
        let origins = self.guard_of_write(variable).and(&value.origins);
        self.written.insert(variable);
        let aliases: BTreeSet<Variable> = {
            let held = self.state.0.entry(variable).or_default();
            let of_field = match field {
                Some(name) => held.fields.entry(name.to_owned()).or_default(),
                None => &mut held.whole,
            };
            match replaces {
                true => *of_field = origins.clone(),
                false => of_field.add(&origins),
            }
            if replaces && field.is_none() {
                held.fields.clear();
            }
            held.aliases.extend(&value.aliases);
            held.aliases.clone()
        };
        self.write_through(aliases, &value.origins, BTreeSet::from([variable]), span);
    }

    /// Writes to all variables that can be changed through aliases.
    fn write_through(
        &mut self,
        aliases: BTreeSet<Variable>,
        origins: &Origins,
        mut done: BTreeSet<Variable>,
        span: Span,
    ) {
        let mut to_do: Vec<Variable> = aliases.into_iter().collect();
        while let Some(alias) = to_do.pop() {
            if !done.insert(alias) {
                continue;
            }
            if self.own_from.is_some_and(|first| alias < first) {
                self.refuse(span, NOT_ITS_OWN);
            }
            self.written.insert(alias);
            let origins = self.guard_of_write(alias).and(origins);
            let held = self.state.0.entry(alias).or_default();
            held.whole.add(&origins);
            to_do.extend(&held.aliases);
        }
    }

    /// Binds the names of a pattern to a value.
    fn bind(&mut self, pattern: &Pat, value: &Value) {
        match pattern {
            Pat::Ident(ident) => {
                if let (Some(by_ref), Some(_)) = (&ident.by_ref, &ident.mutability) {
                    self.refuse(
                        by_ref.span,
                        "write `&mut` before what is matched, and not `ref mut`",
                    );
                }
                let name = name_of(&ident.ident);
                // Constants and variants look the same as names, but begin with a capital letter.
                if name.starts_with(|first: char| first.is_lowercase() || first == '_') {
                    let variable = self.declare(&name);
                    self.kinds[variable].is_mutable = ident.mutability.is_some();
                    let Value { origins: whole, aliases } = value.clone();
                    self.state.0.insert(
                        variable,
                        VariableState { whole, aliases, ..VariableState::default() },
                    );
                }
                if let Some((_, sub)) = &ident.subpat {
                    self.bind(sub, value);
                }
            }
            // All alternatives bind the same names, so the last one hides the others.
            Pat::Or(or) => or.cases.iter().for_each(|case| self.bind(case, value)),
            Pat::Paren(paren) => self.bind(&paren.pat, value),
            Pat::Reference(reference) => self.bind(&reference.pat, value),
            Pat::Slice(slice) => slice.elems.iter().for_each(|part| self.bind(part, value)),
            Pat::Struct(of) => of.fields.iter().for_each(|field| self.bind(&field.pat, value)),
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|part| self.bind(part, value)),
            Pat::TupleStruct(of) => of.elems.iter().for_each(|part| self.bind(part, value)),
            Pat::Type(typed) => self.bind(&typed.pat, value),
            Pat::Const(_)
            | Pat::Lit(_)
            | Pat::Path(_)
            | Pat::Range(_)
            | Pat::Rest(_)
            | Pat::Wild(_) => {}
            other => {
                let span = syn::spanned::Spanned::span(other);
                self.refuse(span, "the analysis cannot see what this pattern binds: write it out");
            }
        }
    }

    /// Binds the names of a pattern that is matched against an expression.
    fn bind_expression(&mut self, pattern: &Pat, expression: &Expr, value: &Value) {
        if let (Pat::Tuple(patterns), Expr::Tuple(values)) = (pattern, expression)
            && patterns.elems.len() == values.elems.len()
            && !patterns.elems.iter().any(|part| matches!(part, Pat::Rest(_)))
        {
            // All values are read before a name is bound.
            let parts: Vec<Value> = values
                .elems
                .iter()
                .map(|part| self.expression(part).and(&self.through_place(part)))
                .collect();
            for (pattern, value) in patterns.elems.iter().zip(&parts) {
                self.bind(pattern, value);
            }
            return;
        }
        let value = value.clone().and(&self.through_place(expression));
        let is_of_engine = self.is_of_engine(expression);
        self.bind(pattern, &value);
        if is_of_engine {
            self.note_engine(pattern);
        }
        if let (Pat::Ident(_), Expr::Reference(reference)) = (pattern, expression)
            && reference.mutability.is_some()
        {
            let last = self.kinds.len() - 1;
            self.kinds[last].is_exclusive_reference = true;
        }
    }

    /// If a pattern is matched against a place, returns the variable to which the pattern's parts may refer.
    fn through_place(&self, expression: &Expr) -> Value {
        let mut value = Value::default();
        if let Some((variable, _)) = self.place(expression)
            && self.may_change(variable)
            && !matches!(expression, Expr::Path(_) | Expr::Field(_) if self.is_copied(expression))
        {
            value.aliases.insert(variable);
        }
        value
    }

    /// Whether an expression is a field of a `&mut`, of which a `let` can only take a copy.
    fn is_copied(&self, expression: &Expr) -> bool {
        match (expression, self.place(expression)) {
            (Expr::Field(_), Some((variable, _))) => self.kinds[variable].is_exclusive_reference,
            _ => false,
        }
    }

    /// Whether an expression is an operation, a scan or a row of a scan, so that its error is the engine's.
    fn is_of_engine(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => {
                let variable = path.path.get_ident().and_then(|name| self.lookup(&name_of(name)));
                variable.is_some_and(|variable| self.kinds[variable].is_of_engine)
            }
            Expr::MethodCall(call) => {
                is_walk_call(expression)
                    || adapted(call).is_some_and(|adapted| self.is_of_engine(adapted))
            }
            Expr::Paren(paren) => self.is_of_engine(&paren.expr),
            Expr::Group(group) => self.is_of_engine(&group.expr),
            Expr::Reference(reference) => self.is_of_engine(&reference.expr),
            _ => false,
        }
    }

    /// Whether an expression is a read of many rows that has begun. Each of them is a result of the engine.
    fn is_many(&self, expression: &Expr) -> bool {
        let Expr::Try(tried) = expression else { return false };
        let Expr::MethodCall(call) = &*tried.expr else { return false };
        call.method == "get_many" && self.is_of_engine(&tried.expr)
    }

    /// Whether a `?` on an expression can only return an error of the engine.
    fn fails_by_engine(&self, tried: &Expr) -> bool {
        if let Expr::Path(path) = tried {
            let variable = path.path.get_ident().and_then(|name| self.lookup(&name_of(name)));
            return variable.is_some_and(|variable| {
                self.kinds[variable].is_of_engine && !self.kinds[variable].is_mutable
            });
        }
        self.is_of_engine(tried)
    }

    /// Notes that a pattern is bound to an operation, a scan or a row of a scan.
    fn note_engine(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(ident) => {
                if let Some(variable) = self.lookup(&name_of(&ident.ident)) {
                    self.kinds[variable].is_of_engine = true;
                }
            }
            Pat::TupleStruct(of) if of.path.is_ident("Some") => {
                of.elems.iter().for_each(|part| self.note_engine(part));
            }
            Pat::Paren(paren) => self.note_engine(&paren.pat),
            Pat::Type(typed) => self.note_engine(&typed.pat),
            _ => {}
        }
    }

    fn note_tail(&mut self, body: &Block) {
        if let Some(syn::Stmt::Expr(tail, None)) = body.stmts.last() {
            self.note_end(tail);
        }
    }
}
