//! The server over real sockets: its replies beside Redis's, transactions of several clients, limits, hostile bytes, and
//! what survives a kill.

mod client;
mod documents;
mod durable;
mod histories;
mod limits;
mod procedures;
mod replies;
mod scripts;
mod transactions;
