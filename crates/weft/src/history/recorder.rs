//! The recording of histories: a [`Recorder`] for each worker, and the [`Recording`], which they
//! share.
//!
//! A worker's recorder collects the operations of the running transaction. When the transaction has
//! ended, it moves them to the session's log, under a lock that no other thread wants while
//! transactions run. [`Recording::take`] empties all logs and builds a [`History`] from them.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use weft_htm::word::{Mutex, Ordering, Word};

use super::{History, HistoryKey, HistoryRange, Operation, Status, Transaction};
use crate::step::{Instance, Parts};

/// The identity of a write: the transaction that wrote a row, and the number of the write in it.
/// Both are `u64`, so that a stamp can follow any row.
///
/// A transaction of zero means that there is no transaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    /// [`SESSION_SHIFT`] says how it is divided.
    transaction: u64,
    write: u64,
}

/// The bit that divides a transaction's number in a stamp. Above it is the session's number plus
/// one, below it the transaction's number in the session.
const SESSION_SHIFT: u32 = 40;

impl Stamp {
    /// Makes room for a stamp after a row. Returns the stamp's offset, and the layout of both.
    pub(crate) fn behind(row: Layout) -> (usize, Layout) {
        let extended = row.extend(Layout::new::<Stamp>());
        let (layout, offset) = extended.expect("rows are far below isize::MAX");
        (offset, layout)
    }

    /// Returns the session's number, and the transaction's number in it.
    fn transaction(self) -> Option<(u32, usize)> {
        let session = (self.transaction >> SESSION_SHIFT).checked_sub(1)?;
        let serial = self.transaction & ((1 << SESSION_SHIFT) - 1);
        Some((session as u32, serial as usize))
    }
}

/// An operation, with stamps in place of versions. A write has its number in its transaction.
#[derive(Clone)]
enum RawOperation {
    Read {
        table: u32,
        key: HistoryKey,
        seen: Option<Stamp>,
    },
    Write {
        table: u32,
        key: HistoryKey,
        write: usize,
    },
    Delete {
        table: u32,
        key: HistoryKey,
        write: usize,
    },
    Scan(Box<RawScan>),
    /// A write that was undone, or a read of one.
    Undone,
}

impl RawOperation {
    fn is_write(&self) -> bool {
        matches!(self, RawOperation::Write { .. } | RawOperation::Delete { .. })
    }
}

/// A scan, or a part of one. `near` and `far` are its ends in the direction of the scan.
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
    /// How many of the log's operations belong to it.
    operations: usize,
}

/// The log of a session: what its transactions did that have ended since the last history was
/// taken.
#[derive(Default)]
struct SessionLog {
    /// The number in the session of the log's first transaction.
    first: usize,
    transactions: Vec<RawTransaction>,
    operations: Vec<RawOperation>,
}

type SharedLog = Arc<Mutex<SessionLog>>;

/// What the workers of a recorded database share.
pub(crate) struct Recording {
    started: Instant,
    /// The names of the indexes, by number.
    names: Vec<Arc<str>>,
    /// The counter from which transactions draw numbers as they commit.
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

    /// Returns a recorder for a new worker.
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

    /// Returns the nanoseconds since the recording began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Takes the history that was recorded since the last call.
    pub(crate) fn take(&self) -> History {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let logs: Vec<(u32, SessionLog)> = sessions
            .logs
            .iter()
            .map(|(&session, log)| {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                let first = log.first + log.transactions.len();
                (
                    session,
                    std::mem::replace(&mut *log, SessionLog { first, ..SessionLog::default() }),
                )
            })
            .collect();
        // The logs of workers that have left are not needed any more.
        sessions.logs.retain(|_, log| Arc::strong_count(log) > 1);
        let versions = Versions::number(&logs, sessions.begun);
        drop(sessions);
        self.build(logs, versions)
    }

