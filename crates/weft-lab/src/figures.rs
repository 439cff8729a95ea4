//! `cargo lab figures`: the papers' figures, measured again and shown beside the papers' results.
//!
//! [`weft_figures`] defines the figures and draws them. This module adds the command's options, the description of
//! this machine, the search for the simulator, and the progress messages.

use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Add;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use weft_figures::claim::Verdict;
use weft_figures::definition::{Content, Figure, Paper};
use weft_figures::measured::CallOutcome;
use weft_figures::page::{self, About};
use weft_figures::papers;
use weft_figures::plan::{self, Host, MachineChoice, Plan, Point, Program, Settings};
use weft_figures::report::Report;
use weft_figures::run::{self, Policy, Processes, Runner, Watcher};
use weft_figures::store::{self, Store};
use weft_figures::{svg, table};

use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::values::{self, SEED_DEFAULT};

const HELP: &str = "\
What is made:
  DIR/index.html                a page with all figures; it works from a file and loads nothing
  DIR/FIGURE.svg, .json, .csv   each figure
  DIR/results.md                a table of all claims and of what was found
  DIR/data                      the results from which all this is made

Each point of a figure is one run of `cargo lab bench` on this machine, or of `cargo simulate` on a
simulated one, in a process of its own. The page shows all of these commands. A figure is measured
on this machine if it has the threads and the RTM that the figure needs. Otherwise the figure is
simulated, and marked as such.

A command that was stopped continues where it was: results in DIR/data are not measured again,
unless the program is another build. So you can also make figures one by one into the same DIR. A
figure that does not agree with its paper, or cannot be measured, is shown as such. `agrees` means
that the shape is the paper's: which protocol is ahead, and by about how much. The bounds are shown
beside each number.

Examples:
  cargo lab figures --quick --out figures
      all figures, few points and short runs
  cargo lab figures --paper htcc --figure 14,18 --full --out figures
      two figures with all their points
  cargo lab figures --list
      all figures, the machine on which each would be measured, and the approximate time
  cargo lab figures --paper dbx --figure 16,17 --real --out /var/tmp/figures
      figures that need a disk: the log is written below DIR

The simulator is another program: `cargo simulate --help` builds it.
Exit code: 0 all runs succeeded; 1 a run failed, as the page shows; 2 wrong arguments.";

/// Measure the papers' figures and tables again, and draw the results beside the papers' own
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct FiguresArguments {
    /// Papers, separated by commas [default: all]
    #[arg(long, value_name = "PAPER,…", value_delimiter = ',')]
    paper: Vec<PaperName>,

    /// Figures and tables, separated by commas, as 8, 1a or table-1 [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    figure: Vec<String>,

    /// Use few points and short runs (default)
    #[arg(long)]
    quick: bool,

    /// Use all points and longer runs
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Measure on this machine, even if it lacks something that a figure needs
    #[arg(long)]
    real: bool,

    /// Simulate, even if this machine could measure
    #[arg(long, conflicts_with = "real")]
    simulated: bool,

    /// Write everything into this directory, and use the results of the same runs that are there
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,

    /// List the figures, the machine on which each would be measured, and the approximate time
    #[arg(long)]
    list: bool,

    /// The simulator [default: the one that `cargo simulate` built, or one beside this program]
    #[arg(long, value_name = "PATH")]
    simulator: Option<PathBuf>,

    /// Number of simulations that run at the same time [default: the number of cores, at most 4]
    ///
    /// In quick runs each takes up to one gigabyte of memory; in full runs those of forty warehouses take six. Runs
    /// that measure on this machine never overlap with others.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Seed of all runs
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = values::seed())]
    seed: u64,

    /// Run everything again, even if there are results
    #[arg(long)]
    again: bool,

    /// Also use results of other builds of the programs
    #[arg(long)]
    any_build: bool,

    /// Factor on the time of each run, to try the command out
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true, value_parser = factor)]
    time: f64,

    /// An additional option of every run, to try the command out
    #[arg(long, value_name = "OPTION", hide = true, allow_hyphen_values = true)]
    with: Vec<String>,
}

/// The names of the papers.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum PaperName {
    /// Wang et al., EuroSys 2014
    Dbx,
    /// Qian et al., 2015
    DbxTc,
    /// Wu and Tan, USENIX ATC 2016
    Htcc,
    /// Narula et al., OSDI 2014
    Doppel,
    /// Cervini et al., DaMoN 2015
    NoFreeLunch,
}

