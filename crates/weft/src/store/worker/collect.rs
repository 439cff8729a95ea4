//! Collection: what a worker retires, and how it frees that after a grace period.
//!
//! The steps for a deleted record (DBX §5.5, Figure 4): its deletion [queues](WorkerMemory::retire_deleted) it. A
//! [collection](WorkerMemory::collect) unlinks it from its index, and frees it after a grace period.
//!
//! In the paper the record waits for a grace period before it is unlinked, too. That is not needed if the protocol marks
//! it as removed under its lock ([`Protocol::UNLINKS_AT_ONCE`](crate::protocol::Protocol::UNLINKS_AT_ONCE)): a
//! transaction that has its address sees the mark, and looks the key up again. A grace period lasts as long as the
//! longest transaction under way. If threads outnumber cores, that is one whose thread has lost its core, and in some
//! ten milliseconds a queue deletes ten thousand rows, which every scan from its head would pass over. Still the
//! record waits for longer if a snapshot needs it, if the log orders its key's versions by it
//! ([`WorkerMemory::may_begin_again`]), or if another worker's commit has not done all its work there.

use std::ptr::NonNull;
use std::sync::PoisonError;

use weft_htm::word::{Ordering, yield_now};

use super::{DiscardedValue, WorkerMemory};
use crate::row::encoding::EncodedKey;
use crate::store::garbage::{Batch, DeletedRecord, PASSED_OVER_BYTES, RetiredItem};
use crate::store::record::DeletedOutcome;
use crate::store::record::arena::free_huge;
use crate::store::record::newest;
use crate::store::record::tid::Tid;
use crate::store::record::version::VersionHeader;
use crate::store::retention::{NONE_OPEN, RetainedEntry};
use crate::store::table::TableRef;
use crate::sync::clock::epoch_of;

