//! The transactions of an epoch, and the order in which the feed has them.
//!
//! The log has the transactions of each worker in the order in which they committed, but the workers one after the
//! other. The writes of each key have numbers in the order of their commits. So the feed keeps the log's order if
//! that agrees with the numbers of all keys. Otherwise it sorts the transactions topologically: a transaction comes
//! after all those whose version of a key it has replaced.
//!
//! Under a protocol without isolation, each of two transactions may come first on one key. No order of whole
//! transactions agrees with both keys then. The feed has such transactions, and what comes after them in the epoch, as
//! one.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use weft::column::DecodeError;
use weft::description::TableDescription;
use weft::durability::format::{Entries, EntryError, LogEntry, LogWrite, WriteKind};

/// A write of a row.
#[derive(Clone, Debug)]
pub struct Write {
    pub kind: WriteKind,
    pub table: u32,
    version: u64,
    /// The place of the row, the key, the change or the operation in [`Epoch::bytes`].
    pub place: Range<usize>,
}

/// The transactions of an epoch, in the order of the feed.
#[derive(Debug)]
pub struct Epoch {
    pub number: u64,
    pub bytes: Vec<u8>,
    pub writes: Vec<Write>,
    /// The writes of each transaction, by their positions.
    pub transactions: Vec<Range<usize>>,
}

/// Why an epoch cannot be read.
#[derive(Debug)]
pub enum EpochError {
    Entry(EntryError),
    UnknownTable(u32),
    Key(u32, DecodeError),
}

impl Epoch {
    /// Reads the entries of an epoch. `tables` describes the rows as they are logged, by the number of the table.
    pub fn read(
        number: u64,
        bytes: Vec<u8>,
        tables: &[TableDescription],
    ) -> Result<Epoch, EpochError> {
        let (mut writes, mut starts) = (Vec::new(), Vec::new());
        let mut is_new = true;
        for entry in Entries::new(&bytes) {
            match entry.map_err(EpochError::Entry)? {
                LogEntry::Transaction => is_new = true,
                LogEntry::Time(_) => {}
                LogEntry::Write(LogWrite { kind, table, version, bytes: write }) => {
                    if table as usize >= tables.len() {
                        return Err(EpochError::UnknownTable(table));
                    }
                    if is_new {
                        starts.push(writes.len());
                        is_new = false;
                    }
                    // The write is a part of the epoch's bytes.
                    let start = write.as_ptr().addr() - bytes.as_ptr().addr();
                    writes.push(Write { kind, table, version, place: start..start + write.len() });
                }
            }
        }
        let ends = starts.iter().skip(1).copied().chain([writes.len()]);
        let transactions: Vec<_> =
            starts.iter().zip(ends).map(|(&start, end)| start..end).collect();
        let mut epoch = Epoch { number, bytes, writes, transactions };
        if epoch.transactions.len() > 1 {
            epoch.sort(tables)?;
        }
        Ok(epoch)
    }

    /// Puts the transactions in the order of their commits, key by key.
    fn sort(&mut self, tables: &[TableDescription]) -> Result<(), EpochError> {
        let mut keys = Vec::with_capacity(self.writes.len());
        for write in &self.writes {
            let bytes = &self.bytes[write.place.clone()];
            let key = key_of(&tables[write.table as usize], write.kind, bytes);
            keys.push(key.map_err(|error| EpochError::Key(write.table, error))?);
        }
        // Number the keys, and see whether the log's order is theirs.
        let mut numbers = HashMap::with_capacity_and_hasher(keys.len(), FxBuildHasher);
        let mut newest: Vec<u64> = Vec::new();
        let mut key_numbers = Vec::with_capacity(keys.len());
        let mut is_sorted = true;
        for (write, key) in self.writes.iter().zip(&keys) {
            let number = *numbers.entry((write.table, &**key)).or_insert_with(|| {
                newest.push(0);
                newest.len() - 1
            });
            is_sorted &= newest[number] <= write.version;
            newest[number] = write.version;
            key_numbers.push(number);
        }
        if is_sorted {
            return Ok(());
        }
        drop(numbers);
        let order = topological_order(&self.transactions, &self.writes, &key_numbers);
        let mut writes = Vec::with_capacity(self.writes.len());
        let mut transactions = Vec::with_capacity(self.transactions.len());
        let mut add = |range: Range<usize>, start: usize| {
            writes.extend_from_slice(&self.writes[range]);
            start..writes.len()
        };
        let mut start = 0;
        for &transaction in &order {
            let range = add(self.transactions[transaction].clone(), start);
            start = range.end;
            transactions.push(range);
        }
        if order.len() < self.transactions.len() {
            // The others are one transaction, in the order of the keys' versions.
            let mut is_ordered = vec![false; self.transactions.len()];
            order.iter().for_each(|&transaction| is_ordered[transaction] = true);
            let others = self.transactions.iter().zip(&is_ordered).filter(|(_, is)| !**is);
            let mut others: Vec<usize> = others.flat_map(|(range, _)| range.clone()).collect();
            others.sort_by_key(|&write| (key_numbers[write], self.writes[write].version));
            let end =
                others.into_iter().fold(start, |start, write| add(write..write + 1, start).end);
            transactions.push(start..end);
        }
        (self.writes, self.transactions) = (writes, transactions);
        Ok(())
    }
}

