//! Tests of procedures: their shapes must cover what they do, and a repair must have the same result as a run from
//! the start.
//!
//! A *trial* runs a procedure on the database, step by step. Then it undoes the writes of the steps, changes some
//! rows that the procedure has accessed, or other rows, and *repairs* the procedure. Only those instances of steps
//! run that read a changed row, and those that depend on them by the shape. The writes of all other instances are
//! repeated. This may happen several times. Everything is one transaction, in which the changes are its own writes.
//! The result, and all rows that were written at any time, must be the same as when the function runs on the
//! changed database.
//!
//! In addition, each instance whose effect differs after the changes must be one that the shape marks as dependent
//! on them.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use weft::protocol::Dbx;
use weft::schema::Record;
use weft::{Conflict, ConflictReason, Database, Error, Table, Transaction};
use weft_procedures::{Accessed, Driver, Instance, Next, Place, Selection, Shape};

type Tx<'db> = Transaction<'db, Dbx>;

/// An action on the database.
type Act = Rc<dyn Fn(&Tx<'_>)>;

/// A change of a row, as another transaction would make it.
#[derive(Clone)]
pub struct Change {
    table: &'static str,
    place: Place,
    act: Act,
}

impl Change {
    /// Returns a change that updates a row, if it exists.
    pub fn update<T: Record>(
        table: &Table<T>,
        key: T::Key,
        change: impl Fn(&mut T) + 'static,
    ) -> Change {
        let (handle, place) = (table.clone(), Place::key(&key));
        let act = move |tx: &Tx<'_>| {
            tx.update(&handle, &key, |row| change(row)).expect("the row can be changed");
        };
        Change { table: T::TABLE, place, act: Rc::new(act) }
    }

    /// Returns a change that deletes a row, or that inserts or replaces it.
    pub fn put<T: Record>(table: &Table<T>, key: T::Key, row: Option<T>) -> Change {
        let (handle, place) = (table.clone(), Place::key(&key));
        let act = move |tx: &Tx<'_>| put(tx, &handle, &key, row.clone());
        Change { table: T::TABLE, place, act: Rc::new(act) }
    }
}

fn put<T: Record>(tx: &Tx<'_>, table: &Table<T>, key: &T::Key, row: Option<T>) {
    match row {
        Some(row) => drop(tx.upsert(table, row).expect("the row can be put there")),
        None => drop(tx.delete(table, key).expect("the row can be deleted")),
    }
}

/// A row that a procedure has accessed: its table and key.
pub struct Met {
    table: &'static str,
    key: Box<dyn Any>,
}

impl Met {
    /// Returns the key, if the row is in this table.
    pub fn key<T: Record>(&self) -> Option<&T::Key> {
        (self.table == T::TABLE).then(|| self.key.downcast_ref()).flatten()
    }
}

/// The last execution of an instance.
#[derive(Clone)]
struct Run {
    table: &'static str,
    place: Place,
    writes: bool,
    /// The row that it left, encoded; `None` if it left none.
    image: Option<Vec<u8>>,
    /// The number of changes made before it.
    changes: usize,
}

/// The executions of all instances, and their order.
#[derive(Clone, Default)]
struct Runs {
    of: BTreeMap<Instance, Run>,
    order: Vec<Instance>,
}

/// What happens after a pass.
enum Plan<'t> {
    /// Nothing happens.
    Once,
    /// The procedure is repaired this many times, each after other changes.
    Repair(u32, &'t dyn Fn(&[Met]) -> Vec<Change>),
    /// The piece from this step on fails after this number of instances, and runs again.
    Piece(usize, Cell<u32>),
}

/// A driver of procedures that rehearses repairs.
pub struct Rehearsal<'t> {
    tx: &'t Tx<'t>,
    plan: Plan<'t>,
    passes: Cell<u32>,
    changes: RefCell<Vec<Change>>,
    met: RefCell<Vec<Met>>,
    runs: RefCell<Runs>,
    /// The runs at the end of the first pass.
    first_runs: RefCell<Option<Runs>>,
    /// The actions that restore the rows before each write of this pass.
    undo: RefCell<Vec<(Instance, Act)>>,
    /// The actions that repeat the writes of each instance.
    effects: RefCell<BTreeMap<Instance, Act>>,
    /// Functions that encode the row at each place that was ever written.
    images: RefCell<Images>,
    kept: Cell<usize>,
    ran: Cell<usize>,
}

type Images = BTreeMap<(&'static str, String), Rc<dyn Fn(&Tx<'_>) -> Option<Vec<u8>>>>;

