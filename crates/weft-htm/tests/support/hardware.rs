//! Hardware regions for tests: the machine's own RTM or, if it has none, real RTM machine code under the
//! emulator of `weft-rtm-emulator`.
#![allow(dead_code, reason = "no test needs all of it")]

use weft_htm::{Backend, Choice, Htm, RetryPolicy};
use weft_rtm_emulator::{CannotEmulate, Emulation, Processor};

/// Returns RTM with this policy, and whether it is the processor's own. Returns `None` if the processor reports
/// RTM and yet it cannot be used.
pub fn hardware(policy: RetryPolicy) -> Option<(Htm, bool)> {
    match Emulation::start(Processor::default(), 0) {
        // SAFETY: every thread of these tests that runs regions calls `on_thread` first, and keeps the returned
        // value until after its last region.
        Ok(_) => Some((unsafe { Htm::assume_rtm(policy) }, false)),
        Err(CannotEmulate::NativeInstructions) => {
            Htm::open(Choice::Rtm, policy).ok().map(|htm| (htm, true))
        }
        Err(why) => panic!("{why}"),
    }
}

/// Lets this thread execute RTM's instructions: by emulation, with `conflicts_per_million` conflicts per
/// million instructions, or (`None`) natively.
pub fn on_thread(conflicts_per_million: u32, seed: u64) -> Option<Emulation> {
    let processor = Processor { conflicts_per_million, ..Processor::default() };
    Emulation::start(processor, seed).ok()
}

/// Runs `test` on a thread with an emulated `processor`, if this machine allows it.
pub fn emulated(processor: Processor, policy: RetryPolicy, test: impl FnOnce(&Emulation, &Htm)) {
    match Emulation::start(processor, 1) {
        Ok(emulation) => {
            // SAFETY: this thread executes RTM's instructions by `emulation`, which outlives the regions. Every
            // other thread of these tests has an `Emulation` while it runs regions of this `Htm`.
            let htm = unsafe { Htm::assume_rtm(policy) };
            assert_eq!(htm.backend(), Backend::Rtm);
            test(&emulation, &htm);
        }
        Err(CannotEmulate::NativeInstructions) => eprintln!("skipped: this processor has RTM"),
        Err(why) => panic!("{why}"),
    }
}
