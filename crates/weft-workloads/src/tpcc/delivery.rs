//! The Delivery transaction (clause 2.7), which delivers the oldest order of each district.
//!
//! It is a read-write transaction of about 130 rows. The specification queues it and lets it run later, in the
//! background (clause 2.7.2). Here it is executed at once, as an ordinary transaction. One transaction delivers for
//! all ten districts; clause 2.7 leaves this choice to the implementation.

use std::hint::black_box;

use arrayvec::ArrayVec;
use weft::protocol::Protocol;
use weft::{Error, Failure, Transaction};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::schema::{Cents, DISTRICTS, Timestamp};
use super::{Tables, Tpcc, failure_of};

/// The input from the user (clause 2.7.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w_id: u16,
    /// The carrier that delivers.
    pub carrier_id: u8,
    /// The date of delivery.
    pub date: Timestamp,
    /// For each district, an order number below which there is no new order. The search for the oldest one begins here.
    pub first: [u32; DISTRICTS as usize],
}

impl Input {
    /// Draws an input as in clause 2.7.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        let w_id = client.draw_home();
        Input {
            w_id,
            carrier_id: client.random.within_u8(1, 10),
            date: Timestamp::now(),
            first: client.first_new_orders(w_id),
        }
    }
}

/// The order delivered in each district, if it had one: the content of the result file (clause 2.7.2).
pub type Output = [Option<u32>; DISTRICTS as usize];

/// Draws an input and runs the transaction, which is never rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let mut delivery = Delivery::new(&tpcc.tables, &input);
    let output = tpcc.database.execute(&mut delivery).map_err(failure_of)?;
    client.note_delivered(input.w_id, black_box(&output));
    Ok(false)
}

/// An order that is being delivered.
struct Order {
    d_id: u8,
    o_id: u32,
    c_id: u32,
    /// The sum of its lines.
    total: Cents,
}

/// Runs the transaction's profile (clause 2.7.4.2). It works table by table, for all districts at once. So it can
/// fetch customers together once they are known, and so it can be chopped.
#[procedure(Delivery)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    input: &Input,
) -> Result<Output, Error> {
    let &Input { w_id, carrier_id, date, first } = input;

    // Remove the new order with the lowest number of each district: it is no longer new. A district without new
    // orders is skipped.
    let mut oldest = ArrayVec::<(u8, u32), { DISTRICTS as usize }>::new();
    for d_id in 1..=DISTRICTS {
        let numbers = (w_id, d_id, first[usize::from(d_id) - 1])..=(w_id, d_id, u32::MAX);
        let Some(row) = tx.range(&tables.new_order, numbers).next() else {
            continue;
        };
        let o_id = row?.no_o_id;
        tx.delete(&tables.new_order, &(w_id, d_id, o_id))?;
        oldest.push((d_id, o_id));
    }

    // Set the orders' carrier. An order is inserted together with its new order. If an order is missing here, this
    // attempt has read two states of the database and will not commit. If it did commit, the consistency conditions
    // would find it.
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

    // Set the date of the orders' lines, and sum up their amounts.
    for order in &mut orders {
        for line in tx.prefix(&tables.order_line, &(w_id, order.d_id, order.o_id)) {
            let line = line?;
            order.total += line.ol_amount;
            let key = (w_id, order.d_id, order.o_id, line.ol_number);
            tx.update(&tables.order_line, &key, |line| line.ol_delivery_d = Some(date))?;
        }
    }

    // Add the totals to the customers' balances.
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
