//! Bugs that tests plant, and have to find again. They exist on the simulated machine only.
//!
//! Each is one step that is left out, or done in the wrong order, of the rules by which regions and
//! their twins run side by side, or by which readers run beside writers. A bug is planted for what one
//! thread does, and so for the runs of the simulated machine that this thread makes; all others are
//! intact. The engine frees nothing while one is planted, so that what follows is wrong but safe.

use std::cell::Cell;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The region of an [`ElidedLock`](crate::ElidedLock) does not read the lock that it stands for.
    LockNotRead,
    /// A region, of a commit or of a piece, takes no notice of the locks that twins hold on its records.
    LocksPassed,
    /// A twin unlocks a record, with its new version, before it installs the row.
    UnlockedBeforeInstalled,
    /// A look-up in a tree does not validate the leaf that it has read.
    LeafNotValidated,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 4] =
        [Bug::LockNotRead, Bug::LocksPassed, Bug::UnlockedBeforeInstalled, Bug::LeafNotValidated];

    /// Runs `body` with this bug in whatever it does on this thread.
    pub fn planted_for<R>(self, body: impl FnOnce() -> R) -> R {
        /// Puts back what was there before, also when `body` panics.
        struct Planted(Option<Bug>);
        impl Drop for Planted {
            fn drop(&mut self) {
                PLANTED.set(self.0);
            }
        }
        let _planted = Planted(PLANTED.replace(Some(self)));
        body()
    }

    /// Whether this bug is planted here.
    #[inline(always)]
    pub fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Whether any bug is planted here.
    #[inline(always)]
    pub fn is_any_planted() -> bool {
        PLANTED.get().is_some()
    }
}
