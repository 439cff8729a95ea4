//! Recording: a [`Recorder`] for each worker, and what they share, the [`Recording`].
//!
//! A worker's recorder collects the operations of the running transaction, and moves them to the
//! session's log when the transaction has ended, under a lock that nobody else wants while
//! transactions run. [`Recording::take`] empties all logs and makes a [`History`] of them.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use weft_htm::word::{Mutex, Ordering, Word};

use super::{History, HistoryKey, HistoryRange, Operation, Status, Transaction};
use crate::step::{Instance, Parts};

/// Who wrote a row, and by which of its writes. Of type `u64` both, so that it lies behind any row.
///
/// Zero, as a transaction, is nobody.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    /// [`SESSION_SHIFT`] says what of it is what.
    transaction: u64,
    write: u64,
}

/// A transaction's number in a stamp: the session's number, plus one, above, and its number in
/// the session below.
const SESSION_SHIFT: u32 = 40;

impl Stamp {
    /// Makes room for a stamp behind a row: where it lies, and the layout of both.
    pub(crate) fn behind(row: Layout) -> (usize, Layout) {
        let extended = row.extend(Layout::new::<Stamp>());
        let (layout, offset) = extended.expect("rows are far below isize::MAX");
        (offset, layout)
    }

    /// The session's number, and the transaction's in it.
    fn transaction(self) -> Option<(u32, usize)> {
        let session = (self.transaction >> SESSION_SHIFT).checked_sub(1)?;
        let serial = self.transaction & ((1 << SESSION_SHIFT) - 1);
        Some((session as u32, serial as usize))
    }
}

/// An operation, with stamps in place of versions. Of a write it is known which of its transaction's it is.
#[derive(Clone)]
enum RawOperation {
    Read { table: u32, key: HistoryKey, seen: Option<Stamp> },
    Write { table: u32, key: HistoryKey, write: usize },
    Delete { table: u32, key: HistoryKey, write: usize },
    Scan(Box<RawScan>),
}

/// A scan, or a part of one, in its own direction.
#[derive(Clone)]
struct RawScan {
    table: u32,
    reverse: bool,
    near: Bound<HistoryKey>,
    far: Bound<HistoryKey>,
    rows: Vec<(HistoryKey, Stamp)>,
}

/// A transaction that has ended.
struct RawTransaction {
    invoke_ns: u64,
    complete_ns: u64,
    status: Status,
    commit_number: u64,
    writes: usize,
    /// How many of the log's operations are its own.
    operations: usize,
}

/// What the transactions of a session did that have ended since the last history was taken.
#[derive(Default)]
struct Log {
    /// The number in the session of the first of them.
    first: usize,
    transactions: Vec<RawTransaction>,
    operations: Vec<RawOperation>,
}

type SharedLog = Arc<Mutex<Log>>;

/// What the workers of a recorded database share.
pub(crate) struct Recording {
    started: Instant,
    /// The names of the indexes, by number.
    names: Vec<Arc<str>>,
    /// Transactions draw numbers from here as they commit.
    commits: Word,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    begun: u32,
    logs: BTreeMap<u32, SharedLog>,
}

impl Recording {
    pub(crate) fn new(names: Vec<Arc<str>>) -> Self {
        Recording {
            started: Instant::now(),
            names,
            commits: Word::new(1),
            sessions: Mutex::new(Sessions::default()),
        }
    }

    /// A recorder for a new worker.
    pub(crate) fn recorder(self: &Arc<Self>) -> Recorder {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.begun;
        sessions.begun += 1;
        let log = SharedLog::default();
        sessions.logs.insert(session, Arc::clone(&log));
        Recorder {
            recording: Arc::clone(self),
            log,
            session,
            serial: 0,
            invoke_ns: 0,
            complete_ns: None,
            commit_number: None,
            writes: 0,
            operations: Vec::new(),
            parts: Parts::default(),
            last: Default::default(),
        }
    }

