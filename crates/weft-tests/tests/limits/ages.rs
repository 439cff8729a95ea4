//! Ages and labels of transactions and snapshots, and the limits on them.

use std::time::Duration;

use weft::protocol::Protocol;
use weft::{
    Database, Error, Failure, SnapshotOptions, SubmitOptions, Table, Transaction,
    TransactionOptions,
};

use weft_tests::for_each_executor;

use super::{Text, eventually, failure};

const LIMIT: Duration = Duration::from_millis(60);

fn open<P: Protocol>() -> (Database<P>, Table<Text>) {
    let builder = Database::builder().protocol::<P>().table::<Text>();
    let database = builder.transaction_age_limit(LIMIT).snapshot_age_limit(LIMIT).open().unwrap();
    let texts = database.table().unwrap();
    database
        .transact(|tx| (0..10).try_for_each(|id| tx.insert(&texts, Text::new(id, 10))))
        .unwrap();
    (database, texts)
}

fn expect_transaction_too_old(refused: &Failure, expected: Option<&'static str>) {
    let &Failure::TransactionTooOld { age, limit, label } = refused else { panic!("{refused}") };
    assert_eq!((limit, label), (LIMIT, expected));
    assert!(age > limit);
}

#[test]
fn an_old_transaction_fails_at_its_next_operation() {
    for_each_executor!(|P| {
        let (database, texts) = open::<P>();
        let options = TransactionOptions::new().label("monthly report");
        let body = |tx: &Transaction<'_, P>| {
            tx.update(&texts, &1, |row| row.text.push('y'))?;
            Err::<(), _>(eventually("the transaction is too old", || tx.get(&texts, &2).err()))
        };
        let refused = failure(database.transact_with(&options, body));
        expect_transaction_too_old(&refused, Some("monthly report"));
        let message = refused.to_string();
        assert!(message.starts_with("the transaction `monthly report` has run for "), "{message}");
        assert!(
            message
                .ends_with("make it shorter, or raise .transaction_age_limit(time) in the builder"),
            "{message}"
        );
        // It was rolled back, and the next one has its own age.
        let text =
            database.transact(|tx| Ok::<_, Error>(tx.get(&texts, &1)?.unwrap().text.clone()));
        assert_eq!(text.unwrap(), "x".repeat(10));
    });
}

#[test]
fn an_old_transaction_does_not_commit_even_if_its_closure_goes_on() {
    for_each_executor!(|P| {
        let (database, texts) = open::<P>();
        let body = |tx: &Transaction<'_, P>| {
            tx.update(&texts, &1, |row| row.text.push('y'))?;
            eventually("the transaction is too old", || tx.get(&texts, &2).err());
            Ok::<_, Error>(())
        };
        expect_transaction_too_old(&failure(database.transact(body)), None);
        // The same with a transaction of `begin`.
        let transaction = database.begin().unwrap();
        transaction.update(&texts, &1, |row| row.text.push('y')).unwrap();
        eventually("the transaction is too old", || transaction.get(&texts, &2).err());
        expect_transaction_too_old(&failure(transaction.commit()), None);
    });
}

#[test]
fn metrics_show_the_oldest_transaction_and_snapshot() {
    let database = Database::builder().table::<Text>().open().unwrap();
    let texts = database.table::<Text>().unwrap();
    assert_eq!(database.metrics().oldest_transaction, None);
    let oldest = || database.metrics().oldest_transaction;
    let options = TransactionOptions::new().label("import");
    let body = |tx: &Transaction<'_>| {
        tx.insert(&texts, Text::new(1, 10))?;
        let first = oldest().expect("this one");
        assert_eq!(first.label, Some("import"));
        eventually("it grows older", || (oldest()?.age > first.age).then_some(()));
        // A younger one is not shown.
        let other = |_: &Transaction<'_>| Ok::<_, Error>(oldest().unwrap().label);
        let options = TransactionOptions::new().label("other");
        std::thread::scope(|scope| {
            let label = scope.spawn(|| database.transact_with(&options, other)).join().unwrap();
            assert_eq!(label.unwrap(), Some("import"));
        });
        Ok::<_, Error>(())
    };
    database.transact_with(&options, body).unwrap();
    assert_eq!(oldest(), None);
    // Without a label.
    let label = database.transact(|_| Ok::<_, Error>(oldest().unwrap().label)).unwrap();
    assert_eq!(label, None);
    // The label of a submission.
    let pool = database.pool(&weft::PoolOptions::new().threads(1)).unwrap();
    let submitted = SubmitOptions::new().label("from the pool");
    let (handle, texts) = (database.clone(), texts.clone());
    let shown = pool.submit_with(&submitted, move |tx| {
        tx.get(&texts, &1)?;
        Ok::<_, Error>(handle.metrics().oldest_transaction.unwrap().label)
    });
    assert_eq!(shown.wait().unwrap(), Some("from the pool"));
    drop(pool);

    let labelled = SnapshotOptions::new().label("nightly export");
    let first = database.open_snapshot_with(&labelled).unwrap();
    let second = database.open_snapshot().unwrap();
    assert_eq!(database.metrics().snapshots.oldest_label, Some("nightly export"));
    drop(first);
    assert_eq!(database.metrics().snapshots.oldest_label, None);
    drop(second);
    assert_eq!(database.metrics().snapshots.oldest_age, None);
}

