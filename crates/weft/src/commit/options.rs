//! The options of a database that concern its protocol.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Failure;
use crate::sync::gate::Gate;

/// Options of protocols, each found by its type, since the engine does not know the options of other crates'
/// protocols.
#[derive(Clone, Default)]
pub struct GivenOptions(Vec<Arc<dyn Any + Send + Sync>>);

impl GivenOptions {
    /// Adds options. If options of the same type are given several times, the last ones apply.
    pub fn give<O: Any + Send + Sync>(&mut self, options: O) {
        self.0.push(Arc::new(options));
    }

    /// Returns the options of a type, if any were given.
    pub fn get<O: Any>(&self) -> Option<&O> {
        self.0.iter().rev().find_map(|given| given.downcast_ref())
    }
}

impl fmt::Debug for GivenOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("GivenOptions").field(&self.0.len()).finish()
    }
}

/// Given to a builder as the options of a protocol, makes all commits go by rows: no operation is applied again, and no
/// transaction is carried over by columns. So they are those of the papers' systems, which know no columns.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct CommitsByRows;

/// What a protocol is told about a database that is being opened.
#[derive(Clone, Debug)]
pub struct ProtocolOptions {
    /// How many workers there may be at the same time.
    pub workers_max: usize,
    /// Whether changes may be made later than their transactions commit. This is so if there is no history, in which
    /// they would be missing.
    pub may_defer: bool,
    /// The options that were given for protocols.
    pub given: GivenOptions,
}

/// What a protocol keeps once per database.
pub trait ProtocolShared: Sized + Send + Sync + 'static {
    /// Makes it, for a database that is being opened.
    ///
    /// # Errors
    /// If the protocol's own options contradict each other.
    fn new(options: &ProtocolOptions) -> Result<Self, Failure>;

    /// Returns the gate that keeps procedures in pieces and all other transactions apart, under a protocol that
    /// chops.
    fn gate(&self) -> Option<Arc<Gate>> {
        None
    }

    /// Returns whether changes are made later than their transactions commit. Then the log has them made before an epoch
    /// ends: see [`Protocol::make_whole`](super::Protocol::make_whole).
    fn defers(&self) -> bool {
        false
    }
}

impl<S: Default + Send + Sync + 'static> ProtocolShared for S {
    fn new(_options: &ProtocolOptions) -> Result<Self, Failure> {
        Ok(S::default())
    }
}
