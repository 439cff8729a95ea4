//! The harness of Weft's benchmarks.
//!
//! [`harness`] runs a workload under several protocols in turns, and reports what came of it. It knows neither which
//! protocols nor which workloads there are: a command brings both, as a [`harness::contender::Benchmark`]. So the
//! product's command compiles TPC-C under three protocols, and the laboratory's all workloads under all of them.
//! [`tpcc`] measures TPC-C, which both commands do.
//!
//! The options of the workloads themselves are in `weft_options`, which `cargo simulate` has, too.
//!
//! The rest is what commands have in common: [`arguments`], the options of every benchmark;
//! [`stop`], how a command ends early; [`progress`], [`numbers`], [`plot`], [`svg`], [`input`].

pub mod arguments;
pub mod harness;
pub mod input;
mod memory;
pub mod numbers;
pub mod plot;
pub mod progress;
pub mod stop;
pub mod svg;
pub mod tpcc;
