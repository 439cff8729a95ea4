//! The protocols of the papers for the Weft database, except those that an application uses, which are in the
//! engine. With them come the baselines that the papers compare against, from the cost floor [`NoControl`] on,
//! and the list of all protocols, the engine's own included.
//!
//! Each protocol is one file or one folder, to be read beside its paper. It is built from the engine's module
//! `commit`: the interface that it implements, access sets, and the phases that optimistic protocols share. To
//! add a protocol, write its file and add it to the list in `protocol_list!`.
//!
//! ```
//! use weft::{Database, Error, Record};
//! use weft_protocols::{BuilderExt, Htcc, HtccOptions};
//!
//! #[derive(Clone, Record)]
//! struct Page { #[record(key)] id: u32, views: u64 }
//!
//! let options = HtccOptions::new().dependencies(true);
//! let database = Database::builder().protocol::<Htcc>().table::<Page>().htcc(options).open()?;
//! let pages = database.table::<Page>()?;
//! database.transact(|tx| tx.insert(&pages, Page { id: 7, views: 0 }))?;
//! # Ok::<(), Error>(())
//! ```
#![warn(missing_docs)]

pub mod adaptive;
pub mod atomic;
#[cfg(feature = "canary")]
pub mod canary;
mod clock;
mod coordinated;
pub mod dbx_paper;
pub mod dbx_spin;
pub mod dbx_tc;
pub mod doppel;
pub mod exclusive;
pub mod htcc;
pub mod htm_naive;
pub mod none;
pub mod occ;
#[cfg(all(debug_assertions, not(any(test, loom, shuttle))))]
#[doc(hidden)]
pub mod shared;
pub mod timestamp_ordering;
mod turn;

#[cfg(feature = "canary")]
#[doc(hidden)]
pub use adaptive::AdaptiveFlaw;
pub use adaptive::{Adaptive, AdaptiveOptions};
pub use atomic::Atomic;
pub use coordinated::{CoordinatedDatabase, coordinator_of};
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use dbx_paper::PaperFlaw;
pub use dbx_paper::{DbxPaper, DbxPaperOptions};
pub use dbx_spin::DbxSpin;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use dbx_tc::Flaw;
pub use dbx_tc::{ChoppedDatabase, DbxTc, DbxTcOptions};
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use doppel::DoppelFlaw;
pub use doppel::{
    Doppel, DoppelLocking, LabelledDatabase, Merging, PhaseOptions, stash_capacity_of,
};
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use htcc::HtccFlaw;
pub use htcc::{HotRecords, Htcc, HtccOptions};
pub use htm_naive::HtmNaive;
pub use none::NoControl;
pub use occ::Occ;
pub use timestamp_ordering::TimestampOrdering;
pub use weft::protocol::{
    Dbx, Protocol, ProtocolDescription, Silo, TwoPhaseLocking, TwoPhaseLockingNoWait,
};

use weft::Builder;

/// The permission to use the engine's internals.
// SAFETY: the protocols use them only on a worker's own thread, between two of its transactions or inside one,
// and follow the rules that the functions' documentation gives.
const INSIDE: weft::commit::Unstable = unsafe { weft::commit::Unstable::new() };

/// Options of the protocols, for [`Builder`].
pub trait BuilderExt {
    /// Sets the options of the protocol `htcc`.
    fn htcc(self, htcc: HtccOptions) -> Self;

    /// Sets the options of the protocol `adaptive`: what it may do about contention.
    fn adaptive(self, adaptive: AdaptiveOptions) -> Self;

    /// Sets the options of the protocol `dbx-tc`: the procedures that it may run in pieces, and how.
    fn dbx_tc(self, dbx_tc: DbxTcOptions) -> Self;

    /// Sets the options of the protocol `dbx:paper`: the mechanisms of the paper that it has. With them it sets the
    /// retry policy of all hardware regions of the database.
    fn dbx_paper(self, dbx_paper: DbxPaperOptions) -> Self;

    /// Sets how long phases last and when records are split, under a protocol that has phases (`doppel`).
    fn phases(self, phases: PhaseOptions) -> Self;
}

impl<P: Protocol> BuilderExt for Builder<P> {
    fn htcc(self, htcc: HtccOptions) -> Self {
        self.protocol_options(htcc)
    }

    fn adaptive(self, adaptive: AdaptiveOptions) -> Self {
        self.protocol_options(adaptive)
    }

    fn dbx_tc(self, dbx_tc: DbxTcOptions) -> Self {
        self.protocol_options(dbx_tc)
    }

    fn dbx_paper(self, dbx_paper: DbxPaperOptions) -> Self {
        self.htm_retry_policy(dbx_paper.retry_policy()).protocol_options(dbx_paper)
    }

    fn phases(self, phases: PhaseOptions) -> Self {
        self.protocol_options(phases)
    }
}

/// The list of protocols. Calls `$then!([Type, …] arguments…)`.
#[doc(hidden)]
#[macro_export]
macro_rules! protocol_list {
    ($then:ident, $($arguments:tt)*) => {
        $crate::$then! {
            [
                NoControl, Dbx, DbxPaper, DbxSpin, Silo, Occ, TwoPhaseLocking,
                TwoPhaseLockingNoWait, TimestampOrdering, HtmNaive, Htcc, Doppel, DoppelLocking, DbxTc, Adaptive, Atomic
            ]
            $($arguments)*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! describe_protocols {
    ([$($protocol:ident),*]) => {
        &[$($crate::ProtocolDescription::of::<$crate::$protocol>()),*]
    };
}

/// The names, titles and sources of all protocols, in the order of the list.
pub const PROTOCOLS: &[ProtocolDescription] = protocol_list!(describe_protocols,);

/// The names of all protocols, in the order of the list.
pub const NAMES: &[&str] = {
    const NAMES: [&str; PROTOCOLS.len()] = {
        let mut names = [""; PROTOCOLS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = PROTOCOLS[index].name;
            index += 1;
        }
        names
    };
    &NAMES
};

/// Runs an expression with the protocol of a given name as a type parameter: `with_protocol!(name, |P|
/// run::<P>())`. Evaluates to `Some` of the expression's value, or to `None` if there is no protocol of that
/// name.
///
/// ```
/// use weft::protocol::Protocol;
/// use weft_protocols::with_protocol;
///
/// assert_eq!(with_protocol!("dbx", |P| P::NAME), Some("dbx"));
/// assert_eq!(with_protocol!("coin-toss", |P| P::NAME), None);
/// ```
#[macro_export]
macro_rules! with_protocol {
    ($name:expr, |$parameter:ident| $body:expr) => {
        $crate::protocol_list!(match_protocol, $name, $parameter, $body)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! match_protocol {
    ([$($protocol:ident),*] $name:expr, $parameter:ident, $body:expr) => {
        match $name {
            $(name if name == <$crate::$protocol as $crate::Protocol>::NAME => {
                type $parameter = $crate::$protocol;
                Some($body)
            })*
            _ => None,
        }
    };
}
