//! Tests of phase reconciliation: which records are split and when, which operations run in a split phase, and
//! that no update is lost.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use weft::htm::word::{Ordering, Word};
use weft::operation::{
    Add, BoundedSet, Max, OperationKind, Ordered, OrderedPut, TopK, TopKInsert, Union,
};
use weft::{ConflictReason, Database, Error, Failure, Record, Table, Violation, column_of};
use weft_protocols::PhaseOptions;
use weft_protocols::doppel::{JoinedProtocol, PhaseReconciliation};
use weft_protocols::{BuilderExt, LabelledDatabase};

use weft_tests::{TestBarrier, over_joined_protocols};

thread_local! {
    /// Runs on this thread whenever a [`Counter`] is dropped.
    static ON_DROP: Cell<Option<Box<dyn Fn()>>> = const { Cell::new(None) };
}

#[derive(Clone, Debug, PartialEq, Record)]
struct Counter {
    #[record(key)]
    id: u32,
    count: i64,
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(on_drop) = ON_DROP.take() {
            on_drop();
            ON_DROP.set(Some(on_drop));
        }
    }
}

type Reconciled<J> = PhaseReconciliation<J>;

/// One access of a transaction.
type Access<'a, J> = dyn Fn(&weft::Transaction<'_, Reconciled<J>>) -> Result<(), Error> + 'a;

#[derive(Clone, Debug, PartialEq, Record)]
struct Auction {
    #[record(key)]
    item: u32,
    bids: i64,
    highest: i64,
    winner: Ordered<(i64, u32), u32>,
    top: TopK<i64, u32, 3>,
    bidders: BoundedSet<u32, 64>,
    small: i8,
    #[record(index)]
    rank: i64,
    title: String,
}

impl Auction {
    fn new(item: u32) -> Auction {
        Auction {
            item,
            bids: 0,
            highest: 0,
            winner: Ordered::default(),
            top: TopK::default(),
            bidders: BoundedSet::default(),
            small: 0,
            rank: 0,
            title: "a lamp".into(),
        }
    }
}

fn open<J: JoinedProtocol>() -> (Database<Reconciled<J>>, Table<Auction>) {
    // Phases never end by the clock here: only a waiting transaction or a new snapshot ends one.
    let phases = PhaseOptions::new().length(Duration::from_secs(3600));
    let database =
        Database::builder().protocol::<Reconciled<J>>().table::<Auction>().phases(phases);
    let database = database.open().expect("the database opens");
    let auctions = database.table::<Auction>().expect("the table is registered");
    for item in 1..=3 {
        let inserted: Result<(), Error> =
            database.transact(|tx| tx.insert(&auctions, Auction::new(item)));
        inserted.expect("the table is empty");
    }
    (database, auctions)
}

fn metrics<J: JoinedProtocol>(database: &Database<Reconciled<J>>) -> weft::protocol::PhaseMetrics {
    database.metrics().phases.expect("it has phases")
}

fn bid<J: JoinedProtocol>(
    database: &Database<Reconciled<J>>,
    auctions: &Table<Auction>,
    bidder: u32,
    amount: i64,
) -> Result<(), Error> {
    database.transact(|tx| {
        tx.add(auctions, &1, column_of!(Auction.bids), 1)?;
        tx.max(auctions, &1, column_of!(Auction.highest), amount)?;
        tx.ordered_put(auctions, &1, column_of!(Auction.winner), (amount, bidder), bidder)?;
        tx.top_k_insert(auctions, &1, column_of!(Auction.top), amount, bidder)?;
        let bidder = BoundedSet::of([bidder % 8]).expect("one is less than 64");
        tx.union(auctions, &1, column_of!(Auction.bidders), bidder)
    })
}

