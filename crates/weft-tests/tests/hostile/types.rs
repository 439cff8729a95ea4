//! The hostile types: rows, keys, columns and sums that report each of their calls to the [hook](crate::hook).

use std::fmt;
use std::ops::{AddAssign, Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use weft::column::{ColumnSet, ColumnType, ColumnValue, DecodeError};
use weft::encoding::{Key, KeyEncoder, KeyPrefix};
use weft::operation::{Ordered, TopK};
use weft::schema::{
    Column, Expiry, GeneratedKey, GeneratedRecord, IndexDescription, OrderedRecord, Storage,
    Violation,
};
use weft::{Error, Index, Record, Timestamp};

use crate::hook::{Answer, Operation, called};
use crate::live::Live;

/// A number that is a key or a column, and owns memory. As a key it has a fixed width, or, if it is `LONG`, the
/// variable width of a string.
pub struct Value<const LONG: bool> {
    number: AtomicU32,
    live: Live,
}

pub type Short = Value<false>;
pub type Long = Value<true>;

impl<const LONG: bool> Value<LONG> {
    pub fn new(number: u32) -> Self {
        Value { number: AtomicU32::new(number), live: Live::new() }
    }

    pub fn number(&self) -> u32 {
        self.number.load(SeqCst)
    }

    /// Reports a call to the hook, and returns the number that the call should use.
    fn called(&self, operation: Operation, name: &str) -> (u32, Answer) {
        self.live.check(name);
        let answer = called(operation);
        self.live.check(name);
        let number = match answer {
            Answer::Honest => self.number(),
            Answer::Lie => self.number() + 1,
            Answer::Mutate => self.number.fetch_add(1000, SeqCst) + 1000,
        };
        (number, answer)
    }
}

impl<const LONG: bool> Clone for Value<LONG> {
    fn clone(&self) -> Self {
        Value::new(self.called(Operation::ValueClone, "the clone").0)
    }
}

impl<const LONG: bool> Drop for Value<LONG> {
    fn drop(&mut self) {
        self.live.check("the drop");
        let _ = called(Operation::ValueDrop);
    }
}

impl<const LONG: bool> PartialEq for Value<LONG> {
    fn eq(&self, other: &Self) -> bool {
        let (number, answer) = self.called(Operation::ValueEq, "the comparison");
        other.live.check("the comparison");
        (number == other.number()) != (answer == Answer::Lie)
    }
}

impl<const LONG: bool> fmt::Debug for Value<LONG> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.called(Operation::ValueDebug, "the formatting").0.fmt(formatter)
    }
}

/// Values are ordered by their numbers.
impl<const LONG: bool> PartialOrd for Value<LONG> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.number().partial_cmp(&other.number())
    }
}

impl<const LONG: bool> Key for Value<LONG> {
    const WIDTH_BYTES: Option<usize> = if LONG { None } else { Some(4) };

    fn encode(&self, encoder: &mut impl KeyEncoder) {
        let (number, _) = self.called(Operation::ValueEncode, "the encoding");
        if LONG {
            encoder.push_slice(b"a long key: ");
            encoder.push_slice(format!("{number:010}").as_bytes());
        } else {
            encoder.push(u64::from(number), 4);
        }
    }
}

/// Generated keys are above all that the workload chooses.
const GENERATED: u32 = 10_000;

impl<const LONG: bool> GeneratedKey for Value<LONG> {
    fn number(&self) -> u64 {
        match self.called(Operation::KeyNumber, "the number of a key") {
            (_, Answer::Lie) => u64::MAX,
            (number, _) => u64::from(number.saturating_sub(GENERATED)),
        }
    }

    fn generate(draw: impl FnOnce(u64) -> Option<u64>) -> Option<Self> {
        let number = draw(u64::from(u32::MAX - GENERATED))? as u32 + GENERATED;
        match called(Operation::KeyGenerate) {
            Answer::Lie => None,
            _ => Some(Value::new(number)),
        }
    }
}

impl<const LONG: bool> ColumnValue for Value<LONG> {
    const TYPE: ColumnType = ColumnType::U32;

