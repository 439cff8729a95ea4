//! A chopping as JSON.
//!
//! | key | value |
//! | --- | --- |
//! | `optimizations` | array of the names of the optimizations in use |
//! | `procedures` | array of objects: `name`; `on_snapshot`: whether it reads from a snapshot and is not in the graph; `is_as_written`: whether its pieces are ranges of its steps as written; `steps`; `pieces`, in their order; `merges` |
//! | `procedures[].steps` | array of objects: `label`; `access`; `table` |
//! | `procedures[].pieces` | array of objects: `kind`, such as `conflicting`; `steps`, by number |
//! | `procedures[].merges` | array of objects: `steps`, two numbers; `why`, in words |
//! | `conflicts` | array of objects: `steps`, two of `[procedure, step]` by position and number; `table`; `rows`: whether the conflict is in inserted or deleted rows; `columns`, or `null` for any; `standing`: `edge`, `by_token`, or `deferred`; `publisher`: the deferred step, or `null` |
//! | `static_tables` | array of names |
//! | `not_deferred` | array of objects: `step`, as `[procedure, step]`; `why` |
//! | `not_by_token` | array of objects: `table`; `why` |

use serde::Serialize;
use serde_json::json as value;
use serde_json::{Value, to_string_pretty};
use weft_procedures::chopping::{Chopping, Conflict, Standing, StepNumber};

use super::names;
use weft_bench::stop::Stop;

#[derive(Serialize)]
struct Document {
    optimizations: Vec<String>,
    procedures: Vec<Value>,
    conflicts: Vec<Value>,
    static_tables: Vec<String>,
    not_deferred: Vec<Value>,
    not_by_token: Vec<Value>,
}

fn number(step: StepNumber) -> [usize; 2] {
    [step.procedure, step.step]
}

fn conflict_value(chopping: &Chopping, conflict: &Conflict) -> Value {
    let (standing, publisher) = match conflict.standing {
        Standing::Edge => ("edge", None),
        Standing::ByToken => ("by_token", None),
        Standing::Deferred { publisher } => ("deferred", Some(number(publisher))),
    };
    value!({
        "steps": [number(conflict.one), number(conflict.other)],
        "table": chopping.step(conflict.one).table,
        "rows": conflict.meeting.rows,
        "columns": conflict.meeting.columns,
        "standing": standing,
        "publisher": publisher,
    })
}

/// Returns the JSON object, indented.
///
/// # Errors
/// Serialization fails, which is not expected.
pub fn json(chopping: &Chopping) -> Result<String, Stop> {
    let procedures = chopping.each().enumerate().map(|(position, (outline, chopped))| {
        let steps = outline.steps.iter().map(
            |step| value!({ "label": step.label, "access": step.word(), "table": step.table }),
        );
        let pieces = chopped.pieces.iter();
        let pieces =
            pieces.map(|piece| value!({ "kind": piece.kind.name(), "steps": piece.steps }));
        let merges = chopped.merges.iter().map(|merge| {
            let why = chopping.explain(position, merge);
            value!({ "steps": [merge.one, merge.other], "why": why })
        });
        value!({
            "name": outline.name,
            "on_snapshot": chopped.on_snapshot,
            "is_as_written": chopped.is_as_written,
            "steps": steps.collect::<Vec<_>>(),
            "pieces": pieces.collect::<Vec<_>>(),
            "merges": merges.collect::<Vec<_>>(),
        })
    });
    let refused = chopping.not_deferred.iter();
    let document = Document {
        optimizations: names(chopping.options),
        procedures: procedures.collect(),
        conflicts: chopping.conflicts.iter().map(|it| conflict_value(chopping, it)).collect(),
        static_tables: chopping.static_tables.clone(),
        not_deferred: refused
            .map(|(step, why)| value!({ "step": number(*step), "why": chopping.explain_not_deferred(why) }))
            .collect(),
        not_by_token: chopping
            .without_token
            .iter()
            .map(|(table, why)| value!({ "table": table, "why": why }))
            .collect(),
    };
    let mut text = to_string_pretty(&document).map_err(std::io::Error::from)?;
    text.push('\n');
    Ok(text)
}
