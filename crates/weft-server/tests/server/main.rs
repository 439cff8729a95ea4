//! The server over real sockets: its replies and events beside Redis's, transactions of several clients, clients that wait
//! for elements or for their turn, pipelines, messages, streams, values in Redis's format, clients that monitor, what
//! the server says about itself, limits, hostile bytes, and what survives a kill.

mod blocking;
mod client;
mod documents;
mod dump;
mod durable;
mod held_disk;
mod histories;
mod hot_keys;
mod import;
mod introspection;
mod limits;
mod missing;
mod monitor;
mod notifications;
mod pipelines;
mod poller;
mod procedures;
mod publish;
mod replication;
mod replies;
mod scripts;
mod settings;
mod streams;
mod tls;
mod transactions;
mod users;
