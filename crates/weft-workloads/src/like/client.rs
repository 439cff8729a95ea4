//! A client of LIKE: its next like or read, and an account of its likes.

use std::sync::Arc;

use super::Parameters;
use crate::popularity::{self, Course, Ledger, Ledgers, Pick};
use crate::random::Random;
use crate::stashing::{Draws, Requested};

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 1 << 32;

/// The request of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A user likes a page.
    Like {
        /// The user who likes.
        user: u64,
        /// The page.
        page: u64,
        /// The page's rank, if it is popular: a position in the account.
        popular: Option<Rank>,
    },
    /// A page and a user are read.
    Read {
        /// The user.
        user: u64,
        /// The page.
        page: u64,
    },
}

/// The rank of a popular page, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank(u16);

impl Requested for Request {
    #[inline]
    fn transaction(&self) -> usize {
        match self {
            Request::Like { .. } => 0,
            Request::Read { .. } => 1,
        }
    }
}

/// What all clients choose from.
#[derive(Debug)]
pub(super) struct Choice {
    /// The drawn pages.
    drawn: Arc<[Pick]>,
    /// The most popular pages.
    pub(super) popular: Arc<[u64]>,
    users: u64,
    write_percent: u32,
    pub(super) ledgers: Ledgers,
}

impl Choice {
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Choice {
        let Parameters { users, pages, alpha, write_percent } = *parameters;
        let popular = popularity::most_popular(pages);
        let ledgers = Ledgers::new(popular.len());
        let drawn = popularity::draw_zipf(pages, alpha, seed);
        Choice { drawn, popular, users, write_percent, ledgers }
    }

    pub(super) fn client(&self, seed: u64, thread: usize, threads: usize) -> Client {
        Client {
            random: Random::new(seed, FIRST_STREAM + thread as u64),
            course: Course::new(&self.drawn, seed, thread, threads),
            users: self.users,
            write_percent: self.write_percent,
            ledger: self.ledgers.open(),
        }
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    course: Course,
    users: u64,
    write_percent: u32,
    ledger: Arc<Ledger>,
}

impl Draws for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        let pick = self.course.draw();
        let (page, user) = (pick.record(), self.random.0.u64(..self.users));
        if self.random.chance(self.write_percent) {
            Request::Like { user, page, popular: pick.rank().map(Rank) }
        } else {
            Request::Read { user, page }
        }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        if let (Request::Like { popular, .. }, true) = (request, succeeded) {
            self.ledger.note(popular.map(|Rank(rank)| rank));
        }
    }
}
