//! What is counted by index: aborted attempts, and the memory of tables and indexes.

use std::alloc::Layout;
use std::ptr::NonNull;

use weft_htm::Regions;
use weft_htm::word::{Ordering, Word};

use super::WorkerMemory;
use crate::index::IndexWorker;

/// Counts of each index of a database. Like [`Counters`](super::Counters), there is a set for each worker, which
/// alone writes it. They are not part of [`Counters`](super::Counters), because their number depends on the number of
/// indexes.
#[derive(Debug, Default)]
pub struct CountsByIndex {
    /// The table of each index, by the index's number. The indexes of one table have consecutive numbers.
    tables: Box<[&'static str]>,
    counts: Box<[IndexCounts]>,
}

/// Unused counts after those of each worker, so that two workers never write the same cache line.
const UNUSED: usize = 128 / size_of::<IndexCounts>();

/// What a worker counts for an index. The sums over all workers wrap around.
#[repr(align(64))]
#[derive(Debug, Default)]
pub struct IndexCounts {
    /// Attempts that were aborted because of a conflict.
    pub aborts: Word,
    /// Records.
    pub records: Word,
    /// Bytes of the index's nodes.
    pub node_bytes: Word,
    /// Bytes that rows own elsewhere.
    pub heap_bytes: Word,
    /// Rows, and the version of this count: see [`row_counts`](super::row_counts).
    pub(super) rows: Word,
}

/// The sums of what all workers have counted for an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexUse {
    pub aborts: u64,
    pub records: u64,
    pub node_bytes: u64,
    pub heap_bytes: u64,
}

impl CountsByIndex {
    /// Creates counters for up to `workers_max` workers. `tables` has the name of each index's table.
    pub fn new(workers_max: usize, tables: Box<[&'static str]>) -> Self {
        let counts = (0..workers_max * (tables.len() + UNUSED)).map(|_| IndexCounts::default());
        CountsByIndex { counts: counts.collect(), tables }
    }

    /// Returns the position of a worker's first counts.
    pub fn start_of(&self, slot: usize) -> usize {
        slot * (self.tables.len() + UNUSED)
    }

    /// Returns a worker's counts of an index.
    pub(super) fn counts_of(&self, slot: usize, index: usize) -> &IndexCounts {
        &self.counts[self.start_of(slot) + index]
    }

    /// Returns the sums for the index with this number.
    pub fn of(&self, number: usize) -> IndexUse {
        let mut sums = IndexUse::default();
        for counts in self.counts.iter().skip(number).step_by(self.start_of(1)) {
            // Relaxed: as for all counters.
            let add = |sum: &mut u64, word: &Word| {
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            };
            add(&mut sums.aborts, &counts.aborts);
            add(&mut sums.records, &counts.records);
            add(&mut sums.node_bytes, &counts.node_bytes);
            add(&mut sums.heap_bytes, &counts.heap_bytes);
        }
        // A block may be counted as freed before the counts of the worker that has allocated it are read.
        let at_least_0 = |sum: u64| if sum as i64 >= 0 { sum } else { 0 };
        IndexUse {
            aborts: sums.aborts,
            records: at_least_0(sums.records),
            node_bytes: at_least_0(sums.node_bytes),
            heap_bytes: at_least_0(sums.heap_bytes),
        }
    }

    /// Returns the numbers of aborts, by table.
    pub fn aborts(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for (number, &table) in self.tables.iter().enumerate() {
            let count = self.of(number).aborts;
            match sums.last_mut() {
                Some(last) if last.0 == table => last.1 += count,
                _ => sums.push((table, count)),
            }
        }
        sums
    }
}

impl WorkerMemory {
    /// Returns the worker's counts of an index.
    #[inline(always)]
    pub fn counts(&self, index: usize) -> &IndexCounts {
        &self.shared.by_index.counts[self.counts_start + index]
    }

    /// Returns the memory for the nodes of an index.
    #[inline(always)]
    pub fn index(&self, number: usize) -> IndexMemory<'_> {
        IndexMemory { memory: self, number }
    }
}

/// A worker's memory for the nodes of an index. It counts them.
pub struct IndexMemory<'w> {
    memory: &'w WorkerMemory,
    number: usize,
}

impl IndexMemory<'_> {
    fn count(&self, bytes: i64) {
        super::Counters::add(&self.memory.counts(self.number).node_bytes, bytes as u64);
    }
}

