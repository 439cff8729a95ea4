//! Procedures as graphs for Graphviz: a cluster for each procedure, and within it one for each loop.

use std::fmt::Write;

use weft_procedures::{Dependency, Shape};

use super::text::place;

/// Returns one graph of all procedures.
pub fn dot(shapes: &[&Shape]) -> String {
    let mut dot = String::from("digraph procedures {\n  rankdir=TB;\n  node [shape=box];\n");
    for shape in shapes {
        let name = shape.name;
        let _ = writeln!(dot, "  subgraph \"cluster_{name}\" {{\n    label=\"{name}\";");
        write_steps(&mut dot, shape, 0, shape.steps.len(), 0);
        let edges = |dot: &mut String, to: usize, from: Dependency, style: &str| {
            let star = if from.carried.is_some() { ", label=\"*\"" } else { "" };
            let _ = writeln!(dot, "    {name}_{} -> {name}_{to} [style={style}{star}];", from.on);
        };
        for (to, step) in shape.steps.iter().enumerate() {
            step.key_dependencies().for_each(|from| edges(&mut dot, to, from, "solid"));
            step.value_dependencies().for_each(|from| edges(&mut dot, to, from, "dashed"));
            for &from in step.guards {
                edges(&mut dot, to, from, "dotted");
            }
        }
        dot.push_str("  }\n");
    }
    dot.push_str("}\n");
    dot
}

/// Writes the steps from `first` to before `end`, with the loops among them at `depth` or deeper.
fn write_steps(dot: &mut String, shape: &Shape, first: usize, end: usize, depth: usize) {
    let indent = "  ".repeat(depth + 2);
    let mut number = first;
    while number < end {
        let around = shape.loops.iter().position(|around| {
            around.depth == depth && around.steps.0 == number && around.steps.1 > number
        });
        match around {
            Some(position) => {
                let around = &shape.loops[position];
                let name = shape.name;
                let _ = writeln!(
                    dot,
                    "{indent}subgraph \"cluster_{name}_{position}\" {{\n{indent}  label=\"for each\"; \
                     style=rounded;"
                );
                write_steps(dot, shape, number, around.steps.1, depth + 1);
                let _ = writeln!(dot, "{indent}}}");
                number = around.steps.1;
            }
            None => {
                let step = &shape.steps[number];
                let (name, access, place) = (shape.name, step.access, place(step));
                let _ = writeln!(
                    dot,
                    "{indent}{name}_{number} [label=\"{number}  {access}\\n{place}\"];"
                );
                number += 1;
            }
        }
    }
}
