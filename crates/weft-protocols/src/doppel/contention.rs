//! The sketch that every worker keeps of its conflicts: which records are contended, and by which operations.
//! What to split is decided from these sketches (Doppel, §5.5).
//!
//! A worker cannot keep a count for every record. It has a few entries. A record without an entry takes the
//! place of the entry with the fewest conflicts, and takes over its count (the *Space-Saving* sketch of
//! Metwally, Agrawal and El Abbadi, ICDT 2005). So the most contended records are in the sketch, and each count
//! is too high by the smallest count at most.
//!
//! The record may have been deleted when the sketch is evaluated. So an entry holds the key, under which the
//! record is looked up again.

use std::ptr::NonNull;

use smallvec::SmallVec;
use weft::commit::Abort;
use weft::encoding::EncodedKey;
use weft::operation::ColumnOperation;
use weft::store::table::TableRef;
use weft::store::worker::WorkerMemory;

/// The number of entries of a sketch.
const ENTRIES: usize = 16;

/// A record about which transactions have had conflicts.
pub struct ContendedRecord {
    /// The record's block, if the record still exists.
    pub record: NonNull<u8>,
    pub table: TableRef,
    pub key: EncodedKey,
    pub conflicts: u64,
    /// How many of them the record has taken over with another record's place in the sketch.
    inherited: u64,
    /// The operations that these transactions had applied to the record, and how often.
    pub operations: SmallVec<[(ColumnOperation, u64); 4]>,
}

impl ContendedRecord {
    /// Returns an entry without conflicts. Its key is that of `row`. This runs the user's code.
    ///
    /// # Safety
    /// `row` is a row of the record, of `table`, and is not freed during the call.
    pub unsafe fn new(
        record: NonNull<u8>,
        table: TableRef,
        row: NonNull<u8>,
        memory: &WorkerMemory,
    ) -> ContendedRecord {
        // SAFETY: by the contract.
        let key = memory.in_user_code(|| unsafe { table.core().index_key(row) });
        ContendedRecord::of(record, table, key)
    }

    /// Returns an entry without conflicts for a record whose key is known.
    pub fn of(record: NonNull<u8>, table: TableRef, key: EncodedKey) -> ContendedRecord {
        ContendedRecord {
            record,
            table,
            key,
            conflicts: 0,
            inherited: 0,
            operations: SmallVec::new(),
        }
    }

    /// Returns the conflicts of the operation that occurs most often.
    pub fn splittable(&self) -> u64 {
        self.operations.iter().map(|(_, conflicts)| *conflicts).max().unwrap_or_default()
    }

    /// Whether most conflicts are about one operation. Those that were taken over from another record say nothing about it.
    pub fn is_mostly_splittable(&self) -> bool {
        self.splittable() * 2 >= self.conflicts - self.inherited
    }

    /// Looks up the record under the key.
    pub fn find(&self) -> Option<NonNull<u8>> {
        // SAFETY: only workers that are pinned evaluate sketches.
        unsafe { self.table.find(&self.key) }
    }

    fn note(&mut self, operations: impl Iterator<Item = ColumnOperation>) {
        self.conflicts += 1;
        for operation in operations {
            add(&mut self.operations, operation, 1);
        }
    }

    /// Adds what another worker has counted for the same record.
    fn absorb(&mut self, other: &ContendedRecord) {
        self.conflicts += other.conflicts;
        self.inherited += other.inherited;
        for &(operation, conflicts) in &other.operations {
            add(&mut self.operations, operation, conflicts);
        }
    }
}

/// Adds to the count of an operation.
pub fn add(
    counts: &mut SmallVec<[(ColumnOperation, u64); 4]>,
    operation: ColumnOperation,
    by: u64,
) {
    match counts.iter_mut().find(|(counted, _)| counted.is_same(&operation)) {
        Some((_, count)) => *count += by,
        None => counts.push((operation, by)),
    }
}

/// Returns, for each column, the operation with the greatest count.
pub fn most_of_each_column(counts: &[(ColumnOperation, u64)]) -> SmallVec<[ColumnOperation; 4]> {
    let mut most: SmallVec<[(ColumnOperation, u64); 4]> = SmallVec::new();
    for &(operation, count) in counts {
        match most.iter_mut().find(|(other, _)| other.column() == operation.column()) {
            Some(other) if other.1 < count => *other = (operation, count),
            Some(_) => {}
            None => most.push((operation, count)),
        }
    }
    most.into_iter().map(|(operation, _)| operation).collect()
}

/// A worker's sketch of its conflicts.
#[derive(Default)]
pub struct Sketch {
    entries: Vec<ContendedRecord>,
}

// SAFETY: the records and tables belong to the database, not to a thread.
unsafe impl Send for Sketch {}

impl Sketch {
    /// Counts a conflict about a record to which the transaction had applied `operations`. The worker has been
    /// pinned since before the conflict.
    #[cold]
    pub fn note(
        &mut self,
        abort: &Abort,
        operations: impl Iterator<Item = ColumnOperation>,
        memory: &WorkerMemory,
    ) {
        // SAFETY: the worker has been pinned since before the abort was decided.
        let (Some(record), Some(row)) = (abort.record, unsafe { abort.row() }) else { return };
        if abort.table.core().index.is_some() {
            return; // Nothing can be done about entries of indexes.
        }
        let known =
            |entry: &&mut ContendedRecord| entry.record == record && entry.table == abort.table;
        if let Some(entry) = self.entries.iter_mut().find(known) {
            entry.note(operations);
            return;
        }
        // SAFETY: the worker has been pinned since before it found the row.
        let mut entry = unsafe { ContendedRecord::new(record, abort.table, row, memory) };
        // Space-Saving: the new entry takes over the place and the count of the least.
        if self.entries.len() == ENTRIES {
            let entries = self.entries.iter().enumerate();
            let least = entries.min_by_key(|(_, entry)| entry.conflicts).expect("there are some").0;
            entry.conflicts = self.entries.swap_remove(least).conflicts;
            entry.inherited = entry.conflicts;
        }
        entry.note(operations);
        self.entries.push(entry);
    }
}

