//! A client of INCR1 or INCRZ: the counter that it increments next, and an account of its increments.

use std::sync::Arc;

use super::{Change, HOT_KEYS_MAX, Parameters, Popularity, key_of};
use crate::popularity::{self, Course, Ledger, Ledgers, Pick};
use crate::stashing::{Draws, Requested};
use crate::ycsb::zipf::Scatter;

/// A client reads the clock once in this many transactions, because reading it takes longer than an increment.
const TRANSACTIONS_PER_LOOK: u32 = 256;

/// The request of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Increment {
    /// The key of the counter.
    pub key: u128,
    /// The position of the counter in the account, if it is popular.
    popular: Option<u16>,
}

/// What all clients choose from.
#[derive(Debug)]
pub(super) struct Choice {
    /// The drawn records. The hot record of INCR1 has rank 0, even as it changes.
    drawn: Arc<[Pick]>,
    /// The records that are or will be hot, or the most popular ones.
    pub(super) popular: Arc<[u64]>,
    change: Option<Change>,
    pub(super) ledgers: Ledgers,
}

impl Choice {
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Choice {
        let records = parameters.records;
        let (drawn, popular, change) = match parameters.popularity {
            Popularity::Hot { percent, change } => {
                let hot = if change.is_some() { HOT_KEYS_MAX.min(records / 2) } else { 1 };
                let scatter = Scatter::new(records);
                let drawn = popularity::draw(records, seed, |random| {
                    if random.f64() * 100.0 < percent {
                        Pick::new(0, Some(0))
                    } else {
                        Pick::new(scatter.record(random.u64(hot..records)), None)
                    }
                });
                (drawn, (0..hot).map(|rank| scatter.record(rank)).collect(), change)
            }
            Popularity::Zipf { alpha } => {
                let drawn = popularity::draw_zipf(records, alpha, seed);
                (drawn, popularity::most_popular(records), None)
            }
        };
        let ledgers = Ledgers::new(popular.len());
        Choice { drawn, popular, change, ledgers }
    }

    pub(super) fn client(&self, seed: u64, thread: usize, threads: usize) -> Client {
        Client {
            course: Course::new(&self.drawn, seed, thread, threads),
            popular: Arc::clone(&self.popular),
            change: self.change,
            looks_in: 0,
            hot: 0,
            ledger: self.ledgers.open(),
        }
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    course: Course,
    popular: Arc<[u64]>,
    change: Option<Change>,
    /// The number of transactions until the client next reads the clock, if the hot key changes.
    looks_in: u32,
    /// The position of the hot record among the popular ones; it is added to the rank.
    hot: u16,
    ledger: Arc<Ledger>,
}

impl Requested for Increment {
    #[inline]
    fn transaction(&self) -> usize {
        0
    }
}

impl Draws for Client {
    type Request = Increment;

    #[inline]
    fn draw(&mut self) -> Increment {
        if let Some(change) = self.change {
            self.look(&change);
        }
        let pick = self.course.draw();
        let Some(rank) = pick.rank() else {
            return Increment { key: key_of(pick.record()), popular: None };
        };
        let popular = rank + self.hot;
        Increment { key: key_of(self.popular[usize::from(popular)]), popular: Some(popular) }
    }

    #[inline]
    fn note(&mut self, request: &Increment, succeeded: bool) {
        if succeeded {
            self.ledger.note(request.popular);
        }
    }
}

impl Client {
    /// Reads the clock at intervals, to find whether another key has become hot.
    #[inline]
    fn look(&mut self, change: &Change) {
        match self.looks_in.checked_sub(1) {
            Some(fewer) => self.looks_in = fewer,
            None => {
                self.looks_in = TRANSACTIONS_PER_LOOK - 1;
                self.hot = (change.count_now() % self.popular.len() as u64) as u16;
            }
        }
    }
}