fn label<J: JoinedProtocol>(database: &Database<Reconciled<J>>, auctions: &Table<Auction>) {
    let labelled = [
        database.label_split::<_, _, Add<_>>(auctions, &1, column_of!(Auction.bids)),
        database.label_split::<_, _, Max<_>>(auctions, &1, column_of!(Auction.highest)),
        database.label_split::<_, _, OrderedPut<_, _>>(auctions, &1, column_of!(Auction.winner)),
        database.label_split::<_, _, TopKInsert<_, _>>(auctions, &1, column_of!(Auction.top)),
        database.label_split::<_, _, Union<_, 64>>(auctions, &1, column_of!(Auction.bidders)),
        database.label_split::<_, _, Add<_>>(auctions, &1, column_of!(Auction.small)),
    ];
    labelled.into_iter().for_each(|labelled| labelled.expect("the column can be split"));
}

/// Adds 1 to the labelled row until a split phase has begun. Returns how often.
fn into_split_phase<J: JoinedProtocol>(
    database: &Database<Reconciled<J>>,
    auctions: &Table<Auction>,
) -> i64 {
    let mut additions = 0;
    while !metrics(database).is_split {
        let added: Result<(), Error> =
            database.transact(|tx| tx.add(auctions, &1, column_of!(Auction.bids), 1));
        added.expect("the sum fits an i64");
        additions += 1;
        assert!(additions < 1_000_000, "no split phase has begun");
    }
    additions
}

fn get<J: JoinedProtocol>(
    database: &Database<Reconciled<J>>,
    auctions: &Table<Auction>,
    item: u32,
) -> Auction {
    let row: Result<_, Error> = database.transact(|tx| Ok(tx.get(auctions, &item)?.cloned()));
    row.expect("the read succeeds").expect("the row exists")
}

over_joined_protocols!(
    first_of_equal_bids_are_listed
    reading_a_split_row_shows_all_operations
    many_threads_lose_nothing
    rollback_leaves_no_trace_in_a_slice
    overflow_in_a_split_phase_fails_the_operation
    unselected_operations_wait_for_a_joined_phase
    snapshots_show_all_committed_operations
    a_snapshot_inside_a_transaction_makes_it_run_again
    unsplittable_rows_cannot_be_labelled
    deleted_rows_stop_being_split
    long_transaction_does_not_block_others
    sleeping_threads_do_not_block_others
    labels_can_be_removed
    more_labels_than_split_records_lose_nothing
    drop_can_run_a_transaction_during_a_phase_change
);

mod cases {
    use super::*;

