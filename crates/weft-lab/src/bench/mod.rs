//! `cargo lab bench`: the workloads. Each adds its own options to the [harness](weft_bench::harness).

pub mod ablation;
pub mod articles;
pub mod bank;
pub mod flash_sale;
pub mod incr;
pub mod like;
pub mod locks;
pub mod map;
pub mod mixture;
pub mod queue;
pub mod reaction;
pub mod rtm;
pub mod rubis;
pub mod shift;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;
