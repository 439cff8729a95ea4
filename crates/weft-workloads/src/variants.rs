//! Variants of protocols for comparison in measurements: those of [`dbx`], [`htcc`], [`dbx_tc`], [`doppel`] and
//! [`adaptive`].

use crate::{adaptive, dbx, dbx_tc, doppel, htcc};

/// A variant of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// The name: the protocol, a colon, and a word.
    pub name: &'static str,
    /// The description in reports.
    pub about: &'static str,
}

/// The variants of all protocols.
pub fn all() -> impl Iterator<Item = &'static Variant> {
    let of_papers = dbx::VARIANTS.iter().chain(&doppel::VARIANTS);
    of_papers.chain(&htcc::VARIANTS).chain(&dbx_tc::VARIANTS).chain(&adaptive::VARIANTS)
}

/// Returns the protocol of a contender: `htcc` for `htcc:restart`. (`dbx:paper` is a protocol itself.)
pub fn protocol_of(contender: &str) -> &str {
    if let Some(protocol) = dbx::protocol_of(contender) {
        return protocol;
    }
    contender.split_once(':').map_or(contender, |(protocol, _variant)| protocol)
}
