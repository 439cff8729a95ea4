//! The [`Record`] trait, which describes the rows of a table, and the table's schema at run time.
//!
//! `#[derive(Record)]` writes the implementation. You need not implement anything here by hand.

use std::fmt;
use std::marker::PhantomData;

use crate::row::column::{ColumnSet, ColumnType, DecodeError};
use crate::row::description::StoredRow;
use crate::row::encoding::{Key, KeyEncoder};
pub use crate::row::generated::GeneratedKey;
use crate::row::operation::Integer;
pub use crate::row::timestamp::ExpiryColumn;
use crate::row::timestamp::Timestamp;

/// Evidence that a row type is `Copy`.
///
/// Such a row is nothing but its bytes: it owns nothing, and does not change while it is shared. So the engine
/// may move it in memory. After an update it moves the row back beside the record's version word, where it is
/// found with one cache miss less, and takes less memory. Therefore derive `Copy` for rows of plain columns.
#[derive(Clone, Copy, Debug)]
pub struct PlainRow<R>(PhantomData<R>);

/// Finds out whether a row type is `Copy`: `PlainProbe::<R>::PLAIN`, with [`NotPlain`] in scope. Used by the derive.
#[doc(hidden)]
#[derive(Debug)]
pub struct PlainProbe<R>(PhantomData<R>);

impl<R: Copy> PlainProbe<R> {
    /// The evidence. This constant exists only for types that are `Copy`, and hides that of [`NotPlain`].
    pub const PLAIN: Option<PlainRow<R>> = Some(PlainRow(PhantomData));
}

/// The answer of [`PlainProbe`] for all other types.
#[doc(hidden)]
pub trait NotPlain<R> {
    /// No evidence.
    const PLAIN: Option<PlainRow<R>> = None;
}

impl<R> NotPlain<R> for PlainProbe<R> {}

