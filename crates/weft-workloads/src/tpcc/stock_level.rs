//! The Stock-Level transaction (clause 2.8), which counts the recently sold items whose stock is low.
//!
//! It is a heavy read-only transaction, which reads about two hundred order lines and their stock. The
//! specification allows it weaker isolation than serializability. Here it is executed like the others, or reads a
//! snapshot.

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::{Error, Failure, column_of};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::schema::District;
use super::{Tables, Tpcc, failure_of};
use crate::view::View;

/// The number of orders that are examined: the last ones of the district.
const ORDERS: u32 = 20;

/// The input from the user (clause 2.8.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// A quantity in stock below this threshold is low.
    pub threshold: i32,
}

impl Input {
    /// Draws an input as in clause 2.8.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        Input {
            w_id: client.draw_home(),
            d_id: client.draw_district(),
            threshold: client.random.within_u8(10, 20).into(),
        }
    }
}

/// Draws an input and runs the transaction, on a snapshot if the parameters say so. It is never rolled back.
pub(super) fn execute<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client) -> Result<bool, Failure> {
    let input = Input::draw(client);
    let found = &mut client.found;
    let Tpcc { database, tables, parameters, .. } = tpcc;
    let low_stock = parameters
        .snapshots
        .read(database, |snapshot| run::<P>(tables, snapshot, &input, found))
        .unwrap_or_else(|| database.execute(&mut StockLevel::new(tables, &input, found)));
    let low_stock = low_stock.map_err(failure_of)?;
    black_box(low_stock);
    Ok(false)
}

/// Runs the transaction's profile (clause 2.8.2.2). Returns the number of distinct items whose stock is low.
/// `found` is a buffer.
#[procedure(StockLevel, transaction = view)]
pub(super) fn run<P: Protocol>(
    tables: &Tables,
    view: &impl View<P>,
    input: &Input,
    found: &mut Vec<u32>,
) -> Result<usize, Error> {
    let &Input { w_id, d_id, threshold } = input;

    // The number that the district's next order will have.
    let next_o_id =
        view.get_columns(&tables.district, &(w_id, d_id), column_of!(District.d_next_o_id))?;
    let next_o_id = *next_o_id.expect("districts are never removed");

    // The items of the last twenty orders, each once.
    let first = next_o_id.saturating_sub(ORDERS);
    found.clear();
    for line in view.range(&tables.order_line, (w_id, d_id, first, 0)..(w_id, d_id, next_o_id, 0)) {
        found.push(line?.ol_i_id);
    }
    found.sort_unstable();
    found.dedup();

    // Count those whose quantity in stock is below the threshold.
    let keys = found.iter().map(|&i_id| (w_id, i_id));
    let mut low_stock = 0;
    for stock in view.get_many(&tables.stock, keys)? {
        if stock?.expect("stock is never removed").s_quantity < threshold {
            low_stock += 1;
        }
    }
    Ok(low_stock)
}
