//! The clock of phases and of background threads, from which stamps are drawn as well.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The time, in nanoseconds. On the simulated machine it shows virtual time, at the 2.4 GHz of the
/// paper's machine. For threads that are not among its cores it shows real time.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The nanoseconds from 1970 to the start, so that stamps do not begin again when a database is opened again.
    start_nanoseconds: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_nanoseconds: since_1970.as_nanos() as u64 }
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
    pub(crate) fn stamp(&self, slot: usize) -> u64 {
        ((self.start_nanoseconds + self.now()) >> 4) << 7 | (slot as u64 & 127)
    }
}
