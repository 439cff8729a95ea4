//! Procedures for the Weft database: transactions whose steps are known.
//!
//! `transact(|tx| …)` takes any closure, and the engine learns what the closure does only while it runs. A
//! *procedure* says in advance what it will do, as far as that can be known. Its [`Shape`] lists its
//! operations, the *steps*. For each step it names the table, what the step does there, and the earlier steps
//! on which its key and its values depend. Protocols need this in order to do better than retrying a
//! transaction from the start after a conflict:
//!
//! - a protocol that *repairs* (HTCC: Y. Wu, K.-L. Tan, *Scalable In-Memory Transaction Processing with HTM*,
//!   USENIX ATC 2016, §4.2 and §4.3) runs again only those operations that a stale read reaches, through *key
//!   dependencies* and *value dependencies*;
//! - a protocol that *chops* (DBX-TC: H. Qian and others, *Exploiting Hardware Transactional Memory for
//!   Efficient In-Memory Transaction Processing*, 2015, §3) commits a procedure in pieces, and retries a piece
//!   that has failed;
//! - all other protocols run the function as it is.
//!
//! # Writing a procedure
//!
//! Put [`#[procedure]`](macro@crate::procedure) before an ordinary function. The function stays as it is, and
//! can still be called in a `transact`. The macro adds a struct of the function's arguments, which implements
//! [`Procedure`].
//!
//! ```
//! use weft_procedures::{Access, Direct, Procedure};
//! use weft::protocol::Protocol;
//! use weft::{Database, Error, Record, Table, Transaction};
//! use weft_procedures::procedure;
//!
//! #[derive(Clone, Record)]
//! struct Account { #[record(key)] id: u32, branch: u16, cents: i64 }
//! #[derive(Clone, Record)]
//! struct Branch { #[record(key)] id: u16, cents: i64 }
//!
//! /// Pays in: adds to the account and to its branch.
//! #[procedure(PayIn)]
//! fn pay_in<P: Protocol>(
//!     accounts: &Table<Account>,
//!     branches: &Table<Branch>,
//!     tx: &Transaction<'_, P>,
//!     id: u32,
//!     cents: i64,
//! ) -> Result<Option<i64>, Error> {
//!     let paid = tx.update(accounts, &id, |account| {
//!         account.cents += cents;
//!         (account.branch, account.cents)
//!     })?;
//!     let Some((branch, balance)) = paid else { return Ok(None) };
//!     tx.update(branches, &branch, |branch| branch.cents += cents)?;
//!     Ok(Some(balance))
//! }
//!
//! let database = Database::builder().table::<Account>().table::<Branch>().open()?;
//! let (accounts, branches) = (database.table::<Account>()?, database.table::<Branch>()?);
//! database.transact(|tx| {
//!     tx.insert(&branches, Branch { id: 7, cents: 0 })?;
//!     tx.insert(&accounts, Account { id: 1, branch: 7, cents: 100 })
//! })?;
//!
//! // The function can be called as before.
//! let balance = database.transact(|tx| pay_in(&accounts, &branches, tx, 1, 50))?;
//! assert_eq!(balance, Some(150));
//!
//! // The shape says what it does: the second step's key comes from the first.
//! let steps = PayIn::<weft::protocol::Dbx>::shape().steps;
//! assert_eq!(steps.len(), 2);
//! assert_eq!((steps[0].access, steps[0].table.name), (Access::ReadWrite, "account"));
//! assert_eq!(steps[1].table.name, "branch");
//! assert_eq!(steps[1].key_dependencies().map(|dependency| dependency.on).collect::<Vec<_>>(), [0]);
//!
//! // Step by step, here with a driver that runs all steps in one transaction.
//! let mut pay_in = PayIn::new(&accounts, &branches, 1, 25);
//! let balance = database.transact(|tx| pay_in.execute(&Direct::new(tx)))?;
//! assert_eq!(balance, Some(175));
//! # Ok::<(), Error>(())
//! ```
//!
//! # How a procedure is executed
//!
//! [`Procedure::execute`] *walks* the body once or several times, as the [`Driver`] decides, which belongs to
//! the protocol. In each pass the plain code between the operations runs as it is. But each operation first
//! asks whether to run, or to return what it returned before:
//!
//! ```text
//!                    pass 1          pass 2: step 1 is stale    pass 2: a piece from step 2 on failed
//!   Selection        Everything      Stale([1])                 From(2)
//!   0  get           runs            keeps                      keeps
//!   1  get           runs            runs                       keeps
//!   2  update, of 0  runs            keeps                      runs
//!   3  insert, of 1  runs            runs                       runs
//! ```
//!
//! So only the results of operations are kept from pass to pass, in the frame of `execute`. Locals of any type
//! exist again as soon as the plain code has run. What is saved is the expensive part: look-ups, copies of
//! rows, locks. Branches and loops need no special treatment. An operation on a branch that is newly taken has
//! nothing to keep, and runs. An operation that is no longer reached is [discarded](Driver::discard).
//!
//! An *instance* is one execution of a step. In a repair, an instance that has a kept result runs again all the
//! same
//!
//! 1. if it is stale itself, or
//! 2. if it depends, by its shape, on an instance that has run in this pass and has returned something else
//!    than before. In a loop this is an instance of the same iteration, or, if a variable carries a value on,
//!    of this or an earlier one; or
//! 3. if an earlier instance wrote to a place that this one looks at, and in this pass ran again or was not
//!    reached: transactions see their own writes. The places are compared, so this is exact, except for rows
//!    that are found through secondary indexes.
//!
//! The first two rules are the paper's. It does not need the third, because there operations on the same row
//! are one operation.
//!
//! # The time
//!
//! A procedure has one time, [`now`](weft::Transaction::now), which is that of its transaction: the same in all passes, and
//! the same in all pieces. If it commits in pieces, it [holds](Driver::now) the time from its begin to its last piece,
//! so no transaction with a later time comes between two of them.
//!
//! # What drivers must do
//!
//! All passes belong to one transaction, because later passes look at rows that were returned in earlier ones.
//! So a protocol that commits in pieces keeps its worker pinned until the last piece. Before an instance runs
//! again, the protocol undoes what the instance did ([`Driver::enter`]). After a pass it undoes what discarded
//! instances did. The third rule then makes all later instances on the same row run again, too.
//!
//! In reading order: `step` and `plan`, in the engine, have the shape; `place`; `slot` and `walk`, which
//! decides what runs; `operations`, the methods; `one_piece`, `piecewise` and `stepwise`, the drivers of the
//! protocols. `weft-macros` has the analysis of functions. [`chopping`] finds the pieces into which a procedure
//! may be cut, beside which other procedures.

