//! Tests of snapshots under every executor: what they show, and how much memory they hold.

use std::collections::BTreeMap;

use weft::htm::blocking::{Mutex, scope};
use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Snapshot, Table};
use weft_protocols::Atomic;

use weft_tests::{
    Seed, StopOnDrop, TestBarrier, chaos, for_each_executor, for_each_protocol, on_a_thread,
    stress, threads,
};

#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    #[record(index)]
    group: u8,
    #[record(unique)]
    label: String,
    value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Cell {
    #[record(key)]
    id: u32,
    value: u64,
}

struct Fixture<P: Protocol> {
    database: Database<P>,
    items: Table<Item>,
    cells: Table<Cell>,
}

impl<P: Protocol> Fixture<P> {
    fn new() -> Self {
        let database =
            Database::builder().protocol::<P>().table::<Item>().table::<Cell>().open().unwrap();
        let (items, cells) = (database.table().unwrap(), database.table().unwrap());
        Fixture { database, items, cells }
    }

    fn put(&self, id: u32, value: u64) {
        let transact = self.database.transact(|tx| {
            tx.upsert(&self.items, item(id, value))?;
            tx.upsert(&self.cells, Cell { id, value })?;
            Ok::<_, Error>(())
        });
        transact.unwrap();
    }

    fn delete(&self, id: u32) {
        let transact = self.database.transact(|tx| {
            tx.delete(&self.items, &id)?;
            tx.delete(&self.cells, &id)
        });
        transact.unwrap();
    }

    /// Checks everything that a snapshot shows, in every way to read it.
    fn check(&self, snapshot: &Snapshot, model: &BTreeMap<u32, u64>) {
        let rows = || model.iter().map(|(&id, &value)| item(id, value));
        let seen: Vec<Item> =
            snapshot.range(&self.items, ..).map(|row| row.unwrap().clone()).collect();
        assert_eq!(seen, rows().collect::<Vec<_>>(), "forwards");
        let seen: Vec<Item> =
            snapshot.rows(&self.items).descending().map(|row| row.unwrap().clone()).collect();
        assert_eq!(seen, rows().rev().collect::<Vec<_>>(), "backwards");
        let mut by_group: Vec<Item> = rows().collect();
        by_group.sort_by_key(|item| (item.group, item.id));
        let seen: Vec<Item> = snapshot
            .range_by(&self.items, Item::GROUP, ..)
            .map(|row| row.unwrap().clone())
            .collect();
        assert_eq!(seen, by_group, "by group");
        by_group.retain(|item| item.group == 2);
        let seen: Vec<Item> = snapshot
            .prefix_by(&self.items, Item::GROUP, &2)
            .map(|row| row.unwrap().clone())
            .collect();
        assert_eq!(seen, by_group, "of group 2");
        let mut seen: Vec<Cell> = snapshot.rows(&self.cells).map(|row| *row.unwrap()).collect();
        seen.sort_by_key(|cell| cell.id);
        let cells = model.iter().map(|(&id, &value)| Cell { id, value });
        assert_eq!(seen, cells.collect::<Vec<_>>(), "cells");
        for id in 0..IDS {
            let expected = model.get(&id).map(|&value| item(id, value));
            assert_eq!(snapshot.get(&self.items, &id).unwrap(), expected.as_ref());
            let value = snapshot.get(&self.cells, &id).unwrap().map(|cell| cell.value);
            assert_eq!(value, model.get(&id).copied());
            if let Some(expected) = expected {
                let seen = snapshot.get_by(&self.items, Item::LABEL, &expected.label).unwrap();
                assert_eq!(seen, Some(&expected));
            }
        }
    }
}

const IDS: u32 = 40;

fn item(id: u32, value: u64) -> Item {
    Item { id, group: (value % 5) as u8, label: format!("{id} is {value}"), value }
}

/// Snapshots that are opened and closed at random among random writes show the same as copies of the model.
#[test]
fn snapshots_agree_with_a_model() {
    let seed = Seed::draw();
    for_each_executor!(|P| {
        let mut random = seed.random(0);
        let fixture = Fixture::<P>::new();
        let mut model = BTreeMap::new();
        let mut open: Vec<(Snapshot, BTreeMap<u32, u64>)> = Vec::new();
        for value in 0..1500 * stress() as u64 {
            let id = random.u32(0..IDS);
            match random.u8(0..10) {
                0..5 => {
                    fixture.put(id, value);
                    model.insert(id, value);
                }
                5..8 => {
                    fixture.delete(id);
                    model.remove(&id);
                }
                8 if open.len() < 6 => {
                    open.push((fixture.database.open_snapshot().unwrap(), model.clone()));
                }
                _ if !open.is_empty() => {
                    let (snapshot, model) = &open[random.usize(0..open.len())];
                    fixture.check(snapshot, model);
                    if random.bool() {
                        drop(open.swap_remove(random.usize(0..open.len())));
                    }
                }
                _ => {}
            }
        }
        for (snapshot, model) in &open {
            fixture.check(snapshot, model);
        }
        open.clear();
        // All held versions are released with the last snapshot.
        let held = fixture.database.metrics().snapshots;
        assert_eq!((held.open, held.versions_held, held.bytes_held), (0, 0, 0));
        let last = fixture.database.open_snapshot().unwrap();
        fixture.check(&last, &model);
    });
}

