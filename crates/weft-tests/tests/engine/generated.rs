//! Generated keys: no two rows get the same, under every protocol, after rollbacks, restarts, crashes and changes of the
//! schema, and beside keys that the caller chooses.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft::durability::SimulatedDisk;
use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol, Silo, TwoPhaseLocking};
use weft::{
    Acknowledge, Builder, ColumnValue, Database, DurabilityOptions, Error, Failure, Key, Record,
    Table, Transaction,
};
use weft_tests::{Named, Seed, for_each_kind, on_threads, stress, threads};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(table = "tickets")]
struct Ticket {
    #[record(key, generated)]
    id: u64,
    subject: String,
}

fn ticket(id: u64) -> Ticket {
    Ticket { id, subject: format!("the ticket {id}") }
}

#[derive(Clone, Copy, Debug, PartialEq, Key, ColumnValue)]
struct OrderId(i32);

#[derive(Clone, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Order {
    #[record(key, generated)]
    id: OrderId,
    #[record(unique)]
    number: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Narrow {
    #[record(key, generated)]
    id: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Event {
    #[record(key, generated)]
    id: uuid::Uuid,
    value: u32,
}

fn open<P: Protocol>() -> (Database<P>, Table<Ticket>) {
    let database = Database::builder().protocol::<P>().table::<Ticket>().open().unwrap();
    let tickets = database.table().unwrap();
    (database, tickets)
}

fn new_ticket<P: Protocol>(database: &Database<P>, tickets: &Table<Ticket>) -> u64 {
    database.transact(|tx| tx.insert_generated(tickets, ticket)).unwrap()
}

fn ids<P: Protocol>(database: &Database<P>, tickets: &Table<Ticket>) -> Vec<u64> {
    let read = |tx: &Transaction<'_, P>| tx.range(tickets, ..).map(|row| Ok(row?.id)).collect();
    database.transact(read).map_err(|error: Error| error).unwrap()
}

#[test]
fn keys_are_counted_and_returned() {
    for_each_kind!(|P| {
        let (database, tickets) = open::<P>();
        assert_eq!((1..=3).map(|_| new_ticket(&database, &tickets)).collect::<Vec<_>>(), [1, 2, 3]);
        database.transact(|tx| tx.delete(&tickets, &3)).map_err(|error: Error| error).unwrap();
        assert_eq!(new_ticket(&database, &tickets), 4);
        let row = database.transact(|tx| Ok::<_, Error>(tx.get(&tickets, &4)?.cloned())).unwrap();
        assert_eq!(row, Some(ticket(4)));
    });
}

#[test]
fn a_rollback_leaves_a_gap() {
    for_each_kind!(|P| {
        let (database, tickets) = open::<P>();
        let mut seen = 0;
        let refused = database.transact(|tx| {
            seen = tx.insert_generated(&tickets, ticket)?;
            Err::<(), Error>(Failure::Closed.into())
        });
        assert!(refused.is_err());
        assert!(new_ticket(&database, &tickets) > seen);
    });
}

#[test]
fn keys_go_on_behind_those_that_the_caller_chose() {
    for_each_kind!(|P| {
        let (database, tickets) = open::<P>();
        let insert = |id| {
            let inserted = database.transact(|tx| tx.insert(&tickets, ticket(id)));
            inserted.map_err(|error: Error| error).unwrap();
        };
        // 0 is a key like any other.
        insert(0);
        assert_eq!(new_ticket(&database, &tickets), 1);
        insert(2);
        assert_eq!(new_ticket(&database, &tickets), 3);
        // The worker uses up the numbers that it has taken.
        insert(1_000);
        assert_eq!(new_ticket(&database, &tickets), 4);
        let many = (0..100).map(|_| new_ticket(&database, &tickets)).collect::<Vec<_>>();
        assert_eq!(many.last(), Some(&1_040));
        let rows = database.transact(|tx| tx.insert_many(&tickets, (2_000..2_020).map(ticket)));
        rows.map_err(|error: Error| error).unwrap();
        let upserted = database.transact(|tx| tx.upsert(&tickets, ticket(3_000)));
        assert!(!upserted.map_err(|error: Error| error).unwrap());
        let many = (0..100).map(|_| new_ticket(&database, &tickets)).collect::<Vec<_>>();
        assert_eq!(many.last(), Some(&3_076));
        // In one transaction.
        let (one, next) = database
            .transact(|tx| {
                let one = tx.insert_generated(&tickets, ticket)?;
                tx.insert(&tickets, ticket(one + 1))?;
                Ok::<_, Error>((one, tx.insert_generated(&tickets, ticket)?))
            })
            .unwrap();
        assert_eq!(next, one + 2);
    });
}

#[test]
fn threads_get_different_keys() {
    for_each_kind!(|P| {
        let seed = Seed::draw();
        let (database, tickets) = open::<P>();
        let rows = 150 * stress();
        let given = on_threads(threads::<P>(), |thread| {
            let mut random = seed.random(thread);
            let mut given = Vec::new();
            for round in 0..rows {
                let is_kept = random.u8(..8) > 0;
                // Callers choose keys that others may be about to get.
                let last = given.last().copied().unwrap_or(1_u64);
                let chosen = (random.u8(..8) == 0).then(|| last + random.u64(1..200));
                let inserted = database.transact(|tx| {
                    if let Some(chosen) = chosen {
                        tx.upsert(&tickets, ticket(chosen))?;
                    }
                    let id = tx.insert_generated(&tickets, ticket)?;
                    if !is_kept {
                        return Err(Error::from(Failure::Closed));
                    }
                    if round % 16 == 0 {
                        tx.delete(&tickets, &id)?;
                    }
                    Ok(id)
                });
                match inserted {
                    Ok(id) => given.push(id),
                    Err(Error::Failure(Failure::Closed)) => assert!(!is_kept),
                    Err(error) => panic!("{error}"),
                }
            }
            given
        });
        let all: Vec<u64> = given.into_iter().flatten().collect();
        let different: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len(), "a key was given twice");
    });
}