    /// Nanoseconds since the recording began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Takes what was recorded since the last time.
    pub(crate) fn take(&self) -> History {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let logs: Vec<(u32, Log)> = sessions
            .logs
            .iter()
            .map(|(&session, log)| {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                let first = log.first + log.transactions.len();
                (session, std::mem::replace(&mut *log, Log { first, ..Log::default() }))
            })
            .collect();
        // The logs of workers that have left are of no more use.
        sessions.logs.retain(|_, log| Arc::strong_count(log) > 1);
        let versions = Versions::number(&logs, sessions.begun);
        drop(sessions);
        self.build(logs, versions)
    }

    fn build(&self, logs: Vec<(u32, Log)>, mut versions: Versions) -> History {
        let mut transactions = Vec::new();
        for (session, log) in logs {
            let mut operations = log.operations.into_iter();
            for (position, ended) in log.transactions.into_iter().enumerate() {
                let first = versions.first_of(session, log.first + position);
                let own = operations.by_ref().take(ended.operations);
                let operations =
                    own.map(|operation| self.operation(operation, first, &mut versions)).collect();
                transactions.push(Transaction {
                    id: 0,
                    session,
                    invoke_ns: ended.invoke_ns,
                    complete_ns: ended.complete_ns,
                    status: ended.status,
                    operations,
                });
            }
        }
        // Stable: of two in one session at the same time, the first remains the first.
        transactions.sort_by_key(|transaction| transaction.invoke_ns);
        for (id, transaction) in (1..).zip(&mut transactions) {
            transaction.id = id;
        }
        History { transactions }
    }

    /// An operation with versions; `first` is that of the transaction's first write.
    fn operation(&self, operation: RawOperation, first: u64, versions: &mut Versions) -> Operation {
        let name = |table: u32| Arc::clone(&self.names[table as usize]);
        let own = |write: usize| first + write as u64;
        match operation {
            RawOperation::Read { table, key, seen } => {
                let version = seen.map(|stamp| versions.of(stamp));
                Operation::Read { table: name(table), key, version }
            }
            RawOperation::Write { table, key, write } => {
                Operation::Write { table: name(table), key, version: own(write) }
            }
            RawOperation::Delete { table, key, write } => {
                Operation::Delete { table: name(table), key, version: own(write) }
            }
            RawOperation::Scan(scan) => {
                let RawScan { table, reverse, near, far, rows } = *scan;
                let (from, to) = if reverse { (far, near) } else { (near, far) };
                let rows = rows.into_iter().map(|(key, stamp)| (key, versions.of(stamp)));
                Operation::Scan { table: name(table), from, to, rows: rows.collect() }
            }
        }
    }
}

/// Which stamp is which version.
struct Versions {
    /// For each session, the number of its first transaction, and the first version and the number
    /// of writes of each.
    sessions: HashMap<u32, (usize, Vec<(u64, usize)>)>,
    /// How many sessions there have been.
    begun: u32,
    /// Versions that no transaction of the history has made.
    strangers: HashMap<Stamp, u64>,
    /// The next version that is free.
    next: u64,
}

impl Versions {
    /// Numbers the writes of all transactions, in the order of their commit numbers.
    fn number(logs: &[(u32, Log)], begun: u32) -> Self {
        let mut sessions = HashMap::new();
        let mut order = Vec::new();
        for (session, log) in logs {
            let none = log.transactions.iter().map(|ended| (0, ended.writes)).collect();
            sessions.insert(*session, (log.first, none));
            let writers = log.transactions.iter().enumerate().filter(|(_, ended)| ended.writes > 0);
            order
                .extend(writers.map(|(position, ended)| (ended.commit_number, *session, position)));
        }
        order.sort_unstable();
        let mut next = 1;
        for (_, session, position) in order {
            let (_, writers): &mut (usize, Vec<(u64, usize)>) =
                sessions.get_mut(&session).expect("inserted above");
            let (first, writes) = &mut writers[position];
            *first = next;
            next += *writes as u64;
        }
        Versions { sessions, begun, strangers: HashMap::new(), next }
    }

    /// The first version that a transaction made.
    fn first_of(&self, session: u32, serial: usize) -> u64 {
        let (first, writers) = &self.sessions[&session];
        writers[serial - first].0
    }

