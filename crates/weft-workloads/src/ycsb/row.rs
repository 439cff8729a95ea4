//! The rows: a key of eight bytes and a value of a fixed size.
//!
//! ```text
//!    key      value
//!   +--------+---------+---------------------------------------------+
//!   | 8 bytes| counter | filler: the key's pattern, word after word  |
//!   +--------+---------+---------------------------------------------+
//!            '---------- value size (--value-bytes) -----------------'
//! ```
//!
//! The counter holds how often the row was read, modified and written. The first word of the filler is the pattern
//! combined with the counter. A read-modify-write changes these two and copies the rest. So a torn row can be
//! detected: the filler must match the key and the counter.
//!
//! The size is a constant of the type, as for every row of Weft, and so is the kind of index. So there is a type
//! for each supported pair of the two, and [`with_row`] selects one.

use std::fmt;
use std::marker::PhantomData;

use weft::ColumnValue;
use weft::column::{ChangeWriter, ColumnSet, DecodeError};
use weft::encoding::KeyEncoder;
use weft::schema::{
    Bounds, Column, IndexDescription, OrderedRecord, PlainProbe, PlainRow, Record, Storage,
};

/// The number of bytes of the value that the counter takes.
const COUNTER_BYTES: usize = size_of::<u64>();

/// The number of bytes in a word of the filler.
const WORD_BYTES: usize = size_of::<u64>();

/// The workload's operations on a row of any size.
pub trait Row: OrderedRecord + Record<Key = u64> + Copy + fmt::Debug {
    /// The size of the value.
    const VALUE_BYTES: usize;

    /// Creates the row of a key as it is loaded or inserted.
    fn new(key: u64) -> Self;

    /// Returns how often the row was modified.
    fn counter(&self) -> u64;

    /// Modifies the row: changes two words of it, if it has as many.
    fn modify(&mut self);

    /// Reads the whole value, and reduces it to a word.
    fn digest(&self) -> u64;

    /// Returns whether the filler matches the key and the counter.
    fn is_whole(&self) -> bool;
}

/// A kind of index, as a type.
pub trait IndexKind: Copy + Send + Sync + fmt::Debug + 'static {
    /// The kind.
    const STORAGE: Storage;
}

/// Rows in a B+-tree.
#[derive(Clone, Copy, Debug)]
pub enum TreeIndex {}

/// Rows in a hash table.
#[derive(Clone, Copy, Debug)]
pub enum HashIndex {}

impl IndexKind for TreeIndex {
    const STORAGE: Storage = Storage::Ordered;
}

impl IndexKind for HashIndex {
    const STORAGE: Storage = Storage::Hash;
}

/// A row with `FILLER_BYTES` of filler. (The derive macro does not support generic rows. The implementation below
/// is what it would generate.)
#[derive(Clone, Copy, Debug)]
pub struct FixedRow<const FILLER_BYTES: usize, S> {
    key: u64,
    counter: u64,
    filler: [u8; FILLER_BYTES],
    storage: PhantomData<S>,
}

