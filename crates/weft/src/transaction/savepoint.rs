//! Savepoints: a part of a transaction that is undone if it fails.

use super::Transaction;
use crate::commit::{Executor, Protocol, WriteMark};
use crate::error::{Error, Failure};

impl<'db, P: Protocol> Transaction<'db, P> {
    /// Runs a part of the transaction. If `body` returns an error, or panics, everything that it has written is undone,
    /// and the transaction can go on. What it has read counts as read all the same, because the error may follow from
    /// it. Savepoints can be nested. Under two-phase locking, locks are kept until the transaction ends.
    ///
    /// ```
    /// # use weft::{Database, Error, Record};
    /// # #[derive(Clone, Record)]
    /// # struct Seat { #[record(key)] number: u32, taken: bool }
    /// # let database = Database::builder().table::<Seat>().open()?;
    /// # let seats = database.table::<Seat>()?;
    /// # database.transact(|tx| tx.insert_many(&seats, [1, 2].map(|number| Seat { number, taken: false })))?;
    /// let take = |first: u32| database.transact(|tx| {
    ///     // Two seats beside each other, or the last one alone.
    ///     let both = tx.savepoint(|tx| {
    ///         for number in [first, first + 1] {
    ///             let taken = tx.update(&seats, &number, |seat| std::mem::replace(&mut seat.taken, true))?;
    ///             if taken != Some(false) {
    ///                 return Err(None);
    ///             }
    ///         }
    ///         Ok::<_, Option<Error>>(())
    ///     });
    ///     match both {
    ///         Ok(()) => Ok(2),
    ///         Err(Some(error)) => Err(error),
    ///         Err(None) => Ok(tx.update(&seats, &2, |seat| seat.taken = true)?.map_or(0, |()| 1)),
    ///     }
    /// });
    /// assert_eq!(take(2)?, 1);
    /// # Ok::<(), weft::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `body` returns; [`Conflict`](crate::Conflict) if the transaction met one before: return it, since the
    /// transaction cannot go on; [`Failure::NestedOperation`] if an operation of this transaction is half done.
    pub fn savepoint<'tx, R, E: From<Error>>(
        &'tx self,
        body: impl FnOnce(&'tx Self) -> Result<R, E>,
    ) -> Result<R, E> {
        if let Some(abort) = self.doomed.get() {
            return Err(Error::from(self.describe(abort)).into());
        }
        if self.is_in_steps.get() {
            return Err(Error::from(Failure::NestedOperation).into());
        }
        self.check_user_code()?;
        let mut savepoint = Savepoint {
            transaction: self,
            mark: self.worker.executor().mark(),
            #[cfg(feature = "history")]
            recorded: self.worker.recorder.as_ref().map_or(0, |recorder| recorder.borrow().mark()),
            was_torn: self.is_torn.get(),
            is_kept: false,
        };
        let result = body(self);
        savepoint.is_kept = result.is_ok();
        result
    }
}

/// An open savepoint. When this is dropped, what was written since is undone, unless it `is_kept`.
struct Savepoint<'t, 'db, P: Protocol> {
    transaction: &'t Transaction<'db, P>,
    mark: WriteMark,
    /// How many operations were recorded before.
    #[cfg(feature = "history")]
    recorded: usize,
    /// Whether an operation had been left half done before.
    was_torn: bool,
    is_kept: bool,
}

impl<P: Protocol> Drop for Savepoint<'_, '_, P> {
    fn drop(&mut self) {
        let worker = self.transaction.worker;
        // (If the simulated machine has undone the transaction's region, nothing is left to be undone.)
        if worker.memory.regions().is_undone() {
            return;
        }
        if self.is_kept || self.transaction.doomed.get().is_some() {
            return worker.executor().keep(self.mark);
        }
        worker.executor().undo_to(self.mark, &worker.memory);
        // What was half done since is undone as well.
        self.transaction.is_torn.set(self.was_torn);
        #[cfg(feature = "history")]
        if let Some(recorder) = &worker.recorder {
            recorder.borrow_mut().undo_to(self.recorded);
        }
    }
}