/// Snapshots never show the changes of a transaction that fails or is rolled back, whether they are opened before,
/// during or after it.
#[test]
fn snapshots_never_show_rolled_back_changes() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        fixture.put(1, 10);
        let before = fixture.database.open_snapshot().unwrap();
        let transaction = fixture.database.begin().unwrap();
        transaction.update(&fixture.items, &1, |item| item.value = 11).unwrap();
        transaction.insert(&fixture.items, item(2, 20)).unwrap();
        transaction.delete(&fixture.cells, &1).unwrap();
        let model = BTreeMap::from([(1, 10)]);
        fixture.check(&before, &model);
        // A snapshot can be opened in the transaction's own thread, too.
        let within = fixture.database.open_snapshot();
        if !P::SNAPSHOTS_ABORT_WRITERS {
            fixture.check(&within.unwrap(), &model);
        }
        transaction.rollback();
        fixture.check(&before, &model);
        fixture.check(&fixture.database.open_snapshot().unwrap(), &model);
    });
}

/// A snapshot can move to another thread, and several threads can read it at once.
#[test]
fn threads_share_a_snapshot() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        let mut model = BTreeMap::new();
        for id in 0..IDS {
            fixture.put(id, u64::from(id));
            model.insert(id, u64::from(id));
        }
        let snapshot = on_a_thread(|| fixture.database.open_snapshot().unwrap());
        for id in 0..IDS {
            fixture.delete(id);
        }
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| fixture.check(&snapshot, &model));
            }
        });
        let mut scan = snapshot.range(&fixture.items, ..);
        let first = scan.next().unwrap().unwrap();
        let rest = std::thread::scope(|scope| scope.spawn(move || scan.count()).join().unwrap());
        assert_eq!((first.id, rest), (0, IDS as usize - 1), "a scan moves between threads");
        on_a_thread(move || drop(snapshot));
    });
}

/// Transfers keep a sum, in rows and in an index. Every snapshot shows that sum.
#[test]
fn snapshots_show_the_banks_constant_sum() {
    const ACCOUNTS: u32 = 30;
    let seed = Seed::draw();
    for_each_protocol!(|P| {
        let fixture = Fixture::<P>::new();
        for id in 0..ACCOUNTS {
            fixture.put(id, 1000);
        }
        let stopped = Word::new(0);
        let checked = Word::new(0);
        let writers = threads::<P>().min(3);
        scope(|scope| {
            for thread in 0..writers {
                let (fixture, stopped, seed) = (&fixture, &stopped, &seed);
                scope.spawn(move || {
                    let mut random = seed.random(thread);
                    while stopped.load(Ordering::Relaxed) == 0 {
                        transfer(fixture, &mut random, ACCOUNTS);
                    }
                });
            }
            for thread in 0..2 {
                let (fixture, stopped, checked, seed) = (&fixture, &stopped, &checked, &seed);
                scope.spawn(move || {
                    let mut random = seed.random(10 + thread);
                    let _stop = StopOnDrop(stopped);
                    let mut kept = Vec::new();
                    for _ in 0..150 * stress() {
                        let opened = if random.bool() {
                            fixture.database.open_snapshot()
                        } else {
                            fixture.database.open_recent_snapshot()
                        };
                        let snapshot = opened.unwrap();
                        add_up(fixture, &snapshot, &mut random, ACCOUNTS);
                        checked.fetch_add(1, Ordering::Relaxed);
                        kept.push(snapshot);
                        if kept.len() == 4 {
                            let snapshot = kept.swap_remove(random.usize(0..4));
                            add_up(fixture, &snapshot, &mut random, ACCOUNTS);
                        }
                    }
                });
            }
        });
        assert!(checked.load(Ordering::Relaxed) >= 300);
    });
}

/// Moves some money from one account to another: by updates, or by deleting and inserting both accounts.
fn transfer<P: Protocol>(fixture: &Fixture<P>, random: &mut fastrand::Rng, accounts: u32) {
    let (from, to, amount) = (random.u32(0..accounts), random.u32(0..accounts), random.u64(0..50));
    let reopens = random.u8(0..4) == 0;
    let moved = fixture.database.transact(|tx| {
        if from == to {
            return Ok(());
        }
        let have = tx.get(&fixture.items, &from)?.expect("accounts always exist").value;
        let other = tx.get(&fixture.items, &to)?.expect("accounts always exist").value;
        chaos(random);
        let amount = amount.min(have);
        for (id, value) in [(from, have - amount), (to, other + amount)] {
            if reopens {
                tx.delete(&fixture.items, &id)?;
                tx.delete(&fixture.cells, &id)?;
            }
            tx.upsert(&fixture.items, item(id, value))?;
            tx.upsert(&fixture.cells, Cell { id, value })?;
            chaos(random);
        }
        Ok::<_, Error>(())
    });
    match moved {
        // Under `none`, another thread's transaction may be running.
        Err(Error::Failure(Failure::SingleThreaded { .. })) => {}
        moved => moved.unwrap(),
    }
}

