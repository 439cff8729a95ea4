//! Nodes of a replicated database, on a log in memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft::protocol::{Dbx, Protocol};
use weft::{Database, Error, Failure, Record, TransactionOptions};
use weft_replication::{
    Fault, Faults, Node, NodeBuilder, NodeRole, Options, Primary, ReplicatedLog, ReplicationError,
    ReplicationToken, Report, SimulatedConnection, SimulatedLog,
};

use common::{LONG, by_call, wait_until};

mod common;

#[derive(Clone, Debug, PartialEq, Record)]
struct Account {
    #[record(key)]
    id: u32,
    cents: i64,
}

#[derive(Clone, Debug, PartialEq, Record)]
#[record(index(name = by_mail, columns(mail), unique))]
struct User {
    #[record(key, generated)]
    id: u64,
    mail: String,
}

fn builder<P: Protocol>() -> NodeBuilder<P> {
    NodeBuilder::new(|| Database::builder().protocol::<P>().workers_max(4))
        .table::<Account>()
        .table::<User>()
        .table_named::<Account>("savings")
        .options(by_call())
}

fn node<P: Protocol>(log: &SimulatedLog) -> Node<P> {
    builder().start(log.connect()).expect("the node starts")
}

/// Adds to an account, which is made if it isn't there.
fn add<P: Protocol>(
    primary: &Primary<P>,
    id: u32,
    cents: i64,
) -> Result<ReplicationToken, ReplicationError> {
    let accounts = primary.database().table::<Account>()?;
    let added = primary.transact(|tx| {
        let before = tx.get(&accounts, &id)?.map_or(0, |account| account.cents);
        tx.upsert(&accounts, Account { id, cents: before + cents })?;
        Ok::<_, ReplicationError>(())
    });
    Ok(added?.1)
}

/// Returns an account's balance at a node.
fn balance<P: Protocol>(node: &Node<P>, id: u32) -> Option<i64> {
    let view = node.snapshot().expect("the node is there");
    let accounts = view.table::<Account>().expect("the table is there");
    let row = view.snapshot().get(&accounts, &id).expect("it can be read");
    row.map(|account| account.cents)
}

#[test]
fn standby_shows_what_the_primary_has_committed() {
    fn shows<P: Protocol>() {
        let log = SimulatedLog::new(1);
        let (one, other) = (node::<P>(&log), node::<P>(&log));
        let primary = one.promote(LONG).expect("it becomes the primary");
        assert_eq!((one.role(), other.role()), (NodeRole::Primary, NodeRole::Standby));
        assert!(matches!(other.primary(), Err(ReplicationError::NotPrimary)));
        for id in 0..20 {
            add(&primary, id, 100).expect("it commits");
        }
        let accounts = primary.database().table::<Account>().expect("the table is there");
        let savings = primary.database().table_named::<Account>("savings").expect("it is there");
        let (_, token) = primary
            .transact(|tx| {
                tx.update(&accounts, &1, |account| account.cents -= 30)?;
                tx.add(&accounts, &2, weft::column_of!(Account.cents), 5)?;
                tx.delete(&accounts, &3)?;
                tx.insert(&savings, Account { id: 1, cents: 30 })?;
                Ok::<_, ReplicationError>(())
            })
            .expect("it commits");
        other.wait_for(token, LONG).expect("the standby follows");
        let balances: Vec<_> = (0..5).map(|id| balance(&other, id)).collect();
        assert_eq!(balances, [Some(100), Some(70), Some(105), None, Some(100)], "{}", P::NAME);
        let view = other.snapshot().expect("it is there");
        assert!(view.token() >= token);
        let savings = view.table_named::<Account>("savings").expect("it is there");
        let row = view.snapshot().get(&savings, &1).expect("it can be read");
        assert_eq!(row.map(|account| account.cents), Some(30));
    }
    // One protocol of the engine, and those whose log has operations, pieces, and timestamps as versions.
    shows::<Dbx>();
    shows::<weft_protocols::Doppel>();
    shows::<weft_protocols::DbxTc>();
    shows::<weft_protocols::TimestampOrdering>();
}

