//! The laboratory's protocols: those of the papers that are not an application's, and what they are measured against.
//! And the list of all.

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
pub use dbx_tc::{DbxTc, DbxTcOptions};
pub use doppel::{Doppel, DoppelLocking, PhaseOptions};
pub use htcc::{HotRecords, Htcc, HtccOptions};
pub use htm_naive::HtmNaive;
pub use none::NoControl;
pub use occ::Occ;
pub use timestamp_ordering::TimestampOrdering;

/// THE list of protocols. Calls `$then!([Type, …] arguments…)`.
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
        &[$($crate::protocol::ProtocolDescription {
            name: <$crate::protocol::$protocol as $crate::protocol::Protocol>::NAME,
            title: <$crate::protocol::$protocol as $crate::protocol::Protocol>::TITLE,
            source: <$crate::protocol::$protocol as $crate::protocol::Protocol>::SOURCE,
            workers_max: <$crate::protocol::$protocol as $crate::protocol::Protocol>::WORKERS_MAX,
            uses_htm: <$crate::protocol::$protocol as $crate::protocol::Protocol>::USES_HTM,
            twin: <$crate::protocol::$protocol as $crate::protocol::Protocol>::TWIN,
            single_key: <$crate::protocol::$protocol as $crate::protocol::Protocol>::SINGLE_KEY,
        }),*]
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

/// A protocol, described at run time.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolDescription {
    /// See [`Protocol::NAME`].
    pub name: &'static str,
    /// See [`Protocol::TITLE`].
    pub title: &'static str,
    /// See [`Protocol::SOURCE`].
    pub source: &'static str,
    /// See [`Protocol::WORKERS_MAX`].
    pub workers_max: usize,
    /// See [`Protocol::USES_HTM`].
    pub uses_htm: bool,
    /// See [`Protocol::TWIN`].
    pub twin: Option<&'static str>,
    /// See [`Protocol::SINGLE_KEY`].
    pub single_key: bool,
}

/// Runs an expression with the protocol of a given name as a type parameter:
/// `with_protocol!(name, |P| run::<P>())` is `Some` of the expression's value, or `None` if there
/// is no such protocol.
///
/// ```
/// use weft::protocol::{Protocol, with_protocol};
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
pub use with_protocol;

#[doc(hidden)]
#[macro_export]
macro_rules! match_protocol {
    ([$($protocol:ident),*] $name:expr, $parameter:ident, $body:expr) => {
        match $name {
            $(name if name == <$crate::protocol::$protocol as $crate::protocol::Protocol>::NAME => {
                type $parameter = $crate::protocol::$protocol;
                Some($body)
            })*
            _ => None,
        }
    };
}
