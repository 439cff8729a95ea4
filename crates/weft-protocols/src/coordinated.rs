//! What a protocol of a paper does in a thread of its own: Doppel's coordinator changes the phases, and HTCC's background
//! thread makes records hot and cold.
//!
//! The application starts the thread, and so do the harnesses of the benchmarks and of the simulated machine.

use weft::protocol::Protocol;
use weft::{Database, Failure};
use weft_htm::word::yield_now;

use crate::{doppel, htcc};

/// Does the protocol's background work, in a thread of its own.
pub trait CoordinatedDatabase {
    /// Does the background work until `goes_on` returns `false`: changes the phases, which workers change otherwise
    /// ([`PhaseOptions::has_coordinator`](crate::PhaseOptions::has_coordinator)), or makes records hot and cold
    /// ([`HtccOptions::background`](crate::HtccOptions::background)). Without these options it does nothing.
    ///
    /// # Errors
    /// [`Failure::Closed`]; [`Failure::NestedTransaction`] inside a transaction.
    fn coordinate(&self, goes_on: &dyn Fn() -> bool) -> Result<(), Failure>;

    /// Whether workers do the work while no thread does: they change phases, but do not make records hot or cold.
    fn can_do_without(&self) -> bool;
}

/// Returns the database if it has background work for a thread of its own, by its options.
pub fn coordinator_of<P: Protocol>(
    database: &Database<P>,
) -> Option<&(dyn CoordinatedDatabase + Sync)> {
    doppel::coordinator_of(database).or_else(|| htcc::background_of(database))
}

/// Waits until the clock shows `until`, in nanoseconds. `is_hasty` waits only for the other threads.
pub(crate) fn wait(now: impl Fn() -> u64, until: u64, is_hasty: bool) {
    if is_hasty {
        return yield_now();
    }
    if !is_virtual() {
        return std::thread::sleep(std::time::Duration::from_nanos(until.saturating_sub(now())));
    }
    while now() < until {
        yield_now();
    }
}

/// Whether this thread is a core of the simulated machine, where time passes only while it runs.
fn is_virtual() -> bool {
    #[cfg(weft_sim)]
    return weft_htm::simulation::cycles().is_some();
    #[cfg(not(weft_sim))]
    false
}
