//! LMDB in a directory in memory, without synchronization to a disk.

use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RoTxn, RwTxn};
use tempfile::TempDir;

use crate::store::{Operation, Result, Store, are_reads, bytes};

/// The most bytes that the file may have: far more than the rows take.
const MAP_BYTES: usize = 1 << 30;

type Rows = heed::Database<'static, U64<heed::byteorder::NativeEndian>, Bytes, IntegerComparator>;

/// An environment with one table.
pub struct Lmdb {
    environment: heed::Env,
    rows: Rows,
    /// Removes the files when the store is dropped.
    _directory: TempDir,
}

impl Lmdb {
    /// Runs a transaction that writes. LMDB has one writer at a time, so there are no conflicts.
    fn write<R>(&self, body: impl FnOnce(&Rows, &mut RwTxn<'_>) -> Result<R>) -> Result<R> {
        let mut transaction = self.environment.write_txn()?;
        let result = body(&self.rows, &mut transaction)?;
        transaction.commit()?;
        Ok(result)
    }
}

/// Adds to the number of a row, and returns the new number.
fn add(rows: &Rows, transaction: &mut RwTxn<'_>, key: u64, addend: i64) -> Result<i64> {
    let value = rows.get(transaction, &key)?.ok_or("no such row")?;
    let changed = bytes::with_added(value, addend);
    rows.put(transaction, &key, &changed)?;
    Ok(bytes::number(&changed))
}

/// Returns the checksum of a row's payload.
fn read(rows: &Rows, transaction: &RoTxn<'_>, key: u32) -> Result<u32> {
    Ok(bytes::checksum(rows.get(transaction, &key.into())?.ok_or("no such row")?))
}

impl Store for Lmdb {
    fn open(rows: u64) -> Result<Self> {
        let in_memory = std::path::Path::new("/dev/shm");
        let directory = match in_memory.is_dir() {
            true => TempDir::new_in(in_memory)?,
            false => TempDir::new()?,
        };
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        let flags = EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP;
        // SAFETY: these flags give up durability only. No other code opens the new directory.
        let environment = unsafe { options.flags(flags).open(directory.path())? };
        // Open files remain usable without their names. So nothing is left behind, even if the process is killed.
        #[cfg(unix)]
        std::fs::remove_dir_all(directory.path())?;
        let created = environment.create_databases_and_commit(
            environment.write_txn()?,
            |opener, transaction| {
                let options = opener.database_options().types().key_comparator();
                options.create(transaction).map(CommitOrAbort::<_, ()>::Commit)
            },
        );
        let table = created?.commit().ok_or("the creation of the table was aborted")?;
        let store = Lmdb { environment, rows: table, _directory: directory };
        store.write(|table, transaction| {
            for key in 0..rows {
                // The keys ascend, so LMDB need not look for their places.
                table.put_with_flags(transaction, PutFlags::APPEND, &key, &bytes::inserted(key))?;
            }
            Ok(())
        })?;
        Ok(store)
    }

    fn add_one(&self, key: u64) -> Result<()> {
        self.write(|rows, transaction| add(rows, transaction, key, 1))?;
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        self.write(|rows, transaction| {
            Ok((add(rows, transaction, from, -1)?, add(rows, transaction, to, 1)?))
        })
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        let mut sum = 0_u32;
        if are_reads(operations) {
            let transaction = self.environment.read_txn()?;
            for operation in operations {
                let (Operation::Read(key) | Operation::Update(key)) = *operation;
                sum = sum.wrapping_add(read(&self.rows, &transaction, key)?);
            }
            return Ok(sum);
        }
        self.write(|rows, transaction| {
            for operation in operations {
                match *operation {
                    Operation::Read(key) => sum = sum.wrapping_add(read(rows, transaction, key)?),
                    Operation::Update(key) => {
                        add(rows, transaction, key.into(), 1)?;
                    }
                }
            }
            Ok(sum)
        })
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let transaction = self.environment.read_txn()?;
        self.rows.iter(&transaction)?.map(|row| Ok(bytes::number(row?.1))).collect()
    }
}
