//! Tests of procedures: the dependencies that the analysis finds in functions of all kinds (`found`), and which
//! steps run again, are kept or are discarded when a procedure is walked again (`walked`), the operations that
//! procedures have (`operations`), and commits that rely on what was found (`pieces`). (The workloads have tests that
//! this is right for their transactions.)

mod found;
mod operations;
mod pieces;
mod walked;

use weft::{Error, Record, Table};
use weft_procedures::{Dependency, Shape, Step};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Node {
    #[record(key)]
    id: u32,
    next: u32,
    value: i64,
}

type Nodes = Table<Node>;

/// An error type of the procedures' own.
#[derive(Debug, PartialEq)]
enum Refused {
    TooLarge,
    Engine(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Engine(error.to_string())
    }
}

fn steps(dependencies: impl Iterator<Item = Dependency>) -> String {
    let each = dependencies.map(|Dependency { on, carried }| match carried {
        Some(depth) => format!("{on}*{depth}"),
        None => on.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

/// Returns the keys, values and guards of each step as text.
fn dependencies(shape: &Shape) -> Vec<String> {
    let of = |step: &Step| {
        let keys = steps(step.key_dependencies());
        let values = steps(step.value_dependencies());
        format!("{keys} | {values} | {}", steps(step.guards.iter().copied()))
    };
    shape.steps.iter().map(of).collect()
}
