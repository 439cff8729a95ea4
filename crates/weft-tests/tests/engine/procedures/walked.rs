//! Which steps of a procedure run again, keep their results, or are discarded.

use std::cell::{Cell, RefCell};

use weft::protocol::{Dbx, Protocol};
use weft::{Conflict, ConflictReason, Database, Error, Record, Transaction};
use weft_procedures::procedure;
use weft_procedures::{Again, Direct, Driver, Instance, Next, Procedure, Selection, StepAccess};

use super::{Node, Nodes, Refused, dependencies};

/// Returns nodes 0 to 9. Each leads to the next, and its value is ten times its number.
fn loaded() -> (Database, Nodes) {
    let database = Database::builder().table::<Node>().open().expect("opens");
    let nodes = database.table::<Node>().expect("there is one");
    database
        .transact(|tx| {
            (0..10).try_for_each(|id| {
                tx.insert(&nodes, Node { id, next: (id + 1) % 10, value: i64::from(id) * 10 })
            })
        })
        .expect("loads");
    (database, nodes)
}

/// A driver that follows a script, and logs what happens. Before each further pass it changes the database.
struct Told<'t> {
    tx: &'t Transaction<'t, Dbx>,
    #[allow(clippy::type_complexity, reason = "it is written once")]
    passes: RefCell<Vec<(Selection, Box<dyn Fn() + 't>)>>,
    log: RefCell<Vec<String>>,
    refuses: Cell<Option<usize>>,
}

impl<'t> Told<'t> {
    fn new(tx: &'t Transaction<'t, Dbx>) -> Self {
        let (passes, log) = (RefCell::default(), RefCell::default());
        Told { tx, passes, log, refuses: Cell::new(None) }
    }

    /// Adds a pass after the others.
    fn then(self, selection: Selection, before: impl Fn() + 't) -> Self {
        self.passes.borrow_mut().insert(0, (selection, Box::new(before)));
        self
    }

    fn log(&self, what: impl ToString) {
        self.log.borrow_mut().push(what.to_string());
    }

    fn taken(&self) -> String {
        self.log.take().join(" ")
    }
}

impl Driver<Dbx> for Told<'_> {
    fn transaction(&self) -> &Transaction<'_, Dbx> {
        self.tx
    }

    fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        let instance = accessed.instance;
        if self.refuses.get() == Some(instance.step) {
            self.refuses.set(None);
            self.log("refused");
            let (reason, table) = (ConflictReason::WriteLocked, T::TABLE);
            return Err(Conflict { reason, table, index: None, key: None }.into());
        }
        self.log(match accessed.again {
            None => format!("+{instance}"),
            Some(Again::SamePlace) => format!("={instance}"),
            Some(Again::OtherPlace) => format!("!{instance}"),
        });
        Ok(())
    }

    fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
        self.log(format!("~{}", accessed.instance));
        Ok(())
    }

    fn discard(&self, instance: Instance) {
        self.log(format!("-{instance}"));
    }

    fn end_pass(&self, is_ok: bool) -> Next {
        self.log(if is_ok { "ok" } else { "error" });
        match self.passes.borrow_mut().pop() {
            Some((selection, before)) => {
                before();
                Next::Pass(selection)
            }
            None => Next::Return,
        }
    }
}

/// Returns the instance of a step outside of loops.
fn instance(step: usize) -> Instance {
    Instance { step, iteration: Default::default() }
}

fn stale(step: usize) -> Selection {
    Selection::Stale(vec![instance(step)])
}

/// Reads a node, then the node that it leads to, unless that is node 0, and in every case node 9.
#[procedure(Look)]
fn look<P: Protocol>(nodes: &Nodes, tx: &Transaction<'_, P>, id: u32) -> Result<(i64, i64), Error> {
    let first = tx.get(nodes, &id)?.expect("the node exists");
    let mut next = 0;
    if first.next > 0 {
        next = tx.get(nodes, &first.next)?.expect("the node exists").value;
    }
    let other = tx.get(nodes, &9)?.expect("the node exists").value;
    Ok((next, other))
}

