//! Loading a database, running it on virtual cores, and counting.
//!
//! The load runs outside of virtual time, on one thread, so that the same seed gives the same database.
//! Then each virtual core is a client, which sends one transaction after the other until its clock shows
//! the end. What began within the measured time counts.
//!
//! Beside what the machine charges for accesses of shared words and of rows, computing is charged by two
//! constants: [`Options::cycles_per_access`] for the instructions around each access, and
//! [`CYCLES_PER_TRANSACTION`] for the client, which draws and writes its input. And [`PRIVATE_MEMORY`]
//! takes room in caches and regions. `docs/simulated.md` says how they were found.

use std::cell::RefCell;
use std::time::Instant;

use weft::htm::Choice;
use weft::protocol::{PROTOCOLS, Protocol, ProtocolDescription, with_protocol};
use weft_sim::{Counts, Options, PrivateMemory, Profile, Program};
use weft_workloads::tpcc::Tpcc;
use weft_workloads::ycsb::row::{FixedRow, InTree};
use weft_workloads::ycsb::{Distribution, Ycsb};
use weft_workloads::{LoadOptions, tpcc, ycsb};

use crate::arguments::{Arguments, Common, Regions, Workload};
use crate::report;

/// What a client computes for one transaction, beside the database's part. *Measured* for TPC-C: 2,200
/// instructions, at two for a cycle.
pub const CYCLES_PER_TRANSACTION: u64 = 1_100;

/// What a client and the engine use beside shared memory. *Measured* on transactions of TPC-C under
/// `htm-naive`, by a trace of all their accesses (`docs/simulated.md`): they write 104 lines of stack and
/// heap on average, 68 in an Order-Status of three or four operations, 91 in a Payment of seven, 127 in a
/// New-Order of some fifty.
const PRIVATE_MEMORY: PrivateMemory = PrivateMemory { lines: 128, lines_per_operation: 16 };

/// YCSB's rows: a counter of eight bytes, and so many to fill them up to a hundred.
type Row = FixedRow<92, InTree>;

/// What one simulation came to.
#[derive(Debug)]
pub struct Outcome {
    /// The protocol.
    pub protocol: String,
    /// How many virtual cores.
    pub cores: usize,
    /// Transactions that ended, of those that began in the measured time.
    pub transactions: u64,
    /// Their latencies, in cycles, ascending.
    pub latencies: Vec<u64>,
    /// What the machine counted in the measured time, of all cores.
    pub counts: Counts,
    /// Attempts that gave way to other transactions, for each transaction, warm-up included.
    pub aborts_per_transaction: f64,
    /// Runs of regions that ended in the software twin or under the lock, for each transaction, warm-up
    /// included.
    pub fallbacks_per_transaction: f64,
    /// Accesses of the whole run for each second of the host's time.
    pub accesses_per_host_second: f64,
    /// Seconds of the host's time, without the load.
    pub host_seconds: f64,
}

/// Runs all that is asked for, and reports.
///
/// # Errors
/// What cannot be simulated, a failure of the engine, a condition that does not hold, or a file that
/// cannot be written.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let (title, common) = match &arguments.workload {
        Workload::Tpcc(tpcc) => (format!("TPC-C, mix {}", tpcc.mix), &tpcc.common),
        Workload::Ycsb(ycsb) => {
            let rows = format!("{} rows of 100 bytes, theta {}", ycsb.records, ycsb.theta);
            let operations = ycsb.operations;
            (format!("YCSB, {}, {rows}, {operations} per transaction", ycsb.mix), &ycsb.common)
        }
    };
    let profile = Profile::named(&common.machine).expect("the parser knows the names");
    check(profile, common)?;
    let mut outcomes = Vec::new();
    for protocol in &common.protocol {
        for &cores in &common.cores {
            let outcome = match &arguments.workload {
                Workload::Tpcc(tpcc) => {
                    let warehouses = tpcc.warehouses.unwrap_or(cores as u16);
                    let parameters = tpcc::Parameters {
                        warehouses,
                        mix: tpcc.mix,
                        scale: tpcc.scale.scale(),
                        snapshots: false,
                    };
                    with_protocol!(protocol, |P| {
                        simulate::<P, Tpcc<P>>(&parameters, profile, common, cores)
                    })
                }
                Workload::Ycsb(ycsb) => {
                    let parameters = ycsb::Parameters {
                        records: ycsb.records,
                        mix: ycsb.mix,
                        operations: ycsb.operations,
                        scan_rows: 100,
                        theta: ycsb.theta,
                        distribution: Distribution::Zipf,
                    };
                    with_protocol!(protocol, |P| {
                        simulate::<P, Ycsb<P, Row>>(&parameters, profile, common, cores)
                    })
                }
            };
            outcomes.push(outcome.expect("the parser knows the names")?);
        }
    }
    report::show(&title, profile, common, &outcomes)
}

