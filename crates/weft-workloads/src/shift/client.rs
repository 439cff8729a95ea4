//! A client: whether its next transaction goes to the hot spot, where that is, and an account of its transactions.

use std::sync::Arc;

use super::{HOT_ROWS, Parameters};
use crate::ledger::{Ledger, Ledgers};
use crate::random::Random;
use crate::stashing::{ClientRequest, RequestClient};

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 1 << 32;

/// A client reads the clock once in this many transactions.
const TRANSACTIONS_PER_LOOK: u32 = 32;

/// The positions of the counts in a client's ledger, after the changes of each hot row.
const TRANSACTIONS: usize = HOT_ROWS as usize;
const TAKEN: usize = TRANSACTIONS + 1;
const COUNTS: usize = TAKEN + 1;

/// The kinds of hot spots, which take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter that transactions add to.
    Counter,
    /// A row that transactions modify.
    Row,
    /// The oldest row of a table.
    Oldest,
}

/// Returns the kind of the hot spot after it has changed `turn` times, and the row if it is one of
/// [`Spot`](super::Spot).
pub fn hot_spot(turn: u64) -> (Kind, SpotNumber) {
    // The number of rows is no multiple of the number of kinds, so each row gets each kind.
    (KINDS[(turn % KINDS.len() as u64) as usize], SpotNumber((turn % HOT_ROWS) as u16))
}

const KINDS: [Kind; 3] = [Kind::Counter, Kind::Row, Kind::Oldest];

/// The number of a row that is hot at times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpotNumber(u16);

impl SpotNumber {
    /// Returns the row's key.
    #[inline]
    pub fn key(self) -> u64 {
        self.0.into()
    }
}

/// The request of a transaction. Each updates the row `other`, which is not hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing else.
    Plain {
        /// The row that is not hot.
        other: u64,
    },
    /// Adds to the hot counter.
    Add {
        /// The counter.
        hot: SpotNumber,
        /// The row that is not hot.
        other: u64,
    },
    /// Reads and writes the hot row.
    Modify {
        /// The hot row.
        hot: SpotNumber,
        /// The row that is not hot.
        other: u64,
    },
    /// Takes the oldest row of the line.
    Take {
        /// The row that is not hot.
        other: u64,
    },
}

impl ClientRequest for Request {
    #[inline]
    fn transaction(&self) -> usize {
        match self {
            Request::Plain { .. } => 0,
            Request::Add { .. } => 1,
            Request::Modify { .. } => 2,
            Request::Take { .. } => 3,
        }
    }
}

/// What all clients choose from.
#[derive(Debug)]
pub(super) struct RequestSource {
    parameters: Parameters,
    ledgers: Ledgers<COUNTS>,
}

/// The sums of what all clients have committed.
#[derive(Debug)]
pub(super) struct Committed {
    pub(super) transactions: u64,
    pub(super) taken: u64,
    /// The changes of each row that is hot at times.
    pub(super) of_hot: Vec<u64>,
}

impl RequestSource {
    pub(super) fn new(parameters: &Parameters) -> RequestSource {
        RequestSource { parameters: *parameters, ledgers: Ledgers::new() }
    }

    pub(super) fn client(&self, seed: u64, thread: usize) -> Client {
        Client {
            random: Random::new(seed, FIRST_STREAM + thread as u64),
            parameters: self.parameters,
            looks_in: 0,
            turn: 0,
            ledger: self.ledgers.open().0,
        }
    }

    pub(super) fn committed(&self) -> Committed {
        let sums = self.ledgers.sums();
        Committed {
            transactions: sums[TRANSACTIONS],
            taken: sums[TAKEN],
            of_hot: sums[..TRANSACTIONS].into(),
        }
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    parameters: Parameters,
    /// The number of transactions until the client next reads the clock.
    looks_in: u32,
    /// How often the hot spot has changed.
    turn: u64,
    ledger: Arc<Ledger<COUNTS>>,
}

impl Client {
    /// Draws a request, after the hot spot has changed `turn` times.
    pub(super) fn draw_in(&mut self, turn: u64) -> Request {
        let Parameters { records, hot_percent, .. } = self.parameters;
        let other = self.random.0.u64(HOT_ROWS..records);
        if !self.random.chance(hot_percent) {
            return Request::Plain { other };
        }
        let (kind, hot) = hot_spot(turn);
        match kind {
            Kind::Counter => Request::Add { hot, other },
            Kind::Row => Request::Modify { hot, other },
            Kind::Oldest => Request::Take { other },
        }
    }
}

const _: () = assert!(!HOT_ROWS.is_multiple_of(KINDS.len() as u64));

impl RequestClient for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        match self.looks_in.checked_sub(1) {
            Some(fewer) => self.looks_in = fewer,
            None => {
                self.looks_in = TRANSACTIONS_PER_LOOK - 1;
                self.turn = self.parameters.change.count_now();
            }
        }
        self.draw_in(self.turn)
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        if !succeeded {
            return;
        }
        self.ledger.add(TRANSACTIONS, 1);
        match *request {
            Request::Plain { .. } => {}
            Request::Add { hot, .. } | Request::Modify { hot, .. } => {
                self.ledger.add(hot.0.into(), 1);
            }
            Request::Take { .. } => self.ledger.add(TAKEN, 1),
        }
    }
}
