//! What threads agree on, beneath rows and records: the clocks, and who waits for whom.
//!
//! - [`clock`]: the global epoch, which orders commits for the log, and the numbers of snapshots.
//! - [`reclaim`]: the grace periods after which unlinked memory may be freed. They are a clock of their own because it
//!   ticks faster: the epoch advances every 40 ms, so that one disk write makes many transactions durable; memory
//!   should come back while it is still in the cache, so grace periods are as short as the transactions.
//! - [`turnstile`]: how a starving transaction gets through.
//! - [`gate`]: how procedures in pieces keep apart from all else.
#![allow(rustdoc::private_intra_doc_links, reason = "hidden: whoever reads it reads the source")]

pub mod clock;
pub mod gate;
pub mod reclaim;
pub mod turnstile;
