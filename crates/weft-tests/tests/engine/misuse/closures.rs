//! Mistakes in a transaction's closure: errors, panics, nested transactions, and endless loops.

use super::*;

#[test]
fn user_error_is_returned_and_rolls_back() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let result = it.database.transact(|tx| -> Result<(), Refused> {
            it.add_one(tx)?;
            tx.insert(&it.people, person("Eve", 3))?;
            tx.delete(&it.people, "Ada")?;
            Err(Refused::Because("changed my mind"))
        });
        assert!(matches!(result, Err(Refused::Because("changed my mind"))));
        assert_eq!(it.database.metrics().rolled_back, 1);
        it.check_unchanged();
    });
}

#[test]
fn engine_error_converts_to_the_users_type() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let result = it.database.transact(|tx| -> Result<(), Refused> {
            tx.insert(&it.people, person("Ada", 3))?;
            Ok(())
        });
        let Err(Refused::Engine(Error::Failure(Failure::DuplicateKey { .. }))) = result else {
            panic!("{result:?}");
        };
        it.check_unchanged();
    });
}

#[test]
fn panic_in_the_closure_propagates_and_rolls_back() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            it.database.transact(|tx| -> Result<(), Error> {
                it.add_one(tx)?;
                tx.upsert(&it.people, Person { age: 31, ..person("Ada", 9) })?;
                panic_quietly("a mistake of the application")
            })
        }));
        let payload = caught.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"a mistake of the application"));
        it.check_unchanged();
    });
}

#[test]
fn panic_in_an_update_closure_propagates_and_rolls_back() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            it.database.transact(|tx| {
                it.add_one(tx)?;
                tx.update(&it.people, "Ada", |row| {
                    row.city = "Oslo".into();
                    panic_quietly("half-way through")
                })
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"half-way through"));
        it.check_unchanged();
    });
}

#[test]
fn panic_caught_in_the_closure_leaves_the_transaction_usable() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    tx.update(&it.people, "Ada", |row| {
                        row.age = 99;
                        panic_quietly("never mind")
                    })
                }));
                assert!(caught.is_err());
                assert_eq!(tx.get(&it.people, "Ada")?, Some(&person("Ada", 1)));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

/// An error or panic that results from an inconsistent set of rows is discarded.
#[test]
fn errors_and_panics_caused_by_stale_rows_are_retried() {
    for_each_executor!(|P| {
        if P::WORKERS_MAX > 1 && !P::KEEPS_LOCKS {
            for panics in [false, true] {
                let it = Fixture::<P>::new();
                let mut attempts = 0;
                let result = it.database.transact(|tx| -> Result<(), Refused> {
                    attempts += 1;
                    let hits = tx.update(&it.hits, &1, |hit| {
                        // The row that the closure holds goes stale while it runs.
                        if attempts == 1 {
                            elsewhere(&it);
                        }
                        if hit.count == 10 && panics {
                            panic_quietly("decided by a stale row");
                        }
                        hit.count
                    })?;
                    if hits == Some(10) { Err(Refused::Because("stale")) } else { Ok(()) }
                });
                assert!(result.is_ok(), "{result:?}");
                assert_eq!(attempts, 2);
            }
        }
    });

    fn elsewhere<P: Protocol>(it: &Fixture<P>) {
        on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
    }
}

#[test]
fn nested_transaction_is_refused() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                it.add_one(tx)?;
                let nested = it.database.transact(|tx| it.add_one(tx));
                assert_eq!(failure(nested), Failure::NestedTransaction);
                assert_eq!(it.database.begin().unwrap_err(), Failure::NestedTransaction);
                it.add_one(tx)
            })
            .unwrap();
        assert_eq!(it.count(), 12);
    });
}

