//! Bounded sets, which grow by the union with other sets.

use super::inline_list::InlineList;
use super::{Operation, OperationKind, Order, OutOfRange, Undecided, sealed};
use crate::row::column::{ColumnType, ColumnValue, DecodeError, write_leb128};

/// A column for [`Union`]: a set of at most `N` elements. It lies in the row itself. It is stored
/// as a list in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedSet<T, const N: usize> {
    /// In ascending order.
    elements: InlineList<T, N>,
}

impl<T, const N: usize> Default for BoundedSet<T, N> {
    /// Returns the empty set.
    fn default() -> Self {
        BoundedSet { elements: InlineList::default() }
    }
}

impl<T: Ord, const N: usize> BoundedSet<T, N> {
    /// Returns the set of these elements; `None` if more than `N` of them are different.
    pub fn of(elements: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut set = BoundedSet::default();
        for element in elements {
            if let Err(position) = set.elements.search(|other: &T| other.cmp(&element)) {
                if set.elements.is_full() {
                    return None;
                }
                set.elements.insert(position, element);
            }
        }
        Some(set)
    }

    /// Returns the elements, in ascending order.
    pub fn elements(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.elements.iter()
    }

    /// Returns whether an element is in the set.
    pub fn contains(&self, element: &T) -> bool {
        self.elements.search(|other| other.cmp(element)).is_ok()
    }

    /// Returns how many elements the set has.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.elements.len() == 0
    }

    /// Inserts an element, unless it is in the set already. There must be room for it.
    fn insert(&mut self, element: T) {
        if let Err(position) = self.elements.search(|other| other.cmp(&element)) {
            self.elements.insert(position, element);
        }
    }
}

impl<T: Order, const N: usize> ColumnValue for BoundedSet<T, N> {
    const TYPE: ColumnType = ColumnType::List(&T::TYPE);

    #[inline]
    fn write(&self, output: &mut Vec<u8>) {
        self.elements.write(output);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let elements = InlineList::<T, N>::read(input)?;
        if elements.iter().is_sorted_by(|element, next| element < next) {
            Ok(BoundedSet { elements })
        } else {
            Err(DecodeError::new(start, "a set is not in ascending order"))
        }
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        self.elements.stored_bytes()
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.elements.is_same(&other.elements)
    }
}

/// Adds the elements of another set.
///
/// Algebra: a semilattice: commutative, associative, and idempotent, as long as there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union<T, const N: usize>(pub BoundedSet<T, N>);

impl<T, const N: usize> sealed::Sealed for Union<T, N> {}

/// The slice of a union: the new elements of a set.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewElements<T, const N: usize> {
    /// The elements that the set had before. They do not count as new.
    known: BoundedSet<T, N>,
    new: BoundedSet<T, N>,
    /// How many new elements the slice may have.
    room: usize,
}

impl<T: Order, const N: usize> Operation<BoundedSet<T, N>> for Union<T, N> {
    const KIND: OperationKind = OperationKind::Union;
    type Family = Self;
    type Slice = NewElements<T, N>;
    /// The elements that are new.
    type Undo = Vec<T>;

    fn apply(&self, value: &mut BoundedSet<T, N>) -> Result<(), OutOfRange> {
        let new = self.0.elements.iter().filter(|element| !value.contains(element)).count();
        if value.len() + new > N {
            let message = format!("{new} new elements beside {} are more than {N}", value.len());
            return Err(OutOfRange { message });
        }
        for element in self.0.elements() {
            value.insert(element.clone());
        }
        Ok(())
    }

    fn slice(value: &BoundedSet<T, N>, cores: u32) -> NewElements<T, N> {
        let room = (N - value.len()) / cores.max(1) as usize;
        NewElements { known: value.clone(), new: BoundedSet::default(), room }
    }

    fn accumulate(&self, slice: &mut NewElements<T, N>) -> Result<Vec<T>, Undecided> {
        let is_new = |element: &&T| !slice.known.contains(element) && !slice.new.contains(element);
        let new: Vec<T> = self.0.elements.iter().filter(is_new).cloned().collect();
        if slice.new.len() + new.len() > slice.room {
            return Err(Undecided);
        }
        for element in &new {
            slice.new.insert(element.clone());
        }
        Ok(new)
    }

    fn undo(slice: &mut NewElements<T, N>, undo: Vec<T>) {
        for element in &undo {
            if let Ok(position) = slice.new.elements.search(|other| other.cmp(element)) {
                slice.new.elements.remove(position);
            }
        }
    }

    fn merge(slice: NewElements<T, N>, value: &mut BoundedSet<T, N>) {
        for element in slice.new.elements() {
            value.insert(element.clone());
        }
    }

    fn write(&self, output: &mut Vec<u8>) {
        write_leb128(N as u64, output);
        ColumnValue::write(&self.0, output);
    }
}
