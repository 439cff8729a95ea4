//! The New-Order transaction (clause 2.4): a customer orders five to fifteen items.
//!
//! It is a mid-weight read-write transaction, and its rate is the benchmark's result. One order in a hundred names
//! an item that does not exist, and is rolled back (clause 2.4.1.4).

use std::hint::black_box;

use arrayvec::{ArrayString, ArrayVec};
use weft::protocol::Protocol;
use weft::{Error, Failure, Transaction, column_of, columns_of};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::random::is_original;
use super::schema::{
    BasisPoints, Cents, Credit, Customer, District, Item, LINES_MAX, NAME_BYTES_MAX, NewOrderRow,
    Order, OrderLine, Timestamp, Warehouse,
};
use super::{Tables, Tpcc, failure_of};

/// The input from the user (clause 2.4.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The home warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// The customer.
    pub c_id: u32,
    /// The ordered items.
    pub lines: ArrayVec<LineInput, LINES_MAX>,
    /// The time of entry.
    pub entry_d: Timestamp,
}

/// The input from the user for one item (clause 2.4.1.5).
#[derive(Clone, Copy, Debug)]
pub struct LineInput {
    /// The item.
    pub i_id: u32,
    /// The warehouse that is to supply it.
    pub supply_w_id: u16,
    /// The ordered quantity.
    pub quantity: u8,
}

impl Input {
    /// Draws an input as in clause 2.4.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        let w_id = client.draw_home();
        let d_id = client.draw_district();
        let c_id = client.draw_customer();
        // Clause 2.4.1.3: 5 to 15 items.
        let ol_cnt = client.random.within(5, LINES_MAX as u32);
        let mut lines: ArrayVec<LineInput, LINES_MAX> =
            (0..ol_cnt).map(|_| LineInput::draw(client, w_id)).collect();
        // Clause 2.4.1.4: one order in a hundred is to be rolled back, because its last item does not exist.
        if client.random.chance(1) {
            lines[ol_cnt as usize - 1].i_id = client.scale.items + 1;
        }
        Input { w_id, d_id, c_id, lines, entry_d: Timestamp::now() }
    }

    /// Returns whether the home warehouse supplies every item.
    fn is_all_local(&self) -> bool {
        self.lines.iter().all(|line| line.supply_w_id == self.w_id)
    }
}

impl LineInput {
    /// Draws an item as in clause 2.4.1.5: a remote warehouse supplies one item in a hundred.
    #[inline]
    fn draw(client: &mut Client, w_id: u16) -> LineInput {
        let i_id = client.random.item(&client.constants, client.scale.items);
        let supply_w_id = if client.random.chance(1) { client.draw_remote(w_id) } else { w_id };
        LineInput { i_id, supply_w_id, quantity: client.random.within_u8(1, 10) }
    }
}

/// The output on the terminal (clause 2.4.3), apart from the input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The order's number.
    pub o_id: u32,
    /// The customer's last name.
    pub c_last: ArrayString<NAME_BYTES_MAX>,
    /// The customer's credit.
    pub c_credit: Option<Credit>,
    /// The customer's discount.
    pub c_discount: BasisPoints,
    /// The warehouse's tax.
    pub w_tax: BasisPoints,
    /// The district's tax.
    pub d_tax: BasisPoints,
    /// The sum of the amounts, minus the discount, plus the taxes.
    pub total_amount: Cents,
    /// One line per item; empty if the order was rolled back.
    pub lines: ArrayVec<LineOutput, LINES_MAX>,
}

/// The output on the terminal for one item.
#[derive(Clone, Debug, PartialEq)]
pub struct LineOutput {
    /// The item's name.
    pub i_name: ArrayString<24>,
    /// Its price.
    pub i_price: Cents,
    /// The quantity that remains in stock.
    pub s_quantity: i32,
    /// `B` (true) if both the item's and the stock's data contain `ORIGINAL`, else `G`.
    pub brand: bool,
    /// Quantity times price.
    pub ol_amount: Cents,
}

/// The reason why an order was not entered.
#[derive(Debug)]
pub(super) enum OrderError {
    /// An item does not exist: the roll-back of clause 2.4.2.3.
    UnusedItem,
    /// The engine's error.
    Engine(Error),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        OrderError::Engine(error)
    }
}

/// Draws an input and runs the transaction. Returns whether it was rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let output = &mut client.new_order;
    let result = tpcc.database.execute(&mut NewOrder::new(&tpcc.tables, &input, output));
    black_box(&*output);
    match result {
        Ok(()) => {
            client.entered = Some((input.w_id, input.d_id, output.o_id));
            Ok(false)
        }
        Err(OrderError::UnusedItem) => Ok(true),
        Err(OrderError::Engine(error)) => Err(failure_of(error)),
    }
}

