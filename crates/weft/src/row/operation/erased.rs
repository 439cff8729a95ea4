//! Operations without types, for the layers below, which do not know types: a column's
//! [`ColumnOperation`], the slices that it makes, and the undo log for slices; and a
//! [`RepeatableOperation`], which can be applied to several versions of a row.

use std::alloc::Layout;
use std::any::TypeId;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::{ColumnOf, Operation, OperationKind, Reserve};
use crate::row::schema::{Bounds, Record};

/// A column and an operation on it, without their types.
#[derive(Clone, Copy)]
pub struct ColumnOperation {
    column: usize,
    functions: &'static Functions,
    bounds: Option<&'static Bounds>,
    /// A `fn(&R) -> &V`.
    get: fn(),
    /// A `fn(&mut R) -> &mut V`.
    get_mut: fn(),
}

/// Makes a slice at a place, from an accessor of the column, a row, and the number of cores.
type Initialise = unsafe fn(fn(), NonNull<u8>, u32, NonNull<u8>);

/// Returns the room of a column, from an accessor, a row, and the column's bounds.
type Room = unsafe fn(fn(), NonNull<u8>, Option<&Bounds>) -> (u64, u64);

/// The functions for slices of one type.
struct Functions {
    kind: OperationKind,
    /// Identifies the types of the row, the column and the operation, which decide what a slice is.
    types: fn() -> TypeId,
    layout: Layout,
    /// Makes a slice at a place, for one of several cores.
    initialise: Initialise,
    /// See [`Operation::room`].
    room: Room,
    /// Takes a slice out of its place, and merges it into the row.
    merge: unsafe fn(get_mut: fn(), slice: NonNull<u8>, row: NonNull<u8>),
    /// See [`Operation::finish`].
    finish: unsafe fn(get_mut: fn(), row: NonNull<u8>),
}

impl ColumnOperation {
    /// Returns the operation `O` on a column, or the one whose slices it uses; `None` if the column
    /// or the operation's slices own memory.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn new<R: Record, V: 'static, O: Operation<V>>(column: ColumnOf<R, V>) -> Option<Self> {
        if const { std::mem::needs_drop::<V>() || std::mem::needs_drop::<O::Slice>() } {
            return None;
        }
        // SAFETY: all function pointers have the same representation, and `initialise` and `merge`
        // give these two their types back before they call them.
        let (get, get_mut) = unsafe {
            (
                std::mem::transmute::<fn(&R) -> &V, fn()>(column.get),
                std::mem::transmute::<fn(&mut R) -> &mut V, fn()>(column.get_mut),
            )
        };
        let functions = const {
            &Functions {
                kind: O::Family::KIND,
                types: TypeId::of::<(R, V, O::Family)>,
                layout: Layout::new::<O::Slice>(),
                initialise: initialise::<R, V, O::Family>,
                room: room::<R, V, O::Family>,
                merge: merge::<R, V, O::Family>,
                finish: finish::<R, V, O::Family>,
            }
        };
        let bounds = column.bounds();
        Some(ColumnOperation { column: column.position(), functions, bounds, get, get_mut })
    }

    /// Returns the column's position.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the operation's kind.
    pub fn kind(&self) -> OperationKind {
        self.functions.kind
    }

    /// Returns whether this is the same operation on the same column, with the same types. Then,
    /// and only then, are slices of the one also slices of the other. (The same kind is not enough:
    /// an application that implements [`Record`] by hand may name a column with two types.)
    #[inline(always)]
    pub fn is_same(&self, other: &ColumnOperation) -> bool {
        // An operation nearly always has only one static, so the pointers decide without a call.
        let is_same_type = std::ptr::eq(self.functions, other.functions)
            || (self.functions.types)() == (other.functions.types)();
        self.column == other.column && is_same_type
    }

    /// Returns the layout of a slice.
    pub fn slice_layout(&self) -> Layout {
        self.functions.layout
    }

    /// Makes a slice for one of `cores` workers.
    ///
    /// # Safety
    /// `row` is a row of the operation's table, and does not change during this call. `slice` is a
    /// place with the slice's layout, and belongs to the caller alone.
    pub unsafe fn initialise(&self, row: NonNull<u8>, cores: u32, slice: NonNull<u8>) {
        // SAFETY: the caller keeps the same contract.
        unsafe { (self.functions.initialise)(self.get, row, cores, slice) };
    }

    /// Returns the reserve out of which workers enlarge their slices.
    ///
    /// # Safety
    /// `row` is a row of the operation's table, and does not change during this call.
    pub unsafe fn reserve(&self, row: NonNull<u8>) -> Reserve {
        // SAFETY: the caller keeps the same contract.
        Reserve::new(unsafe { (self.functions.room)(self.get, row, self.bounds) })
    }

    /// Merges a slice into a row. This consumes the slice.
    ///
    /// # Safety
    /// [`ColumnOperation::initialise`] made the slice, for an earlier version of the row. Since
    /// then nothing has changed the row but merges of other slices. The slice and the row belong to
    /// the caller alone.
    pub unsafe fn merge(&self, slice: NonNull<u8>, row: NonNull<u8>) {
        // SAFETY: the caller keeps the same contract.
        unsafe { (self.functions.merge)(self.get_mut, slice, row) };
    }

    /// Ends the merging of slices into a row.
    ///
    /// # Safety
    /// `row` is a row of the operation's table, and belongs to the caller alone.
    pub unsafe fn finish(&self, row: NonNull<u8>) {
        // SAFETY: the caller keeps the same contract.
        unsafe { (self.functions.finish)(self.get_mut, row) };
    }
}

