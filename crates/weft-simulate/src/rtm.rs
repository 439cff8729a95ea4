//! `cargo simulate rtm`: what hardware regions can hold, on a simulated machine.

use std::cell::RefCell;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use weft::htm::{Choice, Htm};
use weft_options::rtm::RtmOptions;
use weft_sim::{Options, Profile, Program};
use weft_workloads::rtm::{
    Budget, Client, Clock, Edges, HEADINGS, Kind, Measurement, Point, Threads, Topology, once,
};

use crate::arguments::machines;
use crate::progress::Progress;
use crate::report;

/// How many tries a simulation makes, for all threads together. A try that reads 4 MB accesses 65,536 words.
const BUDGET: Budget = Budget {
    tries_min: 64,
    tries_max: 400,
    accesses: 4_000_000,
    nanoseconds: 1_000_000_000,
    prices: 1_000,
};

/// The smallest number of tries for each thread.
const TRIES_MIN: u64 = 16;

/// Returns the help text about the experiments, which follows the options.
fn help() -> String {
    format!(
        "\
What is simulated: hardware regions of one kind and size after the other, on threads that share
nothing. Each region is tried without retries, at a place chosen at random in its thread's 16 MiB. The
table says which share of the tries aborted, by cause, and how long a try took.

Experiments, and what the papers found on the Haswell (DBX: Wang et al., EuroSys 2014; DBX-TC: Qian et
al., 2015):
{}
Sizes are bytes (448, 31K, 4M), bytes read and written (3M+28K), lines of a set (9), spans (30us, 4ms);
of the price: alone, region, empty.

Examples:
  cargo simulate rtm
      all experiments on the papers' Haswell, some minutes: one thread, two on a core, and one or two on
      each of four
  cargo simulate rtm --kind writes,reads --cores 4,4x2
      Figure 1a and 1b of DBX
  cargo simulate rtm --kind reads --sizes 2M,3M,4M --cores 1 --tries 500
      closer to an edge
  cargo simulate rtm --kind random-writes --pages cold
      Figure 1b of DBX-TC: writes to pages that are touched for the first time
  cargo simulate rtm --machine today-64c --kind writes,random-writes
      a recent processor's first-level cache: 48 KiB in 12 ways

`cargo lab bench rtm` runs the same experiments on a processor with RTM.",
        Kind::table()
    )
}

/// Hardware regions.
#[derive(Args, Debug)]
#[command(after_long_help = help())]
pub struct Rtm {
    /// The experiments to run.
    #[command(flatten)]
    options: RtmOptions,
    /// Numbers of threads, separated by commas: N, spread over the cores, or CxT, T threads on each of C cores
    /// [default: 1,1x2,4,4x2]
    #[arg(long, short, value_name = "N|CxT,…", value_delimiter = ',')]
    cores: Vec<Threads>,
    /// The machine to simulate
    #[arg(long, value_name = "PROFILE", default_value = "haswell-4c8t", value_parser = machines())]
    machine: String,
    /// State of the memory's pages when the tries begin
    #[arg(long, value_enum, default_value_t = Pages::Warm)]
    pages: Pages,
    /// Write the results as JSON to this file, or to standard output if it is `-`, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
}

/// The state of the pages that regions access. A page that the operating system has not mapped faults, and a fault
/// aborts the region.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Pages {
    /// All pages are mapped
    Warm,
    /// No page is mapped, and regions that abort for this reason leave it so
    Cold,
    /// No page is mapped. The accesses of an aborted region are repeated outside, which maps its pages
    ColdWithTwins,
}

