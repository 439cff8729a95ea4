//! Bugs that tests plant and must find again. They exist on the simulated machine only.
//!
//! Each bug leaves out one step, or does it in the wrong order. The step belongs to the rules by which regions
//! and their twins run side by side, or to those by which readers run beside writers. A bug is planted for what
//! one thread does, and so for the simulated runs that this thread makes. All other threads are intact. The
//! engine frees nothing while a bug is planted, so that the effects are wrong but safe.

use std::cell::Cell;

/// The step that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The region of an [`ElidedLock`](crate::ElidedLock) does not read the lock that it elides.
    LockNotRead,
    /// A region, of a commit or of a piece, ignores the locks that twins hold on its records.
    LocksPassed,
    /// A twin unlocks a record, with its new version, before it installs the row.
    UnlockedBeforeInstalled,
    /// A look-up in a tree does not validate the leaf that it has read.
    LeafNotValidated,
    /// A commit's region keeps the numbers that its versions got before it began, whether they have grown old or not.
    OldNumbersKept,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 5] = [
        Bug::LockNotRead,
        Bug::LocksPassed,
        Bug::UnlockedBeforeInstalled,
        Bug::LeafNotValidated,
        Bug::OldNumbersKept,
    ];

    /// Runs `body` with this bug planted in everything that it does on this thread.
    pub fn planted_for<R>(self, body: impl FnOnce() -> R) -> R {
        /// Restores the bug that was planted before, also when `body` panics.
        struct Planted(Option<Bug>);
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED.set(self.0);
            }
        }
        let _planted = Planted(PLANTED.replace(Some(self)));
        body()
    }

    /// Returns whether this bug is planted on this thread.
    #[inline(always)]
    pub fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Returns whether any bug is planted on this thread.
    #[inline(always)]
    pub fn is_any_planted() -> bool {
        PLANTED.get().is_some()
    }
}