impl std::fmt::Debug for ColumnOperation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} on column {}", self.kind(), self.column)
    }
}

unsafe fn initialise<R: Record, V, O: Operation<V>>(
    get: fn(),
    row: NonNull<u8>,
    cores: u32,
    slice: NonNull<u8>,
) {
    // SAFETY: called through a `ColumnOperation` of these types, under its contract.
    unsafe {
        let get = std::mem::transmute::<fn(), fn(&R) -> &V>(get);
        let value = get(row.cast::<R>().as_ref());
        slice.cast::<O::Slice>().write(O::slice(value, cores));
    }
}

unsafe fn room<R: Record, V, O: Operation<V>>(
    get: fn(),
    row: NonNull<u8>,
    bounds: Option<&Bounds>,
) -> (u64, u64) {
    // SAFETY: called through a `ColumnOperation` of these types, under its contract.
    unsafe {
        let get = std::mem::transmute::<fn(), fn(&R) -> &V>(get);
        O::room(get(row.cast::<R>().as_ref()), bounds)
    }
}

unsafe fn merge<R: Record, V, O: Operation<V>>(
    get_mut: fn(),
    slice: NonNull<u8>,
    row: NonNull<u8>,
) {
    // SAFETY: called through a `ColumnOperation` of these types, under its contract.
    unsafe {
        let get_mut = std::mem::transmute::<fn(), fn(&mut R) -> &mut V>(get_mut);
        O::merge(slice.cast::<O::Slice>().read(), get_mut(row.cast::<R>().as_mut()));
    }
}

unsafe fn finish<R: Record, V, O: Operation<V>>(get_mut: fn(), row: NonNull<u8>) {
    // SAFETY: called through a `ColumnOperation` of these types, under its contract.
    unsafe {
        let get_mut = std::mem::transmute::<fn(), fn(&mut R) -> &mut V>(get_mut);
        O::finish(get_mut(row.cast::<R>().as_mut()));
    }
}

/// An operation on a column that can be applied to several versions of a row, without its types. The
/// operation's own value lies elsewhere.
#[derive(Clone, Copy)]
pub struct RepeatableOperation {
    /// A `fn(&mut R) -> &mut V`.
    get_mut: fn(),
    bounds: Option<&'static Bounds>,
    apply: Apply,
}

/// Applies an operation to a row, from an accessor of the column, the column's bounds, the operation's own value, and the row.
type Apply = unsafe fn(fn(), Option<&Bounds>, *const u8, NonNull<u8>) -> bool;

impl RepeatableOperation {
    /// Returns the operation `O` on a column.
    #[inline(always)]
    pub fn new<R: Record, V: 'static, O: Operation<V>>(column: ColumnOf<R, V>) -> Self {
        // SAFETY: all function pointers have the same representation, and `apply` gives this one its
        // type back before it calls it.
        let get_mut = unsafe { std::mem::transmute::<fn(&mut R) -> &mut V, fn()>(column.get_mut) };
        RepeatableOperation { get_mut, bounds: column.bounds(), apply: apply::<R, V, O> }
    }

    /// Applies the operation to a row. Returns whether there is enough for it, and the result is in the range of the
    /// column's type; if not, the row is unchanged. This runs the user's code.
    ///
    /// # Safety
    /// `operation` is the value of the operation, and does not change during the call. `row` is a row of the
    /// operation's table, and belongs to the caller alone.
    pub unsafe fn apply(&self, operation: *const u8, row: NonNull<u8>) -> bool {
        // SAFETY: the caller keeps the same contract.
        unsafe { (self.apply)(self.get_mut, self.bounds, operation, row) }
    }
}

unsafe fn apply<R: Record, V: 'static, O: Operation<V>>(
    get_mut: fn(),
    bounds: Option<&Bounds>,
    operation: *const u8,
    row: NonNull<u8>,
) -> bool {
    // SAFETY: called through a `RepeatableOperation` of these types, under its contract.
    unsafe {
        let get_mut = std::mem::transmute::<fn(), fn(&mut R) -> &mut V>(get_mut);
        let operation = &*operation.cast::<O>();
        let value = get_mut(row.cast::<R>().as_mut());
        operation.shortage(value, bounds).is_none() && operation.apply(value).is_ok()
    }
}

/// The undo log for slices: what a transaction did to slices, to be undone if it does not commit.
#[derive(Default)]
pub struct UndoLog {
    steps: Vec<UndoStep>,
    /// Whether one of the operations [has a stamp](Operation::IS_STAMPED).
    is_stamped: bool,
}

