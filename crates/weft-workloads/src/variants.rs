//! Variants of protocols for comparison in measurements: those of [`htcc`], [`dbx_tc`], [`doppel`] and
//! [`adaptive`].

use crate::{adaptive, dbx_tc, doppel, htcc};

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
    htcc::VARIANTS
        .iter()
        .chain(&dbx_tc::VARIANTS)
        .chain(&doppel::VARIANTS)
        .chain(&adaptive::VARIANTS)
}

/// Returns the protocol of a contender: `htcc` for `htcc:restart`.
pub fn protocol_of(contender: &str) -> &str {
    contender.split_once(':').map_or(contender, |(protocol, _variant)| protocol)
}
