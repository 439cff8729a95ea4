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

impl<M: Mix> Points<M> {
    /// Draws the next operation, and counts it if it is an update.
    #[inline]
    fn draw(&mut self) -> Operation {
        let key = match &mut self.ranks {
            None => self.random.u64(..self.rows) as u32,
            Some(ranks) => ranks.draw(),
        };
        if self.random.u8(..100) < M::UPDATES_PERCENT {
            self.updates += 1;
            Operation::Update(key)
        } else {
            Operation::Read(key)
        }
    }
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
        let operation = self.draw();
        run_all(&[operation], |operations| store.perform(operations))
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let updates = clients.iter().map(|client| client.updates).sum();
        check_equal(format_args!("the sum of all numbers"), numbers.iter().sum(), updates)
    }
}

/// The number of operations of a transaction of [`Together`].
const TOGETHER: usize = 16;

/// Sixteen operations of [`Rmw`] in one transaction, whose order doesn't matter.
pub struct Together(Points<Rmw>);

impl Workload for Together {
    const NAME: &'static str = "16 × RMW";
    const ROWS: u64 = Points::<Rmw>::ROWS;

    fn new(thread: usize, rows: u64) -> Self {
        Together(Points::new(thread, rows))
    }

    #[inline]
    fn run(&mut self, store: &impl Store) -> Result<()> {
        let operations: [_; TOGETHER] = std::array::from_fn(|_| self.0.draw());
        run_all(&operations, |operations| store.perform_together(operations))
    }

    fn verify(clients: &[&Self], numbers: &[i64]) -> Result<()> {
        let clients: Vec<_> = clients.iter().map(|client| &client.0).collect();
        Points::verify(&clients, numbers)
    }
}

/// Performs operations, and checks what they have read.
#[inline]
fn run_all(
    operations: &[Operation],
    perform: impl FnOnce(&[Operation]) -> Result<u32>,
) -> Result<()> {
    let read = operations.iter().filter_map(Operation::read_key);
    let expected = read.map(store::payload_checksum).fold(0, u32::wrapping_add);
    if perform(operations)? == expected {
        return Ok(());
    }
    Err("wrong result: the checksum of the rows that were read".into())
}
