//! The number of threads, and their placement: on a core each, or on shared cores.

use std::fmt;
use std::str::FromStr;

/// The hardware threads of each core of a machine, by number.
pub type Topology = Vec<Vec<usize>>;

/// A number of threads, and their placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// This many threads, on a core each as far as there are cores.
    Spread(usize),
    /// This many cores, and this many threads on each.
    Shared(usize, usize),
}

impl Threads {
    /// Returns the default settings for a machine: one thread, two threads on one core, and four cores as in the
    /// papers, with one thread each and with two.
    pub fn of_machine(topology: &Topology) -> Vec<Threads> {
        let cores = topology.len().min(4);
        let mut all = vec![Threads::Spread(1), Threads::Shared(1, 2)];
        if cores > 1 {
            all.extend([Threads::Spread(cores), Threads::Shared(cores, 2)]);
        }
        all.retain(|threads| threads.place(topology).is_ok());
        all
    }

    /// Returns the hardware threads that they run on.
    ///
    /// # Errors
    /// The machine does not have enough hardware threads.
    pub fn place(self, topology: &Topology) -> Result<Vec<usize>, String> {
        let refused = |wanted: &str| {
            let cores = topology.len();
            let most = topology.iter().map(Vec::len).max().unwrap_or(0);
            let threads = topology.iter().map(Vec::len).sum::<usize>();
            Err(format!(
                "there are no {wanted}: the machine has {cores} cores, with up to {most} hardware \
                 threads each, {threads} in all"
            ))
        };
        match self {
            Threads::Spread(count) => {
                // Take the first hardware thread of every core, then the second of every core, and so on.
                let most = topology.iter().map(Vec::len).max().unwrap_or(0);
                let turn =
                    |turn: usize| topology.iter().filter_map(move |core| core.get(turn).copied());
                let placed: Vec<usize> = (0..most).flat_map(turn).take(count).collect();
                if placed.len() == count {
                    Ok(placed)
                } else {
                    refused(&format!("{count} threads"))
                }
            }
            Threads::Shared(cores, per_core) => {
                let fitting = topology.iter().filter(|core| core.len() >= per_core).take(cores);
                let placed: Vec<usize> =
                    fitting.flat_map(|core| core[..per_core].iter().copied()).collect();
                if placed.len() == cores * per_core {
                    Ok(placed)
                } else {
                    refused(&format!("{cores} cores with {per_core} threads each"))
                }
            }
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Spread(count) => write!(out, "{count}"),
            Threads::Shared(cores, per_core) => write!(out, "{cores}x{per_core}"),
        }
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=1024).contains(number));
        let threads = match text.split_once('x') {
            None => number(text).map(Threads::Spread),
            Some((cores, per_core)) => number(cores)
                .zip(number(per_core))
                .map(|(cores, per_core)| Threads::Shared(cores, per_core)),
        };
        threads.ok_or_else(|| {
            "expected a number of threads, such as 4, or cores and threads on each, such as 4x2"
                .to_owned()
        })
    }
}