    fn write(&self, output: &mut Vec<u8>) {
        self.called(Operation::ValueWrite, "the writing").0.write(output);
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let start = *input;
        match called(Operation::ValueRead) {
            Answer::Honest => Ok(Value::new(u32::read(input)?)),
            _ => Err(DecodeError::new(
                start,
                "the type refuses to read a value of its own".to_owned(),
            )),
        }
    }

    fn stored_bytes(&self) -> usize {
        match self.called(Operation::ValueStoredBytes, "the measuring").1 {
            Answer::Lie => 0,
            _ => 4,
        }
    }

    fn heap_bytes(&self) -> usize {
        match self.called(Operation::ValueHeapBytes, "the measuring of memory").1 {
            Answer::Lie => usize::MAX / 4,
            _ => 16,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let (number, answer) = self.called(Operation::ValueIsSame, "the comparison of columns");
        other.live.check("the comparison of columns");
        (number == other.number()) != (answer == Answer::Lie)
    }
}

/// A number without memory of its own, for columns of split records.
#[derive(Debug)]
pub struct Mark(pub u32);

impl Clone for Mark {
    fn clone(&self) -> Self {
        match called(Operation::ValueClone) {
            Answer::Lie => Mark(self.0 + 1),
            _ => Mark(self.0),
        }
    }
}

impl ColumnValue for Mark {
    const TYPE: ColumnType = ColumnType::U32;

    fn write(&self, output: &mut Vec<u8>) {
        match called(Operation::ValueWrite) {
            Answer::Lie => (self.0 + 1).write(output),
            _ => self.0.write(output),
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let _ = called(Operation::ValueRead);
        Ok(Mark(u32::read(input)?))
    }
}

/// A sum that can be deferred.
pub struct Sum(pub i64);

impl Clone for Sum {
    fn clone(&self) -> Self {
        match called(Operation::ValueClone) {
            Answer::Lie => Sum(self.0 + 1),
            _ => Sum(self.0),
        }
    }
}

impl AddAssign<i64> for Sum {
    fn add_assign(&mut self, number: i64) {
        if called(Operation::SumAddAssign) != Answer::Lie {
            self.0 += number;
        }
    }
}

impl ColumnValue for Sum {
    const TYPE: ColumnType = ColumnType::I64;

