//! Every version of every key: which transaction made it, and what overwrote it.
//!
//! ```text
//! key 0              key 1
//! ┌───┬───┬───┬───┐  ┌───┬───┐
//! │ 0 │ 3 │ 4 │ 9 │  │ 0 │ 7 │    slots, by key and then by version; slot 0 of a key is INITIAL
//! └───┴───┴───┴───┘  └───┴───┘
//! ```
//!
//! A slot is *installed* if its writer counts as committed and did not write the key again after it. The next
//! installed slot of the key is what overwrote it. Slots of aborted transactions and intermediate versions are
//! kept so that a read of them is recognised.
//!
//! A transaction of unknown outcome counts as committed if another transaction that counts as committed reads
//! one of its versions. All others leave the graph. A read that found a key absent, without naming the
//! tombstone, proves nothing: the row may have been absent for another reason.

use crate::history::{History, INITIAL, OperationKind, Status};

/// No slot, or no transaction.
pub(crate) const NONE: u32 = u32::MAX;

/// Flag of the last write of its transaction to the key.
const FINAL: u8 = 1;
/// Flag of a delete.
const TOMBSTONE: u8 = 2;

/// One version of one key.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) version: u64,
    /// The position of its transaction; [`NONE`] for the initial version.
    pub(crate) writer: u32,
    flags: u8,
}

impl Slot {
    pub(crate) fn is_final(&self) -> bool {
        self.flags & FINAL != 0
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }
}

/// What comes after each version, if the versions' numbers do not say it.
struct Successors {
    /// Where the successors of each slot begin in `slots`.
    starts: Vec<u32>,
    slots: Vec<(u32, bool)>,
}

/// The versions of a history.
pub(crate) struct Versions {
    /// Where each key's slots begin, with one more entry for the end.
    starts: Vec<u32>,
    pub(crate) slots: Vec<Slot>,
    /// The next installed slot of the same key, by slot.
    next: Vec<u32>,
    /// Whether a transaction counts as committed.
    pub(crate) live: Vec<bool>,
    /// Whether there are transactions of unknown outcome.
    any_unknown: bool,
    /// Whether the key's initial version was seen, and so is a row.
    pub(crate) initial_row: Vec<bool>,
    successors: Option<Successors>,
    /// Slots whose version is the same as that of the next slot.
    pub(crate) duplicates: Vec<u32>,
}

impl Versions {
    pub(crate) fn new(history: &History) -> Versions {
        let (starts, mut slots) = collect(history);
        for key in 0..history.keys.len() {
            let range = starts[key] as usize..starts[key + 1] as usize;
            let of_key = &mut slots[range];
            if !of_key.is_sorted_by_key(|slot| slot.version) {
                of_key.sort_by_key(|slot| slot.version);
            }
        }
        let duplicates = duplicates(&starts, &slots);
        let live =
            history.transactions.iter().map(|record| record.status == Status::Committed).collect();
        let mut versions = Versions {
            starts,
            slots,
            next: Vec::new(),
            live,
            any_unknown: history.transactions.iter().any(|one| one.status == Status::Unknown),
            initial_row: vec![false; history.keys.len()],
            successors: None,
            duplicates,
        };
        versions.promote(history);
        versions.link();
        if let Some(order) = &history.order {
            versions.successors = Some(versions.successors_of(order));
        }
        versions
    }

