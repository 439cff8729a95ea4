//! The counts of one client during a round: for each transaction type, how many there were and how long they took.
//!
//! A latency is the time from the end of the client's previous transaction to the end of this one. So it includes
//! the drawing of the input, every attempt, and the waits between attempts: the time that a caller of the engine
//! waits. (If a transaction was set aside while others ran, its latency is the time since the conflict that set it
//! aside.) This takes one reading of the clock per transaction, because the end of one is the start of the next.
//!
//! The clock is [`std::time::Instant`]; a reading costs about 24 ns. The shortest transactions of TPC-C take 2 to 3
//! µs, so this is about one percent of them. For transactions that access a single row it would be a tenth, and
//! would hide much of the difference between protocols. There, only one transaction in 31 ([`SAMPLE_OF_SMALL`]) has
//! its latency measured, from a reading of the clock just before it to one just after it. The others are only
//! counted ([`Batch`]). 31 is a prime, so that the samples do not follow a rhythm of the operations.
//!
//! Every client has histograms of its own, so recording touches no cache line of another thread. A histogram
//! allocates all its memory at the start.

use std::time::Duration;

use hdrhistogram::Histogram;
use weft_workloads::workload::Outcome;

/// The number of transactions of single accesses for each one whose latency is measured.
pub const SAMPLE_OF_SMALL: u64 = 31;

/// The longest latency that a histogram can represent; longer ones are recorded as this one.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// Three significant digits: latencies that differ by more than 0.1 % are distinguished.
const SIGNIFICANT_DIGITS: u8 = 3;

/// The transactions of one type.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The number of transactions that committed.
    pub committed: u64,
    /// The number of transactions that ran to the end and then rolled back, because the workload asks for it.
    pub rolled_back: u64,
    /// The latencies of both, in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally::new()
    }
}

impl Tally {
    /// Creates an empty tally. All of its memory is touched, so that page faults do not occur later.
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
        // Does not overflow: 64 bits of nanoseconds are 5 million hours.
        self.latency_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds the transactions of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.latency_ns += &other.latency_ns;
    }
}

/// The transactions of one type that one thread ran, without the distribution of their latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadTally {
    /// The number of transactions that committed.
    pub committed: u64,
    /// The number of latencies that were measured.
    pub samples: u64,
    /// Their sum, in nanoseconds.
    pub latency_sum_ns: f64,
    /// The greatest of them, in nanoseconds.
    pub latency_max_ns: u64,
}

impl ThreadTally {
    /// Returns what a tally sums up to.
    pub fn of(tally: &Tally) -> ThreadTally {
        let samples = tally.latency_ns.len();
        // The mean of an empty histogram is 0.
        let latency_sum_ns = tally.latency_ns.mean() * samples as f64;
        ThreadTally {
            committed: tally.committed,
            samples,
            latency_sum_ns,
            latency_max_ns: tally.latency_ns.max(),
        }
    }

    /// Adds the transactions of another round, or of another thread.
    pub fn add(&mut self, other: &ThreadTally) {
        self.committed += other.committed;
        self.samples += other.samples;
        self.latency_sum_ns += other.latency_sum_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// Transactions between two readings of the clock, counted until their end shows whether they are in the window.
pub struct Batch(Vec<Outcomes>);

/// The number of transactions of one type, by outcome.
#[derive(Clone, Copy, Default)]
struct Outcomes {
    committed: u64,
    rolled_back: u64,
}

impl Batch {
    /// Creates an empty batch for `types` transaction types.
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

    /// Resets all counts to 0.
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
    fn tally_of_a_thread_has_the_mean_and_the_greatest_latency() {
        let mut tally = Tally::new();
        assert_eq!(ThreadTally::of(&tally), ThreadTally::default());
        tally.record(false, Duration::from_nanos(100));
        tally.record(true, Duration::from_nanos(300));
        let mut all = ThreadTally::of(&tally);
        all.add(&ThreadTally {
            committed: 4,
            samples: 2,
            latency_sum_ns: 100.0,
            latency_max_ns: 60,
        });
        let expected =
            ThreadTally { committed: 5, samples: 4, latency_sum_ns: 500.0, latency_max_ns: 300 };
        assert_eq!(all, expected);
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
