//! Steps on rows with secondary indexes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weft::operation::Ordered;
use weft::protocol::Protocol;
use weft::{Error, Failure, Snapshot, Table, Transaction, column_of};

use super::steps::judge;
use super::{ContentOf, Model, World, duplicate};
use crate::hook::{Answer, Operation, called};
use crate::types::{Content, Indexed, Prefix, Refusal, Row, RowBare, Short};

/// A range whose bounds are computed by user code.
struct Range(Short, Short);

impl RangeBounds<Short> for Range {
    fn start_bound(&self) -> Bound<&Short> {
        match called(Operation::RangeBound) {
            Answer::Lie => Bound::Unbounded,
            _ => Bound::Included(&self.0),
        }
    }
    fn end_bound(&self) -> Bound<&Short> {
        match called(Operation::RangeBound) {
            Answer::Lie => Bound::Excluded(&self.0),
            _ => Bound::Included(&self.1),
        }
    }
}

/// Returns keys for prefetching. Each key takes a call of user code.
fn keys<R: Indexed>(ids: impl IntoIterator<Item = u32>) -> impl Iterator<Item = R::Key> {
    ids.into_iter().map(|id| match called(Operation::PrefetchNext) {
        Answer::Lie => R::key_of(id + 1),
        _ => R::key_of(id),
    })
}

/// Returns an update's closure that sets a row's content.
fn change<R: Indexed>(content: Content) -> impl Fn(&mut R) {
    move |row| match called(Operation::UpdateBody) {
        Answer::Lie => row.set(Content { stamp: content.stamp + 1, ..content }),
        _ => row.set(content),
    }
}

