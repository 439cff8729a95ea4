//! Transactions of the feed, and the changes in them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weft::column::{ColumnValue, DecodeError};
use weft::description::{RowChange, TableDescription, Value};
use weft::durability::format::WriteKind;
use weft::operation::OperationKind;
use weft::{Record, Table};

use crate::error::ChangesError;
use crate::order::{Epoch, Write};
use crate::position::Position;
use crate::schema::{Schema, decode};

/// A committed transaction. A procedure that commits in pieces is one, too.
///
/// The feed has several transactions as one if each of them came first on one row. Then no order of whole transactions
/// is that in which their changes were made. This happens to procedures whose pieces ran in turns and added to the
/// same rows, under the protocol `dbx-tc`, and under protocols without isolation. It also happens to transactions that
/// add to a split column and take from it, if they have written other rows in another order than the log has them: the
/// order of operations on a split column is known for each worker only.
pub struct Transaction {
    pub(crate) epoch: Arc<Epoch>,
    /// The changes, by their positions in the epoch.
    pub(crate) writes: Range<usize>,
    /// Those of them that are watched, unless all are.
    pub(crate) watched: Option<Box<[usize]>>,
    pub(crate) position: Position,
}

impl Transaction {
    /// Returns the position behind the transaction. Store it with what you have done about the transaction, and go on
    /// from it.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the epoch in which the transaction committed.
    pub fn epoch(&self) -> u64 {
        self.epoch.number
    }

    /// Returns what the transaction has changed. A [watch](crate::Watch) leaves out what it does not watch.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        let (epoch, transactions) = (&*self.epoch, self.epoch.ordered());
        let watched = self.watched.as_deref();
        (0..watched.map_or(self.writes.len(), <[usize]>::len)).map(move |at| {
            let write = watched.map_or(self.writes.start + at, |watched| watched[at]);
            Change::new(epoch, &transactions.writes[write])
        })
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes().collect();
        let position = self.position.to_string();
        formatter
            .debug_struct("Transaction")
            .field("position", &position)
            .field("changes", &changes)
            .finish()
    }
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// A row was inserted. Under the protocols `none` and `htm-naive`, which do not know what they replace, it may
    /// have replaced a row.
    Insert,
    /// Columns of a row got new values.
    Update,
    /// A commutative operation was applied to a column, in a protocol that splits hot columns. Other operations
    /// appear as updates.
    Operation,
    /// A row was deleted.
    Delete,
}

/// A change of a row.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    schema: &'a Schema,
    write: &'a Write,
    bytes: &'a [u8],
}

/// A commutative operation on a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The column.
    pub column: &'a str,
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The operand, as docs/log-format.md describes it for the kind.
    operand: &'a [u8],
}

impl Operation<'_> {
    /// Returns the operand of an operation on an integer, such as the number that is added.
    ///
    /// # Errors
    /// If `V` is not the column's type, or the operation is not on an integer.
    pub fn operand<V: ColumnValue>(&self) -> Result<V, ChangesError> {
        let read = read_whole(self.operand, "there are bytes behind the operand");
        read.map_err(|source| ChangesError::Decode { table: self.column.to_owned(), source })
    }
}

/// Reads a value that takes all of these bytes. `otherwise` is the error if bytes are left.
fn read_whole<V: ColumnValue>(bytes: &[u8], otherwise: &'static str) -> Result<V, DecodeError> {
    let mut rest = bytes;
    let value = V::read(&mut rest)?;
    match rest.is_empty() {
        true => Ok(value),
        false => Err(DecodeError::new(rest, otherwise)),
    }
}

impl<'a> Change<'a> {
    /// Returns the change that a write of an epoch makes.
    pub(crate) fn new(epoch: &'a Epoch, write: &'a Write) -> Self {
        Change { schema: &epoch.schema, write, bytes: epoch.bytes_of(write) }
    }

    /// Returns the number of the table.
    pub(crate) fn table_number(&self) -> u32 {
        self.write.table
    }

