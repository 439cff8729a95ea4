//! What a transaction's closure may do wrong: errors, panics, nesting, and going on for ever.

use super::*;

#[test]
fn an_error_of_the_users_own_passes_through_and_rolls_back() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let result = it.database.transact(|tx| -> Result<(), Refused> {
            it.add_one(tx)?;
            tx.insert(&it.people, person("Eve", 3))?;
            tx.delete(&it.people, &"Ada".into())?;
            Err(Refused::Because("changed my mind"))
        });
        assert!(matches!(result, Err(Refused::Because("changed my mind"))));
        assert_eq!(it.database.metrics().rolled_back, 1);
        it.check_unchanged();
    });
}

#[test]
fn an_error_of_the_engine_reaches_the_users_own_type() {
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
fn a_panic_in_the_closure_passes_through_and_rolls_back() {
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
fn a_panic_in_an_update_closure_passes_through_and_rolls_back() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            it.database.transact(|tx| {
                it.add_one(tx)?;
                tx.update(&it.people, &"Ada".into(), |row| {
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
fn a_panic_caught_inside_the_closure_leaves_the_transaction_usable() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        it.database
            .transact(|tx| -> Result<(), Error> {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    tx.update(&it.people, &"Ada".into(), |row| {
                        row.age = 99;
                        panic_quietly("never mind")
                    })
                }));
                assert!(caught.is_err());
                assert_eq!(tx.get(&it.people, &"Ada".into())?, Some(&person("Ada", 1)));
                Ok(())
            })
            .unwrap();
        it.check_unchanged();
    });
}

/// What a closure concludes from rows that were never there together is no conclusion.
#[test]
fn errors_and_panics_concluded_from_stale_rows_are_retried() {
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
                            panic_quietly("concluded from a stale row");
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
fn a_nested_transaction_is_refused_and_the_outer_one_goes_on() {
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
            assert_eq!(row.count, 10, "a row once read stays as it was");
            let Err(Error::Conflict(Conflict { reason, table, key, .. })) = tx.commit() else {
                panic!("a stale read was committed");
            };
            assert!(ConflictReason::ALL.contains(&reason));
            assert_eq!((table, key.as_deref()), ("hits", Some("1")));
            assert_eq!(it.count(), 11);
            let found = it
                .database
                .transact(|tx| Ok::<_, Error>(tx.get(&it.people, &"Eve".into())?.is_some()));
            assert!(!found.unwrap());
        }
    });
}

#[test]
fn options_bound_the_retries_and_the_time() {
    for_each_executor!(|P| {
        if P::WORKERS_MAX > 1 && !P::KEEPS_LOCKS {
            let it = Fixture::<P>::new();
            // Every attempt is spoilt by a transaction of another thread.
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
            assert_eq!(attempts, 4, "one, and three more");
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
fn a_deadline_stops_a_closure_that_would_never_end() {
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
fn a_deadline_beyond_the_end_of_time_is_none() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let options = TransactionOptions::new().deadline(Duration::MAX).retries_max(u32::MAX);
        it.database.transact_with(&options, |tx| it.add_one(tx)).unwrap();
        assert_eq!(it.count(), 11);
    });
}
