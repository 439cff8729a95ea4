//! `cargo lab bench map`: every protocol on a grid of workloads and machines, and one of them beside the best of the
//! others.
//!
//! [`weft_figures::map`] has the grid, the calls, the results and the picture. This module adds the command's options,
//! the protocols, the tables and the progress messages.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use weft_figures::map::measure::{self, Settings, contenders};
use weft_figures::map::picture::HeatMap;
use weft_figures::map::results::{P99_RATIO_MAX, PlaceResult, Results};
use weft_figures::map::{Coverage, Grid, GridPlace, places};
use weft_figures::plan::Host;
use weft_figures::run::{self, Processes, Runner};
use weft_figures::store;
use weft_protocols::{NoControl, PROTOCOLS, Protocol};

use weft_bench::harness::{numeric, try_to_write};
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::values::protocol_names;

use crate::figures::{factor, host};

/// The protocol that is compared with the best of the others, unless another is named.
const CANDIDATE: &str = "dbx";

/// The number of places that the summary names.
const WORST: usize = 5;

const HELP: &str = "\
What is measured: a grid of points, each a workload with its options, at several numbers of threads
(2 and 8, and 16 where there are as many cores) and on a simulated machine (8 and 40 cores, at some
points also 20 and 80, or another machine). The grid, its sizes, times and seeds are fixed in the file
crates/weft-figures/src/map/points.json. At each place:
  1. every protocol runs once, in a process of its own; the fastest of the others is the rival
  2. the candidate and the rival run in seven alternating pairs. The ratio is the median of the pairs;
     the same for the 99th percentile of latencies, which is not to be more than twice the rival's
Simulated pairs have a seed each. Protocols that are not serializable or make only single accesses
atomic (none, atomic) and variants take no part. A pair during which other processes kept more than
a tenth of a core busy is marked, and left out if at least three others are not.

A run that was stopped continues with --resume: places that are in FILE are not measured again,
unless the program is another build. The picture has the throughput of every protocol, in percent of
the best, at every place.

Examples:
  cargo lab bench map --quick --out map.json --svg map.svg
      some points, short runs: 20 minutes on two cores
  cargo lab bench map --out map.json --svg map.svg
      all points: three hours on two cores
  cargo lab bench map --out map.json --svg map.svg --resume
      continues, or draws the picture of what is there
  cargo lab bench map --points queue,bank --real --candidate silo
      the points with `queue` or `bank` in their names, on this machine, for another candidate
  cargo lab bench map --ablation
      adaptive beside its variants that lack one ingredient each, in turns on two threads, at the
      points that the ingredient is for and at five without contention: ten minutes

The simulator is another program: `cargo simulate --help` builds it.
Exit code: 0 all places were measured; 1 a run failed, as the table shows; 2 wrong arguments.";

/// Measure every protocol on a grid of workloads, and one protocol beside the best of the others
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct MapArguments {
    /// Measure some points, with short runs
    #[arg(long)]
    quick: bool,

    /// Points whose names contain one of these words, separated by commas [default: all]
    #[arg(long, value_name = "WORD,…", value_delimiter = ',')]
    points: Vec<String>,

    /// The protocol that is compared with the best of the others
    #[arg(long, value_name = "NAME", default_value = CANDIDATE, value_parser = protocol_names())]
    candidate: String,

    /// Measure only on this machine
    #[arg(long)]
    real: bool,

    /// Measure only on the simulated machine
    #[arg(long, conflicts_with = "real")]
    simulated: bool,

    /// Write the results to this file, as JSON, after each place
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Continue with the results that are in the file
    #[arg(long, requires = "out")]
    resume: bool,

    /// Draw a heat map into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Measure what each ingredient of `adaptive` gains: the protocol beside its variants, on this machine
    #[arg(long, conflicts_with_all = ["quick", "candidate", "simulated", "out", "svg", "list"])]
    ablation: bool,

    /// List the places and the approximate time, and measure nothing
    #[arg(long)]
    list: bool,

    /// The simulator [default: the one that `cargo simulate` built, or one beside this program]
    #[arg(long, value_name = "PATH")]
    simulator: Option<PathBuf>,

    /// Number of simulations that run at the same time [default: the number of cores, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Factor on the time of each run, to try the command out
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, hide = true, value_parser = factor)]
    time: f64,

    /// An additional option of every run, to try the command out
    #[arg(long, value_name = "OPTION", hide = true, allow_hyphen_values = true)]
    with: Vec<String>,
}