/// The time of the current virtual core.
struct VirtualClock(&'static Profile);

impl Clock for VirtualClock {
    fn seconds(&self) -> f64 {
        self.0.seconds(weft_sim::cycles().expect("this is a virtual core"))
    }

    fn compute(&self, nanoseconds: u64) {
        weft_sim::compute(nanoseconds * self.0.megahertz / 1_000);
    }
}

/// Runs the experiments that the arguments select, and reports.
///
/// # Errors
/// If the machine lacks what an experiment needs, or a file cannot be written.
pub fn run(arguments: &Rtm) -> Result<(), String> {
    let profile = Profile::named(&arguments.machine).expect("the parser knows the names");
    if profile.read_set.is_none() {
        return Err(format!("{} has no RTM", profile.name));
    }
    let edges = Edges {
        first_level_bytes: profile.first_level.bytes(),
        first_level_ways: profile.first_level.ways.into(),
    };
    let topology: Topology = (0..profile.cores())
        .map(|core| (core..profile.threads()).step_by(profile.cores()).collect())
        .collect();
    let points = arguments.options.points(&edges)?;
    let settings = match arguments.cores.is_empty() {
        true => Threads::of_machine(&topology),
        false => arguments.cores.clone(),
    };
    let places = settings.iter().map(|threads| threads.place(&topology));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new(points.len() * settings.len());
    let mut results = Vec::new();
    for (&threads, place) in settings.iter().zip(&places) {
        for point in &points {
            progress.next(&format!("{point}, {threads} threads"));
            let affordable = (BUDGET.tries(point) / place.len() as u64).max(TRIES_MIN);
            let tries = arguments.options.tries.unwrap_or(affordable);
            let measured = simulate(profile, point, (threads, place), tries, arguments)?;
            results.push(measured.on(profile.name, true));
        }
    }
    drop(progress);
    show(profile, arguments, &results)
}

/// Runs one point on the hardware threads of `place`.
fn simulate(
    profile: &'static Profile,
    point: &Point,
    (threads, place): (Threads, &[usize]),
    tries: u64,
    arguments: &Rtm,
) -> Result<Measurement, String> {
    let &RtmOptions { seed, same_place, .. } = &arguments.options;
    let pages = arguments.pages;
    let htm = Htm::open(Choice::Rtm, once()).map_err(|unavailable| unavailable.to_string())?;
    let clock = VirtualClock(profile);
    let shares = RefCell::new(Vec::new());
    let hardware_threads = place.iter().max().expect("a thread at least") + 1;
    let program = |hardware_thread: usize| -> Program<'_> {
        // Hardware threads between the chosen ones have nothing to do.
        if !place.contains(&hardware_thread) {
            return Box::new(|| {});
        }
        let mut client = Client::new(&htm, seed, hardware_thread, same_place);
        if pages == Pages::ColdWithTwins {
            client = client.with_twins();
        }
        let (shares, clock) = (&shares, &clock);
        Box::new(move || {
            match pages {
                Pages::Warm => client.touch_pages(),
                Pages::Cold | Pages::ColdWithTwins => weft_sim::declare_absent(client.addresses()),
            }
            let share = client.run(point, tries, clock);
            shares.borrow_mut().push(share);
        })
    };
    let programs = (0..hardware_threads).map(program).collect();
    weft_sim::run(&Options::new(profile, seed), programs)
        .map_err(|failure| format!("{point}, {threads} threads: {failure}"))?;
    Ok(Measurement::new(point, threads, seed, &shares.into_inner()))
}

fn show(profile: &Profile, arguments: &Rtm, results: &[Measurement]) -> Result<(), String> {
    if let Some(target) = &arguments.json {
        let text = serde_json::to_string_pretty(results).expect("plain values");
        if report::write_json(target, &text)? {
            return Ok(());
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADINGS);
    table.column_iter_mut().skip(3).for_each(|column| {
        column.set_cell_alignment(CellAlignment::Right);
    });
    table.add_rows(results.iter().map(Measurement::row));
    report::print(&format!(
        "What hardware regions can hold, and for how long\nSIMULATED: {}; seed {}\n\n{table}\n\n\
         Shares of the tries that aborted, by cause. See --help for what the papers found.",
        profile.description, arguments.options.seed
    ))
}
