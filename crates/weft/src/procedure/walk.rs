//! The walk over a procedure's body, pass by pass: which instances run, and which keep what they had.

use std::cell::{Cell, RefCell};

use crate::error::{Conflict, ConflictReason, Error};
use crate::procedure::instance::{Instance, Iteration, LOOPS_MAX};
use crate::procedure::operations::At;
use crate::procedure::place::Place;
use crate::procedure::shape::{Dependency, Shape};
use crate::procedure::slot::{Entry, Slot};
use crate::procedure::{Accessed, Again, Driver, Next, Selection};
use crate::protocol::Protocol;
use crate::schema::Record;
use crate::table::Table;

/// A procedure that is being executed. `#[procedure]` writes what calls it.
#[doc(hidden)]
pub struct Walk<'tx, P: Protocol, D: Driver<P>> {
    pub(super) driver: &'tx D,
    shape: &'static Shape,
    /// Counted from 1.
    pass: Cell<u32>,
    selection: RefCell<Selection>,
    /// Where the walk is in the loops around it.
    iteration: Cell<Iteration>,
    /// What has run since the last pass that went through.
    run: RefCell<Vec<Instance>>,
    /// What may have changed rows, in this pass or one before.
    writes: RefCell<Vec<Write>>,
    /// Scans that have to read on, where the selection would have them keep what they have read.
    longer: RefCell<Vec<Instance>>,
    is_interrupted: Cell<bool>,
    protocol: std::marker::PhantomData<fn() -> P>,
}

/// An instance that may have changed a row.
struct Write {
    instance: Instance,
    table: &'static str,
    place: Place,
    /// The last pass that came by.
    pass: u32,
    /// Whether it has run since the last pass that went through, and the places that it had before.
    has_run: bool,
    earlier: Vec<Place>,
}

/// What is to be done about an instance.
pub(super) enum Decision<R> {
    Keep(R),
    Run,
}

impl<'tx, P: Protocol, D: Driver<P>> Walk<'tx, P, D> {
    pub fn new(driver: &'tx D, shape: &'static Shape) -> Self {
        Walk {
            driver,
            shape,
            pass: Cell::new(0),
            selection: RefCell::new(Selection::Everything),
            iteration: Cell::default(),
            run: RefCell::default(),
            writes: RefCell::default(),
            longer: RefCell::default(),
            is_interrupted: Cell::new(false),
            protocol: std::marker::PhantomData,
        }
    }

    /// Begins the next pass.
    pub fn begin_pass(&self) {
        self.pass.set(self.pass.get() + 1);
        self.iteration.set(Iteration::default());
    }

    /// Ends a pass; whether another is to follow. One that returned an error may have ended early, and the
    /// steps that it has not come by are left alone.
    pub fn end_pass(&self, is_ok: bool) -> bool {
        if self.is_interrupted.replace(false) {
            return true;
        }
        if is_ok {
            let pass = self.pass.get();
            self.run.borrow_mut().clear();
            self.writes.borrow_mut().retain_mut(|write| {
                write.has_run = false;
                write.earlier.clear();
                write.pass == pass
            });
        }
        match self.driver.end_pass(is_ok) {
            Next::Return => false,
            Next::Pass(selection) => {
                self.longer.borrow_mut().clear();
                *self.selection.borrow_mut() = selection;
                true
            }
        }
    }

    /// Forgets the instances of a step that a pass that went through has not come by.
    pub fn sweep<R>(&self, step: usize, slot: &Slot<R>) {
        if self.is_interrupted.get() {
            return;
        }
        slot.sweep(self.pass.get(), |iteration| {
            self.driver.discard(Instance { step, iteration });
        });
    }

    /// Comes to a loop.
    pub fn enter_loop(&self, number: usize) {
        let depth = self.shape.loops[number].depth;
        let mut iteration = self.iteration.get();
        iteration.set(depth, 0);
        self.iteration.set(iteration);
    }

    /// Begins an iteration of a loop.
    pub fn iterate(&self, number: usize) {
        let depth = self.shape.loops[number].depth;
        let mut iteration = self.iteration.get();
        iteration.set(depth, iteration.at(depth) + 1);
        self.iteration.set(iteration);
    }

    /// The operation of a step.
    pub fn at(&self, step: usize) -> At<'_, 'tx, P, D> {
        let depth = self.shape.steps[step].loops.len();
        debug_assert!(depth <= LOOPS_MAX);
        At { walk: self, instance: Instance { step, iteration: self.iteration.get().outer(depth) } }
    }

    /// A hint, for the first pass alone: afterwards the rows are near.
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<(), Error> {
        match self.pass.get() {
            1 => self.driver.transaction().prefetch(table, keys),
            _ => Ok(()),
        }
    }

