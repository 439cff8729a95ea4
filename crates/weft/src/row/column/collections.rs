//! The stored forms of maps and sets: the list of their entries, in ascending order.
//!
//! The order is that of the keys' `Ord`. So a `HashMap` has one encoding too, the same as a `BTreeMap` with the same
//! entries, and a column can change from the one type to the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use super::{ColumnType, ColumnValue, DecodeError, allocation_bytes, leb128_bytes, write_leb128};

/// Reads a list of entries, and checks that they are in order, and that no key occurs twice.
fn read_ascending<T: ColumnValue, K: Ord>(
    input: &mut &[u8],
    key: impl Fn(&T) -> &K,
) -> Result<Vec<T>, DecodeError> {
    let start = *input;
    let entries = Vec::<T>::read(input)?;
    match entries.is_sorted_by(|one, next| key(one) < key(next)) {
        true => Ok(entries),
        false => {
            Err(DecodeError::new(start, "the entries of a map or set are not in ascending order"))
        }
    }
}

/// Returns about how many bytes a map or set takes for its entries, besides what they own.
fn table_bytes<T>(count: usize) -> usize {
    // Nodes and buckets are seldom full.
    allocation_bytes(count * (size_of::<T>() + 1) * 4 / 3)
}

/// Implements [`ColumnValue`] for a map. `$entries` sorts the entries if the map does not.
macro_rules! map {
    ($map:ident<$($parameter:ident),+>, [$($bounds:tt)*], $entries:expr) => {
        impl<K: ColumnValue + Ord $($bounds)*> ColumnValue for $map<$($parameter),+> {
            const TYPE: ColumnType = Vec::<(K, V)>::TYPE;

            fn write(&self, output: &mut Vec<u8>) {
                write_leb128(self.len() as u64, output);
                for (key, value) in $entries(self.iter()) {
                    key.write(output);
                    value.write(output);
                }
            }

            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let entries = read_ascending(input, |entry: &(K, V)| &entry.0)?;
                Ok(entries.into_iter().collect())
            }

            fn stored_bytes(&self) -> usize {
                let bytes = |(key, value): (&K, &V)| key.stored_bytes() + value.stored_bytes();
                leb128_bytes(self.len() as u64) + self.iter().map(bytes).sum::<usize>()
            }

            fn heap_bytes(&self) -> usize {
                let bytes = |(key, value): (&K, &V)| key.heap_bytes() + value.heap_bytes();
                table_bytes::<(K, V)>(self.len()) + self.iter().map(bytes).sum::<usize>()
            }

            fn is_same(&self, other: &Self) -> bool {
                let has = |(key, value): (&K, &V)| {
                    other
                        .get_key_value(key)
                        .is_some_and(|(other, found)| key.is_same(other) && value.is_same(found))
                };
                self.len() == other.len() && self.iter().all(has)
            }
        }
    };
}

map!(BTreeMap<K, V>, [, V: ColumnValue], std::convert::identity);
map!(HashMap<K, V, S>, [+ Hash, V: ColumnValue, S: BuildHasher + Default], |entries| {
    let mut entries: Vec<(&K, &V)> = Iterator::collect(entries);
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
});

/// Implements [`ColumnValue`] for a set, as [`map`] does for a map.
macro_rules! set {
    ($set:ident<$($parameter:ident),+>, [$($bounds:tt)*], $values:expr) => {
        impl<T: ColumnValue + Ord $($bounds)*> ColumnValue for $set<$($parameter),+> {
            const TYPE: ColumnType = Vec::<T>::TYPE;

            fn write(&self, output: &mut Vec<u8>) {
                write_leb128(self.len() as u64, output);
                $values(self.iter()).into_iter().for_each(|value: &T| value.write(output));
            }

            fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(read_ascending(input, |value: &T| value)?.into_iter().collect())
            }

            fn stored_bytes(&self) -> usize {
                leb128_bytes(self.len() as u64) + self.iter().map(T::stored_bytes).sum::<usize>()
            }

            fn heap_bytes(&self) -> usize {
                table_bytes::<T>(self.len()) + self.iter().map(T::heap_bytes).sum::<usize>()
            }

            fn is_same(&self, other: &Self) -> bool {
                let has = |value: &T| other.get(value).is_some_and(|found| value.is_same(found));
                self.len() == other.len() && self.iter().all(has)
            }
        }
    };
}

set!(BTreeSet<T>, [], std::convert::identity);
set!(HashSet<T, S>, [+ Hash, S: BuildHasher + Default], |values| {
    let mut values: Vec<&T> = Iterator::collect(values);
    values.sort_unstable();
    values
});
