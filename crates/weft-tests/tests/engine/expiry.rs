//! Tests of rows that expire, of the time of transactions, and of hooks, under every protocol.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::scope;
use std::time::{Duration, Instant};

use weft::durability::SimulatedDisk;
use weft::htm::word::{Ordering, Word};
use weft::protocol::{Dbx, Protocol};
use weft::{
    Builder, ConflictReason, Database, Error, Failure, ManualClock, Record, Table, Timestamp,
    Transaction, TransactionOptions, column_of,
};
use weft_protocols::Doppel;
use weft_tests::{TemporaryDirectory, begin_waits, for_each_kind, threads};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(expires = until)]
struct Session {
    #[record(key)]
    id: u32,
    #[record(unique)]
    token: String,
    #[record(index)]
    user: u32,
    hits: u64,
    until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(expires = until, storage = "hash")]
struct Lease {
    #[record(key)]
    id: u32,
    until: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(expires(until, hook))]
struct Reservation {
    #[record(key)]
    number: u32,
    item: u32,
    pieces: i64,
    until: Timestamp,
}

const START: Timestamp = Timestamp::from_millis(1_000_000);
const SECOND: Duration = Duration::from_secs(1);

struct Shop<P: Protocol> {
    clock: ManualClock,
    database: Database<P>,
    sessions: Table<Session>,
    leases: Table<Lease>,
    items: Table<Item>,
    reservations: Table<Reservation>,
}

fn builder<P: Protocol>() -> Builder<P> {
    Database::builder()
        .protocol::<P>()
        .table::<Session>()
        .table::<Lease>()
        .table::<Item>()
        .table::<Reservation>()
}

fn session(id: u32, until: Timestamp) -> Session {
    Session { id, token: format!("token {id}"), user: id % 3, hits: 0, until }
}

impl<P: Protocol> Shop<P> {
    fn new() -> Self {
        Self::open(builder(), &ManualClock::new(START))
    }

    fn open(builder: Builder<P>, clock: &ManualClock) -> Self {
        Self::of(builder.clock(clock).open().unwrap(), clock)
    }

    fn of(database: Database<P>, clock: &ManualClock) -> Self {
        let items: Table<Item> = database.table().unwrap();
        let reservations = database.table().unwrap();
        let stock = items.clone();
        let give_back = move |tx: &Transaction<'_, P>, reservation: &Reservation| {
            tx.give(&stock, &reservation.item, column_of!(Item.stock), reservation.pieces)
        };
        database.on_expiry(&reservations, give_back).unwrap();
        Shop {
            clock: clock.clone(),
            sessions: database.table().unwrap(),
            leases: database.table().unwrap(),
            items,
            reservations,
            database,
        }
    }

    fn run<R>(&self, body: impl FnMut(&Transaction<'_, P>) -> Result<R, Error>) -> R {
        self.database.transact(body).unwrap()
    }

    fn ids(&self) -> Vec<u32> {
        self.run(|tx| tx.range(&self.sessions, ..).map(|row| Ok(row?.id)).collect())
    }

    fn stock(&self) -> i64 {
        self.run(|tx| Ok(tx.get(&self.items, &7)?.unwrap().stock))
    }
}

