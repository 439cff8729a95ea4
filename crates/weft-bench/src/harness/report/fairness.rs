//! What each thread got: its share of the commits of a transaction type, and its waits.

use serde::Serialize;

use super::super::round::Round;
use super::super::tally::ThreadTally;
use super::json::InOrder;

/// How evenly the threads were served with transactions of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// The greatest latency of all threads divided by the mean one.
    pub greatest_by_mean: Option<f64>,
    /// The threads, in their order.
    pub threads: Vec<ThreadShare>,
}

/// What one thread got.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ThreadShare {
    /// The transactions that it committed.
    pub committed: u64,
    /// Their part of the commits of all threads.
    pub share: Option<f64>,
    /// The mean latency, in microseconds.
    pub mean_us: Option<f64>,
    /// The greatest latency, in microseconds.
    pub max_us: Option<f64>,
    /// The greatest latency divided by the mean one.
    pub greatest_by_mean: Option<f64>,
}

/// Returns the mean of the latencies, in nanoseconds.
fn mean_ns(tally: &ThreadTally) -> Option<f64> {
    (tally.samples > 0).then(|| tally.latency_sum_ns / tally.samples as f64)
}

fn greatest_by_mean(tally: &ThreadTally) -> Option<f64> {
    let mean = mean_ns(tally).filter(|&mean| mean > 0.0)?;
    Some(tally.latency_max_ns as f64 / mean)
}

impl Fairness {
    /// Returns what the threads got, which have these tallies.
    fn of(threads: &[ThreadTally]) -> Fairness {
        let mut all = ThreadTally::default();
        threads.iter().for_each(|thread| all.add(thread));
        let share = |thread: &ThreadTally| ThreadShare {
            committed: thread.committed,
            share: (all.committed > 0).then(|| thread.committed as f64 / all.committed as f64),
            mean_us: mean_ns(thread).map(|mean| mean / 1000.0),
            max_us: (thread.samples > 0).then_some(thread.latency_max_ns as f64 / 1000.0),
            greatest_by_mean: greatest_by_mean(thread),
        };
        Fairness {
            greatest_by_mean: greatest_by_mean(&all),
            threads: threads.iter().map(share).collect(),
        }
    }

    /// Returns what the threads got of each transaction type that has run, over all rounds.
    pub fn by_type(types: &[&'static str], rounds: &[Round]) -> InOrder<&'static str, Fairness> {
        let threads = rounds.iter().map(|round| round.by_thread.len()).max().unwrap_or(0);
        let mut found = Vec::new();
        for (position, &name) in types.iter().enumerate() {
            let mut tallies = vec![ThreadTally::default(); threads];
            for round in rounds {
                for (tally, of_round) in tallies.iter_mut().zip(&round.by_thread) {
                    tally.add(&of_round[position]);
                }
            }
            if tallies.iter().any(|tally| tally.committed + tally.samples > 0) {
                found.push((name, Fairness::of(&tallies)));
            }
        }
        InOrder(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_waits_long_shows_in_its_share_and_its_waits() {
        let served = ThreadTally {
            committed: 30,
            samples: 3,
            latency_sum_ns: 3_000.0,
            latency_max_ns: 1_500,
        };
        let starved = ThreadTally {
            committed: 10,
            samples: 1,
            latency_sum_ns: 9_000.0,
            latency_max_ns: 9_000,
        };
        let idle = ThreadTally::default();
        let found = Fairness::of(&[served, starved, idle]);
        assert_eq!(found.greatest_by_mean, Some(3.0), "9 of 3 microseconds");
        let [served, starved, idle] = found.threads[..] else { panic!("three threads") };
        assert_eq!(
            (served.share, served.mean_us, served.max_us),
            (Some(0.75), Some(1.0), Some(1.5))
        );
        assert_eq!((starved.share, starved.mean_us), (Some(0.25), Some(9.0)));
        assert_eq!((served.greatest_by_mean, starved.greatest_by_mean), (Some(1.5), Some(1.0)));
        assert_eq!((idle.share, idle.mean_us, idle.max_us), (Some(0.0), None, None));
    }

    #[test]
    fn threads_without_commits_have_no_share() {
        let found = Fairness::of(&[ThreadTally::default()]);
        assert_eq!((found.greatest_by_mean, found.threads[0].share), (None, None));
    }
}
