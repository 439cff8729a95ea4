//! Repair limited to what a stale read reaches (§4.2, §4.3): what each operation of a procedure has read and
//! written, so that it can be left out of the next round, or taken over into it.
//!
//! A round begins with an empty access set. An operation that runs adds to it; one that keeps what it had
//! takes its part of the last round over. So at any moment the set holds what the operations before have
//! done, in their order, and nothing of those that come later or have gone: an operation that runs sees what
//! it would see in a transaction that had just begun.
//!
//! ```text
//!   last round    get 1  update 2  insert 3  update 4        2 is stale, and 3's key comes from it
//!                   |       x         x         |
//!   this round    get 1  update 2' insert 3' update 4        what is behind the x is undone at the end
//! ```
//!
//! What has been put into an index stays there until the round has ended (the paper's insert- and
//! delete-set): an insertion under the same key finds its placeholder again; others are unlinked then.
//!
//! Every private row belongs to one entry of the list of writes. Those of entries that are not taken over are
//! kept until the transaction ends, since what operations have returned may refer to them.

use std::ptr::NonNull;

use weft::commit::access_set::{
    AccessSet, NodeEntry, ReadEntry, Replaced, Superseded, TidHeader, WriteEntry, WriteKey,
    drop_private,
};
use weft::commit::optimistic::{discard_placeholder, node_version, stored};
use weft::encoding::EncodedKey;
use weft::index::NodeChange;
use weft::step::{Instance, Parts};
use weft::store::record::RecordPointer;
use weft::store::record::tid::Tid;
use weft::store::table::TableRef;
use weft::store::worker::{NOT_STAGED, WorkerMemory};

/// A write of an operation.
struct StepWrite<H> {
    record: RecordPointer<H>,
    table: TableRef,
    expected: Tid,
    replaced: *mut u8,
    row: Option<NonNull<u8>>,
    /// As in [`WriteEntry`].
    key: Option<EncodedKey>,
    /// As in [`WriteEntry`].
    is_created: bool,
    /// Whether the next round has taken it over.
    is_taken: bool,
}

impl<H> StepWrite<H> {
    /// The same, not taken over by anybody yet.
    fn take_over(&self) -> Self {
        let &StepWrite { record, table, expected, replaced, row, is_created, .. } = self;
        let key = self.key.clone();
        StepWrite { record, table, expected, replaced, row, key, is_created, is_taken: false }
    }
}

/// What operations have added to reads, nodes and writes.
type Lists = Parts<3>;

/// What was read and written in a round that could not be committed.
struct Round<H> {
    reads: Vec<ReadEntry<H>>,
    nodes: Vec<NodeEntry>,
    writes: Vec<StepWrite<H>>,
    parts: Lists,
}

impl<H> Default for Round<H> {
    fn default() -> Self {
        let (reads, nodes, writes) = Default::default();
        Round { reads, nodes, writes, parts: Lists::default() }
    }
}

impl<H> Round<H> {
    fn lengths(&self) -> [usize; 3] {
        [self.reads.len(), self.nodes.len(), self.writes.len()]
    }
}

/// The operations of a procedure that is executed step by step.
pub struct Steps<H> {
    is_on: bool,
    /// In this round. (Reads and nodes are in the access set.)
    writes: Vec<StepWrite<H>>,
    parts: Lists,
    last: Round<H>,
    /// Rows that operations may have returned, and that nobody else has seen.
    garbage: Vec<Superseded<H>>,
}

// SAFETY: as for access sets: it moves between threads only with its worker, empty.
unsafe impl<H> Send for Steps<H> {}

impl<H> Default for Steps<H> {
    fn default() -> Self {
        let (writes, garbage) = Default::default();
        Steps { is_on: false, writes, parts: Lists::default(), last: Round::default(), garbage }
    }
}

