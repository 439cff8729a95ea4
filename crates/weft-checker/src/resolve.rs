//! The edges that follow from each transaction's operations, and the faults of single operations.
//!
//! A [`Resolver`] goes through one transaction at a time and reports to a [`Sink`]. It runs once over all
//! transactions to build the graph, and again over the few of a witness to give the reasons for their edges. So
//! the graph and its explanation cannot disagree.
//!
//! A transaction's *view* of a key is what it must see because of its own past: its own last write of the key,
//! or otherwise what it saw first. Only the first look at a key that the transaction has not written says
//! something about other transactions.

use crate::absence::Absences;
use crate::history::{History, INITIAL, OperationKind};
use crate::ranges::{Cover, KeyTree};
use crate::report::{AnomalyKind, EdgeKind};
use crate::versions::{NONE, Versions};

/// The reason for an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    pub(crate) key: u32,
    /// The version that was written, read or overwritten; [`NONE`] for an absence.
    pub(crate) from_slot: u32,
    /// The version that overwrote it, if that is the reason.
    pub(crate) to_slot: u32,
    /// The scan that read it, or [`NONE`] for a read of the key.
    pub(crate) scan: u32,
}

/// A fault of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: AnomalyKind,
    pub(crate) transaction: u32,
    pub(crate) key: u32,
    /// What was seen.
    pub(crate) seen: Seen,
    /// What the transaction's own past, or its own write, requires instead.
    pub(crate) expected: Option<Seen>,
    pub(crate) scan: u32,
}

/// What a transaction saw of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    Version(u64),
    Absent,
}

/// Receives what a [`Resolver`] finds.
pub(crate) trait Sink {
    /// Receives an edge: `from` must precede `to`. These are transactions, or nodes that represent many edges.
    fn edge(&mut self, from: u32, to: u32, kind: EdgeKind, strict: bool, reason: Reason);
    /// Receives an edge from a transaction to all transactions that inserted a plain key below a node of the
    /// tree of keys.
    fn plain_keys(&mut self, transaction: u32, node: u32);
    /// Receives an edge from a transaction to every writer of a direct successor of the slot.
    fn fork(&mut self, transaction: u32, slot: u32, strict: bool);
    /// Receives an operation that is wrong whatever other transactions did.
    fn fault(&mut self, fault: Fault);
}

/// What the transaction must see of a key from now on.
#[derive(Clone, Copy)]
struct View {
    /// The transaction's run that this belongs to. Views of earlier runs are void.
    run: u32,
    seen: Seen,
    /// Whether `seen` is its own write (of a row, or [`Seen::Absent`] for a delete).
    own: bool,
    /// The slot of its own last write of the key, already made or still to come, or [`NONE`].
    own_final: u32,
    /// The number of the last scan that returned the key.
    scan: u32,
}

impl View {
    const VOID: View =
        View { run: NONE, seen: Seen::Absent, own: false, own_final: NONE, scan: NONE };
}

/// From this number of successors on, a fork represents them.
const FORK_MIN: usize = 3;

/// Goes through transactions and resolves their operations.
pub(crate) struct Resolver<'a> {
    pub(crate) history: &'a History,
    pub(crate) versions: &'a Versions,
    pub(crate) absences: &'a Absences,
    /// `None` if there are no scans.
    pub(crate) tree: Option<&'a KeyTree>,
    /// Whether every reported edge is between two transactions.
    single: bool,
    /// How many transactions it has gone through.
    run: u32,
    views: Vec<View>,
    /// By key, the last run that saw or wrote it.
    looked: Vec<u32>,
    /// Keys that the transaction has looked at or written so far. Kept only if the history has scans.
    touched: Vec<u32>,
    /// Keys that it writes at any time. Kept only if the history has scans.
    written: Vec<u32>,
    splits: Vec<u32>,
}

