//! The tables of random transactions. The steps of a transaction are taken one by one, or by a procedure.

use weft::protocol::Protocol;
use weft::schema::Violation;
use weft::{Builder, Database, Error, Record, Snapshot, Table, Transaction, column_of};
use weft_procedures::{Execute, procedure};

use super::{
    Hashed, StepLog, StepReader, StepTaker, Stop, WholeTransaction, all, happened_if_allowed,
    happened_if_enough, happened_if_there, happened_unless_there, hashed_row, one, reversed,
};
use crate::step::{Column, GENERATED, HASHED, LINES, Row, Step, StepResult};

/// A row of the ordered table, which has a secondary index of each kind.
#[derive(Clone, Debug, Record)]
#[record(check = Ordered::check_value)]
struct Ordered {
    #[record(key)]
    key: u64,
    #[record(index)]
    group: u8,
    #[record(unique)]
    badge: String,
    value: i64,
    mark: i64,
}

impl Ordered {
    fn new(key: u64, value: i64) -> Self {
        Ordered { key, group: (key % 10) as u8, badge: badge(key), value, mark: 0 }
    }

    fn check_value(&self) -> Result<(), Violation> {
        if self.value < 0 { Err("negative".into()) } else { Ok(()) }
    }
}

fn badge(key: u64) -> String {
    format!("badge {key}")
}

/// A row with a generated key.
#[derive(Clone, Copy, Debug, Record)]
struct Numbered {
    #[record(key, generated)]
    key: u64,
    value: i64,
}

/// A row of the table for runs, which has no secondary indexes: with one, rows are inserted one by one.
#[derive(Clone, Copy, Debug, Record)]
struct Line {
    #[record(key)]
    key: u64,
    value: i64,
}

pub(super) struct Tables {
    ordered: Table<Ordered>,
    hashed: Table<Hashed>,
    numbered: Table<Numbered>,
    lines: Table<Line>,
}

impl Tables {
    /// Adds the tables to a database that is to be opened.
    pub(super) fn add_to<P: Protocol>(builder: Builder<P>) -> Builder<P> {
        builder.table::<Ordered>().table::<Hashed>().table::<Numbered>().table::<Line>()
    }

    /// Returns the tables of a database.
    pub(super) fn of<P: Protocol>(database: &Database<P>) -> Self {
        Tables {
            ordered: database.table().expect("it was added"),
            hashed: database.table().expect("it was added"),
            numbered: database.table().expect("it was added"),
            lines: database.table().expect("it was added"),
        }
    }
}