    /// The version of a row with this stamp.
    fn of(&mut self, stamp: Stamp) -> u64 {
        let Some((session, serial)) = stamp.transaction() else { return 0 };
        match self.sessions.get(&session) {
            // Taken with an earlier history.
            Some((first, _)) if serial < *first => return 0,
            None if session < self.begun => return 0,
            Some((first, writers)) => {
                if let Some(&(version, writes)) = writers.get(serial - first)
                    && (stamp.write as usize) < writes
                {
                    return version + stamp.write;
                }
            }
            None => {}
        }
        // A row that nobody says to have written: a number of its own, which is in no write.
        *self.strangers.entry(stamp).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// Records one worker's transactions.
pub(crate) struct Recorder {
    recording: Arc<Recording>,
    log: SharedLog,
    session: u32,
    // ---- the running transaction ----
    /// Its number in the session.
    serial: u64,
    invoke_ns: u64,
    /// When it was complete, if it was before its end.
    complete_ns: Option<u64>,
    commit_number: Option<u64>,
    /// How many writes it has recorded.
    writes: usize,
    operations: Vec<RawOperation>,
    /// Of a procedure: which of its operations has recorded what, and what was recorded in the round before.
    parts: Parts<1>,
    last: (Vec<RawOperation>, Parts<1>),
}

impl Recorder {
    /// A transaction is invoked.
    pub(crate) fn invoke(&mut self) {
        self.invoke_ns = self.recording.now_ns();
        self.complete_ns = None;
        self.commit_number = None;
        self.writes = 0;
        // What is there was undone by the simulated machine, with the transaction.
        self.operations.clear();
        self.parts.clear();
    }

    /// An operation of a procedure runs, or goes on.
    pub(crate) fn enter_step(&mut self, instance: Instance, goes_on: bool) {
        self.parts.begin(instance, goes_on, [self.operations.len()]);
    }

    /// What an operation did in the last round stands.
    pub(crate) fn keep_step(&mut self, instance: Instance) {
        self.enter_step(instance, false);
        let (operations, parts) = &mut self.last;
        parts.of(instance, [operations.len()], |[range]| {
            self.operations.extend_from_slice(&operations[range]);
        });
    }

    /// A procedure begins anew. Writes are counted on, since rows may be kept, with their stamps.
    pub(crate) fn next_round(&mut self) {
        let (last, last_parts) = std::mem::take(&mut self.last);
        let missed = last_parts.all([last.len()]).filter(|(other, _)| !self.parts.has(*other));
        let missed: Vec<_> = missed.collect();
        self.last = (std::mem::take(&mut self.operations), std::mem::take(&mut self.parts));
        let (operations, parts) = &mut self.last;
        // What an operation did that this round has not come by: it may have ended early.
        for (instance, [range]) in missed {
            parts.begin(instance, true, [operations.len()]);
            operations.extend_from_slice(&last[range]);
        }
    }

    /// The transaction has taken place: what it reads from now on was so at this moment.
    pub(crate) fn complete(&mut self) {
        self.complete_ns = Some(self.recording.now_ns());
    }

    /// When the transaction was invoked, and when it was complete, or else now.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.invoke_ns, self.complete_ns.unwrap_or_else(|| self.recording.now_ns()))
    }

    /// The transaction has taken place between these times.
    pub(crate) fn set_times(&mut self, (invoke_ns, complete_ns): (u64, u64)) {
        (self.invoke_ns, self.complete_ns) = (invoke_ns, Some(complete_ns));
    }

    /// The stamp of the row that will be recorded as the next write.
    #[inline]
    pub(crate) fn next_stamp(&self) -> Stamp {
        let session = u64::from(self.session) + 1;
        Stamp { transaction: session << SESSION_SHIFT | self.serial, write: self.writes as u64 }
    }

    pub(crate) fn read(&mut self, table: usize, key: HistoryKey, seen: Option<Stamp>) {
        self.operations.push(RawOperation::Read { table: table as u32, key, seen });
    }

    /// Records the write of the row with the [next stamp](Recorder::next_stamp).
    pub(crate) fn write(&mut self, table: usize, key: HistoryKey) {
        self.operations.push(RawOperation::Write { table: table as u32, key, write: self.writes });
        self.writes += 1;
    }

    pub(crate) fn delete(&mut self, table: usize, key: HistoryKey) {
        self.operations.push(RawOperation::Delete { table: table as u32, key, write: self.writes });
        self.writes += 1;
    }

    /// Draws the transaction's number in the order of commits. Called by its executor at the
    /// serialization point; if more than once, the last time counts, as in the protocol.
    #[inline]
    pub(crate) fn note_serialization(&mut self) {
        // Relaxed: two transactions that write the same key draw while they hold its lock, or in
        // hardware regions that conflict, so one draw happens before the other, and the counter
        // is a single word. Between others the order of the numbers means nothing.
        self.commit_number = Some(self.recording.commits.fetch_add(1, Ordering::Relaxed));
    }

    /// Ends the transaction, which has released everything by now.
    pub(crate) fn end(&mut self, status: Status) {
        let complete_ns = self.complete_ns.unwrap_or_else(|| self.recording.now_ns());
        assert!(
            self.commit_number.is_some() || self.writes == 0 || status != Status::Committed,
            "a commit with writes asks for the epoch at its serialization point"
        );
        let commit_number = self.commit_number.unwrap_or_else(|| {
            // Only a number that nobody else has. Relaxed: as above.
            self.recording.commits.fetch_add(1, Ordering::Relaxed)
        });
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.transactions.push(RawTransaction {
            invoke_ns: self.invoke_ns,
            complete_ns,
            status,
            commit_number,
            writes: self.writes,
            operations: self.operations.len(),
        });
        log.operations.append(&mut self.operations);
        drop(log);
        self.parts.clear();
        self.last = Default::default();
        self.serial += 1;
    }
}

/// How far a scan has been recorded.
pub(crate) struct ScanProgress {
    table: u32,
    reverse: bool,
    /// Where the part that is not recorded yet begins, and where the range ends, as the scan goes.
    near: Bound<HistoryKey>,
    far: Bound<HistoryKey>,
    /// How many operations the transaction had recorded when the scan began.
    began: Option<usize>,
    /// The part that goes on, by its position among the operations, and the number of writes when
    /// it was begun.
    part: Option<(usize, usize)>,
}

impl ScanProgress {
    /// For a scan of `range` that goes upwards.
    pub(crate) fn new(table: usize, range: HistoryRange) -> Self {
        let (near, far) = range;
        ScanProgress { table: table as u32, reverse: false, near, far, began: None, part: None }
    }

