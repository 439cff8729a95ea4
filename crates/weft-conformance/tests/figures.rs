//! Snapshots between the pieces of procedures, as in the figures of the DBX-TC paper (§4). Each snapshot must
//! show the state after some of the transactions, in an order in which they could have run.
//!
//! A piece ends where an operation of the next one is about to run. So what happens in the middle happens after
//! the second piece has begun. If the second piece then conflicts, only it is done again.
//!
//! The same scripts run on a database whose snapshots are eventual, as in the paper: a snapshot must show just the
//! transactions that come before it by their conflicting pieces. And they run on databases whose snapshots ignore pieces,
//! or do not redo or undo them. There each anomaly must occur, because otherwise the script would prove nothing.
#![cfg(not(any(loom, shuttle, weft_sim)))]

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle, scope};
use std::time::Duration;

use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, Transaction, column_of};
use weft_procedures::procedure;
use weft_procedures::{Execute, Procedure, Shape};
use weft_protocols::{BuilderExt, ChoppedDatabase, DbxTc, DbxTcOptions, Flaw};

/// A row that is overwritten.
#[derive(Clone, Copy, Debug, Record)]
struct Written {
    #[record(key)]
    id: u32,
    value: i64,
}

/// A row that is added to.
#[derive(Debug, Record)]
struct Added {
    #[record(key)]
    id: u32,
    sum: i64,
}

thread_local! {
    /// Whether this thread cannot clone a row that is added to.
    static CLONES_PANIC: Cell<bool> = const { Cell::new(false) };
}

impl Clone for Added {
    fn clone(&self) -> Self {
        assert!(!CLONES_PANIC.get(), "planted");
        Added { id: self.id, sum: self.sum }
    }
}

struct Tables {
    written: Table<Written>,
    added: Table<Added>,
}

/// What happens elsewhere in the middle of a procedure.
type MidwayAction<'a> = &'a (dyn Fn() + 'a);

const NOTHING: MidwayAction<'static> = &|| ();

/// Reads, and then adds.
#[procedure(ReadAndAdd)]
fn read_and_add<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    midway: MidwayAction<'_>,
) -> Result<i64, Error> {
    let read = tx.get(&tables.written, &0)?.expect("it is there").value;
    tx.add(&tables.added, &0, column_of!(Added.sum), 1)?;
    midway();
    Ok(read)
}

/// Writes.
#[procedure(Write)]
fn write<P: Protocol>(tables: &Tables, tx: &Transaction<'_, P>, value: i64) -> Result<(), Error> {
    tx.update(&tables.written, &0, |row| row.value = value)?;
    Ok(())
}

/// Writes, and then adds.
#[procedure(WriteAndAdd)]
fn write_and_add<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    value: i64,
    amount: i64,
    midway: MidwayAction<'_>,
) -> Result<(), Error> {
    tx.update(&tables.written, &0, |row| row.value = value)?;
    tx.add(&tables.added, &0, column_of!(Added.sum), amount)?;
    midway();
    Ok(())
}

/// Adds, and then writes.
#[procedure(AddAndWrite)]
fn add_and_write<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    value: i64,
    amount: i64,
    midway: MidwayAction<'_>,
) -> Result<(), Error> {
    tx.add(&tables.added, &0, column_of!(Added.sum), amount)?;
    tx.update(&tables.written, &0, |row| row.value = value)?;
    midway();
    Ok(())
}

/// How a database takes snapshots.
#[derive(Clone, Copy, Debug)]
enum Snapshots {
    /// When no procedure is between two pieces.
    AtTheGate,
    /// At any moment, which is wrong.
    WithoutGate,
    /// At any moment, and what is between two pieces is redone or undone, unless there is a flaw.
    Eventual(Option<Flaw>),
}

struct Store {
    database: Database<DbxTc>,
    tables: Tables,
}

