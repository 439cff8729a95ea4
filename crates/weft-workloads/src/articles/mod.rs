//! Articles: a site where articles are posted, read and commented on.
//!
//! The benchmark *Articles* of H-Store (`benchmarks/edu/brown/benchmark/articles`), with which DBX-TC is evaluated
//! (H. Qian and others, *Exploiting Hardware Transactional Memory for Efficient In-Memory Transaction Processing*,
//! §6.7 and Figure 15). It has three tables and four transactions.
//!
//! | transaction | weight | action |
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
//! - `transactions`: the four transactions, as procedures;
//! - [`mix`]: the weights of the transactions;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Comments by a commutative operation
//!
//! In H-Store AddComment reads the number of comments, numbers the new comment by it, and writes the number plus
//! one. So two comments on the same article must run one after the other. But the number is not shown to any user.
//! Clients can [number their own comments](schema::new_id). Counting a comment is then only an addition, which
//! commutes. [`Parameters::operations`] chooses between the two.
//!
//! ## Differences from H-Store's benchmark
//!
//! - Articles and users are drawn by Zipf's law, scattered over all of them, with [`alpha`](Parameters::alpha) 1,
//!   as in H-Store's first client, whose exponent is 1.0001. Its later client draws by a power law with the
//!   exponent -0.95, but continuously from 0, so that after rounding more than half of all requests are for article
//!   0. The paper says that contention is low.
//! - A comment is not refused when there are 1,000 on its article. Popular articles would reach this number within
//!   a second, and then get no more comments.
//! - A user's mail address begins with the user's number, because addresses must be unique. The text of comments,
//!   and later last names, are random letters that verification can draw again.
//! - `C_ID` is unique because of how it is chosen; no index enforces it. `COMMENTS` is clustered by article, so it
//!   needs no index by article.
//! - The user of a comment is drawn from the existing users. H-Store's loader draws from one user too many.
//! - Transactions per second are those of one process, whose clients call the database directly.

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
use weft::{Builder, Database, Error, Failure, Table, Transaction};
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Rank};
pub use mix::{Mix, TransactionType};
pub use transactions::Post;

use crate::popularity;
use crate::snapshots::Snapshots;
use crate::stashing::StashingClient;
use crate::view::View;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;
use schema::{Article, Comment, Text, User};

/// The most articles, and the most users, that a database may have.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// The size of the tables, and the properties of the transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of articles, from 1 to [`RECORDS_MAX`].
    pub articles: u64,
    /// The number of users, from 1 to [`RECORDS_MAX`].
    pub users: u64,
    /// The weights of the transactions.
    pub mix: Mix,
    /// The skew of the popularity of articles and of users: the k-th is drawn in proportion to 1/k^alpha. 0 is
    /// uniform.
    pub alpha: f64,
    /// Whether a commutative operation counts comments, instead of reading and writing.
    pub operations: bool,
    /// The snapshots on which the read-only transactions run.
    pub snapshots: Snapshots,
}

impl Default for Parameters {
    /// Returns H-Store's sizes and mix, without snapshots.
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

/// A transaction with its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// `GetArticle`.
    GetArticle {
        /// The article.
        article: u64,
    },
    /// `GetComments`.
    GetComments {
        /// The article.
        article: u64,
    },
    /// `AddComment`.
    AddComment {
        /// The comment.
        post: Post,
        /// The article's rank, if it is popular: a position in the account.
        popular: Option<Rank>,
    },
    /// `UpdateUserInfo`.
    UpdateUser {
        /// The user.
        user: u64,
        /// The new name.
        lastname: Text,
        /// The number of the name among its client's names.
        number: u32,
        /// The user's rank, if it is popular: a position in the account.
        popular: Option<Rank>,
    },
}

impl Request {
    /// Returns its type.
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

/// The handles of the three tables.
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
    /// The seed of the load, with which verification draws the rows again.
    seed: u64,
    source: RequestSource,
}

impl<P: Protocol> Articles<P> {
    /// Runs a request in a transaction. Returns whether it succeeds, which it does if it commits.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
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

    /// Executes a request's procedure. Returns `None` if the request returns rows.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
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

    /// Reads what a read-only request asks for. The result, which a browser would get, is dropped.
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

    /// Runs a read-only request on a snapshot. Returns `None` if the request writes, or if snapshots are off.
    #[inline]
    fn read_on_snapshot(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let reads = matches!(request, Request::GetArticle { .. } | Request::GetComments { .. });
        let snapshots = if reads { self.parameters.snapshots } else { Snapshots::Off };
        let read = snapshots.read(&self.database, |snapshot| self.read(snapshot, request))?;
        Some(read.map_err(failure_of))
    }
}

/// Returns the shapes of the [procedures](weft_procedures).
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

/// Returns the shapes of the procedures that run with commutative operations, or without.
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
    type Client = StashingClient<Client, P>;

    fn procedures(parameters: &Parameters) -> Procedures {
        Procedures::of(procedures_by(parameters.operations))
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        load::declare(parameters, builder)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        load::fill(database, parameters, options)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, threads: usize) -> Self::Client {
        let client = self.source.client(seed, thread, threads);
        StashingClient::new(client, &self.database)
    }

    #[inline]
    fn execute(&self, client: &mut Self::Client) -> Result<Outcome, Failure> {
        client.read_or_execute_or(
            |request| self.read_on_snapshot(request),
            |request| self.execute_procedure(request),
            |tx, request| self.run(tx, request),
        )
    }

    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        client.finish(|tx, request| self.run(tx, request))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let at_rest = conditions::DatabaseAtRest {
            snapshot: &self.database.open_snapshot()?,
            tables: &self.tables,
            parameters: &self.parameters,
            seed: self.seed,
            source: &self.source,
        };
        conditions::verify(&at_rest, progress)
    }
}
