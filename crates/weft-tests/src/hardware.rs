//! Hardware regions for tests: the machine's own RTM or, where it has none, real RTM machine code
//! under the emulator of `weft-rtm-emulator`.

use weft::htm::{Choice, Htm, RetryPolicy};
use weft_rtm_emulator::{CannotEmulate, Emulation, Processor};

/// What a thread holds while it runs regions: an emulation, or nothing on a machine with RTM.
pub struct OnThread(#[allow(dead_code, reason = "held, not used")] Option<Emulation>);

/// Whether regions run on the processor itself. They then abort when chance has it: by an interrupt,
/// by the first touch of a page, by a conflict that happens to occur. None is injected.
pub fn is_native() -> bool {
    matches!(
        Emulation::start(Processor::default(), 0).err(),
        Some(CannotEmulate::NativeInstructions)
    )
}

/// RTM for this test, given up after so many conflicts; `None` where there is none and none can
/// be emulated either.
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

/// Lets this thread execute RTM's instructions, at so many conflicts in a million instructions.
pub fn on_thread(conflicts_per_million: u32, seed: u64) -> OnThread {
    on_processor(Processor { conflicts_per_million, ..Processor::default() }, seed)
}

/// Lets this thread execute RTM's instructions, on a processor as described if it is emulated.
pub fn on_processor(processor: Processor, seed: u64) -> OnThread {
    OnThread(Emulation::start(processor, seed).ok())
}