impl PaperName {
    fn paper(self) -> Paper {
        match self {
            PaperName::Dbx => Paper::Dbx,
            PaperName::DbxTc => Paper::DbxTc,
            PaperName::Htcc => Paper::Htcc,
            PaperName::Doppel => Paper::Doppel,
            PaperName::NoFreeLunch => Paper::NoFreeLunch,
        }
    }
}

/// Parses a factor on the time of each run.
pub fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1000.0).contains(factor));
    factor.ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

/// A figure with its plan, or with the reason why it cannot be made.
type PlannedFigure = (&'static Figure, Result<Plan, String>);

/// Makes the figures that the arguments choose.
///
/// # Errors
/// The options ask for something impossible, a file cannot be written, or a run failed.
pub fn run(arguments: &FiguresArguments) -> Result<(), Stop> {
    let papers: Vec<Paper> = arguments.paper.iter().map(|name| name.paper()).collect();
    let chosen = papers::chosen(&papers, &arguments.figure).map_err(Stop::Usage)?;
    let host = host();
    let out = arguments.out.clone().unwrap_or_default();
    let settings = Settings {
        wanted: match (arguments.real, arguments.simulated) {
            (true, _) => MachineChoice::Real,
            (_, true) => MachineChoice::Simulated,
            _ => MachineChoice::Best,
        },
        host,
        is_full: arguments.full,
        seed: arguments.seed,
        time: arguments.time,
        with: arguments.with.clone(),
        directory: out.display().to_string(),
    };
    let jobs = arguments.jobs.map_or(host.logical_cores.min(4) as usize, usize::from);
    let plans: Vec<PlannedFigure> =
        papers::all().map(|figure| (figure, plan::plan(figure, &settings))).collect();
    let is_chosen = |figure: &Figure| chosen.iter().any(|chosen| chosen.is_same(figure));
    if arguments.list {
        return list(plans.iter().filter(|(figure, _)| is_chosen(figure)), jobs);
    }

    let weft = std::env::current_exe()
        .map_err(|error| Stop::Failed(format!("this program cannot be found: {error}")))?;
    let simulator = arguments.simulator.clone().or_else(|| run::find_simulator(&weft));
    let processes = Processes::new(weft, simulator);
    let cannot_write = |error: io::Error| {
        Stop::Usage(format!("cannot write to '{}' for --out: {error}", out.display()))
    };
    let points = |is_asked: bool| {
        let plans = plans.iter().filter(move |(figure, _)| is_chosen(figure) == is_asked);
        plans.filter_map(|(_, plan)| plan.as_ref().ok()).flat_map(|plan| &plan.points)
    };
    if points(true).any(|point| point.call.program == Program::Simulator) {
        let is_there = processes.path(Program::Simulator).and_then(|_| {
            // An unreadable simulator is found by asking for its build.
            processes.build(Program::Simulator)
        });
        is_there.map_err(Stop::Usage)?;
    }
    let store = Store::open(&out.join("data"), arguments.any_build).map_err(cannot_write)?;

    let watcher = ProgressLine::new(points(true), jobs);
    let mut reports = Vec::with_capacity(plans.len());
    let mut failed = 0;
    for (figure, plan) in plans {
        let is_asked = is_chosen(figure);
        let policy = Policy { jobs, again: arguments.again, makes_calls: is_asked };
        let report = match plan {
            Err(why) if is_asked => Report::without(figure, why),
            Err(_) => continue,
            Ok(plan) => {
                watcher.label(&figure.id());
                let outcomes = run::run(&plan.points, &processes, &store, &policy, &watcher);
                let outcomes = outcomes.map_err(cannot_write)?;
                // Figures that were not asked for are shown only if an earlier command left results of them.
                let is_there =
                    outcomes.iter().any(|outcome| matches!(outcome, CallOutcome::Report(_)));
                if !is_asked && !is_there {
                    continue;
                }
                let failures =
                    outcomes.iter().filter(|outcome| matches!(outcome, CallOutcome::Failed(_)));
                failed += if is_asked { failures.count() } else { 0 };
                Report::of(figure, plan, &outcomes)
            }
        };
        if is_asked {
            write_files(&report, &out).map_err(cannot_write)?;
            watcher.say(&summary_line(&report))?;
        }
        reports.push(report);
        // Write the page after each figure, so that it shows what is done even if the command is stopped.
        let about = about(arguments, &settings, &processes, &reports);
        store::write(&out.join("index.html"), &page::page(&about, &reports))
            .map_err(cannot_write)?;
        store::write(&out.join("results.md"), &table::markdown(&reports, "."))
            .map_err(cannot_write)?;
    }
    drop(watcher);
    writeln!(io::stdout(), "\n{}", out.join("index.html").display())?;
    match failed {
        0 => Ok(()),
        failed => Err(Stop::Failed(format!(
            "{} failed; the page says which and why, and the next call with the same --out tries them again",
            numbers::counted(failed as u64, "run")
        ))),
    }
}

/// Returns the description of this machine.
pub fn host() -> Host {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let rtm = weft::htm::Htm::open(weft::htm::Choice::Rtm, weft::htm::RetryPolicy::default());
    Host { logical_cores: u32::try_from(cores).unwrap_or(u32::MAX), has_rtm: rtm.is_ok() }
}

/// Lists the figures, where they would be measured, and how long that would take.
fn list<'a>(plans: impl Iterator<Item = &'a PlannedFigure>, jobs: usize) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let mut all = 0.0;
    // Some figures share runs, which count once.
    let mut counted = HashSet::new();
    for (figure, plan) in plans {
        let (about, why) = match plan {
            Ok(plan) => {
                let new = plan.points.iter().filter(|point| counted.insert(point.call.to_string()));
                // Start from 0.0, because the sum of no numbers is -0.0.
                let alone = new.map(|point| point.seconds).fold(0.0, Add::add);
                let seconds = alone / if plan.machine.is_simulated() { jobs as f64 } else { 1.0 };
                all += seconds;
                let points = numbers::counted(plan.points.len() as u64, "point");
                (format!("{}, {points}, about {seconds:.0} s", plan.machine.name()), None)
            }
            Err(why) => {
                let is_known = matches!(figure.content, Content::NotMeasured(_));
                let words =
                    if is_known { "not measured" } else { "not measured with these options" };
                (words.to_owned(), Some(why))
            }
        };
        writeln!(out, "{:<24}{}: {about}", figure.id(), figure.title)?;
        if let Some(why) = why {
            writeln!(out, "{:<24}{why}", "")?;
        }
    }
    writeln!(
        out,
        "\nTogether about {:.0} minutes, on a machine with nothing else to do.",
        all / 60.0
    )?;
    Ok(())
}

