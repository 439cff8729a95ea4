//! Watches: the changes of some rows of one table.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use weft::encoding::{Key, KeyEncoder, KeyLookup, KeyPrefix, KeyStart};
use weft::{Failure, Record, Table};

use crate::change::{Change, Transaction};
use crate::changes::{Changes, WatchedRows};
use crate::error::ChangesError;
use crate::position::Position;

/// The keys that a watch watches: a key, as `&key`, a range of keys, such as `1..10` or `..`, or a [`KeyRange`]. There
/// need not be rows with these keys.
pub trait WatchedKeys<K> {
    /// Returns the range of the keys.
    fn into_range(self) -> KeyRange<K>;
}

/// A range of keys of type `K`.
#[derive(Clone, Debug)]
pub struct KeyRange<K> {
    /// The bounds, as encoded keys, which are in the order of the keys.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    key: PhantomData<fn() -> K>,
}

impl<K: Key> KeyRange<K> {
    fn new(bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Self {
        KeyRange { bounds, key: PhantomData }
    }

    /// Returns the range of one key, which is given as for a look-up: a text as `"Ada"`, a tuple as `("Ada", 7)`.
    pub fn key(key: impl KeyLookup<K>) -> Self {
        let mut encoder = Encoded::default();
        key.encode_lookup(&mut encoder);
        KeyRange::new((Bound::Included(encoder.0.clone()), Bound::Included(encoder.0)))
    }

    /// Returns the range of all keys that begin with these columns: for a key `(u32, String)`, with `&7`.
    pub fn prefix(prefix: &(impl KeyPrefix<K> + ?Sized)) -> Self {
        let mut encoder = Encoded::default();
        prefix.encode_prefix(&mut encoder);
        KeyRange::new((Bound::Included(encoder.0.clone()), encoder.end_of_prefix()))
    }

    /// Returns the range of all keys that start with a text or with bytes: `"Ad"`, or `(7, "Ad")` for a key
    /// `(u32, String)`.
    pub fn starts_with(start: impl KeyStart<K>) -> Self {
        let encoded = |as_whole| {
            let mut encoder = Encoded::default();
            start.encode_start(as_whole, &mut encoder);
            encoder
        };
        // The text that ends there is the least of all that start with it.
        KeyRange::new((Bound::Included(encoded(true).0), encoded(false).end_of_prefix()))
    }
}

impl<K: Key> WatchedKeys<K> for KeyRange<K> {
    fn into_range(self) -> KeyRange<K> {
        self
    }
}

impl<K: Key> WatchedKeys<K> for &K {
    fn into_range(self) -> KeyRange<K> {
        KeyRange::key(self)
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<K: Key> WatchedKeys<K> for $range {
            fn into_range(self) -> KeyRange<K> {
                KeyRange::new((self.start_bound().map(encoded), self.end_bound().map(encoded)))
            }
        }
    )*};
}

ranges!(
    Range<K>,
    RangeInclusive<K>,
    RangeFrom<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

impl<K: Key> WatchedKeys<K> for RangeFull {
    fn into_range(self) -> KeyRange<K> {
        KeyRange::new((Bound::Unbounded, Bound::Unbounded))
    }
}

/// Collects the encoding of a key in bytes.
#[derive(Default)]
struct Encoded(Vec<u8>);

impl Encoded {
    /// Returns the end of the range of all keys whose encodings begin with this one.
    fn end_of_prefix(mut self) -> Bound<Vec<u8>> {
        while let Some(last) = self.0.pop() {
            if last < u8::MAX {
                self.0.push(last + 1);
                return Bound::Excluded(self.0);
            }
        }
        Bound::Unbounded
    }
}

impl KeyEncoder for Encoded {
    fn push(&mut self, value: u64, width_bytes: u32) {
        self.0.extend_from_slice(&value.to_be_bytes()[8 - width_bytes as usize..]);
    }

    fn push_wide(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn push_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

fn encoded<K: Key>(key: &K) -> Vec<u8> {
    let mut encoder = Encoded::default();
    key.encode(&mut encoder);
    encoder.0
}

/// The transactions that change rows of one table within a range of keys, in the order of the feed. Each has only
/// those changes.
///
/// Like [`Changes`], it is an iterator that blocks, and a [`Stream`].
pub struct Watch<T: Record> {
    changes: Changes,
    table: &'static str,
    row: PhantomData<fn() -> T>,
}

impl<T: Record> Watch<T> {
    pub(crate) fn new(
        changes: Changes,
        table: &Table<T>,
        keys: impl WatchedKeys<T::Key>,
    ) -> Result<Watch<T>, ChangesError> {
        if T::VOLATILE {
            return Err(ChangesError::Volatile { table: table.name() });
        }
        let tables = changes.schema().numbers_of(table);
        if tables.is_empty() {
            return Err(Failure::ForeignTable { table: table.name() }.into());
        }
        let KeyRange { bounds, .. } = keys.into_range();
        let is_everything = bounds == (Bound::Unbounded, Bound::Unbounded);
        let mut encoder = Encoded::default();
        let is_watched = move |change: &Change<'_>| {
            if is_everything {
                return Ok(true);
            }
            encoder.0.clear();
            change.key::<T>()?.encode(&mut encoder);
            Ok(bounds.contains(&encoder.0))
        };
        let rows = WatchedRows { tables, is_watched: Box::new(is_watched) };
        Ok(Watch { changes: changes.watch(rows), table: table.name(), row: PhantomData })
    }

    /// Returns the position behind the last transaction of the feed that was looked at.
    pub fn position(&self) -> Position {
        self.changes.position()
    }

    /// Returns the next transaction that changes a watched row, or `None` if there is nothing new.
    ///
    /// # Errors
    /// Those of [`Changes::try_next`]. [`ChangesError::Schema`] if the keys of an earlier form of the table cannot be
    /// converted.
    pub fn try_next(&mut self) -> Result<Option<Transaction>, ChangesError> {
        self.changes.try_next()
    }

    /// As [`Changes::next_timeout`], for the next transaction that changes a watched row.
    ///
    /// # Errors
    /// As [`Watch::try_next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Transaction>, ChangesError> {
        self.changes.next_timeout(timeout)
    }

    /// Returns the next transaction that changes a watched row, without blocking a thread, or `None` if the feed has
    /// ended.
    ///
    /// # Errors
    /// As [`Watch::try_next`].
    pub async fn next_async(&mut self) -> Result<Option<Transaction>, ChangesError> {
        self.changes.next_async().await
    }
}

impl<T: Record> Iterator for Watch<T> {
    type Item = Result<Transaction, ChangesError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.changes.next()
    }
}

impl<T: Record> Stream for Watch<T> {
    type Item = Result<Transaction, ChangesError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.changes).poll_next(context)
    }
}

impl<T: Record> fmt::Debug for Watch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Watch");
        debug.field("table", &self.table).field("changes", &self.changes).finish()
    }
}
