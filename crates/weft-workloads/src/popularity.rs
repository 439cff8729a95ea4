//! Skewed choice of records, some of which are far more popular than others. Records are drawn before the clock
//! runs, and ledgers count how often transactions have changed the popular ones.
//!
//! Drawing from a Zipf distribution takes about as long as a short transaction. So a workload draws a few million
//! records when it is loaded. Its clients go through them repeatedly, each from a different start. A drawn record
//! is a word of 32 bits:
//!
//! ```text
//!   31      28 27                                      0
//!  +----------+-----------------------------------------+
//!  | rank + 1 | record                                  |
//!  +----------+-----------------------------------------+
//! ```
//!
//! The rank is set for the [`RANKS_COUNTED`] most popular records; 0 stands for all others.

use std::sync::Arc;

use fastrand::Rng;
use weft::htm::word::{Mutex, Ordering, Word};

use crate::random::Random;
use crate::ycsb::zipf::{Scatter, Zipf};

/// The bits of a record.
const RECORD_BITS: u32 = 28;

/// The most records that a workload can draw from.
pub(crate) const RECORDS_MAX: u64 = 1 << RECORD_BITS;

/// How many of the most popular records of a Zipf distribution are counted individually.
pub(crate) const RANKS_COUNTED: usize = (1 << (u32::BITS - RECORD_BITS)) - 1;

/// How many records are drawn: several for each record, so that hardly any is left out. The bounds ensure that with
/// few records not all clients repeat a short list together, and that with many records drawing does not take
/// minutes.
const DRAWN_PER_RECORD: u64 = 4;
const DRAWN_MIN: u64 = 1 << 16;
const DRAWN_MAX: u64 = 1 << 22;

/// The stream of random numbers for drawing records.
const DRAW_STREAM: u64 = 1 << 33;

/// The stream of random numbers for the starts of a run's clients.
const BEGIN_STREAM: u64 = DRAW_STREAM + 1;

/// A drawn record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick(u32);

impl Pick {
    /// Packs a record, and its rank if it is counted.
    pub(crate) fn new(record: u64, rank: Option<usize>) -> Pick {
        debug_assert!(record < RECORDS_MAX && rank.is_none_or(|rank| rank < RANKS_COUNTED));
        let rank = rank.map_or(0, |rank| rank as u32 + 1);
        Pick(rank << RECORD_BITS | record as u32)
    }

    #[inline(always)]
    pub(crate) fn record(self) -> u64 {
        u64::from(self.0 & ((1 << RECORD_BITS) - 1))
    }

    /// Returns the record's rank, from 0, if it is counted individually.
    #[inline(always)]
    pub(crate) fn rank(self) -> Option<u16> {
        ((self.0 >> RECORD_BITS) as u16).checked_sub(1)
    }
}

/// Draws as many records as clients need.
pub(crate) fn draw(records: u64, seed: u64, mut one: impl FnMut(&mut Rng) -> Pick) -> Arc<[Pick]> {
    let count = records.saturating_mul(DRAWN_PER_RECORD).clamp(DRAWN_MIN, DRAWN_MAX);
    let Random(mut random) = Random::new(seed, DRAW_STREAM);
    (0..count).map(|_| one(&mut random)).collect()
}

/// Draws records by Zipf's law: the `k`-th most popular in proportion to `1 / k^alpha`, scattered over all records.
pub(crate) fn draw_zipf(records: u64, alpha: f64, seed: u64) -> Arc<[Pick]> {
    let (zipf, scatter) = (Zipf::new(records, alpha), Scatter::new(records));
    draw(records, seed, |random| {
        let rank = zipf.draw(random);
        let counted = usize::try_from(rank).ok().filter(|&rank| rank < RANKS_COUNTED);
        Pick::new(scatter.record(rank), counted)
    })
}

