//! Compares the database with the model: after the workload, and when the database has been reopened.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{Error, Transaction, TransactionOptions};
use weft_protocols::HtmNaive;

use super::{HOOKED, OTHERS, PAIR, POSTED, PROBE, REENTERED, STEP, World};
use crate::live::violation;
use crate::types::Refusal;

impl<P: Protocol> World<P> {
    /// Compares the database with everything that was acknowledged. No operation misbehaves here.
    pub fn verify(&self, when: &str) {
        let mut model = self.acknowledged.model.lock().unwrap().clone();
        let value = |id: u32| -> Result<Option<u64>, Error> {
            let found = Cell::new(None);
            self.transact(&|tx| {
                found.set(self.pair(tx, id)?);
                Ok(())
            })?;
            Ok(found.get())
        };
        let complain = |what: String| violation(format!("{when}: {what}"));
        let verified = catch_unwind(AssertUnwindSafe(|| -> Result<(), Error> {
            let mut expected = vec![
                (OTHERS, self.acknowledged.others.load(SeqCst)),
                (REENTERED, self.acknowledged.reentered.load(SeqCst)),
            ];
            if !P::SINGLE_KEY {
                expected.extend(PAIR.map(|id| (id, model.pair)));
            }
            if !self.acknowledged.is_halfway.load(SeqCst) {
                expected.push((POSTED, self.acknowledged.posted.load(SeqCst)));
            }
            for (id, expected) in expected {
                let found = value(id)?;
                if found != Some(expected) {
                    complain(format!("honest row {id} is {found:?} instead of {expected}"));
                }
            }
            if !self.is_truthful {
                return Ok(());
            }
            if let Some((_, due)) = &self.expiring {
                let found = Cell::new(0);
                self.transact(&|tx| {
                    let left =
                        tx.range(due, ..).map(|row| row.map(|_| 1)).sum::<Result<u64, _>>()?;
                    found.set(left + self.pair(tx, HOOKED)?.unwrap_or(0));
                    Ok(())
                })?;
                let expected = self.acknowledged.due.load(SeqCst);
                if found.get() != expected {
                    complain(format!("{} rows with a hook instead of {expected}", found.get()));
                }
            }
            let posted = self.acknowledged.posted.load(SeqCst) as i64;
            for (id, count) in &model.bare {
                let is_posted = *id == 2 && !P::SINGLE_KEY;
                if is_posted && self.acknowledged.is_halfway.load(SeqCst) {
                    continue;
                }
                let found = Cell::new(None);
                self.transact(&|tx| {
                    found.set(self.bare_count(tx, *id)?);
                    Ok(())
                })?;
                let row = found.get();
                let expected = if is_posted { posted } else { *count };
                if row != Some(expected) {
                    complain(format!("bare row {id} is {row:?} instead of {expected:?}"));
                }
            }
            let Some((table, table_hashed)) = &self.indexed else { return Ok(()) };
            if !self.acknowledged.is_halfway.load(SeqCst) {
                let found = Cell::new(None);
                self.transact(&|tx| {
                    found.set(self.total(tx)?);
                    Ok(())
                })?;
                let expected = model.has_total.then_some(posted);
                if found.get() != expected {
                    complain(format!("a total is {:?} instead of {expected:?}", found.get()));
                }
            }
            let (rows, hashed) = (model.rows.clone(), std::mem::take(&mut model.hashed));
            let body = |tx: &Transaction<'_, P>| -> Result<(), Refusal> {
                (1..=9).try_for_each(|id| self.look(tx, table, &rows, id))?;
                (1..=9).try_for_each(|id| self.look(tx, table_hashed, &hashed, id))?;
                self.scan(tx, table, &rows)?;
                self.scan(tx, table_hashed, &hashed)
            };
            self.transact(&|tx| {
                body(tx).map_err(|refusal| match refusal {
                    Refusal::Engine(error) => error,
                    Refusal::Refused => unreachable!("this body never refuses"),
                })
            })?;
            self.database.snapshot(|snapshot| -> Result<(), Error> {
                self.look_at(snapshot, table, &rows)?;
                self.look_at(snapshot, table_hashed, &hashed)?;
                Ok(())
            })
        }));
        match verified {
            Ok(Ok(())) => {}
            Ok(Err(error)) => complain(format!("the database does not work: {error}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                complain(format!("the engine panicked: {text}"));
            }
        }
    }

    /// Runs a transaction on a row that no other transaction uses, with a deadline. Where others may have to wait, it passes
    /// soon. Elsewhere it is long, because a busy machine may let the whole program stand still for a while.
    pub fn probe(&self) -> Result<(), Error> {
        let limit = match Self::lets_others_through() {
            true => STEP,
            false => Duration::from_millis(300),
        };
        let bounds = TransactionOptions::new().deadline(limit);
        self.database.transact_with(&bounds, |tx| {
            self.change_pair(tx, PROBE, &|pair| pair.value += 1).map(drop)
        })
    }

    /// Returns whether other threads' transactions commit while one thread is in the middle of a transaction.
    pub fn lets_others_through() -> bool {
        P::WORKERS_MAX > 1 && P::NAME != HtmNaive::NAME && !P::SPLITS && !P::CHOPS
    }
}
