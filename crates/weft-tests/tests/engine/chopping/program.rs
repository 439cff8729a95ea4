//! Executable procedures: outlines, with the keys that an outline does not specify.

use weft::operation::OperationKind;
use weft_procedures::chopping::{
    Columns, Outline, OutlineAccess, OutlineLoop, OutlineStep, Outlines, Token,
};

/// The columns of each table.
pub const COLUMNS: [&str; 2] = ["a", "b"];
/// The number of iterations of each loop.
pub const ITERATIONS: usize = 2;

/// How a step chooses its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOf {
    /// One of the two keys that all runs share, computed from the argument and from the steps that it depends on.
    Shared,
    /// A key that no other run has. All such steps of a run have the same key.
    Own,
    /// The key that the given step has found, if it has found one.
    Found(usize),
}

/// A procedure.
#[derive(Clone, Debug)]
pub struct Program {
    pub outline: Outline,
    /// How each step chooses its key.
    pub keys: Vec<KeyOf>,
}

impl Program {
    pub fn new(name: &str) -> Program {
        let outline = Outline { name: name.to_owned(), steps: Vec::new(), loops: Vec::new() };
        Program { outline, keys: Vec::new() }
    }

    /// Adds a step with a generated label.
    pub fn push(&mut self, access: OutlineAccess, table: &str, key: KeyOf) -> &mut OutlineStep {
        let label = format!("step_{}", self.outline.steps.len());
        let mut step = OutlineStep::new(&label, access, table);
        if let KeyOf::Found(on) = key {
            (step.keys, step.guards) = (vec![on], vec![on]);
        }
        self.outline.steps.push(step);
        self.keys.push(key);
        self.outline.steps.last_mut().expect("a step was pushed")
    }

    /// Returns whether a step is in a loop.
    pub fn is_in_loop(&self, step: usize) -> bool {
        self.outline.loops_around(step).next().is_some()
    }

    pub fn add_loop(&mut self, first: usize, end: usize) {
        self.outline.loops.push(OutlineLoop { first, end, over: Vec::new() });
    }
}

/// A set of procedures that run concurrently.
#[derive(Clone, Debug)]
pub struct Set {
    pub programs: Vec<Program>,
    pub tokens: Vec<Token>,
}

impl Set {
    /// Returns the outlines, which are all that the analysis is told.
    pub fn outlines(&self) -> Outlines {
        let procedures = self.programs.iter().map(|program| program.outline.clone()).collect();
        Outlines { procedures, tokens: self.tokens.clone() }
    }

    /// Makes the steps that should use a token's key use shared keys.
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

/// Returns whether a set of columns includes a column.
pub fn has(columns: &Columns, name: &str) -> bool {
    match columns {
        Columns::Any => true,
        Columns::These(names) => names.contains(name),
    }
}

/// Applies an operation to a value.
pub fn applied(kind: OperationKind, value: i64, amount: i64) -> i64 {
    match kind {
        OperationKind::Add => value + amount,
        OperationKind::Mul => value * (amount % 3 + 2),
        OperationKind::Max => value.max(amount),
        other => panic!("the generator makes no such operation: {other:?}"),
    }
}
