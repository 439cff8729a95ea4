//! The procedures that a database knows, and the pieces in which they run.

use std::sync::{Arc, PoisonError};

use weft::plan::{Pieces, Shape};
use weft::store::eventual::EventualSnapshots;
#[cfg(feature = "canary")]
use weft::store::eventual::Omitted;
use weft_htm::word::{Mutex, Ordering, Word};
use weft_procedures::chopping::OutlineError;
use weft_procedures::chopping::{
    Chopping, NotAdmitted, Options, Outline, Outlines, Token, admit, chop, one_piece_of, pieces_of,
};

use super::partition::TouchedLocks;

/// Options of `dbx-tc`: the procedures that it knows when a database is opened, and how it runs them.
///
/// ```
/// use weft::protocol::Protocol;
/// use weft::{Database, Error, Record, Table, Transaction};
/// use weft_procedures::{Execute, Procedure, procedure};
/// use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions};
///
/// #[derive(Clone, Record)]
/// struct Item { #[record(key)] id: u32, left: u32 }
/// #[derive(Clone, Record)]
/// struct Day { #[record(key)] number: u32, sold: u64 }
///
/// #[procedure(Sell)]
/// fn sell<P: Protocol>(
///     items: &Table<Item>,
///     days: &Table<Day>,
///     tx: &Transaction<'_, P>,
///     item: u32,
///     day: u32,
/// ) -> Result<Option<u32>, Error> {
///     let left = tx.update(items, &item, |item| {
///         item.left -= 1;
///         item.left
///     })?;
///     // Sums commute, and no other procedure reads them: a piece of its own.
///     tx.update(days, &day, |day| day.sold += 1)?;
///     Ok(left)
/// }
///
/// let known = DbxTcOptions::new().procedures([Sell::<DbxTc>::shape()]);
/// let database =
///     Database::builder().protocol::<DbxTc>().table::<Item>().table::<Day>().dbx_tc(known).open()?;
/// assert_eq!(database.chopping().procedures[0].pieces.len(), 2);
/// let (items, days) = (database.table::<Item>()?, database.table::<Day>()?);
/// database.transact(|tx| {
///     tx.insert(&items, Item { id: 1, left: 10 })?;
///     tx.insert(&days, Day { number: 7, sold: 0 })
/// })?;
/// assert_eq!(database.execute(&mut Sell::new(&items, &days, 1, 7))?, Some(9));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DbxTcOptions {
    /// The procedures that run in pieces.
    pub procedures: Vec<&'static Shape>,
    /// The tables whose rows are guarded by [tokens](Token).
    pub tokens: Vec<Token>,
    /// Which optimizations the analysis uses: by default all that the protocol can follow.
    ///
    /// The protocol runs procedures as they are written, so [reordering](Options::reordering) is always off.
    ///
    /// [Deferral](Options::deferral) is off by default. With it, registered procedures that read a deferred
    /// change see it up to some 40 ms later, even if the same thread runs them afterwards: transactions are
    /// then serializable, but not strictly. (Closures and snapshots see the change at once.) Deferred sums must
    /// not overflow: the procedure has ended by then, so its caller could not get the error. Instead,
    /// transactions that publish the sums fail with
    /// [`Failure::DeferredOutOfRange`](weft::Failure::DeferredOutOfRange) until they fit, and nothing becomes durable
    /// until then. If the database records a history, nothing is deferred.
    ///
    /// With [snapshots](Options::snapshots), procedures that only read are left out of the analysis, and no
    /// piece becomes larger because of them. In return they are kept apart from procedures that are between two
    /// pieces, like every transaction that is not registered.
    pub chopping: Options,
    /// Whether procedures run in pieces at all. If not, each runs as one piece.
    pub in_pieces: bool,
    /// Whether pieces commit by columns: a piece is not retried because of a change of columns that it does not
    /// use, or only adds to. In a database that records its history, procedures in several pieces go by rows all
    /// the same, because histories are judged by rows.
    pub by_columns: bool,
    /// Whether each piece that the analysis finds is a commit of its own. If not, pieces without a conflict
    /// that matters join their neighbours: pieces that read what no procedure changes, and pieces that change,
    /// by commuting operations, what no procedure reads. This holds only for procedures that commit [by
    /// columns](DbxTcOptions::by_columns). By rows, such pieces do conflict with others, and each stays a
    /// commit of its own.
    pub finest: bool,
    /// Whether each piece is tried as one hardware region from its first operation to its commit, as in the
    /// paper. Then its reads are not noted. A piece that does not fit, or keeps conflicting, runs as the small
    /// transaction that it is otherwise. So do all pieces where there is no hardware for regions.
    pub in_regions: bool,
    /// Whether a snapshot is drawn while procedures are between two pieces, as in the paper (§4). It shows a state that
    /// these procedures complete until they end: see [`eventual`](weft::store::eventual). No procedure waits for it, or
    /// runs as one piece because of it. Without this, a snapshot is opened when no procedure is between two pieces.
    pub eventual_snapshots: bool,
    /// Whether a piece that is a region puts new records into small caches, from which they are written to the indexes
    /// after it, as in the paper (§3.3). Without this, insertions into indexes are part of the region.
    pub database_cache: bool,
    /// Whether a piece that could not run as a region locks the partitions that it touches, as in the paper (§3.3), and
    /// not only the records that it writes. A partition is the keys of a table that have the same two leading bytes.
    pub partition_locks: bool,
    /// A flaw, made on purpose for tests.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub flaw: Option<Flaw>,
    /// How many deferred changes may wait, for tests that have them published often.
    #[cfg(feature = "canary")]
    #[doc(hidden)]
    pub changes_waiting_max: Option<u64>,
}

