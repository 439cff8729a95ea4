//! Several servers of one replicated database in one process, to try what clients do: `cargo run -p weft-server --example
//! replicated -- 7001 7002 7003`. The replicated log is in memory. One of them becomes the primary after some seconds, or the one
//! that gets `redis-cli -p 7002 WEFT.PROMOTE`.

use std::io;

use tokio::net::TcpListener;
use weft::Database;
use weft_replication::{NodeBuilder, SimulatedLog};
use weft_server::{Listeners, Server};

fn main() -> io::Result<()> {
    let ports: Vec<u16> = std::env::args().skip(1).filter_map(|port| port.parse().ok()).collect();
    if ports.is_empty() {
        return Err(io::Error::other("name the ports of the servers"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let log = SimulatedLog::new(1);
        let mut serving = Vec::new();
        for port in ports {
            let address = format!("127.0.0.1:{port}");
            let node = NodeBuilder::new(Database::builder).address(&address);
            let server = Server::builder().replicated(node, log.connect()).open()?;
            let listeners =
                Listeners { tcp: vec![TcpListener::bind(address).await?], ..Listeners::default() };
            serving.push(tokio::spawn(server.serve(listeners, std::future::pending())));
        }
        for server in serving {
            server.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}
