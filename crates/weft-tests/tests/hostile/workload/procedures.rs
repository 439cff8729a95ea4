//! Procedures, which some protocols repair or run in pieces.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use weft::protocol::Protocol;
use weft::{Error, Record, Table, Transaction};
use weft_procedures::{Execute, procedure};

use super::steps::judge;
use super::{POSTED, Pair, World, options};
use crate::hook::{Operation, called};
use crate::types::{PlainTotal, RowBare, RowTotal, Short};

/// A procedure that changes a hostile row, and adds to another and to an honest one.
#[procedure(Post)]
pub(super) fn post<P: Protocol>(
    bare: &Table<RowBare>,
    totals: &Table<RowTotal>,
    pairs: &Table<Pair>,
    tx: &Transaction<'_, P>,
    source: Short,
    target: Short,
    counted: u32,
) -> Result<i64, Error> {
    let _ = called(Operation::TransactionBody);
    let before = tx.get(bare, &source)?.map_or(0, |row| row.count);
    tx.update(bare, &source, |row| row.count += 1)?;
    tx.update(totals, &target, |row| row.sum += 1)?;
    tx.update(pairs, &counted, |pair| pair.value += 1)?;
    Ok(before)
}

/// Reads the row that [`post`] adds to, and conflicts with it nowhere else, so that the addition can be deferred.
#[procedure(Audit)]
pub(super) fn audit<P: Protocol>(
    totals: &Table<RowTotal>,
    others: &Table<Other>,
    tx: &Transaction<'_, P>,
    target: Short,
    number: u32,
) -> Result<i64, Error> {
    let sum = tx.get(totals, &target)?.map_or(0, |row| row.sum.0);
    tx.insert(others, Other { id: number })?;
    Ok(sum)
}

/// A row that audits insert.
#[derive(Clone, Copy, Record)]
#[record(table = "other")]
pub struct Other {
    #[record(key)]
    id: u32,
}

impl<P: Protocol> World<P> {
    /// Runs procedures. Some protocols repair them or run them in pieces.
    pub(super) fn run_procedures(&self) {
        self.step("insert a total", &|tx, model| {
            tx.insert(&self.totals, RowTotal::from_plain(PlainTotal::new(2)))?;
            model.has_total = true;
            Ok(())
        });
        let post = || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let (source, target) = (Short::new(2), Short::new(2));
                let mut post =
                    Post::new(&self.bare, &self.totals, &self.pairs, source, target, POSTED);
                self.database.execute_with(&options(), &mut post)
            }));
            match ended {
                Ok(Ok(_)) => drop(self.acknowledged.posted.fetch_add(1, SeqCst)),
                Ok(Err(_)) => self.acknowledged.is_halfway.store(P::CHOPS, SeqCst),
                Err(panic) => {
                    self.acknowledged.is_halfway.store(P::CHOPS, SeqCst);
                    judge(&*panic, self.is_truthful, "a procedure");
                }
            }
        };
        // Two threads run the procedure at the same time, so that they conflict sometimes.
        let posts_together = if P::WORKERS_MAX == 1 { 0 } else { 15 };
        for turn in 0..3 {
            post();
            let audited = catch_unwind(AssertUnwindSafe(|| {
                let mut audit = Audit::new(&self.totals, &self.others, Short::new(2), turn);
                self.database.execute_with(&options(), &mut audit)
            }));
            let _ = audited.map_err(|panic| judge(&*panic, self.is_truthful, "an audit"));
            post();
            thread::scope(|scope| {
                let other = scope.spawn(|| (0..posts_together).for_each(|_| post()));
                (0..posts_together).for_each(|_| post());
                other.join().expect("the thread catches panics");
            });
            self.step("read a total", &|tx, model| {
                let sum = self.total(tx)?;
                let expected =
                    model.has_total.then(|| self.acknowledged.posted.load(SeqCst) as i64);
                let is_certain = !self.acknowledged.is_halfway.load(SeqCst);
                self.truthful(!is_certain || sum == expected, || {
                    format!("a total: {sum:?} instead of {expected:?}")
                });
                Ok(())
            });
        }
    }
}
