//! Ledgers of what clients have committed, kept outside of the database. Verification compares the two.

use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};

/// The counts of one client, which alone writes them. They are summed up at the end.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Ledger<const N: usize>([Word; N]);

impl<const N: usize> Ledger<N> {
    /// Adds to a count.
    #[inline]
    pub(crate) fn add(&self, position: usize, amount: u64) {
        let count = &self.0[position];
        // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
        count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}

/// The ledgers of all clients of a database.
#[derive(Debug)]
pub(crate) struct Ledgers<const N: usize>(Mutex<Vec<Arc<Ledger<N>>>>);

impl<const N: usize> Ledgers<N> {
    /// Creates ledgers for no clients.
    pub(crate) fn new() -> Self {
        Ledgers(Mutex::default())
    }

    /// Opens a ledger for one more client. Returns it with the number of earlier clients.
    pub(crate) fn open(&self) -> (Arc<Ledger<N>>, usize) {
        let ledger = Arc::new(Ledger(std::array::from_fn(|_| Word::new(0))));
        let mut all = self.0.lock().expect("no client panics with the lock");
        all.push(Arc::clone(&ledger));
        (ledger, all.len() - 1)
    }

    /// Returns the sum of each count over all clients.
    pub(crate) fn sums(&self) -> [u64; N] {
        let all = self.0.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        let sum = |position: usize| {
            all.iter().map(|ledger| ledger.0[position].load(Ordering::Relaxed)).sum()
        };
        std::array::from_fn(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_add_up() {
        let ledgers = Ledgers::<2>::new();
        let ((one, first), (other, second)) = (ledgers.open(), ledgers.open());
        one.add(0, 3);
        one.add(0, 1);
        other.add(0, 10);
        other.add(1, 7);
        assert_eq!((first, second, ledgers.sums()), (0, 1, [14, 7]));
    }
}
