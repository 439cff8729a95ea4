//! Changes of single columns of a row, as the log holds them.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{StoredOperation, TableDescription};
use crate::row::column::DecodeError;

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange<'a> {
    /// Columns get new values.
    Columns(ChangedColumns<'a>),
    /// A commutative operation is applied to a column.
    Operation(StoredOperation<'a>),
}

impl RowChange<'_> {
    /// Appends to `output` the row that this change makes of `row`, a stored row of `table`.
    ///
    /// # Errors
    /// If `row` does not consist of the table's columns, or if the result of an operation is
    /// outside the range of the column's type.
    pub fn apply(
        &self,
        table: &TableDescription,
        row: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        match self {
            RowChange::Columns(columns) => columns.apply(table, row, output),
            RowChange::Operation(operation) => operation.apply(table, row, output),
        }
    }

    /// Moves the columns to the positions that `place` returns, and leaves out those for which it
    /// returns `None`. `place` may convert the new value of a column, if it gets one.
    pub(super) fn move_columns(
        &mut self,
        mut place: impl FnMut(usize, Option<&mut Cow<'_, [u8]>>) -> Result<Option<usize>, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut columns = SmallVec::new();
        match self {
            RowChange::Columns(changed) => {
                for (position, mut value) in changed.columns.drain(..) {
                    if let Some(position) = place(position, Some(&mut value))? {
                        columns.push((position, value));
                    }
                }
                columns.sort_unstable_by_key(|(position, _)| *position);
            }
            RowChange::Operation(operation) => {
                if let Some(position) = place(operation.column, None)? {
                    operation.column = position;
                    return Ok(());
                }
            }
        }
        *self = RowChange::Columns(ChangedColumns { columns });
        Ok(())
    }
}

/// Some columns of a row, by their positions, with their new values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedColumns<'a> {
    /// In ascending order of the positions.
    columns: SmallVec<[(usize, Cow<'a, [u8]>); 4]>,
}

impl TableDescription {
    /// Takes a stored change apart: returns the row's encoded key, and the columns that change.
    /// ([`format`](crate::durability::format) draws it.)
    ///
    /// # Errors
    /// If `change` is not exactly a key, one bit for each column, and the values of the columns
    /// whose bit is set. Also if one of these columns belongs to the key.
    pub fn read_change<'a>(
        &self,
        change: &'a [u8],
    ) -> Result<(&'a [u8], RowChange<'a>), DecodeError> {
        let mut rest = change;
        for &position in &self.key {
            self.skip_column(position, &mut rest, change.len())?;
        }
        let key = &change[..change.len() - rest.len()];
        let at_bits = rest;
        let Some(bits) = rest.split_off(..self.columns.len().div_ceil(8)) else {
            return Err(DecodeError::ends_within(rest, "a change").within(change.len()));
        };
        let is_set = |position: usize| {
            bits.get(position / 8).is_some_and(|byte| byte & 1 << (position % 8) != 0)
        };
        if (self.columns.len()..bits.len() * 8).any(is_set) {
            let error = DecodeError::new(at_bits, "a change names a column that does not exist");
            return Err(error.within(change.len()));
        }
        if self.key.iter().any(|&position| is_set(position)) {
            let error = DecodeError::new(at_bits, "a change names a column of the primary key");
            return Err(error.within(change.len()));
        }
        let mut columns = SmallVec::new();
        for position in (0..self.columns.len()).filter(|&position| is_set(position)) {
            let start = rest;
            self.skip_column(position, &mut rest, change.len())?;
            columns.push((position, start[..start.len() - rest.len()].into()));
        }
        match rest.is_empty() {
            true => Ok((key, RowChange::Columns(ChangedColumns { columns }))),
            false => Err(DecodeError::goes_on(rest, "a change").within(change.len())),
        }
    }

    /// Takes a stored row apart into its encoded key, and a change that gives all other columns
    /// their values.
    ///
    /// # Errors
    /// If `row` does not consist of the table's columns.
    pub(crate) fn row_as_change<'a>(
        &self,
        row: &'a [u8],
    ) -> Result<(Vec<u8>, RowChange<'a>), DecodeError> {
        let (mut key, mut columns) = (vec![&[][..]; self.key.len()], SmallVec::new());
        self.for_each_column(row, |position, value| {
            match self.key.iter().position(|&column| column == position) {
                Some(place) => key[place] = value,
                None => columns.push((position, value.into())),
            }
            Ok(())
        })?;
        Ok((key.concat(), RowChange::Columns(ChangedColumns { columns })))
    }

    /// Visits the columns of a stored row, in order, each with its position and its stored value.
    ///
    /// # Errors
    /// Those of `visit`. Also if `row` does not consist of the table's columns.
    pub(crate) fn for_each_column<'a>(
        &self,
        row: &'a [u8],
        mut visit: impl FnMut(usize, &'a [u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut rest = row;
        for position in 0..self.columns.len() {
            let start = rest;
            self.skip_column(position, &mut rest, row.len())?;
            visit(position, &start[..start.len() - rest.len()])?;
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(DecodeError::goes_on(rest, "the row").within(row.len())),
        }
    }

    /// Advances `input` past the value of a column. `input` is the rest of `length_bytes`.
    pub(crate) fn skip_column(
        &self,
        position: usize,
        input: &mut &[u8],
        length_bytes: usize,
    ) -> Result<(), DecodeError> {
        let column = &self.columns[position];
        let skipped = column.type_of.skip(input);
        skipped.map_err(|error| error.in_column(column.name.clone(), length_bytes))
    }
}

impl ChangedColumns<'_> {
    /// Returns the positions of the columns that change, in ascending order, each with its new stored value.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.columns.iter().map(|(position, value)| (*position, &**value))
    }

    /// Appends to `output` the row that these changes make of `row`, a stored row of `table`.
    ///
    /// # Errors
    /// If `row` does not consist of the table's columns.
    fn apply(
        &self,
        table: &TableDescription,
        row: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut changed = self.columns.iter().peekable();
        table.for_each_column(row, |position, value| {
            let changed = changed.next_if(|(changed, _)| *changed == position);
            output.extend_from_slice(changed.map_or(value, |(_, value)| value));
            Ok(())
        })
    }
}
