//! Procedures: what the analysis finds in functions of all kinds, and what is run, kept and discarded when a
//! procedure is walked again. (That this is right for the workloads' transactions is tested with them.)

use std::cell::{Cell, RefCell};

use weft::procedure::{
    Access, Accessed, Again, Dependency, Direct, Driver, Instance, Next, Procedure, Selection,
    Shape, Step,
};
use weft::protocol::{Dbx, Protocol};
use weft::{Conflict, ConflictReason, Database, Error, Record, Table, Transaction, procedure};

#[derive(Clone, Debug, PartialEq, Record)]
struct Node {
    #[record(key)]
    id: u32,
    next: u32,
    value: i64,
}

type Nodes<P> = Table<Node, P>;

// ---- what is found ------------------------------------------------------------------------------

fn steps(dependencies: impl Iterator<Item = Dependency>) -> String {
    let each = dependencies.map(|Dependency { on, carried }| match carried {
        Some(depth) => format!("{on}*{depth}"),
        None => on.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

/// Keys, values and guards of each step.
fn dependencies(shape: &Shape) -> Vec<String> {
    let of = |step: &Step| {
        let keys = steps(step.key_dependencies());
        let values = steps(step.value_dependencies());
        format!("{keys} | {values} | {}", steps(step.guards.iter().copied()))
    };
    shape.steps.iter().map(of).collect()
}

/// Declares a procedure on nodes whose body may use `nodes`, `tx`, and `id`, and checks what is found.
macro_rules! found {
    (
        |$nodes:ident, $tx:ident, $id:ident, $out:ident| $name:ident,
        $body:block,
        [$($expected:literal),* $(,)?]
    ) => {{
        #[procedure($name)]
        #[allow(unused, reason = "only what is found matters")]
        fn function<P: Protocol>(
            $nodes: &Nodes<P>,
            $tx: &Transaction<'_, P>,
            $id: u32,
            $out: &mut Vec<u32>,
        ) -> Result<i64, Error> {
            $body
        }
        let expected: &[&str] = &[$($expected),*];
        assert_eq!(dependencies($name::<Dbx>::shape()), expected, stringify!($name));
    }};
}

fn longest(nodes: &[u32]) -> u32 {
    nodes.iter().copied().max().unwrap_or(0)
}

fn append(nodes: &mut Vec<u32>, node: u32) {
    nodes.push(node);
}

#[test]
fn values_flow_through_locals() {
    found!(
        |nodes, tx, id, out| Chain,
        {
            let first = tx.get(nodes, &id)?.unwrap();
            let &Node { next, value, .. } = first;
            let (a, b) = (next + 0, value);
            tx.update(nodes, &a, |node| node.value = b)?;
            Ok(0)
        },
        [" |  | ", "0 | 0 | "]
    );
    // A name that is bound again is another variable.
    found!(
        |nodes, tx, id, out| Shadowed,
        {
            let id = tx.get(nodes, &id)?.unwrap().next;
            let id = {
                let id = id + 1;
                7
            };
            tx.get(nodes, &id)?;
            Ok(0)
        },
        [" |  | ", " |  | "]
    );
    // What is assigned anew comes from there alone.
    found!(
        |nodes, tx, id, out| Assigned,
        {
            let mut key = tx.get(nodes, &id)?.unwrap().next;
            tx.get(nodes, &key)?;
            key = 3;
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | ", "0 |  | ", " |  | "]
    );
    found!(
        |nodes, tx, id, out| Swapped,
        {
            let a = tx.get(nodes, &id)?.unwrap().next;
            let b = 5;
            let (a, b) = (b, a);
            tx.get(nodes, &a)?;
            tx.get(nodes, &b)?;
            Ok(0)
        },
        [" |  | ", " |  | ", "0 |  | "]
    );
    // Fields are told apart, and whole rows by their columns.
    found!(
        |nodes, tx, id, out| Fields,
        {
            let mut row = Node { id, next: 0, value: 0 };
            row.value = tx.get(nodes, &id)?.unwrap().value;
            tx.insert(nodes, Node { id: row.id + 1, next: 0, value: row.value })?;
            tx.insert(nodes, row)?;
            Ok(0)
        },
        [" |  | ", " | 0 | ", "0 | 0 | "]
    );
}

#[test]
fn values_flow_through_what_changes_them() {
    // A method changes what it is called on, unless it is known not to.
    found!(
        |nodes, tx, id, out| Methods,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let mut list = vec![1];
            tx.get(nodes, &longest(&list))?;
            list.push(next);
            tx.get(nodes, &longest(&list))?;
            Ok(0)
        },
        [" |  | ", " |  | ", "0 |  | "]
    );
    // So does a function that gets it by `&mut`,
    found!(
        |nodes, tx, id, out| Functions,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            append(out, next);
            tx.get(nodes, &out[0])?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    // another variable that refers to it,
    found!(
        |nodes, tx, id, out| References,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let mut list = vec![1, 2];
            let last = list.last_mut().unwrap();
            *last = next;
            tx.get(nodes, &list[1])?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| Iterators,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let mut list = [1, 2];
            for element in list.iter_mut() {
                *element += next;
            }
            tx.get(nodes, &list[1])?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| Matched,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let mut pair = (1, Some(2));
            if let (_, Some(second)) = &mut pair {
                *second = next;
            }
            tx.get(nodes, &pair.0)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    // a closure, whether it is called here or there,
    found!(
        |nodes, tx, id, out| Closures,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let (mut sum, mut count) = (0, 0);
            [1, 2].iter().for_each(|element| sum += element * next);
            let mut more = || count += next;
            more();
            tx.get(nodes, &sum)?;
            tx.get(nodes, &count)?;
            Ok(0)
        },
        [" |  | ", "0 |  | ", "0 |  | "]
    );
    // and a macro, which names it in a text, or anywhere.
    found!(
        |nodes, tx, id, out| Macros,
        {
            let next = tx.get(nodes, &id)?.unwrap().next;
            let mut text = String::new();
            {
                use std::fmt::Write;
                write!(text, "{next}").unwrap();
            }
            let other = format!("{text}");
            tx.get(nodes, &(other.len() as u32))?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
}

#[test]
fn values_flow_through_branches() {
    // What is assigned under a condition comes from that, too.
    found!(
        |nodes, tx, id, out| Conditions,
        {
            let mut key = 1;
            if tx.get(nodes, &id)?.is_some() {
                key = 2;
            }
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    // What lives within the branch does not.
    found!(
        |nodes, tx, id, out| Within,
        {
            if tx.get(nodes, &id)?.is_some() {
                let key = 2;
                tx.get(nodes, &key)?;
            }
            Ok(0)
        },
        [" |  | ", " |  | 0"]
    );
    found!(
        |nodes, tx, id, out| Matches,
        {
            let key = match tx.get(nodes, &id)? {
                Some(node) if node.value > 0 => node.next,
                Some(_) => 4,
                None => 5,
            };
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    // An early end decides about what follows, and about no value.
    found!(
        |nodes, tx, id, out| Ends,
        {
            let Some(_) = tx.get(nodes, &id)? else { return Ok(1) };
            tx.get(nodes, &(id + 1))?;
            Ok(0)
        },
        [" |  | ", " |  | 0"]
    );
    found!(
        |nodes, tx, id, out| Lazy,
        {
            let mut key = 1;
            let is_there = id > 3 && tx.get(nodes, &id)?.is_some() && {
                key = 2;
                true
            };
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| Blocks,
        {
            let mut key = 1;
            'done: {
                if tx.get(nodes, &id)?.is_some() {
                    break 'done;
                }
                key = 2;
            }
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
}

#[test]
fn values_flow_through_loops() {
    // In the same iteration, and to the end.
    found!(
        |nodes, tx, id, out| Sum,
        {
            let mut sum = 0;
            for key in 1..id {
                let node = tx.get(nodes, &key)?.unwrap();
                tx.update(nodes, &(key + 100), |other| other.value = node.value)?;
                sum += node.value;
            }
            tx.update(nodes, &id, |node| node.value = sum)?;
            Ok(0)
        },
        [" |  | ", " | 0 | ", " | 0 | "]
    );
    // From one to the next.
    found!(
        |nodes, tx, id, out| Linked,
        {
            let mut key = id;
            while key > 0 {
                key = tx.get(nodes, &key)?.unwrap().next;
            }
            Ok(0)
        },
        ["0*0 |  | 0*0"]
    );
    found!(
        |nodes, tx, id, out| Inner,
        {
            for key in 1..id {
                let mut next = key;
                for _ in 0..3 {
                    next = tx.get(nodes, &next)?.unwrap().next;
                }
                tx.get(nodes, &next)?;
            }
            Ok(0)
        },
        ["0*1 |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| Outer,
        {
            let mut last = id;
            for key in 1..id {
                for other in 0..3 {
                    tx.get(nodes, &last)?;
                }
                last = tx.get(nodes, &key)?.unwrap().next;
            }
            Ok(0)
        },
        ["1*0 |  | ", " |  | "]
    );
    // What leaves a loop decides about all that follows; what leaves an iteration, about its rest.
    found!(
        |nodes, tx, id, out| Broken,
        {
            let mut count = 0;
            for key in 1..id {
                if tx.get(nodes, &key)?.is_none() {
                    break;
                }
                count += 1;
            }
            tx.get(nodes, &count)?;
            Ok(0)
        },
        [" |  | 0*0", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| BrokenAfter,
        {
            let mut key = 1;
            loop {
                key = 2;
                if tx.get(nodes, &id)?.is_none() {
                    key = 3;
                    break;
                }
                key = 4;
                if id > 2 {
                    break;
                }
            }
            tx.get(nodes, &key)?;
            Ok(0)
        },
        [" |  | 0*0", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| Continued,
        {
            let mut count = 0;
            for key in 1..id {
                if tx.get(nodes, &key)?.is_none() {
                    continue;
                }
                tx.get(nodes, &(key + 1))?;
                count += 1;
            }
            tx.get(nodes, &count)?;
            Ok(0)
        },
        [" |  | ", " |  | 0", "0 |  | "]
    );
    // Rows of a scan are of one step, however many.
    found!(
        |nodes, tx, id, out| Scanned,
        {
            for node in tx.range(nodes, ..).take(3) {
                tx.get(nodes, &node?.next)?;
            }
            Ok(0)
        },
        [" |  | ", "0 |  | 0"]
    );
}

/// A procedure whose steps are of all kinds.
#[procedure(Kinds)]
fn kinds<P: Protocol>(
    nodes: &Nodes<P>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<Option<i64>, weft::Error> {
    let node = tx.get(nodes, &id)?.expect("it is there");
    let read = (node.next, node.value);
    tx.upsert(nodes, Node { id: read.0, next: 0, value: read.1 })?;
    let changed = tx.update(nodes, &id, |node| {
        node.value += i64::from(node.next);
        node.value
    })?;
    tx.add(nodes, &id, weft::column_of!(Node.value), 1)?;
    tx.apply(nodes, &id, weft::column_of!(Node.value), weft::operation::Max(5))?;
    tx.delete(nodes, &(id + 1))?;
    Ok(changed)
}

#[test]
fn steps_say_what_they_do_and_to_which_columns() {
    use weft::operation::OperationKind;
    let shape = Kinds::<Dbx>::shape();
    let accesses: Vec<Access> = shape.steps.iter().map(|step| step.access).collect();
    assert_eq!(
        accesses,
        [
            Access::Read,
            Access::ReadWrite,
            Access::ReadWrite,
            Access::Operation(OperationKind::Add),
            Access::Operation(OperationKind::Max),
            Access::Delete
        ]
    );
    // `node` is also the row in the closure, whose columns count for both.
    assert_eq!(shape.steps[0].reads, Some(&["next", "value"][..]));
    assert_eq!(shape.steps[0].writes, Some(&[][..]));
    assert_eq!(shape.steps[2].reads, Some(&["next", "value"][..]));
    assert_eq!(shape.steps[2].writes, Some(&["value"][..]));
    assert_eq!(shape.steps[3].writes, Some(&["value"][..]));
    assert_eq!((shape.steps[1].writes, shape.steps[5].writes), (None, None));
    assert!(shape.steps.iter().all(|step| step.table.name == "node" && step.loops.is_empty()));
    assert!(shape.rollbacks.is_empty() && !shape.is_read_only());
    let lines: Vec<u32> = shape.steps.iter().map(|step| step.line).collect();
    assert!(lines.is_sorted() && lines[0] > 1, "{lines:?}");
}

/// One with an error of its own.
#[derive(Debug, PartialEq)]
enum Refused {
    TooLarge,
    Engine(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused::Engine(error.to_string())
    }
}

#[procedure(Checked)]
fn checked<P: Protocol>(
    nodes: &Nodes<P>,
    tx: &Transaction<'_, P>,
    ids: &[u32],
) -> Result<(), Refused> {
    let first = tx.get(nodes, &0)?;
    first.filter(|node| node.value < 100).ok_or(Refused::TooLarge)?;
    for id in ids {
        if *id > 100 {
            return Err(Refused::TooLarge);
        }
        tx.add(nodes, id, weft::column_of!(Node.value), 1)?;
    }
    tx.delete(nodes, &1)?;
    Ok(())
}

#[test]
fn rollbacks_of_its_own_are_known() {
    let shape = Checked::<Dbx>::shape();
    let before: Vec<usize> = shape.rollbacks.iter().map(|rollback| rollback.before).collect();
    assert_eq!(before, [1, 2], "behind the first step, and anywhere in the loop");
    assert_eq!(shape.steps_before_rollback(), 2);
    let may_begin: Vec<bool> = (0..3).map(|step| shape.may_begin_piece(step)).collect();
    assert_eq!(may_begin, [true, true, true]);
    assert_eq!((shape.loops[0].steps, shape.loops[0].depth), ((1, 2), 0));
}

// ---- what is run --------------------------------------------------------------------------------

/// Nodes 0 to 9, each of which leads to the next, with ten times its number as its value.
fn loaded() -> (Database, Nodes<Dbx>) {
    let database: Database = Database::builder().table::<Node>().open().expect("opens");
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

    fn enter<T: Record>(&self, accessed: &Accessed<'_, T, Dbx>) -> Result<(), Error> {
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

    fn keep<T: Record>(&self, accessed: &Accessed<'_, T, Dbx>) -> Result<(), Error> {
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
fn look<P: Protocol>(
    nodes: &Nodes<P>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(i64, i64), Error> {
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
        // is the same, which is looked at again nevertheless,
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
    nodes: &Nodes<P>,
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
            fn enter<T: Record>(&self, accessed: &Accessed<'_, T, Dbx>) -> Result<(), Error> {
                self.1.borrow_mut().push(accessed.instance);
                self.0.enter(accessed)
            }
            fn keep<T: Record>(&self, accessed: &Accessed<'_, T, Dbx>) -> Result<(), Error> {
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
    nodes: &Nodes<P>,
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
fn guarded<P: Protocol>(
    nodes: &Nodes<P>,
    tx: &Transaction<'_, P>,
    from: u32,
) -> Result<i64, Refused> {
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
