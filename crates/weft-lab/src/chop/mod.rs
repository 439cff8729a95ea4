//! `cargo lab chop`: shows the pieces in which a workload's transactions may commit, their conflicts, and why steps
//! share a piece.

mod dot;
mod edges;
mod json;
mod svg;
mod text;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use weft_procedures::chopping::{Options, Outlines, admit, chop};
use weft_workloads::procedures::{WORKLOADS, outlines_of_workload};

use weft_bench::input::read_text;
use weft_bench::stop::Stop;

/// The most bytes that a file with outlines may have: 1 MiB.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The most steps that a file may have. Time and memory grow at least with the square of their number.
const STEPS_MAX: usize = 1000;

/// The help text below the options.
const EXAMPLE: &str = "\
A chopped transaction commits piece by piece. This is serializable if the chopping graph has no
SC-cycle. The graph has two instances of each procedure. S-edges connect the steps of an instance;
C-edges connect steps of different instances that conflict. Steps on a cycle with edges of both
kinds must be in one piece.

Example: transfers between accounts, in a file. docs/chopping.md has the grammar; --outlines shows a
built-in workload in this form.

  $ cat bank.txt
  procedure transfer
      from: update account (balance); may roll back
      to: add account (balance)
      add branch (turnover)
  end
  procedure audit
      scan account (balance)
  end

  $ cargo lab chop bank.txt --default
  2 procedures, conventional: commutativity, reordering

  transfer: 2 pieces
    1  conflicting  from, to
         from with to: cycle: transfer.from (1) -C[any column]- transfer.from (2) -C[balance]-
           transfer.to (1) -S- back
    2  commutative  branch
  ...

Kinds of pieces: 'conflicting', at most one for each procedure, whose order is the transactions'
order; 'commutative', in any order with all others; 'exclusive', on rows that no other transaction
accesses at the same time; 'deferred' to the end of the epoch; 'reading' only what no transaction
writes; 'static', on tables that never change. In pictures, ovals are conflicting pieces, red lines
are C-edges, black lines are S-edges, and dashed lines lead from deferred steps to their readers.";

/// The options of `cargo lab chop`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct ChopArguments {
    /// The workload, one of those of `cargo lab procedures`, or a file with outlines of procedures
    #[arg(value_name = "WORKLOAD|FILE")]
    of: String,

    /// Enable the paper's default: conflicts by table, with commutativity and reordering
    #[arg(long = "default", conflicts_with_all = ["all_optimizations", "plain"])]
    conventional: bool,

    /// Enable all optimizations (default)
    #[arg(long, conflicts_with = "plain")]
    all_optimizations: bool,

    /// Disable all optimizations
    #[arg(long = "none")]
    plain: bool,

    /// Also enable these optimizations
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum)]
    with: Vec<Optimization>,

    /// Disable these optimizations
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum)]
    without: Vec<Optimization>,

    /// Write pieces, conflicts and reasons as text (default, unless a picture or JSON is asked for)
    #[arg(long)]
    text: bool,

    /// Write everything as JSON
    #[arg(long, conflicts_with = "text")]
    json: bool,

    /// Draw the chopping graph into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the chopping graph into a file in Graphviz's language
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,

    /// Print the outlines of the procedures, in the form of a FILE, and chop nothing
    #[arg(long, conflicts_with_all = ["text", "json", "svg", "dot", "admit"])]
    outlines: bool,

    /// Check whether this procedure could be added while the others run in their pieces
    #[arg(long, value_name = "PROCEDURE")]
    admit: Option<String>,
}

/// The optimizations of the analysis.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Optimization {
    /// Find conflicts by column instead of by table
    Columns,
    /// Treat commutative operations as not conflicting
    Commutativity,
    /// Reorder independent steps if that makes more pieces
    Reordering,
    /// Run read-only transactions on snapshots
    Snapshots,
    /// Defer steps that commute with all but their readers to the end of the epoch
    Deferral,
    /// For rows that are guarded by tokens, count only conflicts on the tokens
    Tokens,
    /// Exclude tables that no procedure changes
    StaticTables,
}

