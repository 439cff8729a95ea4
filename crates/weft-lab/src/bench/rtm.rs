//! `cargo lab bench rtm`: how large hardware regions can be, and how long, on this processor.
//!
//! There is no database, and there are no rounds: regions abort at the same sizes however busy the machine is. The
//! experiments are those of [`weft_workloads::rtm`], which `cargo simulate rtm` runs on a simulated machine. This
//! module adds the threads, the clock, and the description of this machine.

use std::hint::black_box;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::Instant;
use std::{fs, thread};

use clap::Args;
use core_affinity::CoreId;
use weft::htm::{Choice, Htm};
use weft_workloads::rtm::{
    Budget, Client, Clock, Edges, HEADINGS, Kind, Measurement, Threads, Topology, once,
};

use weft_bench::numbers;
use weft_bench::progress::Progress;
use weft_bench::stop::Stop;
use weft_options::rtm::RtmOptions;

use weft_bench::harness::JsonTarget;
use weft_bench::harness::plain;

/// Limits that keep a run on four cores below a minute or two.
const BUDGET: Budget = Budget {
    tries_min: 100,
    tries_max: 2_000,
    accesses: 1 << 25,
    nanoseconds: 1_000_000_000,
    prices: 1_000_000,
};

/// Returns the help text below the options, with the list of experiments.
fn help() -> String {
    format!(
        "\
What is measured: hardware regions of one kind and size after the other, on threads that share
nothing. Each region is tried once, at a random place in its thread's 16 MiB. The table shows which
share of the tries aborted, by cause: `capacity`, the caches could not hold the region; `conflict`,
another thread accessed a line of it; `system event`, an interrupt, a fault or a forbidden
instruction.

Experiments, and what the papers found on a Haswell of 2013 (DBX: Wang et al., EuroSys 2014; DBX-TC:
Qian et al., 2015):
{}
Sizes are bytes (448, 31K, 4M), bytes read and written (3M+28K), lines of a set (9), or times (30us,
4ms); for the price: alone, region, empty. The default sizes depend on the first-level cache.

Examples:
  cargo lab bench rtm
      all experiments, on one core and on four, with one thread each and with two if cores have two
  cargo lab bench rtm --kind writes,reads --threads 4,4x2
      Figure 1a and 1b of DBX
  cargo lab bench rtm --kind writes --sizes 47K,48K,49K --tries 10000
      sizes close to an edge
  cargo lab bench rtm --kind one-set,writes --same-place
      the same lines again and again
  cargo lab bench rtm --kind price --json -
      what a region costs, as JSON

If the processor has no RTM, use `cargo simulate rtm`: it simulates a machine that has it.
Exit code: 0 success; 1 a thread failed; 2 wrong arguments, or no RTM.",
        Kind::table()
    )
}

/// Measure hardware regions: how large they can be, and how long, until they abort
#[derive(Args, Debug)]
#[command(after_long_help = help())]
pub struct RtmArguments {
    #[command(flatten)]
    options: RtmOptions,

    /// Threads: N, one on each core as far as there are cores; or CxT, T on each of C cores
    ///
    /// Separate several settings by commas. The default is 1, 1x2, 4 and 4x2, as far as the machine has the cores.
    #[arg(long, short, value_name = "N|CxT,…", value_delimiter = ',')]
    threads: Vec<Threads>,