#[test]
fn old_primary_steps_down_and_follows() {
    let log = SimulatedLog::new(2);
    let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
    let old = one.promote(LONG).expect("it becomes the primary");
    add(&old, 1, 100).expect("it commits");
    let new = other.promote(LONG).expect("it becomes the primary");
    // Both halves of a transfer are there, and the new primary goes on from them.
    let token = add(&new, 1, 11).expect("it commits");
    wait_until("stepping down", || one.role() == NodeRole::Standby);
    let refused = add(&old, 1, 1000).expect_err("the old primary commits nothing");
    assert!(matches!(refused, ReplicationError::NotPrimary), "{refused:?}");
    one.wait_for(token, LONG).expect("the old primary follows");
    assert_eq!((balance(&one, 1), balance(&other, 1)), (Some(111), Some(111)));
    // And back again, without a restart.
    let again = one.promote(LONG).expect("it becomes the primary");
    let token = add(&again, 1, 1).expect("it commits");
    other.wait_for(token, LONG).expect("it follows");
    assert_eq!(balance(&other, 1), Some(112));
}

#[test]
fn nodes_that_run_take_over_after_the_log_was_truncated() {
    // Everything is removed, with the heartbeats behind the last commit, or all but the newest record.
    for kept in [0, 1] {
        let log = SimulatedLog::new(6);
        let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
        let primary = one.promote(LONG).unwrap();
        for _ in 0..4 {
            add(&primary, 1, 1).unwrap();
        }
        other.wait_for(add(&primary, 1, 1).unwrap(), LONG).unwrap();
        wait_until("the standby has read everything", || other.records_behind().unwrap() == 0);
        let connection = log.connect();
        let (_, end) = connection.range().unwrap();
        connection.truncate_before(end - kept).unwrap();
        let primary = other.promote(LONG).unwrap();
        add(&primary, 1, 1).unwrap();
        assert_eq!(balance(&other, 1), Some(6));
        // The old primary would have to read everything again.
        wait_until("the old primary has stopped", || one.role() == NodeRole::Stopped);
        assert!(matches!(one.fault(), Some(Fault::Gone { .. })), "{:?}", one.fault());
    }
}

#[test]
fn commits_that_the_log_never_accepted_are_gone() {
    let log = SimulatedLog::new(3);
    let connection = log.connect();
    let one = builder::<Dbx>().start(Arc::clone(&connection) as _).expect("the node starts");
    let other = node::<Dbx>(&log);
    let old = one.promote(LONG).expect("it becomes the primary");
    add(&old, 1, 100).expect("it commits");
    connection.cut_off(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&old, 1, 1000));
        let new = other.promote(LONG).expect("it becomes the primary");
        let token = add(&new, 1, 1).expect("it commits");
        connection.cut_off(false);
        let outcome = waiting.join().expect("no panic");
        let outcome = outcome.expect_err("the old primary acknowledges nothing");
        assert!(
            matches!(outcome, ReplicationError::OutcomeUnknown | ReplicationError::NotPrimary),
            "{outcome:?}"
        );
        one.wait_for(token, LONG).expect("the old primary follows");
    });
    assert_eq!((balance(&one, 1), balance(&other, 1)), (Some(101), Some(101)));
}

#[test]
fn standby_cannot_confirm_its_reads() {
    let log = SimulatedLog::new(15);
    let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
    for _ in 0..2 {
        for node in [&one, &other] {
            if node.role() == NodeRole::Standby {
                let refused = node.current().0.confirm();
                assert!(matches!(refused, Err(ReplicationError::NotPrimary)), "{refused:?}");
            }
        }
        let primary = one.promote(LONG).expect("it becomes the primary");
        add(&primary, 1, 1).expect("it commits");
    }
    one.current().0.confirm().expect("it is the primary");
    // The database of the standby becomes that of the primary.
    let standby = other.current().0;
    other.promote(LONG).expect("it becomes the primary");
    standby.confirm().expect("it is the primary");
}

