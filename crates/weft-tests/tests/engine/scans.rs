//! Tests of which insertions conflict with a scan, under the protocols that record the leaves of an index that
//! they read. (The conformance suite checks that scans miss no row, with many kinds of phantoms.)

use weft::protocol::Protocol;
use weft::{ConflictReason, Database, Error, Record, Table, Transaction};

use weft_tests::{for_each_executor, on_a_thread};

/// Runs an expression with one protocol for each executor that records leaves.
macro_rules! for_each_that_notes {
    (|$parameter:ident| $body:expr) => {
        for_each_executor!(
            [Dbx, TwoPhaseLocking, Htcc, Doppel, DbxTc, Adaptive] | $parameter | $body
        )
    };
}

/// An order that waits for delivery, as in TPC-C. The newest order of a district and the oldest order of the next
/// district are neighbours in the index.
#[derive(Clone, Copy, Debug, Record)]
struct Waiting {
    #[record(key)]
    district: u32,
    #[record(key)]
    order: u32,
}

#[derive(Clone, Copy, Debug, Record)]
struct Delivered {
    #[record(key)]
    district: u32,
    order: u32,
}

struct Orders<P: Protocol> {
    database: Database<P>,
    waiting: Table<Waiting>,
    delivered: Table<Delivered>,
}

impl<P: Protocol> Orders<P> {
    /// Creates two districts with the orders 10, 20 and 30 each.
    fn new() -> Self {
        let database = Database::builder()
            .protocol::<P>()
            .table::<Waiting>()
            .table::<Delivered>()
            .open()
            .unwrap();
        let (waiting, delivered) = (database.table().unwrap(), database.table().unwrap());
        let orders = Orders { database, waiting, delivered };
        for (district, order) in [1, 2].into_iter().flat_map(|d| [10, 20, 30].map(|o| (d, o))) {
            orders.place(district, order);
        }
        orders
    }

    fn place(&self, district: u32, order: u32) {
        let placed =
            self.database.transact(|tx| tx.insert(&self.waiting, Waiting { district, order }));
        placed.unwrap();
    }

    /// Reads at most `orders` orders of district 2, in ascending or descending order.
    fn read(
        &self,
        tx: &Transaction<'_, P>,
        orders: usize,
        descending: bool,
    ) -> Result<Vec<u32>, Error> {
        let scan = tx.range(&self.waiting, (2, 0)..=(2, u32::MAX));
        let scan = if descending { scan.descending() } else { scan };
        scan.take(orders).map(|waiting| Ok(waiting?.order)).collect()
    }

    /// Commits a transaction that reads, and writes what it has read. Another thread places an order in between.
    fn deliver(
        &self,
        (orders, descending): (usize, bool),
        placed: (u32, u32),
    ) -> Result<Vec<u32>, Error> {
        let tx = self.database.begin()?;
        let read = self.read(&tx, orders, descending)?;
        on_a_thread(|| self.place(placed.0, placed.1));
        let order = read.last().copied().unwrap_or_default();
        tx.upsert(&self.delivered, Delivered { district: 2, order })?;
        tx.commit()?;
        Ok(read)
    }
}

fn is_range_conflict(error: &Error) -> bool {
    matches!(error, Error::Conflict(conflict) if conflict.reason == ConflictReason::RangeChanged)
}

/// Guards TPC-C's Delivery, which reads the oldest order of a district. A new order of the district before does
/// not abort it, and neither does a newer order of its own district.
#[test]
fn insertions_outside_the_scanned_range_do_not_conflict() {
    for_each_that_notes!(|P| {
        let orders = Orders::<P>::new();
        assert_eq!(orders.deliver((1, false), (1, 40)).unwrap(), [10]);
        assert_eq!(orders.deliver((1, false), (2, 40)).unwrap(), [10]);
        assert_eq!(orders.deliver((9, false), (1, 50)).unwrap(), [10, 20, 30, 40]);
        assert_eq!(orders.deliver((1, true), (2, 5)).unwrap(), [40]);
        assert_eq!(orders.deliver((9, true), (3, 10)).unwrap(), [40, 30, 20, 10, 5]);
    });
}

/// An insertion into the range that the scan has read is a phantom, and conflicts.
#[test]
fn insertions_into_the_scanned_range_conflict() {
    for_each_that_notes!(|P| {
        for (scan, placed) in [((1, false), 9), ((9, false), 25), ((9, false), 40), ((1, true), 40)]
        {
            let orders = Orders::<P>::new();
            let error = orders.deliver(scan, (2, placed)).unwrap_err();
            assert!(is_range_conflict(&error), "{scan:?}, {placed}: {error}");
        }
    });
}

