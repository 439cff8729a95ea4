//! Conflicts: when it can make a difference which of two steps runs first.
//!
//! Two steps conflict in columns, or in rows as such, that is, in whether a row exists. Steps on the same
//! columns of the same rows conflict if one of them writes, unless both apply the same commutative operation. A
//! step that inserts or deletes rows conflicts with a step that looks for rows, which may find them or not. Two
//! inserts do not conflict: [they have different keys](OutlineAccess::Insert).
//!
//! Which rows a step touches is not known before it runs (§3.1). So two steps of different transactions on the
//! same table count as steps on the same rows. Without [`Options::columns`](super::Options::columns) they also
//! count as steps on the same columns.

use std::collections::BTreeSet;
use std::fmt;

use super::outline::{Columns, OutlineAccess, OutlineStep};
use weft::operation::OperationKind;

/// What two steps conflict about.
#[derive(Clone, Debug, PartialEq)]
pub struct Meeting {
    /// Whether one of them may insert or delete rows for which the other looks.
    pub rows: bool,
    /// The columns that one of them writes, and the other reads or writes. `None` means any: it is not known
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

/// The granularity at which conflicts are found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// By columns; otherwise by tables.
    pub columns: bool,
    /// Whether commutative operations, and inserts, count as commuting.
    pub commutativity: bool,
}

impl Sight {
    /// The finest granularity, for steps of one procedure: there it only matters whether one may run before the
    /// other.
    pub(super) const FINE: Sight = Sight { columns: true, commutativity: true };
}

/// Returns what two steps conflict about, if they conflict.
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

/// The columns of an existing row that a step touches.
struct Touched {
    reads: Columns,
    writes: Columns,
    operations: Vec<(String, OperationKind)>,
}

impl Touched {
    fn by(step: &OutlineStep, sight: Sight) -> Touched {
        // An inserted row did not exist, and a deleted one is gone as a whole.
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

    /// Returns the columns that it changes by operations.
    fn operated(&self) -> Columns {
        Columns::These(self.operations.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Returns all columns that it changes.
    fn changes(&self) -> Columns {
        union(self.writes.clone(), self.operated())
    }

    /// Returns the columns on which both apply operations, but of different kinds.
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
