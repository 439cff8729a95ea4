//! Transfers: every transaction moves 1 from one account to another, both drawn uniformly. The number of a row is
//! an account's balance, which may be negative.

use super::{Workload, check_equal, random};
use crate::store::{Result, Store};

/// A client that transfers.
pub struct Transfers {
    random: fastrand::Rng,
    /// What the client's transfers have added to each account, all together.
    added: Vec<i64>,
}

impl Workload for Transfers {
    const NAME: &'static str = "transfers";
    const ROWS: u64 = 1_000;

    fn new(thread: usize, rows: u64) -> Self {
        Transfers { random: random(thread), added: vec![0; rows as usize] }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let accounts = self.added.len();
        let from = self.random.usize(..accounts);
        let to = (from + self.random.usize(1..accounts)) % accounts;
        std::hint::black_box(store.transfer(from as u64, to as u64)?);
        self.added[from] -= 1;
        self.added[to] += 1;
        Ok(())
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let accounts = clients.first().map_or(numbers.len(), |client| client.added.len());
        if numbers.len() != accounts {
            return Err(format!("{} of {accounts} accounts are left", numbers.len()).into());
        }
        for (account, &balance) in numbers.iter().enumerate() {
            let added = clients.iter().map(|client| client.added[account]).sum();
            check_equal(format_args!("the balance of account {account}"), balance, added)?;
        }
        Ok(())
    }
}