/// Writes the files of one figure.
fn write_files(report: &Report, out: &std::path::Path) -> io::Result<()> {
    let path = |extension: &str| out.join(format!("{}.{extension}", report.figure.id()));
    if let Ok(measurement) = &report.state {
        store::write(&path("svg"), &svg::File(&measurement.chart).to_string())?;
    }
    let json = serde_json::to_string_pretty(&table::json(report)).expect("plain values");
    store::write(&path("json"), &format!("{json}\n"))?;
    store::write(&path("csv"), &table::csv(report))
}

/// Returns one line about a figure.
fn summary_line(report: &Report) -> String {
    let verdict = report.verdict();
    let more = match &report.state {
        Ok(measurement) => {
            let holds =
                |finding: &&weft_figures::claim::Finding| finding.verdict == Verdict::Agrees;
            let held = measurement.findings.iter().filter(holds).count();
            let (done, all) = measurement.points.done();
            let missing =
                if done < all { format!("; {done} of {all} points") } else { String::new() };
            format!(", {held} of {} expectations hold{missing}", measurement.findings.len())
        }
        Err(why) => format!(": {why}"),
    };
    format!("{:<24}{}{more}", report.figure.id(), verdict.words())
}

/// Returns the page's description of the run.
fn about(
    arguments: &FiguresArguments,
    settings: &Settings,
    processes: &Processes,
    reports: &[Report],
) -> About {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let Host { logical_cores, has_rtm } = settings.host;
    let profile = if cfg!(debug_assertions) { ", and a build that is not optimised" } else { "" };
    let rtm = if has_rtm { "with RTM" } else { "without RTM" };
    let cores = numbers::counted(logical_cores.into(), "logical core");
    let is_used = |program| {
        let measurements = reports.iter().filter_map(|report| report.state.as_ref().ok());
        let mut points = measurements.flat_map(|measurement| &measurement.plan.points);
        points.any(|point| point.call.program == program)
    };
    let mut builds = Vec::new();
    for (program, name) in
        [(Program::Laboratory, "weft-lab"), (Program::Simulator, "weft-simulate")]
    {
        if let (true, Ok(build)) = (is_used(program), processes.build(program)) {
            builds.push(format!("{name} {build}"));
        }
    }
    if arguments.any_build {
        builds.push("and, as --any-build allows, other builds".to_owned());
    }
    About {
        command: format!("cargo lab {}", words.join(" ")),
        host: format!("{cores} {rtm}{profile}"),
        builds,
        is_full: arguments.full,
        seed: arguments.seed,
    }
}

