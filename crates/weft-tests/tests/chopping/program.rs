//! Procedures that can be executed: outlines, with what they leave open.

use weft::operation::OperationKind;
use weft_procedures::chopping::{
    Columns, Outline, OutlineAccess, OutlineLoop, OutlineStep, Outlines, Token,
};

/// The columns of each table.
pub const COLUMNS: [&str; 2] = ["a", "b"];
/// How often loops go round.
pub const ITERATIONS: usize = 2;

/// By which key a step goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOf {
    /// One of the two that all share, by the arguments and the steps that it depends on.
    Shared,
    /// One that nobody else has; the same for all such steps of a run.
    Own,
    /// What a step has found, if it has.
    Found(usize),
}

/// A procedure.
#[derive(Clone, Debug)]
pub struct Program {
    pub outline: Outline,
    /// Of each step.
    pub keys: Vec<KeyOf>,
}

impl Program {
    pub fn new(name: &str) -> Program {
        let outline = Outline { name: name.to_owned(), steps: Vec::new(), loops: Vec::new() };
        Program { outline, keys: Vec::new() }
    }

    /// Adds a step, whose label is made for it.
    pub fn push(&mut self, access: OutlineAccess, table: &str, key: KeyOf) -> &mut OutlineStep {
        let label = format!("step_{}", self.outline.steps.len());
        let mut step = OutlineStep::new(&label, access, table);
        if let KeyOf::Found(on) = key {
            (step.keys, step.guards) = (vec![on], vec![on]);
        }
        self.outline.steps.push(step);
        self.keys.push(key);
        self.outline.steps.last_mut().expect("it was pushed")
    }

    /// Whether a step is in a loop.
    pub fn is_in_loop(&self, step: usize) -> bool {
        self.outline.loops_around(step).next().is_some()
    }

    pub fn add_loop(&mut self, first: usize, end: usize) {
        self.outline.loops.push(OutlineLoop { first, end, over: Vec::new() });
    }
}

/// Procedures that run beside each other.
#[derive(Clone, Debug)]
pub struct Set {
    pub programs: Vec<Program>,
    pub tokens: Vec<Token>,
}

impl Set {
    /// What the analysis is told.
    pub fn outlines(&self) -> Outlines {
        let procedures = self.programs.iter().map(|program| program.outline.clone()).collect();
        Outlines { procedures, tokens: self.tokens.clone() }
    }

    /// Has all go by shared keys who should have a token.
    pub fn forget_tokens(&mut self) {
        let tables: Vec<&String> = self.tokens.iter().flat_map(|token| &token.tables).collect();
        for program in &mut self.programs {
            for (step, key) in program.outline.steps.iter().zip(&mut program.keys) {
                if tables.contains(&&step.table) && step.access != OutlineAccess::Insert {
                    *key = KeyOf::Shared;
                }
            }
        }
    }
}

/// Whether a step touches a column in such a way.
pub fn has(columns: &Columns, name: &str) -> bool {
    match columns {
        Columns::Any => true,
        Columns::These(names) => names.contains(name),
    }
}

/// What an operation makes of a value.
pub fn applied(kind: OperationKind, value: i64, amount: i64) -> i64 {
    match kind {
        OperationKind::Add => value + amount,
        OperationKind::Mul => value * (amount % 3 + 2),
        OperationKind::Max => value.max(amount),
        other => panic!("none is generated: {other:?}"),
    }
}
