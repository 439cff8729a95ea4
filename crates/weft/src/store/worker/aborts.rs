//! Counts of aborted attempts, by the table in which the conflict was.

use weft_htm::word::{Ordering, Word};

use super::Counters;
use crate::store::table::TableRef;

/// How often attempts were aborted because of a conflict in each table. Like [`Counters`], there is a set of
/// counters for each worker, with one counter for each index of the database. They are not part of
/// [`Counters`], because their number depends on the number of indexes.
#[derive(Debug, Default)]
pub struct AbortsByTable {
    /// The table of each index, by the index's number. The indexes of one table have consecutive numbers.
    tables: Box<[&'static str]>,
    /// The number of lines for each worker.
    lines: usize,
    counts: Box<[CountsLine]>,
}

/// Counts of one worker, on a cache line of its own.
#[repr(align(64))]
#[derive(Debug, Default)]
struct CountsLine([Word; 8]);

impl AbortsByTable {
    /// Creates counters for up to `workers_max` workers. `tables` has the name of each index's table.
    pub fn new(workers_max: usize, tables: Box<[&'static str]>) -> Self {
        let lines = tables.len().div_ceil(8);
        let counts = (0..workers_max * lines).map(|_| CountsLine::default()).collect();
        AbortsByTable { tables, lines, counts }
    }

    /// Counts an abort of the worker in `slot`.
    pub fn count(&self, slot: usize, table: TableRef) {
        let number = table.core().number;
        Counters::count(&self.counts[slot * self.lines + number / 8].0[number % 8]);
    }

    /// Returns the sums over all workers, by table.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for (number, &table) in self.tables.iter().enumerate() {
            let counts = self.counts.iter().skip(number / 8).step_by(self.lines);
            // Relaxed: as for all counters.
            let count = counts.map(|line| line.0[number % 8].load(Ordering::Relaxed)).sum::<u64>();
            match sums.last_mut() {
                Some(last) if last.0 == table => last.1 += count,
                _ => sums.push((table, count)),
            }
        }
        sums
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
