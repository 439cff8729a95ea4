//! The Stock-Level transaction (clause 2.8): how many of the items sold lately are running short?
//!
//! A heavy read-only transaction: some two hundred order lines and their stock. The specification
//! would let it see less than a serializable transaction must; here it is one like the others, or
//! reads a snapshot.

use std::hint::black_box;

use weft::protocol::Protocol;
use weft::{Error, Failure};
use weft_procedures::{Execute, procedure};

use super::client::Client;
use super::{Tables, Tpcc, failure_of};
use crate::view::View;

/// How many of the last orders are looked at.
const ORDERS: u32 = 20;

/// What the user enters (clause 2.8.1).
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w_id: u16,
    /// The district.
    pub d_id: u8,
    /// Less than this in stock is short.
    pub threshold: i32,
}

impl Input {
    /// Draws an input by clause 2.8.1.
    pub(super) fn draw(client: &mut Client) -> Input {
        Input {
            w_id: client.draw_home(),
            d_id: client.draw_district(),
            threshold: client.random.within_u8(10, 20).into(),
        }
    }
}

/// Draws an input and runs the transaction, on a snapshot if so asked for; it is never rolled back.
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

/// The transaction's profile (clause 2.8.2.2): the number of distinct items that are short.
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
    let district = view.get(&tables.district, &(w_id, d_id))?.expect("districts are never removed");
    let next_o_id = district.d_next_o_id;

    // The items of the last twenty orders, each once.
    let first = next_o_id.saturating_sub(ORDERS);
    found.clear();
    for line in view.range(&tables.order_line, (w_id, d_id, first, 0)..(w_id, d_id, next_o_id, 0)) {
        found.push(line?.ol_i_id);
    }
    found.sort_unstable();
    found.dedup();

    // Those of which less is in stock than the threshold.
    let keys = found.iter().map(|&i_id| (w_id, i_id));
    let mut low_stock = 0;
    for stock in view.get_many(&tables.stock, keys)? {
        if stock?.expect("stock is never removed").s_quantity < threshold {
            low_stock += 1;
        }
    }
    Ok(low_stock)
}
