//! The analysis of operations, methods, functions, closures and macros.

use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{Expr, ExprCall, ExprClosure, ExprMethodCall, Macro};

use super::state::{Origins, Value, Variable};
use super::{Analysis, StepDependencies};
use crate::procedure::methods::{self, Argument};
use crate::procedure::{captured_by_literal, is_walk, name_of, number_of, number_of_scan};

impl Analysis<'_> {
    pub(super) fn method_call(&mut self, call: &ExprMethodCall) -> Value {
        if let Some(number) = number_of(call) {
            return self.operation(number, call);
        }
        if is_walk(&call.receiver) {
            // A hint, or the code that counts iterations.
            return Value::of(self.all(&call.args).origins);
        }
        let name = call.method.to_string();
        let receiver = self.expression(&call.receiver);
        let place = self.place(&call.receiver).filter(|&(variable, _)| self.may_change(variable));
        let arguments = self.arguments(call.args.iter(), &receiver);
        if matches!(&*name, "after" | "after_by")
            && let Some(scan) = number_of_scan(&call.receiver)
        {
            // Where a scan begins is a part of its key. (A step that comes later has no number yet when the scan
            // begins. The walk compares where the scan begins in any case.)
            let before =
                arguments.origins.0.iter().filter(|&(&on, carried)| on < scan || carried.is_some());
            let before = super::Origins(before.map(|(&on, &carried)| (on, carried)).collect());
            self.found[scan].keys.add(&before);
        }
        let mut result = receiver.clone().and(&arguments);
        if methods::returns_no_reference(&name) {
            result.aliases = arguments.aliases.clone();
            // A collection may hold references, and it holds what it is given.
            if !methods::only_reads(&name) {
                result.aliases.extend(&receiver.aliases);
            }
        } else if let Some((variable, _)) = place {
            result.aliases.insert(variable);
        }
        if !methods::only_reads(&name) {
            let span = call.method.span();
            if let Some((variable, field)) = place {
                self.write(variable, field.as_deref(), &arguments, false, span);
            }
            self.write_through(receiver.aliases, &arguments.origins, BTreeSet::new(), span);
        }
        self.change_through(&arguments, &result.origins, call.method.span());
        result
    }

    pub(super) fn call(&mut self, call: &ExprCall) -> Value {
        let function = self.expression(&call.func);
        let arguments = self.arguments(call.args.iter(), &function);
        let mut result = function.clone().and(&arguments);
        if !is_constructor(&call.func) {
            let origins = result.origins.clone();
            // A closure changes what it has captured.
            let changed = function.and(&arguments);
            self.change_through(&changed, &origins, call.span());
            result.aliases.extend(changed.aliases);
        }
        result
    }

    /// A function that gets these values may change everything that can be changed through them.
    fn change_through(&mut self, values: &Value, origins: &Origins, span: Span) {
        self.write_through(values.aliases.clone(), origins, BTreeSet::new(), span);
    }

    /// Analyses arguments. Closures come last, because their parameters come from the receiver and from the
    /// other arguments.
    fn arguments<'e>(
        &mut self,
        arguments: impl Iterator<Item = &'e Expr>,
        receiver: &Value,
    ) -> Value {
        let (closures, others): (Vec<_>, Vec<_>) =
            arguments.partition(|argument| matches!(argument, Expr::Closure(_)));
        let mut value = self.all(others);
        let given = receiver.clone().and(&value);
        for closure in closures {
            let Expr::Closure(closure) = closure else { continue };
            let of_closure = self.closure(closure, &given);
            value = value.and(&of_closure);
        }
        value
    }

    /// Analyses a closure whose arguments come from `given`: what it captures, and what it can change.
    pub(super) fn closure(&mut self, closure: &ExprClosure, given: &Value) -> Value {
        let before = self.state.clone();
        let outer_read = std::mem::take(&mut self.read);
        let outer_written = std::mem::take(&mut self.written);
        let first = self.kinds.len();
        // Its `break`s and `?`s do not leave the surrounding code.
        let frames = std::mem::take(&mut self.frames);
        let rollbacks = self.rollbacks.len();
        let value = self.guarded(given.origins.clone(), |this| {
            this.scoped(|this| {
                for input in &closure.inputs {
                    let from = this.kinds.len();
                    this.bind(input, given);
                    // The parameter may be a `&mut`.
                    for variable in from..this.kinds.len() {
                        this.kinds[variable].is_exclusive_reference = true;
                    }
                }
                this.expression(&closure.body)
            })
        });
        self.rollbacks.truncate(rollbacks);
        self.frames = frames;
        // The closure may run or not.
        self.state.join(&before);
        let origins = value.origins.and(&self.read);
        let written = std::mem::replace(&mut self.written, outer_written);
        let captured: BTreeSet<Variable> = written.into_iter().filter(|&it| it < first).collect();
        self.written.extend(&captured);
        self.read.add(&outer_read);
        let mut aliases = value.aliases;
        aliases.extend(captured);
        aliases.retain(|&alias| alias < first);
        Value { origins, aliases }
    }

    // ---- operations -------------------------------------------------------------------------

    fn operation(&mut self, number: usize, call: &ExprMethodCall) -> Value {
        let site = &self.steps.sites[number];
        let roles = site.method.arguments;
        // The first argument is the slot.
        let mut arguments = call.args.iter().skip(1);
        let mut found = StepDependencies::default();
        if let Some(table) = arguments.next() {
            let table = self.expression(table);
            found.keys.add(&table.origins);
        }
        for (argument, role) in arguments.zip(roles) {
            match role {
                Argument::Key => {
                    let key = self.expression(argument);
                    found.keys.add(&key.origins);
                }
                Argument::Value | Argument::Column | Argument::Operation | Argument::Index => {
                    let value = self.expression(argument);
                    found.values.add(&value.origins);
                }
                Argument::Change | Argument::NewRow => {
                    let value = match argument {
                        Expr::Closure(closure) => {
                            let outer = self.own_from.replace(self.kinds.len());
                            let value = self.closure(closure, &Value::default());
                            self.own_from = outer;
                            value
                        }
                        other => self.expression(other),
                    };
                    found.values.add(&value.origins);
                }
                Argument::Row => match argument {
                    Expr::Struct(row) if row.rest.is_none() => {
                        for field in &row.fields {
                            let value = self.expression(&field.expr);
                            let syn::Member::Named(name) = &field.member else { continue };
                            found.columns.push((name_of(name), value.origins));
                        }
                    }
                    other => {
                        let row = self.expression(other);
                        found.keys.add(&row.origins);
                        found.values.add(&row.origins);
                    }
                },
            }
        }
        found.guards = self.guard().and(&self.ends);
        let known = &mut self.found[number];
        known.keys.add(&found.keys);
        known.values.add(&found.values);
        known.guards.add(&found.guards);
        for (name, origins) in found.columns {
            match known.columns.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.add(&origins),
                None => known.columns.push((name, origins)),
            }
        }
        self.steps_before = self.steps_before.max(number + 1);
        let origins = Origins::of_step(number);
        self.read.add(&origins);
        Value::of(origins)
    }

    // ---- macros -----------------------------------------------------------------------------

    /// Analyses a macro. It reads every variable that it names, and may change those that can be changed.
    pub(super) fn macro_call(&mut self, called: &Macro) -> Value {
        let mut names = Vec::new();
        collect_names(called.tokens.clone(), &mut names);
        let variables: BTreeSet<Variable> =
            names.iter().filter_map(|name| self.lookup(name)).collect();
        let mut value = Value::default();
        for &variable in &variables {
            let origins = self.read(variable, None);
            value = value.and(&Value { origins, aliases: self.held(variable).aliases });
        }
        let name = called.path.segments.last().map(|last| last.ident.to_string());
        if !methods::macro_only_reads(&name.unwrap_or_default()) {
            for variable in
                variables.into_iter().filter(|&it| self.may_change(it)).collect::<Vec<_>>()
            {
                self.write(variable, None, &value.clone(), false, called.path.span());
                value.aliases.insert(variable);
            }
        }
        value
    }
}

/// Whether the called function is the constructor of a tuple struct or of a variant.
fn is_constructor(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let last = path.path.segments.last().map(|last| last.ident.to_string());
    last.is_some_and(|name| name.starts_with(char::is_uppercase))
}

fn collect_names(tokens: TokenStream, names: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => names.push(name_of(&name)),
            TokenTree::Group(group) => collect_names(group.stream(), names),
            TokenTree::Literal(literal) => {
                names.extend(captured_by_literal(&literal.to_string()).map(str::to_owned));
            }
            TokenTree::Punct(_) => {}
        }
    }
}
