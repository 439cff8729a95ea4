//! What a database is opened with that concerns its protocol.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Failure;
use crate::sync::gate::Gate;

/// Options of protocols, each found by its type: the engine does not know what other crates' protocols can be told.
#[derive(Clone, Default)]
pub struct GivenOptions(Vec<Arc<dyn Any + Send + Sync>>);

impl GivenOptions {
    /// Adds options. Of several of one type the last count.
    pub fn give<O: Any + Send + Sync>(&mut self, options: O) {
        self.0.push(Arc::new(options));
    }

    /// The options of a type, if any were given.
    pub fn get<O: Any>(&self) -> Option<&O> {
        self.0.iter().rev().find_map(|given| given.downcast_ref())
    }
}

impl fmt::Debug for GivenOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("GivenOptions").field(&self.0.len()).finish()
    }
}

/// What a protocol is told of the database that is being opened.
#[derive(Clone, Debug)]
pub struct ProtocolOptions {
    /// How many workers there may be at a time.
    pub workers_max: usize,
    /// Whether changes may be made later than their transactions commit: there is no log and no history, in which
    /// they would be missing.
    pub may_defer: bool,
    /// What the protocol's own options are found in.
    pub given: GivenOptions,
}

/// What a protocol keeps once per database.
pub trait ProtocolShared: Sized + Send + Sync + 'static {
    /// Makes it, for a database that is being opened.
    ///
    /// # Errors
    /// The protocol's own options contradict each other.
    fn new(options: &ProtocolOptions) -> Result<Self, Failure>;

    /// The gate that keeps procedures in pieces and all else apart, under a protocol that chops.
    fn gate(&self) -> Option<Arc<Gate>> {
        None
    }
}

impl<S: Default + Send + Sync + 'static> ProtocolShared for S {
    fn new(_options: &ProtocolOptions) -> Result<Self, Failure> {
        Ok(S::default())
    }
}
