//! The status word that says why a region ended without committing, as RTM leaves it in EAX:
//!
//! ```text
//!  31       24 23                 6     5       4        3         2        1        0
//! +-----------+--------------------+--------+-------+----------+----------+-------+----------+
//! | operand   |      reserved      | nested | debug | capacity | conflict | retry | explicit |
//! | of XABORT |                    |        |       |          |          | hint  |          |
//! +-----------+--------------------+--------+-------+----------+----------+-------+----------+
//! ```
//!
//! Several bits may be set at once. All clear means a fault, an interrupt, or an instruction that is forbidden
//! in regions. [`STARTED`], all ones, is never a status, because the reserved bits are zero.
//!
//! Two policies read it. The policy for the regions of transactions and indexes has thresholds by [`Cause`]
//! (DBX §6.1). The policy for elidable locks has a [`Remedy`] (*No Free Lunch*, §3.2); only this one looks at
//! the retry hint. The nested bit is not used: an abort inside a nested region ends the outermost one, which is
//! the one that is retried.

/// The value that stands in EAX when a region has started.
pub(crate) const STARTED: u32 = !0;

const EXPLICIT: u32 = 1 << 0;
#[cfg(any(test, loom, feature = "locks"))]
const RETRY: u32 = 1 << 1;
const CONFLICT: u32 = 1 << 2;
const CAPACITY: u32 = 1 << 3;
const OPERAND_SHIFT: u32 = 24;

/// The operand of the only XABORT that Weft executes: a word that the region needs is locked.
pub(crate) const LOCKED: u8 = 0xff;

/// Why a region was rolled back, as far as a retry policy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The region found a word locked by a software twin, and aborted itself.
    Locked,
    /// Another thread touched what the region wrote, or wrote what it read.
    Conflict,
    /// The region touched more lines than the processor can track.
    Capacity,
    /// Everything else: interrupts, faults, forbidden instructions, debugger traps, and an XABORT that is not
    /// Weft's.
    SystemEvent,
}

impl Cause {
    /// Returns the cause that a status stands for. Of two causes it takes the one that is less likely to go
    /// away: capacity before conflict.
    pub(crate) fn of(status: u32) -> Cause {
        if status & EXPLICIT != 0 {
            match status >> OPERAND_SHIFT == u32::from(LOCKED) {
                true => Cause::Locked,
                false => Cause::SystemEvent,
            }
        } else if status & CAPACITY != 0 {
            Cause::Capacity
        } else if status & CONFLICT != 0 {
            Cause::Conflict
        } else {
            Cause::SystemEvent
        }
    }
}

/// What to do before the section of an elidable lock is tried in a region again.
#[cfg(any(test, loom, feature = "locks"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Wait until the lock is free: another thread has taken it.
    WaitForLock,
    /// Wait for a random time: another thread wanted the same lines, and will want them again.
    BackOff,
    /// Try again immediately: the processor says that another try may succeed.
    Nothing,
    /// Take the lock: another try would end in the same way.
    TakeLock,
}

#[cfg(any(test, loom, feature = "locks"))]
impl Remedy {
    /// Returns the remedy for a status. The causes are tested in the order of the paper's listing.
    pub(crate) fn of(status: u32) -> Remedy {
        if Cause::of(status) == Cause::Locked {
            Remedy::WaitForLock
        } else if status & CONFLICT != 0 {
            Remedy::BackOff
        } else if status & RETRY != 0 {
            Remedy::Nothing
        } else {
            Remedy::TakeLock
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the listing of *No Free Lunch*, §3.2, branch by branch.
    #[test]
    fn every_status_has_the_papers_remedy() {
        let locked = u32::from(LOCKED) << OPERAND_SHIFT | EXPLICIT;
        let foreign = 0x2a << OPERAND_SHIFT | EXPLICIT;
        for (status, remedy) in [
            (locked, Remedy::WaitForLock),
            (locked | RETRY, Remedy::WaitForLock),
            (CONFLICT, Remedy::BackOff),
            (CONFLICT | RETRY, Remedy::BackOff),
            (CONFLICT | CAPACITY, Remedy::BackOff),
            (RETRY, Remedy::Nothing),
            (CAPACITY | RETRY, Remedy::Nothing),
            (CAPACITY, Remedy::TakeLock),
            (foreign, Remedy::TakeLock),
            (0, Remedy::TakeLock),
        ] {
            assert_eq!(Remedy::of(status), remedy, "status {status:#x}");
        }
    }

    /// Protects the table above: each bit alone, the combinations, and the two statuses that carry no cause.
    #[test]
    fn every_status_has_the_cause_of_its_bits() {
        const DEBUG: u32 = 1 << 4;
        const NESTED: u32 = 1 << 5;
        let locked = u32::from(LOCKED) << OPERAND_SHIFT | EXPLICIT;
        let foreign = 0x2a << OPERAND_SHIFT | EXPLICIT;
        for (status, cause) in [
            (0, Cause::SystemEvent),
            (RETRY, Cause::SystemEvent),
            (DEBUG, Cause::SystemEvent),
            (NESTED, Cause::SystemEvent),
            (foreign, Cause::SystemEvent),
            (locked, Cause::Locked),
            (locked | NESTED, Cause::Locked),
            (CONFLICT, Cause::Conflict),
            (CONFLICT | RETRY, Cause::Conflict),
            (CONFLICT | RETRY | NESTED, Cause::Conflict),
            (CAPACITY, Cause::Capacity),
            (CAPACITY | NESTED, Cause::Capacity),
            (CAPACITY | CONFLICT | RETRY, Cause::Capacity),
            // The operand counts only beside the bit that says there was an XABORT.
            (u32::from(LOCKED) << OPERAND_SHIFT, Cause::SystemEvent),
        ] {
            assert_eq!(Cause::of(status), cause, "status {status:#x}");
        }
    }
}
