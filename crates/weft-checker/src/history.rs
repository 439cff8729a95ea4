//! The history: what every transaction did, when, and how it ended.
//!
//! A recorder (or a reader of a file, see [`format`](crate::format)) tells a [`HistoryBuilder`] of each
//! transaction. [`check`](crate::check()) reads the [`History`] that it builds.
//!
//! # What to record
//!
//! - **Versions** are numbers that the recorder chooses. The versions of one key are ordered by number, and no
//!   two writes of a key, by any transactions, have the same number. [`INITIAL`] is the state from before the
//!   recording: a row, or no row. Transactions cannot write it.
//! - **Reads**: the version that was seen, or [`Observed::Absent`] if no row was visible. An absence may name
//!   the tombstone that was seen, by that version. A plain `Absent` may be any state without a row. Then the
//!   checker finds only what follows from all of these states.
//! - **Writes and deletes**: the version that was made. This includes the versions of aborted transactions, and
//!   all versions that one transaction made of one key. A delete's version is its tombstone. A commit installs
//!   a transaction's last version of each key.
//! - **Scans**: the range that was covered, and the rows that were returned. All other keys of the range were
//!   seen absent. If a scan stopped early, the range ends at the last row, inclusive.
//! - **Times**: when the transaction was invoked and when it was known to be complete, by one clock. The first
//!   time was read before anything began, the second after everything was done.
//!
//! # Its shape in memory
//!
//! Flat arrays, so that millions of operations fit: 40 bytes for a transaction, 16 for an operation, 12 for a
//! row of a scan. Each key is stored once.

use std::ops::{Bound, RangeBounds};

use rustc_hash::FxHashMap;

use crate::key::{self, Key, Keys};

/// The version of every key at the beginning of the history.
pub const INITIAL: u64 = 0;

/// The number of a table within one history.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TableId(pub(crate) u32);

/// The number of a key (with its table) within one history.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyId(pub(crate) u32);

/// How a transaction ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Status {
    /// Its writes are visible.
    Committed,
    /// None of its writes may ever be visible.
    Aborted,
    /// It may have committed, or may still commit. It counts as committed if another transaction saw its
    /// writes.
    Unknown,
}

/// What a read saw.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Observed {
    /// This version: a row, or a tombstone that the reader can distinguish from others.
    Version(u64),
    /// No row, and no information since when.
    Absent,
}

/// One operation of a transaction, as [`Transaction::operations`] shows it.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A read of one key.
    Read(KeyId, Observed),
    /// A new version of a row.
    Write(KeyId, u64),
    /// The deletion of a row, with the version of its tombstone.
    Delete(KeyId, u64),
    /// A read of every key in a range.
    Scan(Scan<'a>),
}

/// One scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    history: &'a History,
    index: usize,
}

/// One transaction of a [`History`].
#[derive(Clone, Copy, Debug)]
pub struct Transaction<'a> {
    history: &'a History,
    index: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct TransactionRecord {
    pub(crate) id: u64,
    pub(crate) session: u32,
    pub(crate) status: Status,
    pub(crate) invoke_ns: u64,
    /// `u64::MAX` if it is not known.
    pub(crate) complete_ns: u64,
    /// Where its operations end. They begin where those of the previous transaction end.
    pub(crate) operations_end: usize,
}

/// An operation in 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct OperationRecord {
    pub(crate) kind: OperationKind,
    /// The key's number, or for a scan the scan's number.
    pub(crate) target: u32,
    pub(crate) version: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OperationKind {
    Read,
    ReadAbsent,
    Write,
    Delete,
    Scan,
}

#[derive(Clone)]
pub(crate) struct ScanRecord {
    pub(crate) table: u32,
    /// The bounds as key bytes, without the table's bytes.
    pub(crate) from: Bound<Box<[u8]>>,
    pub(crate) to: Bound<Box<[u8]>>,
    /// Where its rows end. They begin where those of the previous scan end.
    pub(crate) rows_end: usize,
}

/// The order in which two versions of a key were installed, if their numbers do not say it.
#[derive(Clone, Copy)]
pub(crate) struct OrderedPair {
    pub(crate) key: u32,
    pub(crate) before: u64,
    pub(crate) after: u64,
    /// Whether this follows only if transactions take effect between their invocation and completion.
    pub(crate) by_real_time: bool,
}

