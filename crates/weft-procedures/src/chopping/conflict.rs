//! When two steps conflict: when it may make a difference which of them runs first.
//!
//! Two steps meet in columns, and in rows as such: in whether a row is there. Steps on the same rows' same
//! columns conflict if one of them writes, unless both apply the same commutative operation. Whatever
//! inserts or deletes rows conflicts with whatever looks for rows, for it may find them, or not. Two inserts
//! do not: [they have different keys](OutlineAccess::Insert).
//!
//! Which rows a step touches is not known before it runs (§3.1), so steps of two transactions on the same
//! table are taken to be on the same rows. Without [`Options::columns`](super::Options::columns) they are
//! taken to be on the same columns, too.

use std::collections::BTreeSet;
use std::fmt;

use super::outline::{Columns, OutlineAccess, OutlineStep};
use weft::operation::OperationKind;

/// In what two steps conflict.
#[derive(Clone, Debug, PartialEq)]
pub struct Meeting {
    /// Whether one of them may insert or delete rows that the other looks for.
    pub rows: bool,
    /// The columns that one of them writes, and the other reads or writes; `None`: any, it is not known
    /// which.
    pub columns: Option<BTreeSet<String>>,
}

impl fmt::Display for Meeting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.rows.then(|| "rows".to_owned()));
        match &self.columns {
            None => parts.push("any column".to_owned()),
            Some(names) => parts.extend(names.iter().cloned()),
        }
        formatter.write_str(&parts.join(", "))
    }
}

/// How finely it is looked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// At columns, or else at tables.
    pub columns: bool,
    /// Whether commutative operations, and inserts, are known to commute.
    pub commutativity: bool,
}

impl Sight {
    /// As finely as can be: for steps of one procedure, of which it matters only whether one may be put
    /// before the other.
    pub(super) const FINE: Sight = Sight { columns: true, commutativity: true };
}

/// In what two steps conflict, if they do.
pub(super) fn meeting(one: &OutlineStep, other: &OutlineStep, sight: Sight) -> Option<Meeting> {
    if one.table != other.table {
        return None;
    }
    let rows = meet_in_rows(one.access, other.access, sight);
    let (one, other) = (Touched::by(one, sight), Touched::by(other, sight));
    let meets = [
        common(&one.reads, &other.changes()),
        common(&one.changes(), &other.reads),
        common(&one.writes, &other.changes()),
        common(&one.changes(), &other.writes),
        one.other_operations(&other),
    ];
    let columns = meets.into_iter().reduce(union).expect("it is not empty");
    if !rows && columns.is_none() {
        return None;
    }
    let columns = match columns {
        Columns::Any => None,
        Columns::These(names) => Some(names),
    };
    Some(Meeting { rows, columns })
}

fn meet_in_rows(one: OutlineAccess, other: OutlineAccess, sight: Sight) -> bool {
    use OutlineAccess::{Delete, Insert, Upsert};
    let changes_rows = |access| matches!(access, Insert | Upsert | Delete);
    match (one, other) {
        (Insert, Insert) => !sight.commutativity,
        _ => changes_rows(one) || changes_rows(other),
    }
}

/// The columns of a row that is there that a step touches.
struct Touched {
    reads: Columns,
    writes: Columns,
    operations: Vec<(String, OperationKind)>,
}

impl Touched {
    fn by(step: &OutlineStep, sight: Sight) -> Touched {
        // The row that is inserted was not there, and the one that is deleted is gone as a whole.
        if matches!(step.access, OutlineAccess::Insert | OutlineAccess::Delete) {
            let (reads, writes) = (Columns::NONE, Columns::NONE);
            return Touched { reads, writes, operations: Vec::new() };
        }
        let OutlineStep { mut reads, mut writes, mut operations, .. } = step.clone();
        let is_commutative = match sight.columns {
            true => sight.commutativity,
            false => sight.commutativity && step.operation().is_some(),
        };
        if !is_commutative {
            let names = operations.drain(..).map(|(name, _)| name);
            writes = union(writes, Columns::These(names.collect()));
        }
        if !sight.columns {
            let any = |columns: Columns| match columns.is_none() {
                true => columns,
                false => Columns::Any,
            };
            (reads, writes) = (any(reads), any(writes));
        }
        Touched { reads, writes, operations }
    }

    /// The columns that it changes by operations.
    fn operated(&self) -> Columns {
        Columns::These(self.operations.iter().map(|(name, _)| name.clone()).collect())
    }

    /// All columns that it changes.
    fn changes(&self) -> Columns {
        union(self.writes.clone(), self.operated())
    }

    /// The columns on which both apply operations, but of different kinds.
    fn other_operations(&self, other: &Touched) -> Columns {
        let differ = |(name, kind): &&(String, OperationKind)| {
            other.operations.iter().any(|(its, of)| its == name && of != kind)
        };
        let names = self.operations.iter().filter(differ).map(|(name, _)| name.clone());
        Columns::These(names.collect())
    }
}

fn union(one: Columns, other: Columns) -> Columns {
    match (one, other) {
        (Columns::These(mut one), Columns::These(other)) => {
            one.extend(other);
            Columns::These(one)
        }
        _ => Columns::Any,
    }
}

fn common(one: &Columns, other: &Columns) -> Columns {
    match (one, other) {
        (none, _) | (_, none) if none.is_none() => Columns::NONE,
        (Columns::Any, both) | (both, Columns::Any) => both.clone(),
        (Columns::These(one), Columns::These(other)) => {
            Columns::These(one.intersection(other).cloned().collect())
        }
    }
}
