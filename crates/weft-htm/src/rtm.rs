//! Intel's Restricted Transactional Memory: its four instructions, and a test that they work.
//!
//! **The instructions** are written with `asm!`, because the compiler's intrinsics for them are not stable.
//! XBEGIN names an address to go to after an abort. Here it is the address of the next instruction. So to the
//! compiler an abort looks like the one return of the statement, with another value in EAX. That is sound
//! without any "returns twice" care. The processor restores every other register, the stack pointer included,
//! and all memory, the stack included. So whatever the compiler kept across the statement, wherever it kept it,
//! is there again. The statements do not say `nomem`, so the compiler moves no access to shared memory into a
//! region or out of it.
//!
//! They are undefined instructions on a processor without RTM. So they are methods of [`Rtm`], a token that
//! [`Rtm::detect`] hands out.
//!
//! **Detection** asks CPUID (leaf 7: EBX bit 11, RTM, must be set, and EDX bit 11, RTM_ALWAYS_ABORT, clear).
//! Only then does it try: one region must commit, and one that aborts itself must be undone. The trials are for
//! virtual machines and microcode that report RTM and abort every region.
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::hint::black_box;

use crate::region::Unavailable;
use crate::status::{Cause, LOCKED, STARTED};
use crate::word::{Ordering, Word};

const CPUID_FEATURES: u32 = 7;
const CPUID_EBX_RTM: u32 = 1 << 11;
const CPUID_EDX_ALWAYS_ABORT: u32 = 1 << 11;

/// How often each trial is tried before it counts as failed: an interrupt may end any single one.
const TRIALS: u32 = 256;

/// Permission to execute the instructions of RTM: its holder has seen them work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtm(());

impl Rtm {
    /// Asks the processor for RTM, and tries it.
    pub(crate) fn detect() -> Result<Rtm, Unavailable> {
        if __cpuid(0).eax < CPUID_FEATURES {
            return Err(Unavailable::NotReported);
        }
        let features = __cpuid_count(CPUID_FEATURES, 0);
        if features.ebx & CPUID_EBX_RTM == 0 {
            return Err(Unavailable::NotReported);
        }
        if features.edx & CPUID_EDX_ALWAYS_ABORT != 0 {
            return Err(Unavailable::AlwaysAborts);
        }
        let rtm = Rtm(());
        rtm.try_commit()?;
        rtm.try_roll_back()?;
        Ok(rtm)
    }

    /// Returns the token without detection.
    ///
    /// # Safety
    ///
    /// On the threads that use the token, XBEGIN, XEND, XABORT and XTEST do what the processor's manual says:
    /// the processor executes them, or something emulates them.
    pub(crate) unsafe fn assume() -> Rtm {
        Rtm(())
    }

    /// Starts a region and returns [`STARTED`]. If the region is rolled back, this call returns a second time
    /// instead, with the status. Everything else is then as it was at the call.
    ///
    /// Safe, because a region that is never ended does no harm: it is undone.
    #[inline(always)]
    pub(crate) fn begin(self) -> u32 {
        let mut status = STARTED;
        // SAFETY: the token says that the instruction exists. It touches memory only through a rollback, which
        // restores what was there before this statement. EAX is declared as written, no flag changes, and
        // nothing is pushed. Control goes on behind the statement in both cases, because the label for aborts
        // stands at its end.
        unsafe {
            asm!(
                "xbegin 2f",
                "2:",
                inout("eax") status,
                options(nostack, preserves_flags)
            );
        }
        status
    }

    /// Returns whether regions can be used here: always.
    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        true
    }

    /// Runs `body` as a region, once. `Err` holds the status of an abort.
    #[inline(always)]
    pub(crate) fn attempt<R>(self, body: impl FnOnce() -> R) -> Result<R, u32> {
        let status = self.begin();
        if status != STARTED {
            return Err(status);
        }
        let result = body();
        // SAFETY: `begin` said that the region started. It is still open: had it been rolled back, control
        // would not reach this line, and code may end only a region that it began itself.
        unsafe { self.end() };
        Ok(result)
    }

    /// Commits the region.
    ///
    /// # Safety
    ///
    /// This thread is inside a region (else the processor raises a protection fault).
    #[inline(always)]
    pub(crate) unsafe fn end(self) {
        // SAFETY: the token says that the instruction exists, and the caller says that a region is open. XEND
        // changes no register and no flag.
        unsafe { asm!("xend", options(nostack, preserves_flags)) }
    }

    /// Rolls the region back, with `OPERAND` in the status.
    ///
    /// # Safety
    ///
    /// This thread is inside a region.
    #[inline(always)]
    pub(crate) unsafe fn abort<const OPERAND: u8>(self) -> ! {
        // SAFETY: the token says that the instruction exists. Inside a region, where the caller says we are,
        // XABORT never goes on to the next instruction. Outside of one it would do nothing. UD2 then stops the
        // process, so `noreturn` holds there too.
        unsafe {
            asm!(
                "xabort {operand}",
                "ud2",
                operand = const OPERAND,
                options(nostack, noreturn)
            )
        }
    }

    /// Returns whether this thread is inside a region.
    #[inline(always)]
    pub(crate) fn is_inside(self) -> bool {
        let inside: u8;
        // SAFETY: the token says that the instruction exists. It writes the flags, which `asm!` treats as
        // changed, and SETNZ writes the declared register.
        unsafe {
            asm!("xtest", "setnz {inside}", inside = out(reg_byte) inside, options(nostack));
        }
        inside != 0
    }

    /// Passes if some region commits, with its store done.
    fn try_commit(self) -> Result<(), Unavailable> {
        let cell = Word::new(0);
        // Without this, the compiler could drop the store: no other code can name the word.
        let cell = black_box(&cell);
        let mut status = 0;
        for _ in 0..TRIALS {
            status = self.begin();
            if status == STARTED {
                cell.store(u64::from(self.is_inside()), Ordering::Relaxed);
                // SAFETY: `begin` has just said that the region started.
                unsafe { self.end() };
                let committed = cell.load(Ordering::Relaxed) == 1 && !self.is_inside();
                return committed.then_some(()).ok_or(Unavailable::Misbehaves);
            }
        }
        Err(Unavailable::NeverCommits { status })
    }

    /// Passes if some region that aborts itself says so in the status. Every one of them must leave memory as
    /// it was.
    fn try_roll_back(self) -> Result<(), Unavailable> {
        let cell = Word::new(0);
        let cell = black_box(&cell); // as above
        for _ in 0..TRIALS {
            let status = self.begin();
            if status == STARTED {
                cell.store(1, Ordering::Relaxed);
                // SAFETY: `begin` has just said that the region started.
                unsafe { self.abort::<LOCKED>() }
            }
            if cell.load(Ordering::Relaxed) != 0 {
                return Err(Unavailable::Misbehaves);
            }
            if Cause::of(status) == Cause::Locked {
                return Ok(());
            }
        }
        Err(Unavailable::Misbehaves)
    }
}