/// Fault: a new primary had applied more epochs than it had written. The token of a transaction that only read named one
/// of those, which no standby reached.
#[test]
fn standbys_reach_the_token_of_a_read() {
    let log = SimulatedLog::new(16);
    let nodes = [(); 3].map(|()| node::<Dbx>(&log));
    let old = nodes[0].promote(LONG).expect("it becomes the primary");
    let mut written = ReplicationToken::default();
    for _ in 0..30 {
        written = add(&old, 1, 1).expect("it commits");
    }
    nodes[1].wait_for(written, LONG).expect("it follows");
    let new = nodes[1].promote(LONG).expect("it becomes the primary");
    let accounts = new.database().table::<Account>().expect("the table is there");
    for round in 0..3 {
        let (row, read) = new
            .transact(|tx| Ok::<_, ReplicationError>(tx.get(&accounts, &1)?.cloned()))
            .expect("it is the primary");
        assert_eq!(row.map(|account| account.cents), Some(30 + round));
        assert!(read >= written && read.generation == 2, "{read:?} after {written:?}");
        for node in &nodes {
            node.wait_for(read, Duration::from_secs(20)).expect("it follows");
            assert_eq!(balance(node, 1), Some(30 + round));
        }
        written = add(&new, 1, 1).expect("it commits");
    }
}

#[test]
fn reads_of_a_primary_that_is_cut_off_are_refused() {
    let log = SimulatedLog::new(4);
    let connection = log.connect();
    let options = Options { deadline: Duration::from_millis(100), ..by_call() };
    let builder = builder::<Dbx>().options(options);
    let one = builder.start(Arc::clone(&connection) as _).expect("the node starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 100).expect("it commits");
    primary.confirm().expect("it is the primary");
    connection.cut_off(true);
    wait_until("the end of the lease", || primary.confirm().is_err());
    let accounts = primary.database().table::<Account>().expect("the table is there");
    let read = primary.transact(|tx| {
        Ok::<_, ReplicationError>(tx.get(&accounts, &1)?.map(|account| account.cents))
    });
    assert!(matches!(read, Err(ReplicationError::NotPrimary)), "{read:?}");
    // The node has begun again, and follows when it is connected.
    connection.cut_off(false);
    wait_until("following", || one.role() == NodeRole::Standby && balance(&one, 1) == Some(100));
}

#[test]
fn snapshots_of_a_primary_show_only_what_is_replicated() {
    let log = SimulatedLog::new(12);
    let connection = log.connect();
    let options = Options { deadline: Duration::from_millis(200), ..by_call() };
    let builder = builder::<Dbx>().options(options);
    let one = builder.start(Arc::clone(&connection) as _).expect("the node starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 100).expect("it commits");
    assert_eq!(balance(&one, 1), Some(100));
    connection.cut_off(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| add(&primary, 1, 1000));
        while !waiting.is_finished() {
            let Ok(view) = one.snapshot() else { continue };
            let accounts = view.table::<Account>().expect("the table is there");
            let row = view.snapshot().get(&accounts, &1).expect("it can be read");
            assert!(row.is_none_or(|account| account.cents == 100), "{row:?}");
        }
        waiting.join().expect("no panic").expect_err("the log has not accepted it");
    });
}

