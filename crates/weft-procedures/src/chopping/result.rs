//! What comes of the analysis.

use std::fmt;

use super::Options;
use super::conflict::Meeting;
use super::order::{Before, Why};
use super::outline::{Outline, OutlineStep, Outlines};

/// A step of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepNumber {
    /// The procedure's position in [`Outlines::procedures`].
    pub procedure: usize,
    /// The step's number in it.
    pub step: usize,
}

/// Procedures in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Chopping {
    /// The procedures that were chopped.
    pub outlines: Outlines,
    /// What was made use of.
    pub options: Options,
    /// Of each procedure its pieces, in the order of [`Outlines::procedures`].
    pub procedures: Vec<Chopped>,
    /// All conflicts between steps of those that are in the graph. Of a step with itself, or of two of the
    /// same procedure, if they are of two instances.
    pub conflicts: Vec<Conflict>,
    /// The tables that no procedure changes.
    pub static_tables: Vec<String>,
    /// The steps that could be deferred but for this.
    pub not_deferred: Vec<(StepNumber, NotDeferred)>,
    /// The tables whose rows are declared to go by tokens, but for this.
    pub without_token: Vec<(String, String)>,
}

/// A procedure in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Chopped {
    /// Whether it reads from a snapshot, and is not in the graph: then it is one piece.
    pub on_snapshot: bool,
    /// Its pieces, in the order in which they run.
    pub pieces: Vec<Piece>,
    /// Why steps are in one piece. Each entry has put together two groups of steps, so there is one less of
    /// them in a piece than it has steps.
    pub merges: Vec<Merge>,
    /// Whether the pieces are ranges of steps as they are written, so that the procedure can be run in
    /// these pieces without being written anew.
    pub is_as_written: bool,
}

/// A piece of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Its steps, by number.
    pub steps: Vec<usize>,
    /// How it meets others.
    pub kind: PieceKind,
}

/// How a piece meets others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// It conflicts with others, and its place among them decides the transaction's (Theorem 1: a procedure
    /// has one at most). It is also where a subscriber reads what was deferred.
    Conflicting,
    /// It changes what nobody looks at, by what commutes: in any order with others.
    Commutative,
    /// It touches rows whose token the procedure has, and so nobody else.
    Exclusive,
    /// It is executed when the epoch ends, in any order with others (§3.2).
    Deferred,
    /// It reads what nobody changes, of tables that are changed.
    Reading,
    /// It reads tables that nobody changes (§3.3).
    Static,
}

impl PieceKind {
    /// In a word.
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
    /// A step.
    pub one: StepNumber,
    /// Another, or the same.
    pub other: StepNumber,
    /// In what.
    pub meeting: Meeting,
    /// What becomes of it.
    pub standing: Standing,
}

impl Conflict {
    /// The other end.
    pub fn across(&self, from: StepNumber) -> Option<StepNumber> {
        match from {
            one if one == self.one => Some(self.other),
            other if other == self.other => Some(self.one),
            _ => None,
        }
    }
}

/// What becomes of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a C-edge.
    Edge,
    /// It is decided by the conflict in tokens.
    ByToken,
    /// It is deferred to the end of the epoch.
    Deferred {
        /// The step that is deferred. The other is the subscriber's.
        publisher: StepNumber,
    },
}

/// That two steps of a procedure are in one piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// One of them.
    pub one: usize,
    /// The other.
    pub other: usize,
    /// Why.
    pub reason: Reason,
}

/// Why two steps are in one piece.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// There is an SC-cycle: this way from the one to the other, closed by the S-edge between them.
    Cycle(Vec<Vertex>),
    /// Each has to run before the other: this way leads from the one to the other and back, or to another
    /// step of the one's piece.
    Order(Vec<Before>),
    /// The procedure may roll back at this step, so it is in the first piece, and so is whatever has to run
    /// before that.
    Rollback {
        /// The step that may roll back.
        step: usize,
    },
    /// Both read what others have deferred, or conflict with others: that is one moment for all.
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

