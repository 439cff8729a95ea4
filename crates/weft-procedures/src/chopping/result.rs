//! The result of the analysis.

use std::fmt;

use super::Options;
use super::conflict::ConflictScope;
use super::order::{OrderConstraint, OrderReason};
use super::outline::{Outline, OutlineStep, Outlines};

/// The number of a step of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepNumber {
    /// The procedure's position in [`Outlines::procedures`].
    pub procedure: usize,
    /// The step's number in it.
    pub step: usize,
}

/// Procedures in pieces, and why they are in these pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Chopping {
    /// The procedures that were chopped.
    pub outlines: Outlines,
    /// The optimizations that were used.
    pub options: Options,
    /// The pieces of each procedure, in the order of [`Outlines::procedures`].
    pub procedures: Vec<ChoppedProcedure>,
    /// All conflicts between steps of procedures in the graph. A conflict of a step with itself, or of two
    /// steps of the same procedure, is between two instances.
    pub conflicts: Vec<Conflict>,
    /// The tables that no procedure changes.
    pub static_tables: Vec<String>,
    /// The steps that were candidates for deferral, and the reason why they are not deferred.
    pub not_deferred: Vec<(StepNumber, NotDeferred)>,
    /// The tables whose rows were declared as guarded by tokens but are not, and the reason.
    pub without_token: Vec<(String, String)>,
}

/// A procedure in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoppedProcedure {
    /// Whether it reads from a snapshot, and is not in the graph. Then it is one piece.
    pub on_snapshot: bool,
    /// Its pieces, in the order in which they run.
    pub pieces: Vec<Piece>,
    /// Why steps are in one piece. Each entry has merged two groups of steps, so a piece has one entry less
    /// than it has steps.
    pub merges: Vec<Merge>,
    /// Whether the pieces are ranges of the steps as written, so that the procedure can run in these pieces
    /// without being rewritten.
    pub is_as_written: bool,
}

/// A piece of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its steps, by number.
    pub steps: Vec<usize>,
    /// How it conflicts with others.
    pub kind: PieceKind,
}

/// How a piece conflicts with the pieces of other transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// It conflicts with others, and its place among them decides the transaction's place in the serial order.
    /// (Theorem 1: a procedure has at most one such piece.) A subscriber also reads deferred changes here.
    Conflicting,
    /// It changes, by commuting operations, what no other procedure reads: its order among others does not
    /// matter.
    Commutative,
    /// It touches rows whose token the procedure has, so no other transaction touches them.
    Exclusive,
    /// It is executed when the epoch ends; its order among others does not matter (§3.2).
    Deferred,
    /// It reads what no procedure changes, of tables that are changed.
    Reading,
    /// It reads tables that no procedure changes (§3.3).
    Static,
}

impl PieceKind {
    /// Returns the kind's name.
    pub fn name(self) -> &'static str {
        match self {
            PieceKind::Conflicting => "conflicting",
            PieceKind::Commutative => "commutative",
            PieceKind::Exclusive => "exclusive",
            PieceKind::Deferred => "deferred",
            PieceKind::Reading => "reading",
            PieceKind::Static => "static",
        }
    }
}

impl fmt::Display for PieceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A conflict between steps of two transactions.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// One of the steps.
    pub one: StepNumber,
    /// The other step, or the same one.
    pub other: StepNumber,
    /// What they conflict about.
    pub scope: ConflictScope,
    /// How the analysis treats it.
    pub treatment: ConflictTreatment,
}

impl Conflict {
    /// Returns the other end of the conflict.
    pub fn across(&self, from: StepNumber) -> Option<StepNumber> {
        match from {
            one if one == self.one => Some(self.other),
            other if other == self.other => Some(self.one),
            _ => None,
        }
    }
}

/// How the analysis treats a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictTreatment {
    /// It is a C-edge.
    Edge,
    /// It is dropped, because the conflict of the tokens implies it.
    ByToken,
    /// It is dropped, because one of the steps is deferred to the end of the epoch.
    Deferred {
        /// The step that is deferred. The other step is the subscriber's.
        publisher: StepNumber,
    },
}

/// A merge: two steps of a procedure are in one piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// One of the steps.
    pub one: usize,
    /// The other step.
    pub other: usize,
    /// The reason.
    pub reason: MergeReason,
}

/// The reason why two steps are in one piece.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeReason {
    /// There is an SC-cycle: this path from the one to the other, closed by the S-edge between them.
    Cycle(Vec<Vertex>),
    /// Each has to run before the other: these constraints lead from the one to the other and back, or to
    /// another step of the one's piece.
    Order(Vec<OrderConstraint>),
    /// The procedure may roll back at this step. So the step is in the first piece, with everything that has to
    /// run before it.
    Rollback {
        /// The step that may roll back.
        step: usize,
    },
    /// Both read deferred changes or conflict with others, which must happen at one moment.
    Subscribes,
}

/// A step of one of a procedure's two instances, in the chopping graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vertex {
    /// 1 or 2.
    pub instance: u8,
    /// The step.
    pub step: StepNumber,
}

