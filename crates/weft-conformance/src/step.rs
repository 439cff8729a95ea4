//! The steps of all transactions in this crate, and their effects in a serial execution.

use std::collections::BTreeMap;

/// The first key of the hash table. Smaller keys belong to the ordered table.
pub const HASHED: u64 = 1000;

/// The first key of the table whose keys are generated.
pub const GENERATED: u64 = 3 * HASHED;

/// The first key of an ordered table without secondary indexes, into which rows are inserted in runs.
pub const LINES: u64 = 1 << 32;

/// The least mark of a row of the hash table.
pub const MARK_MIN: i64 = -4_194_304;

/// A step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Reads a row.
    Read(u64),
    /// Looks up a row of the ordered table in its unique index.
    ReadByBadge(u64),
    /// Sets a row's value, by an update.
    Write(u64, i64),
    /// Adds to the value of a row of the ordered table. If the value would fall below 0, nothing happens, and
    /// the transaction goes on.
    AddIfNotNegative(u64, i64),
    /// Adds to the value of a row, by a commutative operation. If the row does not exist, nothing happens, and
    /// the transaction goes on.
    Add(u64, i64),
    /// Takes from the mark of a row of the hash table, or gives to it if the number is negative. If there is no such
    /// row, or not enough above [`MARK_MIN`], nothing happens, and the transaction goes on.
    Take(u64, i64),
    /// Reads a column of a row, by an operation that names it.
    ReadColumn(u64, Column),
    /// Adds to a column of a row, by an update that names it. If the value of a row of the ordered table would fall
    /// below 0, nothing happens, and the transaction goes on.
    AddToColumn(u64, Column, i64),
    /// Moves a row of the ordered table into another group, and so to another place in its index.
    Move(u64, u8),
    /// Inserts a row. An existing row is left unchanged. In the ordered table a row's group is the last digit
    /// of its key.
    Insert(u64, i64),
    /// Inserts a row, or replaces the existing one.
    Upsert(u64, i64),
    /// Deletes a row.
    Delete(u64),
    /// Reads the rows of an ordered table with keys from the first up to but excluding the second.
    Scan(u64, u64),
    /// The same, from the greatest key to the least. (What it shows is reversed.)
    ScanBack(u64, u64),
    /// Reads the rows of a group, through the index.
    ScanGroup(u8),
    /// Counts the rows of the ordered table.
    Len,
    /// Counts the rows of the ordered table with keys from the first up to but excluding the second, by a scan.
    CountRows(u64, u64),
    /// Deletes the rows of an ordered table with keys from the first up to but excluding the second.
    DeleteRange(u64, u64),
    /// Reads the first row of the ordered table with at least this key.
    First(u64),
    /// Reads the last row of the ordered table with less than this key.
    Last(u64),
    /// Reads the rows of the ordered table whose badges start as that of this key.
    BadgesFrom(u64),
    /// Sets the values of the rows of an ordered table with these keys, each to one more than that of the key before.
    /// Counts the rows.
    WriteMany([u64; 3], i64),
    /// Inserts rows of one table with these keys, in their order. Each has a value that is one more than that of the row
    /// before. If there is a row with one of the keys, the keys before it have their rows, and the others have none.
    InsertMany([u64; 4], i64),
    /// Inserts a row with this value and a generated key, which it shows.
    Generate(i64),
    /// Reads two rows of the ordered table after this key.
    Page(u64),
    /// Reads two rows before this key, from the greatest key to the least.
    PageBack(u64),
    /// Reads two rows of the index after the position of the row with this group and this key.
    GroupPage(u8, u64),
    /// Makes a change of the row with this key, in a savepoint, and reads the row. Within a savepoint in this one, it
    /// deletes the row before, and undoes that. If the step is not kept, it is undone as well.
    InSavepoint {
        /// The change.
        change: Change,
        /// The row's key.
        key: u64,
        /// The value that the change uses.
        value: i64,
        /// Whether the change is kept.
        is_kept: bool,
    },
    /// Opens a snapshot of what is committed now, in place of a transaction. This is the first step. The others
    /// only read, and all of them see what existed at this one.
    Snapshot,
    /// Commits. (For a snapshot: closes it.)
    Commit,
}

/// A change of a row in a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// [`Step::Write`].
    Write,
    /// [`Step::Insert`].
    Insert,
    /// [`Step::Upsert`].
    Upsert,
    /// [`Step::Delete`].
    Delete,
    /// [`Step::Add`].
    Add,
    /// [`Step::InsertMany`], with the key and the three that follow it.
    InsertMany,
}

