//! Nodes on a cluster of three brokers, and what goes wrong with machines and networks: `.ci/kafka` fetches the brokers'
//! programs, and names their place in `WEFT_KAFKA_JARS`. Without it, these tests do nothing.
//!
//! Clients of three nodes append to lists and read them, also at nodes that have been replaced and do not know it. A
//! schedule, which `WEFT_SEED` repeats, kills and stops nodes and brokers, cuts links, and promotes nodes. In the end,
//! everything acknowledged must be there exactly once, and the history of all clients must be strictly serializable.
//! `WEFT_KAFKA_PROMOTIONS` is the number of promotions.

#![allow(
    clippy::disallowed_types,
    reason = "these words are the test's own, which no model checker runs"
)]

mod brokers;
mod drills;
mod faults;
mod history;
mod measure;
mod process;
mod proxy;
