//! The work of a reconciliation (§5.3), divided among the workers that wait for it.
//!
//! The worker that changes the phase offers the split records. It and every worker that waits for the next phase take
//! one record after the other, and merge its slices. So no worker is needed, and none that is there stands idle.
//!
//! ```text
//!   worker that changes the phase              worker that waits
//!     offer n records
//!     take one, merge it, …                    take one, merge it, …
//!     close: no record is taken any more
//!     wait until all that were taken are done
//!     next phase
//! ```
//!
//! A record is taken by a compare-exchange of one word, which has the number of the offer. So a worker that was
//! late takes nothing of a later offer by mistake.

use weft_htm::word::{Ordering, Word, yield_now};

use super::splits::SPLITS_MAX;

/// The bits of a number of records.
const COUNT_BITS: u32 = 8;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!(SPLITS_MAX < COUNT as usize);

/// The work that is offered.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct MergeWork {
    /// The number of the offer, how many records there are, and how many of them were taken.
    offer: Word,
    /// How many records that were taken are done, and how many of these were not merged to the end.
    done: Word,
    failed: Word,
}

/// An offer of the worker that changes the phase. When it is dropped, no record is taken any more, and no worker works
/// on one.
#[derive(Debug)]
pub struct Offer<'a>(&'a MergeWork);

/// A record that a worker has taken. It belongs to this worker alone until the value is dropped.
#[derive(Debug)]
pub struct TakenRecord<'a> {
    work: &'a MergeWork,
    /// Its position among the records.
    pub position: usize,
    is_merged: bool,
}

impl MergeWork {
    /// Offers this many records. Only the worker that changes the phase may do so, when no worker is in a transaction.
    pub fn offer(&self, records: usize) -> Offer<'_> {
        // Relaxed: no record is taken before the offer is there.
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        let number = (self.offer.load(Ordering::Relaxed) >> (2 * COUNT_BITS)) + 1;
        let offer = number << (2 * COUNT_BITS) | (records as u64) << COUNT_BITS;
        // Release: pairs with the acquire in `take`. What the transactions of all workers did to their slices happened
        // before this worker saw that they had ended.
        self.offer.store(offer, Ordering::Release);
        Offer(self)
    }

    /// Takes a record, if one is left.
    pub fn take(&self) -> Option<TakenRecord<'_>> {
        loop {
            let offer = self.offer.load(Ordering::Acquire);
            let (records, taken) = (offer >> COUNT_BITS & COUNT, offer & COUNT);
            if taken >= records {
                return None;
            }
            let take =
                self.offer.compare_exchange(offer, offer + 1, Ordering::Acquire, Ordering::Relaxed);
            if take.is_ok() {
                return Some(TakenRecord {
                    work: self,
                    position: taken as usize,
                    is_merged: false,
                });
            }
        }
    }
}

impl Offer<'_> {
    /// Waits until all records that were taken are done. Returns whether all of them were merged.
    pub fn close(self) -> bool {
        let work = self.0;
        drop(self);
        work.failed.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        let mut offer = self.0.offer.load(Ordering::Relaxed);
        // No record is left.
        while let Err(now) = self.0.offer.compare_exchange(
            offer,
            offer & !(COUNT << COUNT_BITS),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            offer = now;
        }
        // Acquire: pairs with the release of each worker that has merged a record.
        while self.0.done.load(Ordering::Acquire) < offer & COUNT {
            yield_now();
        }
    }
}

impl TakenRecord<'_> {
    /// Says that the record was merged.
    pub fn merged(mut self) {
        self.is_merged = true;
    }
}

impl Drop for TakenRecord<'_> {
    fn drop(&mut self) {
        if !self.is_merged {
            self.work.failed.store(1, Ordering::Relaxed);
        }
        // Release: pairs with the acquire of the worker that changes the phase.
        self.work.done.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_record_is_taken_once() {
        let work = MergeWork::default();
        assert!(work.take().is_none(), "nothing was offered");
        for records in [3, 0, SPLITS_MAX] {
            let offer = work.offer(records);
            let positions: Vec<usize> = std::iter::from_fn(|| {
                let taken = work.take()?;
                let position = taken.position;
                taken.merged();
                Some(position)
            })
            .collect();
            assert_eq!(positions, (0..records).collect::<Vec<_>>());
            assert!(offer.close());
            assert!(work.take().is_none());
        }
    }

    #[test]
    fn record_that_was_not_merged_to_the_end_is_reported() {
        let work = MergeWork::default();
        let offer = work.offer(2);
        work.take().expect("there are two").merged();
        drop(work.take().expect("there is another"));
        assert!(!offer.close());
        let offer = work.offer(1);
        work.take().expect("there is one").merged();
        assert!(offer.close(), "an offer knows nothing of those before it");
    }

    #[test]
    fn nothing_is_taken_of_an_offer_that_was_dropped() {
        let work = MergeWork::default();
        drop(work.offer(2));
        assert!(work.take().is_none());
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft-protocols --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// Each record of two offers is merged once, by one of two workers, and the worker that has made the offer sees it,
    /// and uses the records alone again. Loom's cell reports any two accesses that are not ordered.
    #[test]
    fn loom_merging_workers_never_share_a_record() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(3));
        model.check(|| {
            let work = Arc::new(MergeWork::default());
            let records: Arc<[UnsafeCell<u32>; 2]> = Arc::new(Default::default());
            let helper = {
                let (work, records) = (Arc::clone(&work), Arc::clone(&records));
                thread::spawn(move || {
                    for _ in 0..2 {
                        merge(&work, &records);
                    }
                })
            };
            for round in 1..=2 {
                let offer = work.offer(2);
                while merge(&work, &records) {}
                assert!(offer.close());
                for record in &*records {
                    // SAFETY: all that were taken are done; the test checks that this is enough.
                    record.with_mut(|record| unsafe { assert_eq!(*record, round) });
                }
            }
            helper.join().unwrap();
        });
    }

    fn merge(work: &MergeWork, records: &[UnsafeCell<u32>; 2]) -> bool {
        let Some(taken) = work.take() else { return false };
        // SAFETY: the record was taken; the test checks that this is enough.
        records[taken.position].with_mut(|record| unsafe { *record += 1 });
        taken.merged();
        true
    }
}
