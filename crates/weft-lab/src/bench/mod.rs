//! `cargo lab bench`: the workloads. Each adds its own options to the [harness](weft_bench::harness).

pub mod articles;
pub mod incr;
pub mod like;
pub mod locks;
pub mod rtm;
pub mod rubis;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;
