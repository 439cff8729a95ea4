//! Who may use the engine's insides.

/// Shows that a crate outside keeps to what the engine's insides ask of their callers. What is public and hidden from the
/// documentation is for crates that implement protocols, and drivers of procedures. It rests on rules that only comments
/// have: for instance, that a worker's executor is used by one call at a time. Safe code cannot make one of these, so it
/// cannot get at a worker, at a table's records, or at a half-ended transaction.
#[derive(Clone, Copy, Debug)]
pub struct Unstable(());

impl Unstable {
    /// For a crate outside.
    ///
    /// # Safety
    /// Whoever calls a function with this keeps to what its documentation, and that of the types that it returns, asks of
    /// callers.
    pub const unsafe fn new() -> Self {
        Unstable(())
    }

    /// For the engine itself.
    pub(crate) const ENGINE: Unstable = Unstable(());
}
