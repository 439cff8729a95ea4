//! Eventual snapshots: they are drawn while procedures run in pieces, and become consistent when these have ended
//! (DBX-TC, 2015, §4).
//!
//! The idea. A procedure's place in the serial order is that of its conflicting piece (Theorem 1), and so its
//! snapshot number is the one that this piece draws (lazy assignment, §4.3). A snapshot that is drawn between two
//! pieces shows the changes of the first and not those of the second. But it is known on which side of the snapshot
//! the procedure belongs, as soon as its conflicting piece has committed:
//!
//! ```text
//!                                         snapshot S
//!   procedure 1   piece   CONFLICTING         |      piece                  belongs to S: the last piece is redone
//!   procedure 2   piece                       |      CONFLICTING   piece    does not: the first piece is undone
//! ```
//!
//! No thread reads the snapshot before all procedures have ended that were between two pieces when it was drawn. (In the
//! paper: before it is below every worker's local snapshot number.) Each of them, at its end, redoes or undoes on the
//! snapshot what lies on the wrong side. Nothing waits for the snapshot in the meantime, neither procedures that run
//! nor those that begin.
//!
//! - **A later piece takes the procedure's number** for its versions, where the versions that it replaces have no
//!   greater number. Then the snapshot shows them like any others. All versions that a procedure inserts are of this
//!   kind, and all that only it changes.
//! - **Commutative changes are redone** (Algorithm 1) if a procedure with a greater number has changed the row first.
//!   The snapshot gets a row of its own: what it saw of the record, with the change.
//! - **Changes before the conflicting piece are undone** on snapshots that the procedure turns out not to belong to.
//!   The paper keeps them back until the number is known.
//! - **Once the snapshot has a row of its own, it shows no further versions of that record.** So what a later piece changes
//!   afterwards with the procedure's number is redone on that row as well. The record's version tells what came first.
//!
//! **Departure from the paper.** The rows that are redone or undone are the snapshot's ([`AdjustedRows`]), and not
//! versions in the record's chain, since published versions never change here. There are few: those of the procedures
//! that were between two pieces at one moment. So rows need no second copy of their commutative columns.
//!
//! A snapshot is *given up* where a change cannot be redone or undone: if a deletion would have to be undone, say,
//! or the row's type cannot tell its columns apart. It is also given up if a procedure that belongs to it has
//! deferred a change that was not published before (§3.2). The change would have to be redone on the snapshot. But a
//! procedure that still reads the old value comes before the one that has deferred the change, although its
//! conflicting piece may come after the snapshot. So the snapshot would show the later one of the two, and miss the
//! earlier one. (The paper does not say to which snapshot deferred changes belong.) The thread that has drawn the
//! snapshot then opens another one in the ordinary way, at a moment at which no procedure is between two pieces, and
//! everything is published.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use weft_htm::word::{Mutex, Ordering, Word};

use super::record::version::VersionHeader;
use super::table::{Rebase, TableRef};
use super::worker::{WorkerMemory, contain};
use crate::row::column::UsedColumns;

/// The snapshots of a database that have been drawn and are not consistent yet.
#[derive(Debug, Default)]
pub struct EventualSnapshots {
    /// The number of entries in `forming`. Counted before a snapshot is drawn.
    count: Word,
    /// How many snapshots there have been.
    begun: Word,
    forming: Mutex<Vec<Forming>>,
    /// The step that is left out: a deliberate bug for the canary.
    #[cfg(feature = "canary")]
    pub omitted: Option<Omitted>,
}

/// What a deliberate bug omits.
#[cfg(feature = "canary")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omitted {
    /// To redo later pieces.
    Redo,
    /// To undo earlier pieces.
    Undo,
}

/// A snapshot that is not consistent yet.
#[derive(Debug)]
struct Forming {
    /// What tells it from the others.
    identity: u64,
    /// Its snapshot number, or 0 as long as it is not drawn.
    number: u64,
    adjusted: Adjusted,
}

/// What has been redone and undone on a snapshot so far; `None` if the snapshot was given up. It has a lock of its own,
/// under which the user's code may run.
type Adjusted = Arc<Mutex<Option<AdjustedRows>>>;