/// Returns an order in which a transaction comes after all those whose version of a key is older than its own. Among
/// several, the one that is first in the log comes first. Leaves out those for which there is no such order.
fn topological_order(
    transactions: &[Range<usize>],
    writes: &[Write],
    key_numbers: &[usize],
) -> Vec<usize> {
    let owners = transactions.iter().enumerate();
    let mut by_key: Vec<(usize, u64, usize)> = owners
        .flat_map(|(transaction, range)| range.clone().map(move |write| (transaction, write)))
        .map(|(transaction, write)| (key_numbers[write], writes[write].version, transaction))
        .collect();
    by_key.sort_unstable();
    by_key.dedup();
    // The nodes after the transactions stand between two versions of a key, since many operations may have the same
    // version.
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); transactions.len()];
    let mut waits_for = vec![0_usize; transactions.len()];
    let mut add = |from: usize, to: usize| {
        let nodes = followers.len().max(from.max(to) + 1);
        followers.resize_with(nodes, Vec::new);
        waits_for.resize(nodes, 0);
        followers[from].push(to);
        waits_for[to] += 1;
    };
    let mut between = transactions.len();
    for of_key in by_key.chunk_by(|one, other| one.0 == other.0) {
        let mut versions = of_key.chunk_by(|one, other| one.1 == other.1);
        let Some(mut older) = versions.next() else { continue };
        for newer in versions {
            match (older, newer) {
                // A transaction in pieces may have several versions of a key.
                ([one], [other]) if one.2 == other.2 => {}
                ([one], [other]) => add(one.2, other.2),
                _ => {
                    // A transaction in pieces that is among both only has to come after the others.
                    let is_newer = |one: &(usize, u64, usize)| newer.iter().any(|it| it.2 == one.2);
                    older.iter().filter(|one| !is_newer(one)).for_each(|one| add(one.2, between));
                    newer.iter().for_each(|other| add(between, other.2));
                    between += 1;
                }
            }
            older = newer;
        }
    }
    let mut order = Vec::with_capacity(transactions.len());
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..transactions.len()).filter(|&node| waits_for[node] == 0).map(Reverse).collect();
    while let Some(Reverse(node)) = ready.pop() {
        let mut settled = vec![node];
        while let Some(node) = settled.pop() {
            if node < transactions.len() {
                order.push(node);
            }
            for &follower in &followers[node] {
                waits_for[follower] -= 1;
                match waits_for[follower] == 0 {
                    true if follower < transactions.len() => ready.push(Reverse(follower)),
                    true => settled.push(follower),
                    false => {}
                }
            }
        }
    }
    order
}

/// Returns the stored key of the row that a write is on.
pub fn key_of<'a>(
    table: &TableDescription,
    kind: WriteKind,
    bytes: &'a [u8],
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let is_prefix = table.key.iter().enumerate().all(|(place, &column)| place == column);
    let mut rest = bytes;
    if kind != WriteKind::Put || is_prefix {
        for &column in &table.key {
            table.columns[column].type_of.skip(&mut rest)?;
        }
        return Ok(Cow::Borrowed(&bytes[..bytes.len() - rest.len()]));
    }
    // The key's columns can be anywhere in a row, and in another order.
    let mut columns = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let start = rest;
        column.type_of.skip(&mut rest)?;
        columns.push(&start[..start.len() - rest.len()]);
    }
    Ok(Cow::Owned(table.key.iter().flat_map(|&column| columns[column]).copied().collect()))
}

#[cfg(test)]
mod tests;
