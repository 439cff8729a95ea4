//! Accounts of what clients have committed, outside of the database. Verification compares the two.

use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};

/// The counts of one client, which alone writes them. They are summed up at the end.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Account<const N: usize>([Word; N]);

impl<const N: usize> Account<N> {
    /// Adds to a count.
    #[inline]
    pub(crate) fn add(&self, position: usize, amount: u64) {
        let count = &self.0[position];
        // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
        count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}

/// The accounts of all clients of a database.
#[derive(Debug)]
pub(crate) struct Accounts<const N: usize>(Mutex<Vec<Arc<Account<N>>>>);

impl<const N: usize> Accounts<N> {
    /// Creates accounts for no clients.
    pub(crate) fn new() -> Self {
        Accounts(Mutex::default())
    }

    /// Opens an account for one more client. Returns it with the number of earlier clients.
    pub(crate) fn open(&self) -> (Arc<Account<N>>, usize) {
        let account = Arc::new(Account(std::array::from_fn(|_| Word::new(0))));
        let mut all = self.0.lock().expect("no client panics with the lock");
        all.push(Arc::clone(&account));
        (account, all.len() - 1)
    }

    /// Returns the sum of each count over all clients.
    pub(crate) fn sums(&self) -> [u64; N] {
        let all = self.0.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        let sum = |position: usize| {
            all.iter().map(|account| account.0[position].load(Ordering::Relaxed)).sum()
        };
        std::array::from_fn(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_add_up() {
        let accounts = Accounts::<2>::new();
        let ((one, first), (other, second)) = (accounts.open(), accounts.open());
        one.add(0, 3);
        one.add(0, 1);
        other.add(0, 10);
        other.add(1, 7);
        assert_eq!((first, second, accounts.sums()), (0, 1, [14, 7]));
    }
}