impl<'a> Resolver<'a> {
    /// Makes a resolver. It reports one edge for many where it can. With `single`, it reports only edges
    /// between two transactions.
    pub(crate) fn new(
        history: &'a History,
        versions: &'a Versions,
        absences: &'a Absences,
        tree: Option<&'a KeyTree>,
        single: bool,
    ) -> Self {
        let keys = history.key_count();
        Resolver {
            history,
            versions,
            absences,
            tree,
            single,
            run: 0,
            views: vec![View::VOID; keys],
            looked: vec![NONE; keys],
            touched: Vec::new(),
            written: Vec::new(),
            splits: Vec::new(),
        }
    }

    /// Reports everything that follows from one transaction that counts as committed.
    pub(crate) fn transaction(&mut self, transaction: u32, sink: &mut impl Sink) {
        self.run += 1;
        self.touched.clear();
        self.written.clear();
        let operations = self.history.operation_range(transaction as usize);
        let operations = &self.history.operations[operations];
        // First pass: report what overwrote the writes, and note the transaction's own final write of each key.
        for operation in operations {
            if matches!(operation.kind, OperationKind::Write | OperationKind::Delete) {
                self.overwritten(transaction, operation.target, operation.version, sink);
            }
        }
        // Second pass: the operations in order.
        for operation in operations {
            let (key, version) = (operation.target, operation.version);
            match operation.kind {
                OperationKind::Read => {
                    self.look(transaction, key, Seen::Version(version), NONE, sink);
                }
                OperationKind::ReadAbsent => self.look(transaction, key, Seen::Absent, NONE, sink),
                OperationKind::Write => self.wrote(key, Seen::Version(version)),
                OperationKind::Delete => self.wrote(key, Seen::Absent),
                OperationKind::Scan => self.scan(transaction, operation.target, sink),
            }
        }
    }

    /// Returns the view of a key. It is emptied first if it belongs to another transaction.
    fn view(&mut self, key: u32) -> &mut View {
        let view = &mut self.views[key as usize];
        if view.run != self.run {
            *view = View { run: self.run, ..View::VOID };
        }
        view
    }

    /// Returns whether the transaction has already seen or written the key.
    fn has_looked(&self, key: u32) -> bool {
        self.looked[key as usize] == self.run
    }

    /// Reports the edges from a write of the transaction to what overwrote it, and notes the write.
    fn overwritten(&mut self, writer: u32, key: u32, version: u64, sink: &mut impl Sink) {
        let versions = self.versions;
        let Some(slot) = versions.find(key, version) else { return };
        if versions.slot(slot).is_final() {
            self.view(key).own_final = slot;
        } else if versions.is_numbered() {
            return;
        }
        if self.tree.is_some() {
            self.written.push(key);
        }
        versions.each_successor(slot, |after, strict| {
            let overwriter = versions.slot(after).writer;
            if overwriter != writer && overwriter != NONE && versions.live[overwriter as usize] {
                let reason = Reason { key, from_slot: slot, to_slot: after, scan: NONE };
                sink.edge(writer, overwriter, EdgeKind::WriteWrite, strict, reason);
            }
        });
    }

    /// Notes that a write has been made.
    fn wrote(&mut self, key: u32, seen: Seen) {
        let view = self.view(key);
        view.seen = seen;
        view.own = true;
        self.touch(key);
    }

    fn touch(&mut self, key: u32) {
        if !self.has_looked(key) {
            self.looked[key as usize] = self.run;
            if self.tree.is_some() {
                self.touched.push(key);
            }
        }
    }