#[test]
fn an_expired_row_is_not_there_for_any_operation() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        let (database, sessions) = (&shop.database, &shop.sessions);
        shop.run(|tx| {
            (1..=4).try_for_each(|id| tx.insert(sessions, session(id, START + id * SECOND)))?;
            tx.insert(&shop.leases, Lease { id: 1, until: Some(START + SECOND) })?;
            tx.insert(&shop.leases, Lease { id: 2, until: None })
        });
        assert_eq!(shop.ids(), [1, 2, 3, 4]);
        // Expired at its time, and not a millisecond earlier.
        shop.clock.set(Timestamp::from_millis(START.as_millis() + 1999));
        assert_eq!(shop.ids(), [2, 3, 4]);
        shop.clock.set(START + 2 * SECOND);
        assert_eq!(shop.ids(), [3, 4]);
        shop.run(|tx| {
            assert!(tx.get(sessions, &2)?.is_none());
            assert!(tx.get_columns(sessions, &2, column_of!(Session.hits))?.is_none());
            let many: Vec<_> = tx.get_many(sessions, 1..=3)?.collect::<Result<_, _>>()?;
            assert_eq!(many.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true]);
            assert!(tx.get_by(sessions, Session::TOKEN, &"token 2".to_owned())?.is_none());
            assert_eq!(tx.prefix_by(sessions, Session::USER, &2).count(), 0, "only 2 has it");
            assert_eq!(tx.range_by(sessions, Session::UNTIL, ..).count(), 2);
            assert_eq!(tx.update(sessions, &2, |row| row.hits += 1)?, None);
            let hits = column_of!(Session.hits);
            assert_eq!(tx.update_columns(sessions, &2, hits, |hits| *hits += 1)?, None);
            assert_eq!(tx.update_many(sessions, 1..=3, |_, row| row.hits += 1)?, 1);
            assert!(!tx.delete(sessions, &2)?);
            let no_row = tx.add(sessions, &2, hits, 1);
            assert!(matches!(no_row, Err(Error::Failure(Failure::NoSuchRow { .. }))));
            assert_eq!(tx.get(&shop.leases, &1)?, None);
            assert!(tx.get(&shop.leases, &2)?.is_some(), "it never expires");
            Ok(())
        });
        assert_eq!(shop.run(|tx| tx.delete_range(sessions, ..3)), 0);
        assert_eq!(database.remove_expired().unwrap(), 3);
        assert_eq!(database.remove_expired().unwrap(), 0);
        assert_eq!(shop.ids(), [3, 4]);
    });
}

#[test]
fn a_row_takes_the_place_of_an_expired_one() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        let sessions = &shop.sessions;
        let later = START + 60 * SECOND;
        shop.run(|tx| (1..=4).try_for_each(|id| tx.insert(sessions, session(id, START + SECOND))));
        shop.clock.advance(SECOND);
        shop.run(|tx| {
            // The same key, by an insert and by an upsert; the same key in a unique index, by both of them, and by an update.
            tx.insert(sessions, session(1, later))?;
            assert!(!tx.upsert(sessions, session(2, later))?, "there was none");
            tx.insert(sessions, Session { token: "token 3".to_owned(), ..session(13, later) })?;
            tx.update(sessions, &13, |row| row.token = "token 4".to_owned())?;
            let twice =
                tx.insert(sessions, Session { token: "token 4".to_owned(), ..session(14, later) });
            assert!(matches!(twice, Err(Error::Failure(Failure::DuplicateKey { .. }))));
            tx.insert_many(sessions, [session(3, later)])
        });
        assert_eq!(shop.ids(), [1, 2, 3, 13]);
        shop.database.remove_expired().unwrap();
        assert_eq!(shop.ids(), [1, 2, 3, 13]);
        shop.clock.set(later);
        assert!(shop.ids().is_empty());
        assert_eq!(shop.database.remove_expired().unwrap(), 4);
    });
}

#[test]
fn the_time_at_which_a_row_expires_can_be_changed() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        let sessions = &shop.sessions;
        shop.run(|tx| (1..=3).try_for_each(|id| tx.insert(sessions, session(id, START + SECOND))));
        shop.run(|tx| {
            tx.update(sessions, &1, |row| row.until = START + 5 * SECOND)?;
            tx.update(sessions, &2, |row| row.until = START)?;
            assert!(tx.get(sessions, &2)?.is_none(), "it has expired for this transaction");
            Ok(())
        });
        assert_eq!(shop.ids(), [1, 3]);
        shop.clock.advance(2 * SECOND);
        assert_eq!(shop.ids(), [1]);
        assert_eq!(shop.database.remove_expired().unwrap(), 2);
        assert_eq!(shop.ids(), [1]);
    });
}

