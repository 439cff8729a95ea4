//! The Payment transaction (clause 2.5): a customer pays, and the sales figures of the district and the warehouse
//! are updated.
//!
//! It is a light-weight read-write transaction that contends for the warehouse's row. 15 % of the payments are made
//! by customers of another warehouse.

use std::hint::black_box;

use arrayvec::ArrayString;
use weft::protocol::Protocol;
use weft::{Error, Failure, Transaction, column_of};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::customer::{Selector, middle};
use super::schema::{
    BAD_CREDIT, Cents, Customer, District, History, NAME_BYTES_MAX, Timestamp, Warehouse,
};
use super::{Tables, Tpcc, failure_of};

/// The input from the user (clause 2.5.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse where the payment is made.
    pub w_id: u16,
    /// The district where the payment is made.
    pub d_id: u8,
    /// The customer's warehouse.
    pub c_w_id: u16,
    /// The customer's district.
    pub c_d_id: u8,
    /// The customer.
    pub customer: Selector,
    /// The amount.
    pub amount: Cents,
    /// The time of the payment.
    pub date: Timestamp,
    /// The key of the row of history to write.
    pub history_key: (u32, u32),
}

impl Input {
    /// Draws an input as in clause 2.5.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        let w_id = client.draw_home();
        let d_id = client.draw_district();
        // Clause 2.5.1.2: 85 % of the customers pay in their own district.
        let (c_w_id, c_d_id) = if client.random.chance(85) || client.warehouses == 1 {
            (w_id, d_id)
        } else {
            (client.draw_remote(w_id), client.draw_district())
        };
        Input {
            w_id,
            d_id,
            c_w_id,
            c_d_id,
            customer: Selector::draw(client),
            // Clause 2.5.1.3: 1.00 to 5,000.00.
            amount: client.random.within_i64(1_00, 5_000_00),
            date: Timestamp::now(),
            history_key: client.next_history_key(),
        }
    }
}

/// The output on the terminal (clause 2.5.3): the customer and the new balance. The terminal also shows names and
/// addresses. These are in rows that the transaction reads, and are not copied.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The customer's number.
    pub c_id: u32,
    /// The customer's last name.
    pub c_last: ArrayString<NAME_BYTES_MAX>,
    /// The customer's new balance.
    pub c_balance: Cents,
    /// The first 200 characters of C_DATA, for a customer with bad credit.
    pub c_data: Option<ArrayString<200>>,
}

/// Draws an input and runs the transaction, which is never rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let mut payment = Payment::new(&tpcc.tables, &input, &mut client.found);
    let output = tpcc.database.execute(&mut payment).map_err(failure_of)?;
    black_box(&output);
    Ok(false)
}

/// Runs the transaction's profile (clause 2.5.2.2).
#[procedure(Payment)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    tx: &Transaction<'_, P>,
    input: &Input,
    found: &mut Vec<u32>,
) -> Result<Output, Error> {
    // Add the amount to the warehouse's year-to-date; read its name. (In this order, a protocol that locks takes the
    // exclusive lock at once. After a read it would have to upgrade a shared one.)
    tx.add(&tables.warehouse, &input.w_id, column_of!(Warehouse.w_ytd), input.amount)?;
    let w_name = *tx
        .get_columns(&tables.warehouse, &input.w_id, column_of!(Warehouse.w_name))?
        .expect("warehouses are never removed");

    // Add the amount to the district's year-to-date; read its name.
    let district = (input.w_id, input.d_id);
    tx.add(&tables.district, &district, column_of!(District.d_ytd), input.amount)?;
    let d_name = *tx
        .get_columns(&tables.district, &district, column_of!(District.d_name))?
        .expect("districts are never removed");

    // The customer, by number (case 1) or by last name (case 2).
    let c_id = match &input.customer {
        Selector::Number(c_id) => *c_id,
        Selector::LastName(last) => {
            let name = (input.c_w_id, input.c_d_id, *last);
            found.clear();
            for customer in tx.prefix_by(&tables.customer, Customer::BY_NAME, &name) {
                found.push(customer?.c_id);
            }
            middle(found)
        }
    };
    let output = tx
        .update(&tables.customer, &(input.c_w_id, input.c_d_id, c_id), |customer| {
            customer.c_balance -= input.amount;
            customer.c_ytd_payment += input.amount;
            customer.c_payment_cnt += 1;
            let mut c_data = None;
            if customer.c_credit == BAD_CREDIT {
                customer.c_data = data_of_bad_credit(customer.c_id, &customer.c_data, input);
                c_data = Some(beginning(&customer.c_data));
            }
            let (c_last, c_balance) = (customer.c_last, customer.c_balance);
            Output { c_id: customer.c_id, c_last, c_balance, c_data }
        })?
        .expect("customers are never removed");

    // Insert the row of history. H_DATA is W_NAME, four spaces and D_NAME.
    let mut h_data = ArrayString::new();
    h_data.push_str(&w_name);
    h_data.push_str("    ");
    h_data.push_str(&d_name);
    let (h_origin, h_sequence) = input.history_key;
    tx.insert(
        &tables.history,
        History {
            h_origin,
            h_sequence,
            h_c_id: c_id,
            h_c_d_id: input.c_d_id,
            h_d_id: input.d_id,
            h_c_w_id: input.c_w_id,
            h_w_id: input.w_id,
            h_date: input.date,
            h_amount: input.amount,
            h_data,
        },
    )?;
    Ok(output)
}

/// Returns the first 200 characters of C_DATA.
fn beginning(c_data: &str) -> ArrayString<200> {
    let mut shown = ArrayString::new();
    shown.push_str(&c_data[..c_data.len().min(200)]);
    shown
}

/// Returns the new C_DATA of a customer with bad credit: the payment's data, followed by the old C_DATA, cut off at
/// 500 characters.
fn data_of_bad_credit(c_id: u32, c_data: &str, input: &Input) -> ArrayString<500> {
    let mut data = ArrayString::new();
    let particulars = [
        u64::from(c_id),
        input.c_d_id.into(),
        input.c_w_id.into(),
        input.d_id.into(),
        input.w_id.into(),
        input.amount as u64,
    ];
    for particular in particulars {
        push_decimal(&mut data, particular);
        data.push(' ');
    }
    let kept = c_data.len().min(data.remaining_capacity());
    data.push_str(&c_data[..kept]);
    data
}

/// Appends `number` in decimal.
fn push_decimal(text: &mut ArrayString<500>, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[first..]).expect("digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 99, 100, 5_000_00, u64::from(u32::MAX), u64::MAX] {
            let mut text = ArrayString::new();
            push_decimal(&mut text, number);
            assert_eq!(text.as_str(), number.to_string());
        }
    }
}
