//! The paper's coordinator (§5.4): a thread of its own that changes the phases.
//!
//! While an application runs one, workers do not change the phase. They notice a change between two transactions, and
//! wait; a worker that is in no transaction has acknowledged it. Without a coordinator, workers change the phases.

use std::any::Any;

use weft::protocol::Protocol;
use weft::{Database, Failure, TransactionOptions};
use weft_htm::word::{Ordering, Word};

use super::joined::JoinedProtocol;
use super::options::PhaseOptions;
use super::transition::change_phase;
use super::{Doppel, DoppelLocking, PhaseReconciliation};
use crate::INSIDE;
use crate::coordinated::{CoordinatedDatabase, wait};

/// How often the coordinator looks whether a phase is to end, as a part of the length of a phase.
const LOOKS_PER_PHASE: u64 = 64;

/// Counts the coordinator as long as it runs.
struct Registration<'a>(&'a Word);

impl<'a> Registration<'a> {
    fn begin(coordinators: &'a Word) -> Self {
        // Relaxed: a worker that does not see it yet changes the phase under the lock.
        coordinators.fetch_add(1, Ordering::Relaxed);
        Registration(coordinators)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(u64::MAX, Ordering::Relaxed);
    }
}

impl<J: JoinedProtocol> CoordinatedDatabase for Database<PhaseReconciliation<J>> {
    fn coordinate(&self, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        let claim = self.claim_worker(&TransactionOptions::new(), INSIDE)?;
        let worker = claim.worker();
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let engine = self.open_engine(INSIDE);
        let shared = &*engine.protocol;
        let _registered = Registration::begin(&shared.coordinators);
        let pause = shared.options.length.as_nanos() as u64 / LOOKS_PER_PHASE;
        while goes_on() {
            engine.shared.check_open()?;
            if shared.is_due(shared.now())
                && let Some(mut plans) = shared.plans.try_take()
                && shared.is_due(shared.now())
            {
                change_phase(engine, worker, &mut plans);
            }
            let next = shared.now() + pause;
            wait(|| shared.now(), next, shared.options.is_hasty);
        }
        Ok(())
    }

    fn can_do_without(&self) -> bool {
        true
    }
}

/// Returns the database if its phases have a coordinator by its options.
pub(crate) fn coordinator_of<P: Protocol>(
    database: &Database<P>,
) -> Option<&(dyn CoordinatedDatabase + Sync)> {
    let options = options_of(database)?;
    let any: &dyn Any = database;
    let silo = any
        .downcast_ref::<Database<Doppel>>()
        .map(|database| database as &(dyn CoordinatedDatabase + Sync));
    let found = silo
        .or_else(|| any.downcast_ref::<Database<DoppelLocking>>().map(|database| database as _));
    found.filter(|_| options.has_coordinator)
}

/// Returns how many requests each client of a database sets aside, by [`PhaseOptions::stash_capacity`].
pub fn stash_capacity_of<P: Protocol>(database: &Database<P>) -> usize {
    options_of(database).unwrap_or_default().stash_capacity
}

/// Returns the options of a database with phases.
fn options_of<P: Protocol>(database: &Database<P>) -> Option<PhaseOptions> {
    let any: &dyn Any = database;
    match any.downcast_ref::<Database<Doppel>>() {
        Some(database) => Some(database.open_engine(INSIDE).protocol.options),
        None => any
            .downcast_ref::<Database<DoppelLocking>>()
            .map(|database| database.open_engine(INSIDE).protocol.options),
    }
}
