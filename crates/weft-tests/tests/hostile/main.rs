//! Tests of hostile types: each operation that the user supplies misbehaves at each point where the engine calls
//! it.
//!
//! A [workload](workload) runs over rows, keys and columns, every operation of which reports its calls to a
//! [hook](hook). A first run counts the calls of each operation and records their call sites. Then the workload
//! runs once for each combination of an operation, a suitable misbehaviour and a call site, and the operation
//! [misbehaves](hook::Misbehaviour) at that call. After each run these conditions hold:
//!
//! - everything that was acknowledged exists, also in indexes and snapshots, and no transaction is visible in part;
//! - each value was dropped exactly once, and none was used after its drop;
//! - while an operation blocks, other threads go on, and `close_within` returns by its deadline;
//! - the database closes within a second after the last hostile call has returned, and can be opened again.
//!
//! A type that lies (gives false answers, or changes its keys) may get wrong answers about its own rows. The other
//! three conditions still hold for it, and the rows of other types are correct.
//!
//! The first run finds the call sites, so a new call site in the workload is tested automatically. [`callers`]
//! counts the calls in the engine's source text, and fails until each added call has been reviewed. [`faults`] has
//! a small test for each fault that was found in this way.
//!
//! The hook is global, so only one combination runs in a process at a time. The suite of each protocol is a process
//! of its own, and several run beside each other.
//!
//! By default each call site misbehaves in one call, in every combination under the default protocol, in one of six
//! under 2PL, and in each combination under one of the others as well. `WEFT_HOSTILE=each` runs every combination under every
//! protocol. `WEFT_HOSTILE=all` runs up to 30 calls of each call site, in memory and with a directory.
//! `WEFT_HOSTILE_TRACE=1` prints each combination before it runs, in case a run ends with a signal.
//! `WEFT_HOSTILE_ONLY='Panic|Block RowDrop'` runs only combinations whose name contains each of these words, or
//! one of its alternatives.

#![allow(
    clippy::disallowed_types,
    reason = "what the suite counts is not the engine's, and must not be a point at which threads are interleaved"
)]

mod callers;
mod faults;
mod hook;
mod live;
mod run;
mod types;
mod workload;

use weft_protocols::*;

macro_rules! suites {
    ($($test:ident $protocol:ident)*) => {
        $(
            #[test]
            fn $test() {
                run::in_process_of_its_own(stringify!($test), run::suite::<$protocol>);
            }
        )*
    };
}

suites! {
    under_none NoControl
    under_dbx Dbx
    under_dbx_paper DbxPaper
    under_dbx_spin DbxSpin
    under_silo Silo
    under_occ Occ
    under_two_phase_locking TwoPhaseLocking
    under_two_phase_locking_no_wait TwoPhaseLockingNoWait
    under_timestamp_ordering TimestampOrdering
    under_htm_naive HtmNaive
    under_htcc Htcc
    under_doppel Doppel
    under_doppel_locking DoppelLocking
    under_dbx_tc DbxTc
    under_adaptive Adaptive
    under_atomic Atomic
}
