//! LIKE: users of a social network like pages, some of which are far more popular than others.
//!
//! N. Narula, C. Cutler, E. Kohler, R. Morris: *Phase Reconciliation for Contended In-Memory Transactions*, OSDI
//! 2014 (Doppel), §7 and §8.5 to §8.7. There are a million users, a million pages, and two transactions. Each is
//! for a user, drawn uniformly, and a page, drawn by Zipf's law:
//!
//! - **like** adds 1 to the page's likes, and updates the user's row;
//! - **read** reads the page's likes and the user's row.
//!
//! Users' rows are rarely contended; the likes of a popular page are. The addition is an
//! [operation](weft::operation) that returns nothing, so a protocol may let the additions of one page commute.
//! Reads of the page do not commute with them, and a protocol may delay them (§8.6). So likes and reads are
//! separate transaction types, with separate latencies.
//!
//! - `client`: the choice of the next request;
//! - `conditions`: the invariants, checked after a run.
//!
//! ## Differences from the paper's workload
//!
//! - §7 inserts a row for each like; §8.5 updates the user's row. This is the form of §8.5: the row has the page
//!   that the user liked last, and the number of likes.
//! - The thread that ran an aborted transaction retries it before any other.

mod client;
mod conditions;

#[cfg(test)]
mod procedure_tests;
#[cfg(test)]
mod tests;

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Rank, Request};

use crate::load::LoadInProgress;
use crate::popularity;
use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;

/// The most pages, and the most users.
pub const RECORDS_MAX: u64 = popularity::RECORDS_MAX;

/// The size of the tables, and the properties of the transactions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The number of users, from 1 to [`RECORDS_MAX`].
    pub users: u64,
    /// The number of pages, from 1 to [`RECORDS_MAX`].
    pub pages: u64,
    /// The skew of the popularity of pages: the k-th is drawn in proportion to 1/k^alpha. 0 is uniform.
    pub alpha: f64,
    /// The share of the transactions that like, in percent; the others read.
    pub write_percent: u32,
}

impl Default for Parameters {
    /// Returns the parameters of the paper's skewed workload.
    fn default() -> Self {
        Parameters { users: 1_000_000, pages: 1_000_000, alpha: 1.4, write_percent: 50 }
    }
}

impl Parameters {
    /// Checks the parameters.
    ///
    /// # Panics
    /// A number is out of its range.
    fn check(&self) {
        let Parameters { users, pages, alpha, write_percent } = *self;
        assert!((1..=RECORDS_MAX).contains(&users), "{users} users");
        assert!((1..=RECORDS_MAX).contains(&pages), "{pages} pages");
        assert!(alpha >= 0.0 && alpha.is_finite(), "alpha is {alpha}");
        assert!(write_percent <= 100, "{write_percent} percent");
    }
}

/// A user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "like_users", storage = "hash")]
pub struct User {
    /// The user's number, from 0.
    #[record(key)]
    pub id: u64,
    /// The page that the user liked last.
    pub last_page: Option<u64>,
    /// The number of likes that the user gave, several of which may be for the same page.
    pub likes_given: u64,
}

impl User {
    fn loaded((): &(), id: u64) -> Option<User> {
        Some(User { id, last_page: None, likes_given: 0 })
    }
}

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "pages", storage = "hash")]
pub struct Page {
    /// The page's number, from 0.
    #[record(key)]
    pub id: u64,
    /// How often it was liked.
    pub likes: i64,
}

impl Page {
    fn loaded((): &(), id: u64) -> Option<Page> {
        Some(Page { id, likes: 0 })
    }
}

/// A loaded LIKE database.
pub struct Like<P: Protocol> {
    database: Database<P>,
    users: Table<User>,
    pages: Table<Page>,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![LikePage::<Dbx>::shape(), ReadPage::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Like<P> {
    const NAME: &'static str = "like";
    const TRANSACTIONS: &'static [&'static str] = &["like", "read"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        parameters.check();
        builder
            .table_with_capacity::<User>(parameters.users as usize)
            .table_with_capacity::<Page>(parameters.pages as usize)
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let Parameters { users, pages, .. } = *parameters;
        let source = RequestSource::new(parameters, options.seed);
        let (of_users, of_pages) = (database.table::<User>()?, database.table::<Page>()?);
        let parameters = *parameters;
        let like = Like { database, users: of_users, pages: of_pages, parameters, source };
        let mut loading = LoadInProgress::new(options, users + pages);
        loading.fill(&like.database, &like.users, (&(), users), User::loaded)?;
        loading.fill(&like.database, &like.pages, (&(), pages), Page::loaded)?;
        loading.finish();
        Ok(like)
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
        client.execute_or(
            |request| self.execute_procedure(request),
            |tx, request| self.run(tx, request),
        )
    }

    fn finish(&self, client: &mut Self::Client) -> Result<(), Failure> {
        client.finish(|tx, request| self.run(tx, request))
    }

    fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
        let account = (&self.users, &self.pages, &self.source);
        conditions::verify(&self.database.open_snapshot()?, account, &self.parameters, progress)
    }
}

/// Records that a user likes a page.
#[procedure(LikePage)]
#[inline]
fn like<P: Protocol>(
    users: &Table<User>,
    pages: &Table<Page>,
    tx: &Transaction<'_, P>,
    user: u64,
    page: u64,
) -> Result<(), Error> {
    tx.add(pages, &page, column_of!(Page.likes), 1)?;
    let updated = tx.update(users, &user, |row| {
        row.last_page = Some(page);
        row.likes_given += 1;
    })?;
    updated.expect("users stay");
    Ok(())
}

/// Reads the likes of a page, and the page that a user liked last with the number of the user's likes.
#[procedure(ReadPage)]
#[inline]
fn read<P: Protocol>(
    users: &Table<User>,
    pages: &Table<Page>,
    tx: &Transaction<'_, P>,
    user: u64,
    page: u64,
) -> Result<(i64, Option<u64>, u64), Error> {
    let page = tx.get(pages, &page)?.expect("pages stay");
    let row = tx.get(users, &user)?.expect("users stay");
    Ok((page.likes, row.last_page, row.likes_given))
}

impl<P: Protocol> Like<P> {
    /// Runs a request in a transaction. Returns whether it succeeds, which it does if it commits.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        match *request {
            Request::Like { user, page, .. } => {
                like(&self.users, &self.pages, tx, user, page)?;
            }
            Request::Read { user, page } => {
                black_box(read(&self.users, &self.pages, tx, user, page)?);
            }
        }
        Ok(true)
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Like { database, users, pages, .. } = self;
        let done = match *request {
            Request::Like { user, page, .. } => {
                database.execute(&mut LikePage::new(users, pages, user, page))
            }
            Request::Read { user, page } => {
                let found = database.execute(&mut ReadPage::new(users, pages, user, page));
                found.map(|found| {
                    black_box(found);
                })
            }
        };
        Some(done.map(|()| true).map_err(failure_of))
    }
}
