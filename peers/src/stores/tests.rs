//! What every store must do, at a small size.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use weft::protocol::Dbx;
use weft_protocols::Doppel;

use super::{
    lmdb::Lmdb, mutex::MutexMap, redb::Redb, sharded::ShardedMap, sqlite::Sqlite, stm::Stm,
    surrealmx::SurrealMx, weft::HashedRow, weft::Weft,
};
use crate::round::{Contender, Plan, StoreAndClients};
use crate::store::{Operation, Result, Store, checksum, payload};
use crate::workloads::{Counter, Incr, Like, Points, Reads, Transfers, Workload, YcsbA};

const ROWS: u64 = 300;

/// Rows are inserted in the order of their keys, transactions do what they say, and a row that doesn't exist is an
/// error that changes nothing.
fn check_transactions<S: Store>() -> Result<()> {
    let store = S::open(ROWS)?;
    assert_eq!(store.numbers()?, vec![0; ROWS as usize]);

    store.add_one(7)?;
    store.add_one(7)?;
    assert_eq!(store.transfer(7, 299)?, (1, 1));
    assert_eq!(store.transfer(256, 299)?, (-1, 2));

    let reads = [Operation::Read(0), Operation::Read(256), Operation::Read(0)];
    let [zero, other] = [0, 256].map(|key| checksum(&payload(key)));
    let sum = zero.wrapping_add(other).wrapping_add(zero);
    assert_eq!(store.perform(&reads)?, sum);
    let mixed = [reads.as_slice(), &[Operation::Update(7), Operation::Update(0)]].concat();
    assert_eq!(store.perform(&mixed)?, sum);

    let mut expected = vec![0; ROWS as usize];
    (expected[0], expected[7], expected[256], expected[299]) = (1, 2, -1, 2);
    assert_eq!(store.numbers()?, expected);
    Ok(())
}

/// Nothing is lost when two threads run a workload at the same time.
fn check_workload<S: Store, W: Workload>(rows: u64) -> Result<()> {
    let plan = Plan { processors: 2, warmup: Duration::ZERO, measured: Duration::from_millis(20) };
    let mut contender = StoreAndClients::<S, W>::open(2, rows)?;
    for _ in 0..2 {
        assert!(contender.round(&plan)?.rate > 0.0);
        contender.verify()?;
    }
    Ok(())
}

/// Transfers between the same two rows in both directions see each other whole or not at all.
fn check_isolation<S: Store>() -> Result<()> {
    const TRANSFERS: usize = 500;
    let (store, start) = (S::open(2)?, Barrier::new(2));
    let transfer_often = |(from, to)| {
        start.wait();
        for _ in 0..TRANSFERS {
            let (one, other) = store.transfer(from, to)?;
            assert_eq!(one + other, 0, "a transfer has seen half of another one");
        }
        Result::Ok(())
    };
    thread::scope(|scope| {
        let threads = [(0, 1), (1, 0)].map(|rows| {
            let transfer_often = &transfer_often;
            scope.spawn(move || transfer_often(rows))
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    assert_eq!(store.numbers()?, [0, 0]);
    Ok(())
}

fn check_all<S: Store>() -> Result<()> {
    check_transactions::<S>()?;
    check_workload::<S, Counter>(1)?;
    check_workload::<S, Transfers>(10)?;
    check_workload::<S, Reads>(100)?;
    check_workload::<S, Points<YcsbA>>(100)?;
    check_workload::<S, Like>(100)?;
    check_workload::<S, Incr<50>>(100)?;
    check_isolation::<S>()
}

#[test]
fn weft_with_dbx_keeps_its_promises() -> Result<()> {
    check_all::<Weft<Dbx>>()
}

#[test]
fn weft_with_doppel_keeps_its_promises() -> Result<()> {
    check_all::<Weft<Doppel>>()
}

#[test]
fn weft_with_a_hash_table_keeps_its_promises() -> Result<()> {
    check_all::<Weft<Dbx, HashedRow>>()
}

#[test]
fn sharded_keeps_its_promises() -> Result<()> {
    check_all::<ShardedMap>()
}

#[test]
fn stm_keeps_its_promises() -> Result<()> {
    check_all::<Stm>()
}

#[test]
fn mutex_keeps_its_promises() -> Result<()> {
    check_all::<MutexMap>()
}

#[test]
fn surrealmx_keeps_its_promises() -> Result<()> {
    check_all::<SurrealMx>()
}

#[test]
fn lmdb_keeps_its_promises() -> Result<()> {
    check_all::<Lmdb>()
}

#[test]
fn sqlite_keeps_its_promises() -> Result<()> {
    check_all::<Sqlite>()
}

#[test]
fn redb_keeps_its_promises() -> Result<()> {
    check_all::<Redb>()
}
