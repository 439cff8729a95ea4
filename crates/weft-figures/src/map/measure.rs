//! Measures a place: the calls, and what is read from their reports.

use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use super::results::{Pair, PlaceResult, ProtocolResult};
use super::{GridPlace, MachineKind, Span};
use crate::definition::Reading;
use crate::measured::read;
use crate::plan::{Call, Program};
use crate::run::Runner;

/// A pair is marked as disturbed if other processes kept more than this share of a core busy.
const CORES_ELSEWHERE_MAX: f64 = 0.1;

/// Seconds that the simulator takes for a virtual millisecond of one core, and to load a database.
const SECONDS_OF_VIRTUAL_MILLISECOND: f64 = 0.018;
const SECONDS_OF_SIMULATED_LOAD: f64 = 1.0;

/// Returns the protocols that take part at a place: the candidate first, then those of `rivals` that allow so many
/// threads.
pub fn contenders(
    candidate: &str,
    rivals: impl Iterator<Item = (&'static str, usize)>,
    threads: u32,
) -> Vec<&str> {
    let able = rivals.filter(|&(name, most)| name != candidate && threads as usize <= most);
    std::iter::once(candidate).chain(able.map(|(name, _)| name)).collect()
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A factor on the times, to try the command out.
    pub time: f64,
    /// Additional arguments of every call, to try the command out.
    pub with: Vec<String>,
    /// The number of simulations that run at the same time.
    pub jobs: usize,
}

impl GridPlace<'_> {
    /// Returns the program that runs here.
    pub fn program(&self) -> Program {
        match self.machine {
            MachineKind::Real => Program::Laboratory,
            MachineKind::Simulated => Program::Simulator,
        }
    }

    /// Returns the name of the machine in results.
    pub fn machine_name(&self) -> &str {
        self.simulated_machine.unwrap_or("this machine")
    }

    /// Returns the spans of a measurement: of the choice of the rival, and of a pair.
    pub(super) fn spans(&self, settings: &Settings) -> (Span, Span) {
        let (real, simulated) = (&self.grid.real, &self.grid.simulated);
        let (spans, own) = match (self.machine, self.is_quick) {
            (MachineKind::Real, true) => (real.quick, self.point.seconds),
            (MachineKind::Real, false) => (real.full, self.point.seconds),
            (MachineKind::Simulated, true) => (simulated.quick, self.point.milliseconds),
            (MachineKind::Simulated, false) => (simulated.full, self.point.milliseconds),
        };
        let of = |span: Span| Span {
            warmup: span.warmup * settings.time,
            measured: own.unwrap_or(span.measured) * settings.time,
        };
        let mut pair = spans.pair;
        if self.machine == MachineKind::Simulated && !self.is_quick {
            let mut longer = simulated.warmup_of_pairs.iter();
            if let Some(longer) = longer.find(|longer| self.threads <= longer.cores_max) {
                pair.warmup = longer.milliseconds;
            }
        }
        (of(spans.choice), of(pair))
    }

    /// Returns the approximate seconds that a place with this number of protocols takes.
    pub fn seconds(&self, protocols: usize, settings: &Settings) -> f64 {
        let (choice, pair) = self.spans(settings);
        let (protocols, pairs) = (protocols as f64, self.grid.pairs as f64);
        let length = |span: Span| span.warmup + span.measured;
        match self.machine {
            MachineKind::Real => {
                protocols * (length(choice) + self.point.load)
                    + 2.0 * (pairs * length(pair) + self.point.load)
            }
            MachineKind::Simulated => {
                let virtual_time = protocols * length(choice) + 2.0 * pairs * length(pair);
                let loads = (protocols + 2.0 * pairs) * SECONDS_OF_SIMULATED_LOAD;
                let cores = f64::from(self.threads);
                (virtual_time * cores * SECONDS_OF_VIRTUAL_MILLISECOND + loads)
                    / settings.jobs as f64
            }
        }
    }

    /// Returns a call.
    pub(super) fn call(
        &self,
        protocols: &str,
        seed: u64,
        span: Span,
        rounds: u64,
        with: &[String],
    ) -> Call {
        let (first, own) = match self.machine {
            MachineKind::Real => ("bench ", &self.point.real),
            MachineKind::Simulated => ("", &self.point.simulated),
        };
        let Span { warmup, measured } = span;
        let threads = self.threads;
        let how = match self.machine {
            MachineKind::Real => {
                format!("--threads {threads} --rounds {rounds} --seconds {measured}")
            }
            MachineKind::Simulated => {
                let simulated = &self.grid.simulated;
                format!(
                    "{} --machine {} --cores {threads} --milliseconds {measured}",
                    simulated.arguments,
                    self.machine_name()
                )
            }
        };
        let words = format!(
            "{first}{own} --protocol {protocols} {how} --warmup {warmup} --seed {seed} --json -"
        );
        let words = words.split_whitespace().map(str::to_owned).chain(with.iter().cloned());
        Call { program: self.program(), arguments: words.collect() }
    }

    /// Returns the calls that choose the rival: one for each protocol.
    pub fn choice(&self, protocols: &[&str], settings: &Settings) -> Vec<Call> {
        let (span, _) = self.spans(settings);
        let call = |&protocol: &&str| self.call(protocol, self.grid.seed, span, 1, &settings.with);
        protocols.iter().map(call).collect()
    }

    /// Returns the calls of the pairs. The seeds are not those of the choice.
    pub fn pairs(&self, candidate: &str, rival: &str, settings: &Settings) -> Vec<Call> {
        let (_, span) = self.spans(settings);
        let protocols = format!("{candidate},{rival}");
        let seed = self.grid.seed + 1;
        let (calls, rounds) = match self.machine {
            MachineKind::Real => (1, self.grid.pairs),
            MachineKind::Simulated => (self.grid.pairs, 1),
        };
        let call = |number| self.call(&protocols, seed + number, span, rounds, &settings.with);
        (0..calls).map(call).collect()
    }
}

