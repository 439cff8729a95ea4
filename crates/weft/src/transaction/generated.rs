//! Rows whose primary key the database generates.

use super::Transaction;
use crate::commit::Protocol;
use crate::error::{ConflictReason, Error, Failure};
use crate::row::generated::{GeneratedKey, KeyNumbers};
use crate::row::schema::GeneratedRecord;
use crate::store::table::{Table, TableInner};
#[cfg(feature = "canary")]
use crate::store::worker::OperationFlaw;

impl<P: Protocol> Transaction<'_, P> {
    /// Inserts a row with a new primary key, and returns the key. `row` gets the key, and makes the row with it.
    ///
    /// No key is generated twice: not for transactions at the same time, not after the row was deleted, and not after a
    /// restart. (A crash may lose a commit that was not durable yet. Its key was then never used. Nor was that of a row
    /// that its own transaction deletes again.) The keys have gaps, and are not in the order of the commits. A
    /// transaction that is rolled back or runs again leaves a gap.
    ///
    /// [`Transaction::insert`] inserts a row of the same table with the key that the row has. A key above all others moves
    /// the generator behind it.
    ///
    /// # Errors
    /// - [`Failure::KeysExhausted`] if there is no greater key.
    /// - [`Failure::GeneratedKeyNotUsed`] if `row` has made a row with another key.
    /// - As [`Transaction::insert`], except for a duplicate primary key, which is a conflict here.
    ///
    /// ```
    /// use weft::{Database, Record};
    ///
    /// #[derive(Clone, Record)]
    /// struct Ticket {
    ///     #[record(key, generated)]
    ///     id: u64,
    ///     subject: String,
    /// }
    ///
    /// let database = Database::builder().table::<Ticket>().open()?;
    /// let tickets = database.table::<Ticket>()?;
    /// let id = database.transact(|tx| {
    ///     tx.insert_generated(&tickets, |id| Ticket { id, subject: "No light".into() })
    /// })?;
    /// assert_eq!(id, 1);
    /// # Ok::<(), weft::Error>(())
    /// ```
    #[inline]
    pub fn insert_generated<T: GeneratedRecord>(
        &self,
        table: &Table<T>,
        row: impl FnOnce(T::Key) -> T,
    ) -> Result<T::Key, Error> {
        self.enter(table)?;
        let key = T::Key::generate(|last| self.draw(&table.inner, last))
            .ok_or(Failure::KeysExhausted { table: table.name() })?;
        let row = row(key.clone());
        // `row` may have used the transaction.
        let table = self.enter_writing(table)?;
        if !row.key_equals(&key) {
            let (key, made) = (format!("{key:?}"), format!("{:?}", row.key()));
            return Err(Failure::GeneratedKeyNotUsed { table: table.name(), key, made }.into());
        }
        table.check(&row)?;
        match self.insert_row(table, row)? {
            None => Ok(key),
            // A row with this key was inserted by `insert`. The next attempt draws another key.
            Some(row) => {
                drop(row);
                Err(self.doom(ConflictReason::ReadChanged, table.reference()))
            }
        }
    }

    /// Returns the next number for a key, at most `last`: from the worker's block, or from a new one.
    #[inline]
    fn draw<T: GeneratedRecord>(&self, table: &TableInner<T>, last: u64) -> Option<u64> {
        let taken = &self.worker.buffer(table.number()).numbers;
        if let Some(number) = taken.draw() {
            return Some(number);
        }
        #[cfg(feature = "canary")]
        if self.has_flaw(OperationFlaw::NumbersNotTaken) {
            let next = table.numbers.next();
            taken.take(next..next + 2);
            return taken.draw();
        }
        taken.take(table.numbers.take_block(last)?);
        taken.draw()
    }

    /// Keeps the number of a key that is inserted from being generated.
    #[inline]
    pub(super) fn pass_number(&self, numbers: &KeyNumbers, table: usize, number: u64) {
        self.worker.buffer(table).numbers.pass(number);
        numbers.pass(number);
    }
}