/// A primary that gives up begins again with an empty database. It still knows what it has acknowledged.
#[test]
fn log_that_has_lost_what_a_node_had_acknowledged_is_not_followed() {
    // The log is shorter than before, and longer.
    for more in [0, 20] {
        let log = SimulatedLog::new(13);
        let connection = log.connect();
        let options = Options { deadline: Duration::from_millis(100), ..by_call() };
        let builder = builder::<Dbx>().options(options);
        let one = builder.start(Arc::clone(&connection) as _).expect("the node starts");
        let primary = one.promote(LONG).expect("it becomes the primary");
        add(&primary, 1, 1).expect("it commits");
        add(&primary, 1, 10).expect("it commits");
        connection.cut_off(true);
        wait_until("giving up", || one.role() == NodeRole::Standby);
        // The second commit goes, and heartbeats.
        while log.connect().read(4, Duration::ZERO).is_ok_and(|records| !records.is_empty()) {
            log.lose_tail(1);
        }
        log.lose_tail(1);
        let other = node::<Dbx>(&log);
        let new = other.promote(LONG).expect("it knows nothing of the lost commit");
        for _ in 0..more {
            add(&new, 2, 1).expect("it commits");
        }
        connection.cut_off(false);
        if more == 0 {
            other.shut_down();
            let refused = one.promote(LONG).map(|_| ()).expect_err("it stops");
            assert!(matches!(refused, ReplicationError::Stopped(_)), "{refused:?}");
        }
        wait_until("stopping", || one.role() == NodeRole::Stopped);
        assert!(matches!(one.fault(), Some(Fault::LostTail { .. } | Fault::Hole { .. })));
    }
}

/// A standby of a busy primary never reads the log and finds nothing new.
#[test]
fn node_that_starts_beside_a_busy_primary_can_be_promoted() {
    let log = SimulatedLog::new(14);
    // There are ten heartbeats in the time that a read waits for a record.
    let options = Options { poll: Duration::from_millis(100), ..by_call() };
    let start = || builder::<Dbx>().options(options.clone()).start(log.connect());
    let one = start().expect("the node starts");
    let primary = one.promote(LONG).expect("it becomes the primary");
    let token = add(&primary, 1, 1).expect("it commits");
    let other = start().expect("the node starts");
    other.wait_for(token, LONG).expect("it follows");
    let new = other.promote(Duration::from_secs(5)).expect("it becomes the primary");
    add(&new, 1, 1).expect("it commits");
    assert_eq!(balance(&other, 1), Some(2));
}

#[test]
fn standby_takes_over_when_the_primary_is_silent() {
    let log = SimulatedLog::new(5);
    let options = Options { silence: Some(Duration::from_millis(200)), ..by_call() };
    let start = || builder::<Dbx>().options(options.clone()).start(log.connect());
    let nodes = [start().expect("it starts"), start().expect("it starts")];
    // No node is told to be the primary.
    let primary = || nodes.iter().find_map(|node| node.primary().ok());
    wait_until("a promotion", || primary().is_some_and(|primary| add(&primary, 1, 100).is_ok()));
    let [one, other] = nodes;
    let (gone, left) = if one.role() == NodeRole::Primary { (one, other) } else { (other, one) };
    gone.shut_down();
    wait_until("taking over", || left.primary().is_ok_and(|primary| add(&primary, 2, 1).is_ok()));
    assert!(balance(&left, 1).is_some_and(|balance| balance >= 100));
}

