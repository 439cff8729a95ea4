//! The verdict, and the anomalies in words.
//!
//! Names are those of the field: phenomena G0 to G2 of Adya (*Weak Consistency*, PhD thesis, MIT 1999; Adya,
//! Liskov, O'Neil, *Generalized Isolation Level Definitions*, ICDE 2000), G-single of Elle (Kingsbury, Alvaro,
//! VLDB 2020), the read-only anomaly of Fekete, O'Neil, O'Neil (SIGMOD Record 2004), and the usual lost update,
//! write skew and phantom.

use std::fmt;

use serde::{Serialize, Serializer};

/// The consistency level that a history is checked against.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Some serial order of the transactions explains everything that they read.
    Serializable,
    /// In addition, a transaction that was complete before another was invoked precedes it in that order.
    #[default]
    Strict,
}

/// The level to check for, and the length of the report.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The level.
    pub level: Level,
    /// How many anomalies are reported at most. Further ones are only counted.
    pub anomalies_max: usize,
}

impl Default for Options {
    /// Strict serializability, and ten anomalies.
    fn default() -> Self {
        Options { level: Level::Strict, anomalies_max: 10 }
    }
}

/// The kinds of anomalies. If one kind is a special case of another, the special name is used.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AnomalyKind {
    /// Two writes made the same version of a key. Either the history itself is faulty, or the lists of a
    /// list-append history hold an element twice.
    DuplicateVersion,
    /// Of two lists that were read from one key, neither is a prefix of the other.
    IncompatibleOrder,
    /// A read saw a version that no transaction wrote.
    GarbageRead,
    /// A transaction did not see what it had written itself.
    OwnWriteNotSeen,
    /// A read found no row, although there was one during the whole history.
    ImpossibleAbsence,
    /// A read saw a version that an aborted transaction wrote (G1a).
    AbortedRead,
    /// A read saw a version that its writer replaced before it committed (G1b).
    IntermediateRead,
    /// A transaction read two different versions of one key, neither of which was its own.
    NonRepeatableRead,
    /// A cycle of overwrites alone: dirty write (G0).
    DirtyWrite,
    /// A cycle of overwrites and reads-from: circular information flow (G1c).
    CircularInformationFlow,
    /// A transaction overwrote a version that it had not seen, after reading that version's predecessor
    /// (G-single).
    LostUpdate,
    /// A scan missed, or should not have seen, a row that was inserted or deleted while it ran (G-single or
    /// G2).
    Phantom,
    /// A transaction saw one effect of another and missed another effect of it (G-single).
    ReadSkew,
    /// Two transactions each read what the other overwrites, of different keys (G2-item).
    WriteSkew,
    /// The history would be serializable without a transaction that only reads (G2-item).
    ReadOnlyAnomaly,
    /// Two transactions that only read saw two writes in opposite orders (G2-item).
    LongFork,
    /// A cycle with several anti-dependencies that has no better name (G2-item).
    AntiDependencyCycle,
    /// A cycle with several anti-dependencies, scans among them, that has no better name (G2).
    PredicateAntiDependencyCycle,
    /// A read missed a write that was complete before the reader was invoked.
    StaleRead,
    /// A read saw a write of a transaction that was invoked after the reader was complete.
    FutureRead,
    /// Another cycle that needs the real-time order.
    RealTimeViolation,
}

/// Adya's class of an anomaly, worst first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// Not in Adya's list: the values themselves make no sense.
    Inconsistent,
    /// Write cycle.
    G0,
    /// Aborted read.
    G1a,
    /// Intermediate read.
    G1b,
    /// Circular information flow.
    G1c,
    /// A cycle with exactly one anti-dependency.
    GSingle,
    /// A cycle with anti-dependencies on items.
    G2Item,
    /// A cycle with anti-dependencies, on predicates too.
    G2,
    /// A cycle that needs the real-time order.
    RealTime,
}

impl Class {
    /// Returns the class as papers write it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Inconsistent => "inconsistent",
            Class::G0 => "G0",
            Class::G1a => "G1a",
            Class::G1b => "G1b",
            Class::G1c => "G1c",
            Class::GSingle => "G-single",
            Class::G2Item => "G2-item",
            Class::G2 => "G2",
            Class::RealTime => "real-time",
        }
    }
}

