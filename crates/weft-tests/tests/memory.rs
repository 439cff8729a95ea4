//! Tests that memory comes back: the memory of replaced, deleted and abandoned rows is used again.
//!
//! The tests measure the chunks that the database counts itself, and the bytes that the process has allocated from
//! the global allocator. The tests take turns, because the second number belongs to the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Mutex, PoisonError};

use weft::htm::word::{Ordering, Word};
use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table};

use weft_tests::{for_each_executor, on_a_thread, stress, threads};

/// The system's allocator, with a count of the bytes that are allocated.
struct Counting;

static ALLOCATED_BYTES: Word = Word::new(0);

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_add((layout.size() as u64).wrapping_neg(), Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TURN: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy, Debug, Record)]
struct Plain {
    #[record(key)]
    id: u64,
    #[record(index)]
    group: u32,
    contents: [u64; 30],
}

#[derive(Clone, Debug, Record)]
#[record(storage = "hash")]
struct Heap {
    #[record(key)]
    id: String,
    #[record(unique)]
    alias: String,
    contents: Vec<u8>,
}

struct Tables<P: Protocol> {
    database: Database<P>,
    plain: Table<Plain>,
    heap: Table<Heap>,
}

fn plain(id: u64) -> Plain {
    Plain { id, group: (id % 5) as u32, contents: [id; 30] }
}

fn heap(id: u64, round: u64) -> Heap {
    Heap {
        id: format!("{id}, of which the key has a tail"),
        alias: format!("{id}, which changes with round {round}"),
        contents: vec![round as u8; 500],
    }
}

impl<P: Protocol> Tables<P> {
    fn new() -> Self {
        let database =
            Database::builder().protocol::<P>().table::<Plain>().table::<Heap>().open().unwrap();
        let (plain, heap) = (database.table().unwrap(), database.table().unwrap());
        Tables { database, plain, heap }
    }

    fn chunk_bytes(&self) -> u64 {
        self.database.metrics().memory.chunk_bytes
    }

    /// Runs `work` on every thread, with the numbers of the thread's own rows.
    fn on_threads(&self, rows: u64, work: impl Fn(std::ops::Range<u64>) + Sync) {
        weft_tests::on_threads(threads::<P>(), |thread| {
            let thread = thread as u64;
            work(thread * rows..(thread + 1) * rows);
        });
    }
}

/// Runs a load until it has warmed up, and then several times as long, and checks that the number of chunks does
/// not grow. (Two chunks for each thread are allowed, because threads differ in speed.)
fn is_flat<P: Protocol>(tables: &Tables<P>, load: impl Fn(u64)) {
    for round in 0..3 {
        load(round);
    }
    let warm = tables.chunk_bytes();
    for round in 3..3 + 4 * stress() as u64 {
        load(round);
    }
    let after = tables.chunk_bytes();
    let room = (2 << 20) * 2 * threads::<P>() as u64;
    assert!(after <= warm + room, "chunks grew from {warm} to {after} bytes");
}

#[test]
fn updates_reuse_replaced_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        tables.on_threads(10, |rows| {
            for id in rows {
                tables.database.transact(|tx| tx.insert(&tables.plain, plain(id))).unwrap();
                tables.database.transact(|tx| tx.insert(&tables.heap, heap(id, 0))).unwrap();
            }
        });
        // Without reuse, each round would take 60 MB for versions of plain rows, and 20 MB for the others.
        is_flat(&tables, |round| {
            tables.on_threads(10, |rows| {
                for turn in 0..2000 / threads::<P>() as u64 {
                    for id in rows.clone() {
                        let updated = tables.database.transact(|tx| {
                            tx.update(&tables.plain, &id, |row| {
                                row.contents[3] = turn;
                                row.group = turn as u32;
                            })
                        });
                        assert!(updated.unwrap().is_some());
                    }
                    let new = heap(rows.start, round * 10_000 + turn);
                    let replaced =
                        tables.database.transact(|tx| tx.upsert(&tables.heap, new.clone()));
                    assert!(replaced.unwrap());
                }
            });
        });
    });
}

/// Updates one row until the garbage of earlier transactions has been collected.
fn collect<P: Protocol>(tables: &Tables<P>) {
    for turn in 0..10_000 {
        let updated = tables
            .database
            .transact(|tx| tx.update(&tables.plain, &0, |row| row.contents[1] = turn));
        assert!(updated.unwrap().is_some());
    }
}

