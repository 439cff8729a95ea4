//! Sets of columns, and how an operation uses them.

/// A set of columns of a table, by their positions in [`Record::COLUMNS`](crate::Record::COLUMNS).
///
/// The set distinguishes the first [`ColumnSet::SINGLE`] columns. All columns after them count as
/// one: a set contains all of them or none of them. So a set may contain more columns than were put
/// into it, but never fewer.
///
/// ```
/// use weft::column::ColumnSet;
///
/// let columns = ColumnSet::of([2, 0]);
/// assert!(columns.contains(0) && !columns.contains(1) && columns.contains(2));
/// assert!(columns.meets(ColumnSet::of([2, 7])));
/// assert!(!columns.without(ColumnSet::of([2])).meets(ColumnSet::of([2, 7])));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ColumnSet(u128);

impl ColumnSet {
    /// How many columns, from the first on, are distinguished.
    pub const SINGLE: usize = 127;

    /// No columns.
    pub const NONE: ColumnSet = ColumnSet(0);

    /// All columns that a table may have.
    pub const ALL: ColumnSet = ColumnSet(u128::MAX);

    /// Returns the set of the columns at these positions.
    pub fn of(positions: impl IntoIterator<Item = usize>) -> ColumnSet {
        positions.into_iter().fold(ColumnSet::NONE, ColumnSet::with)
    }

    const fn bit(position: usize) -> u128 {
        1 << (if position < Self::SINGLE { position } else { Self::SINGLE })
    }

    /// Returns this set, with the column at a position added.
    pub const fn with(self, position: usize) -> ColumnSet {
        ColumnSet(self.0 | Self::bit(position))
    }

    /// Returns the columns that are in either set.
    pub const fn and(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 | other.0)
    }

    /// Returns the columns of this set that are not in the other.
    pub const fn without(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 & !other.0)
    }

    /// Returns the columns that are in both sets.
    pub const fn common(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 & other.0)
    }

    /// Returns whether the two sets have a column in common.
    pub const fn meets(self, other: ColumnSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether the column at a position is in the set.
    #[inline(always)]
    pub const fn contains(self, position: usize) -> bool {
        self.0 & Self::bit(position) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How an operation uses the columns of a row that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedColumns {
    /// Columns that must be unchanged: the operation uses their values, or replaces them.
    pub matters: ColumnSet,
    /// Columns that the operation only adds to. They are not in `matters`.
    pub adds: ColumnSet,
}

impl UsedColumns {
    /// All columns matter, because nothing is known about the operation.
    pub const ALL: UsedColumns = UsedColumns::matter(ColumnSet::ALL);

    /// These columns matter, and the operation only adds to none.
    pub const fn matter(columns: ColumnSet) -> UsedColumns {
        UsedColumns { matters: columns, adds: ColumnSet::NONE }
    }
}