/// Why a step is not deferred that changes what only others read.
#[derive(Clone, Debug, PartialEq)]
pub enum NotDeferred {
    /// Publisher and subscriber meet otherwise, too: by these conflicts, from the one to the other.
    /// (Positions in [`Chopping::conflicts`].)
    Connected(Vec<usize>),
    /// The subscriber, or one that it meets, has deferred something that the publisher reads, or one that
    /// it meets.
    Mutual,
    /// It has to be in one piece with steps that cannot be deferred.
    InPiece,
}

impl Chopping {
    /// A step's outline.
    pub fn step(&self, number: StepNumber) -> &OutlineStep {
        &self.outline(number.procedure).steps[number.step]
    }

    /// A procedure's outline.
    pub fn outline(&self, procedure: usize) -> &Outline {
        &self.outlines.procedures[procedure]
    }

    /// The procedures with their pieces.
    pub fn each(&self) -> impl Iterator<Item = (&Outline, &Chopped)> {
        self.outlines.procedures.iter().zip(&self.procedures)
    }

    /// The position of the piece that a step is in.
    pub fn piece_of(&self, number: StepNumber) -> usize {
        let pieces = &self.procedures[number.procedure].pieces;
        let found = pieces.iter().position(|piece| piece.steps.contains(&number.step));
        found.expect("each step is in a piece")
    }

    /// A conflict between two steps, if there is one.
    pub fn conflict(&self, one: StepNumber, other: StepNumber) -> Option<&Conflict> {
        self.conflicts.iter().find(|conflict| conflict.across(one) == Some(other))
    }

    /// A step's name: of the procedure and the step.
    pub fn name(&self, number: StepNumber) -> String {
        let procedure = &self.outline(number.procedure).name;
        format!("{procedure}.{}", self.step(number).label)
    }

    /// A conflict in words: the steps, and in what they meet.
    pub fn in_words(&self, conflict: &Conflict) -> String {
        let (one, other) = (self.name(conflict.one), self.name(conflict.other));
        let table = &self.step(conflict.one).table;
        format!("{one} and {other}: {table} ({})", conflict.meeting)
    }

    /// Why two steps are in one piece, in words.
    pub fn explain(&self, procedure: usize, merge: &Merge) -> String {
        let outline = self.outline(procedure);
        let label = |step: usize| outline.steps[step].label.as_str();
        match &merge.reason {
            Reason::Cycle(way) => self.cycle_in_words(way),
            Reason::Order(way) => {
                let each = way.iter().map(|before| {
                    let (first, then) = (label(before.first), label(before.then));
                    match before.why {
                        Why::Value => format!("{then} uses what {first} finds"),
                        Why::SameRow => format!("{first} and {then} may be on the same row"),
                        Why::Token => format!("{first} comes before {then}, by the token"),
                        Why::Written => format!("{first} is written before {then}"),
                    }
                });
                format!("order: {}", each.collect::<Vec<_>>().join("; "))
            }
            Reason::Rollback { step } => {
                format!("it may roll back at {}, which is in the first piece", label(*step))
            }
            Reason::Subscribes => "what others have deferred is read at one moment".to_owned(),
        }
    }

    /// Why a step is not deferred, in words.
    pub fn explain_not_deferred(&self, why: &NotDeferred) -> String {
        match why {
            NotDeferred::Connected(way) => {
                let each = way.iter().map(|&position| self.in_words(&self.conflicts[position]));
                let each = each.collect::<Vec<_>>().join("; ");
                format!("its readers meet it otherwise, too, by {each}")
            }
            NotDeferred::Mutual => "its readers defer, too, what has to come before it".to_owned(),
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
                    Some(conflict) if !is_sibling => format!(" -C[{}]- ", conflict.meeting),
                    _ => " -S- ".to_owned(),
                };
            }
            words += &format!("{} ({})", self.name(vertex.step), vertex.instance);
        }
        words + " -S- back"
    }
}
