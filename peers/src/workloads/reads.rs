//! Mostly reads: every transaction performs ten operations, of which 95 % read a row and the others add 1 to its
//! number. Some rows are far more popular than others.

use super::zipf::Zipf;
use super::{Workload, check_equal, random};
use crate::store::{self, Operation, Result, Store};

const OPERATIONS: usize = 10;
const UPDATES_PERCENT: u8 = 5;

/// A client draws as many transactions before the measurement, and runs them again and again.
const DRAWN: usize = 1 << 14;

/// A client that mostly reads.
pub struct Reads {
    drawn: Vec<Transaction>,
    next: usize,
    updates: i64,
}

struct Transaction {
    operations: [Operation; OPERATIONS],
    /// The sum of the checksums of the payloads that it reads.
    checksum: u32,
    updates: i64,
}

impl Workload for Reads {
    const NAME: &'static str = "mostly reads";
    const ROWS: u64 = 100_000;

    fn new(thread: usize, rows: u64) -> Self {
        let (mut random, zipf) = (random(thread), Zipf::new(rows));
        let mut operation = |_| {
            let key = zipf.draw(&mut random);
            let is_update = random.u8(..100) < UPDATES_PERCENT;
            if is_update { Operation::Update(key) } else { Operation::Read(key) }
        };
        let mut transaction = || Transaction::new(std::array::from_fn(&mut operation));
        let drawn = std::iter::repeat_with(&mut transaction).take(DRAWN).collect();
        Reads { drawn, next: 0, updates: 0 }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let transaction = &self.drawn[self.next];
        let checksum = store.perform(&transaction.operations)?;
        if checksum != transaction.checksum {
            return Err("wrong result: a checksum of rows that a transaction has read".into());
        }
        self.updates += transaction.updates;
        self.next = (self.next + 1) % DRAWN;
        Ok(())
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let updates = clients.iter().map(|client| client.updates).sum();
        check_equal(format_args!("the sum of all numbers"), numbers.iter().sum(), updates)
    }
}

impl Transaction {
    fn new(operations: [Operation; OPERATIONS]) -> Self {
        let mut transaction = Transaction { operations, checksum: 0, updates: 0 };
        for operation in operations {
            match operation {
                Operation::Read(key) => {
                    let checksum = store::checksum(&store::payload(key.into()));
                    transaction.checksum = transaction.checksum.wrapping_add(checksum);
                }
                Operation::Update(_) => transaction.updates += 1,
            }
        }
        transaction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_operation_in_twenty_is_an_update() {
        let reads = Reads::new(0, 1_000);
        let updates: i64 = reads.drawn.iter().map(|transaction| transaction.updates).sum();
        let share = updates as f64 / (DRAWN * OPERATIONS) as f64;
        assert!((0.045..0.055).contains(&share), "{share}");
    }

    #[test]
    fn threads_draw_different_transactions_and_every_system_the_same() {
        let operations = |thread| Reads::new(thread, 1_000).drawn[0].operations;
        assert_eq!(operations(0), operations(0));
        assert_ne!(operations(0), operations(1));
    }
}
