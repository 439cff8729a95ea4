//! A client of the bank: its next transfer or audit, and an account of both.

use std::sync::Arc;

use super::{HOT, Parameters};
use crate::ledger::{Ledger, Ledgers};
use crate::random::Random;
use crate::stashing::{ClientRequest, RequestClient};

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 1 << 32;

/// The largest amount of a transfer.
const AMOUNT_MAX: i64 = 100;

/// The positions of the counts in a client's ledger.
const AUDITS: usize = 0;
const WRONG_AUDITS: usize = 1;

/// The request of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An amount is moved between two accounts.
    Transfer {
        /// The account that pays.
        from: u64,
        /// The account that is paid, which is another one.
        to: u64,
        /// The amount.
        amount: i64,
    },
    /// All balances are added up.
    Audit,
}

impl ClientRequest for Request {
    #[inline]
    fn transaction(&self) -> usize {
        match self {
            Request::Transfer { .. } => 0,
            Request::Audit => 1,
        }
    }
}

/// What all clients choose from.
#[derive(Debug)]
pub(super) struct RequestSource {
    parameters: Parameters,
    ledgers: Ledgers<2>,
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

    /// Returns the number of committed audits, and how many of them found a wrong sum.
    pub(super) fn audits(&self) -> (u64, u64) {
        let sums = self.ledgers.sums();
        (sums[AUDITS], sums[WRONG_AUDITS])
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    parameters: Parameters,
    ledger: Arc<Ledger<2>>,
}

impl RequestClient for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        let Client { random, parameters, .. } = self;
        let &mut Parameters { accounts, hot_percent, audit_percent } = parameters;
        if random.chance(audit_percent) {
            return Request::Audit;
        }
        let amount = random.within_i64(1, AMOUNT_MAX);
        // The hot account has the key 0, and the others follow.
        let others = accounts - 1;
        let one = random.0.u64(..others);
        let other = (one + 1 + random.0.u64(..others - 1)) % others;
        let (from, to) = match random.chance(hot_percent) {
            true if random.0.bool() => (HOT, 1 + other),
            true => (1 + one, HOT),
            false => (1 + one, 1 + other),
        };
        Request::Transfer { from, to, amount }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        if *request == Request::Audit {
            self.ledger.add(AUDITS, 1);
            self.ledger.add(WRONG_AUDITS, u64::from(!succeeded));
        }
    }
}