impl AnomalyKind {
    /// Returns the anomaly's usual name.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::DuplicateVersion => "duplicate version",
            AnomalyKind::IncompatibleOrder => "incompatible order",
            AnomalyKind::GarbageRead => "garbage read",
            AnomalyKind::OwnWriteNotSeen => "own write not seen",
            AnomalyKind::ImpossibleAbsence => "impossible absence",
            AnomalyKind::AbortedRead => "aborted read",
            AnomalyKind::IntermediateRead => "intermediate read",
            AnomalyKind::NonRepeatableRead => "non-repeatable read",
            AnomalyKind::DirtyWrite => "dirty write",
            AnomalyKind::CircularInformationFlow => "circular information flow",
            AnomalyKind::LostUpdate => "lost update",
            AnomalyKind::Phantom => "phantom",
            AnomalyKind::ReadSkew => "read skew",
            AnomalyKind::WriteSkew => "write skew",
            AnomalyKind::ReadOnlyAnomaly => "read-only anomaly",
            AnomalyKind::LongFork => "long fork",
            AnomalyKind::AntiDependencyCycle => "anti-dependency cycle",
            AnomalyKind::PredicateAntiDependencyCycle => "predicate anti-dependency cycle",
            AnomalyKind::StaleRead => "stale read",
            AnomalyKind::FutureRead => "future read",
            AnomalyKind::RealTimeViolation => "real-time violation",
        }
    }
}

/// Why one transaction must precede another.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum EdgeKind {
    /// The second overwrote what the first wrote.
    WriteWrite,
    /// The second read what the first wrote.
    WriteRead,
    /// The second overwrote what the first read.
    ReadWrite,
    /// The second wrote a row that the first had scanned for and not found.
    PredicateReadWrite,
    /// The first was complete before the second was invoked.
    RealTime,
}

impl EdgeKind {
    /// Returns the edge's short name.
    pub fn name(self) -> &'static str {
        match self {
            EdgeKind::WriteWrite => "ww",
            EdgeKind::WriteRead => "wr",
            EdgeKind::ReadWrite => "rw",
            EdgeKind::PredicateReadWrite => "rw (predicate)",
            EdgeKind::RealTime => "real time",
        }
    }

    /// Returns whether it is an anti-dependency.
    pub fn is_anti_dependency(self) -> bool {
        matches!(self, EdgeKind::ReadWrite | EdgeKind::PredicateReadWrite)
    }
}

macro_rules! serialize_by_name {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}
serialize_by_name!(AnomalyKind, Class, EdgeKind);

/// One edge of a witness: `from` must precede `to`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Step {
    /// The number of the transaction that must come first.
    pub from: u64,
    /// The number of the transaction that must come second.
    pub to: u64,
    /// The kind of the reason.
    pub edge: EdgeKind,
    /// The reason as a sentence.
    pub why: String,
}

/// One anomaly and its witness.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Anomaly {
    /// Its name.
    pub kind: AnomalyKind,
    /// Adya's class.
    pub class: Class,
    /// The numbers of the transactions that take part.
    pub transactions: Vec<u64>,
    /// A cycle of edges, if the anomaly is a cycle: each step begins where the last one ended.
    pub steps: Vec<Step>,
    /// What happened, if the anomaly is not a cycle; otherwise what such a cycle means.
    pub explanation: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Class::Inconsistent => writeln!(f, "{}", self.kind)?,
            class => writeln!(f, "{} ({class})", self.kind)?,
        }
        writeln!(f, "  {}", self.explanation)?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {}. {}", index + 1, step.why)?;
            writeln!(f, "     so T{} precedes T{}  [{}]", step.from, step.to, step.edge)?;
        }
        if let Some(first) = self.steps.first() {
            writeln!(f, "  So T{0} precedes T{0}, which no serial order allows.", first.from)?;
        }
        Ok(())
    }
}