#[test]
fn steps_that_a_stale_read_reaches_run_again() {
    let (database, nodes) = loaded();
    let change = |next| move |node: &mut Node| node.next = next;
    for (next, expected, log) in [
        // The lead changes to another node.
        (5, (50, 90), "+0 +1 +2 ok =0 !1 ~2 ok"),
        // The lead is the same in a new version of the row. The dependent step runs again at the same place.
        (3, (30, 90), "+0 +1 +2 ok =0 =1 ~2 ok"),
        // The lead changes to 0. The dependent step does not run, and is discarded.
        (0, (0, 90), "+0 +1 +2 ok =0 ~2 -1 ok"),
    ] {
        database.transact(|tx| tx.update(&nodes, &2, change(3))).expect("the node exists");
        let tx = database.begin().expect("begins");
        let driver = Told::new(&tx).then(stale(0), || {
            tx.update(&nodes, &2, change(next)).expect("the node exists");
        });
        let found = Look::new(&nodes, 2).execute(&driver).expect("no error");
        assert_eq!((found, driver.taken().as_str()), (expected, log), "{next}");
    }
    // The row is the same version, so the steps that depend on it do not run again.
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(stale(0), || ());
    assert_eq!(Look::new(&nodes, 3).execute(&driver).expect("no error"), (40, 90));
    assert_eq!(driver.taken(), "+0 +1 +2 ok =0 ~1 ~2 ok");
    drop(driver);
    drop(tx);
    // The second pass takes a branch that the first did not.
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(stale(0), || {
        tx.update(&nodes, &9, change(4)).expect("the node exists");
    });
    assert_eq!(Look::new(&nodes, 9).execute(&driver).expect("no error"), (40, 90));
    assert_eq!(driver.taken(), "+0 +2 ok =0 +1 ~2 ok");
}

#[test]
fn failed_piece_runs_again_without_earlier_pieces() {
    let (database, nodes) = loaded();
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(Selection::FromStep(1), || ());
    driver.refuses.set(Some(2));
    assert_eq!(Look::new(&nodes, 2).execute(&driver).expect("no error"), (30, 90));
    assert_eq!(driver.taken(), "+0 +1 refused error ~0 =1 +2 ok");
    // Without a further pass, the error is returned.
    driver.refuses.set(Some(2));
    let failed = Look::new(&nodes, 2).execute(&driver);
    assert!(matches!(failed, Err(Error::Conflict(_))), "{failed:?}");
}

/// Adds to several nodes, and then reads a node.
#[procedure(AddAll)]
fn add_all<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    ids: &[u32],
    id: u32,
) -> Result<i64, Error> {
    for id in ids {
        tx.update(nodes, id, |node| node.value += 1)?;
    }
    Ok(tx.get(nodes, &id)?.expect("the node exists").value)
}

