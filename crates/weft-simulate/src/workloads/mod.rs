//! The workloads: the options of each, and how it is loaded.

pub mod articles;
pub mod bank;
pub mod flash_sale;
pub mod incr;
pub mod like;
pub mod locks;
pub mod mixture;
pub mod queue;
pub mod rubis;
pub mod shift;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;