/// Flaws that are made on purpose, for tests that have to find them.
#[cfg(feature = "canary")]
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Each step is a piece, whatever the analysis says.
    NothingMerged,
    /// Outsiders are not kept apart from procedures that are between two pieces.
    GateOpen,
    /// Outsiders do not publish the deferred changes.
    NothingPublished,
    /// Subscribers do not wait for the publishers that are between two pieces.
    PublishersNotAwaited,
    /// Commits by columns treat every column as one that does not matter.
    ColumnsNeglected,
    /// Nothing is redone on eventual snapshots.
    NotRedone,
    /// Nothing is undone on eventual snapshots.
    NotUndone,
    /// No transaction looks for records in caches, or notes that a cache was empty.
    CacheNeglected,
}

impl Default for DbxTcOptions {
    fn default() -> Self {
        DbxTcOptions {
            procedures: Vec::new(),
            tokens: Vec::new(),
            chopping: Options { deferral: false, ..Options::ALL },
            in_pieces: true,
            by_columns: true,
            finest: false,
            in_regions: false,
            eventual_snapshots: false,
            database_cache: false,
            partition_locks: false,
            #[cfg(feature = "canary")]
            flaw: None,
            #[cfg(feature = "canary")]
            changes_waiting_max: None,
        }
    }
}

impl DbxTcOptions {
    /// Returns the default options, without any procedures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`DbxTcOptions::procedures`].
    pub fn procedures(mut self, procedures: impl IntoIterator<Item = &'static Shape>) -> Self {
        self.procedures = procedures.into_iter().collect();
        self
    }

    /// Sets [`DbxTcOptions::tokens`].
    pub fn tokens(mut self, tokens: impl IntoIterator<Item = Token>) -> Self {
        self.tokens = tokens.into_iter().collect();
        self
    }

    /// Sets [`DbxTcOptions::chopping`].
    pub fn chopping(mut self, chopping: Options) -> Self {
        self.chopping = chopping;
        self
    }

    /// Sets [`DbxTcOptions::in_pieces`].
    pub fn in_pieces(mut self, in_pieces: bool) -> Self {
        self.in_pieces = in_pieces;
        self
    }

    /// Sets [`DbxTcOptions::by_columns`].
    pub fn by_columns(mut self, by_columns: bool) -> Self {
        self.by_columns = by_columns;
        self
    }

