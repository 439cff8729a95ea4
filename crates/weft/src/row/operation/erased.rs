//! Operations as the layers below know them, which know no types: a column's [`ColumnOperation`], the
//! slices that it makes, and what it takes to undo what was done to them.

use std::alloc::Layout;
use std::any::TypeId;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::{ColumnOf, Operation, OperationKind};
use crate::row::schema::Record;

/// A column and an operation on it, without their types.
#[derive(Clone, Copy)]
pub struct ColumnOperation {
    column: usize,
    functions: &'static Functions,
    /// A `fn(&R) -> &V`.
    get: fn(),
    /// A `fn(&mut R) -> &mut V`.
    get_mut: fn(),
}

/// With an accessor, a row, and how many cores there are, makes a slice in a place.
type Initialise = unsafe fn(fn(), NonNull<u8>, u32, NonNull<u8>);

/// What is done with slices of a type.
struct Functions {
    kind: OperationKind,
    /// Identifies the types of the row, the column and the operation, which decide what a slice is.
    types: fn() -> TypeId,
    layout: Layout,
    /// Makes a slice in a place, for one of so many cores.
    initialise: Initialise,
    /// Takes a slice out of its place, and adds it to the row.
    merge: unsafe fn(get_mut: fn(), slice: NonNull<u8>, row: NonNull<u8>),
}

impl ColumnOperation {
    /// The operation `O` on a column; `None` if its slices own memory, or the column.
    #[inline(always)]
    pub fn new<R: Record, V: 'static, O: Operation<V>>(column: ColumnOf<R, V>) -> Option<Self> {
        if const { std::mem::needs_drop::<V>() || std::mem::needs_drop::<O::Slice>() } {
            return None;
        }
        // SAFETY: function pointers have one representation; `initialise` and `merge` give these their
        // types back.
        let (get, get_mut) = unsafe {
            (
                std::mem::transmute::<fn(&R) -> &V, fn()>(column.get),
                std::mem::transmute::<fn(&mut R) -> &mut V, fn()>(column.get_mut),
            )
        };
        let functions = const {
            &Functions {
                kind: O::KIND,
                types: TypeId::of::<(R, V, O)>,
                layout: Layout::new::<O::Slice>(),
                initialise: initialise::<R, V, O>,
                merge: merge::<R, V, O>,
            }
        };
        Some(ColumnOperation { column: column.position(), functions, get, get_mut })
    }

    /// The column's position.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The operation's kind.
    pub fn kind(&self) -> OperationKind {
        self.functions.kind
    }

    /// Whether it is the same operation on the same column, of the same types: then, and only then,
    /// slices of one are slices of the other. (A kind is not enough. An application that writes a [`Record`] by hand
    /// may name a column with two types.)
    #[inline(always)]
    pub fn is_same(&self, other: &ColumnOperation) -> bool {
        // One operation has one static, nearly always.
        let is_same_type = std::ptr::eq(self.functions, other.functions)
            || (self.functions.types)() == (other.functions.types)();
        self.column == other.column && is_same_type
    }

    /// The layout of a slice.
    pub fn slice_layout(&self) -> Layout {
        self.functions.layout
    }

    /// Makes a slice for one of `cores` workers.
    ///
    /// # Safety
    /// `row` is a row of the operation's table, which does not change meanwhile; `slice` is a place of
    /// the slice's layout, the caller's own.
    pub unsafe fn initialise(&self, row: NonNull<u8>, cores: u32, slice: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.initialise)(self.get, row, cores, slice) };
    }

    /// Adds a slice to a row. The slice is gone then.
    ///
    /// # Safety
    /// [`ColumnOperation::initialise`] has made the slice, for an earlier version of the row, to which
    /// nothing has been done since but the merging of others; both are the caller's own.
    pub unsafe fn merge(&self, slice: NonNull<u8>, row: NonNull<u8>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.merge)(self.get_mut, slice, row) };
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

/// What a transaction has done to slices, to be undone if it does not commit.
#[derive(Default)]
pub struct UndoLog {
    steps: Vec<Step>,
}

// SAFETY: an undo log moves between threads only with its worker, empty between transactions.
unsafe impl Send for UndoLog {}

/// Room for what most operations need to be undone.
type Inline = MaybeUninit<[u64; 6]>;

struct Step {
    slice: NonNull<u8>,
    /// Undoes the step, or else drops what that would have needed.
    end: unsafe fn(&mut Inline, Option<NonNull<u8>>),
    undo: Inline,
}

impl UndoLog {
    /// Notes that `undo` takes back what was done to a slice.
    ///
    /// # Safety
    /// `slice` is a slice of `O`, to which this was done just now; it stays where it is until the log
    /// is [ended](UndoLog::forget).
    #[inline(always)]
    pub unsafe fn push<V, O: Operation<V>>(&mut self, slice: NonNull<u8>, undo: O::Undo) {
        let mut place = Inline::uninit();
        let end = if const {
            size_of::<O::Undo>() <= size_of::<Inline>()
                && align_of::<O::Undo>() <= align_of::<Inline>()
        } {
            // SAFETY: it fits.
            unsafe { place.as_mut_ptr().cast::<O::Undo>().write(undo) };
            end_inline::<V, O>
        } else {
            // SAFETY: a box is a pointer, which fits.
            unsafe { place.as_mut_ptr().cast::<Box<O::Undo>>().write(Box::new(undo)) };
            end_boxed::<V, O>
        };
        self.steps.push(Step { slice, end, undo: place });
    }

    /// Whether nothing was done.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Undoes everything, the last first.
    pub fn undo(&mut self) {
        while let Some(mut step) = self.steps.pop() {
            // SAFETY: written by `push` for this type, and taken once.
            unsafe { (step.end)(&mut step.undo, Some(step.slice)) };
        }
    }

    /// Forgets everything: it has been committed.
    #[inline(always)]
    pub fn forget(&mut self) {
        for mut step in self.steps.drain(..) {
            // SAFETY: as in `undo`.
            unsafe { (step.end)(&mut step.undo, None) };
        }
    }
}

impl Drop for UndoLog {
    fn drop(&mut self) {
        self.forget();
    }
}

unsafe fn end_inline<V, O: Operation<V>>(undo: &mut Inline, slice: Option<NonNull<u8>>) {
    if slice.is_none() && !std::mem::needs_drop::<O::Undo>() {
        return;
    }
    // SAFETY: `UndoLog::push` has written it, and it is taken once.
    let undo = unsafe { undo.as_mut_ptr().cast::<O::Undo>().read() };
    if let Some(slice) = slice {
        // SAFETY: by the contract of `UndoLog::push`.
        O::undo(unsafe { slice.cast::<O::Slice>().as_mut() }, undo);
    }
}

unsafe fn end_boxed<V, O: Operation<V>>(undo: &mut Inline, slice: Option<NonNull<u8>>) {
    // SAFETY: as in `end_inline`.
    let undo = unsafe { undo.as_mut_ptr().cast::<Box<O::Undo>>().read() };
    if let Some(slice) = slice {
        // SAFETY: by the contract of `UndoLog::push`.
        O::undo(unsafe { slice.cast::<O::Slice>().as_mut() }, *undo);
    }
}
