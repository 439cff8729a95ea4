//! Sets of columns.

/// A set of columns of a table, by their positions in [`Record::COLUMNS`](crate::Record::COLUMNS).
///
/// The first [`ColumnSet::SINGLE`] columns are told apart. All behind them count as one: a set has them all, or
/// none. So a set may have more columns than were put into it, never fewer.
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
    /// How many columns, from the first on, are told apart.
    pub const SINGLE: usize = 127;

    /// No columns.
    pub const NONE: ColumnSet = ColumnSet(0);

    /// All columns that a table may have.
    pub const ALL: ColumnSet = ColumnSet(u128::MAX);

    /// The columns at these positions.
    pub fn of(positions: impl IntoIterator<Item = usize>) -> ColumnSet {
        positions.into_iter().fold(ColumnSet::NONE, ColumnSet::with)
    }

    const fn bit(position: usize) -> u128 {
        1 << (if position < Self::SINGLE { position } else { Self::SINGLE })
    }

    /// This set, with the column at a position.
    pub const fn with(self, position: usize) -> ColumnSet {
        ColumnSet(self.0 | Self::bit(position))
    }

    /// The columns of both sets.
    pub const fn and(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 | other.0)
    }

    /// Those that are not in the other.
    pub const fn without(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 & !other.0)
    }

    /// Those that are in both.
    pub const fn common(self, other: ColumnSet) -> ColumnSet {
        ColumnSet(self.0 & other.0)
    }

    /// Whether a column is in both.
    pub const fn meets(self, other: ColumnSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the column at a position is in it.
    #[inline(always)]
    pub const fn contains(self, position: usize) -> bool {
        self.0 & Self::bit(position) != 0
    }

    /// Whether there is none in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
