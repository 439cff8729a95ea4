//! Names of anomalies: which anomaly a cycle is.
//!
//! The class follows from the kinds of the edges alone. The special names are shapes within a class:
//!
//! | name | shape |
//! | --- | --- |
//! | lost update | a reader of x, overtaken by a writer of x, writes x itself |
//! | phantom | one anti-dependency and it is a scan's; or two transactions and a scan |
//! | read skew | one anti-dependency, and the reader also saw something of the other |
//! | write skew | two transactions, each overwrites what the other read |
//! | long fork | reads-from and anti-dependencies in turn; two or more transactions only read |
//! | read-only anomaly | a transaction that only reads, then two anti-dependencies in a row |
//! | stale read | one anti-dependency, and the real-time order |
//! | future read | reads-from, and the real-time order |

use crate::report::{AnomalyKind, Class, EdgeKind};
use crate::resolve::Reason;

/// One edge of a cycle, with every reason for it.
pub(crate) struct NamedEdge {
    pub(crate) kind: EdgeKind,
    pub(crate) strict: bool,
    pub(crate) reasons: Vec<Reason>,
}

/// What a cycle's transactions did, as far as names depend on it. `position` is that of the edge that leaves
/// the transaction.
pub(crate) trait Participants {
    /// Returns whether the transaction wrote nothing.
    fn is_read_only(&self, position: usize) -> bool;
    /// Returns whether the transaction installed a version of the key.
    fn writes(&self, position: usize, key: u32) -> bool;
}

/// Returns the name and the class of a cycle.
pub(crate) fn name(edges: &[NamedEdge], who: &impl Participants) -> (AnomalyKind, Class) {
    let count = |wanted: fn(EdgeKind) -> bool| edges.iter().filter(|e| wanted(e.kind)).count();
    let anti_dependencies = count(EdgeKind::is_anti_dependency);
    let predicates = count(|kind| kind == EdgeKind::PredicateReadWrite);
    let reads_from = count(|kind| kind == EdgeKind::WriteRead);
    if edges.iter().any(|edge| edge.strict) {
        let kind = match (anti_dependencies, reads_from) {
            (1, _) => AnomalyKind::StaleRead,
            (0, 1..) => AnomalyKind::FutureRead,
            _ => AnomalyKind::RealTimeViolation,
        };
        return (kind, Class::RealTime);
    }
    match (anti_dependencies, predicates) {
        (0, _) if reads_from == 0 => (AnomalyKind::DirtyWrite, Class::G0),
        (0, _) => (AnomalyKind::CircularInformationFlow, Class::G1c),
        (1, 1) => (AnomalyKind::Phantom, Class::GSingle),
        (1, _) => (name_single(edges, who), Class::GSingle),
        (_, 0) => (name_several(edges, who), Class::G2Item),
        _ if edges.len() == 2 => (AnomalyKind::Phantom, Class::G2),
        _ => match name_several(edges, who) {
            AnomalyKind::AntiDependencyCycle => {
                (AnomalyKind::PredicateAntiDependencyCycle, Class::G2)
            }
            special => (special, Class::G2),
        },
    }
}

fn name_single(edges: &[NamedEdge], who: &impl Participants) -> AnomalyKind {
    let position = edges.iter().position(|edge| edge.kind.is_anti_dependency());
    let position = position.expect("there is exactly one");
    // The edge into the transaction that the anti-dependency leaves.
    let before = &edges[(position + edges.len() - 1) % edges.len()];
    if overwrites_what_it_read(edges, who, position) {
        AnomalyKind::LostUpdate
    } else if before.kind == EdgeKind::WriteRead {
        AnomalyKind::ReadSkew
    } else {
        AnomalyKind::AntiDependencyCycle
    }
}

fn name_several(edges: &[NamedEdge], who: &impl Participants) -> AnomalyKind {
    let length = edges.len();
    let is_anti = |position: usize| edges[position % length].kind.is_anti_dependency();
    let is_read = |position: usize| edges[position % length].kind == EdgeKind::WriteRead;
    if length == 2 {
        let is_lost = overwrites_what_it_read(edges, who, 0);
        return if is_lost { AnomalyKind::LostUpdate } else { AnomalyKind::WriteSkew };
    }
    // The transactions that only read, each between a writer that it saw and a writer that it missed.
    let readers: Vec<usize> = (0..length)
        .filter(|&position| {
            who.is_read_only(position) && is_anti(position) && is_read(position + length - 1)
        })
        .collect();
    let anti_dependencies = (0..length).filter(|&position| is_anti(position)).count();
    if readers.len() >= 2 && readers.len() == anti_dependencies {
        AnomalyKind::LongFork
    } else if readers.len() == 1 && is_anti(readers[0] + 1) {
        AnomalyKind::ReadOnlyAnomaly
    } else {
        AnomalyKind::AntiDependencyCycle
    }
}

/// Returns whether the transaction that an anti-dependency leaves wrote the key that it had read.
fn overwrites_what_it_read(edges: &[NamedEdge], who: &impl Participants, position: usize) -> bool {
    edges[position].reasons.iter().any(|reason| who.writes(position, reason.key))
}

/// Returns the meaning of such a cycle, in a sentence.
pub(crate) fn meaning(kind: AnomalyKind) -> &'static str {
    match kind {
        AnomalyKind::DirtyWrite => {
            "Transactions overwrote each other's writes, one first here, the other first there."
        }
        AnomalyKind::CircularInformationFlow => {
            "Transactions saw or overwrote each other's writes, in a circle."
        }
        AnomalyKind::LostUpdate => {
            "A transaction read a key, another wrote it, and the first wrote it without having \
             seen that."
        }
        AnomalyKind::Phantom => {
            "A transaction scanned a range that another one changed, and each must come first."
        }
        AnomalyKind::ReadSkew => {
            "A transaction saw one effect of another and missed another effect of it."
        }
        AnomalyKind::WriteSkew => {
            "Two transactions read what the other one overwrote, and neither saw the other's write."
        }
        AnomalyKind::ReadOnlyAnomaly => {
            "Without the transaction that only reads there would be a serial order, but what it \
             read fits no serial order."
        }
        AnomalyKind::LongFork => {
            "Transactions that only read saw independent writes in opposite orders."
        }
        AnomalyKind::StaleRead => {
            "A transaction missed a write that must have taken effect before it was invoked."
        }
        AnomalyKind::FutureRead => {
            "A transaction saw a write that cannot have taken effect before it was complete."
        }
        AnomalyKind::RealTimeViolation => {
            "Every serial order of these transactions contradicts the times at which they ran."
        }
        _ => "Transactions missed each other's writes, in a circle.",
    }
}
