//! Operations that are not in plain sight.
#![allow(unused)]

use weft::protocol::Protocol;
use weft::{Error, Record, Table, Transaction};
use weft_procedures::procedure;

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: u32,
    value: i64,
}

fn elsewhere<P: Protocol>(_: &Transaction<'_, P>, _: u32) -> Result<(), Error> {
    Ok(())
}

struct Held<'t, T>(&'t T);

#[procedure(PassedOn)]
fn passed_on<P: Protocol>(tx: &Transaction<'_, P>, id: u32) -> Result<(), Error> {
    elsewhere(tx, id)
}

#[procedure(Stored)]
fn stored<P: Protocol>(tx: &Transaction<'_, P>, id: u32) -> Result<u32, Error> {
    let held = Held(tx);
    let again = tx;
    Ok(id)
}

#[procedure(InClosure)]
fn in_closure<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
    ids: &[u32],
) -> Result<usize, Error> {
    Ok(ids.iter().filter(|id| tx.get(rows, *id).is_ok()).count())
}

#[procedure(InMacro)]
fn in_macro<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Error> {
    assert!(tx.get(rows, &id)?.is_some());
    println!("{tx:?}");
    Ok(())
}

#[procedure(OtherMethod)]
fn other_method<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Error> {
    tx.delete(rows, &id)?;
    tx.rollback();
    tx.replace(rows, &id)?;
    Ok(())
}

#[procedure(WithSavepoint)]
fn with_savepoint<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
    id: u32,
) -> Result<(), Error> {
    tx.savepoint(|tx| tx.insert(rows, Row { id, value: 0 }))?;
    tx.run_due(rows, 10)?;
    Ok(())
}

#[procedure(TooDeep)]
fn too_deep<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    for a in 0..2 {
        for b in 0..2 {
            while b < a {
                loop {
                    tx.get(rows, &(a + b))?;
                }
            }
        }
    }
    Ok(())
}

fn main() {}
