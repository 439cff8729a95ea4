//! `cargo lab procedures`: shows the steps of a workload's transactions and their dependencies, as text, as a
//! picture, and as JSON.

mod dot;
mod json;
pub mod layout;
mod svg;
mod text;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use weft_procedures::Shape;
use weft_workloads::procedures::{WORKLOADS, of_workload};

use weft_bench::stop::Stop;

/// The help text below the options.
const EXAMPLE: &str = "\
Example: a payment. Step 4 is the look-up by last name, which most payments do.

  $ cargo lab procedures tpcc --procedure payment
  payment
     0  add         warehouse
     1  read        warehouse
     2  add         district
     3  read        district
     4  scan        customer by by_name
     5  read-write  customer             key from 4
     6  insert      history              values from 1, 3, 4

If another transaction changes customers' names at the same time, the result of step 4 is stale. A
protocol that repairs then runs step 4 again, and steps 5 and 6, which depend on it, but not 0 to
3. A protocol that chops makes pieces of steps. --format json has what it also needs: columns,
branches, loops and roll-backs.

In a loop 'from 3' is the result of step 3 in the same iteration, and 'from 3*' its result in this
or any earlier iteration. In pictures, a solid arrow leads to a step whose key depends on another,
a dashed arrow to one whose values do, and a dotted arrow to one that may not run at all. A star
marks dependencies on earlier iterations, and boxes are loops.";

/// The options of `cargo lab procedures`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct ProceduresArguments {
    /// The workload
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS))]
    workload: String,

    /// Show only the procedure of this name
    #[arg(long, short, value_name = "NAME")]
    procedure: Option<String>,

    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The format of the output.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// A graph, in Graphviz's language
    Dot,
    /// A picture
    Svg,
    /// Everything that is known, as JSON
    Json,
}

/// Writes the procedures of a workload.
///
/// # Errors
/// There is no such procedure, or the file or standard output cannot be written.
pub fn run(arguments: &ProceduresArguments) -> Result<(), Stop> {
    let shapes = of_workload(&arguments.workload).expect("the parser accepts only these names");
    let shapes = chosen(shapes, arguments.procedure.as_deref())?;
    let written = match arguments.format {
        Format::Text => text::text(&shapes),
        Format::Dot => dot::dot(&shapes),
        Format::Svg => svg::svg(&arguments.workload, &shapes),
        Format::Json => json::json(&shapes)?,
    };
    match &arguments.out {
        Some(path) => fs::write(path, written).map_err(|error| {
            Stop::Usage(format!("cannot write '{}' for --out: {error}", path.display()))
        }),
        None => Ok(io::stdout().lock().write_all(written.as_bytes())?),
    }
}

fn chosen(shapes: Vec<&'static Shape>, name: Option<&str>) -> Result<Vec<&'static Shape>, Stop> {
    let Some(name) = name else { return Ok(shapes) };
    match shapes.iter().find(|shape| shape.name == name) {
        Some(shape) => Ok(vec![*shape]),
        None => {
            let names: Vec<_> = shapes.iter().map(|shape| shape.name).collect();
            let names = names.join(", ");
            Err(Stop::Usage(format!("no procedure is called '{name}'; there are {names}")))
        }
    }
}
