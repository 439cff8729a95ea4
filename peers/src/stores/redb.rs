//! redb on its in-memory backend, with commits that are not durable.

use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::store::{Operation, Result, Store, VALUE_BYTES, are_reads, bytes};

const ROWS: TableDefinition<'_, u64, &[u8; VALUE_BYTES]> = TableDefinition::new("rows");

type Rows<'tx> = Table<'tx, u64, &'static [u8; VALUE_BYTES]>;

/// A database with one table.
pub struct Redb(Database);

impl Redb {
    /// Runs a transaction that writes. redb has one writer at a time, so there are no conflicts.
    fn write<R>(&self, body: impl FnOnce(&mut Rows<'_>) -> Result<R>) -> Result<R> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let result = body(&mut transaction.open_table(ROWS)?)?;
        transaction.commit()?;
        Ok(result)
    }
}

/// Adds to the number of a row, and returns the new number.
fn add(rows: &mut Rows<'_>, key: u64, addend: i64) -> Result<i64> {
    let mut value = rows.get_mut(key)?.ok_or("no such row")?;
    let changed = bytes::with_added(value.value(), addend);
    value.insert(&changed)?;
    Ok(bytes::number(&changed))
}

/// Returns the checksum of a row's payload.
fn read(rows: &impl ReadableTable<u64, &'static [u8; VALUE_BYTES]>, key: u32) -> Result<u32> {
    let value = rows.get(u64::from(key))?.ok_or("no such row")?;
    Ok(bytes::checksum(value.value()))
}

impl Store for Redb {
    fn open(rows: u64) -> Result<Self> {
        let store = Redb(Database::builder().create_with_backend(InMemoryBackend::new())?);
        store.write(|table| {
            for key in 0..rows {
                table.insert(key, &bytes::inserted(key))?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    fn add_one(&self, key: u64) -> Result<()> {
        self.write(|rows| add(rows, key, 1))?;
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        self.write(|rows| Ok((add(rows, from, -1)?, add(rows, to, 1)?)))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        let mut sum = 0_u32;
        if are_reads(operations) {
            let rows = self.0.begin_read()?.open_table(ROWS)?;
            for operation in operations {
                let (Operation::Read(key) | Operation::Update(key)) = *operation;
                sum = sum.wrapping_add(read(&rows, key)?);
            }
            return Ok(sum);
        }
        self.write(|rows| {
            for operation in operations {
                match *operation {
                    Operation::Read(key) => sum = sum.wrapping_add(read(rows, key)?),
                    Operation::Update(key) => {
                        add(rows, key.into(), 1)?;
                    }
                }
            }
            Ok(sum)
        })
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let rows = self.0.begin_read()?.open_table(ROWS)?;
        rows.iter()?.map(|row| Ok(bytes::number(row?.1.value()))).collect()
    }
}