    pub fn reading_a_split_row_shows_all_operations<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        for bidder in 0..100 {
            bid(&database, &auctions, bidder, i64::from(bidder * 7 % 100)).unwrap();
        }
        let split = metrics(&database);
        assert!(split.split_phases >= 1 && split.split_records == 1, "{split:?}");
        assert_eq!(split.reconciled_rows, 0, "no transaction has read the row yet: {split:?}");
        let auction = get(&database, &auctions, 1);
        assert_eq!((auction.bids, auction.highest), (100, 99));
        assert_eq!(auction.winner.value(), Some(&57), "57 * 7 = 399");
        assert_eq!(auction.top.values().copied().collect::<Vec<_>>(), [57, 14, 71]);
        assert!(auction.bidders.elements().eq(&[0, 1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(auction.title, "a lamp");
        let after = metrics(&database);
        assert_eq!(after.reconciled_rows, 1, "{after:?}");
        assert!(after.refused >= 1, "the reader has waited: {after:?}");
        assert_eq!(get(&database, &auctions, 2), Auction::new(2));
    }

    /// Fault: the phase change panicked if more rows had labels than can be split at a time.
    pub fn more_labels_than_split_records_lose_nothing<J: JoinedProtocol>() {
        const ROWS: u32 = 70;
        let (database, auctions) = open::<J>();
        for item in 4..=ROWS {
            let inserted: Result<(), Error> =
                database.transact(|tx| tx.insert(&auctions, Auction::new(item)));
            inserted.expect("the row is new");
        }
        for item in 1..=ROWS {
            database
                .label_split::<_, _, Add<_>>(&auctions, &item, column_of!(Auction.bids))
                .expect("the column can be split");
        }
        let first = into_split_phase(&database, &auctions);
        for item in 1..=ROWS {
            let added: Result<(), Error> =
                database.transact(|tx| tx.add(&auctions, &item, column_of!(Auction.bids), 1));
            added.expect("the sum fits an i64");
        }
        for item in 1..=ROWS {
            let expected = if item == 1 { first + 1 } else { 1 };
            assert_eq!(get(&database, &auctions, item).bids, expected, "{item}");
        }
    }

    pub fn many_threads_lose_nothing<J: JoinedProtocol>() {
        const THREADS: u32 = 4;
        const EACH: u32 = 3000;
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        let seen = Word::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (database, auctions, seen) = (&database, &auctions, &seen);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let bidder = thread * EACH + number;
                        bid(database, auctions, bidder, i64::from(bidder)).unwrap();
                        if number % 64 == thread {
                            let auction = get(database, auctions, 1);
                            // The row contains this thread's own updates, and its columns agree.
                            assert!(auction.bids > i64::from(number));
                            assert!(auction.highest >= i64::from(bidder));
                            assert_eq!(auction.top.values().next(), auction.winner.value());
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let auction = get(&database, &auctions, 1);
        assert_eq!(auction.bids, i64::from(THREADS * EACH));
        let last = THREADS * EACH - 1;
        assert_eq!(auction.highest, i64::from(last));
        assert_eq!(auction.winner.value(), Some(&last));
        assert_eq!(auction.top.values().copied().collect::<Vec<_>>(), [last, last - 1, last - 2]);
        let metrics = metrics(&database);
        assert!(metrics.split_phases > 1, "{metrics:?}");
        assert!(seen.load(Ordering::Relaxed) > 0);
    }

    pub fn rollback_leaves_no_trace_in_a_slice<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        bid(&database, &auctions, 1, 10).unwrap();
        let rolled_back: Result<(), Error> = database.transact(|tx| {
            tx.add(&auctions, &1, column_of!(Auction.bids), 7)?;
            tx.max(&auctions, &1, column_of!(Auction.highest), 1000)?;
            tx.ordered_put(&auctions, &1, column_of!(Auction.winner), (1000, 9), 9)?;
            for order in 0..5 {
                tx.top_k_insert(&auctions, &1, column_of!(Auction.top), 1000 + order, 9)?;
            }
            tx.union(
                &auctions,
                &1,
                column_of!(Auction.bidders),
                BoundedSet::of([50, 51]).unwrap(),
            )?;
            Err(Failure::Closed.into())
        });
        assert!(rolled_back.is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            database.transact(|tx| -> Result<(), Error> {
                tx.add(&auctions, &1, column_of!(Auction.bids), 7)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        bid(&database, &auctions, 2, 20).unwrap();
        let refused = metrics(&database).refused;
        assert_eq!(refused, 0, "all transactions ran in split phases");
        let auction = get(&database, &auctions, 1);
        assert_eq!((auction.bids, auction.highest), (2, 20));
        assert_eq!(auction.winner.value(), Some(&2));
        assert_eq!(auction.top.values().copied().collect::<Vec<_>>(), [2, 1]);
        assert!(auction.bidders.elements().eq(&[1, 2]));
    }

    pub fn overflow_in_a_split_phase_fails_the_operation<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        let add = |number| -> Result<(), Error> {
            database.transact(|tx| tx.add(&auctions, &1, column_of!(Auction.small), number))
        };
        into_split_phase(&database, &auctions);
        for _ in 0..126 / 9 {
            add(9).unwrap();
        }
        let error = add(9).unwrap_err();
        let Error::Failure(Failure::OutOfRange { operation, message, .. }) = error else {
            panic!("{error}");
        };
        assert_eq!((operation, &*message), (OperationKind::Add, "126 + 9 is no i8"));
        add(1).unwrap();
        assert!(add(1).is_err());
        assert_eq!(get(&database, &auctions, 1).small, i8::MAX);
    }

    pub fn unselected_operations_wait_for_a_joined_phase<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        // A transaction that is begun by hand gets a conflict when it is refused.
        let by_hand = |expected: bool, access: &Access<'_, J>| {
            into_split_phase(&database, &auctions);
            let transaction = database.begin().unwrap();
            match access(&transaction) {
                Err(Error::Conflict(conflict)) => {
                    assert!(expected, "{conflict}");
                    assert_eq!(conflict.reason, ConflictReason::Split);
                    assert_eq!(conflict.key.as_deref(), Some("1"));
                    assert!(transaction.commit().is_err(), "a refused transaction cannot commit");
                    let again = database.begin().unwrap();
                    access(&again).expect("the joined phase has begun");
                    again.commit().unwrap();
                }
                Err(error) => panic!("{error}"),
                Ok(()) => {
                    assert!(!expected);
                    transaction.commit().unwrap();
                }
            }
        };
        by_hand(true, &|tx| tx.get(&auctions, &1).map(drop));
        by_hand(true, &|tx| tx.update(&auctions, &1, |row| row.title.push('!')).map(drop));
        by_hand(true, &|tx| tx.mul(&auctions, &1, column_of!(Auction.bids), 1));
        by_hand(true, &|tx| tx.min(&auctions, &1, column_of!(Auction.rank), -1));
        by_hand(true, &|tx| tx.range(&auctions, ..).try_for_each(|row| row.map(drop)));
        by_hand(true, &|tx| tx.upsert(&auctions, Auction::new(1)).map(drop));
        by_hand(false, &|tx| tx.get(&auctions, &2).map(drop));
        by_hand(false, &|tx| tx.add(&auctions, &2, column_of!(Auction.bids), 1));
        by_hand(false, &|tx| tx.add(&auctions, &1, column_of!(Auction.bids), 1));
        let added = get(&database, &auctions, 1).bids;
        assert!(
            (1..10_000).contains(&added),
            "additions since the upsert replaced the row: {added}"
        );
        assert_eq!(get(&database, &auctions, 2).bids, 1);
    }

    pub fn snapshots_show_all_committed_operations<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        let mut snapshots = Vec::new();
        for bids in 0..20 {
            let snapshot = database.open_snapshot().unwrap();
            snapshots.push((bids, snapshot));
            bid(&database, &auctions, 1, bids).unwrap();
        }
        for (bids, snapshot) in &snapshots {
            let seen = snapshot.get(&auctions, &1).unwrap().expect("the row exists");
            assert_eq!(seen.bids, *bids);
        }
    }

    pub fn a_snapshot_inside_a_transaction_makes_it_run_again<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        into_split_phase(&database, &auctions);
        let mut runs = 0;
        let seen: Result<i64, Error> = database.transact(|tx| {
            runs += 1;
            tx.add(&auctions, &2, column_of!(Auction.bids), 1)?;
            let snapshot = database.open_snapshot()?;
            let seen = snapshot.get(&auctions, &1)?.expect("the row exists").bids;
            Ok(seen)
        });
        assert!(seen.unwrap() > 0);
        assert_eq!(runs, 2, "the first run began in a split phase");
        assert_eq!(get(&database, &auctions, 2).bids, 1);
        let transaction = database.begin().unwrap();
        if let Err(failure) = database.open_snapshot() {
            assert_eq!(failure, Failure::RowsSplit);
        }
        drop(transaction);
    }