/// By its shape no step depends on another, but steps may access the same row.
#[test]
fn reads_of_own_writes_run_again() {
    let (database, nodes) = loaded();
    assert_eq!(dependencies(AddAll::<Dbx>::shape()), [" |  | ", " |  | "]);
    let tx = database.begin().expect("begins");
    for (ids, id, log) in [
        (&[3, 4, 5][..], 4, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 =1 ok"),
        (&[3, 4, 5], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 ~1 ok"),
        (&[4, 4, 5], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 ~1 ok"),
        (&[3, 4, 4], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 =0.3 ~1 ok"),
    ] {
        // The stale iteration is given by an instance that was recorded in the first pass.
        let seen = RefCell::new(Vec::new());
        struct Second<'a, 't>(&'a Told<'t>, &'a RefCell<Vec<Instance>>);
        impl Driver<Dbx> for Second<'_, '_> {
            fn transaction(&self) -> &Transaction<'_, Dbx> {
                self.0.transaction()
            }
            fn enter<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
                self.1.borrow_mut().push(accessed.instance);
                self.0.enter(accessed)
            }
            fn keep<T: Record>(&self, accessed: &StepAccess<'_, T>) -> Result<(), Error> {
                self.0.keep(accessed)
            }
            fn end_pass(&self, is_ok: bool) -> Next {
                let is_first = !self.0.log.borrow().contains(&"ok".to_owned());
                self.0.end_pass(is_ok);
                match is_first {
                    true => Next::Pass(Selection::Stale(vec![self.1.borrow()[1]])),
                    false => Next::Return,
                }
            }
        }
        let told = Told::new(&tx);
        AddAll::new(&nodes, ids, id).execute(&Second(&told, &seen)).expect("no error");
        assert_eq!(told.taken(), log, "{ids:?}, {id}");
    }
}

/// Finds the first node with at least a certain value.
#[procedure(Find)]
fn find<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    limit_of: u32,
) -> Result<Option<u32>, Error> {
    let limit = tx.get(nodes, &limit_of)?.expect("the node exists").value;
    for node in tx.range(nodes, 1..) {
        let node = node?;
        if node.value >= limit {
            return Ok(Some(node.id));
        }
    }
    Ok(None)
}

/// A scan keeps the rows that it has read. If the procedure needs more rows than that, the scan runs again.
#[test]
fn scan_that_needs_more_rows_runs_again() {
    let (database, nodes) = loaded();
    let set = |tx: &Transaction<'_, Dbx>, value| {
        tx.update(&nodes, &0, |node| node.value = value).expect("the node exists");
    };
    for (value, found, log) in [
        (15, Some(2), "+0 +1 ok =0 ~1 ok"),
        (55, Some(6), "+0 +1 ok =0 ~1 =0 =1 ok"),
        (1_000, None, "+0 +1 ok =0 ~1 =0 =1 ok"),
    ] {
        let tx = database.begin().expect("begins");
        set(&tx, 30);
        let driver = Told::new(&tx).then(stale(0), || set(&tx, value));
        assert_eq!(Find::new(&nodes, 0).execute(&driver).expect("no error"), found);
        assert_eq!(driver.taken(), log, "{value}");
    }
}

/// Returns an error if a node's value is too large. Otherwise it writes the value to another node.
#[procedure(Guarded)]
fn guarded<P: Protocol>(nodes: &Nodes, tx: &Transaction<'_, P>, from: u32) -> Result<i64, Refused> {
    let value = tx.get(nodes, &from)?.map_or(0, |node| node.value);
    let limit = tx.get(nodes, &9)?.map_or(0, |node| node.value);
    if value > limit {
        return Err(Refused::TooLarge);
    }
    tx.update(nodes, &5, |node| node.value = value)?;
    Ok(value)
}

/// The next pass takes into account what a pass that ended early has run: the steps after its end have not seen
/// that.
#[test]
fn changes_of_a_pass_that_ended_early_are_remembered() {
    let (database, nodes) = loaded();
    let tx = database.begin().expect("begins");
    let set = |id: u32, value| {
        tx.update(&nodes, &id, |node| node.value = value).expect("the node exists");
    };
    let driver = Told::new(&tx).then(stale(0), || set(2, 95)).then(stale(1), || set(9, 100));
    assert_eq!(Guarded::new(&nodes, 2).execute(&driver), Ok(95));
    assert_eq!(driver.taken(), "+0 +1 +2 ok =0 ~1 error ~0 =1 =2 ok");
    assert_eq!(tx.get(&nodes, &5).expect("no error").expect("the node exists").value, 95);
}

#[test]
fn procedure_equals_its_function() {
    let (database, nodes) = loaded();
    let by_function = database.transact(|tx| look(&nodes, tx, 3)).expect("no error");
    let by_run = database.transact(|tx| Look::new(&nodes, 3).run(tx)).expect("no error");
    let by_steps =
        database.transact(|tx| Look::new(&nodes, 3).execute(&Direct::new(tx))).expect("no error");
    assert_eq!((by_function, by_run), (by_steps, (40, 90)));
}
