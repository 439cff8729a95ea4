//! The hot counter: every transaction adds 1 to the same row.

use super::{Workload, check_equal};
use crate::store::{Result, Store};

/// A client of the hot counter.
pub struct Counter {
    added: i64,
}

impl Workload for Counter {
    const NAME: &'static str = "hot counter";
    const ROWS: u64 = 1;

    fn new(_thread: usize, _rows: u64) -> Self {
        Counter { added: 0 }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        store.add_one(0)?;
        self.added += 1;
        Ok(())
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let added = clients.iter().map(|client| client.added).sum();
        let counter = *numbers.first().ok_or("the counter is missing")?;
        check_equal(format_args!("the counter"), counter, added)
    }
}
