//! Commits by columns, for procedures that run as one piece, under protocols that chop.

use super::Transaction;
use crate::commit::{Abort, ChopsProcedures, Executor, Protocol, Unstable};
use crate::plan::StepColumns;
use crate::store::worker::Counters;

/// How often a commit is tried again with the present versions, before the piece is done again.
const CARRIED_OVER_MAX: u32 = 8;

impl<P: Protocol> Transaction<'_, P> {
    /// Returns the columns of a procedure's steps by which it is committed, if it has any. A recorded transaction
    /// is committed by rows, since a checker of histories knows only rows.
    #[doc(hidden)]
    pub fn columns<'p>(&self, steps: Option<&'p [StepColumns]>) -> Option<&'p [StepColumns]> {
        steps.filter(|_| !self.is_recorded())
    }

    /// Commits by `commit`. If that fails, but nothing that matters has changed, tries again with the present
    /// versions.
    #[doc(hidden)]
    #[inline(always)]
    pub fn commit_by_columns<R>(
        &self,
        _: Unstable,
        columns: Option<&[StepColumns]>,
        commit: impl Fn() -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        match commit() {
            Ok(committed) => Ok(committed),
            Err(abort) => match columns {
                Some(columns) if self.doomed.get().is_none() => {
                    self.carry_over(columns, abort, commit)
                }
                _ => Err(abort),
            },
        }
    }

    #[cold]
    fn carry_over<R>(
        &self,
        columns: &[StepColumns],
        mut abort: Abort,
        commit: impl Fn() -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        let memory = &self.worker.memory;
        for _ in 0..CARRIED_OVER_MAX {
            let Some(chopping) = self.worker.executor().chopping() else { return Err(abort) };
            chopping.carry_over(columns, memory)?;
            match commit() {
                Ok(committed) => {
                    Counters::count(&memory.counters().pieces_carried_over);
                    return Ok(committed);
                }
                Err(again) => abort = again,
            }
        }
        Err(abort)
    }
}