/// Reads all accounts in one of several ways, and checks their number and their sum.
fn add_up<P: Protocol>(
    fixture: &Fixture<P>,
    snapshot: &Snapshot,
    random: &mut fastrand::Rng,
    accounts: u32,
) {
    let rows: Vec<(u32, u64)> = match random.u8(0..4) {
        0 => snapshot.range(&fixture.items, ..).map(|row| pair(row.unwrap())).collect(),
        1 => {
            let scan = snapshot.range_by(&fixture.items, Item::GROUP, ..).descending();
            scan.map(|row| pair(row.unwrap())).collect()
        }
        2 => {
            let cells = snapshot.rows(&fixture.cells);
            cells.map(|row| row.map(|cell| (cell.id, cell.value)).unwrap()).collect()
        }
        _ => {
            let mut get = |id| {
                chaos(random);
                pair(snapshot.get(&fixture.items, &id).unwrap().expect("accounts always exist"))
            };
            (0..accounts).map(&mut get).collect()
        }
    };
    assert_eq!(rows.len(), accounts as usize, "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), 1000 * u64::from(accounts), "{rows:?}");
}

fn pair(item: &Item) -> (u32, u64) {
    assert_eq!(item, &self::item(item.id, item.value), "the row is torn");
    (item.id, item.value)
}

/// Two transactions write two rows one after the other. No snapshot shows the second write without the first.
#[test]
fn snapshots_respect_the_order_of_commits() {
    for_each_protocol!(|P| {
        let fixture = Fixture::<P>::new();
        fixture.put(0, 0);
        fixture.put(1, 0);
        let stopped = Word::new(0);
        scope(|scope| {
            scope.spawn(|| {
                let _stop = StopOnDrop(&stopped);
                for value in 1..600 * stress() as u64 {
                    fixture.put(0, value);
                    fixture.put(1, value);
                }
            });
            scope.spawn(|| {
                while stopped.load(Ordering::Relaxed) == 0 {
                    let snapshot = fixture.database.open_snapshot().unwrap();
                    let second = snapshot.get(&fixture.items, &1).unwrap().unwrap().value;
                    let first = snapshot.get(&fixture.items, &0).unwrap().unwrap().value;
                    assert!(first == second || first == second + 1, "{first} and {second}");
                }
            });
        });
    });
}

/// A snapshot includes everything that was committed before it was opened: it never misses an acknowledged write.
#[test]
fn a_snapshot_is_the_most_recent_state() {
    for_each_protocol!(|P| {
        let fixture = Fixture::<P>::new();
        fixture.put(7, 0);
        let acknowledged = Mutex::new(0);
        let stopped = Word::new(0);
        scope(|scope| {
            scope.spawn(|| {
                let _stop = StopOnDrop(&stopped);
                for value in 1..1000 * stress() as u64 {
                    fixture.put(7, value);
                    *acknowledged.lock().unwrap() = value;
                }
            });
            scope.spawn(|| {
                while stopped.load(Ordering::Relaxed) == 0 {
                    let before = *acknowledged.lock().unwrap();
                    let read = fixture.database.snapshot(|snapshot| {
                        Ok::<_, Error>(snapshot.get(&fixture.cells, &7)?.unwrap().value)
                    });
                    assert!(read.unwrap() >= before);
                }
            });
        });
    });
}

/// Readers that open a recent snapshot in the same epoch share one. It does not show later commits. A later epoch's
/// snapshot shows them.
#[test]
fn recent_snapshots_are_shared_and_renewed() {
    for_each_protocol!(|P| {
        let fixture = Fixture::<P>::new();
        fixture.put(7, 1);
        let value =
            |snapshot: &Snapshot| snapshot.get(&fixture.cells, &7).unwrap().map(|cell| cell.value);
        // Repeats if an epoch ends between the two.
        let (first, second) = loop {
            let recent = || fixture.database.open_recent_snapshot().unwrap();
            let (first, second) = (recent(), recent());
            if first.number() == second.number() {
                break (first, second);
            }
        };
        fixture.put(7, 2);
        assert_eq!((value(&first), value(&second)), (Some(1), Some(1)));
        drop(first);
        let fresh = fixture.database.open_snapshot().unwrap();
        assert!(fresh.number() > second.number());
        assert_eq!(
            (value(&second), value(&fresh)),
            (Some(1), Some(2)),
            "of the two, one is closed"
        );
        let mut last = second.number();
        loop {
            let recent = fixture.database.open_recent_snapshot().unwrap();
            assert!(recent.number() >= last, "recent snapshots went back");
            last = recent.number();
            if value(&recent) == Some(2) {
                assert!(last > second.number());
                break;
            }
            assert_eq!(value(&recent), Some(1));
            std::thread::yield_now();
        }
    });
}

/// A row that was changed once lies in a block of its own, and the engine moves it back into its record. What a snapshot
/// has returned by then must stay where it is.
#[test]
fn rows_that_a_snapshot_has_returned_stay_where_they_are() {
    const ROWS: u32 = 100;
    for_each_protocol!(|P| {
        let fixture = Fixture::<P>::new();
        for value in [1, 2] {
            for id in 0..ROWS {
                fixture.put(id, value);
            }
        }
        let snapshot = fixture.database.open_snapshot().unwrap();
        let rows: Vec<&Cell> = snapshot
            .range(&fixture.items, ..)
            .map(|item| snapshot.get(&fixture.cells, &item.unwrap().id).unwrap().unwrap())
            .collect();
        // This collects garbage, and uses what was freed.
        for turn in 0..20_000 {
            fixture.put(ROWS + turn % 64, u64::from(turn) + 1000);
        }
        for (id, row) in rows.iter().enumerate() {
            assert_eq!(**row, Cell { id: id as u32, value: 2 });
        }
    });
}

/// A recent snapshot that is no longer requested is closed, and the versions that it held are freed.
#[test]
fn unread_recent_snapshots_are_closed() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        fixture.put(7, 0);
        let held = || fixture.database.metrics().snapshots;
        drop(fixture.database.open_recent_snapshot().unwrap());
        assert_eq!(held().open, 1, "kept open for later readers");
        let update = || {
            let update = |cell: &mut Cell| cell.value += 1;
            fixture.database.transact(|tx| tx.update(&fixture.cells, &7, update)).unwrap();
        };
        while held().open > 0 {
            update();
            assert!(held().versions_held <= 1, "more than the version that the snapshot reads");
        }
        while held().versions_held > 0 {
            update();
        }
    });
}

