//! The transactions of an epoch, and the order in which the feed has them.
//!
//! The log has the transactions of each worker in the order in which they committed, but the workers one after the
//! other. The writes of each key have numbers in the order of their commits. So the feed keeps the log's order if
//! that agrees with the numbers of all keys. Otherwise a transaction comes after all those whose version of a key it
//! has replaced.
//!
//! Operations on a split column have the same number. Those of each worker must keep their order, because a worker may
//! take what it has given before. The log does not say which transactions are of the same worker. So transactions keep
//! the log's order if they have operations with the same number on a column, and some of these add and others take. They
//! need not keep it if the numbers of a key descend between them: then they are of different workers.
//!
//! Two transactions may each come first on one key: procedures whose pieces ran in turns and added to the same rows,
//! or transactions under a protocol without isolation. No order of whole transactions agrees with both keys. The feed
//! has such transactions as one. It does the same if the log's order of operations contradicts the numbers of another
//! key: then it is unknown which of the operations are of the same worker.
//!
//! Nothing is sorted before a reader asks for a transaction. So a reader that watches other tables pays for no more
//! than to find the writes among the bytes.

use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use rustc_hash::FxBuildHasher;
use weft::column::DecodeError;
use weft::description::{RowChange, Value};
use weft::durability::StorageError;
use weft::durability::format::{Entries, EntryError, LogEntry, LogWrite, WriteKind};
use weft::operation::OperationKind;

use crate::error::ChangesError;
use crate::schema::Schema;

/// A write of a row.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub kind: WriteKind,
    pub table: u32,
    version: u64,
    /// The place of the row, the key, the change or the operation in [`Epoch::bytes`].
    start: usize,
    length: u32,
}

/// Transactions, in some order.
#[derive(Debug, Default)]
pub struct Transactions {
    pub writes: Vec<Write>,
    /// The end of each transaction among the writes.
    ends: Vec<usize>,
}

/// What has committed in an epoch.
#[derive(Debug)]
pub struct Epoch {
    pub number: u64,
    pub schema: Arc<Schema>,
    /// The latest time that it sets, in milliseconds since 1970.
    pub time: Option<u64>,
    bytes: Vec<u8>,
    /// The transactions, as the log has them.
    logged: Transactions,
    /// The transactions in the order of the feed; `None` if that is the log's.
    ordered: OnceLock<Option<Transactions>>,
    /// Whether there is a write, by the number of the table.
    is_written: Box<[bool]>,
}

/// Why an epoch cannot be read.
#[derive(Debug)]
pub enum EpochError {
    Entry(EntryError),
    UnknownTable(u32),
    Decode(u32, DecodeError),
}

/// How an operation changes a column, if the order of such operations makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Up,
    Down,
    Other,
}

impl EpochError {
    /// Returns the error for an epoch that cannot be read.
    pub fn into_changes_error(self, epoch: u64, schema: &Schema, place: &Path) -> ChangesError {
        let what = match self {
            EpochError::Entry(error) => format!("an entry of epoch {epoch}: {error}"),
            EpochError::UnknownTable(table) => {
                format!("epoch {epoch} has a row of table {table}, which is unknown")
            }
            EpochError::Decode(table, source) => {
                let table = schema.tables[table as usize].name.clone();
                return ChangesError::Decode { table, source };
            }
        };
        StorageError::damaged(place, 0, what).into()
    }
}

impl Transactions {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the writes of a transaction, by their positions. `None` if there is no such transaction.
    pub fn get(&self, transaction: usize) -> Option<Range<usize>> {
        let end = *self.ends.get(transaction)?;
        Some(transaction.checked_sub(1).map_or(0, |before| self.ends[before])..end)
    }
}