/// Returns the protocols that may be rivals, with the most threads that each allows: those under which all
/// transactions are atomic, whatever they do. Variants are left out: they are for comparison with the papers.
fn rivals() -> impl Iterator<Item = (&'static str, usize)> {
    let protocols = PROTOCOLS.iter();
    let able = protocols
        .filter(|protocol| !protocol.single_key && protocol.name != NoControl::NAME)
        .filter(|protocol| !protocol.name.contains(':'));
    able.map(|protocol| (protocol.name, protocol.workers_max))
}

/// Measures the map.
///
/// # Errors
/// The options ask for something impossible, a file cannot be written, or a run failed.
pub fn run(arguments: &MapArguments) -> Result<(), Stop> {
    let grid = Grid::frozen();
    let chosen = grid.chosen(&arguments.points).map_err(Stop::Usage)?;
    let host = host();
    let coverage = Coverage {
        is_quick: arguments.quick,
        real: !arguments.simulated,
        simulated: !arguments.real,
        logical_cores: host.logical_cores,
    };
    let places = places(&grid, &chosen, !arguments.points.is_empty(), &coverage);
    let settings = Settings {
        time: arguments.time,
        with: arguments.with.clone(),
        jobs: arguments.jobs.map_or(host.logical_cores.min(4) as usize, usize::from),
    };
    if arguments.ablation {
        let this = std::env::current_exe()
            .map_err(|error| Stop::Failed(format!("this program cannot be found: {error}")))?;
        return super::ablation::run(&grid, &chosen, &settings, &Processes::new(this, None));
    }
    let candidate = arguments.candidate.as_str();
    let seconds = |place: &GridPlace<'_>| {
        place.seconds(contenders(candidate, rivals(), place.threads).len(), &settings)
    };
    if arguments.list {
        return list(&places, seconds);
    }

    let this = std::env::current_exe()
        .map_err(|error| Stop::Failed(format!("this program cannot be found: {error}")))?;
    let simulator = arguments.simulator.clone().or_else(|| run::find_simulator(&this));
    let processes = Processes::new(this, simulator);
    for place in &places {
        processes.build(place.program()).map_err(Stop::Usage)?;
    }
    let mut results = earlier(arguments, &host)?;
    for path in arguments.out.iter().chain(&arguments.svg) {
        try_to_write(path)
            .map_err(|error| Stop::Usage(format!("cannot write '{}': {error}", path.display())))?;
    }

    let is_there = |results: &Results, place: &GridPlace<'_>| {
        processes.build(place.program()).is_ok_and(|build| results.has(place, &build))
    };
    let waiting: Vec<&GridPlace<'_>> =
        places.iter().filter(|place| !is_there(&results, place)).collect();
    let progress =
        ProgressLine::new(waiting.len(), waiting.iter().map(|place| seconds(place)).sum());
    for place in &waiting {
        progress.begins(place);
        let protocols = contenders(candidate, rivals(), place.threads);
        let result = measure::measure(place, &protocols, &processes, &settings);
        progress.say(&table(&result, candidate))?;
        progress.ended(seconds(place));
        results.put(place, result);
        if let Some(path) = &arguments.out {
            results.write(path).map_err(|error| cannot_write(path, &error))?;
        }
    }
    drop(progress);
    write!(io::stdout(), "{}", summary(&results))?;
    if let Some(path) = &arguments.svg {
        store::write(path, &HeatMap(&results).to_string())
            .map_err(|error| cannot_write(path, &error))?;
    }
    let failed = |place: &&PlaceResult| {
        let mut protocols = place.protocols.iter();
        place.failure.is_some() || protocols.any(|protocol| protocol.failure.is_some())
    };
    match results.places.iter().filter(failed).count() {
        0 => Ok(()),
        failed => Err(Stop::Failed(format!(
            "at {}, a run failed; the tables say which and why",
            numbers::counted(failed as u64, "place")
        ))),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Stop {
    Stop::Failed(format!("cannot write '{}': {error}", path.display()))
}

/// Returns the results with which the run begins: those of the file, or none.
///
/// # Errors
/// There are results that the run would overwrite, or that are of another kind of run.
fn earlier(arguments: &MapArguments, host: &Host) -> Result<Results, Stop> {
    let rtm = if host.has_rtm { "with RTM" } else { "without RTM" };
    let cores = numbers::counted(host.logical_cores.into(), "logical core");
    let fresh = Results {
        candidate: arguments.candidate.clone(),
        is_quick: arguments.quick,
        host: format!("{cores} {rtm}"),
        places: Vec::new(),
    };
    let Some(path) = &arguments.out else { return Ok(fresh) };
    let shown = path.display();
    let found = Results::read(path)
        .map_err(|error| Stop::Usage(format!("'{shown}' is no file of results: {error}")))?;
    match found {
        None => Ok(fresh),
        Some(_) if !arguments.resume => Err(Stop::Usage(format!(
            "'{shown}' has results: continue with --resume, or name another file with --out"
        ))),
        Some(found) if found.candidate != fresh.candidate || found.is_quick != fresh.is_quick => {
            let kind = if found.is_quick { "a quick run" } else { "a full run" };
            Err(Stop::Usage(format!(
                "'{shown}' has results of {kind} for the candidate '{}', which this run cannot continue",
                found.candidate
            )))
        }
        Some(found) => Ok(Results { host: fresh.host, ..found }),
    }
}

/// Lists the places, with the approximate time of each.
fn list(places: &[GridPlace<'_>], seconds: impl Fn(&GridPlace<'_>) -> f64) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    let mut all = 0.0;
    for place in places {
        let seconds = seconds(place);
        all += seconds;
        writeln!(out, "{:<43}{}: about {seconds:.0} s", place.to_string(), place.point.title)?;
    }
    writeln!(
        out,
        "\n{}, together about {:.0} minutes on a machine with nothing else to do.",
        numbers::counted(places.len() as u64, "place"),
        all / 60.0
    )?;
    Ok(())
}

