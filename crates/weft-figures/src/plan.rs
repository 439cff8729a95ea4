//! The plan of a figure: the calls that measure it.

use std::fmt;

use crate::definition::{
    AxisVariable, Content, DIRECTORY, Experiment, Figure, Real, Simulated, Subject,
};

/// The program of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `weft-lab`, on this machine.
    Laboratory,
    /// `weft-simulate`, on a simulated machine.
    Simulator,
}

/// A call of a program. The program prints a JSON object, or an array with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl fmt::Display for Call {
    /// Writes the command as one types it in the repository.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = match self.program {
            Program::Laboratory => "cargo lab",
            Program::Simulator => "cargo simulate",
        };
        write!(out, "{program} {}", self.arguments.join(" "))
    }
}

/// The properties of this machine that matter.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The number of threads that can run at the same time.
    pub logical_cores: u32,
    /// Whether hardware regions work.
    pub has_rtm: bool,
}

/// The choice of the machine on which figures are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineChoice {
    /// This machine if it has what the figure needs, else a simulated one.
    Best,
    /// This machine.
    Real,
    /// A simulated machine.
    Simulated,
}

/// The settings for all figures.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The choice of the machine.
    pub wanted: MachineChoice,
    /// This machine.
    pub host: Host,
    /// Whether all points are measured, in longer runs.
    pub is_full: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// A factor on the time of each run; less than 1 is for tests.
    pub time: f64,
    /// Additional options of every call, to try figures out.
    pub with: Vec<String>,
    /// The directory that replaces [`DIRECTORY`], for calls that need a disk.
    pub directory: String,
}

/// The machine on which a figure is measured.
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// This machine.
    Real(Real),
    /// A simulated machine.
    Simulated(Simulated),
}

impl Machine {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Machine::Real(_) => "this machine",
            Machine::Simulated(simulated) => simulated.machine,
        }
    }

    /// Returns whether it is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Machine::Simulated(_))
    }
}

/// One point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// The position of its series.
    pub series: usize,
    /// Its value on the axis.
    pub at: f64,
    /// The call that measures it.
    pub call: Call,
    /// The approximate time that this takes, in seconds.
    pub seconds: f64,
}

/// The plan of a figure.
#[derive(Debug)]
pub struct Plan {
    /// The machine.
    pub machine: Machine,
    /// The values of the axis.
    pub axis: Vec<f64>,
    /// The points, by series and axis.
    pub points: Vec<Point>,
    /// What this machine lacks for the figure.
    pub notes: Vec<String>,
}

/// Seconds of the host per millisecond of virtual time of one virtual core. *Measured*: TPC-C on 80 cores, 240 such
/// milliseconds, 4.2 s.
const SECONDS_OF_VIRTUAL_MILLISECOND: f64 = 0.018;

/// Approximate seconds to load a database.
const SECONDS_OF_LOAD: f64 = 3.0;

/// Seconds for one size of regions.
const SECONDS_OF_REGIONS: f64 = 1.5;

/// For this machine: the number of rounds, and the seconds of each round and of the warm-up before it.
const ROUNDS_FULL: (u32, f64, f64) = (3, 3.0, 1.0);
const ROUNDS_QUICK: (u32, f64, f64) = (1, 1.0, 0.5);

/// Plans a figure.
///
/// # Errors
/// The figure cannot be measured with these settings; the error says why.
pub fn plan(figure: &Figure, settings: &Settings) -> Result<Plan, String> {
    let experiment = match &figure.content {
        Content::Experiment(experiment) => experiment,
        Content::NotMeasured(why) => return Err((*why).to_owned()),
    };
    let machine = machine(experiment, settings)?;
    let mut notes = Vec::new();
    let mut axis = values(experiment, settings.is_full);
    if let (Machine::Real(real), cores) = (&machine, settings.host.logical_cores) {
        if matches!(experiment.axis.by, AxisVariable::Threads)
            && experiment.subject == Subject::Transactions
        {
            let all = axis.len();
            axis.retain(|&threads| threads <= f64::from(cores));
            if axis.len() < all {
                notes.push(format!(
                    "Only up to {cores} threads: this machine cannot run more at the same time."
                ));
            }
            if axis.is_empty() {
                return Err(format!("this machine can run only {cores} threads at the same time"));
            }
        } else if real.threads > cores && experiment.subject == Subject::Regions {
            return Err(format!("it needs {} threads, and this machine has {cores}", real.threads));
        } else if real.threads > cores {
            notes.push(format!(
                "On {cores} threads instead of the paper's {}: this machine cannot run more at the same time.",
                real.threads
            ));
        }
        if real.needs_rtm && !settings.host.has_rtm {
            notes.push(
                "This machine has no RTM; software twins replace hardware regions.".to_owned(),
            );
        }
    }
    let series = 0..experiment.series.len();
    let points = series.flat_map(|series| axis.iter().map(move |&at| (series, at)));
    let points = points.map(|(series, at)| point(experiment, &machine, settings, series, at));
    let mut points: Vec<Point> = points.collect();
    for position in 1..points.len() {
        if points[position].call == points[position - 1].call {
            // Both points are of the same run, which takes its time once.
            points[position].seconds = 0.0;
        }
    }
    Ok(Plan { machine, points, axis, notes })
}

