//! Acknowledged reads: what a reader was told is durable must survive a crash, at any point of the writer that
//! it was read from.
//!
//! A writer is paused before each access of its transaction to shared memory in turn: between installing and
//! numbering, between numbering and logging, between unlocking one record and the next. While it is paused,
//! readers read what it writes, inserts or deletes, and commit. If one of them is acknowledged as durable, the
//! power fails. What it has read must exist when the database is opened again.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use weft::durability::SimulatedDisk;
use weft::protocol::Protocol;
use weft::{Acknowledge, CommitToken, Database, DurabilityOptions, Error, Failure, Record, Table};
use weft::{Transaction, TransactionOptions};
use weft_conformance::threads::stress;
use weft_htm::Choice;
use weft_htm::interleave::Pause;
use weft_protocols::{Atomic, NoControl, with_protocol};

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Cell {
    #[record(key)]
    id: u32,
    value: u64,
}

/// The values under the keys 1 to 3. At first the second is absent.
type State = [Option<u64>; 3];

const BEFORE: State = [Some(10), None, Some(30)];

const IDS: [u32; 3] = [1, 2, 3];

/// Under most protocols the writer is paused before one of so many accesses.
const ACCESSES_PER_PAUSE: usize = 6;

/// The writer's transaction.
#[derive(Clone, Copy, Debug)]
enum Write {
    Update,
    Insert,
    Delete,
}

impl Write {
    fn after(self) -> State {
        match self {
            Write::Update => [Some(11), None, Some(30)],
            Write::Insert => [Some(10), Some(20), Some(30)],
            Write::Delete => [Some(10), None, None],
        }
    }

    fn run<P: Protocol>(self, tx: &Transaction<'_, P>, cells: &Table<Cell>) -> Result<(), Error> {
        match self {
            Write::Update => tx.update(cells, &1, |cell| cell.value += 1).map(drop),
            Write::Insert => tx.insert(cells, Cell { id: 2, value: 20 }),
            Write::Delete => tx.delete(cells, &3).map(drop),
        }
    }
}

/// What a reader knows of each key: nothing, or what it has found.
type ReadValues = [Option<Option<u64>>; 3];

/// How a reader reads.
#[derive(Clone, Copy, Debug)]
enum Read {
    One(u32),
    All,
    Range,
    UpdateOfNothing,
    Snapshot,
    RecentSnapshot,
    SnapshotWithToken,
}

const READS: [Read; 9] = [
    Read::One(1),
    Read::One(2),
    Read::One(3),
    Read::All,
    Read::Range,
    Read::UpdateOfNothing,
    Read::Snapshot,
    Read::RecentSnapshot,
    Read::SnapshotWithToken,
];

/// Reads, and returns when the read is acknowledged as durable. Returns `None` if the protocol does not support
/// it.
fn read<P: Protocol>(database: &Database<P>, cells: &Table<Cell>, how: Read) -> Option<ReadValues> {
    let position = |id: u32| id as usize - 1;
    let seen: Result<ReadValues, Error> = match how {
        Read::One(id) => database.transact(|tx| {
            let mut seen = ReadValues::default();
            seen[position(id)] = Some(tx.get(cells, &id)?.map(|cell| cell.value));
            Ok(seen)
        }),
        Read::All => database.transact(|tx| {
            let mut seen = ReadValues::default();
            for id in IDS {
                seen[position(id)] = Some(tx.get(cells, &id)?.map(|cell| cell.value));
            }
            Ok(seen)
        }),
        Read::Range => database.transact(|tx| {
            let mut seen = [Some(None); 3];
            for cell in tx.range(cells, ..) {
                let cell = cell?;
                seen[position(cell.id)] = Some(Some(cell.value));
            }
            Ok(seen)
        }),
        Read::UpdateOfNothing => database.transact(|tx| {
            let mut seen = ReadValues::default();
            seen[1] = match tx.update(cells, &2, |cell| cell.value)? {
                // The row is unchanged, but this was a write of the same value.
                Some(value) => Some(Some(value)),
                None => Some(None),
            };
            Ok(seen)
        }),
        Read::Snapshot | Read::RecentSnapshot | Read::SnapshotWithToken => {
            let body = |snapshot: &weft::Snapshot| {
                let mut seen = ReadValues::default();
                for id in IDS {
                    seen[position(id)] = Some(snapshot.get(cells, &id)?.map(|cell| cell.value));
                }
                Ok(seen)
            };
            match how {
                Read::Snapshot => database.snapshot(body),
                Read::RecentSnapshot => database.recent_snapshot(body),
                _ => database.open_snapshot().map_err(Error::from).and_then(|snapshot| {
                    let seen = body(&snapshot)?;
                    database.wait_durable(snapshot.token())?;
                    Ok(seen)
                }),
            }
        }
    };
    match seen {
        Ok(seen) => Some(seen),
        Err(Error::Failure(Failure::SingleKey { .. })) => None,
        Err(error) => panic!("{how:?}: {error}"),
    }
}

