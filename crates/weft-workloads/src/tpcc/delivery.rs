//! The Delivery transaction (clause 2.7): the oldest order of each district is delivered.
//!
//! A read-write transaction of some 130 rows. The specification queues it and lets it run later,
//! in the background (clause 2.7.2); here it is executed at once, as an ordinary transaction, and
//! one transaction delivers for all ten districts, as clause 2.7 leaves to the implementation.

use std::hint::black_box;

use arrayvec::ArrayVec;
use weft::protocol::Protocol;
use weft::{Error, Failure, Transaction};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::schema::{Cents, DISTRICTS, Timestamp};
use super::{Tables, Tpcc, failure_of};

/// What the user enters (clause 2.7.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w_id: u16,
    /// Who delivers.
    pub carrier_id: u8,
    /// When.
    pub date: Timestamp,
}

impl Input {
    /// Draws an input by clause 2.7.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        Input {
            w_id: client.draw_home(),
            carrier_id: client.random.within_u8(1, 10),
            date: Timestamp::now(),
        }
    }
}

/// The order delivered for each district, if it had one: the result file's content (clause
/// 2.7.2).
pub type Output = [Option<u32>; DISTRICTS as usize];

/// Draws an input and runs the transaction; it is never rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let mut delivery = Delivery::new(&tpcc.tables, &input);
    let output = tpcc.database.execute(&mut delivery).map_err(failure_of)?;
    black_box(&output);
    Ok(false)
}

/// An order on its way.
struct Order {
    d_id: u8,
    o_id: u32,
    c_id: u32,
    /// The sum of its lines.
    total: Cents,
}

/// The transaction's profile (clause 2.7.4.2), for all districts, table by table: so customers can be fetched
/// together once they are known, and so it can be chopped.
#[procedure(Delivery)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    input: &Input,
) -> Result<Output, Error> {
    let &Input { w_id, carrier_id, date } = input;

    // Of each district the new order with the lowest number, which is not new any more; without one the
    // district is skipped.
    let mut oldest = ArrayVec::<(u8, u32), { DISTRICTS as usize }>::new();
    for d_id in 1..=DISTRICTS {
        let Some(row) = tx.prefix(&tables.new_order, &(w_id, d_id)).next() else {
            continue;
        };
        let o_id = row?.no_o_id;
        tx.delete(&tables.new_order, &(w_id, d_id, o_id))?;
        oldest.push((d_id, o_id));
    }

    // The orders get the carrier. (An order is inserted together with its new order. One that is missing
    // here has been seen half-way by an attempt that will not commit; the consistency conditions would tell
    // if it did.)
    let mut orders = ArrayVec::<Order, { DISTRICTS as usize }>::new();
    for &(d_id, o_id) in &oldest {
        let c_id = tx.update(&tables.order, &(w_id, d_id, o_id), |order| {
            order.o_carrier_id = Some(carrier_id);
            order.o_c_id
        })?;
        orders.extend(c_id.map(|c_id| Order { d_id, o_id, c_id, total: 0 }));
    }
    tx.prefetch_for_update(
        &tables.customer,
        orders.iter().map(|order| (w_id, order.d_id, order.c_id)),
    )?;

    // The lines of the orders get the date, and their amounts are added up.
    for order in &mut orders {
        for line in tx.prefix(&tables.order_line, &(w_id, order.d_id, order.o_id)) {
            let line = line?;
            order.total += line.ol_amount;
            let key = (w_id, order.d_id, order.o_id, line.ol_number);
            tx.update(&tables.order_line, &key, |line| line.ol_delivery_d = Some(date))?;
        }
    }

    // The customers owe the totals.
    let mut output = [None; DISTRICTS as usize];
    for &Order { d_id, o_id, c_id, total } in &orders {
        tx.update(&tables.customer, &(w_id, d_id, c_id), |customer| {
            customer.c_balance += total;
            customer.c_delivery_cnt += 1;
        })?
        .expect("customers are never removed");
        output[usize::from(d_id) - 1] = Some(o_id);
    }
    Ok(output)
}