fn lock(adjusted: &Adjusted) -> impl DerefMut<Target = Option<AdjustedRows>> {
    adjusted.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nothing_adjusted() -> Adjusted {
    Arc::new(Mutex::new(Some(AdjustedRows::default())))
}

/// A change of a record by a piece that has committed. The rows are not freed before the procedure ends.
#[derive(Clone, Copy, Debug)]
pub struct PieceChange {
    /// The record's address.
    pub record: u64,
    pub table: TableRef,
    /// The row before and after, if there was one.
    pub before: Option<NonNull<u8>>,
    pub after: Option<NonNull<u8>>,
    /// What the piece uses of the row, if it is known.
    pub columns: Option<UsedColumns>,
    /// The record's version, as a number, before the change.
    pub replaced: u64,
    /// The number of the piece.
    pub number: u64,
}

/// Returns what a snapshot sees of the record at an address, and the record's version at that time, as a number that grows
/// with each change. It waits as long as a commit holds the record: a commit that has drawn its number before the snapshot has
/// locked the record before that, or was one region, so its row is installed then.
pub type SeeRecord = fn(u64, u64) -> (Option<NonNull<u8>>, u64);

/// A snapshot that a thread is drawing. Dropping it forgets the snapshot.
pub struct FormingSnapshot<'e> {
    all: &'e EventualSnapshots,
    identity: u64,
    /// The snapshot's number, when it has been drawn.
    number: Cell<u64>,
    /// What was adjusted for earlier numbers. It is dropped with this, since dropping rows runs the user's code, and a number
    /// is drawn under locks.
    replaced: RefCell<Vec<Adjusted>>,
}

impl EventualSnapshots {
    /// Begins to draw a snapshot.
    pub fn begin(&self) -> FormingSnapshot<'_> {
        // SeqCst: see `settle`.
        self.count.fetch_add(1, Ordering::SeqCst);
        // Relaxed: the numbers must only be different.
        let identity = self.begun.fetch_add(1, Ordering::Relaxed);
        self.forming().push(Forming { identity, number: 0, adjusted: nothing_adjusted() });
        FormingSnapshot { all: self, identity, number: Cell::new(0), replaced: RefCell::default() }
    }

    fn forming(&self) -> impl DerefMut<Target = Vec<Forming>> {
        self.forming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redoes and undoes the changes of a procedure's pieces on the snapshots that were drawn between them. `place` is
    /// the number of the conflicting piece. To be called before the procedure ends, on its worker, which is pinned.
    ///
    /// A snapshot that lies between two of the pieces was drawn before the later one drew its number, and was counted
    /// before that. Both words are accessed sequentially consistently, so this finds it.
    #[inline]
    pub fn settle(
        &self,
        changes: &[PieceChange],
        place: u64,
        memory: &WorkerMemory,
        see: SeeRecord,
    ) {
        if !changes.is_empty() && self.count.load(Ordering::SeqCst) != 0 {
            self.settle_forming(changes, place, memory, see);
        }
    }

    #[cold]
    fn settle_forming(
        &self,
        changes: &[PieceChange],
        place: u64,
        memory: &WorkerMemory,
        see: SeeRecord,
    ) {
        for (snapshot, adjusted) in self.drawn(|number| number != 0) {
            #[cfg(feature = "canary")]
            if self.omitted == Some(if place <= snapshot { Omitted::Redo } else { Omitted::Undo }) {
                continue;
            }
            let mut adjusted = lock(&adjusted);
            if place <= snapshot {
                for change in changes {
                    let is_missing = adjusted.as_ref().is_some_and(|rows| rows.lacks(change));
                    if change.number > snapshot || is_missing {
                        let rows = (change.before, change.after);
                        adjust(&mut adjusted, snapshot, change, rows, memory, see);
                    }
                }
            } else {
                for change in changes.iter().rev().filter(|change| change.number <= snapshot) {
                    let rows = (change.after, change.before);
                    adjust(&mut adjusted, snapshot, change, rows, memory, see);
                }
            }
        }
    }

    /// Returns the snapshots with such a number.
    fn drawn(&self, is_meant: impl Fn(u64) -> bool) -> Vec<(u64, Adjusted)> {
        let forming = self.forming();
        let meant = forming.iter().filter(|forming| is_meant(forming.number));
        meant.map(|forming| (forming.number, Arc::clone(&forming.adjusted))).collect()
    }

    /// Gives up the snapshots that were drawn after the procedure with place `place`, and before a transaction that has
    /// drawn `number` and has made a change of that procedure's.
    pub fn give_up_between(&self, place: u64, number: u64) {
        if self.count.load(Ordering::SeqCst) != 0 {
            for (_, adjusted) in self.drawn(|drawn| (place..number).contains(&drawn)) {
                lock(&adjusted).take();
            }
        }
    }
}

