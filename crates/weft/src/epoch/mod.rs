//! Time as the engine sees it: the global epoch that orders commits for the log ([`clock`]), and
//! the grace periods after which what was unlinked may be freed ([`reclaim`]).
//!
//! They are two clocks because they tick at different speeds. The epoch advances every 40 ms, so
//! that one disk write can make many transactions durable. Memory, on the other hand, should come
//! back while it is still in the cache, so grace periods are as short as the transactions.

pub mod clock;
pub mod garbage;
pub mod reclaim;