/// Runs the transaction's profile (clause 2.4.2.2), in an order in which it can be chopped. It begins with all
/// items, which decide whether the order is rolled back. It ends with the row of `NEW-ORDER`, by which other
/// transactions find the rest. (So an order that is rolled back skips the steps that the specification executes
/// before its last item. Only the time that it takes shows this.)
#[procedure(NewOrder)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    input: &Input,
    output: &mut Output,
) -> Result<(), OrderError> {
    let &Input { w_id, d_id, c_id, ref lines, entry_d } = input;
    output.lines.clear();

    // Prefetch all rows that the input names.
    tx.prefetch(&tables.customer, [(w_id, d_id, c_id)])?;
    tx.prefetch(&tables.item, lines.iter().map(|line| line.i_id))?;
    tx.prefetch_for_update(&tables.stock, lines.iter().map(|line| (line.supply_w_id, line.i_id)))?;

    // The items: price, name and data of each. If an item is not found, the order is rolled back before anything
    // else is done.
    let mut items = ArrayVec::<&Item, LINES_MAX>::new();
    for line in lines {
        let Some(item) = tx.get(&tables.item, &line.i_id)? else {
            return Err(OrderError::UnusedItem);
        };
        items.push(item);
    }

    // The warehouse's tax.
    output.w_tax = *tx
        .get_columns(&tables.warehouse, &w_id, column_of!(Warehouse.w_tax))?
        .expect("warehouses are never removed");

    // The customer's discount, last name and credit.
    let (c_discount, c_last, c_credit) = tx
        .get_columns(
            &tables.customer,
            &(w_id, d_id, c_id),
            columns_of!(Customer.{c_discount, c_last, c_credit}),
        )?
        .expect("customers are never removed");
    output.c_discount = *c_discount;
    output.c_last = *c_last;
    output.c_credit = Some(*c_credit);

    // The district's tax, and the next order's number.
    (output.d_tax, output.o_id) = tx
        .update_columns(
            &tables.district,
            &(w_id, d_id),
            columns_of!(District.{d_tax, d_next_o_id}),
            |(d_tax, d_next_o_id)| {
                let o_id = *d_next_o_id;
                *d_next_o_id += 1;
                (*d_tax, o_id)
            },
        )?
        .expect("districts are never removed");

    // Insert the order.
    tx.insert(
        &tables.order,
        Order {
            o_w_id: w_id,
            o_d_id: d_id,
            o_id: output.o_id,
            o_c_id: c_id,
            o_entry_d: entry_d,
            o_carrier_id: None,
            o_ol_cnt: lines.len() as u8,
            o_all_local: input.is_all_local(),
        },
    )?;

    // Insert the order's lines, one by one (clause 2.4.2.2, "for each O_OL_CNT item on the order").
    let mut sum = 0;
    for (position, (line, &item)) in lines.iter().zip(&items).enumerate() {
        // Take the quantity out of the item's stock. If less than 10 would remain, 91 are added.
        let (s_quantity, ol_dist_info, brand) = tx
            .update(&tables.stock, &(line.supply_w_id, line.i_id), |stock| {
                let quantity = i32::from(line.quantity);
                stock.s_quantity -= quantity;
                if stock.s_quantity < 10 {
                    stock.s_quantity += 91;
                }
                stock.s_ytd += u64::from(line.quantity);
                stock.s_order_cnt += 1;
                if line.supply_w_id != w_id {
                    stock.s_remote_cnt += 1;
                }
                let brand = is_original(&item.i_data) && is_original(&stock.s_data);
                (stock.s_quantity, stock.s_dist[usize::from(d_id) - 1], brand)
            })?
            .expect("stock is never removed");

        let ol_amount = Cents::from(line.quantity) * item.i_price;
        tx.insert(
            &tables.order_line,
            OrderLine {
                ol_w_id: w_id,
                ol_d_id: d_id,
                ol_o_id: output.o_id,
                ol_number: position as u8 + 1,
                ol_quantity: line.quantity,
                ol_supply_w_id: line.supply_w_id,
                ol_i_id: line.i_id,
                ol_delivery_d: None,
                ol_amount,
                ol_dist_info,
            },
        )?;
        sum += ol_amount;
        let (i_name, i_price) = (item.i_name, item.i_price);
        output.lines.push(LineOutput { i_name, i_price, s_quantity, brand, ol_amount });
    }

    // Mark the order as not yet delivered.
    tx.insert(
        &tables.new_order,
        NewOrderRow { no_w_id: w_id, no_d_id: d_id, no_o_id: output.o_id },
    )?;

    output.total_amount = total_amount(sum, output);
    Ok(())
}

/// Returns the sum of the amounts × (1 − C_DISCOUNT) × (1 + W_TAX + D_TAX), rounded to the cent.
fn total_amount(sum: Cents, output: &Output) -> Cents {
    const ONE: Cents = 10_000;
    let discounted = sum * (ONE - Cents::from(output.c_discount));
    let taxed = discounted * (ONE + Cents::from(output.w_tax) + Cents::from(output.d_tax));
    (taxed + ONE * ONE / 2) / (ONE * ONE)
}
