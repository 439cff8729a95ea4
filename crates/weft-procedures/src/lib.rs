//! Procedures for the Weft database: transactions whose steps are known.
//!
//! `transact(|tx| …)` takes any closure, and the engine knows no more of it than what it does. A
//! *procedure* says beforehand what it will do, as far as that can be known: its [`Shape`] names its
//! operations, the *steps*, and of each of them its table, what it does there, and from which earlier steps
//! its key and its values come. That is what protocols need that can do better than to run a transaction
//! again from the start when it has met another:
//!
//! - one that *repairs* (HTCC: Y. Wu, K.-L. Tan, *Scalable In-Memory Transaction Processing with HTM*,
//!   USENIX ATC 2016, §4.2 and §4.3) runs only those operations again that a stale read reaches, by *key
//!   dependencies* and *value dependencies*;
//! - one that *chops* (DBX-TC: H. Qian and others, *Exploiting Hardware Transactional Memory for Efficient
//!   In-Memory Transaction Processing*, 2015, §3) commits a procedure in pieces, and runs a piece again that
//!   has failed;
//! - all others run the function as it stands.
//!
//! # Writing one
//!
//! [`#[procedure]`](macro@crate::procedure) stands before an ordinary function, which stays as it is, and may
//! be called in a `transact` as ever. Beside it comes a struct of the function's arguments, which implements
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
//! /// Pays something in, which the account's branch has more, too.
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
//! // The function, as ever.
//! let balance = database.transact(|tx| pay_in(&accounts, &branches, tx, 1, 50))?;
//! assert_eq!(balance, Some(150));
//!
//! // What it does: the second step's key comes from the first.
//! let steps = PayIn::<weft::protocol::Dbx>::shape().steps;
//! assert_eq!(steps.len(), 2);
//! assert_eq!((steps[0].access, steps[0].table.name), (Access::ReadWrite, "account"));
//! assert_eq!(steps[1].table.name, "branch");
//! assert_eq!(steps[1].key_dependencies().map(|dependency| dependency.on).collect::<Vec<_>>(), [0]);
//!
//! // Step by step, here by a driver that has them all run in one transaction.
//! let mut pay_in = PayIn::new(&accounts, &branches, 1, 25);
//! let balance = database.transact(|tx| pay_in.execute(&Direct::new(tx)))?;
//! assert_eq!(balance, Some(175));
//! # Ok::<(), Error>(())
//! ```
//!
//! # How it is executed
//!
//! [`Procedure::execute`] *walks* the body, once or several times, as the [`Driver`] says, which is a
//! protocol's. In each pass the plain code between the operations runs as it stands; but an operation asks
//! first whether it is to run, or to return what it returned before:
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
//! So nothing but what operations return is kept from pass to pass, in the frame of `execute`, and locals,
//! whatever their types, are there again as soon as the plain code has come by. What is spared is what costs
//! something: look-ups, copies of rows, locks. Branches and loops take care of themselves: an operation on
//! the way that is taken now has nothing to keep, and runs; one that is not come by any more is
//! [discarded](Driver::discard).
//!
//! An instance that has something to keep runs, nevertheless, in a repair,
//!
//! 1. if it is stale itself, or
//! 2. if it depends, by its shape, on an instance that has run in this pass, and has returned something else
//!    than before: in a loop on one of the same iteration, or, where a variable carries something on, of this or
//!    an earlier one; or
//! 3. if an instance before it wrote to a place that it looks at, and has now run, or not been come by:
//!    transactions see their own writes. The places are compared, so this is known exactly but for what is
//!    found by secondary indexes.
//!
//! The first two are the paper's; the third goes without saying where, as there, operations on the same row
//! are one.
//!
//! # What drivers have to keep to
//!
//! The transaction is one for all passes: rows that were handed out are looked at in later passes. So a
//! protocol that commits in pieces keeps its worker pinned until the last. Before an instance runs again, it
//! undoes what that instance did ([`Driver::enter`]), and after a pass what discarded ones did. The third rule
//! makes sure that all later instances on the same row then run again, too.
//!
//! In reading order: `step` and `plan`, where the shape is; `place`; `slot` and `walk`, where it is decided what
//! runs; `operations`, the methods; `one_piece`, `piecewise` and `stepwise`, the drivers of the protocols. The analysis is in `weft-macros`. Which pieces a procedure may be cut into, beside
//! which others, is found by [`chopping`].

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

pub use execute::Execute;
pub use operations::Rows;
#[doc(hidden)]
pub use operations::{At, Scanned};
pub use place::Place;
#[doc(hidden)]
pub use slot::Slot;
#[doc(hidden)]
pub use walk::Walk;

#[doc(hidden)]
pub use weft::plan::StepColumns;
pub use weft::plan::{Access, Dependency, Loop, Pieces, Rollback, Shape, Step, TableShape};
pub use weft::step::{Instance, Iteration, LOOPS_MAX};

use weft::commit::{Protocol, Unstable};
use weft::schema::Record;
use weft::{Error, Table, Transaction};

/// Makes a procedure of a function.
pub use weft_macros::procedure;

/// That the drivers may use the engine's insides.
// SAFETY: a driver is called by one operation at a time, on the transaction's thread. It holds no executor from one call
// to the next, and ends a transaction by a commit or by a conflict that it reports.
const INSIDE: Unstable = unsafe { Unstable::new() };

/// A transaction whose steps are known: arguments, and what is done with them.
/// [`#[procedure]`](macro@crate::procedure) implements it.
pub trait Procedure<P: Protocol> {
    /// What it returns, which may refer to rows.
    type Output<'tx>
    where
        Self: 'tx;

