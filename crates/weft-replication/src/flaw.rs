//! Planted bugs, each of which the tests must find.

/// A bug of the protocol. Outside of this crate's tests there is only [`Flaw::None`], and the checks of it vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// The protocol as it should be.
    #[default]
    None,
    /// An epoch is acknowledged as soon as the log has it, wherever.
    #[cfg(test)]
    PositionUnchecked,
    /// A candidate serves as soon as the log has its fence, without reading it back.
    #[cfg(test)]
    FenceNotReadBack,
    /// The last fence of a generation wins, and not the first.
    #[cfg(test)]
    LastFenceWins,
    /// Late records of an earlier generation count.
    #[cfg(test)]
    OldGenerationCounts,
    /// A fence does not discard the parts of an epoch that is not complete.
    #[cfg(test)]
    FenceKeepsUnfinished,
    /// Readers do not check the chain of checksums.
    #[cfg(test)]
    ChainUnchecked,
    /// A primary goes on when the log has lost its end.
    #[cfg(test)]
    LostTailIgnored,
    /// An epoch is acknowledged with its first part.
    #[cfg(test)]
    FirstPartAcknowledges,
    /// The lease counts from the answer to an append, and not from its beginning.
    #[cfg(test)]
    LeaseFromAnswer,
    /// A primary checks the lease before it takes a request to read, and not after the read.
    #[cfg(test)]
    LeaseBeforeRead,
    /// A new primary serves although the lease of the one before may still hold.
    #[cfg(test)]
    LeaseNotAwaited,
    /// A node appends what the log has lost without looking what is in its place, and goes on.
    #[cfg(test)]
    RepairUnchecked,
    /// An epoch is acknowledged before the node's directory has it.
    #[cfg(test)]
    JournalNotAwaited,
    /// The position of a checkpoint is the one at its end, and not the one of its rows.
    #[cfg(test)]
    PositionTooLate,
    /// A node that begins again keeps records that the log never accepted.
    #[cfg(test)]
    UnacceptedKept,
    /// The log is truncated below the newest backup, which may be damaged, and not below the one before it.
    #[cfg(test)]
    TruncatedBelowNewest,
}

/// Returns whether a flaw was planted.
macro_rules! flawed {
    ($flaw:expr, $name:ident) => {{
        #[cfg(test)]
        let is_planted = $flaw == $crate::flaw::Flaw::$name;
        #[cfg(not(test))]
        let is_planted = {
            let _ = &$flaw;
            false
        };
        is_planted
    }};
}
pub(crate) use flawed;