#[test]
fn changes_of_unique_values_within_an_epoch_are_applied() {
    let log = SimulatedLog::new(6);
    let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
    let primary = one.promote(LONG).expect("it becomes the primary");
    let database = primary.database();
    let users = database.table::<User>().expect("the table is there");
    let insert = |mail: &str| {
        let made = primary.transact(|tx| {
            Ok::<_, ReplicationError>(
                tx.insert_generated(&users, |id| User { id, mail: mail.to_owned() })?,
            )
        });
        made.expect("it commits").0
    };
    let (ann, bob) = (insert("ann"), insert("bob"));
    let swap = || {
        let swapped = database.transact_with_token(&TransactionOptions::new(), |tx| {
            let rows = [tx.get(&users, &ann)?, tx.get(&users, &bob)?];
            let [Some(one), Some(other)] = rows else { panic!("the users are there") };
            let (one, other) = (one.clone(), other.clone());
            tx.delete(&users, &bob)?;
            tx.update(&users, &ann, |user| user.mail = other.mail.clone())?;
            tx.insert(&users, User { id: bob, mail: one.mail })?;
            Ok::<_, Error>(())
        });
        swapped.expect("it commits").1
    };
    // In an epoch of its own, and several times in few epochs.
    database.wait_durable(swap()).expect("it is replicated");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..51).for_each(|_| _ = swap()));
        }
    });
    insert("zoe");
    // A row that comes and goes in one epoch.
    let fleeting = database.transact_with_token(&TransactionOptions::new(), |tx| {
        tx.insert_generated(&users, |id| User { id, mail: "eve".into() })
    });
    let fleeting: Result<(u64, _), Error> = fleeting;
    let fleeting = fleeting.expect("it commits").0;
    let deleted = primary.transact(|tx| Ok::<_, ReplicationError>(tx.delete(&users, &fleeting)?));
    let (_, token) = deleted.expect("it commits");
    other.wait_for(token, LONG).expect("it follows");
    let rows = |node: &Node<Dbx>| {
        let view = node.snapshot().expect("it is there");
        let users = view.table::<User>().expect("it is there");
        let rows = view.snapshot().rows(&users).map(|row| row.expect("it can be read").clone());
        rows.collect::<Vec<_>>()
    };
    assert_eq!(rows(&one), rows(&other));
    assert_eq!(rows(&other).len(), 3);
    // Its key is not generated again.
    let new = other.promote(LONG).expect("it becomes the primary");
    let users = new.database().table::<User>().expect("it is there");
    let made = new.transact(|tx| {
        Ok::<_, ReplicationError>(
            tx.insert_generated(&users, |id| User { id, mail: "yan".into() })?,
        )
    });
    assert!(made.expect("it commits").0 > fleeting);
}

#[test]
fn long_epoch_goes_in_parts() {
    let log = SimulatedLog::new(7);
    let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
    let primary = one.promote(LONG).expect("it becomes the primary");
    let users = primary.database().table::<User>().expect("the table is there");
    let mut rng = fastrand_text();
    let mails: Vec<String> = (0..40).map(|_| rng()).collect();
    let (_, token) = primary
        .transact(|tx| {
            for (id, mail) in (0..).zip(&mails) {
                tx.insert(&users, User { id, mail: mail.clone() })?;
            }
            Ok::<_, ReplicationError>(())
        })
        .expect("it commits");
    other.wait_for(token, LONG).expect("it follows");
    let view = other.snapshot().expect("it is there");
    let users = view.table::<User>().expect("it is there");
    let rows = view.snapshot().rows(&users).map(|row| row.expect("it can be read").mail.clone());
    assert_eq!(rows.collect::<Vec<_>>(), mails);
}

/// Returns a source of texts of 100,000 letters that cannot be compressed much.
fn fastrand_text() -> impl FnMut() -> String {
    let mut state = 1_u64;
    move || {
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b' ' + (state >> 58) as u8)
        };
        (0..100_000).map(|_| letter()).collect()
    }
}

#[test]
fn log_that_loses_its_end_gets_it_back_from_the_nodes() {
    let log = SimulatedLog::new(8);
    let (one, other) = (node::<Dbx>(&log), node::<Dbx>(&log));
    let primary = one.promote(LONG).expect("it becomes the primary");
    let mut token = ReplicationToken::default();
    for _ in 0..10 {
        token = add(&primary, 1, 1).expect("it commits");
    }
    other.wait_for(token, LONG).expect("it follows");
    log.lose_tail(1000);
    let token = add(&primary, 1, 1).expect("it commits");
    other.wait_for(token, LONG).expect("it follows");
    assert_eq!((balance(&one, 1), balance(&other, 1)), (Some(11), Some(11)));
    wait_until("a report", || {
        let mut reports = one.reports().into_iter().chain(other.reports());
        reports.any(|report| matches!(report, Report::Repaired { .. }))
    });
    // A node that has read nothing before finds everything.
    let third = node::<Dbx>(&log);
    third.wait_for(token, LONG).expect("it follows");
    assert_eq!(balance(&third, 1), Some(11));
}

