//! The analysis of expressions other than calls.

use syn::spanned::Spanned;
use syn::{Expr, Member};

use super::Analysis;
use super::state::{Value, Variable};
use crate::procedure::steps::is_assignment;
use crate::procedure::{assigned_places, loop_of_block, name_of};

impl Analysis<'_> {
    /// Returns what an expression comes from, and notes what it changes on the way.
    pub(super) fn expression(&mut self, expression: &Expr) -> Value {
        match expression {
            Expr::Path(path) => match path.path.get_ident().and_then(|name| {
                let name = name_of(name);
                self.lookup(&name)
            }) {
                Some(variable) => {
                    let origins = self.read(variable, None);
                    Value { origins, aliases: self.held(variable).aliases }
                }
                None => Value::default(),
            },
            Expr::Field(_) => self.field(expression),
            Expr::Lit(_) | Expr::Infer(_) | Expr::Const(_) => Value::default(),
            Expr::Array(array) => self.all(&array.elems),
            Expr::Tuple(tuple) => self.all(&tuple.elems),
            Expr::Repeat(repeat) => self.all([&*repeat.expr, &*repeat.len]),
            Expr::Range(range) => self.all(range.start.iter().chain(&range.end).map(|end| &**end)),
            Expr::Index(index) => self.all([&*index.expr, &*index.index]),
            Expr::Paren(paren) => self.expression(&paren.expr),
            Expr::Group(group) => self.expression(&group.expr),
            Expr::Cast(cast) => self.expression(&cast.expr),
            Expr::Unary(unary) => self.expression(&unary.expr),
            Expr::Struct(of) => {
                let fields = of.fields.iter().map(|field| &field.expr);
                self.all(fields.chain(of.rest.as_deref()))
            }
            Expr::Reference(reference) => {
                let mut value = self.expression(&reference.expr);
                if reference.mutability.is_some()
                    && let Some((variable, _)) = self.place(&reference.expr)
                {
                    value.aliases.insert(variable);
                }
                value
            }
            Expr::Binary(binary) if is_assignment(&binary.op) => {
                let value = self.expression(&binary.right);
                self.expression(&binary.left);
                self.assign(&binary.left, &value, false);
                Value::default()
            }
            Expr::Binary(binary) => {
                let left = self.expression(&binary.left);
                let is_lazy = matches!(binary.op, syn::BinOp::And(_) | syn::BinOp::Or(_));
                let right = if is_lazy {
                    let before = self.state.clone();
                    let guard = left.origins.clone();
                    let right = self.guarded(guard, |this| this.expression(&binary.right));
                    self.state.join(&before);
                    right
                } else {
                    self.expression(&binary.right)
                };
                left.and(&right)
            }
            Expr::Assign(assign) => {
                let value = self.expression(&assign.right);
                self.assign(&assign.left, &value, true);
                Value::default()
            }
            Expr::Let(matched) => {
                let value = self.expression(&matched.expr);
                self.bind_expression(&matched.pat, &matched.expr, &value);
                value
            }
            Expr::Try(tried) => {
                let value = self.expression(&tried.expr);
                self.note_tried(&tried.expr, &value);
                value
            }
            Expr::Block(block) => match (&block.label, loop_of_block(&block.block)) {
                (_, Some((number, repeated))) => self.loop_expression(repeated, Some(number)),
                (Some(label), None) => self.labelled_block(label, &block.block),
                (None, None) => self.block(&block.block),
            },
            Expr::If(branch) => self.if_expression(branch),
            Expr::Match(matched) => self.match_expression(matched),
            Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => {
                self.loop_expression(expression, None)
            }
            Expr::Break(left) => {
                self.break_expression(left);
                Value::default()
            }
            Expr::Continue(continued) => {
                self.exit(continued.label.as_ref(), &super::Origins::default(), false);
                Value::default()
            }
            Expr::Return(returned) => {
                if let Some(value) = &returned.expr {
                    self.expression(value);
                    self.note_end(value);
                }
                let guard = self.guard();
                self.ends.add(&guard);
                Value::default()
            }
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method_call(call),
            Expr::Closure(closure) => self.closure(closure, &Value::default()),
            Expr::Macro(called) => self.macro_call(&called.mac),
            other => {
                let message =
                    "the analysis cannot see what this depends on: write it in plain Rust";
                self.refuse(other.span(), message);
                Value::default()
            }
        }
    }

    pub(super) fn all<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr>) -> Value {
        expressions.into_iter().fold(Value::default(), |value, expression| {
            let next = self.expression(expression);
            value.and(&next)
        })
    }

    fn loop_expression(&mut self, repeated: &Expr, counted: Option<usize>) -> Value {
        match repeated {
            Expr::ForLoop(repeated) => {
                let mut over = self.expression(&repeated.expr);
                over = over.and(&self.through_place(&repeated.expr));
                let over = Some((&*repeated.pat, &*repeated.expr, &over));
                let body = |this: &mut Self| {
                    this.block(&repeated.body);
                };
                self.repeat(repeated.label.as_ref(), over, false, body, counted);
            }
            Expr::While(repeated) => {
                let branch: syn::ExprIf = {
                    let (condition, body) = (&repeated.cond, &repeated.body);
                    syn::parse_quote!(if #condition #body else { break })
                };
                let body = |this: &mut Self| {
                    this.if_expression(&branch);
                };
                self.repeat(repeated.label.as_ref(), None, true, body, counted);
            }
            Expr::Loop(repeated) => {
                let body = |this: &mut Self| {
                    this.block(&repeated.body);
                };
                self.repeat(repeated.label.as_ref(), None, true, body, counted);
                // The values with which it is left were noted where it is left.
                if let Some(number) = counted {
                    return Value::of(self.loop_guards[number].clone());
                }
                return Value::of(self.read.clone());
            }
            _ => {}
        }
        Value::default()
    }

    // ---- places -----------------------------------------------------------------------------

    /// Returns the variable that a place is in, and the field of the variable.
    pub(super) fn place(&self, expression: &Expr) -> Option<(Variable, Option<String>)> {
        match expression {
            Expr::Path(path) => {
                let variable = self.lookup(&name_of(path.path.get_ident()?))?;
                Some((variable, None))
            }
            Expr::Field(field) => {
                let (variable, of) = self.place(&field.base)?;
                let name = match (&*field.base, &field.member) {
                    (Expr::Path(_), Member::Named(name)) => Some(name_of(name)),
                    (Expr::Path(_), Member::Unnamed(index)) => Some(index.index.to_string()),
                    _ => of,
                };
                Some((variable, name))
            }
            Expr::Index(index) => self.place(&index.expr),
            Expr::Paren(paren) => self.place(&paren.expr),
            Expr::Group(group) => self.place(&group.expr),
            Expr::Unary(unary) => self.place(&unary.expr),
            _ => None,
        }
    }

    fn field(&mut self, expression: &Expr) -> Value {
        let Some((variable, Some(name))) = self.place(expression) else {
            let Expr::Field(field) = expression else { return Value::default() };
            return self.expression(&field.base);
        };
        // An index within the place is read as well.
        let mut origins = self.read(variable, Some(&name));
        origins.add(&self.indexes(expression).origins);
        let aliases = match self.kinds[variable].is_exclusive_reference {
            true => Default::default(),
            false => self.held(variable).aliases,
        };
        Value { origins, aliases }
    }

    /// Returns what the indexes of a place come from.
    fn indexes(&mut self, place: &Expr) -> Value {
        match place {
            Expr::Field(field) => self.indexes(&field.base),
            Expr::Index(index) => {
                let inner = self.indexes(&index.expr);
                inner.and(&self.expression(&index.index))
            }
            Expr::Paren(paren) => self.indexes(&paren.expr),
            Expr::Group(group) => self.indexes(&group.expr),
            Expr::Unary(unary) => self.indexes(&unary.expr),
            _ => Value::default(),
        }
    }

    pub(super) fn assign(&mut self, place: &Expr, value: &Value, replaces: bool) {
        if let Some(places) = assigned_places(place) {
            places.into_iter().for_each(|place| self.assign(place, value, replaces));
            return;
        }
        match place {
            Expr::Infer(_) => {}
            _ => {
                let indexes = self.indexes(place);
                let value = value.clone().and(&indexes);
                let Some((variable, field)) = self.place(place) else {
                    // A computed place: everything that can be changed through it is changed.
                    let through = self.expression(place);
                    let origins = value.origins.and(&through.origins);
                    self.write_through(through.aliases, &origins, Default::default(), place.span());
                    return;
                };
                // The whole of a variable, or of one of its fields, named directly.
                let is_whole = match place {
                    Expr::Path(_) => self.held(variable).aliases.is_empty(),
                    Expr::Field(field) => matches!(&*field.base, Expr::Path(_)),
                    _ => false,
                };
                self.write(variable, field.as_deref(), &value, replaces && is_whole, place.span());
            }
        }
    }
}
