//! What one client counts while it runs: per transaction type, how many there were and how long
//! they took.
//!
//! A latency is the time from the end of the client's transaction before to the end of this one.
//! So it holds the drawing of the input, every attempt and the waiting between attempts: what a
//! caller of the engine waits for. (Where a transaction was set aside meanwhile, and others ran, it is the
//! time since the conflict that had it set aside.) It takes one reading of the clock per transaction, since the
//! end of one is the start of the next.
//!
//! That reading is [`std::time::Instant`], and costs about 24 ns. The shortest transactions of TPC-C
//! take 2 to 3 µs, so it is under a percent of them. Where transactions are accesses of single rows
//! it would be a tenth, and would hide as much of what they differ in: there only one in 31
//! ([`SAMPLE_OF_SMALL`]) has its latency taken, from a reading of the clock just before it to one
//! just after, and the others are only counted ([`Batch`]). 31 is a prime, lest the samples follow
//! some rhythm of the operations.
//!
//! Every client has histograms of its own, so recording touches no cache line of another thread,
//! and they have all their memory from the start.

use std::time::Duration;

use hdrhistogram::Histogram;
use weft_workloads::workload::Outcome;

/// How many transactions of single accesses run for each one whose latency is taken.
pub const SAMPLE_OF_SMALL: u64 = 31;

/// The longest latency that is told apart from longer ones.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// Three significant digits: no two latencies that differ by more than 0.1 % are counted as one.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The transactions of one type.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Those that committed.
    pub committed: u64,
    /// Those that ran to the end and then rolled back, because the workload wants it so.
    pub rolled_back: u64,
    /// How long each of both took, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new()
    }
}

impl Tally {
    /// An empty tally, all of whose memory has been touched, so that no page faults come later.
    pub fn new() -> Self {
        let mut latency_ns = Histogram::new_with_bounds(1, LATENCY_MAX_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants");
        latency_ns.reset();
        Tally { committed: 0, rolled_back: 0, latency_ns }
    }

    /// Counts one transaction.
    #[inline]
    pub fn record(&mut self, rolled_back: bool, latency: Duration) {
        if rolled_back {
            self.rolled_back += 1;
        } else {
            self.committed += 1;
        }
        // An hour would fit 64 bits of nanoseconds 5 million times over.
        self.latency_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds the transactions of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.latency_ns += &other.latency_ns;
    }
}

/// Transactions between two readings of the clock: counted, until it is known whether they count.
pub struct Batch(Vec<Outcomes>);

/// How many transactions of one type ended in which way.
#[derive(Clone, Copy, Default)]
struct Outcomes {
    committed: u64,
    rolled_back: u64,
}

impl Batch {
    /// An empty batch of so many transaction types.
    pub fn new(types: usize) -> Self {
        Batch(vec![Outcomes::default(); types])
    }

    /// Counts one transaction.
    #[inline]
    pub fn count(&mut self, outcome: Outcome) {
        let outcomes = &mut self.0[outcome.transaction];
        if outcome.rolled_back {
            outcomes.rolled_back += 1;
        } else {
            outcomes.committed += 1;
        }
    }

    /// Adds the counts to the tallies of the types.
    pub fn add_to(&self, tallies: &mut [Tally]) {
        for (tally, outcomes) in tallies.iter_mut().zip(&self.0) {
            tally.committed += outcomes.committed;
            tally.rolled_back += outcomes.rolled_back;
        }
    }

    /// Forgets all counts.
    pub fn clear(&mut self) {
        self.0.fill(Outcomes::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_without_latencies() {
        let (mut batch, mut tallies) = (Batch::new(2), vec![Tally::new(), Tally::new()]);
        for transaction in [0, 1, 1] {
            batch.count(Outcome::new(transaction, false));
        }
        batch.count(Outcome::new(1, true));
        batch.add_to(&mut tallies);
        batch.clear();
        batch.count(Outcome::new(0, false));
        batch.add_to(&mut tallies);
        let counts: Vec<_> =
            tallies.iter().map(|tally| (tally.committed, tally.rolled_back)).collect();
        assert_eq!(counts, [(2, 0), (2, 1)]);
        assert!(tallies.iter().all(|tally| tally.latency_ns.is_empty()));
    }

    #[test]
    fn tallies_add_up() {
        let (mut total, mut other) = (Tally::new(), Tally::new());
        for us in 1..=100 {
            total.record(false, Duration::from_micros(us));
        }
        other.record(true, Duration::from_micros(5_000));
        other.record(false, Duration::from_secs(1_000));
        total.add(&other);
        assert_eq!((total.committed, total.rolled_back), (101, 1));
        assert_eq!(total.latency_ns.len(), 102);
        let median_us = total.latency_ns.value_at_quantile(0.5) as f64 / 1000.0;
        assert!((median_us - 51.0).abs() < 0.06, "{median_us}");
        let max_ns = total.latency_ns.max();
        assert!(max_ns >= LATENCY_MAX_NS, "a longer latency counts as the longest: {max_ns}");
    }
}
