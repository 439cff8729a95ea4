//! The interface of `rtm.rs` on the simulated machine: regions are those of `weft-sim`.
//!
//! A database is opened, and often loaded, outside of a simulated run, where there are no regions. So
//! [`Rtm::detect`] always succeeds, and [`Rtm::is_here`] says whether regions can be used now: in a run, on a
//! machine whose profile has RTM.
use weft_sim::region;

use crate::region::Unavailable;
use crate::status::STARTED;

/// The regions of the simulated run that the calling thread is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtm(());

impl Rtm {
    pub(crate) fn detect() -> Result<Rtm, Unavailable> {
        Ok(Rtm(()))
    }

    /// Returns whether regions can be used here and now.
    pub(crate) fn is_here(self) -> bool {
        region::is_available()
    }

    /// Like XBEGIN, except that an abort does not come back to it. The abort unwinds, and the next call returns
    /// the status.
    pub(crate) fn begin(self) -> u32 {
        region::begin().map_or_else(|status| status, |()| STARTED)
    }

    /// Runs `body` as a region, once. `Err` holds the status of an abort.
    pub(crate) fn attempt<R>(self, body: impl FnOnce() -> R) -> Result<R, u32> {
        region::attempt(body)
    }

    pub(crate) unsafe fn end(self) {
        region::commit();
    }

    pub(crate) unsafe fn abort<const OPERAND: u8>(self) -> ! {
        region::abort(OPERAND)
    }

    pub(crate) fn is_inside(self) -> bool {
        region::is_inside()
    }
}
