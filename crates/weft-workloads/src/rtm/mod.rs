//! What hardware regions can hold, and for how long: the measurements that the papers make before
//! anything else.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014 (DBX), §2.2 and Figure 1; H. Qian, Z. Wang, H. Guan, B. Zang,
//! H. Chen: *Exploiting Hardware Transactional Memory for Efficient In-Memory Transaction
//! Processing*, 2015 (DBX-TC), §2.1 and Figure 1.
//!
//! - [`Kind`]: the experiments, and what the papers have found;
//! - [`Size`]: how large a region is, and which sizes are worth a look on a machine;
//! - [`Threads`]: how many threads, and how many of them share a core;
//! - [`Client`]: what one thread does;
//! - [`Measured`]: what came out, as a row of a table and as JSON.
//!
//! A [`Point`] is an experiment with regions of one size. Each thread has memory of its own, so that
//! regions never share a line, and tries each region once: the abort rate is the share of the tries
//! that aborted, as in the papers. Every try has its working set at another place, chosen at random:
//! were it the same each time, the placement of its pages, which decides about large sets, would be
//! one throw of the dice and not the mean of many. The papers do not say what they did, and on a
//! processor it makes a difference which lines the caches hold from the try before; so the same place
//! can be asked for.
//!
//! The experiments run on a processor and on the simulated machine alike; whoever runs them supplies
//! the threads, and a [`Clock`].

mod client;
mod measured;
mod size;
#[cfg(test)]
mod tests;
mod threads;

use std::fmt;
use std::str::FromStr;

pub use client::{Budget, Client, Clock, MEMORY_BYTES, once};
pub use measured::{HEADINGS, Measured};
pub use size::{Edges, Size};
pub use threads::{Threads, Topology};

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes a range of memory, line by line.
    Writes,
    /// Writes lines at random.
    RandomWrites,
    /// Writes lines of which each belongs to the same set of the first-level cache.
    OneSet,
    /// Reads a range, line by line.
    Reads,
    /// Reads lines at random.
    RandomReads,
    /// Reads a range, then writes another one.
    ReadsFirst,
    /// Writes a range, then reads another one.
    WritesFirst,
    /// Computes, and touches nothing.
    Duration,
    /// Stores to one word, in a region and without one.
    Price,
}

impl Kind {
    /// All of them, in the order of the papers' figures.
    pub const ALL: [Kind; 9] = [
        Kind::Writes,
        Kind::RandomWrites,
        Kind::OneSet,
        Kind::Reads,
        Kind::RandomReads,
        Kind::ReadsFirst,
        Kind::WritesFirst,
        Kind::Duration,
        Kind::Price,
    ];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Writes => "writes",
            Kind::RandomWrites => "random-writes",
            Kind::OneSet => "one-set",
            Kind::Reads => "reads",
            Kind::RandomReads => "random-reads",
            Kind::ReadsFirst => "reads-first",
            Kind::WritesFirst => "writes-first",
            Kind::Duration => "duration",
            Kind::Price => "price",
        }
    }

    /// What a region does, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Writes => "writes so many bytes in a row",
            Kind::RandomWrites => "writes so many bytes in lines chosen at random",
            Kind::OneSet => "writes so many lines of one set of the first-level cache",
            Kind::Reads => "reads so many bytes in a row",
            Kind::RandomReads => "reads so many bytes in lines chosen at random",
            Kind::ReadsFirst => "reads in a row, then writes in a row: READ+WRITTEN bytes",
            Kind::WritesFirst => "the same, the writes first",
            Kind::Duration => "computes for so long",
            Kind::Price => "one store alone, in a region, and a region without it",
        }
    }

    /// What the papers found on their Haswell, and where.
    pub fn paper(self) -> &'static str {
        match self {
            Kind::Writes => {
                "at most 31 KB (90 % abort), 22 KB with two threads on each core (99 %): DBX, \
                 Figure 1a, 1b"
            }
            Kind::RandomWrites => "more than 90 % abort from 448 bytes: DBX-TC, Figure 1b",
            Kind::OneSet => "more than 8 lines of a set may abort: DBX-TC, §2.2",
            Kind::Reads => {
                "at most 4 MB (47 % abort), 2 MB with two threads on each core (58 %): DBX, \
                 Figure 1a, 1b"
            }
            Kind::RandomReads => "",
            Kind::ReadsFirst => "up to 3 MB read with 28 KB written: DBX, Figure 1c",
            Kind::WritesFirst => "less than with reads first: DBX, Figure 1c",
            Kind::Duration => {
                "grows with the duration; all abort from the timer's period, 4 ms: DBX, Figure 1d"
            }
            Kind::Price => "",
        }
    }

    /// The experiments and what the papers found, for a help text.
    pub fn table() -> String {
        let mut text = String::new();
        for kind in Kind::ALL {
            text += &format!("  {:13} {}\n", kind.name(), kind.title());
            if !kind.paper().is_empty() {
                text += &format!("                  {}\n", kind.paper());
            }
        }
        text
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("no experiment is called '{text}': there are {names}")
        })
    }
}

/// An experiment with regions of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The experiment.
    pub kind: Kind,
    /// The size.
    pub size: Size,
}

impl Point {
    /// The points that are asked for: those kinds, with the sizes that `sizes` names, or, if it
    /// names none, those of the machine.
    ///
    /// # Errors
    /// A size that means nothing for one of the kinds, or that is too large.
    pub fn all(kinds: &[Kind], sizes: &[String], edges: &Edges) -> Result<Vec<Point>, String> {
        let mut points = Vec::new();
        for &kind in kinds {
            let of_kind = if sizes.is_empty() {
                Size::of_machine(kind, edges)
            } else {
                let parse = |text: &String| Size::parse(kind, text);
                sizes.iter().map(parse).collect::<Result<_, _>>()?
            };
            points.extend(of_kind.into_iter().map(|size| Point { kind, size }));
        }
        Ok(points)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind, self.size)
    }
}
