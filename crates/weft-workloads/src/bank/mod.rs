//! A bank with a hot account and an audit.
//!
//! Two transactions on one table of accounts:
//!
//! - **transfer** moves an amount from one account to another. It reads the balance of the first, which must not
//!   become negative, and takes the amount from it. It adds the amount to the other account by an
//!   [operation](weft::operation), which commutes. A share of the transfers has the *hot* account on one side, in
//!   half of the cases as the one that pays.
//! - **audit** reads all accounts, and adds up their balances. The sum is always the same.
//!
//! So one row is written by additions as well as by reading and writing, and a long transaction reads all rows
//! between short ones that write two each. A transfer that the first account cannot pay does not succeed. It is
//! counted as rolled back.
//!
//! - `client`: the choice of the next transfer or audit;
//! - `conditions`: the invariants, checked after a run.

mod client;
mod conditions;

#[cfg(test)]
mod tests;

use weft::protocol::Protocol;
use weft::{Builder, Database, Error, Failure, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};

pub use client::{Client, Request};

use crate::load::LoadInProgress;
use crate::popularity;
use crate::stashing::StashingClient;
use crate::workload::{
    Condition, LoadOptions, Outcome, Procedures, Progress, Workload, failure_of,
};
use client::RequestSource;

/// The fewest accounts: the hot one, and two others.
pub const ACCOUNTS_MIN: u64 = 3;

/// The most accounts.
pub const ACCOUNTS_MAX: u64 = popularity::RECORDS_MAX;

/// The balance of each account after the load.
const BALANCE_LOADED: i64 = 10_000;

/// The key of the hot account.
const HOT: u64 = 0;

/// The number of accounts, and the properties of the transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The number of accounts, from [`ACCOUNTS_MIN`] to [`ACCOUNTS_MAX`].
    pub accounts: u64,
    /// The share of the transfers with the hot account on one side, in percent.
    pub hot_percent: u32,
    /// The share of the transactions that audit, in percent.
    pub audit_percent: u32,
}

impl Default for Parameters {
    /// Returns a thousand accounts. Half of the transfers pay to or from the hot one, and one transaction in a
    /// hundred audits.
    fn default() -> Self {
        Parameters { accounts: 1_000, hot_percent: 50, audit_percent: 1 }
    }
}

impl Parameters {
    /// Returns the sum of all balances, which no transaction changes.
    fn total(&self) -> i64 {
        BALANCE_LOADED * self.accounts as i64
    }
}

/// An account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Record)]
#[record(table = "bank_accounts", storage = "ordered")]
pub struct Account {
    /// The account's number, from 0.
    #[record(key)]
    pub id: u64,
    /// The balance, which is never negative.
    pub balance: i64,
}

/// A loaded bank.
pub struct Bank<P: Protocol> {
    database: Database<P>,
    accounts: Table<Account>,
    parameters: Parameters,
    source: RequestSource,
}

/// Returns the shapes of the [procedures](weft_procedures).
pub fn procedures() -> Vec<&'static Shape> {
    use weft::protocol::Dbx;
    vec![Transfer::<Dbx>::shape(), Audit::<Dbx>::shape()]
}

impl<P: Protocol> Workload<P> for Bank<P> {
    const NAME: &'static str = "bank";
    const TRANSACTIONS: &'static [&'static str] = &["transfer", "audit"];
    type Parameters = Parameters;
    type Client = StashingClient<Client, P>;

    fn procedures(_parameters: &Parameters) -> Procedures {
        Procedures::of(procedures())
    }

    fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
        let &Parameters { accounts, hot_percent, audit_percent } = parameters;
        assert!((ACCOUNTS_MIN..=ACCOUNTS_MAX).contains(&accounts), "{accounts} accounts");
        assert!(hot_percent <= 100 && audit_percent <= 100, "{parameters:?}");
        builder.table::<Account>()
    }

    fn fill(
        database: Database<P>,
        parameters: &Parameters,
        options: &LoadOptions<'_>,
    ) -> Result<Self, Failure> {
        let accounts = database.table::<Account>()?;
        let source = RequestSource::new(parameters);
        let bank = Bank { database, accounts, parameters: *parameters, source };
        let mut loading = LoadInProgress::new(options, parameters.accounts);
        let loaded: fn(&(), u64) -> Option<Account> =
            |(), id| Some(Account { id, balance: BALANCE_LOADED });
        loading.fill(&bank.database, &bank.accounts, (&(), parameters.accounts), loaded)?;
        loading.finish();
        Ok(bank)
    }

    fn database(&self) -> &Database<P> {
        &self.database
    }

    fn client(&self, seed: u64, thread: usize, _threads: usize) -> Self::Client {
        StashingClient::new(self.source.client(seed, thread), &self.database)
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
        let snapshot = self.database.open_snapshot()?;
        conditions::verify(&snapshot, &self.accounts, &self.parameters, &self.source, progress)
    }
}

/// Moves an amount from one account to another. Returns whether the first account could pay it.
#[procedure(Transfer)]
#[inline]
fn transfer<P: Protocol>(
    accounts: &Table<Account>,
    tx: &Transaction<'_, P>,
    from: u64,
    to: u64,
    amount: i64,
) -> Result<bool, Error> {
    let balance = tx.get(accounts, &from)?.expect("accounts stay").balance;
    if balance < amount {
        return Ok(false);
    }
    tx.update(accounts, &from, |account| account.balance -= amount)?.expect("accounts stay");
    tx.add(accounts, &to, column_of!(Account.balance), amount)?;
    Ok(true)
}

/// Returns the sum of all balances.
#[procedure(Audit)]
#[inline]
fn audit<P: Protocol>(accounts: &Table<Account>, tx: &Transaction<'_, P>) -> Result<i64, Error> {
    let mut sum = 0;
    for account in tx.range(accounts, ..) {
        sum += account?.balance;
    }
    Ok(sum)
}

impl<P: Protocol> Bank<P> {
    /// Runs a request in a transaction. Returns whether it succeeds if it commits: the first account could pay, or
    /// the audit's sum is right.
    ///
    /// # Errors
    /// The engine's error. After a conflict, the request must be run again.
    #[inline]
    pub fn run(&self, tx: &Transaction<'_, P>, request: &Request) -> Result<bool, Error> {
        match *request {
            Request::Transfer { from, to, amount } => {
                transfer(&self.accounts, tx, from, to, amount)
            }
            Request::Audit => Ok(audit(&self.accounts, tx)? == self.parameters.total()),
        }
    }

    /// Executes a request's procedure.
    #[inline]
    fn execute_procedure(&self, request: &Request) -> Option<Result<bool, Failure>> {
        let Bank { database, accounts, .. } = self;
        let done = match *request {
            Request::Transfer { from, to, amount } => {
                database.execute(&mut Transfer::new(accounts, from, to, amount))
            }
            Request::Audit => {
                let sum = database.execute(&mut Audit::new(accounts));
                sum.map(|sum| sum == self.parameters.total())
            }
        };
        Some(done.map_err(failure_of))
    }
}
