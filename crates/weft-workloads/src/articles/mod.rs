//! Articles: a site where articles are posted, read and commented on.
//!
//! The benchmark *Articles* of H-Store (`benchmarks/edu/brown/benchmark/articles`), on which DBX-TC is
//! measured (H. Qian and others, *Exploiting Hardware Transactional Memory for Efficient In-Memory
//! Transaction Processing*, §6.7 and Figure 15): three tables and four transactions.
//!
//! | transaction | weight | what it does |
//! | --- | ---: | --- |
//! | GetArticle | 35 | reads an article |
//! | GetComments | 35 | reads the first five comments on an article |
//! | AddComment | 20 | inserts a comment, and counts it in its article |
//! | UpdateUserInfo | 10 | changes a user's last name |
//!
//! - [`schema`]: the three tables;
//! - `load`: the initial population, 100,000 articles and 200 users [by default](Parameters::default), as in
//!   H-Store;
//! - `client`: draws requests, each with all of its input;
//! - `transactions`: the four, as procedures;
//! - [`mix`]: how often each is drawn;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Comments by a commutative operation
//!
//! In H-Store AddComment reads how many comments there are, numbers the new one by that, and writes one
//! more. So two comments on the same article come one after the other. But the number that a comment has is
//! told to nobody; clients may as well [number theirs](schema::new_id), and then to count a comment is to
//! add one, which commutes. [`Parameters::operations`] chooses between the two.
//!
//! ## Where this is not H-Store's benchmark
//!
//! - Articles and users are drawn by Zipf's law, scattered over all of them, with
//!   [`alpha`](Parameters::alpha) 1: as in H-Store's first client, whose exponent is 1.0001. Its later one
//!   draws by a power law with the exponent -0.95, but continuously from 0, so that when it has rounded
//!   more than half of all requests are about article 0. The paper says that contention is low.
//! - A comment is not refused when there are 1,000 on its article: popular ones would have so many within
//!   a second, and be commented on no more.
//! - A user's mail address begins with the user's number, since no two users may have the same. What is said
//!   in comments, and later last names, are random letters that verification can draw again.
//! - `C_ID` is unique because of how it is chosen; there is no index to see to that. `COMMENTS` is clustered
//!   by article, which makes an index of that needless.
//! - The user of a comment is drawn among those that there are. H-Store's loader draws one user too many.
//! - Transactions per second are of one process, whose clients call the database directly.

mod client;
mod conditions;
mod load;
pub mod mix;
pub mod schema;
mod transactions;

#[cfg(test)]
mod tests;

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Table, Transaction};
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Rank};
pub use mix::{Mix, TransactionType};
pub use transactions::Post;

use crate::popularity;
use crate::snapshots::Snapshots;
use crate::stashing::Stashing;
use crate::view::View;
use crate::workload::{Condition, LoadOptions, Outcome, Progress, Workload, failure_of};
use client::Choice;
use schema::{Article, Comment, Text, User};

/// The most articles, and the most users, that are loaded.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// Size of the tables, and what transactions do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Articles: from 1 to [`RECORDS_MAX`].
    pub articles: u64,
    /// Users: from 1 to [`RECORDS_MAX`].
    pub users: u64,
    /// How often each transaction is drawn.
    pub mix: Mix,
    /// How uneven the popularity of articles and of users is: the k-th is drawn in proportion to
    /// 1/k^alpha. 0: all alike.
    pub alpha: f64,
    /// Whether comments are counted by a commutative operation, or else by reading and writing.
    pub operations: bool,
    /// On which snapshots the transactions that only read run.
    pub snapshots: Snapshots,
}

impl Default for Parameters {
    /// H-Store's sizes and mix, and no snapshots.
    fn default() -> Self {
        Parameters {
            articles: 100_000,
            users: 200,
            mix: Mix::STANDARD,
            alpha: 1.0,
            operations: true,
            snapshots: Snapshots::Off,
        }
    }
}

/// A transaction with all of its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// `GetArticle`.
    GetArticle {
        /// Which one.
        article: u64,
    },
    /// `GetComments`.
    GetComments {
        /// On which article.
        article: u64,
    },
    /// `AddComment`.
    AddComment {
        /// The comment.
        post: Post,
        /// The article's rank, if it is a popular one: a position in the account.
        popular: Option<Rank>,
    },
    /// `UpdateUserInfo`.
    UpdateUser {
        /// Of whom.
        user: u64,
        /// The new name.
        lastname: Text,
        /// Which of its client's it is.
        number: u32,
        /// The user's rank, if it is a popular one: a position in the account.
        popular: Option<Rank>,
    },
}

impl Request {
    /// Its type.
    #[inline]
    pub fn transaction_type(&self) -> TransactionType {
        match self {
            Request::GetArticle { .. } => TransactionType::GetArticle,
            Request::GetComments { .. } => TransactionType::GetComments,
            Request::AddComment { .. } => TransactionType::AddComment,
            Request::UpdateUser { .. } => TransactionType::UpdateUser,
        }
    }
}

