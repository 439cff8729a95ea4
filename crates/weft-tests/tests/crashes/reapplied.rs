//! Crashes of a database whose commits apply operations again. Each transaction adds to a total, and inserts a row
//! with the same amount. After a crash the total is that of the rows, whatever the order of the commits was.

use std::thread::scope;

use weft::durability::SimulatedDisk;
use weft::operation::TopK;
use weft::protocol::{Dbx, Protocol, Silo};
use weft::{Database, DurabilityOptions, Error, Record, Table, column_of};

use super::place;
use weft_tests::{Named, Seed};

#[derive(Clone, Debug, PartialEq, Record)]
struct Total {
    #[record(key)]
    id: u32,
    amounts: i64,
    top: TopK<i64, u32, 3>,
    note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Record)]
struct Entry {
    #[record(key)]
    number: u32,
    amount: i64,
}

struct Books<P: Protocol> {
    database: Database<P>,
    totals: Table<Total>,
    entries: Table<Entry>,
}

impl<P: Protocol> Books<P> {
    fn open(disk: &SimulatedDisk) -> Self {
        let builder = Database::builder().protocol::<P>().table::<Total>().table::<Entry>();
        let database = place(builder, disk, DurabilityOptions::new(), false).open().unwrap();
        let (totals, entries) = (database.table().unwrap(), database.table().unwrap());
        Books { database, totals, entries }
    }

    /// Enters an amount. `between` runs in the middle of the first attempt. Returns when the transaction is durable.
    fn enter(&self, number: u32, amount: i64, between: &dyn Fn()) {
        let mut is_first = true;
        let entered: Result<(), Error> = self.database.transact(|tx| {
            tx.add(&self.totals, &1, column_of!(Total.amounts), amount)?;
            tx.top_k_insert(&self.totals, &1, column_of!(Total.top), amount, number)?;
            if std::mem::take(&mut is_first) {
                between();
            }
            tx.insert(&self.entries, Entry { number, amount })
        });
        entered.unwrap();
    }

    /// Checks the total. Returns the number of the last entry.
    fn check(&self) -> Option<u32> {
        let snapshot = self.database.open_snapshot().unwrap();
        let entries = snapshot.rows(&self.entries).map(|entry| *entry.unwrap());
        let mut entries = Vec::from_iter(entries);
        let last = entries.iter().map(|entry| entry.number).max();
        let total = snapshot.get(&self.totals, &1).unwrap();
        let Some(total) = total else {
            assert_eq!(last, None);
            return None;
        };
        assert_eq!(total.amounts, entries.iter().map(|entry| entry.amount).sum::<i64>());
        entries.sort_by_key(|entry| -entry.amount);
        let greatest = entries.iter().take(3).map(|entry| &entry.number);
        assert!(total.top.values().eq(greatest), "{total:?}");
        last
    }
}

#[test]
fn operations_applied_again_survive_a_crash() {
    fn run<P: Protocol>() {
        for seed in 0..6 {
            let _named = (Named(P::NAME), Seed(seed));
            let mut random = fastrand::Rng::with_seed(seed);
            let disk = SimulatedDisk::new(seed);
            let books = Books::<P>::open(&disk);
            let total = Total { id: 1, amounts: 0, top: TopK::default(), note: "total".to_owned() };
            let inserted: Result<(), Error> =
                books.database.transact(|tx| tx.insert(&books.totals, total.clone()));
            inserted.unwrap();
            for turn in 0..12 {
                let [one, other] = [(); 2].map(|()| random.i64(1..1 << 40));
                books.enter(2 * turn, one, &|| {
                    scope(|scope| {
                        scope.spawn(|| books.enter(2 * turn + 1, other, &|| ()));
                    });
                });
                let after = Books::<P>::open(&disk.crash(random.u64(..)));
                assert_eq!(after.check(), Some(2 * turn + 1), "all that was acknowledged is there");
            }
            let metrics = books.database.metrics();
            assert_eq!((metrics.aborted_total(), metrics.reapplied), (0, 12));
            books.check();
        }
    }
    run::<Dbx>();
    run::<Silo>();
}