impl<P: Protocol> World<P> {
    pub(super) fn run_indexed<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let content = |id: u32, stamp| Content { stamp, group: id % 2, code: id * 10 };
        let put = |tx: &Transaction<'_, P>, model: &mut Model, id, stamp| -> Result<(), Refusal> {
            Self::insert(tx, table, id, content(id, stamp))?;
            of(model).insert(id, content(id, stamp));
            Ok(())
        };
        self.step("insert", &|tx, model| (1..=6).try_for_each(|id| put(tx, model, id, 1)));
        let set =
            |tx: &Transaction<'_, P>, model: &mut Model, id, content| -> Result<(), Refusal> {
                if Self::update(tx, table, id, &change(content))? {
                    of(model).insert(id, content);
                }
                Ok(())
            };
        self.step("update", &|tx, model| set(tx, model, 1, content(1, 2)));
        self.step("update an indexed column", &|tx, model| {
            set(tx, model, 2, Content { stamp: 2, group: 7, code: 21 })?;
            self.look(tx, table, of(model), 2)
        });
        self.step("upsert", &|tx, model| {
            for id in [3, 7] {
                Self::upsert(tx, table, id, Content { group: 5, ..content(id, 3) })?;
                of(model).insert(id, Content { group: 5, ..content(id, 3) });
            }
            Ok(())
        });
        let delete = |tx: &Transaction<'_, P>, model: &mut Model, id| -> Result<(), Refusal> {
            if Self::delete(tx, table, id)? {
                of(model).remove(&id);
            }
            Ok(())
        };
        self.step("delete", &|tx, model| delete(tx, model, 4));
        self.step("insert what was deleted", &|tx, model| put(tx, model, 4, 4));
        self.step("change a row several times", &|tx, model| {
            put(tx, model, 8, 1)?;
            set(tx, model, 8, Content { group: 9, ..content(8, 2) })?;
            delete(tx, model, 8)?;
            tx.prefetch_for_update(table, keys::<R>([8, 1, 2]))?;
            put(tx, model, 8, 3)?;
            delete(tx, model, 1)?;
            put(tx, model, 1, 5)?;
            set(tx, model, 1, content(1, 6))?;
            tx.prefetch(table, keys::<R>([1, 2, 8, 99]))?;
            self.look(tx, table, of(model), 1)?;
            self.scan(tx, table, of(model))
        });
        self.step("read", &|tx, model| {
            (1..=9).try_for_each(|id| self.look(tx, table, of(model), id))?;
            self.scan(tx, table, of(model))
        });
        self.under_snapshot(table, of);
        self.step("roll back", &|tx, model| {
            set(tx, model, 1, content(1, 100))?;
            delete(tx, model, 2)?;
            put(tx, model, 9, 100)?;
            Err(Refusal::Refused)
        });
        self.step("undo a savepoint", &|tx, model| {
            set(tx, model, 3, content(3, 40))?;
            let mut draft = model.clone();
            let undone = tx.savepoint(|tx| {
                set(tx, &mut draft, 1, content(1, 50))?;
                set(tx, &mut draft, 3, Content { group: 5, ..content(3, 51) })?;
                delete(tx, &mut draft, 2)?;
                put(tx, &mut draft, 9, 52)?;
                self.scan(tx, table, of(&mut draft))?;
                Err(Refusal::Refused)
            });
            match undone {
                Err(Refusal::Refused) => {}
                other => return other,
            }
            self.scan(tx, table, of(model))?;
            tx.savepoint(|tx| put(tx, model, 9, 53))?;
            self.look(tx, table, of(model), 9)?;
            delete(tx, model, 9)?;
            (1..=9).try_for_each(|id| self.look(tx, table, of(model), id))
        });
        self.step("meet duplicates", &|tx, model| {
            if of(model).contains_key(&1) {
                duplicate(Self::insert(tx, table, 1, content(9, 1)))?;
                duplicate(Self::insert(tx, table, 9, content(1, 1)))?;
            }
            if of(model).contains_key(&1) && of(model).contains_key(&3) {
                let code_of_another = Content { code: content(3, 1).code, ..content(1, 1) };
                duplicate(Self::update(tx, table, 1, &change(code_of_another)))?;
                duplicate(Self::upsert(tx, table, 1, code_of_another))?;
            }
            self.look(tx, table, of(model), 1)
        });
        self.step("go on after panics", &|tx, model| {
            let caught = |model: &mut Model, act: &dyn Fn(&mut Model) -> Result<(), Refusal>| {
                let mut draft = model.clone();
                match catch_unwind(AssertUnwindSafe(|| act(&mut draft))) {
                    Ok(result) => {
                        *model = draft;
                        result
                    }
                    Err(panic) => {
                        judge(&*panic, self.is_truthful, "go on after panics");
                        Ok(())
                    }
                }
            };
            caught(model, &|model| set(tx, model, 5, Content { group: 3, ..content(5, 11) }))?;
            caught(model, &|model| put(tx, model, 9, 11))?;
            caught(model, &|model| delete(tx, model, 3))?;
            caught(model, &|model| put(tx, model, 3, 12))?;
            caught(model, &|model| set(tx, model, 3, content(3, 13)))?;
            caught(model, &|model| self.look(tx, table, of(model), 3))
        });
        self.conflict(table, of);
    }

    /// Reads one row, and compares it with the expected one.
    pub(super) fn look<R: Indexed>(
        &self,
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
        id: u32,
    ) -> Result<(), Refusal> {
        let row = Self::get(tx, table, id)?;
        self.compare_in(tx, row, expected.get(&id).copied(), || {
            format!("row {id} of {}", R::TABLE)
        });
        Ok(())
    }

    /// Compares what a transaction has read with the expected value.
    pub(super) fn compare_in<T: PartialEq + std::fmt::Debug>(
        &self,
        _tx: &Transaction<'_, P>,
        found: T,
        expected: T,
        what: impl FnOnce() -> String,
    ) {
        self.truthful(found == expected, || {
            format!("{}: {found:?} instead of {expected:?}", what())
        });
    }

    /// Scans by all indexes, and compares the rows.
    pub(super) fn scan<R: Indexed>(
        &self,
        tx: &Transaction<'_, P>,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
    ) -> Result<(), Refusal> {
        let all: Vec<(u32, Content)> =
            expected.iter().map(|(id, content)| (*id, *content)).collect();
        let content = |row: Result<&R, Error>| row.map(|row| (row.id(), row.content()));
        if let Some((rows, _)) = &self.indexed
            && R::IS_ORDERED
        {
            let content =
                |row: Result<&Row, Error>| row.map(|row| (Indexed::id(row), row.content()));
            let found = tx.range(rows, ..).map(content).collect::<Result<Vec<_>, _>>()?;
            self.compare_in(tx, found, all.clone(), || "a scan".to_owned());
            let range = Range(Short::new(2), Short::new(4));
            let found = tx.range(rows, range).map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| (2..=4).contains(id)).collect();
            self.compare_in(tx, found, some, || "a scan of a range".to_owned());
            let found = tx.prefix(rows, &Prefix(5)).map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| *id == 5).collect();
            self.compare_in(tx, found, some, || "a scan of a prefix".to_owned());
            let after = tx.range(rows, ..).after(&Short::new(2));
            let found = after.map(content).collect::<Result<Vec<_>, _>>()?;
            let some = all.iter().copied().filter(|(id, _)| *id > 2).collect();
            self.compare_in(tx, found, some, || "a page".to_owned());
            let found = tx.range(rows, ..).last_row()?.map(Indexed::id);
            self.compare_in(tx, found, all.last().map(|(id, _)| *id), || "the last row".to_owned());
            self.compare_in(tx, tx.len(rows)?, all.len(), || "the number of rows".to_owned());
            let reversed = Range(Short::new(4), Short::new(2));
            let _ = tx.range(rows, reversed).map(content).collect::<Result<Vec<_>, _>>();
        }
        let mut found =
            tx.range_by(table, R::BY_GROUP, ..).map(content).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.compare_in(tx, found, all.clone(), || format!("a scan of {} by group", R::TABLE));
        let group = R::group_of(1);
        let found =
            tx.prefix_by(table, R::BY_GROUP, &group).map(content).collect::<Result<Vec<_>, _>>()?;
        let some: Vec<_> = all.iter().copied().filter(|(_, content)| content.group == 1).collect();
        self.compare_in(tx, found, some, || format!("a group of {}", R::TABLE));
        let after =
            tx.range_by(table, R::BY_GROUP, ..).after_by(R::BY_GROUP, &group, &R::key_of(2));
        let found = after.map(content).collect::<Result<Vec<_>, _>>()?.len();
        let some = all.iter().filter(|(id, content)| (content.group, *id) > (1, 2)).count();
        self.compare_in(tx, found, some, || format!("a page of {} by group", R::TABLE));
        for (id, content) in &all {
            let found =
                tx.get_by(table, R::BY_CODE, &R::code_of(content.code))?.map(|row| row.id());
            self.compare_in(tx, found, Some(*id), || format!("a code of {}", R::TABLE));
        }
        Ok(())
    }

    /// Opens a snapshot, changes rows, and checks what the snapshot shows.
    fn under_snapshot<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let before = self.acknowledged.model.lock().unwrap().clone();
        let opened = catch_unwind(AssertUnwindSafe(|| self.database.open_snapshot()));
        let snapshot = match opened {
            Ok(opened) => opened.ok(),
            Err(panic) => {
                judge(&*panic, self.is_truthful, "open a snapshot");
                None
            }
        };
        self.step("change below a snapshot", &|tx, model| {
            let content = Content { stamp: 50, group: 4, code: 50 };
            if Self::update(tx, table, 5, &change(content))? {
                of(model).insert(5, content);
            }
            if Self::delete(tx, table, 6)? {
                of(model).remove(&6);
            }
            Ok(())
        });
        self.step("insert below a snapshot", &|tx, model| {
            let content = Content { stamp: 51, group: 4, code: 60 };
            if let Entry::Vacant(vacant) = of(model).entry(6) {
                Self::insert(tx, table, 6, content)?;
                vacant.insert(content);
            }
            Ok(())
        });
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let look = |snapshot: &Snapshot, mut expected: Model| -> Result<(), Refusal> {
                if called(Operation::SnapshotBody) == Answer::Lie {
                    return Err(Refusal::Refused);
                }
                self.look_at(snapshot, table, of(&mut expected))
                    .map_err(|failure| Error::from(failure).into())
            };
            if let Some(snapshot) = &snapshot {
                let _ = look(snapshot, before);
            }
            drop(snapshot);
            let after = self.acknowledged.model.lock().unwrap().clone();
            let _ = self.database.snapshot(|snapshot| look(snapshot, after.clone()));
            let _ = self.database.recent_snapshot(|snapshot| {
                snapshot.get(table, &R::key_of(1)).map(drop).map_err(Error::from)
            });
        }));
        let _ = looked.map_err(|panic| judge(&*panic, self.is_truthful, "look at a snapshot"));
    }

    pub(super) fn look_at<R: Indexed>(
        &self,
        snapshot: &Snapshot,
        table: &Table<R>,
        expected: &BTreeMap<u32, Content>,
    ) -> Result<(), Failure> {
        for id in 1..=9 {
            let found = snapshot.get(table, &R::key_of(id))?.map(Indexed::content);
            let expected = expected.get(&id).copied();
            self.truthful(found == expected, || {
                format!("row {id} of {} in a snapshot: {found:?} instead of {expected:?}", R::TABLE)
            });
        }
        let content = |row: Result<&R, Failure>| row.map(|row| (row.id(), row.content()));
        let all: Vec<(u32, Content)> =
            expected.iter().map(|(id, content)| (*id, *content)).collect();
        let mut found = snapshot.rows(table).map(content).collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.truthful(found == all, || format!("rows of a snapshot: {found:?} instead of {all:?}"));
        let mut found = snapshot
            .range_by(table, R::BY_GROUP, ..)
            .map(content)
            .collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(|(id, _)| *id);
        self.truthful(found == all, || {
            format!("rows of a snapshot by group: {found:?} instead of {all:?}")
        });
        for (id, content) in all {
            let found =
                snapshot.get_by(table, R::BY_CODE, &R::code_of(content.code))?.map(Indexed::id);
            self.truthful(found == Some(id), || {
                format!("row {id} of a snapshot by code: {found:?}")
            });
        }
        Ok(())
    }

    /// Runs a transaction that conflicts with a transaction of another thread.
    fn conflict<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        let other = |tx: &Transaction<'_, P>| -> Result<(), Error> {
            Self::update(tx, table, 2, &|row| row.set(row.content())).map(drop)
        };
        self.step_beside("meet a conflict", &other, &|tx, model, let_other_run| {
            let Some(content) = Self::get(tx, table, 2)? else { return Ok(()) };
            let content = Content { stamp: content.stamp + 1, ..content };
            let_other_run();
            if Self::update(tx, table, 2, &change(content))? {
                of(model).insert(2, content);
            }
            Ok(())
        });
    }

    /// Names columns, while another thread changes other columns of the same rows.
    pub(super) fn name_columns(&self, rows: &Table<Row>) {
        let (one, named) = (Short::new(1), Short::new(3));
        self.step("insert a row for columns", &|tx, model| {
            self.insert_bare(tx, 3)?;
            model.bare.insert(3, 0);
            Ok(())
        });
        let other = |tx: &Transaction<'_, P>| -> Result<(), Error> {
            self.change_bare(tx, 1, &|row| row.winner = Ordered::default())?;
            self.change_bare(tx, 3, &|row| row.winner = Ordered::default())?;
            Self::update(tx, rows, 2, &|row| row.padding[0] += 1).map(drop)
        };
        self.step_beside("name columns", &other, &|tx, model, let_other_run| {
            let _ = tx.get_columns(&self.bare, &one, column_of!(RowBare.stamp))?;
            let add = |count: &mut i64| *count += 1;
            let added = tx.update_columns(&self.bare, &named, column_of!(RowBare.count), add)?;
            if let (Some(()), Some(count)) = (added, model.bare.get_mut(&3)) {
                *count += 1;
            }
            let stamp =
                tx.update_columns(rows, &Row::key_of(2), column_of!(Row.stamp), |stamp| {
                    *stamp += 1;
                    *stamp
                })?;
            if let (Some(stamp), Some(content)) = (stamp, model.rows.get_mut(&2)) {
                content.stamp = stamp;
            }
            let_other_run();
            Ok(())
        });
        self.step("read what named columns", &|tx, model| {
            let count = self.bare_count(tx, 3)?;
            self.compare_in(tx, count, model.bare.get(&3).copied(), || "a count".to_owned());
            self.look(tx, rows, &model.rows, 2)
        });
    }

    /// Makes enough garbage to trigger a collection.
    pub(super) fn churn<R: Indexed>(&self, table: &Table<R>, of: ContentOf) {
        for turn in 0..120_u64 {
            self.step("churn", &|tx, model| {
                let id = [5, 6][turn as usize % 2];
                let content =
                    Content { stamp: 1000 + turn, group: (turn % 3) as u32, code: id * 10 };
                if turn % 8 == 7 && of(model).contains_key(&id) {
                    if Self::delete(tx, table, id)? {
                        of(model).remove(&id);
                    }
                } else {
                    Self::upsert(tx, table, id, content)?;
                    of(model).insert(id, content);
                }
                Ok(())
            });
        }
    }
}