impl WorkerMemory {
    /// Retires a row that another version has replaced, in the record in block `record`, of `table`.
    ///
    /// # Safety
    /// The worker is pinned. The caller owns the version, and nothing leads to it any more.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn retire_row(
        &self,
        table: TableRef,
        record: NonNull<u8>,
        row: NonNull<u8>,
        inline: bool,
    ) {
        let core = table.core();
        if !inline {
            self.garbage().push_row(row, table, core.row_class.bytes());
        } else if core.moves_rows() {
            // SAFETY: by the contract.
            unsafe { VersionHeader::of(row) }.await_slot();
            self.push_slot(table, record);
        }
    }

    pub(super) fn push_slot(&self, table: TableRef, record: NonNull<u8>) {
        self.garbage().push(RetiredItem::InlineSlot(record, table), table.core().row_class.bytes());
    }

    /// Queues a deleted record, to be unlinked. Not inlined, so that commits that delete nothing do not pay for it.
    #[inline(never)]
    pub fn retire_deleted(&self, record: NonNull<u8>, table: TableRef, key: EncodedKey) {
        let core = table.core();
        let bytes = match core.is_passed_over(self.shared.clock.epoch()) {
            true => PASSED_OVER_BYTES,
            false => core.record_class.bytes(),
        };
        let deleted = DeletedRecord { record, table, key };
        match core.records.unlinks_at_once {
            true => self.garbage().push_deleted(deleted, bytes),
            false => self.garbage().push(RetiredItem::Deleted(Box::new(deleted)), bytes),
        }
    }

    /// Queues a deleted record, to be unlinked after a grace period.
    fn retire_for_longer(&self, deleted: DeletedRecord) {
        let bytes = deleted.table.core().record_class.bytes();
        self.garbage().push(RetiredItem::Deleted(Box::new(deleted)), bytes);
    }

    // ---- versions of new records --------------------------------------------------------------

    /// Fixes the version after which the versions of this transaction's placeholders begin. Called when the worker has
    /// been pinned.
    ///
    /// If commits are logged, the versions of a key have to grow within an epoch, also when its record leaves the index
    /// and another one comes. So a record that was deleted in this epoch may leave only if new records begin with a
    /// greater version. A worker that wants to unlink such a record raises [`SharedState::versions_begin`] before it
    /// seals the batch in which the record waits. After the batch's grace period all transactions have been pinned after
    /// that, and their placeholders begin after the version of the deleted record.
    #[inline(always)]
    pub fn begin_versions(&self) {
        // Relaxed: the pin orders it. (The word is raised before the release with which the batch is sealed.)
        self.versions_begin.set(self.shared.versions_begin.load_relaxed().number());
    }

    /// Returns the version after which the versions of this transaction's placeholders begin.
    #[inline(always)]
    pub fn versions_begin(&self) -> u64 {
        self.versions_begin.get()
    }

    /// Returns whether a record with this version may leave its index now, because a record that takes its place has a
    /// greater one. If not, a later batch can take it.
    pub fn may_begin_again(&self, version: u64) -> bool {
        /// So many writes of deleted records later the word is raised again.
        const WRITES_AHEAD: u64 = 64;
        if epoch_of(version) < self.shared.clock.epoch() || version <= self.batch_begins.get() {
            return true;
        }
        let wanted = Tid::after_writes(version, WRITES_AHEAD);
        self.begin_wanted.set(self.begin_wanted.get().later(wanted));
        false
    }

    /// Seals the open batch of garbage, if it holds anything.
    pub(super) fn seal_garbage(&self) {
        let (shared, wanted) = (&self.shared, self.begin_wanted.replace(Tid::at(0)));
        self.garbage().seal(|| {
            // The seal is a release, and workers that are pinned later acquire it.
            shared.versions_begin.raise(wanted);
            (shared.grace.seal(), shared.versions_begin.load_relaxed().number())
        });
    }

    /// Retires an unlinked record, together with the row that it may still hold.
    pub fn retire_record(&self, record: NonNull<u8>, table: TableRef) {
        self.garbage().push(RetiredItem::Record(record, table), table.core().record_class.bytes());
    }

    /// Seals the open batch of garbage, and frees the batches whose grace period has passed. Called only
    /// between transactions.
    #[cold]
    #[inline(never)]
    pub fn collect(&self) {
        let grace = &self.shared.grace;
        self.adopt_orphans();
        grace.pin(self.slot);
        self.shared.recent.close_if_old(self.shared.clock.epoch(), &self.shared.retention);
        self.take_over_idle();
        self.hand_over_retained();
        self.release_retained();
        if self.shared.retention.oldest() != NONE_OPEN {
            // For all deleted records. Their deletions have committed already, so one list suffices.
            self.list_open_snapshots();
        }
        while let Some(deleted) = self.garbage().pop_deleted() {
            // SAFETY: a commit of this worker, or the end of a snapshot that needed the record, has put it on this list
            // alone, and the protocol unlinks at once.
            unsafe { self.settle_deleted(deleted) };
        }
        grace.unpin(self.slot);
        self.seal_garbage();
        let horizon = grace.horizon();
        while let Some(batch) = self.garbage().take_ripe(horizon) {
            // Unlinking reads index nodes, so the worker must be pinned.
            grace.pin(self.slot);
            self.batch_begins.set(batch.versions_begin);
            let mut retired = batch.retired;
            for entry in retired.drain(..) {
                // SAFETY: the batch's grace period has passed.
                unsafe { self.release(entry) };
            }
            // SAFETY: the worker has been pinned since before the batch was released.
            unsafe { self.leave_places() };
            grace.unpin(self.slot);
            self.garbage().recycle(retired);
        }
        let pending = self.garbage().pending() as u64;
        self.counters().retired_pending.store(pending, Ordering::Relaxed);
    }

    /// # Safety
    /// A grace period has passed since `entry` was retired.
    unsafe fn release(&self, entry: RetiredItem) {
        // SAFETY: by the contract no thread can reach what was unlinked. A deleted record that has yet to be
        // unlinked is on this list only.
        unsafe {
            match entry {
                RetiredItem::Block(block, class) => self.free_block(block, class),
                RetiredItem::Large(block, layout) => {
                    self.shared.memory.report_mapped(-(layout.size() as i64));
                    free_huge(block, *layout);
                }
                RetiredItem::Row(row, table) => self.drop_row(row, table, false),
                RetiredItem::InlineSlot(record, table) => self.move_inline(table, record),
                RetiredItem::Deleted(deleted) => self.settle_deleted(*deleted),
                RetiredItem::Record(record, table) => {
                    table.drop_newest(record, self);
                    self.free_record(record, table);
                }
            }
        }
    }

    /// Unlinks a deleted record, unless it has a row again or must stay in its index for longer.
    ///
    /// # Safety
    /// The record was on this worker's list of deleted records, and the worker is pinned. A grace period has passed since
    /// the record was put there, or the protocol [unlinks at once](crate::protocol::Protocol::UNLINKS_AT_ONCE).
    unsafe fn settle_deleted(&self, deleted: DeletedRecord) {
        let DeletedRecord { record, table, .. } = deleted;
        // SAFETY: the record is on no other list, so no other worker frees it. Rows that are reached from it
        // are not freed while this worker is pinned.
        unsafe {
            if let Some(row) = newest(record)
                && let Some(deletion) = VersionHeader::of(row).deletion()
            {
                let end = deletion.as_ref().number;
                // If a snapshot may still read the deleted row, or an older one, keep the record for it.
                if self.shared.retention.oldest() < end {
                    let key = deleted.key.clone();
                    let entry = RetainedEntry::deleted_record(key, record, table, end);
                    let retention = &self.shared.retention;
                    let may_rest = !retention.has_released();
                    let needed_by = entry.needed_by(
                        self.open_snapshots.borrow().numbers(),
                        may_rest,
                        &retention.chains,
                    );
                    if needed_by.is_some() {
                        self.retain(entry);
                        return;
                    }
                }
            }
            match table.settle_deleted(record, &deleted.key, self) {
                DeletedOutcome::Unlinked => self.retire_record(record, table),
                DeletedOutcome::Kept => {}
                DeletedOutcome::Busy => self.retire_for_longer(deleted),
            }
        }
    }

    /// Takes over some of the batches that were left as orphans, by workers that have left or from idle ones.
    fn adopt_orphans(&self) {
        /// The most batches to take over at a time.
        const ADOPTED: usize = 4;
        // Relaxed: it makes no difference whether they are adopted now or later.
        if self.shared.orphan_batches.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut orphans = self.shared.orphans.lock().unwrap_or_else(PoisonError::into_inner);
        let adopted = orphans.len().min(ADOPTED);
        // Stored under the lock; otherwise batches that are being left at this moment would not be counted.
        let left = (orphans.len() - adopted) as u64;
        self.shared.orphan_batches.store(left, Ordering::Relaxed);
        self.garbage().adopt(orphans.drain(..adopted));
    }

    /// Frees what can be freed, and leaves the rest to the other workers. For a worker that is not needed for now.
    pub fn leave(&self) {
        self.collect();
        // Also hand over what is kept for snapshots; `collect` may have added deleted records to it.
        self.shared.grace.pin(self.slot);
        loop {
            self.hand_over_retained();
            if self.retained.borrow().is_empty() {
                break;
            }
            // Some version has no number yet: another worker is about to set it.
            yield_now();
        }
        self.shared.grace.unpin(self.slot);
        self.seal_garbage();
        self.shared.leave_orphans(self.garbage().take_sealed());
        self.counters().retired_pending.store(0, Ordering::Relaxed);
        // This runs the user's code. The worker is claimed, and runs no transaction.
        self.run_discarded();
        self.arena().give_up(&self.shared.memory);
    }

    /// Leaves all garbage to other workers, and also what waits to be dropped. For a worker that runs on threads which
    /// must not run the user's code. The worker must be pinned.
    pub fn hand_over_garbage(&self) {
        for value in self.take_discarded() {
            match value {
                DiscardedValue::Row(row, table) => {
                    let bytes = table.core().row_class.bytes();
                    self.garbage().push(RetiredItem::Row(row, table), bytes);
                }
                value => self.discard(value),
            }
        }
        self.hand_over_retained();
        self.seal_garbage();
        self.shared.leave_orphans(self.garbage().take_sealed());
        self.counters().retired_pending.store(0, Ordering::Relaxed);
    }

    /// Takes what is kept for snapshots. Called when the database is dropped.
    pub fn take_retained(&self) -> Vec<RetainedEntry> {
        self.retained.take()
    }

    /// Takes all garbage. Called when the database is dropped.
    pub fn take_garbage(&self) -> Vec<Batch> {
        self.garbage().seal(|| (0, 0));
        self.garbage().take_sealed()
    }
}

