//! Looks inside a [Weft](weft) database: where its transactions conflict, what that costs, and what to change.
//!
//! A database that is opened with [`InspectBuilder::inspect`] is observed. [`InspectDatabase::contention`] returns a
//! [`Report`], which has everything as plain data, is printed as text, and is JSON with [`Report::to_json`].
//!
//! ```
//! use weft::{Database, Error, Record, TransactionOptions};
//! use weft_inspect::{InspectBuilder, InspectDatabase};
//!
//! #[derive(Clone, Record)]
//! struct Page { #[record(key)] id: u32, views: u64 }
//!
//! let database = Database::builder().inspect().table::<Page>().open()?;
//! let pages = database.table::<Page>()?;
//! let options = TransactionOptions::new().label("publish");
//! database.transact_with(&options, |tx| tx.insert(&pages, Page { id: 1, views: 0 }))?;
//!
//! let report = database.contention()?;
//! assert_eq!(report.labels[0].label, "publish");
//! assert_eq!(report.labels[0].committed, 1);
//! println!("{report}");
//! # Ok::<(), Error>(())
//! ```
//!
//! # What it costs
//! A transaction that commits at its first attempt adds to three counters of its worker. About one transaction in 200 µs
//! of a worker is timed. A conflict costs two looks at the clock and an entry in a sketch of bounded size. A database that
//! is not observed pays for three tests of a word in each transaction.

mod advice;
mod collect;
#[cfg(feature = "tracing")]
mod events;
#[cfg(feature = "metrics")]
mod facade;
#[cfg(any(feature = "openmetrics", feature = "metrics"))]
mod families;
#[cfg(feature = "flight")]
mod flight;
mod labels;
mod observer;
#[cfg(feature = "openmetrics")]
pub mod openmetrics;
#[cfg(any(feature = "flight", feature = "metrics", feature = "tracing"))]
mod outlet;
#[cfg(any(feature = "serve", feature = "flight"))]
pub mod page;
mod render;
pub mod report;
#[cfg(feature = "serve")]
mod serve;
mod sketch;
#[cfg(feature = "tracing")]
mod slow;
#[cfg(any(feature = "serve", feature = "flight", feature = "metrics", feature = "tracing"))]
mod source;
mod totals;

use std::sync::Arc;

#[cfg(feature = "tracing")]
pub use events::trace_events;
#[cfg(feature = "metrics")]
pub use facade::{publish, publish_metrics};
#[cfg(any(feature = "openmetrics", feature = "metrics"))]
pub use families::metric_names;
#[cfg(feature = "flight")]
pub use flight::{Entry, FLIGHT_FILE, Flight, FlightOptions, FlightRecorder, PREVIOUS_FLIGHT_FILE};
use observer::Hub;
#[cfg(any(feature = "flight", feature = "metrics", feature = "tracing"))]
pub use outlet::Outlet;
pub use report::Report;
#[cfg(feature = "serve")]
pub use serve::{ServeOptions, Server, serve};
use weft::protocol::Protocol;
use weft::store::observer::Observer;
use weft::{Builder, Database, Failure};

/// The permission to use the engine's internals.
// SAFETY: they are used on a worker's own thread, in calls of an observer or outside a transaction, and the rules that
// the functions' documentation gives are followed.
const INSIDE: weft::commit::Unstable = unsafe { weft::commit::Unstable::new() };

/// Opens databases that are observed.
pub trait InspectBuilder {
    /// Observes the database from its opening on.
    fn inspect(self) -> Self;

    /// As [`inspect`](InspectBuilder::inspect), and keeps the transactions that take at least so long for
    /// [`trace_events`]. To find them, every transaction is timed, not only samples: that is two looks at the clock.
    #[cfg(feature = "tracing")]
    fn inspect_slow(self, after: std::time::Duration) -> Self;
}

impl<P: Protocol> InspectBuilder for Builder<P> {
    fn inspect(self) -> Self {
        self.protocol_options(observer(None))
    }

    #[cfg(feature = "tracing")]
    fn inspect_slow(self, after: std::time::Duration) -> Self {
        let slow: Arc<dyn Observer> = Arc::new(slow::SlowHub::new(observer(None), after));
        self.protocol_options(slow)
    }
}

/// Returns an observer for one database, which takes it as an option of its protocol. `clock` returns the time in
/// nanoseconds, for tests.
#[doc(hidden)]
pub fn observer(clock: Option<fn() -> u64>) -> Arc<dyn Observer> {
    Arc::new(Hub::new(clock))
}

/// Makes reports of a database.
pub trait InspectDatabase {
    /// Returns what is known of the database: its totals, what its transactions did by label, and the points at which
    /// they conflict. If the database is not observed, the report has only totals, and the points at which the protocol
    /// does something about contention.
    ///
    /// This takes some microseconds for each point, and does not hold up transactions. It runs code of the rows' types to
    /// print keys.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`] inside a transaction; [`Failure::Closed`]; [`Failure::Loading`].
    fn contention(&self) -> Result<Report, Failure>;
}

impl<P: Protocol> InspectDatabase for Database<P> {
    fn contention(&self) -> Result<Report, Failure> {
        collect::report(self)
    }
}
