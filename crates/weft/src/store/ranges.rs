//! Ranges of keys, as indexes see them and as people do.

use std::ops::{Bound, RangeBounds};

use crate::error::Failure;
use crate::row::encoding::{Key, KeyForm, KeyPrefix};
use crate::row::schema::{Record, Storage};
use crate::store::table::Secondary;

/// A range of encoded keys.
pub type Bounds<K> = (Bound<K>, Bound<K>);

pub fn encode_range<K: KeyForm, T: Key>(range: &impl RangeBounds<T>) -> Bounds<K> {
    (range.start_bound().map(K::from_key), range.end_bound().map(K::from_key))
}

/// The range of a secondary index's entries whose columns lie in `range`. The entries of a
/// non-unique index go on behind the columns, with the primary key; so an included end means all
/// entries that begin with it, and an excluded start means none of them.
pub fn encode_index_range<F: KeyForm, K: Key>(
    _index: &Secondary<F>,
    range: &impl RangeBounds<K>,
) -> Bounds<F> {
    let begin_with = |key: &K| F::prefix_range::<K>(key);
    // Whether a range is the wrong way round, or empty, is a matter of the columns alone.
    let columns = encode_range::<F, K>(range);
    if is_reversed(&columns) || is_empty(&columns) {
        return columns;
    }
    let start = match range.start_bound() {
        Bound::Included(key) => begin_with(key).0,
        Bound::Excluded(key) => match begin_with(key).1 {
            Bound::Included(last) => Bound::Excluded(last),
            Bound::Excluded(next) => Bound::Included(next),
            // Nothing is greater than the entries that begin with it.
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
    prefix: &impl KeyPrefix<K>,
) -> Bounds<F> {
    F::prefix_range::<K>(prefix)
}

/// The ends of a range, for people.
pub fn describe_range<T: Key>(range: &impl RangeBounds<T>) -> (String, String) {
    let describe = |bound: Bound<&T>| match bound {
        Bound::Included(key) => format!("{key:?}"),
        Bound::Excluded(key) => format!("{key:?} (excluded)"),
        Bound::Unbounded => "unbounded".to_owned(),
    };
    (describe(range.start_bound()), describe(range.end_bound()))
}

/// Whether a range is written the wrong way round. (One that is merely empty is not.)
pub fn is_reversed<K: Ord>(bounds: &Bounds<K>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match bounds {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start > end,
    }
}

/// Whether a range has no keys because it excludes the only one.
pub fn is_empty<K: Ord>(bounds: &Bounds<K>) -> bool {
    use Bound::{Excluded, Included};
    matches!(bounds, (Excluded(start), Excluded(end) | Included(end))
        | (Included(start), Excluded(end)) if start == end)
}

/// Fails for tables that have no order.
pub fn check_ordered<T: Record>() -> Result<(), Failure> {
    match T::STORAGE {
        Storage::Ordered => Ok(()),
        Storage::Hash => Err(Failure::UnorderedTable { table: T::TABLE }),
    }
}
