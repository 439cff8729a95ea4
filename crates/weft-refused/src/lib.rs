//! Programs that do not compile, as tests: what `#[derive(Record)]`, `#[procedure]` and the types of `weft` refuse.
//!
//! They are a package of their own because the tests compile all that the package depends on again, twice. So it depends
//! on nothing that the programs do not use.