/// Returns the shares of these ranks, counted from 1, in what [`draw_zipf`] draws, in percent.
pub(crate) fn percent_of_ranks(records: u64, alpha: f64, seed: u64, ranks: &[u64]) -> Vec<f64> {
    assert!(ranks.iter().all(|rank| (1..=records).contains(rank)), "{ranks:?} of {records}");
    let scatter = Scatter::new(records);
    let wanted: Vec<u64> = ranks.iter().map(|rank| scatter.record(rank - 1)).collect();
    let mut counts = vec![0_u64; ranks.len()];
    let drawn = draw_zipf(records, alpha, seed);
    for pick in drawn.iter() {
        if let Some(position) = wanted.iter().position(|&record| record == pick.record()) {
            counts[position] += 1;
        }
    }
    counts.iter().map(|&count| 100.0 * count as f64 / drawn.len() as f64).collect()
}

/// Returns the records that are counted individually: those that [`draw_zipf`] draws most, by popularity.
pub(crate) fn most_popular(records: u64) -> Arc<[u64]> {
    let scatter = Scatter::new(records);
    (0..records.min(RANKS_COUNTED as u64)).map(|rank| scatter.record(rank)).collect()
}

/// A client's position in the list of drawn records.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    drawn: Arc<[Pick]>,
    next: usize,
}

impl Course {
    /// Creates the course of the `thread`-th of `threads` clients. Clients start as far from each other as
    /// possible.
    pub(crate) fn new(drawn: &Arc<[Pick]>, seed: u64, thread: usize, threads: usize) -> Course {
        let Random(mut random) = Random::new(seed, BEGIN_STREAM);
        let begin = random.usize(..drawn.len()) + drawn.len() / threads.max(1) * thread;
        Course { drawn: Arc::clone(drawn), next: begin % drawn.len() }
    }

    /// Returns the next record.
    #[inline]
    pub(crate) fn draw(&mut self) -> Pick {
        let pick = self.drawn[self.next];
        self.next += 1;
        if self.next == self.drawn.len() {
            self.next = 0;
        }
        pick
    }
}

/// The account of one client, which alone writes it. It is summed up at the end.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Ledger {
    changes: Word,
    /// The changes of each record that is counted individually.
    popular: Box<[Word]>,
}

impl Ledger {
    /// Counts a committed change. `popular` is the rank of the record, if it is counted individually.
    #[inline]
    pub(crate) fn note(&self, popular: Option<u16>) {
        add_one(&self.changes);
        if let Some(popular) = popular {
            add_one(&self.popular[usize::from(popular)]);
        }
    }
}

