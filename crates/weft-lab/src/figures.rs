//! `cargo lab figures`: the papers' figures, measured again, beside what the papers have.
//!
//! [`weft_figures`] knows the figures, and draws them. Here is what the command has to do with it: its options,
//! this machine, where the simulator is, and what is told to whoever waits.

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
use weft_figures::measured::Outcome;
use weft_figures::page::{self, About};
use weft_figures::papers;
use weft_figures::plan::{self, Host, Plan, Point, Program, Settings, Wanted};
use weft_figures::report::Report;
use weft_figures::run::{self, Policy, Processes, Runner, Watcher};
use weft_figures::store::{self, Store};
use weft_figures::{svg, table};

use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::values::{self, SEED_DEFAULT};

const HELP: &str = "\
What is made: DIR/index.html, a page with all figures that works from a file and loads nothing; for each
figure DIR/FIGURE.svg, .json and .csv; DIR/results.md, a table of all claims with what was found of them; and
DIR/data, the results that all this is made of.

Each point of a figure is a call of `cargo lab bench` on this machine, or of `cargo simulate` on a simulated one,
in a process of its own. The page has all of these commands. A figure is measured here if this machine has
the threads and the RTM that it takes, and simulated otherwise; simulated figures are marked as such.

A run that was stopped goes on where it was: what DIR/data has is not run again, unless the program is
another build. So figures can also be made one by one, into the same DIR. A figure that does not agree with
its paper, or that cannot be measured, is shown as that. `agrees` means that the shape is the paper's:
who is ahead, and by about how much; the bounds stand beside each number.

Examples:
  cargo lab figures --quick --out figures
      all figures, few points and short runs
  cargo lab figures --paper htcc --figure 14,18 --full --out figures
      two figures with all their points
  cargo lab figures --list
      all figures, where they would be measured, and about how long each takes
  cargo lab figures --paper dbx --figure 16,17 --real --out /var/tmp/figures
      what takes a disk: the log is written below DIR

The simulator is another program: `cargo simulate --help` builds it.
Exit code: 0 all that was asked for has run; 1 a run has failed, which the page shows; 2 wrong arguments.";

/// Measure the figures and tables of the papers again, and draw them beside what the papers found
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct FiguresArguments {
    /// Papers, separated by commas [default: all]
    #[arg(long, value_name = "PAPER,…", value_delimiter = ',')]
    paper: Vec<PaperName>,

    /// Figures and tables, separated by commas, as 8, 1a or table-1 [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    figure: Vec<String>,

    /// Few points, short runs; so it is without this option, too
    #[arg(long)]
    quick: bool,

    /// All points, longer runs
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// Measure on this machine, even if it has not all that a figure takes
    #[arg(long)]
    real: bool,

    /// Simulate, even if this machine could measure
    #[arg(long, conflicts_with = "real")]
    simulated: bool,

    /// Where everything is written; what is there of the same runs is made use of
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,

    /// Show the figures, where they would be measured, and about how long that takes
    #[arg(long)]
    list: bool,

    /// The simulator [default: as `cargo simulate` has built it, or beside this program]
    #[arg(long, value_name = "PATH")]
    simulator: Option<PathBuf>,

    /// Simulations that run at once [default: as many as cores, at most 4]
    ///
    /// They take up to a gigabyte each in quick runs, and in full ones those of forty warehouses six. What is
    /// measured on this machine runs alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Seed of all runs
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, value_parser = values::seed())]
    seed: u64,

    /// Run again what has been run
    #[arg(long)]
    again: bool,

    /// Make use of results that other builds of the programs had
    #[arg(long)]
    any_build: bool,

    /// By what the time of each run is multiplied, to try the command out
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true, value_parser = factor)]
    time: f64,

    /// An option of every run besides, to try the command out
    #[arg(long, value_name = "OPTION", hide = true, allow_hyphen_values = true)]
    with: Vec<String>,
}

/// The papers' names.
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

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1000.0).contains(factor));
    factor.ok_or_else(|| "expected a number from 0.001 to 1000".to_owned())
}