/// Takes steps, and then perhaps rolls back. What a step shows decides about the key of the next one, so that a step
/// depends on the one before.
#[procedure(TakeSteps)]
fn take_steps<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    steps: &[Step],
    keys: u64,
    rolls_back: bool,
) -> Result<StepLog, Stop> {
    let mut log = StepLog::new();
    let mut shift = 0;
    for &step in steps {
        let step = step.shifted(shift, keys);
        let shown = match step {
            Step::Read(key) if key >= LINES => one(tx.get(&tables.lines, &key)?.map(line_row)),
            Step::Read(key) if key >= GENERATED => {
                one(tx.get(&tables.numbered, &(key - GENERATED))?.map(numbered_row))
            }
            Step::Read(key) if key >= HASHED => one(tx.get(&tables.hashed, &key)?.map(hashed_row)),
            Step::Read(key) => one(tx.get(&tables.ordered, &key)?.map(row)),
            Step::ReadByBadge(key) => {
                one(tx.get_by(&tables.ordered, Ordered::BADGE, &badge(key))?.map(row))
            }
            Step::Write(key, value) if key >= LINES => {
                let changed = tx.update(&tables.lines, &key, |row| row.value = value)?;
                StepResult::Happened(changed.is_some())
            }
            Step::Write(key, value) if key >= HASHED => {
                let changed = tx.update(&tables.hashed, &key, |row| row.value = value)?;
                StepResult::Happened(changed.is_some())
            }
            Step::Write(key, value) => {
                happened_if_allowed(tx.update(&tables.ordered, &key, |row| row.value = value))?
            }
            Step::AddIfNotNegative(key, amount) => {
                happened_if_allowed(tx.update(&tables.ordered, &key, |row| row.value += amount))?
            }
            Step::Add(key, amount) => happened_if_there(match key >= HASHED {
                true => tx.add(&tables.hashed, &key, column_of!(Hashed.value), amount),
                false => tx.add(&tables.ordered, &key, column_of!(Ordered.value), amount),
            })?,
            Step::Take(key, amount) => {
                let mark = column_of!(Hashed.mark);
                happened_if_enough(match amount < 0 {
                    true => tx.give(&tables.hashed, &key, mark, -amount),
                    false => tx.take(&tables.hashed, &key, mark, amount),
                })?
            }
            Step::ReadColumn(key, column) => StepResult::Value(
                match (key >= HASHED, column) {
                    (true, Column::Value) => {
                        tx.get_columns(&tables.hashed, &key, column_of!(Hashed.value))
                    }
                    (true, Column::Mark) => {
                        tx.get_columns(&tables.hashed, &key, column_of!(Hashed.mark))
                    }
                    (false, Column::Value) => {
                        tx.get_columns(&tables.ordered, &key, column_of!(Ordered.value))
                    }
                    (false, Column::Mark) => {
                        tx.get_columns(&tables.ordered, &key, column_of!(Ordered.mark))
                    }
                }?
                .copied(),
            ),
            Step::AddToColumn(key, column, amount) => {
                let add = |value: &mut i64| *value += amount;
                happened_if_allowed(match (key >= HASHED, column) {
                    (true, Column::Value) => {
                        tx.update_columns(&tables.hashed, &key, column_of!(Hashed.value), add)
                    }
                    (true, Column::Mark) => {
                        tx.update_columns(&tables.hashed, &key, column_of!(Hashed.mark), add)
                    }
                    (false, Column::Value) => {
                        tx.update_columns(&tables.ordered, &key, column_of!(Ordered.value), add)
                    }
                    (false, Column::Mark) => {
                        tx.update_columns(&tables.ordered, &key, column_of!(Ordered.mark), add)
                    }
                })?
            }
            Step::Move(key, group) => {
                happened_if_allowed(tx.update(&tables.ordered, &key, |row| row.group = group))?
            }
            Step::Insert(key, value) => happened_unless_there(match key >= HASHED {
                true => tx.insert(&tables.hashed, Hashed::new(key, value)),
                false => tx.insert(&tables.ordered, Ordered::new(key, value)),
            })?,
            Step::Upsert(key, value) => StepResult::Happened(match key >= HASHED {
                true => tx.upsert(&tables.hashed, Hashed::new(key, value))?,
                false => tx.upsert(&tables.ordered, Ordered::new(key, value))?,
            }),
            Step::Delete(key) if key >= LINES => {
                StepResult::Happened(tx.delete(&tables.lines, &key)?)
            }
            Step::Delete(key) if key >= GENERATED => {
                StepResult::Happened(tx.delete(&tables.numbered, &(key - GENERATED))?)
            }
            Step::Delete(key) => StepResult::Happened(match key >= HASHED {
                true => tx.delete(&tables.hashed, &key)?,
                false => tx.delete(&tables.ordered, &key)?,
            }),
            Step::Scan(from, to) if from >= LINES => {
                all(tx.range(&tables.lines, from..to), line_row)?
            }
            Step::Scan(from, _) if from >= GENERATED => {
                all(tx.range(&tables.numbered, from - GENERATED..), numbered_row)?
            }
            Step::Scan(from, to) => all(tx.range(&tables.ordered, from..to), row)?,
            Step::ScanBack(from, to) => {
                reversed(all(tx.range(&tables.ordered, from..to).descending(), row)?)
            }
            Step::ScanGroup(group) => {
                all(tx.prefix_by(&tables.ordered, Ordered::GROUP, &group), row)?
            }
            Step::Len => StepResult::Value(Some(tx.len(&tables.ordered)? as i64)),
            Step::CountRows(from, to) => {
                StepResult::Value(Some(tx.range(&tables.ordered, from..to).count_rows()? as i64))
            }
            Step::DeleteRange(from, to) if from >= LINES => {
                StepResult::Value(Some(tx.delete_range(&tables.lines, from..to)? as i64))
            }
            Step::DeleteRange(from, to) => {
                StepResult::Value(Some(tx.delete_range(&tables.ordered, from..to)? as i64))
            }
            Step::First(from) => one(tx.range(&tables.ordered, from..).first_row()?.map(row)),
            Step::Last(to) => one(tx.range(&tables.ordered, ..to).last_row()?.map(row)),
            Step::BadgesFrom(key) => {
                let rows = tx.starts_with_by(&tables.ordered, Ordered::BADGE, &*badge(key));
                sorted(all(rows, row)?)
            }
            Step::WriteMany(keys, value) if keys[0] >= LINES => {
                let updated = tx.update_many(&tables.lines, keys, |position, row| {
                    row.value = value + position as i64;
                })?;
                StepResult::Value(Some(updated as i64))
            }
            Step::WriteMany(keys, value) => {
                let updated = tx.update_many(&tables.ordered, keys, |position, row| {
                    row.value = value + position as i64;
                })?;
                StepResult::Value(Some(updated as i64))
            }
            Step::Generate(value) => {
                let key = tx.insert_generated(&tables.numbered, |key| Numbered { key, value })?;
                StepResult::Value(Some((GENERATED + key) as i64))
            }
            Step::Page(after) => all(tx.range(&tables.ordered, ..).after(&after).take(2), row)?,
            Step::PageBack(before) => {
                all(tx.range(&tables.ordered, ..).descending().after(&before).take(2), row)?
            }
            Step::GroupPage(group, key) => {
                let scan = tx.range_by(&tables.ordered, Ordered::GROUP, ..);
                all(scan.after_by(Ordered::GROUP, &group, &key).take(2), row)?
            }
            Step::InsertMany(..) | Step::InSavepoint { .. } | Step::Snapshot | Step::Commit => {
                unreachable!("{step:?} is not for procedures")
            }
        };
        shift = weight(&shown);
        log.push((step, shown));
    }
    if rolls_back { Err(Stop::RollBack) } else { Ok(log) }
}

