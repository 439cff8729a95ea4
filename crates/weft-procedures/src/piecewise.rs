//! The driver of procedures in pieces: it commits them piece by piece (DBX-TC, §3), under protocols that can.
//!
//! A piece ends where an operation of the next piece is about to run. If the piece cannot be committed, the
//! pass ends, what the piece did is undone, and the next pass runs from the piece's first step on. The results
//! of earlier pieces are kept, and those pieces are never undone.
//!
//! ```text
//!   pass 1   get 0 | update 1   update 2 | insert 3         step 3 comes, and the second piece fails
//!   pass 2   (0)   | update 1'  update 2'| insert 3         end
//! ```
//!
//! The first piece is different: as long as nothing has been committed, a conflict is retried like that of any
//! transaction, within the bounds of the options. Later pieces are retried until they succeed.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::INSIDE;
use crate::{Driver, Next, Passes, Selection, StepAccess};
use weft::Transaction;
use weft::column::UsedColumns;
use weft::commit::CommitToken;
use weft::commit::backoff;
use weft::commit::{Abort, ChopsProcedures, Executor, Protocol};
use weft::plan::Pieces;
use weft::schema::Record;
use weft::step::Instance;
use weft::store::worker::CommitGuard;
use weft::store::worker::Counters;
use weft::sync::turnstile::{ATTEMPTS_BEFORE_CLOSING, TurnstileGuard};
use weft::{ConflictReason, Error, Failure, Timestamp};

/// Executes a procedure in a transaction, piece by piece.
pub struct Piecewise<'t, 'db, P: Protocol> {
    transaction: &'t Transaction<'db, P>,
    pieces: &'t Pieces,
    /// Whether the pieces are committed one by one, or all at the end.
    in_pieces: bool,
    /// The columns of the steps, if pieces are committed by columns.
    columns: Option<&'t [UsedColumns]>,
    /// The first step of the last piece.
    last: usize,
    /// The first step after those that have been committed.
    first: Cell<usize>,
    /// The piece of the step that was reached last.
    piece: Cell<usize>,
    /// Whether anything has run since the last commit.
    is_begun: Cell<bool>,
    /// Whether a piece has been committed.
    has_committed: Cell<bool>,
    /// The number of scans that may read on.
    open_scans: Cell<usize>,
    /// How often the present piece was retried.
    redone: Cell<u32>,
    /// Whether the region of the present piece was rolled back, which has ended the pass. Only on the simulated
    /// machine.
    is_undone: Cell<bool>,
    /// Whether the procedure's place in the serial order is recorded, and (`is_decided`) whether it is final:
    /// the place of the conflicting piece, or of a later one if the conflicting piece writes nothing.
    is_recorded: Cell<bool>,
    is_decided: Cell<bool>,
    /// The step that was entered last, for [`Failure::Halfway`].
    step: Cell<usize>,
    /// The greatest epoch that the commits rely on.
    epoch: Cell<u64>,
    /// The time that is held until the last piece has been committed, if the procedure uses it.
    held_time: OnceCell<CommitGuard<'db>>,
    /// The closed turnstile, if a piece starves.
    closed: RefCell<Option<TurnstileGuard<'db>>>,
    ended: Cell<Option<Result<CommitToken, Abort>>>,
}

impl<'t, 'db, P: Protocol> Piecewise<'t, 'db, P> {
    /// Returns a driver for a transaction that has just begun.
    pub fn new(transaction: &'t Transaction<'db, P>, pieces: &'t Pieces) -> Self {
        let columns = transaction.columns(pieces.columns());
        let chopping = transaction.worker(INSIDE).executor().chopping();
        Piecewise {
            transaction,
            pieces,
            columns,
            last: pieces.start(pieces.count() - 1),
            in_pieces: chopping.is_some_and(|chopping| chopping.is_in_pieces()),
            first: Cell::new(0),
            piece: Cell::new(0),
            is_begun: Cell::new(false),
            has_committed: Cell::new(false),
            open_scans: Cell::new(0),
            redone: Cell::new(0),
            is_undone: Cell::new(false),
            is_recorded: Cell::new(false),
            is_decided: Cell::new(false),
            step: Cell::new(0),
            epoch: Cell::new(0),
            held_time: OnceCell::new(),
            closed: RefCell::new(None),
            ended: Cell::new(None),
        }
    }

    /// Holds the time for a procedure that uses it. Otherwise a transaction with a later time could come between two
    /// pieces in the serial order. A procedure that runs as one transaction agrees on the time when it commits.
    ///
    /// # Errors
    /// A transaction with a later time may have committed.
    pub fn hold_time(&self) -> Result<(), Abort> {
        if self.in_pieces {
            let _ = self.held_time.set(self.transaction.hold_time(INSIDE)?);
        }
        Ok(())
    }