fn image<T: Record>(tx: &Tx<'_>, table: &Table<T>, key: &T::Key) -> Option<Vec<u8>> {
    let row = tx.get(table, key).expect("it can be read")?;
    let mut bytes = Vec::new();
    row.encode_row(&mut bytes);
    Some(bytes)
}

impl<'t> Rehearsal<'t> {
    fn new(tx: &'t Tx<'t>, plan: Plan<'t>) -> Self {
        Rehearsal {
            tx,
            plan,
            passes: Cell::new(0),
            changes: RefCell::default(),
            met: RefCell::default(),
            runs: RefCell::default(),
            first_runs: RefCell::default(),
            undo: RefCell::default(),
            effects: RefCell::default(),
            images: RefCell::default(),
            kept: Cell::new(0),
            ran: Cell::new(0),
        }
    }

    /// Records how to restore the row that is about to be written.
    fn note_undo<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        let key = accessed.key.expect("an access that writes has a key").clone();
        let before = self.tx.get(accessed.table, &key)?.cloned();
        let table = accessed.table.clone();
        let act: Act = Rc::new(move |tx| put(tx, &table, &key, before.clone()));
        self.undo.borrow_mut().push((accessed.instance, act));
        Ok(())
    }

    fn undo(&self, which: impl Fn(Instance) -> bool) {
        let undo = std::mem::take(&mut *self.undo.borrow_mut());
        for (_, act) in undo.iter().rev().filter(|(instance, _)| which(*instance)) {
            act(self.tx);
        }
    }

    fn stale(&self) -> Vec<Instance> {
        let (runs, changes) = (self.runs.borrow(), self.changes.borrow());
        let is_stale = |run: &Run| changes[run.changes..].iter().any(|change| meets(change, run));
        runs.of.iter().filter(|(_, run)| is_stale(run)).map(|(instance, _)| *instance).collect()
    }
}

fn meets(change: &Change, run: &Run) -> bool {
    change.table == run.table && change.place.may_meet(&run.place)
}

impl Driver<Dbx> for Rehearsal<'_> {
    fn transaction(&self) -> &Transaction<'_, Dbx> {
        self.tx
    }

    fn enter<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        let &Accessed { instance, access, key, .. } = accessed;
        if let Plan::Piece(first, left) = &self.plan
            && self.passes.get() == 0
            && instance.step >= *first
        {
            match left.get().checked_sub(1) {
                Some(less) => left.set(less),
                None => {
                    let reason = ConflictReason::ReadChanged;
                    return Err(Conflict { reason, table: T::TABLE, index: None, key: None }.into());
                }
            }
        }
        self.ran.set(self.ran.get() + 1);
        if let Some(key) = key {
            self.met.borrow_mut().push(Met { table: T::TABLE, key: Box::new(key.clone()) });
        }
        let run = Run {
            table: T::TABLE,
            place: accessed.place.clone(),
            writes: access.writes(),
            image: None,
            changes: self.changes.borrow().len(),
        };
        let mut runs = self.runs.borrow_mut();
        runs.of.insert(instance, run);
        runs.order.push(instance);
        if access.writes() {
            self.note_undo(accessed)?;
            let (table, key) = (accessed.table.clone(), key.expect("it writes").clone());
            let read: Rc<dyn Fn(&Tx<'_>) -> _> = Rc::new(move |tx| image(tx, &table, &key));
            let place = format!("{:?}", accessed.place);
            self.images.borrow_mut().insert((T::TABLE, place), read);
        }
        Ok(())
    }

    fn leave<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        if !accessed.access.writes() {
            return Ok(());
        }
        let key = accessed.key.expect("an access that writes has a key").clone();
        let after = self.tx.get(accessed.table, &key)?.cloned();
        if let Some(run) = self.runs.borrow_mut().of.get_mut(&accessed.instance) {
            run.image = image(self.tx, accessed.table, &key);
        }
        let table = accessed.table.clone();
        let act: Act = Rc::new(move |tx| put(tx, &table, &key, after.clone()));
        self.effects.borrow_mut().insert(accessed.instance, act);
        Ok(())
    }

    fn keep<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
        self.kept.set(self.kept.get() + 1);
        if accessed.access.writes() && matches!(self.plan, Plan::Repair(..)) {
            self.note_undo(accessed)?;
            self.effects.borrow()[&accessed.instance](self.tx);
        }
        Ok(())
    }

    fn discard(&self, instance: Instance) {
        self.runs.borrow_mut().of.remove(&instance);
        self.effects.borrow_mut().remove(&instance);
    }

    fn end_pass(&self, _is_ok: bool) -> Next {
        self.passes.set(self.passes.get() + 1);
        self.first_runs.borrow_mut().get_or_insert_with(|| self.runs.borrow().clone());
        match &self.plan {
            Plan::Repair(rounds, choose) if self.passes.get() <= *rounds => {
                self.undo(|_| true);
                for change in choose(&self.met.borrow()) {
                    (change.act)(self.tx);
                    self.changes.borrow_mut().push(change);
                }
                Next::Pass(Selection::Stale(self.stale()))
            }
            Plan::Piece(first, _) if self.passes.get() == 1 => {
                self.undo(|instance| instance.step >= *first);
                Next::Pass(Selection::From(*first))
            }
            _ => Next::Return,
        }
    }
}

