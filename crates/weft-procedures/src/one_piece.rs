//! The driver of procedures that run as one piece, under protocols that chop.

use super::{Driver, Next, Passes};
use crate::INSIDE;
use weft::Transaction;
use weft::column::UsedColumns;
use weft::commit::{ChopsProcedures, Executor, Protocol};

/// Executes a procedure in a transaction that the caller commits, and tells the executor which step is running.
pub struct OnePiece<'t, 'db, P: Protocol> {
    transaction: &'t Transaction<'db, P>,
    columns: Option<&'t [UsedColumns]>,
}

impl<'t, 'db, P: Protocol> OnePiece<'t, 'db, P> {
    /// Returns a driver for a transaction that has just begun. `columns` are those of the steps, if the
    /// transaction is to be committed by columns.
    pub fn new(transaction: &'t Transaction<'db, P>, columns: Option<&'t [UsedColumns]>) -> Self {
        OnePiece { transaction, columns }
    }
}

impl<P: Protocol> Driver<P> for OnePiece<'_, '_, P> {
    const PASSES: Passes = Passes::One;

    #[inline(always)]
    fn transaction(&self) -> &Transaction<'_, P> {
        self.transaction
    }

    #[inline(always)]
    fn come_to(&self, step: usize) {
        if let Some(columns) = self.columns
            && let Some(chopping) = self.transaction.worker(INSIDE).executor().chopping()
        {
            chopping.enter_step(columns[step]);
        }
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        Next::Return
    }
}
