//! The tables in which the data of Redis's types lies: decision 59 in `docs/decisions` has the reasons.
//!
//! ```text
//!   keys       space, slot -> key, kind, collection, expires at, number or text      one row for each key
//!   fields     collection, slot -> field, number or text                             hashes
//!   members    collection, slot -> member                                            sets
//!   scores     collection, slot -> member, score; index by collection, score, member sorted sets
//!   items      collection, section -> eight texts                                    lists
//!   ends       collection -> first, last                                             where lists begin and end
//!   sizes      collection or space, stripe -> elements                               counts, one row for each thread
//!   deadlines  time, space, key                                                      keys that expire, by their time
//!   garbage    collection -> kind                                                    what a removed key has left
//!   watched    space, hash -> version                                                keys under WATCH (volatile)
//!   orders     stripe -> number                                                      messages published (volatile)
//!   libraries  name -> code                                                          functions: their code
//!   functions  name -> library                                                       functions: which library has them
//!   starts     0 -> number, seed                                                     how often the server was started
//! ```
//!
//! [`stream_tables`](crate::stream_tables) has the tables of streams.
//!
//! A *space* is one of the numbered databases of `SELECT`. A *collection* is the number that a key's elements lie under.
//! It is never given twice, so removing or renaming a key touches its row in `keys` and none of its elements. Keys and
//! elements are ordered by a hash of their name: the hash is the cursor of the `SCAN` commands.

use weft::protocol::Dbx;
use weft::{Acknowledge, ColumnValue, Database, DurabilityOptions, Error, Failure, Record, Table};
use weft_inspect::InspectBuilder;
use weft_replication::NodeBuilder;
use xxhash_rust::xxh3::xxh3_64;

use crate::stream_tables::{Consumer, Deletion, Entry, Group, Pending, Stream, StreamTables};

pub use crate::text::Text;

/// How many numbered databases there are.
pub const SPACES: u8 = 16;

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ColumnValue)]
pub enum Kind {
    /// A string.
    Text,
    /// A hash.
    Hash,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A stream.
    Stream,
}

impl Kind {
    /// Returns the name that `TYPE` shows.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Stream => "stream",
        }
    }
}

/// A key, with the value if it is a string.
#[derive(Clone, Debug, Record)]
#[record(table = "keys")]
pub struct Head {
    /// The numbered database.
    #[record(key)]
    pub space: u8,
    /// Where the key is found: see [`named`](crate::named).
    #[record(key)]
    pub slot: u64,
    /// The key.
    pub key: Text,
    /// The type of the value.
    pub kind: Kind,
    /// The number under which the elements lie; 0 for a string.
    pub collection: u64,
    /// The time at which the key expires, in milliseconds since 1970; 0 if it does not.
    pub expires_at: u64,
    /// The value of a string that is a number.
    pub number: i64,
    /// The value of any other string.
    pub text: Option<Text>,
}

/// A field of a hash.
#[derive(Clone, Debug, Record)]
#[record(table = "fields")]
pub struct Field {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// Where the field is found: see [`named`](crate::named).
    #[record(key)]
    pub slot: u64,
    /// The field's name.
    pub name: Text,
    /// The value, if it is a number.
    pub number: i64,
    /// Any other value.
    pub text: Option<Text>,
}

/// A member of a set.
#[derive(Clone, Debug, Record)]
#[record(table = "members")]
pub struct Member {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// Where the member is found: see [`named`](crate::named).
    #[record(key)]
    pub slot: u64,
    /// The member.
    pub name: Text,
}

/// A member of a sorted set.
#[derive(Clone, Debug, Record)]
#[record(table = "scores", index(name = by_score, columns(collection, score, name)))]
pub struct Scored {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// Where the member is found: see [`named`](crate::named).
    #[record(key)]
    pub slot: u64,
    /// The member.
    pub name: Text,
    /// The score, as [`ordered_score`] makes it.
    pub score: u64,
}

