//! The map: how protocols compare on a grid of workloads, threads and machines, and how far one of them, the
//! *candidate*, is from the best of the others at each place.
//!
//! The grid with its sizes, times and seed is a file, `points.json`, which is a part of the program. A *place* is one
//! of its points with a number of threads, on this machine or on a simulated one. At each place:
//!
//! 1. every protocol runs once, in a process of its own. The fastest of those that are not the candidate is the
//!    *rival*;
//! 2. the candidate and the rival run in alternating pairs, in other processes. So the ratio does not contain the
//!    luck by which the rival was chosen. On this machine the harness alternates the rounds of two databases. On a
//!    simulated machine, where the same seed has the same result, each pair has a seed of its own.
//!
//! The ratio of a place is the median of the pairs' ratios. A pair during which other processes computed is marked,
//! and left out if there are enough others.
//!
//! - [`measure`]: the calls of a place, and what is read from their reports;
//! - [`results`]: the file of results, from which a run continues;
//! - [`picture`]: the heat map;
//! - [`ablation`]: `adaptive` beside its variants, each of which lacks one ingredient.

pub mod ablation;
pub mod measure;
pub mod picture;
pub mod results;

use std::fmt;

use serde::Deserialize;

/// The grid, with everything that determines a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// The seed of the runs that choose the rival. Simulated pairs have the seeds that follow.
    pub seed: u64,
    /// The number of pairs at each place.
    pub pairs: u64,
    /// How this machine is used.
    pub real: RealSettings,
    /// How the simulated machine is used.
    pub simulated: SimulatedSettings,
    /// The points.
    pub points: Vec<GridPoint>,
}

/// How this machine is used.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealSettings {
    /// The numbers of threads.
    pub threads: Vec<u32>,
    /// One more number of threads, if there are as many cores.
    pub threads_of_16_cores: u32,
    /// The seconds of a quick run.
    pub quick: Spans,
    /// The seconds of a full run.
    pub full: Spans,
}

/// How the simulated machine is used.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedSettings {
    /// The name of the machine.
    pub machine: String,
    /// Arguments of every run.
    pub arguments: String,
    /// The numbers of cores.
    pub cores: Vec<u32>,
    /// The numbers of cores in a quick run.
    pub cores_quick: Vec<u32>,
    /// The milliseconds of a quick run.
    pub quick: Spans,
    /// The milliseconds of a full run.
    pub full: Spans,
    /// How long the warm-up of pairs in a full run is, in place of that in `full`: the first that has enough cores.
    pub warmup_of_pairs: Vec<PairWarmup>,
}

/// The warm-up of pairs on a simulated machine with few cores.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairWarmup {
    /// The most cores for which it holds.
    pub cores_max: u32,
    /// The warm-up.
    pub milliseconds: f64,
}

/// A further simulated machine of a point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherMachine {
    /// The name of the machine.
    pub machine: String,
    /// The numbers of its cores.
    pub cores: Vec<u32>,
}

/// How long a protocol runs, once to choose the rival, and in each pair.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spans {
    /// To choose the rival.
    pub choice: Span,
    /// In a pair.
    pub pair: Span,
}

/// A time before the measurement, and the time of the measurement.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Before the measurement.
    pub warmup: f64,
    /// Of the measurement.
    pub measured: f64,
}

/// A point: a workload with its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridPoint {
    /// The name, for `--points` and in results.
    pub name: String,
    /// The title in tables and in the picture.
    pub title: String,
    /// Whether a quick run has it.
    #[serde(default)]
    pub is_quick: bool,
    /// The words after `cargo lab bench`.
    pub real: String,
    /// The words after `cargo simulate`.
    pub simulated: String,
    /// Numbers of simulated cores in a full run, besides those of all points.
    #[serde(default)]
    pub cores: Vec<u32>,
    /// Further simulated machines in a full run.
    #[serde(default)]
    pub machines: Vec<FurtherMachine>,
    /// The approximate seconds to load a database on this machine.
    #[serde(default = "one_second")]
    pub load: f64,
    /// The seconds of a measurement, if other than those of all points: a whole number of the workload's cycles.
    pub seconds: Option<f64>,
    /// The same for the simulated machine, in milliseconds.
    pub milliseconds: Option<f64>,
}

