//! `cargo lab procedures`: what the transactions of a workload do, and what follows from what, as text, as a
//! picture, and for other programs.

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

/// What is shown below the options.
const EXAMPLE: &str = "\
Example: a payment. Step 2 is the look-up by last name, which most have.

  $ cargo lab procedures tpcc --procedure payment
  payment
     0  read-write  warehouse
     1  read-write  district
     2  scan        customer by by_name
     3  read-write  customer             key from 2
     4  insert      history              values from 0, 1, 2

If others change customers' names meanwhile, what step 2 found is stale. A protocol that repairs
then runs 2 again, and 3 and 4, which depend on it, and leaves 0 and 1 alone. One that chops makes
pieces of steps: --format json has what it needs besides, columns, branches, loops and roll-backs.

In a loop 'from 3' means what step 3 has found in the same iteration, and 'from 3*' what it has
found in this or any earlier one. In pictures, solid arrows go to what has a key by them, dashed
ones to what has values by them, dotted ones to what may not run at all; a star is at those from
earlier iterations, and loops have boxes.";

/// The options of `cargo lab procedures`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct ProceduresArguments {
    /// The workload
    #[arg(value_parser = PossibleValuesParser::new(WORKLOADS))]
    workload: String,

    /// The procedure, by its name; without the option all of them
    #[arg(long, short, value_name = "NAME")]
    procedure: Option<String>,

    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// A file to write to, in place of standard output
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// How the procedures are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table, for people
    Text,
    /// A graph, in Graphviz's language
    Dot,
    /// A picture
    Svg,
    /// All that is known, for programs
    Json,
}

/// Writes the procedures of a workload.
///
/// # Errors
/// There is no such procedure, or the file or standard output cannot be written.
pub fn run(arguments: &ProceduresArguments) -> Result<(), Stop> {
    let shapes =
        of_workload(&arguments.workload).expect("the parser lets only these names through");
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
