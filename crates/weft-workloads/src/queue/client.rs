//! A client of the queue, which produces and consumes, and an account of both.

use std::sync::Arc;

use super::CLIENTS_MAX;
use crate::ledger::{Ledger, Ledgers};
use crate::random::Random;
use crate::stashing::{ClientRequest, RequestClient};

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 1 << 32;

/// The positions of the counts in a client's ledger.
const PRODUCED: usize = 0;
const CONSUMED: usize = 1;

/// The request of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An entry is appended.
    Produce {
        /// The client's number.
        client: u32,
    },
    /// The oldest entry is taken.
    Consume {
        /// The client's number.
        client: u32,
    },
}

impl ClientRequest for Request {
    #[inline]
    fn transaction(&self) -> usize {
        match self {
            Request::Produce { .. } => 0,
            Request::Consume { .. } => 1,
        }
    }
}

/// What all clients share.
#[derive(Debug)]
pub(super) struct RequestSource(Ledgers<2>);

impl RequestSource {
    pub(super) fn new() -> RequestSource {
        RequestSource(Ledgers::new())
    }

    pub(super) fn client(&self, seed: u64, thread: usize) -> Client {
        let (ledger, number) = self.0.open();
        assert!((number as u64) < CLIENTS_MAX, "a queue has at most {CLIENTS_MAX} clients");
        let random = Random::new(seed, FIRST_STREAM + thread as u64);
        Client { random, number: number as u32, ledger }
    }

    /// Returns the number of entries that clients have produced, and that they have consumed.
    pub(super) fn produced_and_consumed(&self) -> (u64, u64) {
        let sums = self.0.sums();
        (sums[PRODUCED], sums[CONSUMED])
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    number: u32,
    ledger: Arc<Ledger<2>>,
}

impl RequestClient for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        let client = self.number;
        match self.random.0.bool() {
            true => Request::Produce { client },
            false => Request::Consume { client },
        }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        let position = match request {
            Request::Produce { .. } => PRODUCED,
            Request::Consume { .. } => CONSUMED,
        };
        self.ledger.add(position, u64::from(succeeded));
    }
}