impl Optimization {
    fn of(self, options: &mut Options) -> &mut bool {
        match self {
            Optimization::Columns => &mut options.columns,
            Optimization::Commutativity => &mut options.commutativity,
            Optimization::Reordering => &mut options.reordering,
            Optimization::Snapshots => &mut options.snapshots,
            Optimization::Deferral => &mut options.deferral,
            Optimization::Tokens => &mut options.tokens,
            Optimization::StaticTables => &mut options.static_tables,
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value().expect("every value is visible");
        value.get_name().to_owned()
    }
}

/// Returns the names of the optimizations in use.
fn names(mut options: Options) -> Vec<String> {
    let all = Optimization::value_variants().iter();
    all.filter(|it| *it.of(&mut options)).map(|it| it.name()).collect()
}

impl ChopArguments {
    fn options(&self) -> Result<Options, Stop> {
        let mut options = match (self.conventional, self.plain) {
            (true, _) => Options::CONVENTIONAL,
            (_, true) => Options::NONE,
            _ => Options::ALL,
        };
        for optimization in &self.with {
            if self.without.contains(optimization) {
                let name = optimization.name();
                return Err(Stop::Usage(format!("'{name}' is named by --with and by --without")));
            }
            *optimization.of(&mut options) = true;
        }
        for optimization in &self.without {
            *optimization.of(&mut options) = false;
        }
        Ok(options)
    }

    fn outlines(&self) -> Result<Outlines, Stop> {
        let name = &self.of;
        if let Some(outlines) = outlines_of_workload(name) {
            return Ok(outlines);
        }
        let text = read_text(Path::new(name), FILE_BYTES_MAX).map_err(|error| {
            let workloads = WORKLOADS.join(", ");
            Stop::Usage(format!(
                "'{name}' is not a workload ({workloads}), and cannot be read as a file: {error}"
            ))
        })?;
        let outlines: Outlines =
            text.parse().map_err(|error| Stop::Usage(format!("{name}: {error}")))?;
        if outlines.procedures.is_empty() {
            return Err(Stop::Usage(format!(
                "{name}: there is no procedure in it; a file has at least one, as in 'procedure p', 'read t', \
                 'end' on a line each (docs/chopping.md has the grammar)"
            )));
        }
        let steps: usize = outlines.procedures.iter().map(|procedure| procedure.steps.len()).sum();
        if steps > STEPS_MAX {
            return Err(Stop::Usage(format!(
                "{name}: it has {steps} steps, and the limit is {STEPS_MAX}, because the analysis compares every \
                 step with every other; leave out procedures whose tables no others use"
            )));
        }
        Ok(outlines)
    }
}

/// Chops the procedures of a workload, or of a file, and writes the result.
///
/// # Errors
/// There is no such workload or file, the file is too long or has no outlines, output cannot be written, or a
/// procedure cannot be admitted.
pub fn run(arguments: &ChopArguments) -> Result<(), Stop> {
    let options = arguments.options()?;
    let mut outlines = arguments.outlines()?;
    let mut output = io::stdout().lock();
    if arguments.outlines {
        return Ok(write!(output, "{outlines}")?);
    }
    let impossible = |error| Stop::Usage(format!("{}: {error}", arguments.of));
    let mut chopping = chop(&outlines, options).map_err(impossible)?;
    if let Some(name) = &arguments.admit {
        let found = outlines.procedures.iter().position(|procedure| procedure.name == *name);
        let Some(position) = found else {
            let all: Vec<_> = outlines.procedures.iter().map(|it| it.name.as_str()).collect();
            let all = all.join(", ");
            return Err(Stop::Usage(format!("no procedure is called '{name}'; there are {all}")));
        };
        let added = outlines.procedures.remove(position);
        chopping = admit(&outlines, &added, options).map_err(|error| {
            Stop::Failed(format!("'{name}' cannot be added to those that run: {error}"))
        })?;
    }
    let pictures = [(&arguments.svg, svg::svg as fn(&_) -> _), (&arguments.dot, dot::dot)];
    let is_drawn = arguments.svg.is_some() || arguments.dot.is_some();
    for (path, draw) in pictures {
        if let Some(path) = path {
            fs::write(path, draw(&chopping)).map_err(|error| {
                Stop::Usage(format!("cannot write '{}': {error}", path.display()))
            })?;
        }
    }
    if arguments.json {
        output.write_all(json::json(&chopping)?.as_bytes())?;
    } else if arguments.text || !is_drawn {
        output.write_all(text::text(&chopping).as_bytes())?;
    }
    Ok(())
}