#[test]
fn updated_rows_move_back_into_their_records() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        if P::HOLD_ROW.is_some() {
            const ROWS: u64 = 20_000;
            let tables = Tables::<P>::new();
            let insert = |tx: &weft::Transaction<'_, P>| {
                (0..ROWS).try_for_each(|id| tx.insert(&tables.plain, plain(id)))
            };
            tables.database.transact(insert).unwrap();
            collect(&tables);
            let loaded = tables.chunk_bytes();
            // Outside their records the rows would take 5 MB.
            let room = 2 << 20;
            let update_all = |turn| {
                for id in 0..ROWS {
                    let update = |row: &mut Plain| row.contents[2] = turn;
                    tables.database.transact(|tx| tx.update(&tables.plain, &id, update)).unwrap();
                }
            };
            update_all(1);
            collect(&tables);
            let updated = tables.chunk_bytes();
            assert!(updated <= loaded + room, "{loaded} bytes became {updated}");
            // While a snapshot needs the versions inside, the rows stay outside.
            let snapshot = tables.database.open_snapshot().unwrap();
            update_all(2);
            collect(&tables);
            let held = tables.chunk_bytes();
            assert!(held > loaded + room, "{held}");
            assert_eq!(snapshot.get(&tables.plain, &7).unwrap().unwrap().contents[2], 1);
            drop(snapshot);
            // Now they move, and their blocks are free for the rows of the next round.
            (0..10).for_each(|_| collect(&tables));
            let snapshot = tables.database.open_snapshot().unwrap();
            update_all(3);
            let again = tables.chunk_bytes();
            assert!(again <= held + room, "{held} bytes became {again}");
            drop(snapshot);
            let read = |tx: &weft::Transaction<'_, P>| {
                let rows = tx.range(&tables.plain, ..).collect::<Result<Vec<_>, _>>()?;
                Ok::<_, Error>(rows.iter().filter(|row| row.contents[2] == 3).count())
            };
            assert_eq!(tables.database.transact(read).unwrap(), ROWS as usize);
        }
    });
}

#[test]
fn insertions_reuse_deleted_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        is_flat(&tables, |round| {
            tables.on_threads(1500, |rows| {
                // The keys differ in every round, so that different leaves come and go.
                let keys = rows.map(|row| row + round * 1_000_000);
                for id in keys.clone() {
                    let insert = tables.database.transact(|tx| {
                        tx.insert(&tables.plain, plain(id))?;
                        tx.insert(&tables.heap, heap(id, round))
                    });
                    insert.unwrap();
                }
                for id in keys {
                    let deleted = tables.database.transact(|tx| -> Result<bool, Error> {
                        Ok(tx.delete(&tables.plain, &id)?
                            & tx.delete(&tables.heap, &heap(id, 0).id)?)
                    });
                    assert!(deleted.unwrap());
                }
            });
        });
    });
}

#[test]
fn rolled_back_transactions_leave_no_garbage() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        is_flat(&tables, |round| {
            tables.on_threads(1500, |rows| {
                for id in rows.map(|row| row + round * 1_000_000) {
                    let tx = loop {
                        match tables.database.begin() {
                            Ok(tx) => break tx,
                            Err(busy) => assert_eq!(P::WORKERS_MAX, 1, "{busy}"),
                        }
                    };
                    // Conflicts don't matter here, because the transaction is rolled back anyway.
                    let _ = tx.insert(&tables.plain, plain(id));
                    let _ = tx.insert(&tables.heap, heap(id, round));
                    let _ = tx.update(&tables.plain, &id, |row| row.group += 1);
                    tx.rollback();
                }
            });
        });
        let left =
            tables.database.transact(|tx| Ok::<_, Error>(tx.range(&tables.plain, ..).count()));
        assert_eq!(left.unwrap(), 0);
    });
}

#[test]
fn ended_threads_leave_their_memory_to_new_ones() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        let come_and_go = |from: u64| {
            for thread in from..from + 150 {
                on_a_thread(|| {
                    for id in thread * 20..thread * 20 + 20 {
                        let database = &tables.database;
                        database.transact(|tx| tx.insert(&tables.plain, plain(id))).unwrap();
                        let regroup = |row: &mut Plain| row.group += 1;
                        database.transact(|tx| tx.update(&tables.plain, &id, regroup)).unwrap();
                        database.transact(|tx| tx.delete(&tables.plain, &id)).unwrap();
                    }
                });
            }
        };
        come_and_go(0);
        let warm = tables.chunk_bytes();
        come_and_go(1000);
        come_and_go(2000);
        assert_eq!(tables.chunk_bytes(), warm, "one thread at a time needs no more chunks");
        let metrics = tables.database.metrics();
        assert_eq!(metrics.workers, 0);
        let count =
            |tx: &weft::Transaction<'_, P>| Ok::<_, Error>(tx.range(&tables.plain, ..).count());
        assert_eq!(tables.database.transact(count).unwrap(), 0);
    });
}