    /// See [`Walk::prefetch`].
    pub fn prefetch_for_update<T: Record>(
        &self,
        table: &Table<T, P>,
        keys: impl IntoIterator<Item = T::Key>,
    ) -> Result<(), Error> {
        match self.pass.get() {
            1 => self.driver.transaction().prefetch_for_update(table, keys),
            _ => Ok(()),
        }
    }

    pub(super) fn shape(&self) -> &'static Shape {
        self.shape
    }

    /// Decides whether an instance runs. If it does, it is known from now on that it has.
    pub(super) fn decide<T: Record, R, K>(
        &self,
        instance: Instance,
        slot: &Slot<R>,
        table: &Table<T, P>,
        key: Option<&T::Key>,
        place: &Place,
        keep: impl FnOnce(&R) -> K,
    ) -> Result<Decision<K>, Error> {
        let access = self.shape.steps[instance.step].access;
        let pass = self.pass.get();
        let accessed = |again| Accessed { instance, access, table, key, place, again };
        let again = match slot.find(instance.iteration) {
            None => None,
            Some(mut entry) => {
                let is_same = entry.place == *place;
                if self.keeps::<T>(instance, &entry.place) {
                    // The dependencies are to be a superset of what there is.
                    debug_assert!(
                        is_same,
                        "{}, step {instance}: another key, by nothing that its shape says: {:?} and \
                         {place:?}",
                        self.shape.name, entry.place
                    );
                    if is_same {
                        entry.pass = pass;
                        let kept = keep(&entry.result);
                        drop(entry);
                        self.note_kept(instance);
                        self.driver.keep(&accessed(None))?;
                        return Ok(Decision::Keep(kept));
                    }
                }
                drop(entry);
                slot.remove(instance.iteration);
                Some(if is_same { Again::SamePlace } else { Again::OtherPlace })
            }
        };
        if pass > 1 {
            self.run.borrow_mut().push(instance);
        }
        if access.writes() {
            self.note_run(instance, T::TABLE, place);
        }
        self.driver.enter(&accessed(again))?;
        Ok(Decision::Run)
    }

    /// Whether an instance that has run before keeps what it had.
    fn keeps<T: Record>(&self, instance: Instance, place: &Place) -> bool {
        if self.longer.borrow().contains(&instance) {
            return false;
        }
        match &*self.selection.borrow() {
            Selection::Everything => false,
            Selection::From(first) => instance.step < *first,
            Selection::Stale(stale) => {
                !stale.contains(&instance)
                    && !self.is_reached(instance)
                    && !self.sees_a_change::<T>(instance, place)
            }
        }
    }

    /// Whether an instance depends on one that has run in this pass.
    fn is_reached(&self, instance: Instance) -> bool {
        let run = self.run.borrow();
        let reaches = |dependency: Dependency| {
            run.iter().any(|&source| self.shape.reaches(dependency, source, instance))
        };
        self.shape.steps[instance.step].dependencies().any(reaches)
    }

    /// Whether an instance may have seen rows that this transaction wrote before it, and now writes
    /// otherwise, or not at all.
    fn sees_a_change<T: Record>(&self, instance: Instance, place: &Place) -> bool {
        let pass = self.pass.get();
        self.writes.borrow().iter().any(|write| {
            let is_kept = write.pass == pass && !write.has_run;
            let mut places = std::iter::once(&write.place).chain(&write.earlier);
            write.table == T::TABLE
                && !is_kept
                && self.shape.precedes(write.instance, instance)
                && places.any(|written| written.may_meet(place))
        })
    }

    fn note_kept(&self, instance: Instance) {
        let pass = self.pass.get();
        if let Some(write) = self.writes.borrow_mut().iter_mut().find(|w| w.instance == instance) {
            write.pass = pass;
        }
    }

    fn note_run(&self, instance: Instance, table: &'static str, place: &Place) {
        let pass = self.pass.get();
        let mut writes = self.writes.borrow_mut();
        if pass > 1
            && let Some(write) = writes.iter_mut().find(|write| write.instance == instance)
        {
            write.earlier.push(std::mem::replace(&mut write.place, place.clone()));
            (write.pass, write.has_run) = (pass, true);
            return;
        }
        let place = place.clone();
        writes.push(Write { instance, table, place, pass, has_run: pass > 1, earlier: Vec::new() });
    }

    /// Notes what an instance has returned.
    pub(super) fn put<R>(&self, instance: Instance, slot: &Slot<R>, place: Place, result: R) {
        let pass = self.pass.get();
        slot.put(Entry { iteration: instance.iteration, place, result, pass });
    }

    /// Has the pass walked again, with an instance run that was to be kept: an error that ends it.
    pub(super) fn read_on<T: Record>(&self, instance: Instance) -> Error {
        self.longer.borrow_mut().push(instance);
        self.is_interrupted.set(true);
        let (reason, table) = (ConflictReason::RangeChanged, T::TABLE);
        Conflict { reason, table, index: None, key: None }.into()
    }
}
