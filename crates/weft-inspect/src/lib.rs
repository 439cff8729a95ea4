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

pub mod report;
mod totals;

use std::time::SystemTime;

pub use report::Report;
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
