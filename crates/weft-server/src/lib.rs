//! A server for Weft that speaks Redis's protocol.
//!
//! Clients of Redis connect unchanged. Every command is a strictly serializable transaction, which runs on any core; so is
//! everything between `MULTI` and `EXEC`. The page *From Redis to Weft* of the guide says what is there and what is
//! different.
//!
//! From the socket to the tables:
//!
//! 1. `server`: what all connections share. It accepts connections, and ends them.
//! 2. `connection`: reads requests (`request`), and sends replies (`reply`) when their commits are durable.
//! 3. `session`: one client's state. It looks commands up, queues them after `MULTI`, and runs transactions.
//! 4. `commands`: the table of commands, and one function for each, with its arguments in a `call`. `scripts` has Lua, whose
//!    scripts and functions call commands, and `procedures` what programs put on the wire by [`Builder::procedure`].
//! 5. `store`: keys and their values over the `tables`. `watch` has the keys under `WATCH`, and `collector` removes in the
//!    background what has expired.
//!
//! ```
//! use std::sync::Arc;
//! use weft_server::{Options, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! runtime.block_on(async {
//!     let server = Server::open(Options::default())?;
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     server.serve(vec![listener], None, async { /* until this is ready */ }).await?;
//!     Ok(())
//! })
//! # }
//! ```

mod call;
mod clients;
mod collector;
mod commands;
mod connection;
mod glob;
mod log;
mod procedures;
mod reply;
mod request;
mod scripts;
mod server;
mod session;
mod slow_log;
mod stop;
mod store;
mod tables;
mod watch;

pub use log::log;
pub use procedures::{
    Arguments, FromArgument, FromDatabase, IntoReply, Parameter, Refused, Served,
};
pub use reply::Reply;
pub use server::{Builder, Options, Server};
pub use tables::{StoreOptions, with_tables};

/// A name, and what is said about it.
pub type Listed = (&'static str, &'static str);

/// Returns the names of the commands that the server has, each with its group, and of those that it does not have, each
/// with the reason.
pub fn list_commands() -> (Vec<Listed>, Vec<Listed>) {
    let there = commands::COMMANDS.iter().map(|command| (command.name, command.group)).collect();
    (there, commands::absent::ABSENT.to_vec())
}