    /// Returns how the execution has ended: with a commit, with a conflict in the first piece, or with `None`
    /// if the procedure returned an error of its own.
    pub fn ended(&self) -> Option<Result<CommitToken, Abort>> {
        self.ended.take()
    }

    /// Returns the failure that replaces the procedure's own error if a piece was committed before.
    pub fn halfway(&self) -> Option<Failure> {
        self.has_committed
            .get()
            .then(|| Failure::Halfway { procedure: self.pieces.procedure(), step: self.step.get() })
    }

    /// Commits what has been done since the last commit.
    fn commit_piece(&self) -> Result<(), Abort> {
        let transaction = self.transaction;
        if let Some(abort) = transaction.doomed() {
            return Err(abort);
        }
        let is_over = |piece: usize| self.pieces.start(piece + 1) <= self.end();
        let is_over = self.pieces.conflicting().is_some_and(is_over);
        if let Some(chopping) = transaction.worker(INSIDE).executor().chopping() {
            chopping.decide_place(is_over);
        }
        // If the versions are not current any more, the commit is tried again by columns.
        let epoch = transaction.commit_by_columns(INSIDE, || self.try_commit())?;
        self.is_decided.set(is_over && self.is_recorded.get());
        self.epoch.set(self.epoch.get().max(epoch));
        self.is_begun.set(false);
        self.redone.set(0);
        self.closed.take();
        Ok(())
    }

    /// Commits the piece, if all versions are current. Returns the epoch that has to be durable for the commit
    /// to be durable.
    #[inline]
    fn try_commit(&self) -> Result<u64, Abort> {
        let transaction = self.transaction;
        let memory = &transaction.worker(INSIDE).memory;
        transaction.stage_writes(INSIDE);
        // While the time is held, the procedure is committing.
        let _committing = self.held_time.get().is_none().then(|| CommitGuard(memory));
        transaction.agree_on_time(INSIDE)?;
        transaction.worker(INSIDE).executor().commit(memory, || {
            if !self.is_decided.get() {
                transaction.record_serialization();
                self.is_recorded.set(true);
            }
            memory.draw()
        })?;
        Ok(memory.last_epoch_relied_on())
    }

    /// Returns the first step after the present piece.
    fn end(&self) -> usize {
        self.pieces.start(self.piece.get() + 1)
    }

    /// Undoes what has been done since the last commit, so that the piece can be retried.
    #[cold]
    fn undo(&self) {
        let (worker, engine) = (self.transaction.worker(INSIDE), self.transaction.engine(INSIDE));
        let redone = self.redone.get() + 1;
        self.redone.set(redone);
        if let Some(chopping) = worker.executor().chopping() {
            chopping.undo_piece(redone, &worker.memory);
        }
        self.begin_again();
        Counters::count(&worker.memory.counters().pieces_redone);
        let mut closed = self.closed.borrow_mut();
        if redone >= ATTEMPTS_BEFORE_CLOSING && closed.is_none() {
            // It never waits for the turnstile: the transaction that has closed it may be waiting for this
            // procedure.
            *closed = engine.shared.turnstile.try_close();
        }
        backoff(worker, redone, ConflictReason::ReadChanged);
    }

    /// Goes back to the beginning of the present piece, which was undone.
    fn begin_again(&self) {
        // What the worker remembers of indexes may refer to records that are gone.
        self.transaction.worker(INSIDE).next_serial();
        self.transaction.record_next_round();
        self.transaction.forget_doom(INSIDE);
        self.piece.set(self.pieces.of_step(self.first.get()));
        self.is_begun.set(false);
    }

    /// Follows up on a region that the simulated machine has rolled back: the next pass retries the piece.
    #[cold]
    fn take_up_region(&self) -> Next {
        let worker = self.transaction.worker(INSIDE);
        if let Some(chopping) = worker.executor().chopping() {
            chopping.forget_region(&worker.memory);
        }
        self.open_scans.set(0);
        self.begin_again();
        Next::Pass(Selection::FromStep(self.first.get()))
    }

    /// Ends the region of the present piece, if one is open.
    fn close_region(&self) {
        let worker = self.transaction.worker(INSIDE);
        if let Some(chopping) = worker.executor().chopping() {
            chopping.close_region(&worker.memory);
        }
    }

    /// Tells the executor which step is about to run, if pieces are committed by columns.
    #[inline]
    fn note_step(&self, instance: Instance) {
        if let Some(columns) = self.columns
            && let Some(chopping) = self.transaction.worker(INSIDE).executor().chopping()
        {
            chopping.enter_step(columns[instance.step]);
        }
    }

