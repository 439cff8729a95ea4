//! The chopping graph for Graphviz: a cluster of pieces for each instance.

use std::fmt::Write;

use weft_procedures::chopping::{Chopping, PieceKind, StepNumber};

use super::edges::{Place, Sort, edges, in_graph};
use super::text::{label, title};

/// Returns the graph in Graphviz's language.
pub fn dot(chopping: &Chopping) -> String {
    let mut dot = String::from("graph chopping {\n  rankdir=TB;\n  node [shape=box];\n");
    let _ = writeln!(dot, "  label=\"{}\";", title(chopping));
    for procedure in in_graph(chopping) {
        let name = &chopping.outline(procedure).name;
        let pieces = &chopping.procedures[procedure].pieces;
        for instance in 1..=2 {
            let node = |piece| node(chopping, Place { procedure, instance, piece });
            let _ = writeln!(dot, "  subgraph \"cluster_{name}_{instance}\" {{");
            let _ = writeln!(dot, "    label=\"{name} ({instance})\";");
            for (position, piece) in pieces.iter().enumerate() {
                let steps = piece.steps.iter().map(|&step| {
                    let step = StepNumber { procedure, step };
                    label(chopping, step)
                });
                let steps = steps.collect::<Vec<_>>().join("\\n");
                let shape = match piece.kind {
                    PieceKind::Conflicting => ", shape=ellipse",
                    PieceKind::Deferred => ", style=dashed",
                    _ => "",
                };
                let _ = writeln!(dot, "    {} [label=\"{steps}\"{shape}];", node(position));
            }
            for position in 1..pieces.len() {
                let _ = writeln!(dot, "    {} -- {};", node(position - 1), node(position));
            }
            dot.push_str("  }\n");
        }
    }
    for edge in edges(chopping) {
        let tables = edge.tables.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let style = match edge.sort {
            Sort::Conflict => "",
            Sort::Deferred => ", style=dashed",
        };
        let (from, to) = (node(chopping, edge.from), node(chopping, edge.to));
        let _ = writeln!(
            dot,
            "  {from} -- {to} [color=red, constraint=false, label=\"{tables}\"{style}];"
        );
    }
    dot.push_str("}\n");
    dot
}

fn node(chopping: &Chopping, place: Place) -> String {
    let name = &chopping.outline(place.procedure).name;
    format!("\"{name}_{}_{}\"", place.instance, place.piece + 1)
}
