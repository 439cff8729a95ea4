//! The protocol that rules joined phases, and in split phases the records that are not split (§5.1).

use weft::commit::access_set::TidHeader;
use weft::commit::{ContentionPoint, Protocol, Silo, TwoPhaseLocking};

/// A protocol that phase reconciliation can run over.
pub trait JoinedProtocol: Protocol<Header: TidHeader> {
    /// The name of the combined protocol.
    #[doc(hidden)]
    const RECONCILED_NAME: &'static str;
    /// The title of the combined protocol, in a few words.
    #[doc(hidden)]
    const RECONCILED_TITLE: &'static str;
    /// The source of the combined protocol.
    #[doc(hidden)]
    const RECONCILED_SOURCE: &'static str = "Narula et al., OSDI 2014";

    /// Whether the combined protocol adapts: there are phases only while conflicts cost much, a record stays split
    /// only if that was measured to pay, and commits apply operations again.
    #[doc(hidden)]
    const ADAPTS: bool = false;

    /// Announces that the next record is accessed by an operation that commutes.
    #[doc(hidden)]
    #[inline(always)]
    fn expect_operation(executor: &mut Self::Executor) {
        let _ = executor;
    }

    /// Reviews what is done about contention, by the number of transactions that have committed until `now`, in
    /// nanoseconds. Returns whether anything is done. One worker at a time calls this.
    #[doc(hidden)]
    fn review(shared: &Self::Shared, committed: u64, now: u64) -> bool {
        let _ = (shared, committed, now);
        false
    }

    /// Returns the points at which transactions queue, or queue for a trial.
    #[doc(hidden)]
    fn ordered_points(shared: &Self::Shared, now: u64) -> Vec<ContentionPoint> {
        let _ = (shared, now);
        Vec::new()
    }

    /// Returns whether the phase changes beside transactions that were not announced: a flaw, for tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    fn passes_unannounced(shared: &Self::Shared) -> bool {
        let _ = shared;
        false
    }

    /// Returns whether records may be split.
    #[doc(hidden)]
    fn may_split(shared: &Self::Shared) -> bool {
        let _ = shared;
        true
    }
}

impl JoinedProtocol for Silo {
    const RECONCILED_NAME: &'static str = "doppel";
    const RECONCILED_TITLE: &'static str = "phase reconciliation over OCC";
}

impl JoinedProtocol for TwoPhaseLocking {
    const RECONCILED_NAME: &'static str = "doppel-2pl";
    const RECONCILED_TITLE: &'static str = "phase reconciliation over two-phase locking";
}