/// How many edges of each kind the graph has. Scans of many keys share edges.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct EdgeCounts {
    /// Edges because the second transaction overwrote what the first wrote.
    pub write_write: u64,
    /// Edges because the second transaction read what the first wrote.
    pub write_read: u64,
    /// Edges because the second transaction overwrote what the first read.
    pub read_write: u64,
    /// Edges because the second transaction inserted a row that the first had scanned for.
    pub predicate_read_write: u64,
    /// Edges of the real-time order, in a chain through the completions.
    pub real_time: u64,
}

impl EdgeCounts {
    /// Returns the number of all edges.
    pub fn total(&self) -> u64 {
        self.write_write
            + self.write_read
            + self.read_write
            + self.predicate_read_write
            + self.real_time
    }
}

/// The result of [`check`](crate::check()).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The level that was checked.
    pub level: Level,
    /// Transactions in the history.
    pub transactions: u64,
    /// Transactions that count as committed: they have that status, or an unknown outcome and visible writes.
    pub committed: u64,
    /// Transactions that are known to have aborted.
    pub aborted: u64,
    /// Transactions of unknown outcome whose writes no transaction saw.
    pub unknown: u64,
    /// Operations in the history.
    pub operations: u64,
    /// Whether the versions' order was known. If not, only what contradicts all orders was found.
    pub order_known: bool,
    /// The graph's edges.
    pub edges: EdgeCounts,
    /// How many anomalies there are: faults of single operations, and one for every strongly connected
    /// component.
    pub anomaly_count: u64,
    /// The first anomalies, worst class first.
    pub anomalies: Vec<Anomaly>,
}

impl Report {
    /// Returns whether the history has no anomaly at the level that was checked.
    pub fn is_ok(&self) -> bool {
        self.anomaly_count == 0
    }

    /// Returns whether the reported anomalies include one of this kind.
    pub fn has(&self, kind: AnomalyKind) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.kind == kind)
    }

    /// Returns the level's name, as in "serializable (strict)".
    pub fn level_name(&self) -> &'static str {
        match self.level {
            Level::Serializable => "serializable",
            Level::Strict => "serializable (strict)",
        }
    }

    /// Returns the cycles of the anomalies as a graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph anomalies {\n  rankdir=LR;\n  node [shape=box];\n");
        for (index, anomaly) in self.anomalies.iter().enumerate() {
            text += &format!("  subgraph cluster_{index} {{\n    label={};\n", {
                quoted(&format!("{} ({})", anomaly.kind, anomaly.class))
            });
            for id in &anomaly.transactions {
                text += &format!("    a{index}_{id} [label=\"T{id}\"];\n");
            }
            for step in &anomaly.steps {
                let label = quoted(&format!("{}\n{}", step.edge, step.why));
                text += &format!("    a{index}_{} -> a{index}_{}", step.from, step.to);
                text += &format!(" [label={label}];\n");
            }
            text += "  }\n";
        }
        text + "}\n"
    }
}

/// Returns a number with its noun: `1 edge`, `2 edges`.
fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a string literal in the language of Graphviz.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() {
            write!(f, "{}: ", self.level_name())?;
        } else {
            write!(f, "NOT {}: ", self.level_name())?;
        }
        writeln!(
            f,
            "{} ({} committed, {} aborted, {} of unknown outcome), {}",
            counted(self.transactions, "transaction"),
            self.committed,
            self.aborted,
            self.unknown,
            counted(self.operations, "operation")
        )?;
        let edges = &self.edges;
        writeln!(
            f,
            "{}: {} ww, {} wr, {} rw, {} rw (predicate), {} real time",
            counted(edges.total(), "edge"),
            edges.write_write,
            edges.write_read,
            edges.read_write,
            edges.predicate_read_write,
            edges.real_time
        )?;
        if !self.order_known {
            writeln!(f, "The order of the versions was inferred as far as the values tell it.")?;
        }
        for (index, anomaly) in self.anomalies.iter().enumerate() {
            write!(f, "\nanomaly {} of {}: {anomaly}", index + 1, self.anomaly_count)?;
        }
        let untold = self.anomaly_count - self.anomalies.len() as u64;
        if untold > 0 {
            writeln!(f, "\nand {untold} more")?;
        }
        Ok(())
    }
}
