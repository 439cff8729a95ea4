//! Functions that are no procedures.
#![allow(unused)]

use weft::protocol::Protocol;
use weft::{Error, Record, Table, Transaction};
use weft_procedures::procedure;

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: u32,
}

#[procedure]
fn unnamed<P: Protocol>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    Ok(())
}

#[procedure(Option, isolation = "serializable")]
fn unknown_option<P: Protocol>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    Ok(())
}

#[procedure(WithoutTransaction)]
fn without_transaction<P: Protocol>(rows: &Table<Row>) -> Result<(), Error> {
    Ok(())
}

#[procedure(WithoutResult)]
fn without_result<P: Protocol>(tx: &Transaction<'_, P>) -> u32 {
    1
}

#[procedure(OtherResult)]
fn other_result<P: Protocol>(tx: &Transaction<'_, P>) -> std::io::Result<()> {
    Ok(())
}

#[procedure(TakenApart)]
fn taken_apart<P: Protocol>(tx: &Transaction<'_, P>, (a, b): (u32, u32)) -> Result<u32, Error> {
    Ok(a + b)
}

#[procedure(Opaque)]
fn opaque<P: Protocol>(tx: &Transaction<'_, P>, keys: impl Iterator<Item = u32>) -> Result<(), Error> {
    Ok(())
}

#[procedure(Constant)]
fn constant<P: Protocol, const N: usize>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    Ok(())
}

#[procedure(Asynchronous)]
async fn asynchronous<P: Protocol>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    Ok(())
}

#[procedure(ServedGeneric, served)]
fn served_generic<P: Protocol>(tx: &Transaction<'_, P>) -> Result<(), Error> {
    Ok(())
}

#[procedure(ServedExclusive, served)]
fn served_exclusive(tx: &Transaction<'_>, sum: &mut u64) -> Result<(), Error> {
    Ok(())
}

struct Rows;

impl Rows {
    #[procedure(Method)]
    fn method<P: Protocol>(&self, tx: &Transaction<'_, P>) -> Result<(), Error> {
        Ok(())
    }
}

fn main() {}