/// A recent snapshot prevents loading a table only while it is being read.
#[test]
fn unread_recent_snapshots_allow_loads() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        let load = |ids: std::ops::Range<u32>| {
            let rows = ids.map(|id| Ok::<_, Failure>(item(id, 5)));
            fixture.database.load(&fixture.items, [rows], |_| ())
        };
        let before = fixture.database.open_recent_snapshot().unwrap();
        assert!(matches!(load(0..10), Err(Failure::SnapshotOpen)));
        drop(before);
        assert_eq!(load(0..10).unwrap(), 10);
        let recent = fixture.database.open_recent_snapshot().unwrap();
        assert_eq!(recent.rows(&fixture.items).count(), 10, "a new snapshot shows the loaded rows");
    });
}

/// However often rows are overwritten, an open snapshot holds one version of each. Versions between two snapshots
/// are not held. Closing the snapshots frees everything.
#[test]
fn each_snapshot_holds_one_version_of_a_record() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        for id in 0..IDS {
            fixture.put(id, 0);
        }
        let held = || fixture.database.metrics().snapshots;
        let oldest = fixture.database.open_snapshot().unwrap();
        for round in 1..200 {
            for id in 0..IDS {
                let update = fixture
                    .database
                    .transact(|tx| tx.update(&fixture.cells, &id, |cell| cell.value = round));
                update.unwrap();
            }
        }
        let with_one = held();
        assert_eq!(with_one.open, 1);
        assert!(with_one.oldest_age.is_some());
        assert!(with_one.versions_held <= u64::from(IDS), "{with_one:?}");
        let newer = fixture.database.open_snapshot().unwrap();
        for round in 200..400 {
            for id in 0..IDS {
                let update = fixture
                    .database
                    .transact(|tx| tx.update(&fixture.cells, &id, |cell| cell.value = round));
                update.unwrap();
            }
        }
        assert!(held().versions_held <= 2 * u64::from(IDS), "{:?}", held());
        for id in 0..IDS {
            assert_eq!(oldest.get(&fixture.cells, &id).unwrap().unwrap().value, 0);
            assert_eq!(newer.get(&fixture.cells, &id).unwrap().unwrap().value, 199);
        }
        drop(newer);
        assert!(
            held().versions_held <= u64::from(IDS),
            "the older snapshot needs one version of each"
        );
        drop(oldest);
        assert_eq!((held().open, held().versions_held, held().bytes_held), (0, 0, 0));
        assert_eq!(held().oldest_age, None);
    });
}

/// A row of a queue. It is large, so that rows held for snapshots show in the database's memory.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Job {
    #[record(key)]
    id: u64,
    #[record(index)]
    state: u64,
    #[record(unique)]
    ticket: u64,
    contents: [u64; 60],
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct HashJob {
    #[record(key)]
    id: u64,
    contents: [u64; 60],
}