/// Handles of the three tables.
struct Tables {
    articles: Table<Article>,
    users: Table<User>,
    comments: Table<Comment>,
}

/// A loaded Articles database.
pub struct Articles<P: Protocol> {
    database: Database<P>,
    tables: Tables,
    parameters: Parameters,
    /// Of the load: verification draws the rows again.
    seed: u64,
    choice: Choice,
}

impl<P: Protocol> Articles<P> {
    /// Does what a request asks for; whether it has succeeded, as it does once it has committed.
    ///
    /// # Errors
    /// The engine's, among them a conflict, after which it is to be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        let tables = &self.tables;
        match request {
            Request::AddComment { post, .. } if self.parameters.operations => {
                transactions::add_comment(tables, tx, post)?;
            }
            Request::AddComment { post, .. } => {
                transactions::add_comment_by_reading(tables, tx, post)?;
            }
            Request::UpdateUser { user, lastname, .. } => {
                transactions::update_user(tables, tx, *user, lastname)?;
            }
            Request::GetArticle { .. } | Request::GetComments { .. } => {
                self.read(tx, request)?;
            }
        }
        Ok(true)
    }

    /// Executes a request's procedure, unless it may be set aside, or returns rows.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        if P::SPLITS {
            return None;
        }
        let Articles { database, tables, .. } = self;
        let done = match request {
            Request::AddComment { post, .. } if self.parameters.operations => {
                database.execute(&mut transactions::AddComment::new(tables, post))
            }
            Request::AddComment { post, .. } => {
                database.execute(&mut transactions::AddCommentByReading::new(tables, post))
            }
            Request::UpdateUser { user, lastname, .. } => {
                database.execute(&mut transactions::UpdateUser::new(tables, *user, lastname))
            }
            Request::GetArticle { .. } | Request::GetComments { .. } => return None,
        };
        Some(done.map(|()| true).map_err(failure_of))
    }

    /// Reads what a request asks for, which only reads. What a browser would get is found, and dropped.
    #[inline]
    fn read(&self, view: &impl View<P>, request: &Request) -> Result<bool, Error> {
        match *request {
            Request::GetArticle { article } => {
                black_box(transactions::get_article(&self.tables, view, article)?);
            }
            Request::GetComments { article } => {
                black_box(transactions::get_comments(&self.tables, view, article)?);
            }
            Request::AddComment { .. } | Request::UpdateUser { .. } => {
                unreachable!("it does not only read: {request:?}")
            }
        }
        Ok(true)
    }

    /// Runs a request on a snapshot, if that was asked for and it only reads.
    #[inline]
    fn read_on_snapshot(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let reads = matches!(request, Request::GetArticle { .. } | Request::GetComments { .. });
        let snapshots = if reads { self.parameters.snapshots } else { Snapshots::Off };
        let read = snapshots.read(&self.database, |snapshot| self.read(snapshot, request))?;
        Some(read.map_err(failure_of))
    }
}

/// The shapes of its [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![
        transactions::GetArticle::<Dbx>::shape(),
        transactions::GetComments::<Dbx>::shape(),
        transactions::AddComment::<Dbx>::shape(),
        transactions::AddCommentByReading::<Dbx>::shape(),
        transactions::UpdateUser::<Dbx>::shape(),
    ]
}

/// Those that are run with commutative operations, or without.
fn procedures_by(operations: bool) -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    let (by_adding, by_reading) = (
        transactions::AddComment::<Dbx>::shape(),
        transactions::AddCommentByReading::<Dbx>::shape(),
    );
    let left_out = if operations { by_reading } else { by_adding };
    procedures().into_iter().filter(|shape| shape.name != left_out.name).collect()
}

impl<P: Protocol> Workload<P> for Articles<P> {
    const NAME: &'static str = "articles";
    const TRANSACTIONS: &'static [&'static str] = &TransactionType::NAMES;
    type Parameters = Parameters;
    type Client = Stashing<Client, P>;

    /// # Panics
    /// If a number in `parameters` is out of its range.
    fn load(parameters: &Parameters, options: &LoadOptions<'_>) -> Result<Self, Failure> {
        load::load(parameters, options)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client {
        let client = self.choice.client(seed, thread, threads);
        Stashing::new(client, &self.database)
    }

    #[inline]
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure> {
        client.execute_or(
            |request| self.read_on_snapshot(request).or_else(|| self.execute_procedure(request)),
            |tx, request| self.run(tx, request),
        )
    }

    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        client.finish(|tx, request| self.run(tx, request))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let at_rest = conditions::AtRest {
            snapshot: &self.database.open_snapshot()?,
            tables: &self.tables,
            parameters: &self.parameters,
            seed: self.seed,
            choice: &self.choice,
        };
        conditions::verify(&at_rest, progress)
    }
}