#[test]
fn promotions_under_faults_lose_nothing_and_invent_nothing() {
    const FAULTS: Faults = Faults { lost: 10, unanswered: 10, late: 10, doubled: 10 };
    for seed in 0..3 {
        let log = SimulatedLog::new(seed);
        log.set_faults(FAULTS);
        let nodes: Vec<Node<Dbx>> = (0..3).map(|_| node(&log)).collect();
        // What was acknowledged, and what may have committed.
        let (mut acknowledged, mut unknown) = (0, 0);
        let mut token = ReplicationToken::default();
        for round in 0..6 {
            let primary = nodes[round % nodes.len()].promote(LONG).expect("it becomes the primary");
            for _ in 0..15 {
                match add(&primary, 1, 1) {
                    Ok(added) => {
                        assert!(added > token, "seed {seed}");
                        (token, acknowledged) = (added, acknowledged + 1);
                    }
                    Err(ReplicationError::OutcomeUnknown) => unknown += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
        }
        log.set_faults(Faults::default());
        for node in &nodes {
            node.wait_for(token, LONG).expect("it follows");
            let balance = balance(node, 1).expect("the account is there");
            let possible = acknowledged..=acknowledged + unknown;
            assert!(possible.contains(&balance), "seed {seed}: {balance} of {possible:?}");
            assert_eq!(node.fault(), None, "seed {seed}");
        }
    }
}

#[test]
fn replaced_primary_that_does_not_know_it_shows_nothing_old() {
    let log = SimulatedLog::new(11);
    let connection = log.connect();
    let options = Options { lease: Duration::from_millis(300), ..by_call() };
    let one = builder::<Dbx>().options(options.clone()).start(Arc::clone(&connection) as _);
    let one = one.expect("the node starts");
    let other = builder::<Dbx>().options(options).start(log.connect()).expect("the node starts");
    let old = one.promote(LONG).expect("it becomes the primary");
    add(&old, 1, 100).expect("it commits");
    connection.cut_off(true);
    let new = other.promote(LONG).expect("it becomes the primary");
    add(&new, 1, 1).expect("it commits");
    let accounts = old.database().table::<Account>().expect("the table is there");
    let read = || {
        old.transact(|tx| {
            Ok::<_, ReplicationError>(tx.get(&accounts, &1)?.map(|account| account.cents))
        })
    };
    std::thread::scope(|scope| {
        let reading = scope.spawn(read);
        connection.cut_off(false);
        let read = reading.join().expect("no panic");
        assert!(read.is_err(), "{read:?}");
    });
}

/// Clients write and read at nodes that are promoted all the time, also at nodes that have been replaced and do not know it.
/// A read must show everything that was acknowledged before it began.
#[test]
fn reads_across_promotions_are_strict() {
    const CLIENTS: usize = 3;
    for (seed, lease_ms) in [(1, 0), (2, 20), (3, 20)] {
        let log = SimulatedLog::new(seed);
        log.set_faults(Faults { lost: 3, unanswered: 3, late: 3, doubled: 3 });
        let options = Options {
            lease: Duration::from_millis(lease_ms),
            heartbeat: Duration::from_millis(5),
            ..by_call()
        };
        let connections = [log.connect(), log.connect()];
        let nodes = [0, 1].map(|number: usize| {
            let log = Arc::clone(&connections[number]);
            builder::<Dbx>().options(options.clone()).start(log).expect("it starts")
        });
        // All primaries so far, how many additions were acknowledged, and how many were begun.
        let primaries = Mutex::new(vec![Arc::new(nodes[0].promote(LONG).expect("it is promoted"))]);
        let (acknowledged, begun) = (Mutex::new(0_i64), Mutex::new(0_i64));
        let value = |mutex: &Mutex<i64>| *mutex.lock().expect("no panic");
        let client = |number: usize| {
            let mut reads = 0;
            for turn in 0.. {
                if reads == 200 {
                    break;
                }
                let adds = (turn + number).is_multiple_of(3);
                // The newest one. Half of the reads go to the one before. (An addition there would wait for the log, and all
                // reads with it.)
                let primary = {
                    let primaries = primaries.lock().expect("no panic");
                    let back = usize::from(!adds && turn % 2 == 0).min(primaries.len() - 1);
                    Arc::clone(&primaries[primaries.len() - 1 - back])
                };
                if adds {
                    *begun.lock().expect("no panic") += 1;
                    if add(&primary, 1, 1).is_ok() {
                        *acknowledged.lock().expect("no panic") += 1;
                    }
                    continue;
                }
                let accounts = primary.database().table::<Account>().expect("it is there");
                let before = value(&acknowledged);
                let read = primary.transact(|tx| {
                    let row = tx.get(&accounts, &1)?;
                    Ok::<_, ReplicationError>(row.map_or(0, |account| account.cents))
                });
                if let Ok((cents, _)) = read {
                    reads += 1;
                    let possible = before..=value(&begun);
                    assert!(possible.contains(&cents), "seed {seed}: {cents} of {possible:?}");
                }
            }
        };
        let client = &client;
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
            for round in 1.. {
                std::thread::sleep(Duration::from_millis(3));
                if clients.iter().all(|client| client.is_finished()) {
                    break;
                }
                // The primary before does not notice for a while.
                let before = &connections[(round + 1) % 2];
                before.cut_off(true);
                let promoted = nodes[round % 2].promote(LONG).expect("it becomes the primary");
                primaries.lock().expect("no panic").push(Arc::new(promoted));
                std::thread::sleep(Duration::from_millis(3));
                before.cut_off(false);
            }
        });
        assert!(value(&acknowledged) > 0);
    }
}

