//! Clients that go on with other requests while one has to wait for a joined phase, as Doppel's do (§5.1).

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Stash, Transaction};

use crate::workload::{Moment, Outcome, failure_of, now};

/// The most requests that a client sets aside. Doppel does not say how many its workers stash.
const STASH_MAX: usize = 1024;

/// Who draws requests, and keeps account of what has become of them.
pub trait Draws {
    /// All the input of a transaction.
    type Request: Requested;

    /// Draws the next request.
    fn draw(&mut self) -> Self::Request;

    /// Takes note of what has become of a request, if it is not to be run again.
    fn note(&mut self, request: &Self::Request, succeeded: bool);
}

/// What can be asked for.
pub trait Requested {
    /// Its transaction type: a position in the workload's list.
    fn transaction(&self) -> usize;
}

/// A client, with the requests that it has set aside.
#[derive(Debug)]
pub struct Stashing<C: Draws, P: Protocol> {
    client: C,
    stash: Stash<Begun<C::Request>, P>,
}

/// A request that is under way.
#[derive(Debug)]
struct Begun<T> {
    request: T,
    /// When it was stopped by a conflict first.
    stopped: Option<Moment>,
}

impl<C: Draws, P: Protocol> Draws for Stashing<C, P> {
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

impl<C: Draws, P: Protocol> Stashing<C, P> {
    /// A client of a database.
    pub fn new(client: C, database: &Database<P>) -> Self {
        Stashing { client, stash: database.stash(STASH_MAX) }
    }

    /// Runs requests until one has ended: first those that were set aside, if they can be run now, and then
    /// new ones.
    #[inline]
    pub fn execute(
        &mut self,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Outcome, Failure> {
        self.execute_or(|_| None, run)
    }

    /// As [`Stashing::execute`], but of new requests those are not run in transactions that `otherwise` runs:
    /// on a snapshot.
    #[inline]
    pub fn execute_or(
        &mut self,
        otherwise: impl Fn(&C::Request) -> Option<Result<bool, Failure>>,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Outcome, Failure> {
        loop {
            let ended = match self.stash.take_due() {
                Some(begun) => self.run(begun, false, &run)?,
                None => {
                    let request = self.client.draw();
                    if let Some(ended) = otherwise(&request) {
                        let succeeded = ended?;
                        self.client.note(&request, succeeded);
                        return Ok(Outcome::new(request.transaction(), !succeeded));
                    }
                    self.run(Begun { request, stopped: None }, true, &run)?
                }
            };
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
        }
    }

    /// Runs what was set aside.
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

    /// Runs a request, if it can be run now.
    #[inline]
    fn run(
        &mut self,
        begun: Begun<C::Request>,
        is_new: bool,
        run: impl Fn(&Transaction<'_, P>, &C::Request) -> Result<bool, Error>,
    ) -> Result<Option<Outcome>, Failure> {
        let ended = self.stash.transact(begun, |tx, begun| {
            run(tx, &begun.request).inspect_err(|_conflict| {
                begun.stopped.get_or_insert_with(now);
            })
        });
        let Some((Begun { request, stopped }, result)) = ended else { return Ok(None) };
        let succeeded = result.map_err(failure_of)?;
        self.client.note(&request, succeeded);
        let begun = if is_new { None } else { stopped };
        Ok(Some(Outcome { begun, ..Outcome::new(request.transaction(), !succeeded) }))
    }
}
