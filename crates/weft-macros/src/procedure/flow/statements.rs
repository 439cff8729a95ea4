//! The analysis of blocks, branches and loops.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprBreak, ExprIf, ExprMatch, Label, Lifetime, Local, Pat, Stmt};

use super::state::{Origins, State, Value};
use super::{Analysis, Frame};
use crate::procedure::is_walk_call;

impl Analysis<'_> {
    pub(super) fn block(&mut self, block: &Block) -> Value {
        self.scoped(|this| this.statements(&block.stmts))
    }

    fn statements(&mut self, statements: &[Stmt]) -> Value {
        let mut value = Value::default();
        for statement in statements {
            value = Value::default();
            match statement {
                Stmt::Local(local) => self.local(local),
                Stmt::Item(_) => {}
                Stmt::Expr(expression, None) => value = self.expression(expression),
                Stmt::Expr(expression, Some(_)) => {
                    self.expression(expression);
                }
                Stmt::Macro(called) => {
                    value = self.macro_call(&called.mac);
                }
            }
        }
        value
    }

    fn local(&mut self, local: &Local) {
        let Some(init) = &local.init else {
            self.bind(&local.pat, &Value::default());
            return;
        };
        let value = self.expression(&init.expr);
        if let Some((_, diverging)) = &init.diverge {
            let before = self.state.clone();
            self.guarded(value.origins.clone(), |this| this.expression(diverging));
            // The diverging branch does not come back.
            self.state = before;
        }
        self.bind_expression(&local.pat, &init.expr, &value);
    }

    // ---- branches ---------------------------------------------------------------------------

    pub(super) fn if_expression(&mut self, branch: &ExprIf) -> Value {
        self.scoped(|this| {
            let condition = this.condition(&branch.cond);
            let before = this.state.clone();
            let guard = condition.origins.clone();
            let mut value = Value::of(condition.origins);
            let taken = this.guarded(guard.clone(), |this| this.block(&branch.then_branch));
            value = value.and(&taken);
            let after = std::mem::replace(&mut this.state, before);
            if let Some((_, otherwise)) = &branch.else_branch {
                let other = this.guarded(guard, |this| this.expression(otherwise));
                value = value.and(&other);
            }
            this.state.join(&after);
            value
        })
    }

    /// Analyses a condition, whose `let`s bind names in the scope.
    fn condition(&mut self, condition: &Expr) -> Value {
        match condition {
            Expr::Let(matched) => {
                let value = self.expression(&matched.expr);
                self.bind_expression(&matched.pat, &matched.expr, &value);
                value
            }
            Expr::Binary(binary) if matches!(binary.op, syn::BinOp::And(_)) => {
                let left = self.condition(&binary.left);
                let guard = left.origins.clone();
                let right = self.guarded(guard, |this| this.condition(&binary.right));
                left.and(&right)
            }
            Expr::Paren(paren) => self.condition(&paren.expr),
            other => self.expression(other),
        }
    }

    pub(super) fn match_expression(&mut self, matched: &ExprMatch) -> Value {
        let value = self.expression(&matched.expr);
        let mut guard = value.origins.clone();
        let mut result = Value::of(value.origins.clone());
        let before = self.state.clone();
        let mut after = State::default();
        for arm in &matched.arms {
            self.state = before.clone();
            let of_arm = self.scoped(|this| {
                this.bind_expression(&arm.pat, &matched.expr, &value);
                if let Some((_, condition)) = &arm.guard {
                    let condition = this.condition(condition);
                    guard.add(&condition.origins);
                }
                this.guarded(guard.clone(), |this| this.expression(&arm.body))
            });
            result = result.and(&of_arm);
            after.join(&self.state);
        }
        result.origins.add(&guard);
        self.state = after;
        result
    }

    // ---- loops ------------------------------------------------------------------------------

    /// Analyses a loop. `over` is its pattern and what it iterates over, if it is a `for` loop. `counted` is its number, if it
    /// contains operations.
    pub(super) fn repeat(
        &mut self,
        label: Option<&Label>,
        over: Option<(&Pat, &Expr, &Value)>,
        is_endless: bool,
        body: impl Fn(&mut Self),
        counted: Option<usize>,
    ) {
        let goes_by = over.map(|(_, _, value)| value.origins.clone()).unwrap_or_default();
        let mut exits = Origins::default();
        let mut left: Option<State> = None;
        self.counted.extend(counted);
        loop {
            let entry = self.state.clone();
            self.frames.push(Frame {
                label: label.map(|label| label.name.ident.to_string()),
                is_loop: true,
                exits: exits.clone(),
                skips: Origins::default(),
                left: None,
                continued: None,
            });
            let guard = goes_by.clone().and(&exits);
            self.guarded(guard, |this| {
                this.scoped(|this| {
                    if let Some((pattern, expression, value)) = over {
                        let is_of_engine =
                            this.is_of_engine(expression) || this.is_many(expression);
                        this.bind(pattern, value);
                        if is_of_engine {
                            this.note_engine(pattern);
                        }
                    }
                    body(this);
                });
            });
            let frame = self.frames.pop().expect("it was pushed");
            if let Some(continued) = &frame.continued {
                self.state.join(continued);
            }
            if let Some(state) = frame.left {
                left.get_or_insert_default().join(&state);
            }
            let mut found = frame.exits;
            if let Some(number) = counted {
                let site = &self.steps.loops[number];
                let (steps, depth) = (site.steps, site.depth);
                let is_within = |step| (steps.0..steps.1).contains(&step);
                self.state.carry(depth, is_within);
                self.ends.carry(depth, &is_within);
                found.carry(depth, &is_within);
                self.loop_guards[number].add(&goes_by);
                self.loop_guards[number].add(&found);
            }
            self.state.join(&entry);
            found.add(&exits);
            if self.state == entry && found == exits {
                break;
            }
            exits = found;
        }
        match (is_endless, left) {
            (true, Some(left)) => self.state = left,
            (false, Some(left)) => self.state.join(&left),
            (_, None) => {}
        }
        if let Some(number) = counted {
            let depth = self.steps.loops[number].depth;
            self.state.leave(depth);
            self.counted.pop();
        }
    }

    /// Analyses a block with a label, which may be left early.
    pub(super) fn labelled_block(&mut self, label: &Label, block: &Block) -> Value {
        self.frames.push(Frame {
            label: Some(label.name.ident.to_string()),
            is_loop: false,
            exits: Origins::default(),
            skips: Origins::default(),
            left: None,
            continued: None,
        });
        let mut value = self.block(block);
        let frame = self.frames.pop().expect("it was pushed");
        if let Some(left) = &frame.left {
            self.state.join(left);
        }
        value.origins.add(&frame.exits);
        value
    }

    pub(super) fn break_expression(&mut self, left: &ExprBreak) {
        let value = left.expr.as_ref().map(|value| self.expression(value)).unwrap_or_default();
        self.exit(left.label.as_ref(), &value.origins, true);
    }

    /// Notes that an iteration, or a loop or block, is left here.
    pub(super) fn exit(&mut self, label: Option<&Lifetime>, value: &Origins, leaves: bool) {
        let decided_by = self.guard().and(value);
        let state = self.state.clone();
        for frame in self.frames.iter_mut().rev() {
            frame.skips.add(&decided_by);
            let is_target = match label {
                Some(label) => frame.label.as_deref() == Some(&*label.ident.to_string()),
                None => frame.is_loop,
            };
            if leaves || !is_target {
                frame.exits.add(&decided_by);
            }
            if is_target {
                let there = if leaves { &mut frame.left } else { &mut frame.continued };
                there.get_or_insert_default().join(&state);
                return;
            }
        }
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Notes whether the procedure ends with an error of its own, if it ends with this expression.
    pub(super) fn note_end(&mut self, end: &Expr) {
        match end {
            Expr::Block(block) => {
                self.note_tail(&block.block);
                if let Some(label) = &block.label {
                    let mut breaks = Breaks { label: &label.name, values: Vec::new() };
                    breaks.visit_block(&block.block);
                    breaks.values.into_iter().for_each(|value| self.note_end(value));
                }
            }
            Expr::If(branch) => {
                self.note_tail(&branch.then_branch);
                if let Some((_, otherwise)) = &branch.else_branch {
                    self.note_end(otherwise);
                }
            }
            Expr::Match(matched) => matched.arms.iter().for_each(|arm| self.note_end(&arm.body)),
            Expr::Paren(paren) => self.note_end(&paren.expr),
            Expr::Return(_) | Expr::Macro(_) => {}
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Ok")) =>
                {}
            other if is_walk_call(other) => {}
            other => self.note_rollback(other),
        }
    }

    /// Notes an error that is not the engine's, if a `?` on this expression may return one.
    pub(super) fn note_tried(&mut self, tried: &Expr, value: &Value) {
        if !self.fails_by_engine(tried) {
            self.note_rollback(tried);
            let guard = self.guard().and(&value.origins);
            self.ends.add(&guard);
        }
    }

    pub(super) fn note_rollback(&mut self, at: &Expr) {
        // In a loop, the steps of earlier iterations have run, too.
        let before = match self.counted.first() {
            Some(&outermost) => self.steps.loops[outermost].steps.1,
            None => self.steps_before,
        };
        self.rollbacks.push((before, at.span().unwrap().line()));
    }
}

/// Finds the values with which a block is left early.
struct Breaks<'a> {
    label: &'a Lifetime,
    values: Vec<&'a Expr>,
}

impl<'a> Visit<'a> for Breaks<'a> {
    fn visit_expr_break(&mut self, left: &'a ExprBreak) {
        if left.label.as_ref() == Some(self.label) {
            self.values.extend(left.expr.as_deref());
        }
        visit::visit_expr_break(self, left);
    }
}