/// A row type. Derive it: `#[derive(Clone, Record)]`.
///
/// A row is an ordinary Rust value. Once written it is never changed: an update clones it,
/// changes the clone and swaps a pointer. So readers get plain references, and a row may own
/// heap memory (`String`, `Vec`), though rows without any are cheaper to update.
pub trait Record: Clone + Send + Sync + 'static {
    /// The primary key's type: that of one column, or a tuple of several columns' types.
    type Key: Key;

    /// The table's name.
    const TABLE: &'static str;

    /// The kind of index that holds the primary key.
    const STORAGE: Storage;

    /// Whether the table exists in memory only. Its rows are never logged, are in no checkpoint,
    /// and are lost when the database is closed, while the rows of other tables are kept. Its
    /// columns can be of any type.
    const VOLATILE: bool;

    /// Evidence that rows are [plain](PlainRow), if they are. The derive gives it if the row type is `Copy`.
    const PLAIN: Option<PlainRow<Self>> = None;

    /// The columns, in the order of the struct's fields.
    const COLUMNS: &'static [Column];

    /// The primary key's columns, in the order of the key: positions in [`Record::COLUMNS`].
    const KEY_COLUMNS: &'static [usize];

    /// The secondary indexes, in the order of their declaration.
    const INDEXES: &'static [IndexDescription];

    /// Returns the number of a primary key, if the keys are [generated](GeneratedRecord). The database does not generate
    /// it once a row has it.
    #[doc(hidden)]
    const KEY_NUMBER: Option<fn(&Self::Key) -> u64> = None;

    /// Returns the row's primary key.
    fn key(&self) -> Self::Key;

    /// Returns whether the row's primary key is `key`, without building a key.
    fn key_equals(&self, key: &Self::Key) -> bool;

    /// Encodes the row's key in secondary index `INDEXES[index]`: the index's columns, and after
    /// them, if the index is not unique, the columns of the primary key that are not among them.
    ///
    /// # Panics
    /// If there is no such index.
    fn encode_index_key(&self, index: usize, encoder: &mut impl KeyEncoder);

    /// Encodes the columns of a primary key that follow the columns of secondary index
    /// `INDEXES[index]` in its entries: none if the index is unique, or else those that are not
    /// among its columns.
    ///
    /// # Panics
    /// If there is no such index.
    fn encode_rest_of_key(index: usize, key: &Self::Key, encoder: &mut impl KeyEncoder);

    /// Returns the row's values of the columns of secondary index `INDEXES[index]` as text, for messages.
    ///
    /// # Panics
    /// If there is no such index.
    fn index_key_text(&self, index: usize) -> String;

    /// Returns whether two versions of a row have different keys in secondary index
    /// `INDEXES[index]`. The two versions have the same primary key, so its columns are not
    /// compared.
    ///
    /// # Panics
    /// If there is no such index.
    fn index_key_differs(&self, other: &Self, index: usize) -> bool;

    /// Appends the row's stored form: its columns, in order, each as its
    /// [`ColumnValue`](crate::column::ColumnValue) writes it. Appends nothing for a volatile table,
    /// whose rows have no stored form.
    fn encode_row(&self, output: &mut Vec<u8>);

    /// Reads a row's stored form from the beginning of `input`, and advances `input` past it.
    ///
    /// # Errors
    /// If `input` does not begin with a row, or if the table is volatile.
    fn decode_row(input: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Returns how many bytes the row's stored form takes; 0 for a volatile table.
    fn stored_bytes(&self) -> usize;

    /// Returns about how many bytes the row's columns take outside the row
    /// ([`ColumnValue::heap_bytes`](crate::ColumnValue::heap_bytes)). For a volatile table, whose
    /// columns can have any type, it is 0.
    fn heap_bytes(&self) -> usize {
        0
    }

    /// Appends the changes between `before`, another version of the same row, and this version: one
    /// bit for each column, which says whether the column changed, then the stored forms of the
    /// changed columns, in order. The first column's bit is the lowest bit of the first byte.
    /// Appends nothing for a volatile table.
    fn encode_changes(&self, before: &Self, output: &mut Vec<u8>);

    /// Returns whether `columns` are known to be the same in `other`, another version of the same
    /// row. Columns of the primary key always are. Columns of a volatile table cannot be compared,
    /// so for such a table the answer is no, unless no column is left to compare.
    fn same_columns(&self, other: &Self, columns: ColumnSet) -> bool {
        let _ = other;
        columns.is_empty()
    }

    /// Carries a change over to another version of the same row. This version was made from
    /// `before`, and the result is what the same change makes of `onto`.
    ///
    /// A column that did not change keeps `onto`'s value. A column that changed gets this version's
    /// value. Columns in `adds` are sums: each moves by exactly the amount by which it moved from
    /// `before` to this version.
    ///
    /// Returns `None` if a sum is not a value of its column's type, if the type has no exact sums
    /// (only the integers have), or if the column is not one that a [`ColumnSet`] distinguishes.
    /// Also returns `None` for a volatile table, whose columns cannot be compared.
    fn rebase(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<Self> {
        let _ = (before, onto, adds);
        None
    }

    /// Returns the position of a column in `adds` whose sum cannot be deferred. If the sum were
    /// added to `onto` later, in some order with other sums, the result might not be a value of the
    /// column's type. See [`ColumnValue::has_room`](crate::column::ColumnValue::has_room). This
    /// version was made from `before`.
    #[doc(hidden)]
    fn lacks_room(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<usize> {
        let _ = (before, onto, adds);
        None
    }

    /// Appends a primary key's stored form: its columns, in the order of the key, encoded as in a
    /// row. Appends nothing for a volatile table.
    fn encode_key(key: &Self::Key, output: &mut Vec<u8>);

    /// Reads a primary key's stored form from the beginning of `input`, and advances `input` past
    /// it.
    ///
    /// # Errors
    /// If `input` does not begin with a key, or if the table is volatile.
    fn decode_key(input: &mut &[u8]) -> Result<Self::Key, DecodeError>;

    /// What the row type says about its earlier versions, and the names of its checks.
    const EVOLUTION: Evolution = Evolution::NONE;

    /// Makes a row of a stored one whose primary key is another one, or whose columns cannot be
    /// converted. Returns `None` if the stored row has no counterpart. Called only if
    /// [`Record::EVOLUTION`] says that rows are migrated.
    ///
    /// # Errors
    /// Why the row cannot be made. The database is not opened then.
    fn migrate(stored: &StoredRow<'_>) -> Result<Option<Self>, Violation> {
        let _ = stored;
        Ok(None)
    }

    /// How rows expire, if they do.
    const EXPIRY: Option<Expiry> = None;

    /// Returns when the row expires: at [`Timestamp::MAX`] if never.
    #[doc(hidden)]
    #[inline(always)]
    fn expires_at(&self) -> Timestamp {
        Timestamp::MAX
    }

    /// Whether [`Record::check`] checks anything.
    #[doc(hidden)]
    const IS_CHECKED: bool = true;

    /// Checks the row's own constraints, before the row is inserted or replaces another version.
    ///
    /// When a database with a directory is opened, this is called for each stored row, because the
    /// constraints may have been added since the row was written. If it panics then, opening the
    /// database panics, and the directory stays as it was.
    ///
    /// # Errors
    /// The first constraint that the row breaks.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// A row type whose table keeps its rows in the order of their primary keys, so that ranges of keys can be scanned.
/// The derive implements it unless the storage is `hash`.
#[diagnostic::on_unimplemented(
    message = "the rows of `{Self}` have no order by which they could be scanned",
    label = "`{Self}` is stored in a hash table",
    note = "declare `#[record(storage = \"ordered\")]`, scan a secondary index by `range_by` or `prefix_by`, or read \
            all rows by `Snapshot::rows`"
)]
pub trait OrderedRecord: Record {}

/// A row type whose primary key the database can generate, because it has `#[record(key, generated)]` on its key.
#[diagnostic::on_unimplemented(
    message = "the primary key of `{Self}` is not generated",
    label = "it has no generated key",
    note = "mark the key with `#[record(key, generated)]`, or insert rows with keys of your own by `insert`"
)]
pub trait GeneratedRecord: Record<Key: GeneratedKey> {}

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
    /// Whether the column belongs to the primary key.
    pub in_key: bool,
    /// Appends the encoded value of this column for rows that were stored before the column
    /// existed. `None` if the column has no such default.
    pub default: Option<fn(&mut Vec<u8>)>,
    /// The names that the column had earlier.
    pub was: &'static [&'static str],
    /// Computes the value of this column for a row that was stored before the column existed, and
    /// appends its encoding. `None` if the column is not computed.
    pub computed: Option<ComputeColumn>,
    /// The least and the greatest value that are declared for the column.
    pub bounds: Bounds,
    /// Whether a check of the row reads the column. Its bounds do not count as a check.
    pub is_checked: bool,
}