struct Queue<P: Protocol> {
    database: Database<P>,
    jobs: Table<Job>,
    hashed: Table<HashJob>,
}

/// The number of jobs in a queue, and the number of entries that they take. Each job takes four: its row, its
/// entries in two indexes, and its row in the hash table.
const JOBS: u64 = 20;
const ENTRIES: u64 = 4 * JOBS;

impl<P: Protocol> Queue<P> {
    fn new() -> Self {
        let database =
            Database::builder().protocol::<P>().table::<Job>().table::<HashJob>().open().unwrap();
        let (jobs, hashed) = (database.table().unwrap(), database.table().unwrap());
        let queue = Queue { database, jobs, hashed };
        (0..JOBS).for_each(|id| queue.insert(id));
        queue
    }

    fn insert(&self, id: u64) {
        let inserted = self.database.transact(|tx| {
            let job = Job { id, state: id, ticket: 1 << 40 | id, contents: [id; 60] };
            tx.insert(&self.jobs, job)?;
            tx.insert(&self.hashed, HashJob { id, contents: [id; 60] })
        });
        inserted.unwrap();
    }

    fn delete(&self, id: u64) {
        let deleted = self.database.transact(|tx| {
            tx.delete(&self.jobs, &id)?;
            tx.delete(&self.hashed, &id)
        });
        assert!(deleted.unwrap());
    }

    fn set_state(&self, id: u64, state: u64) {
        let update = |job: &mut Job| (job.state, job.ticket) = (state, 1 << 41 | state);
        let updated = self.database.transact(|tx| tx.update(&self.jobs, &id, update));
        assert!(updated.unwrap().is_some());
    }

    /// Runs `turn` for each of many numbers. Checks that at most `entries` are held for snapshots in the end, and
    /// that the database's memory does not grow after the first turns.
    fn is_bounded(&self, entries: u64, turn: impl Fn(u64)) {
        const WARM: u64 = 1_000;
        const TURNS: u64 = 7_000;
        (0..WARM).for_each(&turn);
        let warm = self.database.metrics().memory.chunk_bytes;
        (WARM..TURNS).for_each(&turn);
        let metrics = self.database.metrics();
        let held = metrics.snapshots;
        assert!(held.versions_held <= entries, "{held:?} where {entries} are needed");
        // Without reuse, each turn would take more than 600 bytes for a row and its entries.
        let grown = metrics.memory.chunk_bytes - warm;
        assert!(grown <= 4 << 20, "chunks grew from {warm} by {grown} bytes");
    }

    /// Checks that a snapshot shows the rows with which the queue began.
    fn check_first_jobs(&self, snapshot: &Snapshot) {
        let ids = snapshot.range(&self.jobs, ..).map(|job| job.unwrap().id);
        assert!(ids.eq(0..JOBS), "by key");
        let ids = snapshot.range_by(&self.jobs, Job::STATE, ..).map(|job| job.unwrap().id);
        assert!(ids.eq(0..JOBS), "by state");
        let ids = snapshot.range_by(&self.jobs, Job::TICKET, ..).map(|job| job.unwrap().id);
        assert!(ids.eq(0..JOBS), "by ticket");
        assert_eq!(snapshot.rows(&self.hashed).count() as u64, JOBS);
    }
}

/// A snapshot cannot read a row that was inserted and deleted after it was opened, so nothing of that row is held.
#[test]
fn queue_holds_only_rows_that_a_snapshot_reads() {
    for_each_protocol!(|P| {
        let queue = Queue::<P>::new();
        let snapshot = queue.database.open_snapshot().unwrap();
        queue.is_bounded(ENTRIES, |turn| {
            queue.insert(JOBS + turn);
            queue.delete(turn);
        });
        queue.check_first_jobs(&snapshot);
        drop(snapshot);
        assert_eq!(queue.database.metrics().snapshots.versions_held, 0);
    });
}

/// An update of an indexed column deletes an index entry and inserts one. Entries that no snapshot reads are freed.
#[test]
fn indexed_updates_hold_only_entries_that_a_snapshot_reads() {
    for_each_protocol!(|P| {
        let queue = Queue::<P>::new();
        let snapshot = queue.database.open_snapshot().unwrap();
        queue.is_bounded(ENTRIES, |turn| queue.set_state(turn % JOBS, JOBS + turn));
        queue.check_first_jobs(&snapshot);
    });
}

/// A key that is deleted and inserted repeatedly holds only the row that the snapshot reads, and the current one.
/// (Both the deleted record and the version that it held may be in the snapshot's list.)
#[test]
fn reinserted_keys_hold_only_rows_that_a_snapshot_reads() {
    for_each_protocol!(|P| {
        let queue = Queue::<P>::new();
        let snapshot = queue.database.open_snapshot().unwrap();
        queue.is_bounded(2 * ENTRIES, |turn| {
            queue.delete(turn % JOBS);
            queue.insert(turn % JOBS);
        });
        queue.check_first_jobs(&snapshot);
    });
}