#[test]
fn a_transaction_has_one_time_which_never_goes_back() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        shop.run(|tx| tx.insert(&shop.sessions, session(1, START + SECOND)));
        let tx = shop.database.begin().unwrap();
        shop.clock.advance(SECOND);
        assert_eq!(tx.now(), START);
        assert!(tx.get(&shop.sessions, &1).unwrap().is_some());
        tx.commit().expect("no other transaction has looked at a later time");
        assert_eq!(shop.run(|tx| Ok(tx.now())), START + SECOND);
        shop.clock.set(Timestamp::default());
        assert_eq!(shop.run(|tx| Ok(tx.now())), START + SECOND);
        assert!(shop.ids().is_empty());
    });
}

/// Runs `first` in a transaction that begins before the clock advances by a second, and commits after `second`, which
/// runs in a transaction of its own after that. Returns how the first transaction has ended.
fn around<P: Protocol>(
    shop: &Shop<P>,
    first: impl Fn(&Transaction<'_, P>) -> Result<(), Error> + Sync,
    second: impl Fn(&Transaction<'_, P>) -> Result<(), Error>,
) -> Result<(), ConflictReason> {
    let (to_main, from_first) = mpsc::channel();
    let (to_first, from_main) = mpsc::channel::<()>();
    scope(|scope| {
        let first = &first;
        let ended = scope.spawn(move || {
            let tx = shop.database.begin().unwrap();
            let done = first(&tx);
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
            let committed = done.and_then(|()| tx.commit());
            committed.map(drop).map_err(|error| match error {
                Error::Conflict(conflict) => conflict.reason,
                Error::Failure(failure) => panic!("{failure}"),
            })
        });
        from_first.recv().unwrap();
        shop.clock.advance(SECOND);
        let second = shop.database.transact(|tx| second(tx));
        to_first.send(()).unwrap();
        second.unwrap();
        ended.join().unwrap()
    })
}

fn ask_time<P: Protocol>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    let _ = tx.now();
    Ok(())
}

#[test]
fn the_times_of_transactions_agree_with_their_serial_order() {
    for_each_kind!(|P| {
        // A protocol that runs one transaction at a time has nothing to decide here. Without control there is no order.
        if threads::<P>() < 2 || begin_waits::<P>() || P::NAME == "none" {
            continue;
        }
        let begin = || {
            let shop = Shop::<P>::new();
            shop.run(|tx| {
                tx.insert(&shop.sessions, session(1, START + SECOND))?;
                tx.insert(&shop.sessions, session(2, START + 60 * SECOND))?;
                tx.insert(&shop.items, Item { id: 7, stock: 1 })
            });
            shop
        };
        let see = |shop: &Shop<P>, tx: &Transaction<'_, P>, id| {
            Ok(tx.get(&shop.sessions, &id)?.is_some())
        };
        // The first transaction sees the row, and the second does not any more: it cannot be the first.
        let shop = begin();
        let ended = around(
            &shop,
            |tx| see(&shop, tx, 1).map(|is_there| assert!(is_there)),
            |tx| see(&shop, tx, 1).map(|is_there| assert!(!is_there)),
        );
        assert_eq!(ended, Err(ConflictReason::TimePassed));
        // It does not matter in which way the second one looks at the time.
        let shop = begin();
        let ended = around(&shop, |tx| see(&shop, tx, 1).map(drop), ask_time);
        assert_eq!(ended, Err(ConflictReason::TimePassed));
        // A time that was asked for is exact.
        let shop = begin();
        let ended = around(&shop, ask_time, |tx| see(&shop, tx, 2).map(drop));
        assert_eq!(ended, Err(ConflictReason::TimePassed));
        // Both have seen the same, or only one of them has looked at the time.
        let shop = begin();
        assert_eq!(around(&shop, |tx| see(&shop, tx, 2).map(drop), ask_time), Ok(()));
        let shop = begin();
        let other = |tx: &Transaction<'_, P>| tx.get(&shop.items, &7).map(|_| ());
        assert_eq!(around(&shop, |tx| see(&shop, tx, 1).map(drop), other), Ok(()));
        let shop = begin();
        let other = |tx: &Transaction<'_, P>| tx.get(&shop.items, &7).map(|_| ());
        assert_eq!(around(&shop, other, ask_time), Ok(()));
        // The other way round there is nothing to forbid: the one that does not see the row comes later.
        assert_eq!(shop.ids(), [2]);
    });
}