    /// Turns the scan round, before it has begun.
    pub(crate) fn turn(&mut self) {
        std::mem::swap(&mut self.near, &mut self.far);
        self.reverse = true;
    }

    /// Whether a key lies between what was recorded and `end`, as the scan goes.
    fn is_before(&self, key: &HistoryKey, end: &Bound<HistoryKey>) -> bool {
        let precedes = |one: &HistoryKey, other: &HistoryKey| match self.reverse {
            false => one < other,
            true => one > other,
        };
        let begins = match &self.near {
            Bound::Included(near) => !precedes(key, near),
            Bound::Excluded(near) => precedes(near, key),
            Bound::Unbounded => true,
        };
        let ends = match end {
            Bound::Included(end) => !precedes(end, key),
            Bound::Excluded(end) => precedes(key, end),
            Bound::Unbounded => true,
        };
        begins && ends
    }
}

impl Recorder {
    /// The scan begins to read.
    pub(crate) fn begin_scan(&mut self, scan: &mut ScanProgress) {
        scan.began.get_or_insert(self.operations.len());
    }

    /// The scan has come to a row, and seen nothing before it.
    pub(crate) fn scan_row(&mut self, scan: &mut ScanProgress, key: HistoryKey, seen: Stamp) {
        self.pass(scan, &Bound::Excluded(key.clone()));
        let part = self.part(scan);
        part.far = Bound::Included(key.clone());
        part.rows.push((key.clone(), seen));
        scan.near = Bound::Excluded(key);
    }