#[test]
fn newtypes_are_generated_and_hash_tables_have_them() {
    for_each_kind!(|P| {
        let database =
            Database::builder().protocol::<P>().table::<Order>().table::<Event>().open().unwrap();
        let (orders, events) =
            (database.table::<Order>().unwrap(), database.table::<Event>().unwrap());
        let order = |number| {
            let row = |id| Order { id, number };
            database.transact(|tx| tx.insert_generated(&orders, row))
        };
        assert_eq!(order(7).map_err(|error: Error| error).unwrap(), OrderId(1));
        let duplicate = order(7).map_err(|error: Error| error).unwrap_err();
        assert!(matches!(duplicate, Error::Failure(Failure::DuplicateKey { .. })), "{duplicate}");
        assert_eq!(order(8).map_err(|error: Error| error).unwrap(), OrderId(3));
        let event = |value| {
            let row = |id| Event { id, value };
            database.transact(|tx| tx.insert_generated(&events, row)).map_err(|it: Error| it)
        };
        let (one, next) = (event(1).unwrap(), event(2).unwrap());
        assert!(one < next && next.get_version_num() == 7);
    });
}

#[test]
fn the_row_has_the_generated_key() {
    let (database, tickets) = open::<Dbx>();
    let other = database.transact(|tx| tx.insert_generated(&tickets, |id| ticket(id + 1)));
    let error = other.map_err(|error: Error| error).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table tickets: a row was made with the primary key 2, and the generated key is 1; use the \
         generated key, or insert the row by `insert`"
    );
    assert!(ids(&database, &tickets).is_empty());
}

#[test]
fn the_keys_of_a_type_can_be_exhausted() {
    let database = Database::builder().table::<Narrow>().open().unwrap();
    let table = database.table::<Narrow>().unwrap();
    let insert = |id| database.transact(|tx| tx.insert(&table, Narrow { id }));
    let next = || database.transact(|tx| tx.insert_generated(&table, |id| Narrow { id }));
    insert(u32::MAX - 1).map_err(|error: Error| error).unwrap();
    assert_eq!(next().map_err(|error: Error| error).unwrap(), u32::MAX);
    let error = next().map_err(|error: Error| error).unwrap_err();
    assert!(matches!(error, Error::Failure(Failure::KeysExhausted { table: "narrow" })), "{error}");
    insert(7).map_err(|error: Error| error).unwrap();
}