/// Returns the values of the axis.
fn values(experiment: &Experiment, is_full: bool) -> Vec<f64> {
    match (experiment.axis.by, is_full) {
        (AxisVariable::Choices(choices), _) => {
            (0..choices.len()).map(|position| position as f64).collect()
        }
        (_, true) => experiment.axis.full.to_vec(),
        (_, false) => experiment.axis.quick.to_vec(),
    }
}

/// Returns the machine on which a figure is measured.
fn machine(experiment: &Experiment, settings: &Settings) -> Result<Machine, String> {
    let &Settings { host, wanted, is_full, .. } = settings;
    let (real, simulated) = (experiment.real, experiment.simulated);
    let wanted = if experiment.subject == Subject::Analysis { MachineChoice::Real } else { wanted };
    let is_able = |real: &Real| {
        let most = match experiment.axis.by {
            AxisVariable::Threads => values(experiment, is_full).into_iter().fold(0.0, f64::max),
            _ => f64::from(real.threads),
        };
        most <= f64::from(host.logical_cores) && (host.has_rtm || !real.needs_rtm)
    };
    let chosen = match (wanted, real, simulated) {
        (MachineChoice::Real, real, _) => real.map(Machine::Real),
        (MachineChoice::Simulated, _, simulated) => simulated.map(Machine::Simulated),
        (MachineChoice::Best, Ok(real), _) if is_able(&real) => Ok(Machine::Real(real)),
        (MachineChoice::Best, _, Ok(simulated)) => Ok(Machine::Simulated(simulated)),
        (MachineChoice::Best, real, Err(_)) => real.map(Machine::Real),
    };
    chosen.map_err(str::to_owned)
}

/// Returns one point, with its call.
fn point(
    experiment: &Experiment,
    machine: &Machine,
    settings: &Settings,
    series: usize,
    at: f64,
) -> Point {
    let (by, subject) = (experiment.axis.by, experiment.subject);
    let mut words: Vec<String> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(|&word| word.to_owned()));
    if subject == Subject::Analysis {
        add(experiment.workload);
        add(experiment.series[series].arguments);
        if let AxisVariable::Choices(choices) = by {
            add(choices[at as usize].arguments);
        }
        let call = Call { program: Program::Laboratory, arguments: words };
        return Point { series, at, call, seconds: SECONDS_OF_REGIONS };
    }
    if let Machine::Real(_) = machine {
        add(&["bench"]);
    }
    add(experiment.workload);
    add(experiment.series[series].arguments);
    match by {
        AxisVariable::Threads | AxisVariable::Time => {}
        AxisVariable::Option(name, unit) => add(&[name, &format!("{at}{unit}")]),
        AxisVariable::Choices(choices) => add(choices[at as usize].arguments),
    }
    let threads_of = |fixed: u32| match by {
        AxisVariable::Threads => at as u32,
        _ => fixed,
    };
    let seconds = match machine {
        Machine::Real(real) => {
            add(real.arguments);
            let (rounds, seconds, warmup) =
                if settings.is_full { ROUNDS_FULL } else { ROUNDS_QUICK };
            let (seconds, warmup) = (seconds * settings.time, warmup * settings.time);
            if subject == Subject::Transactions {
                add(&["--htm", "auto"]);
                let threads = threads_of(real.threads).min(settings.host.logical_cores);
                add(&["--threads", &threads.to_string(), "--rounds", &rounds.to_string()]);
                add(&["--seconds", &seconds.to_string(), "--warmup", &warmup.to_string()]);
                f64::from(rounds) * (seconds + warmup) + SECONDS_OF_LOAD
            } else {
                SECONDS_OF_REGIONS
            }
        }
        Machine::Simulated(simulated) => {
            add(simulated.arguments);
            add(&["--machine", simulated.machine]);
            if subject == Subject::Transactions {
                let cores = threads_of(simulated.cores);
                let length = if settings.is_full { simulated.full } else { simulated.quick };
                let (warmup, measured) = (length.warmup, length.measured * settings.time);
                add(length.arguments);
                add(&["--cores", &cores.to_string(), "--warmup", &warmup.to_string()]);
                add(&["--milliseconds", &measured.to_string()]);
                let virtual_time = f64::from(cores) * (warmup + measured);
                virtual_time * SECONDS_OF_VIRTUAL_MILLISECOND + length.load
            } else {
                SECONDS_OF_REGIONS
            }
        }
    };
    add(&["--seed", &settings.seed.to_string(), "--json", "-"]);
    words.extend(settings.with.iter().cloned());
    for word in words.iter_mut().filter(|word| *word == DIRECTORY) {
        word.clone_from(&settings.directory);
    }
    let program = if machine.is_simulated() { Program::Simulator } else { Program::Laboratory };
    Point { series, at, call: Call { program, arguments: words }, seconds }
}