/// Returns a number that depends on what a step has shown.
fn weight(shown: &StepResult) -> u64 {
    match shown {
        StepResult::Rows(rows) => {
            rows.len() as u64 + rows.iter().map(|row| row.value as u64 >> 20).sum::<u64>() % 2
        }
        StepResult::Value(value) => value.unwrap_or(0) as u64 % 3,
        StepResult::Happened(happened) => u64::from(*happened),
        StepResult::Aborted => 0,
    }
}

impl<P: Protocol> StepTaker<P> for Tables {
    fn take(&self, tx: &Transaction<'_, P>, step: Step) -> Result<StepResult, Error> {
        Ok(match step {
            Step::InsertMany(keys, value) => {
                let rows = keys.into_iter().zip(value..);
                happened_unless_there(match keys[0] {
                    LINES.. => {
                        let line = |(key, value)| Line { key, value };
                        tx.insert_many(&self.lines, rows.map(line))
                    }
                    HASHED.. => {
                        let hashed = |(key, value)| Hashed::new(key, value);
                        tx.insert_many(&self.hashed, rows.map(hashed))
                    }
                    _ => {
                        let ordered = |(key, value)| Ordered::new(key, value);
                        tx.insert_many(&self.ordered, rows.map(ordered))
                    }
                })?
            }
            Step::InSavepoint { change, key, value, is_kept } => {
                let mut shown = None;
                let ran: Result<(), InSavepoint> = tx.savepoint(|tx| {
                    self.take(tx, change.step(key, value))?;
                    let undone: Result<(), InSavepoint> = tx.savepoint(|tx| {
                        self.take(tx, Step::Delete(key))?;
                        Err(InSavepoint::Undone)
                    });
                    if let Err(InSavepoint::Failed(error)) = undone {
                        return Err(error.into());
                    }
                    shown = Some(self.take(tx, Step::Read(key))?);
                    if is_kept { Ok(()) } else { Err(InSavepoint::Undone) }
                });
                if let Err(InSavepoint::Failed(error)) = ran {
                    return Err(error);
                }
                shown.expect("the savepoint has not failed")
            }
            step => {
                let log = take_steps(self, tx, &[step], 1, false).map_err(|stop| match stop {
                    Stop::Engine(error) => error,
                    stop => unreachable!("{stop:?}"),
                })?;
                log.into_iter().next().expect("it has taken the step").1
            }
        })
    }