impl Store {
    /// Opens a database in which all rows are 0, with procedures of which at least one has two pieces.
    fn open(procedures: &[&'static Shape], snapshots: Snapshots) -> Store {
        let mut known = DbxTcOptions::new().procedures(procedures.iter().copied()).finest(true);
        (known.eventual_snapshots, known.flaw) = match snapshots {
            Snapshots::AtTheGate => (false, None),
            Snapshots::WithoutGate => (false, Some(Flaw::GateOpen)),
            Snapshots::Eventual(flaw) => (true, flaw),
        };
        let builder = Database::builder()
            .protocol::<DbxTc>()
            .table::<Written>()
            .table::<Added>()
            .dbx_tc(known);
        let database = builder.open().expect("opens");
        let pieces = database.chopping().procedures.iter().map(|found| found.pieces.len()).max();
        assert_eq!(pieces, Some(2));
        let tables = Tables {
            written: database.table().expect("it was added"),
            added: database.table().expect("it was added"),
        };
        let filled: Result<(), Error> = database.transact(|tx| {
            tx.insert(&tables.written, Written { id: 0, value: 0 })?;
            tx.insert(&tables.added, Added { id: 0, sum: 0 })
        });
        filled.expect("nothing is in the way");
        Store { database, tables }
    }

    fn write_and_add(&self, value: i64, amount: i64) {
        let mut procedure = WriteAndAdd::new(&self.tables, value, amount, NOTHING);
        self.database.execute(&mut procedure).expect("writes");
    }

    /// Returns the two values, from a snapshot of this moment.
    fn look(&self) -> (i64, i64) {
        let seen: Result<_, Error> = self.database.snapshot(|snapshot| {
            let written = snapshot.get(&self.tables.written, &0)?.expect("it is there").value;
            let added = snapshot.get(&self.tables.added, &0)?.expect("it is there").sum;
            Ok((written, added))
        });
        seen.expect("a snapshot never conflicts")
    }
}

/// Returns what a snapshot sees that is opened in the middle of `run`. `run` gets a function to call when the
/// snapshot should be opened. The snapshot may have to wait for the end of `run`.
fn seen_in_the_middle(store: &Store, run: impl FnOnce(MidwayAction<'_>)) -> (i64, i64) {
    scope(|scope| {
        let looking: Cell<Option<ScopedJoinHandle<'_, (i64, i64)>>> = Cell::new(None);
        run(&|| {
            let looker = scope.spawn(|| store.look());
            for _ in 0..400 {
                if looker.is_finished() {
                    break;
                }
                thread::sleep(Duration::from_micros(100));
            }
            looking.set(Some(looker));
        });
        looking.take().expect("it was opened").join().expect("it looks")
    })
}

/// Returns a function that acts only the first time: a piece may be done again.
fn once(act: impl Fn()) -> impl Fn() {
    let is_done = Cell::new(false);
    move || {
        if !is_done.replace(true) {
            act();
        }
    }
}

/// What a script may see.
struct Expected<'a> {
    /// The states after some of the transactions, in an order in which they could have run.
    allowed: &'a [(i64, i64)],
    /// The one of them that an eventual snapshot shows.
    eventual: (i64, i64),
    /// The flaw of eventual snapshots that shows, if one does.
    found: Option<Flaw>,
}

/// Runs a script on correct databases, and on some that are wrong.
fn run(
    procedures: &[&'static Shape],
    Expected { allowed, eventual, found }: Expected<'_>,
    script: impl Fn(&Store) -> (i64, i64),
) {
    let seen = |snapshots| script(&Store::open(procedures, snapshots));
    let at_the_gate = seen(Snapshots::AtTheGate);
    assert!(allowed.contains(&at_the_gate), "{at_the_gate:?}, and not one of {allowed:?}");
    assert_eq!(seen(Snapshots::Eventual(None)), eventual);
    let flawed = found.map(|flaw| Snapshots::Eventual(Some(flaw)));
    for wrong in [Snapshots::WithoutGate].into_iter().chain(flawed) {
        let seen = seen(wrong);
        assert!(!allowed.contains(&seen), "{wrong:?}, {seen:?}: an anomaly would not be found");
    }
}

/// Figure 4. The first transaction has read what the second then overwrites, so it comes before the second. A
/// wrong snapshot sees the second, but not the first.
#[test]
fn figure_4_read_before_it_was_overwritten() {
    let procedures = [ReadAndAdd::<DbxTc>::shape(), Write::<DbxTc>::shape()];
    let expected = Expected { allowed: &[(0, 0), (0, 1), (1, 1)], eventual: (1, 1), found: None };
    run(&procedures, expected, |store| {
        seen_in_the_middle(store, |look| {
            let midway = once(|| {
                scope(|scope| {
                    let second = || store.database.execute(&mut Write::new(&store.tables, 1));
                    scope.spawn(second).join().expect("ends").expect("writes");
                });
                look();
            });
            let read = store.database.execute(&mut ReadAndAdd::new(&store.tables, &midway));
            assert_eq!(read.expect("reads"), 0);
        })
    });
}

/// Figure 5. The first transaction begins before the snapshot, and the second after it. But the second comes
/// first, because of what both write.
#[test]
fn figure_5_first_to_begin_may_come_second() {
    let procedures = [AddAndWrite::<DbxTc>::shape(), WriteAndAdd::<DbxTc>::shape()];
    // Neither; the second; both. The snapshot is before both, so it must not show what the first has added.
    let found = Some(Flaw::NotUndone);
    let expected = Expected { allowed: &[(0, 0), (2, 20), (1, 21)], eventual: (0, 0), found };
    run(&procedures, expected, |store| {
        seen_in_the_middle(store, |look| {
            let midway = once(|| {
                look();
                scope(|scope| {
                    let second = || store.write_and_add(2, 20);
                    scope.spawn(second).join().expect("ends");
                });
            });
            let mut first = AddAndWrite::new(&store.tables, 1, 1, &midway);
            store.database.execute(&mut first).expect("writes");
            assert_eq!(store.look(), (1, 21));
        })
    });
}

/// Figure 7. The second transaction has written before the snapshot, and the first after it. They add in the
/// other order.
#[test]
fn figure_7_commuting_changes_in_another_order() {
    let procedures = [WriteAndAdd::<DbxTc>::shape()];
    // Neither; the second; both. The snapshot comes after the second, which has added later.
    let found = Some(Flaw::NotRedone);
    let expected = Expected { allowed: &[(0, 0), (2, 20), (1, 21)], eventual: (2, 20), found };
    run(&procedures, expected, |store| {
        seen_in_the_middle(store, |look| {
            let midway = once(|| {
                look();
                scope(|scope| {
                    let first = || store.write_and_add(1, 1);
                    scope.spawn(first).join().expect("ends");
                });
            });
            let mut second = WriteAndAdd::new(&store.tables, 2, 20, &midway);
            store.database.execute(&mut second).expect("writes");
            assert_eq!(store.look(), (1, 21));
        })
    });
}

/// As figure 7, but before the second transaction adds, the first has ended, and what it has added before the snapshot
/// was undone there. So the snapshot has a row of its own, on which what is added with the second's number must be
/// redone.
#[test]
fn figure_7_what_is_undone_before_another_adds() {
    let procedures = [AddAndWrite::<DbxTc>::shape(), WriteAndAdd::<DbxTc>::shape()];
    // Neither; the second; both. The snapshot comes after the second, which has written before it.
    let found = Some(Flaw::NotRedone);
    let expected = Expected { allowed: &[(0, 0), (2, 20), (1, 21)], eventual: (2, 20), found };
    run(&procedures, expected, |store| {
        seen_in_the_middle(store, |look| {
            scope(|scope| {
                let (has_begun, begun) = channel();
                let (go_on, may_go_on) = channel();
                let second = scope.spawn(move || {
                    let midway = once(|| {
                        has_begun.send(()).expect("it is awaited");
                        may_go_on.recv().expect("it is sent");
                    });
                    let mut second = WriteAndAdd::new(&store.tables, 2, 20, &midway);
                    store.database.execute(&mut second).expect("writes");
                });
                begun.recv().expect("it begins");
                let midway = once(look);
                let mut first = AddAndWrite::new(&store.tables, 1, 1, &midway);
                store.database.execute(&mut first).expect("writes");
                go_on.send(()).expect("it is awaited");
                second.join().expect("ends");
            });
            assert_eq!(store.look(), (1, 21));
        })
    });
}

/// As figure 5, with a row that panics when it is cloned for the snapshot. The snapshot is given up, and another one waits
/// for the procedure.
#[test]
fn a_row_that_cannot_be_cloned_makes_the_snapshot_wait() {
    let procedures = [AddAndWrite::<DbxTc>::shape()];
    let store = Store::open(&procedures, Snapshots::Eventual(None));
    let seen = seen_in_the_middle(&store, |look| {
        let midway = once(|| {
            look();
            CLONES_PANIC.set(true);
        });
        store
            .database
            .execute(&mut AddAndWrite::new(&store.tables, 1, 1, &midway))
            .expect("writes");
        CLONES_PANIC.set(false);
    });
    assert_eq!(seen, (1, 1));
}
