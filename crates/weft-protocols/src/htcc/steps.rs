//! The repair of procedures, limited to the operations that a stale read reaches (§4.2, §4.3). It records what
//! each operation has read and written. In the next round an operation either runs again, or what it did is
//! taken over.
//!
//! A round begins with an empty access set. An operation that runs adds to it. An operation that is kept has
//! its part of the last round taken over. So at any moment the set holds what the earlier operations have done,
//! in the order of the program, and nothing of operations that come later or are no longer executed. An
//! operation that runs sees what it would see in a transaction that had just begun.
//!
//! ```text
//!   last round    get 1  update 2  insert 3  update 4        2 is stale, and 3's key comes from it
//!                   |       x         x         |
//!   this round    get 1  update 2' insert 3' update 4        what is marked x is undone at the end
//! ```
//!
//! What was put into an index stays there until the round has ended (the paper's delta-sets `ins_set` and
//! `del_set`). An insertion under the same key finds its placeholder again; the other placeholders are unlinked
//! at the end of the round.
//!
//! An operation that is kept may have found the key of such an insertion absent, before it was inserted. What it relies on
//! in the index was adjusted to the insertion, whose placeholder was validated with the writes. If the insertion is
//! undone, either its placeholder is unlinked, and the index shows that; or another transaction has taken the
//! placeholder, and then all operations that have found keys absent in the table are stale ([`distrust`]).
//!
//! Every private row belongs to one entry of the list of writes. The rows of entries that are not taken over
//! are kept until the transaction ends, because results of operations may refer to them.

use std::ptr::NonNull;

use weft::commit::access_set::{
    AccessSet, NodeEntry, ReadEntry, ReplacedVersion, SupersededRow, TidHeader, WriteEntry,
    WriteKey, drop_private,
};
use weft::commit::optimistic::{discard_placeholder, node_version, stored};
use weft::encoding::EncodedKey;
use weft::index::NodeChange;
use weft::step::{Instance, Parts};
use weft::store::record::tid::Tid;
use weft::store::record::{Newest, RecordPointer};
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
    /// Whether the next round has taken the write over.
    is_taken: bool,
}

impl<H> StepWrite<H> {
    /// Returns a copy of the write, not yet taken over by any round.
    fn take_over(&self) -> Self {
        let &StepWrite { record, table, expected, replaced, row, is_created, .. } = self;
        let key = self.key.clone();
        StepWrite { record, table, expected, replaced, row, key, is_created, is_taken: false }
    }
}

/// The parts of the lists of reads, nodes and writes that each operation has added.
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

/// What the operations of a procedure, executed step by step, have read and written.
pub struct Steps<H> {
    is_on: bool,
    /// The writes of this round, and (`parts`) what each operation has added. (This round's reads and nodes are
    /// in the access set.)
    writes: Vec<StepWrite<H>>,
    parts: Lists,
    last: Round<H>,
    /// Rows that operations may have returned, and that no other transaction has seen.
    garbage: Vec<SupersededRow<H>>,
}

// SAFETY: as for access sets: it moves between threads only with its worker, and is empty then.
unsafe impl<H> Send for Steps<H> {}

impl<H> Default for Steps<H> {
    fn default() -> Self {
        let (writes, garbage) = Default::default();
        Steps { is_on: false, writes, parts: Lists::default(), last: Round::default(), garbage }
    }
}

impl<H: TidHeader> Steps<H> {
    /// Begins a procedure.
    pub fn begin(&mut self) {
        self.is_on = true;
    }

    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Says that what is done from now on belongs to this operation.
    #[inline]
    pub fn enter(&mut self, set: &AccessSet<H>, instance: Instance, goes_on: bool) {
        let lengths = [set.reads.len(), set.nodes.len(), self.writes.len()];
        self.parts.begin(instance, goes_on, lengths);
    }