impl Epoch {
    /// Reads the entries of an epoch.
    pub fn read(number: u64, bytes: Vec<u8>, schema: Arc<Schema>) -> Result<Epoch, EpochError> {
        let mut logged = Transactions::default();
        let mut is_written = vec![false; schema.tables.len()].into_boxed_slice();
        let (mut begun, mut time) = (0, None);
        for entry in Entries::new(&bytes) {
            match entry.map_err(EpochError::Entry)? {
                LogEntry::Transaction => {
                    if begun < logged.writes.len() {
                        begun = logged.writes.len();
                        logged.ends.push(begun);
                    }
                }
                LogEntry::Time(logged) => time = time.max(Some(logged)),
                LogEntry::Write(LogWrite { kind, table, version, bytes: write }) => {
                    let known = is_written.get_mut(table as usize);
                    *known.ok_or(EpochError::UnknownTable(table))? = true;
                    // The write is a part of the epoch's bytes, and an entry has at most 1 GiB.
                    let start = write.as_ptr().addr() - bytes.as_ptr().addr();
                    let length = write.len() as u32;
                    logged.writes.push(Write { kind, table, version, start, length });
                }
            }
        }
        if begun < logged.writes.len() {
            logged.ends.push(logged.writes.len());
        }
        let ordered = OnceLock::new();
        Ok(Epoch { number, schema, time, bytes, logged, ordered, is_written })
    }

    /// Returns whether one of these tables, by their numbers, has a write.
    pub fn writes_any(&self, tables: &[u32]) -> bool {
        tables.iter().any(|&table| self.is_written[table as usize])
    }

    /// Returns the transactions in the order of the feed.
    pub fn transactions(&self) -> Result<&Transactions, EpochError> {
        if self.ordered.get().is_none() {
            // If another thread was faster, it has found the same order.
            let _ = self.ordered.set(self.sort()?);
        }
        Ok(self.ordered())
    }

    /// Returns what [`Epoch::transactions`] has returned.
    pub fn ordered(&self) -> &Transactions {
        self.ordered.get().and_then(Option::as_ref).unwrap_or(&self.logged)
    }

    /// Returns the bytes of a write.
    pub fn bytes_of(&self, write: &Write) -> &[u8] {
        &self.bytes[write.start..write.start + write.length as usize]
    }