/// The reason why a step is not deferred, although it changes what only others read.
#[derive(Clone, Debug, PartialEq)]
pub enum NotDeferred {
    /// Publisher and subscriber also conflict elsewhere, through these conflicts. (Positions in
    /// [`Chopping::conflicts`].)
    Connected(Vec<usize>),
    /// The subscriber, or a procedure connected to it, has deferred something that the publisher reads, or a
    /// procedure connected to the publisher.
    Mutual,
    /// The step has to be in one piece with steps that cannot be deferred.
    InPiece,
}

impl Chopping {
    /// Returns a step's outline.
    pub fn step(&self, number: StepNumber) -> &OutlineStep {
        &self.outline(number.procedure).steps[number.step]
    }

    /// Returns a procedure's outline.
    pub fn outline(&self, procedure: usize) -> &Outline {
        &self.outlines.procedures[procedure]
    }

    /// Returns the procedures with their pieces.
    pub fn each(&self) -> impl Iterator<Item = (&Outline, &ChoppedProcedure)> {
        self.outlines.procedures.iter().zip(&self.procedures)
    }

    /// Returns whether a procedure reads what other procedures defer.
    pub fn subscribes(&self, procedure: usize) -> bool {
        self.conflicts.iter().any(|conflict| match conflict.treatment {
            ConflictTreatment::Deferred { publisher } => {
                conflict.across(publisher).is_some_and(|step| step.procedure == procedure)
            }
            ConflictTreatment::Edge | ConflictTreatment::ByToken => false,
        })
    }

    /// Returns the position of the piece that contains a step.
    pub fn piece_of(&self, number: StepNumber) -> usize {
        let pieces = &self.procedures[number.procedure].pieces;
        let found = pieces.iter().position(|piece| piece.steps.contains(&number.step));
        found.expect("each step is in a piece")
    }

    /// Returns the conflict between two steps, if there is one.
    pub fn conflict(&self, one: StepNumber, other: StepNumber) -> Option<&Conflict> {
        self.conflicts.iter().find(|conflict| conflict.across(one) == Some(other))
    }

    /// Returns a step's full name: the procedure's name and the step's label.
    pub fn name(&self, number: StepNumber) -> String {
        let procedure = &self.outline(number.procedure).name;
        format!("{procedure}.{}", self.step(number).label)
    }

    /// Describes a conflict in words: the steps, and what they conflict about.
    pub fn in_words(&self, conflict: &Conflict) -> String {
        let (one, other) = (self.name(conflict.one), self.name(conflict.other));
        let table = &self.step(conflict.one).table;
        format!("{one} and {other}: {table} ({})", conflict.scope)
    }

    /// Says in words why two steps are in one piece.
    pub fn explain(&self, procedure: usize, merge: &Merge) -> String {
        let outline = self.outline(procedure);
        let label = |step: usize| outline.steps[step].label.as_str();
        match &merge.reason {
            MergeReason::Cycle(way) => self.cycle_in_words(way),
            MergeReason::Order(way) => {
                let each = way.iter().map(|constraint| {
                    let (first, then) = (label(constraint.first), label(constraint.then));
                    match constraint.why {
                        OrderReason::Value => format!("{then} uses what {first} finds"),
                        OrderReason::SameRow => {
                            format!("{first} and {then} may be on the same row")
                        }
                        OrderReason::Token => format!("{first} comes before {then}, by the token"),
                        OrderReason::Written => format!("{first} is written before {then}"),
                    }
                });
                format!("order: {}", each.collect::<Vec<_>>().join("; "))
            }
            MergeReason::Rollback { step } => {
                format!("it may roll back at {}, which is in the first piece", label(*step))
            }
            MergeReason::Subscribes => "what others have deferred is read at one moment".to_owned(),
        }
    }

    /// Says in words why a step is not deferred.
    pub fn explain_not_deferred(&self, why: &NotDeferred) -> String {
        match why {
            NotDeferred::Connected(way) => {
                let each = way.iter().map(|&position| self.in_words(&self.conflicts[position]));
                let each = each.collect::<Vec<_>>().join("; ");
                format!("its readers also conflict with it elsewhere: {each}")
            }
            NotDeferred::Mutual => "its readers defer what would have to come before it".to_owned(),
            NotDeferred::InPiece => {
                "it has to be in one piece with steps that are not deferred".to_owned()
            }
        }
    }

    fn cycle_in_words(&self, way: &[Vertex]) -> String {
        let mut words = String::from("cycle: ");
        for (position, vertex) in way.iter().enumerate() {
            if let Some(before) = position.checked_sub(1).map(|before| way[before]) {
                let is_sibling = before.instance == vertex.instance
                    && before.step.procedure == vertex.step.procedure;
                words += &match self.conflict(before.step, vertex.step) {
                    Some(conflict) if !is_sibling => format!(" -C[{}]- ", conflict.scope),
                    _ => " -S- ".to_owned(),
                };
            }
            words += &format!("{} ({})", self.name(vertex.step), vertex.instance);
        }
        words + " -S- back"
    }
}