/// A figure, and what is to be done for it, or why nothing can be.
type Planned = (&'static Figure, Result<Plan, String>);

/// Makes the figures that are asked for.
///
/// # Errors
/// Options that ask for what cannot be had, files that cannot be written, and calls that have failed.
pub fn run(arguments: &FiguresArguments) -> Result<(), Stop> {
    let papers: Vec<Paper> = arguments.paper.iter().map(|name| name.paper()).collect();
    let chosen = papers::chosen(&papers, &arguments.figure).map_err(Stop::Usage)?;
    let host = host();
    let out = arguments.out.clone().unwrap_or_default();
    let settings = Settings {
        wanted: match (arguments.real, arguments.simulated) {
            (true, _) => Wanted::Real,
            (_, true) => Wanted::Simulated,
            _ => Wanted::Best,
        },
        host,
        is_full: arguments.full,
        seed: arguments.seed,
        time: arguments.time,
        with: arguments.with.clone(),
        directory: out.display().to_string(),
    };
    let jobs = arguments.jobs.map_or(host.logical_cores.min(4) as usize, usize::from);
    let plans: Vec<Planned> =
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
            // Whether it can be read is known by its build.
            processes.build(Program::Simulator)
        });
        is_there.map_err(Stop::Usage)?;
    }
    let store = Store::open(&out.join("data"), arguments.any_build).map_err(cannot_write)?;

    let watcher = Waiting::new(points(true), jobs);
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
                // Of what was not asked for, what an earlier call has left is shown.
                let is_there = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Report(_)));
                if !is_asked && !is_there {
                    continue;
                }
                let failures =
                    outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Failed(_)));
                failed += if is_asked { failures.count() } else { 0 };
                Report::of(figure, plan, &outcomes)
            }
        };
        if is_asked {
            write_files(&report, &out).map_err(cannot_write)?;
            watcher.say(&told(&report))?;
        }
        reports.push(report);
        // Whoever stops the command has a page of what is done.
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

/// This machine.
fn host() -> Host {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let rtm = weft::htm::Htm::open(weft::htm::Choice::Rtm, weft::htm::RetryPolicy::default());
    Host { logical_cores: u32::try_from(cores).unwrap_or(u32::MAX), has_rtm: rtm.is_ok() }
}

/// Shows what would be done.
fn list<'a>(plans: impl Iterator<Item = &'a Planned>, jobs: usize) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let mut all = 0.0;
    // Some figures are of the same runs.
    let mut counted = HashSet::new();
    for (figure, plan) in plans {
        let (about, why) = match plan {
            Ok(plan) => {
                let new = plan.points.iter().filter(|point| counted.insert(point.call.to_string()));
                // From 0.0 on: the sum of nothing is -0.0.
                let alone = new.map(|point| point.seconds).fold(0.0, Add::add);
                let seconds = alone / if plan.machine.is_simulated() { jobs as f64 } else { 1.0 };
                all += seconds;
                let points = numbers::counted(plan.points.len() as u64, "point");
                (format!("{}, {points}, about {seconds:.0} s", plan.machine.name()), None)
            }
            Err(why) => {
                let is_known = matches!(figure.content, Content::NotMeasured(_));
                let words =
                    if is_known { "not measured" } else { "not measured as it is asked for" };
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

/// A figure in a line.
fn told(report: &Report) -> String {
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

/// What the page says of the run.
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

/// A line for whoever waits: what runs, and about how long it still takes.
struct Waiting {
    bar: ProgressBar,
    state: Mutex<State>,
    jobs: usize,
}

/// How far it has come, in estimated seconds of points.
struct State {
    figure: String,
    /// What is still to do, simulated and not.
    left_simulated: f64,
    left_real: f64,
    /// What was run: by the estimate, and by the clock.
    estimated: f64,
    taken: f64,
    begun: Instant,
}

impl Waiting {
    fn new<'a>(points: impl Iterator<Item = &'a Point>, jobs: usize) -> Waiting {
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
        // Where standard error is no terminal, the library draws nothing.
        let bar = ProgressBar::new(count).with_style(style);
        let state = State {
            figure: String::new(),
            left_simulated,
            left_real,
            estimated: 0.0,
            taken: 0.0,
            begun: Instant::now(),
        };
        Waiting { bar, state: Mutex::new(state), jobs }
    }

    fn label(&self, figure: &str) {
        figure.clone_into(&mut self.state.lock().expect("nobody panics with it").figure);
        self.show();
    }

    fn show(&self) {
        let state = self.state.lock().expect("as above");
        // Until something was run, the estimate is all there is.
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

impl Watcher for Waiting {
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

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_protocols::NAMES;
    use weft_workloads::variants;

    /// The figures are data, which no compiler checks: protocols that there are, and options that the command has.
    #[test]
    fn every_figure_names_protocols_and_options_that_there_are() {
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
            let settings = settings(Wanted::Real, is_full);
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
        // Those that are simulated, too, by name.
        let settings = settings(Wanted::Simulated, false);
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
