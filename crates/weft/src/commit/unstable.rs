//! The token that lets other crates use the engine's insides.

/// Shows that another crate keeps the rules that the engine's insides have for their callers.
///
/// What is public and hidden from the documentation is for crates that implement protocols, and for drivers of
/// procedures. It relies on rules that only comments state: for instance, that a worker's executor is used by one
/// call at a time. Safe code cannot make a value of this type. So it cannot get a worker, a table's records, or a
/// half-ended transaction.
#[derive(Clone, Copy, Debug)]
pub struct Unstable(());

impl Unstable {
    /// Returns a token for another crate.
    ///
    /// # Safety
    /// A caller that passes the token to a function keeps the rules in the documentation of that function, and of
    /// the types that it returns.
    pub const unsafe fn new() -> Self {
        Unstable(())
    }

    /// The engine's own token.
    pub(crate) const ENGINE: Unstable = Unstable(());
}
