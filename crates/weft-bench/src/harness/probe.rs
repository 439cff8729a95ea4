//! A probe of how long it takes until a commit becomes durable, if no thread waits for it.
//!
//! If commits are acknowledged before they are durable, latencies say nothing about the log. So the coordinator of
//! a round, which is otherwise idle, looks at the database every two milliseconds. It notes the epoch in which a
//! transaction would commit now, and later when that epoch is durable. The result is as precise as the interval
//! between looks. This interval may be longer than intended if every core has a client, because the coordinator
//! wakes late.
//!
//! A commit for which a thread waits ends its epoch at once. Here, epochs last as long as configured.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use weft::Metrics;

use super::tally::Tally;

/// The interval between two looks at the database.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// The moments that wait for their epochs, and the latencies found.
#[derive(Debug)]
pub struct Probe {
    /// Moments, with the epoch at that time, that are not durable yet.
    pending: VecDeque<(Instant, u64)>,
    latency_ns: Histogram<u64>,
}

impl Probe {
    /// Creates a probe for a database with a log; returns `None` without a log.
    pub fn of(metrics: &Metrics) -> Option<Probe> {
        let latency_ns = || Tally::new().latency_ns;
        metrics.log.as_ref().map(|_| Probe { pending: VecDeque::new(), latency_ns: latency_ns() })
    }

    /// Looks at the database's metrics at the moment `now`.
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

    /// Returns the times until durable, in nanoseconds.
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