    /// Write the results as JSON to this file; `-` prints JSON instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// There is no RTM; sizes or threads are impossible; or the results cannot be written.
pub fn run(arguments: &RtmArguments) -> Result<(), Stop> {
    let refuse = |message: String| Stop::Usage(message);
    let topology = topology();
    let &RtmOptions { seed, same_place, tries, .. } = &arguments.options;
    let points = arguments.options.points(&edges()).map_err(refuse)?;
    let settings = match arguments.threads.is_empty() {
        true => Threads::of_machine(&topology),
        false => arguments.threads.clone(),
    };
    let places = settings.iter().map(|threads| threads.place(&topology));
    let places = places.collect::<Result<Vec<_>, _>>().map_err(refuse)?;
    let htm = Htm::open(Choice::Rtm, once()).map_err(|unavailable| {
        refuse(format!(
            "{unavailable}; `cargo simulate rtm` runs the same experiments on a simulated machine"
        ))
    })?;
    let json = arguments.json.as_deref().map(JsonTarget::check).transpose()?;

    let (machine, clock) = (machine(), ProcessorClock::new());
    let progress = Progress::new("measuring");
    let mut results = Vec::new();
    let steps = (settings.len() * points.len()) as u64;
    for (&threads, place) in settings.iter().zip(&places) {
        let client = |thread| Client::new(&htm, seed, thread, same_place);
        let mut clients: Vec<Client> = (0..place.len()).map(client).collect();
        for point in &points {
            progress.set_label(&format!("{point}, {threads} threads"));
            progress.set(results.len() as u64, steps);
            let tries = tries.unwrap_or(BUDGET.tries(point));
            let shares = on_threads(place, &mut clients, |client| {
                client.touch_pages();
                client.run(point, tries, &clock)
            });
            let measured = Measurement::new(point, threads, seed, &shares);
            results.push(measured.on(&machine, false));
        }
    }
    drop(progress);

    let mut out = io::stdout();
    if let Some(target) = &json {
        target.write(&results, &mut out)?;
        if target.is_standard_output() {
            return Ok(());
        }
    }
    let mut table = plain(&HEADINGS);
    table.column_iter_mut().skip(3).for_each(|column| {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    });
    table.add_rows(results.iter().map(Measurement::row));
    writeln!(
        out,
        "What hardware regions can hold, and for how long\n{machine}: {}, {}; seed {}\n\n{table}\n\n\
         Shares of the tries that aborted, by cause. --help has what the papers found.",
        numbers::counted(topology.len() as u64, "core"),
        numbers::counted(topology.iter().map(Vec::len).sum::<usize>() as u64, "hardware thread"),
        seed
    )?;
    Ok(())
}

/// Runs each client on a hardware thread of its own. All clients begin at the same time.
fn on_threads<R: Send>(
    place: &[usize],
    clients: &mut [Client],
    run: impl Fn(&mut Client) -> R + Sync,
) -> Vec<R> {
    let all_ready = Barrier::new(place.len());
    thread::scope(|scope| {
        let (all_ready, run) = (&all_ready, &run);
        let start = |(&id, client)| {
            scope.spawn(move || {
                // If the system refuses the affinity, the thread runs wherever the system schedules it.
                core_affinity::set_for_current(CoreId { id });
                all_ready.wait();
                run(client)
            })
        };
        let threads: Vec<_> = place.iter().zip(clients).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("clients do not panic")).collect()
    })
}

/// This machine's clock, and a loop of known speed.
struct ProcessorClock {
    begin: Instant,
    steps_per_nanosecond: f64,
}

impl ProcessorClock {
    fn new() -> ProcessorClock {
        // Other load only makes the loop slower, so the fastest of several runs is the best estimate.
        const STEPS: u64 = 1_000_000;
        let once = |_| {
            let begin = Instant::now();
            spin(STEPS);
            STEPS as f64 / begin.elapsed().as_nanos().max(1) as f64
        };
        let steps_per_nanosecond = (0..20).map(once).fold(0.0, f64::max);
        ProcessorClock { begin: Instant::now(), steps_per_nanosecond }
    }
}

impl Clock for ProcessorClock {
    fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    fn compute(&self, nanoseconds: u64) {
        spin((nanoseconds as f64 * self.steps_per_nanosecond) as u64);
    }
}

#[inline(never)]
fn spin(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}

/// Returns the hardware threads of each core. If the system does not report the cores, each thread counts as one.
fn topology() -> Topology {
    let allowed = core_affinity::get_core_ids().unwrap_or_else(|| vec![CoreId { id: 0 }]);
    let (mut names, mut cores) = (Vec::new(), Topology::new());
    for CoreId { id } in allowed {
        let read = |what: &str| number(&format!("/sys/devices/system/cpu/cpu{id}/topology/{what}"));
        let name = read("physical_package_id").zip(read("core_id"));
        match names.iter().position(|other| name.is_some() && *other == name) {
            Some(core) => cores[core].push(id),
            None => {
                names.push(name);
                cores.push(vec![id]);
            }
        }
    }
    cores
}

/// Returns the size of the first-level data cache, or that of the papers' machine if the system does not report it.
fn edges() -> Edges {
    let read = |what: &str| number(&format!("/sys/devices/system/cpu/cpu0/cache/index0/{what}"));
    let known = || {
        let [sets, ways, line] =
            ["number_of_sets", "ways_of_associativity", "coherency_line_size"].map(read);
        let (sets, ways) = (sets?, ways?);
        (sets > 0 && ways > 1)
            .then_some(Edges { first_level_bytes: sets * ways * line?, first_level_ways: ways })
    };
    known().unwrap_or(Edges::HASWELL)
}

/// Returns the processor's name.
fn machine() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = information.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    name.unwrap_or("This machine").to_owned()
}

/// Returns the number in a system file.
fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
