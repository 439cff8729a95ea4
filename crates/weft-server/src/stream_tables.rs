//! The tables of streams.
//!
//! ```text
//!   streams    collection -> last id, first id, how many were added      where entries are appended
//!   deletions  collection -> greatest id that was deleted
//!   entries    collection, id -> fields
//!   groups     collection, name -> number, last delivered id, how many were delivered
//!   consumers  collection, group, name -> when it was seen
//!   pending    collection, group, id -> consumer, time, deliveries; index by collection, group, consumer, id
//! ```
//!
//! An id is a pair of a time and a number. Appending to a stream writes its row in `streams`, since ids have to grow. All
//! else leaves that row alone: reading entries, delivering them to a group, and acknowledging them. So those run in parallel
//! to appending, and acknowledgements to each other.

use std::fmt::{Display, Formatter};

use weft::{Database, Failure, Record, Table};

use crate::tables::Text;

/// The id of an entry: a time in milliseconds since 1970, and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The time.
    pub millis: u64,
    /// The number among the entries of the same time.
    pub number: u64,
}

impl Id {
    /// The least id.
    pub const MIN: Id = Id { millis: 0, number: 0 };
    /// The greatest id.
    pub const MAX: Id = Id { millis: u64::MAX, number: u64::MAX };

    /// Returns the next greater id.
    pub fn next(self) -> Option<Id> {
        match self.number.checked_add(1) {
            Some(number) => Some(Id { number, ..self }),
            None => self.millis.checked_add(1).map(|millis| Id { millis, number: 0 }),
        }
    }

    /// Returns the next smaller id.
    pub fn previous(self) -> Option<Id> {
        match self.number.checked_sub(1) {
            Some(number) => Some(Id { number, ..self }),
            None => self.millis.checked_sub(1).map(|millis| Id { millis, number: u64::MAX }),
        }
    }
}

impl Display for Id {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.millis, self.number)
    }
}

/// Where entries are appended to a stream.
#[derive(Clone, Debug, Record)]
#[record(table = "streams")]
pub struct Stream {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The last id that was given: its time.
    pub last_millis: u64,
    /// The last id that was given: its number.
    pub last_number: u64,
    /// No entry has a smaller id: its time.
    pub first_millis: u64,
    /// No entry has a smaller id: its number.
    pub first_number: u64,
    /// How many entries were ever added.
    pub added: u64,
}

impl Stream {
    /// Returns the last id that was given.
    pub fn last(&self) -> Id {
        Id { millis: self.last_millis, number: self.last_number }
    }

    /// Returns an id below which there is no entry.
    pub fn first(&self) -> Id {
        Id { millis: self.first_millis, number: self.first_number }
    }
}

/// What was deleted of a stream.
#[derive(Clone, Debug, Record)]
#[record(table = "deletions")]
pub struct Deletion {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The greatest id that was deleted: its time.
    pub millis: u64,
    /// The greatest id that was deleted: its number.
    pub number: u64,
}

/// An entry of a stream.
#[derive(Clone, Debug, Record)]
#[record(table = "entries")]
pub struct Entry {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The id: its time.
    #[record(key)]
    pub millis: u64,
    /// The id: its number.
    #[record(key)]
    pub number: u64,
    /// The fields and values: see [`encode`].
    pub fields: Text,
}

impl Entry {
    /// Returns the id.
    pub fn id(&self) -> Id {
        Id { millis: self.millis, number: self.number }
    }
}

/// A group of consumers.
#[derive(Clone, Debug, Record)]
#[record(table = "groups")]
pub struct Group {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The name.
    #[record(key)]
    pub name: Text,
    /// The number under which its consumers and pending entries lie.
    pub id: u64,
    /// The last id that was delivered: its time.
    pub last_millis: u64,
    /// The last id that was delivered: its number.
    pub last_number: u64,
    /// How many entries were delivered; -1 if that is unknown.
    pub read: i64,
}

impl Group {
    /// Returns the last id that was delivered.
    pub fn last(&self) -> Id {
        Id { millis: self.last_millis, number: self.last_number }
    }
}

/// A consumer of a group.
#[derive(Clone, Debug, Record)]
#[record(table = "consumers")]
pub struct Consumer {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The number of the group.
    #[record(key)]
    pub group: u64,
    /// The name.
    #[record(key)]
    pub name: Text,
    /// When it read or claimed last, in milliseconds since 1970.
    pub seen_at: u64,
}

/// An entry that was delivered to a consumer and not acknowledged.
#[derive(Clone, Debug, Record)]
#[record(
    table = "pending",
    index(name = by_consumer, columns(collection, group, consumer, millis, number))
)]
pub struct Pending {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The number of the group.
    #[record(key)]
    pub group: u64,
    /// The id: its time.
    #[record(key)]
    pub millis: u64,
    /// The id: its number.
    #[record(key)]
    pub number: u64,
    /// The name of the consumer.
    pub consumer: Text,
    /// When it was delivered last, in milliseconds since 1970.
    pub delivered_at: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl Pending {
    /// Returns the id.
    pub fn id(&self) -> Id {
        Id { millis: self.millis, number: self.number }
    }
}

/// Handles of the tables.
#[derive(Clone, Debug)]
pub struct StreamTables {
    /// See [`Stream`].
    pub streams: Table<Stream>,
    /// See [`Deletion`].
    pub deletions: Table<Deletion>,
    /// See [`Entry`].
    pub entries: Table<Entry>,
    /// See [`Group`].
    pub groups: Table<Group>,
    /// See [`Consumer`].
    pub consumers: Table<Consumer>,
    /// See [`Pending`].
    pub pending: Table<Pending>,
}

impl StreamTables {
    /// Finds the tables of a database.
    ///
    /// # Errors
    /// [`Failure`], if the database was opened without them.
    pub fn of(database: &Database) -> Result<Self, Failure> {
        Ok(StreamTables {
            streams: database.table()?,
            deletions: database.table()?,
            entries: database.table()?,
            groups: database.table()?,
            consumers: database.table()?,
            pending: database.table()?,
        })
    }
}

/// Returns the fields and values of an entry as one byte string: each has its length in front. This is what is stored.
pub fn encode(fields: &[&[u8]]) -> Text {
    let length = fields.iter().map(|field| field.len() + 4).sum();
    let mut bytes = Vec::with_capacity(length);
    for field in fields {
        let length = u32::try_from(field.len()).expect("requests are shorter");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(field);
    }
    bytes.into()
}

/// Returns the fields and values of which [`encode`] made a byte string.
pub fn decode(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut fields = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (field, rest) = rest.split_at(length.min(rest.len()));
        fields.push(field);
        bytes = rest;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let fields: [&[u8]; 4] = [b"", b"value", &[0; 300], b"x"];
        assert_eq!(decode(&encode(&fields)), fields);
        assert!(decode(b"").is_empty() && decode(&[1, 2]).is_empty());
        assert_eq!(decode(&[9, 0, 0, 0, b'x']), [b"x"]);
    }

    #[test]
    fn ids_have_neighbours() {
        let id = Id { millis: 5, number: 0 };
        assert_eq!(id.previous(), Some(Id { millis: 4, number: u64::MAX }));
        assert_eq!(id.previous().and_then(Id::next), Some(id));
        assert_eq!((Id::MIN.previous(), Id::MAX.next()), (None, None));
    }
}
