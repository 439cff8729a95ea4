//! Weft, with its default protocol `dbx` or another one.

use weft::protocol::Protocol;
use weft::{Database, Error, Record, Table, column_of};

use crate::store::{Operation, PAYLOAD_BYTES, Result, Store, checksum, payload};

/// A database with one table, whose index is a B+-tree.
pub struct Weft<P: Protocol> {
    database: Database<P>,
    rows: Table<Row>,
}

#[derive(Clone, Copy, Record)]
struct Row {
    #[record(key)]
    key: u64,
    number: i64,
    payload: [u8; PAYLOAD_BYTES],
}

impl<P: Protocol> Store for Weft<P> {
    fn open(rows: u64) -> Result<Self> {
        let database = Database::builder().protocol::<P>().table::<Row>().open()?;
        let table = database.table::<Row>()?;
        let row = |key| Ok::<_, Error>(Row { key, number: 0, payload: payload(key) });
        database.load(&table, [(0..rows).map(row)], |_| {})?;
        Ok(Weft { database, rows: table })
    }

    fn add_one(&self, key: u64) -> Result<()> {
        let added =
            self.database.transact(|tx| tx.add(&self.rows, &key, column_of!(Row.number), 1));
        added.map_err(|error: Error| error.into())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        let numbers = self.database.transact(|tx| {
            let subtract = |row: &mut Row| {
                row.number -= 1;
                row.number
            };
            let add = |row: &mut Row| {
                row.number += 1;
                row.number
            };
            let from = tx.update(&self.rows, &from, subtract)?;
            let to = tx.update(&self.rows, &to, add)?;
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
                        sum = sum.wrapping_add(row.map_or(0, |row| checksum(&row.payload)));
                    }
                    Operation::Update(key) => {
                        tx.update(&self.rows, &key.into(), |row| row.number += 1)?;
                    }
                }
            }
            Ok::<_, Error>(sum)
        });
        Ok(sum?)
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let numbers = self.database.transact(|tx| {
            let mut numbers = Vec::new();
            for row in tx.range(&self.rows, ..) {
                numbers.push(row?.number);
            }
            Ok::<_, Error>(numbers)
        });
        Ok(numbers?)
    }
}
