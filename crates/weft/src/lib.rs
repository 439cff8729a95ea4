//! Weft: an in-memory, multicore, serializable transactional database.
#![warn(missing_docs)]

// `#[derive(Record)]` writes paths that start at `::weft`, in this crate's own tests too.
#[allow(unused_extern_crates)]
extern crate self as weft;

pub(crate) mod database;
pub mod encoding;
pub(crate) mod epoch;
mod error;
#[doc(hidden)]
pub mod index;
mod metrics;
mod prefetch;
pub mod protocol;
pub(crate) mod record;
pub mod schema;
pub(crate) mod table;
mod transaction;
pub(crate) mod worker;

pub use weft_htm as htm;
pub use weft_macros::Record;

pub use database::{Builder, Database, TransactionOptions, WORKERS_MAX_DEFAULT};
pub use error::{Conflict, ConflictReason, Error, Failure};
pub use metrics::{MemoryMetrics, Metrics};
pub use schema::{Index, Record, Violation};
pub use table::Table;
pub use transaction::{Scan, Transaction};
