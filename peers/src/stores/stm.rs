//! fast-stm, software transactional memory: an array of transactional variables, one for each row, without an index.

use fast_stm::{TVar, atomically};

use crate::store::{Operation, PAYLOAD_BYTES, Result, Store, checksum, payload};

/// The rows, in the order of their keys.
pub struct Stm(Vec<TVar<Row>>);

#[derive(Clone)]
struct Row {
    number: i64,
    payload: [u8; PAYLOAD_BYTES],
}

impl Stm {
    fn row(&self, key: u64) -> Result<&TVar<Row>> {
        Ok(self.0.get(key as usize).ok_or("no such row")?)
    }
}

fn add(row: &mut Row, addend: i64) -> i64 {
    row.number += addend;
    row.number
}

impl Store for Stm {
    fn open(rows: u64) -> Result<Self> {
        Ok(Stm((0..rows).map(|key| TVar::new(Row { number: 0, payload: payload(key) })).collect()))
    }

    fn add_one(&self, key: u64) -> Result<()> {
        let row = self.row(key)?;
        atomically(|transaction| {
            let mut changed = row.read(transaction)?;
            add(&mut changed, 1);
            row.write(transaction, changed)
        });
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        let rows = [(self.row(from)?, -1), (self.row(to)?, 1)];
        let [from, to] = atomically(|transaction| {
            let mut numbers = [0; 2];
            for ((row, addend), number) in rows.iter().zip(&mut numbers) {
                let mut changed = row.read(transaction)?;
                *number = add(&mut changed, *addend);
                row.write(transaction, changed)?;
            }
            Ok(numbers)
        });
        Ok((from, to))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        for operation in operations {
            let (Operation::Read(key) | Operation::Update(key)) = *operation;
            self.row(key.into())?;
        }
        Ok(atomically(|transaction| {
            let mut sum = 0_u32;
            for operation in operations {
                match *operation {
                    Operation::Read(key) => {
                        let row = self.0[key as usize].read(transaction)?;
                        sum = sum.wrapping_add(checksum(&row.payload));
                    }
                    Operation::Update(key) => {
                        let row = &self.0[key as usize];
                        let mut changed = row.read(transaction)?;
                        add(&mut changed, 1);
                        row.write(transaction, changed)?;
                    }
                }
            }
            Ok(sum)
        }))
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        // No transaction is running any more.
        Ok(self.0.iter().map(|row| row.read_atomic().number).collect())
    }
}