/// Returns a word that looks random and depends only on the key.
fn pattern(key: u64) -> u64 {
    let mixed = (key ^ (key >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

impl<const FILLER_BYTES: usize, S: IndexKind> FixedRow<FILLER_BYTES, S> {
    /// Sets the first word of the filler.
    #[inline(always)]
    fn seal(&mut self) {
        let seal = pattern(self.key) ^ self.counter;
        if let Some(first) = self.filler.first_chunk_mut::<WORD_BYTES>() {
            *first = seal.to_le_bytes();
        }
    }
}

impl<const FILLER_BYTES: usize, S: IndexKind> Row for FixedRow<FILLER_BYTES, S> {
    const VALUE_BYTES: usize = COUNTER_BYTES + FILLER_BYTES;

    fn new(key: u64) -> Self {
        let word = pattern(key).to_le_bytes();
        let filler = std::array::from_fn(|position| word[position % WORD_BYTES]);
        FixedRow { key, counter: 0, filler, storage: PhantomData }
    }

    #[inline(always)]
    fn counter(&self) -> u64 {
        self.counter
    }

    #[inline(always)]
    fn modify(&mut self) {
        self.counter += 1;
        self.seal();
    }

    #[inline(always)]
    fn digest(&self) -> u64 {
        // Loops, not adapters of iterators: without link-time optimisation those are not always inlined, and one
        // call for each word takes longer than the rest of a read.
        let (words, rest) = self.filler.as_chunks::<WORD_BYTES>();
        let mut digest = self.counter;
        for word in words {
            digest = digest.wrapping_add(u64::from_le_bytes(*word));
        }
        for &byte in rest {
            digest = digest.wrapping_add(u64::from(byte));
        }
        digest
    }

    fn is_whole(&self) -> bool {
        let mut expected = Self::new(self.key);
        expected.counter = self.counter;
        expected.seal();
        expected.filler == self.filler
    }
}

/// Scans of a hash table are refused before they are made, when the parameters are checked.
impl<const FILLER_BYTES: usize, S: IndexKind> OrderedRecord for FixedRow<FILLER_BYTES, S> {}

impl<const FILLER_BYTES: usize, S: IndexKind> Record for FixedRow<FILLER_BYTES, S> {
    type Key = u64;
    const TABLE: &'static str = "usertable";
    const STORAGE: Storage = S::STORAGE;
    const VOLATILE: bool = false;
    const PLAIN: Option<PlainRow<Self>> = PlainProbe::<Self>::PLAIN;
    const COLUMNS: &'static [Column] = &[
        Column {
            name: "key",
            type_name: "u64",
            type_of: Some(u64::TYPE),
            in_key: true,
            default: None,
            was: &[],
            computed: None,
            bounds: Bounds::NONE,
            is_checked: false,
        },
        Column {
            name: "counter",
            type_name: "u64",
            type_of: Some(u64::TYPE),
            in_key: false,
            default: None,
            was: &[],
            computed: None,
            bounds: Bounds::NONE,
            is_checked: false,
        },
        Column {
            name: "filler",
            type_name: "[u8; FILLER_BYTES]",
            type_of: Some(<[u8; FILLER_BYTES]>::TYPE),
            in_key: false,
            default: None,
            was: &[],
            computed: None,
            bounds: Bounds::NONE,
            is_checked: false,
        },
    ];
    const KEY_COLUMNS: &'static [usize] = &[0];
    const INDEXES: &'static [IndexDescription] = &[];

    #[inline(always)]
    fn key(&self) -> u64 {
        self.key
    }

    #[inline(always)]
    fn key_equals(&self, key: &u64) -> bool {
        self.key == *key
    }

    fn encode_rest_of_key(_index: usize, _key: &Self::Key, _encoder: &mut impl KeyEncoder) {
        unreachable!("no secondary index")
    }

    fn encode_index_key(&self, index: usize, _encoder: &mut impl KeyEncoder) {
        panic!("usertable has no secondary index, and so no number {index}")
    }

    fn index_key_text(&self, index: usize) -> String {
        panic!("usertable has no secondary index, and so no number {index}")
    }

    fn index_key_differs(&self, _other: &Self, index: usize) -> bool {
        panic!("usertable has no secondary index, and so no number {index}")
    }

    #[inline]
    fn encode_row(&self, output: &mut Vec<u8>) {
        self.key.write(output);
        self.counter.write(output);
        self.filler.write(output);
    }

    #[inline]
    fn decode_row(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let length = input.len();
        Ok(FixedRow {
            key: u64::read(input).map_err(|error| error.in_column("key", length))?,
            counter: u64::read(input).map_err(|error| error.in_column("counter", length))?,
            filler: ColumnValue::read(input).map_err(|error| error.in_column("filler", length))?,
            storage: PhantomData,
        })
    }

    #[inline]
    fn stored_bytes(&self) -> usize {
        8 + Self::VALUE_BYTES
    }

    #[inline]
    fn encode_changes(&self, before: &Self, output: &mut Vec<u8>) {
        let mut changes = ChangeWriter::new(Self::COLUMNS.len(), output);
        changes.column(1, &self.counter, &before.counter);
        changes.column(2, &self.filler, &before.filler);
    }

    fn same_columns(&self, other: &Self, columns: ColumnSet) -> bool {
        (!columns.contains(1) || self.counter == other.counter)
            && (!columns.contains(2) || self.filler == other.filler)
    }

    fn rebase(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<Self> {
        let mut rebased = *onto;
        if self.counter != before.counter {
            rebased.counter = match adds.contains(1) {
                true => onto.counter.add_difference(&self.counter, &before.counter)?,
                false => self.counter,
            };
        }
        if self.filler != before.filler {
            if adds.contains(2) {
                return None;
            }
            rebased.filler = self.filler;
        }
        Some(rebased)
    }

    #[inline]
    fn encode_key(key: &u64, output: &mut Vec<u8>) {
        key.write(output);
    }

    #[inline]
    fn decode_key(input: &mut &[u8]) -> Result<u64, DecodeError> {
        let length = input.len();
        u64::read(input).map_err(|error| error.in_column("key", length))
    }
}

/// A function that is generic over the row type, to be called with a type that is known only at run time.
pub trait RowVisitor {
    /// The result.
    type Output;

    /// Calls the function with the row type `R`.
    fn visit<R: Row>(self) -> Self::Output;
}

macro_rules! value_sizes {
    ($($bytes:literal)*) => {
        /// The sizes of values, in bytes, for which there are row types: a counter alone; the size in the DBX and
        /// Silo papers; the size in YCSB, ten fields of 100. For each size the whole workload is compiled once per
        /// kind of index and protocol (45 KiB of code each), so there are only a few. To add a size, add a number
        /// below.
        pub const VALUE_BYTES: &[usize] = &[$($bytes),*];

        /// Calls `visitor` with the row type for values of this size in this kind of index. Returns `None` if
        /// [`VALUE_BYTES`] does not contain the size.
        pub fn with_row<V: RowVisitor>(
            value_bytes: usize,
            storage: Storage,
            visitor: V,
        ) -> Option<V::Output> {
            match (value_bytes, storage) {
                $(
                    ($bytes, Storage::Ordered) => {
                        Some(visitor.visit::<FixedRow<{ $bytes - COUNTER_BYTES }, TreeIndex>>())
                    }
                    ($bytes, Storage::Hash) => {
                        Some(visitor.visit::<FixedRow<{ $bytes - COUNTER_BYTES }, HashIndex>>())
                    }
                )*
                _ => None,
            }
        }
    };
}

value_sizes! { 8 100 1000 }

#[cfg(test)]
mod tests {
    use weft::description::TableDescription;

    use super::*;

    struct Check(usize, Storage);

    impl RowVisitor for Check {
        type Output = ();

        fn visit<R: Row>(self) {
            let Check(value_bytes, storage) = self;
            assert_eq!((R::VALUE_BYTES, R::STORAGE), (value_bytes, storage));
            assert_eq!(size_of::<R>(), (8 + value_bytes).next_multiple_of(8));
            let mut row = R::new(77);
            let before = row.digest();
            for count in 0..5 {
                assert!(row.is_whole() && row.counter() == count && row.key() == 77, "{row:?}");
                row.modify();
            }
            assert_ne!(row.digest(), before);

            let (mut stored, mut key) = (Vec::new(), Vec::new());
            row.encode_row(&mut stored);
            R::encode_key(&row.key(), &mut key);
            assert_eq!((stored.len(), key.len()), (8 + value_bytes, 8), "only the columns' bytes");
            assert_eq!(row.stored_bytes(), stored.len());
            let read = R::decode_row(&mut &stored[..]).expect("it was written");
            assert_eq!((read.key(), read.counter(), read.digest()), (77, 5, row.digest()));
            assert!(read.is_whole());
            let mut changes = key.clone();
            row.encode_changes(&read, &mut changes);
            assert_eq!(changes, [&key[..], &[0]].concat(), "nothing has changed");
            assert_eq!(R::decode_key(&mut &key[..]), Ok(77));
            let table = TableDescription::of::<R>().expect("it is not volatile");
            assert_eq!(table.read_row(&stored).expect("the description is correct").len(), 3);
        }
    }

    #[test]
    fn every_size_has_rows_of_that_size() {
        for &value_bytes in VALUE_BYTES {
            for storage in [Storage::Ordered, Storage::Hash] {
                with_row(value_bytes, storage, Check(value_bytes, storage)).expect("on offer");
            }
        }
        assert!(with_row(99, Storage::Hash, Check(99, Storage::Hash)).is_none());
    }

    #[test]
    fn row_with_foreign_filler_is_not_whole() {
        type Hundred = FixedRow<92, TreeIndex>;
        let (mut torn, mut newer) = (Hundred::new(1), Hundred::new(1));
        newer.modify();
        torn.counter = newer.counter;
        assert!(!torn.is_whole(), "the counter and the filler are from different versions");
        let mut strange = Hundred::new(1);
        strange.filler = Hundred::new(2).filler;
        assert!(!strange.is_whole());
    }
}
