//! The invariants of the flash sale, checked on a database at rest.
//!
//! A sale of units that were not there, an order that was lost or done by half, and one that was done twice each
//! break one of them.

use weft::{Failure, Snapshot};

use super::client::{RequestSource, Sold};
use super::{Buyer, Item, Parameters, Tables, UNITS_RESTOCKED};
use crate::finding::Finding;
use crate::walk;
use crate::workload::{Condition, Progress};

/// Checks every invariant.
pub(super) fn verify(
    snapshot: &Snapshot,
    tables: &Tables,
    parameters: &Parameters,
    source: &RequestSource,
    progress: Progress<'_>,
) -> Result<Vec<Condition>, Failure> {
    let &Parameters { items, buyers, stock, .. } = parameters;
    let Sold { orders, units, restocks } = source.sold();
    let rows = items + buyers;

    let mut not_oversold =
        Finding::new("items: each exists, and never fewer than 0 units are left");
    let mut conserved = Finding::new("items: the units left and sold are those supplied");
    let (mut sold, mut supplied) = (0_i128, 0_i128);
    walk::keys(snapshot, &tables.items, 0..items, |id, row: Option<&Item>| {
        let holds = row.is_some_and(|row| row.left >= 0);
        not_oversold.check(holds, format_args!("item {id}: {row:?}"));
        if let Some(row) = row {
            conserved.check(row.left + row.sold == row.supplied, format_args!("{row:?}"));
            sold += i128::from(row.sold);
            supplied += i128::from(row.supplied);
        }
    })?;
    progress(items, rows);

    let mut of_buyers =
        Finding::new("buyers: each exists, with as many orders and units as there are rows");
    let (mut ordered, mut inserted) = (0_i128, 0_u64);
    let mut numbered = Finding::new("orders: each buyer's are numbered from 1");
    let mut counted: Vec<(u32, i64)> = vec![(0, 0); buyers as usize];
    for row in snapshot.rows(&tables.orders) {
        let row = row?;
        inserted += 1;
        ordered += i128::from(row.units);
        let Some(of_buyer) = counted.get_mut(row.buyer as usize) else {
            numbered.check(false, format_args!("{row:?}"));
            continue;
        };
        of_buyer.0 += 1;
        of_buyer.1 += row.units;
        numbered.check(of_buyer.0 == row.number, format_args!("{row:?}, the {}th", of_buyer.0));
    }
    walk::keys(snapshot, &tables.buyers, 0..buyers, |id, row: Option<&Buyer>| {
        let expected = counted[id as usize];
        let found = row.map(|row| (row.orders, row.units));
        of_buyers
            .check(found == Some(expected), format_args!("buyer {id}: {found:?}, {expected:?}"));
    })?;
    numbered.check(inserted == orders, format_args!("{inserted} rows, {orders} committed orders"));

    let mut of_units =
        Finding::new("the units sold are those of the rows, and of the committed orders");
    let is_same = sold == ordered && sold == i128::from(units);
    of_units.check(is_same, format_args!("{sold}, {ordered} and {units}"));
    let mut of_restocks =
        Finding::new("the units supplied are those of the load and of committed restocks");
    let expected =
        i128::from(items) * i128::from(stock) + i128::from(restocks) * i128::from(UNITS_RESTOCKED);
    of_restocks.check(supplied == expected, format_args!("{supplied} and {expected}"));
    progress(rows, rows);
    let all = [not_oversold, conserved, of_buyers, numbered, of_units, of_restocks];
    Ok(all.map(Finding::into_condition).into())
}