#[test]
fn open_reader_delays_reclamation_until_it_ends() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        if P::WORKERS_MAX > 1 && !P::KEEPS_LOCKS {
            let tables = Tables::<P>::new();
            tables.database.transact(|tx| tx.insert(&tables.plain, plain(1))).unwrap();
            let churn = || {
                for turn in 0..20_000 {
                    let updated = tables
                        .database
                        .transact(|tx| tx.update(&tables.plain, &1, |row| row.contents[1] = turn));
                    updated.unwrap();
                }
            };
            let reader = tables.database.begin().unwrap();
            let row = reader.get(&tables.plain, &1).unwrap().unwrap();
            on_a_thread(churn);
            assert_eq!(row.contents, [1; 30], "the reader's row has changed");
            let held = tables.chunk_bytes();
            drop(reader);
            // The reclaimed memory is used before the database asks for more.
            on_a_thread(churn);
            on_a_thread(churn);
            assert!(tables.chunk_bytes() <= held + (2 << 20), "{held} bytes were not used again");
        }
    });
}

#[test]
fn dropped_database_frees_all_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let live = |work: &dyn Fn()| {
            let before = ALLOCATED_BYTES.load(Ordering::SeqCst);
            work();
            ALLOCATED_BYTES.load(Ordering::SeqCst).wrapping_sub(before) as i64
        };
        let work = || {
            let tables = Tables::<P>::new();
            tables.on_threads(800, |rows| {
                for id in rows {
                    let insert = tables.database.transact(|tx| {
                        tx.insert(&tables.plain, plain(id))?;
                        tx.insert(&tables.heap, heap(id, 0))
                    });
                    insert.unwrap();
                    if id % 3 == 0 {
                        let replaced =
                            tables.database.transact(|tx| tx.upsert(&tables.heap, heap(id, 1)));
                        assert!(replaced.unwrap());
                    }
                    if id % 4 == 0 {
                        let deleted =
                            tables.database.transact(|tx| tx.delete(&tables.heap, &heap(id, 0).id));
                        assert!(deleted.unwrap());
                    }
                }
            });
            let kept = tables.database.transact(|tx| {
                Ok::<_, Error>(tx.get(&tables.heap, &heap(1, 0).id)?.map(|row| row.contents.len()))
            });
            assert_eq!(kept.unwrap(), Some(500));
            // Keys that are too long for the chunks are allocated separately.
            let long = Heap { id: "k".repeat(1 << 16), ..heap(0, 7) };
            let alias = "a".repeat(1 << 17);
            let long = Heap { alias, ..long };
            tables.database.transact(|tx| tx.insert(&tables.heap, long.clone())).unwrap();
            tables.database.transact(|tx| tx.delete(&tables.heap, &long.id)).unwrap();
            tables.database.transact(|tx| tx.insert(&tables.heap, long.clone())).unwrap();
        };
        // Runs on a thread of its own, so that the thread-local registrations are freed, too.
        let once = || on_a_thread(work);
        once();
        let left = live(&once);
        assert!(left.abs() < 100_000, "{left} bytes are still allocated");
    });
}

/// Fault: the keys of deletions that a savepoint had undone stayed in the worker's memory.
#[test]
fn undone_deletions_leave_no_memory_behind() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for_each_executor!(|P| {
        let tables = Tables::<P>::new();
        let id = heap(1, 0).id;
        tables.database.transact(|tx| tx.insert(&tables.heap, heap(1, 0))).unwrap();
        let undone = || {
            for _ in 0..2000 {
                let ended = tables.database.transact(|tx| {
                    let deleted: Result<(), Error> = tx.savepoint(|tx| {
                        tx.delete(&tables.heap, &id)?;
                        Err(weft::Failure::Closed.into())
                    });
                    assert!(deleted.is_err());
                    tx.contains(&tables.heap, &id)
                });
                assert!(ended.unwrap());
            }
        };
        undone();
        let before = ALLOCATED_BYTES.load(Ordering::SeqCst);
        undone();
        let grown = ALLOCATED_BYTES.load(Ordering::SeqCst).wrapping_sub(before) as i64;
        assert!(grown < 100_000, "{grown} bytes were kept");
    });
}
