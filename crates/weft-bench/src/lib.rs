//! The harness of Weft's benchmarks.
//!
//! [`harness`] runs a workload under several protocols in turns, and reports the results. It does not know which
//! protocols and workloads exist: a command provides both, as a [`harness::contender::Benchmark`]. So the command
//! `weft` compiles only TPC-C under three protocols, and `weft-lab` all workloads under all protocols. [`tpcc`] is
//! the benchmark of TPC-C, which both commands have.
//!
//! The options of the workloads are in `weft_options`, which `cargo simulate` uses, too.
//!
//! The other modules are shared by the commands: [`arguments`], the options of every benchmark; [`stop`], the early
//! end of a command; [`progress`], [`numbers`], [`plot`], [`svg`], [`input`].

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
