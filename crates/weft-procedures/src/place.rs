//! Places: where in a table an operation looks, in a form that allows any two places of the table to be
//! compared.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use weft::encoding::{
    Key, KeyForm, KeyLookup, KeyPart, KeyPrefix, KeyStart, WholeKey, start_range,
};
use weft::index::LongKey;
use weft::store::ranges::Bounds;
use weft::store::table::{Form, form_of};

/// The keys, or the range of keys, of a table that an operation is about.
#[derive(Clone, PartialEq)]
pub struct Place(Kind);

#[derive(Clone, PartialEq)]
enum Kind {
    Nowhere,
    Key(Encoded),
    Keys(Box<[Encoded]>),
    /// A range of the primary index, or of the secondary index at that position.
    Range(Option<usize>, Box<Bounds<Encoded>>),
}

/// A key, in one of two forms. All keys of a type have the same form. Mostly it is the small one: a place is
/// made for every operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Encoded {
    /// The more significant word first.
    Words([u64; 2]),
    Long(Box<LongKey>),
}

impl Encoded {
    #[inline]
    fn new<K: Key>(key: &impl KeyLookup<K>) -> Self {
        match const { form_of(K::WIDTH_BYTES) } {
            Form::Words1 => Self::words(u128::from(u64::from_lookup(key)) << 64),
            Form::Words2 => Self::words(u128::from_lookup(key)),
            Form::Long => Self::Long(Box::new(LongKey::from_lookup(key))),
        }
    }

    #[inline]
    fn words(key: u128) -> Self {
        Self::Words([(key >> 64) as u64, key as u64])
    }

    fn range<K: Key>(range: &impl RangeBounds<K>) -> Bounds<Self> {
        let new = |key: &K| Self::new(&key);
        (range.start_bound().map(new), range.end_bound().map(new))
    }

    /// Returns the range that one of the functions returns: the first for a key of one or two words.
    fn bounds<K: Key>(
        words: impl FnOnce() -> Bounds<u128>,
        long: impl FnOnce() -> Bounds<LongKey>,
    ) -> Bounds<Self> {
        match const { form_of(K::WIDTH_BYTES) } {
            Form::Words1 | Form::Words2 => {
                let (start, end) = words();
                (start.map(Self::words), end.map(Self::words))
            }
            Form::Long => {
                let (start, end) = long();
                let long = |key| Self::Long(Box::new(key));
                (start.map(long), end.map(long))
            }
        }
    }
}

impl Place {
    /// The place that is given where places are not needed.
    pub const NOWHERE: Place = Place(Kind::Nowhere);

    /// Returns the place of the row with a primary key.
    #[inline]
    pub fn key(key: &impl Key) -> Place {
        Place::lookup(&key)
    }

    /// As [`Place::key`], for any form of the key.
    #[inline]
    pub(super) fn lookup<K: Key>(key: &impl KeyLookup<K>) -> Place {
        Place(Kind::Key(Encoded::new(key)))
    }

    pub(super) fn keys<K: Key>(keys: impl Iterator<Item: KeyPart<K>>) -> Place {
        Place(Kind::Keys(keys.map(|key| Encoded::new(&WholeKey(&key))).collect()))
    }

    /// Returns the whole of a table, for an operation whose keys are not known before it runs.
    pub(super) fn anywhere() -> Place {
        Place(Kind::Range(None, Box::new((Bound::Unbounded, Bound::Unbounded))))
    }

    /// Returns a position in a secondary index: its columns, and the primary key.
    pub(super) fn position<K: Key, T: Key>(columns: &impl KeyLookup<K>, key: &T) -> Place {
        Place(Kind::Keys([Encoded::new(columns), Encoded::new(&key)].into()))
    }

    /// Returns the place of a key in a secondary index.
    pub(super) fn key_by<K: Key>(index: usize, key: &impl KeyLookup<K>) -> Place {
        let key = Encoded::new(key);
        Place(Kind::Range(
            Some(index),
            Box::new((Bound::Included(key.clone()), Bound::Included(key))),
        ))
    }

    pub(super) fn range<K: Key>(index: Option<usize>, range: &impl RangeBounds<K>) -> Place {
        Place(Kind::Range(index, Box::new(Encoded::range(range))))
    }

    pub(super) fn prefix<K: Key>(
        index: Option<usize>,
        prefix: &(impl KeyPrefix<K> + ?Sized),
    ) -> Place {
        let (words, long) = (|| u128::prefix_range(prefix), || LongKey::prefix_range(prefix));
        Place(Kind::Range(index, Box::new(Encoded::bounds::<K>(words, long))))
    }

    pub(super) fn start<K: Key>(index: Option<usize>, start: &impl KeyStart<K>) -> Place {
        let bounds = Encoded::bounds::<K>(|| start_range(start), || start_range(start));
        Place(Kind::Range(index, Box::new(bounds)))
    }

    /// Whether a row that is written here may be visible at the other place, which is of the same table.
    pub fn may_meet(&self, other: &Place) -> bool {
        match (&self.0, &other.0) {
            (Kind::Key(key), _) => other.may_have(key),
            (Kind::Keys(keys), _) => keys.iter().any(|key| other.may_have(key)),
            (Kind::Range(..), _) => true,
            (Kind::Nowhere, _) => false,
        }
    }

    fn may_have(&self, key: &Encoded) -> bool {
        match &self.0 {
            Kind::Key(own) => own == key,
            Kind::Keys(own) => own.contains(key),
            Kind::Range(None, bounds) => bounds.contains(key),
            // A row's position in a secondary index depends on its other columns.
            Kind::Range(Some(_), _) => true,
            Kind::Nowhere => false,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Bytes<'a>(&'a Encoded);
        impl fmt::Debug for Bytes<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Encoded::Words([first, second]) => {
                        write!(formatter, "{first:016x}{second:016x}")
                    }
                    Encoded::Long(key) => {
                        key.as_bytes().iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
                    }
                }
            }
        }
        match &self.0 {
            Kind::Key(key) => Bytes(key).fmt(formatter),
            Kind::Nowhere => formatter.write_str("nowhere"),
            Kind::Keys(keys) => formatter.debug_list().entries(keys.iter().map(Bytes)).finish(),
            Kind::Range(index, bounds) => {
                let (start, end) = &**bounds;
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