#![warn(missing_docs)]

pub mod chopping;
mod execute;
mod one_piece;
mod operations;
mod piecewise;
mod place;
mod slot;
mod stepwise;
mod walk;

pub use execute::{Execute, ExecuteWith};
pub use operations::Rows;
#[doc(hidden)]
pub use operations::{At, ScannedRows};
pub use place::Place;
#[doc(hidden)]
pub use slot::ResultSlot;
#[doc(hidden)]
pub use walk::Walk;

#[doc(hidden)]
pub use weft::plan::{Access, Dependency, Loop, Pieces, Rollback, Shape, Step, TableShape};
pub use weft::step::{Instance, Iteration, LOOPS_MAX};

use weft::commit::{Protocol, Unstable};
use weft::schema::Record;
use weft::{Error, Table, Timestamp, Transaction};

/// Turns a function into a procedure.
pub use weft_macros::procedure;

/// The permission to use the engine's internals, for drivers.
// SAFETY: one operation at a time calls a driver, on the transaction's thread. A driver holds no executor from
// one call to the next, and ends a transaction by a commit, or by a conflict that it reports.
const INSIDE: Unstable = unsafe { Unstable::new() };

/// A transaction whose steps are known: its arguments, and what it does with them.
/// [`#[procedure]`](macro@crate::procedure) implements this trait.
pub trait Procedure<P: Protocol> {
    /// The output, which may refer to rows.
    type Output<'tx>
    where
        Self: 'tx;

    /// The error type, which has to include the engine's errors.
    type Error: From<Error>;

    /// Returns the description of the steps.
    fn shape() -> &'static Shape;

    /// Calls the function: runs the steps in order, in one transaction.
    ///
    /// # Errors
    /// The function's.
    fn run<'tx>(&mut self, tx: &'tx Transaction<'_, P>) -> Result<Self::Output<'tx>, Self::Error>
    where
        Self: 'tx;

    /// Executes the procedure step by step, in as many passes as `driver` decides. Returns the result of the
    /// last pass.
    ///
    /// # Errors
    /// The function's.
    fn execute<'tx, D: Driver<P>>(
        &mut self,
        driver: &'tx D,
    ) -> Result<Self::Output<'tx>, Self::Error>
    where
        Self: 'tx;
}

/// A procedure whose output owns its contents, and refers to no rows. [`Execute::execute`] takes such
/// procedures. [`#[procedure]`](macro@crate::procedure) implements this trait if the output's type has no
/// lifetimes.
pub trait OwnedOutput<P: Protocol>: Procedure<P> {
    /// The type of the output.
    type Owned;

    /// Returns the output as its own type.
    fn into_owned<'tx>(output: Self::Output<'tx>) -> Self::Owned
    where
        Self: 'tx;
}

/// Which instances of steps run in a pass. The others, if they have run before, keep their results.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// All instances: in a first pass, or in one that starts again.
    Everything,
    /// The instances of this step and of all later ones: a piece, and what follows it.
    FromStep(usize),
    /// These instances, and those that they reach.
    Stale(Vec<Instance>),
}