/// Returns where a place is, in words.
fn place_in_words(place: &PlaceResult) -> String {
    let PlaceResult { title, threads, machine, .. } = place;
    match place.is_simulated {
        true => format!("{title}, {threads} cores of {machine}, SIMULATED"),
        false => format!("{title}, {threads} threads"),
    }
}

/// Returns what was found at a place, as a table.
fn table(place: &PlaceResult, candidate: &str) -> String {
    let mut table = numeric(&["protocol"], &["tx/s", "of the best", "aborts/commit", "p99 us"]);
    let best = place.best().unwrap_or(0.0);
    for protocol in &place.protocols {
        let cell = |number: Option<f64>, text: &dyn Fn(f64) -> String| {
            number.map_or_else(|| "-".to_owned(), text)
        };
        table.add_row([
            protocol.protocol.clone(),
            cell(protocol.throughput, &numbers::rate),
            cell(protocol.throughput, &|number| format!("{:.0} %", 100.0 * number / best)),
            cell(protocol.aborts, &|number| format!("{number:.3}")),
            cell(protocol.p99_us, &numbers::microseconds),
        ]);
    }
    let mut text = format!("{}\n{table}\n", place_in_words(place));
    for protocol in &place.protocols {
        if let Some(why) = &protocol.failure {
            writeln!(text, "{}: {why}", protocol.protocol).expect("a string takes everything");
        }
    }
    if let (Some(ratio), Some((least, most)), Some(rival)) =
        (place.ratio(), place.spread(), &place.rival)
    {
        let disturbed = match place.disturbed() {
            0 => String::new(),
            disturbed => format!(", {disturbed} disturbed"),
        };
        let pairs = numbers::counted(place.pairs.len() as u64, "pair");
        writeln!(
            text,
            "{candidate} / {rival}: {ratio:.3} ({least:.3} to {most:.3}; {pairs}{disturbed})"
        )
        .expect("a string takes everything");
        if let Some(ratio) = place.p99_ratio() {
            writeln!(text, "{candidate} / {rival}, p99 latency: {ratio:.2}")
                .expect("a string takes everything");
        }
    }
    match &place.failure {
        Some(why) => format!("{text}no ratio: {why}\n"),
        None => text,
    }
}

/// Returns the geometric means of the ratios, and the places with the lowest.
fn summary(results: &Results) -> String {
    let mut text = String::new();
    let by_ratio = results.by_ratio();
    let candidate = &results.candidate;
    for (is_simulated, words) in [(false, "on this machine"), (true, "SIMULATED")] {
        let count = by_ratio.iter().filter(|(_, place)| place.is_simulated == is_simulated).count();
        if let Some(mean) = results.geometric_mean(|place| place.is_simulated == is_simulated) {
            let places = numbers::counted(count as u64, "place");
            writeln!(
                text,
                "{candidate} / best of the others, {words}: {mean:.3} (geometric mean of {places})"
            )
            .expect("a string takes everything");
        }
    }
    if !by_ratio.is_empty() {
        text += "the lowest:\n";
    }
    for (ratio, place) in by_ratio.iter().take(WORST) {
        let rival = place.rival.as_deref().unwrap_or_default();
        writeln!(text, "  {ratio:.3}  {} ({rival})", place_in_words(place))
            .expect("a string takes everything");
    }
    text + &latency_summary(results)
}