/// Makes a snapshot see the row `to` of a record in place of the row `from`, or the difference between the two on top of
/// what it sees.
fn adjust(
    rows: &mut Option<AdjustedRows>,
    snapshot: u64,
    change: &PieceChange,
    (from, to): (Option<NonNull<u8>>, Option<NonNull<u8>>),
    memory: &WorkerMemory,
    see: SeeRecord,
) {
    let Some(adjusted) = rows else { return };
    let (seen, made_at) = match adjusted.rows.get(&change.record) {
        Some(adjusted) => (adjusted.address(), adjusted.made_at),
        None => see(change.record, snapshot),
    };
    let table = change.table;
    let row = match (seen, from, to) {
        (Some(seen), Some(from), None) if seen == from || adjusted.has(change.record) => Some(None),
        (Some(seen), Some(from), Some(to)) if seen == from => {
            // SAFETY: a row of the table, which is not freed before the procedure ends.
            let clone = |place| unsafe {
                table.core().clone_row(to, place);
                table.core().copy_stamp(to, place);
                true
            };
            // SAFETY: the row is complete if the call returns.
            memory.in_user_code(|| unsafe { OwnedRow::make(table, clone) }).map(Some)
        }
        (Some(onto), Some(before), Some(row)) => change.columns.and_then(|columns| {
            let change = Rebase { row, before, onto, adds: columns.adds };
            // SAFETY: rows of the table. Two are not freed before the procedure ends, and the third is a version
            // that the snapshot sees, or its own.
            let rebase = |place| unsafe {
                let core = table.core();
                core.copy_stamp(row, place);
                core.may_be_moved(change, columns.matters) && core.rebase(change, place)
            };
            // SAFETY: `rebase` returns true if it has written a row.
            memory.in_user_code(|| unsafe { OwnedRow::make(table, rebase) }).map(Some)
        }),
        _ => None,
    };
    match row {
        Some(row) => adjusted.put(change.record, AdjustedRow { row, made_at }),
        None => *rows = None,
    }
}

impl FormingSnapshot<'_> {
    /// Draws the snapshot's number by `take`. If it is drawn again, the last number counts.
    pub fn draw(&self, take: impl FnOnce() -> u64) -> u64 {
        let mut all = self.all.forming();
        let number = take();
        self.number.set(number);
        if let Some(this) = all.iter_mut().find(|forming| forming.identity == self.identity) {
            // What was settled for an earlier number is of procedures that have ended before this one was drawn.
            this.number = number;
            let replaced = std::mem::replace(&mut this.adjusted, nothing_adjusted());
            self.replaced.borrow_mut().push(replaced);
        }
        number
    }

    /// Returns the snapshot's number, when it has been drawn.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// Returns the rows that the snapshot sees in place of the records' own. The procedures that were between two pieces
    /// when it was drawn have ended. Returns `None` if the snapshot was given up.
    pub fn finish(self) -> Option<AdjustedRows> {
        self.forget()
    }

    fn forget(&self) -> Option<AdjustedRows> {
        let adjusted = {
            let mut all = self.all.forming();
            let position = all.iter().position(|forming| forming.identity == self.identity)?;
            self.all.count.fetch_add(1_u64.wrapping_neg(), Ordering::SeqCst);
            all.swap_remove(position).adjusted
        };
        lock(&adjusted).take()
    }
}

impl Drop for FormingSnapshot<'_> {
    fn drop(&mut self) {
        drop(self.forget());
    }
}

/// What a snapshot sees of some records in place of their versions.
#[derive(Debug, Default)]
pub struct AdjustedRows {
    /// For the address of a record, what the snapshot sees of it.
    rows: HashMap<u64, AdjustedRow>,
}

/// What a snapshot sees of a record in place of its versions.
#[derive(Debug)]
struct AdjustedRow {
    /// The row, or `None` if the snapshot does not see one.
    row: Option<OwnedRow>,
    /// The record's version when the snapshot first got a row of its own. Later changes are not in it by themselves.
    made_at: u64,
}