impl IndexWorker for IndexMemory<'_> {
    #[inline(always)]
    fn regions(&self) -> &Regions {
        self.memory.regions()
    }

    fn allocate(&self, layout: Layout) -> NonNull<u8> {
        self.count(layout.size() as i64);
        self.memory.allocate(layout)
    }

    fn may_allocate(&self, bytes: usize) -> bool {
        self.memory.may_allocate(bytes)
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        self.count(-(layout.size() as i64));
        // SAFETY: passed on to the caller.
        unsafe { self.memory.free(block, layout) };
    }

    unsafe fn retire(&self, block: NonNull<u8>, layout: Layout) {
        self.count(-(layout.size() as i64));
        // SAFETY: passed on to the caller.
        unsafe { self.memory.retire(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    use weft_htm::word::{Ordering, Word};

    use crate::commit::Silo;
    use crate::commit::{Dbx, Protocol, TwoPhaseLockingNoWait};
    use crate::{Database, Error, Record, Table, Transaction};

    /// A table with an index, so that the tables' numbers are not consecutive.
    #[derive(Clone, Copy, Record)]
    #[record(table = "first", index(name = by_value, columns(value)))]
    struct First {
        #[record(key)]
        id: u32,
        value: u64,
    }

    #[derive(Clone, Copy, Record)]
    #[record(table = "second")]
    struct Second {
        #[record(key)]
        id: u32,
        value: u64,
    }

    struct Tables<P: Protocol> {
        database: Database<P>,
        first: Table<First>,
        second: Table<Second>,
    }

    impl<P: Protocol> Tables<P> {
        fn open() -> Self {
            let builder = Database::builder().protocol::<P>().table::<First>().table::<Second>();
            let database = builder.open().expect("opens");
            let first = database.table().expect("it is declared");
            let second = database.table().expect("it is declared");
            let tables = Tables { database, first, second };
            let load = |tx: &Transaction<'_, P>| -> Result<(), Error> {
                tx.insert(&tables.first, First { id: 1, value: 10 })?;
                tx.insert(&tables.second, Second { id: 1, value: 10 })
            };
            tables.database.transact(load).expect("loads");
            tables
        }

        /// Runs two transactions at once that both do `act`, and checks that exactly one of them commits.
        fn meet(&self, act: impl Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync) {
            let met = self.database.begin().expect("begins");
            act(&met).expect("no other transaction is running");
            let other = || {
                let transaction = self.database.begin().expect("begins");
                // A transaction whose operation was refused cannot commit.
                let _denied = act(&transaction);
                transaction.commit().map(drop)
            };
            let other = std::thread::scope(|scope| scope.spawn(other).join().expect("no panic"));
            let met = met.commit().map(drop);
            assert!(
                met.is_ok() != other.is_ok(),
                "exactly one of them commits: {met:?}, {other:?}"
            );
        }

        fn aborts(&self) -> Vec<(&'static str, u64)> {
            let metrics = self.database.metrics();
            let sum = metrics.aborted_by_table.iter().map(|(_, aborts)| aborts).sum::<u64>();
            assert_eq!(sum, metrics.aborted_total());
            metrics.aborted_by_table
        }
    }

    fn counts<P: Protocol>() {
        let tables = Tables::<P>::open();
        assert_eq!(tables.aborts(), [("first", 0), ("second", 0)]);
        let second =
            |tx: &Transaction<'_, P>| tx.update(&tables.second, &1, |row| row.value += 1).map(drop);
        tables.meet(second);
        tables.meet(second);
        assert_eq!(tables.aborts(), [("first", 0), ("second", 2)], "{}", P::NAME);
        tables.meet(|tx| tx.update(&tables.first, &1, |row| row.value += 0).map(drop));
        assert_eq!(tables.aborts(), [("first", 1), ("second", 2)], "{}", P::NAME);
    }

    #[test]
    fn an_abort_counts_for_the_table_of_its_conflict() {
        counts::<Dbx>();
        counts::<Silo>();
        counts::<TwoPhaseLockingNoWait>();
    }

    /// A conflict over keys inserted in a range of a secondary index counts for the index's table.
    #[test]
    fn an_index_counts_for_its_table() {
        let tables = Tables::<Dbx>::open();
        let next = Word::new(100);
        tables.meet(|tx| {
            let found = tx.range_by(&tables.first, First::BY_VALUE, ..).count();
            assert!(found > 0);
            let number = next.fetch_add(1, Ordering::Relaxed);
            tx.insert(&tables.first, First { id: number as u32, value: number })
        });
        assert_eq!(tables.aborts(), [("first", 1), ("second", 0)]);
    }
}