#[test]
fn a_snapshot_has_a_time_of_its_own() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        let sessions = &shop.sessions;
        shop.run(|tx| {
            (1..=3).try_for_each(|id| tx.insert(sessions, session(id, START + id * SECOND)))
        });
        let before = shop.database.open_snapshot().unwrap();
        shop.clock.advance(2 * SECOND);
        let after = shop.database.open_snapshot().unwrap();
        assert_eq!((before.now(), after.now()), (START, START + 2 * SECOND));
        shop.database.remove_expired().unwrap();
        for (snapshot, expected) in [(&before, &[1, 2, 3][..]), (&after, &[3])] {
            let ids = |scan: weft::SnapshotScan<'_, Session>| -> Vec<u32> {
                scan.map(|row| row.unwrap().id).collect()
            };
            assert_eq!(ids(snapshot.range(sessions, ..)), expected);
            assert_eq!(ids(snapshot.rows(sessions)), expected);
            assert_eq!(ids(snapshot.range_by(sessions, Session::TOKEN, ..)), expected);
            let many: Vec<_> =
                snapshot.get_many(sessions, 1..=3).unwrap().map(|row| row.unwrap()).collect();
            assert_eq!(many.iter().flatten().count(), expected.len());
            assert_eq!(snapshot.get(sessions, &2).unwrap().is_some(), expected.contains(&2));
            let token = "token 1".to_owned();
            let by_token = snapshot.get_by(sessions, Session::TOKEN, &token).unwrap();
            assert_eq!(by_token.is_some(), expected.contains(&1));
        }
        let recent = shop.database.open_recent_snapshot().unwrap();
        assert!(recent.now() >= START);
    });
}

/// Fault: a snapshot settled the present time even for a transaction that had closed the turnstile, or ran on the same thread. So
/// one that had asked for the time could be aborted by snapshots for ever.
#[test]
fn snapshots_let_a_transaction_commit_that_has_asked_for_the_time() {
    let shop = Shop::<Dbx>::new();
    let open = || drop(shop.database.open_snapshot().unwrap());
    let while_opening = |open: &dyn Fn()| {
        let options = TransactionOptions::new().retries_max(10).starves_after(Duration::ZERO);
        shop.database.transact_with(&options, |tx| {
            ask_time(tx)?;
            shop.clock.advance(Duration::from_millis(1));
            open();
            Ok::<(), Error>(())
        })
    };
    while_opening(&open).unwrap();
    while_opening(&|| weft_tests::on_a_thread(open)).unwrap();
}

#[test]
fn a_hook_runs_in_the_transaction_that_removes_its_row() {
    for_each_kind!(|P| {
        let shop = Shop::<P>::new();
        let reserve = |number, pieces| {
            shop.database.transact(|tx| {
                let run = tx.run_due(&shop.reservations, 100)?;
                tx.take(&shop.items, &7, column_of!(Item.stock), pieces)?;
                let until = tx.now() + SECOND;
                tx.insert(&shop.reservations, Reservation { number, item: 7, pieces, until })?;
                Ok::<_, Error>(run)
            })
        };
        shop.run(|tx| tx.insert(&shop.items, Item { id: 7, stock: 5 }));
        assert_eq!(reserve(1, 3).unwrap(), 0);
        assert_eq!(reserve(2, 2).unwrap(), 0);
        let sold_out = reserve(3, 1).unwrap_err();
        assert!(matches!(sold_out, Error::Failure(Failure::NotEnough { .. })), "{sold_out}");
        shop.clock.advance(SECOND);
        // The rows are still there, and their keys are taken, until the hook has run.
        shop.run(|tx| {
            assert!(tx.get(&shop.reservations, &1)?.is_some());
            assert_eq!(tx.range(&shop.reservations, ..).count(), 2);
            let row = Reservation { number: 1, item: 7, pieces: 1, until: START };
            let twice = tx.insert(&shop.reservations, row);
            assert!(matches!(twice, Err(Error::Failure(Failure::DuplicateKey { .. }))));
            Ok(())
        });
        assert_eq!(reserve(3, 4).unwrap(), 2, "both were given back first");
        assert_eq!(shop.stock(), 1);
        shop.clock.advance(SECOND);
        assert_eq!(shop.database.remove_expired().unwrap(), 1);
        assert_eq!(shop.stock(), 5);
        assert_eq!(shop.run(|tx| Ok(tx.range(&shop.reservations, ..).count())), 0);
    });
}