    /// Sets [`DbxTcOptions::finest`].
    pub fn finest(mut self, finest: bool) -> Self {
        self.finest = finest;
        self
    }

    /// Sets [`DbxTcOptions::in_regions`].
    pub fn in_regions(mut self, in_regions: bool) -> Self {
        self.in_regions = in_regions;
        self
    }

    /// Sets [`DbxTcOptions::eventual_snapshots`].
    pub fn eventual_snapshots(mut self, eventual_snapshots: bool) -> Self {
        self.eventual_snapshots = eventual_snapshots;
        self
    }

    /// Sets [`DbxTcOptions::database_cache`].
    pub fn database_cache(mut self, database_cache: bool) -> Self {
        self.database_cache = database_cache;
        self
    }

    /// Sets [`DbxTcOptions::partition_locks`].
    pub fn partition_locks(mut self, partition_locks: bool) -> Self {
        self.partition_locks = partition_locks;
        self
    }

    /// Chops the procedures.
    pub(crate) fn chop(&self, may_defer: bool) -> Result<ProcedureSet, OutlineError> {
        let deferral = self.chopping.deferral && may_defer && self.in_pieces;
        let options = Options { reordering: false, deferral, ..self.chopping };
        let outlines = Outlines {
            tokens: self.tokens.clone(),
            ..Outlines::of(self.procedures.iter().copied())
        };
        let chopping = chop(&outlines, options)?;
        let names = self.procedures.iter().map(|shape| shape.name).collect();
        #[cfg_attr(not(feature = "canary"), allow(unused_mut, reason = "nothing is wrong"))]
        let mut registered = ProcedureSet::new(names, chopping, PieceOptions::of(self));
        #[cfg(feature = "canary")]
        if let Some(flaw) = self.flaw {
            registered.break_by(flaw);
        }
        Ok(registered)
    }
}

/// How the pieces that the analysis finds are used. See the fields of [`DbxTcOptions`].
#[derive(Clone, Copy, Debug)]
struct PieceOptions {
    in_pieces: bool,
    by_columns: bool,
    finest: bool,
    in_regions: bool,
    eventual_snapshots: bool,
}

impl PieceOptions {
    fn of(options: &DbxTcOptions) -> PieceOptions {
        let &DbxTcOptions { in_pieces, by_columns, finest, in_regions, eventual_snapshots, .. } =
            options;
        PieceOptions { in_pieces, by_columns, finest, in_regions, eventual_snapshots }
    }
}

/// The registered procedures, with their pieces.
#[derive(Clone, Debug)]
pub struct ProcedureSet {
    pub chopping: Chopping,
    /// The procedures' names, in the order of the chopping's procedures.
    names: Vec<&'static str>,
    options: PieceOptions,
    /// Each procedure's pieces, or `None` for a procedure that only reads and is left out.
    pieces: Vec<Option<Pieces>>,
    #[cfg(feature = "canary")]
    pub is_gate_open: bool,
    #[cfg(feature = "canary")]
    pub is_publishing_forgotten: bool,
    #[cfg(feature = "canary")]
    pub is_barrier_open: bool,
    #[cfg(feature = "canary")]
    neglects_columns: bool,
    #[cfg(feature = "canary")]
    omitted: Option<Omitted>,
}

impl ProcedureSet {
    fn new(names: Vec<&'static str>, chopping: Chopping, options: PieceOptions) -> ProcedureSet {
        let PieceOptions { in_pieces, by_columns, finest, in_regions, .. } = options;
        let named = names.iter().zip(&chopping.procedures).enumerate();
        let pieces = named.map(|(procedure, (name, chopped))| {
            let pieces = match in_pieces {
                false => one_piece_of(name, chopped),
                true if chopped.on_snapshot => return None,
                true => pieces_of(name, chopped, finest || !by_columns),
            };
            let pieces = pieces.subscribing(chopping.subscribes(procedure));
            Some(if in_regions { pieces.in_regions() } else { pieces })
        });
        ProcedureSet {
            pieces: pieces.collect(),
            chopping,
            names,
            options,
            #[cfg(feature = "canary")]
            is_gate_open: false,
            #[cfg(feature = "canary")]
            is_publishing_forgotten: false,
            #[cfg(feature = "canary")]
            is_barrier_open: false,
            #[cfg(feature = "canary")]
            neglects_columns: false,
            #[cfg(feature = "canary")]
            omitted: None,
        }
    }