    fn write(&self, output: &mut Vec<u8>) {
        match called(Operation::ValueWrite) {
            Answer::Lie => (self.0 + 1).write(output),
            _ => self.0.write(output),
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let _ = called(Operation::ValueRead);
        Ok(Sum(i64::read(input)?))
    }

    fn add_difference(&self, after: &Self, before: &Self) -> Option<Self> {
        match called(Operation::SumAddDifference) {
            Answer::Lie => None,
            _ => Some(Sum(self.0.add_difference(&after.0, &before.0)?)),
        }
    }

    fn has_room(&self, after: &Self, before: &Self) -> bool {
        let is_true = called(Operation::SumHasRoom) != Answer::Lie;
        self.0.has_room(&after.0, &before.0) == is_true
    }
}

/// Defines a row type around a derived one, with the hook in each of its operations.
macro_rules! hostile {
    ($row:ident, $plain:ident, $key:ty, $checked:expr) => {
        pub struct $row {
            plain: $plain,
            live: Live,
        }

        impl $row {
            pub fn from_plain(plain: $plain) -> $row {
                $row { plain, live: Live::new() }
            }
        }

        impl Deref for $row {
            type Target = $plain;
            fn deref(&self) -> &$plain {
                self.live.check("a read");
                &self.plain
            }
        }

        impl DerefMut for $row {
            fn deref_mut(&mut self) -> &mut $plain {
                self.live.check("a change");
                &mut self.plain
            }
        }

        impl Clone for $row {
            fn clone(&self) -> Self {
                self.live.check("the clone of a row");
                let answer = called(Operation::RowClone);
                let mut plain = self.plain.clone();
                if answer == Answer::Lie {
                    plain.stamp += 1;
                }
                $row::from_plain(plain)
            }
        }

        impl Drop for $row {
            fn drop(&mut self) {
                self.live.check("the drop of a row");
                let _ = called(Operation::RowDrop);
            }
        }

        impl Record for $row {
            type Key = $key;
            const TABLE: &'static str = $plain::TABLE;
            const STORAGE: Storage = $plain::STORAGE;
            const VOLATILE: bool = $plain::VOLATILE;
            const COLUMNS: &'static [Column] = $plain::COLUMNS;
            const KEY_COLUMNS: &'static [usize] = $plain::KEY_COLUMNS;
            const INDEXES: &'static [IndexDescription] = $plain::INDEXES;
            const IS_CHECKED: bool = $checked;
            const KEY_NUMBER: Option<fn(&$key) -> u64> = Some(GeneratedKey::number);
            const EXPIRY: Option<Expiry> = $plain::EXPIRY;

            fn expires_at(&self) -> Timestamp {
                self.live.check("a look at when a row expires");
                self.plain.expires_at()
            }

            fn key(&self) -> $key {
                match called(Operation::RowKey) {
                    Answer::Honest => self.plain.key(),
                    Answer::Lie => Value::new(self.plain.id.number() + 1),
                    Answer::Mutate => {
                        self.plain.id.number.fetch_add(1000, SeqCst);
                        self.plain.key()
                    }
                }
            }

            fn key_equals(&self, key: &$key) -> bool {
                self.live.check("a look at the key");
                let is_lie = called(Operation::RowKeyEquals) == Answer::Lie;
                self.plain.key_equals(key) != is_lie
            }

            fn encode_index_key(&self, index: usize, encoder: &mut impl KeyEncoder) {
                self.live.check("the encoding of an index key");
                match called(Operation::RowEncodeIndexKey) {
                    Answer::Lie => {
                        let other = self.plain.clone();
                        other.move_index_keys();
                        other.encode_index_key(index, encoder);
                    }
                    _ => self.plain.encode_index_key(index, encoder),
                }
            }

            fn encode_rest_of_key(index: usize, key: &$key, encoder: &mut impl KeyEncoder) {
                $plain::encode_rest_of_key(index, key, encoder);
            }

            fn index_key_text(&self, index: usize) -> String {
                self.live.check("a look at an index key");
                self.plain.index_key_text(index)
            }

            fn index_key_differs(&self, other: &Self, index: usize) -> bool {
                let is_lie = called(Operation::RowIndexKeyDiffers) == Answer::Lie;
                self.plain.index_key_differs(other, index) != is_lie
            }

            fn encode_row(&self, output: &mut Vec<u8>) {
                self.live.check("the encoding of a row");
                match called(Operation::RowEncode) {
                    Answer::Lie => {
                        let mut other = self.plain.clone();
                        other.stamp += 1;
                        other.encode_row(output);
                    }
                    _ => self.plain.encode_row(output),
                }
            }

            fn decode_row(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let start = *input;
                match called(Operation::RowDecode) {
                    Answer::Lie => {
                        Err(DecodeError::new(start, "the type refuses this row".to_owned()))
                    }
                    _ => $plain::decode_row(input).map($row::from_plain),
                }
            }

            fn stored_bytes(&self) -> usize {
                match called(Operation::RowStoredBytes) {
                    Answer::Lie => 0,
                    _ => self.plain.stored_bytes(),
                }
            }

            fn heap_bytes(&self) -> usize {
                match called(Operation::RowHeapBytes) {
                    Answer::Lie => usize::MAX,
                    _ => self.plain.heap_bytes(),
                }
            }

            fn encode_changes(&self, before: &Self, output: &mut Vec<u8>) {
                self.live.check("the encoding of changes");
                before.live.check("the encoding of changes");
                match called(Operation::RowEncodeChanges) {
                    Answer::Lie => before.plain.encode_changes(&before.plain, output),
                    _ => self.plain.encode_changes(&before.plain, output),
                }
            }

            fn same_columns(&self, other: &Self, columns: ColumnSet) -> bool {
                let is_lie = called(Operation::RowSameColumns) == Answer::Lie;
                self.plain.same_columns(other, columns) != is_lie
            }

            fn rebase(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<Self> {
                match called(Operation::RowRebase) {
                    Answer::Lie => None,
                    _ => self.plain.rebase(before, onto, adds).map($row::from_plain),
                }
            }

            fn lacks_room(&self, before: &Self, onto: &Self, adds: ColumnSet) -> Option<usize> {
                match called(Operation::RowLacksRoom) {
                    Answer::Lie => Some(0),
                    _ => self.plain.lacks_room(before, onto, adds),
                }
            }

            fn encode_key(key: &$key, output: &mut Vec<u8>) {
                match called(Operation::RowEncodeKey) {
                    Answer::Lie => $plain::encode_key(&Value::new(key.number() + 1), output),
                    _ => $plain::encode_key(key, output),
                }
            }

            fn decode_key(input: &mut &[u8]) -> Result<$key, DecodeError> {
                let start = *input;
                match called(Operation::RowDecodeKey) {
                    Answer::Lie => {
                        Err(DecodeError::new(start, "the type refuses this key".to_owned()))
                    }
                    _ => $plain::decode_key(input),
                }
            }

            fn check(&self) -> Result<(), Violation> {
                match $checked && called(Operation::RowCheck) == Answer::Lie {
                    true => Err("the type refuses this row".into()),
                    false => Ok(()),
                }
            }
        }
    };
}

#[derive(Clone, Record)]
#[record(table = "hostile")]
pub struct Plain {
    #[record(key)]
    pub id: Short,
    #[record(index)]
    pub group: Long,
    #[record(unique)]
    pub code: Short,
    pub stamp: u64,
    pub text: Short,
    /// Makes rows large, so that a worker's garbage fills up faster.
    pub padding: [u64; 112],
}

hostile!(Row, Plain, Short, true);

impl OrderedRecord for Row {}
impl OrderedRecord for RowBare {}
impl GeneratedRecord for RowBare {}

#[derive(Clone, Record)]
#[record(table = "hostile_hashed", storage = "hash")]
pub struct PlainHashed {
    #[record(key)]
    pub id: Long,
    #[record(index)]
    pub group: Short,
    #[record(unique)]
    pub code: Long,
    pub stamp: u64,
    pub text: Long,
    pub padding: [u64; 112],
}

hostile!(RowHashed, PlainHashed, Long, true);

#[derive(Clone, Record)]
#[record(table = "hostile_bare")]
pub struct PlainBare {
    #[record(key)]
    pub id: Short,
    pub stamp: u64,
    pub count: i64,
    pub winner: Ordered<i64, Mark>,
    pub top: TopK<i64, Mark, 2>,
}

hostile!(RowBare, PlainBare, Short, false);

/// A row that procedures add to. Some protocols defer the addition.
#[derive(Clone, Record)]
#[record(table = "hostile_total")]
pub struct PlainTotal {
    #[record(key)]
    pub id: Short,
    pub stamp: u64,
    pub sum: Sum,
}

hostile!(RowTotal, PlainTotal, Short, false);

/// A row that disappears when it expires.
#[derive(Clone, Record)]
#[record(table = "hostile_expiring", expires = until)]
pub struct PlainExpiring {
    #[record(key)]
    pub id: Short,
    #[record(unique)]
    pub code: Long,
    pub stamp: u64,
    pub until: Timestamp,
}

hostile!(RowExpiring, PlainExpiring, Short, true);

impl PlainExpiring {
    fn move_index_keys(&self) {
        self.code.number.fetch_add(1000, SeqCst);
    }

    pub fn new(id: u32, code: u32, until: Timestamp) -> PlainExpiring {
        PlainExpiring { id: Value::new(id), code: Value::new(code), stamp: 0, until }
    }
}

/// A row that a hook is run for when it expires.
#[derive(Clone, Record)]
#[record(table = "hostile_due", expires(until, hook))]
pub struct PlainDue {
    #[record(key)]
    pub id: Short,
    pub stamp: u64,
    pub until: Timestamp,
}

hostile!(RowDue, PlainDue, Short, true);

impl OrderedRecord for RowDue {}

impl PlainDue {
    fn move_index_keys(&self) {}

    pub fn new(id: u32, until: Timestamp) -> PlainDue {
        PlainDue { id: Value::new(id), stamp: 0, until }
    }
}

impl PlainTotal {
    fn move_index_keys(&self) {}

    pub fn new(id: u32) -> PlainTotal {
        PlainTotal { id: Value::new(id), stamp: 0, sum: Sum(0) }
    }
}

impl Plain {
    fn move_index_keys(&self) {
        self.group.number.fetch_add(1, SeqCst);
        self.code.number.fetch_add(1, SeqCst);
    }
}

impl PlainHashed {
    fn move_index_keys(&self) {
        self.group.number.fetch_add(1, SeqCst);
        self.code.number.fetch_add(1, SeqCst);
    }
}

impl PlainBare {
    fn move_index_keys(&self) {}

    pub fn new(id: u32) -> PlainBare {
        let (winner, top) = (Ordered::default(), TopK::default());
        PlainBare { id: Value::new(id), stamp: 0, count: 0, winner, top }
    }
}

/// The content of a row, as plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub stamp: u64,
    pub group: u32,
    pub code: u32,
}

/// A row type with an index by `group`, and a unique one by `code`.
pub trait Indexed: Record {
    type Group: Key + PartialOrd;
    type Code: Key + PartialOrd;
    const BY_GROUP: Index<Self, Self::Group> = Index::new(0);
    const BY_CODE: Index<Self, Self::Code> = Index::new(1);
    const IS_ORDERED: bool;