#[test]
fn an_old_snapshot_that_was_not_read_holds_nothing() {
    for_each_executor!(|P| {
        let (database, texts) = open::<P>();
        let labelled = SnapshotOptions::new().label("forgotten");
        let snapshot = database.open_snapshot_with(&labelled).unwrap();
        let change = || {
            let change = |tx: &Transaction<'_, P>| {
                (0..10).try_for_each(|id| tx.update(&texts, &id, |row| row.group += 1).map(drop))
            };
            database.transact(change).unwrap();
        };
        eventually("what it held is freed", || {
            change();
            let metrics = database.metrics().snapshots;
            (metrics.oldest_age? > LIMIT && metrics.versions_held == 0).then_some(())
        });
        let refused = snapshot.get(&texts, &1).unwrap_err();
        let Failure::SnapshotTooOld { age, limit: LIMIT, label: Some("forgotten") } = refused
        else {
            panic!("{refused}")
        };
        assert!(age > LIMIT);
    });
}

#[test]
fn an_old_snapshot_keeps_the_rows_that_were_read() {
    for_each_executor!(|P| {
        let (database, texts) = open::<P>();
        let snapshot = database.open_snapshot().unwrap();
        let row = snapshot.get(&texts, &1).unwrap().unwrap();
        let mut scan = snapshot.range(&texts, ..);
        let first = scan.next().unwrap().unwrap();
        let refused = eventually("the snapshot is too old", || {
            let change = |tx: &Transaction<'_, P>| {
                (0..10).try_for_each(|id| tx.update(&texts, &id, |row| row.text.clear()).map(drop))
            };
            database.transact(change).unwrap();
            snapshot.get(&texts, &2).err()
        });
        let message = refused.to_string();
        assert!(message.starts_with("the snapshot has been open for "), "{message}");
        assert!(message.contains("drop it and open another one"), "{message}");
        assert!(matches!(snapshot.rows(&texts).next(), Some(Err(Failure::SnapshotTooOld { .. }))));
        let many = snapshot.get_many(&texts, [1]).unwrap().next();
        assert!(matches!(many, Some(Err(Failure::SnapshotTooOld { .. }))));
        // Rows that were handed out stay as they were.
        assert_eq!((row, first), (&Text::new(1, 10), &Text::new(0, 10)));
        drop(snapshot);
        eventually("what it held is freed", || {
            let _ = database.transact(|tx| tx.update(&texts, &1, |row| row.group += 1));
            (database.metrics().snapshots.versions_held == 0).then_some(())
        });
    });
}

/// Fault: rows that had been read before a snapshot became too old were returned once more, in the places of other rows.
#[test]
fn no_row_follows_after_the_snapshot_has_become_too_old() {
    for_each_executor!(|P| {
        let (database, texts) = open::<P>();
        database
            .transact(|tx| (10..40).try_for_each(|id| tx.insert(&texts, Text::new(id, 10))))
            .unwrap();
        let snapshot = database.open_snapshot().unwrap();
        let mut longer = snapshot.get_many(&texts, 0..40).unwrap();
        let mut batch = snapshot.get_many(&texts, 0..16).unwrap();
        let read = longer.by_ref().take(16).all(|row| row.is_ok_and(|row| row.is_some()))
            && batch.by_ref().take(16).all(|row| row.is_ok_and(|row| row.is_some()));
        if !read {
            // This machine was too slow.
            continue;
        }
        eventually("the snapshot is too old", || {
            let _ = database.transact(|tx| tx.update(&texts, &1, |row| row.group += 1));
            snapshot.get(&texts, &2).err()
        });
        assert!(matches!(longer.next(), Some(Err(Failure::SnapshotTooOld { .. }))));
        assert!(longer.next().is_none() && batch.next().is_none());
    });
}

/// Readers race with the moment at which the snapshot becomes too old: each gets its row, or a failure.
#[test]
fn readers_of_a_snapshot_race_with_its_limit() {
    let builder = Database::builder().table::<Text>().snapshot_age_limit(Duration::from_millis(1));
    let database = builder.open().unwrap();
    let texts = database.table::<Text>().unwrap();
    database.transact(|tx| tx.insert(&texts, Text::new(1, 100))).unwrap();
    for round in 0..30 {
        let snapshot = database.open_snapshot().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut rows = Vec::new();
                    loop {
                        match snapshot.get(&texts, &1) {
                            Ok(row) => rows.push(row.unwrap()),
                            Err(Failure::SnapshotTooOld { .. }) => break,
                            Err(other) => panic!("{other}"),
                        }
                        let _ = database.transact(|tx| tx.update(&texts, &1, |row| row.group += 1));
                    }
                    assert!(rows.iter().all(|row| row.text.len() == 100), "round {round}");
                });
            }
        });
    }
}