/// The metrics of a report: throughput, aborts for each commit, and the 99th percentile of latencies.
fn metrics(machine: MachineKind) -> [Reading; 3] {
    let paths = match machine {
        MachineKind::Real => {
            ["throughput_per_second/median", "aborts_per_commit", "latency_all_us/p99"]
        }
        MachineKind::Simulated => {
            ["transactions_per_second", "aborts_per_transaction", "latency_us_p99"]
        }
    };
    paths.map(Reading::of)
}

/// Returns what a protocol did, by the outcome of its call.
fn of_protocol(
    machine: MachineKind,
    protocol: &str,
    outcome: Result<Vec<Value>, String>,
) -> ProtocolResult {
    let (numbers, failure) = match outcome.as_deref() {
        Ok([report]) => (metrics(machine).map(|metric| read(metric, 0.0, report)), None),
        Ok(reports) => ([None; 3], Some(format!("{} reports instead of one", reports.len()))),
        Err(why) => ([None; 3], Some(why.clone())),
    };
    let [throughput, aborts, p99_us] = numbers;
    ProtocolResult { protocol: protocol.to_owned(), throughput, aborts, p99_us, failure }
}

/// Returns the fastest protocol that is not the candidate. Of two that are equally fast, it is the first.
pub fn rival<'r>(protocols: &'r [ProtocolResult], candidate: &str) -> Option<&'r str> {
    let others = protocols.iter().filter(|protocol| protocol.protocol != candidate);
    let fastest = others
        .filter_map(|protocol| Some((protocol.throughput?, protocol)))
        .reduce(|best, other| if other.0 > best.0 { other } else { best });
    fastest.map(|(_, protocol)| protocol.protocol.as_str())
}

