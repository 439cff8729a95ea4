//! The edges of the chopping graph between pieces, as pictures show them.
//!
//! A picture has two instances of each procedure, side by side. The edges between two procedures are the same for
//! all four pairs of instances. A picture shows only those between the nearest pair: from the second instance of
//! the one to the first of the other. (The paper: "crossed lines are omitted for clarity".)

use std::collections::{BTreeMap, BTreeSet};

use weft_procedures::chopping::{Chopping, Standing};

/// A piece of an instance, in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The procedure's position.
    pub procedure: usize,
    /// The instance: 1 or 2.
    pub instance: usize,
    /// The piece's position.
    pub piece: usize,
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// A C-edge.
    Conflict,
    /// From a deferred step to its reader.
    Deferred,
}

/// An edge between pieces of two instances.
#[derive(Clone, Debug)]
pub struct Edge {
    pub from: Place,
    pub to: Place,
    pub sort: Sort,
    /// The tables in which the conflicts are.
    pub tables: BTreeSet<String>,
}

/// Returns all edges except S-edges.
pub fn edges(chopping: &Chopping) -> Vec<Edge> {
    let mut all: BTreeMap<(Place, Place, Sort), BTreeSet<String>> = BTreeMap::new();
    for conflict in &chopping.conflicts {
        let sort = match conflict.standing {
            Standing::Edge => Sort::Conflict,
            Standing::Deferred { .. } => Sort::Deferred,
            Standing::ByToken => continue,
        };
        let place = |number, instance| {
            let piece = chopping.piece_of(number);
            Place { procedure: number.procedure, instance, piece }
        };
        // Between two instances of the same procedure, a conflict of two steps gives two edges: draw both.
        let pairs = match conflict.one.procedure == conflict.other.procedure {
            true => vec![
                (place(conflict.one, 1), place(conflict.other, 2)),
                (place(conflict.other, 1), place(conflict.one, 2)),
            ],
            false => vec![(place(conflict.one, 2), place(conflict.other, 1))],
        };
        for (from, to) in pairs {
            let tables = all.entry((from, to, sort)).or_default();
            tables.insert(chopping.step(conflict.one).table.clone());
        }
    }
    let edges = all.into_iter();
    edges.map(|((from, to, sort), tables)| Edge { from, to, sort, tables }).collect()
}

/// Returns the positions of the procedures that are in the graph.
pub fn in_graph(chopping: &Chopping) -> impl Iterator<Item = usize> {
    let all = 0..chopping.procedures.len();
    all.filter(|&procedure| !chopping.procedures[procedure].on_snapshot)
}