#[test]
fn a_row_whose_hook_fails_stays_and_stops_no_other_row() {
    let clock = ManualClock::new(START);
    let database = builder::<Dbx>().clock(&clock).open().unwrap();
    let reservations: Table<Reservation> = database.table().unwrap();
    let insert = |number| {
        database.transact(|tx| {
            let row = Reservation { number, item: 7, pieces: 1, until: tx.now() };
            tx.insert(&reservations, row)
        })
    };
    (1..=3).try_for_each(insert).unwrap();
    assert_eq!(database.remove_expired().unwrap(), 0, "there is no hook yet");
    let due = database.transact(|tx| tx.run_due(&reservations, 1)).unwrap_err();
    assert!(due.to_string().contains("set it by `Database::on_expiry`"), "{due}");
    let calls = Arc::new(Word::new(0));
    let counted = Arc::clone(&calls);
    database
        .on_expiry(&reservations, move |_, row| match row.number {
            1 => panic!("number one"),
            2 if counted.fetch_add(1, Ordering::Relaxed) < 2 => {
                Err(Failure::NoSuchRow { table: "item", key: "7".to_owned() }.into())
            }
            _ => Ok(()),
        })
        .unwrap();
    assert_eq!(database.remove_expired().unwrap(), 1, "the third");
    let metrics = database.metrics().expiry.unwrap();
    assert_eq!((metrics.removed, metrics.hook_failures), (1, 2));
    let message = metrics.last_failure.unwrap();
    assert_eq!(message, "table reservation: there is no row to change (table item, key 7)");
    assert_eq!(database.remove_expired().unwrap(), 0);
    assert_eq!(database.remove_expired().unwrap(), 1, "the second, at the third attempt");
    clock.advance(5 * SECOND);
    assert_eq!(database.remove_expired().unwrap(), 0);
    let metrics = database.metrics().expiry.unwrap();
    assert_eq!((metrics.removed, metrics.overdue), (2, 5 * SECOND));
    assert_eq!(
        database.transact(|tx| Ok::<_, Error>(tx.range(&reservations, ..).count())).unwrap(),
        1
    );
}

/// A panic's payload that panics when it is dropped.
struct Evil;

impl Drop for Evil {
    fn drop(&mut self) {
        weft_tests::panic_quietly("the payload panics")
    }
}

/// Fault: a panic of a hook whose payload panics, too, ended the removal of rows for good.
#[test]
fn a_hook_may_panic_with_any_payload() {
    let shop = Shop::<Dbx>::new();
    shop.run(|tx| {
        let until = START + SECOND;
        tx.insert(&shop.reservations, Reservation { number: 1, item: 7, pieces: 1, until })
    });
    shop.clock.advance(SECOND);
    let panicking = |_: &Transaction<'_, Dbx>, _: &Reservation| -> Result<(), Error> {
        std::panic::resume_unwind(Box::new(Evil))
    };
    shop.database.on_expiry(&shop.reservations, panicking).unwrap();
    assert_eq!(shop.database.remove_expired().unwrap(), 0);
    shop.database.on_expiry(&shop.reservations, |_, _| Ok(())).unwrap();
    assert_eq!(shop.database.remove_expired().unwrap(), 1);
}

