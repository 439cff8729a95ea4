//! Tests of HTCC's repair of procedures: which steps run again, which are kept, and that the result equals that of
//! a run from the start.

use std::cell::Cell;
use std::thread;

use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Metrics, Record, Table, Transaction};
use weft_htm::word::{Ordering, Word};
use weft_procedures::{Execute, procedure};
use weft_protocols::{BuilderExt, HotRecords, Htcc, HtccOptions};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(index(name = by_name, columns(name), unique))]
struct Node {
    #[record(key)]
    id: u32,
    next: u32,
    value: i64,
    name: u64,
}

type Nodes = Table<Node>;

/// A callback that a procedure calls at numbered points, from 1, at which a test may commit other transactions.
type Meanwhile<'a> = &'a (dyn Fn(u32) + 'a);

fn node(id: u32) -> Node {
    Node { id, next: (id + 1) % 10, value: i64::from(id) * 10, name: 1000 + u64::from(id) }
}

fn open(options: HtccOptions) -> (Database<Htcc>, Nodes) {
    let database =
        Database::builder().protocol::<Htcc>().table::<Node>().htcc(options).open().unwrap();
    let nodes = database.table::<Node>().unwrap();
    let loaded: Result<(), Error> =
        database.transact(|tx| (0..10).try_for_each(|id| tx.insert(&nodes, node(id))));
    loaded.unwrap();
    (database, nodes)
}

fn by_steps() -> HtccOptions {
    HtccOptions::new().hot(HotRecords::None).dependencies(true)
}

/// Commits a transaction in another thread.
fn elsewhere(
    database: &Database<Htcc>,
    body: impl Fn(&Transaction<'_, Htcc>) -> Result<(), Error> + Sync,
) {
    thread::scope(|scope| scope.spawn(|| database.transact(&body)).join().unwrap().unwrap());
}

/// Returns a callback that acts at a point of a procedure, but only the first time.
fn once(at: u32, act: impl Fn()) -> impl Fn(u32) {
    let has_acted = Cell::new(false);
    move |point| {
        if point == at && !has_acted.replace(true) {
            act();
        }
    }
}

/// Returns the counts since `before`: repairs, operations that ran again with the same key, operations that ran
/// again with another key, operations that were kept, and aborts.
fn since(database: &Database<Htcc>, before: &Metrics) -> [u64; 5] {
    let after = database.metrics();
    let (now, then) = (after.repairs, before.repairs);
    [
        now.repairs - then.repairs,
        now.fast - then.fast,
        now.slow - then.slow,
        now.kept - then.kept,
        after.aborted_total() - before.aborted_total(),
    ]
}

fn all(database: &Database<Htcc>, nodes: &Nodes) -> Vec<Node> {
    database
        .transact(|tx| tx.range(nodes, ..).map(|row| row.cloned()).collect::<Result<_, Error>>())
        .unwrap()
}

/// Takes 1 from the node that `id` leads to, records that in a new node, and counts it at node 9.
#[procedure(Pay)]
fn pay<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<u32, Error> {
    let next = tx.get(nodes, &id)?.expect("the node exists").next;
    meanwhile(1);
    let value = tx
        .update(nodes, &next, |node| {
            node.value -= 1;
            node.value
        })?
        .expect("the node exists");
    meanwhile(2);
    tx.insert(nodes, Node { id: 100 + next, next: id, value, name: u64::from(next) })?;
    tx.insert(nodes, Node { id: 200, next: 0, value: 0, name: 0 })?;
    tx.update(nodes, &9, |node| node.value += 1)?;
    meanwhile(3);
    Ok(next)
}

#[test]
fn only_dependents_of_a_stale_read_run_again() {
    // The lead of node 0 changes. All operations but the last two depend on it.
    let (database, nodes) = open(by_steps());
    let before = database.metrics();
    let lead = once(3, || {
        elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.next = 5).map(drop))
    });
    assert_eq!(database.execute(&mut Pay::new(&nodes, 0, &lead)).unwrap(), 5);
    // The last insertion runs again, too, because its name might have been that of the first round's node.
    assert_eq!(since(&database, &before), [1, 1, 3, 1, 0], "repairs, fast, slow, kept, aborts");
    let rows = all(&database, &nodes);
    assert_eq!((rows[1].value, rows[5].value, rows[9].value), (10, 49, 91));
    let ids: Vec<u32> = rows.iter().map(|row| row.id).filter(|&id| id > 9).collect();
    assert_eq!(ids, [105, 200], "the first round's node is removed");
    assert_eq!(rows[10].value, 49);
    let names = database.transact(|tx| {
        Ok::<_, Error>(
            [1, 5].map(|name| tx.get_by(&nodes, Node::BY_NAME, &name).unwrap().map(|row| row.id)),
        )
    });
    assert_eq!(names.unwrap(), [None, Some(105)], "the first round's index entry is removed");

    // The counter changes. No operation depends on it.
    let (database, nodes) = open(by_steps());
    let before = database.metrics();
    let count = once(3, || {
        elsewhere(&database, |tx| tx.update(&nodes, &9, |node| node.value = 0).map(drop))
    });
    assert_eq!(database.execute(&mut Pay::new(&nodes, 0, &count)).unwrap(), 1);
    assert_eq!(since(&database, &before), [1, 1, 0, 4, 0]);
    assert_eq!(all(&database, &nodes)[9].value, 1);

    // The value changes. The insertion depends on it: it has the same key, but another row. The last insertion runs
    // again because of the unique names.
    let (database, nodes) = open(by_steps());
    let before = database.metrics();
    let value = once(3, || {
        elsewhere(&database, |tx| tx.update(&nodes, &1, |node| node.value = 500).map(drop))
    });
    assert_eq!(database.execute(&mut Pay::new(&nodes, 0, &value)).unwrap(), 1);
    let [repairs, fast, slow, kept, aborts] = since(&database, &before);
    assert_eq!((repairs, fast + slow, kept, aborts), (1, 3, 2, 0));
    let rows = all(&database, &nodes);
    assert_eq!((rows[1].value, rows[10].id, rows[10].value), (499, 101, 499));
}

