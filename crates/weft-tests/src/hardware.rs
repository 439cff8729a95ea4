//! Hardware regions for tests: the machine's own RTM or, where it has none, real RTM machine code
//! under the emulator of `weft-rtm-emulator`.

use weft::htm::{Choice, Htm, RetryPolicy};
use weft_rtm_emulator::{CannotEmulate, Emulation, Processor};

/// A value that a thread holds while it runs regions: an emulation, or nothing on a machine with RTM.
pub struct OnThread(#[allow(dead_code, reason = "held, not used")] Option<Emulation>);

/// Returns whether regions run on the processor itself. If they do, they abort by chance (by an interrupt, by the
/// first touch of a page, by a conflict that happens to occur), and never by an injected conflict.
pub fn is_native() -> bool {
    matches!(
        Emulation::start(Processor::default(), 0).err(),
        Some(CannotEmulate::NativeInstructions)
    )
}

/// Returns RTM for this test, which gives up a region after `conflict` conflicts. Returns `None` if the machine
/// has no RTM and cannot emulate it either.
pub fn hardware(conflict: u32) -> Option<Htm> {
    let policy = RetryPolicy { conflict, capacity: 1, system_event: 2 };
    match Emulation::start(Processor::default(), 0) {
        // SAFETY: every thread of these tests that uses the database calls `on_thread` or
        // `on_processor` first.
        Ok(_) => Some(unsafe { Htm::assume_rtm(policy) }),
        Err(CannotEmulate::NativeInstructions) => Htm::open(Choice::Rtm, policy).ok(),
        Err(CannotEmulate::NoAccess) => None,
    }
}

/// Lets this thread execute RTM's instructions. An emulator injects `conflicts_per_million` conflicts per million
/// instructions.
pub fn on_thread(conflicts_per_million: u32, seed: u64) -> OnThread {
    on_processor(Processor { conflicts_per_million, ..Processor::default() }, seed)
}

/// Lets this thread execute RTM's instructions. If they are emulated, `processor` says how.
pub fn on_processor(processor: Processor, seed: u64) -> OnThread {
    OnThread(Emulation::start(processor, seed).ok())
}
