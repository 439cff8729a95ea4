//! The options of [`DbxPaper`](super::DbxPaper): a switch for each mechanism of the paper.

use weft_htm::RetryPolicy;

/// The number of aborts of any cause after which the paper's simple handler takes the lock (§7.5, "+RTM").
const RETRIES_OF_SIMPLE_HANDLER: u32 = 100;

/// Options of [`DbxPaper`](super::DbxPaper). By default all mechanisms of the paper are on, and the spinlock is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DbxPaperOptions {
    /// Whether a record is read in a region of its own (Algorithm 2). Otherwise it is read under a seqlock.
    pub reads_in_regions: bool,
    /// Whether each look-up in an index is a region of its own (§4). Otherwise it validates the nodes that it reads.
    pub look_ups_in_regions: bool,
    /// Whether a look-up of an absent key puts an empty record into the index (§5.3). Otherwise the version of the
    /// index node is noted.
    pub absent_records: bool,
    /// Whether regions fall back to one lock for the whole database (§5.2). Otherwise they fall back to the locks of
    /// the records.
    pub global_fallback: bool,
    /// Whether a region's patience depends on the cause of its aborts: 100 conflicts, 10 times too large, 2 system
    /// events (§6.1). Otherwise it falls back after 100 aborts of any one cause.
    pub thresholds_by_cause: bool,
    /// Whether the versions for read-only transactions are made in the commit's region (lines 18–22 of Algorithm 1).
    /// Otherwise they are numbered after it.
    pub versions_in_region: bool,
    /// Whether a spinlock replaces the regions of the transaction layer: the paper's counterpart (§7.3.2). The
    /// indexes keep their regions.
    pub spinlock: bool,
    /// The flaw that is planted.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub flaw: Option<PaperFlaw>,
}

/// Flaws that are made on purpose, one for each mechanism, for tests that have to find them.
#[cfg(feature = "canary")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaperFlaw {
    /// A record is read without its region, and without the lock to which the region falls back.
    UnprotectedReads,
    /// Reads of records that have no row are not validated.
    AbsenceNotValidated,
    /// A commit that falls back does not take the lock.
    LockNotTaken,
    /// The number of the new versions is drawn before the commit's region, or its lock.
    NumberedTooEarly,
}

impl Default for DbxPaperOptions {
    fn default() -> Self {
        DbxPaperOptions {
            reads_in_regions: true,
            look_ups_in_regions: true,
            absent_records: true,
            global_fallback: true,
            thresholds_by_cause: true,
            versions_in_region: true,
            ..Self::none()
        }
    }
}

impl DbxPaperOptions {
    /// Returns the default options: all mechanisms of the paper.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns options without any mechanism of the paper.
    pub fn none() -> Self {
        DbxPaperOptions {
            reads_in_regions: false,
            look_ups_in_regions: false,
            absent_records: false,
            global_fallback: false,
            thresholds_by_cause: false,
            versions_in_region: false,
            spinlock: false,
            #[cfg(feature = "canary")]
            flaw: None,
        }
    }

    /// Sets [`DbxPaperOptions::reads_in_regions`].
    pub fn reads_in_regions(self, reads_in_regions: bool) -> Self {
        DbxPaperOptions { reads_in_regions, ..self }
    }

    /// Sets [`DbxPaperOptions::look_ups_in_regions`].
    pub fn look_ups_in_regions(self, look_ups_in_regions: bool) -> Self {
        DbxPaperOptions { look_ups_in_regions, ..self }
    }

    /// Sets [`DbxPaperOptions::absent_records`].
    pub fn absent_records(self, absent_records: bool) -> Self {
        DbxPaperOptions { absent_records, ..self }
    }

    /// Sets [`DbxPaperOptions::global_fallback`].
    pub fn global_fallback(self, global_fallback: bool) -> Self {
        DbxPaperOptions { global_fallback, ..self }
    }

    /// Sets [`DbxPaperOptions::thresholds_by_cause`].
    pub fn thresholds_by_cause(self, thresholds_by_cause: bool) -> Self {
        DbxPaperOptions { thresholds_by_cause, ..self }
    }

    /// Sets [`DbxPaperOptions::versions_in_region`].
    pub fn versions_in_region(self, versions_in_region: bool) -> Self {
        DbxPaperOptions { versions_in_region, ..self }
    }

    /// Sets [`DbxPaperOptions::spinlock`].
    pub fn spinlock(self, spinlock: bool) -> Self {
        DbxPaperOptions { spinlock, ..self }
    }

    /// Plants a flaw.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub fn flawed(self, flaw: PaperFlaw) -> Self {
        DbxPaperOptions { flaw: Some(flaw), ..self }
    }

    /// Returns the retry policy of the database's regions (§6.1).
    pub fn retry_policy(self) -> RetryPolicy {
        let (conflict, capacity, system_event) = match self.thresholds_by_cause {
            true => (100, 10, 2),
            false => {
                (RETRIES_OF_SIMPLE_HANDLER, RETRIES_OF_SIMPLE_HANDLER, RETRIES_OF_SIMPLE_HANDLER)
            }
        };
        RetryPolicy { conflict, capacity, system_event }
    }

    /// Returns whether readers and commits exclude each other by the one lock.
    pub(super) fn has_commit_lock(&self) -> bool {
        self.global_fallback || self.spinlock
    }

    /// Returns whether this flaw is planted.
    #[cfg(feature = "canary")]
    pub(super) fn has_flaw(&self, flaw: PaperFlaw) -> bool {
        self.flaw == Some(flaw)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_the_papers() {
        let by_cause = DbxPaperOptions::new().retry_policy();
        assert_eq!((by_cause.conflict, by_cause.capacity, by_cause.system_event), (100, 10, 2));
        let simple = DbxPaperOptions::none().retry_policy();
        assert_eq!((simple.conflict, simple.capacity, simple.system_event), (100, 100, 100));
    }
}