/// Several snapshots that are opened in the middle of a queue's life hold exactly what each of them reads, in
/// whatever order they are closed.
#[test]
fn several_snapshots_hold_only_rows_that_they_read() {
    let seed = Seed::draw();
    for_each_protocol!(|P| {
        let mut random = seed.random(0);
        let queue = Queue::<P>::new();
        let mut open: Vec<(Snapshot, u64)> = Vec::new();
        for turn in 0..4_000 {
            if turn % 500 == 0 {
                open.push((queue.database.open_snapshot().unwrap(), turn));
            }
            if turn % 1_000 == 999 {
                drop(open.swap_remove(random.usize(0..open.len())));
            }
            queue.insert(JOBS + turn);
            queue.delete(turn);
            let held = queue.database.metrics().snapshots.versions_held;
            assert!(held <= ENTRIES * open.len() as u64, "{held} for {} snapshots", open.len());
        }
        while !open.is_empty() {
            for (snapshot, turn) in &open {
                let ids = snapshot.range(&queue.jobs, ..).map(|job| job.unwrap().id);
                assert!(ids.eq(*turn..turn + JOBS), "at {turn}");
                assert_eq!(snapshot.rows(&queue.hashed).count() as u64, JOBS);
            }
            drop(open.swap_remove(random.usize(0..open.len())));
            let held = queue.database.metrics().snapshots.versions_held;
            assert!(held <= ENTRIES * open.len() as u64, "{held} for {} snapshots", open.len());
        }
    });
}

/// A deleted record stays in its index while snapshots read its older versions. It is freed when the last of these
/// is.
#[test]
fn deleted_record_is_freed_with_its_last_held_version() {
    for_each_protocol!(|P| {
        let queue = Queue::<P>::new();
        let older = queue.database.open_snapshot().unwrap();
        let versions = |round: u64| {
            for id in 0..JOBS {
                queue.set_state(id, JOBS * (round + 1) + id);
            }
        };
        versions(0);
        let newer = queue.database.open_snapshot().unwrap();
        versions(1);
        (0..JOBS).for_each(|id| queue.delete(id));
        // Rows that are inserted and deleted after this snapshot was opened are not held for it.
        let newest = queue.database.open_snapshot().unwrap();
        let flush = |from: u64| {
            for turn in from..from + 1_000 {
                queue.insert(JOBS + turn);
                queue.delete(JOBS + turn);
            }
        };
        flush(0);
        queue.check_first_jobs(&older);
        drop(newer);
        flush(1_000);
        queue.check_first_jobs(&older);
        drop(older);
        flush(2_000);
        assert_eq!(newest.rows(&queue.jobs).count(), 0);
        assert_eq!(
            queue.database.metrics().snapshots.versions_held,
            0,
            "the open snapshot is empty"
        );
    });
}

/// The metrics count the bytes of rows and of records that snapshots hold.
#[test]
fn held_bytes_count_rows_and_records() {
    let queue = Queue::<weft::protocol::Dbx>::new();
    let snapshot = queue.database.open_snapshot().unwrap();
    let held = || queue.database.metrics().snapshots;
    for turn in 0..2_000 {
        queue.insert(JOBS + turn);
        queue.delete(turn);
    }
    let job_bytes = (size_of::<Job>() + size_of::<HashJob>()) as u64;
    assert!(held().bytes_held >= JOBS * job_bytes, "{:?}", held());
    assert!(held().bytes_held <= JOBS * 4 * job_bytes, "{:?}", held());
    drop(snapshot);
    assert_eq!((held().versions_held, held().bytes_held), (0, 0));
}

/// A row that counts its copies.
#[derive(Clone, Record)]
#[record(volatile)]
struct Counted {
    #[record(key)]
    id: u64,
    #[allow(dead_code, reason = "it is there to be counted")]
    count: std::sync::Arc<()>,
}

/// If a worker deletes or replaces rows and then stays idle, other workers take over its garbage. It makes no
/// difference whether a snapshot was open.
#[test]
fn garbage_of_idle_workers_is_taken_over() {
    for with_snapshot in [false, true] {
        for deletes in [false, true] {
            idle_worker::<weft::protocol::Dbx>(with_snapshot, deletes);
            idle_worker::<weft::protocol::TwoPhaseLocking>(with_snapshot, deletes);
            idle_worker::<weft_protocols::TimestampOrdering>(with_snapshot, deletes);
        }
    }
}

