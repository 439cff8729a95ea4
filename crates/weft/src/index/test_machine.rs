//! The machines on which the tests of both indexes run: software twins alone, or hardware regions as well.

use std::any::Any;

use weft_htm::Htm;

/// The machine on which a test's operations run.
pub(super) struct Machine {
    pub(super) htm: Htm,
    /// Whether the regions are the processor's own, and not emulated. They then abort at random: because of
    /// an interrupt, the first touch of a page, or (seldom) a conflict.
    pub(super) is_native: bool,
    /// Each thread calls this with a seed before its first operation, and keeps the result until its last.
    pub(super) begin_thread: fn(u64) -> Box<dyn Any>,
}

impl Machine {
    /// Returns a machine without hardware regions.
    pub(super) fn software() -> Self {
        Machine { htm: Htm::software(), is_native: false, begin_thread: |_| Box::new(()) }
    }

    /// Returns what the thread with this number runs its operations on, if there are several threads. The
    /// emulator injects conflicts, which send operations of every thread to their software twins. The
    /// processor does not, so there every second thread runs only twins.
    pub(super) fn htm_of_thread(&self, thread: u64) -> Htm {
        if self.is_native && thread % 2 == 1 { Htm::software() } else { self.htm.clone() }
    }

    /// Returns how often a test of single regions may be repeated, until none of them happens to abort.
    pub(super) fn tries(&self) -> u32 {
        if self.is_native { 100 } else { 1 }
    }
}

/// Machines with RTM.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod hardware {
    use weft_htm::{Choice, Htm, RetryPolicy};
    use weft_rtm_emulator::{CannotEmulate, Emulation, Processor};

    use super::Machine;

    fn emulate<const CONFLICTS_PER_MILLION: u32>(seed: u64) -> Result<Emulation, CannotEmulate> {
        let processor =
            Processor { conflicts_per_million: CONFLICTS_PER_MILLION, ..Processor::default() };
        Emulation::start(processor, seed)
    }

    impl Machine {
        /// Returns a machine with RTM, on which `conflict` conflicts send an operation to its software twin.
        /// That is the machine's own RTM or, if it has none, the emulator's, which injects
        /// `CONFLICTS_PER_MILLION`. Returns `None` if there is no RTM and it cannot be emulated either.
        pub(in super::super) fn with_rtm<const CONFLICTS_PER_MILLION: u32>(
            conflict: u32,
        ) -> Option<Machine> {
            let policy = RetryPolicy { conflict, capacity: 1, system_event: 2 };
            match emulate::<CONFLICTS_PER_MILLION>(0) {
                Ok(_) => Some(Machine {
                    // SAFETY: every thread of a test that runs regions first calls
                    // `begin_thread`, and keeps the emulation that it gets until it ends.
                    htm: unsafe { Htm::assume_rtm(policy) },
                    is_native: false,
                    begin_thread: |seed| {
                        let emulation = emulate::<CONFLICTS_PER_MILLION>(seed);
                        Box::new(emulation.expect("as on the first thread"))
                    },
                }),
                Err(CannotEmulate::NativeInstructions) => {
                    let htm = Htm::open(Choice::Rtm, policy).ok()?;
                    Some(Machine { htm, is_native: true, begin_thread: |_| Box::new(()) })
                }
                Err(CannotEmulate::NoAccess) => None,
            }
        }
    }
}