    /// The scan has come to the end of its range, and seen nothing before it.
    pub(crate) fn end_scan(&mut self, scan: &mut ScanProgress) {
        let end = scan.far.clone();
        self.pass(scan, &end);
        match (&scan.near, &end) {
            // Nothing is left between the two.
            (Bound::Excluded(near), Bound::Included(end)) if near == end => {}
            _ => self.part(scan).far = end,
        }
    }

    /// Leaves out of the scan what it has passed without showing it: the keys before `end` that the
    /// transaction itself has written since the scan began.
    fn pass(&mut self, scan: &mut ScanProgress, end: &Bound<HistoryKey>) {
        for key in self.passed_over(scan, end) {
            self.part(scan).far = Bound::Excluded(key.clone());
            scan.near = Bound::Excluded(key);
            scan.part = None;
        }
    }

    /// The keys before `end` that the transaction itself has written since the scan began.
    fn passed_over(&self, scan: &ScanProgress, end: &Bound<HistoryKey>) -> Vec<HistoryKey> {
        let since = &self.operations[scan.began.unwrap_or(self.operations.len())..];
        let written = since.iter().filter_map(|operation| match operation {
            RawOperation::Write { table, key, .. } | RawOperation::Delete { table, key, .. }
                if *table == scan.table && scan.is_before(key, end) =>
            {
                Some(key.clone())
            }
            _ => None,
        });
        let mut written: Vec<_> = written.collect();
        written.sort();
        written.dedup();
        if scan.reverse {
            written.reverse();
        }
        written
    }

    /// The part of the scan that goes on: a new one if the transaction has written something since
    /// the last one was begun.
    fn part(&mut self, scan: &mut ScanProgress) -> &mut RawScan {
        let position = match scan.part {
            Some((position, writes)) if writes == self.writes => position,
            _ => {
                scan.part = Some((self.operations.len(), self.writes));
                self.operations.push(RawOperation::Scan(Box::new(RawScan {
                    table: scan.table,
                    reverse: scan.reverse,
                    near: scan.near.clone(),
                    far: scan.near.clone(),
                    rows: Vec::new(),
                })));
                self.operations.len() - 1
            }
        };
        match &mut self.operations[position] {
            RawOperation::Scan(scan) => scan,
            _ => unreachable!("a scan was put here"),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use weft_htm::{Choice, Htm, RetryPolicy};

    use super::*;
    use crate::commit::{Dbx, record_kind};
    use crate::store::record::arena::Class;
    use crate::store::record::version::VersionHeader;
    use crate::store::table::{Identity, TableInner};
    use crate::store::worker::{Shared, WorkerMemory};

    #[derive(Clone, crate::Record)]
    struct Odd {
        #[record(key)]
        id: u32,
        /// It is there for its size.
        name: [u8; 9],
    }

    /// The classes of a table's rows and records.
    fn classes(recording: Option<Recording>) -> (usize, usize) {
        let htm = Htm::open(Choice::Software, RetryPolicy::default()).unwrap();
        let mut shared = Shared::new(htm, 1);
        shared.recording = recording.map(Arc::new);
        let memory = WorkerMemory::new(Arc::new(shared), 0);
        let table = TableInner::<Odd>::new(
            &Arc::new(Identity),
            0,
            (crate::row::schema::Storage::Ordered, 0),
            const { &record_kind::<Dbx>() },
            &memory,
        )
        .unwrap();
        let reference = table.reference();
        let core = reference.core();
        (core.row_class.bytes(), core.record_class.bytes())
    }

    #[test]
    fn rows_are_larger_only_where_they_are_recorded() {
        let row = Layout::new::<Odd>();
        let bytes = |row: Layout| {
            let record = record_kind::<Dbx>().layout_with(row);
            let version = VersionHeader::layout_with(row);
            (Class::of(version).unwrap().bytes(), Class::of(record).unwrap().bytes())
        };
        assert_eq!(row.size(), 16);
        assert_eq!(classes(None), bytes(row));
        let (offset, stamped) = Stamp::behind(row);
        assert_eq!((offset, stamped.size()), (16, 32));
        assert_eq!(classes(Some(Recording::new(vec!["odd".into()]))), bytes(stamped));
    }
}
