//! Tests of commutative operations in transactions, under every protocol: what each does, and which errors it
//! returns.

use weft::operation::{BoundedSet, OperationKind, Ordered, TopK};
use weft::protocol::Protocol;
use weft::{Database, Error, Failure, Record, Table, Violation, column_of};
use weft_protocols::{NAMES, with_protocol};

#[derive(Clone, Debug, PartialEq, Record)]
#[record(check = Page::check_score)]
struct Page {
    #[record(key)]
    id: u32,
    likes: u8,
    score: i64,
    #[record(index)]
    rank: i64,
    lowest: i64,
    flags: u16,
    is_locked: bool,
    is_public: bool,
    last_like: Ordered<(i64, u32), u32>,
    top: TopK<i64, u32, 3>,
    tags: BoundedSet<u16, 4>,
}

impl Page {
    fn new(id: u32) -> Page {
        Page {
            id,
            likes: 250,
            score: 3,
            rank: 0,
            lowest: 100,
            flags: 0b0110,
            is_locked: false,
            is_public: true,
            last_like: Ordered::default(),
            top: TopK::default(),
            tags: BoundedSet::default(),
        }
    }

    fn check_score(&self) -> Result<(), Violation> {
        if self.score > 1000 { Err("a score is at most 1000".into()) } else { Ok(()) }
    }
}

/// A row without an index, for protocols without secondary indexes.
#[derive(Clone, Copy, Debug, PartialEq, Record)]
#[record(storage = "hash")]
struct Counter {
    #[record(key)]
    id: u32,
    value: i8,
}

fn open<P: Protocol>() -> (Database<P>, Table<Counter>) {
    let database =
        Database::builder().protocol::<P>().table::<Counter>().open().expect("the database opens");
    let counters = database.table::<Counter>().expect("the table is registered");
    let inserted: Result<(), Error> =
        database.transact(|tx| tx.insert(&counters, Counter { id: 1, value: 100 }));
    inserted.expect("the table is empty");
    (database, counters)
}

fn failure<R: std::fmt::Debug>(result: Result<R, Error>) -> Failure {
    match result.expect_err("the operation fails") {
        Error::Failure(failure) => failure,
        Error::Conflict(conflict) => panic!("{conflict}"),
    }
}

#[test]
fn operation_on_a_missing_row_fails_under_every_protocol() {
    fn run<P: Protocol>() {
        let (database, counters) = open::<P>();
        let failed =
            failure(database.transact(|tx| tx.add(&counters, &2, column_of!(Counter.value), 1)));
        assert_eq!(failed, Failure::NoSuchRow { table: "counter", key: "2".into() }, "{}", P::NAME);
        let deleted: Result<bool, Error> = database.transact(|tx| tx.delete(&counters, &1));
        assert!(deleted.expect("no other transaction runs"));
        let failed =
            failure(database.transact(|tx| tx.max(&counters, &1, column_of!(Counter.value), 1)));
        assert_eq!(failed, Failure::NoSuchRow { table: "counter", key: "1".into() }, "{}", P::NAME);
    }
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>());
    }
}

#[test]
fn overflow_fails_the_operation_under_every_protocol() {
    fn run<P: Protocol>() {
        let (database, counters) = open::<P>();
        let add = |number| {
            database.transact(|tx| tx.add(&counters, &1, column_of!(Counter.value), number))
        };
        add(27).expect("100 + 27 fits");
        let failed = failure(add(1));
        assert_eq!(
            failed,
            Failure::OutOfRange {
                table: "counter",
                key: "1".into(),
                column: "value",
                operation: OperationKind::Add,
                message: "127 + 1 is no i8".into(),
            },
            "{}",
            P::NAME
        );
        assert_eq!(
            failed.to_string(),
            "table counter, key 1: add on column value: 127 + 1 is no i8"
        );
        add(-1).expect("127 - 1 fits, since the failed sum has changed nothing");
        let value = database.transact(|tx| Ok::<_, Error>(tx.get(&counters, &1)?.cloned()));
        assert_eq!(value.expect("a row").expect("a row").value, 126, "{}", P::NAME);
    }
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>());
    }
}