    /// Handles what the transaction saw of a key, by a scan or (`NONE`) a read.
    fn look(&mut self, transaction: u32, key: u32, seen: Seen, scan: u32, sink: &mut impl Sink) {
        let view = *self.view(key);
        if !self.has_looked(key) {
            self.touch(key);
            self.view(key).seen = seen;
            return match seen {
                Seen::Version(version) => self.saw(transaction, key, version, scan, sink),
                Seen::Absent => self.missed(transaction, key, scan, sink),
            };
        }
        if view.seen == seen {
            return;
        }
        if self.is_absence(key, view.seen) && self.is_absence(key, seen) {
            match (view.own, view.seen, seen) {
                (_, _, Seen::Absent) => return,
                // It saw its own tombstone, after its own delete.
                (true, ..) if !self.is_foreign(transaction, key, seen) => return,
                // Only this read says which absence it was.
                (false, Seen::Absent, Seen::Version(version)) => {
                    self.view(key).seen = seen;
                    return self.saw(transaction, key, version, scan, sink);
                }
                _ => {}
            }
        }
        let kind =
            if view.own { AnomalyKind::OwnWriteNotSeen } else { AnomalyKind::NonRepeatableRead };
        let expected = Some(view.seen);
        sink.fault(Fault { kind, transaction, key, seen, expected, scan });
    }

    /// Returns whether what was seen is no row.
    fn is_absence(&self, key: u32, seen: Seen) -> bool {
        match seen {
            Seen::Absent => true,
            Seen::Version(version) => self
                .versions
                .find(key, version)
                .is_some_and(|slot| self.versions.slot(slot).is_tombstone()),
        }
    }

    /// Returns whether what was seen is a version that another transaction wrote.
    fn is_foreign(&self, transaction: u32, key: u32, seen: Seen) -> bool {
        match seen {
            Seen::Absent => false,
            Seen::Version(version) => self
                .versions
                .find(key, version)
                .is_none_or(|slot| self.versions.slot(slot).writer != transaction),
        }
    }

    /// Handles a version that the transaction saw and that is not its own.
    fn saw(&mut self, reader: u32, key: u32, version: u64, scan: u32, sink: &mut impl Sink) {
        let versions = self.versions;
        let fault = |kind| Fault {
            kind,
            transaction: reader,
            key,
            seen: Seen::Version(version),
            expected: None,
            scan,
        };
        let Some(slot) = versions.find(key, version) else {
            return sink.fault(fault(AnomalyKind::GarbageRead));
        };
        let writer = versions.slot(slot).writer;
        if writer == reader {
            return sink.fault(fault(AnomalyKind::GarbageRead));
        }
        if writer != NONE {
            if !versions.live[writer as usize] {
                return sink.fault(fault(AnomalyKind::AbortedRead));
            }
            if !versions.slot(slot).is_final() {
                return sink.fault(fault(AnomalyKind::IntermediateRead));
            }
            let reason = Reason { key, from_slot: slot, to_slot: NONE, scan };
            sink.edge(writer, reader, EdgeKind::WriteRead, false, reason);
        } else {
            debug_assert_eq!(version, INITIAL, "only the initial version has no writer");
        }
        self.before_successors(reader, key, slot, scan, sink);
    }

    /// Reports that the transaction precedes the writers that overwrote the version that it read.
    fn before_successors(&self, reader: u32, key: u32, slot: u32, scan: u32, sink: &mut impl Sink) {
        let versions = self.versions;
        let (mut count, mut own, mut any_strict) = (0, false, false);
        if !versions.is_numbered() {
            versions.each_successor(slot, |after, strict| {
                count += 1;
                own |= versions.slot(after).writer == reader;
                any_strict |= strict;
            });
        }
        // If the reader is among the overwriters, a fork would lead back to it.
        if count >= FORK_MIN && !own && !self.single {
            sink.fork(reader, slot, false);
            if any_strict {
                sink.fork(reader, slot, true);
            }
            return;
        }
        versions.each_successor(slot, |after, strict| {
            let overwriter = versions.slot(after).writer;
            if overwriter != reader && overwriter != NONE && versions.live[overwriter as usize] {
                let reason = Reason { key, from_slot: slot, to_slot: after, scan };
                sink.edge(reader, overwriter, EdgeKind::ReadWrite, strict, reason);
            }
        });
    }