impl<H: TidHeader> Steps<H> {
    /// A procedure begins.
    pub fn begin(&mut self) {
        self.is_on = true;
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// What is done from now on is this operation's.
    #[inline]
    pub fn enter(&mut self, set: &AccessSet<H>, instance: Instance, goes_on: bool) {
        let lengths = [set.reads.len(), set.nodes.len(), self.writes.len()];
        self.parts.begin(instance, goes_on, lengths);
    }

    /// Notes a write, which is in the access set by now.
    #[inline]
    pub fn note_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: Replaced,
        row: Option<NonNull<u8>>,
        key: Option<EncodedKey>,
    ) {
        let (expected, replaced) = (version.observed, version.newest());
        let (is_created, is_taken) = (false, false);
        self.writes.push(StepWrite {
            record,
            table,
            expected,
            replaced,
            row,
            key,
            is_created,
            is_taken,
        });
    }

    /// Notes an insertion, which is in the access set by now.
    #[inline]
    pub fn note_insertion(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        key: EncodedKey,
    ) {
        self.writes.push(StepWrite {
            record,
            table,
            expected: Tid::PLACEHOLDER,
            replaced: std::ptr::null_mut(),
            row: Some(row),
            key: Some(key),
            is_created: true,
            is_taken: false,
        });
    }

    /// Takes this transaction's own change of a node into account for operations that come later.
    pub fn note_own_insertion(&mut self, change: NodeChange) {
        for entry in &mut self.last.nodes {
            if entry.node.word == change.word && entry.node.version == change.before {
                entry.node.version = change.after;
            }
        }
    }

    /// The record of a table that an operation was about in the last round.
    pub fn record_of(&mut self, instance: Instance, table: TableRef) -> Option<RecordPointer<H>> {
        let lengths = self.last.lengths();
        let Round { reads, writes, parts, .. } = &mut self.last;
        let mut found = None;
        parts.of(instance, lengths, |[read, _, written]| {
            let read = reads[read].iter().map(|entry| (entry.table, entry.record));
            let written = writes[written].iter().map(|entry| (entry.table, entry.record));
            found = found.or(read.chain(written).find(|(of, _)| *of == table));
        });
        found.map(|(_, record)| record)
    }

    /// Takes over what an operation did in the last round. `note` is told its records.
    pub fn keep(
        &mut self,
        set: &mut AccessSet<H>,
        instance: Instance,
        mut note: impl FnMut(RecordPointer<H>),
    ) {
        self.enter(set, instance, false);
        let Steps { writes, last, .. } = self;
        let lengths = last.lengths();
        let Round { reads, nodes, writes: written, parts } = last;
        parts.of(instance, lengths, |[read, node, write]| {
            reads[read.clone()].iter().for_each(|entry| note(entry.record));
            set.reads.extend_from_slice(&reads[read]);
            set.nodes.extend_from_slice(&nodes[node]);
            for entry in &mut written[write] {
                entry.is_taken = true;
                let taken = entry.take_over();
                write_again(set, &taken);
                note(taken.record);
                writes.push(taken);
            }
        });
    }

    /// A round is over, and is to be committed, or to be given up: what was not taken over is undone.
    pub fn end_round(&mut self, set: &mut AccessSet<H>, memory: &WorkerMemory) {
        let mut writes = std::mem::take(&mut self.last.writes);
        for entry in writes.drain(..).filter(|entry| !entry.is_taken) {
            self.undo(set, &entry, memory);
        }
        self.last.writes = writes;
        self.last.reads.clear();
        self.last.nodes.clear();
        self.last.parts.clear();
    }

    /// Undoes a write of the last round.
    fn undo(&mut self, set: &mut AccessSet<H>, entry: &StepWrite<H>, memory: &WorkerMemory) {
        let &StepWrite { record, table, row, is_created, .. } = entry;
        if let Some(key) = entry.key.as_ref().filter(|_| is_created) {
            match set.find_write(record) {
                // Whoever writes to the placeholder now has it.
                Some(position) => {
                    set.writes[position].key = set.hold_key(key.clone(), true);
                    let own = self.writes.iter_mut().find(|own| own.record == record);
                    let own = own.expect("it has written");
                    (own.is_created, own.key) = (true, Some(key.clone()));
                }
                None => discard_placeholder(record, table, key, memory),
            }
        }
        if let Some(row) = row {
            self.garbage.push(Superseded { record, row, table });
        }
    }