    pub fn unsplittable_rows_cannot_be_labelled<J: JoinedProtocol>() {
        #[derive(Clone, Copy, Record)]
        #[record(check = Checked::check_value)]
        struct Checked {
            #[record(key)]
            id: u32,
            value: i64,
        }
        impl Checked {
            fn check_value(&self) -> Result<(), Violation> {
                Ok(())
            }
        }
        let database = Database::builder()
            .protocol::<Reconciled<J>>()
            .table::<Auction>()
            .table::<Checked>()
            .open()
            .unwrap();
        let auctions = database.table::<Auction>().unwrap();
        let checked = database.table::<Checked>().unwrap();
        let failed = database.label_split::<_, _, Add<_>>(&auctions, &9, column_of!(Auction.bids));
        assert_eq!(failed, Err(Failure::NoSuchRow { table: "auction", key: "9".into() }));
        let failed = database.label_split::<_, _, Add<_>>(&auctions, &1, column_of!(Auction.rank));
        assert!(matches!(failed, Err(Failure::Unsplittable { column: "rank", .. })), "{failed:?}");
        let failed = database.label_split::<_, _, Add<_>>(&checked, &1, column_of!(Checked.value));
        assert_eq!(
            failed.unwrap_err().to_string(),
            "table checked, column value: add cannot be split, since a check reads the column: name the columns that it \
             reads, `check(path, columns(…))`"
        );
    }