fn idle_worker<P: Protocol>(with_snapshot: bool, deletes: bool) {
    let database =
        Database::builder().protocol::<P>().table::<Counted>().table::<Cell>().open().unwrap();
    let (table, cells) = (database.table().unwrap(), database.table().unwrap());
    let (count, updated) = (std::sync::Arc::new(()), std::sync::Arc::new(()));
    let insert = |id| {
        let row = Counted { id, count: count.clone() };
        database.transact(|tx| tx.insert(&table, row.clone())).unwrap();
    };
    (0..u64::from(IDS)).for_each(insert);
    database.transact(|tx| tx.insert(&cells, Cell { id: 0, value: 0 })).unwrap();
    let snapshot = with_snapshot.then(|| database.open_snapshot().unwrap());
    let (is_idle, idle) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (database, table, updated) = (&database, &table, &updated);
    scope(|scope| {
        scope.spawn(move || {
            for id in 0..u64::from(IDS) {
                let update = |row: &mut Counted| row.count = updated.clone();
                let changed = database.transact(|tx| match deletes {
                    true => tx.delete(table, &id),
                    false => tx.update(table, &id, update).map(|row| row.is_some()),
                });
                assert!(changed.unwrap());
            }
            is_idle.send(()).unwrap();
            // The thread stays a worker until it is told to end.
            let _ = ended.recv();
        });
        idle.recv().unwrap();
        if let Some(snapshot) = snapshot {
            assert_eq!(snapshot.rows(table).count(), IDS as usize);
            drop(snapshot);
        }
        // Workers collect garbage only while they produce some.
        let epoch = || database.metrics().epoch;
        let began = epoch();
        while std::sync::Arc::strong_count(&count) > 1 && epoch() < began + 200 {
            database.transact(|tx| tx.update(&cells, &0, |cell| cell.value += 1)).unwrap();
        }
        let left = std::sync::Arc::strong_count(&count) - 1;
        drop(end);
        assert_eq!(left, 0, "rows left under {}", P::NAME);
    });
}

/// A thread never gets a recent snapshot with a lower number than the one before, even when several threads open
/// the first one at once.
#[test]
fn recent_snapshots_never_go_back() {
    for _ in 0..300 * stress() {
        let fixture = Fixture::<weft::protocol::Dbx>::new();
        let begin = TestBarrier::new(4);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    drop(fixture.database.open_snapshot().unwrap());
                    begin.wait();
                    let mut last = 0;
                    for _ in 0..20 {
                        let snapshot = fixture.database.open_recent_snapshot().unwrap();
                        assert!(snapshot.number() >= last, "{} after {last}", snapshot.number());
                        last = snapshot.number();
                        std::thread::yield_now();
                    }
                });
            }
        });
    }
}

/// The single-key protocol has snapshots of all keys, too.
#[test]
fn atomic_operations_have_snapshots() {
    let database = Database::builder().protocol::<Atomic>().table::<Cell>().open().unwrap();
    let cells = database.table::<Cell>().unwrap();
    for id in 0..10 {
        database.transact(|tx| tx.insert(&cells, Cell { id, value: 0 })).unwrap();
    }
    let before = database.open_snapshot().unwrap();
    let stopped = Word::new(0);
    scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _stop = StopOnDrop(&stopped);
                for turn in 0..2000 * stress() as u32 {
                    let id = turn % 10;
                    database.transact(|tx| tx.update(&cells, &id, |cell| cell.value += 1)).unwrap();
                    if id == 3 {
                        database.transact(|tx| tx.delete(&cells, &(100 + id))).unwrap();
                        let row = Cell { id: 100 + id, value: 0 };
                        let _ = database.transact(|tx| tx.insert(&cells, row));
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while stopped.load(Ordering::Relaxed) == 0 {
                let snapshot = database.open_snapshot().unwrap();
                let counted = (0..10).map(|id| snapshot.get(&cells, &id).unwrap().unwrap().value);
                let sum = counted.sum::<u64>();
                assert!(sum >= last, "counters went back from {last} to {sum}");
                last = sum;
                assert!(snapshot.rows(&cells).count() >= 10);
            }
        });
    });
    for id in 0..10 {
        assert_eq!(before.get(&cells, &id).unwrap().unwrap().value, 0);
    }
    assert_eq!(before.rows(&cells).count(), 10);
}

/// `get_many` returns the same as `get` for each key, whether the row exists, was deleted, or never existed.
#[test]
fn get_many_returns_the_same_as_get() {
    for_each_executor!(|P| {
        let fixture = Fixture::<P>::new();
        for id in 0..IDS {
            fixture.put(id, u64::from(id));
        }
        let snapshot = fixture.database.open_snapshot().unwrap();
        for id in 0..IDS {
            if id % 3 == 0 { fixture.delete(id) } else { fixture.put(id, 0) }
        }
        // Most keys come from a scan of the snapshot itself.
        let keys = || snapshot.range(&fixture.items, ..).map(|row| row.unwrap().id).chain([IDS, 0]);
        let ids: Vec<u32> = keys().collect();
        assert_eq!(ids.len(), IDS as usize + 2);
        let items = snapshot.get_many(&fixture.items, keys()).unwrap();
        let cells = snapshot.get_many(&fixture.cells, keys()).unwrap();
        let mut read = 0;
        for ((id, item), cell) in ids.iter().zip(items).zip(cells) {
            let expected = (*id < IDS).then_some(u64::from(*id));
            assert_eq!(item.unwrap().map(|item| item.value), expected);
            assert_eq!(cell.unwrap().map(|cell| cell.value), expected);
            read += 1;
        }
        assert_eq!(read, ids.len());
        let mut none = snapshot.get_many(&fixture.items, [0_u32; 0]).unwrap();
        assert!(none.next().is_none() && none.next().is_none());
        // A later snapshot does not show the deleted rows.
        let later = fixture.database.open_snapshot().unwrap();
        for (id, item) in (0..IDS).zip(later.get_many(&fixture.items, 0..IDS).unwrap()) {
            assert_eq!(item.unwrap().map(|item| item.value), (id % 3 != 0).then_some(0));
        }
    });
}