impl Change {
    /// Returns the change as a step of its own.
    pub fn step(self, key: u64, value: i64) -> Step {
        match self {
            Change::Write => Step::Write(key, value),
            Change::Insert => Step::Insert(key, value),
            Change::Upsert => Step::Upsert(key, value),
            Change::Delete => Step::Delete(key),
            Change::Add => Step::Add(key, value),
            Change::InsertMany => Step::InsertMany([key, key + 1, key + 2, key + 3], value),
        }
    }
}

/// A column that operations name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The value. In the ordered table it has a constraint.
    Value,
    /// The mark.
    Mark,
}

/// What a transaction saw of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: i64,
    /// Its group; 0 in the hash table.
    pub group: u8,
    /// Its mark; 0 until it is changed.
    pub mark: i64,
}

impl Row {
    /// Returns a row as it is inserted.
    pub fn new(key: u64, value: i64) -> Self {
        Row { key, value, group: if key < HASHED { (key % 10) as u8 } else { 0 }, mark: 0 }
    }

    fn column(&mut self, column: Column) -> &mut i64 {
        match column {
            Column::Value => &mut self.value,
            Column::Mark => &mut self.mark,
        }
    }
}

/// What a step showed to its transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    /// Rows, in the order of their keys. (Also for a group, because all its rows have the same group.)
    Rows(Vec<Row>),
    /// The value of a column, if there is such a row, or a number.
    Value(Option<i64>),
    /// Whether the step changed anything.
    Happened(bool),
    /// The transaction cannot go on.
    Aborted,
}

impl StepResult {
    pub(crate) fn reverse(&mut self) {
        if let StepResult::Rows(rows) = self {
            rows.reverse();
        }
    }

    /// Returns the rows.
    ///
    /// # Panics
    /// If the step does not show rows.
    pub fn rows(self) -> Vec<Row> {
        match self {
            StepResult::Rows(rows) => rows,
            other => panic!("{other:?} are not rows"),
        }
    }
}

impl Step {
    /// Returns the same step on a key that is `by` places further on, of the first `keys` keys of the ordered table.
    /// Steps that are on no single one of these keys stay as they are.
    pub fn shifted(mut self, by: u64, keys: u64) -> Self {
        if let Step::Read(key)
        | Step::ReadByBadge(key)
        | Step::Write(key, _)
        | Step::Move(key, _)
        | Step::Insert(key, _)
        | Step::Upsert(key, _)
        | Step::Delete(key)
        | Step::Page(key) = &mut self
            && *key < keys
        {
            *key = (*key + by) % keys;
        }
        self
    }
}

/// The rows of a database.
pub type State = BTreeMap<u64, Row>;

/// Returns the state of a database that was filled with these keys and values.
pub fn state_of(rows: &[(u64, i64)]) -> State {
    rows.iter().map(|&(key, value)| (key, Row::new(key, value))).collect()
}

/// Returns whether a procedure can take the step.
pub fn is_for_procedures(step: Step) -> bool {
    !matches!(step, Step::InSavepoint { .. } | Step::InsertMany(..))
}

/// Makes a step's change in a serial execution, and returns whether the step shows what it has shown.
pub fn is_explained(state: &mut State, step: Step, shown: &StepResult) -> bool {
    match (step, shown) {
        // Which key is generated does not follow from the rows. But no row has it.
        (Step::Generate(value), &StepResult::Value(Some(key))) => {
            replay(state, Step::Insert(key as u64, value)) == StepResult::Happened(true)
        }
        _ => replay(state, step) == *shown,
    }
}

