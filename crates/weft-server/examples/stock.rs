//! A server with a table and a procedure of its own, next to Redis's types: `cargo run -p weft-server --example stock [PORT]`
//!
//! Then, with any client of Redis: `redis-cli -p 6380 take 7`. The folder `clients` has clients in Python, Go, JavaScript
//! and Java.

use tokio::net::TcpListener;
use weft::{Database, Error, Record, Table, Transaction};
use weft_procedures::procedure;
use weft_server::{Listeners, Server};

/// Something to sell.
#[derive(Clone, Record)]
pub struct Item {
    #[record(key)]
    id: u64,
    name: String,
    stock: u32,
}

/// Takes items from the stock, one if no number is given. Returns their name, and how many are left.
///
/// Returns nothing if there is no such item, or not enough of it.
#[procedure(Take, served)]
pub fn take(
    items: &Table<Item>,
    tx: &Transaction<'_>,
    id: u64,
    count: Option<u32>,
) -> Result<Option<(String, u32)>, Error> {
    let count = count.unwrap_or(1);
    let left = tx.update(items, &id, |item| {
        let left = item.stock.checked_sub(count);
        item.stock = left.unwrap_or(item.stock);
        left.map(|left| (item.name.clone(), left))
    })?;
    Ok(left.flatten())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(6380), |port| port.parse::<u16>())?;
    let database = weft_server::with_tables(Database::builder().table::<Item>()).open()?;
    let items = database.table::<Item>()?;
    database.transact(|tx| {
        tx.insert(&items, Item { id: 7, name: "lamp".into(), stock: 1000 })?;
        tx.insert(&items, Item { id: 8, name: "chair".into(), stock: 4 })
    })?;
    let server = Server::builder().database(database).procedure::<Take<'_>>("take").open()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let listeners = Listeners { tcp: vec![listener], ..Listeners::default() };
        server.serve(listeners, std::future::pending()).await?;
        Ok(())
    })
}