/// A procedure with its arguments, as closures: one runs the function on a transaction, the other runs it step by
/// step. Both return the result, and everything else that the procedure leaves, as text.
pub struct Subject<'s> {
    pub shape: &'static Shape,
    pub run: Box<dyn Fn(&Tx<'_>) -> String + 's>,
    pub execute: Box<dyn Fn(&Rehearsal<'_>) -> String + 's>,
}

/// Makes a [`Subject`] from an expression that creates a procedure. The expression may refer to the variable
/// `$scratch`, which is new for each run and a part of the result.
macro_rules! subject {
    (|| $make:expr) => {
        subject!(|_scratch: ()| $make)
    };
    (|$scratch:ident : $type:ty| $make:expr) => {{
        $crate::procedures::rehearsal::Subject {
            shape: {
                let mut known = None;
                let mut scratch = <$type>::default();
                {
                    let $scratch = &mut scratch;
                    $crate::procedures::rehearsal::note_shape(&$make, &mut known);
                }
                known.expect("it was noted")
            },
            run: Box::new(|tx| {
                use weft_procedures::Procedure;
                let mut scratch = <$type>::default();
                let result = {
                    let $scratch = &mut scratch;
                    let result = { $make }.run(tx);
                    result.map(|output| format!("{output:?}")).map_err(|error| format!("{error:?}"))
                };
                // After a roll-back, the scratch variable does not matter.
                format!("{:?}", result.map(|output| (output, scratch)))
            }),
            execute: Box::new(|driver| {
                use weft_procedures::Procedure;
                let mut scratch = <$type>::default();
                let result = {
                    let $scratch = &mut scratch;
                    let result = { $make }.execute(driver);
                    result.map(|output| format!("{output:?}")).map_err(|error| format!("{error:?}"))
                };
                format!("{:?}", result.map(|output| (output, scratch)))
            }),
        }
    }};
}
pub(crate) use subject;

/// Stores the shape of a procedure.
pub fn note_shape<S: weft_procedures::Procedure<Dbx>>(_: &S, shape: &mut Option<&'static Shape>) {
    *shape = Some(S::shape());
}

/// The counts of trials.
#[derive(Debug, Default)]
pub struct Tally {
    pub trials: usize,
    /// Instances that kept their effects in repairs, and instances that ran again.
    pub kept: usize,
    pub ran_again: usize,
    /// Instances whose effects changed although `shape` does not allow it.
    pub uncovered: usize,
}

impl Tally {
    /// Runs a procedure in pieces, then with repairs, and compares the results with runs from the start.
    pub fn trial(
        &mut self,
        database: &Database<Dbx>,
        subject: &Subject<'_>,
        shape: &Shape,
        random: &mut fastrand::Rng,
        choose: &dyn Fn(&[Met]) -> Vec<Change>,
        context: &str,
    ) {
        let context = format!("{context}, {}", subject.shape.name);
        self.trials += 1;
        self.pieces(database, subject, random, &context);

        let begin = || database.begin().expect("nothing else is going on");
        let tx = begin();
        let rehearsal = Rehearsal::new(&tx, Plan::Repair(random.u32(1..=3), choose));
        let repaired = (subject.execute)(&rehearsal);
        let images = rehearsal.images.borrow().clone();
        let of_repair: Vec<_> = images.values().map(|image| image(&tx)).collect();
        let first = rehearsal.first_runs.take().expect("there was a pass");
        let changes = rehearsal.changes.take();
        self.kept += rehearsal.kept.get();
        self.ran_again += rehearsal.ran.get() - first.order.len();
        drop(rehearsal);
        drop(tx);

        // Run the function on the changed database.
        let tx = begin();
        changes.iter().for_each(|change| (change.act)(&tx));
        let fresh = (subject.run)(&tx);
        let of_run: Vec<_> = images.values().map(|image| image(&tx)).collect();
        drop(tx);
        assert_eq!(repaired, fresh, "{context}: what is returned");
        for ((place, repaired), fresh) in images.keys().zip(of_repair).zip(of_run) {
            assert_eq!(repaired, fresh, "{context}: the row at {place:?}");
        }

        // Run the procedure step by step on the changed database, to compare the effects of the steps.
        let tx = begin();
        changes.iter().for_each(|change| (change.act)(&tx));
        let rehearsal = Rehearsal::new(&tx, Plan::Once);
        assert_eq!((subject.execute)(&rehearsal), fresh, "{context}: step by step");
        for (place, image) in rehearsal.images.borrow().iter() {
            let row = image(&tx);
            assert!(images.contains_key(place) || row.is_none(), "{context}: a write to {place:?}");
        }
        let uncovered = uncovered(shape, &first, &rehearsal.runs.borrow(), &changes);
        assert!(
            !std::ptr::eq(shape, subject.shape) || uncovered.is_empty(),
            "{context}: {uncovered:?}"
        );
        self.uncovered += uncovered.len();
    }

    /// Tests that a piece that fails in the middle and runs again makes no difference.
    fn pieces(
        &self,
        database: &Database<Dbx>,
        subject: &Subject<'_>,
        random: &mut fastrand::Rng,
        context: &str,
    ) {
        let first = random.usize(..=subject.shape.steps.len());
        if !subject.shape.may_begin_piece(first) {
            return;
        }
        let tx = database.begin().expect("nothing else is going on");
        let rehearsal = Rehearsal::new(&tx, Plan::Piece(first, Cell::new(random.u32(..8))));
        let in_pieces = (subject.execute)(&rehearsal);
        let images = rehearsal.images.borrow().clone();
        let of_pieces: Vec<_> = images.values().map(|image| image(&tx)).collect();
        drop(rehearsal);
        drop(tx);
        let tx = database.begin().expect("nothing else is going on");
        let whole = (subject.run)(&tx);
        assert_eq!(in_pieces, whole, "{context}: in pieces, from step {first} on");
        for ((place, image), of_pieces) in images.iter().zip(of_pieces) {
            assert_eq!(of_pieces, image(&tx), "{context}, a piece from step {first} on: {place:?}");
        }
    }
}

/// Returns the instances whose effects differ after the changes, although no dependency of the shape reaches them.
fn uncovered(shape: &Shape, before: &Runs, after: &Runs, changes: &[Change]) -> Vec<Instance> {
    let mut reached: Vec<Instance> = Vec::new();
    let mut uncovered = Vec::new();
    for &instance in &after.order {
        let run = &after.of[&instance];
        let Some(earlier) = before.of.get(&instance) else {
            reached.push(instance);
            continue;
        };
        let wrote = |runs: &Runs, writer: &Instance| {
            runs.of.get(writer).is_some_and(|wrote| {
                wrote.writes && wrote.table == run.table && wrote.place.may_meet(&earlier.place)
            })
        };
        let mut gone = before.of.keys().filter(|writer| !after.of.contains_key(writer));
        let is_reached = changes.iter().any(|change| meets(change, earlier))
            || reached.iter().any(|&source| shape.depends(instance, source))
            || reached.iter().any(|writer| wrote(before, writer) || wrote(after, writer))
            || gone.any(|writer| shape.precedes(*writer, instance) && wrote(before, writer));
        if is_reached {
            reached.push(instance);
        } else if earlier.place != run.place || earlier.image != run.image {
            uncovered.push(instance);
        }
    }
    uncovered
}

/// Returns a shape without one of its dependencies.
pub fn without(shape: &Shape, step: usize, on: usize) -> Shape {
    let others = |all: &[weft_procedures::Dependency]| -> &'static [weft_procedures::Dependency] {
        let all: Vec<_> = all.iter().copied().filter(|dependency| dependency.on != on).collect();
        Vec::leak(all)
    };
    let mut steps = shape.steps.to_vec();
    let wrong = &mut steps[step];
    assert!(wrong.dependencies().any(|dependency| dependency.on == on), "{step} on {on}");
    wrong.keys = others(wrong.keys);
    wrong.values = others(wrong.values);
    let columns: Vec<_> = wrong.columns.iter().map(|&(name, all)| (name, others(all))).collect();
    wrong.columns = Vec::leak(columns);
    Shape { steps: Vec::leak(steps), ..*shape }
}