/// Returns the geometric means of the ratios of the 99th percentiles, and the places where the ratio is too high.
fn latency_summary(results: &Results) -> String {
    let mut text = String::new();
    let candidate = &results.candidate;
    for (is_simulated, words) in [(false, "on this machine"), (true, "SIMULATED")] {
        if let Some(mean) = results.p99_geometric_mean(|place| place.is_simulated == is_simulated) {
            writeln!(
                text,
                "p99 latency of {candidate} / of the best of the others, {words}: {mean:.2} (geometric mean)"
            )
            .expect("a string takes everything");
        }
    }
    let slow = results.slow_places();
    match (text.is_empty(), slow.is_empty()) {
        (true, _) => {}
        (false, true) => {
            writeln!(text, "no place is above {P99_RATIO_MAX}").expect("a string takes everything")
        }
        (false, false) => {
            writeln!(text, "above {P99_RATIO_MAX}:").expect("a string takes everything");
        }
    }
    for (ratio, place) in slow {
        let rival = place.rival.as_deref().unwrap_or_default();
        writeln!(text, "  {ratio:.2}  {} ({rival})", place_in_words(place))
            .expect("a string takes everything");
    }
    text
}

/// A progress line: the place that is measured, and about how long all of them still take.
struct ProgressLine {
    bar: ProgressBar,
    begun: Instant,
    /// The estimated seconds of all places, and of those measured so far.
    estimated: f64,
    done: std::cell::Cell<f64>,
}

impl ProgressLine {
    fn new(count: usize, estimated: f64) -> ProgressLine {
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len}")
            .expect("the template is a constant");
        // If standard error is not a terminal, the library draws nothing.
        let bar = ProgressBar::new(count as u64).with_style(style);
        ProgressLine { bar, begun: Instant::now(), estimated, done: std::cell::Cell::new(0.0) }
    }

    fn begins(&self, place: &GridPlace<'_>) {
        let taken = self.begun.elapsed().as_secs_f64();
        let done = self.done.get();
        // Until a place has been measured, the estimate is all there is.
        let factor = if done > 0.0 { taken / done } else { 1.0 };
        let left = numbers::span((factor * (self.estimated - done)).round());
        let so_far = numbers::span(taken.round());
        self.bar.set_message(format!("{place}: {so_far} so far, about {left} left"));
    }

    fn ended(&self, seconds: f64) {
        self.done.set(self.done.get() + seconds);
        self.bar.inc(1);
    }

    /// Prints text to standard output, above the progress.
    fn say(&self, text: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stdout(), "{text}"))
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weft_figures::plan::Program;

    use super::*;
    use crate::arguments::Arguments;

    /// The grid is data, which no compiler checks. Protects that its calls name existing options.
    #[test]
    fn calls_of_the_grid_are_accepted() {
        let grid = Grid::frozen();
        let points: Vec<_> = grid.points.iter().collect();
        let settings = Settings { time: 1.0, with: Vec::new(), jobs: 1 };
        for is_quick in [false, true] {
            let coverage = Coverage { is_quick, real: true, simulated: false, logical_cores: 16 };
            for place in places(&grid, &points, true, &coverage) {
                let protocols = contenders(CANDIDATE, rivals(), place.threads);
                let calls = place.choice(&protocols, &settings).into_iter();
                for call in calls.chain(place.pairs("dbx", "silo", &settings)) {
                    assert_eq!(call.program, Program::Laboratory);
                    let words = std::iter::once("weft-lab".to_owned()).chain(call.arguments);
                    let words: Vec<String> = words.collect();
                    let parsed = Arguments::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{words:?}: {parsed:?}");
                }
            }
        }
    }

    #[test]
    fn rivals_are_serializable_protocols_of_several_rows() {
        let names: Vec<&str> = rivals().map(|(name, _)| name).collect();
        assert!(names.contains(&"silo") && names.contains(&"doppel"), "{names:?}");
        assert!(!names.contains(&"none") && !names.contains(&"atomic"), "{names:?}");
        assert!(names.iter().all(|name| !name.contains(':')), "no variants: {names:?}");
        assert!(names.contains(&CANDIDATE));
    }
}