    /// Handles a key at which the transaction found no row, and which it had not written before.
    fn missed(&mut self, reader: u32, key: u32, scan: u32, sink: &mut impl Sink) {
        let (versions, own) = (self.versions, self.view(key).own_final);
        let record = &self.history.transactions[reader as usize];
        let times = (record.invoke_ns, record.complete_ns);
        let Some(found) = self.absences.consequences(versions, key, own, times) else {
            let kind = AnomalyKind::ImpossibleAbsence;
            let expected = (own != NONE).then(|| Seen::Version(versions.slot(own).version));
            let (transaction, seen) = (reader, Seen::Absent);
            return sink.fault(Fault { kind, transaction, key, seen, expected, scan });
        };
        let anti_dependency =
            if scan == NONE { EdgeKind::ReadWrite } else { EdgeKind::PredicateReadWrite };
        for (slot, strict) in [(found.after, false), (found.strict_after, true)] {
            let Some(slot) = slot else { continue };
            let writer = versions.slot(slot).writer;
            let reason = Reason { key, from_slot: slot, to_slot: NONE, scan };
            sink.edge(writer, reader, EdgeKind::WriteRead, strict, reason);
        }
        for (slot, strict) in [(found.before, false), (found.strict_before, true)] {
            let Some(slot) = slot else { continue };
            let overwriter = versions.slot(slot).writer;
            let reason = Reason { key, from_slot: NONE, to_slot: slot, scan };
            sink.edge(reader, overwriter, anti_dependency, strict, reason);
        }
    }

    /// Handles a scan of the transaction.
    fn scan(&mut self, transaction: u32, scan: u32, sink: &mut impl Sink) {
        let history = self.history;
        let tree = self.tree.expect("a history with scans has a tree of keys");
        let ranks = tree.ranks_of(&history.keys, &history.scans[scan as usize]);
        self.splits.clear();
        for row in history.row_range(scan as usize) {
            let (key, version) = (history.row_keys[row], history.row_versions[row]);
            self.look(transaction, key, Seen::Version(version), scan, sink);
            self.view(key).scan = scan;
            self.splits.push(tree.rank(key));
        }
        self.check_touched(transaction, scan, &ranks, sink);
        for index in 0..self.written.len() {
            let key = self.written[index];
            let rank = tree.rank(key);
            self.splits.push(rank);
            let is_missed = ranks.contains(&rank) && !self.has_looked(key);
            if is_missed {
                // The key is absent to every later scan too, until the transaction writes it.
                self.look(transaction, key, Seen::Absent, scan, sink);
            }
        }
        self.cover_gaps(transaction, scan, ranks, sink);
    }

    /// Checks the rows of the transaction's past that the scan should have returned.
    fn check_touched(
        &mut self,
        transaction: u32,
        scan: u32,
        ranks: &std::ops::Range<u32>,
        sink: &mut impl Sink,
    ) {
        let tree = self.tree.expect("a history with scans has a tree of keys");
        for index in 0..self.touched.len() {
            let key = self.touched[index];
            let rank = tree.rank(key);
            if self.views[key as usize].scan != scan && ranks.contains(&rank) {
                self.look(transaction, key, Seen::Absent, scan, sink);
                self.splits.push(rank);
            }
        }
    }

    /// Reports what follows from the keys between those in `splits`.
    fn cover_gaps(
        &mut self,
        transaction: u32,
        scan: u32,
        ranks: std::ops::Range<u32>,
        sink: &mut impl Sink,
    ) {
        let tree = self.tree.expect("a history with scans has a tree of keys");
        let record = &self.history.transactions[transaction as usize];
        let times = (record.invoke_ns, record.complete_ns);
        let mut splits = std::mem::take(&mut self.splits);
        splits.sort_unstable();
        let mut start = ranks.start;
        let ends = splits.iter().copied().filter(|rank| ranks.contains(rank));
        for end in ends.chain([ranks.end]) {
            if start < end {
                tree.cover(start..end, times, self.single, &mut |cover| match cover {
                    Cover::Node(node) => sink.plain_keys(transaction, node),
                    Cover::Key(key) | Cover::Quiet(key) => {
                        self.missed(transaction, key, scan, sink);
                    }
                });
            }
            start = start.max(end.saturating_add(1));
        }
        self.splits = splits;
    }
}
