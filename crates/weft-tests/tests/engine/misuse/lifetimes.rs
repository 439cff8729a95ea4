//! Several databases, and threads that start and end.

use super::*;

#[test]
fn one_thread_uses_several_databases_interleaved() {
    for_each_executor!(|P| {
        let them: Vec<Fixture<P>> = (0..5).map(|_| Fixture::new()).collect();
        let transactions: Vec<_> = them.iter().map(|it| it.database.begin().unwrap()).collect();
        for (number, (it, tx)) in them.iter().zip(&transactions).enumerate() {
            for _ in 0..=number {
                it.add_one(tx).unwrap();
            }
        }
        for (number, tx) in transactions.into_iter().enumerate() {
            match number % 2 {
                0 => assert!(tx.commit().is_ok()),
                _ => tx.rollback(),
            }
        }
        let counts: Vec<i64> = them.iter().map(Fixture::count).collect();
        assert_eq!(counts, [11, 10, 13, 10, 15]);
        // Transactions of different databases may also be nested.
        them[1]
            .database
            .transact(|outer| {
                them[1].add_one(outer)?;
                them[3].database.transact(|inner| them[3].add_one(inner))
            })
            .unwrap();
        assert_eq!((them[1].count(), them[3].count()), (11, 11));
    });
}

#[test]
fn one_thread_can_use_many_short_lived_databases() {
    for_each_executor!(|P| {
        let stays = Fixture::<P>::new();
        for round in 0..50 {
            let goes = Fixture::<P>::new();
            goes.database.transact(|tx| goes.add_one(tx)).unwrap();
            stays.database.transact(|tx| stays.add_one(tx)).unwrap();
            assert_eq!(goes.count(), 11);
            assert_eq!(stays.count(), 11 + round);
        }
    });
}

#[test]
fn database_can_be_dropped_while_threads_are_registered() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let (registered, is_registered) = channel();
        let (drop_it, dropped) = channel::<()>();
        let handle = it.database.clone();
        let hits = it.hits.clone();
        let thread = std::thread::spawn(move || {
            handle.transact(|tx| tx.update(&hits, &1, |hit| hit.count += 1)).unwrap();
            drop(handle);
            registered.send(()).unwrap();
            dropped.recv().unwrap_err();
            // The thread goes on with another database.
            let next = Fixture::<P>::new();
            next.check_unchanged();
        });
        is_registered.recv().unwrap();
        assert_eq!(it.count(), 11);
        assert_eq!(it.database.metrics().workers, 2);
        drop(it);
        drop(drop_it);
        thread.join().unwrap();
    });
}

#[test]
fn last_handle_can_be_dropped_on_another_thread() {
    for_each_executor!(|P| {
        for _ in 0..20 {
            let it = Fixture::<P>::new();
            let handle = it.database.clone();
            let thread = std::thread::spawn(move || drop(handle));
            drop(it);
            thread.join().unwrap();
        }
    });
}

/// A leaked transaction keeps its worker's slot for ever, and its locks, if the protocol has locks.
#[test]
fn leaked_transaction_blocks_only_its_own_rows() {
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        on_a_thread(|| {
            let tx = it.database.begin().unwrap();
            it.add_one(&tx).unwrap();
            tx.insert(&it.people, person("Eve", 3)).unwrap();
            std::mem::forget(tx);
            assert_eq!(it.database.begin().unwrap_err(), Failure::NestedTransaction);
        });
        if begin_waits::<P>() {
            continue;
        }
        if P::KEEPS_LOCKS {
            // Rows that the transaction has not accessed are unaffected.
            let bob = it.database.transact(|tx| tx.update(&it.people, "Bob", |row| row.age += 1));
            assert!(bob.unwrap().is_some());
        } else if P::WORKERS_MAX > 1 {
            it.check_unchanged();
            // The key that the leaked transaction was about to insert can be inserted.
            it.database.transact(|tx| tx.insert(&it.people, person("Eve", 3))).unwrap();
        } else {
            let begun = it.database.begin();
            assert_eq!(begun.unwrap_err(), Failure::SingleThreaded { protocol: P::NAME });
        }
    });
}

