//! Ranges of keys: in the encoded form that indexes use, and as text for messages.

use std::ops::{Bound, RangeBounds};

use crate::row::encoding::{Key, KeyForm, KeyLookup, KeyPrefix, KeyStart, start_range};
use crate::row::schema::{Index, Record};
use crate::store::table::Secondary;

/// A range of encoded keys.
pub type Bounds<K> = (Bound<K>, Bound<K>);

pub fn encode_range<K: KeyForm, T: Key>(range: &impl RangeBounds<T>) -> Bounds<K> {
    (range.start_bound().map(K::from_key), range.end_bound().map(K::from_key))
}

/// Returns the range of a secondary index's entries whose columns lie in `range`. In a non-unique index an
/// entry's key continues after the columns with the primary key. So an included end covers all entries that
/// begin with it, and an excluded start skips all of them.
pub fn encode_index_range<F: KeyForm, K: Key>(
    _index: &Secondary<F>,
    range: &impl RangeBounds<K>,
) -> Bounds<F> {
    let begin_with = |key: &K| F::prefix_range::<K>(key);
    // Only the columns decide whether a range is empty.
    let columns = encode_range::<F, K>(range);
    if is_empty(&columns) {
        return columns;
    }
    let start = match range.start_bound() {
        Bound::Included(key) => begin_with(key).0,
        Bound::Excluded(key) => match begin_with(key).1 {
            Bound::Included(last) => Bound::Excluded(last),
            Bound::Excluded(next) => Bound::Included(next),
            // All entries that are not less than `key` begin with it, so the range is empty.
            Bound::Unbounded => {
                let key = F::from_key(key);
                return (Bound::Excluded(key.clone()), Bound::Excluded(key));
            }
        },
        Bound::Unbounded => Bound::Unbounded,
    };
    let end = match range.end_bound() {
        Bound::Included(key) => begin_with(key).1,
        Bound::Excluded(key) => match begin_with(key).0 {
            Bound::Included(first) => Bound::Excluded(first),
            other => other,
        },
        Bound::Unbounded => Bound::Unbounded,
    };
    (start, end)
}

pub fn prefix_of<F: KeyForm, K: Key>(
    _index: &Secondary<F>,
    prefix: &(impl KeyPrefix<K> + ?Sized),
) -> Bounds<F> {
    F::prefix_range::<K>(prefix)
}

/// Returns the range of the entries with exactly these columns.
pub fn lookup_of<F: KeyForm, K: Key>(
    _index: &Secondary<F>,
    columns: &impl KeyLookup<K>,
) -> Bounds<F> {
    let mut encoder = F::Encoder::default();
    columns.encode_lookup(&mut encoder);
    (Bound::Included(F::finish(encoder.clone())), F::prefix_end(encoder))
}

/// Returns the key of the entry of a row with these columns and this primary key.
pub fn entry_of<F: KeyForm, T: Record, K: Key>(
    index: Index<T, K>,
    columns: &impl KeyLookup<K>,
    key: &T::Key,
) -> F {
    let mut encoder = F::Encoder::default();
    columns.encode_lookup(&mut encoder);
    T::encode_rest_of_key(index.position(), key, &mut encoder);
    F::finish(encoder)
}

/// Leaves the keys up to `position` out of a range, or, if the scan of it `is_reverse`, the keys from it on.
pub fn leave_out<K: Ord>(bounds: &mut Bounds<K>, position: K, is_reverse: bool) {
    let (bound, wanted) = match is_reverse {
        false => (&mut bounds.0, std::cmp::Ordering::Greater),
        true => (&mut bounds.1, std::cmp::Ordering::Less),
    };
    match &*bound {
        Bound::Included(near) | Bound::Excluded(near) if near.cmp(&position) == wanted => {}
        _ => *bound = Bound::Excluded(position),
    }
}

pub fn start_of<F: KeyForm, K: Key>(_index: &Secondary<F>, start: &impl KeyStart<K>) -> Bounds<F> {
    start_range(start)
}

/// Returns whether no key can lie in a range: its start is greater than its end, or it excludes its only key.
pub fn is_empty<K: Ord>(bounds: &Bounds<K>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match bounds {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
    }
}