/// Makes a step's change in a serial execution, and returns what the step shows.
///
/// # Panics
/// If the step [generates](Step::Generate) a key.
pub fn replay(state: &mut State, step: Step) -> StepResult {
    let change = |row: Option<&mut Row>, change: &dyn Fn(&mut Row)| {
        StepResult::Happened(row.map(change).is_some())
    };
    match step {
        Step::Read(key) | Step::ReadByBadge(key) => {
            StepResult::Rows(state.get(&key).copied().into_iter().collect())
        }
        Step::Write(key, value) => change(state.get_mut(&key), &|row| row.value = value),
        Step::AddIfNotNegative(key, amount) => {
            let row = state.get_mut(&key).filter(|row| row.value + amount >= 0);
            change(row, &|row| row.value += amount)
        }
        Step::Add(key, amount) => change(state.get_mut(&key), &|row| row.value += amount),
        Step::Take(key, amount) => {
            let row = state.get_mut(&key).filter(|row| row.mark - amount >= MARK_MIN);
            change(row, &|row| row.mark -= amount)
        }
        Step::ReadColumn(key, column) => {
            StepResult::Value(state.get_mut(&key).map(|row| *row.column(column)))
        }
        Step::AddToColumn(key, column, amount) => {
            let min = match (key >= HASHED, column) {
                (false, Column::Value) => 0,
                (true, Column::Mark) => MARK_MIN,
                _ => i64::MIN,
            };
            let row = state.get_mut(&key);
            let row = row.and_then(|row| (*row.column(column) + amount >= min).then_some(row));
            change(row, &|row| *row.column(column) += amount)
        }
        Step::Move(key, group) => change(state.get_mut(&key), &|row| row.group = group),
        Step::Insert(key, value) => {
            let absent = !state.contains_key(&key);
            state.entry(key).or_insert(Row::new(key, value));
            StepResult::Happened(absent)
        }
        Step::Upsert(key, value) => {
            StepResult::Happened(state.insert(key, Row::new(key, value)).is_some())
        }
        Step::Delete(key) => StepResult::Happened(state.remove(&key).is_some()),
        Step::Scan(from @ GENERATED.., to) => {
            StepResult::Rows(state.range(from..to).map(|(_, row)| *row).collect())
        }
        Step::Scan(from, to) | Step::ScanBack(from, to) => {
            StepResult::Rows(state.range(from..to.min(HASHED)).map(|(_, row)| *row).collect())
        }
        Step::ScanGroup(group) => {
            let ordered = state.range(..HASHED).map(|(_, row)| *row);
            StepResult::Rows(ordered.filter(|row| row.group == group).collect())
        }
        Step::Len => StepResult::Value(Some(state.range(..HASHED).count() as i64)),
        Step::CountRows(from, to) => {
            StepResult::Value(Some(state.range(from..to.min(HASHED)).count() as i64))
        }
        Step::DeleteRange(from, to) => {
            let before = state.len();
            let to = if from >= LINES { to } else { to.min(HASHED) };
            state.retain(|&key, _| key < from || key >= to);
            StepResult::Value(Some((before - state.len()) as i64))
        }
        Step::First(from) => {
            let first = state.range(from..HASHED).next();
            StepResult::Rows(first.map(|(_, row)| *row).into_iter().collect())
        }
        Step::Last(to) => {
            let last = state.range(..to.min(HASHED)).next_back();
            StepResult::Rows(last.map(|(_, row)| *row).into_iter().collect())
        }
        Step::BadgesFrom(key) => {
            let start = key.to_string();
            let rows = state.range(..HASHED).filter(|(key, _)| key.to_string().starts_with(&start));
            StepResult::Rows(rows.map(|(_, row)| *row).collect())
        }
        Step::WriteMany(keys, value) => {
            let set = keys
                .into_iter()
                .zip(value..)
                .filter(|&(key, value)| state.get_mut(&key).map(|row| row.value = value).is_some());
            StepResult::Value(Some(set.count() as i64))
        }
        Step::InsertMany(keys, value) => {
            let mut rows = keys.into_iter().zip(value..);
            let insert = |(key, value)| {
                replay(state, Step::Insert(key, value)) == StepResult::Happened(true)
            };
            StepResult::Happened(rows.all(insert))
        }
        Step::Generate(_) => unreachable!("the key does not follow from the rows"),
        Step::Page(after) => {
            StepResult::Rows(state.range(after + 1..HASHED).take(2).map(|(_, row)| *row).collect())
        }
        Step::PageBack(before) => StepResult::Rows(
            state.range(..before.min(HASHED)).rev().take(2).map(|(_, row)| *row).collect(),
        ),
        Step::GroupPage(group, key) => {
            let mut rows: Vec<Row> = state.range(..HASHED).map(|(_, row)| *row).collect();
            rows.sort_by_key(|row| (row.group, row.key));
            let after = rows.into_iter().filter(|row| (row.group, row.key) > (group, key));
            StepResult::Rows(after.take(2).collect())
        }
        Step::InSavepoint { change, key, value, is_kept } => {
            let mut inside = state.clone();
            replay(&mut inside, change.step(key, value));
            let shown = replay(&mut inside, Step::Read(key));
            if is_kept {
                *state = inside;
            }
            shown
        }
        Step::Snapshot | Step::Commit => StepResult::Happened(true),
    }
}