#[test]
fn a_swallowed_conflict_fails_the_commit() {
    for_each_executor!(|P| {
        if P::WORKERS_MAX > 1 && !P::KEEPS_LOCKS {
            let it = Fixture::<P>::new();
            let tx = it.database.begin().unwrap();
            let row = tx.get(&it.hits, &1).unwrap().unwrap();
            on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
            let _ = it.add_one(&tx);
            let _ = tx.insert(&it.people, person("Eve", 3));
            assert_eq!(row.count, 10, "a row that was read has changed");
            let Err(Error::Conflict(Conflict { reason, table, key, .. })) = tx.commit() else {
                panic!("a stale read was committed");
            };
            assert!(ConflictReason::ALL.contains(&reason));
            assert_eq!((table, key.as_deref()), ("hits", Some("1")));
            assert_eq!(it.count(), 11);
            let found =
                it.database.transact(|tx| Ok::<_, Error>(tx.get(&it.people, "Eve")?.is_some()));
            assert!(!found.unwrap());
        }
    });
}

#[test]
fn options_limit_retries_and_time() {
    for_each_executor!(|P| {
        if P::WORKERS_MAX > 1 && !P::KEEPS_LOCKS {
            let it = Fixture::<P>::new();
            // Another thread's transaction makes every attempt fail.
            let spoilt = |tx: &Transaction<'_, P>| -> Result<(), Error> {
                let _ = tx.get(&it.hits, &1)?;
                on_a_thread(|| it.database.transact(|tx| it.add_one(tx)).unwrap());
                it.add_one(tx)
            };
            let mut attempts = 0;
            let options = TransactionOptions::new().retries_max(3);
            let result = it.database.transact_with(&options, |tx| {
                attempts += 1;
                spoilt(tx)
            });
            assert_eq!(attempts, 4, "one attempt and three retries");
            let Failure::RetriesExhausted { attempts: 4, last } = failure(result) else {
                panic!("another failure");
            };
            assert_eq!(last.table, "hits");
            assert_eq!(it.count(), 14);

            let deadline = Duration::from_millis(2);
            let options = TransactionOptions::new().deadline(deadline);
            let result = it.database.transact_with(&options, spoilt);
            let failed = failure(result);
            assert!(
                matches!(failed, Failure::DeadlineExceeded { deadline: at, .. } if at == deadline)
            );
        }
    });
}

#[test]
fn deadline_stops_an_endless_closure() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let options = TransactionOptions::new().deadline(Duration::from_millis(2));
        let result = it.database.transact_with(&options, |tx| -> Result<(), Error> {
            loop {
                it.add_one(tx)?;
            }
        });
        assert!(matches!(failure(result), Failure::DeadlineExceeded { attempts: 1, .. }));
        it.check_unchanged();
    });
}

#[test]
fn unrepresentable_deadline_is_ignored() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let options = TransactionOptions::new().deadline(Duration::MAX).retries_max(u32::MAX);
        it.database.transact_with(&options, |tx| it.add_one(tx)).unwrap();
        assert_eq!(it.count(), 11);
    });
}

#[test]
fn deadline_is_checked_at_the_commit() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let deadline = Duration::from_millis(1);
        let options = TransactionOptions::default().deadline(deadline);
        let result = it.database.transact_with(&options, |tx| -> Result<(), Error> {
            it.add_one(tx)?;
            std::thread::sleep(2 * deadline);
            Ok(())
        });
        assert_eq!(failure(result), Failure::DeadlineExceeded { deadline, attempts: 1 });
        it.check_unchanged();
    });
}

#[test]
fn slow_transaction_starves_by_time() {
    for_each_executor!(|P| {
        // Some protocols run only one transaction at a time.
        if threads::<P>() == 1 {
            continue;
        }
        let it = Fixture::<P>::new();
        let (done, mut attempts) = (Word::new(0), 0);
        scope(|scope| {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) == 0 {
                    let hit = |hit: &mut Hit| hit.count += 1;
                    it.database.transact(|tx| tx.update(&it.hits, &1, hit)).unwrap();
                }
            });
            let options = TransactionOptions::new().starves_after(Duration::from_millis(20));
            let read = it.database.transact_with(&options, |tx| {
                attempts += 1;
                let count = tx.get(&it.hits, &1)?.map(|hit| hit.count);
                std::thread::sleep(Duration::from_millis(10));
                Ok::<_, Error>(count)
            });
            done.store(1, Ordering::Release);
            assert!(read.is_ok());
        });
        // Two or three attempts until it starves. One more ends when the other thread meets the closed turnstile.
        assert!(attempts <= 10, "{attempts} attempts");
    });
}
