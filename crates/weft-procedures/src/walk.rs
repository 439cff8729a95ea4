//! The walk over a procedure's body, pass by pass: which instances run, and which keep what they had.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;

use crate::operations::At;
use crate::place::Place;
use crate::slot::{Entry, Slot};
use crate::{Accessed, Again, Driver, Next, Passes, Selection};
use weft::commit::Protocol;
use weft::plan::{Dependency, Shape};
use weft::schema::Record;
use weft::step::{Instance, Iteration, LOOPS_MAX};
use weft::store::table::Table;
use weft::{Conflict, ConflictReason, Error};

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
    /// What has returned something else than before, since the last pass that went through: of each step, which
    /// iterations.
    changed: RefCell<Vec<Vec<Iteration>>>,
    /// What may have changed rows, in this pass or one before.
    writes: RefCell<Writes>,
    /// Scans that have to read on, where the selection would have them keep what they have read.
    longer: RefCell<Vec<Instance>>,
    is_interrupted: Cell<bool>,
    protocol: std::marker::PhantomData<fn() -> P>,
}

/// The instances that may have changed rows.
#[derive(Default)]
struct Writes {
    /// In the order in which they run: those of this pass, and behind them, as the last one left them, those
    /// that it has not come by yet.
    all: Vec<Write>,
    /// How many of them this pass has come by.
    come_by: usize,
    /// What has been written otherwise than before since the last pass that went through, or not at all any
    /// more: the table, and a place. Who looks there has to look again, behind it.
    changed: Vec<(Instance, &'static str, Place)>,
}

/// An instance that may have changed a row.
struct Write {
    instance: Instance,
    table: &'static str,
    place: Place,
}

impl Writes {
    /// Comes to an instance: writes before it that this pass has not come by are not made any more.
    fn come_to(&mut self, instance: Instance, shape: &Shape) {
        let passed = |write: &Write| shape.precedes(write.instance, instance);
        let behind = &self.all[self.come_by..];
        let gone = behind.iter().take_while(|write| passed(write)).count();
        let gone = self.all.drain(self.come_by..self.come_by + gone);
        self.changed.extend(gone.map(|Write { instance, table, place }| (instance, table, place)));
    }

    /// Whether the next is this instance's.
    fn is_next(&self, instance: Instance) -> bool {
        self.all.get(self.come_by).is_some_and(|write| write.instance == instance)
    }
}

/// What is to be done about an instance.
pub(super) enum Decision<R, K> {
    /// It keeps what it had.
    Keep(K),
    /// It runs; what it has returned before, if it has.
    Run(Option<R>),
}

impl<'tx, P: Protocol, D: Driver<P>> Walk<'tx, P, D> {
    pub fn new(driver: &'tx D, shape: &'static Shape) -> Self {
        Walk {
            driver,
            shape,
            pass: Cell::new(0),
            selection: RefCell::new(Selection::Everything),
            iteration: Cell::default(),
            changed: RefCell::default(),
            writes: RefCell::default(),
            longer: RefCell::default(),
            is_interrupted: Cell::new(false),
            protocol: std::marker::PhantomData,
        }
    }

    /// Begins the next pass.
    pub fn begin_pass(&self) {
        self.pass.set(self.pass.get() + 1);
        self.iteration.set(Iteration::NONE);
        self.writes.borrow_mut().come_by = 0;
    }

    /// Runs a pass. If it ends with a panic that the driver is to be told of, returns that.
    #[inline(always)]
    pub fn pass<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        self.driver.run_pass(body)
    }