/// How many elements of a list one row has.
pub const SECTION: i64 = 8;

/// Elements of a list at eight positions. They are columns of their own, since the log has only the columns that a commit has
/// changed.
#[derive(Clone, Debug, Default, Record)]
#[record(table = "items")]
pub struct Section {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The first position, divided by [`SECTION`]. The positions of a list's elements follow each other without gaps. The first
    /// one may be any number.
    #[record(key)]
    pub number: i64,
    /// The element at the first position.
    pub text0: Option<Text>,
    /// And so on.
    pub text1: Option<Text>,
    /// And so on.
    pub text2: Option<Text>,
    /// And so on.
    pub text3: Option<Text>,
    /// And so on.
    pub text4: Option<Text>,
    /// And so on.
    pub text5: Option<Text>,
    /// And so on.
    pub text6: Option<Text>,
    /// The element at the last position.
    pub text7: Option<Text>,
}

impl Section {
    /// Returns the elements. Those at the ends of a list may be missing.
    pub fn texts(&self) -> [&Option<Text>; SECTION as usize] {
        let Section { text0, text1, text2, text3, text4, text5, text6, text7, .. } = self;
        [text0, text1, text2, text3, text4, text5, text6, text7]
    }

    /// Returns the element at a position, to be changed.
    pub fn text_mut(&mut self, position: i64) -> &mut Option<Text> {
        let Section { text0, text1, text2, text3, text4, text5, text6, text7, .. } = self;
        let texts = [text0, text1, text2, text3, text4, text5, text6, text7];
        texts.into_iter().nth(position.rem_euclid(SECTION) as usize).expect("there are eight")
    }
}

/// Where a list begins and ends. Every command that pushes replies with the length, so it reads this anyway; and a scan for
/// the first item would come by all items that were popped a moment ago.
#[derive(Clone, Debug, Record)]
#[record(table = "ends")]
pub struct Ends {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// The position of the first element.
    pub first: i64,
    /// The position of the last element.
    pub last: i64,
}

/// How many elements a collection has, or keys a space, as far as one thread of the server has counted them. The count
/// is the sum over all stripes. The keys of a space that expire are counted apart: see [`expiring`].
#[derive(Clone, Debug, Record)]
#[record(table = "sizes")]
pub struct Size {
    /// The collection, or the space, or what [`expiring`] returns.
    #[record(key)]
    pub of: u64,
    /// The thread that counts here.
    #[record(key)]
    pub stripe: u8,
    /// What it has added, less what it has removed.
    pub elements: i64,
}

/// Returns the number under which the keys of a space that expire are counted. Numbers of collections are greater.
pub fn expiring(space: u8) -> u64 {
    u64::from(SPACES) + u64::from(space)
}

/// A key that expires.
#[derive(Clone, Debug, Record)]
#[record(table = "deadlines")]
pub struct Deadline {
    /// The time, in milliseconds since 1970.
    #[record(key)]
    pub at: u64,
    /// The numbered database.
    #[record(key)]
    pub space: u8,
    /// The key.
    #[record(key)]
    pub key: Text,
}

/// A collection whose key is gone. Its elements are removed in the background.
#[derive(Clone, Debug, Record)]
#[record(table = "garbage")]
pub struct Garbage {
    /// The collection.
    #[record(key)]
    pub collection: u64,
    /// Which table its elements lie in.
    pub kind: Kind,
}

/// A key that a client watches.
#[derive(Clone, Debug, Record)]
#[record(table = "watched", storage = "hash", volatile)]
pub struct Watched {
    /// The numbered database.
    #[record(key)]
    pub space: u8,
    /// The hash of the key. Keys with equal hashes change together.
    #[record(key)]
    pub hash: u64,
    /// Begins with a number that is never given twice, and grows with each change of the key.
    pub version: u64,
}