#[inline]
fn add_one(counter: &Word) {
    // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The ledgers of all clients of a database.
#[derive(Debug)]
pub(crate) struct Ledgers {
    popular: usize,
    all: Mutex<Vec<Arc<Ledger>>>,
}

impl Ledgers {
    /// Creates ledgers that count the changes of `popular` records individually.
    pub(crate) fn new(popular: usize) -> Ledgers {
        Ledgers { popular, all: Mutex::default() }
    }

    /// Opens a ledger for one more client.
    pub(crate) fn open(&self) -> Arc<Ledger> {
        let popular = (0..self.popular).map(|_| Word::new(0)).collect();
        let ledger = Arc::new(Ledger { changes: Word::new(0), popular });
        self.all.lock().expect("no client panics with the lock").push(Arc::clone(&ledger));
        ledger
    }

    /// Returns the committed changes of all clients, and those of each record that is counted individually.
    pub(crate) fn changes(&self) -> (u64, Vec<u64>) {
        let all = self.all.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        let sum = |count: &dyn Fn(&Ledger) -> u64| all.iter().map(|ledger| count(ledger)).sum();
        let popular = (0..self.popular).map(|position| {
            sum(&|ledger: &Ledger| ledger.popular[position].load(Ordering::Relaxed))
        });
        (sum(&|ledger: &Ledger| ledger.changes.load(Ordering::Relaxed)), popular.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_packing() {
        for record in [0, 1, RECORDS_MAX - 1] {
            for rank in [None, Some(0), Some(RANKS_COUNTED - 1)] {
                let pick = Pick::new(record, rank);
                assert_eq!((pick.record(), pick.rank().map(usize::from)), (record, rank));
            }
        }
    }

    /// Table 1 of the Doppel paper: the percentages of the 1st, 2nd, 10th and 100th most popular of
    /// a million records, with as many digits as it has.
    #[test]
    fn popularity_is_that_of_the_paper() {
        const TABLE_1: [(f64, [f64; 4]); 11] = [
            (0.0, [0.0001, 0.0001, 0.0001, 0.0001]),
            (0.2, [0.0013, 0.0011, 0.0008, 0.0005]),
            (0.4, [0.0151, 0.0114, 0.0060, 0.0024]),
            (0.6, [0.1597, 0.1054, 0.0401, 0.0101]),
            (0.8, [1.337, 0.7678, 0.2119, 0.0336]),
            (1.0, [6.953, 3.476, 0.6951, 0.0695]),
            (1.2, [18.95, 8.250, 1.196, 0.0755]),
            (1.4, [32.30, 12.24, 1.286, 0.0512]),
            (1.6, [43.76, 14.43, 1.099, 0.0276]),
            (1.8, [53.13, 15.26, 0.8420, 0.0133]),
            (2.0, [60.80, 15.20, 0.6079, 0.0061]),
        ];
        const RECORDS: u64 = 1_000_000;
        const SEED: u64 = 7;
        let scatter = Scatter::new(RECORDS);
        for (alpha, percentages) in TABLE_1 {
            let drawn = draw_zipf(RECORDS, alpha, SEED);
            for (rank, percentage) in [0, 1, 9, 99].into_iter().zip(percentages) {
                let record = scatter.record(rank);
                let count = drawn.iter().filter(|pick| pick.record() == record).count() as f64;
                let expected = percentage / 100.0 * drawn.len() as f64;
                // Four standard deviations, plus the table's rounding: half a unit of the last of four digits, but
                // at least half a unit of the fourth decimal.
                let rounded = f64::max(percentage * 0.5e-3, 0.5e-4) / 100.0 * drawn.len() as f64;
                let bound = 4.0 * expected.sqrt() + rounded;
                assert!(
                    (count - expected).abs() <= bound,
                    "seed {SEED}, alpha {alpha}, rank {rank}: {count}, not {expected} ± {bound}"
                );
            }
        }
    }

    #[test]
    fn the_popular_records_are_known_by_their_ranks() {
        const SEED: u64 = 8;
        for records in [1, 5, 1_000] {
            let popular = most_popular(records);
            assert_eq!(popular.len() as u64, records.min(RANKS_COUNTED as u64));
            let mut drawn = vec![0_u32; popular.len()];
            for pick in draw_zipf(records, 1.0, SEED).iter() {
                let known = popular.iter().position(|&record| record == pick.record());
                assert_eq!(pick.rank().map(usize::from), known, "seed {SEED}: {pick:?}");
                known.into_iter().for_each(|rank| drawn[rank] += 1);
            }
            assert!(drawn.iter().all(|&count| count > 0), "seed {SEED}: {drawn:?}");
            assert!(records < 2 || drawn[0] > drawn[1], "seed {SEED}: {drawn:?}");
        }
    }

    /// Protects against clients that go through the same records side by side: they would contend for records that
    /// are not popular.
    #[test]
    fn clients_begin_far_from_each_other() {
        const SEED: u64 = 9;
        let drawn = draw_zipf(1_000, 0.0, SEED);
        for threads in [1, 2, 20] {
            let mut begins: Vec<usize> = (0..threads)
                .map(|thread| Course::new(&drawn, SEED, thread, threads).next)
                .collect();
            begins.sort_unstable();
            let nearest = begins.windows(2).map(|pair| pair[1] - pair[0]).min();
            assert!(nearest.is_none_or(|nearest| nearest >= drawn.len() / threads), "{begins:?}");
        }
        let mut course = Course::new(&drawn, SEED, 0, 1);
        let first: Vec<Pick> = (0..drawn.len()).map(|_| course.draw()).collect();
        let again: Vec<Pick> = (0..drawn.len()).map(|_| course.draw()).collect();
        assert_eq!(first, again, "they go round");
        assert_ne!(first, drawn.to_vec(), "the seed says where they begin");
    }

    #[test]
    fn ledgers_add_up() {
        let ledgers = Ledgers::new(2);
        let (one, other) = (ledgers.open(), ledgers.open());
        [None, Some(1), Some(1)].into_iter().for_each(|popular| one.note(popular));
        other.note(Some(0));
        assert_eq!(ledgers.changes(), (4, vec![1, 2]));
    }
}
