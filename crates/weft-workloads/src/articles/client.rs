//! A client of Articles: its draws, and an account of what it has written.

use std::sync::Arc;

use weft::htm::word::{Mutex, Ordering, Word};

use super::load::{CLIENT_STREAMS, name, saying};
use super::mix::{Mix, TransactionType};
use super::{Parameters, Post, Request};
use crate::popularity::{self, Course, Pick, RANKS_COUNTED};
use crate::random::Random;
use crate::stashing::{Draws, Requested};

/// Changes the seed for drawing users, so that they are independent of the articles.
const USERS_SEED: u64 = 0x7573_6572;

/// The names that a client has given. Only the client writes this; it is read at the end.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Names {
    /// The number of names drawn.
    drawn: Word,
    /// For each popular user, the number of the last name that the client gave by a committed transaction, plus 1;
    /// 0 without such a name.
    last: [Word; RANKS_COUNTED],
}

/// The names that all clients of a database have given.
#[derive(Debug, Default)]
pub(super) struct AllNames(Mutex<Vec<Arc<Names>>>);

impl AllNames {
    /// Returns the number of one more client, and its account.
    fn open(&self) -> (u32, Arc<Names>) {
        let mut all = self.0.lock().expect("no client panics with the lock");
        let names = Arc::<Names>::default();
        all.push(Arc::clone(&names));
        (all.len() as u32 - 1, names)
    }

    /// Returns how many names each client has drawn, in the order of the clients' numbers.
    pub(super) fn drawn(&self) -> Vec<u64> {
        let all = self.0.lock().expect("no client panics with the lock");
        // Relaxed: read after the clients' threads have been joined.
        all.iter().map(|names| names.drawn.load(Ordering::Relaxed)).collect()
    }

    /// Returns the number of the last name that each client gave to a popular user.
    pub(super) fn last(&self, rank: usize) -> Vec<Option<u64>> {
        let all = self.0.lock().expect("no client panics with the lock");
        // Relaxed: as above.
        all.iter().map(|names| names.last[rank].load(Ordering::Relaxed).checked_sub(1)).collect()
    }
}

/// What all clients choose from, and their accounts.
#[derive(Debug)]
pub(super) struct Choice {
    drawn_articles: Arc<[Pick]>,
    drawn_users: Arc<[Pick]>,
    /// The most popular articles and users.
    pub(super) popular_articles: Arc<[u64]>,
    pub(super) popular_users: Arc<[u64]>,
    mix: Mix,
    /// The seed of the load, from which comments and names are drawn.
    seed: u64,
    /// The counts of added comments.
    pub(super) comments: popularity::Ledgers,
    pub(super) names: AllNames,
}

impl Choice {
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Choice {
        let &Parameters { articles, users, alpha, mix, .. } = parameters;
        let popular_articles = popularity::most_popular(articles);
        let comments = popularity::Ledgers::new(popular_articles.len());
        Choice {
            drawn_articles: popularity::draw_zipf(articles, alpha, seed),
            drawn_users: popularity::draw_zipf(users, alpha, seed ^ USERS_SEED),
            popular_articles,
            popular_users: popularity::most_popular(users),
            mix,
            seed,
            comments,
            names: AllNames::default(),
        }
    }

    /// Creates the client of the `thread`-th thread.
    pub(super) fn client(&self, seed: u64, thread: usize, threads: usize) -> Client {
        let (number, names) = self.names.open();
        Client {
            random: Random::new(seed, CLIENT_STREAMS + thread as u64),
            articles: Course::new(&self.drawn_articles, seed, thread, threads),
            users: Course::new(&self.drawn_users, seed ^ USERS_SEED, thread, threads),
            mix: self.mix,
            loaded_seed: self.seed,
            number,
            posts: 0,
            comments: self.comments.open(),
            names,
        }
    }
}

/// The state that a thread carries from one transaction to the next.
#[derive(Debug)]
pub struct Client {
    random: Random,
    articles: Course,
    users: Course,
    mix: Mix,
    loaded_seed: u64,
    number: u32,
    /// The number of comments so far.
    posts: u32,
    comments: Arc<popularity::Ledger>,
    names: Arc<Names>,
}

impl Draws for Client {
    type Request = Request;

    #[inline]
    fn draw(&mut self) -> Request {
        match self.mix.draw(&mut self.random) {
            TransactionType::GetArticle => {
                Request::GetArticle { article: self.articles.draw().record() }
            }
            TransactionType::GetComments => {
                Request::GetComments { article: self.articles.draw().record() }
            }
            TransactionType::AddComment => {
                let (article, user) = (self.articles.draw(), self.users.draw().record());
                let popular = article.rank();
                let article = article.record();
                let text = saying(self.loaded_seed, article, user);
                let (client, number) = (self.number, self.posts);
                self.posts += 1;
                let post = Post { article, user, text, client, number };
                Request::AddComment { post, popular: popular.map(Rank) }
            }
            TransactionType::UpdateUser => {
                let user = self.users.draw();
                // Relaxed: it has one writer, and other threads read it only after joining that writer's thread.
                let number = self.names.drawn.load(Ordering::Relaxed);
                self.names.drawn.store(number + 1, Ordering::Relaxed);
                let number = number as u32;
                Request::UpdateUser {
                    user: user.record(),
                    lastname: name(self.loaded_seed, self.number, number),
                    number,
                    popular: user.rank().map(Rank),
                }
            }
        }
    }

    #[inline]
    fn note(&mut self, request: &Request, succeeded: bool) {
        match request {
            Request::AddComment { popular, .. } if succeeded => {
                self.comments.note(popular.map(|Rank(rank)| rank));
            }
            Request::UpdateUser { popular: Some(Rank(rank)), number, .. } if succeeded => {
                // Relaxed: as above.
                let last = &self.names.last[usize::from(*rank)];
                last.store(u64::from(*number) + 1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// The rank of a popular article or user, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank(u16);

impl Requested for Request {
    #[inline]
    fn transaction(&self) -> usize {
        self.transaction_type() as usize
    }
}