/// How many transactions have published messages of a stripe: see [`effects`](crate::effects).
#[derive(Clone, Debug, Record)]
#[record(table = "orders", storage = "hash", volatile)]
pub struct Order {
    /// The stripe.
    #[record(key)]
    pub stripe: u8,
    /// The number of the last of the transactions.
    pub number: u64,
}

/// The code of functions.
#[derive(Clone, Debug, Record)]
#[record(table = "libraries")]
pub struct Library {
    /// The name of the library.
    #[record(key)]
    pub name: Text,
    /// The code.
    pub code: Text,
    /// The SHA-1 of the code.
    pub digest: Text,
}

/// A function.
#[derive(Clone, Debug, Record)]
#[record(table = "functions")]
pub struct FunctionRow {
    /// The name of the function.
    #[record(key)]
    pub name: Text,
    /// The library that has it.
    pub library: Text,
    /// What it does.
    pub description: Option<Text>,
    /// Its flags, with commas between them.
    pub flags: Text,
    /// Whether it does not write.
    pub is_read_only: bool,
}

/// How often the server was started with this directory.
#[derive(Clone, Debug, Record)]
#[record(table = "starts")]
pub struct Start {
    /// Always 0.
    #[record(key)]
    pub id: u8,
    /// The number of starts.
    pub number: u64,
    /// A secret number, with which keys are hashed.
    pub seed: u64,
}

/// Handles of all tables.
#[derive(Clone, Debug)]
pub struct Tables {
    /// See [`Head`].
    pub heads: Table<Head>,
    /// See [`Field`].
    pub fields: Table<Field>,
    /// See [`Member`].
    pub members: Table<Member>,
    /// See [`Scored`].
    pub scores: Table<Scored>,
    /// See [`Item`].
    pub items: Table<Section>,
    /// See [`Ends`].
    pub ends: Table<Ends>,
    /// See [`Size`].
    pub sizes: Table<Size>,
    /// See [`Deadline`].
    pub deadlines: Table<Deadline>,
    /// See [`Garbage`].
    pub garbage: Table<Garbage>,
    /// See [`Watched`].
    pub watched: Table<Watched>,
    /// See [`Order`].
    pub orders: Table<Order>,
    /// The tables of streams.
    pub of_streams: StreamTables,
    /// See [`Library`].
    pub libraries: Table<Library>,
    /// See [`FunctionRow`].
    pub functions: Table<FunctionRow>,
}

/// How the database is kept.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The directory, and how commits are made durable in it. `None` is a database in memory. (Its option `acknowledge` has
    /// no effect: [`Options::waits`](crate::Options::waits) says when replies are sent.)
    pub directory: Option<(std::path::PathBuf, DurabilityOptions)>,
    /// The most memory that the database may use, in bytes.
    pub memory_limit: Option<u64>,
}

/// Adds all tables to a builder.
macro_rules! add_tables {
    ($builder:expr) => {
        $builder
            .table::<Head>()
            .table::<Field>()
            .table::<Member>()
            .table::<Scored>()
            .table::<Section>()
            .table::<Ends>()
            .table::<Size>()
            .table::<Deadline>()
            .table::<Garbage>()
            .table::<Watched>()
            .table::<Order>()
            .table::<Stream>()
            .table::<Deletion>()
            .table::<Entry>()
            .table::<Group>()
            .table::<Consumer>()
            .table::<Pending>()
            .table::<Library>()
            .table::<FunctionRow>()
            .table::<Start>()
    };
}

/// Adds the tables of Redis's types to those of a program: see [`Builder`](crate::Builder).
pub fn with_tables(builder: weft::Builder) -> weft::Builder {
    add_tables!(builder)
}

/// Adds the tables of Redis's types to those of a program that is replicated.
pub fn with_replicated_tables(node: NodeBuilder<Dbx>) -> NodeBuilder<Dbx> {
    add_tables!(node)
}