#[test]
fn row_of_a_leaked_transaction_stays_readable() {
    // The row stays readable, because the worker is not released while the transaction exists.
    for_each_executor!(|P| {
        let it = Fixture::<P>::new();
        let row: &Person = on_a_thread(|| {
            let tx = Box::leak(Box::new(it.database.begin().unwrap()));
            tx.get(&it.people, "Ada").unwrap().unwrap()
        });
        if P::WORKERS_MAX > 1 && !begin_waits::<P>() {
            // If the leaked transaction holds a lock on Ada's row, the test updates Bob's.
            let name = if P::KEEPS_LOCKS { "Bob" } else { "Ada" };
            for age in 0..2000 {
                it.database
                    .transact(|tx| tx.update(&it.people, name, |row| row.age = age))
                    .unwrap();
            }
        }
        assert_eq!(row, &person("Ada", 1));
    });
}

/// A row that counts its live copies, to detect rows that are forgotten when their worker ends.
#[derive(Debug, Record)]
#[record(table = "counted", volatile)]
struct Counted {
    #[record(key)]
    id: u64,
    live: &'static Live,
}

#[derive(Debug)]
struct Live(Word);

impl Counted {
    fn new(id: u64, live: &'static Live) -> Self {
        live.0.fetch_add(1, Ordering::SeqCst);
        Counted { id, live }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(self.id, self.live)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.0.fetch_add(u64::MAX, Ordering::SeqCst);
    }
}

#[test]
fn garbage_of_ended_workers_is_dropped() {
    for_each_executor!(|P| {
        let live: &'static Live = Box::leak(Box::new(Live(Word::new(0))));
        let database = Database::builder().protocol::<P>().table::<Counted>().open().unwrap();
        let table = database.table::<Counted>().unwrap();
        let churn = |id: u64| {
            database.transact(|tx| tx.insert(&table, Counted::new(id, live))).unwrap();
            database.transact(|tx| tx.update(&table, &id, |_| ())).unwrap();
            if id.is_multiple_of(2) {
                database.transact(|tx| tx.delete(&table, &id)).unwrap();
            }
        };
        for round in 0..10 {
            on_a_thread(|| (round * 10..round * 10 + 10).for_each(churn));
        }
        let visible =
            database.transact(|tx| Ok::<_, Error>(tx.range(&table, ..).count() as u64)).unwrap();
        assert_eq!(visible, 50);
        assert!(live.0.load(Ordering::SeqCst) >= visible);
        drop((database, table));
        assert_eq!(live.0.load(Ordering::SeqCst), 0, "rows were dropped twice, or never");
    });
}

#[test]
fn rows_of_failed_and_rolled_back_writes_are_dropped() {
    for_each_executor!(|P| {
        let live: &'static Live = Box::leak(Box::new(Live(Word::new(0))));
        let database = Database::builder().protocol::<P>().table::<Counted>().open().unwrap();
        let table = database.table::<Counted>().unwrap();
        database.transact(|tx| tx.insert(&table, Counted::new(1, live))).unwrap();
        let attempt = |end: &dyn Fn()| {
            database.transact(|tx| -> Result<(), Error> {
                assert!(tx.insert(&table, Counted::new(1, live)).is_err());
                assert!(tx.upsert(&table, Counted::new(1, live))?);
                tx.update(&table, &1, |_| ())?;
                assert!(tx.update(&table, &1, |row| row.id = 9).is_err());
                tx.insert(&table, Counted::new(2, live))?;
                tx.update(&table, &2, |_| ())?;
                tx.delete(&table, &2)?;
                tx.insert(&table, Counted::new(2, live))?;
                tx.delete(&table, &1)?;
                tx.insert(&table, Counted::new(1, live))?;
                end();
                Err(Failure::Closed.into())
            })
        };
        attempt(&|| ()).unwrap_err();
        catch_unwind(AssertUnwindSafe(|| attempt(&|| panic_quietly("at the end")))).unwrap_err();
        assert_eq!(live.0.load(Ordering::SeqCst), 1, "only the committed row is alive");
        drop((database, table));
        assert_eq!(live.0.load(Ordering::SeqCst), 0);
    });
}

/// A row whose `Drop` calls the thread's `ON_DROP`.
#[derive(Debug, Record)]
#[record(table = "reentrant")]
struct Reentrant {
    #[record(key)]
    id: u64,
    text: String,
}

type OnDrop = Box<dyn Fn()>;