/// Reads the node that `id` leads to, then writes node 7 and deletes node 8.
#[procedure(ReadAndWrite)]
fn read_and_write<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<i64, Error> {
    let next = tx.get(nodes, &id)?.expect("the node exists").next;
    let seen = tx.get(nodes, &next)?.expect("the node exists").value;
    tx.update(nodes, &7, |node| node.value = -1)?;
    tx.delete(nodes, &8)?;
    meanwhile(1);
    Ok(seen)
}

#[test]
fn repaired_steps_do_not_see_later_steps() {
    for (next, seen) in [(7, 70), (8, 80)] {
        let (database, nodes) = open(by_steps());
        let before = database.metrics();
        let lead = once(1, || {
            elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.next = next).map(drop))
        });
        assert_eq!(database.execute(&mut ReadAndWrite::new(&nodes, 0, &lead)).unwrap(), seen);
        assert_eq!(since(&database, &before)[3], 2, "the update and the deletion are kept");
        let rows = all(&database, &nodes);
        assert_eq!((rows.len(), rows[7].value), (9, -1));
    }
}

/// Writes node 3 twice, before and after it writes the node that `id` leads to, which may be node 3, too.
#[procedure(WriteTwice)]
fn write_twice<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    tx.update(nodes, &3, |node| node.value += 1)?;
    let next = tx.get(nodes, &id)?.expect("the node exists").next;
    tx.update(nodes, &next, |node| node.value *= 2)?;
    tx.update(nodes, &3, |node| node.value += 10)?;
    meanwhile(1);
    Ok(())
}

#[test]
fn repeated_writes_of_a_row_are_repaired() {
    for (next, value) in [(3, (30 + 1) * 2 + 10), (4, 41)] {
        for first in [3, 5] {
            let (database, nodes) = open(by_steps());
            elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.next = first).map(drop));
            let lead = once(1, || {
                elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.next = next).map(drop));
            });
            database.execute(&mut WriteTwice::new(&nodes, 0, &lead)).unwrap();
            let rows = all(&database, &nodes);
            assert_eq!(rows[3].value, value, "from {first} to {next}");
            assert_eq!(rows[4].value, if next == 4 { 80 } else { 40 });
            assert_eq!(rows[5].value, 50);
        }
    }
}

