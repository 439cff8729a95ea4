//! A server for Weft that speaks Redis's protocol.
//!
//! Clients of Redis connect unchanged. Every command is a strictly serializable transaction, which runs on any core; so is
//! everything between `MULTI` and `EXEC`. The page *From Redis to Weft* of the guide says what is there and what is
//! different.
//!
//! From the socket to the tables:
//!
//! 1. `server`: what all connections share. It accepts connections, and ends them. The threads of `workers` serve them.
//! 2. `connection`: reads requests (`request`), and sends replies (`reply`) when their commits are durable. Of requests that have
//!    arrived together (`batch`), `together` plans which ones share a transaction, and `needed_rows` fetches their rows.
//! 3. `session`: one client's state. It looks commands up, queues them after `MULTI`, and runs transactions.
//! 4. `commands`: the table of commands, and one function for each, with its arguments in a `call`. `scripts` has Lua, whose
//!    scripts and functions call commands, and `procedures` what programs put on the wire by [`Builder::procedure`].
//! 5. `users`: the rights to run commands.
//! 6. `store`: keys and their values over the `tables` and the `stream_tables`. `watch` has the keys under `WATCH`, `turns`
//!    the order of clients at those that are hot, and `collector` removes in the background what has expired.
//! 7. `rdb`: values in Redis's own format, for `DUMP`, `RESTORE` and imports. `monitor` has the clients that see every command.
//! 8. `replication`: what a replicated server does as the primary, as a standby, and when it changes.
//! 9. `effects`: what a transaction does after its commit. It wakes clients that are `waiting` with a `blocked` command, and
//!    it sends messages (`publish`), among them the `notifications` of changed keys.
//!
//! ```
//! use std::sync::Arc;
//! use weft_server::{Listeners, Options, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! runtime.block_on(async {
//!     let server = Server::open(Options::default())?;
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     let listeners = Listeners { tcp: vec![listener], ..Listeners::default() };
//!     server.serve(listeners, async { /* until this is ready */ }).await?;
//!     Ok(())
//! })
//! # }
//! ```

mod backups;
mod batch;
mod blocked;
mod call;
mod clients;
mod collector;
mod commands;
mod connection;
mod counters;
mod effects;
mod glob;
mod health;
mod http;
mod import;
mod import_streams;
mod inspect;
mod latency;
mod listeners;
mod log;
mod metrics;
mod monitor;
mod named;
mod needed_rows;
mod notifications;
mod poller;
mod procedures;
mod process;
mod publish;
mod rdb;
mod reload;
mod replication;
mod reply;
mod request;
mod scripts;
mod server;
mod session;
mod settings;
mod slow_log;
mod socket;
mod stop;
mod store;
mod stream_tables;
mod syncer;
mod systemd;
mod tables;
mod text;
mod tls;
mod together;
mod turns;
mod users;
mod waiting;
mod watch;
mod workers;

pub use import::{ImportOptions, Imported, import};
pub use listeners::{ListenOptions, Listeners};
pub use log::{Level, log};
pub use procedures::{
    Arguments, FromArgument, FromDatabase, IntoReply, Parameter, Refused, Served,
};
pub use reload::Reloader;
pub use replication::ReplicationOptions;
pub use reply::Reply;
pub use server::{Builder, Options, Server};
pub use settings::{SETTINGS, Setting, find as find_setting, read_file as read_settings};
pub use tables::{StoreOptions, with_replicated_tables, with_tables};
pub use tls::TlsFiles;

/// A name, and what is said about it.
pub type Listed = (&'static str, &'static str);

/// Returns the names of the commands that the server has, each with its group, and of those that it does not have, each
/// with the reason.
pub fn list_commands() -> (Vec<Listed>, Vec<Listed>) {
    let there = commands::COMMANDS.iter().map(|command| (command.name, command.group)).collect();
    (there, commands::absent::ABSENT.to_vec())
}