#[test]
fn what_cannot_be_replicated_is_refused() {
    let log = SimulatedLog::new(9);
    let refused = |builder: NodeBuilder<Dbx>| match builder.start(log.connect()) {
        Err(ReplicationError::Unfit(what)) => what,
        other => panic!("{:?}", other.map(|node| node.role())),
    };
    let unkept = || Database::builder().once(weft::OnceOptions::new());
    let what = refused(NodeBuilder::new(unkept));
    assert!(what.contains("NodeBuilder::once"), "{what}");
    let undeclared = || Database::builder().table::<Account>();
    let what = refused(NodeBuilder::new(undeclared));
    assert!(what.contains("add it with NodeBuilder::table"), "{what}");
    let short = Options { silence: Some(Duration::from_millis(100)), ..by_call() };
    assert!(refused(builder().options(short)).contains("silence"));
    let slow = Options { heartbeat: LONG, ..by_call() };
    assert!(refused(builder().options(slow)).contains("heartbeat"));

    let one = node::<Dbx>(&log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    let accounts = primary.database().table::<Account>().expect("the table is there");
    let rows = [Ok::<_, Failure>(Account { id: 1, cents: 1 })];
    let loaded = primary.database().load(&accounts, [rows], |_| {});
    let message = loaded.expect_err("it is refused").to_string();
    assert!(message.contains("cannot be loaded in bulk"), "{message}");
    // The database goes on.
    add(&primary, 1, 5).expect("it commits");
    assert_eq!(balance(&one, 1), Some(5));
}

#[test]
fn node_can_be_shut_down_and_started_again() {
    let log = SimulatedLog::new(10);
    let one = node::<Dbx>(&log);
    let primary = one.promote(LONG).expect("it becomes the primary");
    for _ in 0..10 {
        add(&primary, 1, 1).expect("it commits");
    }
    assert_eq!(one.records_behind().expect("the log is there"), 0);
    one.shut_down();
    assert!(matches!(add(&primary, 1, 1), Err(ReplicationError::NotPrimary)));
    let again = node::<Dbx>(&log);
    let primary = again.promote(LONG).expect("it becomes the primary");
    add(&primary, 1, 1).expect("it commits");
    assert_eq!(balance(&again, 1), Some(11));
}

/// A node's handles can be used from any thread.
#[test]
fn handles_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Node<Dbx>>();
    is_shared::<Primary<Dbx>>();
    is_shared::<SimulatedConnection>();
}