/// Fault: rows of other tables were not removed as long as one table had rows that had expired.
#[test]
fn a_table_that_cannot_be_emptied_does_not_stop_the_others() {
    let shop = Shop::<Dbx>::new();
    let until = START + SECOND;
    shop.run(|tx| {
        tx.insert(&shop.sessions, session(1, until))?;
        tx.insert(&shop.reservations, Reservation { number: 0, item: 7, pieces: 1, until })
    });
    shop.clock.advance(SECOND);
    // The hook puts another row in the place of its own, which has expired as well.
    let (reservations, left) = (shop.reservations.clone(), Arc::new(Word::new(0)));
    let (sessions, seen) = (shop.sessions.clone(), Arc::clone(&left));
    let again = move |tx: &Transaction<'_, Dbx>, row: &Reservation| {
        if tx.len(&sessions)? > 0 {
            seen.store(u64::from(row.number), Ordering::Relaxed);
        }
        if row.number == 100 {
            return Ok(());
        }
        tx.insert(&reservations, Reservation { number: row.number + 1, ..*row })
    };
    shop.database.on_expiry(&shop.reservations, again).unwrap();
    assert_eq!(shop.database.remove_expired().unwrap(), 102);
    assert!(left.load(Ordering::Relaxed) <= 1, "{left:?}");
}

#[test]
fn wrong_use_is_refused_with_a_message() {
    let shop = Shop::<Dbx>::new();
    let due = shop.database.transact(|tx| tx.run_due(&shop.items, 1)).unwrap_err();
    assert_eq!(
        due.to_string(),
        "the rows of table item do not expire; declare `#[record(expires = column)]`"
    );
    let hook = shop.database.on_expiry(&shop.sessions, |_, _| Ok(())).unwrap_err();
    assert_eq!(
        hook.to_string(),
        "table session has no hook for rows that have expired; declare `#[record(expires(column, hook))]`, and \
         set it by `Database::on_expiry`"
    );
    let other = Shop::<Dbx>::new();
    let foreign = shop.database.on_expiry(&other.reservations, |_, _| Ok(())).unwrap_err();
    assert!(matches!(foreign, Failure::ForeignTable { .. }));
}

/// Waits until a condition holds.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rows_are_removed_and_hooks_run_in_the_background() {
    for_each_kind!(|P| {
        let database = builder::<P>().open().unwrap();
        let shop = Shop::of(database, &ManualClock::new(START));
        shop.run(|tx| {
            let now = tx.now();
            tx.insert(&shop.items, Item { id: 7, stock: 0 })?;
            (1..=200).try_for_each(|id| tx.insert(&shop.sessions, session(id, now)))?;
            tx.insert(&shop.sessions, session(201, now + 1000 * SECOND))?;
            tx.insert(&shop.reservations, Reservation { number: 1, item: 7, pieces: 3, until: now })
        });
        assert_eq!(shop.ids(), [201]);
        eventually("the rows are removed", || {
            let expiry = shop.database.metrics().expiry.unwrap();
            expiry.removed == 201 && expiry.overdue == Duration::ZERO
        });
        assert_eq!(shop.stock(), 3);
        assert_eq!(shop.ids(), [201]);
        shop.database.close().unwrap();
    });
}

#[test]
fn a_database_is_dropped_although_its_hook_holds_its_tables() {
    struct Witness(Arc<Word>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(Word::new(0));
    let database = builder::<Dbx>().open().unwrap();
    let reservations: Table<Reservation> = database.table().unwrap();
    let set_hook = || {
        let (own, witness) = (reservations.clone(), Witness(Arc::clone(&dropped)));
        database
            .on_expiry(&reservations, move |tx, _| {
                let _ = &witness;
                tx.range(&own, ..).next().transpose().map(drop)
            })
            .unwrap();
    };
    set_hook();
    database.on_expiry(&reservations, |_, _| Ok(())).unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "it was replaced");
    set_hook();
    drop((reservations, database));
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}