    /// Marks what the committed readers prove: which transactions of unknown outcome committed, and which keys
    /// had a row from the beginning.
    fn promote(&mut self, history: &History) {
        let mut pending: Vec<u32> =
            (0..self.live.len() as u32).filter(|&reader| self.live[reader as usize]).collect();
        // A writer that this promotes is a committed reader too, so it joins the pending ones.
        while let Some(reader) = pending.pop() {
            for position in history.operation_range(reader as usize) {
                let operation = &history.operations[position];
                match operation.kind {
                    OperationKind::Read => {
                        self.witness(history, operation.target, operation.version, &mut pending);
                    }
                    OperationKind::Scan => {
                        for row in history.row_range(operation.target as usize) {
                            let (key, version) = (history.row_keys[row], history.row_versions[row]);
                            self.witness(history, key, version, &mut pending);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn witness(&mut self, history: &History, key: u32, version: u64, pending: &mut Vec<u32>) {
        if version == INITIAL {
            self.initial_row[key as usize] = true;
            return;
        }
        if !self.any_unknown {
            return;
        }
        let Some(slot) = self.find(key, version) else { return };
        let writer = self.slots[slot as usize].writer;
        let unknown = history.transactions[writer as usize].status == Status::Unknown;
        if unknown && !self.live[writer as usize] {
            self.live[writer as usize] = true;
            pending.push(writer);
        }
    }

    /// Fills `next`.
    fn link(&mut self) {
        self.next = vec![NONE; self.slots.len()];
        for key in 0..self.starts.len() - 1 {
            let mut next = NONE;
            for slot in (self.starts[key]..self.starts[key + 1]).rev() {
                self.next[slot as usize] = next;
                if self.is_installed(slot) {
                    next = slot;
                }
            }
        }
    }

    fn successors_of(&self, order: &[crate::history::OrderedPair]) -> Successors {
        let mut pairs = Vec::with_capacity(order.len());
        for pair in order {
            let before = self.find(pair.key, pair.before);
            let after = self.find(pair.key, pair.after);
            if let (Some(before), Some(after)) = (before, after) {
                pairs.push((before, after, pair.by_real_time));
            }
        }
        pairs.sort_unstable();
        // Of two equal pairs, the one that needs no clock is first, and is kept.
        pairs.dedup_by_key(|&mut (before, after, _)| (before, after));
        let mut starts = vec![0; self.slots.len() + 1];
        for &(before, _, _) in &pairs {
            starts[before as usize + 1] += 1;
        }
        for slot in 1..starts.len() {
            starts[slot] += starts[slot - 1];
        }
        Successors { starts, slots: pairs.iter().map(|&(_, after, by)| (after, by)).collect() }
    }

    /// Returns the slot of a version of a key.
    pub(crate) fn find(&self, key: u32, version: u64) -> Option<u32> {
        let range = self.of_key(key);
        let of_key = &self.slots[range.start as usize..range.end as usize];
        let position = of_key.partition_point(|slot| slot.version < version);
        let found = of_key.get(position).is_some_and(|slot| slot.version == version);
        found.then(|| range.start + position as u32)
    }

    /// Returns all slots of a key, that of the initial version first.
    pub(crate) fn of_key(&self, key: u32) -> std::ops::Range<u32> {
        self.starts[key as usize]..self.starts[key as usize + 1]
    }

    pub(crate) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Returns whether the slot was once the newest committed state of its key.
    pub(crate) fn is_installed(&self, slot: u32) -> bool {
        let slot = self.slot(slot);
        slot.is_final() && (slot.writer == NONE || self.live[slot.writer as usize])
    }

    /// Returns the installed slot that overwrote this one, or [`NONE`].
    pub(crate) fn next(&self, slot: u32) -> u32 {
        self.next[slot as usize]
    }

    /// Calls `visit` with every slot that is known to come right after this one, and with whether that depends
    /// on the real-time order.
    pub(crate) fn each_successor(&self, slot: u32, mut visit: impl FnMut(u32, bool)) {
        match &self.successors {
            None => {
                let next = self.next(slot);
                if next != NONE {
                    visit(next, false);
                }
            }
            Some(successors) => {
                let start = successors.starts[slot as usize] as usize;
                let end = successors.starts[slot as usize + 1] as usize;
                for &(after, by_real_time) in &successors.slots[start..end] {
                    visit(after, by_real_time);
                }
            }
        }
    }

    /// Returns whether versions are ordered by their numbers.
    pub(crate) fn is_numbered(&self) -> bool {
        self.successors.is_none()
    }
}

/// Returns the slots of every key, in the order of the history.
fn collect(history: &History) -> (Vec<u32>, Vec<Slot>) {
    let is_write =
        |kind: OperationKind| matches!(kind, OperationKind::Write | OperationKind::Delete);
    let mut counts = vec![1_u32; history.keys.len()];
    for operation in &history.operations {
        if is_write(operation.kind) {
            counts[operation.target as usize] += 1;
        }
    }
    let mut starts = Vec::with_capacity(counts.len() + 1);
    let mut total = 0_u32;
    for count in &counts {
        starts.push(total);
        total = total.checked_add(*count).expect("fewer than 2^32 versions");
    }
    starts.push(total);

    let initial = Slot { version: INITIAL, writer: NONE, flags: FINAL };
    let mut slots = vec![initial; total as usize];
    let mut ends: Vec<u32> = starts[..counts.len()].iter().map(|start| start + 1).collect();
    for writer in 0..history.transactions.len() {
        for operation in &history.operations[history.operation_range(writer)] {
            if !is_write(operation.kind) {
                continue;
            }
            let key = operation.target as usize;
            let slot = ends[key] as usize;
            ends[key] += 1;
            // If this transaction has written the key before, its last write is the slot before.
            if slots[slot - 1].writer == writer as u32 {
                slots[slot - 1].flags &= !FINAL;
            }
            let tombstone = if operation.kind == OperationKind::Delete { TOMBSTONE } else { 0 };
            slots[slot] = Slot {
                version: operation.version,
                writer: writer as u32,
                flags: FINAL | tombstone,
            };
        }
    }
    (starts, slots)
}

fn duplicates(starts: &[u32], slots: &[Slot]) -> Vec<u32> {
    let mut duplicates = Vec::new();
    for key in starts.windows(2) {
        for slot in key[0]..key[1].saturating_sub(1) {
            if slots[slot as usize].version == slots[slot as usize + 1].version {
                duplicates.push(slot);
            }
        }
    }
    duplicates
}
