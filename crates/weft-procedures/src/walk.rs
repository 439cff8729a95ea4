//! The walk over a procedure's body, pass by pass: it decides which instances run, and which keep their
//! results.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;

use crate::operations::At;
use crate::place::Place;
use crate::slot::{ResultEntry, ResultSlot};
use crate::{Again, Driver, Next, Passes, Selection, StepAccess};
use weft::commit::Protocol;
use weft::encoding::KeyPart;
use weft::plan::{Access, Dependency, Shape};
use weft::schema::Record;
use weft::step::{Instance, Iteration, LOOPS_MAX};
use weft::store::table::Table;
use weft::{Conflict, ConflictReason, Error, Timestamp};

/// A procedure that is being executed. The code that `#[procedure]` generates calls it.
#[doc(hidden)]
pub struct Walk<'tx, P: Protocol, D: Driver<P>> {
    pub(super) driver: &'tx D,
    shape: &'static Shape,
    /// The number of the pass, counted from 1.
    pass: Cell<u32>,
    selection: RefCell<Selection>,
    /// The present iteration of each enclosing loop.
    iteration: Cell<Iteration>,
    /// The iterations of each step that have returned something else than before, since the last pass that
    /// completed.
    changed: RefCell<Vec<Vec<Iteration>>>,
    /// The instances that may have changed rows, in this pass or the one before.
    writes: RefCell<Writes>,
    /// Scans that have to read further than before, although the selection would keep their rows.
    longer: RefCell<Vec<Instance>>,
    is_interrupted: Cell<bool>,
    protocol: std::marker::PhantomData<fn() -> P>,
}

/// The instances that may have changed rows, in the order in which they run.
#[derive(Default)]
struct Writes {
    /// First those of this pass. Then those that this pass has not reached yet, as the last pass left them.
    all: Vec<Write>,
    /// How many of them this pass has reached.
    reached: usize,
    /// Writes that have changed or are gone since the last pass that completed: the instance, the table and the
    /// place. A later instance that looks at such a place has to run again.
    changed: Vec<(Instance, &'static str, Place)>,
}

/// An instance that may have changed a row.
struct Write {
    instance: Instance,
    table: &'static str,
    place: Place,
}

impl Writes {
    /// Advances to `instance`. Earlier writes that this pass skipped are dropped.
    fn advance_to(&mut self, instance: Instance, shape: &Shape) {
        let passed = |write: &Write| shape.precedes(write.instance, instance);
        let behind = &self.all[self.reached..];
        let gone = behind.iter().take_while(|write| passed(write)).count();
        let gone = self.all.drain(self.reached..self.reached + gone);
        self.changed.extend(gone.map(|Write { instance, table, place }| (instance, table, place)));
    }

    /// Whether the next write is this instance's.
    fn is_next(&self, instance: Instance) -> bool {
        self.all.get(self.reached).is_some_and(|write| write.instance == instance)
    }
}

/// The decision whether an instance runs.
pub(super) enum Decision<R, K> {
    /// It keeps its result.
    Keep(K),
    /// It runs. Contains its result of an earlier pass, if there is one.
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
        self.writes.borrow_mut().reached = 0;
    }

    /// Runs a pass. Returns a panic of the body, if the driver wants to be told of it.
    #[inline(always)]
    pub fn pass<R>(&self, body: impl FnOnce() -> R) -> std::thread::Result<R> {
        self.driver.run_pass(body)
    }

