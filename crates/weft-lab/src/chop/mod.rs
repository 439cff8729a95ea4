//! `cargo lab chop`: in which pieces the transactions of a workload may commit, which of them conflict, and why steps
//! are in one piece.

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

/// The most bytes of a file with outlines: 1 MiB.
const FILE_BYTES_MAX: usize = 1 << 20;

/// The most steps of a file. Time and memory grow with the square of their number, and more.
const STEPS_MAX: usize = 1000;

/// What is shown below the options.
const EXAMPLE: &str = "\
A transaction that is chopped commits piece by piece. That is serializable if there is no SC-cycle:
take two instances of each procedure, connect the steps of one by S-edges, and steps of two that
conflict by C-edges; steps on a cycle with edges of both sorts belong into one piece.

Example: transfers between accounts, in a file. (docs/chopping.md has the grammar; --outlines shows
a workload of this program in this form.)

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

Kinds of pieces: 'conflicting', whose order is the transactions' order (one of each procedure at
most); 'commutative', in any order with all others; 'exclusive', on rows that nobody else touches
meanwhile; 'deferred' to the end of the epoch; 'reading' what nobody writes; 'static', of tables
without changes. In pictures ovals are conflicting pieces, red lines C-edges, black ones S-edges,
and broken ones lead from what is deferred to its readers.";

/// The options of `cargo lab chop`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLE)]
pub struct ChopArguments {
    /// The workload (incr, like, rubis, tatp, tpcc), or a file with outlines of procedures
    #[arg(value_name = "WORKLOAD|FILE")]
    of: String,

    /// Conflicts by tables, with commutativity and reordering: the paper's default
    #[arg(long = "default", conflicts_with_all = ["all_optimizations", "plain"])]
    conventional: bool,

    /// All optimizations; so it is without this option, too
    #[arg(long, conflicts_with = "plain")]
    all_optimizations: bool,

    /// No optimizations
    #[arg(long = "none")]
    plain: bool,

    /// Optimizations to have besides
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum)]
    with: Vec<Optimization>,

    /// Optimizations not to have
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum)]
    without: Vec<Optimization>,

    /// Write pieces, conflicts and reasons as text; so it is if nothing else is asked for, too
    #[arg(long)]
    text: bool,

    /// Write everything as JSON, for programs
    #[arg(long, conflicts_with = "text")]
    json: bool,

    /// Draw the chopping graph into a file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the chopping graph into a file, in Graphviz's language
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,

    /// Write what the analysis knows of the procedures, in the form of a FILE, and chop nothing
    #[arg(long, conflicts_with_all = ["text", "json", "svg", "dot", "admit"])]
    outlines: bool,

    /// Check whether this procedure could be added while the others run in their pieces
    #[arg(long, value_name = "PROCEDURE")]
    admit: Option<String>,
}

/// What the analysis may make use of.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Optimization {
    /// Look for conflicts in columns, and not in tables
    Columns,
    /// What commutes does not conflict
    Commutativity,
    /// Put independent steps in another order where that makes more pieces
    Reordering,
    /// Have transactions that only read do so from snapshots
    Snapshots,
    /// Defer what commutes but for its readers to the end of the epoch
    Deferral,
    /// Rows that go by tokens conflict by their tokens alone
    Tokens,
    /// Know tables that nobody changes
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
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }
}

/// The names of the optimizations that are made use of.
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
                "'{name}' is none of the workloads ({workloads}), and cannot be read as a file: {error}"
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

/// Chops the procedures of a workload, or of a file.
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
