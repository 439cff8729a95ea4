//! Weft, with its default protocol `dbx` or another one, and a B+-tree or a hash table.

use weft::operation::ColumnOf;
use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, column_of};

use crate::store::{Operation, PAYLOAD_BYTES, Result, Store, checksum, payload};

/// A database with one table.
pub struct Weft<P: Protocol, R: Row = OrderedRow> {
    database: Database<P>,
    rows: Table<R>,
}

/// A row in either kind of table.
pub trait Row: Record<Key = u64> + Copy {
    /// The column of the number.
    const NUMBER: ColumnOf<Self, i64>;

    fn new(key: u64) -> Self;
    fn payload(&self) -> &[u8];
    fn number(&mut self) -> &mut i64;
}

macro_rules! row {
    ($row:ident, $storage:literal) => {
        #[derive(Clone, Copy, Record)]
        #[record(storage = $storage)]
        pub struct $row {
            #[record(key)]
            key: u64,
            number: i64,
            payload: [u8; PAYLOAD_BYTES],
        }

        impl Row for $row {
            const NUMBER: ColumnOf<Self, i64> = column_of!($row.number);

            fn new(key: u64) -> Self {
                $row { key, number: 0, payload: payload(key) }
            }

            #[inline]
            fn payload(&self) -> &[u8] {
                &self.payload
            }

            #[inline]
            fn number(&mut self) -> &mut i64 {
                &mut self.number
            }
        }
    };
}

row!(OrderedRow, "ordered");
row!(HashedRow, "hash");

impl<P: Protocol, R: Row> Store for Weft<P, R> {
    fn open(rows: u64) -> Result<Self> {
        let database = Database::builder().protocol::<P>().table::<R>().open()?;
        let table = database.table::<R>()?;
        database.load(&table, [(0..rows).map(|key| Ok::<_, Error>(R::new(key)))], |_| {})?;
        Ok(Weft { database, rows: table })
    }

    fn add_one(&self, key: u64) -> Result<()> {
        let added = self.database.transact(|tx| tx.add(&self.rows, &key, R::NUMBER, 1));
        added.map_err(|error: Error| error.into())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        let numbers = self.database.transact(|tx| {
            let add = |row: &mut R, addend| {
                *row.number() += addend;
                *row.number()
            };
            let from = tx.update(&self.rows, &from, |row| add(row, -1))?;
            let to = tx.update(&self.rows, &to, |row| add(row, 1))?;
            Ok::<_, Error>((from, to))
        })?;
        let (Some(from), Some(to)) = numbers else { return Err("no such row".into()) };
        Ok((from, to))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        let sum = self.database.transact(|tx| {
            let mut sum = 0_u32;
            for operation in operations {
                match *operation {
                    Operation::Read(key) => {
                        // Without the row the checksum is wrong, which the client finds out.
                        let row = tx.get(&self.rows, &key.into())?;
                        sum = sum.wrapping_add(row.map_or(0, |row| checksum(row.payload())));
                    }
                    Operation::Update(key) => {
                        tx.update(&self.rows, &key.into(), |row| *row.number() += 1)?;
                    }
                }
            }
            Ok::<_, Error>(sum)
        });
        Ok(sum?)
    }

    fn perform_together(&self, operations: &[Operation]) -> Result<u32> {
        let reads = || operations.iter().filter_map(|operation| operation.read_key());
        let updates = || operations.iter().filter_map(|operation| operation.update_key());
        let sum = self.database.transact(|tx| {
            let mut sum = 0_u32;
            for row in tx.get_many(&self.rows, reads())? {
                sum = sum.wrapping_add(row?.map_or(0, |row| checksum(row.payload())));
            }
            tx.update_many(&self.rows, updates(), |_, row| *row.number() += 1)?;
            Ok::<_, Error>(sum)
        });
        Ok(sum?)
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let snapshot = self.database.open_snapshot()?;
        let mut rows = Vec::new();
        for row in snapshot.rows(&self.rows) {
            let mut row = *row?;
            rows.push((row.key(), *row.number()));
        }
        rows.sort_unstable();
        Ok(rows.into_iter().map(|(_, number)| number).collect())
    }
}
