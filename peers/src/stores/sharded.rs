//! Many hash maps of the standard library, each behind a mutex. A transaction locks the maps that it needs, in their
//! order, and unlocks them at its end: two-phase locking. There is no order of keys, no rollback and no snapshot.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mutex::{Value, add};
use crate::store::{Operation, Result, Store, checksum, payload};

const SHARDS: usize = 1024;

type Shard = HashMap<u64, Value>;

/// A map on cache lines of its own.
#[repr(align(64))]
#[derive(Default)]
struct Padded(Mutex<Shard>);

/// The maps.
pub struct ShardedMap(Vec<Padded>);

/// Returns the position of the map that holds a key.
fn shard_of(key: u64) -> usize {
    key as usize % SHARDS
}

/// The maps that a transaction has locked, in their order.
struct Locked<'s>(Vec<(usize, MutexGuard<'s, Shard>)>);

impl Locked<'_> {
    fn shard(&mut self, key: u64) -> Result<&mut Shard> {
        let found = self.0.iter_mut().find(|(shard, _)| *shard == shard_of(key));
        Ok(&mut *found.ok_or("a map is not locked")?.1)
    }
}

impl ShardedMap {
    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.0[shard].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_all(&self, keys: impl Iterator<Item = u64>) -> Locked<'_> {
        let mut shards: Vec<usize> = keys.map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        Locked(shards.into_iter().map(|shard| (shard, self.lock(shard))).collect())
    }
}

/// Performs an operation on its map, and returns the checksum of what it has read.
fn perform(shard: &mut Shard, operation: Operation) -> Result<u32> {
    match operation {
        Operation::Read(key) => {
            Ok(checksum(&shard.get(&u64::from(key)).ok_or("no such row")?.payload))
        }
        Operation::Update(key) => add(shard, key.into(), 1).map(|_| 0),
    }
}

fn key_of(operation: Operation) -> u64 {
    let (Operation::Read(key) | Operation::Update(key)) = operation;
    key.into()
}

impl Store for ShardedMap {
    fn open(rows: u64) -> Result<Self> {
        let mut shards: Vec<Padded> = (0..SHARDS).map(|_| Padded::default()).collect();
        for key in 0..rows {
            let shard = shards[shard_of(key)].0.get_mut().unwrap_or_else(PoisonError::into_inner);
            shard.insert(key, Value { number: 0, payload: payload(key) });
        }
        Ok(ShardedMap(shards))
    }

    fn add_one(&self, key: u64) -> Result<()> {
        add(&mut self.lock(shard_of(key)), key, 1)?;
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        let mut locked = self.lock_all([from, to].into_iter());
        let from = add(locked.shard(from)?, from, -1)?;
        Ok((from, add(locked.shard(to)?, to, 1)?))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        if let &[operation] = operations {
            return perform(&mut self.lock(shard_of(key_of(operation))), operation);
        }
        let mut locked = self.lock_all(operations.iter().map(|operation| key_of(*operation)));
        operations.iter().try_fold(0_u32, |sum, &operation| {
            Ok(sum.wrapping_add(perform(locked.shard(key_of(operation))?, operation)?))
        })
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let locked: Vec<_> = (0..SHARDS).map(|shard| self.lock(shard)).collect();
        let rows = locked.iter().map(|shard| shard.len() as u64).sum();
        let number = |key| locked[shard_of(key)].get(&key).map(|value| value.number);
        (0..rows).map(|key| Ok(number(key).ok_or("a row is missing")?)).collect()
    }
}
