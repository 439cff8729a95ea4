//! Looks inside a [Weft](weft) database: where its transactions conflict, what that costs, and what to change.
//!
//! ```
//! use weft::{Database, Record};
//! use weft_inspect::InspectDatabase;
//!
//! #[derive(Clone, Record)]
//! struct Page { #[record(key)] id: u32, views: u64 }
//!
//! let database = Database::builder().table::<Page>().open()?;
//! let report = database.contention()?;
//! assert_eq!(report.totals.committed, 0);
//! # Ok::<(), weft::Failure>(())
//! ```

#[cfg(feature = "tracing")]
mod events;
#[cfg(feature = "metrics")]
mod facade;
#[cfg(any(feature = "serve", feature = "metrics"))]
mod families;
#[cfg(feature = "flight")]
mod flight;
#[cfg(any(feature = "flight", feature = "metrics", feature = "tracing"))]
mod outlet;
#[cfg(any(feature = "serve", feature = "flight"))]
pub mod page;
pub mod report;
#[cfg(feature = "serve")]
mod serve;
#[cfg(any(feature = "serve", feature = "flight", feature = "metrics", feature = "tracing"))]
mod source;
mod totals;

use std::time::SystemTime;

#[cfg(feature = "tracing")]
pub use events::trace_events;
#[cfg(feature = "metrics")]
pub use facade::{publish, publish_metrics};
#[cfg(any(feature = "serve", feature = "metrics"))]
pub use families::metric_names;
#[cfg(feature = "flight")]
pub use flight::{Entry, FLIGHT_FILE, Flight, FlightOptions, FlightRecorder, PREVIOUS_FLIGHT_FILE};
#[cfg(any(feature = "flight", feature = "metrics", feature = "tracing"))]
pub use outlet::Outlet;
pub use report::Report;
#[cfg(feature = "serve")]
pub use serve::{ServeOptions, Server, serve};
use weft::protocol::Protocol;
use weft::{Database, Failure};

/// Makes reports of a database.
pub trait InspectDatabase {
    /// Returns what is known of the database: its totals, what its transactions did by label, and the points at which
    /// they conflict.
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`] inside a transaction; [`Failure::Closed`].
    fn contention(&self) -> Result<Report, Failure>;
}

impl<P: Protocol> InspectDatabase for Database<P> {
    fn contention(&self) -> Result<Report, Failure> {
        let taken = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Report {
            taken_unix_ms: taken.map_or(0, |time| totals::nanoseconds(time) / 1_000_000),
            protocol: P::NAME.to_owned(),
            totals: report::Totals::of(&self.metrics()),
            ..Report::default()
        })
    }
}
