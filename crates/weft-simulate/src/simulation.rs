//! Runs a loaded workload on virtual cores, and counts.
//!
//! The load runs outside of virtual time, on one thread, so that the same seed gives the same database. Then
//! each virtual core is a client, which sends one transaction after the other until its clock reaches the end.
//! Transactions that began within the measured time count.
//!
//! The machine charges accesses to shared words and to rows. In addition, computing is charged by two
//! constants: [`Options::cycles_per_access`] for the instructions around each access, and
//! [`CYCLES_PER_TRANSACTION`] or [`CYCLES_OF_SMALL`] for the client, which draws and writes its input.
//! [`PRIVATE_MEMORY`] takes room in caches and regions. `docs/simulated.md` says how these numbers were found.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::time::Instant;

use weft::htm::Choice;
use weft::protocol::Protocol;
use weft::{Failure, Metrics};
use weft_protocols::{
    AdaptiveOptions, CoordinatedDatabase, DbxPaperOptions, DbxTcOptions, HtccOptions, PROTOCOLS,
    PhaseOptions, coordinator_of,
};
use weft_sim::{Counts, Options, PrivateMemory, Profile, Program};
use weft_workloads::aborts::AbortsByTable;
use weft_workloads::dbx;
use weft_workloads::dbx_tc::{self, Pieces};
use weft_workloads::htcc::{NOT_SERIALIZABLE, Repairs, is_serializable, options_of};
use weft_workloads::phases::Phases;
use weft_workloads::variants::protocol_of;
use weft_workloads::workload::{Condition, LoadOptions, Outcome, Workload};
use weft_workloads::{adaptive, doppel, paper};

use crate::arguments::{Common, Private, Regions};
use crate::progress::Progress;
use crate::report;

/// Cycles that a client computes for one transaction, without the database's part. *Measured* for TPC-C: 2,200
/// instructions, at two per cycle.
pub const CYCLES_PER_TRANSACTION: u64 = 1_100;

/// Cycles that a client computes for a transaction whose row was drawn in advance. *Measured*, on a processor
/// of two to three cycles per nanosecond: drawing and noting an increment of INCR1 takes 4 to 7 ns, a
/// transaction of LIKE 13.
pub const CYCLES_OF_SMALL: u64 = 20;

/// What a client and the engine use in addition to shared memory. *Measured* on transactions of TPC-C under
/// `htm-naive`, by a trace of all their accesses (`docs/simulated.md`). They write 104 lines of stack and heap
/// on average: 68 in an Order-Status of three or four operations, 91 in a Payment of seven, 127 in a New-Order
/// of some fifty.
const PRIVATE_MEMORY: PrivateMemory = PrivateMemory { lines: 128, lines_per_operation: 16 };

/// One `cargo simulate` command: what it compares and how.
pub trait Benchmark {
    /// Returns the heading, for the given values of the varied option: one, or all of them. The slice is empty
    /// if nothing is varied.
    fn title(&self, values: &[f64]) -> String;

    /// Returns the options that every workload has.
    fn common(&self) -> &Common;

    /// Returns the names of the contenders: protocols, unless a command compares something else.
    fn contenders(&self) -> Vec<String> {
        self.common().protocol.clone()
    }

    /// Returns the varied option. Each value gets databases of its own.
    fn axis(&self) -> Axis {
        Axis::default()
    }

    /// Returns the largest number of cores that a contender supports.
    fn cores_max(&self, contender: &str) -> usize {
        let protocol = PROTOCOLS.iter().find(|protocol| protocol.name == protocol_of(contender));
        protocol.expect("the parser knows the names").workers_max
    }

    /// Checks conditions on several of the command's own options together.
    ///
    /// # Errors
    /// A message that says which combination is not possible.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Loads a contender's workload, and runs it.
    ///
    /// # Errors
    /// If the engine fails, or a condition does not hold.
    fn simulate(&self, contender: &str, setting: &Setting<'_>) -> Result<SimulationResult, String>;
}

/// An option with several values, which are simulated one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its name.
    pub name: &'static str,
    /// Its values; empty if nothing is varied.
    pub values: Vec<f64>,
}

impl Axis {
    /// Returns the values, one after the other, or a single `None` if there are no values.
    fn points(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let nothing = self.values.is_empty().then_some(None);
        self.values.iter().copied().map(Some).chain(nothing)
    }
}