/// A thread that ends hands over what it holds for snapshots, including deleted records that it finds only while
/// it ends.
#[test]
fn ended_worker_hands_over_rows_that_snapshots_need() {
    let fixture = Fixture::<weft::protocol::Dbx>::new();
    for id in 0..IDS {
        fixture.put(id, 1);
    }
    let snapshot = fixture.database.open_snapshot().unwrap();
    on_a_thread(|| (0..IDS).for_each(|id| fixture.delete(id)));
    // Each item holds its record and the records of its two index entries. Each cell holds one.
    assert_eq!(fixture.database.metrics().snapshots.versions_held, 4 * u64::from(IDS));
    let model = (0..IDS).map(|id| (id, 1)).collect();
    fixture.check(&snapshot, &model);
    drop(snapshot);
    assert_eq!(fixture.database.metrics().snapshots.versions_held, 0);
}

/// A row whose `Drop` uses the database again.
#[derive(Clone, Record)]
#[record(volatile)]
struct Returning {
    #[record(key)]
    id: u32,
    #[allow(dead_code, reason = "it is there to be dropped")]
    way: Way,
}

#[derive(Clone)]
struct Way(std::sync::Weak<Return>);

#[derive(Default)]
struct Return {
    database: std::sync::OnceLock<(Database, Table<Returning>)>,
    dropped: Word,
}

impl Drop for Way {
    fn drop(&mut self) {
        let Some(way) = self.0.upgrade() else { return };
        let Some((database, table)) = way.database.get() else { return };
        way.dropped.fetch_add(1, Ordering::Relaxed);
        let snapshot = database.open_snapshot().unwrap();
        assert_eq!(snapshot.rows(table).count(), IDS as usize);
        drop(snapshot);
        let within = database.transact(|tx| tx.delete(table, &0));
        assert!(matches!(within, Err(Error::Failure(Failure::NestedTransaction))), "{within:?}");
    }
}

/// Closing a snapshot may free rows. Their `Drop` may open snapshots. A transaction in it is refused as nested.
#[test]
fn drop_at_the_end_of_a_snapshot_can_open_another() {
    let way = std::sync::Arc::new(Return::default());
    let database = Database::builder().table::<Returning>().open().unwrap();
    let table = database.table::<Returning>().unwrap();
    for id in 0..IDS {
        let row = Returning { id, way: Way(std::sync::Arc::downgrade(&way)) };
        database.transact(|tx| tx.insert(&table, row.clone())).unwrap();
    }
    let write = || {
        for id in 0..IDS {
            database.transact(|tx| tx.update(&table, &id, |_| ())).unwrap();
        }
    };
    let kept: Vec<Snapshot> = (0..40)
        .map(|_| {
            let snapshot = database.open_snapshot().unwrap();
            write();
            snapshot
        })
        .collect();
    assert!(way.database.set((database.clone(), table.clone())).is_ok());
    drop(kept);
    assert!(way.dropped.load(Ordering::Relaxed) > 0);
}

/// A snapshot refuses foreign tables, finds nothing in reversed ranges, and cannot be opened after `close`.
#[test]
fn misuse_is_an_error() {
    let fixture = Fixture::<weft::protocol::Dbx>::new();
    let other = Fixture::<weft::protocol::Dbx>::new();
    let snapshot = fixture.database.open_snapshot().unwrap();
    assert!(matches!(snapshot.get(&other.items, &1), Err(Failure::ForeignTable { .. })));
    assert!(matches!(snapshot.get_many(&other.items, [1]), Err(Failure::ForeignTable { .. })));
    assert!(matches!(
        snapshot.range(&other.items, ..).next(),
        Some(Err(Failure::ForeignTable { .. }))
    ));
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let mut reversed = snapshot.range(&fixture.items, 5..3);
    assert!(reversed.next().is_none(), "a reversed range is empty");
    fixture.database.close().unwrap();
    assert!(matches!(fixture.database.open_snapshot(), Err(Failure::Closed)));
    // An open snapshot stays readable.
    assert_eq!(snapshot.get(&fixture.items, &1).unwrap(), None);
}
