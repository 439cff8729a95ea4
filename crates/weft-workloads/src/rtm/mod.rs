//! The limits of hardware regions: how large they can be, and how long. The papers make these measurements before
//! all others.
//!
//! Z. Wang, H. Qian, J. Li, H. Chen: *Using Restricted Transactional Memory to Build a Scalable
//! In-Memory Database*, EuroSys 2014 (DBX), §2.2 and Figure 1; H. Qian, Z. Wang, H. Guan, B. Zang,
//! H. Chen: *Exploiting Hardware Transactional Memory for Efficient In-Memory Transaction
//! Processing*, 2015 (DBX-TC), §2.1 and Figure 1.
//!
//! - [`Kind`]: the experiments, and the papers' results;
//! - [`Size`]: the size of a region, and the default sizes for a machine;
//! - [`Threads`]: the number of threads, and how many of them share a core;
//! - [`Client`]: the work of one thread;
//! - [`Measured`]: the result, as a row of a table and as JSON.
//!
//! A [`Point`] is an experiment with regions of one size. Each thread has memory of its own, so that regions never
//! share a line. It tries each region once. As in the papers, the abort rate is the share of the tries that
//! aborted. Every try has its working set at another random place. With always the same place, the placement of its
//! pages, which matters for large sets, would be a single random sample and not the mean of many. The papers do not
//! say what they did. On a processor the lines that the caches hold from the previous try make a difference, so the
//! same place can be selected.
//!
//! The experiments run in the same way on a processor and on the simulated machine. The caller supplies the
//! threads, and a [`Clock`].

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
    /// Writes lines that all belong to the same set of the first-level cache.
    OneSet,
    /// Reads a range, line by line.
    Reads,
    /// Reads lines at random.
    RandomReads,
    /// Reads a range, then writes another one.
    ReadsFirst,
    /// Writes a range, then reads another one.
    WritesFirst,
    /// Computes, and accesses no memory.
    Duration,
    /// Stores to one word, in a region and without one.
    Price,
}

impl Kind {
    /// All experiments, in the order of the papers' figures.
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

    /// Returns the name on the command line and in results.
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

    /// Returns what a region does, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Writes => "writes this many bytes in sequence",
            Kind::RandomWrites => "writes this many bytes in random lines",
            Kind::OneSet => "writes this many lines of one set of the first-level cache",
            Kind::Reads => "reads this many bytes in sequence",
            Kind::RandomReads => "reads this many bytes in random lines",
            Kind::ReadsFirst => "reads in sequence, then writes in sequence: READ+WRITTEN bytes",
            Kind::WritesFirst => "the same, with the writes first",
            Kind::Duration => "computes for this time",
            Kind::Price => "one store alone, one in a region, and an empty region",
        }
    }

    /// Returns what the papers found on their Haswell, and where.
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

    /// Returns the experiments and the papers' results, for a help text.
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
            format!("no experiment is called '{text}'; the experiments are {names}")
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
    /// Returns the points of these kinds. `sizes` names their sizes; if it is empty, they have the default sizes
    /// for the machine.
    ///
    /// # Errors
    /// A size is invalid for one of the kinds, or too large.
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
