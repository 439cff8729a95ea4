//! What transactions are called, and what is counted by label.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use weft::ConflictReason;
use weft::Failure;
use weft::htm::word::Word;
use weft::store::observer::{Ending, Label};

use crate::report::LabelOrigin;

/// How many labels are told apart. All later ones count as one.
const LABELS_MAX: usize = 1024;

/// The kinds of failures that are told apart.
pub(crate) const FAILURES: [&str; 8] = [
    "error",
    "panic",
    "dropped",
    "retries_exhausted",
    "deadline_exceeded",
    "too_old",
    "storage",
    "refused",
];

/// Returns the position of a kind of failure in [`FAILURES`].
pub(crate) fn kind_of(ending: Ending<'_>) -> usize {
    match ending {
        Ending::Error => 0,
        Ending::Panic => 1,
        Ending::Dropped => 2,
        Ending::Refused(Failure::RetriesExhausted { .. }) => 3,
        Ending::Refused(Failure::DeadlineExceeded { .. }) => 4,
        Ending::Refused(Failure::TransactionTooOld { .. }) => 5,
        Ending::Refused(Failure::Storage(_)) => 6,
        Ending::Refused(_) => 7,
    }
}

/// The labels of a database, numbered.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    labels: Vec<(String, LabelOrigin)>,
    numbers: HashMap<(String, LabelOrigin), usize>,
}

impl Labels {
    /// Returns the number of a label.
    pub fn number_of(&mut self, label: Label) -> usize {
        let named = match label {
            Label::Given(text) => (text.to_owned(), LabelOrigin::Options),
            Label::Procedure(text) => (text.to_owned(), LabelOrigin::Procedure),
            Label::Source(place) => (place.to_string(), LabelOrigin::Source),
        };
        if let Some(&number) = self.numbers.get(&named) {
            return number;
        }
        if self.labels.len() == LABELS_MAX {
            return LABELS_MAX - 1;
        }
        let named = match self.labels.len() == LABELS_MAX - 1 {
            true => ("(others)".to_owned(), LabelOrigin::Options),
            false => named,
        };
        self.labels.push(named.clone());
        self.numbers.insert(named, self.labels.len() - 1);
        self.labels.len() - 1
    }

    pub fn all(&self) -> &[(String, LabelOrigin)] {
        &self.labels
    }
}

/// What a worker counts of a label, besides what has committed. The worker alone writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    pub repairs: Word,
    pub waiting_ns: Word,
    pub lost_ns: Word,
    pub aborts: [Word; ConflictReason::ALL.len()],
    pub failures: [Word; FAILURES.len()],
}

/// The times of a label's transactions that a worker has timed. Sums are multiplied by how many transactions each of them
/// stands for.
#[derive(Debug)]
pub(crate) struct Times {
    pub timed: u64,
    pub latency: Histogram<u64>,
    pub latency_ns: u64,
    pub closure_ns: u64,
    pub commit_ns: u64,
}

/// The longest latency that is told apart from longer ones: about half an hour.
const LATENCY_MAX_NS: u64 = 1 << 41;

impl Times {
    pub fn new() -> Times {
        let latency = Histogram::new_with_bounds(64, LATENCY_MAX_NS, 1);
        Times {
            timed: 0,
            latency: latency.expect("the bounds are valid"),
            latency_ns: 0,
            closure_ns: 0,
            commit_ns: 0,
        }
    }

    /// Adds a transaction that stands for `weight` transactions.
    pub fn add(&mut self, [closure, commit, latency]: [u64; 3], weight: u64) {
        self.timed += 1;
        // A latency beyond the bounds counts as the greatest.
        self.latency.saturating_record_n(latency, weight);
        self.latency_ns += latency * weight;
        self.closure_ns += closure * weight;
        self.commit_ns += commit * weight;
    }

    /// Adds the times of another worker.
    pub fn merge(&mut self, other: &Times) {
        self.timed += other.timed;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.latency_ns += other.latency_ns;
        self.closure_ns += other.closure_ns;
        self.commit_ns += other.commit_ns;
    }
}