    /// Notes a write that has just been put into the access set.
    #[inline]
    pub fn note_write(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        version: ReplacedVersion,
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

    /// Notes an insertion that has just been put into the access set.
    #[inline]
    pub fn note_insertion(
        &mut self,
        table: TableRef,
        record: RecordPointer<H>,
        row: NonNull<u8>,
        key: EncodedKey,
        placeholder: Tid,
    ) {
        self.writes.push(StepWrite {
            record,
            table,
            expected: placeholder,
            replaced: std::ptr::null_mut(),
            row: Some(row),
            key: Some(key),
            is_created: true,
            is_taken: false,
        });
    }

    /// Adjusts the last round's nodes to this transaction's own change of one of them, for operations that are
    /// still to be taken over.
    pub fn note_own_insertion(&mut self, change: NodeChange) {
        for entry in &mut self.last.nodes {
            if entry.node.word == change.word && entry.node.version == change.before {
                entry.node.version = change.after;
            }
        }
    }

    /// Returns the record of a table that an operation accessed in the last round.
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

    /// Takes over what an operation did in the last round. `note` is called with each of its records.
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

    /// Ends a round, which is to be committed or given up: undoes what was not taken over from the round
    /// before.
    pub fn end_round(&mut self, set: &mut AccessSet<H>, memory: &WorkerMemory) {
        let mut writes = std::mem::take(&mut self.last.writes);
        for entry in writes.drain(..).filter(|entry| !entry.is_taken) {
            if self.undo(set, &entry, memory) == Undone::TakenByAnother {
                distrust(&mut set.nodes, entry.table);
            }
        }
        self.last.writes = writes;
        self.last.reads.clear();
        self.last.nodes.clear();
        self.last.parts.clear();
    }

    /// Prepares for a validation before the round has ended: as [`Steps::end_round`] for insertions whose placeholders
    /// another transaction has taken. Nothing is undone.
    pub fn distrust_taken(&self, set: &mut AccessSet<H>) {
        let over = self.last.writes.iter().filter(|entry| !entry.is_taken && entry.is_created);
        for entry in over {
            if !is_own_placeholder(set, entry) && !is_at(entry.record, entry.expected) {
                distrust(&mut set.nodes, entry.table);
            }
        }
    }

    /// Undoes a write of the last round: unlinks its placeholder, and keeps its row until the transaction ends.
    fn undo(
        &mut self,
        set: &mut AccessSet<H>,
        entry: &StepWrite<H>,
        memory: &WorkerMemory,
    ) -> Undone {
        let &StepWrite { record, table, row, is_created, .. } = entry;
        let mut undone = Undone::Whole;
        if let Some(key) = entry.key.as_ref().filter(|_| is_created) {
            match set.find_write(record) {
                // An operation of this round has written to the placeholder: from now on the placeholder is its
                // insertion.
                Some(position) if is_own_placeholder(set, entry) => {
                    set.writes[position].key = set.hold_key(key.clone(), true);
                    let own = self.writes.iter_mut().find(|own| own.record == record);
                    let own = own.expect("it has written");
                    (own.is_created, own.key) = (true, Some(key.clone()));
                }
                // It has written to another transaction's row.
                Some(_) => undone = Undone::TakenByAnother,
                None if discard_placeholder(record, table, key, memory) => {}
                None => undone = Undone::TakenByAnother,
            }
        }
        if let Some(row) = row {
            self.garbage.push(SupersededRow { record, row, table });
        }
        undone
    }

    /// Begins the next round, after one that could not be committed, or has ended early.
    pub fn next_round(&mut self, set: &mut AccessSet<H>, memory: &WorkerMemory) {
        let last = std::mem::take(&mut self.last);
        let lengths = last.lengths();
        // Operations that the round did not reach keep what they had in the round before.
        let (over, missed): (Vec<_>, Vec<_>) =
            last.parts.all(lengths).partition(|(instance, _)| self.parts.has(*instance));
        let mut taken = Vec::new();
        for (_, [_, _, writes]) in over {
            for entry in last.writes[writes].iter().filter(|entry| !entry.is_taken) {
                if self.undo(set, entry, memory) == Undone::TakenByAnother {
                    taken.push(entry.table);
                }
            }
        }
        // This round becomes the last one.
        let now = &mut self.last;
        std::mem::swap(&mut now.reads, &mut set.reads);
        std::mem::swap(&mut now.nodes, &mut set.nodes);
        std::mem::swap(&mut now.writes, &mut self.writes);
        std::mem::swap(&mut now.parts, &mut self.parts);
        // The private rows belong to the list of writes, so the access set only forgets them.
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
        taken.into_iter().for_each(|table| distrust(&mut now.nodes, table));
    }

    /// Returns the operations whose reads or writes in the last round are stale (§4.2, the invalid elements).
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

    /// Ends the transaction, and drops the rows that were kept.
    pub fn end(&mut self, memory: &WorkerMemory) {
        self.is_on = false;
        self.writes.clear();
        self.parts.clear();
        for SupersededRow { record, row, table } in self.garbage.drain(..) {
            // SAFETY: a private row, which its access set has given up, and which is on this list once.
            unsafe { drop_private(record, row, table, memory) };
        }
    }
}

/// Puts a write of the last round into the access set again.
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
            replaced: Newest::at(replaced),
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
        set.superseded.push(SupersededRow { record, row, table });
    }
}

/// What became of an insertion that was undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undone {
    /// Its placeholder is out of the index, or belongs to this round.
    Whole,
    /// Another transaction has put a row into the placeholder.
    TakenByAnother,
}

/// Whether this round has written to the placeholder of an insertion of the last one, before any other transaction has.
fn is_own_placeholder<H: TidHeader>(set: &AccessSet<H>, entry: &StepWrite<H>) -> bool {
    set.find_write(entry.record)
        .is_some_and(|position| set.writes[position].expected == entry.expected)
}

/// Makes all that was noted of a table's index nodes stale.
fn distrust(nodes: &mut [NodeEntry], table: TableRef) {
    for entry in nodes.iter_mut().filter(|entry| entry.table == table) {
        // No node has this version, in which all flags are set.
        (entry.node.version, entry.range) = (u64::MAX, None);
    }
}

/// Whether a record is at a version, and no worker is about to change it.
fn is_at<H: TidHeader>(record: RecordPointer<H>, expected: Tid) -> bool {
    // Relaxed: this is only a guess. The next commit validates.
    stored(record).header.tid().load_relaxed() == expected
}