    fn transact(&self, on: &WholeTransaction<'_, P>) -> Result<StepLog, Stop> {
        let WholeTransaction { database, options, steps, keys, rolls_back } = *on;
        database.execute_with(options, &mut TakeSteps::new(self, steps, keys, rolls_back))
    }
}

/// How a savepoint ends.
enum InSavepoint {
    Undone,
    Failed(Error),
}

impl From<Error> for InSavepoint {
    fn from(error: Error) -> Self {
        InSavepoint::Failed(error)
    }
}

impl StepReader for Tables {
    fn look(&self, snapshot: &Snapshot, step: Step) -> Result<StepResult, Error> {
        Ok(match step {
            Step::Read(key) if key >= LINES => one(snapshot.get(&self.lines, &key)?.map(line_row)),
            Step::Scan(from, to) if from >= LINES => {
                all(snapshot.range(&self.lines, from..to), line_row)?
            }
            Step::Read(key) if key >= GENERATED => {
                one(snapshot.get(&self.numbered, &(key - GENERATED))?.map(numbered_row))
            }
            Step::Read(key) if key >= HASHED => {
                one(snapshot.get(&self.hashed, &key)?.map(hashed_row))
            }
            Step::Read(key) => one(snapshot.get(&self.ordered, &key)?.map(row)),
            Step::ReadByBadge(key) => {
                one(snapshot.get_by(&self.ordered, Ordered::BADGE, &badge(key))?.map(row))
            }
            Step::Scan(from, to) => all(snapshot.range(&self.ordered, from..to), row)?,
            Step::ScanBack(from, to) => {
                reversed(all(snapshot.range(&self.ordered, from..to).descending(), row)?)
            }
            Step::ScanGroup(group) => {
                all(snapshot.prefix_by(&self.ordered, Ordered::GROUP, &group), row)?
            }
            Step::Len => StepResult::Value(Some(snapshot.len(&self.ordered)? as i64)),
            Step::First(from) => one(snapshot.range(&self.ordered, from..).first_row()?.map(row)),
            Step::Last(to) => one(snapshot.range(&self.ordered, ..to).last_row()?.map(row)),
            Step::BadgesFrom(key) => {
                let rows = snapshot.starts_with_by(&self.ordered, Ordered::BADGE, &*badge(key));
                sorted(all(rows, row)?)
            }
            Step::Page(after) => all(snapshot.range(&self.ordered, ..).after(&after).take(2), row)?,
            Step::PageBack(before) => {
                all(snapshot.range(&self.ordered, ..).descending().after(&before).take(2), row)?
            }
            Step::GroupPage(group, key) => {
                let scan = snapshot.range_by(&self.ordered, Ordered::GROUP, ..);
                all(scan.after_by(Ordered::GROUP, &group, &key).take(2), row)?
            }
            other => unreachable!("{other:?} is not for snapshots"),
        })
    }
}

fn row(row: &Ordered) -> Row {
    Row { key: row.key, value: row.value, group: row.group, mark: row.mark }
}

fn numbered_row(row: &Numbered) -> Row {
    Row::new(GENERATED + row.key, row.value)
}

fn line_row(row: &Line) -> Row {
    Row::new(row.key, row.value)
}

/// Sorts rows by their keys.
fn sorted(mut shown: StepResult) -> StepResult {
    if let StepResult::Rows(rows) = &mut shown {
        rows.sort_unstable();
    }
    shown
}
