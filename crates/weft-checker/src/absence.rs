//! Reads that found no row.
//!
//! An absence does not say which of a key's absent states it saw: the initial one, or one after a delete. All
//! of them are candidates, including those of unknown outcome. So an edge is added only if it follows from
//! every candidate:
//!
//! ```text
//! absent   insert 3   delete 4   insert 7   delete 8   insert 9
//! ▲                   ▲                     ▲          ▲
//! earliest candidate  another               latest     its overwriter
//! ```
//!
//! The reader follows the writer of the earliest candidate, and precedes the transaction that overwrote the
//! latest. A transaction that later wrote the key itself can only have seen candidates from before that write.
//! Strict serializability excludes two more kinds of candidates: a delete that was invoked after the reader was
//! complete, and a state whose overwriter was complete before the reader was invoked. Binary search finds both
//! ends. It searches the least invocation of any candidate from here on, and the greatest completion of an
//! overwriter up to here.

use crate::history::{History, OperationKind, Status};
use crate::versions::{NONE, Versions};

/// One state of a key without a row.
#[derive(Clone, Copy)]
struct Candidate {
    slot: u32,
    /// The least time at which a writer of this or a later candidate was invoked.
    invoke_ns_min: u64,
    /// The greatest time at which an overwriter of this or an earlier candidate was complete.
    overwritten_ns_max: u64,
}

/// The candidates of all keys.
pub(crate) struct Absences {
    /// Where the candidates of each key begin, with one more entry for the end.
    starts: Vec<u32>,
    candidates: Vec<Candidate>,
}

/// The edges that follow from an absence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Consequences {
    /// The slot whose writer the reader follows.
    pub(crate) after: Option<u32>,
    /// The slot whose writer the reader precedes.
    pub(crate) before: Option<u32>,
    /// The same two for the real-time order, if it implies more.
    pub(crate) strict_after: Option<u32>,
    pub(crate) strict_before: Option<u32>,
}

impl Absences {
    pub(crate) fn new(history: &History, versions: &Versions) -> Absences {
        let needed = history.operations.iter().any(|operation| {
            matches!(operation.kind, OperationKind::ReadAbsent | OperationKind::Scan)
        });
        let mut absences = Absences { starts: vec![0], candidates: Vec::new() };
        if !needed {
            return absences;
        }
        for key in 0..history.keys.len() as u32 {
            let first = absences.candidates.len();
            for slot in versions.of_key(key) {
                if is_candidate(history, versions, key, slot) {
                    absences.candidates.push(candidate(history, versions, slot));
                }
            }
            // Running minimum from the end, and running maximum from the start.
            let of_key = &mut absences.candidates[first..];
            for index in (1..of_key.len()).rev() {
                let later_ns = of_key[index].invoke_ns_min;
                of_key[index - 1].invoke_ns_min = of_key[index - 1].invoke_ns_min.min(later_ns);
            }
            for index in 1..of_key.len() {
                let earlier_ns = of_key[index - 1].overwritten_ns_max;
                of_key[index].overwritten_ns_max = of_key[index].overwritten_ns_max.max(earlier_ns);
            }
            let end = u32::try_from(absences.candidates.len()).expect("fewer than 2^32 versions");
            absences.starts.push(end);
        }
        absences
    }

    fn of_key(&self, key: u32) -> &[Candidate] {
        let range = self.starts[key as usize] as usize..self.starts[key as usize + 1] as usize;
        &self.candidates[range]
    }

    /// Returns how many absent states the key had, or may have had.
    pub(crate) fn count(&self, key: u32) -> usize {
        self.of_key(key).len()
    }

    /// Returns the slot of the latest absent state of the key.
    pub(crate) fn latest(&self, key: u32) -> Option<u32> {
        self.of_key(key).last().map(|candidate| candidate.slot)
    }

    /// Returns what follows if a transaction found the key absent. It ran from `invoke_ns` to `complete_ns`,
    /// and its own write of the key is `own` (or [`NONE`]). Returns `None` if it cannot have found the key
    /// absent.
    pub(crate) fn consequences(
        &self,
        versions: &Versions,
        key: u32,
        own: u32,
        (invoke_ns, complete_ns): (u64, u64),
    ) -> Option<Consequences> {
        let mut candidates = self.of_key(key);
        if own != NONE {
            // It can only have seen states from before its own write.
            candidates = &candidates[..candidates.partition_point(|other| other.slot < own)];
        }
        let (first, last) = (candidates.first()?, candidates.last()?);
        let overwriter = |candidate: &Candidate| {
            Some(versions.next(candidate.slot)).filter(|&next| next != NONE && next != own)
        };
        let mut result = Consequences {
            after: certain_writer(versions, first.slot),
            before: overwriter(last),
            ..Consequences::default()
        };
        // The candidates from `end` on were all invoked too late.
        let end = candidates.partition_point(|other| other.invoke_ns_min <= complete_ns);
        let Some(latest) = end.checked_sub(1) else { return Some(result) };
        if end < candidates.len() {
            result.strict_before = overwriter(&candidates[latest]);
        }
        // The candidates before `earliest` had all been overwritten.
        let earliest = candidates.partition_point(|other| other.overwritten_ns_max < invoke_ns);
        if 0 < earliest && earliest <= latest {
            result.strict_after = certain_writer(versions, candidates[earliest].slot);
        }
        Some(result)
    }
}

/// Returns the slot, if a transaction wrote it and it was certainly installed.
fn certain_writer(versions: &Versions, slot: u32) -> Option<u32> {
    (versions.slot(slot).writer != NONE && versions.is_installed(slot)).then_some(slot)
}

fn is_candidate(history: &History, versions: &Versions, key: u32, slot: u32) -> bool {
    let state = versions.slot(slot);
    if state.writer == NONE {
        return !versions.initial_row[key as usize];
    }
    let may_be_committed = versions.live[state.writer as usize]
        || history.transactions[state.writer as usize].status == Status::Unknown;
    state.is_tombstone() && state.is_final() && may_be_committed
}

fn candidate(history: &History, versions: &Versions, slot: u32) -> Candidate {
    let writer = versions.slot(slot).writer;
    let next = versions.next(slot);
    let invoke_ns_min =
        if writer == NONE { 0 } else { history.transactions[writer as usize].invoke_ns };
    let overwritten_ns_max = if next == NONE {
        u64::MAX
    } else {
        history.transactions[versions.slot(next).writer as usize].complete_ns
    };
    Candidate { slot, invoke_ns_min, overwritten_ns_max }
}
