//! The indexes of a table: each is a B+-tree or a hash table, over keys in the narrowest form that holds
//! them.

use std::cell::UnsafeCell;
use std::ops::{Bound, Deref};

use weft_htm::Region;

use super::{AnySecondary, Secondary};
use crate::index::bplus_tree::{BPlusTree, Direction, LeafHint, Page};
use crate::index::hash::HashTable;
use crate::index::{Insertion, LongKey, Lookup, RunInsertion};
use crate::row::encoding::KeyForm;
use crate::row::schema::Storage;
use crate::store::worker::{IndexMemory, WorkerMemory};

/// The form in which an index holds its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `u64`: keys of up to eight bytes.
    Words1,
    /// `u128`: keys of up to sixteen bytes.
    Words2,
    /// [`LongKey`]: longer keys, and keys of varying width.
    Long,
}

/// Returns the narrowest form for keys of the given width; `None` is a varying width.
pub const fn form_of(width_bytes: Option<usize>) -> Form {
    match width_bytes {
        Some(0..=8) => Form::Words1,
        Some(9..=16) => Form::Words2,
        _ => Form::Long,
    }
}

/// An index over keys of one form.
pub enum FormIndex<K: KeyForm> {
    Ordered(BPlusTree<K>),
    Hash(HashTable<K>),
}

impl<K: KeyForm> FormIndex<K> {
    pub(super) fn new(storage: Storage, capacity: usize, memory: &IndexMemory<'_>) -> Self {
        match storage {
            Storage::Ordered => FormIndex::Ordered(BPlusTree::new(memory)),
            Storage::Hash => FormIndex::Hash(HashTable::with_capacity(capacity, memory)),
        }
    }

    #[inline(always)]
    pub fn get(&self, key: &K, hint: &mut LeafHint<K>) -> Lookup {
        match self {
            FormIndex::Ordered(tree) => tree.get(key, hint),
            FormIndex::Hash(table) => table.get(key),
        }
    }

    /// Looks up a key, if there is a `region`, as a part of it: the caller has begun it for this look-up alone.
    #[inline(always)]
    pub fn look_up(&self, region: Option<&Region>, key: &K, hint: &mut LeafHint<K>) -> Lookup {
        match (self, region) {
            (_, None) => self.get(key, hint),
            (FormIndex::Ordered(tree), Some(region)) => tree.get_in(region, key, hint),
            (FormIndex::Hash(table), Some(region)) => table.get_in(region, key),
        }
    }

    /// Looks up a few keys at the same time, so that their waits for memory overlap. Passes the results to `found`
    /// in the order of the keys.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn get_batch(&self, keys: &[K], hint: &mut LeafHint<K>, mut found: impl FnMut(Lookup)) {
        match self {
            FormIndex::Ordered(tree) => tree.get_batch(keys, hint, found),
            FormIndex::Hash(table) => {
                keys.iter().for_each(|key| table.prefetch(key));
                keys.iter().for_each(|key| found(table.get(key)));
            }
        }
    }

    /// Prefetches what [`FormIndex::get`] will read first, if that is known without reading anything.
    #[inline(always)]
    pub fn prefetch(&self, key: &K) {
        if let FormIndex::Hash(table) = self {
            table.prefetch(key);
        }
    }

    #[inline(always)]
    pub fn get_or_insert(
        &self,
        key: &K,
        address: u64,
        hint: &mut LeafHint<K>,
        memory: &IndexMemory<'_>,
    ) -> Insertion {
        match self {
            FormIndex::Ordered(tree) => tree.get_or_insert(key, address, hint, memory),
            FormIndex::Hash(table) => table.get_or_insert(key, address, memory),
        }
    }

    /// Inserts keys from the beginning of a run, which has at least one key. A B+-tree inserts as many as a leaf
    /// takes under one lock, a hash table one.
    #[inline]
    pub fn insert_run(
        &self,
        run: &[(K, u64)],
        hint: &mut LeafHint<K>,
        memory: &IndexMemory<'_>,
    ) -> RunInsertion {
        match self {
            FormIndex::Ordered(tree) => tree.insert_run(run, hint, memory),
            FormIndex::Hash(table) => table.get_or_insert(&run[0].0, run[0].1, memory).into(),
        }
    }

    /// Calls `visit` with the address of every record. A record that is in the index throughout the call is
    /// visited once. (The function is compiled once for each form of keys, and not for each caller and row type.)
    pub fn for_each_address(&self, memory: &WorkerMemory, visit: &mut dyn FnMut(u64)) {
        match self {
            FormIndex::Ordered(tree) => {
                let (mut page, mut hint) = (Page::new(), LeafHint::new());
                let mut next = Some(Bound::Unbounded);
                while let Some(from) = next {
                    let (from, to) = (from.as_ref(), Bound::Unbounded);
                    tree.read_page(from, to, Direction::Forward, &mut page, &mut hint, memory);
                    page.addresses().iter().for_each(|&address| visit(address));
                    next = page.take_next();
                }
            }
            FormIndex::Hash(table) => table.for_each(|_, address| visit(address)),
        }
    }

    pub fn remove(&self, key: &K, address: u64, memory: &IndexMemory<'_>) -> bool {
        match self {
            FormIndex::Ordered(tree) => tree.remove(key, address, memory),
            FormIndex::Hash(table) => table.remove(key, address, memory),
        }
    }

    /// Calls `visit`, if there is one, with every record, and frees the index's memory.
    pub(super) fn tear_down(&mut self, memory: &WorkerMemory, visit: Option<impl FnMut(u64)>) {
        match self {
            FormIndex::Ordered(tree) => {
                if let Some(mut visit) = visit {
                    tree.for_each(|_, address| visit(address));
                }
                tree.clear(memory);
            }
            FormIndex::Hash(table) => {
                if let Some(mut visit) = visit {
                    table.for_each(|_, address| visit(address));
                }
                table.clear(memory);
            }
        }
    }
}