#[cfg(all(test, not(any(loom, shuttle, weft_sim))))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use crate::commit::{Dbx, Protocol, Silo, TwoPhaseLocking};
    use crate::row::encoding::EncodedKey;
    use crate::{Database, Error, Record, Table, Transaction};

    #[derive(Clone, Copy, Debug, PartialEq, Record)]
    struct Entry {
        #[record(key)]
        number: u64,
        value: u64,
    }

    const ENTRIES: u64 = 1_000;

    struct Queue<P: Protocol> {
        database: Database<P>,
        entries: Table<Entry>,
    }

    impl<P: Protocol> Queue<P> {
        fn new() -> Self {
            let database =
                Database::builder().protocol::<P>().table::<Entry>().open().expect("opens");
            let entries = database.table().expect("it is declared");
            let queue = Queue { database, entries };
            queue.transact(|tx| {
                let entry = |number| tx.insert(&queue.entries, Entry { number, value: 0 });
                (0..ENTRIES).try_for_each(entry)
            });
            queue
        }

        fn transact<R>(&self, work: impl Fn(&Transaction<'_, P>) -> Result<R, Error>) -> R {
            self.database.transact(work).expect("commits")
        }

        /// Deletes all entries but the last, from the head on.
        fn consume(&self) {
            for number in 0..ENTRIES - 1 {
                self.transact(|tx| {
                    let head = tx.range(&self.entries, ..).next().expect("there is one")?.number;
                    assert_eq!(head, number);
                    tx.delete(&self.entries, &head)
                });
            }
        }

        /// Returns how many records the index has.
        fn records_in_index(&self) -> usize {
            let reference = self.entries.inner.reference();
            // SAFETY: the worker is pinned by the transaction.
            let is_there =
                |&number: &u64| unsafe { reference.find(&EncodedKey::Words1(number)) }.is_some();
            self.transact(|_| Ok((0..ENTRIES).filter(is_there).count()))
        }

        /// Runs `work` while another thread is in the middle of a transaction, which then commits.
        fn beside_a_transaction(&self, work: impl FnOnce()) {
            let (begun, over) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    self.transact(|_| {
                        begun.wait();
                        over.wait();
                        Ok(())
                    });
                });
                begun.wait();
                work();
                over.wait();
            });
        }
    }

    fn left_beside_a_transaction<P: Protocol>() -> usize {
        let queue = Queue::<P>::new();
        let mut left = 0;
        queue.beside_a_transaction(|| {
            queue.consume();
            left = queue.records_in_index();
        });
        left
    }

    /// Fault: a transaction whose thread had lost its core kept every record in its index that others deleted, and
    /// each scan from the head of a queue passed over all of them.
    #[test]
    fn deleted_records_leave_their_index_beside_a_transaction_that_lasts() {
        let few = 64;
        for left in [
            left_beside_a_transaction::<Dbx>(),
            left_beside_a_transaction::<Silo>(),
            left_beside_a_transaction::<TwoPhaseLocking>(),
        ] {
            assert!(left <= few, "{left} of {ENTRIES} records are in the index");
        }
    }

    /// A snapshot that was opened before the deletions still finds all rows.
    #[test]
    fn deleted_records_stay_for_the_snapshots_that_see_them() {
        let queue = Queue::<Dbx>::new();
        let snapshot = queue.database.open_snapshot().expect("opens");
        queue.beside_a_transaction(|| queue.consume());
        assert_eq!(queue.records_in_index() as u64, ENTRIES);
        assert_eq!(snapshot.rows(&queue.entries).count() as u64, ENTRIES);
    }

    /// A transaction has the address of a record that leaves the index before it writes there.
    #[test]
    fn transactions_that_have_found_a_record_notice_that_it_was_removed() {
        fn test<P: Protocol>() {
            let queue = Queue::<P>::new();
            let (found, consumed) = (Barrier::new(2), Barrier::new(2));
            let attempts = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut attempts = 0;
                    let result = queue.database.transact(|tx| -> Result<_, Error> {
                        attempts += 1;
                        let before = tx.get(&queue.entries, &0)?.copied();
                        if attempts == 1 {
                            found.wait();
                            consumed.wait();
                        }
                        tx.upsert(&queue.entries, Entry { number: 0, value: 7 })?;
                        Ok(before)
                    });
                    (attempts, result.expect("commits"))
                });
                found.wait();
                queue.consume();
                let in_index = queue.records_in_index();
                // The same key, in a new record.
                queue.transact(|tx| tx.insert(&queue.entries, Entry { number: 0, value: 5 }));
                consumed.wait();
                let (attempts, before) = writer.join().expect("does not panic");
                assert_eq!(before, Some(Entry { number: 0, value: 5 }), "it saw the new row");
                (attempts, in_index)
            });
            assert!(attempts.0 > 1 && attempts.1 < ENTRIES as usize, "{attempts:?}");
            let row = queue.transact(|tx| Ok(tx.get(&queue.entries, &0)?.copied()));
            assert_eq!(row, Some(Entry { number: 0, value: 7 }));
        }
        test::<Dbx>();
        test::<Silo>();
    }
}