    /// Two threads bid the same amount in turns, each when the other's bid has committed. The first bids are listed,
    /// in their order, in all slices together.
    pub fn first_of_equal_bids_are_listed<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        let top = column_of!(Auction.top);
        for amount in 1..=10 {
            let both = TestBarrier::new(2);
            let turn = Word::new(0);
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (database, auctions, both, turn) = (&database, &auctions, &both, &turn);
                    scope.spawn(move || {
                        // Both threads have a worker when the split phase begins.
                        let met: Result<(), Error> = database.transact(|_| {
                            both.wait();
                            Ok(())
                        });
                        met.expect("nothing conflicts");
                        if thread == 0 {
                            into_split_phase(database, auctions);
                        }
                        both.wait();
                        for bidder in (thread..6).step_by(2) {
                            while turn.load(Ordering::Acquire) < bidder {
                                std::thread::yield_now();
                            }
                            let bid: Result<(), Error> = database.transact(|tx| {
                                tx.top_k_insert(auctions, &1, top, amount, bidder as u32)
                            });
                            bid.expect("it is listed or not");
                            turn.store(bidder + 1, Ordering::Release);
                        }
                    });
                }
            });
            let auction = get(&database, &auctions, 1);
            assert_eq!(auction.top.values().collect::<Vec<_>>(), [&0, &1, &2], "{amount}");
        }
    }

    pub fn deleted_rows_stop_being_split<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        for round in 0..5 {
            bid(&database, &auctions, 1, 10).unwrap();
            bid(&database, &auctions, 2, 20).unwrap();
            assert_eq!(metrics(&database).split_records, 1);
            let deleted: Result<bool, Error> = database.transact(|tx| tx.delete(&auctions, &1));
            assert!(deleted.unwrap());
            let absent = bid(&database, &auctions, 1, 10).unwrap_err();
            assert!(matches!(absent, Error::Failure(Failure::NoSuchRow { .. })), "{absent}");
            // Transactions collect garbage, which removes the deleted record from the split records.
            let mut updates = 0;
            while metrics(&database).split_records > 0 {
                let touched: Result<_, Error> = database
                    .transact(|tx| tx.update(&auctions, &2, |row| row.title = format!("{round}")));
                touched.unwrap();
                updates += 1;
                assert!(updates < 1_000_000, "the deleted record is still split");
            }
            let inserted: Result<(), Error> =
                database.transact(|tx| tx.insert(&auctions, Auction::new(1)));
            inserted.unwrap();
            label(&database, &auctions);
        }
    }

    pub fn long_transaction_does_not_block_others<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        let step = TestBarrier::new(2);
        let additions = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Becomes a worker now, because a split phase gives slices to the workers that exist when it begins.
                get(&database, &auctions, 3);
                step.wait();
                // The other thread begins a split phase.
                step.wait();
                let transaction = database.begin().unwrap();
                transaction.add(&auctions, &1, column_of!(Auction.bids), 1).unwrap();
                step.wait();
                // The other thread runs its transactions.
                step.wait();
                transaction.commit().unwrap();
            });
            step.wait();
            label(&database, &auctions);
            let additions = into_split_phase(&database, &auctions);
            step.wait();
            step.wait();
            // The phase cannot change while that transaction runs. Operations that are allowed in it go on.
            let before = metrics(&database).split_phases;
            for _ in 0..50 {
                bid(&database, &auctions, 1, 10).unwrap();
                let added: Result<(), Error> =
                    database.transact(|tx| tx.add(&auctions, &2, column_of!(Auction.bids), 1));
                added.unwrap();
            }
            assert_eq!(metrics(&database).split_phases, before);
            step.wait();
            additions
        });
        let committed = metrics(&database);
        assert!(committed.is_split, "{committed:?}");
        // The additions that began the phase, the one of the long transaction, and the 50 bids.
        assert_eq!(get(&database, &auctions, 1).bids, additions + 51);
        assert_eq!(get(&database, &auctions, 2).bids, 50);
    }

    pub fn sleeping_threads_do_not_block_others<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        for _ in 0..3 {
            bid(&database, &auctions, 1, 10).unwrap();
        }
        let (came, leave) = (TestBarrier::new(4), TestBarrier::new(4));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (came, leave, database, auctions) = (&came, &leave, &database, &auctions);
                scope.spawn(move || {
                    bid(database, auctions, thread, 20).unwrap();
                    came.wait();
                    // Sleeps while its slice holds an operation that is not yet merged.
                    leave.wait();
                });
            }
            came.wait();
            assert_eq!(get(&database, &auctions, 1).bids, 6);
            bid(&database, &auctions, 1, 10).unwrap();
            assert_eq!(get(&database, &auctions, 1).bids, 7);
            leave.wait();
        });
        assert_eq!(get(&database, &auctions, 1).bids, 7);
    }

    pub fn labels_can_be_removed<J: JoinedProtocol>() {
        let (database, auctions) = open::<J>();
        label(&database, &auctions);
        for _ in 0..5 {
            bid(&database, &auctions, 1, 10).unwrap();
        }
        let before = metrics(&database);
        assert_eq!(before.split_records, 1);
        database.remove_split_labels(&auctions, &1).unwrap();
        assert_eq!(get(&database, &auctions, 1).bids, 5);
        for _ in 0..5 {
            bid(&database, &auctions, 1, 10).unwrap();
        }
        let after = metrics(&database);
        assert_eq!((after.split_records, after.split_phases), (0, before.split_phases));
        assert_eq!(get(&database, &auctions, 1).bids, 10);
    }

    pub fn drop_can_run_a_transaction_during_a_phase_change<J: JoinedProtocol>() {
        let phases = PhaseOptions::new().length(Duration::ZERO);
        let database =
            Database::builder().protocol::<Reconciled<J>>().table::<Counter>().phases(phases);
        let database = database.open().unwrap();
        let counters = database.table::<Counter>().unwrap();
        let inserted: Result<(), Error> = database.transact(|tx| {
            (0..20).try_for_each(|id| tx.insert(&counters, Counter { id, count: 0 }))
        });
        inserted.unwrap();
        for id in 0..20 {
            let column = column_of!(Counter.count);
            database.label_split::<_, _, Add<_>>(&counters, &id, column).unwrap();
        }
        // The thread that reconciles replaces the rows. It drops the replaced rows when the other thread has ended
        // its transaction, whatever it is doing then. Chance decides which thread reconciles.
        let dropped = Arc::new(Word::new(0));
        let turn = || {
            ON_DROP.set(Some(Box::new({
                let (database, counters, dropped) =
                    (database.clone(), counters.clone(), Arc::clone(&dropped));
                move || {
                    dropped.fetch_add(1, Ordering::Relaxed);
                    let read: Result<bool, Error> =
                        database.transact(|tx| Ok(tx.get(&counters, &1)?.is_some()));
                    match read {
                        Ok(is_there) => assert!(is_there),
                        Err(Error::Failure(Failure::NestedTransaction)) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })));
            for number in 0..4000 {
                let added: Result<(), Error> = database.transact(|tx| {
                    let add = |id| tx.add(&counters, &id, column_of!(Counter.count), number);
                    (0..20).try_for_each(add)
                });
                added.unwrap();
            }
            drop(ON_DROP.take());
        };
        std::thread::scope(|scope| {
            scope.spawn(turn);
            scope.spawn(turn);
        });
        let dropped = dropped.load(Ordering::Relaxed);
        assert!(dropped > 100, "{dropped} rows were dropped");
        assert!(metrics(&database).split_phases > 5, "{:?}", metrics(&database));
        let read: Result<_, Error> = database.transact(|tx| Ok(tx.get(&counters, &7)?.cloned()));
        assert_eq!(read.unwrap().unwrap().count, 2 * (0..4000).sum::<i64>());
    }
}
