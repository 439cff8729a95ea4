//! The interface of `rtm.rs` where a hardware region cannot exist: on other architectures, and under a model
//! checker, whose words a processor does not track.
//!
//! [`Rtm`] has no values here. So none of its methods can be called, and every `Option<Rtm>` is `None` at
//! compile time.
use crate::region::Unavailable;

/// The hardware, which does not exist here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rtm {}

impl Rtm {
    pub(crate) fn detect() -> Result<Rtm, Unavailable> {
        Err(Unavailable::NotBuilt)
    }

    pub(crate) fn is_here(self) -> bool {
        match self {}
    }

    pub(crate) fn begin(self) -> u32 {
        match self {}
    }

    pub(crate) fn attempt<R>(self, _body: impl FnOnce() -> R) -> Result<R, u32> {
        match self {}
    }

    pub(crate) unsafe fn end(self) {
        match self {}
    }

    pub(crate) unsafe fn abort<const OPERAND: u8>(self) -> ! {
        match self {}
    }

    pub(crate) fn is_inside(self) -> bool {
        match self {}
    }
}