    /// Begins the next round, after one that could not be committed, or has ended early.
    pub fn next_round(&mut self, set: &mut AccessSet<H>, memory: &WorkerMemory) {
        let last = std::mem::take(&mut self.last);
        let lengths = last.lengths();
        // What the round has not come by stays as it is.
        let (over, missed): (Vec<_>, Vec<_>) =
            last.parts.all(lengths).partition(|(instance, _)| self.parts.has(*instance));
        for (_, [_, _, writes]) in over {
            for entry in last.writes[writes].iter().filter(|entry| !entry.is_taken) {
                self.undo(set, entry, memory);
            }
        }
        let now = &mut self.last;
        std::mem::swap(&mut now.reads, &mut set.reads);
        std::mem::swap(&mut now.nodes, &mut set.nodes);
        std::mem::swap(&mut now.writes, &mut self.writes);
        std::mem::swap(&mut now.parts, &mut self.parts);
        // Its rows are those of the list of writes.
        set.clear();
        for (instance, [reads, nodes, writes]) in missed {
            now.parts.begin(instance, true, now.lengths());
            now.reads.extend_from_slice(&last.reads[reads]);
            now.nodes.extend_from_slice(&last.nodes[nodes]);
            let missed = last.writes[writes].iter();
            now.writes.extend(
                missed.map(|entry| StepWrite { is_taken: entry.is_taken, ..entry.take_over() }),
            );
        }
    }

    /// The operations whose reads or writes in the last round are stale.
    pub fn stale(&self) -> Vec<Instance> {
        let Round { reads, nodes, writes, parts } = &self.last;
        let mut stale = Vec::new();
        for (instance, [read, node, write]) in parts.all(self.last.lengths()) {
            let is_current = reads[read].iter().all(|entry| is_at(entry.record, entry.observed))
                && nodes[node].iter().all(|entry| node_version(entry.node) == entry.node.version)
                && writes[write].iter().all(|entry| is_at(entry.record, entry.expected));
            if !is_current && stale.last() != Some(&instance) {
                stale.push(instance);
            }
        }
        stale
    }

    /// The transaction has ended.
    pub fn end(&mut self, memory: &WorkerMemory) {
        self.is_on = false;
        self.writes.clear();
        self.parts.clear();
        for Superseded { record, row, table } in self.garbage.drain(..) {
            // SAFETY: it was superseded in the access set, which keeps private rows, once.
            unsafe { drop_private(record, row, table, memory) };
        }
    }
}

/// Writes what was written before.
fn write_again<H: TidHeader>(set: &mut AccessSet<H>, entry: &StepWrite<H>) {
    let &StepWrite { record, table, expected, replaced, row, is_created, .. } = entry;
    let key = match &entry.key {
        Some(key) => set.hold_key(key.clone(), is_created),
        None => WriteKey::NONE,
    };
    let Some(position) = set.find_write(record) else {
        return set.push_write(WriteEntry {
            record,
            table,
            expected,
            replaced,
            row,
            key,
            staged: NOT_STAGED,
        });
    };
    let own = &mut set.writes[position];
    if !own.key.is_created() {
        own.key = key;
    }
    if let Some(row) = std::mem::replace(&mut own.row, row) {
        set.superseded.push(Superseded { record, row, table });
    }
}

/// Whether a record is at a version, and nobody is about to change it.
fn is_at<H: TidHeader>(record: RecordPointer<H>, expected: Tid) -> bool {
    // Relaxed: a guess. The next commit validates.
    stored(record).header.tid().load_relaxed() == expected
}