fn one_second() -> f64 {
    1.0
}

impl Grid {
    /// Returns the grid that is a part of the program.
    pub fn frozen() -> Grid {
        serde_json::from_str(include_str!("points.json")).expect("a test reads it")
    }

    /// Returns the points whose names contain one of these words; all if there are no words.
    ///
    /// # Errors
    /// A word is in no name. The message lists the names.
    pub fn chosen(&self, words: &[String]) -> Result<Vec<&GridPoint>, String> {
        let is_in = |word: &String, point: &GridPoint| point.name.contains(word.as_str());
        if let Some(unknown) =
            words.iter().find(|word| !self.points.iter().any(|point| is_in(word, point)))
        {
            let names: Vec<&str> = self.points.iter().map(|point| point.name.as_str()).collect();
            return Err(format!("no point has '{unknown}' in its name: {}", names.join(", ")));
        }
        let points = self.points.iter();
        let is_chosen =
            |point: &&GridPoint| words.is_empty() || words.iter().any(|word| is_in(word, point));
        Ok(points.filter(is_chosen).collect())
    }
}

/// The machine of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineKind {
    /// This machine.
    Real,
    /// The simulated machine.
    Simulated,
}

/// A point with a number of threads on a machine.
#[derive(Clone, Debug)]
pub struct GridPlace<'g> {
    /// The grid.
    pub grid: &'g Grid,
    /// The point.
    pub point: &'g GridPoint,
    /// The machine.
    pub machine: MachineKind,
    /// The name of the simulated machine, if it is one.
    pub simulated_machine: Option<&'g str>,
    /// The number of threads, or of simulated cores.
    pub threads: u32,
    /// Whether it is a place of a quick run.
    pub is_quick: bool,
}

impl fmt::Display for GridPlace<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.machine {
            MachineKind::Real => write!(out, "{}, {} threads", self.point.name, self.threads),
            MachineKind::Simulated => {
                write!(out, "{}, {} simulated cores", self.point.name, self.threads)?;
                let name = self.machine_name();
                if name == self.grid.simulated.machine { Ok(()) } else { write!(out, " of {name}") }
            }
        }
    }
}

/// What a run of the map covers.
#[derive(Clone, Copy, Debug)]
pub struct Coverage {
    /// Whether it is a quick run.
    pub is_quick: bool,
    /// Whether it has the places on this machine.
    pub real: bool,
    /// Whether it has the places on the simulated machine.
    pub simulated: bool,
    /// The number of cores of this machine.
    pub logical_cores: u32,
}

