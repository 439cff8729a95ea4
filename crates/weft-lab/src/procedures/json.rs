//! Procedures as JSON: an array with one object for each, with everything that their shapes have.
//!
//! | key | value |
//! | --- | --- |
//! | `name` | the procedure's |
//! | `steps` | array, of each step: `method`, the transaction's; `access`, as `read` or the commutative operation's name; `table`; `index`, if it looks rows up by one; `reads`, `writes`: columns, or `null` for any; `adds`: those that it only adds to; `loops`: positions in `loops`, from the outermost; `keys`, `values`, `guards`: what they depend on; `line` in the source |
//! | `loops` | array, of each loop: `first` and `end`, the numbers of its first step and of that behind its last; `depth`; `guards`; `line` |
//! | `rollbacks` | array, of each place where it may end with an error of its own: `before`, the number of steps that may have run by then; `line` |
//!
//! A dependency is an object: `on`, the step's number; `carried`, if it goes from earlier iterations to later
//! ones, the depth of the outermost loop in question, else `null`.

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

/// The array, on lines.
///
/// # Errors
/// None that could be explained.
pub fn json(shapes: &[&Shape]) -> Result<String, Stop> {
    let procedures: Vec<Procedure> = shapes.iter().map(|shape| Procedure::of(shape)).collect();
    let mut text = serde_json::to_string_pretty(&procedures).map_err(std::io::Error::from)?;
    text.push('\n');
    Ok(text)
}