    /// Returns the stored key of the row that a write is on.
    pub fn key_of(&self, write: &Write) -> Result<Cow<'_, [u8]>, EpochError> {
        let key = self.schema.key_of(write.table, write.kind, self.bytes_of(write));
        key.map_err(|error| EpochError::Decode(write.table, error))
    }

    /// Returns about how many bytes of memory the epoch takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + 2 * self.logged.writes.len() * size_of::<Write>()
    }

    /// Returns the transactions in the order of their commits, key by key; `None` if that is the log's order.
    fn sort(&self) -> Result<Option<Transactions>, EpochError> {
        if self.logged.len() < 2 || self.is_sorted()? {
            return Ok(None);
        }
        let writes = &self.logged.writes;
        let keys = self.number_keys()?;
        let kept = self.operations_in_order(&keys)?;
        let mut sorted = Transactions::default();
        for together in order(&self.logged, &keys, &kept) {
            let ranges = together.iter().filter_map(|&transaction| self.logged.get(transaction));
            let mut positions: Vec<usize> = ranges.flatten().collect();
            if together.len() > 1 {
                // Operations of the same version keep their order.
                positions.sort_by_key(|&write| (keys[write], writes[write].version));
            }
            sorted.writes.extend(positions.into_iter().map(|write| writes[write]));
            sorted.ends.push(sorted.writes.len());
        }
        Ok(Some(sorted))
    }

    /// Returns all writes in the order in which recovery replays them: those of each row by their versions, and by the
    /// log's order if these are equal. `None` if that is the log's order.
    pub fn sort_rows(&self) -> Result<Option<Vec<Write>>, EpochError> {
        if self.is_sorted()? {
            return Ok(None);
        }
        let (keys, writes) = (self.number_keys()?, &self.logged.writes);
        let mut positions: Vec<usize> = (0..writes.len()).collect();
        // The sort is stable.
        positions.sort_by_key(|&write| (keys[write], writes[write].version));
        Ok(Some(positions.into_iter().map(|write| writes[write]).collect()))
    }

    /// Returns all writes, as the log has them.
    pub fn logged(&self) -> &[Write] {
        &self.logged.writes
    }

    /// Returns the number of each write's key, by the write's position in the log.
    fn number_keys(&self) -> Result<Vec<usize>, EpochError> {
        let writes = &self.logged.writes;
        let mut numbers = HashMap::with_capacity_and_hasher(writes.len(), FxBuildHasher);
        let mut keys = Vec::with_capacity(writes.len());
        for write in writes {
            let next = numbers.len();
            keys.push(*numbers.entry((write.table, self.key_of(write)?)).or_insert(next));
        }
        Ok(keys)
    }

    /// Returns pairs of transactions that must keep the log's order because of their operations on a column. Of more
    /// than two transactions only neighbours are pairs.
    ///
    /// A worker decides by its own share of the column whether an operation is possible. If all operations add, or all
    /// take, every value between them lies between the first and the last one, so any order is possible.
    fn operations_in_order(&self, keys: &[usize]) -> Result<Vec<(usize, usize)>, EpochError> {
        let mut operations = Vec::new();
        let ranges = (0..self.logged.len()).filter_map(|at| Some((at, self.logged.get(at)?)));
        for (transaction, range) in ranges {
            for position in range {
                let write = &self.logged.writes[position];
                if let Some((column, direction)) = self.direction_of(write)? {
                    let place = (keys[position], column, write.version);
                    operations.push((place, transaction, direction));
                }
            }
        }
        operations.sort_unstable();
        let others = self.other_workers(keys);
        let may_be_of_one = |before, transaction: usize| others[transaction] < Some(before);
        let mut pairs = Vec::new();
        for of_version in operations.chunk_by(|one, other| one.0 == other.0) {
            let first = of_version[0].2;
            if first != Direction::Other && of_version.iter().all(|it| it.2 == first) {
                continue;
            }
            let neighbours = of_version.windows(2).map(|pair| (pair[0].1, pair[1].1));
            pairs.extend(
                neighbours
                    .filter(|&(before, after)| before != after && may_be_of_one(before, after)),
            );
        }
        Ok(pairs)
    }

    /// Returns for each transaction the last one before it in the log that is certainly of another worker, if one is. A worker's
    /// transactions replace versions of a key in the order in which they are in the log.
    fn other_workers(&self, keys: &[usize]) -> Vec<Option<usize>> {
        let mut newest = vec![(0, 0); keys.len()];
        let (mut others, mut other) = (Vec::with_capacity(self.logged.len()), None);
        let ranges = (0..self.logged.len()).filter_map(|at| Some((at, self.logged.get(at)?)));
        for (transaction, range) in ranges {
            for position in range {
                let newest = &mut newest[keys[position]];
                let version = self.logged.writes[position].version;
                let (before, version_before) = std::mem::replace(newest, (transaction, version));
                if version_before > version && before < transaction {
                    other = other.max(Some(before));
                }
            }
            others.push(other);
        }
        others
    }

    /// Returns the column that an operation changes, and how. `None` for other writes, and if the order of such operations
    /// makes no difference.
    fn direction_of(&self, write: &Write) -> Result<Option<(usize, Direction)>, EpochError> {
        if write.kind != WriteKind::Operation {
            return Ok(None);
        }
        let error = |error| EpochError::Decode(write.table, error);
        let table = &self.schema.tables[write.table as usize];
        let (_, change) = table.read_operation(self.bytes_of(write)).map_err(error)?;
        let RowChange::Operation(operation) = change else { return Ok(None) };
        let direction = match operation.kind() {
            OperationKind::Add => {
                let type_of = &table.columns[operation.column()].type_of;
                match type_of.read_value(&mut operation.operand()).map_err(error)? {
                    Value::Signed(..0) => Direction::Down,
                    _ => Direction::Up,
                }
            }
            OperationKind::Take => Direction::Down,
            OperationKind::Mul => Direction::Other,
            OperationKind::Max
            | OperationKind::Min
            | OperationKind::Or
            | OperationKind::And
            | OperationKind::OrderedPut
            | OperationKind::TopKInsert
            | OperationKind::Union => return Ok(None),
        };
        Ok(Some((operation.column(), direction)))
    }

    /// Returns whether the log's order agrees with the versions of all keys.
    ///
    /// Keys with the same hash count as one. If the versions of one of them are out of order, those of all of them
    /// together are, too.
    fn is_sorted(&self) -> Result<bool, EpochError> {
        let mut newest: HashTable<(u64, u64)> = HashTable::with_capacity(self.logged.writes.len());
        for write in &self.logged.writes {
            let hash = FxBuildHasher.hash_one((write.table, self.key_of(write)?));
            match newest.entry(hash, |it| it.0 == hash, |it| it.0) {
                Entry::Occupied(mut known) => {
                    let before = std::mem::replace(&mut known.get_mut().1, write.version);
                    if before > write.version {
                        return Ok(false);
                    }
                }
                Entry::Vacant(unknown) => {
                    unknown.insert((hash, write.version));
                }
            }
        }
        Ok(true)
    }
}

