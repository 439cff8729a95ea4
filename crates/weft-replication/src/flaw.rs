//! Planted bugs, each of which the tests must find.

/// A bug of the protocol. Outside of this crate's tests there is only [`Flaw::None`], and the checks of it vanish. The feature
/// `planted-bugs` is for a test that runs nodes in processes of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// The protocol as it should be.
    #[default]
    None,
    /// An epoch is acknowledged as soon as the log has it, wherever.
    #[cfg(any(test, feature = "planted-bugs"))]
    PositionUnchecked,
    /// A candidate serves as soon as the log has its fence, without reading it back.
    #[cfg(any(test, feature = "planted-bugs"))]
    FenceNotReadBack,
    /// The last fence of a generation wins, and not the first.
    #[cfg(any(test, feature = "planted-bugs"))]
    LastFenceWins,
    /// Late records of an earlier generation count.
    #[cfg(any(test, feature = "planted-bugs"))]
    OldGenerationCounts,
    /// A fence does not discard the parts of an epoch that is not complete.
    #[cfg(any(test, feature = "planted-bugs"))]
    FenceKeepsUnfinished,
    /// Readers do not check the chain of checksums.
    #[cfg(any(test, feature = "planted-bugs"))]
    ChainUnchecked,
    /// A primary goes on when the log has lost its end.
    #[cfg(any(test, feature = "planted-bugs"))]
    LostTailIgnored,
    /// An epoch is acknowledged with its first part.
    #[cfg(any(test, feature = "planted-bugs"))]
    FirstPartAcknowledges,
    /// The lease counts from the answer to an append, and not from its beginning.
    #[cfg(any(test, feature = "planted-bugs"))]
    LeaseFromAnswer,
    /// A primary checks the lease before it takes a request to read, and not after the read.
    #[cfg(test)]
    LeaseBeforeRead,
    /// A new primary serves although the lease of the one before may still hold.
    #[cfg(any(test, feature = "planted-bugs"))]
    LeaseNotAwaited,
    /// A node appends what the log has lost without looking what is in its place, and goes on.
    #[cfg(test)]
    RepairUnchecked,
    /// An epoch is acknowledged before the node's directory has it.
    #[cfg(test)]
    JournalNotAwaited,
    /// The position of a checkpoint is the one at its end, and not the one of its rows.
    #[cfg(any(test, feature = "planted-bugs"))]
    PositionTooLate,
    /// A node that begins again keeps records that the log never accepted.
    #[cfg(any(test, feature = "planted-bugs"))]
    UnacceptedKept,
    /// The log is truncated below the newest backup, which may be damaged, and not below the one before it.
    #[cfg(test)]
    TruncatedBelowNewest,
}

#[cfg(feature = "planted-bugs")]
impl Flaw {
    /// Returns the flaw that the environment names in `WEFT_FLAW`. The tests of whole nodes use it.
    pub fn of_environment() -> Flaw {
        match std::env::var("WEFT_FLAW").as_deref() {
            Ok("PositionUnchecked") => Flaw::PositionUnchecked,
            Ok("LeaseNotAwaited") => Flaw::LeaseNotAwaited,
            Ok("FenceNotReadBack") => Flaw::FenceNotReadBack,
            Ok(other) => panic!("no such flaw: {other}"),
            Err(_) => Flaw::None,
        }
    }
}

/// Returns whether a flaw was planted.
macro_rules! flawed {
    ($flaw:expr, $name:ident) => {{
        #[cfg(any(test, feature = "planted-bugs"))]
        let is_planted = $flaw == $crate::flaw::Flaw::$name;
        #[cfg(not(any(test, feature = "planted-bugs")))]
        let is_planted = {
            let _ = &$flaw;
            false
        };
        is_planted
    }};
}
pub(crate) use flawed;