#[test]
fn every_operation_changes_its_column_under_every_protocol() {
    fn run<P: Protocol>() {
        if P::SINGLE_KEY {
            return; // It has no secondary indexes, and allows one operation per transaction.
        }
        let database: Database<P> =
            Database::builder().protocol::<P>().table::<Page>().open().unwrap();
        let pages = database.table::<Page>().unwrap();
        let changed: Result<_, Error> = database.transact(|tx| {
            tx.insert(&pages, Page::new(1))?;
            tx.add(&pages, &1, column_of!(Page.likes), 2)?;
            tx.mul(&pages, &1, column_of!(Page.score), -7)?;
            tx.max(&pages, &1, column_of!(Page.rank), 5)?;
            tx.min(&pages, &1, column_of!(Page.lowest), 7)?;
            tx.or(&pages, &1, column_of!(Page.flags), 0b1001)?;
            tx.and(&pages, &1, column_of!(Page.flags), 0b1011)?;
            tx.or(&pages, &1, column_of!(Page.is_locked), true)?;
            tx.and(&pages, &1, column_of!(Page.is_public), false)?;
            for (order, user) in [((1, 1), 10), ((3, 0), 30), ((2, 9), 20)] {
                tx.ordered_put(&pages, &1, column_of!(Page.last_like), order, user)?;
            }
            for (order, user) in [(1, 10), (9, 90), (3, 30), (5, 50)] {
                tx.top_k_insert(&pages, &1, column_of!(Page.top), order, user)?;
            }
            let tags = |tags: [u16; 2]| BoundedSet::of(tags).expect("two are less than four");
            tx.union(&pages, &1, column_of!(Page.tags), tags([3, 1]))?;
            tx.union(&pages, &1, column_of!(Page.tags), tags([2, 3]))?;
            Ok(tx.get(&pages, &1)?.cloned())
        });
        let page = changed.unwrap().unwrap();
        assert_eq!((page.likes, page.score, page.rank, page.lowest), (252, -21, 5, 7));
        assert_eq!((page.flags, page.is_locked, page.is_public), (0b1011, true, false));
        assert_eq!(page.last_like.value(), Some(&30));
        assert_eq!(page.last_like.order(), Some(&(3, 0)));
        assert_eq!(page.top.values().copied().collect::<Vec<_>>(), [90, 50, 30]);
        assert!(page.tags.elements().eq(&[1, 2, 3]));
        let read = database.transact(|tx| Ok::<_, Error>(tx.get(&pages, &1)?.cloned()));
        assert_eq!(read.unwrap(), Some(page), "committed, {}", P::NAME);

        // The index entry has moved with the column's value.
        let ranked: Result<Vec<_>, Error> = database.transact(|tx| {
            let ranked = tx.range_by(&pages, Page::RANK, 0..);
            ranked.map(|page| Ok(page?.rank)).collect()
        });
        assert_eq!(ranked.unwrap(), [5], "{}", P::NAME);

        // A violated row constraint, and a full set.
        let failed =
            failure(database.transact(|tx| tx.max(&pages, &1, column_of!(Page.score), 1001)));
        assert!(matches!(failed, Failure::Constraint { .. }), "{failed}");
        let tags = BoundedSet::of([7, 8]).unwrap();
        let failed = failure(
            database.transact(|tx| tx.union(&pages, &1, column_of!(Page.tags), tags.clone())),
        );
        let Failure::OutOfRange { operation: OperationKind::Union, message, .. } = failed else {
            panic!("{failed}");
        };
        assert_eq!(message, "2 new elements beside 3 are more than 4");
    }
    for name in NAMES {
        with_protocol!(*name, |P| run::<P>());
    }
}

#[test]
fn no_operation_of_many_threads_is_lost() {
    fn run<P: Protocol>() {
        #[derive(Clone, Copy, Record)]
        struct Total {
            #[record(key)]
            id: u32,
            sum: i64,
            highest: u64,
        }
        const EACH: u64 = 500;
        let threads = 4;
        let database: Database<P> =
            Database::builder().protocol::<P>().table::<Total>().open().unwrap();
        let totals = database.table::<Total>().unwrap();
        let row = Total { id: 1, sum: 0, highest: 0 };
        let inserted: Result<(), Error> = database.transact(|tx| tx.insert(&totals, row));
        inserted.unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (database, totals) = (&database, &totals);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let added: Result<(), Error> =
                            database.transact(|tx| tx.add(totals, &1, column_of!(Total.sum), 1));
                        added.unwrap();
                        let raised: Result<(), Error> = database.transact(|tx| {
                            tx.max(totals, &1, column_of!(Total.highest), thread * EACH + number)
                        });
                        raised.unwrap();
                    }
                });
            }
        });
        let total = database.transact(|tx| Ok::<_, Error>(tx.get(&totals, &1)?.cloned()));
        let total = total.unwrap().unwrap();
        assert_eq!(total.sum as u64, threads * EACH, "{}", P::NAME);
        assert_eq!(total.highest, threads * EACH - 1, "{}", P::NAME);
    }
    for name in NAMES {
        with_protocol!(*name, |P| {
            if P::WORKERS_MAX > 1 {
                run::<P>();
            }
        });
    }
}
