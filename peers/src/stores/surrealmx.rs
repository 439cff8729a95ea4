//! SurrealMX, with its serializable transactions.

use surrealmx::{Database, Error, Transaction};

use crate::store::{Operation, Result, Store, are_reads, bytes};

/// A database with one key space.
pub struct SurrealMx(Database);

impl SurrealMx {
    /// Runs a transaction that writes, again and again until it commits.
    fn write<R>(&self, mut body: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        loop {
            let mut transaction = self.0.transaction(true);
            let result = body(&mut transaction)?;
            match transaction.commit() {
                Ok(()) => return Ok(result),
                // Trying again at once is slower: the conflict is often still there.
                Err(Error::KeyReadConflict | Error::KeyWriteConflict) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Keys are ordered by their bytes, so the first byte is the most significant one.
fn key_bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// Adds to the number of a row, and returns the new number.
fn add(transaction: &mut Transaction, key: u64, addend: i64) -> Result<i64> {
    let key = key_bytes(key);
    let changed = transaction.with_value(&key[..], |value| bytes::with_added(value, addend))?;
    let changed = changed.ok_or("no such row")?;
    transaction.set(&key[..], &changed[..])?;
    Ok(bytes::number(&changed))
}

/// Returns the checksum of a row's payload.
fn read(transaction: &Transaction, key: u32) -> Result<u32> {
    let sum = transaction.with_value(&key_bytes(key.into())[..], bytes::checksum)?;
    Ok(sum.ok_or("no such row")?)
}

impl Store for SurrealMx {
    fn open(rows: u64) -> Result<Self> {
        let store = SurrealMx(Database::new());
        store.write(|transaction| {
            for key in 0..rows {
                transaction.put(&key_bytes(key)[..], &bytes::inserted(key)[..])?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    fn add_one(&self, key: u64) -> Result<()> {
        self.write(|transaction| add(transaction, key, 1))?;
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        self.write(|transaction| Ok((add(transaction, from, -1)?, add(transaction, to, 1)?)))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        if are_reads(operations) {
            let mut transaction = self.0.transaction(false);
            let mut sum = 0_u32;
            for operation in operations {
                let (Operation::Read(key) | Operation::Update(key)) = *operation;
                sum = sum.wrapping_add(read(&transaction, key)?);
            }
            transaction.cancel()?;
            return Ok(sum);
        }
        self.write(|transaction| {
            let mut sum = 0_u32;
            for operation in operations {
                match *operation {
                    Operation::Read(key) => sum = sum.wrapping_add(read(transaction, key)?),
                    Operation::Update(key) => {
                        add(transaction, key.into(), 1)?;
                    }
                }
            }
            Ok(sum)
        })
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let transaction = self.0.transaction(false);
        let rows = transaction.scan(&[0; 8][..]..&[0xFF; 8][..], None, None)?;
        Ok(rows.iter().map(|(_, value)| bytes::number(value)).collect())
    }
}
