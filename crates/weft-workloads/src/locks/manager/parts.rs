//! The parts of the storage manager that can be left out, to see what each contributes.

use std::fmt;

/// A part of the storage manager that has a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The full fences at both ends of a section whose lock is taken.
    Fences,
    /// The pin counts of frames, and the sections of the buckets that find them. Without this part a frame is
    /// found without a lock.
    Pins,
    /// The count of a latch's holders, in the latch and in the thread.
    Holders,
    /// Latch coupling: the latch of a parent is held until the leaf has been searched. Without this part each
    /// latch is released before the next one is taken.
    Coupling,
    /// The heads and requests of the lock table. Without this part a bucket counts its requests.
    Requests,
    /// The objects of transactions, and their list.
    Transactions,
    /// The statistics of each thread.
    Statistics,
    /// The stack and the heap of each thread: the stand-in of the simulated machine for private memory. On a
    /// processor this part does nothing, since the stack is there.
    Stack,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 8] = [
        Part::Fences,
        Part::Pins,
        Part::Holders,
        Part::Coupling,
        Part::Requests,
        Part::Transactions,
        Part::Statistics,
        Part::Stack,
    ];

    /// Returns the name of the part on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::Fences => "fences",
            Part::Pins => "pins",
            Part::Holders => "holders",
            Part::Coupling => "coupling",
            Part::Requests => "requests",
            Part::Transactions => "transactions",
            Part::Statistics => "statistics",
            Part::Stack => "stack",
        }
    }

    /// Returns the part with this name.
    pub fn named(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parts(u8);

impl Default for Parts {
    /// Returns all parts.
    fn default() -> Self {
        Parts(u8::MAX)
    }
}

impl Parts {
    /// Returns all parts but these.
    pub fn all_but(absent: &[Part]) -> Parts {
        Parts(absent.iter().fold(u8::MAX, |parts, part| parts & !part.bit()))
    }

    /// Returns whether the set has this part.
    #[inline(always)]
    pub fn has(self, part: Part) -> bool {
        self.0 & part.bit() != 0
    }

    /// Returns the parts that are not in the set.
    pub fn absent(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |&part| !self.has(part))
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent: Vec<&str> = self.absent().map(Part::name).collect();
        write!(out, "all parts but [{}]", absent.join(", "))
    }
}