    fn build(&self, logs: Vec<(u32, SessionLog)>, mut versions: Versions) -> History {
        let mut transactions = Vec::new();
        for (session, log) in logs {
            let mut operations = log.operations.into_iter();
            for (position, ended) in log.transactions.into_iter().enumerate() {
                let first = versions.first_of(session, log.first + position);
                let own = operations.by_ref().take(ended.operations);
                let operations = own
                    .filter_map(|operation| self.operation(operation, first, &mut versions))
                    .collect();
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
        // The sort is stable: of two transactions in one session at the same time, the first
        // remains the first.
        transactions.sort_by_key(|transaction| transaction.invoke_ns);
        for (id, transaction) in (1..).zip(&mut transactions) {
            transaction.id = id;
        }
        History { transactions }
    }

    /// Replaces stamps by versions in an operation. `first` is the version of the transaction's
    /// first write.
    fn operation(
        &self,
        operation: RawOperation,
        first: u64,
        versions: &mut Versions,
    ) -> Option<Operation> {
        let name = |table: u32| Arc::clone(&self.names[table as usize]);
        let own = |write: usize| first + write as u64;
        Some(match operation {
            RawOperation::Undone => return None,
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
        })
    }
}

/// The assignment of versions to stamps.
struct Versions {
    /// For each session, the number of its first transaction. Then for each transaction, its first
    /// version and its number of writes.
    sessions: HashMap<u32, (usize, Vec<(u64, usize)>)>,
    /// How many sessions there have been.
    begun: u32,
    /// The versions of stamps that no transaction of the history has written.
    unknown_writes: HashMap<Stamp, u64>,
    /// The next free version.
    next: u64,
}

impl Versions {
    /// Numbers the writes of all transactions, in the order of their commit numbers.
    fn number(logs: &[(u32, SessionLog)], begun: u32) -> Self {
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
        Versions { sessions, begun, unknown_writes: HashMap::new(), next }
    }

    /// Returns the first version that a transaction wrote.
    fn first_of(&self, session: u32, serial: usize) -> u64 {
        let (first, writers) = &self.sessions[&session];
        writers[serial - first].0
    }

    /// Returns the version of a row with this stamp.
    fn of(&mut self, stamp: Stamp) -> u64 {
        let Some((session, serial)) = stamp.transaction() else { return 0 };
        match self.sessions.get(&session) {
            // The transaction is in an earlier history.
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
        // No transaction has recorded this write. Use a new number, which belongs to no write.
        *self.unknown_writes.entry(stamp).or_insert_with(|| {
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
    /// The time of completion, if the transaction was complete before its end.
    complete_ns: Option<u64>,
    commit_number: Option<u64>,
    /// How many writes it has recorded.
    writes: usize,
    operations: Vec<RawOperation>,
    /// For a procedure: which of its operations has recorded what, and what was recorded in the
    /// last round.
    parts: Parts<1>,
    last: (Vec<RawOperation>, Parts<1>),
}

impl Recorder {
    /// Begins to record a transaction that is invoked now.
    pub(crate) fn invoke(&mut self) {
        self.invoke_ns = self.recording.now_ns();
        self.complete_ns = None;
        self.commit_number = None;
        self.writes = 0;
        // Operations are left here if the simulated machine has undone the transaction that made
        // them.
        self.operations.clear();
        self.parts.clear();
    }

    /// Records from now on for an operation of a procedure, which begins or goes on.
    pub(crate) fn enter_step(&mut self, instance: Instance, goes_on: bool) {
        self.parts.begin(instance, goes_on, [self.operations.len()]);
    }

    /// Keeps what an operation did in the last round.
    pub(crate) fn keep_step(&mut self, instance: Instance) {
        self.enter_step(instance, false);
        let (operations, parts) = &mut self.last;
        parts.of(instance, [operations.len()], |[range]| {
            self.operations.extend_from_slice(&operations[range]);
        });
    }

    /// Begins the next round of a procedure. The count of writes goes on, because rows may be kept,
    /// with their stamps.
    pub(crate) fn next_round(&mut self) {
        let (last, last_parts) = std::mem::take(&mut self.last);
        let missed = last_parts.all([last.len()]).filter(|(other, _)| !self.parts.has(*other));
        let missed: Vec<_> = missed.collect();
        self.last = (std::mem::take(&mut self.operations), std::mem::take(&mut self.parts));
        let (operations, parts) = &mut self.last;
        // Keep what an operation did that this round has not reached, because the round may have
        // ended early.
        for (instance, [range]) in missed {
            parts.begin(instance, true, [operations.len()]);
            operations.extend_from_slice(&last[range]);
        }
    }

    /// Notes that the transaction has taken place. What it reads from now on was so at this moment.
    pub(crate) fn complete(&mut self) {
        self.complete_ns = Some(self.recording.now_ns());
    }

    /// Returns the times of the transaction's invocation and completion. If it is not complete, the
    /// second is now.
    pub(crate) fn times(&self) -> (u64, u64) {
        (self.invoke_ns, self.complete_ns.unwrap_or_else(|| self.recording.now_ns()))
    }

    /// Sets the times between which the transaction has taken place.
    pub(crate) fn set_times(&mut self, (invoke_ns, complete_ns): (u64, u64)) {
        (self.invoke_ns, self.complete_ns) = (invoke_ns, Some(complete_ns));
    }

    /// Returns the stamp of the row that will be recorded as the next write.
    #[inline]
    pub(crate) fn next_stamp(&self) -> Stamp {
        let session = u64::from(self.session) + 1;
        Stamp { transaction: session << SESSION_SHIFT | self.serial, write: self.writes as u64 }
    }

    pub(crate) fn read(&mut self, table: usize, key: HistoryKey, seen: Option<Stamp>) {
        self.operations.push(RawOperation::Read { table: table as u32, key, seen });
    }

    /// Records that a row was read at a later version than was recorded. What the transaction uses of it is the same in
    /// both, or it has applied operations to the later one. (If it has used more, it does not commit.)
    pub(crate) fn read_later(&mut self, table: usize, key: &HistoryKey, before: Stamp, now: Stamp) {
        for operation in &mut self.operations {
            match operation {
                RawOperation::Read { table: of, key: read, seen: Some(seen) }
                    if *of as usize == table && *seen == before && read == key =>
                {
                    *seen = now;
                }
                RawOperation::Scan(scan) if scan.table as usize == table => {
                    let rows = scan.rows.iter_mut();
                    let moved = rows.filter(|(read, seen)| *seen == before && read == key);
                    moved.for_each(|(_, seen)| *seen = now);
                }
                _ => {}
            }
        }
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

    /// Returns how many operations were recorded, for [`Recorder::undo_to`].
    pub(crate) fn mark(&self) -> usize {
        self.operations.len()
    }

    /// Takes back the writes that were recorded since the mark, and what was read of keys after they were written.
    /// Other reads stay. A scan among them stays as reads of the rows that it has returned, because it may have passed
    /// over keys that the transaction had written.
    pub(crate) fn undo_to(&mut self, mark: usize) {
        let mut written: Vec<(u32, HistoryKey)> = Vec::new();
        let mut rows = Vec::new();
        for operation in &mut self.operations[mark..] {
            let is_undone = match operation {
                RawOperation::Write { table, key, .. }
                | RawOperation::Delete { table, key, .. } => {
                    written.push((*table, key.clone()));
                    true
                }
                RawOperation::Read { table, key, .. } => {
                    written.iter().any(|(of, one)| of == table && one == key)
                }
                RawOperation::Scan(scan) => {
                    let table = scan.table;
                    let is_mixed = written.iter().any(|(of, _)| *of == table);
                    if is_mixed {
                        let read = scan.rows.drain(..).filter(|(key, _)| {
                            !written.iter().any(|(of, one)| *of == table && one == key)
                        });
                        rows.extend(read.map(|(key, stamp)| RawOperation::Read {
                            table,
                            key,
                            seen: Some(stamp),
                        }));
                    }
                    is_mixed
                }
                RawOperation::Undone => false,
            };
            if is_undone {
                *operation = RawOperation::Undone;
            }
        }
        self.operations.append(&mut rows);
        // The number of an undone write is not used again. A scan that goes on begins a new part.
        self.writes += 1;
    }

    /// Draws the transaction's number in the order of commits. The executor calls this at the
    /// serialization point. If it does so more than once, the last number counts, as in the
    /// protocol.
    #[inline]
    pub(crate) fn note_serialization(&mut self) {
        // Relaxed: two transactions that write the same key draw while they hold its lock, or in
        // hardware regions that conflict. So one draw happens before the other, and the counter is
        // a single word. Between other transactions the order of the numbers means nothing.
        self.commit_number = Some(self.recording.commits.fetch_add(1, Ordering::Relaxed));
    }

    /// Ends the recording of the transaction, which has released everything by now.
    pub(crate) fn end(&mut self, status: Status) {
        let complete_ns = self.complete_ns.unwrap_or_else(|| self.recording.now_ns());
        assert!(
            self.commit_number.is_some()
                || status != Status::Committed
                || !self.operations.iter().any(RawOperation::is_write),
            "a commit with writes asks for the epoch at its serialization point"
        );
        let commit_number = self.commit_number.unwrap_or_else(|| {
            // It only has to be a number that no other transaction has. Relaxed: as above.
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
    /// Where the unrecorded part begins, and where the range ends, in the direction of the scan.
    near: Bound<HistoryKey>,
    far: Bound<HistoryKey>,
    /// How many operations the transaction had recorded when the scan began.
    began: Option<usize>,
    /// The current part: its position among the operations, and the number of writes when it was
    /// begun.
    part: Option<(usize, usize)>,
}

impl ScanProgress {
    /// Returns the progress of a scan of `range` that goes upwards.
    pub(crate) fn new(table: usize, range: HistoryRange) -> Self {
        let (near, far) = range;
        ScanProgress { table: table as u32, reverse: false, near, far, began: None, part: None }
    }

    /// Reverses the scan, before it has begun.
    pub(crate) fn turn(&mut self) {
        std::mem::swap(&mut self.near, &mut self.far);
        self.reverse = !self.reverse;
    }

    /// Leaves the keys up to this one out, in the direction of the scan, before it has begun.
    pub(crate) fn leave_out(&mut self, position: HistoryKey) {
        let is_out = match &self.near {
            Bound::Included(near) | Bound::Excluded(near) => match self.reverse {
                false => *near > position,
                true => *near < position,
            },
            Bound::Unbounded => false,
        };
        if !is_out {
            self.near = Bound::Excluded(position);
        }
    }

    /// Returns whether a key lies between what was recorded and `end`, in the direction of the
    /// scan.
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
    /// Notes that the scan begins to read.
    pub(crate) fn begin_scan(&mut self, scan: &mut ScanProgress) {
        scan.began.get_or_insert(self.operations.len());
    }

    /// Records that the scan has reached a row, and has seen nothing before it.
    pub(crate) fn scan_row(&mut self, scan: &mut ScanProgress, key: HistoryKey, seen: Stamp) {
        self.pass(scan, &Bound::Excluded(key.clone()));
        let part = self.part(scan);
        part.far = Bound::Included(key.clone());
        part.rows.push((key.clone(), seen));
        scan.near = Bound::Excluded(key);
    }

    /// Records that the scan has reached the end of its range, and has seen nothing before it.
    pub(crate) fn end_scan(&mut self, scan: &mut ScanProgress) {
        let end = scan.far.clone();
        self.pass(scan, &end);
        match (&scan.near, &end) {
            // Nothing is left between the two.
            (Bound::Excluded(near), Bound::Included(end)) if near == end => {}
            _ => self.part(scan).far = end,
        }
    }

    /// Leaves out of the scan the keys that it has passed without returning them. These are the
    /// keys before `end` that the transaction itself has written since the scan began.
    fn pass(&mut self, scan: &mut ScanProgress, end: &Bound<HistoryKey>) {
        for key in self.passed_over(scan, end) {
            self.part(scan).far = Bound::Excluded(key.clone());
            scan.near = Bound::Excluded(key);
            scan.part = None;
        }
    }

    /// Returns the keys before `end` that the transaction itself has written since the scan began.
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

    /// Returns the current part of the scan. This is a new part if the transaction has written
    /// something since the last part was begun.
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
    use crate::store::record::arena::SizeClass;
    use crate::store::record::version::VersionHeader;
    use crate::store::table::{Identity, TableInner};
    use crate::store::worker::{SharedState, WorkerMemory};

    #[derive(Clone, crate::Record)]
    struct Odd {
        #[record(key)]
        id: u32,
        /// This column only adds to the size.
        name: [u8; 9],
    }

    /// Returns the size classes of a table's rows and records.
    fn classes(recording: Option<Recording>) -> (usize, usize) {
        let htm = Htm::open(Choice::Software, RetryPolicy::default()).unwrap();
        let mut shared = SharedState::new(htm, 1);
        shared.by_index = crate::store::worker::CountsByIndex::new(1, ["odd"].into());
        shared.recording = recording.map(Arc::new);
        let memory = WorkerMemory::new(Arc::new(shared), 0);
        let table = TableInner::<Odd>::new(
            &Arc::new(Identity),
            ("odd", 0),
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
    fn rows_are_larger_only_when_recorded() {
        let row = Layout::new::<Odd>();
        let bytes = |row: Layout| {
            let record = record_kind::<Dbx>().layout_with(row);
            let version = VersionHeader::layout_with(row);
            (SizeClass::of(version).unwrap().bytes(), SizeClass::of_record(record).unwrap().bytes())
        };
        assert_eq!(row.size(), 16);
        assert_eq!(classes(None), bytes(row));
        let (offset, stamped) = Stamp::behind(row);
        assert_eq!((offset, stamped.size()), (16, 32));
        assert_eq!(classes(Some(Recording::new(vec!["odd".into()]))), bytes(stamped));
    }
}
