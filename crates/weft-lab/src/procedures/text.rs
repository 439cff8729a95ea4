//! Procedures as tables of steps.

use std::fmt::Write;

use weft_procedures::{Dependency, Shape, Step};

/// Returns the procedures as text, one below the other.
pub fn text(shapes: &[&Shape]) -> String {
    let mut text = String::new();
    for (position, shape) in shapes.iter().enumerate() {
        if position > 0 {
            text.push('\n');
        }
        write_shape(&mut text, shape);
    }
    text
}

fn write_shape(text: &mut String, shape: &Shape) {
    text.push_str(shape.name);
    text.push('\n');
    let rows: Vec<[String; 4]> = shape
        .steps
        .iter()
        .enumerate()
        .map(|(number, step)| {
            let indent = "  ".repeat(step.loops.len());
            [format!("{indent}{number}"), step.access.to_string(), place(step), origins(step)]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (numbers, accesses, places) = (width(0).max(4), width(1), width(2));
    let mut loops = shape.loops.iter().peekable();
    for (number, [step, access, place, origins]) in rows.iter().enumerate() {
        while let Some(around) = loops.next_if(|around| around.steps.0 == number) {
            let indent = "  ".repeat(around.depth + 2);
            let by = match around.guards {
                [] => String::new(),
                guards => format!(", by {}", steps(guards.iter().copied())),
            };
            let _ = writeln!(text, "{indent}for each{by}:");
        }
        let is_indented = step.len() - step.trim_start().len();
        let aligned = format!("{:is_indented$}{:>4}", "", step.trim_start());
        let line = format!("{aligned:numbers$}  {access:accesses$}  {place:places$}  {origins}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Returns the table, and the index if the step uses one.
pub fn place(step: &Step) -> String {
    let mut place = step.table.name.to_owned();
    if let Some(index) = step.index {
        let _ = write!(place, " by {index}");
    }
    place
}

/// Returns the dependencies of a step in words.
fn origins(step: &Step) -> String {
    let key = steps(step.key_dependencies());
    let values = steps(step.value_dependencies());
    let guards = steps(step.guards.iter().copied());
    let named = [("key from", key), ("values from", values), ("if", guards)];
    let parts = named.into_iter().filter(|(_, steps)| !steps.is_empty());
    parts.map(|(what, steps)| format!("{what} {steps}")).collect::<Vec<_>>().join("; ")
}

fn steps(dependencies: impl Iterator<Item = Dependency>) -> String {
    let each = dependencies.map(|Dependency { on, carried }| match carried {
        Some(_) => format!("{on}*"),
        None => on.to_string(),
    });
    each.collect::<Vec<_>>().join(", ")
}
