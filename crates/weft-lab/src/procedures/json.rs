//! Procedures as JSON: an array with one object for each procedure, with everything that its shape has.
//!
//! | key | value |
//! | --- | --- |
//! | `name` | the procedure's name |
//! | `steps` | array of objects: `method`, of the transaction; `access`, such as `read` or the name of the commutative operation; `table`; `index`, if it looks rows up by one; `reads`, `writes`: columns, or `null` for any; `adds`: columns that it only adds to; `loops`: positions in `loops`, from the outermost; `keys`, `values`, `guards`: dependencies; `line` in the source |
//! | `loops` | array of objects: `first`, the number of its first step; `end`, the number after its last step; `depth`; `guards`; `line` |
//! | `rollbacks` | array of objects, one for each place where the procedure may return an error of its own: `before`, the number of steps that may have run by then; `line` |
//!
//! A dependency is an object. `on` is the step's number. `carried` is the depth of the outermost loop whose earlier
//! iterations the dependency comes from, or `null` if it is not carried by a loop.

use serde::Serialize;
use weft_procedures::{Dependency, Shape};

use weft_bench::stop::Stop;

#[derive(Serialize)]
struct Procedure {
    name: &'static str,
    steps: Vec<StepObject>,
    loops: Vec<LoopObject>,
    rollbacks: Vec<RollbackObject>,
}

#[derive(Serialize)]
struct StepObject {
    method: &'static str,
    access: String,
    table: &'static str,
    index: Option<&'static str>,
    reads: Option<&'static [&'static str]>,
    writes: Option<&'static [&'static str]>,
    adds: &'static [&'static str],
    loops: &'static [usize],
    keys: Vec<DependencyObject>,
    values: Vec<DependencyObject>,
    guards: Vec<DependencyObject>,
    line: u32,
}

#[derive(Serialize)]
struct LoopObject {
    first: usize,
    end: usize,
    depth: usize,
    guards: Vec<DependencyObject>,
    line: u32,
}

#[derive(Serialize)]
struct RollbackObject {
    before: usize,
    line: u32,
}

#[derive(Serialize)]
struct DependencyObject {
    on: usize,
    carried: Option<usize>,
}

fn dependencies(all: impl IntoIterator<Item = Dependency>) -> Vec<DependencyObject> {
    all.into_iter().map(|Dependency { on, carried }| DependencyObject { on, carried }).collect()
}

impl Procedure {
    fn of(shape: &Shape) -> Procedure {
        let steps = shape.steps.iter().map(|step| StepObject {
            method: step.method,
            access: step.access.to_string(),
            table: step.table.name,
            index: step.index,
            reads: step.reads,
            writes: step.writes,
            adds: step.adds,
            loops: step.loops,
            keys: dependencies(step.key_dependencies()),
            values: dependencies(step.value_dependencies()),
            guards: dependencies(step.guards.iter().copied()),
            line: step.line,
        });
        let loops = shape.loops.iter().map(|around| LoopObject {
            first: around.steps.0,
            end: around.steps.1,
            depth: around.depth,
            guards: dependencies(around.guards.iter().copied()),
            line: around.line,
        });
        let rollbacks = shape
            .rollbacks
            .iter()
            .map(|rollback| RollbackObject { before: rollback.before, line: rollback.line });
        Procedure {
            name: shape.name,
            steps: steps.collect(),
            loops: loops.collect(),
            rollbacks: rollbacks.collect(),
        }
    }
}

/// Returns the JSON array, indented.
///
/// # Errors
/// Serialization fails, which is not expected.
pub fn json(shapes: &[&Shape]) -> Result<String, Stop> {
    let procedures: Vec<Procedure> = shapes.iter().map(|shape| Procedure::of(shape)).collect();
    let mut text = serde_json::to_string_pretty(&procedures).map_err(std::io::Error::from)?;
    text.push('\n');
    Ok(text)
}