/// What happens between a scan of district 2 and its commit.
type Change<P> = fn(&Orders<P>);

/// What has come into the index and left it again does not matter, nor do splits of the leaf that was scanned: the range
/// is read again.
#[test]
fn ranges_that_hold_the_same_rows_in_other_leaves_do_not_conflict() {
    for_each_executor!(
        [Dbx, Silo, Doppel, Adaptive] | P | {
            let cases: [Change<P>; 3] = [
                |orders| {
                    let tx = orders.database.begin().unwrap();
                    tx.insert(&orders.waiting, Waiting { district: 2, order: 15 }).unwrap();
                    tx.rollback();
                },
                |orders| (0..200).for_each(|order| orders.place(1, 100 + order)),
                |orders| (0..200).for_each(|order| orders.place(3, order)),
            ];
            for (case, happen) in cases.iter().enumerate() {
                for scan in [(9, false), (9, true), (1, false), (1, true)] {
                    let orders = Orders::<P>::new();
                    let tx = orders.database.begin().unwrap();
                    let read = orders.read(&tx, scan.0, scan.1).unwrap();
                    on_a_thread(|| happen(&orders));
                    let delivered = Delivered { district: 2, order: read[0] };
                    tx.upsert(&orders.delivered, delivered).unwrap();
                    tx.commit().unwrap_or_else(|error| panic!("{case} {scan:?}: {error}"));
                }
            }
        }
    );
}

/// A row that another transaction puts into the range conflicts, even if the leaf has been split since, or has lost other
/// keys.
#[test]
fn insertions_into_a_range_in_other_leaves_conflict() {
    for_each_executor!(
        [Dbx, Silo, Doppel, Adaptive] | P | {
            for (scan, placed) in
                [((9, false), 15), ((9, true), 15), ((1, false), 5), ((1, true), 40)]
            {
                let orders = Orders::<P>::new();
                let tx = orders.database.begin().unwrap();
                let read = orders.read(&tx, scan.0, scan.1).unwrap();
                on_a_thread(|| {
                    orders.place(2, placed);
                    (0..200).for_each(|order| orders.place(1, 100 + order));
                });
                let delivered = Delivered { district: 2, order: read[0] };
                tx.upsert(&orders.delivered, delivered).unwrap();
                let error = tx.commit().unwrap_err();
                assert!(is_range_conflict(&error), "{scan:?}, {placed}: {error}");
            }
        }
    );
}

/// A way to find a row after the scan.
type Look<P> = fn(&Orders<P>, &Transaction<'_, P>) -> Result<(), Error>;

/// A phantom conflicts even if the transaction finds it later, and so has it in its read set or write set: the
/// scan has missed it.
#[test]
fn phantom_that_is_read_later_still_conflicts() {
    for_each_that_notes!(|P| {
        let ways: [Look<P>; 3] = [
            |orders, tx| orders.read(tx, 9, false).map(drop),
            |orders, tx| tx.get(&orders.waiting, &(2, 25)).map(drop),
            |orders, tx| tx.upsert(&orders.waiting, Waiting { district: 2, order: 25 }).map(drop),
        ];
        for (way, come_to) in ways.iter().enumerate() {
            let orders = Orders::<P>::new();
            let tx = orders.database.begin().unwrap();
            assert_eq!(orders.read(&tx, 9, false).unwrap(), [10, 20, 30]);
            on_a_thread(|| orders.place(2, 25));
            let ended = come_to(&orders, &tx).and_then(|()| tx.commit());
            assert!(matches!(ended, Err(Error::Conflict(_))), "{way}");
        }
    });
}

/// A transaction's own insertions are not phantoms, but another transaction's insertions among them are.
#[test]
fn own_insertions_are_not_phantoms() {
    for_each_that_notes!(|P| {
        for (others, commits) in [((1, 40), true), ((2, 25), false)] {
            let orders = Orders::<P>::new();
            let tx = orders.database.begin().unwrap();
            assert_eq!(orders.read(&tx, 9, false).unwrap(), [10, 20, 30]);
            tx.insert(&orders.waiting, Waiting { district: 2, order: 15 }).unwrap();
            on_a_thread(|| orders.place(others.0, others.1));
            tx.insert(&orders.waiting, Waiting { district: 2, order: 35 }).unwrap();
            assert_eq!(orders.read(&tx, 2, false).unwrap(), [10, 15]);
            let ended = tx.commit();
            assert_eq!(ended.is_ok(), commits, "{others:?}: {ended:?}");
        }
    });
}
