//! Dependencies that cannot be seen, and tables that are not known.
#![allow(unused)]

use weft::operation::Add;
use weft::protocol::Protocol;
use weft::{Error, Record, Table, Transaction, column_of};
use weft_procedures::procedure;

#[derive(Clone, Record)]
struct Row {
    #[record(key)]
    id: u32,
    #[record(index)]
    value: i64,
}

struct Tables(Vec<Table<Row>>);

#[procedure(ClosureWrites)]
fn closure_writes<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
    found: &mut Vec<i64>,
) -> Result<(), Error> {
    let mut sum = 0;
    tx.update(rows, &1, |row| sum += row.value)?;
    tx.update(rows, &2, |row| found.push(row.value))?;
    let alias = &mut sum;
    tx.update(rows, &3, |row| *alias = row.value)?;
    Ok(())
}

#[procedure(WhichTable)]
fn which_table<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    for rows in &tables.0 {
        tx.get(rows, &1)?;
    }
    Ok(())
}

#[procedure(WhichIndex)]
fn which_index<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    tx.prefix_by(rows, { Row::VALUE }, &1).count();
    Ok(())
}

#[procedure(WhichOperation)]
fn which_operation<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    let operation = Add(1);
    tx.apply(rows, &1, column_of!(Row.value), operation)
}

#[procedure(Unsafe)]
fn with_unsafe<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    let mut key = 1;
    let place = &raw mut key;
    unsafe { *place = 2 };
    tx.get(rows, &key)?;
    Ok(())
}

#[procedure(ByRef)]
fn by_ref<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    let mut keys = Some(1);
    if let Some(ref mut key) = keys {
        *key = tx.get(rows, &1)?.map_or(0, |row| row.id);
    }
    Ok(())
}

#[procedure(Waits)]
fn waits<P: Protocol>(
    rows: &Table<Row>,
    tx: &Transaction<'_, P>,
) -> Result<(), Error> {
    let later = async { tx.get(rows, &1) };
    Ok(())
}

fn main() {}
