//! What is run, what keeps what it had, and what is discarded.

use std::cell::{Cell, RefCell};

use weft::protocol::{Dbx, Protocol};
use weft::{Conflict, ConflictReason, Database, Error, Record, Transaction};
use weft_procedures::procedure;
use weft_procedures::{Accessed, Again, Direct, Driver, Instance, Next, Procedure, Selection};

use super::{Node, Nodes, Refused, dependencies};

/// Nodes 0 to 9, each of which leads to the next, with ten times its number as its value.
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

/// A driver that does as it is told, and writes down what happens. Before each further pass it does something
/// to the database.
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

    /// Adds a pass, to be done last.
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

    fn enter<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
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

    fn keep<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
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

/// The instance of a step outside of loops.
fn instance(step: usize) -> Instance {
    Instance { step, iteration: Default::default() }
}

fn stale(step: usize) -> Selection {
    Selection::Stale(vec![instance(step)])
}

/// Looks at a node, and then at the next or at nothing; and at another, always.
#[procedure(Look)]
fn look<P: Protocol>(nodes: &Nodes, tx: &Transaction<'_, P>, id: u32) -> Result<(i64, i64), Error> {
    let first = tx.get(nodes, &id)?.expect("it is there");
    let mut next = 0;
    if first.next > 0 {
        next = tx.get(nodes, &first.next)?.expect("it is there").value;
    }
    let other = tx.get(nodes, &9)?.expect("it is there").value;
    Ok((next, other))
}

#[test]
fn what_a_stale_read_reaches_runs_again_and_nothing_else() {
    let (database, nodes) = loaded();
    let change = |next| move |node: &mut Node| node.next = next;
    for (next, expected, log) in [
        // The next is another,
        (5, (50, 90), "+0 +1 +2 ok =0 !1 ~2 ok"),
        // is the same, in another version of the row, so that it is looked at again nevertheless,
        (3, (30, 90), "+0 +1 +2 ok =0 =1 ~2 ok"),
        // or there is none, and the step is not come by.
        (0, (0, 90), "+0 +1 +2 ok =0 ~2 -1 ok"),
    ] {
        database.transact(|tx| tx.update(&nodes, &2, change(3))).expect("it is there");
        let tx = database.begin().expect("begins");
        let driver = Told::new(&tx).then(stale(0), || {
            tx.update(&nodes, &2, change(next)).expect("it is there");
        });
        let found = Look::new(&nodes, 2).execute(&driver).expect("no error");
        assert_eq!((found, driver.taken().as_str()), (expected, log), "{next}");
    }
    // It is the same row: what depends on it does not run again.
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(stale(0), || ());
    assert_eq!(Look::new(&nodes, 3).execute(&driver).expect("no error"), (40, 90));
    assert_eq!(driver.taken(), "+0 +1 +2 ok =0 ~1 ~2 ok");
    drop(driver);
    drop(tx);
    // A branch that is taken only now.
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(stale(0), || {
        tx.update(&nodes, &9, change(4)).expect("it is there");
    });
    assert_eq!(Look::new(&nodes, 9).execute(&driver).expect("no error"), (40, 90));
    assert_eq!(driver.taken(), "+0 +2 ok =0 +1 ~2 ok");
}

#[test]
fn a_piece_that_fails_runs_again_and_those_before_it_do_not() {
    let (database, nodes) = loaded();
    let tx = database.begin().expect("begins");
    let driver = Told::new(&tx).then(Selection::From(1), || ());
    driver.refuses.set(Some(2));
    assert_eq!(Look::new(&nodes, 2).execute(&driver).expect("no error"), (30, 90));
    assert_eq!(driver.taken(), "+0 +1 refused error ~0 =1 +2 ok");
    // Without another pass the error is what is returned.
    driver.refuses.set(Some(2));
    let failed = Look::new(&nodes, 2).execute(&driver);
    assert!(matches!(failed, Err(Error::Conflict(_))), "{failed:?}");
}

/// Adds to some nodes, and then reads one.
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
    Ok(tx.get(nodes, &id)?.expect("it is there").value)
}

/// By its shape no step depends on another; but they may be about the same row.
#[test]
fn own_writes_are_seen_again() {
    let (database, nodes) = loaded();
    assert_eq!(dependencies(AddAll::<Dbx>::shape()), [" |  | ", " |  | "]);
    let tx = database.begin().expect("begins");
    for (ids, id, log) in [
        (&[3, 4, 5][..], 4, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 =1 ok"),
        (&[3, 4, 5], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 ~1 ok"),
        (&[4, 4, 5], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 ~0.3 ~1 ok"),
        (&[3, 4, 4], 5, "+0.1 +0.2 +0.3 +1 ok ~0.1 =0.2 =0.3 ~1 ok"),
    ] {
        // Which iteration is stale is said by one that was seen.
        let seen = RefCell::new(Vec::new());
        struct Second<'a, 't>(&'a Told<'t>, &'a RefCell<Vec<Instance>>);
        impl Driver<Dbx> for Second<'_, '_> {
            fn transaction(&self) -> &Transaction<'_, Dbx> {
                self.0.transaction()
            }
            fn enter<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
                self.1.borrow_mut().push(accessed.instance);
                self.0.enter(accessed)
            }
            fn keep<T: Record>(&self, accessed: &Accessed<'_, T>) -> Result<(), Error> {
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

/// The first of some nodes that is worth so much.
#[procedure(Find)]
fn find<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    limit_of: u32,
) -> Result<Option<u32>, Error> {
    let limit = tx.get(nodes, &limit_of)?.expect("it is there").value;
    for node in tx.range(nodes, 1..) {
        let node = node?;
        if node.value >= limit {
            return Ok(Some(node.id));
        }
    }
    Ok(None)
}

/// A scan keeps what it has read. If that is not enough any more, it is run again.
#[test]
fn a_scan_that_has_to_read_on_runs_again() {
    let (database, nodes) = loaded();
    let set = |tx: &Transaction<'_, Dbx>, value| {
        tx.update(&nodes, &0, |node| node.value = value).expect("it is there");
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

/// A node's value is enough, or else the procedure ends early by an error; then another is written.
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

/// What a pass has run that ended early counts in the next: the steps behind the end have not seen it.
#[test]
fn a_pass_that_ends_early_is_remembered() {
    let (database, nodes) = loaded();
    let tx = database.begin().expect("begins");
    let set = |id: u32, value| {
        tx.update(&nodes, &id, |node| node.value = value).expect("it is there");
    };
    let driver = Told::new(&tx).then(stale(0), || set(2, 95)).then(stale(1), || set(9, 100));
    assert_eq!(Guarded::new(&nodes, 2).execute(&driver), Ok(95));
    assert_eq!(driver.taken(), "+0 +1 +2 ok =0 ~1 error ~0 =1 =2 ok");
    assert_eq!(tx.get(&nodes, &5).expect("no error").expect("it is there").value, 95);
}

#[test]
fn a_procedure_is_also_its_function() {
    let (database, nodes) = loaded();
    let by_function = database.transact(|tx| look(&nodes, tx, 3)).expect("no error");
    let by_run = database.transact(|tx| Look::new(&nodes, 3).run(tx)).expect("no error");
    let by_steps =
        database.transact(|tx| Look::new(&nodes, 3).execute(&Direct::new(tx))).expect("no error");
    assert_eq!((by_function, by_run), (by_steps, (40, 90)));
}