#[test]
fn a_bulk_load_is_passed() {
    let (database, tickets) = open::<Dbx>();
    let parts = [0..300_u64, 300..500].map(|ids| ids.map(|id| Ok::<_, Failure>(ticket(id))));
    database.load(&tickets, parts, |_| {}).unwrap();
    assert_eq!(new_ticket(&database, &tickets), 500);
}

// With a directory.

fn place<P: Protocol>(builder: Builder<P>, disk: &SimulatedDisk) -> Builder<P> {
    let options = DurabilityOptions::new().threads(2).acknowledge(Acknowledge::Durable);
    builder
        .workers_max(8)
        .directory("/db")
        .durability(options)
        .backend(Arc::new(disk.clone()), false)
}

fn open_on<P: Protocol>(disk: &SimulatedDisk) -> (Database<P>, Table<Ticket>) {
    let builder = Database::builder().protocol::<P>().table::<Ticket>();
    let database = place(builder, disk).open().unwrap();
    let tickets = database.table().unwrap();
    (database, tickets)
}

/// Generates some keys on a new disk, and deletes the rows with the greatest ones. Returns the greatest key.
fn fill<P: Protocol>(disk: &SimulatedDisk, has_checkpoint: bool) -> u64 {
    let (database, tickets) = open_on::<P>(disk);
    let last = (0..10).map(|_| new_ticket(&database, &tickets)).max().unwrap();
    let deleted = database.transact(|tx| tx.delete_range(&tickets, last - 4..));
    assert_eq!(deleted.map_err(|error: Error| error).unwrap(), 5);
    database.flush().unwrap();
    if has_checkpoint {
        database.checkpoint().unwrap();
    }
    last
}

#[test]
fn the_keys_of_deleted_rows_do_not_come_back() {
    for_each_kind!(|P| {
        for has_checkpoint in [false, true] {
            let disk = SimulatedDisk::new(7);
            let filled = fill::<P>(&disk, has_checkpoint);
            for disk in [disk.crash(1), disk.snapshot()] {
                let mut last = filled;
                for _ in 0..3 {
                    let (database, tickets) = open_on::<P>(&disk);
                    let next = new_ticket(&database, &tickets);
                    assert!(next > last, "{next} after {last}");
                    let deleted = database.transact(|tx| tx.delete(&tickets, &next));
                    assert!(deleted.map_err(|error: Error| error).unwrap());
                    last = last.max(next);
                }
            }
        }
    });
}

#[test]
fn a_backup_goes_on_behind_the_keys_of_the_database() {
    let directory = weft_tests::TemporaryDirectory::new("generated");
    let (source, copy) = (directory.0.join("source"), directory.0.join("copy"));
    let open = |path: &std::path::Path| {
        let database = Database::builder().table::<Ticket>().directory(path).open().unwrap();
        let tickets = database.table::<Ticket>().unwrap();
        (database, tickets)
    };
    let (database, tickets) = open(&source);
    let last = (0..5).map(|_| new_ticket(&database, &tickets)).max().unwrap();
    let deleted = database.transact(|tx| tx.delete(&tickets, &last));
    assert!(deleted.map_err(|error: Error| error).unwrap());
    database.backup(&copy).unwrap();
    let (copied, tickets) = open(&copy);
    assert!(new_ticket(&copied, &tickets) > last);
}

/// Tickets of a later version, whose rows are all converted when the directory is opened.
mod later {
    use weft::Violation;
    use weft::description::StoredRow;

    #[derive(Clone, Debug, PartialEq, weft::Record)]
    #[record(table = "requests", was = "tickets")]
    pub struct Ticket {
        #[record(key, generated)]
        pub id: u64,
        pub subject: String,
        #[record(computed = Ticket::length)]
        pub length: u64,
    }

    impl Ticket {
        fn length(row: &StoredRow<'_>) -> Result<u64, Violation> {
            Ok(row.get::<String>("subject")?.len() as u64)
        }
    }
}

#[test]
fn keys_go_on_when_the_schema_changes() {
    for has_checkpoint in [false, true] {
        let disk = SimulatedDisk::new(3);
        let last = fill::<Dbx>(&disk, has_checkpoint);
        // The rows go through a staged table, and the log is not needed any more.
        for _ in 0..2 {
            let builder = Database::builder().table::<later::Ticket>();
            let database = place(builder, &disk).open().unwrap();
            let tickets = database.table::<later::Ticket>().unwrap();
            let next = database
                .transact(|tx| {
                    let row = |id| later::Ticket { id, subject: String::new(), length: 0 };
                    let id = tx.insert_generated(&tickets, row)?;
                    tx.delete(&tickets, &id)?;
                    Ok::<_, Error>(id)
                })
                .unwrap();
            assert!(next > last, "{next} after {last}");
        }
    }
}

