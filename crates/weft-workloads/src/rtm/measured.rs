//! The measurements of an experiment on hardware regions.

use serde::Serialize;
use weft::htm::Statistics;

use super::{Point, Threads};

/// The measurements of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The number of tries.
    pub(super) tries: u64,
    /// The time that they took, in seconds.
    pub(super) seconds: f64,
    /// The counts of its regions.
    pub(super) regions: Statistics,
    /// Whether all tries were at one place.
    pub(super) same_place: bool,
}

/// The measurements of all threads at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Whether it was measured on the simulated machine, in virtual time.
    pub simulated: bool,
    /// The machine.
    pub machine: String,
    /// The experiment.
    pub kind: &'static str,
    /// The size of the regions.
    pub size: String,
    /// The number of threads, and their placement.
    pub threads: String,
    /// The seed of the places of the regions.
    pub seed: u64,
    /// Whether each thread tried all regions at one place.
    pub same_place: bool,
    /// The tries of all threads.
    pub tries: u64,
    /// The tries that committed; without a region, all.
    pub committed: u64,
    /// Tries that aborted because the caches could not hold the region.
    pub aborted_capacity: u64,
    /// Tries that aborted because of another thread.
    pub aborted_conflict: u64,
    /// Tries that aborted by an interrupt, a fault or a forbidden instruction.
    pub aborted_system_event: u64,
    /// The share of the tries that aborted, from 0 to 1.
    pub abort_rate: f64,
    /// The mean time of a try, committed or not.
    pub nanoseconds_per_try: f64,
}

/// The headings of [`Measured::row`]. The first three columns hold words.
pub const HEADINGS: [&str; 9] = [
    "kind",
    "size",
    "threads",
    "tries",
    "aborted",
    "capacity",
    "conflict",
    "system event",
    "µs per try",
];

impl Measured {
    /// Adds up the threads' measurements.
    ///
    /// # Panics
    /// There are no tries.
    pub fn new(point: &Point, threads: Threads, seed: u64, shares: &[Share]) -> Measured {
        let tries: u64 = shares.iter().map(|share| share.tries).sum();
        let seconds: f64 = shares.iter().map(|share| share.seconds).sum();
        let regions: Statistics = shares.iter().map(|share| share.regions).sum();
        assert!(tries > 0, "at least one thread has tried");
        let aborted =
            regions.aborted_capacity + regions.aborted_conflict + regions.aborted_system_event;
        Measured {
            simulated: false,
            machine: String::new(),
            kind: point.kind.name(),
            size: point.size.to_string(),
            threads: threads.to_string(),
            seed,
            same_place: shares[0].same_place,
            tries,
            committed: tries - aborted,
            aborted_capacity: regions.aborted_capacity,
            aborted_conflict: regions.aborted_conflict,
            aborted_system_event: regions.aborted_system_event,
            abort_rate: aborted as f64 / tries as f64,
            nanoseconds_per_try: seconds * 1e9 / tries as f64,
        }
    }

    /// Sets the machine of the measurement.
    pub fn on(self, machine: &str, simulated: bool) -> Measured {
        Measured { machine: machine.to_owned(), simulated, ..self }
    }

    /// Returns the row of a table.
    pub fn row(&self) -> [String; HEADINGS.len()] {
        let share = |count: u64| match count {
            0 => "0".to_owned(),
            _ => format!("{:.1} %", count as f64 * 100.0 / self.tries as f64),
        };
        [
            self.kind.to_owned(),
            self.size.clone(),
            self.threads.clone(),
            self.tries.to_string(),
            share(self.tries - self.committed),
            share(self.aborted_capacity),
            share(self.aborted_conflict),
            share(self.aborted_system_event),
            match self.nanoseconds_per_try / 1e3 {
                microseconds if microseconds < 1.0 => format!("{microseconds:.4}"),
                microseconds => format!("{microseconds:.1}"),
            },
        ]
    }
}