/// Returns some values as a list for a heading.
pub fn listed(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The setting of one simulation: where and how it runs.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The name of the contender.
    pub contender: &'a str,
    /// The machine.
    pub profile: &'static Profile,
    /// The number of virtual cores.
    pub cores: usize,
    /// The value of the varied option, if one is varied.
    pub value: Option<f64>,
    /// The options that every workload has.
    pub common: &'a Common,
    /// The options of `dbx:paper`, if the contender is that.
    pub dbx_paper: Option<DbxPaperOptions>,
    /// The options of `htcc`, if the contender is a variant of it.
    pub htcc: Option<&'a HtccOptions>,
    /// The options of `doppel`, if the contender is a variant of it.
    pub doppel: Option<&'a PhaseOptions>,
    /// The options of `dbx-tc`, if the contender is a variant of it.
    pub dbx_tc: Option<&'a DbxTcOptions>,
    /// The options of `adaptive`, if the contender is a variant of it.
    pub adaptive: Option<&'a AdaptiveOptions>,
}

impl Setting<'_> {
    /// Returns the options for loading.
    pub fn load_options(&self) -> LoadOptions<'_> {
        let htm = match self.common.htm {
            Regions::Rtm => Choice::Auto,
            Regions::None => Choice::Software,
        };
        let phase_length = self.common.phase_length();
        LoadOptions {
            seed: self.common.seed,
            htm: Some(htm),
            phase_length,
            conflict_retries: self.common.conflict_retries,
            capacity_retries: self.common.capacity_retries,
            by_rows: self.common.by_rows,
            dbx_paper: self.dbx_paper,
            doppel: self.doppel,
            htcc: self.htcc,
            dbx_tc: self.dbx_tc,
            adaptive: self.adaptive,
            ..LoadOptions::default()
        }
    }
}

/// The system that the clients drive: a workload under a protocol ([`UnderProtocol`]), or something without a
/// protocol.
pub trait System {
    /// The state that one core carries from one transaction to the next.
    type Client;

    /// Returns how many cycles a client computes for one transaction, without the database's part.
    fn cycles_per_transaction(&self) -> u64;

    /// Returns the names of the transaction types.
    fn transactions(&self) -> &'static [&'static str];

    /// See [`Workload::client`].
    fn client(&self, seed: u64, core: usize, cores: usize) -> Self::Client;

    /// See [`Workload::execute`].
    ///
    /// # Errors
    /// As for [`Workload::execute`].
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure>;

    /// Returns the database if a core of its own changes its phases.
    fn coordinator(&self) -> Option<&dyn CoordinatedDatabase> {
        None
    }

    /// Returns the engine's metrics.
    fn metrics(&self) -> Metrics;

    /// See [`Workload::verify`].
    ///
    /// # Errors
    /// As for [`Workload::verify`].
    fn verify(&self) -> Result<Vec<Condition>, Failure>;
}

/// A workload loaded under protocol `P`.
struct UnderProtocol<P, W> {
    workload: W,
    cycles_per_transaction: u64,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol, W: Workload<P>> System for UnderProtocol<P, W> {
    type Client = W::Client;

    fn cycles_per_transaction(&self) -> u64 {
        self.cycles_per_transaction
    }

    fn transactions(&self) -> &'static [&'static str] {
        W::TRANSACTIONS
    }

    fn client(&self, seed: u64, core: usize, cores: usize) -> W::Client {
        self.workload.client(seed, core, cores)
    }

    fn execute(&self, client: &mut W::Client) -> Result<Outcome, Failure> {
        self.workload.execute(client)
    }

    fn coordinator(&self) -> Option<&dyn CoordinatedDatabase> {
        coordinator_of(self.workload.database()).map(|database| database as _)
    }

    fn metrics(&self) -> Metrics {
        self.workload.database().metrics()
    }

    fn verify(&self) -> Result<Vec<Condition>, Failure> {
        self.workload.verify(&|_, _| {})
    }
}

/// Loads a workload under a protocol, and runs it.
///
/// # Errors
/// See [`simulate`].
pub fn simulate_under<P: Protocol, W: Workload<P>>(
    parameters: &W::Parameters,
    setting: &Setting<'_>,
) -> Result<SimulationResult, String> {
    simulate_computing::<P, W>(parameters, CYCLES_PER_TRANSACTION, setting)
}

/// Like [`simulate_under`], but clients compute `cycles_per_transaction` cycles for each transaction.
///
/// # Errors
/// See [`simulate`].
pub fn simulate_computing<P: Protocol, W: Workload<P>>(
    parameters: &W::Parameters,
    cycles_per_transaction: u64,
    setting: &Setting<'_>,
) -> Result<SimulationResult, String> {
    let workload = W::load(parameters, &setting.load_options())
        .map_err(|error| format!("{}, loading: {error}", P::NAME))?;
    let system =
        Box::new(UnderProtocol::<P, W> { workload, cycles_per_transaction, protocol: PhantomData });
    simulate(&*system, setting)
}

