//! The dependencies that the analysis finds.

use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, Record, Table, Transaction};
use weft_procedures::procedure;
use weft_procedures::{Access, Execute, Procedure};

use super::{Node, Nodes, Refused, dependencies};

/// Declares a procedure on nodes whose body may use `nodes`, `tx`, `id` and `out`, and checks its dependencies.
macro_rules! found {
    (
        |$nodes:ident, $tx:ident, $id:ident, $out:ident| $name:ident,
        $body:block,
        [$($expected:literal),* $(,)?]
    ) => {{
        #[procedure($name)]
        #[allow(unused, clippy::all, reason = "only what is found matters")]
        fn function<P: Protocol>(
            $nodes: &Nodes,
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
            let (a, b) = (next, value);
            tx.update(nodes, &a, |node| node.value = b)?;
            Ok(0)
        },
        [" |  | ", "0 | 0 | "]
    );
    // A shadowing name is another variable.
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
    // After an assignment only the new value counts.
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
    // Fields are distinguished, and a whole row depends on all of its columns.
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

/// A struct that the procedures below take apart.
struct Pair(u32, u32);

/// A struct with names that the procedures below take apart.
struct Named {
    first: u32,
    second: u32,
}

/// Fault: an assignment whose left side was an array, a tuple struct or a struct was ignored.
#[test]
fn values_flow_through_assignments_to_patterns() {
    found!(
        |nodes, tx, id, out| ToArray,
        {
            let row = tx.get(nodes, &id)?.unwrap();
            let (mut a, mut b) = (1, 1);
            [a, b] = [row.next, 1];
            tx.get(nodes, &a)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| ToTupleStruct,
        {
            let row = tx.get(nodes, &id)?.unwrap();
            let (mut a, mut b) = (1, 1);
            Pair(a, b) = Pair(1, row.next);
            tx.get(nodes, &b)?;
            Ok(0)
        },
        [" |  | ", "0 |  | "]
    );
    found!(
        |nodes, tx, id, out| ToStruct,
        {
            let row = tx.get(nodes, &id)?.unwrap();
            let (mut a, mut b) = (1, 1);
            Named { first: a, .. } = Named { first: row.next, second: 1 };
            tx.get(nodes, &b)?;
            tx.get(nodes, &a)?;
            Ok(0)
        },
        [" |  | ", " |  | ", "0 |  | "]
    );
}

#[procedure(WrittenByPatterns)]
fn written_by_patterns<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Error> {
    tx.update(nodes, &id, |node| [node.next, node.id] = [1, 1])?;
    tx.update(nodes, &id, |node| Pair(node.next, _) = Pair(1, 1))?;
    tx.update(nodes, &id, |node| Named { second: node.next, .. } = Named { first: 1, second: 1 })?;
    Ok(())
}

/// Fault: only tuples were taken apart, so a column that another pattern assigned was noted as read alone.
#[test]
fn columns_that_patterns_assign_are_written() {
    let shape = WrittenByPatterns::<Dbx>::shape();
    let writes: Vec<_> = shape.steps.iter().map(|step| step.writes).collect();
    assert_eq!(writes, [Some(&["id", "next"][..]), Some(&["next"]), Some(&["next"])]);
}

#[test]
fn values_flow_through_mutation() {
    // A method changes its receiver, unless it is known not to.
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
    // A function changes an argument that it gets by `&mut`.
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
    // An assignment through a reference changes the variable that it refers to.
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
    // A closure changes what it captures, whether the procedure calls it or another function does.
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
    // A macro may use a variable that it names, also in a format string.
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
    // A value that is assigned under a condition depends on the condition, too.
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
    // A variable inside the branch does not, but the step is guarded by the condition.
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
    // An early return guards the steps that follow, and affects no value.
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
    // Values flow within an iteration, and out of the loop.
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
    // Values flow from one iteration to the next.
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
    // A `break` guards everything that follows in the loop. A `continue` guards the rest of its iteration.
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
    // All rows of a scan belong to one step.
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

/// A procedure with steps of all kinds.
#[procedure(Kinds)]
fn kinds<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<Option<i64>, weft::Error> {
    let node = tx.get(nodes, &id)?.expect("the node exists");
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
fn steps_name_their_access_and_columns() {
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
    // The closure's row is called `node`, too. The columns that it uses count for both.
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

#[procedure(Added)]
fn added<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
    sum: i64,
) -> Result<Option<i64>, Error> {
    tx.update(nodes, &id, |node| {
        node.value += sum;
        if sum > 0 {
            node.value -= 1;
        }
        node.next
    })?;
    // The amount depends on another column, but not on the column itself.
    tx.update(nodes, &id, |node| node.value += i64::from(node.next))?;
    // The other updates also read `value`, assign a column, or return `value`. Of these, only the update that assigns
    // another column (`next`) still adds to `value`.
    tx.update(nodes, &id, |node| node.value += node.value)?;
    tx.update(nodes, &id, |node| {
        node.value += 1;
        node.next = 0;
    })?;
    tx.update(nodes, &id, |node| {
        node.value += 1;
        node.value *= 2;
    })?;
    tx.update(nodes, &id, |node| {
        node.value += 1;
        node.value
    })
}

#[test]
fn columns_that_are_only_added_to_are_found() {
    let shape = Added::<Dbx>::shape();
    let adds: Vec<&[&str]> = shape.steps.iter().map(|step| step.adds).collect();
    assert_eq!(adds, [&["value"][..], &["value"], &[], &["value"], &[], &[]]);
    assert_eq!(shape.steps[0].reads, Some(&["next", "value"][..]), "the added column is read, too");
    assert_eq!(shape.steps[0].writes, Some(&["value"][..]));
}

#[procedure(Checked)]
fn checked<P: Protocol>(
    nodes: &Nodes,
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
fn rollbacks_of_the_user_are_found() {
    let shape = Checked::<Dbx>::shape();
    let before: Vec<usize> = shape.rollbacks.iter().map(|rollback| rollback.before).collect();
    assert_eq!(before, [1, 2], "after the first step, and anywhere in the loop");
    assert_eq!(shape.steps_before_rollback(), 2);
    let may_begin: Vec<bool> = (0..3).map(|step| shape.may_begin_piece(step)).collect();
    assert_eq!(may_begin, [true, true, true]);
    assert_eq!((shape.loops[0].steps, shape.loops[0].depth), ((1, 2), 0));
}

#[procedure(OwnResult)]
fn own_result<P: Protocol>(nodes: &Nodes, tx: &Transaction<'_, P>, id: u32) -> Result<(), Refused> {
    let left = tx.update(nodes, &id, |node| node.value)?;
    tx.add(nodes, &id, weft::column_of!(Node.value), 1)?;
    let checked = if left < Some(0) { Err(Refused::TooLarge) } else { Ok(()) };
    checked?;
    Ok(())
}

#[procedure(LabelledEnd)]
fn labelled_end<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Refused> {
    let left = tx.update(nodes, &id, |node| node.value)?;
    tx.add(nodes, &id, weft::column_of!(Node.value), 1)?;
    'checked: {
        if left < Some(0) {
            break 'checked Err(Refused::TooLarge);
        }
        Ok(())
    }
}

/// Fault: a `?` on the procedure's own result was taken for one on a row of a scan, because the result depended on an
/// operation. An error with which a labelled block was left was missed as well.
#[test]
fn rollbacks_in_variables_and_labelled_blocks_are_found() {
    assert_eq!(OwnResult::<Dbx>::shape().steps_before_rollback(), 2);
    assert_eq!(LabelledEnd::<Dbx>::shape().steps_before_rollback(), 2);
}

#[procedure(EngineResults)]
#[allow(clippy::while_let_on_iterator, reason = "the analysis has to know this form, too")]
fn engine_results<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Refused> {
    let found = tx.get(nodes, &id);
    let mut sum = found?.map_or(0, |node| node.value);
    for row in tx.range(nodes, ..).take(3) {
        let row = row?;
        sum += row.value;
    }
    let mut rows = tx.range(nodes, 5..);
    while let Some(row) = rows.next() {
        sum += row?.value;
    }
    if let Some(row) = tx.range(nodes, 7..).next() {
        sum += row?.value;
    }
    tx.add(nodes, &id, weft::column_of!(Node.value), sum)?;
    Ok(())
}

#[test]
fn results_of_operations_are_not_rollbacks() {
    let shape = EngineResults::<Dbx>::shape();
    assert!(shape.rollbacks.is_empty(), "{:?}", shape.rollbacks);
}

#[derive(Clone, Record)]
struct Stocked {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
    sales: i64,
}

#[procedure(Sell)]
fn sell<P: Protocol>(
    stocks: &Table<Stocked>,
    tx: &Transaction<'_, P>,
    id: u32,
    pieces: i64,
) -> Result<(), Error> {
    tx.add(stocks, &id, weft::column_of!(Stocked.sales), 1)?;
    tx.take(stocks, &id, weft::column_of!(Stocked.stock), pieces)?;
    tx.give(stocks, &id, weft::column_of!(Stocked.sales), 1)?;
    tx.add(stocks, &id, weft::column_of!(Stocked.stock), 1)?;
    tx.apply(stocks, &id, weft::column_of!(Stocked.sales), weft::operation::Give(1))?;
    tx.apply(stocks, &id, weft::column_of!(Stocked.sales), weft::operation::Take(1))?;
    tx.max(stocks, &id, weft::column_of!(Stocked.sales), 0)
}

#[procedure(SellAll)]
fn sell_all<P: Protocol>(
    stocks: &Table<Stocked>,
    tx: &Transaction<'_, P>,
    ids: &[u32],
) -> Result<(), Error> {
    for id in ids {
        tx.take(stocks, id, weft::column_of!(Stocked.stock), 1)?;
        tx.add(stocks, id, weft::column_of!(Stocked.sales), 1)?;
    }
    tx.add(stocks, &0, weft::column_of!(Stocked.sales), 1)
}

/// A step that may find too little does not commute, and must run before a procedure has committed anything.
#[test]
fn steps_that_may_fall_short_are_found() {
    use weft::operation::OperationKind::{Add, Max, Take};
    use weft_procedures::chopping::{Columns, Outline};
    let shape = Sell::<Dbx>::shape();
    let kinds = shape.steps.iter().map(|step| match step.access {
        Access::Operation(kind) => kind,
        other => panic!("{other}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [Add, Take, Add, Add, Add, Take, Max]);
    let short: Vec<bool> = shape.steps.iter().map(|step| step.may_fall_short()).collect();
    assert_eq!(short, [false, true, false, true, false, true, false]);
    assert_eq!(shape.steps_before_rollback(), 6);
    assert_eq!(SellAll::<Dbx>::shape().steps_before_rollback(), 2, "the whole loop");
    let outline = Outline::of(shape);
    assert_eq!(outline.steps[0].operation(), Some(Add));
    assert_eq!(outline.steps[1].operation(), None);
    assert_eq!(outline.steps[1].reads, Columns::these(["stock"]));
    assert_eq!(outline.steps[1].writes, Columns::these(["stock"]));
}

/// The procedure sells what there is, and nothing after that, by every driver.
#[test]
fn procedure_sells_no_more_than_there_is() {
    fn run<P: Protocol>() {
        if P::SINGLE_KEY {
            return;
        }
        let database: Database<P> =
            Database::builder().protocol::<P>().table::<Stocked>().open().unwrap();
        let stocks = database.table::<Stocked>().unwrap();
        let row = Stocked { id: 1, stock: 5, sales: 0 };
        database.transact(|tx| tx.insert(&stocks, row.clone())).unwrap();
        for expected in [true, true, false, false] {
            let mut procedure = Sell::<P>::new(&stocks, 1, 3);
            let sold = database.execute(&mut procedure);
            assert_eq!(sold.is_ok(), expected, "{}: {sold:?}", P::NAME);
        }
        let read = database.transact(|tx| Ok::<_, Error>(tx.get(&stocks, &1)?.unwrap().clone()));
        let read = read.unwrap();
        assert_eq!((read.stock, read.sales), (1, 4), "{}", P::NAME);
    }
    for name in weft_protocols::NAMES {
        weft_protocols::with_protocol!(*name, |P| run::<P>());
    }
}