    /// Returns the result of the last pass, or continues its panic.
    #[inline(always)]
    pub fn ended<R>(result: std::thread::Result<R>) -> R {
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Ends a pass. Returns whether another one follows. A pass that returned an error may have ended early, so
    /// the steps that it has not reached stay as they are.
    pub fn end_pass(&self, is_ok: bool) -> bool {
        if self.is_interrupted.replace(false) {
            self.driver.restart_pass();
            return true;
        }
        if matches!(D::PASSES, Passes::Any) && is_ok && self.pass.get() > 1 {
            self.changed.borrow_mut().iter_mut().for_each(Vec::clear);
            let writes = &mut *self.writes.borrow_mut();
            writes.all.truncate(writes.reached);
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

    /// Whether the first pass has just ended, so that its writes are to be [noted](Walk::note_writes).
    pub fn is_to_note_writes(&self) -> bool {
        matches!(D::PASSES, Passes::Any) && self.pass.get() == 1
    }

    /// Notes what a step has written in the first pass. [`Walk::order_writes`] has to follow.
    pub fn note_writes<R>(&self, step: usize, slot: &ResultSlot<R>) {
        let described = &self.shape.steps[step];
        if described.access.writes() {
            let all = &mut self.writes.borrow_mut().all;
            slot.for_each(|iteration, place| {
                let (table, place) = (described.table.name, place.clone());
                all.push(Write { instance: Instance { step, iteration }, table, place });
            });
        }
    }

    /// Sorts the writes that were noted into the order in which they were made.
    pub fn order_writes(&self) {
        let precedes =
            |one: &Write, other: &Write| self.shape.precedes(one.instance, other.instance);
        let all = &mut self.writes.borrow_mut().all;
        all.sort_by(|one, other| precedes(other, one).cmp(&precedes(one, other)));
    }

    /// Forgets the instances of a step that a completed pass has not reached.
    pub fn sweep<R>(&self, step: usize, slot: &ResultSlot<R>) {
        // A driver that walks `Passes::FromStep` keeps nothing after the step with which a pass begins.
        if !matches!(D::PASSES, Passes::Any) || self.is_interrupted.get() {
            return;
        }
        slot.sweep(self.pass.get(), |iteration| {
            self.driver.discard(Instance { step, iteration });
        });
    }

    /// Enters a loop.
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

    /// Begins the next iteration of a loop.
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

    /// Returns the operation of a step.
    #[inline]
    pub fn at(&self, step: usize) -> At<'_, 'tx, P, D> {
        if matches!(D::PASSES, Passes::One) {
            return At { walk: self, instance: Instance { step, iteration: Iteration::NONE } };
        }
        let depth = self.shape.steps[step].loops.len();
        debug_assert!(depth <= LOOPS_MAX);
        At { walk: self, instance: Instance { step, iteration: self.iteration.get().outer(depth) } }
    }

    /// Returns the time of the procedure, which is the same in all passes.
    pub fn now(&self) -> Timestamp {
        self.driver.now()
    }

    /// Prefetches rows, in the first pass only: in later ones the rows are in the cache.
    pub fn prefetch<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
    ) -> Result<(), Error> {
        match self.pass.get() {
            1 => self.driver.transaction().prefetch(table, keys),
            _ => Ok(()),
        }
    }

    /// As [`Walk::prefetch`], for rows that are to be updated.
    pub fn prefetch_for_update<T: Record>(
        &self,
        table: &Table<T>,
        keys: impl IntoIterator<Item: KeyPart<T::Key>>,
    ) -> Result<(), Error> {
        match self.pass.get() {
            1 => self.driver.transaction().prefetch_for_update(table, keys),
            _ => Ok(()),
        }
    }

    pub(super) fn shape(&self) -> &'static Shape {
        self.shape
    }

    /// Decides whether an instance runs, and tells the driver.
    #[inline]
    pub(super) fn decide<T: Record, R, K>(
        &self,
        instance: Instance,
        slot: &ResultSlot<R>,
        table: &Table<T>,
        key: Option<&T::Key>,
        place: &Place,
        keep: impl FnOnce(&R) -> K,
    ) -> Result<Decision<R, K>, Error> {
        if !matches!(D::PASSES, Passes::One) && self.pass.get() > 1 {
            return self.decide_again(instance, slot, table, key, place, keep);
        }
        let access = self.shape.steps[instance.step].access;
        self.driver.enter(&StepAccess { instance, access, table, key, place, again: None })?;
        Ok(Decision::Run(None))
    }

    /// As [`Walk::decide`], in a pass that is not the first.
    #[inline(never)]
    fn decide_again<T: Record, R, K>(
        &self,
        instance: Instance,
        slot: &ResultSlot<R>,
        table: &Table<T>,
        key: Option<&T::Key>,
        place: &Place,
        keep: impl FnOnce(&R) -> K,
    ) -> Result<Decision<R, K>, Error> {
        let access = self.shape.steps[instance.step].access;
        let accessed = |again| StepAccess { instance, access, table, key, place, again };
        if matches!(D::PASSES, Passes::FromStep) {
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
        self.writes.borrow_mut().advance_to(instance, self.shape);
        let (mut before, mut again) = (None, None);
        if let Some(mut entry) = slot.find(instance.iteration) {
            let is_same = entry.place == *place;
            if self.keeps::<T>(instance, &entry.place) {
                // The shape's dependencies must be a superset of the real ones.
                debug_assert!(
                    is_same,
                    "{}, step {instance}: its key changed, but its shape has no dependency for that: {:?} \
                     and {place:?}",
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

    /// Notes that an instance has returned something else than before, so what depends on it runs, too.
    #[inline]
    pub(super) fn note_change(&self, instance: Instance) {
        if matches!(D::PASSES, Passes::Any) && self.pass.get() > 1 {
            let mut changed = self.changed.borrow_mut();
            changed.resize_with(self.shape.steps.len(), Vec::new);
            changed[instance.step].push(instance.iteration);
        }
    }

    /// Whether an instance that has run before keeps its result.
    fn keeps<T: Record>(&self, instance: Instance, place: &Place) -> bool {
        if self.longer.borrow().contains(&instance) {
            return false;
        }
        match &*self.selection.borrow() {
            Selection::Everything => false,
            Selection::FromStep(first) => instance.step < *first,
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

    /// Whether an instance may see rows that an earlier instance of this transaction wrote before, and has now
    /// written differently, or not at all.
    ///
    /// Where rows expire, a row that is written takes the place of expired ones with the same unique keys, and deletes
    /// them. So any write of such a table may have changed any of its rows.
    ///
    /// A place has primary keys only. So two writes that may put the same key into a unique index may meet at any
    /// places.
    fn sees_a_change<T: Record>(&self, instance: Instance, place: &Place) -> bool {
        self.writes.borrow().changed.iter().any(|(source, table, written)| {
            *table == T::TABLE
                && self.shape.precedes(*source, instance)
                && (T::EXPIRY.is_some()
                    || written.may_meet(place)
                    || self.may_change_unique::<T>(*source) && self.may_take_unique::<T>(instance))
        })
    }

    /// Whether a write may insert keys into a unique secondary index, or remove keys from it.
    fn may_change_unique<T: Record>(&self, instance: Instance) -> bool {
        let step = &self.shape.steps[instance.step];
        let writes = |column: &&str| step.writes.is_none_or(|written| written.contains(column));
        T::INDEXES.iter().any(|index| index.unique && index.columns.iter().any(writes))
    }

    /// Whether an instance may fail because a key of a unique secondary index is taken.
    fn may_take_unique<T: Record>(&self, instance: Instance) -> bool {
        let access = self.shape.steps[instance.step].access;
        access.writes() && access != Access::Delete && self.may_change_unique::<T>(instance)
    }

    fn note_kept(&self, instance: Instance) {
        let mut writes = self.writes.borrow_mut();
        if writes.is_next(instance) {
            writes.reached += 1;
        }
    }

    fn note_run(&self, instance: Instance, table: &'static str, place: &Place) {
        let writes = &mut *self.writes.borrow_mut();
        let write = Write { instance, table, place: place.clone() };
        if writes.is_next(instance) {
            let before = std::mem::replace(&mut writes.all[writes.reached], write);
            writes.changed.push((instance, table, before.place));
        } else {
            writes.all.insert(writes.reached, write);
        }
        writes.reached += 1;
        writes.changed.push((instance, table, place.clone()));
    }

    /// Returns the place that an operation looks at, if places are needed.
    #[inline]
    pub(super) fn place(&self, place: impl FnOnce() -> Place) -> Place {
        if matches!(D::PASSES, Passes::Any) { place() } else { Place::NOWHERE }
    }

    /// Whether the result of an instance is to be kept.
    #[inline]
    pub(super) fn is_kept(&self, instance: Instance) -> bool {
        match D::PASSES {
            Passes::One => false,
            Passes::FromStep => self.driver.keeps(instance.step),
            Passes::Any => true,
        }
    }

    /// Keeps the result of an instance.
    pub(super) fn put<R>(&self, instance: Instance, slot: &ResultSlot<R>, place: Place, result: R) {
        let pass = self.pass.get();
        slot.put(ResultEntry { iteration: instance.iteration, place, result, pass });
    }

    /// Returns an error that ends the pass. The pass is then walked again, and the instance, which was to be
    /// kept, runs.
    pub(super) fn read_on<T: Record>(&self, instance: Instance) -> Error {
        self.longer.borrow_mut().push(instance);
        self.is_interrupted.set(true);
        let (reason, table) = (ConflictReason::RangeChanged, T::TABLE);
        Conflict { reason, table, index: None, key: None }.into()
    }
}
