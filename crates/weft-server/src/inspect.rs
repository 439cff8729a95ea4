//! The page that looks inside the database, at `--inspect-port`.
//!
//! A page shows one database, and keeps it open. The node of a replicated server has another database after it has stepped
//! down. Then the page of the old one ends, and one of the new database begins at the same address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;

use crate::log::{Level, log};
use crate::replication::Current;

/// How long the server waits before it tries again to open the page.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the page of the current server's database. The returned future follows the changes of the server until it is
/// dropped, which ends the page.
///
/// # Errors
/// The port is in use.
pub fn serve(current: Current, port: u16) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    // Before the database is looked up, so that no change is missed.
    let mut changes = current.changes();
    let page = open(&current, (Ipv4Addr::LOCALHOST, port).into())?;
    let address = page.address();
    log(Level::Info, "listening", json!({ "address": address.to_string(), "inspects": true }));
    Ok(async move {
        let mut page = Some(page);
        while changes.changed().await.is_ok() {
            // The old page leaves the address, and lets the old database go.
            drop(page.take());
            page = loop {
                match open(&current, address) {
                    Ok(page) => break Some(page),
                    Err(error) => {
                        let error = error.to_string();
                        log(Level::Error, "cannot open the page", json!({ "error": error }));
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            };
        }
    })
}

fn open(current: &Current, address: SocketAddr) -> io::Result<weft_inspect::Server> {
    weft_inspect::serve(&current.get().database, address)
}