    /// What the last pass has come to.
    #[inline(always)]
    pub fn ended<R>(result: std::thread::Result<R>) -> R {
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Ends a pass; whether another is to follow. One that returned an error may have ended early, and the
    /// steps that it has not come by are left alone.
    pub fn end_pass(&self, is_ok: bool) -> bool {
        if self.is_interrupted.replace(false) {
            self.driver.restart_pass();
            return true;
        }
        if matches!(D::PASSES, Passes::Any) && is_ok && self.pass.get() > 1 {
            self.changed.borrow_mut().iter_mut().for_each(Vec::clear);
            let writes = &mut *self.writes.borrow_mut();
            writes.all.truncate(writes.come_by);
            writes.changed.clear();
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

    /// Whether the first pass has just ended, and it is to be [noted](Walk::note_writes) what it has written.
    pub fn is_to_note_writes(&self) -> bool {
        matches!(D::PASSES, Passes::Any) && self.pass.get() == 1
    }

    /// Notes what a step has written in the first pass. (To be followed by [`Walk::order_writes`].)
    pub fn note_writes<R>(&self, step: usize, slot: &Slot<R>) {
        let described = &self.shape.steps[step];
        if described.access.writes() {
            let all = &mut self.writes.borrow_mut().all;
            slot.for_each(|iteration, place| {
                let (table, place) = (described.table.name, place.clone());
                all.push(Write { instance: Instance { step, iteration }, table, place });
            });
        }
    }

    /// Puts the writes that were noted in the order in which they were made.
    pub fn order_writes(&self) {
        let precedes =
            |one: &Write, other: &Write| self.shape.precedes(one.instance, other.instance);
        let all = &mut self.writes.borrow_mut().all;
        all.sort_by(|one, other| precedes(other, one).cmp(&precedes(one, other)));
    }

    /// Forgets the instances of a step that a pass that went through has not come by.
    pub fn sweep<R>(&self, step: usize, slot: &Slot<R>) {
        // Behind the step that a pass begins with nothing is kept.
        if !matches!(D::PASSES, Passes::Any) || self.is_interrupted.get() {
            return;
        }
        slot.sweep(self.pass.get(), |iteration| {
            self.driver.discard(Instance { step, iteration });
        });
    }

    /// Comes to a loop.
    #[inline]
    pub fn enter_loop(&self, number: usize) {
        if matches!(D::PASSES, Passes::One) {
            return;
        }
        let depth = self.shape.loops[number].depth;
        let mut iteration = self.iteration.get();
        iteration.set(depth, 0);
        self.iteration.set(iteration);
    }

    /// Begins an iteration of a loop.
    #[inline]
    pub fn iterate(&self, number: usize) {
        if matches!(D::PASSES, Passes::One) {
            return;
        }
        let depth = self.shape.loops[number].depth;
        let mut iteration = self.iteration.get();
        iteration.set(depth, iteration.at(depth) + 1);
        self.iteration.set(iteration);
    }

    /// The operation of a step.
    #[inline]
    pub fn at(&self, step: usize) -> At<'_, 'tx, P, D> {
        if matches!(D::PASSES, Passes::One) {
            return At { walk: self, instance: Instance { step, iteration: Iteration::NONE } };
        }
        let depth = self.shape.steps[step].loops.len();
        debug_assert!(depth <= LOOPS_MAX);
        At { walk: self, instance: Instance { step, iteration: self.iteration.get().outer(depth) } }
    }

    /// A hint, for the first pass alone: afterwards the rows are near.
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T>,
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
        table: &Table<T>,
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

    /// Decides whether an instance runs.
    #[inline]
    pub(super) fn decide<T: Record, R, K>(
        &self,
        instance: Instance,
        slot: &Slot<R>,
        table: &Table<T>,
        key: Option<&T::Key>,
        place: &Place,
        keep: impl FnOnce(&R) -> K,
    ) -> Result<Decision<R, K>, Error> {
        if !matches!(D::PASSES, Passes::One) && self.pass.get() > 1 {
            return self.decide_again(instance, slot, table, key, place, keep);
        }
        let access = self.shape.steps[instance.step].access;
        self.driver.enter(&Accessed { instance, access, table, key, place, again: None })?;
        Ok(Decision::Run(None))
    }

    /// In a pass that is not the first.
    #[inline(never)]
    fn decide_again<T: Record, R, K>(
        &self,
        instance: Instance,
        slot: &Slot<R>,
        table: &Table<T>,
        key: Option<&T::Key>,
        place: &Place,
        keep: impl FnOnce(&R) -> K,
    ) -> Result<Decision<R, K>, Error> {
        let access = self.shape.steps[instance.step].access;
        let accessed = |again| Accessed { instance, access, table, key, place, again };
        if matches!(D::PASSES, Passes::From) {
            if self.keeps::<T>(instance, place)
                && let Some(entry) = slot.find(instance.iteration)
            {
                let kept = keep(&entry.result);
                drop(entry);
                self.driver.keep(&accessed(None))?;
                return Ok(Decision::Keep(kept));
            }
            self.driver.enter(&accessed(None))?;
            return Ok(Decision::Run(None));
        }
        self.writes.borrow_mut().come_to(instance, self.shape);
        let (mut before, mut again) = (None, None);
        if let Some(mut entry) = slot.find(instance.iteration) {
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
                    entry.pass = self.pass.get();
                    let kept = keep(&entry.result);
                    drop(entry);
                    self.note_kept(instance);
                    self.driver.keep(&accessed(None))?;
                    return Ok(Decision::Keep(kept));
                }
            }
            drop(entry);
            before = slot.remove(instance.iteration).map(|entry| entry.result);
            again = Some(if is_same { Again::SamePlace } else { Again::OtherPlace });
        }
        if access.writes() {
            self.note_run(instance, T::TABLE, place);
        }
        self.driver.enter(&accessed(again))?;
        Ok(Decision::Run(before))
    }

    /// An instance has returned something else than before: what depends on it runs, too.
    #[inline]
    pub(super) fn note_change(&self, instance: Instance) {
        if matches!(D::PASSES, Passes::Any) && self.pass.get() > 1 {
            let mut changed = self.changed.borrow_mut();
            changed.resize_with(self.shape.steps.len(), Vec::new);
            changed[instance.step].push(instance.iteration);
        }
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

    /// Whether an instance depends on one that has returned something else in this pass.
    fn is_reached(&self, instance: Instance) -> bool {
        let changed = self.changed.borrow();
        let reaches = |dependency: Dependency| {
            let sources = changed.get(dependency.on).into_iter().flatten().rev();
            let mut sources = sources.map(|&iteration| Instance { step: dependency.on, iteration });
            sources.any(|source| self.shape.reaches(dependency, source, instance))
        };
        self.shape.steps[instance.step].dependencies().any(reaches)
    }

    /// Whether an instance may have seen rows that this transaction wrote before it, and now writes
    /// otherwise, or not at all.
    fn sees_a_change<T: Record>(&self, instance: Instance, place: &Place) -> bool {
        self.writes.borrow().changed.iter().any(|(source, table, written)| {
            *table == T::TABLE && self.shape.precedes(*source, instance) && written.may_meet(place)
        })
    }

    fn note_kept(&self, instance: Instance) {
        let mut writes = self.writes.borrow_mut();
        if writes.is_next(instance) {
            writes.come_by += 1;
        }
    }

    fn note_run(&self, instance: Instance, table: &'static str, place: &Place) {
        let writes = &mut *self.writes.borrow_mut();
        let write = Write { instance, table, place: place.clone() };
        if writes.is_next(instance) {
            let before = std::mem::replace(&mut writes.all[writes.come_by], write);
            writes.changed.push((instance, table, before.place));
        } else {
            writes.all.insert(writes.come_by, write);
        }
        writes.come_by += 1;
        writes.changed.push((instance, table, place.clone()));
    }

    /// Where an operation looks, if anybody asks.
    #[inline]
    pub(super) fn place(&self, place: impl FnOnce() -> Place) -> Place {
        if matches!(D::PASSES, Passes::Any) { place() } else { Place::NOWHERE }
    }

    /// Whether what an instance has returned is to be kept.
    #[inline]
    pub(super) fn is_kept(&self, instance: Instance) -> bool {
        match D::PASSES {
            Passes::One => false,
            Passes::From => self.driver.keeps(instance.step),
            Passes::Any => true,
        }
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
