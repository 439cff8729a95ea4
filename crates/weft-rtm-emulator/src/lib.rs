//! An emulator that runs the machine code of RTM regions on processors without RTM. So tests execute exactly
//! the instructions that a user's processor will execute, aborts included. It works only on x86-64 Linux with
//! glibc; elsewhere this crate is empty.
//!
//! It is a tool for tests and a dev-dependency only. It uses none of the engine's crates, so that it cannot
//! share their mistakes.
//!
//! # How
//!
//! On a processor without RTM, XBEGIN is an undefined instruction, and the kernel turns it into a SIGILL. The
//! handler saves all registers and decodes the *next* instruction (`processor.rs`). It finds the memory that the
//! instruction reads and writes, notes the cache lines, and saves the old contents of the written ones. Then the
//! thread executes a copy of the instruction, and of those behind it that access no memory, in front of a breakpoint
//! (`out_of_line.rs`). The breakpoint raises a SIGTRAP, and the next instruction follows. Jumps, calls and returns are
//! carried out by the emulator. What it cannot copy is executed where it stands, with the trap flag set, which raises
//! a SIGTRAP behind it. At XEND the region has committed. At anything that would abort a region the emulator restores
//! memory and registers, and continues at the address that XBEGIN named, with the status in EAX.
//!
//! A region must look atomic to other threads. So each thread that takes part creates an [`Emulation`]. While
//! one of them is in a region, all others are held in a signal handler (`world.rs`). Only one region runs at a
//! time, so no conflict is ever real. Conflicts are injected instead, at a rate
//! ([`Processor::conflicts_per_million`]) or by a plan ([`Emulation::plan`]).
//!
//! # Limits
//!
//! - Threads without an [`Emulation`] are not held: they must not access memory that regions access.
//! - Gather and scatter instructions, and addresses relative to GS, abort the region as a forbidden instruction
//!   would.
//! - Every instruction of a region costs microseconds. Every region costs some tens of microseconds more for
//!   each thread that must be held.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod context;
mod lines;
mod memory;
mod out_of_line;
mod processor;
mod signals;
pub mod status;
mod world;

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

pub use processor::{Counts, Moment, Processor};

/// Emulates RTM's instructions on its thread while it lives.
#[derive(Debug)]
pub struct Emulation {
    processor: NonNull<processor::State>,
    stack: signals::Stack,
    /// It belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl Emulation {
    /// Starts to emulate RTM on this thread, on a processor as described. `seed` decides where conflicts
    /// strike.
    ///
    /// # Errors
    ///
    /// If RTM cannot be emulated here. [`CannotEmulate`] says why.
    ///
    /// # Panics
    ///
    /// If this thread already has an `Emulation`, or 64 other threads have one.
    pub fn start(processor: Processor, seed: u64) -> Result<Emulation, CannotEmulate> {
        if !begin_is_undefined() {
            return Err(CannotEmulate::NativeInstructions);
        }
        if !memory::is_accessible() {
            return Err(CannotEmulate::NoAccess);
        }
        if !does_begin_trap() {
            return Err(CannotEmulate::NativeInstructions);
        }
        let state = Box::new(processor::State::new(processor, seed));
        let processor = NonNull::from(Box::leak(state));
        let stack = signals::install(processor);
        world::join();
        Ok(Emulation { processor, stack, not_send: PhantomData })
    }

    /// Aborts the next `regions` regions of this thread with `status`, each when it reaches `moment`. A region
    /// that ends before that moment counts too.
    pub fn plan(&self, moment: Moment, status: u32, regions: u32) {
        // SAFETY: the state lives as long as `self`. Its only other user is the signal handler of this thread,
        // which runs only when this thread executes an instruction of RTM or is in a region. This function does
        // neither.
        unsafe { (*self.processor.as_ptr()).plan(moment, status, regions) }
    }

    /// Returns how often the regions of this thread have ended in each way so far.
    pub fn counts(&self) -> Counts {
        // SAFETY: as in `plan`.
        unsafe { (*self.processor.as_ptr()).counts() }
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        world::leave();
        signals::uninstall(&self.stack);
        // SAFETY: the pointer came from a leaked box in `start`, and after `uninstall` the handler no longer
        // has it.
        drop(unsafe { Box::from_raw(self.processor.as_ptr()) });
    }
}

/// Why RTM cannot be emulated on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotEmulate {
    /// The processor executes XBEGIN itself, even if only to abort immediately, so nothing traps.
    NativeInstructions,
    /// The kernel forbids the system calls by which the emulator accesses memory that may be unmapped
    /// (process_vm_readv, process_vm_writev).
    NoAccess,
}

impl fmt::Display for CannotEmulate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            CannotEmulate::NativeInstructions => "this processor executes XBEGIN itself",
            CannotEmulate::NoAccess => "process_vm_readv or process_vm_writev is forbidden here",
        })
    }
}

impl std::error::Error for CannotEmulate {}

/// Returns whether XBEGIN raises the exception for undefined instructions. That is so if CPUID reports neither
/// RTM (leaf 7, EBX bit 11) nor that RTM always aborts (EDX bit 11).
fn begin_is_undefined() -> bool {
    const FEATURES: u32 = 7;
    const RTM: u32 = 1 << 11;
    const ALWAYS_ABORT: u32 = 1 << 11;
    if __cpuid(0).eax < FEATURES {
        return true;
    }
    let features = __cpuid_count(FEATURES, 0);
    features.ebx & RTM == 0 && features.edx & ALWAYS_ABORT == 0
}

/// Returns whether XBEGIN gets into the hands of the emulator. Some virtual machines report neither RTM nor that it always
/// aborts, on a processor whose XBEGIN aborts immediately.
fn does_begin_trap() -> bool {
    static DOES_TRAP: OnceLock<bool> = OnceLock::new();
    *DOES_TRAP.get_or_init(|| {
        let state = Box::leak(Box::new(processor::State::new(Processor::default(), 0)));
        let processor = NonNull::from(state);
        let stack = signals::install(processor);
        world::join();
        // SAFETY: XBEGIN traps, and the emulator carries out the region; or the processor aborts it, and goes on at the
        // label. Both change EAX alone.
        unsafe {
            asm!("xbegin 2f", "xend", "2:", out("eax") _);
        }
        world::leave();
        signals::uninstall(&stack);
        // SAFETY: the pointer came from a leaked box, and after `uninstall` the handler no longer has it.
        let counts = unsafe { Box::from_raw(processor.as_ptr()) }.counts();
        counts.committed + counts.aborted > 0
    })
}