/// Inserts three new nodes, whose numbers depend on the value of node `id`.
#[procedure(InsertSome)]
fn insert_some<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    id: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let first = tx.get(nodes, &id)?.expect("the node exists").value as u32;
    for number in 0..3 {
        let id = 100 + first + number;
        tx.insert(nodes, Node { id, next: number, value: 0, name: u64::from(id) })?;
        meanwhile(1 + number);
    }
    tx.update(nodes, &9, |node| node.value += 1)?;
    meanwhile(4);
    Ok(())
}

#[test]
fn repaired_insertions_can_exchange_keys() {
    // For example from 100, 101, 102 to 101, 102, 103 and back: an insertion moves to a key where another was.
    for (from, to) in [(0, 1), (1, 0), (0, 2), (0, 3)] {
        for point in 1..=4 {
            let (database, nodes) = open(by_steps());
            elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.value = from).map(drop));
            let change = once(point, || {
                elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.value = to).map(drop));
            });
            database.execute(&mut InsertSome::new(&nodes, 0, &change)).unwrap();
            let rows = all(&database, &nodes);
            let inserted: Vec<(u32, u32)> =
                rows[10..].iter().map(|row| (row.id, row.next)).collect();
            let to = 100 + to as u32;
            assert_eq!(inserted, [(to, 0), (to + 1, 1), (to + 2, 2)], "from {from}, at {point}");
            assert_eq!(rows[9].value, 91);
            // All other keys can be inserted, so nothing else is left in the index.
            elsewhere(&database, |tx| {
                (100..110).filter(|id| !(to..to + 3).contains(id)).try_for_each(|id| {
                    tx.insert(&nodes, Node { id, next: 0, value: 0, name: u64::from(id) })
                })
            });
            assert_eq!(all(&database, &nodes).len(), 20);
        }
    }
}

#[test]
fn round_that_ends_early_is_repaired() {
    // In the second round the procedure fails in the middle, because node 102 still exists at that moment.
    let (database, nodes) = open(by_steps());
    let round = Cell::new(0);
    let meanwhile = |point| match point {
        1 => round.set(round.get() + 1),
        4 if round.get() == 1 => elsewhere(&database, |tx| {
            tx.update(&nodes, &0, |node| node.value = 1)?;
            tx.insert(&nodes, Node { id: 103, next: 0, value: 7, name: 7 })
        }),
        2 if round.get() == 2 => elsewhere(&database, |tx| {
            tx.update(&nodes, &0, |node| node.value = 2)?;
            tx.delete(&nodes, &103).map(drop)
        }),
        _ => {}
    };
    database.execute(&mut InsertSome::new(&nodes, 0, &meanwhile)).unwrap();
    let rows = all(&database, &nodes);
    let inserted: Vec<u32> = rows[10..].iter().map(|row| row.id).collect();
    assert_eq!((inserted.as_slice(), rows[9].value, round.get()), (&[102, 103, 104][..], 91, 3));
}

#[test]
fn errors_and_panics_from_current_rows_are_returned() {
    let (database, nodes) = open(by_steps());
    let change = once(4, || {
        elsewhere(&database, |tx| {
            tx.update(&nodes, &0, |node| node.value = 1)?;
            tx.insert(&nodes, Node { id: 103, next: 0, value: 7, name: 7 })
        });
    });
    let ended = database.execute(&mut InsertSome::new(&nodes, 0, &change));
    assert!(matches!(ended, Err(Error::Failure(Failure::DuplicateKey { .. }))), "{ended:?}");
    let rows = all(&database, &nodes);
    assert_eq!(
        (rows.len(), rows[10].id, rows[9].value),
        (11, 103, 90),
        "the procedure left a change"
    );
    // A panic is returned, too, when it happens in a later round.
    let change = once(2, || {
        elsewhere(&database, |tx| tx.delete(&nodes, &0).map(drop));
    });
    let mut pay = Pay::new(&nodes, 0, &change);
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| database.execute(&mut pay)));
    assert!(panicked.is_err());
    assert_eq!(all(&database, &nodes).len(), 10);
    let ended: Result<(), Error> = database.transact(|tx| tx.insert(&nodes, node(0)));
    ended.expect("the worker can be used again");
}

