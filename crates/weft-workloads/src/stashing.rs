//! Clients that run other requests while one waits for a joined phase, as Doppel's clients do (§5.1).

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Stash, Transaction};
use weft_protocols::stash_capacity_of;

use crate::workload::{Moment, Outcome, failure_of, now};

/// A client that draws requests, and records their results.
pub trait RequestClient {
    /// The input of a transaction.
    type Request: ClientRequest;

    /// Draws the next request.
    fn draw(&mut self) -> Self::Request;

    /// Records the result of a request that will not run again.
    fn note(&mut self, request: &Self::Request, succeeded: bool);
}

/// A request of a client.
pub trait ClientRequest {
    /// Returns its transaction type: a position in the workload's list.
    fn transaction(&self) -> usize;
}

/// A client, with the requests that it has set aside.
#[derive(Debug)]
pub struct StashingClient<C: RequestClient, P: Protocol> {
    client: C,
    stash: Stash<RequestInProgress<C::Request>, P>,
}

/// A request in progress.
#[derive(Debug)]
struct RequestInProgress<T> {
    request: T,
    /// The time of its first conflict.
    stopped: Option<Moment>,
}

impl<C: RequestClient, P: Protocol> RequestClient for StashingClient<C, P> {
    type Request = C::Request;

    #[inline]
    fn draw(&mut self) -> C::Request {
        self.client.draw()
    }

    #[inline]
    fn note(&mut self, request: &C::Request, succeeded: bool) {
        self.client.note(request, succeeded);
    }
}

impl<C: RequestClient, P: Protocol> StashingClient<C, P> {
    /// Creates a client of a database.
    pub fn new(client: C, database: &Database<P>) -> Self {
        StashingClient { client, stash: database.stash(stash_capacity_of(database)) }
    }

    /// Runs requests until one has ended: first requests that were set aside and can run now, then new ones.
    #[inline]
    pub fn execute(
        &mut self,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Outcome, Failure> {
        self.execute_or(|_| None, run)
    }

    /// As [`StashingClient::execute`], but `execute` may execute a new request's procedure, as long as requests cannot be
    /// set aside.
    #[inline]
    pub fn execute_or(
        &mut self,
        execute: impl Fn(&C::Request) -> Option<Result<bool, Failure>>,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Outcome, Failure> {
        self.read_or_execute_or(|_| None, execute, run)
    }

    /// As [`StashingClient::execute_or`], but `read` may run a new request without a transaction: on a snapshot.
    #[inline]
    pub fn read_or_execute_or(
        &mut self,
        read: impl Fn(&C::Request) -> Option<Result<bool, Failure>>,
        execute: impl Fn(&C::Request) -> Option<Result<bool, Failure>>,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Outcome, Failure> {
        loop {
            let ended = match self.stash.take_due() {
                Some(begun) => self.run(begun, false, &run)?,
                None => {
                    let request = self.client.draw();
                    let ended = match read(&request) {
                        None if !self.stash.sets_aside() => execute(&request),
                        ended => ended,
                    };
                    if let Some(ended) = ended {
                        let succeeded = ended?;
                        self.client.note(&request, succeeded);
                        return Ok(Outcome::new(request.transaction(), !succeeded));
                    }
                    self.run(RequestInProgress { request, stopped: None }, true, &run)?
                }
            };
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
        }
    }

    /// Runs all requests that were set aside.
    pub fn finish(
        &mut self,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<(), Failure> {
        loop {
            match self.stash.take_due() {
                Some(begun) => drop(self.run(begun, false, &run)?),
                None if self.stash.is_empty() => return Ok(()),
                None => self.stash.wait()?,
            }
        }
    }

    /// Runs a request. Returns `None` if it was set aside.
    #[inline]
    fn run(
        &mut self,
        begun: RequestInProgress<C::Request>,
        is_new: bool,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Option<Outcome>, Failure> {
        let ended = self.stash.transact(begun, |tx, begun| {
            run(tx, &begun.request).inspect_err(|_conflict| {
                begun.stopped.get_or_insert_with(now);
            })
        });
        let Some((RequestInProgress { request, stopped }, result)) = ended else { return Ok(None) };
        let succeeded = result.map_err(failure_of)?;
        self.client.note(&request, succeeded);
        let begun = if is_new { None } else { stopped };
        Ok(Some(Outcome { begun, ..Outcome::new(request.transaction(), !succeeded) }))
    }
}
