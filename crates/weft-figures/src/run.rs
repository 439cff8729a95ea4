//! Calls, each run in a process of its own, and only if its result is not in the store yet.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use serde_json::Value;

use crate::measured::CallOutcome;
use crate::plan::{Call, Point, Program};
use crate::store::{Store, StoredResult};

/// A runner of calls.
pub trait Runner: Sync {
    /// Makes a call, and returns its reports.
    ///
    /// # Errors
    /// The call failed; the error says why.
    fn reports(&self, call: &Call) -> Result<Vec<Value>, String>;

    /// Makes a call that has one report, and returns it.
    ///
    /// # Errors
    /// The call failed, or has another number of reports.
    fn run(&self, call: &Call) -> Result<Value, String> {
        let reports = self.reports(call)?;
        let count = reports.len();
        let one = <[Value; 1]>::try_from(reports);
        one.map(|[report]| report).map_err(|_| format!("it printed {count} reports instead of one"))
    }

    /// Returns an identification of a program's build. Other builds may have other results.
    ///
    /// # Errors
    /// There is no such program.
    fn build(&self, program: Program) -> Result<String, String>;
}

/// The programs, run as processes.
#[derive(Debug)]
pub struct Processes {
    weft: PathBuf,
    simulator: Option<PathBuf>,
    builds: [OnceLock<Result<String, String>>; 2],
}

/// The error message if the simulator is not found.
pub const NO_SIMULATOR: &str = "the simulator, weft-simulate, is a separate program, and was not found: \
     build it with `cargo simulate --help` in the repository, or name it with --simulator PATH; \
     --real measures on this machine only";

impl Processes {
    /// Uses these programs.
    pub fn new(weft: PathBuf, simulator: Option<PathBuf>) -> Processes {
        Processes { weft, simulator, builds: [OnceLock::new(), OnceLock::new()] }
    }

    /// Returns the path of a program.
    ///
    /// # Errors
    /// The path is not known.
    pub fn path(&self, program: Program) -> Result<&Path, String> {
        match (program, &self.simulator) {
            (Program::Laboratory, _) => Ok(&self.weft),
            (Program::Simulator, Some(path)) => Ok(path),
            (Program::Simulator, None) => Err(NO_SIMULATOR.to_owned()),
        }
    }
}

/// Looks for the simulator where `cargo simulate` puts it, and beside the program, where an installation would put
/// it.
pub fn find_simulator(program: &Path) -> Option<PathBuf> {
    let name = format!("weft-simulate{}", std::env::consts::EXE_SUFFIX);
    let beside = program.parent()?.join(&name);
    // `target/release/weft` and `target/simulated/release/weft-simulate`
    let from_targets = program.ancestors().skip(2).take(2);
    let built = from_targets.map(|target| target.join("simulated").join("release").join(&name));
    // Prefer the built one: the one beside may be a build without the simulated machine, which `cargo build` makes.
    built.chain([beside]).find(|path| path.is_file())
}

impl Runner for Processes {
    fn reports(&self, call: &Call) -> Result<Vec<Value>, String> {
        let path = self.path(call.program)?;
        let output = Command::new(path)
            .args(&call.arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{} cannot be run: {error}", path.display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(match message.trim() {
                "" => output.status.to_string(),
                message => message.to_owned(),
            });
        }
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("its output is not a report: {error}"))?;
        Ok(match report {
            Value::Array(reports) => reports,
            report => vec![report],
        })
    }

    fn build(&self, program: Program) -> Result<String, String> {
        let build = self.builds[program as usize].get_or_init(|| {
            let path = self.path(program)?;
            let hash = hash_of(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(format!("{} ({hash:016x})", env!("CARGO_PKG_VERSION")))
        });
        build.clone()
    }
}

/// Returns a hash of a file's content.
fn hash_of(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            length => hasher.write(&buffer[..length]),
        }
    }
}

/// An observer of the progress of calls.
pub trait Watcher: Sync {
    /// A call begins.
    fn begins(&self, _point: &Point) {}

    /// A call has ended: after this many seconds, or `None` if its result was already there.
    fn ended(&self, _point: &Point, _seconds: Option<f64>) {}
}

