//! Rows that expire, and transactions that run once for a key, across promotions.

use std::sync::Arc;
use std::time::Duration;

use weft::protocol::{Dbx, Protocol};
use weft::{
    Database, Error, ManualClock, OnceOptions, Record, ReplicatedResult, Timestamp,
    TransactionOptions, column_of,
};
use weft_replication::{
    Faults, Node, NodeBuilder, NodeRole, Options, Primary, ReplicationError, ReplicationToken,
    SimulatedLog,
};

use common::{LONG, by_call, wait_until};

mod common;

#[derive(Clone, Debug, PartialEq, Record)]
#[record(expires = until)]
struct Session {
    #[record(key)]
    id: u32,
    visits: u32,
    until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Item {
    #[record(key)]
    id: u32,
    #[record(min = 0)]
    stock: i64,
}

#[derive(Clone, Record)]
#[record(expires(until, hook))]
struct Reservation {
    #[record(key)]
    number: u32,
    item: u32,
    pieces: i64,
    until: Timestamp,
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn builder<P: Protocol>() -> NodeBuilder<P> {
    NodeBuilder::new(|| Database::builder().protocol::<P>().workers_max(4))
        .table::<Session>()
        .table::<Item>()
        .table::<Reservation>()
        .once(OnceOptions::new().results_max(1))
        .options(by_call())
        .prepare(|database| {
            let items = database.table::<Item>()?;
            database.on_expiry(&database.table::<Reservation>()?, move |tx, reservation| {
                tx.give(&items, &reservation.item, column_of!(Item.stock), reservation.pieces)
            })
        })
}

/// Starts a node that goes by a clock while it is the primary.
fn node<P: Protocol>(log: &SimulatedLog, clock: &ManualClock) -> Node<P> {
    builder().clock(clock).start(log.connect()).expect("the node starts")
}

/// Runs a transaction with the sessions and the items.
fn run<P: Protocol, R>(
    primary: &Primary<P>,
    mut body: impl FnMut(
        &weft::Transaction<'_, P>,
        &weft::Table<Session>,
        &weft::Table<Item>,
    ) -> Result<R, Error>,
) -> (R, ReplicationToken) {
    let sessions = primary.database().table::<Session>().expect("the table is there");
    let items = primary.database().table::<Item>().expect("the table is there");
    let done = primary.transact(|tx| Ok::<_, ReplicationError>(body(tx, &sessions, &items)?));
    done.expect("it commits")
}

/// Returns the sessions and the items that a node's snapshot shows.
fn shown<P: Protocol>(node: &Node<P>) -> (Vec<u32>, Vec<u32>) {
    let view = node.snapshot().expect("the node is there");
    let sessions = view.table::<Session>().expect("the table is there");
    let items = view.table::<Item>().expect("the table is there");
    let snapshot = view.snapshot();
    let sessions = snapshot.rows(&sessions).map(|row| row.expect("it can be read").id);
    let items = snapshot.rows(&items).map(|row| row.expect("it can be read").id);
    (sessions.collect(), items.collect())
}

/// Returns how many rows of a table a node's snapshot shows.
fn stored<T: Record, P: Protocol>(node: &Node<P>) -> usize {
    let view = node.snapshot().expect("the node is there");
    let table = view.table::<T>().expect("the table is there");
    view.snapshot().len(&table).expect("it can be read")
}

#[test]
fn rows_expire_at_a_standby_by_the_time_of_the_primary() {
    fn expire<P: Protocol>() {
        let log = SimulatedLog::new(1);
        let clock = ManualClock::new(at(100));
        let (one, other) = (node::<P>(&log, &clock), node::<P>(&log, &clock));
        let primary = one.promote(LONG).expect("it becomes the primary");
        let (_, token) = run(&primary, |tx, sessions, _| {
            tx.insert(sessions, Session { id: 1, visits: 0, until: at(150) })?;
            tx.insert(sessions, Session { id: 2, visits: 0, until: at(900) })
        });
        other.wait_for(token, LONG).expect("it follows");
        // The clock alone changes nothing at the standby.
        clock.set(at(200));
        assert_eq!(shown(&other), (vec![1, 2], vec![]), "{}", P::NAME);
        // This transaction is the first for which the session has expired.
        let (_, token) = run(&primary, |tx, sessions, items| {
            assert!(tx.get(sessions, &1)?.is_none());
            tx.insert(items, Item { id: 7, stock: 0 })
        });
        other.wait_for(token, LONG).expect("it follows");
        assert_eq!(shown(&other), (vec![2], vec![7]), "{}", P::NAME);
        // The standby has removed nothing itself.
        let new = other.promote(LONG).expect("it becomes the primary");
        assert_eq!(new.database().remove_expired().expect("it is open"), 1, "{}", P::NAME);
        let (_, token) = run(&new, |tx, _, items| tx.delete(items, &7));
        one.wait_for(token, LONG).expect("it follows");
        assert_eq!(shown(&one), (vec![2], vec![]), "{}", P::NAME);
        // The deletion was applied, although the row had expired for this node as well.
        let again = one.promote(LONG).expect("it becomes the primary");
        assert_eq!(again.database().remove_expired().expect("it is open"), 0, "{}", P::NAME);
    }
    expire::<Dbx>();
    expire::<weft_protocols::Doppel>();
    expire::<weft_protocols::TimestampOrdering>();
}

/// In the log, a change of a row may follow the time at which the row expires, since the transaction that has made the change
/// had an earlier time.
#[test]
fn changes_of_rows_that_have_expired_in_the_same_epoch_are_applied() {
    let log = SimulatedLog::new(2);
    let clock = ManualClock::new(at(100));
    let (one, other) = (node::<Dbx>(&log, &clock), node::<Dbx>(&log, &clock));
    let primary = one.promote(LONG).expect("it becomes the primary");
    let database = primary.database();
    let sessions = database.table::<Session>().expect("the table is there");
    let options = TransactionOptions::new();
    let mut last = None;
    for round in 0..50_u64 {
        let now = 100 + round * 10;
        clock.set(at(now));
        let changed: Result<_, Error> = database.transact_with_token(&options, |tx| {
            let session = Session { id: 1, visits: 0, until: at(now + 5) };
            tx.insert(&sessions, session)?;
            tx.update(&sessions, &1, |session| session.visits += 1)
        });
        changed.expect("it commits");
        let updated: Result<_, Error> = database.transact_with_token(&options, |tx| {
            tx.update(&sessions, &1, |session| session.visits += 1)
        });
        updated.expect("it commits");
        clock.set(at(now + 6));
        let looked: Result<_, Error> =
            database.transact_with_token(&options, |tx| Ok(tx.get(&sessions, &1)?.is_some()));
        let (is_there, token) = looked.expect("it commits");
        assert!(!is_there);
        if round % 2 == 0 {
            database.flush().expect("it is replicated");
        }
        last = Some(token);
    }
    database.wait_durable(last.expect("there were rounds")).expect("it is replicated");
    let (_, token) = run(&primary, |tx, _, items| tx.insert(items, Item { id: 1, stock: 0 }));
    other.wait_for(token, LONG).expect("it follows");
    assert_eq!(other.fault(), None);
    assert_eq!(shown(&other), (vec![], vec![1]));
    let primary = other.promote(LONG).expect("it becomes the primary");
    assert_eq!(primary.database().remove_expired().expect("it is open"), 1);
}

#[test]
fn time_does_not_go_back_at_a_promotion() {
    let log = SimulatedLog::new(3);
    let (ahead, behind) = (ManualClock::new(at(1_000)), ManualClock::new(at(50)));
    let (one, other) = (node::<Dbx>(&log, &ahead), node::<Dbx>(&log, &behind));
    let primary = one.promote(LONG).expect("it becomes the primary");
    run(&primary, |tx, sessions, _| {
        tx.insert(sessions, Session { id: 1, visits: 0, until: at(900) })?;
        tx.insert(sessions, Session { id: 2, visits: 0, until: at(2_000) })?;
        Ok(tx.now())
    });
    let primary = other.promote(LONG).expect("it becomes the primary");
    let (now, _) = run(&primary, |tx, _, _| Ok(tx.now()));
    assert_eq!(now, at(1_000));
    let (is_there, _) = run(&primary, |tx, sessions, _| {
        Ok([1, 2].map(|id| tx.get(sessions, &id).map(|row| row.is_some())))
    });
    assert_eq!(is_there.map(|found| found.expect("it can be read")), [false, true]);
    behind.set(at(3_000));
    let (now, _) = run(&primary, |tx, _, _| Ok(tx.now()));
    assert_eq!(now, at(3_000));
}

/// Without a clock of the program: the background of the primary, and no other node's, removes rows.
#[test]
fn background_of_the_new_primary_removes_rows_and_runs_hooks() {
    let log = SimulatedLog::new(4);
    let start = || builder::<Dbx>().start(log.connect()).expect("the node starts");
    let (one, other) = (start(), start());
    let primary = one.promote(LONG).expect("it becomes the primary");
    let reservations = primary.database().table::<Reservation>().expect("the table is there");
    run(&primary, |tx, sessions, items| {
        tx.insert(items, Item { id: 7, stock: 0 })?;
        let until = tx.now() + Duration::from_millis(300);
        tx.insert(&reservations, Reservation { number: 1, item: 7, pieces: 5, until })?;
        tx.insert(sessions, Session { id: 1, visits: 0, until })
    });
    let primary = other.promote(LONG).expect("it becomes the primary");
    let removed = || stored::<Session, _>(&other) + stored::<Reservation, _>(&other) == 0;
    wait_until("the removal", removed);
    let (stock, token) =
        run(&primary, |tx, _, items| Ok(tx.get(items, &7)?.map(|item| item.stock)));
    assert_eq!(stock, Some(5));
    // The old primary, which follows now, has it from the log.
    one.wait_for(token, LONG).expect("it follows");
    wait_until("following", || {
        one.role() == NodeRole::Standby && {
            stored::<Session, _>(&one) + stored::<Reservation, _>(&one) == 0
        }
    });
    let view = one.snapshot().expect("it is there");
    let items = view.table::<Item>().expect("it is there");
    let row = view.snapshot().get(&items, &7).expect("it can be read");
    assert_eq!(row, Some(&Item { id: 7, stock: 5 }));
}

/// Asks for one more piece, once for this request.
fn ask(primary: &Primary<Dbx>, request: u64) -> Result<i64, ReplicationError> {
    let items = primary.database().table::<Item>()?;
    let options = TransactionOptions::new().label("ask").once(request);
    let asked = primary.transact_with(&options, |tx| {
        let stock = tx.get(&items, &1)?.map_or(0, |item| item.stock) + 1;
        tx.upsert(&items, Item { id: 1, stock })?;
        Ok::<_, ReplicationError>(stock)
    });
    asked.map(|(stock, _)| stock)
}

/// Requests are repeated with their keys until they have an answer, at one primary after the other. Each happens once.
#[test]
fn unknown_outcomes_are_resolved_by_keys() {
    const REQUESTS: u64 = 20;
    let keeping = || {
        NodeBuilder::<Dbx>::new(|| Database::builder().workers_max(4))
            .table::<Item>()
            .once(OnceOptions::new())
            .options(Options { deadline: Duration::from_millis(300), ..by_call() })
    };
    let mut unknown = 0;
    for seed in 0..3 {
        let log = SimulatedLog::new(seed);
        let connections = [log.connect(), log.connect()];
        let nodes = [0, 1].map(|number: usize| {
            keeping().start(Arc::clone(&connections[number]) as _).expect("the node starts")
        });
        log.set_faults(Faults { lost: 5, unanswered: 15, late: 5, doubled: 5 });
        let mut answers = Vec::new();
        let mut round = 0;
        for request in 0..REQUESTS {
            let mut is_cut = request % 7 == 3;
            let stock = loop {
                let Ok(primary) = nodes[round % 2].promote(LONG) else {
                    round += 1;
                    continue;
                };
                // The log may answer no more while the commit waits.
                let answer = std::thread::scope(|scope| {
                    let asking = scope.spawn(|| ask(&primary, request));
                    connections[round % 2].cut_off(std::mem::take(&mut is_cut));
                    asking.join().expect("no panic")
                });
                connections[round % 2].cut_off(false);
                match answer {
                    Ok(stock) => break stock,
                    Err(ReplicationError::OutcomeUnknown) => unknown += 1,
                    Err(ReplicationError::NotPrimary) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                round += 1;
            };
            answers.push((request, stock));
        }
        log.set_faults(Faults::default());
        // Each request has added one, and the same answer comes again, from the other node.
        let expected: Vec<_> = (0..REQUESTS).map(|request| (request, request as i64 + 1)).collect();
        assert_eq!(answers, expected, "seed {seed}");
        answers.push((REQUESTS, REQUESTS as i64 + 1));
        let other = &nodes[(round + 1) % 2];
        let mut primary = other.promote(LONG).expect("it becomes the primary");
        for (request, stock) in answers {
            let answer = loop {
                match ask(&primary, request) {
                    // A promotion from before, whose record has come late, ends this one.
                    Err(ReplicationError::NotPrimary | ReplicationError::OutcomeUnknown) => {
                        primary = other.promote(LONG).expect("it becomes the primary again");
                    }
                    answer => break answer.expect("it is answered"),
                }
            };
            assert_eq!(answer, stock, "seed {seed}");
        }
    }
    assert!(unknown > 0, "no outcome was unknown, so the test has shown nothing");
}

#[test]
fn new_primary_removes_old_results_of_the_one_before() {
    let log = SimulatedLog::new(6);
    let clock = ManualClock::new(at(100));
    let (one, other) = (node::<Dbx>(&log, &clock), node::<Dbx>(&log, &clock));
    let primary = one.promote(LONG).expect("it becomes the primary");
    for request in 0..32 {
        ask(&primary, request).expect("it commits");
    }
    let primary = other.promote(LONG).expect("it becomes the primary");
    for request in 32..64 {
        ask(&primary, request).expect("it commits");
    }
    let results = stored::<ReplicatedResult, _>(&other);
    assert!(results <= 17, "{results} results are kept, and at most 1 and 16 more should be");
}