/// An anomaly found while a foreign format was read, before any graph.
#[derive(Clone)]
pub(crate) struct Finding {
    pub(crate) kind: crate::report::AnomalyKind,
    /// Positions of the transactions that take part.
    pub(crate) transactions: Vec<u32>,
    pub(crate) explanation: String,
}

/// How messages name the versions of a history.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Vocabulary {
    /// Numbered versions.
    #[default]
    Versions,
    /// Elements appended to lists.
    Appends,
    /// Values written to registers.
    Registers,
}

/// A recorded history, built by a [`HistoryBuilder`].
#[derive(Clone, Default)]
pub struct History {
    pub(crate) tables: Vec<String>,
    pub(crate) keys: Keys,
    pub(crate) transactions: Vec<TransactionRecord>,
    pub(crate) operations: Vec<OperationRecord>,
    pub(crate) scans: Vec<ScanRecord>,
    pub(crate) row_keys: Vec<u32>,
    pub(crate) row_versions: Vec<u64>,
    /// `None` if the versions of a key are ordered by number.
    pub(crate) order: Option<Vec<OrderedPair>>,
    pub(crate) vocabulary: Vocabulary,
    /// The values that the versions stand for, by version number, if versions are only numbers of values.
    pub(crate) values: Vec<String>,
    pub(crate) findings: Vec<Finding>,
    /// Whether times are positions in the file, because the file has no times.
    pub(crate) timed_by_position: bool,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("transactions", &self.transactions.len())
            .field("operations", &self.operations.len())
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl History {
    /// Returns the number of transactions, however they ended.
    pub fn transaction_count(&self) -> usize {
        self.transactions.len()
    }

    /// Returns the number of operations of all transactions.
    pub fn operation_count(&self) -> usize {
        self.operations.len()
    }

    /// Returns the number of different keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the transactions in the order of recording.
    pub fn transactions(&self) -> impl ExactSizeIterator<Item = Transaction<'_>> {
        (0..self.transactions.len()).map(|index| Transaction { history: self, index })
    }

    /// Returns a key that an operation names.
    pub fn key(&self, key: KeyId) -> Key {
        self.keys.key(key.0)
    }

    /// Returns the name of a key's table.
    pub fn table_of(&self, key: KeyId) -> &str {
        &self.tables[self.keys.table(key.0) as usize]
    }

    /// Returns whether the order of every key's versions is known, as for numbered versions. If it is not, the
    /// checker finds what contradicts every possible order.
    pub fn is_order_known(&self) -> bool {
        self.order.is_none()
    }

    /// Returns the positions of the operations of transaction `index`.
    pub(crate) fn operation_range(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |last| self.transactions[last].operations_end);
        start..self.transactions[index].operations_end
    }

    /// Returns the positions of the rows of scan `index`.
    pub(crate) fn row_range(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |last| self.scans[last].rows_end);
        start..self.scans[index].rows_end
    }
}

impl<'a> Transaction<'a> {
    fn record(&self) -> &'a TransactionRecord {
        &self.history.transactions[self.index]
    }

    /// Returns the number that the recorder gave it.
    pub fn id(&self) -> u64 {
        self.record().id
    }

    /// Returns the session, thread or process that ran it.
    pub fn session(&self) -> u32 {
        self.record().session
    }

    /// Returns when it was invoked, in nanoseconds.
    pub fn invoke_ns(&self) -> u64 {
        self.record().invoke_ns
    }

    /// Returns when it was complete, in nanoseconds, if that is known.
    pub fn complete_ns(&self) -> Option<u64> {
        Some(self.record().complete_ns).filter(|&complete_ns| complete_ns != u64::MAX)
    }

    /// Returns how it ended.
    pub fn status(&self) -> Status {
        self.record().status
    }

    /// Returns its operations, in order.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = Operation<'a>> {
        let history = self.history;
        history.operations[history.operation_range(self.index)].iter().map(move |operation| {
            let key = KeyId(operation.target);
            match operation.kind {
                OperationKind::Read => Operation::Read(key, Observed::Version(operation.version)),
                OperationKind::ReadAbsent => Operation::Read(key, Observed::Absent),
                OperationKind::Write => Operation::Write(key, operation.version),
                OperationKind::Delete => Operation::Delete(key, operation.version),
                OperationKind::Scan => {
                    Operation::Scan(Scan { history, index: operation.target as usize })
                }
            }
        })
    }
}

