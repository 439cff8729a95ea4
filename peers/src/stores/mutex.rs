//! A hash map of the standard library behind a mutex: the simplest thing that works, and a bound for the others.
//! It has no order, no rollback and no snapshots.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{Operation, PAYLOAD_BYTES, Result, Store, checksum, payload};

/// The map, with its mutex.
pub struct MutexMap(Mutex<HashMap<u64, Value>>);

pub(super) struct Value {
    pub number: i64,
    pub payload: [u8; PAYLOAD_BYTES],
}

impl MutexMap {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn add(map: &mut HashMap<u64, Value>, key: u64, addend: i64) -> Result<i64> {
    let value = map.get_mut(&key).ok_or("no such row")?;
    value.number += addend;
    Ok(value.number)
}

impl Store for MutexMap {
    fn open(rows: u64) -> Result<Self> {
        let rows = (0..rows).map(|key| (key, Value { number: 0, payload: payload(key) }));
        Ok(MutexMap(Mutex::new(rows.collect())))
    }

    fn add_one(&self, key: u64) -> Result<()> {
        add(&mut self.lock(), key, 1)?;
        Ok(())
    }

    fn transfer(&self, from: u64, to: u64) -> Result<(i64, i64)> {
        let mut map = self.lock();
        Ok((add(&mut map, from, -1)?, add(&mut map, to, 1)?))
    }

    fn perform(&self, operations: &[Operation]) -> Result<u32> {
        let mut map = self.lock();
        let mut sum = 0_u32;
        for operation in operations {
            match *operation {
                Operation::Read(key) => {
                    let value = map.get(&u64::from(key)).ok_or("no such row")?;
                    sum = sum.wrapping_add(checksum(&value.payload));
                }
                Operation::Update(key) => {
                    add(&mut map, key.into(), 1)?;
                }
            }
        }
        Ok(sum)
    }

    fn numbers(&self) -> Result<Vec<i64>> {
        let map = self.lock();
        let mut numbers: Vec<_> = map.iter().map(|(key, value)| (*key, value.number)).collect();
        numbers.sort_unstable();
        Ok(numbers.into_iter().map(|(_, number)| number).collect())
    }
}
