//! Hostile types: each operation that the user supplies misbehaves, at each moment at which the engine calls it.
//!
//! A [workload](workload) runs over rows, keys and columns whose every operation tells a [hook](hook) of its
//! calls. A first run counts the calls of each operation and notes who makes them. Then the workload runs once
//! for each operation, each misbehaviour that suits it and each place from which the engine calls it, and the
//! operation [misbehaves](hook::Misbehaviour) at that call. After each run these hold:
//!
//! - what was acknowledged is there, in the indexes and snapshots too, and no half transaction is;
//! - each value was dropped exactly once, and none was used after its drop;
//! - while an operation blocks, other threads go on, and `close_within` returns by its deadline;
//! - the database closes within a second when the last hostile call has returned, and can be opened again.
//!
//! A type that lies (gives false answers, or changes its keys) may get wrong answers about its own rows. The
//! other three still hold for it, and the rows of other types are as they should be.
//!
//! The first run finds the places, so a new place that the workload comes by is tested at once. [`callers`] counts
//! the calls in the engine's text, and fails when one is added without a look at it. [`faults`] has a small test
//! for each fault that was found so.
//!
//! `WEFT_HOSTILE=all` runs up to 30 calls of each place, in memory and with a directory; by default one is run.
//! `WEFT_HOSTILE_TRACE=1` names each combination before it runs, for a run that ends with a signal.
//! `WEFT_HOSTILE_ONLY='Panic|Block RowDrop'` runs only combinations whose name contains each of these words, or one
//! of its alternatives.

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
                run::suite::<$protocol>();
            }
        )*
    };
}

suites! {
    under_none NoControl
    under_dbx Dbx
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
    under_atomic Atomic
}