impl<'a> Scan<'a> {
    /// Returns the name of the table.
    pub fn table(&self) -> &'a str {
        &self.history.tables[self.history.scans[self.index].table as usize]
    }

    /// Returns the range that it covered.
    pub fn range(&self) -> (Bound<Key>, Bound<Key>) {
        let scan = &self.history.scans[self.index];
        let decode = |end: &Bound<Box<[u8]>>| end.as_ref().map(|bytes| key::decode_bare(bytes));
        (decode(&scan.from), decode(&scan.to))
    }

    /// Returns the rows that it returned, each with the version that was seen, in the order of recording.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (KeyId, u64)> + 'a {
        let range = self.history.row_range(self.index);
        let keys = &self.history.row_keys[range.clone()];
        let versions = &self.history.row_versions[range];
        keys.iter().zip(versions).map(|(&key, &version)| (KeyId(key), version))
    }
}

/// Collects transactions into a [`History`].
///
/// ```
/// use weft_checker::{HistoryBuilder, Observed, Options, check};
///
/// let mut builder = HistoryBuilder::new();
/// let accounts = builder.table("accounts");
/// let mut deposit = builder.transaction(1, 0, 100);
/// deposit.read(accounts, 5, Observed::Version(0));
/// deposit.write(accounts, 5, 7);
/// deposit.committed(200);
/// let mut report = builder.transaction(2, 1, 300);
/// report.scan(accounts, .., [(5, 7)]);
/// report.committed(400);
/// assert!(check(&builder.build(), &Options::default()).is_ok());
/// ```
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    history: History,
    tables: FxHashMap<String, u32>,
    buffer: Vec<u8>,
}

impl HistoryBuilder {
    /// Makes a builder of a history without transactions.
    pub fn new() -> Self {
        HistoryBuilder::default()
    }

    /// Returns the number of the table of this name. A new name gets a new number.
    pub fn table(&mut self, name: &str) -> TableId {
        if let Some(&table) = self.tables.get(name) {
            return TableId(table);
        }
        let table = u32::try_from(self.history.tables.len()).expect("fewer than 2^32 tables");
        self.tables.insert(name.to_owned(), table);
        self.history.tables.push(name.to_owned());
        TableId(table)
    }

    /// Returns the number of a key. A new key gets a new number. Operations take keys directly; this is for
    /// callers that use the same key often.
    pub fn key(&mut self, table: TableId, key: &Key) -> KeyId {
        self.buffer.clear();
        key::encode_table(table.0, &mut self.buffer);
        key::encode(key, &mut self.buffer);
        KeyId(self.history.keys.intern(&self.buffer))
    }

    /// Begins the next transaction. `id` is its number in messages. `session` is the thread or process that ran
    /// it. Transactions may be added in any order.
    ///
    /// If times are not known, use 0 for `invoke_ns` and no time of completion. Then only what the transaction
    /// read and wrote orders it.
    pub fn transaction(&mut self, id: u64, session: u32, invoke_ns: u64) -> TransactionBuilder<'_> {
        TransactionBuilder { builder: self, id, session, invoke_ns, ended: false }
    }

    /// Returns the history.
    pub fn build(self) -> History {
        self.history
    }

    /// Returns a key by its number.
    pub(crate) fn key_of(&self, key: u32) -> Key {
        self.history.keys.key(key)
    }

    pub(crate) fn push(&mut self, kind: OperationKind, target: u32, version: u64) {
        self.history.operations.push(OperationRecord { kind, target, version });
    }

    pub(crate) fn push_row(&mut self, key: KeyId, version: u64) {
        self.history.row_keys.push(key.0);
        self.history.row_versions.push(version);
    }

    /// Adds a scan whose rows were already pushed.
    pub(crate) fn push_scan(&mut self, table: TableId, from: Bound<&Key>, to: Bound<&Key>) {
        let scan = ScanRecord {
            table: table.0,
            from: from.map(key::encode_bare),
            to: to.map(key::encode_bare),
            rows_end: self.history.row_keys.len(),
        };
        let index = u32::try_from(self.history.scans.len()).expect("fewer than 2^32 scans");
        self.history.scans.push(scan);
        self.push(OperationKind::Scan, index, 0);
    }

    /// Adds a transaction whose operations were already pushed.
    pub(crate) fn push_transaction(
        &mut self,
        id: u64,
        session: u32,
        status: Status,
        invoke_ns: u64,
        complete_ns: Option<u64>,
    ) {
        self.history.transactions.push(TransactionRecord {
            id,
            session,
            status,
            invoke_ns,
            complete_ns: complete_ns.map_or(u64::MAX, |complete_ns| complete_ns.max(invoke_ns)),
            operations_end: self.history.operations.len(),
        });
    }
}