// SAFETY: an undo log moves between threads only together with its worker, between transactions,
// when it is empty.
unsafe impl Send for UndoLog {}

/// Space for what most operations need to be undone.
type InlineUndo = MaybeUninit<[u64; 6]>;

struct UndoStep {
    slice: NonNull<u8>,
    end: unsafe fn(&mut InlineUndo, NonNull<u8>, StepEnd),
    undo: InlineUndo,
}

/// How a step ends.
#[derive(Clone, Copy)]
enum StepEnd {
    Undone,
    /// The transaction commits, with this stamp.
    Committed(u64),
    /// Only what the undo would have needed is dropped.
    Forgotten,
}

impl UndoLog {
    /// Records that `undo` reverses what was just done to a slice.
    ///
    /// # Safety
    /// `slice` is a slice of `O`, and `undo` belongs to the last change of it. The slice stays at
    /// this address until the log [is undone](UndoLog::undo) or [committed](UndoLog::commit).
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub unsafe fn push<V, O: Operation<V>>(&mut self, slice: NonNull<u8>, undo: O::Undo) {
        let mut place = InlineUndo::uninit();
        let end = if const {
            size_of::<O::Undo>() <= size_of::<InlineUndo>()
                && align_of::<O::Undo>() <= align_of::<InlineUndo>()
        } {
            // SAFETY: the value fits in the space.
            unsafe { place.as_mut_ptr().cast::<O::Undo>().write(undo) };
            end_inline::<V, O>
        } else {
            // SAFETY: a box is a pointer, which fits in the space.
            unsafe { place.as_mut_ptr().cast::<Box<O::Undo>>().write(Box::new(undo)) };
            end_boxed::<V, O>
        };
        self.is_stamped |= O::IS_STAMPED;
        self.steps.push(UndoStep { slice, end, undo: place });
    }

    /// Returns whether nothing was done to slices.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether the transaction needs a stamp when it commits.
    #[inline(always)]
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Returns how many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Undoes everything, in reverse order.
    pub fn undo(&mut self) {
        self.undo_to(0);
        self.is_stamped = false;
    }

    /// Undoes all but the first `steps` steps, in reverse order.
    pub fn undo_to(&mut self, steps: usize) {
        while self.steps.len() > steps
            && let Some(mut step) = self.steps.pop()
        {
            // SAFETY: `push` wrote it for this type, and it is taken only once.
            unsafe { (step.end)(&mut step.undo, step.slice, StepEnd::Undone) };
        }
    }

    /// Forgets everything, because the transaction commits. What it did gets this stamp, if it
    /// [needs one](UndoLog::is_stamped).
    #[inline(always)]
    pub fn commit(&mut self, stamp: u64) {
        self.end(StepEnd::Committed(stamp));
        self.is_stamped = false;
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn end(&mut self, end: StepEnd) {
        let steps = self.steps.len();
        let first = self.steps.as_mut_ptr();
        // SAFETY: as in `undo`. The list is emptied first, so each step is ended only once, even if one panics. (A
        // `drain` does the same, but keeps its state on the stack, where loads have to wait for its stores.)
        unsafe {
            self.steps.set_len(0);
            for step in 0..steps {
                let step = &mut *first.add(step);
                (step.end)(&mut step.undo, step.slice, end);
            }
        }
    }
}

impl Drop for UndoLog {
    fn drop(&mut self) {
        self.end(StepEnd::Forgotten);
    }
}

unsafe fn end_inline<V, O: Operation<V>>(undo: &mut InlineUndo, slice: NonNull<u8>, end: StepEnd) {
    if !matches!(end, StepEnd::Undone)
        && const { !std::mem::needs_drop::<O::Undo>() && !O::IS_STAMPED }
    {
        return;
    }
    // SAFETY: `UndoLog::push` wrote it, and it is taken only once; for the slice see its contract.
    unsafe { end_step::<V, O>(undo.as_mut_ptr().cast::<O::Undo>().read(), slice, end) }
}

unsafe fn end_boxed<V, O: Operation<V>>(undo: &mut InlineUndo, slice: NonNull<u8>, end: StepEnd) {
    // SAFETY: as in `end_inline`.
    unsafe { end_step::<V, O>(*undo.as_mut_ptr().cast::<Box<O::Undo>>().read(), slice, end) }
}

/// # Safety
/// By the contract of [`UndoLog::push`]; the log has not ended.
unsafe fn end_step<V, O: Operation<V>>(undo: O::Undo, slice: NonNull<u8>, end: StepEnd) {
    // SAFETY: by the contract. If the step is only forgotten, the slice is not touched.
    let slice = || unsafe { slice.cast::<O::Slice>().as_mut() };
    match end {
        StepEnd::Undone => O::undo(slice(), undo),
        StepEnd::Committed(stamp) => O::settle(slice(), stamp),
        StepEnd::Forgotten => {}
    }
}
