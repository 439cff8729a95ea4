//! Databases that are closed, have too many threads, or are used by a second thread.

use super::*;

#[test]
fn closed_database_refuses_transactions() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database.close().unwrap();
        it.database.close().unwrap();
        let other_handle = it.database.clone();
        assert_eq!(other_handle.begin().unwrap_err(), Failure::Closed);
        assert_eq!(failure(it.database.transact(|tx| it.add_one(tx))), Failure::Closed);
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        assert_eq!(elsewhere, Err(Failure::Closed), "on a new thread");
    });
}

#[test]
fn a_transaction_cannot_close_its_own_database() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|_| -> Result<(), Error> {
                assert_eq!(it.database.close(), Err(Failure::NestedTransaction));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

#[test]
fn close_waits_for_running_transactions() {
    for_each_executor!(|P| {
        // Under such a protocol the probes below would wait for ever.
        if begin_waits::<P>() {
            continue;
        }
        let it = Fixture::<P>::new();
        let committed = Word::new(0);
        let (begun, has_begun) = channel();
        scope(|scope| {
            scope.spawn(|| {
                let tx = it.database.begin().unwrap();
                begun.send(()).unwrap();
                // Waits until the close has begun, and a little longer.
                let probe = || scope.spawn(|| it.database.begin().map(drop)).join().unwrap();
                while probe() != Err(Failure::Closed) {
                    yield_now();
                }
                (0..100).for_each(|_| yield_now());
                it.add_one(&tx).unwrap();
                tx.commit().unwrap();
                committed.store(1, Ordering::SeqCst);
            });
            has_begun.recv().unwrap();
            it.database.close().unwrap();
            // The commit happens before the transaction's end, for which `close` waits. The store after it may be
            // later.
            assert_eq!(it.database.metrics().committed, 2);
        });
        assert_eq!(committed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn single_threaded_protocols_refuse_a_second_thread() {
    for_each_executor!(|P| {
        if begin_waits::<P>() {
            continue;
        }
        let it = Fixture::<P>::new();
        let tx = it.database.begin().unwrap();
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        let expected = match P::WORKERS_MAX {
            1 => Err(Failure::SingleThreaded { protocol: P::NAME }),
            _ => Ok(()),
        };
        assert_eq!(elsewhere, expected);
        drop(tx);
        let elsewhere = on_a_thread(|| it.database.begin().map(drop));
        assert_eq!(elsewhere, Ok(()));
    });
}

#[test]
fn maximum_of_zero_workers_means_one() {
    for_each_executor!(|P| {
        let database =
            Database::builder().protocol::<P>().table::<Hit>().workers_max(0).open().unwrap();
        database.begin().unwrap().commit().unwrap();
    });
}

#[test]
fn database_without_tables_works() {
    for_each_executor!(|P| {
        let database = Database::builder().protocol::<P>().open().unwrap();
        database.transact(|_| Ok::<_, Error>(())).unwrap();
        assert!(database.table::<Hit>().is_err());
    });
}
