//! A stand-in for `interleave` in builds without that feature. It does nothing and costs nothing.

/// One access to a shared word.
pub(crate) struct Access;

impl Access {
    /// Stands before the access.
    #[inline(always)]
    pub(crate) fn begin() -> Access {
        Access
    }

    /// Stands after the access, if it changed something.
    #[inline(always)]
    pub(crate) fn wrote(self) {}
}
