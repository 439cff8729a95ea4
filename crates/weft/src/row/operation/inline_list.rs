//! A short list that is stored inline.

use crate::row::column::{ColumnValue, DecodeError, leb128_bytes, read_list_length, write_leb128};

/// A list of at most `N` elements. Unlike an `ArrayVec`, it does not need to be dropped if its
/// elements do not. So rows that contain it can lie inline in their records, and its column can be
/// split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InlineList<T, const N: usize> {
    length: usize,
    /// The first `length` elements are `Some`, the others are `None`.
    elements: [Option<T>; N],
}

impl<T, const N: usize> Default for InlineList<T, N> {
    fn default() -> Self {
        InlineList { length: 0, elements: [const { None }; N] }
    }
}

impl<T, const N: usize> InlineList<T, N> {
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.length == N
    }

    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        let there = self.elements[..self.length].iter();
        there.map(|element| element.as_ref().expect("the first ones are there"))
    }

    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.elements[..self.length].iter_mut().flatten()
    }

    /// Returns the elements.
    pub fn into_elements(self) -> impl Iterator<Item = T> {
        self.elements.into_iter().flatten()
    }

    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.elements[..self.length].last()?.as_ref()
    }

    /// Searches for the element for which `compare` returns `Equal`. Returns its position, or in
    /// `Err` the position at which it would be inserted.
    #[inline]
    pub fn search(&self, compare: impl Fn(&T) -> std::cmp::Ordering) -> Result<usize, usize> {
        self.elements[..self.length].binary_search_by(|element| {
            compare(element.as_ref().expect("the first ones are there"))
        })
    }

    /// Inserts an element. There must be room for it.
    #[inline]
    pub fn insert(&mut self, position: usize, element: T) {
        assert!(position <= self.length && self.length < N);
        self.elements[self.length] = Some(element);
        self.length += 1;
        self.elements[position..self.length].rotate_right(1);
    }

    /// Removes an element, and returns it.
    #[inline]
    pub fn remove(&mut self, position: usize) -> T {
        self.elements[position..self.length].rotate_left(1);
        self.length -= 1;
        self.elements[self.length].take().expect("the position is within the list")
    }
}

impl<T: ColumnValue, const N: usize> InlineList<T, N> {
    pub fn write(&self, output: &mut Vec<u8>) {
        write_leb128(self.length as u64, output);
        self.iter().for_each(|element| element.write(output));
    }

    pub fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        let length = read_list_length(T::TYPE.width_min_bytes(), input)?;
        if length > N {
            let message = format!("a list has {length} elements, and there is room for {N}");
            return Err(DecodeError::new(start, message));
        }
        let mut list = InlineList::default();
        for position in 0..length {
            list.insert(position, T::read(input)?);
        }
        Ok(list)
    }

    pub fn stored_bytes(&self) -> usize {
        leb128_bytes(self.length as u64) + self.iter().map(T::stored_bytes).sum::<usize>()
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.length == other.length
            && self.iter().zip(other.iter()).all(|(element, other)| element.is_same(other))
    }
}
