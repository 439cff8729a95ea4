//! Steps on rows that expire.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;

use weft::protocol::Protocol;
use weft::{Table, Timestamp};

use super::steps::judge;
use super::{World, duplicate};
use crate::types::{PlainDue, PlainExpiring, RowDue, RowExpiring, Short};

impl<P: Protocol> World<P> {
    /// Lets rows expire, makes others take their place, and removes them, in all ways that there are.
    pub(super) fn run_expiring(&self, rows: &Table<RowExpiring>, due: &Table<RowDue>) {
        let row = |id, code, until| RowExpiring::from_plain(PlainExpiring::new(id, code, until));
        let expired = Timestamp::default();
        let put = |number: u32, until| {
            let is_done = self.step("insert rows that expire", &|tx, _| {
                // Both rows may take the place of rows that have expired, one by its key and one by its code.
                duplicate(tx.insert(rows, row(1, 10 + number % 2, until)))?;
                duplicate(tx.upsert(rows, row(2, 10 + (number + 1) % 2, until)))?;
                tx.insert(due, RowDue::from_plain(PlainDue::new(number, until)))?;
                Ok(())
            });
            self.acknowledged.due.fetch_add(u64::from(is_done), SeqCst);
        };
        for number in 0..6 {
            put(number, expired);
            match number {
                1 => {
                    self.step("run hooks", &|tx, _| Ok(tx.run_due(due, 1).map(drop)?));
                }
                2 | 4 => {
                    let removed = catch_unwind(AssertUnwindSafe(|| self.database.remove_expired()));
                    let _ = removed.map_err(|panic| judge(&*panic, self.is_truthful, "removal"));
                }
                3 => {
                    self.step("look at rows that have expired", &|tx, _| {
                        let seen = tx.get(rows, &Short::new(1))?.is_some();
                        self.truthful(!seen, || "a row that has expired".to_owned());
                        Ok(())
                    });
                }
                _ => {}
            }
        }
    }
}
