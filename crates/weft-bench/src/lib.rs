//! The harness of Weft's benchmarks.
//!
//! [`harness`] runs a workload under several protocols in turns, and reports what came of it. It knows neither which
//! protocols nor which workloads there are: a command brings both, as a [`harness::contender::Benchmark`]. So the
//! product's command compiles TPC-C under three protocols, and the laboratory's all workloads under all of them.
//! [`tpcc`] has TPC-C's own options, which both commands have.
//!
//! The rest is what commands have in common: [`arguments`], the options of every benchmark, and how values are parsed;
//! [`stop`], how a command ends early; [`progress`], [`numbers`], [`plot`], [`input`].

pub mod arguments;
pub mod harness;
pub mod input;
mod memory;
pub mod numbers;
pub mod plot;
pub mod progress;
pub mod protocols;
pub mod stop;
pub mod tpcc;
