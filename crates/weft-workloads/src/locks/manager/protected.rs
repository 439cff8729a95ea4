//! A lock with the fences of Shore-MT's locks, and the data that lie beside it.

use weft::htm::lock::{Elidable, Lock, Mcs, Mode, OccRwLock, SrwLock, Tatas};
use weft::htm::word::{Ordering, fence};

/// A lock of Shore-MT.
pub(super) trait FencedLock: Lock {
    /// Whether a fence follows the store that releases the lock.
    const HAS_FENCE_AFTER_RELEASE: bool = false;
}

impl FencedLock for Tatas {
    const HAS_FENCE_AFTER_RELEASE: bool = true;
}

impl FencedLock for Mcs {}

impl FencedLock for SrwLock {}

impl FencedLock for OccRwLock {}

/// Data of type `T` with the lock `L` beside them, in the same lines if they fit.
///
/// Shore-MT's locks execute a full fence after they are acquired, and another one before they are released
/// (`membar_enter` and `membar_exit`, each an `mfence`). A `tatas` lock executes a third one after its release. A
/// region that elides the lock executes none of them.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Protected<L, T = ()> {
    pub(super) data: T,
    lock: L,
    has_fences: bool,
}

impl<L: FencedLock, T: Default> Protected<L, T>
where
    Self: Lock,
{
    /// Creates empty data with a free lock, which is elided or not.
    pub(super) fn new(has_fences: bool, is_elided: bool) -> Elidable<Self> {
        let protected = Protected { data: T::default(), lock: L::default(), has_fences };
        Elidable::around(protected, is_elided)
    }
}

impl<L: FencedLock, T> Protected<L, T> {
    #[inline(always)]
    fn fence(&self) {
        if self.has_fences {
            fence(Ordering::SeqCst);
        }
    }

    #[inline(always)]
    fn between_fences<R>(&self, section: impl FnOnce() -> R) -> R {
        self.fence();
        let result = section();
        self.fence();
        result
    }

    #[inline(always)]
    fn released(&self) {
        if L::HAS_FENCE_AFTER_RELEASE {
            self.fence();
        }
    }
}

impl<L, T> Lock for Protected<L, T>
where
    L: FencedLock,
    T: Default + Send + Sync + std::fmt::Debug + 'static,
{
    const NAME: &'static str = L::NAME;
    const SHARES: bool = L::SHARES;

    #[inline(always)]
    fn excludes(&self, mode: Mode) -> bool {
        self.lock.excludes(mode)
    }

    #[inline]
    fn hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> R {
        let result = self.lock.hold(mode, || self.between_fences(section));
        self.released();
        result
    }

    #[inline]
    fn try_hold<R>(&self, mode: Mode, section: impl FnOnce() -> R) -> Option<R> {
        let result = self.lock.try_hold(mode, || self.between_fences(section));
        self.released();
        result
    }
}
