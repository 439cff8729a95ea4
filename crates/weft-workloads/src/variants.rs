//! Variants of protocols, which take part in measurements beside them: [`htcc`]'s and [`dbx_tc`]'s.

use crate::{dbx_tc, htcc};

/// A variant of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// What it is called: the protocol, a colon, and a word.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
}

/// The variants of all protocols.
pub fn all() -> impl Iterator<Item = &'static Variant> {
    htcc::VARIANTS.iter().chain(&dbx_tc::VARIANTS)
}

/// The protocol of one that takes part, by whatever name: `htcc` of `htcc:restart`.
pub fn protocol_of(contender: &str) -> &str {
    contender.split_once(':').map_or(contender, |(protocol, _variant)| protocol)
}