/// The results of one simulation.
#[derive(Debug)]
pub struct SimulationResult {
    /// The protocol, or the name of another contender.
    pub protocol: String,
    /// The number of virtual cores.
    pub cores: usize,
    /// The value of the varied option, if one is varied.
    pub value: Option<f64>,
    /// Transactions that committed, among those that began in the measured time.
    pub transactions: u64,
    /// Transactions that committed, including those of the warm-up.
    pub committed: u64,
    /// Transactions that rolled back on purpose, as the workload specifies.
    pub rolled_back: u64,
    /// How many cycles the client computed for each transaction.
    pub cycles_per_transaction: u64,
    /// The latencies of committed and rolled-back transactions, in cycles, ascending.
    pub latencies: Vec<u64>,
    /// The transactions of each type.
    pub types: Vec<TypeResult>,
    /// Transactions that committed, by the interval of the timeline in which they began. Empty without a
    /// timeline.
    pub timeline: Vec<u64>,
    /// The ranks of some keys, and their shares of all draws in percent, if the popularity of keys falls off.
    pub percent_of_ranks: Vec<(u64, f64)>,
    /// What happened in phases, including the warm-up, under a protocol that has them.
    pub phases: Option<Phases>,
    /// What was repaired, including the warm-up.
    pub repairs: Option<Repairs>,
    /// What was done in pieces, including the warm-up.
    pub pieces: Option<Pieces>,
    /// The machine's counts in the measured time, summed over all cores.
    pub counts: Counts,
    /// Aborted attempts per transaction, including the warm-up.
    pub aborts_per_transaction: f64,
    /// Aborted attempts by table; `None` if there were none.
    pub aborts_by_table: Option<AbortsByTable>,
    /// Runs of regions that ended in the software twin or under the lock, per transaction, including the
    /// warm-up.
    pub fallbacks_per_transaction: f64,
    /// Accesses of the whole run per second of the host's time.
    pub accesses_per_host_second: f64,
    /// Seconds of the host's time, without the load.
    pub host_seconds: f64,
}

/// The transactions of one type.
#[derive(Clone, Debug, Default)]
pub struct TypeResult {
    /// Its name.
    pub name: &'static str,
    /// The number that committed.
    pub committed: u64,
    /// The number that rolled back on purpose, as the workload specifies.
    pub rolled_back: u64,
    /// The latencies of both, in cycles, ascending.
    pub latencies: Vec<u64>,
}

/// Runs the simulations that a command selects, and reports.
///
/// # Errors
/// If something cannot be simulated, the engine fails, a condition does not hold, or a file cannot be written.
pub fn run(benchmark: &dyn Benchmark) -> Result<(), String> {
    let common = benchmark.common();
    let profile = Profile::named(&common.machine).expect("the parser knows the names");
    benchmark.check()?;
    check(profile, benchmark)?;
    let contenders = benchmark.contenders();
    let axis = benchmark.axis();
    let progress = Progress::new(axis.points().count() * contenders.len() * common.cores.len());
    let mut outcomes = Vec::new();
    for value in axis.points() {
        let at = value.map_or(String::new(), |value| format!(" at {} {value}", axis.name));
        for contender in &contenders {
            for &cores in &common.cores {
                progress.next(&format!("{contender} on {cores}{at}"));
                let dbx_paper = dbx::options_of(contender, &common.paper);
                let htcc = options_of(contender, &common.hot_tables, &common.paper);
                let doppel = doppel::options_of(contender, &common.paper);
                let dbx_tc = dbx_tc::options_of(contender, &common.paper);
                let adaptive = adaptive::options_of(contender);
                let setting = Setting {
                    contender,
                    profile,
                    cores,
                    value,
                    common,
                    dbx_paper,
                    doppel: doppel.as_ref(),
                    htcc: htcc.as_ref(),
                    dbx_tc: dbx_tc.as_ref(),
                    adaptive: adaptive.as_ref(),
                };
                outcomes.push(benchmark.simulate(contender, &setting)?);
            }
        }
    }
    drop(progress);
    report::show(benchmark, profile, &outcomes)
}