/// Which passes a driver may request. What has to be kept for later passes depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// One pass only. Nothing is kept, and the driver is told only which step [comes next](Driver::come_to).
    One,
    /// Passes that run from some step on: [`Selection::FromStep`]. Results are kept where [`Driver::keeps`] says
    /// so. Places are not kept, and [`StepAccess::place`] is [nowhere](Place::NOWHERE).
    FromStep,
    /// Any passes.
    Any,
}

/// What follows a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The procedure ends, and returns the result of the pass.
    Return,
    /// Another pass, in which these instances run.
    Pass(Selection),
}

/// Whether an instance that runs again looks at the same place as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At the same keys: what it found there can be used without asking the index.
    SamePlace,
    /// At other keys.
    OtherPlace,
}

/// An operation that the walk has reached.
pub struct StepAccess<'a, T: Record> {
    /// The instance of the step.
    pub instance: Instance,
    /// What the operation does.
    pub access: Access,
    /// The table that it accesses.
    pub table: &'a Table<T>,
    /// The primary key of the row, if the operation is about one row, and was not given a borrowed form of the key.
    pub key: Option<&'a T::Key>,
    /// The place that the operation looks at, in a form that is the same for all operations. For drivers that
    /// request [any passes](Passes::Any).
    pub place: &'a Place,
    /// Whether the place is the same as before, if the instance runs again.
    pub again: Option<Again>,
}

/// The part of [`Procedure::execute`] that belongs to a protocol: it decides which passes are walked.
pub trait Driver<P: Protocol> {
    /// Which passes the driver may request.
    const PASSES: Passes = Passes::Any;

    /// Runs the body of a pass. An `Err` is a panic. The panic goes on unless the driver, when it is told that
    /// the [pass has ended](Driver::end_pass), requests another one.
    ///
    /// # Errors
    /// A panic that the driver has caught.
    #[inline(always)]
    fn run_pass<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        Ok(body())
    }

    /// Whether the result of a step may be needed in a later pass.
    fn keeps(&self, step: usize) -> bool {
        let _ = step;
        true
    }

    /// Returns the transaction in which operations run.
    fn transaction(&self) -> &Transaction<'_, P>;

    /// Returns the procedure's time. It must agree with the serial order. The transaction sees to that when it commits,
    /// unless the driver commits it in pieces.
    fn now(&self) -> Timestamp {
        self.transaction().now()
    }

    /// Tells the driver that a step is about to run, or that a scan is about to read one more row. Only drivers
    /// that walk [one pass](Passes::One) are told this, and they are told nothing else.
    #[inline(always)]
    fn come_to(&self, step: usize) {
        let _ = step;
    }

    /// Tells the driver that an instance is about to run. If it has run before, the driver undoes what it did.
    /// If the step is the first of the next piece, the present piece ends here, and the next begins.
    ///
    /// # Errors
    /// The pass ends; usually [`Driver::end_pass`] is then called.
    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// Tells the driver that an instance has run. Not called for scans of several rows, which may go on for
    /// long.
    ///
    /// # Errors
    /// As for [`Driver::enter`].
    fn leave<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// Whether the changes of an instance are deferred: additions whose results are not used. The instance has
    /// been [entered](Driver::enter).
    #[inline]
    fn defers(&self, instance: Instance) -> bool {
        let _ = instance;
        false
    }

    /// Tells the driver that a scan, which has been [entered](Driver::enter), is about to read one more row.
    fn resume(&self, instance: Instance) {
        let _ = instance;
    }

    /// Tells the driver that a scan of several rows has been entered. It may be resumed until it is closed:
    /// when it has reached its end, or is dropped.
    fn open_scan(&self) {}

    /// Tells the driver that a scan is closed. See [`Driver::open_scan`].
    fn close_scan(&self) {}

    /// Tells the driver that an instance keeps its result.
    ///
    /// # Errors
    /// As for [`Driver::enter`].
    fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// Tells the driver that a pass which completed has not reached this instance, which had run before. The
    /// driver undoes what the instance did, and what it read does not matter any more.
    fn discard(&self, instance: Instance) {
        let _ = instance;
    }

    /// Tells the driver that the pass is walked again from its beginning, because an instance has to run that
    /// was to be kept.
    fn restart_pass(&self) {}

    /// Tells the driver that a pass has ended: with `Ok`, with an error, or with a panic, which counts as an
    /// error. The error may be that of an operation, that of [`Driver::enter`], or the procedure's own. Returns
    /// what follows.
    fn end_pass(&self, is_ok: bool) -> Next;
}

/// The simplest driver: one pass, in a transaction that the caller commits.
#[derive(Debug)]
pub struct Direct<'t, 'db, P: Protocol>(&'t Transaction<'db, P>);

impl<'t, 'db, P: Protocol> Direct<'t, 'db, P> {
    /// Returns a driver for this transaction.
    pub fn new(transaction: &'t Transaction<'db, P>) -> Self {
        Direct(transaction)
    }
}

impl<P: Protocol> Driver<P> for Direct<'_, '_, P> {
    const PASSES: Passes = Passes::One;

    fn transaction(&self) -> &Transaction<'_, P> {
        self.0
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        Next::Return
    }
}