/// A progress line: the figure that runs, and about how long all of them still take.
struct ProgressLine {
    bar: ProgressBar,
    state: Mutex<ProgressState>,
    jobs: usize,
}

/// Progress, in estimated seconds of points.
struct ProgressState {
    figure: String,
    /// The seconds of the points still to run, simulated and real.
    left_simulated: f64,
    left_real: f64,
    /// The seconds of the points that ran: as estimated, and as measured.
    estimated: f64,
    taken: f64,
    begun: Instant,
}

impl ProgressLine {
    fn new<'a>(points: impl Iterator<Item = &'a Point>, jobs: usize) -> ProgressLine {
        let (mut count, mut left_simulated, mut left_real) = (0, 0.0, 0.0);
        for point in points {
            count += 1;
            match point.call.program {
                Program::Simulator => left_simulated += point.seconds,
                Program::Laboratory => left_real += point.seconds,
            }
        }
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len}")
            .expect("the template is a constant");
        // If standard error is not a terminal, the library draws nothing.
        let bar = ProgressBar::new(count).with_style(style);
        let state = ProgressState {
            figure: String::new(),
            left_simulated,
            left_real,
            estimated: 0.0,
            taken: 0.0,
            begun: Instant::now(),
        };
        ProgressLine { bar, state: Mutex::new(state), jobs }
    }

    fn label(&self, figure: &str) {
        figure.clone_into(&mut self.state.lock().expect("no panic under the lock").figure);
        self.show();
    }

    fn show(&self) {
        let state = self.state.lock().expect("as above");
        // Until a point has run, the estimate is all there is.
        let factor = if state.estimated > 0.0 { state.taken / state.estimated } else { 1.0 };
        let left = factor * (state.left_simulated / self.jobs as f64 + state.left_real);
        let so_far = numbers::span(state.begun.elapsed().as_secs_f64().round());
        let left = numbers::span(left.round());
        self.bar.set_message(format!("{}: {so_far} so far, about {left} left", state.figure));
    }

    /// Prints a line to standard output, above the progress.
    fn say(&self, line: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stdout(), "{line}"))
    }
}

impl Watcher for ProgressLine {
    fn ended(&self, point: &Point, seconds: Option<f64>) {
        {
            let mut state = self.state.lock().expect("as above");
            match point.call.program {
                Program::Simulator => state.left_simulated -= point.seconds,
                Program::Laboratory => state.left_real -= point.seconds,
            }
            if let Some(seconds) = seconds {
                state.estimated += point.seconds;
                state.taken += seconds;
            }
        }
        self.bar.inc(1);
        self.show();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_protocols::NAMES;
    use weft_workloads::variants;

    /// Figures are data, which no compiler checks. Protects that they name existing protocols and options of the
    /// command.
    #[test]
    fn figures_name_existing_protocols_and_options() {
        use crate::arguments::Arguments;
        use clap::Parser;

        let settings = |wanted, is_full| Settings {
            wanted,
            host: Host { logical_cores: 128, has_rtm: true },
            is_full,
            seed: 1,
            time: 1.0,
            with: Vec::new(),
            directory: "out".to_owned(),
        };
        for is_full in [false, true] {
            let settings = settings(MachineChoice::Real, is_full);
            for figure in papers::all() {
                let Ok(plan) = plan::plan(figure, &settings) else { continue };
                for point in plan.points {
                    let words = std::iter::once("weft-lab".to_owned()).chain(point.call.arguments);
                    let words: Vec<String> = words.collect();
                    let parsed = Arguments::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{}: {words:?}: {parsed:?}", figure.id());
                }
            }
        }
        // The points of simulated figures name existing protocols, too.
        let settings = settings(MachineChoice::Simulated, false);
        for figure in papers::all() {
            let Ok(plan) = plan::plan(figure, &settings) else { continue };
            for point in plan.points {
                let mut words = point.call.arguments.iter();
                if words.any(|word| word == "--protocol") {
                    let name = words.next().expect("an option has a value");
                    let is_known = NAMES.contains(&name.as_str())
                        || variants::all().any(|variant| variant.name == name);
                    assert!(is_known, "{}: {name}", figure.id());
                }
            }
        }
    }
}