/// Checks what depends on more than one option: nobody should learn that after half of the runs.
fn check(profile: &Profile, common: &Common) -> Result<(), String> {
    for &cores in &common.cores {
        let most = profile.threads();
        if !(1..=most).contains(&cores) {
            return Err(format!("{} has 1 to {most} hardware threads, not {cores}", profile.name));
        }
        let named = |name: &str| common.protocol.iter().any(|protocol| protocol == name);
        let refuses = |protocol: &&ProtocolDescription| cores > protocol.workers_max;
        if let Some(protocol) = PROTOCOLS.iter().filter(refuses).find(|it| named(it.name)) {
            let (name, most) = (protocol.name, protocol.workers_max);
            return Err(format!("{name} allows at most {most} cores, not {cores}"));
        }
    }
    Ok(())
}

/// What one core has measured.
#[derive(Default)]
struct Measured {
    latencies: Vec<u64>,
    executed: u64,
    /// The core's counts at the first transaction that was measured, and after the last one.
    counts: Option<(Counts, Counts)>,
}

fn simulate<P: Protocol, W: weft_workloads::Workload<P>>(
    parameters: &W::Parameters,
    profile: &'static Profile,
    common: &Common,
    cores: usize,
) -> Result<Outcome, String> {
    let htm = if common.htm == Regions::Rtm { Choice::Auto } else { Choice::Software };
    let load = LoadOptions { seed: common.seed, htm, ..LoadOptions::default() };
    let failed =
        |what: &str, error: &dyn std::fmt::Display| format!("{}, {what}: {error}", P::NAME);
    let workload = W::load(parameters, &load).map_err(|error| failed("loading", &error))?;
    let cycles = |milliseconds: f64| (milliseconds * profile.megahertz as f64 * 1e3) as u64;
    let begin = cycles(common.warmup);
    let end = begin + cycles(common.milliseconds);
    let measured: Vec<RefCell<Measured>> = (0..cores).map(|_| RefCell::default()).collect();
    let before = workload.database().metrics();
    let client = |core: usize| {
        let (workload, measured) = (&workload, &measured[core]);
        let mut client = workload.client(common.seed, core, cores);
        move || {
            let mut mine = Measured::default();
            let now = || weft_sim::cycles().expect("this is a virtual core");
            let counts = || weft_sim::counts().expect("this is a virtual core");
            loop {
                let start = now();
                if start >= end {
                    break;
                }
                if start >= begin && mine.counts.is_none() {
                    mine.counts = Some((counts(), counts()));
                }
                weft_sim::compute(CYCLES_PER_TRANSACTION);
                if let Err(failure) = workload.execute(&mut client) {
                    panic!("{}: {failure}", P::NAME);
                }
                mine.executed += 1;
                if let Some((_, last)) = &mut mine.counts {
                    *last = counts();
                    mine.latencies.push(now() - start);
                }
            }
            measured.replace(mine);
        }
    };
    let programs = (0..cores).map(|core| Box::new(client(core)) as Program<'_>).collect();
    let start = Instant::now();
    let options = Options { private_memory: PRIVATE_MEMORY, ..Options::new(profile, common.seed) };
    let run = weft_sim::run(&options, programs);
    let host_seconds = start.elapsed().as_secs_f64();
    let report = run.map_err(|failure| failed("simulating", &failure))?;
    let after = workload.database().metrics();
    let measured: Vec<Measured> = measured.into_iter().map(RefCell::into_inner).collect();
    let executed = measured.iter().map(|core| core.executed).sum::<u64>() as f64;
    let mut latencies: Vec<u64> =
        measured.iter().flat_map(|core| core.latencies.iter().copied()).collect();
    latencies.sort_unstable();
    if latencies.is_empty() {
        return Err(failed("simulating", &"no transaction began in the measured time"));
    }
    let counts = measured
        .iter()
        .filter_map(|core| core.counts)
        .fold(Counts::default(), |total, (first, last)| total + (last - first));
    let accesses: u64 = report.counts.iter().map(|counts| counts.accesses).sum();
    if common.verify {
        let conditions =
            workload.verify(&|_, _| {}).map_err(|error| failed("verifying", &error))?;
        if let Some(broken) = conditions.iter().find(|condition| !condition.holds) {
            return Err(failed("verifying", broken));
        }
    }
    Ok(Outcome {
        protocol: P::NAME.to_owned(),
        cores,
        transactions: latencies.len() as u64,
        latencies,
        counts,
        aborts_per_transaction: (after.aborted_total() - before.aborted_total()) as f64 / executed,
        fallbacks_per_transaction: (after.htm.fallbacks - before.htm.fallbacks) as f64 / executed,
        accesses_per_host_second: accesses as f64 / host_seconds,
        host_seconds,
    })
}