fn open<P: Protocol>(disk: &SimulatedDisk) -> Database<P> {
    Database::builder()
        .protocol::<P>()
        .table::<Cell>()
        .directory(Path::new("/cells"))
        .durability(DurabilityOptions::new().acknowledge(Acknowledge::Durable))
        .htm(Choice::Software)
        .workers_max(16)
        .backend(Arc::new(disk.clone()), true)
        .open()
        .expect("opens")
}

/// Crashes, recovers, and checks that what was seen exists.
fn check_survival<P: Protocol>(disk: &SimulatedDisk, how: Read, seen: &ReadValues, place: &str) {
    let disk = disk.crash(7);
    let database = open::<P>(&disk);
    let cells = database.table::<Cell>().expect("is there");
    let snapshot = database.open_snapshot().expect("opens");
    for (id, seen) in IDS.into_iter().zip(seen) {
        let Some(seen) = seen else { continue };
        let found = snapshot.get(&cells, &id).expect("reads").map(|cell| cell.value);
        // A value that a reader saw from before the writer may have been overwritten since.
        let is_later = *seen == BEFORE[id as usize - 1];
        assert!(
            found == *seen || is_later,
            "{} {place}: {how:?} was told that {seen:?} is durable under key {id}; after a crash there is \
             {found:?}",
            P::NAME
        );
    }
}

/// Runs one round with a writer that is paused before this access. Returns `false` if the writer ended before
/// it.
fn pause_at<P: Protocol>(write: Write, access: u64, told_while_paused: &mut u64) -> bool {
    let disk = SimulatedDisk::new(1);
    let database = open::<P>(&disk);
    let cells = database.table::<Cell>().expect("is there");
    for (id, value) in IDS.into_iter().zip(BEFORE) {
        if let Some(value) = value {
            database.transact(|tx| tx.insert(&cells, Cell { id, value })).expect("inserts");
        }
    }
    database.flush().expect("is durable");
    let place = format!("{write:?} paused before access {access}");
    let pause = Pause::before(access);
    let is_paused = thread::scope(|scope| {
        scope.spawn(|| {
            // Make this thread a worker first, so that the pause falls into the transaction.
            let warm = database.transact(|tx| tx.get(&cells, &9).map(drop));
            warm.expect("reads");
            let options = TransactionOptions::default();
            let written: Result<((), CommitToken), Error> =
                pause.run(|| database.transact_with_token(&options, |tx| write.run(tx, &cells)));
            written.expect("commits");
        });
        let is_paused = pause.until_paused();
        let (tell, told) = channel();
        for how in READS {
            let (tell, database, cells) = (tell.clone(), &database, &cells);
            scope.spawn(move || {
                if let Some(seen) = read(database, cells, how) {
                    // The round may have ended.
                    let _ = tell.send((how, seen));
                }
            });
        }
        drop(tell);
        let mut waits = 0;
        loop {
            match told.recv_timeout(Duration::from_millis(2)) {
                Ok((how, seen)) => {
                    *told_while_paused += u64::from(is_paused && waits == 0);
                    check_survival::<P>(&disk, how, &seen, &place);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                // A reader may wait for the writer.
                Err(RecvTimeoutError::Timeout) => {
                    waits += 1;
                    pause.release();
                }
            }
        }
        pause.release();
        is_paused
    });
    let after = write.after();
    let snapshot = database.open_snapshot().expect("opens");
    let is = IDS.map(|id| snapshot.get(&cells, &id).expect("reads").map(|cell| cell.value));
    assert_eq!(is, after, "{place}");
    is_paused
}

/// Pauses the writer before each access under the protocols that applications use, and under the others before one in
/// [`ACCESSES_PER_PAUSE`], from their own number in the list on. `WEFT_STRESS` pauses it before each.
fn check<P: Protocol>(number: usize) {
    let is_whole = ["dbx", "2pl", "adaptive"].contains(&P::NAME) || stress() > 1;
    let (number, step) =
        if is_whole { (0, 1) } else { (number % ACCESSES_PER_PAUSE, ACCESSES_PER_PAUSE) };
    if P::WORKERS_MAX == 1 {
        return; // No other worker can read while a writer is paused.
    }
    for write in [Write::Update, Write::Insert, Write::Delete] {
        let mut told = 0;
        let mut pauses = 0;
        let mut places = (number as u64..).step_by(step);
        while pause_at::<P>(write, places.next().expect("no end"), &mut told) {
            pauses += 1;
        }
        println!("{}: {write:?} paused at {pauses} places, {told} reads acknowledged", P::NAME);
        assert!(pauses > 5 / step, "{}: {write:?} was paused at {pauses} places", P::NAME);
        assert!(told > 0, "{}: nothing was acknowledged while {write:?} was paused", P::NAME);
    }
}

#[test]
fn no_acknowledged_read_is_lost_in_a_crash() {
    for (number, name) in weft_protocols::NAMES.iter().enumerate() {
        with_protocol!(*name, |P| check::<P>(number)).expect("a protocol of this name");
    }
}

// `check` leaves out protocols because of these limits.
const _: () = assert!(NoControl::WORKERS_MAX == 1 && Atomic::SINGLE_KEY);