    /// Whether pieces are regions, where there is hardware for them.
    pub fn in_regions(&self) -> bool {
        self.options.in_regions
    }

    /// Creates what snapshots need that are drawn while procedures are in pieces, if they may be.
    pub fn eventual_snapshots(&self) -> Option<EventualSnapshots> {
        #[cfg_attr(not(feature = "canary"), allow(unused_mut, reason = "nothing is wrong"))]
        let mut eventual = EventualSnapshots::default();
        #[cfg(feature = "canary")]
        {
            eventual.omitted = self.omitted;
        }
        self.options.eventual_snapshots.then_some(eventual)
    }

    #[cfg(feature = "canary")]
    fn break_by(&mut self, flaw: Flaw) {
        match flaw {
            Flaw::NothingMerged => {
                self.pieces.iter_mut().flatten().for_each(Pieces::unmerge);
            }
            Flaw::GateOpen => self.is_gate_open = true,
            Flaw::NothingPublished => self.is_publishing_forgotten = true,
            Flaw::PublishersNotAwaited => self.is_barrier_open = true,
            Flaw::ColumnsNeglected => self.neglects_columns = true,
            Flaw::NotRedone => self.omitted = Some(Omitted::Redo),
            Flaw::NotUndone => self.omitted = Some(Omitted::Undo),
            Flaw::CacheNeglected => {} // The caches themselves are broken.
        }
    }

    /// Returns the position of the procedure with this shape, if it is registered. Another procedure of the
    /// same name is not.
    fn position(&self, shape: &'static Shape) -> Option<usize> {
        let position = self.names.iter().position(|name| *name == shape.name)?;
        (self.chopping.outlines.procedures[position] == Outline::of(shape)).then_some(position)
    }

    fn pieces_of(&self, shape: &'static Shape) -> Option<Pieces> {
        // Between two pieces a row could expire that both of them see. Such a procedure runs as one transaction, as if
        // it were not registered.
        if shape.steps.iter().any(|step| step.table.expires) {
            return None;
        }
        let pieces = self.pieces[self.position(shape)?].clone()?;
        if !self.options.by_columns {
            return Some(pieces);
        }
        #[cfg_attr(not(feature = "canary"), allow(unused_mut, reason = "nothing is wrong"))]
        let mut pieces = pieces.by_columns(shape);
        #[cfg(feature = "canary")]
        if self.neglects_columns {
            pieces.neglect_columns();
        }
        Some(pieces)
    }
}

/// The procedures of a database, to which more can be added.
#[derive(Debug)]
pub struct Procedures {
    registered: Mutex<Arc<ProcedureSet>>,
    /// How often procedures have been added.
    changes: Word,
}

impl Procedures {
    pub fn new(registered: ProcedureSet) -> Procedures {
        Procedures { registered: Mutex::new(Arc::new(registered)), changes: Word::new(0) }
    }