/// Adds up the values of a range of nodes, and writes the sum to another node.
#[procedure(AddUp)]
fn add_up<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    from: u32,
    to: u32,
    into: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<i64, Error> {
    let mut sum = 0;
    for row in tx.range(nodes, from..to) {
        let row = row?;
        sum += row.value;
        tx.update(nodes, &row.next, |node| node.next = row.id)?;
    }
    tx.update(nodes, &into, |node| node.value = sum)?;
    meanwhile(1);
    Ok(sum)
}

#[test]
fn scans_are_repaired() {
    for gone in [None, Some(3)] {
        let (database, nodes) = open(by_steps());
        let change = once(1, || {
            elsewhere(&database, |tx| {
                tx.insert(&nodes, Node { id: 20, next: 0, value: 1000, name: 20 })?;
                gone.map_or(Ok(()), |id| tx.delete(&nodes, &id).map(drop))
            });
        });
        let before = database.metrics();
        let sum = database.execute(&mut AddUp::new(&nodes, 0, 50, 40, &change)).unwrap();
        // Each of the rows 0 to 9 leads to the next. The scan sees the rows as the loop has changed them.
        let expected = 450 + 1000 - gone.map_or(0, |id| i64::from(id) * 10);
        assert_eq!(sum, expected, "{gone:?}");
        assert_eq!(since(&database, &before)[4], 0, "no aborts");
    }
}

/// Counts the nodes from 100 on, and then puts node 100 there. Returns the count and whether node 100 was there.
#[procedure(CountAndPut)]
fn count_and_put<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(u32, bool), Error> {
    let mut count = 0;
    for row in tx.range(nodes, 100..) {
        row?;
        count += 1;
    }
    let was_there = tx.upsert(nodes, Node { id: 100, next: 0, value: 1, name: 1 })?;
    meanwhile(1);
    Ok((count, was_there))
}

#[test]
fn scans_before_an_insertion_whose_place_another_has_taken_run_again() {
    let (database, nodes) = open(by_steps());
    let change = once(1, || {
        let taken = Node { id: 100, next: 0, value: 2, name: 2 };
        elsewhere(&database, |tx| tx.upsert(&nodes, taken).map(drop));
    });
    let before = database.metrics();
    let ended = database.execute(&mut CountAndPut::new(&nodes, &change)).unwrap();
    assert_eq!(ended, (1, true));
    assert_eq!(since(&database, &before)[4], 0, "no aborts");
}

/// As [`count_and_put`], but panics if node 100 is there. Tells the callback the count.
#[procedure(CountAndInsert)]
fn count_and_insert<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let mut count = 0;
    for row in tx.range(nodes, 100..) {
        row?;
        count += 1;
    }
    meanwhile(100 + count);
    let was_there = tx.upsert(nodes, Node { id: 100, next: 0, value: 1, name: 1 })?;
    assert!(!was_there, "node 100 was there");
    meanwhile(1);
    Ok(())
}

#[test]
fn panics_after_an_insertion_whose_place_another_has_taken_are_from_current_rows() {
    let (database, nodes) = open(by_steps());
    let counted = Cell::new(0);
    let take = once(1, || {
        let taken = Node { id: 100, next: 0, value: 2, name: 2 };
        elsewhere(&database, |tx| tx.upsert(&nodes, taken).map(drop));
    });
    let meanwhile = |point| match point {
        1 => take(1),
        count => counted.set(count - 100),
    };
    let mut insert = CountAndInsert::new(&nodes, &meanwhile);
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| database.execute(&mut insert)));
    assert!(panicked.is_err());
    assert_eq!(counted.get(), 1);
}

