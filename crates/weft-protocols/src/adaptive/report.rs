//! The report of what is done about contention.

use std::time::Duration;

use weft::store::record::newest;
use weft::store::worker::PinnedWorker;
use weft::{Database, Failure, TransactionOptions};

use super::Adaptive;
use crate::INSIDE;

/// The action that the protocol takes at a contention point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentionAction {
    /// Transactions queue for it.
    Order,
    /// Operations on it go to slices of the workers.
    Split,
    /// Order is being tried.
    Trial,
}

/// A contention point: a record or a range about which transactions have had conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentionPoint {
    /// The name of the table.
    pub table: &'static str,
    /// The name of the secondary index, if it is a range of one.
    pub index: Option<&'static str>,
    /// The key of the record, or `None` for a range.
    pub key: Option<String>,
    /// The action that the protocol takes there.
    pub action: ContentionAction,
    /// For how long this has been done.
    pub lasted: Duration,
}

/// Shows what is done about contention, in a database under the protocol `adaptive`.
pub trait AdaptiveDatabase {
    /// Returns the points at which something is done about contention, what is done there, and for how long.
    ///
    /// ```
    /// use weft::{Database, Record};
    /// use weft_protocols::{Adaptive, AdaptiveDatabase};
    ///
    /// # #[derive(Clone, Record)]
    /// # struct Page { #[record(key)] id: u32, likes: u64 }
    /// let database = Database::builder().protocol::<Adaptive>().table::<Page>().open()?;
    /// for point in database.contention()? {
    ///     println!("{} {:?}: {:?} for {:?}", point.table, point.key, point.action, point.lasted);
    /// }
    /// # Ok::<(), weft::Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`Failure::NestedTransaction`]; [`Failure::Closed`].
    fn contention(&self) -> Result<Vec<ContentionPoint>, Failure>;
}

impl AdaptiveDatabase for Database<Adaptive> {
    fn contention(&self) -> Result<Vec<ContentionPoint>, Failure> {
        let claim = self.claim_worker(&TransactionOptions::new(), INSIDE)?;
        let worker = claim.worker();
        if worker.active.get() {
            return Err(Failure::NestedTransaction);
        }
        let engine = self.open_engine(INSIDE);
        engine.shared.check_open()?;
        let shared = &engine.protocol;
        let ordered = shared.joined().points.report().into_iter().map(|(place, done, since)| {
            let action = if done { ContentionAction::Order } else { ContentionAction::Trial };
            (place.table, place.key, action, since)
        });
        let split = shared.split_records().into_iter();
        let split =
            split.map(|(table, key, since)| (table, Some(key), ContentionAction::Split, since));
        let now = shared.now();
        let _pinned = PinnedWorker::new(worker);
        let points = ordered.chain(split).map(|(table, key, action, since)| {
            let core = table.core();
            // SAFETY: the worker is pinned.
            let record = key.as_ref().and_then(|key| unsafe { table.find(key) });
            // SAFETY: the table's own index holds addresses of its records, and the worker is pinned.
            let row = record.and_then(|record| unsafe { newest(record) });
            // This runs the user's code, whose operations are refused.
            let key = row.map(|row| {
                // SAFETY: the row is one of the table's, and is not freed while the worker is pinned.
                worker.memory.in_user_code(|| unsafe { (core.format_key)(row) })
            });
            let lasted = Duration::from_nanos(now.saturating_sub(since));
            ContentionPoint { table: core.name, index: core.index, key, action, lasted }
        });
        Ok(points.collect())
    }
}