#[test]
fn operations_on_rows_that_expire_are_never_split() {
    let shop = Shop::<Doppel>::new();
    shop.run(|tx| tx.insert(&shop.sessions, session(1, START + SECOND)));
    let hits = column_of!(Session.hits);
    assert!(hits.unsplittable::<weft::operation::Add<u64>>().is_some());
    (0..100).for_each(|_| shop.run(|tx| tx.add(&shop.sessions, &1, hits, 1)));
    assert_eq!(shop.run(|tx| Ok(tx.get(&shop.sessions, &1)?.unwrap().hits)), 100);
}

/// An operation that is applied again to a row which another transaction has replaced looks at when that row expires.
#[test]
fn an_operation_is_not_applied_again_to_a_row_that_has_expired() {
    let shop = Shop::<Dbx>::new();
    shop.run(|tx| tx.insert(&shop.sessions, session(1, START + 9 * SECOND)));
    let (to_main, from_first) = mpsc::channel();
    let (to_first, from_main) = mpsc::channel::<()>();
    let hits = column_of!(Session.hits);
    let ended = scope(|scope| {
        let shop = &shop;
        let first = scope.spawn(move || {
            let tx = shop.database.begin().unwrap();
            tx.add(&shop.sessions, &1, hits, 1).unwrap();
            to_main.send(()).unwrap();
            from_main.recv().unwrap();
            tx.commit()
        });
        from_first.recv().unwrap();
        shop.run(|tx| tx.update(&shop.sessions, &1, |row| row.until = START));
        to_first.send(()).unwrap();
        first.join().unwrap()
    });
    assert!(matches!(ended, Err(Error::Conflict(_))), "{ended:?}");
    // The same with columns by name, of which the transaction has not named the one that says when the row expires.
    let shop = Shop::<Dbx>::new();
    shop.run(|tx| tx.insert(&shop.sessions, session(1, START + 9 * SECOND)));
    let tx = shop.database.begin().unwrap();
    assert!(tx.get_columns(&shop.sessions, &1, hits).unwrap().is_some());
    let other = || shop.run(|tx| tx.update(&shop.sessions, &1, |row| row.until = START));
    scope(|scope| scope.spawn(other).join().unwrap());
    assert!(
        tx.update_columns(&shop.sessions, &1, hits, |hits| *hits += 1).is_err()
            || tx.commit().is_err()
    );
}

// ---- with a directory -------------------------------------------------------------------------

#[test]
fn the_time_does_not_go_back_over_a_restart() {
    for_each_kind!(|P| {
        let directory = TemporaryDirectory::new("expiry-time");
        let open = |clock: &ManualClock| Shop::<P>::open(builder().directory(&directory.0), clock);
        let clock = ManualClock::new(START + 5 * SECOND);
        let shop = open(&clock);
        shop.run(|tx| {
            tx.insert(&shop.sessions, session(1, tx.now() + SECOND))?;
            tx.insert(&shop.sessions, session(2, START + SECOND))
        });
        shop.database.close().unwrap();
        drop(shop);
        // The clock has been set back.
        let earlier = ManualClock::new(START);
        let shop = open(&earlier);
        assert_eq!(shop.run(|tx| Ok(tx.now())), START + 5 * SECOND);
        assert_eq!(shop.ids(), [1], "the other row has expired before");
        // A checkpoint removes the log, and keeps the time; so does a backup.
        earlier.set(START + 6 * SECOND);
        assert!(shop.ids().is_empty());
        shop.database.checkpoint().unwrap();
        let copy = TemporaryDirectory::new("expiry-backup");
        shop.database.backup(&copy.0).unwrap();
        shop.database.close().unwrap();
        drop(shop);
        for path in [&directory.0, &copy.0] {
            let shop = Shop::<P>::open(builder().directory(path), &ManualClock::new(START));
            assert_eq!(shop.run(|tx| Ok(tx.now())), START + 6 * SECOND);
            assert!(shop.ids().is_empty());
            assert_eq!(shop.database.remove_expired().unwrap(), 2, "they were still stored");
        }
    });
}