/// Deletes the node that node 0 leads to, and inserts node 100 with the name of node 1.
#[procedure(TakeName)]
fn take_name<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    meanwhile: Meanwhile<'_>,
) -> Result<(), Error> {
    let next = tx.get(nodes, &0)?.expect("the node exists").next;
    tx.delete(nodes, &next)?;
    tx.insert(nodes, Node { id: 100, next: 0, value: 0, name: 1001 })?;
    meanwhile(1);
    Ok(())
}

/// Fault: an insertion was kept although the deletion that had freed its unique key now deleted another row. Then two
/// rows had the same unique key.
#[test]
fn repaired_insertion_finds_its_unique_key_taken() {
    let (database, nodes) = open(by_steps());
    let lead = once(1, || {
        elsewhere(&database, |tx| tx.update(&nodes, &0, |node| node.next = 5).map(drop));
    });
    let ended = database.execute(&mut TakeName::new(&nodes, &lead));
    assert!(matches!(ended, Err(Error::Failure(Failure::DuplicateKey { .. }))), "{ended:?}");
    let ids: Vec<u32> = all(&database, &nodes).iter().map(|row| row.id).collect();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
}

#[test]
fn many_threads_keep_the_invariants() {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    for hot in [HotRecords::None, HotRecords::Automatic, HotRecords::All] {
        let (database, nodes) = open(by_steps().hot(hot.clone()).hot_at(1));
        let paid = Word::new(0);
        let counters: Vec<Word> = (0..10).map(|_| Word::new(0)).collect();
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let (database, nodes, paid, counters) = (&database, &nodes, &paid, &counters);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + number);
                    for _ in 0..3000 {
                        let yielding = |_| {
                            if fastrand::u8(..4) == 0 {
                                thread::yield_now();
                            }
                        };
                        let mut hop =
                            Hop::new(nodes, random.u32(0..9), random.u32(0..9), &yielding);
                        let end = database.execute(&mut hop).unwrap();
                        counters[end as usize].fetch_add(1, Ordering::Relaxed);
                        paid.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let rows = all(&database, &nodes);
        let counted: Vec<u64> =
            counters.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let found: Vec<u64> =
            rows.iter().take(9).map(|row| (row.value - i64::from(row.id) * 10) as u64).collect();
        assert_eq!(found, counted[..9], "{hot:?}, seed {seed}: how often each was the end");
        assert_eq!(rows[9].value, 90 + paid.load(Ordering::Relaxed) as i64, "{hot:?}");
        // The leads form one or more rings, so each node is led to exactly once.
        let mut led: Vec<u32> = rows.iter().take(9).map(|row| row.next).collect();
        led.sort_unstable();
        assert_eq!(led, (0..9).collect::<Vec<_>>(), "{hot:?}, seed {seed}");
        assert_eq!(rows.len(), 10, "{hot:?}: a node that each hop inserts and deletes is left");
    }
}

/// Follows the leads from a node twice, counts at the node where it ends, and swaps the leads of two nodes.
#[procedure(Hop)]
fn hop<P: Protocol>(
    nodes: &Nodes,
    tx: &Transaction<'_, P>,
    from: u32,
    other: u32,
    meanwhile: Meanwhile<'_>,
) -> Result<u32, Error> {
    let first = tx.get(nodes, &from)?.expect("the node exists").next % 9;
    meanwhile(1);
    let second = tx.get(nodes, &first)?.expect("the node exists").next % 9;
    tx.update(nodes, &second, |node| node.value += 1)?;
    meanwhile(2);
    let mark = 1000 + first;
    tx.insert(nodes, Node { id: mark, next: 0, value: 0, name: 5000 + u64::from(mark) })?;
    let theirs = tx.get(nodes, &other)?.expect("the node exists").next % 9;
    let own = tx
        .update(nodes, &first, |node| std::mem::replace(&mut node.next, theirs) % 9)?
        .expect("the node exists");
    meanwhile(3);
    tx.update(nodes, &other, |node| node.next = own)?;
    tx.update(nodes, &9, |node| node.value += 1)?;
    tx.delete(nodes, &mark)?;
    Ok(second)
}
