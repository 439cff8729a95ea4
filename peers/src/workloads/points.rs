//! One operation on one row: a read of all its bytes, or an update of its number. Rows are drawn while the clock runs.

use std::marker::PhantomData;

use super::zipf::Ranks;
use super::{Workload, check_equal, random};
use crate::store::{self, Operation, Result, Store};

/// The share of updates, and the popularity of the rows.
pub trait Mix: Send {
    /// The name in tables.
    const NAME: &'static str;

    /// How many operations of a hundred are updates.
    const UPDATES_PERCENT: u8;

    /// The exponent of Zipf's law by which rows are drawn; `None` if all are equally popular. Keys are ranks: the most
    /// popular row has the key 0.
    const EXPONENT: Option<f64>;
}

/// A fifth of the operations are updates, of any row.
#[derive(Debug)]
pub enum Rmw {}

impl Mix for Rmw {
    const NAME: &'static str = "RMW";
    const UPDATES_PERCENT: u8 = 20;
    const EXPONENT: Option<f64> = None;
}

/// Half of the operations are updates, mostly of popular rows.
#[derive(Debug)]
pub enum YcsbA {}

impl Mix for YcsbA {
    const NAME: &'static str = "YCSB-A";
    const UPDATES_PERCENT: u8 = 50;
    const EXPONENT: Option<f64> = Some(0.99);
}

/// One operation in twenty is an update, mostly of popular rows.
#[derive(Debug)]
pub enum YcsbB {}

impl Mix for YcsbB {
    const NAME: &'static str = "YCSB-B";
    const UPDATES_PERCENT: u8 = 5;
    const EXPONENT: Option<f64> = Some(0.99);
}

/// A client of single operations.
pub struct Points<M> {
    random: fastrand::Rng,
    rows: u64,
    ranks: Option<Ranks>,
    updates: i64,
    mix: PhantomData<M>,
}

impl<M: Mix> Workload for Points<M> {
    const NAME: &'static str = M::NAME;
    const ROWS: u64 = 1_000_000;

    fn new(thread: usize, rows: u64) -> Self {
        let ranks = M::EXPONENT.map(|exponent| Ranks::new(thread, rows, exponent));
        Points { random: random(thread), rows, ranks, updates: 0, mix: PhantomData }
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let key = match &mut self.ranks {
            None => self.random.u64(..self.rows) as u32,
            Some(ranks) => ranks.draw(),
        };
        if self.random.u8(..100) < M::UPDATES_PERCENT {
            store.perform(&[Operation::Update(key)])?;
            self.updates += 1;
        } else if store.perform(&[Operation::Read(key)])? != store::payload_checksum(key.into()) {
            return Err("wrong result: the checksum of a row that was read".into());
        }
        Ok(())
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let updates = clients.iter().map(|client| client.updates).sum();
        check_equal(format_args!("the sum of all numbers"), numbers.iter().sum(), updates)
    }
}