/// An index that is shared until its database is dropped; then it is torn down.
pub struct SharedIndex<I>(pub(super) UnsafeCell<I>);

// SAFETY: indexes are made to be shared. Only `tear_down` takes exclusive access, and its caller guarantees
// that nothing else uses the index any more.
unsafe impl<I: Sync> Sync for SharedIndex<I> {}

impl<I> SharedIndex<I> {
    pub(super) fn new(index: I) -> Self {
        SharedIndex(UnsafeCell::new(index))
    }
}

impl<I> Deref for SharedIndex<I> {
    type Target = I;

    #[inline(always)]
    fn deref(&self) -> &I {
        // SAFETY: see the Sync impl.
        unsafe { &*self.0.get() }
    }
}

/// An index over keys of any form.
pub enum AnyIndex {
    Words1(FormIndex<u64>),
    Words2(FormIndex<u128>),
    Long(FormIndex<LongKey>),
}

/// A form of keys that can select its index from an index of any form.
pub trait PickForm: KeyForm {
    /// Returns the index, which must be of this form.
    fn pick(index: &AnyIndex) -> &FormIndex<Self>;
    /// Returns the secondary index, which must be of this form.
    fn pick_secondary(index: &AnySecondary) -> &Secondary<Self>;
}

macro_rules! pick_form {
    ($key:ty, $variant:ident) => {
        impl PickForm for $key {
            #[inline(always)]
            fn pick(index: &AnyIndex) -> &FormIndex<Self> {
                match index {
                    AnyIndex::$variant(index) => index,
                    _ => unreachable!("an index is made in the form of its key's width"),
                }
            }

            fn pick_secondary(index: &AnySecondary) -> &Secondary<Self> {
                match index {
                    AnySecondary::$variant(index) => index,
                    _ => unreachable!("an index is made in the form of its key's width"),
                }
            }
        }
    };
}

pick_form!(u64, Words1);
pick_form!(u128, Words2);
pick_form!(LongKey, Long);

impl AnyIndex {
    pub(super) fn new(
        form: Form,
        storage: Storage,
        capacity: usize,
        memory: &IndexMemory<'_>,
    ) -> Self {
        match form {
            Form::Words1 => AnyIndex::Words1(FormIndex::new(storage, capacity, memory)),
            Form::Words2 => AnyIndex::Words2(FormIndex::new(storage, capacity, memory)),
            Form::Long => AnyIndex::Long(FormIndex::new(storage, capacity, memory)),
        }
    }

    pub(super) fn tear_down(&mut self, memory: &WorkerMemory, visit: Option<impl FnMut(u64)>) {
        match self {
            AnyIndex::Words1(index) => index.tear_down(memory, visit),
            AnyIndex::Words2(index) => index.tear_down(memory, visit),
            AnyIndex::Long(index) => index.tear_down(memory, visit),
        }
    }
}

/// Evaluates an expression with the form of keys of a given constant width as a type parameter.
///
/// The conditions are constants of their own, and not a `match`, because the compiler then leaves the other two
/// expressions out before it compiles them.
#[doc(hidden)]
#[macro_export]
macro_rules! with_form {
    ($width:expr, |$form:ident| $body:expr) => {{
        use $crate::store::table::{Form, form_of};
        if const { matches!(form_of($width), Form::Words1) } {
            type $form = u64;
            $body
        } else if const { matches!(form_of($width), Form::Words2) } {
            type $form = u128;
            $body
        } else {
            type $form = $crate::index::LongKey;
            $body
        }
    }};
}
pub use with_form;

/// Evaluates an expression with a secondary index of any form.
macro_rules! with_secondary {
    ($secondary:expr, |$index:ident| $body:expr) => {
        match $secondary {
            $crate::store::table::AnySecondary::Words1($index) => $body,
            $crate::store::table::AnySecondary::Words2($index) => $body,
            $crate::store::table::AnySecondary::Long($index) => $body,
        }
    };
}
pub(crate) use with_secondary;
