//! The driver of procedures that run as one piece, under protocols that chop.

use super::{Driver, Next, Passes};
use crate::INSIDE;
use weft::Transaction;
use weft::commit::{ChopsProcedures, Executor, Protocol};
use weft::plan::StepColumns;
use weft::step::{Instance, Iteration};

/// Executes a procedure in a transaction that the caller commits, and tells the executor which step is running.
pub struct OnePiece<'t, 'db, P: Protocol> {
    transaction: &'t Transaction<'db, P>,
    columns: Option<&'t [StepColumns]>,
}

impl<'t, 'db, P: Protocol> OnePiece<'t, 'db, P> {
    /// Returns a driver for a transaction that has just begun. `columns` are those of the steps, if the
    /// transaction is to be committed [by columns](Transaction::finish).
    pub fn new(transaction: &'t Transaction<'db, P>, columns: Option<&'t [StepColumns]>) -> Self {
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
        if self.columns.is_some() {
            let instance = Instance { step, iteration: Iteration::NONE };
            if let Some(chopping) = self.transaction.worker(INSIDE).executor().chopping() {
                chopping.enter_step(instance);
            }
        }
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        Next::Return
    }
}