thread_local! {
    static ON_DROP: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

impl Clone for Reentrant {
    fn clone(&self) -> Self {
        Reentrant { id: self.id, text: self.text.clone() }
    }
}

impl Drop for Reentrant {
    fn drop(&mut self) {
        ON_DROP.with_borrow(|on_drop| {
            if let Some(call) = on_drop {
                call();
            }
        });
    }
}

/// Rows are dropped after their transaction has ended, so a `Drop` may do anything.
#[test]
fn drop_of_a_row_can_run_a_transaction() {
    for_each_executor!(|P| {
        let database = Database::builder().protocol::<P>().table::<Reentrant>().open().unwrap();
        let table = database.table::<Reentrant>().unwrap();
        let row = |id: u64| Reentrant { id, text: format!("number {id}") };
        (0..50).for_each(|id| database.transact(|tx| tx.insert(&table, row(id))).unwrap());
        let ran = Rc::new(Cell::new(0));
        let on_drop = {
            let (database, table, ran) = (database.clone(), table.clone(), Rc::clone(&ran));
            move || {
                let count = |tx: &Transaction<'_, P>| Ok::<_, Error>(tx.range(&table, ..).count());
                assert_eq!(database.transact(count).unwrap(), 50);
                ran.set(ran.get() + 1);
            }
        };
        ON_DROP.set(Some(Box::new(on_drop)));
        for turn in 0..100 {
            for id in 0..50 {
                let change = |row: &mut Reentrant| row.text = format!("{id} in turn {turn}");
                database.transact(|tx| tx.update(&table, &id, change)).unwrap();
            }
        }
        drop(ON_DROP.take());
        assert!(ran.get() > 1000, "{} rows were dropped", ran.get());
        assert_eq!(database.metrics().drops_panicked, 0);
        let last = database.transact(|tx| Ok::<_, Error>(tx.get(&table, &49)?.cloned()));
        assert_eq!(last.unwrap().unwrap().text, "49 in turn 99");
    });
}

/// Fault: a transaction that a row's `Drop` had begun, and kept, used a worker that was given up with the transaction around it.
/// Other transactions got the same worker, and the rows that the kept one had read were freed.
#[test]
fn a_transaction_that_drop_has_begun_and_kept_keeps_its_worker() {
    for_each_executor!(|P| {
        // Leaked, so that the kept transaction and its rows can outlive this function.
        let builder = Database::builder().protocol::<P>().table::<Reentrant>();
        let database: &'static Database<P> = Box::leak(Box::new(builder.open().unwrap()));
        let table = database.table::<Reentrant>().unwrap();
        let row = |id: u64| Reentrant { id, text: format!("number {id}") };
        (0..2).for_each(|id| database.transact(|tx| tx.insert(&table, row(id))).unwrap());
        let kept: Rc<Cell<Option<&'static Reentrant>>> = Rc::default();
        let on_drop = {
            let (table, kept) = (table.clone(), Rc::clone(&kept));
            move || {
                if kept.get().is_none() {
                    let transaction: &'static Transaction<'static, P> =
                        Box::leak(Box::new(database.begin().unwrap()));
                    kept.set(transaction.get(&table, &1).unwrap());
                }
            }
        };
        ON_DROP.set(Some(Box::new(on_drop)));
        let _ = database.transact(|tx| {
            tx.update(&table, &0, |row| row.text = "for nothing".to_owned())?;
            Err::<(), Error>(Failure::Closed.into())
        });
        while kept.get().is_none() {
            // This thread's worker drops what it has replaced when it has gathered enough.
            database.transact(|tx| tx.update(&table, &0, |_row| ())).unwrap();
        }
        drop(ON_DROP.take());
        let nested = database.transact(|_tx| Ok::<(), Error>(()));
        assert!(matches!(nested, Err(Error::Failure(Failure::NestedTransaction))), "{nested:?}");
        if P::WORKERS_MAX > 1 && !begin_waits::<P>() {
            // If the kept transaction holds a lock on its row, the test updates the other one.
            let id = if P::KEEPS_LOCKS { 0 } else { 1 };
            on_a_thread(|| {
                for turn in 0..3000 {
                    let change = |row: &mut Reentrant| row.text = format!("turn {turn}");
                    database.transact(|tx| tx.update(&table, &id, change)).unwrap();
                }
            });
        }
        assert_eq!(kept.get().unwrap().text, "number 1");
    });
}