    /// Its own errors, and the engine's.
    type Error: From<Error>;

    /// What it does.
    fn shape() -> &'static Shape;

    /// Calls the function: the steps in order, in one transaction.
    ///
    /// # Errors
    /// The function's.
    fn run<'tx>(&mut self, tx: &'tx Transaction<'_, P>) -> Result<Self::Output<'tx>, Self::Error>
    where
        Self: 'tx;

    /// Executes it step by step, in as many passes as `driver` says. Returns what the last has returned.
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

/// A procedure whose output owns what it has, and refers to no rows: what
/// [`Execute::execute`] takes. [`#[procedure]`](macro@crate::procedure) implements it
/// where the output's type has no lifetimes.
pub trait OwnedOutput<P: Protocol>: Procedure<P> {
    /// [`Procedure::Output`].
    type Owned;

    /// The output, as what it is.
    fn into_owned<'tx>(output: Self::Output<'tx>) -> Self::Owned
    where
        Self: 'tx;
}

/// Which instances of steps run in a pass. The others, as far as they have run before, keep what they had.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// All: a first pass, or one that begins anew.
    Everything,
    /// Those of the steps from this one on: a piece, and what follows it.
    From(usize),
    /// These, and what they reach.
    Stale(Vec<Instance>),
}

/// Which passes a driver may have walked: what has to be kept for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// One, and no more. Nothing is kept, and a driver hears only which step it [comes to](Driver::come_to).
    One,
    /// Such as begin with a step: [`Selection::From`]. What operations have returned is kept where
    /// [`Driver::keeps`] says so; where they have looked is not, and [`Accessed::place`] is
    /// [nowhere](Place::NOWHERE).
    From,
    /// Any.
    Any,
}

/// What comes after a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The procedure returns what the pass has returned.
    Return,
    /// Another pass, in which these run.
    Pass(Selection),
}

/// Whether an instance that runs again looks where it looked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At the same keys: what it found there can be used without asking the index.
    SamePlace,
    /// At others.
    OtherPlace,
}

/// An operation that the walk has come to.
pub struct Accessed<'a, T: Record> {
    /// The instance of a step that it is.
    pub instance: Instance,
    /// What it does.
    pub access: Access,
    /// Where.
    pub table: &'a Table<T>,
    /// The primary key of the row that it is about, if it is about one.
    pub key: Option<&'a T::Key>,
    /// What it looks at, in a form that is alike for all operations. For drivers that walk
    /// [any passes](Passes::Any).
    pub place: &'a Place,
    /// If it runs again: whether there is a new place.
    pub again: Option<Again>,
}

/// What executes procedures: a protocol's part of [`Procedure::execute`].
pub trait Driver<P: Protocol> {
    /// Which passes it has walked.
    const PASSES: Passes = Passes::Any;

    /// Runs the body of a pass. What it returns as an error is a panic, which goes on unless the driver, told that
    /// the [pass has ended](Driver::end_pass), has another one walked.
    ///
    /// # Errors
    /// A panic that the driver has caught.
    #[inline(always)]
    fn run_pass<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        Ok(body())
    }

    /// Whether what a step has returned may be asked for in a later pass.
    fn keeps(&self, step: usize) -> bool {
        let _ = step;
        true
    }

    /// The transaction in which operations run.
    fn transaction(&self) -> &Transaction<'_, P>;

    /// A step is about to run, or, if it is a scan, to read one more row. This is all that a driver is told that
    /// walks [one pass](Passes::One), and no other is told it.
    #[inline(always)]
    fn come_to(&self, step: usize) {
        let _ = step;
    }

    /// An instance is about to run. If it has run before, what it did is to be undone. Here a piece ends, and
    /// the next begins, if the instance's step is the next one's first.
    ///
    /// # Errors
    /// The pass ends; in general with [`Driver::end_pass`].
    fn enter<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// An instance has run. Not called for scans of several rows, which may go on for long.
    ///
    /// # Errors
    /// As for [`Driver::enter`].
    fn leave<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// Whether what an instance does is deferred: a sum of which nobody uses the result. It has been
    /// [entered](Driver::enter).
    #[inline]
    fn defers(&self, instance: Instance) -> bool {
        let _ = instance;
        false
    }

    /// An instance that has been [entered](Driver::enter), a scan, is about to read one more row.
    fn resume(&self, instance: Instance) {
        let _ = instance;
    }

    /// A scan of several rows has been entered, and may be resumed until it is closed: when it has come to its
    /// end, or is dropped.
    fn open_scan(&self) {}

    /// See [`Driver::open_scan`].
    fn close_scan(&self) {}

    /// An instance keeps what it had.
    ///
    /// # Errors
    /// As for [`Driver::enter`].
    fn keep<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        let _ = accessed;
        Ok(())
    }

    /// An instance that has run was not come by in a pass that went through: what it did is to be undone, and
    /// what it read does not matter any more.
    fn discard(&self, instance: Instance) {
        let _ = instance;
    }

    /// A pass is walked again from its beginning, since something has to run in it that was to be kept.
    fn restart_pass(&self) {}

    /// A pass has ended: with `Ok`, or with an error, which may be that of an operation, or of
    /// [`Driver::enter`], or the procedure's own. Or with a panic, which counts as an error.
    fn end_pass(&self, is_ok: bool) -> Next;
}

/// The plainest of drivers: one pass, in a transaction that somebody else commits.
#[derive(Debug)]
pub struct Direct<'t, 'db, P: Protocol>(&'t Transaction<'db, P>);

impl<'t, 'db, P: Protocol> Direct<'t, 'db, P> {
    /// For this transaction.
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