    fn make(id: u32, content: Content) -> Self;
    fn key_of(id: u32) -> Self::Key;
    fn group_of(number: u32) -> Self::Group;
    fn code_of(number: u32) -> Self::Code;
    fn id(&self) -> u32;
    fn content(&self) -> Content;
    fn set(&mut self, content: Content);
}

macro_rules! indexed {
    ($row:ident, $plain:ident, $group:ty, $code:ty, $is_ordered:expr) => {
        impl Indexed for $row {
            type Group = $group;
            type Code = $code;
            const IS_ORDERED: bool = $is_ordered;

            fn make(id: u32, Content { stamp, group, code }: Content) -> Self {
                $row::from_plain($plain {
                    id: Value::new(id),
                    group: Value::new(group),
                    code: Value::new(code),
                    stamp,
                    text: Value::new(stamp as u32),
                    padding: [stamp; 112],
                })
            }
            fn key_of(id: u32) -> Self::Key {
                Value::new(id)
            }
            fn group_of(number: u32) -> $group {
                Value::new(number)
            }
            fn code_of(number: u32) -> $code {
                Value::new(number)
            }
            fn id(&self) -> u32 {
                self.id.number()
            }
            fn content(&self) -> Content {
                Content { stamp: self.stamp, group: self.group.number(), code: self.code.number() }
            }
            fn set(&mut self, Content { stamp, group, code }: Content) {
                self.stamp = stamp;
                self.text.number.store(stamp as u32, SeqCst);
                self.group.number.store(group, SeqCst);
                self.code.number.store(code, SeqCst);
            }
        }
    };
}

indexed!(Row, Plain, Long, Short, true);
indexed!(RowHashed, PlainHashed, Short, Long, false);

/// A user's error type, into which the engine converts its errors.
#[derive(Debug)]
pub enum Refusal {
    /// The transaction's body has refused.
    Refused,
    Engine(#[allow(dead_code, reason = "printed")] Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match called(Operation::ConvertError) {
            Answer::Lie => Refusal::Refused,
            _ => Refusal::Engine(error),
        }
    }
}

/// A hand-written prefix of a key.
pub struct Prefix(pub u32);

impl<const LONG: bool> KeyPrefix<Value<LONG>> for Prefix {
    fn encode_prefix(&self, encoder: &mut impl KeyEncoder) {
        let number = match called(Operation::EncodePrefix) {
            Answer::Lie => self.0 + 1,
            _ => self.0,
        };
        crate::hook::quietly(|| Value::<LONG>::new(number).encode(encoder));
    }
}
