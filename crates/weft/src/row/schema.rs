//! What a table's rows look like: the [`Record`] trait, and its description at run time.
//!
//! `#[derive(Record)]` writes the implementation; nothing here needs to be implemented by hand.

use std::fmt;
use std::marker::PhantomData;

use crate::row::column::{ColumnSet, ColumnType, DecodeError};
use crate::row::encoding::{Key, KeyEncoder};

/// A row type. Derive it: `#[derive(Clone, Record)]`.
///
/// A row is an ordinary Rust value. Once written it is never changed: an update clones it,
/// changes the clone and swaps a pointer. So readers get plain references, and a row may own
/// heap memory (`String`, `Vec`), though rows without any are cheaper to update.
pub trait Record: Clone + Send + Sync + 'static {
    /// The primary key's type: one column's, or a tuple of several columns'.
    type Key: Key;

    /// The table's name.
    const TABLE: &'static str;

    /// The kind of index that holds the primary key.
    const STORAGE: Storage;

    /// Whether the table lives in memory alone: its rows are never logged, are in no checkpoint,
    /// and are gone when the database is closed, while other tables' rows are not. Its columns can
    /// be of any type.
    const VOLATILE: bool;

    /// The columns, in the order of the struct's fields.
    const COLUMNS: &'static [Column];

    /// The primary key's columns, in the order of the key: positions in [`Record::COLUMNS`].
    const KEY_COLUMNS: &'static [usize];

    /// The secondary indexes, in the order of their declaration.
    const INDEXES: &'static [IndexDescription];

    /// The row's primary key.
    fn key(&self) -> Self::Key;

    /// Whether the row's primary key is `key`, without building one.
    fn key_equals(&self, key: &Self::Key) -> bool;

    /// Encodes the row's key in secondary index `INDEXES[index]`: the index's columns, and after
    /// them, if the index is not unique, the columns of the primary key that are not among them.
    ///
    /// # Panics
    /// If there is no such index.
    fn encode_index_key(&self, index: usize, encoder: &mut impl KeyEncoder);

    /// Whether two versions of a row have different keys in secondary index `INDEXES[index]`.
    /// They have the same primary key, of which no column is compared.
    ///
    /// # Panics
    /// If there is no such index.
    fn index_key_differs(&self, other: &Self, index: usize) -> bool;

    /// Appends the row's stored form: its columns, in order, each as its
    /// [`ColumnValue`](crate::column::ColumnValue) writes it. Of a row of a volatile table, which
    /// has none, nothing.
    fn encode_row(&self, output: &mut Vec<u8>);

    /// Reads a row's stored form from the beginning of `input`, and moves `input` behind it.
    ///
    /// # Errors
    /// If no row stands there, or if the table is volatile.
    fn decode_row(input: &mut &[u8]) -> Result<Self, DecodeError>;

    /// How many bytes the row's stored form takes; 0 for a volatile table.
    fn stored_bytes(&self) -> usize;

    /// Appends what of the row is not as it was in `before`, a version of the same row: which columns
    /// these are, a bit each, and then their stored forms, in order. The first column's bit is the
    /// lowest of the first byte. For a volatile table, nothing.
    fn encode_changes(&self, before: &Self, output: &mut Vec<u8>);

    /// Whether it is known that these columns are as they are in another version of the same row. Columns of the
    /// primary key always are. Of a volatile table, whose columns cannot be compared, it is never known, unless
    /// there are none to compare.
    fn same_columns(&self, other: &Self, columns: ColumnSet) -> bool {
        let _ = other;
        columns.is_empty()
    }

    /// Carries a change over to another version of the same row: this version was made of `before`, and what is
    /// returned is what the same makes of `onto`.
    ///
    /// Columns that are as they were are `onto`'s, and those that have changed are this version's. But columns in
    /// `adds` are sums: they are moved by as much as they have moved here, exactly.
    ///
    /// `None` if a sum is no value of its column's type, or if the type has no exact sums (all but the
    /// integers), or if the column is none of those that a [`ColumnSet`] tells apart. And of a volatile
    /// table, whose columns cannot be compared.
    fn rebase(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<Self> {
        let _ = (before, onto, adds);
        None
    }

    /// The position of a column in `adds` whose sum cannot be deferred: added to `onto` at some later time, in
    /// whatever order with others, it might come to no value of the column's type. See
    /// [`ColumnValue::has_room`](crate::column::ColumnValue::has_room). This version was made of `before`.
    #[doc(hidden)]
    fn lacks_room(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<usize> {
        let _ = (before, onto, adds);
        None
    }

    /// Appends a primary key's stored form: its columns, in the order of the key, as in a row. For
    /// a volatile table, nothing.
    fn encode_key(key: &Self::Key, output: &mut Vec<u8>);

    /// Reads a primary key's stored form from the beginning of `input`, and moves `input` behind
    /// it.
    ///
    /// # Errors
    /// If no key stands there, or if the table is volatile.
    fn decode_key(input: &mut &[u8]) -> Result<Self::Key, DecodeError>;

    /// Whether [`Record::check`] checks anything.
    #[doc(hidden)]
    const IS_CHECKED: bool = true;

    /// Checks the row's own constraints, before it is inserted or replaces another.
    ///
    /// When a database with a directory is opened, each stored row is checked, because the constraints
    /// may have been added since. If it panics then, opening the database panics, and the directory
    /// stays as it was.
    ///
    /// # Errors
    /// The first constraint that the row breaks.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// The kind of index that holds a table's primary keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A B+-tree: point access, range and prefix scans both ways.
    Ordered,
    /// A hash table: point access only, at about half the cost.
    Hash,
}

/// A column, described at run time.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The field's name.
    pub name: &'static str,
    /// The field's Rust type, as written.
    pub type_name: &'static str,
    /// The type that its values are stored as; `None` in a volatile table.
    pub type_of: Option<ColumnType>,
    /// Whether it belongs to the primary key.
    pub in_key: bool,
    /// Appends the encoded value that it has in rows which were stored before it was there; `None`
    /// if there is no such value.
    pub default: Option<fn(&mut Vec<u8>)>,
}

/// A secondary index, described at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// The index's name.
    pub name: &'static str,
    /// The columns it is ordered by.
    pub columns: &'static [&'static str],
    /// Whether two rows may not share the same values of these columns.
    pub unique: bool,
    /// Encoded width of an entry, as [`Record::encode_index_key`] makes it; `None` if it varies.
    pub width_bytes: Option<usize>,
}

/// Names a secondary index of `R` whose columns have the type `K`: a tuple, or a single type.
///
/// `#[derive(Record)]` declares one constant per index on the row type.
pub struct Index<R, K> {
    position: usize,
    types: PhantomData<fn() -> (R, K)>,
}

impl<R: Record, K: Key> Index<R, K> {
    /// The index at `position` of [`Record::INDEXES`]. Called by the derive macro.
    #[doc(hidden)]
    pub const fn new(position: usize) -> Self {
        Index { position, types: PhantomData }
    }

    /// The position in [`Record::INDEXES`].
    pub const fn position(self) -> usize {
        self.position
    }

    /// The index's description.
    pub const fn description(self) -> &'static IndexDescription {
        &R::INDEXES[self.position]
    }
}

impl<R, K> Clone for Index<R, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, K> Copy for Index<R, K> {}

impl<R, K> fmt::Debug for Index<R, K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Index").field("position", &self.position).finish()
    }
}

/// A constraint that a row breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What is wrong with the row, in words for the person who wrote it.
    pub message: String,
}

impl<M: Into<String>> From<M> for Violation {
    fn from(message: M) -> Self {
        Violation { message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}