/// Empties the sketches of all workers and adds them up, by record. Returns the most contended record first.
pub fn gather<'a>(sketches: impl Iterator<Item = &'a mut Sketch>) -> Vec<ContendedRecord> {
    let mut gathered: Vec<ContendedRecord> = Vec::new();
    for sketch in sketches {
        for entry in sketch.entries.drain(..) {
            let known = |other: &&mut ContendedRecord| {
                other.record == entry.record && other.table == entry.table
            };
            match gathered.iter_mut().find(known) {
                Some(other) => other.absorb(&entry),
                None => gathered.push(entry),
            }
        }
    }
    gathered.sort_by_key(|entry| std::cmp::Reverse(entry.conflicts));
    gathered
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use weft::commit::Dbx;
    use weft::encoding::KeyForm;
    use weft::operation::{Add, ColumnOf, Integer, Max, Operation};
    use weft::{Database, Record, column_of};

    #[derive(Clone, Record)]
    struct Counter {
        #[record(key)]
        id: u32,
        value: i64,
        highest: i64,
    }

    fn operation<O: Operation<V>, V: Integer>(column: ColumnOf<Counter, V>) -> ColumnOperation {
        ColumnOperation::new::<Counter, V, O>(column).expect("numbers own nothing")
    }

    #[test]
    fn most_frequent_operation_of_each_column_is_selected() {
        let (value, highest) = (column_of!(Counter.value), column_of!(Counter.highest));
        let (add, max) = (operation::<Add<_>, _>(value), operation::<Max<_>, _>(value));
        let other = operation::<Max<_>, _>(highest);
        let mut counts = SmallVec::new();
        for (operation, by) in [(add, 2), (max, 1), (other, 1), (max, 2)] {
            super::add(&mut counts, operation, by);
        }
        let selected = most_of_each_column(&counts);
        assert_eq!(selected.len(), 2);
        assert!(selected[0].is_same(&max) && selected[1].is_same(&other), "{selected:?}");
    }

    /// Passes to `body` a table with this many counters, a function that notes in a sketch that a transaction which had applied an
    /// operation, or none, to one of them has had a conflict about it, and one that returns a counter's record.
    fn with_counters(
        count: u32,
        body: impl FnOnce(
            &dyn Fn(&mut Sketch, u32, Option<ColumnOperation>),
            &dyn Fn(u32) -> NonNull<u8>,
        ),
    ) {
        let database: Database<Dbx> = Database::builder().table::<Counter>().open().unwrap();
        let counters = database.table::<Counter>().unwrap();
        // SAFETY: only the table's name is used, for access sets.
        let table = unsafe { counters.inner() }.reference();
        let claim = database.claim_worker(&weft::TransactionOptions::new(), crate::INSIDE).unwrap();
        let memory = &claim.worker().memory;
        let new = |id| Counter { id, value: 0, highest: 0 };
        database
            .transact(|tx| (0..count).try_for_each(|id| tx.insert(&counters, new(id))))
            .unwrap();
        memory.pin();
        let record = |id: u32| {
            // SAFETY: pinned.
            unsafe { table.find(&u64::from_key(&id).erase()) }.expect("it was inserted")
        };
        let note = |sketch: &mut Sketch, id, operation: Option<ColumnOperation>| {
            let reason = weft::ConflictReason::WriteChanged;
            let abort = Abort { reason, table, record: Some(record(id)) };
            sketch.note(&abort, operation.into_iter(), memory);
        };
        body(&note, &record);
        memory.unpin();
    }

    #[test]
    fn sketch_keeps_the_most_contended_records() {
        let add = operation::<Add<_>, _>(column_of!(Counter.value));
        with_counters(40, |note, record| {
            let mut sketch = Sketch::default();
            for round in 0..100 {
                for id in [7, 20 + round % 20] {
                    note(&mut sketch, id, Some(add));
                }
            }
            let gathered = gather(std::iter::once(&mut sketch));
            assert_eq!(gathered.len(), ENTRIES);
            assert_eq!(gathered[0].record, record(7));
            assert_eq!((gathered[0].conflicts, gathered[0].splittable()), (100, 100));
            assert_eq!(gathered[0].find(), Some(record(7)));
            assert!(gathered[1].conflicts < 20, "{}", gathered[1].conflicts);
        });
    }

    /// The load has moved to a record about which half of the conflicts are of one operation. Its place in the sketch was
    /// another's, with many conflicts.
    #[test]
    fn conflicts_of_another_record_do_not_hide_an_operation() {
        let add = operation::<Add<_>, _>(column_of!(Counter.value));
        with_counters(17, |note, record| {
            for (others, is_mostly_splittable) in [(60, true), (61, false)] {
                let mut sketch = Sketch::default();
                (0..16).for_each(|id| (0..500).for_each(|_| note(&mut sketch, id, None)));
                (0..60).for_each(|_| note(&mut sketch, 16, Some(add)));
                (0..others).for_each(|_| note(&mut sketch, 16, None));
                let gathered = gather(std::iter::once(&mut sketch));
                assert_eq!((gathered[0].record, gathered[0].conflicts), (record(16), 560 + others));
                assert_eq!(gathered[0].is_mostly_splittable(), is_mostly_splittable, "{others}");
                assert!(gathered[1..].iter().all(|other| !other.is_mostly_splittable()));
            }
        });
    }
}