/// A crash at any moment between the expiry of a row and its removal leaves the row removed, or there and expired; and
/// with a hook, both done or neither.
#[test]
fn a_crash_between_expiry_and_removal_loses_nothing() {
    for seed in 0..40 {
        let disk = Arc::new(SimulatedDisk::new(seed));
        let open = |disk: &Arc<SimulatedDisk>, clock: &ManualClock| {
            let backend: Arc<dyn weft::durability::Backend> = Arc::clone(disk) as _;
            Shop::<Dbx>::open(builder().directory(Path::new("/db")).backend(backend, true), clock)
        };
        let clock = ManualClock::new(START);
        let shop = open(&disk, &clock);
        shop.run(|tx| {
            tx.insert(&shop.items, Item { id: 7, stock: 0 })?;
            (1..=6).try_for_each(|number| {
                let until = START + SECOND;
                tx.insert(&shop.sessions, session(number, until))?;
                tx.insert(&shop.reservations, Reservation { number, item: 7, pieces: 1, until })
            })
        });
        shop.database.flush().unwrap();
        clock.advance(SECOND);
        // Some of the rows are removed, some removals are durable, and some rows are inserted again.
        let due = (seed % 7) as usize;
        assert_eq!(shop.run(|tx| tx.run_due(&shop.reservations, due)), due);
        if seed % 2 == 0 {
            shop.database.flush().unwrap();
        }
        if seed % 3 == 0 {
            shop.run(|tx| tx.insert(&shop.sessions, session(1, START + 9 * SECOND)));
            shop.database.checkpoint().unwrap();
        }
        shop.database.remove_expired().unwrap();
        let crashed = Arc::new(disk.crash(seed));
        let (earlier, survivors) = (ManualClock::new(START), |shop: &Shop<Dbx>| {
            let left = shop.run(|tx| Ok(tx.range(&shop.reservations, ..).count()));
            assert_eq!(
                left as i64 + shop.stock(),
                6,
                "each was given back, or is there: seed {seed}"
            );
            left
        });
        let shop = open(&crashed, &earlier);
        let left = survivors(&shop);
        assert!(seed % 2 == 1 || left <= 6 - due, "seed {seed}");
        let now = shop.run(|tx| Ok(tx.now()));
        if left < 6 {
            assert_eq!(now, START + SECOND, "the time of what was recovered: seed {seed}");
        }
        earlier.set(START + SECOND);
        let ids = shop.ids();
        assert!(ids.is_empty() || ids == [1], "seed {seed}: {ids:?}");
        shop.database.remove_expired().unwrap();
        assert_eq!((survivors(&shop), shop.stock(), shop.ids()), (0, 6, ids), "seed {seed}");
    }
}

#[test]
fn a_database_at_an_epoch_has_the_time_of_that_epoch() {
    let directory = TemporaryDirectory::new("expiry-epoch");
    let clock = ManualClock::new(START);
    let shop = Shop::<Dbx>::open(builder().directory(&directory.0), &clock);
    let insert =
        |tx: &Transaction<'_, Dbx>| tx.insert(&shop.sessions, session(1, tx.now() + SECOND));
    let options = weft::TransactionOptions::new();
    let ((), token) = shop.database.transact_with_token::<_, Error>(&options, insert).unwrap();
    shop.database.flush().unwrap();
    clock.advance(SECOND);
    assert_eq!(shop.database.remove_expired().unwrap(), 1);
    shop.database.close().unwrap();
    drop(shop);
    let past = builder::<Dbx>().directory(&directory.0).at_epoch(token.epoch()).open().unwrap();
    let sessions = past.table::<Session>().unwrap();
    let seen = past.transact(|tx| Ok::<_, Error>((tx.now(), tx.range(&sessions, ..).count())));
    assert_eq!(seen.unwrap(), (START, 1));
}