    /// Returns what kind of change it is.
    pub fn kind(&self) -> ChangeKind {
        match self.write.kind {
            WriteKind::Put => ChangeKind::Insert,
            WriteKind::Change => ChangeKind::Update,
            WriteKind::Operation => ChangeKind::Operation,
            WriteKind::Delete => ChangeKind::Delete,
        }
    }

    /// Returns the table, as it was when the change was made.
    fn description(&self) -> &'a TableDescription {
        &self.schema.tables[self.write.table as usize]
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &'a str {
        &self.description().name
    }

    /// Returns whether the change is one of a row of type `T`.
    pub fn is<T: Record>(&self) -> bool {
        self.schema.is::<T>(self.write.table)
    }

    /// Returns whether the change is one of a row of this table. Use it in place of [`Change::is`] for a type that has
    /// [several tables](weft::Builder::table_named).
    pub fn is_of<T: Record>(&self, table: &Table<T>) -> bool {
        self.schema.is_of(self.write.table, table)
    }

    fn decode_error(&self, source: DecodeError) -> ChangesError {
        ChangesError::Decode { table: self.table().to_owned(), source }
    }

    /// Returns the primary key of the row.
    ///
    /// # Errors
    /// [`ChangesError::OtherTable`], [`ChangesError::Schema`], [`ChangesError::Decode`].
    pub fn key<T: Record>(&self) -> Result<T::Key, ChangesError> {
        let conversion = self.schema.conversion::<T>(self.write.table)?;
        let key = self.stored_key()?;
        let key = conversion.adaptation.key(&key).map_err(|error| self.decode_error(error))?;
        decode(&key, self.table(), T::decode_key)
    }

    /// Returns the key of the row as it is stored. Changes of the same epoch and table are on the same row if it is equal.
    ///
    /// # Errors
    /// [`ChangesError::Decode`].
    #[doc(hidden)]
    pub fn stored_key(&self) -> Result<Cow<'a, [u8]>, ChangesError> {
        let key = self.schema.key_of(self.write.table, self.write.kind, self.bytes);
        key.map_err(|error| self.decode_error(error))
    }

    /// Returns the row if it was inserted, and `None` after any other change: the log does not hold the columns that
    /// an update leaves as they are. See [`Change::column`] and [`Change::apply`].
    ///
    /// # Errors
    /// As [`Change::key`].
    pub fn row<T: Record>(&self) -> Result<Option<T>, ChangesError> {
        let conversion = self.schema.conversion::<T>(self.write.table)?;
        if self.write.kind != WriteKind::Put {
            return Ok(None);
        }
        let row = conversion.adaptation.row(self.bytes);
        decode(&row.map_err(|error| self.decode_error(error))?, self.table(), T::decode_row)
            .map(Some)
    }

    /// Returns the row that this change makes of the row before it, which is `None` if there was none. The result is
    /// `None` if the change deletes the row. So a copy of a table follows the table.
    ///
    /// # Errors
    /// As [`Change::key`], and [`ChangesError::NoRow`] if columns change of a row that is not there.
    pub fn apply<T: Record>(&self, before: Option<T>) -> Result<Option<T>, ChangesError> {
        let conversion = self.schema.conversion::<T>(self.write.table)?;
        match self.write.kind {
            WriteKind::Put => return self.row(),
            WriteKind::Delete => return Ok(None),
            WriteKind::Change | WriteKind::Operation => {}
        }
        let before = before.ok_or(ChangesError::NoRow { table: T::TABLE })?;
        let (mut stored, mut changed) = (Vec::new(), Vec::new());
        before.encode_row(&mut stored);
        let mut change = self.read().map_err(|error| self.decode_error(error))?;
        let adapted = conversion.adaptation.change(&mut change);
        let applied =
            adapted.and_then(|()| change.apply(&conversion.current, &stored, &mut changed));
        applied.map_err(|error| self.decode_error(error))?;
        decode(&changed, self.table(), T::decode_row).map(Some)
    }

    /// Reads an update or an operation.
    fn read(&self) -> Result<RowChange<'a>, DecodeError> {
        let table = self.description();
        let read = match self.write.kind {
            WriteKind::Operation => table.read_operation(self.bytes),
            _ => table.read_change(self.bytes),
        };
        read.map(|(_, change)| change)
    }

    /// Returns the columns that get new values, by name, in the order of the table: all of an inserted row's, those
    /// that an update changes, and the key's of a deleted row. An operation gives none.
    ///
    /// # Errors
    /// [`ChangesError::Decode`].
    pub fn columns(&self) -> Result<Vec<(&'a str, Value)>, ChangesError> {
        self.read_columns().map_err(|error| self.decode_error(error))
    }

    fn read_columns(&self) -> Result<Vec<(&'a str, Value)>, DecodeError> {
        let table = self.description();
        let name = |position: usize| table.columns[position].name.as_str();
        match self.write.kind {
            WriteKind::Put => {
                let values = table.read_row(self.bytes)?;
                Ok(values.into_iter().enumerate().map(|(at, value)| (name(at), value)).collect())
            }
            WriteKind::Delete => {
                let values = table.read_key(self.bytes)?;
                Ok(table.key.iter().map(|&at| name(at)).zip(values).collect())
            }
            WriteKind::Operation => Ok(Vec::new()),
            WriteKind::Change => match self.read()? {
                RowChange::Operation(_) => Ok(Vec::new()),
                RowChange::Columns(columns) => columns
                    .iter()
                    .map(|(at, mut value)| {
                        Ok((name(at), table.columns[at].type_of.read_value(&mut value)?))
                    })
                    .collect(),
            },
        }
    }

    /// Returns the new value of a column, or `None` if the change does not set it. The name and the type are those
    /// that the column had when the change was made.
    ///
    /// # Errors
    /// [`ChangesError::Decode`] if `V` is not the column's type.
    pub fn column<V: ColumnValue>(&self, column: &str) -> Result<Option<V>, ChangesError> {
        let table = self.description();
        let Some(position) = table.columns.iter().position(|it| it.name == column) else {
            return Ok(None);
        };
        let value = |stored: &[u8]| read_whole(stored, "the column has another type");
        let read = || match self.write.kind {
            WriteKind::Put => {
                let mut rest = self.bytes;
                for column in &table.columns[..position] {
                    column.type_of.skip(&mut rest)?;
                }
                let start = rest;
                table.columns[position].type_of.skip(&mut rest)?;
                value(&start[..start.len() - rest.len()]).map(Some)
            }
            WriteKind::Change => match self.read()? {
                RowChange::Operation(_) => Ok(None),
                RowChange::Columns(columns) => {
                    let found = columns.iter().find(|(at, _)| *at == position);
                    found.map(|(_, stored)| value(stored)).transpose()
                }
            },
            WriteKind::Operation | WriteKind::Delete => Ok(None),
        };
        read().map_err(|error| self.decode_error(error))
    }

    /// Returns the operation, if the change is one.
    ///
    /// # Errors
    /// [`ChangesError::Decode`].
    pub fn operation(&self) -> Result<Option<Operation<'a>>, ChangesError> {
        if self.write.kind != WriteKind::Operation {
            return Ok(None);
        }
        let table = self.description();
        match self.read().map_err(|error| self.decode_error(error))? {
            RowChange::Operation(operation) => Ok(Some(Operation {
                column: &table.columns[operation.column()].name,
                kind: operation.kind(),
                operand: operation.operand(),
            })),
            RowChange::Columns(_) => Ok(None),
        }
    }
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Change");
        debug.field("table", &self.table()).field("kind", &self.kind());
        match self.operation() {
            Ok(Some(operation)) => debug.field("operation", &operation),
            _ => debug.field("columns", &self.columns().unwrap_or_default()),
        };
        debug.finish()
    }
}
