//! Where in a table an operation looks, in a form in which any two places of the table can be compared.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::encoding::{Key, KeyForm, KeyPrefix};
use crate::index::LongKey;
use crate::ranges::{Bounds, encode_range};

/// What an operation is about: keys or a range of keys of its table.
#[derive(Clone, PartialEq)]
pub struct Place(Kind);

#[derive(Clone, PartialEq)]
enum Kind {
    Key(LongKey),
    Keys(Vec<LongKey>),
    /// Of the primary index, or else of the secondary one in that position.
    Range(Option<usize>, Bounds<LongKey>),
}

impl Place {
    /// The row with a primary key.
    pub fn key(key: &impl Key) -> Place {
        Place(Kind::Key(LongKey::from_key(key)))
    }

    pub(super) fn keys<K: Key>(keys: impl Iterator<Item = K>) -> Place {
        Place(Kind::Keys(keys.map(|key| LongKey::from_key(&key)).collect()))
    }

    pub(super) fn range<K: Key>(index: Option<usize>, range: &impl RangeBounds<K>) -> Place {
        Place(Kind::Range(index, encode_range(range)))
    }

    pub(super) fn prefix<K: Key>(index: Option<usize>, prefix: &impl KeyPrefix<K>) -> Place {
        Place(Kind::Range(index, LongKey::prefix_range::<K>(prefix)))
    }

    /// Whether a row that is written here may be seen at the other place, of the same table.
    pub fn may_meet(&self, other: &Place) -> bool {
        match (&self.0, &other.0) {
            (Kind::Key(key), _) => other.may_have(key),
            (Kind::Keys(keys), _) => keys.iter().any(|key| other.may_have(key)),
            (Kind::Range(..), _) => true,
        }
    }

    fn may_have(&self, key: &LongKey) -> bool {
        match &self.0 {
            Kind::Key(own) => own == key,
            Kind::Keys(own) => own.contains(key),
            Kind::Range(None, bounds) => bounds.contains(key),
            // A row comes into an index, and leaves it, by its other columns.
            Kind::Range(Some(_), _) => true,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Bytes<'a>(&'a LongKey);
        impl fmt::Debug for Bytes<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_bytes().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
            }
        }
        match &self.0 {
            Kind::Key(key) => Bytes(key).fmt(formatter),
            Kind::Keys(keys) => formatter.debug_list().entries(keys.iter().map(Bytes)).finish(),
            Kind::Range(index, (start, end)) => {
                if let Some(position) = index {
                    write!(formatter, "index {position}: ")?;
                }
                match start {
                    Bound::Included(key) => write!(formatter, "{:?}..", Bytes(key))?,
                    Bound::Excluded(key) => write!(formatter, "(behind {:?})..", Bytes(key))?,
                    Bound::Unbounded => write!(formatter, "..")?,
                }
                match end {
                    Bound::Included(key) => write!(formatter, "={:?}", Bytes(key)),
                    Bound::Excluded(key) => write!(formatter, "{:?}", Bytes(key)),
                    Bound::Unbounded => Ok(()),
                }
            }
        }
    }
}