/// Checks conditions on several options together, so that a user does not learn of an error after half of the
/// runs.
fn check(profile: &Profile, benchmark: &dyn Benchmark) -> Result<(), String> {
    let contenders = benchmark.contenders();
    paper::check(contenders.iter().map(String::as_str), &benchmark.common().paper)?;
    let unverifiable = contenders.iter().find(|contender| !is_serializable(contender));
    if let Some(contender) = unverifiable.filter(|_| benchmark.common().verify) {
        return Err(format!("{contender} {NOT_SERIALIZABLE}"));
    }
    for &cores in &benchmark.common().cores {
        let most = profile.threads();
        if !(1..=most).contains(&cores) {
            return Err(format!("{} has 1 to {most} hardware threads, not {cores}", profile.name));
        }
        for contender in benchmark.contenders() {
            let most = benchmark.cores_max(&contender);
            if cores > most {
                return Err(format!("{contender} allows at most {most} cores, not {cores}"));
            }
        }
    }
    Ok(())
}

/// The measurements of one core.
#[derive(Default)]
struct CoreMeasurement {
    types: Vec<TypeResult>,
    executed: u64,
    timeline: Vec<u64>,
    /// The core's counts at the first measured transaction, and after the last one.
    counts: Option<(Counts, Counts)>,
}

/// Runs what was loaded. `system` must lie on the heap. The operating system places stacks at random, by less
/// than a page, so words on the stack would be in other lines and pages in every process.
///
/// # Errors
/// If the run does not end, no transaction began in the measured time, or a condition does not hold.
pub fn simulate<D: System>(system: &D, setting: &Setting<'_>) -> Result<SimulationResult, String> {
    let &Setting { profile, cores, common, .. } = setting;
    let name = setting.contender;
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{name}, {what}: {error}");
    let cycles = |milliseconds: f64| (milliseconds * profile.megahertz as f64 * 1e3) as u64;
    let begin = cycles(common.warmup);
    let end = begin + cycles(common.milliseconds);
    // The thread that coordinates has the core after the clients'. If they have all cores, workers change the phases; a thread
    // that makes records hot has the last client's core.
    let coordinator = system.coordinator();
    let coordinator = coordinator
        .filter(|database| cores < profile.threads() || (cores > 1 && !database.can_do_without()));
    let clients = match coordinator {
        Some(_) => cores.min(profile.threads() - 1),
        None => cores,
    };
    let measured: Vec<RefCell<CoreMeasurement>> =
        (0..clients).map(|_| RefCell::default()).collect();
    let before = system.metrics();
    let interval = common.timeline.map(cycles);
    let client = |core: usize| {
        let measured = &measured[core];
        let mut client = system.client(common.seed, core, clients);
        move || {
            let types = system.transactions().iter();
            let types = types.map(|name| TypeResult { name, ..TypeResult::default() }).collect();
            let mut mine = CoreMeasurement { types, ..CoreMeasurement::default() };
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
                weft_sim::compute(system.cycles_per_transaction());
                let ended = match system.execute(&mut client) {
                    Ok(ended) => ended,
                    Err(failure) => panic!("{name}: {failure}"),
                };
                mine.executed += 1;
                if let Some((_, last)) = &mut mine.counts {
                    *last = counts();
                    let of_type = &mut mine.types[ended.transaction];
                    of_type.latencies.push(now() - ended.begun.unwrap_or(start));
                    of_type.committed += u64::from(!ended.rolled_back);
                    of_type.rolled_back += u64::from(ended.rolled_back);
                    if let Some(interval) = interval
                        && !ended.rolled_back
                    {
                        let position = ((start - begin) / interval) as usize;
                        if mine.timeline.len() <= position {
                            mine.timeline.resize(position + 1, 0);
                        }
                        mine.timeline[position] += 1;
                    }
                }
            }
            measured.replace(mine);
        }
    };
    let programs = (0..clients).map(|core| Box::new(client(core)) as Program<'_>);
    let coordinator = coordinator.map(|database| {
        Box::new(move || {
            let goes_on = || weft_sim::cycles().is_some_and(|now| now < end);
            if let Err(failure) = database.coordinate(&goes_on) {
                panic!("{name}: {failure}");
            }
        }) as Program<'_>
    });
    let programs = programs.chain(coordinator).collect();
    let start = Instant::now();
    let private_memory = match common.private_memory {
        Private::On => PRIVATE_MEMORY,
        Private::Off => PrivateMemory::NONE,
    };
    let options = Options { private_memory, ..Options::new(profile, common.seed) };
    let run = weft_sim::run(&options, programs);
    let host_seconds = start.elapsed().as_secs_f64();
    let report = run.map_err(|failure| failed("simulating", &failure))?;
    let after = system.metrics();
    let measured: Vec<CoreMeasurement> = measured.into_iter().map(RefCell::into_inner).collect();
    let executed = measured.iter().map(|core| core.executed).sum::<u64>() as f64;
    let types = by_type(system.transactions(), &measured);
    let timelines = measured.iter().map(|core| core.timeline.as_slice());
    let mut latencies: Vec<u64> =
        types.iter().flat_map(|of_type| of_type.latencies.iter().copied()).collect();
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
        let conditions = system.verify().map_err(|error| failed("verifying", &error))?;
        if let Some(broken) = conditions.iter().find(|condition| !condition.holds) {
            return Err(failed("verifying", broken));
        }
    }
    Ok(SimulationResult {
        protocol: name.to_owned(),
        cores,
        value: setting.value,
        transactions: types.iter().map(|of_type| of_type.committed).sum(),
        committed: after.committed - before.committed,
        rolled_back: types.iter().map(|of_type| of_type.rolled_back).sum(),
        cycles_per_transaction: system.cycles_per_transaction(),
        latencies,
        types,
        timeline: sums(timelines),
        percent_of_ranks: Vec::new(),
        repairs: Repairs::of(&after).since(&Repairs::of(&before)).any(),
        pieces: Pieces::of(&after).since(&Pieces::of(&before)).any(),
        phases: Phases::of(&after)
            .zip(Phases::of(&before))
            .map(|(after, before)| after.since(&before)),
        counts,
        aborts_per_transaction: (after.aborted_total() - before.aborted_total()) as f64 / executed,
        aborts_by_table: AbortsByTable::of(&after).since(&AbortsByTable::of(&before)).any(),
        fallbacks_per_transaction: (after.htm.fallbacks - before.htm.fallbacks) as f64 / executed,
        accesses_per_host_second: accesses as f64 / host_seconds,
        host_seconds,
    })
}