/// An observer that does nothing.
#[derive(Debug)]
pub struct SilentWatcher;

impl Watcher for SilentWatcher {}

/// The policy for making calls.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The number of simulations that run at the same time. A call that measures on this machine runs alone.
    pub jobs: usize,
    /// Whether calls are made again although their results are there.
    pub again: bool,
    /// Whether calls are made at all; if not, only results from the store are used.
    pub makes_calls: bool,
}

/// Returns the outcomes of points, in their order. Points with the same call share one run.
///
/// # Errors
/// A result cannot be stored.
pub fn run(
    points: &[Point],
    runner: &dyn Runner,
    store: &Store,
    policy: &Policy,
    watcher: &dyn Watcher,
) -> io::Result<Vec<CallOutcome>> {
    // Simulations have their own time, and may run beside others; measurements may not.
    let is_simulated = points.iter().all(|point| point.call.program == Program::Simulator);
    let jobs = if is_simulated { policy.jobs.clamp(1, points.len().max(1)) } else { 1 };
    // Only the first point of each distinct call is run.
    let first_of = |point: &Point| points.iter().position(|other| other.call == point.call);
    let firsts: Vec<usize> = points.iter().filter_map(first_of).collect();
    let (own, others): (Vec<usize>, Vec<usize>) =
        (0..points.len()).partition(|&position| firsts[position] == position);
    let waiting = Mutex::new(own.into_iter());
    let outcomes = Mutex::new(vec![CallOutcome::Missing; points.len()]);
    let failure = Mutex::new(None);
    let work = || {
        loop {
            let next = waiting.lock().expect("no panic under this lock").next();
            let Some(position) = next else { return };
            match outcome(&points[position], runner, store, policy, watcher) {
                Ok(outcome) => outcomes.lock().expect("as above")[position] = outcome,
                Err(error) => {
                    *failure.lock().expect("as above") = Some(error);
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            scope.spawn(work);
        }
        work();
    });
    if let Some(error) = failure.into_inner().expect("as above") {
        return Err(error);
    }
    let mut outcomes = outcomes.into_inner().expect("as above");
    // Points with the same call get the outcome of the first.
    for position in others {
        outcomes[position] = outcomes[firsts[position]].clone();
        watcher.ended(&points[position], None);
    }
    Ok(outcomes)
}

fn outcome(
    point: &Point,
    runner: &dyn Runner,
    store: &Store,
    policy: &Policy,
    watcher: &dyn Watcher,
) -> io::Result<CallOutcome> {
    let call = &point.call;
    let build = match runner.build(call.program) {
        Ok(build) => build,
        Err(why) => return Ok(CallOutcome::Failed(why)),
    };
    let kept = if policy.again && policy.makes_calls { None } else { store.get(call, &build) };
    if let Some(kept) = kept {
        watcher.ended(point, None);
        return Ok(CallOutcome::Report(kept.report));
    }
    if !policy.makes_calls {
        return Ok(CallOutcome::Missing);
    }
    watcher.begins(point);
    let start = Instant::now();
    let result = runner.run(call);
    let seconds = start.elapsed().as_secs_f64();
    watcher.ended(point, Some(seconds));
    match result {
        Ok(report) => {
            store.put(
                call,
                &StoredResult { command: call.to_string(), build, seconds, report: report.clone() },
            )?;
            Ok(CallOutcome::Report(report))
        }
        Err(why) => Ok(CallOutcome::Failed(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::scratch;
    use serde_json::json;

    /// A runner that reports the number of cores, fails with 8 cores, and counts its calls.
    #[derive(Default)]
    struct Fake {
        build: &'static str,
        calls: Mutex<Vec<String>>,
    }

    impl Fake {
        fn calls(&self) -> usize {
            std::mem::take(&mut *self.calls.lock().unwrap()).len()
        }
    }

    impl Runner for Fake {
        fn reports(&self, call: &Call) -> Result<Vec<Value>, String> {
            self.calls.lock().unwrap().push(call.to_string());
            match call.arguments[1].parse::<u32>().unwrap() {
                8 => Err("eight are too many".to_owned()),
                cores => Ok(vec![json!({ "cores": cores })]),
            }
        }

        fn build(&self, _program: Program) -> Result<String, String> {
            Ok(self.build.to_owned())
        }
    }

    fn point(cores: u32) -> Point {
        let arguments = vec!["tpcc".to_owned(), cores.to_string()];
        let call = Call { program: Program::Simulator, arguments };
        Point { series: 0, at: f64::from(cores), call, seconds: 1.0 }
    }

    #[test]
    fn stored_results_are_not_run_again() {
        let directory = scratch("resume");
        let store = Store::open(&directory, false).unwrap();
        let policy = Policy { jobs: 3, again: false, makes_calls: true };
        let points: Vec<Point> = [1, 2, 4, 8].map(point).into();
        let fake = Fake::default();
        let go = |fake: &Fake, policy| run(&points, fake, &store, &policy, &SilentWatcher).unwrap();
        let first = go(&fake, policy);
        assert_eq!(fake.calls(), 4);
        assert_eq!(first[2], CallOutcome::Report(json!({ "cores": 4 })), "in their order");
        assert_eq!(first[3], CallOutcome::Failed("eight are too many".to_owned()));
        // Only the failed call is made again.
        assert_eq!(go(&fake, policy), first);
        assert_eq!(fake.calls(), 1);
        // No call is made, so the failed one is missing.
        let second = go(&fake, Policy { makes_calls: false, ..policy });
        assert_eq!((fake.calls(), &second[3]), (0, &CallOutcome::Missing));
        assert_eq!(second[..3], first[..3]);
        // All calls are made again, because `again` says so, or because the build differs.
        go(&fake, Policy { again: true, ..policy });
        assert_eq!(fake.calls(), 4);
        let other = Fake { build: "other", ..Fake::default() };
        go(&other, policy);
        assert_eq!(other.calls(), 4);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn points_of_one_call_are_one_run() {
        let directory = scratch("shared");
        let store = Store::open(&directory, false).unwrap();
        let policy = Policy { jobs: 4, again: true, makes_calls: true };
        let points: Vec<Point> = [2, 8, 2, 8, 2].map(point).into();
        let fake = Fake::default();
        let outcomes = run(&points, &fake, &store, &policy, &SilentWatcher).unwrap();
        assert_eq!(fake.calls(), 2);
        let two = CallOutcome::Report(json!({ "cores": 2 }));
        let eight = CallOutcome::Failed("eight are too many".to_owned());
        assert_eq!(outcomes, [two.clone(), eight.clone(), two.clone(), eight, two]);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn simulator_is_found_where_cargo_puts_it() {
        let target = scratch("simulator").join("target");
        let program = target.join("debug").join("weft-lab");
        assert_eq!(find_simulator(&program), None);
        let place = |path: PathBuf| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let name = format!("weft-simulate{}", std::env::consts::EXE_SUFFIX);
        let beside = place(target.join("debug").join(&name));
        assert_eq!(find_simulator(&program), Some(beside));
        let built = place(target.join("simulated").join("release").join(&name));
        assert_eq!(find_simulator(&program), Some(built));
        std::fs::remove_dir_all(target.parent().unwrap()).unwrap();
    }

    #[test]
    fn failed_programs_and_other_output_are_reported() {
        let missing = Processes::new("/nowhere/at/all".into(), None);
        let call = |program| Call { program, arguments: vec![] };
        assert!(missing.run(&call(Program::Laboratory)).unwrap_err().contains("/nowhere/at/all"));
        assert_eq!(missing.run(&call(Program::Simulator)).unwrap_err(), NO_SIMULATOR);
        assert!(missing.build(Program::Laboratory).is_err());
        // Any program that prints something else serves as an example.
        if let Ok(cargo) = std::env::var("CARGO") {
            let other = Processes::new(cargo.into(), None);
            let version =
                Call { program: Program::Laboratory, arguments: vec!["--version".to_owned()] };
            assert!(other.run(&version).unwrap_err().contains("not a report"));
            let unknown =
                Call { program: Program::Laboratory, arguments: vec!["--surely-not".to_owned()] };
            assert!(other.run(&unknown).unwrap_err().contains("--surely-not"));
            assert_eq!(other.build(Program::Laboratory), other.build(Program::Laboratory));
        }
    }
}