#[test]
fn a_program_without_the_table_keeps_its_keys() {
    #[derive(Clone, Copy, Record)]
    struct Other {
        #[record(key)]
        id: u32,
    }
    let disk = SimulatedDisk::new(3);
    let last = fill::<Dbx>(&disk, false);
    let database = place(Database::builder().table::<Other>(), &disk).open().unwrap();
    let others = database.table::<Other>().unwrap();
    database.transact(|tx| tx.insert(&others, Other { id: 1 })).map_err(|it: Error| it).unwrap();
    // The log of the deletions goes with this.
    database.checkpoint().unwrap();
    drop(database);
    let (database, tickets) = open_on::<Dbx>(&disk);
    assert!(new_ticket(&database, &tickets) > last);
}

#[test]
fn a_table_with_rows_can_get_generated_keys() {
    #[derive(Clone, Copy, Record)]
    #[record(table = "numbers")]
    struct Before {
        #[record(key)]
        id: u32,
    }
    #[derive(Clone, Copy, Record)]
    #[record(table = "numbers")]
    struct After {
        #[record(key, generated)]
        id: u64,
    }
    let disk = SimulatedDisk::new(5);
    let database = place(Database::builder().table::<Before>(), &disk).open().unwrap();
    let before = database.table::<Before>().unwrap();
    let inserted = database.transact(|tx| tx.insert(&before, Before { id: 70 }));
    inserted.map_err(|error: Error| error).unwrap();
    drop(database);
    let database = place(Database::builder().table::<After>(), &disk).open().unwrap();
    let after = database.table::<After>().unwrap();
    let next = database.transact(|tx| tx.insert_generated(&after, |id| After { id }));
    assert_eq!(next.map_err(|error: Error| error).unwrap(), 71);
}

/// Threads generate keys, delete some of the rows, and write checkpoints, until the power fails. No key that was
/// acknowledged as durable is given a second time, however often that happens.
fn keys_after_crashes<P: Protocol>(seed: &Seed, crashes: usize) {
    let _named = Named(P::NAME);
    let mut random = seed.random(99);
    let mut disk = SimulatedDisk::new(random.u64(..));
    let mut all = BTreeSet::new();
    for crash in 0..crashes {
        let (database, tickets) = open_on::<P>(&disk);
        let stored = ids(&database, &tickets);
        let stop = Word::new(0);
        let given = std::sync::Mutex::new((Vec::new(), disk.clone()));
        let work = |thread: usize| {
            let mut random = seed.random(crash * 8 + thread);
            while stop.load(Ordering::SeqCst) == 0 {
                if thread == 2 {
                    database.checkpoint().unwrap();
                    continue;
                }
                let id = new_ticket(&database, &tickets);
                given.lock().unwrap().0.push(id);
                if random.bool() {
                    let deleted = database.transact(|tx| tx.delete(&tickets, &id));
                    assert!(deleted.map_err(|error: Error| error).unwrap());
                }
                let mut given = given.lock().unwrap();
                if given.0.len() > 40 && random.u8(..20) == 0 && stop.swap(1, Ordering::SeqCst) == 0
                {
                    // The last moment at which all that was given so far is known to be durable.
                    given.1 = disk.crash(random.u64(..));
                    given.0.push(0);
                }
            }
        };
        on_threads(3, work);
        let (given, crashed) = given.into_inner().unwrap();
        let before_the_crash = given.split(|&id| id == 0).next().unwrap();
        for &id in before_the_crash {
            assert!(!stored.contains(&id), "{id} has had a row all the time");
            assert!(all.insert(id), "{id} was given before");
        }
        drop(database);
        disk = crashed;
    }
}

#[test]
fn keys_are_not_given_again_after_crashes() {
    let seed = Seed::draw();
    keys_after_crashes::<Dbx>(&seed, 12 * stress());
    keys_after_crashes::<Silo>(&seed, 6 * stress());
    keys_after_crashes::<TwoPhaseLocking>(&seed, 6 * stress());
}