    pub fn get(&self) -> Arc<ProcedureSet> {
        Arc::clone(&self.registered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a procedure, if the registered ones keep their pieces.
    pub fn admit(&self, shape: &'static Shape) -> Result<(), NotAdmitted> {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if registered.position(shape).is_some() {
            return Ok(());
        }
        let Chopping { outlines, options, .. } = &registered.chopping;
        let chopping = admit(outlines, &Outline::of(shape), *options)?;
        let names = registered.names.iter().copied().chain([shape.name]).collect();
        *registered = Arc::new(ProcedureSet::new(names, chopping, registered.options));
        // Relaxed: a worker that sees the change late runs the procedure as an outsider once more.
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What a worker knows of procedures, by the address of the shape. Each worker has its own copy of the pieces,
/// so that workers do not share a reference count.
#[derive(Debug, Default)]
pub struct WorkerProcedures {
    changes: u64,
    procedures: Vec<KnownProcedure>,
    /// The position of the procedure that was asked for last.
    present: usize,
}

#[derive(Debug)]
struct KnownProcedure {
    shape: *const Shape,
    pieces: Option<Arc<Pieces>>,
    /// The number of executions in which it is still to be noted which step accesses what.
    noted: u32,
    /// For each piece up to the last that was too large for a region: the number of executions in which it is
    /// not tried as one.
    too_large: Vec<u32>,
    /// For each piece up to the last that has touched a partition: the locks of those that it has touched lately.
    touched: Vec<TouchedLocks>,
}

/// The number of executions in which a procedure's accesses are noted after it has had a conflict. Notes make
/// an execution slower by about a fifteenth. So they are worth it if without them one execution in fifteen
/// would have to be retried.
const NOTED_EXECUTIONS: u32 = 16;

/// The number of executions in which a piece that was too large for a region is not tried as one. An attempt
/// costs about as much as the piece.
const EXECUTIONS_WITHOUT_REGION: u32 = 32;

// SAFETY: shapes are static.
unsafe impl Send for WorkerProcedures {}

impl WorkerProcedures {
    /// Returns the pieces of a procedure, if it is registered and not left out.
    #[inline]
    pub fn pieces_of(
        &mut self,
        shape: &'static Shape,
        procedures: &Procedures,
    ) -> Option<&Arc<Pieces>> {
        let changes = procedures.changes.load(Ordering::Relaxed);
        if changes != self.changes {
            (self.changes, self.procedures) = (changes, Vec::new());
        }
        let is_known = |known: &KnownProcedure| std::ptr::eq(known.shape, shape);
        let known = self.procedures.iter().position(is_known);
        self.present = known.unwrap_or_else(|| {
            let pieces = procedures.get().pieces_of(shape).map(Arc::new);
            let (noted, too_large, touched) = (NOTED_EXECUTIONS, Vec::new(), Vec::new());
            self.procedures.push(KnownProcedure { shape, pieces, noted, too_large, touched });
            self.procedures.len() - 1
        });
        self.procedures[self.present].pieces.as_ref()
    }

    /// Whether the accesses of the procedure that was asked for last are to be noted in the execution that
    /// begins.
    #[inline]
    pub fn takes_notes(&mut self) -> bool {
        let noted = &mut self.procedures[self.present].noted;
        let takes_notes = *noted > 0;
        *noted -= u32::from(takes_notes);
        takes_notes
    }

    /// Whether a piece of the procedure that was asked for last is to be tried as a region.
    #[inline]
    pub fn may_fit(&mut self, piece: usize) -> bool {
        match self.procedures[self.present].too_large.get_mut(piece) {
            Some(executions) if *executions > 0 => {
                *executions -= 1;
                false
            }
            _ => true,
        }
    }

    /// Notes that a piece of the procedure that was asked for last was too large for a region.
    #[cold]
    pub fn note_too_large(&mut self, piece: usize) {
        let too_large = &mut self.procedures[self.present].too_large;
        if too_large.len() <= piece {
            too_large.resize(piece + 1, 0);
        }
        too_large[piece] = EXECUTIONS_WITHOUT_REGION;
    }

    /// Returns the locks of the partitions that a piece of the procedure that was asked for last has touched lately.
    pub fn touched(&mut self, piece: usize) -> &mut TouchedLocks {
        let touched = &mut self.procedures[self.present].touched;
        if touched.len() <= piece {
            touched.resize_with(piece + 1, TouchedLocks::default);
        }
        &mut touched[piece]
    }

    /// Notes that the procedure that was asked for last has had a conflict.
    pub fn note_conflict(&mut self) {
        self.procedures[self.present].noted = NOTED_EXECUTIONS;
    }
}
