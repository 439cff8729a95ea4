//! Steps on rows without secondary indexes: commutative operations, and operations on many rows.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::operation::Add;
use weft::protocol::Protocol;
use weft::{Database, Error, Transaction, column_of};
use weft_inspect::InspectDatabase;
use weft_protocols::{Adaptive, Doppel, DoppelLocking, LabelledDatabase};

use super::steps::judge;
use super::{Model, World, options};
use crate::hook::{Answer, Operation, called, quietly};
use crate::types::{Mark, PlainBare, Refusal, RowBare, Short};

/// The protocols that apply operations again when a commit fails.
const REAPPLYING: [&str; 4] = ["dbx", "silo", "occ", "dbx-spin"];

/// Returns keys of bare rows. Each key takes a call of user code.
fn keys_of(ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = Short> {
    ids.into_iter().map(|id| match called(Operation::PrefetchNext) {
        Answer::Lie => Short::new(id + 1),
        _ => Short::new(id),
    })
}

impl<P: Protocol> World<P> {
    /// The steps for protocols that allow one operation per transaction.
    pub(super) fn run_single(&self) {
        for id in 1..=4 {
            self.step("insert", &|tx, model| {
                self.insert_bare(tx, id + 50)?;
                model.bare.insert(id + 50, 0);
                Ok(())
            });
        }
        for turn in 0..200 {
            let id = 51 + turn % 4;
            self.step("update, delete or insert", &|tx, model| {
                match turn % 16 {
                    14 | 15 => {
                        if tx.delete(&self.bare, &Short::new(id))? {
                            model.bare.remove(&id);
                        }
                    }
                    13 => {
                        tx.upsert(&self.bare, RowBare::from_plain(PlainBare::new(id)))?;
                        model.bare.insert(id, 0);
                    }
                    _ => {
                        let changed = self.change_bare(tx, id, &|row| {
                            let _ = called(Operation::UpdateBody);
                            row.count += 1;
                        })?;
                        if let Some(count) = changed {
                            model.bare.insert(id, count);
                        }
                    }
                }
                Ok(())
            });
        }
        self.step("get", &|tx, _| Ok(self.bare_count(tx, 51).map(drop)?));
        self.step("prefetch", &|tx, _| {
            Ok(tx.prefetch(&self.bare, [Short::new(51), Short::new(52)])?)
        });
    }

    /// Runs operations on many rows.
    fn run_many(&self) {
        let keys = || keys_of(61..=66);
        self.step("insert many", &|tx, model| {
            let rows = (61..=66).map(|id| match called(Operation::PrefetchNext) {
                Answer::Lie => RowBare::from_plain(PlainBare::new(id + 10)),
                _ => RowBare::from_plain(PlainBare::new(id)),
            });
            tx.insert_many(&self.bare, rows)?;
            model.bare.extend((61..=66).map(|id| (id, 0)));
            Ok(())
        });
        self.step("insert a row with a generated key", &|tx, model| {
            let key = tx.insert_generated(&self.bare, |key| {
                let number = key.number();
                // A key that panics when it is dropped behind the row would leak the row.
                quietly(|| drop(key));
                match called(Operation::UpdateBody) {
                    Answer::Lie => RowBare::from_plain(PlainBare::new(number + 1)),
                    _ => RowBare::from_plain(PlainBare::new(number)),
                }
            })?;
            let number = key.number();
            // As in `update`.
            quietly(|| drop(key));
            model.bare.insert(number, 0);
            Ok(())
        });
        self.step("update many", &|tx, model| {
            let mut counts = Vec::new();
            tx.update_many(&self.bare, keys(), |position, row| {
                let _ = called(Operation::UpdateBody);
                row.count += 1;
                counts.push((61 + position as u32, row.count));
            })?;
            model.bare.extend(counts);
            Ok(())
        });
        self.step("get many", &|tx, _| {
            for row in tx.get_many(&self.bare, keys())? {
                row?;
            }
            Ok(())
        });
        self.step("delete a range", &|tx, model| {
            tx.delete_range(&self.bare, Short::new(65)..Short::new(67))?;
            model.bare.retain(|id, _| !(65..67).contains(id));
            Ok(())
        });
    }

    /// Runs commutative operations. Some protocols split the rows.
    pub(super) fn run_bare(&self) {
        for id in [1, 2] {
            self.step("insert", &|tx, model| {
                self.insert_bare(tx, id)?;
                model.bare.insert(id, 0);
                Ok(())
            });
        }
        self.run_many();
        self.label();
        self.report();
        let add = |tx: &Transaction<'_, P>, model: &mut Model| -> Result<(), Refusal> {
            if let Some(count) = model.bare.get_mut(&1) {
                self.add(tx, 1)?;
                *count += 1;
            }
            Ok(())
        };
        for turn in 0..12_i64 {
            self.step("add", &|tx, model| add(tx, model));
            self.step("put by order", &|tx, _| Ok(self.put(tx, turn)?));
            self.step("put among the greatest", &|tx, _| {
                let (key, mark) = (Short::new(1), Mark(turn as u32));
                Ok(tx.top_k_insert(&self.bare, &key, column_of!(RowBare.top), turn % 5, mark)?)
            });
            if turn == 5 {
                self.step("roll back additions", &|tx, model| {
                    add(tx, model)?;
                    self.put(tx, 99)?;
                    Err(Refusal::Refused)
                });
                self.on_a_thread(|| {
                    self.step("add on another thread", &|tx, model| add(tx, model));
                });
            }
            if turn == 8 && REAPPLYING.contains(&P::NAME) {
                self.step("add beside another", &|tx, model| {
                    add(tx, model)?;
                    // This replaces the row, so the commit applies the addition again.
                    self.on_a_thread(|| {
                        let _ = self.database.transact_with(&options(), |tx| self.add(tx, 0));
                    });
                    Ok(())
                });
            }
            if turn % 4 == 3 {
                self.step("read what was added", &|tx, model| {
                    let count = self.bare_count(tx, 1)?;
                    self.compare_in(tx, count, model.bare.get(&1).copied(), || "a sum".to_owned());
                    Ok(())
                });
            }
        }
        let looked = catch_unwind(AssertUnwindSafe(|| {
            self.database.snapshot(|snapshot| -> Result<(), Error> {
                let count = snapshot.get(&self.bare, &Short::new(1))?.map(|row| row.count);
                let expected = self.acknowledged.model.lock().unwrap().bare.get(&1).copied();
                self.truthful(count == expected, || {
                    format!("a sum: {count:?} instead of {expected:?}")
                });
                Ok(())
            })
        }));
        let _ = looked.map_err(|panic| judge(&*panic, self.is_truthful, "a snapshot of sums"));
    }

    fn label(&self) {
        let labelled = catch_unwind(AssertUnwindSafe(|| {
            let (database, bare) = (&self.database as &dyn Any, &self.bare as &dyn Any);
            let (count, key) = (column_of!(RowBare.count), Short::new(1));
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ =
                    Database::<Doppel>::label_split::<_, _, Add<_>>(database, bare, &key, count);
            }
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ =
                    Database::<Adaptive>::label_split::<_, _, Add<_>>(database, bare, &key, count);
            }
            if let (Some(database), Some(bare)) = (database.downcast_ref(), bare.downcast_ref()) {
                let _ = Database::<DoppelLocking>::label_split::<_, _, Add<_>>(
                    database, bare, &key, count,
                );
            }
        }));
        let _ = labelled.map_err(|panic| judge(&*panic, self.is_truthful, "label"));
    }

    /// Reports where the transactions before have met conflicts, which formats keys.
    fn report(&self) {
        let reported = catch_unwind(AssertUnwindSafe(|| {
            let _ = self.database.contention().map(|report| report.to_string());
        }));
        let _ = reported.map_err(|panic| judge(&*panic, self.is_truthful, "report"));
    }
}