/// The least and the greatest value of a column of integers, as they are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least value, `None` if only the type limits it.
    pub min: Option<i128>,
    /// The greatest value, `None` if only the type limits it.
    pub max: Option<i128>,
}

impl Bounds {
    /// No bounds.
    pub const NONE: Bounds = Bounds { min: None, max: None };

    /// Returns whether a bound is declared.
    pub const fn is_some(&self) -> bool {
        self.min.is_some() || self.max.is_some()
    }

    /// Returns the least and the greatest value of type `V` within the bounds.
    #[doc(hidden)]
    #[inline(always)]
    pub fn range<V: Integer>(&self) -> (V, V) {
        let of = |bound: Option<i128>, limit| bound.map_or(limit, V::nearest);
        (of(self.min, V::LEAST), of(self.max, V::GREATEST))
    }
}

/// Checks a value against the bounds of its column. Called by the derive macro.
#[doc(hidden)]
#[inline(always)]
pub fn check_bounds<V: Integer>(value: V, column: &Column) -> Result<(), Violation> {
    let (min, max) = column.bounds.range();
    if value >= min && value <= max {
        return Ok(());
    }
    Err(out_of_bounds(value, min, max, column.name))
}

#[cold]
fn out_of_bounds<V: Integer>(value: V, min: V, max: V, column: &'static str) -> Violation {
    let message = match value < min {
        true => format!("{value:?} is less than the minimum {min:?}"),
        false => format!("{value:?} is more than the maximum {max:?}"),
    };
    Violation { check: column, message }
}

/// Computes the value of a column from a stored row, and appends its encoding.
pub type ComputeColumn = fn(&StoredRow<'_>, &mut Vec<u8>) -> Result<(), Violation>;

/// What a row type says about its earlier versions.
#[derive(Clone, Copy, Debug)]
pub struct Evolution {
    /// The names that the table had earlier.
    pub was: &'static [&'static str],
    /// The names of the checks that [`Record::check`] makes: those of the functions, and `column >= 0` or
    /// `column <= 9` for bounds.
    pub checks: &'static [&'static str],
    /// The names of what earlier versions had and this one does not need any more: columns, fields
    /// of columns as `column.field`, unique indexes, checks.
    pub dropped: &'static [&'static str],
    /// Whether [`Record::migrate`] makes rows.
    pub is_migrated: bool,
}

impl Evolution {
    /// What a row type says that has neither checks nor a past.
    pub const NONE: Evolution =
        Evolution { was: &[], checks: &[], dropped: &[], is_migrated: false };
}

/// How the rows of a table expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The position in [`Record::COLUMNS`] of the column that says when a row expires.
    pub column: usize,
    /// The position in [`Record::INDEXES`] of the index that is ordered by this column.
    pub index: usize,
    /// Whether the column is an `Option`, so that some rows never expire.
    pub is_optional: bool,
    /// Whether a row that has expired stays visible until a hook of the program has run for it.
    pub has_hook: bool,
}

/// A secondary index, described at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexDescription {
    /// The index's name.
    pub name: &'static str,
    /// The columns it is ordered by.
    pub columns: &'static [&'static str],
    /// Whether any two rows must differ in the values of these columns.
    pub unique: bool,
    /// The encoded width of an entry in bytes, as [`Record::encode_index_key`] writes it; `None` if
    /// it varies.
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
    /// Returns the index at `position` of [`Record::INDEXES`]. Called by the derive macro.
    #[doc(hidden)]
    pub const fn new(position: usize) -> Self {
        Index { position, types: PhantomData }
    }

    /// Returns the position in [`Record::INDEXES`].
    pub const fn position(self) -> usize {
        self.position
    }

    /// Returns the index's description.
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
    /// The name of the check that found this: the function's, or the column's if the column is out of its bounds.
    /// The derive sets it, and it is empty until then.
    pub check: &'static str,
    /// What is wrong with the row, in words for the person who wrote it.
    pub message: String,
}

impl<M: Into<String>> From<M> for Violation {
    fn from(message: M) -> Self {
        Violation { check: "", message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.check.is_empty() {
            write!(formatter, "{}: ", self.check)?;
        }
        formatter.write_str(&self.message)
    }
}
