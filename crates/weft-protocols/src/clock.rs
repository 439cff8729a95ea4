//! The clock of phases, from which stamps are drawn as well.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock of phases, in nanoseconds. On the simulated machine it shows virtual time, at the 2.4 GHz of the
/// paper's machine. For threads that are not among its cores it shows real time.
#[derive(Debug)]
pub(crate) struct PhaseClock {
    start: Instant,
    /// The nanoseconds from 1970 to the start, so that stamps do not begin again when a database is opened again.
    start_nanoseconds: u64,
}

impl PhaseClock {
    pub(crate) fn new() -> PhaseClock {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        PhaseClock { start: Instant::now(), start_nanoseconds: since_1970.as_nanos() as u64 }
    }

    pub(crate) fn now(&self) -> u64 {
        #[cfg(weft_sim)]
        if let Some(cycles) = weft_htm::simulation::cycles() {
            return cycles * 10 / 24;
        }
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the stamp of a transaction that a worker commits now. It has a resolution of 16 ns. Workers have
    /// different stamps (up to 128 of them), so that slices can be merged in any order.
    pub(super) fn stamp(&self, slot: usize) -> u64 {
        ((self.start_nanoseconds + self.now()) >> 4) << 7 | (slot as u64 & 127)
    }
}
