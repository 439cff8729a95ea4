//! A client of TATP: its draws, and an account of what it has inserted and deleted.

use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};

use super::mix::{Mix, TransactionType};
use super::schema::{START_TIMES, TYPES};
use super::{Parameters, SUBSCRIBERS_MAX};
use crate::random::Random;

/// The first client's stream of random numbers; subscribers have the streams below.
const FIRST_STREAM: u64 = 1 << 32;

const _: () = assert!((SUBSCRIBERS_MAX as u64) < FIRST_STREAM);

/// The counts of a client's changes. Only the client writes them; they are summed up at the end.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Ledger {
    inserted: Word,
    deleted: Word,
}

/// The ledgers of all clients of a database.
#[derive(Debug, Default)]
pub(super) struct Ledgers(Mutex<Vec<Arc<Ledger>>>);

impl Ledgers {
    /// Opens a ledger for one more client.
    fn open(&self) -> Arc<Ledger> {
        let ledger = Arc::<Ledger>::default();
        self.0.lock().expect("no client panics with the lock").push(Arc::clone(&ledger));
        ledger
    }

    /// Returns the call forwardings that committed transactions of all clients inserted, and those that they
    /// deleted.
    pub(super) fn inserted_and_deleted(&self) -> (u64, u64) {
        let ledgers = self.0.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        let sum = |count: fn(&Ledger) -> &Word| {
            ledgers.iter().map(|ledger| count(ledger).load(Ordering::Relaxed)).sum()
        };
        (sum(|ledger| &ledger.inserted), sum(|ledger| &ledger.deleted))
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    pub(super) random: Random,
    subscribers: u32,
    /// A of the specification: the unevenness of the choice of subscribers.
    unevenness: u32,
    mix: Mix,
    ledger: Arc<Ledger>,
}

impl Client {
    /// Creates the client of the `thread`-th thread.
    pub(super) fn new(
        parameters: &Parameters,
        ledgers: &Ledgers,
        seed: u64,
        thread: usize,
    ) -> Client {
        Client {
            random: Random::new(seed, FIRST_STREAM + thread as u64),
            subscribers: parameters.subscribers,
            unevenness: unevenness(parameters.subscribers),
            mix: parameters.mix,
            ledger: ledgers.open(),
        }
    }

    /// Chooses the type of the next transaction.
    #[inline]
    pub(super) fn draw_transaction(&mut self) -> TransactionType {
        self.mix.draw(&mut self.random)
    }

    /// Chooses a subscriber, some far more often than others.
    #[inline]
    pub(super) fn draw_subscriber(&mut self) -> u32 {
        self.random.nurand(self.unevenness, 0, 1, self.subscribers)
    }

    /// Chooses a type of access or of special facility.
    #[inline]
    pub(super) fn draw_type(&mut self) -> u8 {
        self.random.within_u8(1, TYPES)
    }

    /// Chooses a time at which a call forwarding may start.
    #[inline]
    pub(super) fn draw_start_time(&mut self) -> u8 {
        START_TIMES[self.random.within(0, START_TIMES.len() as u32 - 1) as usize]
    }

    /// Chooses a time at which a call forwarding may end.
    #[inline]
    pub(super) fn draw_end_time(&mut self) -> u8 {
        self.random.within_u8(1, 24)
    }

    /// Counts a committed insertion.
    #[inline]
    pub(super) fn note_inserted(&mut self) {
        add_one(&self.ledger.inserted);
    }

    /// Counts a committed deletion.
    #[inline]
    pub(super) fn note_deleted(&mut self) {
        add_one(&self.ledger.deleted);
    }
}

#[inline]
fn add_one(counter: &Word) {
    // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Returns A of the specification, for the size of the population.
pub(crate) fn unevenness(subscribers: u32) -> u32 {
    match subscribers {
        ..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        _ => 2_097_151,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unevenness_grows_with_the_population() {
        for (subscribers, expected) in [
            (1, 65_535),
            (1_000_000, 65_535),
            (1_000_001, 1_048_575),
            (10_000_000, 1_048_575),
            (10_000_001, 2_097_151),
            (SUBSCRIBERS_MAX, 2_097_151),
        ] {
            assert_eq!(unevenness(subscribers), expected, "{subscribers} subscribers");
        }
    }

    /// Every draw is a subscriber, also in the smallest population. In the standard population some are drawn far
    /// more often than others.
    #[test]
    fn subscribers_are_drawn_unevenly() {
        const SEED: u64 = 3;
        let client = |subscribers| {
            let parameters = Parameters { subscribers, ..Parameters::default() };
            Client::new(&parameters, &Ledgers::default(), SEED, 0)
        };
        assert!((0..100).all(|_| client(1).draw_subscriber() == 1), "seed {SEED}");
        let mut client = client(80_000);
        let mut drawn = vec![0_u32; 80_001];
        for _ in 0..800_000 {
            drawn[client.draw_subscriber() as usize] += 1;
        }
        assert_eq!(drawn[0], 0, "seed {SEED}");
        let most = drawn.iter().max().expect("there are some");
        assert!(*most > 200, "seed {SEED}: at most {most} draws, where an even share is 10");
        let hours: Vec<u8> = (0..1_000).map(|_| client.draw_end_time()).collect();
        assert!((1..=24).all(|hour| hours.contains(&hour)), "seed {SEED}");
        let starts: Vec<u8> = (0..100).map(|_| client.draw_start_time()).collect();
        assert!(START_TIMES.iter().all(|start| starts.contains(start)), "seed {SEED}");
        assert!(starts.iter().all(|start| START_TIMES.contains(start)), "seed {SEED}");
    }
}
