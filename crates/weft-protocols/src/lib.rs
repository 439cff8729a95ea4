//! The laboratory's protocols for the Weft database: those of the papers that are not an application's, and what they are
//! measured against, from [`NoControl`], the floor, on. And the list of all, with the engine's own.
//!
//! Each protocol is one file, or a folder, to be read beside its paper. What it is made from is the engine's module
//! `commit`: the interface that it implements, access sets, the phases that optimistic protocols share. To add one,
//! write the file, and add it to the list at `protocol_list!`.
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

pub mod atomic;
#[cfg(feature = "canary")]
pub mod canary;
pub mod dbx_spin;
pub mod dbx_tc;
pub mod doppel;
pub mod exclusive;
pub mod htcc;
pub mod htm_naive;
pub mod none;
pub mod occ;
pub mod timestamp_ordering;

pub use atomic::Atomic;
pub use dbx_spin::DbxSpin;
#[cfg(feature = "canary")]
#[doc(hidden)]
pub use dbx_tc::Flaw;
pub use dbx_tc::{ChoppedDatabase, DbxTc, DbxTcOptions};
pub use doppel::{Doppel, DoppelLocking, LabelledDatabase, PhaseOptions};
pub use htcc::{HotRecords, Htcc, HtccOptions};
pub use htm_naive::HtmNaive;
pub use none::NoControl;
pub use occ::Occ;
pub use timestamp_ordering::TimestampOrdering;
pub use weft::protocol::{
    Dbx, Protocol, ProtocolDescription, Silo, TwoPhaseLocking, TwoPhaseLockingNoWait,
};

use weft::Builder;

/// That protocols may use the engine's insides.
// SAFETY: what is done with them is done by a worker's own thread between two of its transactions, or inside one, and keeps
// to what the functions ask.
const INSIDE: weft::commit::Unstable = unsafe { weft::commit::Unstable::new() };

/// Options of the protocols, for [`Builder`].
pub trait BuilderExt {
    /// Sets what the protocol `htcc` is to do.
    fn htcc(self, htcc: HtccOptions) -> Self;

    /// Sets what the protocol `dbx-tc` knows of procedures.
    fn dbx_tc(self, dbx_tc: DbxTcOptions) -> Self;

    /// Sets how phases are to be, under a protocol that has them (`doppel`).
    fn phases(self, phases: PhaseOptions) -> Self;
}

impl<P: Protocol> BuilderExt for Builder<P> {
    fn htcc(self, htcc: HtccOptions) -> Self {
        self.protocol_options(htcc)
    }

    fn dbx_tc(self, dbx_tc: DbxTcOptions) -> Self {
        self.protocol_options(dbx_tc)
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
                NoControl, Dbx, DbxSpin, Silo, Occ, TwoPhaseLocking, TwoPhaseLockingNoWait,
                TimestampOrdering, HtmNaive, Htcc, Doppel, DoppelLocking, DbxTc, Atomic
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

/// Names, titles and sources of all protocols, in the order of the list.
pub const PROTOCOLS: &[ProtocolDescription] = protocol_list!(describe_protocols,);

/// Names of all protocols, in the order of the list.
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

/// Runs an expression with the protocol of a given name as a type parameter:
/// `with_protocol!(name, |P| run::<P>())` is `Some` of the expression's value, or `None` if there
/// is no such protocol.
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