/// Opens a database with these tables alone, which is observed if it is to be inspected.
///
/// # Errors
/// [`Failure`], if the directory cannot be used.
pub fn open(options: &StoreOptions, is_inspected: bool) -> Result<Database, Failure> {
    let mut builder = with_tables(builder(options, is_inspected));
    if let Some((directory, durability)) = &options.directory {
        // Connections wait for the disk themselves, so that no thread does.
        let durability = durability.clone().acknowledge(Acknowledge::Committed);
        builder = builder.directory(directory).durability(durability);
    }
    builder.open()
}

/// Returns the builder of a database without tables and without a directory.
pub fn builder(options: &StoreOptions, is_inspected: bool) -> weft::Builder {
    let mut builder = Database::builder();
    if is_inspected {
        builder = builder.inspect();
    }
    if let Some(bytes) = options.memory_limit {
        builder = builder.memory_limit(bytes);
    }
    builder
}

/// Returns the tables of a database.
///
/// # Errors
/// [`Failure`], if the database does not have them.
pub fn attach(database: &Database) -> Result<Tables, Failure> {
    Ok(Tables {
        heads: database.table()?,
        fields: database.table()?,
        members: database.table()?,
        scores: database.table()?,
        items: database.table()?,
        ends: database.table()?,
        sizes: database.table()?,
        deadlines: database.table()?,
        garbage: database.table()?,
        watched: database.table()?,
        orders: database.table()?,
        of_streams: StreamTables::of(database)?,
        libraries: database.table()?,
        functions: database.table()?,
    })
}

/// Returns the number with which keys are hashed, if a server was started with the database before.
///
/// # Errors
/// [`Failure`], if the database is closed.
pub fn find_seed(database: &Database) -> Result<Option<u64>, Failure> {
    let starts = database.table::<Start>()?;
    Ok(database.open_snapshot()?.get(&starts, &0)?.map(|start| start.seed))
}

/// Counts a start of the server. Returns the first number that collections of this start may have, and the number with which
/// keys are hashed.
///
/// # Errors
/// [`Failure`], if the database is closed, or the start cannot be made durable.
pub fn count_start(database: &Database) -> Result<(u64, u64), Failure> {
    let starts = database.table::<Start>()?;
    let started = database.transact(|tx| {
        let next = tx.update(&starts, &0, |start| {
            start.number += 1;
            (start.number, start.seed)
        })?;
        match next {
            Some(start) => Ok(start),
            None => {
                let seed = fastrand::u64(1..);
                tx.insert(&starts, Start { id: 0, number: 1, seed }).map(|()| (1, seed))
            }
        }
    });
    let (started, seed) = started.map_err(|error| match error {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => unreachable!("`transact` retries: {conflict}"),
    })?;
    if database.durable_epoch().is_some() {
        // No collection may have a number of this start before the start is durable.
        database.flush()?;
    }
    Ok((started << NUMBERS_PER_START_BITS, seed))
}

/// Each start of the server has this many bits of numbers of its own.
const NUMBERS_PER_START_BITS: u32 = 40;

/// Returns the hash by which messages are spread over stripes.
pub fn hash_of(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Returns a number that is ordered as the score is.
pub fn ordered_score(score: f64) -> u64 {
    // Adding zero makes a positive zero of a negative one.
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Returns the score of which [`ordered_score`] made a number.
pub fn score_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_their_order() {
        let scores = [f64::NEG_INFINITY, -1e300, -2.5, -0.0, 1e-300, 2.5, 7.0, f64::INFINITY];
        for pair in scores.windows(2) {
            assert!(ordered_score(pair[0]) < ordered_score(pair[1]), "{pair:?}");
        }
        for score in scores {
            assert_eq!(score_of(ordered_score(score)), score);
        }
    }

    #[test]
    fn the_hash_is_part_of_the_stored_format() {
        assert_eq!(xxhash_rust::xxh3::xxh3_64_with_seed(b"", 0), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxhash_rust::xxh3::xxh3_64_with_seed(b"weft", 7), 3_062_000_601_151_763_394);
    }
}