/// Returns the places of some points: first those on this machine, then the simulated ones. A quick run has fewer
/// points, unless they were named (`are_named`).
pub fn places<'g>(
    grid: &'g Grid,
    points: &[&'g GridPoint],
    are_named: bool,
    coverage: &Coverage,
) -> Vec<GridPlace<'g>> {
    let &Coverage { is_quick, real, simulated, logical_cores } = coverage;
    let points = points.iter().copied();
    let points = points.filter(|point| are_named || !is_quick || point.is_quick);
    let place = |point, simulated_machine: Option<&'g str>, threads| {
        let machine = match simulated_machine {
            Some(_) => MachineKind::Simulated,
            None => MachineKind::Real,
        };
        GridPlace { grid, point, machine, simulated_machine, threads, is_quick }
    };
    let mut places = Vec::new();
    if real {
        let mut threads = grid.real.threads.clone();
        let most = grid.real.threads_of_16_cores;
        threads.extend((most <= logical_cores).then_some(most));
        for point in points.clone() {
            places.extend(threads.iter().map(|&threads| place(point, None, threads)));
        }
    }
    if simulated {
        for point in points {
            let mut cores = match is_quick {
                true => grid.simulated.cores_quick.clone(),
                false => [&grid.simulated.cores[..], &point.cores[..]].concat(),
            };
            cores.sort_unstable();
            let name = Some(grid.simulated.machine.as_str());
            places.extend(cores.iter().map(|&cores| place(point, name, cores)));
            for further in point.machines.iter().filter(|_| !is_quick) {
                let name = Some(further.machine.as_str());
                places.extend(further.cores.iter().map(|&cores| place(point, name, cores)));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Coverage =
        Coverage { is_quick: false, real: true, simulated: true, logical_cores: 2 };

    /// Protects the file, which no compiler checks.
    #[test]
    fn frozen_grid_is_sound() {
        let grid = Grid::frozen();
        let mut names: Vec<&str> = grid.points.iter().map(|point| point.name.as_str()).collect();
        assert_eq!(names.len(), 29);
        assert_eq!(grid.pairs, 7);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), grid.points.len(), "no name twice");
        let quick = grid.points.iter().filter(|point| point.is_quick).count();
        assert!((10..15).contains(&quick), "{quick} points in a quick run");
    }

    #[test]
    fn places_are_points_with_threads() {
        let grid = Grid::frozen();
        let points = grid.chosen(&["incr-100".to_owned()]).expect("it is a point");
        let names = |coverage: &Coverage| -> Vec<String> {
            let places = places(&grid, &points, true, coverage);
            places.iter().map(GridPlace::to_string).collect()
        };
        assert_eq!(
            names(&FULL),
            [
                "incr-100, 2 threads",
                "incr-100, 8 threads",
                "incr-100, 8 simulated cores",
                "incr-100, 20 simulated cores",
                "incr-100, 40 simulated cores",
                "incr-100, 80 simulated cores",
            ]
        );
        let further = grid.chosen(&["tpcc-1".to_owned()]).expect("points");
        let places = places(&grid, &further[..1], true, &Coverage { real: false, ..FULL });
        let names: Vec<String> = places.iter().map(GridPlace::to_string).collect();
        assert_eq!(
            names.last().map(String::as_str),
            Some("tpcc-1, 8 simulated cores of haswell-4c8t")
        );
        assert_eq!((names.len(), places[0].machine_name()), (3, "xeon-8x10"));
    }

    #[test]
    fn places_follow_the_cores_and_the_kind_of_run() {
        let grid = Grid::frozen();
        let points = grid.chosen(&["incr-100".to_owned()]).expect("it is a point");
        let names = |coverage: &Coverage| -> Vec<String> {
            let places = places(&grid, &points, true, coverage);
            places.iter().map(GridPlace::to_string).collect()
        };
        let sixteen = Coverage { logical_cores: 16, simulated: false, ..FULL };
        assert_eq!(names(&sixteen)[2], "incr-100, 16 threads");
        let quick = Coverage { is_quick: true, ..FULL };
        assert_eq!(names(&quick).len(), 3, "and no extra cores");
    }

    #[test]
    fn quick_run_has_fewer_points_unless_they_are_named() {
        let grid = Grid::frozen();
        let quick = Coverage { is_quick: true, ..FULL };
        let all = grid.chosen(&[]).expect("all of them");
        let of_quick = places(&grid, &all, false, &quick);
        assert!(of_quick.len() < places(&grid, &all, false, &FULL).len() / 2);
        assert!(of_quick.iter().all(|place| place.point.is_quick));
        let named = grid.chosen(&["tpcc-2".to_owned()]).expect("it is a point");
        assert!(!places(&grid, &named, true, &quick).is_empty());
    }

    #[test]
    fn unknown_points_are_refused_with_the_names() {
        let grid = Grid::frozen();
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let refused = grid.chosen(&words(&["tpcc", "calvin"])).expect_err("no such point");
        assert!(refused.contains("'calvin'") && refused.contains("ycsb-b-0.99"), "{refused}");
        assert_eq!(grid.chosen(&words(&["tpcc", "bank"])).expect("points").len(), 5);
    }
}