/// Returns an order in which a transaction comes after all those whose version of a key is older than its own. The
/// pairs `kept` are in order, too. Transactions that each come after the other stand together. `keys` has the number of
/// each write's key.
fn order(transactions: &Transactions, keys: &[usize], kept: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let ranges = (0..transactions.len()).filter_map(|at| Some((at, transactions.get(at)?)));
    let mut by_key: Vec<(usize, u64, usize)> = ranges
        .flat_map(|(transaction, range)| range.map(move |write| (transaction, write)))
        .map(|(transaction, write)| (keys[write], transactions.writes[write].version, transaction))
        .collect();
    by_key.sort_unstable();
    by_key.dedup();
    // What each node comes after. The nodes after the transactions stand between two versions of a key, since many
    // operations may have the same version.
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); transactions.len()];
    for of_key in by_key.chunk_by(|one, other| one.0 == other.0) {
        let mut versions = of_key.chunk_by(|one, other| one.1 == other.1);
        let Some(mut older) = versions.next() else { continue };
        for newer in versions {
            let between = after.len();
            match (older, newer) {
                ([one], [other]) => after[other.2].push(one.2),
                _ => {
                    after.push(older.iter().map(|one| one.2).collect());
                    newer.iter().for_each(|other| after[other.2].push(between));
                }
            }
            older = newer;
        }
    }
    kept.iter().for_each(|&(before, transaction)| after[transaction].push(before));
    let mut components = strongly_connected(&after);
    for component in &mut components {
        component.retain(|&node| node < transactions.len());
        component.sort_unstable();
    }
    components.retain(|component| !component.is_empty());
    components
}

/// Returns the strongly connected components of a graph (R. Tarjan, Depth-first search and linear graph algorithms,
/// 1972), each after those to which its edges lead.
fn strongly_connected(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    // The number of each node in the order in which it was found, and the least number that is known to be reached.
    let (mut found, mut reached) = (vec![UNSEEN; edges.len()], vec![UNSEEN; edges.len()]);
    let mut is_open = vec![false; edges.len()];
    let (mut open, mut components, mut count) = (Vec::new(), Vec::new(), 0);
    // The path from the root, with the next edge of each node.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..edges.len() {
        if found[root] == UNSEEN {
            path.push((root, 0));
        }
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            if *next == 0 {
                (found[node], reached[node], is_open[node]) = (count, count, true);
                open.push(node);
                count += 1;
            }
            if let Some(&to) = edges[node].get(*next) {
                *next += 1;
                if found[to] == UNSEEN {
                    path.push((to, 0));
                } else if is_open[to] {
                    reached[node] = reached[node].min(found[to]);
                }
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                reached[parent] = reached[parent].min(reached[node]);
            }
            if reached[node] == found[node] {
                let from = open.iter().rposition(|&it| it == node).expect("the node is open");
                let component = open.split_off(from);
                component.iter().for_each(|&it| is_open[it] = false);
                components.push(component);
            }
        }
    }
    components
}

#[cfg(test)]
mod tests;