/// Returns the sum of each interval over all cores. Some cores may have ended before others.
fn sums<'a>(timelines: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    timelines.fold(Vec::new(), |mut total, timeline| {
        total.resize(total.len().max(timeline.len()), 0);
        total.iter_mut().zip(timeline).for_each(|(total, count)| *total += count);
        total
    })
}

/// Returns the transactions of each type, over all cores.
fn by_type(names: &[&'static str], measured: &[CoreMeasurement]) -> Vec<TypeResult> {
    let of_type = |(position, &name): (usize, &&'static str)| {
        let cores = measured.iter().map(|core| &core.types[position]);
        let mut latencies: Vec<u64> =
            cores.clone().flat_map(|core| core.latencies.iter().copied()).collect();
        latencies.sort_unstable();
        TypeResult {
            name,
            committed: cores.clone().map(|core| core.committed).sum(),
            rolled_back: cores.map(|core| core.rolled_back).sum(),
            latencies,
        }
    };
    names.iter().enumerate().map(of_type).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_measurements_are_combined_by_type() {
        let of_type = |name, latencies: &[u64], rolled_back| TypeResult {
            name,
            committed: latencies.len() as u64 - rolled_back,
            rolled_back,
            latencies: latencies.to_vec(),
        };
        let core = |types: [TypeResult; 2]| CoreMeasurement {
            types: types.into(),
            ..CoreMeasurement::default()
        };
        let measured = [
            core([of_type("like", &[5, 3], 0), of_type("read", &[2], 1)]),
            core([of_type("like", &[4], 0), of_type("read", &[], 0)]),
        ];
        let types = by_type(&["like", "read"], &measured);
        assert_eq!((types[0].name, types[0].committed), ("like", 3));
        assert_eq!(types[0].latencies, [3, 4, 5]);
        assert_eq!((types[1].committed, types[1].rolled_back), (0, 1));
    }

    #[test]
    fn timelines_of_cores_are_added() {
        let of = |timelines: &[&[u64]]| sums(timelines.iter().copied());
        assert_eq!(of(&[&[1, 2], &[10], &[], &[0, 0, 100]]), [11, 2, 100]);
        assert!(of(&[&[], &[]]).is_empty());
    }

    #[test]
    fn without_an_axis_there_is_one_point() {
        assert_eq!(Axis::default().points().collect::<Vec<_>>(), [None]);
        let axis = Axis { name: "alpha", values: vec![0.0, 1.4] };
        assert_eq!(axis.points().collect::<Vec<_>>(), [Some(0.0), Some(1.4)]);
    }
}