impl AdjustedRow {
    fn address(&self) -> Option<NonNull<u8>> {
        self.row.as_ref().map(|owned| owned.row)
    }
}

impl AdjustedRows {
    /// Returns whether the snapshot sees all records as they are.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns what the snapshot sees of a record, if that is not one of its versions.
    #[inline]
    pub fn get(&self, record: u64) -> Option<Option<NonNull<u8>>> {
        self.rows.get(&record).map(AdjustedRow::address)
    }

    /// Returns whether the snapshot has a row of its own that was made before this change, so that it lacks the change.
    fn lacks(&self, change: &PieceChange) -> bool {
        self.rows.get(&change.record).is_some_and(|adjusted| adjusted.made_at <= change.replaced)
    }

    fn has(&self, record: u64) -> bool {
        self.rows.contains_key(&record)
    }

    fn put(&mut self, record: u64, row: AdjustedRow) {
        self.rows.insert(record, row);
    }
}

/// A row that belongs to a snapshot.
#[derive(Debug)]
struct OwnedRow {
    row: NonNull<u8>,
    layout: Layout,
    drop_row: Option<unsafe fn(NonNull<u8>)>,
}

// SAFETY: rows can be sent to other threads and shared by them.
unsafe impl Send for OwnedRow {}
// SAFETY: as above.
unsafe impl Sync for OwnedRow {}

impl OwnedRow {
    /// Makes a row by the user's code. `make` gets the place, and says whether it has put a row there. Returns `None` if
    /// it has not, or has panicked.
    ///
    /// # Safety
    /// If `make` returns true, it has written a row of the table to the place.
    unsafe fn make(table: TableRef, make: impl FnOnce(NonNull<u8>) -> bool) -> Option<OwnedRow> {
        let core = table.core();
        let layout = Layout::from_size_align(core.row_class.bytes(), VersionHeader::BYTES);
        let layout = layout.expect("a row's block is far below isize::MAX");
        // SAFETY: a block holds at least a header, so its layout is not empty.
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: a new block of the size that rows of the table have.
        let row = unsafe { VersionHeader::initialise(block) };
        // Until there is a row, there is nothing to drop.
        let mut owned = OwnedRow { row, layout, drop_row: None };
        let mut is_made = false;
        if !contain(|| is_made = make(row)) || !is_made {
            return None;
        }
        owned.drop_row = core.drop_row;
        Some(owned)
    }
}

impl Drop for OwnedRow {
    fn drop(&mut self) {
        if let Some(drop_row) = self.drop_row {
            // SAFETY: a complete row, which no other code has.
            contain(|| unsafe { drop_row(self.row) });
        }
        // SAFETY: the block was allocated with this layout.
        unsafe { dealloc(VersionHeader::block(self.row).as_ptr(), self.layout) };
    }
}

/// Model-checked: `RUSTFLAGS="--cfg loom" cargo test -p weft --lib --release loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::clock::Clock;
    use crate::sync::gate::Gate;

    /// A snapshot that is drawn between two pieces is found by the procedure's end, and is finished after that.
    #[test]
    fn loom_eventual_a_snapshot_between_two_pieces_is_settled() {
        loom::model(|| {
            let shared = Arc::new((
                EventualSnapshots::default(),
                Clock::default(),
                Gate::new(1),
                Word::new(0),
            ));
            let procedure = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (eventual, clock, gate, settled) = &*shared;
                    assert!(gate.begin_pieces(0), "there are no outsiders");
                    let pieces = clock.number()..clock.number();
                    // What `settle` does, with a note in place of the rows.
                    if eventual.count.load(Ordering::SeqCst) != 0 {
                        let forming = eventual.forming();
                        let between =
                            forming.iter().find(|forming| pieces.contains(&forming.number));
                        if let Some(forming) = between {
                            settled.store(forming.number, Ordering::Relaxed);
                        }
                    }
                    gate.end_pieces(0);
                    pieces
                })
            };
            let (eventual, clock, gate, settled) = &*shared;
            let forming = eventual.begin();
            let number = forming.draw(|| clock.take_number());
            gate.await_pieces(1, || Ok::<(), ()>(())).unwrap();
            let seen = settled.load(Ordering::Relaxed);
            assert!(forming.finish().is_some());
            let pieces = procedure.join().unwrap();
            assert_eq!(seen == number, pieces.contains(&number), "{number}, {pieces:?}");
        });
    }
}
