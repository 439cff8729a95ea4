//! Coordination between threads, below rows and records: clocks, grace periods, and ways to hold transactions
//! back.
//!
//! - [`clock`]: the global epoch, which orders commits for the log, and the numbers of snapshots.
//! - [`reclaim`]: the grace periods after which unlinked memory may be freed. They have a clock of their own
//!   because it must tick faster. The epoch advances every 40 ms, so that one disk write makes many
//!   transactions durable. Memory should come back while it is still in the cache, so grace periods are as
//!   short as the transactions.
//! - [`time`]: the time of day that transactions go by, which never goes back.
//! - [`turnstile`]: lets a starving transaction through by holding back all others.
//! - [`gate`]: keeps procedures in pieces apart from all other transactions.
//! - [`wait_queue`]: the threads that wait for a worker.
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: its readers have the source")]

pub mod clock;
pub mod gate;
pub mod reclaim;
pub mod time;
pub mod turnstile;
pub mod wait_queue;
