//! The Order-Status transaction (clause 2.6): a customer asks for the state of the last order.
//!
//! It is a mid-weight read-only transaction.

use std::hint::black_box;

use arrayvec::{ArrayString, ArrayVec};
use weft::protocol::Protocol;
use weft::{Error, Failure};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::customer::{Selector, middle};
use super::schema::{Cents, Customer, LINES_MAX, NAME_BYTES_MAX, Order, Timestamp};
use super::{Tables, Tpcc, failure_of};
use crate::view::View;

/// The input from the user (clause 2.6.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The customer's warehouse.
    pub w_id: u16,
    /// The customer's district.
    pub d_id: u8,
    /// The customer.
    pub customer: Selector,
}

impl Input {
    /// Draws an input as in clause 2.6.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        Input {
            w_id: client.draw_home(),
            d_id: client.draw_district(),
            customer: Selector::draw(client),
        }
    }
}

/// The output on the terminal (clause 2.6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The customer's number.
    pub c_id: u32,
    /// The customer's first name.
    pub c_first: ArrayString<NAME_BYTES_MAX>,
    /// The customer's last name.
    pub c_last: ArrayString<NAME_BYTES_MAX>,
    /// The customer's balance.
    pub c_balance: Cents,
    /// The customer's last order, if there is one.
    pub order: Option<OrderOutput>,
}

/// The output on the terminal for an order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderOutput {
    /// Its number.
    pub o_id: u32,
    /// The time of entry.
    pub entry_d: Timestamp,
    /// The carrier that delivered it, or `None` if it is not delivered.
    pub carrier_id: Option<u8>,
    /// Its items.
    pub lines: ArrayVec<LineOutput, LINES_MAX>,
}

/// The output on the terminal for one item.
#[derive(Clone, Debug, PartialEq)]
pub struct LineOutput {
    /// The supplying warehouse.
    pub supply_w_id: u16,
    /// The item.
    pub i_id: u32,
    /// The ordered quantity.
    pub quantity: u8,
    /// Quantity times price.
    pub amount: Cents,
    /// The time of delivery, or `None` if it is not delivered.
    pub delivery_d: Option<Timestamp>,
}

/// Draws an input and runs the transaction, on a snapshot if the parameters say so. It is never rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let found = &mut client.found;
    let Tpcc { database, tables, parameters, .. } = tpcc;
    let output = parameters
        .snapshots
        .read(database, |snapshot| run::<P>(tables, snapshot, &input, found))
        .unwrap_or_else(|| database.execute(&mut OrderStatus::new(tables, &input, found)));
    let output = output.map_err(failure_of)?;
    black_box(&output);
    Ok(false)
}

/// Runs the transaction's profile (clause 2.6.2.2).
#[procedure(OrderStatus, transaction = view)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    input: &Input,
    found: &mut Vec<u32>,
) -> Result<Output, Error> {
    let &Input { w_id, d_id, ref customer } = input;

    // The customer, by number (case 1) or by last name (case 2).
    let c_id = match customer {
        Selector::Number(c_id) => *c_id,
        Selector::LastName(last) => {
            let name = (w_id, d_id, *last);
            found.clear();
            for customer in view.prefix_by(&tables.customer, Customer::BY_NAME, &name) {
                found.push(customer?.c_id);
            }
            middle(found)
        }
    };
    let customer =
        view.get(&tables.customer, &(w_id, d_id, c_id))?.expect("customers are never removed");
    let (c_first, c_last, c_balance) = (customer.c_first, customer.c_last, customer.c_balance);

    // The customer's order with the largest number.
    let last = view.last_by(&tables.order, Order::BY_CUSTOMER, &(w_id, d_id, c_id))?;
    let Some(order) = last else {
        return Ok(Output { c_id, c_first, c_last, c_balance, order: None });
    };

    // The order's lines.
    let mut lines = ArrayVec::new();
    for line in view.prefix(&tables.order_line, &(order.o_w_id, order.o_d_id, order.o_id)) {
        let line = line?;
        lines.push(LineOutput {
            supply_w_id: line.ol_supply_w_id,
            i_id: line.ol_i_id,
            quantity: line.ol_quantity,
            amount: line.ol_amount,
            delivery_d: line.ol_delivery_d,
        });
    }
    let order = OrderOutput {
        o_id: order.o_id,
        entry_d: order.o_entry_d,
        carrier_id: order.o_carrier_id,
        lines,
    };
    Ok(Output { c_id, c_first, c_last, c_balance, order: Some(order) })
}