/// Returns the pairs in two reports of a call: the candidate's and the rival's.
pub(super) fn pairs_of(
    machine: MachineKind,
    candidate: &Value,
    rival: &Value,
) -> Option<Vec<Pair>> {
    if machine == MachineKind::Simulated {
        let [throughput, _, p99] = metrics(machine);
        let throughput = |report| read(throughput, 0.0, report);
        return Some(vec![Pair {
            candidate: throughput(candidate)?,
            rival: throughput(rival)?,
            is_disturbed: false,
            candidate_p99_us: read(p99, 0.0, candidate),
            rival_p99_us: read(p99, 0.0, rival),
        }]);
    }
    let rounds = |report: &'_ Value| report["rounds"].as_array().cloned();
    let (ours, theirs) = (rounds(candidate)?, rounds(rival)?);
    let pair = |(ours, theirs): (&Value, &Value)| {
        let throughput = |round: &Value| round["throughput_per_second"].as_f64();
        let is_disturbed = [ours, theirs].into_iter().any(|round| {
            round["cores_elsewhere"].as_f64().is_some_and(|cores| cores > CORES_ELSEWHERE_MAX)
        });
        let p99_us = |round: &Value| round["latency_p99_us"].as_f64();
        Some(Pair {
            candidate: throughput(ours)?,
            rival: throughput(theirs)?,
            is_disturbed,
            candidate_p99_us: p99_us(ours),
            rival_p99_us: p99_us(theirs),
        })
    };
    ours.iter().zip(&theirs).map(pair).collect()
}

/// Makes calls, several at a time, and returns their outcomes in order.
fn make(calls: &[Call], runner: &dyn Runner, jobs: usize) -> Vec<Result<Vec<Value>, String>> {
    let waiting = Mutex::new(calls.iter().enumerate());
    let outcomes = Mutex::new(vec![Err(String::new()); calls.len()]);
    let work = || {
        loop {
            let next = waiting.lock().expect("no panic under this lock").next();
            let Some((position, call)) = next else { return };
            let outcome = runner.reports(call);
            outcomes.lock().expect("as above")[position] = outcome;
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(calls.len()) {
            scope.spawn(work);
        }
        work();
    });
    outcomes.into_inner().expect("as above")
}

