//! INCR1: every transaction adds 1 to a row: to the hot one with some probability, or else to any other one.

use super::{Workload, check_equal, random};
use crate::store::{Result, Store};

/// A client that adds 1 to the hot row in `HOT_PERCENT` of a hundred transactions.
pub struct Incr<const HOT_PERCENT: u8> {
    random: fastrand::Rng,
    rows: u64,
    added: i64,
}

impl<const HOT_PERCENT: u8> Workload for Incr<HOT_PERCENT> {
    const NAME: &'static str = match HOT_PERCENT {
        0 => "INCR1 0 %",
        _ => "INCR1 50 %",
    };
    const ROWS: u64 = 1_000_000;

    fn new(thread: usize, rows: u64) -> Self {
        Incr { random: random(thread), rows, added: 0 }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let is_hot = self.random.u8(..100) < HOT_PERCENT;
        store.add_one(if is_hot { 0 } else { self.random.u64(1..self.rows) })?;
        self.added += 1;
        Ok(())
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let added = clients.iter().map(|client| client.added).sum();
        check_equal(format_args!("the sum of all numbers"), numbers.iter().sum(), added)
    }
}
