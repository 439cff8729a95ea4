//! How long it takes until a commit is durable that nobody waits for.
//!
//! Where commits are acknowledged before they are durable, latencies say nothing of the log. So the coordinator of
//! a round, which has nothing else to do, notes every two milliseconds in which epoch a transaction would commit
//! just then, and when that epoch is found to be durable. That is as exact as it looks often: it may be woken late,
//! where every core has a client.
//!
//! A commit that somebody waits for has its epoch end at once. Here epochs last as long as they are to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use weft::Metrics;

use super::tally::Tally;

/// How often it looks.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// What has been found.
#[derive(Debug)]
pub struct Probe {
    /// Moments, and the epochs that they were in, which are not durable yet.
    pending: VecDeque<(Instant, u64)>,
    latency_ns: Histogram<u64>,
}

impl Probe {
    /// Of a database that has a log; `None` of others.
    pub fn of(metrics: &Metrics) -> Option<Probe> {
        let latency_ns = || Tally::new().latency_ns;
        metrics.log.as_ref().map(|_| Probe { pending: VecDeque::new(), latency_ns: latency_ns() })
    }

    /// Looks at what the database says of itself `now`.
    pub fn look(&mut self, now: Instant, metrics: &Metrics) {
        let Some(log) = &metrics.log else { return };
        self.note(now, metrics.epoch, log.durable_epoch);
    }

    fn note(&mut self, now: Instant, epoch: u64, durable_epoch: u64) {
        while let Some(&(then, _)) =
            self.pending.front().filter(|(_, epoch)| *epoch <= durable_epoch)
        {
            self.pending.pop_front();
            self.latency_ns.saturating_record((now - then).as_nanos() as u64);
        }
        self.pending.push_back((now, epoch));
    }

    /// How long it took, in nanoseconds.
    pub fn into_latency_ns(self) -> Histogram<u64> {
        self.latency_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_waits_for_its_own_epoch() {
        let mut probe = Probe { pending: VecDeque::new(), latency_ns: Tally::new().latency_ns };
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        probe.note(at(0), 5, 3);
        probe.note(at(10), 6, 4);
        assert_eq!(probe.latency_ns.len(), 0, "epoch 5 is not durable");
        probe.note(at(25), 6, 5);
        assert_eq!(probe.pending, [(at(10), 6), (at(25), 6)]);
        probe.note(at(40), 7, 6);
        let latency_ns = probe.into_latency_ns();
        let milliseconds: Vec<u64> =
            latency_ns.iter_recorded().map(|value| value.value_iterated_to() / 1_000_000).collect();
        assert_eq!(milliseconds, [15, 25, 30]);
    }
}