/// Measures a place with these protocols, the first of which is the candidate.
pub fn measure(
    place: &GridPlace<'_>,
    protocols: &[&str],
    runner: &dyn Runner,
    settings: &Settings,
) -> PlaceResult {
    let start = Instant::now();
    let is_simulated = place.machine == MachineKind::Simulated;
    // Measurements on this machine run alone.
    let jobs = if is_simulated { settings.jobs } else { 1 };
    let candidate = protocols[0];
    let mut calls = place.choice(protocols, settings);
    let outcomes = make(&calls, runner, jobs);
    let results: Vec<ProtocolResult> = protocols
        .iter()
        .zip(outcomes)
        .map(|(protocol, outcome)| of_protocol(place.machine, protocol, outcome))
        .collect();
    let rival = rival(&results, candidate).map(str::to_owned);
    let mut failure = results[0]
        .failure
        .clone()
        .or_else(|| rival.is_none().then(|| "no other protocol has run".to_owned()));
    let mut pairs = Vec::new();
    if let (None, Some(rival)) = (&failure, &rival) {
        let of_pairs = place.pairs(candidate, rival, settings);
        for outcome in make(&of_pairs, runner, jobs) {
            let found = outcome.and_then(|reports| {
                let found = match &reports[..] {
                    [candidate, rival] => pairs_of(place.machine, candidate, rival),
                    _ => None,
                };
                found.ok_or_else(|| "a report lacks numbers".to_owned())
            });
            match found {
                Ok(found) => pairs.extend(found),
                Err(why) => failure = Some(why),
            }
        }
        calls.extend(of_pairs);
    }
    PlaceResult {
        point: place.point.name.clone(),
        title: place.point.title.clone(),
        is_simulated,
        machine: place.machine_name().to_owned(),
        threads: place.threads,
        build: runner.build(place.program()).unwrap_or_default(),
        seconds: start.elapsed().as_secs_f64(),
        protocols: results,
        rival,
        pairs,
        failure,
        commands: calls.iter().map(Call::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Coverage, Grid, places};
    use super::*;

    const SETTINGS: Settings = Settings { time: 1.0, with: Vec::new(), jobs: 3 };

    /// A runner in which protocols have fixed speeds, and some fail.
    struct Fake {
        speeds: &'static [(&'static str, f64)],
        calls: Mutex<Vec<String>>,
    }

    impl Fake {
        fn new(speeds: &'static [(&'static str, f64)]) -> Fake {
            Fake { speeds, calls: Mutex::default() }
        }
    }

    impl Runner for Fake {
        fn reports(&self, call: &Call) -> Result<Vec<Value>, String> {
            self.calls.lock().unwrap().push(call.to_string());
            let after = |name: &str| {
                let position = call.arguments.iter().position(|word| word == name)?;
                call.arguments.get(position + 1)
            };
            let names = after("--protocol").expect("it names protocols");
            let rounds = after("--rounds").map_or(1, |rounds| rounds.parse().unwrap());
            let report = |name: &str| {
                let speed = self.speeds.iter().find(|speed| speed.0 == name);
                let speed = speed.ok_or_else(|| format!("{name} fails"))?.1;
                let round = |number: u64| {
                    let cores_elsewhere = if number == 2 { 0.5 } else { 0.01 };
                    json!({
                        "throughput_per_second": speed,
                        "cores_elsewhere": cores_elsewhere,
                        "latency_p99_us": 1000.0 / speed,
                    })
                };
                let rounds: Vec<Value> = (0..rounds).map(round).collect();
                Ok(json!({
                    "throughput_per_second": { "median": speed },
                    "aborts_per_commit": 0.5,
                    "latency_all_us": { "p99": 9.0 },
                    "rounds": rounds,
                    "transactions_per_second": speed,
                    "aborts_per_transaction": 0.25,
                    "latency_us_p99": 7.0,
                }))
            };
            names.split(',').map(report).collect()
        }

        fn build(&self, _program: Program) -> Result<String, String> {
            Ok("one".to_owned())
        }
    }

    fn place(grid: &Grid, machine: MachineKind) -> GridPlace<'_> {
        let points = grid.chosen(&["queue".to_owned()]).expect("a point");
        let (real, simulated) = (machine == MachineKind::Real, machine == MachineKind::Simulated);
        let coverage = Coverage { is_quick: true, real, simulated, logical_cores: 2 };
        places(grid, &points, true, &coverage).remove(0)
    }

    #[test]
    fn rival_is_the_fastest_other_protocol() {
        let of = |protocol: &str, throughput: Option<f64>| ProtocolResult {
            protocol: protocol.to_owned(),
            throughput,
            aborts: None,
            p99_us: None,
            failure: None,
        };
        let results = [
            of("dbx", Some(9.0)),
            of("silo", Some(5.0)),
            of("2pl", None),
            of("tso", Some(7.0)),
            of("occ", Some(7.0)),
        ];
        assert_eq!(rival(&results, "dbx"), Some("tso"));
        assert_eq!(rival(&results, "silo"), Some("dbx"));
        assert_eq!(rival(&results[..1], "dbx"), None);
        assert_eq!(rival(&results[2..3], "dbx"), None);
    }

    #[test]
    fn contenders_are_those_that_allow_so_many_threads() {
        let rivals = [("dbx", 128), ("silo", 128), ("alone", 1)].into_iter();
        assert_eq!(contenders("silo", rivals.clone(), 2), ["silo", "dbx"]);
        assert_eq!(contenders("dbx", rivals, 1), ["dbx", "silo", "alone"]);
    }

    #[test]
    fn place_is_measured_in_a_choice_and_in_pairs() {
        let grid = Grid::frozen();
        let fake = Fake::new(&[("dbx", 80.0), ("silo", 100.0), ("tso", 60.0)]);
        let protocols = ["dbx", "2pl", "silo", "tso"];
        let result = measure(&place(&grid, MachineKind::Real), &protocols, &fake, &SETTINGS);
        assert_eq!((result.rival.as_deref(), result.ratio()), (Some("silo"), Some(0.8)));
        assert_eq!((result.pairs.len(), result.disturbed()), (7, 1));
        let pair = &result.pairs[0];
        assert_eq!((pair.candidate_p99_us, pair.rival_p99_us), (Some(12.5), Some(10.0)));
        assert_eq!(result.p99_ratio(), Some(1.25));
        assert_eq!((result.failure.as_ref(), result.best()), (None, Some(100.0)));
        let failed = &result.protocols[1];
        assert_eq!((failed.throughput, failed.failure.as_deref()), (None, Some("2pl fails")));
        let candidate = &result.protocols[0];
        assert_eq!((candidate.aborts, candidate.p99_us), (Some(0.5), Some(9.0)));
        assert_eq!(*fake.calls.lock().unwrap(), result.commands, "one after the other");
        assert_eq!(
            result.commands[0],
            "cargo lab bench queue --protocol dbx --threads 2 --rounds 1 --seconds 0.5 --warmup \
             0.2 --seed 1 --json -"
        );
        assert_eq!(
            result.commands[4..],
            ["cargo lab bench queue --protocol dbx,silo --threads 2 --rounds 7 --seconds 0.5 \
              --warmup 0.2 --seed 2 --json -"]
        );
    }

    #[test]
    fn simulated_pairs_have_seeds_of_their_own() {
        let grid = Grid::frozen();
        let fake = Fake::new(&[("dbx", 80.0), ("silo", 100.0)]);
        let place = place(&grid, MachineKind::Simulated);
        let result = measure(&place, &["dbx", "silo"], &fake, &SETTINGS);
        assert_eq!((result.ratio(), result.disturbed()), (Some(0.8), 0));
        assert_eq!((result.pairs.len(), result.commands.len()), (7, 2 + 7));
        assert_eq!(result.p99_ratio(), Some(1.0), "both reports have 7 microseconds");
        assert_eq!((result.protocols[0].aborts, result.is_simulated), (Some(0.25), true));
        for (position, command) in result.commands[2..].iter().enumerate() {
            let seed = format!("--seed {}", position + 2);
            assert!(command.contains(&seed) && command.contains("dbx,silo"), "{command}");
            assert!(command.contains("--machine xeon-8x10 --cores 8"), "{command}");
        }
    }

    #[test]
    fn pairs_of_a_full_simulation_warm_up_longer_than_the_choice() {
        let grid = Grid::frozen();
        let points = grid.chosen(&["incr-100".to_owned()]).expect("a point");
        let coverage = Coverage { is_quick: false, real: false, simulated: true, logical_cores: 2 };
        let warmup = |call: &Call| {
            let position = call.arguments.iter().position(|word| word == "--warmup");
            let word = &call.arguments[position.expect("each call has one") + 1];
            word.parse::<f64>().expect("a number")
        };
        let places = places(&grid, &points, true, &coverage);
        let warmups: Vec<(f64, f64)> = places
            .iter()
            .map(|place| {
                let choice = place.choice(&["dbx"], &SETTINGS);
                (warmup(&choice[0]), warmup(&place.pairs("dbx", "silo", &SETTINGS)[0]))
            })
            .collect();
        assert!(warmups.iter().all(|&(choice, pair)| choice == 2.5 && pair >= 2.5), "{warmups:?}");
        let (_, least_cores) = warmups[0];
        assert!(least_cores >= 48.0, "a trial of adaptive has up to 24 pairs of milliseconds");
    }

    #[test]
    fn failures_are_kept() {
        let grid = Grid::frozen();
        let place = place(&grid, MachineKind::Real);
        let alone = measure(&place, &["dbx", "2pl"], &Fake::new(&[("dbx", 1.0)]), &SETTINGS);
        assert_eq!((&alone.rival, alone.ratio()), (&None, None));
        assert_eq!(alone.failure.as_deref(), Some("no other protocol has run"));
        let failed = measure(&place, &["2pl", "dbx"], &Fake::new(&[("dbx", 1.0)]), &SETTINGS);
        assert_eq!(failed.failure.as_deref(), Some("2pl fails"));
        assert_eq!((failed.rival.as_deref(), failed.pairs.len()), (Some("dbx"), 0));
    }
}