/// Collects the operations of one transaction. If it is dropped before one of the methods that end the
/// transaction is called, the outcome counts as [unknown](Status::Unknown).
#[derive(Debug)]
pub struct TransactionBuilder<'a> {
    builder: &'a mut HistoryBuilder,
    id: u64,
    session: u32,
    invoke_ns: u64,
    ended: bool,
}

impl TransactionBuilder<'_> {
    /// Records a read of `key`.
    pub fn read(&mut self, table: TableId, key: impl Into<Key>, observed: Observed) -> &mut Self {
        let key = self.builder.key(table, &key.into());
        match observed {
            Observed::Version(version) => {
                self.builder.push(OperationKind::Read, key.0, version);
            }
            Observed::Absent => self.builder.push(OperationKind::ReadAbsent, key.0, 0),
        }
        self
    }

    /// Records that the transaction inserted or replaced the row at `key`.
    ///
    /// # Panics
    ///
    /// If `version` is [`INITIAL`].
    pub fn write(&mut self, table: TableId, key: impl Into<Key>, version: u64) -> &mut Self {
        self.change(OperationKind::Write, table, key.into(), version)
    }

    /// Records that the transaction deleted the row at `key`. `version` is the tombstone's.
    ///
    /// # Panics
    ///
    /// If `version` is [`INITIAL`].
    pub fn delete(&mut self, table: TableId, key: impl Into<Key>, version: u64) -> &mut Self {
        self.change(OperationKind::Delete, table, key.into(), version)
    }

    fn change(&mut self, kind: OperationKind, table: TableId, key: Key, version: u64) -> &mut Self {
        assert_ne!(version, INITIAL, "version 0 is the state before the history");
        let key = self.builder.key(table, &key);
        self.builder.push(kind, key.0, version);
        self
    }

    /// Records that the transaction read all of `range`, and found these rows: key and version, in either
    /// direction. A range is `Key::from(1)..Key::from(5)`, `..`, a pair of [`Bound`]s, and the like. A row
    /// outside of the range counts as a read of that row.
    pub fn scan<R: Into<Key>>(
        &mut self,
        table: TableId,
        range: impl RangeBounds<Key>,
        rows: impl IntoIterator<Item = (R, u64)>,
    ) -> &mut Self {
        for (key, version) in rows {
            let key = self.builder.key(table, &key.into());
            self.builder.push_row(key, version);
        }
        self.builder.push_scan(table, range.start_bound(), range.end_bound());
        self
    }

    /// Ends the transaction: it committed, and this was known at `complete_ns`.
    pub fn committed(self, complete_ns: u64) {
        self.end(Status::Committed, Some(complete_ns));
    }

    /// Ends the transaction: it aborted, and this was known at `complete_ns`.
    pub fn aborted(self, complete_ns: u64) {
        self.end(Status::Aborted, Some(complete_ns));
    }

    /// Ends the transaction: it is not known whether it committed.
    pub fn unknown(self) {
        self.end(Status::Unknown, None);
    }

    /// Ends the transaction with this status, at a time that may not be known. A time before the invocation is
    /// replaced by the time of the invocation.
    pub fn end(mut self, status: Status, complete_ns: Option<u64>) {
        self.finish(status, complete_ns);
    }

    fn finish(&mut self, status: Status, complete_ns: Option<u64>) {
        self.ended = true;
        let (id, session, invoke_ns) = (self.id, self.session, self.invoke_ns);
        self.builder.push_transaction(id, session, status, invoke_ns, complete_ns);
    }
}

impl Drop for TransactionBuilder<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Status::Unknown, None);
        }
    }
}
