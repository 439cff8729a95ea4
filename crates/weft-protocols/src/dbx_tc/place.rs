//! A procedure's place among the snapshots: its snapshot number, which is assigned lazily (§4.3), and the changes of
//! which an eventual snapshot may be on the wrong side. See [`eventual`](weft::store::eventual).

use std::ptr::NonNull;

use weft::commit::access_set::{AccessSet, TidHeader, TidOnly, WriteEntry};
use weft::commit::optimistic::stored;
use weft::store::eventual::{EventualSnapshots, PieceChange};
use weft::store::record::version::{VersionHeader, row_seen_at};
use weft::store::record::{RecordPointer, record_at};
use weft::store::worker::WorkerMemory;

/// The pieces that a procedure has committed, as far as snapshots are concerned.
#[derive(Default)]
pub struct PlacedPieces {
    /// The number of the conflicting piece, when it has committed. Without one, that of the first piece.
    place: Option<u64>,
    /// Whether a piece conflicts with other procedures.
    has_conflict: bool,
    /// Whether the commit of the present piece decides the place, unless an earlier one has.
    is_deciding: bool,
    /// The present value of the clock, from before the commit of the present piece.
    before: u64,
    /// The changes of all pieces but the one that decides the place.
    changes: Vec<PieceChange>,
    /// How many of them are of pieces that have committed.
    committed: usize,
}

// SAFETY: it moves between threads only with its worker, and is empty between transactions.
unsafe impl Send for PlacedPieces {}

impl PlacedPieces {
    /// Begins a procedure. If no piece of it conflicts with others, its place is that of its first piece.
    #[inline]
    pub fn begin(&mut self, has_conflict: bool) {
        self.has_conflict = has_conflict;
    }

    /// See [`ChopsProcedures::decide_place`](weft::commit::ChopsProcedures::decide_place).
    #[inline]
    pub fn decide(&mut self, decides: bool) {
        self.is_deciding = decides || !self.has_conflict;
    }

    /// Prepares the commit of a piece. Returns the number that its versions get, if that is not the one that it draws.
    #[inline]
    pub fn prepare(&mut self, set: &AccessSet<TidOnly>, memory: &WorkerMemory) -> Option<u64> {
        // A piece that writes nothing draws no number. Its reads came before this moment, and are validated after it.
        self.before = memory.shared().clock.number();
        self.changes.truncate(self.committed);
        if self.place.is_none() && self.is_deciding {
            return None;
        }
        let change = |entry: &WriteEntry<TidOnly>| PieceChange {
            record: entry.record.address(),
            table: entry.table,
            before: entry.replaced_row(),
            after: entry.row,
            columns: set.notes.of_write(entry),
            replaced: entry.expected.number(),
            number: 0,
        };
        let changes = set.writes.iter().map(change);
        self.changes
            .extend(changes.filter(|change| change.before.is_some() || change.after.is_some()));
        self.place.filter(|&place| set.writes.iter().all(|entry| replaces_before(entry, place)))
    }

    /// Notes that the piece has committed. `has_drawn` says whether its commit has drawn a number. (While a procedure
    /// holds the time, the memory still has the number of an earlier piece.)
    #[inline]
    pub fn note_committed(&mut self, has_drawn: bool, memory: &WorkerMemory) {
        let number = memory.drawn_number().filter(|_| has_drawn).unwrap_or(self.before);
        if self.is_deciding && self.place.is_none() {
            self.place = Some(number);
        }
        self.changes[self.committed..].iter_mut().for_each(|change| change.number = number);
        self.committed = self.changes.len();
    }

    /// Ends the procedure: puts its changes on the right side of the snapshots that were drawn in between. Returns its
    /// place.
    pub fn end(&mut self, eventual: Option<&EventualSnapshots>, memory: &WorkerMemory) -> u64 {
        // A procedure that has failed between two pieces has no place; what it has committed stays.
        let place = self.place.take().unwrap_or_default();
        if let Some(eventual) = eventual {
            eventual.settle(&self.changes[..self.committed], place, memory, see);
        }
        self.changes.clear();
        self.committed = 0;
        place
    }
}

/// Whether the version that a write replaces, or its deletion, has a number of at most `place`.
#[inline]
fn replaces_before(entry: &WriteEntry<TidOnly>, place: u64) -> bool {
    entry.replaced.row().is_none_or(|replaced| {
        // SAFETY: a row of the record, and the worker has been pinned since before it found it.
        let version = unsafe { VersionHeader::of(replaced) };
        // SAFETY: a deletion lives as long as its version.
        let deleted = version.deletion().map_or(0, |deletion| unsafe { deletion.as_ref() }.number);
        version.number().max(deleted) <= place
    })
}

/// Returns what a snapshot sees of the record at `address`, and the record's version at that time, when no commit holds
/// the record.
fn see(address: u64, snapshot: u64) -> (Option<NonNull<u8>>, u64) {
    // SAFETY: the address of a record that the procedure has changed, and the worker has been pinned since before.
    let record = unsafe { RecordPointer::<TidOnly>::from_address(address) };
    // SAFETY: as above.
    let row = || unsafe { row_seen_at(record_at(address), snapshot) };
    let (tid, seen) = stored(record).header.tid().read_with(row);
    (seen, tid.number())
}
