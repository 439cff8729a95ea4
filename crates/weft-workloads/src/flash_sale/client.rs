//! A client of the flash sale: its next order, and an account of its orders.

use std::sync::Arc;

use super::Parameters;
use crate::ledger::{Ledger, Ledgers};
use crate::random::Random;
use crate::stashing::{ClientRequest, RequestClient};

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 1 << 32;

/// The share of the transactions that restock, in percent.
const RESTOCK_PERCENT: u32 = 2;

/// The most units in an order.
const UNITS_MAX: i64 = 3;

/// The positions of the counts in a client's ledger.
const ORDERS: usize = 0;
const UNITS: usize = 1;
const RESTOCKS: usize = 2;

/// The request of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A buyer orders units of an item.
    Order {
        /// The buyer.
        buyer: u64,
        /// The item.
        item: u64,
        /// The units.
        units: i64,
    },
    /// An item gets more units.
    Restock {
        /// The item.
        item: u64,
    },
}

impl ClientRequest for Request {
    #[inline]
    fn transaction(&self) -> usize {
        match self {
            Request::Order { .. } => 0,
            Request::Restock { .. } => 1,
        }
    }
}

/// The sums of what all clients have committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sold {
    pub(super) orders: u64,
    pub(super) units: u64,
    pub(super) restocks: u64,
}

/// What all clients choose from.
#[derive(Debug)]
pub(super) struct RequestSource {
    parameters: Parameters,
    ledgers: Ledgers<3>,
}

impl RequestSource {
    pub(super) fn new(parameters: &Parameters) -> RequestSource {
        RequestSource { parameters: *parameters, ledgers: Ledgers::new() }
    }

    pub(super) fn client(&self, seed: u64, thread: usize) -> Client {
        Client {
            random: Random::new(seed, FIRST_STREAM + thread as u64),
            parameters: self.parameters,
            ledger: self.ledgers.open().0,
        }
    }

    pub(super) fn sold(&self) -> Sold {
        let sums = self.ledgers.sums();
        Sold { orders: sums[ORDERS], units: sums[UNITS], restocks: sums[RESTOCKS] }
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    parameters: Parameters,
    ledger: Arc<Ledger<3>>,
}

impl RequestClient for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        let Client { random, parameters, .. } = self;
        let &mut Parameters { items, buyers, hot, hot_percent, .. } = parameters;
        let item = match random.chance(hot_percent) {
            true => random.0.u64(..hot),
            false => random.0.u64(hot..items),
        };
        if random.chance(RESTOCK_PERCENT) {
            return Request::Restock { item };
        }
        Request::Order {
            buyer: random.0.u64(..buyers),
            item,
            units: random.within_i64(1, UNITS_MAX),
        }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        match *request {
            Request::Order { units, .. } if succeeded => {
                self.ledger.add(ORDERS, 1);
                self.ledger.add(UNITS, units as u64);
            }
            Request::Order { .. } => {}
            Request::Restock { .. } => self.ledger.add(RESTOCKS, 1),
        }
    }
}