    /// Commits the last piece, or returns the conflict, if there is one, from which the error of the pass
    /// followed. After that no region is open.
    fn conclude(&self, is_ok: bool) -> Result<(), Option<Abort>> {
        let abort = match is_ok && self.transaction.refusal().is_none() {
            true => match self.commit_piece() {
                Ok(()) => return Ok(()),
                Err(abort) => Some(abort),
            },
            false => self.transaction.conflict(),
        };
        self.close_region();
        Err(abort)
    }
}

/// The payload of the panic that ends a pass whose region the simulated machine has rolled back.
struct RegionUndone;

impl<P: Protocol> Driver<P> for Piecewise<'_, '_, P> {
    const PASSES: Passes = Passes::FromStep;

    /// Catches panics, because a panic may have followed from a conflict, and earlier pieces cannot be undone.
    fn run_pass<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        let regions = self.transaction.worker(INSIDE).memory.regions();
        match catch_unwind(AssertUnwindSafe(|| regions.unless_undone(body)))? {
            Some(result) => Ok(result),
            None => {
                self.is_undone.set(true);
                Err(Box::new(RegionUndone))
            }
        }
    }

    /// Whether a result is needed later. The last piece is always retried as a whole, so its results are not.
    #[inline(always)]
    fn keeps(&self, step: usize) -> bool {
        step < self.last
    }

    fn transaction(&self) -> &Transaction<'_, P> {
        self.transaction
    }

    fn now(&self) -> Timestamp {
        match self.held_time.get() {
            Some(_) => self.transaction.held_now(INSIDE),
            None => self.transaction.now(),
        }
    }

    #[inline]
    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let step = accessed.instance.step;
        if step < self.first.get() {
            // With the same results it takes another path than before, which a procedure must not do.
            return Err(Failure::Halfway { procedure: self.pieces.procedure(), step }.into());
        }
        // The step belongs to a later piece: commit the present one, unless nothing has run in it or a scan is
        // still open.
        if self.in_pieces && step >= self.end() {
            if self.is_begun.get() && self.open_scans.get() == 0 {
                self.commit_piece().map_err(|abort| self.transaction.doom_by(abort))?;
                self.first.set(self.end());
                self.has_committed.set(true);
                // A committed piece cannot be undone, so the deadline does not apply any more.
                self.transaction.forget_deadline();
            }
            self.piece.set(self.pieces.of_step(step));
        }
        // The first operation of a piece.
        if !self.is_begun.replace(true) && self.in_pieces {
            let worker = self.transaction.worker(INSIDE);
            if let Some(chopping) = worker.executor().chopping() {
                chopping.open_region(self.piece.get(), &worker.memory);
            }
        }
        self.step.set(step);
        self.note_step(accessed.instance);
        self.transaction.record_step(accessed.instance, false);
        Ok(())
    }

    fn resume(&self, instance: Instance) {
        self.note_step(instance);
        self.transaction.record_step(instance, true);
    }

    fn open_scan(&self) {
        self.open_scans.set(self.open_scans.get() + 1);
    }

    fn close_scan(&self) {
        self.open_scans.set(self.open_scans.get() - 1);
    }

    fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        self.transaction.record_kept_step(accessed.instance);
        Ok(())
    }

    #[inline]
    fn defers(&self, instance: Instance) -> bool {
        self.in_pieces && self.pieces.defers(instance.step)
    }

    fn restart_pass(&self) {
        let regions = self.transaction.worker(INSIDE).memory.regions();
        match regions.unless_undone(|| self.close_region()) {
            Some(()) => self.undo(),
            None => drop(self.take_up_region()),
        }
    }

    fn end_pass(&self, is_ok: bool) -> Next {
        let transaction = self.transaction;
        if self.is_undone.take() {
            return self.take_up_region();
        }
        let memory = &transaction.worker(INSIDE).memory;
        let Some(concluded) = memory.regions().unless_undone(|| self.conclude(is_ok)) else {
            return self.take_up_region();
        };
        let abort = match concluded {
            Ok(()) => {
                Counters::count(&memory.counters().committed);
                if self.has_committed.get() {
                    Counters::count(&memory.counters().committed_in_pieces);
                }
                transaction.record_commit();
                self.ended.set(Some(Ok(CommitToken::of(self.epoch.get()))));
                return Next::Return;
            }
            Err(Some(abort)) => abort,
            Err(None) => return Next::Return,
        };
        // A conflict in the first piece: the transaction is retried as a whole.
        if !self.has_committed.get() {
            self.ended.set(Some(Err(abort)));
            return Next::Return;
        }
        // A conflict in a later piece: only the piece is retried.
        self.undo();
        Next::Pass(Selection::FromStep(self.first.get()))
    }
}
