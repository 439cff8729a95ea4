//! The workloads: the options of each, and how it is loaded.

pub mod articles;
pub mod incr;
pub mod like;
pub mod locks;
pub mod rubis;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;
