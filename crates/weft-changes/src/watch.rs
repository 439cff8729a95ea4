//! Watches: the changes of some rows of one table.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_core::Stream;
use weft::encoding::{Key, KeyEncoder};
use weft::{Failure, Record};

use crate::change::{Change, Transaction};
use crate::changes::Changes;
use crate::error::ChangesError;
use crate::position::Position;

/// The keys that a watch watches: a key, as `&key`, or a range of keys, such as `1..10` or `..`.
pub trait WatchedKeys<K> {
    /// Returns the range of the keys.
    fn into_bounds(self) -> (Bound<K>, Bound<K>);
}

impl<K: Key> WatchedKeys<K> for &K {
    fn into_bounds(self) -> (Bound<K>, Bound<K>) {
        (Bound::Included(self.clone()), Bound::Included(self.clone()))
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<K: Key> WatchedKeys<K> for $range {
            fn into_bounds(self) -> (Bound<K>, Bound<K>) {
                (self.start_bound().cloned(), self.end_bound().cloned())
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
    RangeFull,
    (Bound<K>, Bound<K>)
);

/// The transactions that change rows of one table within a range of keys, in the order of the feed. Each has only
/// those changes.
///
/// Like [`Changes`], it is an iterator that blocks, and a [`Stream`].
pub struct Watch<T: Record> {
    changes: Changes,
    /// The range, as encoded keys, which are in the order of the keys.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    row: PhantomData<fn() -> T>,
}

/// Collects the encoding of a key in bytes.
#[derive(Default)]
struct Encoded(Vec<u8>);

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

impl<T: Record> Watch<T> {
    pub(crate) fn new(
        changes: Changes,
        keys: impl WatchedKeys<T::Key>,
    ) -> Result<Watch<T>, ChangesError> {
        if T::VOLATILE {
            return Err(ChangesError::Volatile { table: T::TABLE });
        }
        if !changes.has_table::<T>() {
            return Err(Failure::ForeignTable { table: T::TABLE }.into());
        }
        let (start, end) = keys.into_bounds();
        let bounds = (start.map(|key| encoded(&key)), end.map(|key| encoded(&key)));
        Ok(Watch { changes, bounds, row: PhantomData })
    }

    /// Returns the position behind the last transaction of the feed that was looked at.
    pub fn position(&self) -> Position {
        self.changes.position()
    }

    fn is_watched(&self, change: Change<'_>) -> Result<bool, ChangesError> {
        if !change.is::<T>() {
            return Ok(false);
        }
        if self.bounds == (Bound::Unbounded, Bound::Unbounded) {
            return Ok(true);
        }
        Ok(self.bounds.contains(&encoded(&change.key::<T>()?)))
    }

    /// Leaves what is watched in a transaction. Returns `None` if that is nothing. An error ends the feed.
    fn keep_watched(
        &mut self,
        transaction: Transaction,
    ) -> Result<Option<Transaction>, ChangesError> {
        let mut watched = Vec::new();
        for (&write, change) in transaction.writes.iter().zip(transaction.changes()) {
            if self.is_watched(change).inspect_err(|_| self.changes.end())? {
                watched.push(write);
            }
        }
        match watched.is_empty() {
            true => Ok(None),
            false => Ok(Some(Transaction { writes: watched, ..transaction })),
        }
    }

    /// Returns the next transaction that changes a watched row, or `None` if there is nothing new.
    ///
    /// # Errors
    /// Those of [`Changes::try_next`]. [`ChangesError::Schema`] if the keys of an earlier form of the table cannot be
    /// converted.
    pub fn try_next(&mut self) -> Result<Option<Transaction>, ChangesError> {
        while let Some(transaction) = self.changes.try_next()? {
            if let Some(watched) = self.keep_watched(transaction)? {
                return Ok(Some(watched));
            }
        }
        Ok(None)
    }

    /// As [`Changes::next_timeout`], for the next transaction that changes a watched row.
    ///
    /// # Errors
    /// As [`Watch::try_next`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Transaction>, ChangesError> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let Some(transaction) = self.changes.next_timeout(left)? else { return Ok(None) };
            if let Some(watched) = self.keep_watched(transaction)? {
                return Ok(Some(watched));
            }
        }
    }

    /// Returns the next transaction that changes a watched row, without blocking a thread, or `None` if the feed has
    /// ended.
    ///
    /// # Errors
    /// As [`Watch::try_next`].
    pub async fn next_async(&mut self) -> Result<Option<Transaction>, ChangesError> {
        while let Some(transaction) = self.changes.next_async().await? {
            if let Some(watched) = self.keep_watched(transaction)? {
                return Ok(Some(watched));
            }
        }
        Ok(None)
    }
}

impl<T: Record> Iterator for Watch<T> {
    type Item = Result<Transaction, ChangesError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let transaction = self.changes.next()?;
            let watched = transaction.and_then(|transaction| self.keep_watched(transaction));
            if let Some(watched) = watched.transpose() {
                return Some(watched);
            }
        }
    }
}

impl<T: Record> Stream for Watch<T> {
    type Item = Result<Transaction, ChangesError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.changes).poll_next(context) else {
                return Poll::Pending;
            };
            let Some(transaction) = next else { return Poll::Ready(None) };
            let watched = transaction.and_then(|transaction| self.keep_watched(transaction));
            if let Some(watched) = watched.transpose() {
                return Poll::Ready(Some(watched));
            }
        }
    }
}

impl<T: Record> fmt::Debug for Watch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Watch");
        debug.field("table", &T::TABLE).field("changes", &self.changes).finish()
    }
}
